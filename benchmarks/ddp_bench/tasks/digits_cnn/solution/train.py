import argparse
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
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


class Digits(Dataset):
    """Ten glyphs on a 12x12 grid, shifted and blurred by noise."""

    def __init__(self, train=True):
        g = torch.Generator().manual_seed(1 if train else 2)
        glyphs = torch.rand(10, 8, 8, generator=torch.Generator().manual_seed(0)).round()
        n = 256 if train else 100
        self.labels = torch.randint(0, 10, (n,), generator=g)
        self.images = torch.zeros(n, 1, 12, 12)
        for i, label in enumerate(self.labels):
            y, x = torch.randint(0, 5, (2,), generator=g).tolist()
            self.images[i, 0, y : y + 8, x : x + 8] = glyphs[label]
        self.images += 0.3 * torch.randn(self.images.shape, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3)
        self.conv2 = nn.Conv2d(8, 16, 3)
        self.fc1 = nn.Linear(256, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    loader.sampler.set_epoch(epoch)
    for batch_idx, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            mean = total(loss.item()) / dist.get_world_size()
            done = batch_idx * args.batch_size
            print(f"Train Epoch: {epoch} [{done}/{len(loader.dataset)}]\tLoss: {mean:.6f}")


def test(model, device, loader):
    model.eval()
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            correct += output.argmax(dim=1).eq(target).sum().item()
    test_loss /= len(loader.dataset)
    print(f"Test set: Average loss: {test_loss:.4f}, Accuracy: {correct}/{len(loader.dataset)}")
    return correct


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--gamma", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--log-interval", type=int, default=4)
    args = parser.parse_args()

    rank, world = setup()
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = Digits(True)
    train_loader = DataLoader(train_set, batch_size=args.batch_size // world, sampler=DistributedSampler(train_set))
    test_loader = DataLoader(Digits(False), batch_size=64)
    net = Net().to(device)
    model = DDP(net)
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    os.makedirs("checkpoints", exist_ok=True)
    best = -1
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        correct = test(net, device, test_loader)
        scheduler.step()
        if correct > best:
            best = correct
            if rank == 0:
                torch.save(net.state_dict(), "checkpoints/best.pt")
    if rank == 0:
        torch.save(net.state_dict(), "checkpoints/last.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
