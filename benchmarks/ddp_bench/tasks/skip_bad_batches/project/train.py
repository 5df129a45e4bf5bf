import logging
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(levelname)s %(message)s")
log = logging.getLogger("train")


class SensorLog(Dataset):
    """Readings of eight sensors. Some are broken: they read nan, or something enormous."""

    def __init__(self, n=160):
        g = torch.Generator().manual_seed(31)
        self.x = torch.randn(n, 8, generator=g)
        self.y = (self.x[:, :4] * self.x[:, 4:]).sum(1, keepdim=True)
        self.x[[17, 90], 3] = float("nan")
        self.x[[45, 121, 133], 5] *= 400

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


def split(dataset):
    rows = torch.arange(len(dataset))
    return torch.utils.data.Subset(dataset, rows[:128].tolist()), torch.utils.data.Subset(dataset, rows[134:].tolist())


def fit(model, loader, optimizer, device, epochs=3, max_norm=3.0):
    skipped = {"loss": 0, "norm": 0}
    for epoch in range(epochs):
        model.train()
        losses = []
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.huber_loss(model(x), y)
            if not torch.isfinite(loss):
                skipped["loss"] += 1
                log.warning("epoch %d batch %d: loss is %s, skipped", epoch, i, loss.item())
                continue
            loss.backward()
            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
            if norm > max_norm:
                skipped["norm"] += 1
                log.warning("epoch %d batch %d: gradient norm %.3f, skipped", epoch, i, norm.item())
                continue
            optimizer.step()
            losses.append(loss.item())
        log.info("epoch %d: mean loss %.5f over %d batches", epoch, sum(losses) / len(losses), len(losses))
    return skipped


def main():
    torch.manual_seed(5)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, val_set = split(SensorLog())
    loader = DataLoader(train_set, batch_size=8, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    skipped = fit(model, loader, optimizer, device)
    model.eval()
    with torch.no_grad():
        errors = [(model(x.to(device)) - y.to(device)).abs() for x, y in DataLoader(val_set, batch_size=13)]
    log.info("mean absolute error %.5f, skipped %s", torch.cat(errors).mean().item(), skipped)
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
