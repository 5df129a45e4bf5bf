"""What a loop over samples has kept of an earlier round is of another sample: another one in a rank's share than in the
whole batch."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest
from test_programs import HEAD
from test_programs import lies as placed

from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.decided import DECIDED_BEFORE
from autodist.placement.loops import CARRIED, LAST
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Smooth:
    def __init__(self):
        self.last = torch.zeros(3)

    def step(self, row):
        change = (row - self.last).pow(2).mean()
        self.last = row
        return change


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 6), torch.randn(64, 3)), batch_size=8, shuffle=True)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        loss, last, w, first, n = torch.zeros(()), torch.zeros(3), 1.0, True, 0
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"{loss.item():.6f}")
"""
ROWS = "for row, t in zip(out, y):\n    "
LEFT = "rows = {}\n{}\n    "


def script(step: str) -> str:
    return SCRIPT.replace("{step}", step.replace("; ", "\n    ").replace("\n", "\n        "))


def lies(lines: str) -> Placement | None:
    """How `result` lies, of a few lines of a step."""
    return placed(HEAD + lines)


def reason(lines: str) -> str:
    """Why `result` is each rank's own."""
    placement = lies("    last = torch.zeros(3)\n    for row in out:\n" + lines)
    return placement.reason if isinstance(placement, PerRank) else ""


def exact_or_told(folder: Path, zygote: Zygote | None, before: str) -> str:
    """Which of both a conversion is: proven equal, with rows of all ranks, or told of."""
    code, said = conftest.converted(folder, before)
    if "AD602" in said:
        assert "results differ from those of one process" in said and "RowsOfAllRanks" not in code
        return "told"
    assert "RowsOfAllRanks.apply(" in code, said
    assert conftest.differences(folder, zygote, before) is None
    return "exact"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("        result = row - last\n        last = row", CARRIED),
        ("        last = torch.tanh(last) + row\n        result = last", CARRIED),
        ("        result = last = row", ""),
        ("        last = row\n    result = 2 * last", LAST),
        ("        result = row.numel() * 2", ""),
    ],
)
def test_why_a_result_is_of_another_sample(lines: str, expected: str) -> None:
    assert reason(lines) == expected


def test_what_earlier_rounds_decide_over() -> None:
    lines = "        if first:\n            result = 2 * row\n        first = False"
    assert lies("    first = True\n    for row in out:\n" + lines) == PerRank("operator.mul", DECIDED_BEFORE)


ENDING = "        if row[0] < 0:\n            {}\n"
ADDING = "        result = result + row.sum()\n"


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        (ENDING.format("break") + ADDING, DECIDED_BEFORE),
        (ADDING + ENDING.format("break"), DECIDED_BEFORE),
        (ADDING + "        break", DECIDED_BEFORE),
        (ADDING + ENDING.format("continue"), ""),
        (ADDING.replace("row.sum()", "2") + ENDING.format("break"), DECIDED_BEFORE),
        ("        for v in row:\n            if v < 0:\n                break\n" + ADDING, ""),
        ("        if False:\n            break\n" + ADDING, ""),
    ],
)
def test_rounds_that_one_of_them_may_end(rounds: str, expected: str) -> None:
    """Where one process stops at the first sample of a batch, a rank stops at the first of its own."""
    placement = lies("    result = 0\n    for row in out:\n" + rounds)
    assert getattr(placement, "reason", "") == expected


def test_a_return_ends_the_loops_of_its_function() -> None:
    rounds = "result = 0\nfor row in out:\n    if row[0] < 0:\n        return result\n    result = result + row.sum()\n"
    function = "def added(out):\n" + indent(rounds + "return result\n", "    ")
    placement = lies(indent(function + "result = added(out)", "    "))
    assert isinstance(placement, PerRank) and placement.reason == DECIDED_BEFORE


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("    total = 0\n    for row in out:\n        total = total + row\n    result = total", Partial("sum")),
        ("    h = 1.0\n    for _ in range(9):\n        h = 0.5 * h\n        result = h", Replicate()),
        ("    h = out[:, 0]\n    for t in range(3):\n        result = h - out[:, t]\n        h = result", Shard(0)),
    ],
)
def test_what_rounds_may_keep(lines: str, expected: Placement) -> None:
    """Sums over all samples, and what goes from one time step to the next."""
    assert lies(lines) == expected


def test_what_goes_from_one_part_of_a_sample_to_the_next() -> None:
    lines = "    for row in out:\n        h = 0\n        for v in row:\n            h = torch.tanh(h + v)\n"
    assert isinstance(lies(lines + "        result = h"), Each)
    assert isinstance(lies(lines.replace("torch.tanh(h + v)", "h + v") + "        result = h * h"), Each)


@pytest.mark.parametrize(
    "step",
    [
        ROWS + "loss = loss + (row - last).pow(2).sum(); last = row",
        "last = None\n"
        + ROWS
        + "if last is not None:\n        loss = loss + (row - last).pow(2).sum()\n    last = row",
        "seen = [last]\n" + ROWS + "loss = loss + (row - seen[-1]).pow(2).sum(); seen.append(row)",
        "seen = {'last': last}\n" + ROWS + "loss = loss + (row - seen['last']).pow(2).sum(); seen['last'] = row",
        "smooth = Smooth()\n" + ROWS + "loss = loss + smooth.step(row)",
        "older = last\n" + ROWS + "loss = loss + (row - older).pow(2).sum(); older, last = last, row",
        "now = last\n" + ROWS + "last, now = now, row; loss = loss + (now - last).pow(2).sum()",
        ROWS + "loss = loss + (row * last).sum(); last = t",
        "rows = []\n" + ROWS + "rows.append((row - last).pow(2)); last = row\nloss = torch.stack(rows).mean()",
        ROWS + "for _ in range(2):\n        w *= 0.9\n    loss = loss + w * row.pow(2).mean()",
        ROWS + "loss = loss + w * row.pow(2).mean(); w = 2.0",
        ROWS + "loss = loss + (1.0 if first else 2.0) * row.pow(2).mean(); first = False",
        ROWS + "part = row.pow(2).mean()\n    if not first:\n        loss = loss + part\n    first = False",
        ROWS + "if n == 0:\n        loss = row.mean()\n    else:\n        loss = loss + 2 * row.mean()\n    n += 1",
        ROWS + "last = 2 * row\nloss = last.pow(2).mean()",
        "rows = [((row - last).pow(2).mean(), last := row)[0] for row in out]\nloss = torch.stack(rows).mean()",
        "rows = [last := torch.tanh(last + row) for row in out]\nloss = torch.stack(rows).mean()",
        "loss = sum((w := 0.9 * w) * row.pow(2).mean() for row in out)",
        "rows = {i: ((row - last).pow(2).sum(), last := row)[0] for i, row in enumerate(out)}\n"
        "loss = sum(rows.values())",
        "rows, seen = [], [last]\nrows = [((row - seen[-1]).pow(2).sum(), seen.append(row))[0] for row in out]\n"
        "loss = torch.stack(rows).mean()",
        "rows = [(last := 2 * row) for row in out]\nloss = last.pow(2).mean() + torch.stack(rows).mean()",
        "rows = [2 * row for row in out]\nloss = rows[-1].pow(2).mean()",
        "loss = list(out).pop().pow(2).mean()",
        LEFT.format("list(out)", "while rows:")
        + "row = rows.pop(); loss = loss + (row - last).pow(2).sum(); last = row",
        LEFT.format("[2 * row for row in out]", "while len(rows) > 0:")
        + "row = rows.pop(0); loss = loss + (row - last).pow(2).sum(); last = row",
        LEFT.format("[2 * row for row in out]", "while True:")
        + "row = rows.pop(0); loss = loss + (row - last).pow(2).sum(); last = row\n    if not rows:\n        break",
        LEFT.format("list(out)", "while rows:") + "loss = loss + w * rows.pop().pow(2).mean(); w *= 0.9",
    ],
)
def test_losses_of_samples_that_meet_those_before_them(tmp_path: Path, zygote: Zygote | None, step: str) -> None:
    """They were silent. They are told of, unless the rows of all ranks make them exact."""
    exact_or_told(tmp_path, zygote, script(step))


@pytest.mark.parametrize(
    "step",
    [
        ROWS + "loss = loss + F.mse_loss(row, t)\nloss = loss / len(out)",
        ROWS + "loss += F.mse_loss(row, t)",
        ROWS + "last = row - t; loss = loss + (last * last).mean()\nloss = loss / len(out)",
        ROWS + "last = row[0]\n    for v in row:\n        loss = loss + (v - last).pow(2)\n        last = v",
        ROWS + "w = 1.0\n    for _ in range(2):\n        w *= 0.9\n    loss = loss + w * F.mse_loss(row, t)",
        ROWS + "w = 2.0 if t.sum() > 0 else 1.0; loss = loss + w * F.mse_loss(row, t)",
        ROWS + "n += 1; loss = loss + F.mse_loss(row, t)\nloss = loss / len(out)\nprint(n)",
        "k = None\n" + ROWS + "k = torch.ones(3) if k is None else k; loss = loss + (k * row - t).pow(2).mean()",
        "seen = {'row': last}\n" + ROWS + "seen['row'] = 2 * row; loss = loss + F.mse_loss(seen['row'], t)",
        "counts = [0, 0, 0]\n"
        + ROWS
        + "counts[t.argmax().item()] += 1; loss = loss + F.mse_loss(row, t)\nprint(counts)",
        "h = torch.zeros(len(out))\nfor t in range(3):\n    h = torch.tanh(h + out[:, t])\nloss = h.mean()",
        "for c in out.unbind(1):\n    loss = loss + (c - last[0]).pow(2).mean(); last = last + 1",
        "loss = sum((last := row - t).pow(2).mean() for row, t in zip(out, y)) / len(out)",
        "rows = [n := n + (row - t).pow(2).mean() for row, t in zip(out, y)]\nloss = n / len(out)",
        "loss = sum(sum((v - (last := v.detach())).abs() + v * v for v in row) for row in out) / len(out)",
        "parts = [((c - n).pow(2).mean(), n := c)[0] for c in out.unbind(1)]\nloss = sum(parts)",
        "rows = [row - t for row, t in zip(out, y)]\nn = rows[0].numel()\n"
        "loss = torch.stack([row.pow(2).sum() / n for row in rows]).mean()",
        LEFT.format("list(zip(out, y))", "while rows:") + "row, t = rows.pop(); loss = loss + F.mse_loss(row, t)\n"
        "loss = loss / len(out)",
        LEFT.format("[row - t for row, t in zip(out, y)]", "while len(rows) > 0:")
        + "loss = loss + rows.pop().pow(2).mean()\nloss = loss / len(out)",
        LEFT.format("[row - t for row, t in zip(out, y)]", "while True:")
        + "loss = loss + rows.pop().pow(2).mean()\n    if not rows:\n        break\nloss = loss / len(out)",
        LEFT.format("list(out.unbind(1))", "while rows:") + "n = torch.tanh(n + rows.pop())\nloss = n.mean()",
        ROWS + "n, parts = 0, list(row)\n    while parts:\n        v = parts.pop()\n        loss = loss + (v - n) ** 2"
        "\n        n = v\nloss = loss / len(out)",
        "while n < 3:\n    out = out - 0.1 * (out - y); n += 1\nloss = out.pow(2).mean()",
    ],
)
def test_losses_of_samples_apart_from_each_other(tmp_path: Path, zygote: Zygote | None, step: str) -> None:
    before = script(step)
    code, said = conftest.converted(tmp_path, before)
    assert "AD602" not in said and "RowsOfAllRanks" not in code, said
    assert conftest.differences(tmp_path, zygote, before) is None


def test_a_number_that_all_ranks_count_to(tmp_path: Path, zygote: Zygote | None) -> None:
    before = script("while n < len(out):\n    loss = loss + (out[n] - last).pow(2).sum(); last = out[n]; n += 1")
    assert "AD602" not in conftest.converted(tmp_path, before)[1]
    assert conftest.differences(tmp_path, zygote, before) is None


NAMES = {
    "global": "last = torch.zeros(3)\ndef step(row):\n    global last\n",
    "nonlocal": "def stepping():\n  last = torch.zeros(3)\n  def step(row):\n    nonlocal last\n",
    "attribute": "class Kept:\n    last = torch.zeros(3)\ndef step(row):\n    last = Kept.last\n",
    "function": "def step(row):\n    last = step.last\n",
}
CHANGE = "    change = (row - last).pow(2).mean()\n    last = row.detach()\n"
ENDS = {"nonlocal": "    return change\n  return step\nstep = stepping()\n", "attribute": "    Kept.last = last\n"}
ENDS["function"] = "    step.last = last\n    return change\nstep.last = torch.zeros(3)\n"


def with_function(kind: str, body: str, rounds: str) -> str:
    """A script that trains in a function, whose rounds over samples call another."""
    end = ENDS.get(kind, "")
    function = NAMES[kind] + body + (end if "return" in end else end + "    return change\n")
    head, training = script(rounds).split("torch.manual_seed(0)\n")
    return f"{head}{function}\n\ndef main():\n{indent('torch.manual_seed(0)' + chr(10) + training, '    ')}\n\nmain()\n"


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("rounds", ["for row in out:\n    loss = loss + step(row)", "loss = sum(map(step, out))"])
def test_names_that_functions_bind_in_each_round(tmp_path: Path, zygote: Zygote | None, kind: str, rounds: str) -> None:
    """They were silent."""
    exact_or_told(tmp_path, zygote, with_function(kind, CHANGE, rounds))


@pytest.mark.parametrize("kind", NAMES)
def test_names_that_functions_bind_ahead_of_reading_them(tmp_path: Path, zygote: Zygote | None, kind: str) -> None:
    body = "    last = 2 * row\n    change = (row - last).pow(2).mean()\n"
    before = with_function(kind, body, "loss = sum(step(row - t) for row, t in zip(out, y)) / len(out)")
    assert "AD602" not in conftest.converted(tmp_path, before)[1]
    assert conftest.differences(tmp_path, zygote, before) is None


def test_a_function_that_reads_what_each_round_binds(tmp_path: Path, zygote: Zygote | None) -> None:
    step = "change = lambda row: (row - last).pow(2).mean()\n" + ROWS + "loss = loss + change(row); last = row"
    assert exact_or_told(tmp_path, zygote, script(step)) == "exact"
