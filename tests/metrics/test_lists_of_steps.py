"""Lists with one number for each step: how many they are is no number of samples, whatever the numbers are made of."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept, meters = [], {{}}
for x, y in loader:
    out = model(x)
    loss = nn.functional.mse_loss(out, y)
    far = [(a - b).abs().item() for a, b in zip(out, y) if b > 0]
    gap = max(far, default=0.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {keep}
{shown}
"""


@pytest.mark.parametrize(
    ("keep", "shown"),
    [
        ("kept.append(gap)", "print(sum(kept) / len(kept))"),
        (
            "for name, value in {'gap': gap}.items():\n        meters.setdefault(name, []).append(value)",
            "print({name: sum(values) / len(values) for name, values in meters.items()})",
        ),
        ("if True:\n        kept.append(torch.tensor(gap))", "print(torch.stack(kept).sum() / len(kept))"),
    ],
)
def test_a_list_with_one_number_for_each_step(tmp_path: Path, keep: str, shown: str) -> None:
    code, _ = converted(tmp_path, SCRIPT.format(keep=keep, shown=shown))
    assert "(len(" not in code.partition("optimizer.step()")[2]  # not reduced, nor multiplied


@pytest.mark.parametrize(
    "keep",
    [
        "for a, b in zip(out, y):\n        if b > 0:\n            kept.append((a - b).item())",
        "kept += [(a - b).item() for a, b in zip(out, y) if b > 0]",
    ],
)
def test_a_list_of_chosen_samples(tmp_path: Path, keep: str) -> None:
    code, said = converted(tmp_path, SCRIPT.format(keep=keep, shown="print(len(kept))"))
    assert "reduce_sum(len(kept))" in code or "gather_rows" in code or "computed from this rank's" in said


@pytest.mark.parametrize(
    ("keep", "shown"),
    [
        ("kept.append({})", "print(sum(kept) / len(kept))"),
        ("kept += [{}]", "print(sum(kept) / len(kept))"),
        ("kept.extend([{}])", "print(sum(kept))"),
        ("meters.setdefault('gap', []).append({})", "print(sum(meters['gap']) / len(meters['gap']))"),
    ],
)
def test_a_list_that_some_batches_add_to(tmp_path: Path, keep: str, shown: str) -> None:
    """Which batches do, all ranks decide by all samples; the largest one of all is kept."""
    text = SCRIPT.format(keep="if (y > 0).any():\n        " + keep.format("gap"), shown=shown)
    code, said = converted(tmp_path, text)
    assert "if reduce_max((y > 0).any()):\n        " + keep.format("reduce_max(gap)") in code
    assert "computed from this rank's samples alone" not in said
