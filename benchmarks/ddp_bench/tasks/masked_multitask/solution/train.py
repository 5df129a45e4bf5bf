import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

TASKS = ("solubility", "toxicity", "melting")


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


class Assays(Dataset):
    """Three measurements for each compound, of which many are missing (nan)."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 10, generator=g)
        w = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
        y = torch.tanh(self.x @ w) + 0.2 * torch.randn(n, 3, generator=g)
        y[:, 1] = (y[:, 1] > 0).to(y)
        self.y = torch.where(torch.rand(n, 3, generator=g) < torch.tensor([0.3, 0.5, 0.65]), torch.nan, y)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class MultiTask(nn.Module):
    """A shared trunk, a head for each task, and the uncertainty of each task as a parameter."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(10, 32), nn.ReLU())
        self.heads = nn.ModuleDict({name: nn.Linear(32, 1) for name in TASKS})
        self.log_vars = nn.Parameter(torch.zeros(len(TASKS)))

    def forward(self, x):
        z = self.trunk(x)
        return torch.cat([self.heads[name](z) for name in TASKS], dim=1), self.log_vars


def task_losses(pred, y, shared=False):
    """The mean of each task over its labelled samples; where shared, this rank's part, so that the ranks' mean is the whole."""
    counts = (~torch.isnan(y)).sum(0).to(pred)
    if shared:
        dist.all_reduce(counts)
        counts /= dist.get_world_size()
    losses = []
    for k, name in enumerate(TASKS):
        known = ~torch.isnan(y[:, k])
        if name == "toxicity":
            loss = nn.functional.binary_cross_entropy_with_logits(pred[known, k], y[known, k], reduction="sum")
        else:
            loss = nn.functional.mse_loss(pred[known, k], y[known, k], reduction="sum")
        losses.append(loss / counts[k])
    return torch.stack(losses)


def evaluate(model, loader, device):
    model.eval()
    preds, truth = [], []
    with torch.no_grad():
        for x, y in loader:
            preds.append(model(x.to(device))[0].cpu())
            truth.append(y)
    return task_losses(torch.cat(preds), torch.cat(truth)).tolist()


def main():
    rank, world = setup()
    torch.manual_seed(4)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = Assays(192, 1)
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=24 // world, sampler=sampler)
    test_loader = DataLoader(Assays(50, 2), batch_size=24)
    model = MultiTask().to(device)
    ddp = DDP(model)
    optimizer = torch.optim.Adamax(model.parameters(), lr=1e-2)
    history = {name: [] for name in TASKS}
    for epoch in range(3):
        model.train()
        sampler.set_epoch(epoch)
        running = torch.zeros(len(TASKS))
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            pred, log_vars = ddp(x)
            losses = task_losses(pred, y, shared=True)
            loss = (torch.exp(-log_vars) * losses + log_vars).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses = losses.detach()
            dist.all_reduce(losses)
            running += losses.cpu() / world
        tested = evaluate(model, test_loader, device)
        for name, value in zip(TASKS, tested):
            history[name].append(value)
        print(f"epoch {epoch}", *(f"{n} {a:.4f}/{b:.4f}" for n, a, b in zip(TASKS, (running / len(train_loader)).tolist(), tested)))
    if rank == 0:
        torch.save({"model": model.state_dict(), "history": history}, "multitask.pt")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
