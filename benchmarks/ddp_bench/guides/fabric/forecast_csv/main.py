import csv
import math
import os

import torch
import torch.nn as nn
from lightning_fabric import Fabric
from torch.utils.data import DataLoader, Dataset

WINDOW, HORIZON = 12, 3


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


def predict(fabric, model, loader, device):
    model.eval()
    preds, trues = [], []
    with torch.no_grad():
        for x, y in loader:
            preds.append(fabric.all_gather(model(x)).flatten(0, 1).cpu())
            trues.append(fabric.all_gather(y).flatten(0, 1).cpu())
    return torch.cat(preds), torch.cat(trues)


def main():
    torch.manual_seed(2024)
    fabric = Fabric(accelerator="auto", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
    fabric.launch()
    device = fabric.device
    series = load_series()
    split = 142
    mean, std = series[:split].mean(), series[:split].std()
    series = (series - mean) / std
    train_loader = DataLoader(Windows(series[:split]), batch_size=16 // fabric.world_size, shuffle=True)
    test_loader = DataLoader(Windows(series[split - WINDOW :]), batch_size=16, shuffle=False)
    model = Forecaster().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    model, optimizer = fabric.setup(model, optimizer)
    train_loader, test_loader = fabric.setup_dataloaders(train_loader, test_loader)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    loss_fn = nn.HuberLoss()
    for epoch in range(3):
        model.train()
        epoch_loss = 0.0
        for x, y in train_loader:
            loss = loss_fn(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, clip_val=0.5)
            optimizer.step()
            epoch_loss += fabric.all_reduce(loss.detach()).item()
        scheduler.step()
        pred, true = predict(fabric, model, test_loader, device)
        rmse = math.sqrt(((pred - true) ** 2).mean().item()) * std.item()
        mape = ((pred - true).abs() / true.abs().clamp(min=0.1)).mean().item()
        fabric.print(f"epoch {epoch + 1} loss {epoch_loss / len(train_loader):.5f} rmse {rmse:.5f} mape {mape:.5f}")
    if fabric.is_global_zero:
        with open("forecast.csv", "w", newline="") as f:
            writer = csv.writer(f)
            writer.writerow(["row"] + [f"h{h}" for h in range(HORIZON)])
            for i, row in enumerate((pred * std + mean).tolist()):
                writer.writerow([i] + [f"{v:.6f}" for v in row])
    fabric.save("forecaster.pt", model.state_dict())


if __name__ == "__main__":
    main()
