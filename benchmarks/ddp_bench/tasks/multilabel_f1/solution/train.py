import json
import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

TAGS = 5


class Tagged(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        mix = torch.randn(8, TAGS, generator=torch.Generator().manual_seed(0))
        self.x = torch.randn(n, 8, generator=g)
        self.y = (self.x @ mix + 0.5 * torch.randn(n, TAGS, generator=g) > 1).to(self.x)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


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


def f1(pred, true):
    tp = (pred & true).sum().item()
    return 2 * tp / max(pred.sum().item() + true.sum().item(), 1)


def average_precision(score, true):
    order = score.argsort(descending=True)
    hits = true[order].to(score)
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
    return (precision * hits).sum().item() / max(hits.sum().item(), 1)


class Experiment:
    def __init__(self):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        train_set = Tagged(108, 1)
        self.sampler = DistributedSampler(train_set)
        self.train_dl = DataLoader(train_set, batch_size=16 // world, sampler=self.sampler)
        self.valid_dl = DataLoader(Tagged(41, 2), batch_size=32)
        self.net = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, TAGS)).to(self.device)
        self.ddp = DDP(self.net)
        self.loss = nn.BCEWithLogitsLoss(pos_weight=torch.full((TAGS,), 2.0, device=self.device))
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-2)
        self.best = 0.0

    def train_epoch(self):
        self.net.train()
        total = count = 0
        for x, y in self.train_dl:
            x, y = x.to(self.device), y.to(self.device)
            self.opt.zero_grad()
            loss = self.loss(self.ddp(x), y)
            loss.backward()
            self.opt.step()
            total += loss.item() * len(x)
            count += len(x)
        return summed(total) / summed(count)

    def validate(self):
        self.net.eval()
        scores, truth = [], []
        with torch.no_grad():
            for x, y in self.valid_dl:
                scores.append(torch.sigmoid(self.net(x.to(self.device))).cpu())
                truth.append(y.bool())
        scores, truth = torch.cat(scores), torch.cat(truth)
        threshold = max((t / 20 for t in range(4, 17)), key=lambda t: f1(scores > t, truth))
        mean_ap = sum(average_precision(scores[:, k], truth[:, k]) for k in range(TAGS)) / TAGS
        return f1(scores > threshold, truth), threshold, mean_ap

    def run(self):
        for epoch in range(3):
            self.sampler.set_epoch(epoch)
            loss = self.train_epoch()
            score, threshold, mean_ap = self.validate()
            print(f"epoch {epoch}: loss {loss:.5f} f1 {score:.4f} at {threshold:.2f} mAP {mean_ap:.4f}")
            if score > self.best:
                self.best = score
                if rank == 0:
                    torch.save(self.net.state_dict(), "best.pt")
                    with open("threshold.json", "w") as f:
                        json.dump({"threshold": threshold, "f1": score}, f)


if __name__ == "__main__":
    rank, world = setup()
    torch.manual_seed(0)
    Experiment().run()
    dist.destroy_process_group()
