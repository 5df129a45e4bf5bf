import argparse
import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from ema import ModelEma


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--workdir", type=Path, default=Path("runs"))
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch_size", type=int, default=20)
    p.add_argument("--resume", action="store_true")
    return p.parse_args()


def build_data():
    g = torch.Generator().manual_seed(9)
    x = torch.randn(200, 6, generator=g)
    y = (x[:, :3].prod(1) + x[:, 3:].sum(1)).unsqueeze(1)
    full = TensorDataset(x, y)
    return Subset(full, range(160)), Subset(full, range(160, 200))


def evaluate(model, loader, device):
    model.eval()
    se, n = 0.0, 0
    with torch.inference_mode():
        for x, y in loader:
            se += (model(x.to(device)) - y.to(device)).square().sum().item()
            n += len(x)
    return se / n


def main(args):
    rank, world = setup()
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    args.workdir.mkdir(parents=True, exist_ok=True)
    train_set, val_set = build_data()
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, args.batch_size // world, sampler=sampler)
    val_loader = DataLoader(val_set, 16)
    model = nn.Sequential(nn.Linear(6, 32), nn.SiLU(), nn.Linear(32, 1)).to(device)
    ema = ModelEma(model)
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    start = 0
    if args.resume:
        state = torch.load(args.workdir / "last.ckpt", map_location=device)
        model.load_state_dict(state["model"])
        ema.ema.load_state_dict(state["ema"])
        opt.load_state_dict(state["opt"])
        start = state["epoch"] + 1
    ddp = DDP(model)
    history = []
    for epoch in range(start, args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for x, y in train_loader:
            loss = nn.functional.smooth_l1_loss(ddp(x.to(device)), y.to(device))
            opt.zero_grad()
            loss.backward()
            opt.step()
            ema.update(model)
        row = {"epoch": epoch, "mse": evaluate(model, val_loader, device), "mse_ema": evaluate(ema.ema, val_loader, device)}
        history.append(row)
        print(row["epoch"], f"{row['mse']:.6f}", f"{row['mse_ema']:.6f}")
        if rank == 0:
            torch.save({"model": model.state_dict(), "ema": ema.ema.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, args.workdir / "last.ckpt")
    if rank == 0:
        (args.workdir / "history.json").write_text(json.dumps(history, indent=2))


if __name__ == "__main__":
    main(get_args())
    dist.destroy_process_group()
