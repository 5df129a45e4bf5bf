import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    """Ten glyphs on a 12x12 grid, shifted and blurred by noise."""

    def __init__(self, train=True):
        g = torch.Generator().manual_seed(1 if train else 2)
        glyphs = torch.rand(10, 8, 8, generator=torch.Generator().manual_seed(0)).round()
        n = 256 if train else 100
        self.labels = torch.randint(0, 10, (n,), generator=g)
        self.images = torch.zeros(n, 1, 12, 12)
        for i, label in enumerate(self.labels):
            y, x = torch.randint(0, 5, (2,), generator=g).tolist()
            self.images[i, 0, y : y + 8, x : x + 8] = glyphs[label]
        self.images += 0.3 * torch.randn(self.images.shape, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc1 = nn.Linear(256, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(accelerator, args, model, device, loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        accelerator.backward(loss)
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            mean = accelerator.reduce(loss.detach(), "mean")
            done = batch_idx * args.batch_size
            accelerator.print(f"Train Epoch: {epoch} [{done}/{len(loader.dataset)}]\tLoss: {mean.item():.6f}")


def test(accelerator, model, device, loader):
    model.eval()
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output, target = accelerator.gather_for_metrics((model(data), target))
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            correct += output.argmax(dim=1).eq(target).sum().item()
    test_loss /= len(loader.dataset)
    accelerator.print(f"Test set: Average loss: {test_loss:.4f}, Accuracy: {correct}/{len(loader.dataset)}")
    return correct


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=4)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
    device = accelerator.device
    train_loader = DataLoader(Digits(True), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(Digits(False), batch_size=64)
    model = Net().to(device)
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )
    os.makedirs("checkpoints", exist_ok=True)
    best = -1
    for epoch in range(1, args.epochs + 1):
        train(accelerator, args, model, device, train_loader, optimizer, epoch)
        correct = test(accelerator, model, device, test_loader)
        scheduler.step()
        if correct > best:
            best = correct
            accelerator.save(accelerator.unwrap_model(model).state_dict(), "checkpoints/best.pt")
    accelerator.save(accelerator.unwrap_model(model).state_dict(), "checkpoints/last.pt")


if __name__ == "__main__":
    main()
