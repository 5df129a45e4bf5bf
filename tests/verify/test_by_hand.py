"""Conversions as people write them by hand: each rank slices whole batches, or the script starts its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

BEFORE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    total = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total / len(loader))
"""

AFTER = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def average_gradients(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()


def main(rank, world_size):
    {init}
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
    {loader}
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for epoch in range(2):
        total = torch.zeros(())
        for x, y in loader:
            {slice}
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model)
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            print(epoch, total.item() / world_size / len(loader))


if __name__ == "__main__":
    {start}
"""

WHOLE = "loader = DataLoader(data, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(1))"
SHARDED = "loader = DataLoader(data, batch_size=8 // world_size, sampler=DistributedSampler(data, seed=3))"
STARTED = 'dist.init_process_group("gloo")\n    rank, world_size = dist.get_rank(), dist.get_world_size()'
SPAWNED = (
    'dist.init_process_group("gloo", "tcp://localhost:29541", rank=rank, world_size=world_size)',
    "torch.multiprocessing.spawn(main, args=(2,), nprocs=2)",
)


@pytest.mark.parametrize(
    ("init", "loader", "part", "start", "kind"),
    [
        (STARTED, WHOLE, "x, y = x[rank::world_size], y[rank::world_size]", "main(0, 1)", None),
        (STARTED, WHOLE, "x, y = x.chunk(world_size)[rank], y.chunk(world_size)[rank]", "main(0, 1)", None),
        (STARTED, WHOLE, "x, y = x.chunk(world_size)[0], y.chunk(world_size)[0]", "main(0, 1)", "loss"),
        (STARTED, WHOLE, "pass", "main(0, 1)", "samples-replicated"),
        (SPAWNED[0], SHARDED, "pass", SPAWNED[1], "order-repeated"),
        (SPAWNED[0], WHOLE, "x, y = x[rank::world_size], y[rank::world_size]", SPAWNED[1], None),
    ],
)
def test_slices_and_started_processes(
    tmp_path: Path, zygote: Zygote | None, init: str, loader: str, part: str, start: str, kind: str | None
) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(BEFORE)
    after.write_text(AFTER.format(init=init, loader=loader, slice=part, start=start))
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal == (kind is None), verdict.findings
    assert kind is None or kind in {finding.kind for finding in verdict.findings}


OWN_STEPS = """\
import torch
import torch.distributed as dist
from torch import nn

{join}
torch.manual_seed(0)
x = torch.randn(16, 4)
y = x.sum(1, keepdim=True)
model = {model}
for step in range(4):
    loss = nn.functional.mse_loss(model(x{share}), y{share})
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= {rate} * p.grad
"""


@pytest.mark.parametrize(("rate", "equal"), [("0.1", True), ("(0.2 if step == 3 else 0.1)", False)])
def test_the_last_step_that_a_script_takes_itself(
    tmp_path: Path, zygote: Zygote | None, rate: str, equal: bool
) -> None:
    """No backward pass follows it."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(OWN_STEPS.format(join="", share="", model="nn.Linear(4, 1)", rate="0.1"))
    model, join = "nn.parallel.DistributedDataParallel(nn.Linear(4, 1))", 'dist.init_process_group("gloo")'
    share = "[dist.get_rank() :: dist.get_world_size()]"
    after.write_text(OWN_STEPS.format(join=join, share=share, model=model, rate=rate))
    (world,) = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote).worlds
    assert world.equal == equal, world.findings
    assert world.steps == 4


SAVED_AT_THE_END = """\
import atexit

import torch
from torch import nn
{join}
torch.manual_seed(0)
x = torch.randn(16, 4)
y = x.sum(1, keepdim=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{first}
{then}
for step in range(4):
    loss = nn.functional.mse_loss({model}(x{share}), y{share})
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SAVE = "atexit.register(lambda: torch.save(model.state_dict(), 'model.pt'))"
SAVE_ALONE = "atexit.register(lambda: dist.get_rank() or torch.save(model.state_dict(), 'model.pt'))"
DESTROY = "atexit.register(dist.destroy_process_group)"


@pytest.mark.parametrize(
    ("first", "then", "equal"), [(DESTROY, SAVE_ALONE, True), (SAVE_ALONE, DESTROY, False)], ids=["kept", "lost"]
)
def test_what_is_saved_once_the_group_is_gone(
    tmp_path: Path, zygote: Zygote | None, first: str, then: str, equal: bool
) -> None:
    """What is registered last runs first: the checkpoint is lost, though the programs end well."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(SAVED_AT_THE_END.format(join="", first=SAVE, then="", model="model", share=""))
    join = 'import torch.distributed as dist\n\ndist.init_process_group("gloo")'
    share, wrapped = "[dist.get_rank() :: dist.get_world_size()]", "wrapped"
    wrap = "\nwrapped = nn.parallel.DistributedDataParallel(model)"
    after.write_text(SAVED_AT_THE_END.format(join=join, first=first, then=then + wrap, model=wrapped, share=share))
    (world,) = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote).worlds
    assert world.equal == equal, world.findings


REPLACED = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset


class Share(torch.utils.data.Sampler):
    def __init__(self, sampler, rank, ranks):
        self.sampler, self.rank, self.ranks = sampler, rank, ranks

    def __iter__(self):
        return iter(list(self.sampler)[self.rank :: self.ranks])

    def __len__(self):
        return len(self.sampler) // self.ranks


ranks = int(os.environ.get("WORLD_SIZE", 1))
{join}
rank = dist.get_rank() if ranks > 1 else 0
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
sampler = RandomSampler(data, replacement=True, num_samples=192, generator=torch.Generator().manual_seed(0))
loader = DataLoader(data, batch_size=64 // ranks, sampler=Share(sampler, rank, ranks) if ranks > 1 else sampler)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
model = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = iter(loader)
torch.manual_seed({seed})
for x, y in batches:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("seed", "equal"), [("7 + rank", True), ("7", False)])
def test_ranks_that_part_once_their_loader_is_begun(
    tmp_path: Path, zygote: Zygote | None, seed: str, equal: bool
) -> None:
    """minGPT begins its loader ahead of its loop, and its sampler draws as many numbers as a rank has rows."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(REPLACED.format(join="", seed="7"))
    after.write_text(REPLACED.format(join='dist.init_process_group("gloo")', seed=seed))
    (world,) = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote).worlds
    assert world.equal == equal, world.findings
    assert equal or "noise-alike" in {finding.kind for finding in world.findings}


NOISY = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 1)

    def forward(self, x):
        return self.layer(x * torch.rand(x.shape))


ranks = int(os.environ.get("WORLD_SIZE", 1))
{join}
rank = dist.get_rank() if ranks > 1 else 0
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 5), torch.randn(32, 1))
sampler = DistributedSampler(data, shuffle=False) if ranks > 1 else None
loader, held_out = DataLoader(data, batch_size=8 // ranks, sampler=sampler), DataLoader(data, batch_size=8)
model = Net()
model = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed({seed})
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        sum(nn.functional.mse_loss(model(x), y).item() for x, y in held_out)
"""


@pytest.mark.parametrize(("seed", "equal"), [("7 + rank", True), ("7", False)])
def test_evaluations_of_all_data_excuse_no_noise_of_training(
    tmp_path: Path, zygote: Zygote | None, seed: str, equal: bool
) -> None:
    """What a model draws at one line is the same on all ranks there, and for each rank's own samples here."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(NOISY.format(join="", seed="7"))
    after.write_text(NOISY.format(join='dist.init_process_group("gloo")', seed=seed))
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    (world,) = verdict.worlds
    assert world.equal == equal, world.findings
    assert "drawn-apart" not in {note.kind for note in verdict.notes}  # loaders that are begun draw seeds for workers
    assert equal or "noise-alike" in {finding.kind for finding in world.findings}


TUPLES = """\
import os

import torch
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 1)
        self.dropout = nn.Dropout(0.5)

    def forward(self, batch):
        return self.layer(self.dropout(batch[0])) / batch[1][:, None]


ranks = int(os.environ.get("WORLD_SIZE", 1))
{join}
rank = dist.get_rank() if ranks > 1 else 0
torch.manual_seed(0)
data, lengths, target = torch.randn(32, 5), torch.arange(1, 33), torch.randn(32, 1)
model = Net()
model = nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(7 + rank)
for i in range(0, 32, 8):
    rows = slice(i + rank, i + 8, ranks)
    loss = nn.functional.mse_loss(model((data[rows], lengths[rows])), target[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_batch_that_is_given_as_a_tuple_has_its_own_masks(tmp_path: Path, zygote: Zygote | None) -> None:
    """What it has for rows says which masks of dropout are those of a rank's samples."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(TUPLES.format(join=""))
    after.write_text(TUPLES.format(join='dist.init_process_group("gloo")'))
    (world,) = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote).worlds
    assert world.equal, world.findings


TENSORS = """\
import torch
import torch.distributed as dist

{join}
torch.manual_seed(0)
data, true = torch.randn(64, 5), torch.randn(5)
target = data @ true
w, b = torch.randn(5, requires_grad=True), torch.zeros(1, requires_grad=True)
for step in range(4):
    rows = torch.randint(0, 64, (8,)){share}
    loss = ((data[rows] @ w + b - target[rows]) ** 2).mean()
    loss.backward()
    {average}
    with torch.no_grad():
        for each in (w, b):
            each -= {rate} * each.grad
            each.grad.zero_()
"""
AVERAGE = "for each in (w, b):\n        dist.all_reduce(each.grad)\n        each.grad /= dist.get_world_size()"


@pytest.mark.parametrize(
    ("share", "average", "rate", "kind"),
    [
        ("[dist.get_rank() :: dist.get_world_size()]", AVERAGE, "0.1", None),
        ("[dist.get_rank() :: dist.get_world_size()]", "pass", "0.1", "parameters-differ-between-ranks"),
        ("[dist.get_rank() :: dist.get_world_size()]", AVERAGE, "0.2", "parameters"),
        ("", AVERAGE, "0.1", "rows-replicated"),
    ],
)
def test_steps_by_hand_of_tensors_in_no_module(
    tmp_path: Path, zygote: Zygote | None, share: str, average: str, rate: str, kind: str | None
) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(TENSORS.format(join="", share="", average="pass", rate="0.1"))
    join = 'dist.init_process_group("gloo")'
    after.write_text(TENSORS.format(join=join, share=share, average=average, rate=rate))
    (world,) = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote).worlds
    assert world.equal == (kind is None) and world.steps == 4, world.findings
    assert kind is None or kind in {finding.kind for finding in world.findings}
