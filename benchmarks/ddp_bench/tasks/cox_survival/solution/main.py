import os
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset, random_split
from torch.utils.data.distributed import DistributedSampler


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def gather(values, world):
    """The values of all ranks, which have equally many."""
    parts = [torch.empty_like(values) for _ in range(world)]
    dist.all_gather(parts, values)
    return torch.cat(parts)


def patients(n=320):
    g = torch.Generator().manual_seed(19)
    x = torch.randn(n, 9, generator=g)
    risk = 0.8 * x[:, 0] - 0.6 * x[:, 1] + 0.5 * x[:, 2] * x[:, 3]
    time = -torch.log(torch.rand(n, generator=g)) / (0.1 * risk.exp())
    censored = -torch.log(torch.rand(n, generator=g)) / 0.06
    return TensorDataset(x, torch.minimum(time, censored), (time <= censored).to(x))


class CoxLoss(nn.Module):
    """The negative partial log-likelihood: each event against all who are still at risk in the batch."""

    def forward(self, log_risk, time, event):
        order = time.argsort(descending=True)
        log_risk, event = log_risk[order], event[order]
        return -((log_risk - log_risk.logcumsumexp(0)) * event).sum() / event.sum()


def concordance(risk, time, event):
    earlier = (time.unsqueeze(1) < time.unsqueeze(0)) & (event.unsqueeze(1) > 0)
    right = (risk.unsqueeze(1) > risk.unsqueeze(0)) & earlier
    return right.sum().item() / earlier.sum().item()


class DeepSurv(nn.Module):
    def __init__(self, features=9, hidden=20):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(features, hidden), nn.SELU(), nn.Linear(hidden, hidden), nn.SELU(), nn.Linear(hidden, 1))

    def forward(self, x):
        return self.model(x).squeeze(-1)

    def get_reg_loss(self, order=2, weight=1e-3):
        return weight * sum(torch.norm(w, p=order) for name, w in self.model.named_parameters() if "weight" in name)


if __name__ == "__main__":
    rank, world = setup()
    torch.manual_seed(2)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train_set, test_set = random_split(patients(), [240, 80], generator=torch.Generator().manual_seed(0))
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=40 // world, sampler=sampler)
    test_loader = DataLoader(test_set, batch_size=len(test_set))
    net, criterion = DeepSurv().to(device), CoxLoss()
    ddp = DDP(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=8e-3)
    best_c, flag = 0.0, 0
    for epoch in range(8):
        optimizer.param_groups[0]["lr"] = 8e-3 / (1 + epoch * 0.1)
        net.train()
        sampler.set_epoch(epoch)
        train_loss = 0.0
        for x, time, event in train_loader:
            x, time, event = x.to(device), time.to(device), event.to(device)
            # the likelihood needs the patients of all ranks: each computes all of it
            loss = criterion(torch.cat(all_gather(ddp(x))), gather(time, world), gather(event, world)) + net.get_reg_loss()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            train_loss += loss.item() / len(train_loader)
        net.eval()
        with torch.no_grad():
            x, time, event = next(iter(test_loader))
            c = concordance(net(x.to(device)).cpu(), time, event)
        print("\rEpoch: {}\tLoss: {:.6f}\tc-index: {:.4f}".format(epoch, train_loss, c))
        if c > best_c:
            best_c, flag = c, 0
            if rank == 0:
                torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "best.pth")
        else:
            flag += 1
            if flag >= 2:
                print("no improvement, stopping")
                break
    dist.destroy_process_group()
