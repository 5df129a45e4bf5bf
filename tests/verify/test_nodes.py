"""Ranks on nodes of their own: what only one machine can have in common is found."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import converted

from autodist.verify import verify
from autodist.verify.launch import Zygote
from autodist.verify.nodes import Nodes, refusal
from autodist.verify.verdict import Outcome, WorldVerdict

TRAINING = """\
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""
IMPORTS = """\
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
"""
PREPARED = f"""{IMPORTS}
path = os.path.expanduser("~/shapes-of-a-test/shapes.pt")

def prepare():
    os.makedirs(os.path.dirname(path), exist_ok=True)
    torch.save((torch.randn(64, 4), torch.randn(64, 1)), path)

if not os.path.exists(path):
    prepare()
data = TensorDataset(*torch.load(path))
{TRAINING}"""
MADE = f"{IMPORTS}data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))\n{TRAINING}"
WRITTEN = MADE.replace(
    "data = ",
    """with open(FOLDER + "/columns-of-a-test.txt", "w") as file:
    file.write("4")
columns = int(open(FOLDER + "/columns-of-a-test.txt").read())
data = """,
)
ABROAD, HERE = (WRITTEN.replace("FOLDER", folder) for folder in ('os.path.expanduser("~")', '"."'))
"""A file that is written and read, on a node's own disk and on the one that all share."""


@pytest.fixture
def divided() -> Iterator[None]:
    """Only where this machine can be divided."""
    reason = refusal()
    if reason is not None:
        pytest.skip(reason)
    yield


def outcome(folder: Path, zygote: Zygote | None, before: str, after: str, **options: Any) -> WorldVerdict:
    """Of one number of ranks, by default two on two nodes."""
    (folder / "before.py").write_text(before)
    (folder / "after.py").write_text(after)
    options = {"nproc": [2], "nnodes": 2, "timeout": 60, **options}
    found = verify(folder / "before.py", folder / "after.py", device="cpu", workdir=folder, zygote=zygote, **options)
    return found.worlds[0]


def differs(verdict: WorldVerdict, cause: str) -> bool:
    assert verdict.outcome is Outcome.DIFFERS, verdict.reason
    assert verdict.cause is not None and verdict.cause.name == cause, (verdict.cause, verdict.findings)
    return True


@pytest.mark.usefixtures("divided")
@pytest.mark.parametrize(("before", "ranks"), [(PREPARED, 2), (PREPARED, 4), (HERE, 2), (MADE, 2)])
def test_conversions_are_equal(tmp_path: Path, zygote: Zygote | None, before: str, ranks: int) -> None:
    after, _ = converted(tmp_path, before)
    verdict = outcome(tmp_path, zygote, before, after, nproc=[ranks])
    assert verdict.equal, (verdict.reason, verdict.findings)
    assert ["ran on 2 nodes" in each.message for each in verdict.notes if each.kind == "nodes"] == [True]


@pytest.mark.usefixtures("divided")
def test_prepared_on_the_first_node_alone(tmp_path: Path, zygote: Zygote | None) -> None:
    after, _ = converted(tmp_path, PREPARED)
    wrong = after.replace(
        "    if not os.path.exists(path):", "    if dist.get_rank() == 0 and not os.path.exists(path):"
    )
    assert wrong != after
    assert outcome(tmp_path, zygote, PREPARED, wrong, nnodes=1).equal  # one machine does not show it
    assert differs(outcome(tmp_path, zygote, PREPARED, wrong), "prepare-on-each-node")


@pytest.mark.usefixtures("divided")
def test_written_by_rank_0_and_read_by_all(tmp_path: Path, zygote: Zygote | None) -> None:
    after, _ = converted(tmp_path, ABROAD)
    assert outcome(tmp_path, zygote, ABROAD, after, nnodes=1).equal
    assert differs(outcome(tmp_path, zygote, ABROAD, after), "prepare-on-each-node")


@pytest.mark.usefixtures("divided")
@pytest.mark.parametrize(
    "device", ["dist.get_rank()", "f'cuda:{dist.get_rank()}'", "torch.device('cuda', int(os.environ['RANK']))"]
)
def test_rank_as_number_of_a_device(tmp_path: Path, zygote: Zygote | None, device: str) -> None:
    before = MADE.replace("nn.Linear(4, 1)", "nn.Linear(4, 1).cuda()")
    after, _ = converted(tmp_path, MADE)
    wrong = after.replace("nn.Linear(4, 1)", f"nn.Linear(4, 1).cuda({device})")
    assert wrong != after
    assert outcome(tmp_path, zygote, before, wrong, nnodes=1).equal
    assert differs(outcome(tmp_path, zygote, before, wrong), "own-gpu")
    own = after.replace("nn.Linear(4, 1)", "nn.Linear(4, 1).cuda(int(os.environ['LOCAL_RANK']))")
    assert outcome(tmp_path, zygote, before, own).equal


@pytest.mark.usefixtures("divided")
def test_rank_as_part_of_a_path_on_the_node(tmp_path: Path, zygote: Zygote | None) -> None:
    """Local rank 0 makes a file for each rank of its node, and ranks look for theirs by their global number."""
    after, _ = converted(tmp_path, MADE)
    part = 'os.path.expanduser(f"~/part-of-a-test-{{}}.txt")'
    make = (
        'if os.environ["LOCAL_RANK"] == "0":\n'
        '    for number in range(int(os.environ["LOCAL_WORLD_SIZE"])):\n'
        f"        open({part.format('number').replace('{}', '{number}')}, 'w').close()\n"
        "dist.barrier()\n"
        f"open({part.replace('{{}}', '{dist.get_rank()}')}).close()\n"
    )
    wrong = after.replace("data = TensorDataset", f"{make}data = TensorDataset", 1)
    right = wrong.replace("{dist.get_rank()}", "{os.environ['LOCAL_RANK']}")
    failed = outcome(tmp_path, zygote, MADE, wrong)
    assert failed.outcome is Outcome.DIFFERS and "No such file" in failed.reason
    assert "No such file" not in outcome(tmp_path, zygote, MADE, right).reason


BY_HAND = MADE.replace(
    "data = ",
    """os.environ.update(MASTER_ADDR="localhost")
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
data = """,
    1,
).replace("import torch\n", "import torch\nimport torch.distributed as dist\n", 1)


@pytest.mark.usefixtures("divided")
def test_originals_that_know_one_node(tmp_path: Path, zygote: Zygote | None) -> None:
    """They run on one; a conversion that still meets on its own node does not come together."""
    right = BY_HAND.replace('os.environ.update(MASTER_ADDR="localhost")\n', "")
    assert (
        outcome(tmp_path, zygote, BY_HAND, right).reason == outcome(tmp_path, zygote, BY_HAND, right, nnodes=1).reason
    )
    alone = outcome(tmp_path, zygote, BY_HAND, BY_HAND, timeout=8)
    assert alone.outcome is Outcome.DIFFERS and "rank 1" in alone.reason


@pytest.mark.usefixtures("divided")
def test_nothing_is_left_of_nodes() -> None:
    stale = f"autodist-{2**22 + 1}-0-node0"  # no process has this number
    subprocess.run(["ip", "netns", "add", stale], check=True)
    with Nodes(2) as nodes:
        assert Path("/run/netns", nodes.namespaces[1]).exists() and not Path("/run/netns", stale).exists()
        said = subprocess.run(nodes.command(1, ["hostname"]), capture_output=True, text=True, check=True)
        assert said.stdout == "node1\n"
    assert not [each for each in nodes.namespaces if Path("/run/netns", each).exists()]


def test_without_root_ranks_only_take_themselves_to_be_there(
    tmp_path: Path, zygote: Zygote | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autodist.verify.nodes.os.geteuid", lambda: 1000)
    after, _ = converted(tmp_path, MADE)
    verdict = outcome(tmp_path, zygote, MADE, after)
    assert verdict.equal
    notes = [each.message for each in verdict.notes if each.kind == "nodes"]
    assert notes == ["the ranks only took themselves to be on 2 nodes: only root may make network namespaces"]
