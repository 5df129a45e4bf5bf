import csv
import math

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
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


def predict(accelerator, model, loader, device):
    model.eval()
    preds, trues = [], []
    with torch.no_grad():
        for x, y in loader:
            pred, true = accelerator.gather_for_metrics((model(x), y))
            preds.append(pred.cpu())
            trues.append(true.cpu())
    return torch.cat(preds), torch.cat(trues)


def main():
    torch.manual_seed(2024)
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(split_batches=True))
    device = accelerator.device
    series = load_series()
    split = 142
    mean, std = series[:split].mean(), series[:split].std()
    series = (series - mean) / std
    train_loader = DataLoader(Windows(series[:split]), batch_size=16, shuffle=True)
    test_loader = DataLoader(Windows(series[split - WINDOW :]), batch_size=16, shuffle=False)
    model = Forecaster().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    loss_fn = nn.HuberLoss()
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )
    for epoch in range(3):
        model.train()
        epoch_loss = 0.0
        for x, y in train_loader:
            loss = loss_fn(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_value_(model.parameters(), 0.5)
            optimizer.step()
            epoch_loss += accelerator.reduce(loss.detach(), "mean").item()
        scheduler.step()
        pred, true = predict(accelerator, model, test_loader, device)
        rmse = math.sqrt(((pred - true) ** 2).mean().item()) * std.item()
        mape = ((pred - true).abs() / true.abs().clamp(min=0.1)).mean().item()
        accelerator.print(f"epoch {epoch + 1} loss {epoch_loss / len(train_loader):.5f} rmse {rmse:.5f} mape {mape:.5f}")
    if accelerator.is_main_process:
        with open("forecast.csv", "w", newline="") as f:
            writer = csv.writer(f)
            writer.writerow(["row"] + [f"h{h}" for h in range(HORIZON)])
            for i, row in enumerate((pred * std + mean).tolist()):
                writer.writerow([i] + [f"{v:.6f}" for v in row])
    accelerator.save(accelerator.unwrap_model(model).state_dict(), "forecaster.pt")


if __name__ == "__main__":
    main()
