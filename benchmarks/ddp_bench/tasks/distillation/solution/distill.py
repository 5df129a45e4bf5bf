import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
T, ALPHA = 4.0, 0.7


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


def moons(n, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.rand(n, generator=g) * 3.1416
    y = (torch.arange(n) % 2).long()
    x = torch.stack([torch.where(y == 0, t.cos(), 1 - t.cos()), torch.where(y == 0, t.sin(), 0.5 - t.sin())], 1)
    return TensorDataset(x + 0.1 * torch.randn(n, 2, generator=g), y)


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def fit(model, loader, optimizer, loss_fn, epochs):
    ddp = DDP(model)
    for epoch in range(epochs):
        loader.sampler.set_epoch(fit.passes)
        fit.passes += 1
        model.train()
        running = 0.0
        for x, y in loader:
            x, y = x.to(DEVICE), y.to(DEVICE)
            loss = loss_fn(ddp(x), x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            running += loss.item() * x.size(0)
        print(f"  epoch {epoch + 1}: {total(running) / len(loader.dataset):.5f}")


fit.passes = 0  # the sampler goes on where the teacher's training has ended


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hits = torch.cat([model(x.to(DEVICE)).argmax(1).cpu() == y for x, y in loader])
    return hits.float().mean().item()


def main():
    rank, world = setup()
    torch.manual_seed(5)
    train_set = moons(128, 1)
    train_loader = DataLoader(train_set, 16 // world, sampler=DistributedSampler(train_set))
    test_loader = DataLoader(moons(50, 2), 32)
    teacher = mlp(2, 24, 24, 2).to(DEVICE)
    missing = not os.path.exists("teacher.pt")
    dist.barrier()  # before one of them writes it
    if missing:
        print("teacher")
        fit(teacher, train_loader, torch.optim.Adam(teacher.parameters(), 1e-2), lambda out, x, y: F.cross_entropy(out, y), 3)
        if rank == 0:
            torch.save(teacher.state_dict(), "teacher.pt")
    dist.barrier()
    teacher.load_state_dict(torch.load("teacher.pt", map_location=DEVICE))
    teacher.eval()
    for p in teacher.parameters():
        p.requires_grad_(False)

    def kd_loss(out, x, y):
        with torch.no_grad():
            wanted = teacher(x)
        soft = F.kl_div(F.log_softmax(out / T, 1), F.softmax(wanted / T, 1), reduction="batchmean") * T * T
        return ALPHA * soft + (1 - ALPHA) * F.cross_entropy(out, y)

    print("student")
    student = mlp(2, 8, 2).to(DEVICE)
    fit(student, train_loader, torch.optim.SGD(student.parameters(), 0.1, momentum=0.9), kd_loss, 2)
    print(f"teacher {accuracy(teacher, test_loader):.3f} student {accuracy(student, test_loader):.3f}")
    if rank == 0:
        torch.save(student, "student.pt")
    dist.barrier()


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
