import os
import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from loop import Checkpoint, Fit, JsonLogger
from module import PatchMixer


def setup():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if rank != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all
    return rank, world


def shapes(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 3, (n,), generator=g)
    grid = torch.arange(8)
    r, c = torch.randint(1, 7, (2, n), generator=g)
    horizontal = (grid.view(1, 8, 1) == r.view(-1, 1, 1)).expand(n, 8, 8)
    vertical = (grid.view(1, 1, 8) == c.view(-1, 1, 1)).expand(n, 8, 8)
    kind = y.view(-1, 1, 1)
    x = torch.where(kind == 0, horizontal, torch.where(kind == 1, vertical, horizontal | vertical))
    return TensorDataset(x.to(torch.get_default_dtype()) + 0.5 * torch.randn(n, 8, 8, generator=g), y)


if __name__ == "__main__":
    rank, world = setup()
    torch.manual_seed(0)
    train_set = shapes(192, 1)
    train_loader = DataLoader(train_set, batch_size=16 // world, sampler=DistributedSampler(train_set))
    val_loader = DataLoader(shapes(70, 2), batch_size=28)
    loop = Fit(max_epochs=3, callbacks=[Checkpoint("val_accuracy"), JsonLogger()])
    loop.fit(PatchMixer(), train_loader, val_loader)
    dist.destroy_process_group()
