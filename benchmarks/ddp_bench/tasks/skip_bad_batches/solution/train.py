import logging
import math
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


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


rank, world = setup()
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
        loader.sampler.set_epoch(epoch)
        losses = []
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.huber_loss(model(x), y)
            mean = total(loss.item()) / world  # not finite where that of one rank is not
            if not math.isfinite(mean):
                skipped["loss"] += 1
                log.warning("epoch %d batch %d: loss is %s, skipped", epoch, i, mean)
                continue
            loss.backward()
            norm = torch.nn.utils.get_total_norm([p.grad for p in model.parameters()])
            if norm > max_norm:
                skipped["norm"] += 1
                log.warning("epoch %d batch %d: gradient norm %.3f, skipped", epoch, i, norm.item())
                continue
            optimizer.step()
            losses.append(mean)
        log.info("epoch %d: mean loss %.5f over %d batches", epoch, sum(losses) / len(losses), len(losses))
    return skipped


def main():
    torch.manual_seed(5)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, val_set = split(SensorLog())
    sampler = DistributedSampler(train_set, drop_last=True)
    loader = DataLoader(train_set, batch_size=8 // world, sampler=sampler, drop_last=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    skipped = fit(DDP(model), loader, optimizer, device)
    model.eval()
    with torch.no_grad():
        errors = [(model(x.to(device)) - y.to(device)).abs() for x, y in DataLoader(val_set, batch_size=13)]
    log.info("mean absolute error %.5f, skipped %s", torch.cat(errors).mean().item(), skipped)
    if rank == 0:
        torch.save(model.state_dict(), "model.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
