"""How many samples a rank reads for an evaluation that is shared out, and how often ranks communicate, beside what an
expert writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import launched
from shared_programs import MEAN_OF_BATCHES, METER, converted_shared, script

COUNTING = """\
import json as _json
import os as _os

import torch as _torch
import torch.distributed as _dist

_counts = {"read": [], "calls": 0}
_plain = _torch.utils.data.TensorDataset.__getitem__


def _read(self, index):
    if len(self) == 37:
        _counts["read"].append(index)
    return _plain(self, index)


def _counted(call):
    def count(*args, **kwargs):
        _counts["calls"] += 1
        return call(*args, **kwargs)

    return count


_torch.utils.data.TensorDataset.__getitem__ = _read
for _name in ("all_reduce", "all_gather", "all_gather_object", "broadcast", "barrier", "reduce", "gather"):
    setattr(_dist, _name, _counted(getattr(_dist, _name)))
"""
WRITTEN = """
with open(f"counts{_os.environ['RANK']}.json", "w") as _file:
    _json.dump(_counts, _file)
"""
EXPERT = """\
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def data(n, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=g)
    return TensorDataset(x, (x.sum(1) > 0).long() + (x[:, 0] > 1).long())


dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
train_set, test_set = data(48, 0), data(37, 1)
sampler = DistributedSampler(train_set)
train_loader = DataLoader(train_set, batch_size=12 // world, sampler=sampler)
batches = list(torch.arange(len(test_set)).split(8))  # whole batches: their mean is that of one process
own = torch.tensor_split(torch.arange(len(batches)), world)[rank].tolist()
test_loader = DataLoader(test_set, batch_sampler=[batches[i].tolist() for i in own])
model = DDP(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 3)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    sums = torch.zeros(2, dtype=torch.float64)
    for x, y in loader:
        out = model.module(x)
        sums += torch.stack([F.cross_entropy(out, y), (out.argmax(1) == y).sum()])
    dist.all_reduce(sums)
    return sums[0].item() / len(batches)


for epoch in range(2):
    model.train()
    sampler.set_epoch(epoch)
    for x, y in train_loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    evaluate(model, test_loader)
"""


def _counts(folder: Path, text: str, ranks: int) -> list[tuple[list[int], int]]:
    (folder / "counted.py").write_text(COUNTING + text + WRITTEN)
    launched(folder, "counted.py", ranks)
    told = [json.loads((folder / f"counts{rank}.json").read_text()) for rank in range(ranks)]
    return [(each["read"], each["calls"]) for each in told]


METERS = """\
@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    losses, top1 = AverageMeter(), AverageMeter()
    for x, y in loader:
        out = model(x)
        losses.update(F.cross_entropy(out, y).item(), len(x))
        top1.update((out.argmax(1) == y).float().mean().item(), len(x))
    print(losses.avg, top1.avg)
    return losses.avg
"""
VERSIONS = {
    "sums": script(MEAN_OF_BATCHES),
    "meters": script(METERS, helpers=METER),
    "shuffled": script(MEAN_OF_BATCHES, options=", shuffle=True"),
}


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("text", VERSIONS.values(), ids=VERSIONS)
def test_samples_are_read_once_and_sums_are_taken_once(text: str, ranks: int, tmp_path: Path) -> None:
    after, _ = converted_shared(tmp_path, text)
    ours, theirs = _counts(tmp_path, after, ranks), _counts(tmp_path, EXPERT, ranks)
    evaluations = 2
    assert sorted(index for read, _ in ours for index in read) == sorted([*range(37)] * evaluations)
    assert sorted(len(read) for read, _ in ours) == sorted(len(read) for read, _ in theirs)
    assert {calls for _, calls in ours} == {calls for _, calls in theirs} == {evaluations}


def test_every_rank_reads_all_samples_where_nothing_is_shared_out(tmp_path: Path) -> None:
    from conftest import converted

    after, _ = converted(tmp_path, script(MEAN_OF_BATCHES))
    assert [len(read) for read, _ in _counts(tmp_path, after, 2)] == [74, 74]
