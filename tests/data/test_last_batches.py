"""The last batch of an epoch that a script cuts itself: it may be smaller, and need not divide by the ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

BEGIN = """\
import numpy as np
import torch
from torch import nn

torch.manual_seed(1)
size = 16
x = torch.randn({rows}, 4)
y = x.sum(1, keepdim=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    order = torch.randperm(len(x))
    total, seen = 0.0, 0
"""
STEP = """\
        loss = nn.functional.mse_loss(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
SHOWN = "    print(epoch, loss.item())\n"
SLICES = "    for i in range(0, len(x), 16):\n        a, b = x[i : i + 16], y[i : i + 16]\n"
ORDER = "    for i in range(0, len(x), size):\n        rows = order[i : i + size]\n"
TAKEN = "        a, b = x[rows], y[rows]\n"

CUT = {
    "slices": (SLICES, "local_rows(x[i : i + 16], 16)"),
    "an order": (ORDER + TAKEN, "local_rows(order[i : i + size], size)"),
    "an order of numpy": ((ORDER + TAKEN).replace("order[", "order.numpy()["), "size)"),
    "numbered": (
        "    for k in range(-(-len(x) // 16)):\n        a, b = x[k * 16 : (k + 1) * 16], y[k * 16 : (k + 1) * 16]\n",
        "local_rows(x[k * 16 : (k + 1) * 16], 16)",
    ),
    "up to the end": (SLICES.replace("i + 16", "min(i + 16, len(x))"), "local_rows(x[i : min(i + 16, len(x))], 16)"),
    "split": ("    for rows in order.split(16):\n" + TAKEN, "(local_rows(rows, 16) for rows in order.split(16))"),
}


@pytest.mark.parametrize(("cut", "shared"), CUT.values(), ids=CUT.keys())
def test_means_are_those_of_one_that_all_ranks_have(tmp_path: Path, cut: str, shared: str) -> None:
    after, said = converted(tmp_path, BEGIN.format(rows=65) + cut + STEP + SHOWN)
    assert shared in after and "        return batch\n" in after
    assert "AD9" not in said


@pytest.mark.parametrize("rows", [64, 65, 70])
@pytest.mark.parametrize("name", ["slices", "split"])
def test_training_is_the_same(tmp_path: Path, zygote: Zygote | None, name: str, rows: int) -> None:
    """One row for two ranks, and some that divide."""
    assert differences(tmp_path, zygote, BEGIN.format(rows=rows) + CUT[name][0] + STEP + SHOWN) is None


LEFT_OUT = {
    "slices": SLICES + "        if len(a) < 16:\n            continue\n",
    "an order": ORDER + "        if len(rows) != size:\n            break\n" + TAKEN,
    "their shape": SLICES + "        if a.shape[0] < 16:\n            break\n",
}


@pytest.mark.parametrize("rows", [65, 79])
@pytest.mark.parametrize("cut", LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_one_that_is_left_out(tmp_path: Path, zygote: Zygote | None, cut: str, rows: int) -> None:
    """All ranks leave it out, where one has a row more than another, too."""
    script = BEGIN.format(rows=rows) + cut + STEP + "        total += loss.item() * len(a)\n        seen += len(a)\n"
    script += "    print(epoch, total / seen)\n"
    assert ": even : " in converted(tmp_path, script)[0]
    assert differences(tmp_path, zygote, script) is None


COUNTING = {
    "a sum": SLICES + STEP + "        total += loss.item() * len(a)\n        seen += len(a)\n    print(total / seen)\n",
    "a loss": SLICES + STEP.replace("b)\n", "b, reduction='sum')\n", 1) + SHOWN,
}


@pytest.mark.parametrize("script", COUNTING.values(), ids=COUNTING.keys())
def test_sums_say_at_once_what_has_to_divide(tmp_path: Path, script: str) -> None:
    """Ahead of the first epoch, not at its end."""
    after, _ = converted(tmp_path, BEGIN.format(rows=65) + script)
    told = '"the last batch must divide by the number of ranks, too"'
    check = f"    assert len(x) % 16 % dist.get_world_size() == 0, {told}\n"
    assert check + "    for i in range(0, len(x), 16):" in after


COUNTED = "        loss.backward()\n        optimizer.step()\n        total += loss.item() * len(a)\n"
COUNTED += "    print(total / len(x))\n"
ORDERED = {
    "an order": ("for i in range(0, len(x), size):", "order[i : i + size]", True),
    "numbered": ("for step, i in enumerate(range(0, len(x), size)):", "order[i : i + size]", True),
    "numbered from one": ("for step, i in enumerate(range(0, len(x), size), 1):", "order[i : i + size]", True),
    "rows themselves": ("for step, i in enumerate(range(0, len(x), size)):", "torch.arange(65)[i : i + size]", False),
    "another order": ("for i in range(0, len(x), size):", "torch.cat([order, order])[i : i + size]", False),
    "counted apart": ("for i in range(0, 65, size):", "order[i : i + size]", False),
}


@pytest.mark.parametrize(("loop", "rows", "known"), ORDERED.values(), ids=ORDERED.keys())
def test_orders_say_at_once_what_has_to_divide(tmp_path: Path, loop: str, rows: str, known: bool) -> None:
    script = (
        BEGIN.format(rows=65)
        + f"    {loop}\n        rows = {rows}\n{TAKEN}"
        + STEP.replace("        loss.backward()\n        optimizer.step()\n", COUNTED)
    )
    check = "assert len(x) % size % dist.get_world_size() == 0"
    assert (f"    {check}, " in converted(tmp_path, script)[0]) is known


def test_batches_that_always_divide(tmp_path: Path) -> None:
    script = BEGIN.format(rows=64) + SLICES.replace("len(x)", "64") + STEP + SHOWN
    assert "local_rows(x[i : i + 16])" in converted(tmp_path, script)[0]


ADDED = "        total += loss.item() * len(a)\n    print(epoch, total / len(x))\n"


@pytest.mark.parametrize(
    ("rows", "cut", "told"),
    [
        (65, SLICES, True),
        (77, ORDER + TAKEN, True),
        (77, (ORDER + TAKEN).replace("len(x)", "x.shape[0]"), True),
        (70, SLICES, False),  # six are three for each of two ranks
        (64, ORDER + TAKEN, False),
    ],
)
def test_sums_over_an_odd_one_are_told(tmp_path: Path, rows: int, cut: str, told: bool) -> None:
    """No two ranks can share it, and what comes of it is added up: what is written would end on two ranks."""
    _, said = converted(tmp_path, BEGIN.format(rows=rows) + cut + STEP + ADDED)
    assert (f"the last of these batches has {rows % 16} samples" in said) == told


@pytest.mark.parametrize("order", ["order.split(16)", "torch.split(order, 16)"])
def test_an_order_does_not_decide_how_many_there_are(tmp_path: Path, order: str) -> None:
    """It is as long as any other: nothing asks for ranks that draw alike in all else."""
    text = BEGIN.format(rows=64) + f"    for rows in {order}:\n" + TAKEN + STEP + "    print(epoch, loss.item())\n"
    _, said = converted(tmp_path, text)
    assert "AD702" not in said
