"""Accumulated gradients are reduced over the ranks once a step: DistributedDataParallel is told which micro-step is the
last one before it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from conftest import converted, differences, launched

from autodist.config import Strategy
from autodist.verify.launch import Zygote

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clip = nn.utils.clip_grad_norm_
"""
LAST = "model.require_backward_grad_sync = "
EACH = """
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        loss = F.cross_entropy(model(x), y) / 4
        loss.backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    print(epoch, loss.item())
"""


def told(folder: Path, text: str, strategy: Strategy = Strategy.DDP) -> list[str]:
    """The lines that tell a model, each with the one below it."""
    lines = converted(folder, HEAD + text, strategy)[0].splitlines()
    return [f"{one.strip()} | {below.strip()}" for one, below in pairwise(lines) if LAST in one]


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("", "", "(i + 1) % 4 == 0 | loss = F.cross_entropy(model(x), y) / 4"),
        (
            "(i + 1) % 4 == 0",
            "(i + 1) % 4 == 0 or i + 1 == len(loader)",
            "(i + 1) % 4 == 0 or i + 1 == len(loader) | loss = F.cross_entropy(model(x), y) / 4",
        ),
        ("        loss = F", "        out = model(x)\n        loss = F", "(i + 1) % 4 == 0 | out = model(x)"),
        (
            "        loss = F.cross_entropy(model(x), y) / 4\n",
            "        with torch.autocast('cpu', enabled=False):\n            loss = F.cross_entropy(model(x), y) / 4\n",
            "(i + 1) % 4 == 0 | with torch.autocast('cpu', enabled=False):",
        ),
        (
            "            optimizer.step()",
            "            clip(model.parameters(), 1.0)\n            optimizer.step()",
            "(i + 1) % 4 == 0 | loss = F.cross_entropy(model(x), y) / 4",
        ),
        (
            "    for i, (x",
            "    optimizer.zero_grad()\n    for i, (x",
            "(i + 1) % 4 == 0 | loss = F.cross_entropy(model(x), y) / 4",
        ),
    ],
)
def test_the_last_micro_step_is_told_ahead_of_its_forward_pass(
    tmp_path: Path, zygote: Zygote | None, old: str, new: str, wanted: str
) -> None:
    text = EACH.replace(old, new, 1) if old else EACH
    assert told(tmp_path, text) == [LAST + wanted]
    assert differences(tmp_path, zygote, HEAD + text) is None


MICRO = """
batches = iter(loader)
for step in range(2):
    optimizer.zero_grad()
    for micro in range(4):
        x, y = next(batches)
        loss = F.cross_entropy(model(x), y) / 4
        loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_a_loop_over_micro_steps(tmp_path: Path, zygote: Zygote | None) -> None:
    assert told(tmp_path, MICRO) == [f"{LAST}micro == 3 | loss = F.cross_entropy(model(x), y) / 4"]
    assert differences(tmp_path, zygote, HEAD + MICRO) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        loss.backward()\n", "        loss.backward()\n        clip(model.parameters(), 1.0)\n"),
        ("        if (i", "        print(model[0].weight.grad.norm().item())\n        if (i"),
        ("        loss.backward()\n", "        loss.backward(retain_graph=True)\n        loss.backward()\n"),
        ("        if (i + 1) % 4 == 0:\n", "        if True:\n"),
        ("        loss.backward()", "        i = 2 * i\n        loss.backward()"),
        ("model(x)", "torch.compile(model)(x)"),
        ("    print(", "    optimizer.step()\n    optimizer.zero_grad()\n    print("),
        ("    print(", "    optimizer.step()\n    print("),
        ("        loss.backward()\n", "        if loss > 0:\n            loss.backward()\n"),
    ],
    ids=[
        "clipped each time",
        "gradients are read",
        "two passes",
        "each time",
        "counted anew",
        "compiled",
        "what is left is stepped by at the end",
        "what is left is stepped by and kept",
        "the last pass may be left out",
    ],
)
def test_elsewhere_each_pass_reduces(tmp_path: Path, old: str, new: str) -> None:
    assert told(tmp_path, EACH.replace(old, new, 1)) == []


def test_gradients_are_reduced_once_a_step(tmp_path: Path) -> None:
    text, _ = converted(tmp_path, HEAD + EACH + "print('reductions', reductions)\n")
    hook = """
reductions = 0
def count(state, bucket):
    global reductions
    reductions += 1
    return dist.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook(None, bucket)
import torch.distributed.algorithms.ddp_comm_hooks.default_hooks
model.register_comm_hook(None, count)
for epoch in range(2):
"""
    (tmp_path / "train.py").write_text(text.replace("\nfor epoch in range(2):\n", hook, 1))
    assert "reductions 4\n" in launched(tmp_path, "train.py", 2)


def test_a_sharded_model_has_its_own_way(tmp_path: Path) -> None:
    assert told(tmp_path, EACH, Strategy.FSDP) == []
