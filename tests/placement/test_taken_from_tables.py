"""Numbers that samples take of a table which all ranks have, at places along its axis: `table.gather(-1, t)`"""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences
from programs import CATALOG, bound, traced

from autodist.placement import PerRank, Placement, Replicate, Shard
from autodist.placement.propagate import propagate
from autodist.verify.launch import Zygote

HEAD = """\
import torch
from helpers import loaded
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.randn(64, 5, 8)), batch_size=8)
table, grid, unknown = torch.randn(100), torch.randn(100, 8), loaded()
for (x,) in loader:
    t = torch.randint(0, 100, (len(x),))
    rows = t[:, None].expand(-1, 8)
"""


def lies(line: str) -> tuple[Placement | None, object]:
    program = traced(f"{HEAD}    result = {line}\n")
    found, value = propagate(program, lambda source: Shard(0), catalog=CATALOG), bound(program, "result")
    return found.value(value), found.size(value)


@pytest.mark.parametrize(
    ("line", "sizes"),
    [
        ("table.gather(-1, t)", (None,)),
        ("table.gather(0, t)", (None,)),
        ("torch.gather(table, 0, t)", (None,)),
        ("torch.gather(table, dim=0, index=t)", (None,)),
        ("unknown.gather(-1, t)", (None,)),
        ("torch.take_along_dim(table, t, 0)", (None,)),
        ("grid.gather(0, rows)", (None, 8)),
        ("table[:50].cumsum(0).gather(0, t)", (None,)),
        ("x.gather(1, x.argsort(1)[:, :2])", (None, None, 8)),
    ],
)
def test_each_sample_takes_its_own(line: str, sizes: object) -> None:
    assert lies(line) == (Shard(0), sizes)


@pytest.mark.parametrize(
    "line",
    [
        "grid.gather(1, rows)",  # beside the first rows of the table, as many as a batch has
        "unknown.gather(1, rows)",
        "table.scatter(0, t, x[:, 0, 0])",
        "torch.scatter(table, 0, t, 1.0)",
        "x[:, 0, 0].gather(0, t)",
    ],
)
def test_other_samples_are_not_met(line: str) -> None:
    assert isinstance(lies(line)[0], PerRank)


def test_what_is_put_into_a_table_leaves_it_as_large() -> None:
    assert lies("grid.scatter(0, torch.zeros(2, 8).long(), 1.0)") == (Replicate(), (100, 8))
    assert lies("torch.take_along_dim(grid, torch.zeros(2, 8).long())") == (Replicate(), None)


SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def sizes_of(x):
    return list(map(int, "1" * (x.ndim - 1)))


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 3, 8, 8)), batch_size=8, shuffle=True)
model = nn.Conv2d(3, 3, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 100), dim=0)
for epoch in range(2):
    for (x,) in loader:
        t = torch.randint(0, 100, (x.shape[0],))
        noise = torch.randn_like(x)
        a = kept.gather(-1, t).WRITTEN
        loss = nn.functional.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    "written",
    [
        "reshape(t.shape[0], *((1,) * (len(x.shape) - 1)))",
        "view(-1, *[1] * (x.ndim - 1))",
        "view([-1] + [1] * (x.dim() - 1))",
        "reshape(len(t), *sizes_of(x))",
    ],
)
def test_steps_of_a_diffusion_are_each_rank_s_own(tmp_path: Path, zygote: Zygote | None, written: str) -> None:
    """They were gathered, and met a rank's own pictures."""
    before = SCRIPT.replace("WRITTEN", written)
    after, told = converted(tmp_path, before)
    assert "RowsOfAllRanks" not in after and "AD6" not in told
    assert differences(tmp_path, zygote, before) is None
