import argparse
import os

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import pretrain
from net import Classifier


def waves(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    t = torch.linspace(0, 6.2832, 32)
    x = torch.sin(t * (1 + y.unsqueeze(1)) + torch.rand(n, 1, generator=g)) + 0.3 * torch.randn(n, 32, generator=g)
    return TensorDataset(x.unsqueeze(1), y)


def set_requires_grad(module, value):
    for p in module.parameters():
        p.requires_grad = value


def run_epoch(model, loader, device, optimizer=None):
    training = optimizer is not None
    model.train(training)
    loss_sum, correct, n = 0.0, 0, 0
    with torch.set_grad_enabled(training):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            if training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            loss_sum += loss.item() * len(y)
            correct += (logits.argmax(1) == y).sum().item()
            n += len(y)
    return loss_sum / n, correct / n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--init", default="backbone.pt")
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()
    if not os.path.exists(args.init):
        pretrain.main(args.init)
    torch.manual_seed(3)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(waves(96, 1), batch_size=16, shuffle=True)
    val_loader = DataLoader(waves(26, 2), batch_size=16)
    model = Classifier(3).to(device)
    model.backbone.load_state_dict(torch.load(args.init, map_location=device))
    set_requires_grad(model.backbone, False)
    optimizer = torch.optim.Adam(model.fc.parameters(), lr=args.lr)
    for epoch in range(3):
        if epoch == 1:
            set_requires_grad(model.backbone, True)
            groups = [{"params": model.backbone.parameters(), "lr": args.lr / 10}, {"params": model.fc.parameters()}]
            optimizer = torch.optim.Adam(groups, lr=args.lr)
        train_loss, train_acc = run_epoch(model, train_loader, device, optimizer)
        val_loss, val_acc = run_epoch(model, val_loader, device)
        print(f"{epoch} {train_loss:.5f} {train_acc:.4f} {val_loss:.5f} {val_acc:.4f}")
    torch.save({"state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, "finetuned.pt")


if __name__ == "__main__":
    main()
