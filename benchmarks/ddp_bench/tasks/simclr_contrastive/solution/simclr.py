import argparse
import logging
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.nn.functional import all_gather
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


rank, world = setup()
logging.basicConfig(filename="training.log" if rank == 0 else os.devnull, level=logging.INFO, format="%(message)s")


class TwoViews(Dataset):
    def __init__(self, n=64):
        g = torch.Generator().manual_seed(21)
        kinds = torch.randn(8, 10, generator=g)
        base = kinds[torch.arange(n) % 8] + 0.5 * torch.randn(n, 10, generator=g)
        self.views = torch.stack([base + 0.2 * torch.randn(n, 10, generator=g) for _ in range(2)], 1)

    def __len__(self):
        return len(self.views)

    def __getitem__(self, i):
        return [self.views[i, 0], self.views[i, 1]]


class Model(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 16))
        self.projector = nn.Sequential(nn.ReLU(), nn.Linear(16, dim))

    def forward(self, x):
        return self.projector(self.backbone(x))


def info_nce_loss(features, temperature):
    n = features.shape[0] // 2
    labels = torch.cat([torch.arange(n) for _ in range(2)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).to(features)
    features = F.normalize(features, dim=1)
    similarity = features @ features.T
    mask = torch.eye(len(labels), dtype=torch.bool, device=features.device)
    labels = labels[~mask].view(len(labels), -1)
    similarity = similarity[~mask].view(len(similarity), -1)
    positives = similarity[labels.bool()].view(len(labels), -1)
    negatives = similarity[~labels.bool()].view(len(similarity), -1)
    logits = torch.cat([positives, negatives], dim=1) / temperature
    return logits, torch.zeros(len(logits), dtype=torch.long, device=features.device)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-b", "--batch-size", default=16, type=int)
    parser.add_argument("--epochs", default=3, type=int)
    parser.add_argument("--temperature", default=0.2, type=float)
    args = parser.parse_args()
    torch.manual_seed(0)
    args.device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    dataset = TwoViews()
    sampler = DistributedSampler(dataset, drop_last=True)
    loader = DataLoader(dataset, batch_size=args.batch_size // world, sampler=sampler, drop_last=True)
    net = Model().to(args.device)
    model = DDP(net)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=len(loader) * args.epochs)
    criterion = nn.CrossEntropyLoss().to(args.device)
    n_iter = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for views in loader:
            images = torch.cat(views, dim=0).to(args.device)
            first, second = model(images).chunk(2)
            # the loss needs the features of all ranks: each computes all of it
            features = torch.cat([torch.cat(all_gather(first)), torch.cat(all_gather(second))])
            logits, labels = info_nce_loss(features, args.temperature)
            loss = criterion(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            if n_iter % 2 == 0:
                top1 = (logits.argmax(1) == labels).float().mean().item() * 100
                print(f"iter {n_iter} loss {loss.item():.4f} top1 {top1:.2f} lr {scheduler.get_last_lr()[0]:.6f}")
            n_iter += 1
        logging.info(f"Epoch: {epoch}\tLoss: {loss.item():.5f}")
    if rank == 0:
        torch.save({"epoch": args.epochs, "state_dict": net.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pth.tar")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
