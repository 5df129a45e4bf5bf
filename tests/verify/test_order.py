"""Samples that a script sorts itself lie in another order on the ranks: their noise is held still."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
import torch

from autodist.verify import Outcome, verify
from autodist.verify.launch import Zygote
from autodist.verify.probes.order import lies_otherwise, order_of
from verify.conftest import edit
from verify.test_still import AFTER

BEFORE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 8)
        self.outer = nn.Linear(8, 3)

    def forward(self, x):
        h = self.inner(x)
NOISE
        return self.outer(torch.relu(h)).mean(1)


torch.manual_seed(0)
samples = [(torch.randn(5, 6), torch.tensor(7 * i % 11), i % 3) for i in range(48)]
loader = DataLoader(samples, batch_size=8, shuffle=True, num_workers=0)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, lengths, y in loader:
        lengths, order = lengths.sort(descending=True)
        x, y = x[order], y[order]
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
NOISE = {
    "dropout": "h = nn.functional.dropout(h, 0.3)",
    "several layers": "h = nn.functional.dropout(h, 0.3)\nh = nn.functional.dropout(torch.relu(h), 0.5)",
    "time first": "h = nn.functional.dropout(h.transpose(0, 1), 0.3).transpose(0, 1)",
    "like the rows": "h = h + torch.randn_like(h)",
    "of a size": "h = nn.functional.dropout(h, 0.3)\nh = h + torch.randn(len(h), 1, 8)",
}


def written(folder: Path, noise: str) -> tuple[Path, Path]:
    """A script and its right conversion."""
    text = BEFORE.replace("NOISE\n", indent(f"{noise}\n", " " * 8))
    before, after = folder / "before.py", folder / "after.py"
    before.write_text(text)
    after.write_text(text)
    for old, new in AFTER:
        edit(after, old, new)
    return before, after


@pytest.mark.parametrize("noise", NOISE.values(), ids=NOISE)
def test_right_conversions_are_equal(tmp_path: Path, zygote: Zygote | None, noise: str) -> None:
    verdict = verify(*written(tmp_path, noise), [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    assert [note.kind for note in verdict.notes].count("held-still") == 1


def test_in_their_order_nothing_is_held(tmp_path: Path, zygote: Zygote | None) -> None:
    before, after = written(tmp_path, NOISE["dropout"])
    for script in (before, after):
        edit(script, "        x, y = x[order], y[order]\n", "")
    edit(after, "for epoch in", "torch.manual_seed(dist.get_rank())\nfor epoch in")
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    assert not any(note.kind == "held-still" for note in verdict.notes)


def test_checkpointed_layers_are_held_when_they_are_computed_again(tmp_path: Path, zygote: Zygote | None) -> None:
    noise = "h = torch.utils.checkpoint.checkpoint(self.noisy, h, use_reentrant=False)"
    before, after = written(tmp_path, noise)
    for script in (before, after):
        edit(script, "import torch\n", "import torch\nimport torch.utils.checkpoint\n")
        edit(
            script,
            "        self.outer =",
            "        self.noisy = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3))\n        self.outer =",
        )
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    assert any(note.kind == "held-still" for note in verdict.notes)


def test_a_little_off_is_in_order(tmp_path: Path, zygote: Zygote | None) -> None:
    before, after = written(tmp_path, NOISE["dropout"])
    for script in (before, after):
        edit(script, "        x, y = x[order], y[order]\n", "")
        edit(script, "torch.optim.SGD(model.parameters(), lr=0.1)", "torch.optim.AdamW(model.parameters(), lr=1e-3)")
    edit(after, "loss.backward()", "(loss / 2).backward()")
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.outcome is not Outcome.EQUAL
    assert not any(note.kind == "held-still" for note in verdict.notes)


def test_labels_left_in_their_order_are_found(tmp_path: Path, zygote: Zygote | None) -> None:
    before, after = written(tmp_path, NOISE["dropout"])
    edit(after, "x, y = x[order], y[order]", "x = x[order]")
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.outcome is not Outcome.EQUAL


def test_order() -> None:
    values = torch.randn(4, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    parts = [values[0::2], values[1::2]]
    orders = [order_of(part) for part in parts]
    assert lies_otherwise(values, parts.__getitem__, orders, 0) is False
    turned = [order_of(part.flip(0)) for part in parts]
    assert lies_otherwise(values, parts.__getitem__, turned, 0) is True
    other = [order_of(part + 1) for part in parts]
    assert lies_otherwise(values, parts.__getitem__, other, 0) is None
    assert lies_otherwise(values, parts.__getitem__, [[], []], 0) is None


def test_tensors_without_numbers_of_their_own() -> None:
    seen: list[list[float]] = []

    def look(row: torch.Tensor) -> torch.Tensor:
        seen.append(order_of(row))
        return row

    torch.vmap(look)(torch.rand(4, 3))
    assert seen == [[]]
    assert order_of(torch.empty(3, device="meta")) == []
