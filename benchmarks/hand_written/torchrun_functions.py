import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, random_split
from torch.utils.data.distributed import DistributedSampler
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3)
        self.fc = nn.Linear(16 * 26 * 26, 10)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).flatten(1))


def train_one_epoch(model, loader, optimizer, device):
    model.train()
    total = torch.zeros(2, device=device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total[0] += loss.detach() * len(x)
        total[1] += len(x)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    correct = torch.zeros(1, device=device)
    seen = torch.zeros(1, device=device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        correct += (model(x).argmax(1) == y).sum()
        seen += len(y)
    dist.all_reduce(correct)
    dist.all_reduce(seen)
    return (correct / seen).item()


def main():
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    torch.manual_seed(0)
    if local_rank == 0:
        datasets.MNIST("data", train=True, download=True)
    dist.barrier()
    data = datasets.MNIST("data", train=True, download=False, transform=transforms.ToTensor())
    train_set, val_set = random_split(data, [55000, 5000])
    sampler = DistributedSampler(train_set, shuffle=True)
    val_sampler = DistributedSampler(val_set, shuffle=False)
    train_loader = DataLoader(train_set, batch_size=64, sampler=sampler)
    val_loader = DataLoader(val_set, batch_size=64, sampler=val_sampler)
    model = DDP(Net().to(device), device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max")
    best, bad = 0.0, 0
    for epoch in range(20):
        sampler.set_epoch(epoch)
        loss = train_one_epoch(model, train_loader, optimizer, device)
        accuracy = evaluate(model, val_loader, device)
        scheduler.step(accuracy)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.4f}")
        if accuracy > best:
            best, bad = accuracy, 0
            if rank == 0:
                torch.save(model.module.state_dict(), "best.pt")
            dist.barrier()
        else:
            bad += 1
        if bad >= 3:
            break
    dist.barrier()
    final = Net().to(device)
    final.load_state_dict(torch.load("best.pt", map_location=device))
    if rank == 0:
        print("best accuracy", best)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
