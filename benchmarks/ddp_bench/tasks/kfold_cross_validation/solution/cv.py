import os
import statistics
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data.distributed import DistributedSampler

K = 4


class Flowers(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(33)
        self.target = torch.arange(128) % 3
        centres = torch.tensor([[5.0, 3.4, 1.5, 0.2], [5.9, 2.8, 4.3, 1.3], [6.6, 3.0, 5.6, 2.0]])
        self.data = centres[self.target] + 0.4 * torch.randn(128, 4, generator=g)

    def __len__(self):
        return 128

    def __getitem__(self, i):
        return self.data[i], self.target[i]


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def summed(value):
    """The sum of a number over all ranks."""
    value = torch.tensor(float(value), device="cuda" if torch.cuda.is_available() else "cpu")
    dist.all_reduce(value)
    return value.item()


def reset_weights(m):
    if hasattr(m, "reset_parameters"):
        m.reset_parameters()


def folds(n, k):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()
    for i in range(k):
        held = order[i * n // k : (i + 1) * n // k]
        yield [j for j in order if j not in held], held


rank, world = setup()
torch.manual_seed(42)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dataset = Flowers()
criterion = nn.CrossEntropyLoss()
results = {}
for fold, (train_ids, test_ids) in enumerate(folds(len(dataset), K)):
    print(f"FOLD {fold}")
    train_set = Subset(dataset, train_ids)
    sampler = DistributedSampler(train_set)
    trainloader = DataLoader(train_set, batch_size=16 // world, sampler=sampler)
    testloader = DataLoader(Subset(dataset, test_ids), batch_size=10)
    network = nn.Sequential(nn.Linear(4, 12), nn.ELU(), nn.Linear(12, 3)).to(device)
    network.apply(reset_weights)
    ddp = DDP(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=0.02)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        network.train()
        current_loss = 0.0
        for i, (inputs, targets) in enumerate(trainloader):
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            loss = criterion(ddp(inputs), targets)
            loss.backward()
            optimizer.step()
            current_loss += summed(loss.item()) / world
            if i % 3 == 2:
                print("Loss after mini-batch %5d: %.4f" % (i + 1, current_loss / 3))
                current_loss = 0.0
    if rank == 0:
        torch.save(network.state_dict(), f"model-fold-{fold}.pth")
    network.eval()
    correct, total = 0, 0
    with torch.no_grad():
        for inputs, targets in testloader:
            predicted = network(inputs.to(device)).argmax(1).cpu()
            total += targets.size(0)
            correct += (predicted == targets).sum().item()
    results[fold] = 100.0 * correct / total
    print("Accuracy for fold %d: %.2f %%" % (fold, results[fold]))
print(f"Average: {statistics.mean(results.values()):.3f} % +- {statistics.pstdev(results.values()):.3f}")
del ddp
dist.destroy_process_group()
