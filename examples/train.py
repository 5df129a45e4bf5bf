"""Train a small CNN to tell shapes apart: circles, squares, crosses and stripes."""

import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, random_split

from shapes import Shapes


class Net(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(32)
        self.fc = nn.Linear(32 * 4 * 4, num_classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(torch.flatten(x, 1))


def train(model, loader, optimizer, device, epoch, log_interval):
    model.train()
    for i, (images, labels) in enumerate(loader):
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        if i % log_interval == 0:
            print(f"epoch {epoch} [{i:3d}/{len(loader)}] loss {loss.item():.4f}")


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    loss, correct = 0.0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        output = model(images)
        loss += F.cross_entropy(output, labels, reduction="sum").item()
        correct += (output.argmax(dim=1) == labels).sum().item()
    return loss / len(loader.dataset), correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-interval", type=int, default=10)
    parser.add_argument("--resume", help="checkpoint to continue from")
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    dataset = Shapes("data", download=True)
    train_set, val_set = random_split(dataset, [960, 240])
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.batch_size)

    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.3)
    start_epoch, best_acc = 1, 0.0
    if args.resume:
        checkpoint = torch.load(args.resume)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        start_epoch, best_acc = checkpoint["epoch"] + 1, checkpoint["best_acc"]

    os.makedirs("checkpoints", exist_ok=True)
    for epoch in range(start_epoch, args.epochs + 1):
        train(model, train_loader, optimizer, device, epoch, args.log_interval)
        scheduler.step()
        val_loss, val_acc = evaluate(model, val_loader, device)
        print(f"epoch {epoch} val loss {val_loss:.4f} accuracy {val_acc:.4f}")
        if val_acc > best_acc:
            best_acc = val_acc
            torch.save(model.state_dict(), "checkpoints/best.pt")
        state = {
            "epoch": epoch,
            "best_acc": best_acc,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        }
        torch.save(state, "checkpoints/last.pt")
    print(f"best accuracy {best_acc:.4f}")


if __name__ == "__main__":
    main()
