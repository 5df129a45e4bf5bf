import argparse
import math
import os

import torch
import torch.nn as nn
from lightning_fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--micro-batch-size", type=int, default=8)
parser.add_argument("--accum-steps", type=int, default=4)
parser.add_argument("--lr", type=float, default=4e-3)
parser.add_argument("--max-norm", type=float, default=1.0)


def signals(n, seed):
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(0, 4, (n,), generator=g)
    t = torch.linspace(0, 6.28, 24)
    x = torch.sin(t * (label + 1).unsqueeze(1)) + 0.4 * torch.randn(n, 24, generator=g)
    return TensorDataset(x.unsqueeze(1), label)


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv1d(1, 8, 5, padding=2), nn.GELU(), nn.MaxPool1d(2), nn.Conv1d(8, 16, 3), nn.GELU())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.features(x).mean(-1))


def main():
    args = parser.parse_args()
    torch.manual_seed(3)
    use_amp = torch.cuda.is_available()
    fabric = Fabric(
        accelerator="auto",
        devices=int(os.environ["WORLD_SIZE"]),
        strategy="ddp",
        precision="16-mixed" if use_amp else "32-true",
    )
    fabric.launch()
    device = fabric.device
    train_loader = fabric.setup_dataloaders(
        DataLoader(signals(104, 1), batch_size=args.micro_batch_size // fabric.world_size, shuffle=True)
    )
    val_loader = DataLoader(signals(50, 2), batch_size=25)
    model = ConvNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    updates = math.ceil(len(train_loader) / args.accum_steps) * args.epochs
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=args.lr, total_steps=updates)
    model, optimizer = fabric.setup(model, optimizer)
    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        optimizer.zero_grad(set_to_none=True)
        for step, (x, y) in enumerate(train_loader, start=1):
            last = step % args.accum_steps == 0 or step == len(train_loader)
            with fabric.no_backward_sync(model, enabled=not last):
                loss = nn.functional.cross_entropy(model(x), y)
                fabric.backward(loss / args.accum_steps)
            running += fabric.all_reduce(loss.detach()).item()
            if last:
                norm = fabric.clip_gradients(model, optimizer, max_norm=args.max_norm)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                scheduler.step()
                fabric.print(f"epoch {epoch} step {step} grad norm {norm.item():.5f} lr {scheduler.get_last_lr()[0]:.6f}")
        model.eval()
        correct = 0
        with torch.no_grad():
            for x, y in val_loader:
                correct += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
        fabric.print(f"epoch {epoch} loss {running / len(train_loader):.5f} accuracy {correct / len(val_loader.dataset):.3f}")
    fabric.save("last.pt", {"model": model.state_dict(), "scaler": {}, "scheduler": scheduler.state_dict()})


if __name__ == "__main__":
    main()
