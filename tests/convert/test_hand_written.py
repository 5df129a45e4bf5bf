"""Scripts that are distributed by hand, in ways that are right under torchrun alone, or without sharding."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import launched

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.result import Result

SCRIPT = """\
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--distributed", action="store_true")
args = parser.parse_args()
if args.distributed:
    dist.init_process_group("gloo")
rank = dist.get_rank() if args.distributed else 0
world = dist.get_world_size() if args.distributed else 1
train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
test_set = TensorDataset(torch.randn(21, 4), torch.randn(21, 1))
sampler = DistributedSampler(train_set, num_replicas=world, rank=rank)
loader = DataLoader(train_set, batch_size=8, sampler=sampler)
test_loader = DataLoader(test_set, batch_size=4, sampler=range(rank, len(test_set), world))
model = nn.Linear(4, 1)
{wrap}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        losses = [nn.functional.mse_loss(model(x), y).item() for x, y in test_loader]
torch.save({state}.state_dict(), "model.pt")
"""
OPTIONAL = SCRIPT.format(wrap="if args.distributed:\n    model = DDP(model)", state="getattr(model, 'module', model)")
WRAPPED = SCRIPT.format(wrap="model = DDP(model)", state="model.module")


def converted(folder: Path, text: str, strategy: Strategy) -> Result:
    """The conversion of a script."""
    (folder / "train.py").write_text(text)
    return convert(Project.load(folder / "train.py"), Config(strategy))


def test_a_script_that_joins_a_group_under_a_condition_still_runs_without_one(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    result = converted(tmp_path, OPTIONAL, Strategy.DDP)
    assert "if rank == 0:\n    torch.save" in result.entry.after
    (tmp_path / "after.py").write_text(result.entry.after)
    done = subprocess.run(
        [sys.executable, "after.py"], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.pt").exists()
    (tmp_path / "train.py").write_text(result.entry.after)
    assert not convert(Project.load(tmp_path / "train.py"), Config()).changed


def test_a_part_of_the_data_for_each_rank_is_no_evaluation_for_a_sharded_model(tmp_path: Path) -> None:
    warned = converted(tmp_path, WRAPPED, Strategy.FSDP)
    assert any("wait for ever" in each.message for each in warned.diagnostics)
    assert warned.needs_person and not warned.refused
    assert not any("wait for ever" in each.message for each in converted(tmp_path, WRAPPED, Strategy.DDP).diagnostics)
    even = WRAPPED.replace("range(rank, len(test_set), world)", "DistributedSampler(test_set)")
    even = even.replace("if args.distributed:\n    dist.init", "if int(os.environ['WORLD_SIZE']) > 1:\n    dist.init")
    assert not converted(
        tmp_path, even.replace("import argparse", "import argparse\nimport os"), Strategy.FSDP
    ).needs_person


def test_an_option_that_torchrun_does_not_give(tmp_path: Path) -> None:
    """Without it, each process would train by itself."""
    said = [each for each in converted(tmp_path, OPTIONAL, Strategy.DDP).diagnostics if each.code == "AD101"]
    assert any("started without that option" in each.message for each in said)
    asked = OPTIONAL.replace("if args.distributed:\n    dist", "if 'RANK' in os.environ:\n    dist")
    said = [
        each for each in converted(tmp_path, "import os\n" + asked, Strategy.DDP).diagnostics if each.code == "AD101"
    ]
    assert not any("started without that option" in each.message for each in said)


SWITCHED = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{switch}
if distributed:
    dist.init_process_group("gloo")
model = nn.Linear(4, 1)
if distributed:
    model = nn.parallel.DistributedDataParallel(model)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("switch", "told"),
    [
        ("distributed = False", True),
        ("distributed = True", False),
        ("distributed = dist.is_torchelastic_launched()", False),
    ],
)
def test_a_script_that_is_distributed_but_for_a_switch(tmp_path: Path, switch: str, told: bool) -> None:
    """As it stands, each process would train by itself, and nothing would be said."""
    result = converted(tmp_path, SWITCHED.format(switch=switch), Strategy.DDP)
    said = [each.message for each in result.diagnostics if each.code == "AD101"]
    assert any("distributed is False here" in message for message in said) == told


@pytest.mark.parametrize(("value", "told"), [("False", True), ("True", False)])
def test_a_switch_among_settings_of_another_file(tmp_path: Path, value: str, told: bool) -> None:
    """The script speaks of its local rank, and nothing was said."""
    (tmp_path / "settings.py").write_text(
        f"class Node:\n    pass\n\n\nconfig = Node()\nconfig.train = Node()\nconfig.train.distributed = {value}\n"
    )
    script = SWITCHED.replace("if distributed:", "if config.train.distributed:")
    switch = 'import os\n\nfrom settings import config\n\nlocal_rank = int(os.environ.get("LOCAL_RANK", 0))'
    result = converted(tmp_path, script.format(switch=switch), Strategy.DDP)
    said = [each.message for each in result.diagnostics if each.code == "AD101"]
    assert any("config.train.distributed is False here" in message for message in said) == told


EITHER_WAY = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ddp = "RANK" in os.environ
if ddp:
    dist.init_process_group("gloo")
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
{loader}
model = nn.Linear(4, 1)
if ddp:
    model = DDP(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
if ddp:
    dist.destroy_process_group()
"""
GIVEN = "loader = DataLoader(data, batch_size=8, sampler=sampler, shuffle=sampler is None)"
LOADERS = {
    "in line": "loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data) if ddp else None)",
    "a name": f"sampler = DistributedSampler(data) if ddp else None\n{GIVEN}",
    "None first": f"sampler = None\nif ddp:\n    sampler = DistributedSampler(data)\n{GIVEN}",
    "else None": f"if ddp:\n    sampler = DistributedSampler(data)\nelse:\n    sampler = None\n{GIVEN}",
    "a function": f"\n\ndef make(data):\n    sampler = DistributedSampler(data) if ddp else None\n"
    f"    {GIVEN.replace('loader =', 'return')}\n\n\nloader = make(data)",
    "two loaders": "if ddp:\n    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))\n"
    "else:\n    loader = DataLoader(data, batch_size=8, shuffle=True)",
    "two loaders, the other way": "if not ddp:\n    loader = DataLoader(data, 8, shuffle=True)\nelse:\n"
    "    sampler = DistributedSampler(data)\n    loader = DataLoader(data, 8, sampler=sampler)",
}


@pytest.mark.parametrize("name", LOADERS)
def test_samplers_of_which_there_are_none_without_a_group(name: str, tmp_path: Path) -> None:
    """Where the script trains in one process too, its loader has no `set_epoch`, and gets no sampler."""
    before = EITHER_WAY.replace("{loader}", LOADERS[name])
    code = converted(tmp_path, before, Strategy.DDP).entry.after
    assert "if isinstance(loader.sampler, DistributedSampler):\n        loader.sampler.set_epoch(epoch)" in code
    assert code.count("DistributedSampler(") == before.count("DistributedSampler(")
    (tmp_path / "ranks.py").write_text(code)
    launched(tmp_path, "ranks.py")
