import copy
import math
import os
import sys

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


def total(value):
    """The sum of a number over all ranks."""
    value = torch.tensor(float(value), device="cuda" if torch.cuda.is_available() else "cpu")
    dist.all_reduce(value)
    return value.item()


class Loader(DataLoader):
    """Takes a new order each time that it is read, as shuffle=True does."""

    reads = 0

    def __iter__(self):
        self.sampler.set_epoch(self.reads)
        self.reads += 1
        return super().__iter__()


class LRFinder:
    """Trains with a growing learning rate, and suggests the one where the smoothed loss falls fastest."""

    def __init__(self, model, optimizer, criterion, device):
        self.model, self.optimizer, self.criterion, self.device = model, optimizer, criterion, device
        self.model_state = copy.deepcopy(model.state_dict())
        self.optimizer_state = copy.deepcopy(optimizer.state_dict())
        self.history = {"lr": [], "loss": []}

    def range_test(self, loader, start_lr=1e-4, end_lr=3.0, num_iter=24, smooth=0.3, diverge=4.0):
        iterator = iter(loader)
        best = math.inf
        average = None
        for iteration in range(num_iter):
            lr = start_lr * (end_lr / start_lr) ** (iteration / (num_iter - 1))
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            try:
                x, y = next(iterator)
            except StopIteration:
                iterator = iter(loader)
                x, y = next(iterator)
            self.model.train()
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x.to(self.device)), y.to(self.device))
            loss.backward()
            self.optimizer.step()
            mean = total(loss.item()) / dist.get_world_size()
            average = mean if average is None else smooth * mean + (1 - smooth) * average
            self.history["lr"].append(lr)
            self.history["loss"].append(average)
            if average < best:
                best = average
            if average > diverge * best:
                print(f"stopped early at lr {lr:.5f}, the loss has diverged")
                break

    def suggestion(self):
        losses = self.history["loss"]
        slopes = [b - a for a, b in zip(losses, losses[1:])]
        return self.history["lr"][min(range(len(slopes)), key=slopes.__getitem__)]

    def reset(self):
        self.model.load_state_dict(self.model_state)
        self.optimizer.load_state_dict(self.optimizer_state)


def wine(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 11, generator=g)
    w = torch.randn(11, 5, generator=torch.Generator().manual_seed(0))
    return TensorDataset(x, (x @ w + 0.5 * torch.randn(n, 5, generator=g)).argmax(1))


def main():
    rank, world = setup()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = wine(160, 1)
    train_loader = Loader(train_set, batch_size=16 // world, sampler=DistributedSampler(train_set))
    test_loader = DataLoader(wine(70, 2), batch_size=35)
    net = nn.Sequential(nn.Linear(11, 32), nn.ReLU(), nn.Linear(32, 5)).to(device)
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    finder = LRFinder(model, optimizer, criterion, device)
    finder.range_test(train_loader)
    lr = finder.suggestion()
    print(f"suggested learning rate: {lr:.6f}")
    finder.reset()
    for group in optimizer.param_groups:
        group["lr"] = lr
    for epoch in range(2):
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            correct = sum((net(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in test_loader)
        print(f"epoch {epoch}: accuracy {100.0 * correct / len(test_loader.dataset):.2f}%")
    if rank == 0:
        torch.save({"lr": lr, "history": finder.history, "model": net.state_dict()}, "final.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
