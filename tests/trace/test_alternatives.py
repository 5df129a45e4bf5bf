"""What one branch of a test made is not met in the other branch of the same test elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist import catalog
from autodist.interpreter import Interpreter, Plan
from autodist.project import Project
from autodist.values import Object

SCRIPT = """
import argparse
import torch

class A(torch.nn.Module):
    pass

class B(torch.nn.Module):
    pass

parser = argparse.ArgumentParser()
parser.add_argument("--net")
args = parser.parse_args()

def build():
    if args.net == "a":
        return A()
    return B() if args.net != "a" else A()

model = build()
{later}

def use():
    if {test}:
        here = model
    return 0

use()
"""


def seen(folder: Path, test: str, later: str = "") -> set[str]:
    """The classes of `model` where ``test`` holds."""
    entry = folder / "train.py"
    entry.write_text(SCRIPT.format(test=test, later=later))
    run = Interpreter(Project.load(entry), catalog.load({}), Plan()).run()
    stored = [node for node in run.values if getattr(node, "id", "") == "here"]
    return {thing.name for node in stored for thing in run.values[node].things if isinstance(thing, Object)}


@pytest.mark.parametrize(
    ("test", "expected"),
    [
        ("args.net == 'a'", {"A"}),
        ("args.net != 'a'", {"B"}),
        ("not args.net == 'a'", {"B"}),
        ("args.net == 'a' and print()", {"A"}),
        ("args.net == 'a' or print()", {"A", "B"}),
        ("args.net == 'b'", {"A", "B"}),
        ("args.other == 'a'", {"A", "B"}),
    ],
)
def test_the_same_option_is_the_same_choice(tmp_path: Path, test: str, expected: set[str]) -> None:
    assert seen(tmp_path, test) == expected


@pytest.mark.parametrize(
    "later", ["args.net = 'b'", "setattr(args, 'net', 'b')", "vars(args).update(net='b')", "args.__dict__['net'] = 'b'"]
)
def test_an_option_that_is_set_is_no_choice(tmp_path: Path, later: str) -> None:
    assert seen(tmp_path, "args.net == 'a'", later) == {"A", "B"}


RETURNED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load(split, whole):
    loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
    if split.lower() == "test" or not whole:
        return loader
    words = {"a": 0}
    return loader, words


loader, words = load("Train", 1 > 0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, (x, y) in enumerate(loader):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{i}/{len(loader)}")
torch.save({"words": words, "model": model.state_dict()}, "model.pt")
"""


def test_a_function_that_returns_a_loader_or_a_pair(tmp_path: Path) -> None:
    """What is unpacked is the pair, not the first batches of the loader."""
    code, _ = converted(tmp_path, RETURNED)
    assert '{"words": words, ' in code and "{len(loader)}" in code
