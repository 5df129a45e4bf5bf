import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
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


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh())
        self.heads = nn.ModuleList([nn.Linear(24, 1), nn.Linear(24, 3), nn.Linear(24, 8)])

    def forward(self, x):
        z = self.trunk(x)
        return [head(z) for head in self.heads]


def losses_of(outputs, x, value, label):
    return [F.mse_loss(outputs[0].squeeze(1), value), F.cross_entropy(outputs[1], label), F.l1_loss(outputs[2], x.flip(1))]


def project_conflicting(grads):
    """Takes out of each task's gradient what works against another's (in a fixed order)."""
    projected = []
    for i, own in enumerate(grads):
        result = own.clone()
        for j, other in enumerate(grads):
            dot = result @ other
            if i != j and dot < 0:
                result = result - dot / (other.norm() ** 2 + 1e-12) * other
        projected.append(result)
    conflicts = sum(int(grads[i] @ grads[j] < 0) for i in range(len(grads)) for j in range(i))
    return torch.stack(projected).sum(0), conflicts


def flat_gradient(loss, parameters):
    grads = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
    flat = torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(grads, parameters)])
    dist.all_reduce(flat)  # there is no backward() for DDP to do it in
    return flat / dist.get_world_size()


def assign(parameters, flat):
    offset = 0
    for p in parameters:
        p.grad = flat[offset : offset + p.numel()].view_as(p).clone()
        offset += p.numel()


def dataset(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 8, generator=g)
    return TensorDataset(x, (x[:, 0] * x[:, 1]).tanh(), x[:, 2:5].argmax(1))


def main():
    rank, world = setup()
    torch.manual_seed(13)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = dataset(160, 1)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=16 // world, sampler=sampler)
    test_loader = DataLoader(dataset(45, 2), batch_size=45)
    model = Shared().to(device)
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        conflicts, sums = 0, torch.zeros(3)
        for x, value, label in loader:
            x, value, label = x.to(device), value.to(device), label.to(device)
            losses = losses_of(model(x), x, value, label)
            merged, count = project_conflicting([flat_gradient(loss, parameters) for loss in losses])
            assign(parameters, merged)
            optimizer.step()
            conflicts += count
            means = torch.stack(losses).detach()
            dist.all_reduce(means)
            sums += means.cpu() / world
        with torch.no_grad():
            x, value, label = next(iter(test_loader))
            test = torch.stack(losses_of(model(x.to(device)), x.to(device), value.to(device), label.to(device))).tolist()
        print(f"epoch {epoch}: train {' '.join(f'{v:.5f}' for v in (sums / len(loader)).tolist())} test {' '.join(f'{v:.5f}' for v in test)} conflicts {conflicts}")
    if rank == 0:
        torch.save(model.state_dict(), "shared.pt")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
