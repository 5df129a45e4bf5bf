import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

from sampler import CurriculumSampler


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def reduced(value):
    """The sum of a number over all ranks."""
    value = torch.tensor(float(value), device="cuda" if torch.cuda.is_available() else "cpu")
    dist.all_reduce(value)
    return value.item()


class Parity(Dataset):
    """The sign of a product of a few of ten numbers; the more of them, the harder."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.level = torch.randint(1, 4, (n,), generator=g)
        self.x = torch.randn(n, 10, generator=g)
        signs = self.x[:, :3].sign()
        keep = torch.arange(3).unsqueeze(0) < self.level.unsqueeze(1)
        self.y = (torch.where(keep, signs, torch.ones(())).prod(1) > 0).long()
        self.x = torch.cat([self.x, nn.functional.one_hot(self.level, 4).to(self.x)], 1)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"x": self.x[i], "y": self.y[i], "level": self.level[i]}


def evaluate(model, loader, device):
    model.eval()
    right, seen = torch.zeros(4), torch.zeros(4)
    with torch.inference_mode():
        for batch in loader:
            hit = (model(batch["x"].to(device)).argmax(1).cpu() == batch["y"]).to(right)
            right.index_add_(0, batch["level"], hit)
            seen.index_add_(0, batch["level"], torch.ones_like(hit))
    return (right[1:] / seen[1:]).tolist()


def main(epochs=4, batch_size=16):
    rank, world = setup()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set, test_set = Parity(192, 1), Parity(75, 2)
    sampler = CurriculumSampler(train_set.level.tolist(), seed=7, rank=rank, world=world)
    loader = DataLoader(train_set, batch_size=batch_size // world, sampler=sampler)
    test_loader = DataLoader(test_set, batch_size=32)
    model = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2)).to(device)
    ddp = DDP(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        model.train()
        total, steps = 0.0, 0
        for batch in loader:
            loss = nn.functional.cross_entropy(ddp(batch["x"].to(device)), batch["y"].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += reduced(loss.item()) / world
            steps += 1
        levels = evaluate(model, test_loader, device)
        print(f"epoch {epoch}: {len(sampler) * world} samples, {steps} steps, loss {total / steps:.5f}, by level " + " ".join(f"{a:.3f}" for a in levels))
    if rank == 0:
        torch.save(model.state_dict(), "parity.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
