import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Lines(Dataset):
    def __init__(self, path, indices=None):
        with open(path) as file:
            rows = [[float(cell) for cell in line.split(",")] for line in file]
        self.rows = rows if indices is None else [rows[i] for i in indices]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = torch.tensor(self.rows[index])
        return row[:-1], row[-1:]


def partition(length, rank, world_size):
    random.seed(1234)
    indices = list(range(length))
    random.shuffle(indices)
    share = length // world_size
    return indices[rank * share : (rank + 1) * share]


def broadcast_parameters(model):
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)


def average_gradients(model):
    world_size = dist.get_world_size()
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
            parameter.grad /= world_size


def mean_of_ranks(value, device):
    total = torch.tensor([value, 1.0], device=device)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def fit(rank, world_size, local_rank):
    device = torch.device("cuda", local_rank)
    count = len(Lines("train.csv"))
    data = Lines("train.csv", partition(count, rank, world_size))
    loader = DataLoader(data, batch_size=32, shuffle=True, drop_last=True)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
    broadcast_parameters(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if os.path.exists("state.pt"):
        state = torch.load("state.pt", map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    for epoch in range(100):
        total = 0.0
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model)
            optimizer.step()
            total += loss.item()
        mean = mean_of_ranks(total / len(loader), device)
        if rank == 0:
            print(f"epoch {epoch}: {mean:.5f}")
        if mean < 1e-4:
            break
        if rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "state.pt")
        dist.barrier()


if __name__ == "__main__":
    dist.init_process_group("nccl")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    fit(rank, world_size, local_rank)
    dist.destroy_process_group()
