"""Models that a script may do without: made under a condition, None otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.config import Strategy
from autodist.verify.launch import Zygote

BEGIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
refined = {refined}
x = torch.randn(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = nn.Linear(4, 1)
parameters = list(model.parameters())
"""
END = """\
if {there}:
    parameters += list({fine}.parameters())
optimizer = torch.optim.SGD(parameters, lr=0.1)
for epoch in range(2):
    for a, b in loader:
        loss = nn.functional.mse_loss(model(a), b)
        if {there}:
            loss = loss + nn.functional.mse_loss({fine}(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
OBJECT = """\
class Task:
    def __init__(self, refined):
        self.fine = None
        if refined:
            self.fine = nn.Linear(4, 1)


task = Task(refined)
"""
FUNCTION = """\
def build(refined):
    if not refined:
        return None
    return nn.Linear(4, 1)


fine = build(refined)
"""
NORM = "nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))"
MADE = "    fine = DDP(nn.Linear(4, 1))\n"
ASKED = "if fine is not None:\n    fine = DDP(fine)\n"

SCRIPTS = {
    "None before": ("fine = None\nif refined:\n    fine = nn.Linear(4, 1)\n", "fine", MADE),
    "None otherwise": ("if refined:\n    fine = nn.Linear(4, 1)\nelse:\n    fine = None\n", "fine", MADE),
    "moved there": (
        "fine = None\nif refined:\n    fine = nn.Linear(4, 1)\n    fine.to('cpu')\n",
        "fine",
        "    fine.to('cpu')\n    fine = DDP(fine)\n",
    ),
    "moved where it is there": (
        "fine = None\nif refined:\n    fine = nn.Linear(4, 1)\nif fine is not None:\n    fine = fine.to('cpu')\n",
        "fine",
        "if fine is not None:\n    fine = DDP(fine.to('cpu'))\n",
    ),
    "of several kinds": (
        "fine = None\nif refined == 1:\n    fine = nn.Linear(4, 1)\n"
        "elif refined == 2:\n    fine = nn.Linear(4, 1, False)\n",
        "fine",
        MADE + "elif refined == 2:\n    fine = DDP(nn.Linear(4, 1, False))\n",
    ),
    "of an expression": (
        "fine = nn.Linear(4, 1) if refined else None\n",
        "fine",
        "fine = DDP(nn.Linear(4, 1)) if refined else None\n",
    ),
    "None first": (
        "fine = None if not refined else nn.Linear(4, 1)\n",
        "fine",
        "fine = None if not refined else DDP(nn.Linear(4, 1))\n",
    ),
    "normalised": (f"fine = {NORM} if refined else None\n", "fine", "if fine is not None:\n    if next("),
    "of a function": (FUNCTION, "fine", ASKED),
    "of a function that gives several": (
        "def build(refined):\n    head = None\n    if refined:\n        head = nn.Linear(4, 1)\n"
        "    return 3, head\n\n\n"
        "size, fine = build(refined)\n",
        "fine",
        ASKED,
    ),
    "of a pair": ("size, fine = 3, nn.Linear(4, 1) if refined else None\n", "fine", ASKED),
    "an attribute of a pair": (
        FUNCTION.replace("fine = build(refined)", "class Task:\n    pass\n\n\ntask = Task()\n")
        + "task.size, task.fine = 3, build(refined)\n",
        "task.fine",
        "if task.fine is not None:\n    task.fine = DDP(task.fine)\n",
    ),
    "of a function, in a condition": (
        FUNCTION.replace(
            "fine = build(refined)",
            "if torch.get_num_threads():\n    fine = build(refined)\nelse:\n    fine = build(0)",
        ),
        "fine",
        "fine is not None:\n",
    ),
    "an attribute": (OBJECT, "task.fine", "            self.fine = DDP(nn.Linear(4, 1))\n"),
    "under a key": (
        "nets = {'coarse': model, 'fine': None}\nif refined:\n    nets['fine'] = nn.Linear(4, 1)\n",
        "nets['fine']",
        "    nets['fine'] = DDP(nn.Linear(4, 1))\n",
    ),
}


@pytest.mark.parametrize(("made", "fine", "wrapped"), SCRIPTS.values(), ids=SCRIPTS.keys())
def test_it_is_wrapped_where_it_is_made(tmp_path: Path, made: str, fine: str, wrapped: str) -> None:
    """`DDP(None)` would stop the script; FSDP, too, has nothing to shard there."""
    script = BEGIN.format(refined=1) + made + END.format(there=f"{fine} is not None", fine=fine)
    after, said = converted(tmp_path, script)
    assert wrapped in after and after.count("DDP(") == 2 + ("elif" in made)
    assert "AD9" not in said
    sharded, _ = converted(tmp_path, script, Strategy.FSDP)
    lines = [line for line in sharded.splitlines() if "fully_shard(" in line][1:]
    assert lines and all(line.startswith("    ") for line in lines)


ALWAYS = {
    "replaced": ("fine = nn.Linear(4, 1)\nif refined:\n    fine = nn.Linear(4, 1, False)\n", "\nfine = DDP(fine)\n"),
    "of kinds": (
        "if refined == 1:\n    fine = nn.Linear(4, 1)\nelif refined == 2:\n    fine = nn.Linear(4, 1, False)\n",
        "\nfine = DDP(fine)\n",
    ),
    "or an error": (
        "if refined:\n    fine = nn.Linear(4, 1)\nelse:\n    raise ValueError\n",
        "\nfine = DDP(fine)\n",
    ),
    "moved under a condition": (
        "fine = nn.Linear(4, 1)\nif torch.cuda.is_available():\n    fine = fine.cuda()\n",
        "\nfine = DDP(fine)\n",
    ),
}


@pytest.mark.parametrize(("made", "wrapped"), ALWAYS.values(), ids=ALWAYS.keys())
def test_a_model_that_there_is_in_any_case(tmp_path: Path, made: str, wrapped: str) -> None:
    after, _ = converted(tmp_path, BEGIN.format(refined=1) + made + END.format(there="refined", fine="fine"))
    assert wrapped in after


def test_where_nothing_binds_the_name_otherwise(tmp_path: Path) -> None:
    made = "if refined:\n    fine = nn.Linear(4, 1)\n"
    after, _ = converted(tmp_path, BEGIN.format(refined=1) + made + END.format(there="refined", fine="fine"))
    assert MADE in after


@pytest.mark.parametrize("refined", [0, 1])
@pytest.mark.parametrize("name", ["None before", "of a function", "of a function that gives several", "an attribute"])
def test_training_is_the_same_with_it_and_without(
    tmp_path: Path, zygote: Zygote | None, name: str, refined: int
) -> None:
    made, fine, _ = SCRIPTS[name]
    script = BEGIN.format(refined=refined) + made + END.format(there=f"{fine} is not None", fine=fine)
    assert differences(tmp_path, zygote, script) is None
