import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, random_split
from torchvision import datasets, transforms


class Ranks:
    def __init__(self):
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self.local_rank = int(os.environ["LOCAL_RANK"])
        self.device = torch.device("cuda", self.local_rank) if torch.cuda.is_available() else torch.device("cpu")
        if torch.cuda.is_available():
            torch.cuda.set_device(self.device)

    @property
    def is_main(self):
        return self.rank == 0

    def sum(self, *values):
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def close(self):
        dist.destroy_process_group()


class Digits:
    def __init__(self, ranks, root, batch_size):
        self.ranks, self.root, self.batch_size = ranks, root, batch_size

    def prepare(self):
        if self.ranks.local_rank == 0:
            datasets.MNIST(self.root, train=True, download=True)
            datasets.MNIST(self.root, train=False, download=True)
        dist.barrier()

    def setup(self):
        tensor = transforms.ToTensor()
        full = datasets.MNIST(self.root, train=True, transform=tensor)
        self.train_set, self.val_set = random_split(full, [54000, 6000])
        self.test_set = datasets.MNIST(self.root, train=False, transform=tensor)
        self.sampler = DistributedSampler(self.train_set)

    def train_loader(self):
        return DataLoader(self.train_set, batch_size=self.batch_size, sampler=self.sampler, num_workers=2)

    def val_loader(self):
        sampler = DistributedSampler(self.val_set, shuffle=False)
        return DataLoader(self.val_set, batch_size=self.batch_size, sampler=sampler)

    def test_loader(self):
        return DataLoader(self.test_set, batch_size=self.batch_size)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.out = nn.Linear(32 * 49, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.out(x.flatten(1))


class Experiment:
    def __init__(self, ranks, data, args):
        self.ranks, self.data, self.args = ranks, data, args
        self.net = Net().to(ranks.device)
        ids = [ranks.local_rank] if ranks.device.type == "cuda" else None
        self.model = DDP(self.net, device_ids=ids)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, args.epochs)
        self.best = float("inf")

    def step(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self, loader):
        self.model.train()
        total, seen = 0.0, 0
        for x, y in loader:
            total += self.step(x.to(self.ranks.device), y.to(self.ranks.device)) * len(y)
            seen += len(y)
        total, seen = self.ranks.sum(total, seen)
        return total / seen

    @torch.no_grad()
    def loss_of(self, loader):
        self.model.eval()
        total, seen = 0.0, 0
        for x, y in loader:
            x, y = x.to(self.ranks.device), y.to(self.ranks.device)
            total += F.cross_entropy(self.net(x), y, reduction="sum").item()
            seen += len(y)
        total, seen = self.ranks.sum(total, seen)
        return total / seen

    def run(self):
        train_loader, val_loader = self.data.train_loader(), self.data.val_loader()
        for epoch in range(self.args.epochs):
            self.data.sampler.set_epoch(epoch)
            loss = self.train(train_loader)
            val_loss = self.loss_of(val_loader)
            self.scheduler.step()
            if self.ranks.is_main:
                print(f"epoch {epoch}: train {loss:.4f}, val {val_loss:.4f}")
            if val_loss < self.best:
                self.best = val_loss
                if self.ranks.is_main:
                    torch.save(self.net.state_dict(), self.args.path)
                dist.barrier()
        self.test()

    def test(self):
        best = Net().to(self.ranks.device)
        best.load_state_dict(torch.load(self.args.path, map_location=self.ranks.device))
        best.eval()
        right = 0
        with torch.no_grad():
            for x, y in self.data.test_loader():
                right += (best(x.to(self.ranks.device)).argmax(1).cpu() == y).sum().item()
        if self.ranks.is_main:
            print("test accuracy", right / len(self.data.test_set))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", default="data")
    parser.add_argument("--path", default="digits.pt")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    ranks = Ranks()
    torch.manual_seed(5)
    data = Digits(ranks, args.root, args.batch_size)
    data.prepare()
    data.setup()
    Experiment(ranks, data, args).run()
    ranks.close()


if __name__ == "__main__":
    main()
