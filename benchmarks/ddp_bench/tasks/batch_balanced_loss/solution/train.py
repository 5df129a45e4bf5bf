import os
import sys

import torch
import torch.distributed as dist
from torch import nn, optim
from torch.distributed.nn.functional import all_gather
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from losses import balanced_hard_loss


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = (torch.rand(n, generator=g) ** 3 * 4).long()
    x = torch.randn(n, 5, generator=g)
    x[:, :4] += 2 * torch.eye(4)[y]
    return TensorDataset(x, y)


def main():
    rank, world = setup()
    torch.manual_seed(77)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_set = make(128, 1)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=16 // world, sampler=sampler, drop_last=True)
    test = DataLoader(make(45, 2), batch_size=16)
    model = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 4)).to(device)
    ddp = DDP(model)
    optimizer = optim.NAdam(model.parameters(), lr=5e-3)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        model.train()
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            logits = torch.cat(all_gather(ddp(x.to(device))))  # with their gradients: the loss is one of the whole batch
            target = torch.cat(all_gather(y.to(device)))
            loss = balanced_hard_loss(logits, target)
            loss.backward()
            optimizer.step()
            if step % 4 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.5f}")
        model.eval()
        per_class = torch.zeros(4, 2, dtype=torch.long)
        with torch.no_grad():
            for x, y in test:
                hit = model(x.to(device)).argmax(1).cpu() == y
                for c in range(4):
                    per_class[c] += torch.stack([hit[y == c].sum(), (y == c).sum()])
        print("recall", " ".join(f"{h}/{n}" for h, n in per_class.tolist()))
    if rank == 0:
        torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main()
    dist.destroy_process_group()
