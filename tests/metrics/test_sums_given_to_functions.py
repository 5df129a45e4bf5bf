"""Functions that are given sums of a rank's samples by training, and those of all samples by evaluations."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(64, 8)
y = x[:, :3].argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
valid = DataLoader(TensorDataset(x, y), batch_size=16)
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def show(counts, names):
    {body}


def table(names, counts):
    show(counts, names)


def count(counts, labels, guesses):
    for label, guess in zip(labels.tolist(), guesses.tolist()):
        counts[label, guess] += 1


for epoch in range(2):
    counts = np.zeros((3, 3))
    for a, b in loader:
        out = model(a)
        loss = nn.functional.cross_entropy(out, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {count}
    {call}
    counts = np.zeros((3, 3))
    with torch.no_grad():
        for a, b in valid:
            out = model(a)
            {count}
    {call}
"""
INLINE = "for j in range(len(b)):\n{indent}counts[b[j].item(), out[j].argmax().item()] += 1"
BY_FUNCTION = "count(counts, b, out.argmax(1))"
CALL = 'show(counts, "abc")'
BODIES = [
    "print(counts)",
    "print(counts[0, 0], counts[1, 2])",
    "print(counts.trace() / counts.sum())",
    "for i in range(3):\n        print(names[i], counts[i, i] / (1e-9 + np.sum(counts[i, :])))",
    "share = counts.copy()\n    for i in range(3):\n        share[i] = counts[i] / counts[i].sum()\n    print(share)",
]


def _script(body: str, call: str = CALL, count: str = BY_FUNCTION) -> str:
    whole = SCRIPT.replace("        {count}\n    {call}", "        {first}\n    {call}", 1)
    first, second = count.format(indent=" " * 12), count.format(indent=" " * 16)
    return whole.format(body=body, call=call, first=first, count=second)


@pytest.mark.parametrize("count", [INLINE, BY_FUNCTION], ids=["inline", "function"])
@pytest.mark.parametrize("body", BODIES)
def test_sums_are_reduced_where_the_function_is_called(tmp_path: Path, body: str, count: str) -> None:
    """Inside, those of all samples would be counted once more by each rank: it was warned of."""
    code, said = conftest.converted(tmp_path, _script(body, count=count))
    assert (
        code.count('show(reduce_sum(counts), "abc")') == 1
        and "reduce_sum(counts" not in code.partition("def show")[2].partition("def table")[0]
    )
    assert "this rank's samples alone" not in said


@pytest.mark.parametrize("call", [CALL, 'table("abc", counts=counts)'])
def test_what_is_shown_is_that_of_all_samples(tmp_path: Path, zygote: Zygote, call: str) -> None:
    before = _script(BODIES[3], call)
    code, said = conftest.converted(tmp_path, before)
    assert "this rank's samples alone" not in said
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


@pytest.mark.parametrize(
    "body", ["counts += 1\n    print(counts)", "counts[0, 0] = 0\n    print(counts)", "counts.fill(0)"]
)
def test_what_a_function_changes_is_not_reduced_for_it(tmp_path: Path, body: str) -> None:
    """It would change a copy."""
    assert "show(reduce_sum(counts)" not in conftest.converted(tmp_path, _script(body))[0]
