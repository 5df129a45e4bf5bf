"""What becomes of samples in lists, and one by one, where losses are computed from the outputs of all ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(3, (32,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
guesses, labels, hits = [], [], 0
for x, y in loader:
    out = model(x)
    each = nn.functional.cross_entropy(out, y, reduction="none")
    keep = each.detach() >= each.detach().median()
    loss = each[keep].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {step}
print({shown})
"""
LOSSES = "each = RowsOfAllRanks.apply(nn.functional.cross_entropy("


def test_lists_beside_each_other_hold_the_samples_of_all_ranks(tmp_path: Path) -> None:
    step = "hits += sum(int(a == b) for a, b in zip(y.tolist(), out.argmax(1).tolist()))"
    text, said = converted(tmp_path, SCRIPT.format(step=step, shown="hits"))
    assert LOSSES in text  # of which the loss is made: what is counted stays a rank's own
    assert "print(reduce_sum(hits))" in text
    assert "AD602" not in said


def test_lists_that_grow_hold_a_rank_s_own(tmp_path: Path) -> None:
    step = "guesses.extend(out.argmax(1).tolist())\n    labels.extend(y.tolist())"
    shown = "sum(a == b for a, b in zip(guesses, labels)) / len(labels)"
    text, said = converted(tmp_path, SCRIPT.format(step=step, shown=shown))
    assert LOSSES in text
    assert "print(reduce_mean(sum(a == b for a, b in zip(guesses, labels)) / len(labels)))" in text
    assert "AD602" not in said


@pytest.mark.parametrize(
    "step",
    [
        "for i in range(len(y)):\n        hits += int(p[i] == y[i].item())",
        "for i in range(y.size(0)):\n        hits += (p[i] == y[i]).item()",
        "for i, label in enumerate(y):\n        hits += (p[i] == label).item()",
    ],
)
def test_samples_that_a_rank_counts_off_are_no_samples_of_all_ranks(tmp_path: Path, step: str) -> None:
    """A rank's number of samples counts off its own, though the loss is made of those of all ranks."""
    text, said = converted(tmp_path, SCRIPT.format(step=f"p = out.argmax(1)\n    {step}", shown="hits"))
    assert LOSSES in text and "p = out.argmax(1)" in text
    assert "print(reduce_sum(hits))" in text
    assert "AD602" not in said


BY_INDEX = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(32, 4), torch.randint(3, (32,)), torch.arange(32))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
errors, histories, seen = torch.zeros(32), {{i: [] for i in range(32)}}, {{}}
for x, y, index in loader:
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    right = out.argmax(1) == y
    {step}
torch.save([errors, histories, seen], "seen.pt")
"""


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (
            "for i, each in zip(index.tolist(), right.tolist()):\n        histories[i].append(each)",
            "in zip(gather_rows(index).tolist(), gather_rows(right).tolist()):",
        ),
        (
            "for i, each in zip(index, right):\n        seen[int(i)] = bool(each)",
            "in zip(gather_rows(index), gather_rows(right)):",
        ),
        ("errors[index] += (~right).float()", "errors[index] += (~right).float()\n"),
    ],
)
def test_what_is_kept_by_the_numbers_of_samples(tmp_path: Path, step: str, expected: str) -> None:
    """Numbers and values go together: all gathered, or what each rank has counted up at its own places is summed."""
    text, said = converted(tmp_path, BY_INDEX.format(step=step))
    assert expected in text, text
    assert ("reduce_sum(errors)" in text) == step.startswith("errors") and "keeps" not in said
