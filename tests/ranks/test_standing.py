"""What rules for conversion say of a script that distributes itself: only what all of its ranks surely do wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.config import Config
from autodist.convert import faults
from autodist.project import Project

BEFORE = """\
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import yaml
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

TOP


class Table:
    def __init__(self, name):
        self.name = name

    def add(self, line):
        with open(self.name, "a") as file:
            file.write(line)


class Log:
    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name) if self.inner is not None else lambda *_: None


def train(gpu, options):
    rank = options["first"] + gpu
    dist.init_process_group("nccl", rank=rank, world_size=options["size"])
    torch.cuda.set_device(gpu)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=8, sampler=sampler)
    model = DDP(nn.Linear(4, 1).cuda(), device_ids=[gpu])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        LINES
    dist.destroy_process_group()


if __name__ == "__main__":
    size = torch.cuda.device_count()
    mp.spawn(train, args=({"first": 0, "size": size},), nprocs=size)
"""


def said(lines: list[str], top: str = "") -> set[str]:
    text = BEFORE.replace("LINES", "\n        ".join(lines)).replace("TOP", top)
    return {each.code for each in faults(Project.load(Path("train.py"), stdin=text), Config())}


RIGHT = {
    "nothing": ["pass"],
    "named after the rank": ["torch.save(model.module.state_dict(), f'part{dist.get_rank()}.pt')"],
    "named after the rank, further up": [
        "name = os.path.join('out', 'part-%03d.txt' % dist.get_rank())",
        "Table(name).add(str(epoch))",
    ],
    "named after a sample": ["for each in x:", "    open(str(int(each.sum())), 'w').write('seen')"],
    "logged to a file of its own": [
        "import logging",
        "logging.getLogger().addHandler(logging.FileHandler(f'rank{dist.get_rank()}.log'))",
        "logging.getLogger().info(yaml.dump({'epoch': epoch}))",
    ],
    "thrown away": ["with open(os.devnull, 'w') as nothing:", "    nothing.write('x')"],
    "a condition that is not followed": [
        "import settings",
        "if settings.is_master():",
        "    torch.save(model.module.state_dict(), 'm.pt')",
    ],
    "told by MPI": [
        "from mpi4py import MPI",
        "if MPI.COMM_WORLD.Get_rank() == 0:",
        "    torch.save(model.module.state_dict(), 'm.pt')",
    ],
    "handed on by what is not followed": [
        "log = Log(Table('log.txt') if dist.get_rank() == 0 else None)",
        "log.add(str(epoch))",
    ],
}
WRONG = {
    "saved by all": ["torch.save(model.module.state_dict(), 'm.pt')"],
    "saved from time to time": ["if epoch % 2 == 0:", "    torch.save(model.module.state_dict(), 'm.pt')"],
    "settings of all": ["yaml.dump({'epoch': epoch}, open(os.path.join('out', 'settings.yaml'), 'w'))"],
    "opened by all": ["with open('log.txt', 'a') as file:", "    file.write(str(epoch))"],
}


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_said(name: str) -> None:
    assert not said(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_all_ranks_write(name: str) -> None:
    assert said(WRONG[name]) == {"AD301"}


def test_what_started_processes_import_is_run_by_all() -> None:
    assert said(["pass"], "yaml.dump({'lr': 0.1}, open('settings.yaml', 'w'))") == {"AD301"}


def test_frameworks_are_started_by_their_own_launchers() -> None:
    text = """\
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for x, y in loader:
    accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
    optimizer.step()
    optimizer.zero_grad()
"""
    assert not faults(Project.load(Path("train.py"), stdin=text), Config())
