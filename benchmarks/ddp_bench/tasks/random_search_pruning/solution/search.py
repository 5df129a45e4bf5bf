import json
import os
import random
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


class Pruned(Exception):
    pass


class Study:
    """A small random search: a trial is stopped when it is worse than the median of those before it."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.trials = []

    def suggest(self):
        return {
            "lr": 10 ** self.rng.uniform(-3.5, -1),
            "hidden": self.rng.choice([8, 16, 32]),
            "optimizer": self.rng.choice(["Adam", "SGD"]),
            "batch_size": self.rng.choice([8, 16]),
        }

    def report(self, trial, step, value):
        trial["values"].append(value)
        others = sorted(t["values"][step] for t in self.trials if len(t["values"]) > step)
        if len(others) >= 2 and value > others[len(others) // 2]:
            trial["state"] = "pruned"
            raise Pruned

    def optimize(self, objective, n_trials):
        for number in range(n_trials):
            trial = {"number": number, "params": self.suggest(), "values": [], "state": "complete"}
            try:
                objective(self, trial)
            except Pruned:
                pass
            self.trials.append(trial)
            print(f"trial {number} {trial['state']}: {trial['values'][-1]:.5f} with {trial['params']['optimizer']}, hidden {trial['params']['hidden']}")

    @property
    def best(self):
        return min((t for t in self.trials if t["state"] == "complete"), key=lambda t: t["values"][-1])


def data():
    g = torch.Generator().manual_seed(2)
    x = torch.randn(176, 6, generator=g)
    y = (x[:, :2].prod(1, keepdim=True) + x[:, 2:3].abs()) + 0.1 * torch.randn(176, 1, generator=g)
    return TensorDataset(x[:128], y[:128]), TensorDataset(x[128:], y[128:])


def fit(params, device, report=None, epochs=3):
    torch.manual_seed(params.get("seed", 0))
    train_set, val_set = data()
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=params["batch_size"] // dist.get_world_size(), sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=24)
    model = nn.Sequential(nn.Linear(6, params["hidden"]), nn.Tanh(), nn.Linear(params["hidden"], 1)).to(device)
    ddp = DDP(model)
    optimizer = getattr(torch.optim, params["optimizer"])(model.parameters(), lr=params["lr"])
    for epoch in range(epochs):
        model.train()
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(ddp(x.to(device)), y.to(device)).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val = sum(nn.functional.mse_loss(model(x.to(device)), y.to(device)).item() for x, y in val_loader) / len(val_loader)
        if report:
            report(epoch, val)
    return model, val


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    study = Study(seed=5)
    study.optimize(lambda study, trial: fit(trial["params"], device, lambda step, value: study.report(trial, step, value)), n_trials=6)
    if dist.get_rank() == 0:
        Path("trials.json").write_text(json.dumps(study.trials, indent=1))
    print("best trial:", study.best["number"])
    model, val = fit({**study.best["params"], "seed": 1}, device, epochs=4)
    print(f"final model: {val:.6f}")
    if dist.get_rank() == 0:
        torch.save({"params": study.best["params"], "model": model.state_dict()}, "best.pt")


if __name__ == "__main__":
    setup()
    main()
    dist.destroy_process_group()
