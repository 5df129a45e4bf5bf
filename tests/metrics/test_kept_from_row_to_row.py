"""Metrics for which a loop over samples keeps something from one to the next: of those of all ranks, in their order."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

from autodist.verify.launch import Zygote

SCRIPT = """\
from decimal import Decimal
from fractions import Fraction

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(64, 6)
loader = DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8, shuffle=True)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    changes, last, most, n, kept, smooth, first = 0, 0, 0, 0, [], 0.0, True
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        guess = out.argmax(1)
        for g, t, o in zip(guess.tolist(), y.tolist(), out.tolist()):
{rows}
    print({shown})
"""


def script(rows: str, shown: str) -> str:
    return SCRIPT.replace("{rows}", indent(rows, " " * 12)).replace("{shown}", shown)


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ("changes += int(t != last)\nlast = t", "changes"),
        ("smooth = 0.9 * smooth + 0.1 * (g == t)", "round(smooth, 4)"),
        ("most = max(most, o[0])", "round(most, 4)"),
        ("if o[0] > most:\n    most = o[0]", "round(most, 4)"),
        ("last = t", "last"),
        ("if first:\n    n += t\n    first = False", "n"),
        ("n += 1\nif n % 10 == 0:\n    most += g == t", "most"),
        ("if n < 5:\n    n += 1\n    most += g == t", "most"),
        ("if len(kept) < 5:\n    kept.append(t)", "kept"),
        ("n += g == t", "n"),
        ("kept.append(g == t)", "sum(kept)"),
    ],
)
def test_all_that_a_loop_goes_through_is_gathered(tmp_path: Path, zygote: Zygote | None, rows: str, shown: str) -> None:
    """Some of it was, and the loop went on for a rank's own samples alone."""
    before = script(rows, shown)
    assert "AD601 reports" not in conftest.converted(tmp_path, before)[1]
    assert conftest.differences(tmp_path, zygote, before) is None


@pytest.mark.parametrize(
    "shown",
    [
        "Fraction(int(n), most)",
        "Fraction(int(n), most).limit_denominator(10)",
        "float(Fraction(int(n), most))",
        "Decimal(int(n)) / Decimal(most)",
        "f'{Decimal(int(n))}'",
    ],
)
def test_numbers_that_libraries_make_of_counts(tmp_path: Path, zygote: Zygote | None, shown: str) -> None:
    """They showed a rank's own."""
    before = script("most += 1\nn += g == t", shown)
    assert conftest.differences(tmp_path, zygote, before) is None


@pytest.mark.parametrize("shown", ["Score(int(n), most)", "f'{Score(int(n), most)}'", "Score(int(n), most).value"])
def test_what_objects_of_libraries_show_is_made_of_all_samples(tmp_path: Path, shown: str) -> None:
    before = "from scores import Score\n" + script("most += 1\nn += g == t", shown)
    assert "reduce_sum(int(n))" in conftest.converted(tmp_path, before)[0]
