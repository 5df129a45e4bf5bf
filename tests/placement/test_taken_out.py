"""Lists with one for each of a rank's samples, of which some are taken out, or which have an order of their own."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest
from test_programs import HEAD, lies

from autodist.placement import Each, Partial, PerRank, Placement, Shard
from autodist.placement.along import BY_PLACE
from autodist.placement.by_number import PAIRED
from autodist.placement.reading import MORE, REST
from autodist.placement.transfer import ORDERED
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = 2.0 * model(x)
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""
PLAIN = "F.cross_entropy(out, y)"
LISTS = ["[row.sum() for row in out]", "[*out.sum(1)]"]
MEAN = Partial("mean", "rows")


def reason(placement: Placement | None) -> str:
    return placement.reason if isinstance(placement, PerRank) else ""


@pytest.mark.parametrize("listed", LISTS)
@pytest.mark.parametrize("taken", ["rows.pop()", "rows.pop(0)", "del rows[0]", "del rows[-2:]", "rows.remove(rows[1])"])
@pytest.mark.parametrize("result", ["torch.stack(rows).mean()", "sum(rows)", "len(rows)", "torch.stack(rows)"])
def test_what_is_left_in_a_list(listed: str, taken: str, result: str) -> None:
    assert reason(lies(f"{HEAD}    rows = {listed}\n    {taken}\n    result = {result}")) == REST


@pytest.mark.parametrize("taken", ["rows.pop()", "rows.pop(0)", "del rows[0]", "rows.remove(rows[1])"])
@pytest.mark.parametrize(("over", "expected"), [("out", BY_PLACE), ("out.unbind(1)", "")])
def test_what_is_left_of_the_rows_of_a_tensor(taken: str, over: str, expected: str) -> None:
    text = f"{HEAD}    rows = list({over})\n    {taken}\n    result = torch.stack(rows)"
    assert reason(lies(text)) == expected


@pytest.mark.parametrize("moved", ["rows.sort()", "rows.reverse()", "rows = sorted(rows)"])
@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ("torch.stack(rows).mean()", MEAN),
        ("sum(rows)", Partial("sum")),
        ("max(rows)", Partial("max")),
        ("len(rows)", Partial("sum", "rows")),
        ("torch.stack(rows)", Shard(0, order="any")),
        ("torch.stack(rows) - y", ORDERED),
    ],
)
def test_an_order_of_its_own(moved: str, result: str, expected: Placement | str) -> None:
    placement = lies(f"{HEAD}    rows = [row.sum() for row in out]\n    {moved}\n    result = {result}")
    if isinstance(expected, Shard):
        assert isinstance(placement, Shard) and placement.order
    else:
        assert (reason(placement) or placement) == expected


@pytest.mark.parametrize("parts", ["list(row)", "[v for v in row]", "[row[0], row[1], row[2]]"])
@pytest.mark.parametrize("result", ["torch.stack(parts).sum()", "sum(parts)"])
def test_parts_of_one_sample(parts: str, result: str) -> None:
    lines = f"    for row in out:\n        parts = {parts}\n        parts.pop()\n        result = {result}"
    placement = lies(HEAD + lines)
    assert isinstance(placement, Each) or placement == Partial("sum")


WHILE = "rows = {}\nloss = 0\nwhile rows:\n    {}\nloss = loss / len(x)"
ROWS = ["list(out)", "[row for row in out]"]


def script(step: str) -> str:
    return SCRIPT.replace("{step}", step.replace("\n", "\n        "))


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("second", "expected"), [("rows.pop()", PAIRED), ("others.pop()", "")])
def test_two_that_are_taken_out_in_one_round_meet(rows: str, second: str, expected: str) -> None:
    lines = f"    rows, others = {rows}, {rows.replace('out', 'x')}\n    while rows:\n"
    lines += f"        a = rows.pop()\n        b = {second}\n        result = a.sum() * b.sum()"
    assert reason(lies(HEAD + lines)) == expected


@pytest.mark.parametrize(
    "step",
    [
        f"rows = [row.sum() for row in out]\nrows.pop()\nloss = {PLAIN} + torch.stack(rows).mean()",
        f"rows = [row.sum() for row in out]\nwhile len(rows) > 4:\n    rows.pop()\nloss = {PLAIN} + sum(rows)",
        f"rows = [row.sum() for row in out][1:]\nloss = {PLAIN} + torch.stack(rows).mean()",
        f"rows = list(out)\nrows.pop()\nloss = {PLAIN} + torch.stack(rows).mean()",
    ],
)
def test_losses_of_what_is_left_are_told(tmp_path: Path, step: str) -> None:
    said = conftest.converted(tmp_path, script(step))[1]
    left = "AD602" in said and ("some of its own" in said or "by their places" in said)
    assert left or "AD606 the loss is computed from the out of all ranks" in said


@pytest.mark.parametrize(
    "step",
    [
        *(WHILE.format(rows, "a = rows.pop()\n    loss = loss + (a - a.mean()).abs().sum()") for rows in ROWS),
        "rows = [row for row in out]\nloss = 0\nwhile True:\n    try:\n        row = rows.pop()\n"
        "    except IndexError:\n        break\n    loss = loss + row.pow(2).sum()\nloss = loss / len(x)",
        "rows = [row for row in out]\nloss = 0\nfor _ in range(len(rows)):\n    loss = loss + rows.pop().pow(2).sum()\n"
        "loss = loss / len(x)",
        "rows = sorted([row.sum() for row in out])\nloss = sum(rows) / len(rows)",
        "loss = 0\nfor row in out:\n    parts = list(row)\n    parts.pop()\n    loss += torch.stack(parts).sum()\n"
        "loss = loss / len(x)",
    ],
)
def test_all_that_are_taken_out_one_by_one(tmp_path: Path, zygote: Zygote | None, step: str) -> None:
    before = script(step)
    assert "AD602" not in conftest.converted(tmp_path, before)[1]
    assert conftest.differences(tmp_path, zygote, before) is None


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("rows = [net.weight.sum()]\nfor row in out:\n    rows.append(row.sum())", MORE),
        ("rows = [row.sum() for row in out]\nrows.append(net.weight.sum())", MORE),
        ("rows = [row.sum() for row in out] + [net.weight.sum()]", MORE),
        ("rows = [net.weight.sum()] + [row.sum() for row in out]", MORE),
        ("rows = [net.weight.sum()]\nrows += [row.sum() for row in out]", MORE),
        ("rows = [row.sum() for row in out] + [row.mean() for row in out]", ""),
        ("rows = []\nrows += [row.sum() for row in out]", ""),
        ("rows = [row.sum() for row in out]\nrows.insert(0, rows[0])", MORE),
        ("rows = [0.0]\nfor row in out:\n    rows.append(row.sum())", ""),
        ("rows = []\nfor row in out:\n    rows.append(row.sum())", ""),
        ("rows = []\nfor i in range(len(out)):\n    rows.append(out[i].sum())", ""),
        ("rows = [out.sum(), net.weight.sum()]\nrows.append(out.mean())", ""),
    ],
)
def test_lists_that_hold_something_beside_one_for_each_sample(lines: str, expected: str) -> None:
    text = HEAD + indent(lines + "\nresult = sum(rows)", "    ")
    assert (reason(lies(text)) == MORE) is bool(expected)


@pytest.mark.parametrize(("of", "told"), [("torch.stack(rows).mean()", True), ("sum(rows) / len(x)", False)])
def test_a_zero_that_a_list_begins_with_is_one_more_where_they_are_counted(of: str, told: bool) -> None:
    text = f"rows = [torch.zeros(())]\nfor row in out:\n    rows.append(row.sum())\nresult = {of}"
    assert (reason(lies(HEAD + indent(text, "    "))) == MORE) is told
