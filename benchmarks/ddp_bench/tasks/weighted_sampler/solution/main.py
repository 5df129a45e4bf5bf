import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

NUM_CLASSES = 3


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


class Share:
    """This rank's part of what a sampler draws. All ranks draw the same, from random numbers of its own."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        return iter(list(self.sampler)[rank::world])

    def __len__(self):
        return len(self.sampler) // world


def make_split(counts, seed):
    g = torch.Generator().manual_seed(seed)
    xs, ys = [], []
    for c, n in enumerate(counts):
        xs.append(torch.randn(n, 4, generator=g) + 1.5 * torch.eye(4)[c])
        ys.append(torch.full((n,), c))
    return TensorDataset(torch.cat(xs), torch.cat(ys))


def make_loader(dataset, batch_size, balanced):
    if not balanced:
        return DataLoader(dataset, batch_size=batch_size)
    targets = dataset.tensors[1]
    class_count = torch.bincount(targets, minlength=NUM_CLASSES)
    weights = 1.0 / class_count[targets]
    generator = torch.Generator().manual_seed(100)
    sampler = WeightedRandomSampler(weights, num_samples=len(dataset), replacement=True, generator=generator)
    return DataLoader(dataset, batch_size=batch_size // world, sampler=Share(sampler))


def confusion(model, loader, device):
    matrix = torch.zeros(NUM_CLASSES, NUM_CLASSES, dtype=torch.long)
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            for t, p in zip(y, model(x.to(device)).argmax(1).cpu()):
                matrix[t, p] += 1
    return matrix


def main():
    global rank, world
    rank, world = setup()
    torch.manual_seed(100)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = make_loader(make_split([100, 40, 20], 1), 16, balanced=True)
    test_loader = make_loader(make_split([30, 12, 7], 2), 16, balanced=False)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, NUM_CLASSES)).to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.05)
    ddp = DDP(model)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(2):
        model.train()
        seen = torch.zeros(NUM_CLASSES, dtype=torch.long)
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            loss = criterion(ddp(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen += torch.bincount(y.cpu(), minlength=NUM_CLASSES)
        seen = seen.to(device)
        dist.all_reduce(seen)
        matrix = confusion(model, test_loader, device)
        recall = matrix.diag() / matrix.sum(1)
        print(f"epoch {epoch}: drawn {seen.tolist()} recall {[round(r, 3) for r in recall.tolist()]}")
    if rank == 0:
        with open("report.txt", "w") as f:
            f.write("\n".join(" ".join(f"{v:4d}" for v in row) for row in matrix.tolist()) + "\n")
            f.write(f"macro recall {recall.mean():.4f}\n")
        torch.save(model.state_dict(), "weights.pt")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
