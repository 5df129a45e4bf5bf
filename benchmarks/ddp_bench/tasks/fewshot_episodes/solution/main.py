import json
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
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


class Episodes(Dataset):
    """Each item is an episode: some classes with support and query examples."""

    def __init__(self, n, ways=3, shots=2, queries=4, seed=0):
        rng = np.random.RandomState(seed)
        centres = np.random.RandomState(99).randn(20, 8)
        self.items = []
        for _ in range(n):
            classes = rng.choice(20, ways, replace=False)
            points = centres[classes][:, None] + 1.2 * rng.randn(ways, shots + queries, 8)
            self.items.append((points[:, :shots].astype(np.float32), points[:, shots:].astype(np.float32)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        support, query = self.items[i]
        return torch.from_numpy(support), torch.from_numpy(query)


class ProtoNet(nn.Module):
    def __init__(self, hidden=24, out=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, out))
        self.log_scale = nn.Parameter(torch.zeros(()))

    def forward(self, support, query):
        ways, queries = query.shape[:2]
        prototypes = self.encoder(support).mean(1)
        z = self.encoder(query).reshape(ways * queries, -1)
        logits = -self.log_scale.exp() * torch.cdist(z, prototypes).pow(2)
        return logits, torch.arange(ways, device=query.device).repeat_interleave(queries)


def main():
    rank, world = setup()
    torch.manual_seed(0)
    np.random.seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    meta_batch = 4
    train_set = Episodes(48, seed=1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=meta_batch // world, sampler=sampler)
    test_loader = DataLoader(Episodes(15, seed=2), batch_size=1)
    model = ProtoNet().to(device)
    ddp = DDP(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    results = {}
    for epoch in range(2):
        model.train()
        sampler.set_epoch(epoch)
        train_acc = []
        for supports, queries in train_loader:
            optimizer.zero_grad()
            outer_loss = 0.0
            for support, query in zip(supports.to(device), queries.to(device)):
                logits, target = ddp(support, query)
                outer_loss = outer_loss + F.cross_entropy(logits, target)
                train_acc.append(total((logits.argmax(1) == target).float().mean()) / world)
            outer_loss = outer_loss / (meta_batch // world)  # DDP averages over ranks
            outer_loss.backward()
            optimizer.step()
            last = total(outer_loss.item()) / world
        model.eval()
        accs = []
        with torch.no_grad():
            for supports, queries in test_loader:
                logits, target = model(supports[0].to(device), queries[0].to(device))
                accs.append((logits.argmax(1) == target).float().mean().item())
        interval = 1.96 * np.std(accs) / np.sqrt(len(accs))
        results[f"epoch {epoch}"] = {"train": float(np.mean(train_acc)), "test": float(np.mean(accs)), "interval": float(interval)}
        print(f"{epoch}: last loss {last:.5f}, train {np.mean(train_acc):.4f}, test {np.mean(accs):.4f} +- {interval:.4f}")
    if rank == 0:
        with open("results.json", "w") as f:
            json.dump(results, f, indent=2)
        torch.save(model.state_dict(), "protonet.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
