import csv
import math
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

WINDOW, HORIZON = 12, 3


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def total(value):
    """The sum of a number over all ranks."""
    value = torch.tensor(float(value), device="cuda" if torch.cuda.is_available() else "cpu")
    dist.all_reduce(value)
    return value.item()


class Windows(Dataset):
    def __init__(self, series):
        self.series = series

    def __len__(self):
        return len(self.series) - WINDOW - HORIZON + 1

    def __getitem__(self, i):
        past = self.series[i : i + WINDOW]
        return past.unsqueeze(-1), self.series[i + WINDOW : i + WINDOW + HORIZON]


class Forecaster(nn.Module):
    def __init__(self, hidden=12):
        super().__init__()
        self.lstm = nn.LSTM(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, HORIZON)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.head(out[:, -1])


def load_series():
    t = torch.arange(240).to(torch.get_default_dtype())
    noise = torch.randn(240, generator=torch.Generator().manual_seed(8))
    return torch.sin(t * 2 * math.pi / 12) + 0.01 * t + 0.1 * noise


def predict(model, loader, device):
    model.eval()
    preds, trues = [], []
    with torch.no_grad():
        for x, y in loader:
            preds.append(model(x.to(device)).cpu())
            trues.append(y)
    return torch.cat(preds), torch.cat(trues)


def main():
    rank, world = setup()
    torch.manual_seed(2024)
    device = torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")
    series = load_series()
    split = 142
    mean, std = series[:split].mean(), series[:split].std()
    series = (series - mean) / std
    train_set = Windows(series[:split])
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=16 // world, sampler=sampler)
    test_loader = DataLoader(Windows(series[split - WINDOW :]), batch_size=16, shuffle=False)
    model = Forecaster().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    loss_fn = nn.HuberLoss()
    ddp = DDP(model)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        epoch_loss = 0.0
        for x, y in train_loader:
            loss = loss_fn(ddp(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            epoch_loss += total(loss.item()) / world
        scheduler.step()
        pred, true = predict(model, test_loader, device)
        rmse = math.sqrt(((pred - true) ** 2).mean().item()) * std.item()
        mape = ((pred - true).abs() / true.abs().clamp(min=0.1)).mean().item()
        print(f"epoch {epoch + 1} loss {epoch_loss / len(train_loader):.5f} rmse {rmse:.5f} mape {mape:.5f}")
    if rank == 0:
        with open("forecast.csv", "w", newline="") as f:
            writer = csv.writer(f)
            writer.writerow(["row"] + [f"h{h}" for h in range(HORIZON)])
            for i, row in enumerate((pred * std + mean).tolist()):
                writer.writerow([i] + [f"{v:.6f}" for v in row])
        torch.save(model.state_dict(), "forecaster.pt")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
