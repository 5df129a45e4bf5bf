"""Dicts and lists that a loop makes anew, and dicts of which a loop visits each entry once."""

from __future__ import annotations

import pytest
from made_global import EPOCH, STEP, found, told
from programs import bound, traced
from programs import told as operations

from autodist.program import held

MADE = ["{}", "dict()", "defaultdict(float)", "{'loss': 0.0}"]
ADDED = [
    "sums['loss'] = sums.get('loss', 0.0) + loss.item() * len(x)",
    "sums.setdefault('loss', 0.0)\n" + STEP + "sums['loss'] += loss.item() * len(x)",
]
EACH = [
    "for name in sums:\n" + EPOCH + "    sums[name] /= seen",
    "for name in list(sums.keys()):\n" + EPOCH + "    sums[name] = sums[name] / seen",
    "for name, value in sums.items():\n" + EPOCH + "    sums[name] = value / seen",
]


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("added", ADDED)
@pytest.mark.parametrize("each", EACH)
def test_sums_that_a_loop_divides_are_means(made: str, added: str, each: str) -> None:
    """Divided once each, and begun anew in each epoch: nothing is divided again."""
    text = f"{STEP}{added}\n{STEP}seen += len(x)\n{EPOCH}{each}\n{EPOCH}print(sums)"
    (cut,) = found(text, begun=f"sums, seen = {made}, 0")[1]
    assert told(cut) in ("mean sums", "mean sums[name] / seen", "mean value / seen")  # where shown, or where stored


VISITS = """\
import torch
sums = {}
for name in open("names"):
    sums[name] = torch.ones(3)
%s
result = sums["a"]
"""


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("for name in sums:\n    sums[name] = sums[name].exp()", {"torch.Tensor.exp"}),
        (
            "for name in sums:\n    sums[name] = sums[name].exp()\n    sums[name] = sums[name].sqrt()",
            {"torch.Tensor.sqrt"},
        ),
        (
            "for name in sums:\n    if len(name):\n        sums[name] = sums[name].exp()",
            {"torch.ones", "torch.Tensor.exp"},
        ),
        ("for name in sums:\n    sums['b'] = sums[name].exp()", {"torch.ones"}),
    ],
)
def test_what_a_dict_holds_after_a_loop_over_its_keys(loop: str, expected: set[str]) -> None:
    assert operations(bound(traced(VISITS % loop), "result")) == expected


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        ("    kept = []\n    kept.append(torch.ones(epoch))\n", 1),
        ("    kept = []\n    kept.append(torch.ones(epoch))\n    history.append(kept)\n", 1),
        ("    if epoch:\n        kept = []\n    kept.append(torch.ones(epoch))\n", 1),
    ],
)
def test_lists_that_are_made_anew(lines: str, count: int) -> None:
    """What is held elsewhere, or only made anew at times, keeps what it had."""
    program = traced(f"import torch\nhistory, kept = [], []\nfor epoch in open('x'):\n{lines}result = kept\n")
    assert len(set(held(bound(program, "result")))) == count


def test_a_name_that_goes_over_what_is_global_and_what_is_not() -> None:
    text = STEP + "correct += (out.argmax(1) == y).sum().item()\n" + EPOCH + "whole = float(len(data))\n"
    text += EPOCH + "for name, value in zip(('right', 'rows'), (correct, whole)):\n" + EPOCH + "    print(name, value)"
    assert [told(cut) for cut in found(text)[1]] == ["sum correct"]
