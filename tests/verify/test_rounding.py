"""A training that amplifies rounding: what float32 puts apart, float64 decides."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autodist.errors import AutodistError
from autodist.verify import Outcome, proof, verify
from autodist.verify.launch import PORTS, Zygote, free_port
from autodist.verify.probes.training import drop_smaller
from autodist.verify.progress import NoProgress
from autodist.verify.runs import Setting
from autodist.verify.verdict import Deviation, Finding, WorldVerdict

BEFORE = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.rand(96, 4, generator=torch.Generator().manual_seed(0)))
weight = torch.nn.Linear(4, 1, bias=False)
torch.nn.init.constant_(weight.weight, 0.3)
optimizer = torch.optim.SGD(weight.parameters(), lr=1e-3)
for step, (x,) in enumerate(DataLoader(data, batch_size=32)):
    loss = 2 + torch.sin(1000 * weight(x)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
AFTER = """\
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.rand(96, 4, generator=torch.Generator().manual_seed(0)))
weight = torch.nn.Linear(4, 1, bias=False)
torch.nn.init.constant_(weight.weight, 0.3)
weight = DistributedDataParallel(weight)
optimizer = torch.optim.SGD(weight.parameters(), lr=1e-3)
sampler = DistributedSampler(data, shuffle=False)
for step, (x,) in enumerate(DataLoader(data, batch_size=32 // dist.get_world_size(), sampler=sampler)):
    loss = 2 + torch.sin(1000 * weight(x)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""
FAULTY = "    optimizer.zero_grad()\n", "    loss = loss * (1 + (step == 1))\n    optimizer.zero_grad()\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "before.py").write_text(BEFORE)
    (tmp_path / "after.py").write_text(AFTER)
    return tmp_path


@pytest.mark.parametrize("gain", ["1000", "4000"])
def test_rounding_that_grows_is_no_fault(folder: Path, gain: str, zygote: Zygote | None) -> None:
    for name, text in (("before.py", BEFORE), ("after.py", AFTER)):
        (folder / name).write_text(text.replace("1000", gain))
    pair = folder / "before.py", folder / "after.py"
    (world,) = verify(*pair, [2], dtype="float32", workdir=folder, timeout=100, zygote=zygote).worlds
    assert world.equal, world.findings


@pytest.mark.parametrize(
    ("kinds", "exact", "expected"),
    [
        (("gradient",), Outcome.EQUAL, Outcome.EQUAL),
        (("loss", "gradient", "printed-differs"), Outcome.EQUAL, Outcome.EQUAL),
        (("gradient",), Outcome.EQUAL_UNTIL, Outcome.EQUAL_UNTIL),
        (("gradient",), Outcome.NOT_COMPARABLE, Outcome.EQUAL_UNTIL),
        (("gradient", "learning-rate"), Outcome.EQUAL, Outcome.EQUAL_UNTIL),
    ],
)
def test_float64_decides_what_float32_puts_apart(
    monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], exact: Outcome, expected: Outcome
) -> None:
    findings = tuple(Finding(kind, "deviates", step=2) for kind in kinds)
    steps = tuple(Deviation(step, 0.0, 0.5 * (step == 2), 0.0, 1.0, 1.0) for step in range(3))
    found = {
        "float32": WorldVerdict(
            2, "float32", Outcome.EQUAL_UNTIL, "equal until step 2", findings, step=2, steps=3, deviations=steps
        ),
        "float64": WorldVerdict(2, "float64", exact, "3 optimizer steps agree", steps=3),
    }
    monkeypatch.setattr(proof, "compared", lambda setting, world, folder: found[setting.dtype])
    blank = Path()
    setting = Setting(
        blank, blank, blank, blank, blank, (), None, "float32", {}, 9.0, {}, "python", NoProgress(), blank, blank
    )
    verdict = proof.verify_world(setting, 2)
    assert verdict.outcome is expected
    assert verdict.dtype == "float32"
    if verdict.equal:
        assert verdict.steps == 2 and verdict.largest("gradient") == 0.0 and not verdict.findings
        assert "in float64 the same 3 steps agree" in verdict.notes[-1].message


def test_a_fault_is_none_of_rounding(folder: Path, zygote: Zygote | None) -> None:
    (folder / "after.py").write_text(AFTER.replace(*FAULTY))
    pair = folder / "before.py", folder / "after.py"
    (world,) = verify(*pair, [2], dtype="float32", workdir=folder, timeout=100, zygote=zygote).worlds
    assert world.outcome is Outcome.EQUAL_UNTIL
    assert world.step == 1


def test_ranks_that_can_meet_nowhere_are_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("socket.socket.bind", refuse)
    with pytest.raises(AutodistError, match="no port"):
        free_port()


def test_ports_are_not_those_that_the_system_gives_out() -> None:
    assert all(free_port() in PORTS for _ in range(20))


ATTENTION = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if "RANK" in os.environ:
    dist.init_process_group("gloo")
rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
model = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), nn.Linear(16, 1))
model = DistributedDataParallel(model) if "RANK" in os.environ else model
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=0.01)
xs = torch.randn(12, 8, 5, 16)
for x in xs:
    loss = nn.functional.mse_loss(model(x[rank::ranks]), x[rank::ranks, :, :1]{more})
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("more", "equal"), [("", True), (") * (1 + 1e-6", False)])
def test_parts_of_gradients_that_cancel_out(tmp_path: Path, zygote: Zygote | None, more: str, equal: bool) -> None:
    """Softmax does not see the biases of keys: their gradient is rounding, of which Adam makes whole steps."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(ATTENTION.format(more=""))
    after.write_text(ATTENTION.format(more=more))
    (world,) = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote).worlds
    assert world.equal == equal, world.findings


def test_numbers_that_are_rounding() -> None:
    gradient = torch.tensor([1.0, 1e-14, 0.0, -1e-14, -2.0], dtype=torch.float64)
    assert drop_smaller(gradient, 1e-12)
    assert gradient.tolist() == [1.0, 0.0, 0.0, 0.0, -2.0]
    assert not drop_smaller(gradient, 1e-12)
