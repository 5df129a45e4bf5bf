"""What one rank does alone where a script that is distributed by hand may have no process group."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, launched

from autodist.config import Strategy

IMPORTS = """\
import argparse
import os
import sys

import torch
import torch.distributed as dist
import wandb
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

"""
TRAINS = """
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data) if distributed else None)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
net = DDP(model) if distributed else model
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x), y).backward()
    optimizer.step()
"""
SAVED = 'torch.save(model.state_dict(), "model.pt")\n'
BY_VARIABLE = 'os.environ.get("RANK", "0") == "0"'


def indented(text: str) -> str:
    return "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))


def optional(joined: str, end: str = "") -> str:
    """A script that joins a group where torchrun has started it."""
    distributed = 'distributed = int(os.environ.get("RANK", -1)) != -1\n'
    return IMPORTS + distributed + joined + TRAINS + end


def always(end: str, rank: str = "", begin: str = "") -> str:
    """A script that always joins one."""
    return IMPORTS + begin + f'distributed = True\ndist.init_process_group("gloo")\n{rank}' + TRAINS + end


JOINED = 'if distributed:\n    dist.init_process_group("gloo")\n'
LEFT = "dist.destroy_process_group()\n"
LEFT_IF = "if distributed:\n    dist.destroy_process_group()\n"
BRANCHES = (
    JOINED + '    rank = int(os.environ["RANK"])\n    master_process = rank == 0\nelse:\n    master_process = True\n'
)
IN_MAIN = (
    IMPORTS
    + "\ndef setup():\n    dist.init_process_group('gloo')\n    return dist.get_rank(), dist.get_world_size()\n\n\n"
    + "def cleanup():\n    dist.destroy_process_group()\n\n\n"
    + "def main():\n    distributed = True\n    rank, world = setup()\n"
    + indented(TRAINS + "cleanup()\n" + SAVED)
    + "\n\nmain()\n"
)
IN_FINALLY = (
    IMPORTS
    + "\ndef train(distributed):\n"
    + indented(TRAINS)
    + "    return model\n\n\ndist.init_process_group('gloo')\ntry:\n    model = train(True)\nfinally:\n"
    + indented(LEFT)
    + SAVED
)
RETURNED = (
    IMPORTS
    + "\ndef setup(args):\n    args.distributed = False\n    if 'RANK' not in os.environ:\n        return\n"
    + "    args.rank = int(os.environ['RANK'])\n    args.distributed = True\n    dist.init_process_group('gloo')\n\n\n"
    + "def is_main_process():\n    return not dist.is_initialized() or dist.get_rank() == 0\n\n\n"
    + "args = argparse.ArgumentParser().parse_args()\nsetup(args)\ndistributed = args.distributed\n"
    + TRAINS
    + "if is_main_process():\n    print('trained')\n"
    + SAVED
)
OF_OBJECT = (
    IMPORTS
    + "\nclass Trainer:\n    def __init__(self):\n        self.rank = int(os.environ.get('RANK', 0))\n"
    + "        self.distributed = int(os.environ.get('WORLD_SIZE', 1)) > 1\n"
    + "        if self.distributed:\n            dist.init_process_group('gloo')\n\n    def fit(self):\n"
    + "        distributed = self.distributed\n"
    + indented(indented(TRAINS))
    + "        self.model = model\n\n    def close(self):\n        if self.distributed:\n"
    + "            dist.destroy_process_group()\n        torch.save(self.model.state_dict(), 'model.pt')\n\n\n"
    + "trainer = Trainer()\ntrainer.fit()\ntrainer.close()\n"
)
SAVES = "\ndef save(model):\n    torch.save(model.state_dict(), 'model.pt')\n\n\n"
TRIED = "try:\n    dist.init_process_group('gloo')\nexcept ValueError:\n    distributed = False\n"
EVALUATED = "if '--evaluate' in sys.argv:\n    dist.destroy_process_group()\n    sys.exit()\n"
UNSURE = JOINED + "    rank = dist.get_rank()\n"

GUARDS = {
    "the script's own flag, bound in both branches": (optional(BRANCHES, LEFT_IF + SAVED), "master_process"),
    "its number of the rank": (optional("rank = int(os.environ.get('RANK', 0))\n" + JOINED, SAVED), "rank == 0"),
    "a number that is -1 without a group": (
        optional(
            "args = argparse.Namespace(rank=-1)\nargs.rank = -1\n" + JOINED + "    args.rank = dist.get_rank()\n", SAVED
        ),
        "args.rank in (-1, 0)",
    ),
    "a number that is bound in one branch": (optional(UNSURE, SAVED), BY_VARIABLE),
    "a number on one node": (
        optional("local_rank = int(os.environ.get('LOCAL_RANK', 0))\n" + JOINED, SAVED),
        BY_VARIABLE,
    ),
    "no flag after the group is left": (always(LEFT + SAVED), BY_VARIABLE),
    "a flag after the group is left": (always(LEFT + SAVED, "is_master = dist.get_rank() == 0\n"), "is_master"),
    "left by a function, rank from another": (IN_MAIN, "rank == 0"),
    "left in finally": (IN_FINALLY, BY_VARIABLE),
    "a function that may return without joining": (RETURNED, "is_main_process()"),
    "joined if that works": (optional(TRIED, SAVED), BY_VARIABLE),
    "an attribute that __init__ binds": (OF_OBJECT, "self.rank == 0"),
    "saved by a function": (
        optional(SAVES + JOINED, LEFT_IF + "save(model)\n"),
        BY_VARIABLE,
    ),
    "left ahead of the end in a branch that ends": (always(SAVED + LEFT, EVALUATED), "dist.get_rank() == 0"),
    "left at exit": (
        always(SAVED, "import atexit\n\natexit.register(dist.destroy_process_group)\n"),
        "dist.get_rank() == 0",
    ),
}


@pytest.mark.parametrize(("before", "test"), GUARDS.values(), ids=GUARDS.keys())
def test_guards_ask_what_is_known_there(tmp_path: Path, before: str, test: str) -> None:
    """`dist.get_rank()` fails ahead of the group, after it, and in a run without one."""
    after, said = converted(tmp_path, before)
    lines = after.splitlines()
    saved = next(index for index, line in enumerate(lines) if "torch.save" in line)
    assert lines[saved - 1].strip() == f"if {test}:", after
    assert "a group of one" not in after and "joins no group here" not in said
    assert not converted(tmp_path, after)[1]


@pytest.mark.parametrize(
    "name", ["the script's own flag, bound in both branches", "saved by a function", "left in finally"]
)
def test_the_file_is_written_at_the_end(tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    (tmp_path / "after.py").write_text(converted(tmp_path, GUARDS[name][0].replace("import wandb\n", ""))[0])
    for nproc in (None, 2) if "init_process_group('gloo')\ntry" not in GUARDS[name][0] else (2,):
        (tmp_path / "model.pt").unlink(missing_ok=True)
        launched(tmp_path, "after.py", nproc, fresh=name == "left in finally")
        assert (tmp_path / "model.pt").exists()


BEFORE = {
    "logs": ("log = open('log.txt', 'w')\n", f"open('log.txt' if {BY_VARIABLE} else os.devnull, 'w')"),
    "runs": ("wandb.init(project='first')\n", f'mode=None if {BY_VARIABLE} else "disabled"'),
    "runs in a mode": ("wandb.init(mode='offline')\n", f"mode='offline' if {BY_VARIABLE} else \"disabled\""),
    "runs by a flag": ("is_main = int(os.environ.get('RANK', 0)) == 0\nwandb.init()\n", "None if is_main else"),
    "a flag that asks too early": (
        "is_main = not dist.is_initialized() or dist.get_rank() == 0\nlog = open('log.txt', 'w')\n",
        f"'log.txt' if {BY_VARIABLE} else",
    ),
}


@pytest.mark.parametrize(("begin", "emitted"), BEFORE.values(), ids=BEFORE.keys())
def test_what_is_opened_ahead_of_the_group(tmp_path: Path, begin: str, emitted: str) -> None:
    assert emitted in converted(tmp_path, always(LEFT, begin=begin))[0]


RANK = 'rank = int(os.environ.get("RANK", 0))\n'
FLAGS = [
    "main = rank == 0\n",
    "main = 0 == rank\n",
    "main = rank < 1\n",
    "main = rank in (-1, 0)\n",
    "main = rank == 0 if distributed else True\n",
]
NO_FLAGS = [
    "main = rank == 0 and '--save' in sys.argv\n",
    "main = rank == 0 if distributed else '--save' in sys.argv\n",
    "main = rank not in (-1, 0)\n",
    "main = 0 <= rank\n",
    "main = 1 < rank\n",
    "main = rank % 8 == 0\n",
]
"""True on more ranks than rank 0, or not on rank 0 each time."""


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_of_rank_0_are_asked(tmp_path: Path, flag: str) -> None:
    assert "\nif main:\n    torch.save(" in converted(tmp_path, optional(RANK + JOINED + flag, SAVED))[0]


@pytest.mark.parametrize("flag", NO_FLAGS)
def test_flags_of_more_than_rank_0_are_not(tmp_path: Path, flag: str) -> None:
    assert "\nif rank == 0:\n    torch.save(" in converted(tmp_path, optional(RANK + JOINED + flag, SAVED))[0]


STARTS = (
    IMPORTS
    + "\ndef setup():\n    dist.init_process_group('gloo')\n    return dist.get_rank() == 0\n\n\n"
    + "distributed = True\nprint(setup())\n"
    + TRAINS
    + LEFT
    + SAVED
)


def test_a_function_that_joins_the_group_is_not_called_to_ask(tmp_path: Path) -> None:
    after = converted(tmp_path, STARTS)[0]
    assert after.count("setup()") == 2 and BY_VARIABLE in after


def test_a_rank_that_no_variable_tells(tmp_path: Path) -> None:
    """A launcher of the script's own sets other variables: without its flag nothing is written, and it is said."""
    joins = "dist.init_process_group('gloo', rank=int(os.environ['SLURM_PROCID']), world_size=2)\n"
    script = IMPORTS + "distributed = True\n" + joins + TRAINS + LEFT + SAVED
    after, said = converted(tmp_path, script)
    assert after == script and "AD301 every rank would write this; no process group exists here" in said


def test_a_file_that_all_ranks_read_back(tmp_path: Path) -> None:
    """They wait for rank 0 where there is a group; after it, all of them write."""
    read = "state = torch.load('model.pt', map_location='cpu')\n"
    assert (
        "\n    dist.barrier()  # wait until rank 0 has written it\nstate"
        in converted(tmp_path, optional(JOINED, SAVED + read))[0]
    )
    assert (
        "\ndist.barrier()  # wait until rank 0 has written it\nstate"
        in converted(tmp_path, always(SAVED + read + LEFT))[0]
    )
    own = always(SAVED + "dist.barrier()\n" + read + LEFT)
    assert converted(tmp_path, own)[0].count("barrier") == 1
    after, said = converted(tmp_path, always(LEFT + SAVED + read))
    assert "\ntorch.save" in after and "they cannot wait for rank 0" in said


def test_a_sharded_model_needs_a_group_in_each_run(tmp_path: Path) -> None:
    after, _ = converted(tmp_path, optional(BRANCHES, SAVED), Strategy.FSDP)
    assert "if not dist.is_initialized():  # a group of one" in after


def test_shards_cannot_be_gathered_without_a_group(tmp_path: Path) -> None:
    wrapped = always(LEFT + SAVED).replace("net = DDP(model) if distributed else model", "net = DDP(model)")
    assert "AD907 needs the shards of all ranks" in converted(tmp_path, wrapped, Strategy.FSDP)[1]
    assert "AD907" not in converted(tmp_path, wrapped.replace(LEFT + SAVED, SAVED + LEFT), Strategy.FSDP)[1]
