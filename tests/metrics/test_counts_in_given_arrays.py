"""Arrays and tensors that functions of the script count in, and views of them: each rank counts its own samples."""

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
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def count(counts, labels, guesses):
    {body}


def within(given, out, labels):
    count(given, guesses=out.argmax(1), labels=labels)


for epoch in range(2):
    counts = {array}
    for a, b in loader:
        out = model(a)
        loss = nn.functional.cross_entropy(out, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {call}
    print(epoch, counts)
"""
PAIRS = "for label, guess in zip(labels.tolist(), guesses.tolist()):\n        "
CALL = "count(counts, b, out.argmax(1))"
NUMPY, TORCH = "np.zeros((3, 3))", "torch.zeros(3, 3)"
FUNCTIONS = [
    (NUMPY, PAIRS + "counts[label, guess] += 1"),
    (TORCH, PAIRS + "counts[label, guess] += 1\n    return counts"),
    (NUMPY, PAIRS + "counts[label][guess] = counts[label][guess] + 1"),
    (NUMPY, "for i in range(len(labels)):\n        if labels[i] == guesses[i]:\n            counts[0, 0] += 1"),
    (TORCH, "counts[0, 0] += (labels == guesses).sum().item()\n    counts[0, 1] += len(labels)"),
    (NUMPY, "counts += np.bincount(3 * labels.numpy() + guesses.numpy(), minlength=9).reshape(3, 3)"),
    (TORCH, "counts += torch.bincount(3 * labels + guesses, minlength=9).view(3, 3)"),
    (TORCH, "counts.add_(torch.bincount(3 * labels + guesses, minlength=9).view(3, 3))"),
    (NUMPY, "np.add.at(counts, (labels.numpy(), guesses.numpy()), 1)"),
    (TORCH, "counts.index_put_((labels, guesses), torch.ones(len(labels)), accumulate=True)"),
]
VIEWS = [
    "counts.index_put_((b, out.argmax(1)), torch.ones(len(b)), accumulate=True)",
    "counts.put_(3 * b + out.argmax(1), torch.ones(len(b)), accumulate=True)",
    "counts[0].scatter_reduce_(0, b, torch.ones(len(b)), reduce='sum')",
    "counts.view(-1).scatter_add_(0, 3 * b + out.argmax(1), torch.ones(len(b)))",
    "counts.t()[0].index_add_(0, b, torch.ones(len(b)))",
    "np.add.at(counts.numpy(), (b.numpy(), out.argmax(1).numpy()), 1)",
]
EACH = "for label, guess in zip(b.tolist(), out.argmax(1).tolist()):\n            "
DICT = "{'hits': np.zeros((3, 3))}"
ROWS = "[np.zeros(3), np.zeros(3)]"
BY_KEY = "{key: reduce_sum(value) for key, value in counts.items()}"
ALIASES = [
    (TORCH, "held = counts\n        " + EACH + "held[label, guess] += 1", "reduce_sum(counts)"),
    (TORCH, "row = counts[0]\n        " + EACH + "row[label] += 1", "reduce_sum(counts)"),
    (TORCH, "flat = counts.view(-1)\n        " + EACH + "flat[3 * label + guess] += 1", "reduce_sum(counts)"),
    (TORCH, "held = counts.numpy()\n        " + EACH + "held[label, guess] += 1", "reduce_sum(counts)"),
    (TORCH, "for k in range(3):\n            row = counts[k]\n            row += (b == k).sum()", "reduce_sum(counts)"),
    (TORCH, "counts.data += (b == 0).sum()", "counts)"),
    (TORCH, "torch.add(counts, (b == 0).sum(), out=counts)", "torch.add("),
    (NUMPY, "np.copyto(counts, counts + (b == 0).sum().item())", "reduce_sum(counts)"),
    (DICT, "hits = counts['hits']\n        " + EACH + "hits[label, guess] += 1", BY_KEY),
    (DICT, EACH + "counts['hits'][label, guess] += 1", BY_KEY),
    (DICT, "for hits in counts.values():\n            hits[0] += (b == 0).sum().item()", BY_KEY),
    (
        ROWS,
        "for row in counts:\n            row[0] += (b == 0).sum().item()",
        "[reduce_sum(value) for value in counts]",
    ),
    (
        ROWS,
        "hits, n = counts\n        hits[0] += (b == 0).sum().item()\n        n[0] += len(b)",
        "reduce_sum(value) for",
    ),
]
LEFT_ALONE = [
    "counts = counts + (labels == guesses).sum()",
    "counts = counts.copy()\n    counts[0, 0] += (labels == guesses).sum().item()",
    "n = counts.sum() + (labels == guesses).sum().item()",
]


@pytest.mark.parametrize("call", [CALL, "within(counts, out, b)"])
@pytest.mark.parametrize(("array", "body"), FUNCTIONS)
def test_what_a_function_counts_in_is_that_of_its_caller(tmp_path: Path, array: str, body: str, call: str) -> None:
    """What rank 0 had counted was printed without a word."""
    code, said = conftest.converted(tmp_path, SCRIPT.format(array=array, body=body, call=call))
    assert "print(epoch, reduce_sum(counts))" in code and "warning" not in said


@pytest.mark.parametrize("call", VIEWS)
def test_views_share_their_numbers(tmp_path: Path, call: str) -> None:
    code, _ = conftest.converted(tmp_path, SCRIPT.format(array=TORCH, body="pass", call=call))
    assert "print(epoch, reduce_sum(counts))" in code


@pytest.mark.parametrize(("array", "call", "shown"), ALIASES)
def test_other_names_of_what_is_counted_in(tmp_path: Path, zygote: Zygote, array: str, call: str, shown: str) -> None:
    before = SCRIPT.format(array=array, body="pass", call=call)
    code, said = conftest.converted(tmp_path, before)
    assert shown in code
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal or "AD601 reports" in said, (verdict.worlds[0].reason, verdict.worlds[0].findings)


@pytest.mark.parametrize("case", [0, 5, 9])
def test_counts_are_those_of_all_samples(tmp_path: Path, zygote: Zygote, case: int) -> None:
    array, body = FUNCTIONS[case]
    before = SCRIPT.format(array=array, body=body, call="within(counts, out, b)")
    assert conftest.differences(tmp_path, zygote, before) is None


@pytest.mark.parametrize("body", LEFT_ALONE)
def test_what_a_function_computes_anew_is_its_own(tmp_path: Path, body: str) -> None:
    code, _ = conftest.converted(tmp_path, SCRIPT.format(array=NUMPY, body=body, call=CALL))
    assert "print(epoch, counts)" in code


def test_numbers_are_not_changed_in_place(tmp_path: Path) -> None:
    body = "counts += (labels == guesses).sum().item()"
    code, _ = conftest.converted(tmp_path, SCRIPT.format(array="5", body=body, call=CALL))
    assert "print(epoch, counts)" in code


def test_numbers_that_a_dict_holds_are_not_changed_by_another_name(tmp_path: Path) -> None:
    """Of a number that the analysis does not know, each rank has the same: a sum would count it once for each."""
    call = "n = counts['first']\n        n += (b == 0).sum().item()"
    code, _ = conftest.converted(tmp_path, SCRIPT.format(array="{'first': len(str(x))}", body="pass", call=call))
    assert "print(epoch, counts)" in code
