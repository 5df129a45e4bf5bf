"""Which samples a subscript takes by numbers that a script computes, collects in lists, or finds: those that one
process takes, or some of a rank's own."""

from __future__ import annotations

import pytest
from test_programs import HEAD
from test_programs import lies as placed

from autodist.placement import PerRank, Shard
from autodist.placement.along import BY_NUMBER, BY_PLACE, PLACES_LEFT_OUT
from autodist.placement.reading import BY_OTHERS
from autodist.placement.sizes import AGAIN
from autodist.placement.transfer import ORDERED

LOOP = "    found = []\n    for i in range(len(out)):\n        for j in range(len(out)):\n            if {test}:\n"
FOUND = "                found.append(j)\n    result = out[{key}]"


def reason(lines: str) -> str:
    placement = placed(HEAD + lines)
    return placement.reason if isinstance(placement, PerRank) else ""


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("(torch.arange(len(x)) + 1) % len(x)", BY_NUMBER),
        ("torch.arange(len(x)) ^ 1", BY_NUMBER),
        ("[1, 0] * (len(x) // 2)", BY_NUMBER),
        ("list(reversed(range(len(x))))", ORDERED),
        ("torch.nonzero(out.argmax(1) == 1).squeeze(-1)[:3]", BY_PLACE),
        ("torch.randperm(len(x))", ""),
        ("list(range(len(x)))", ""),
        ("torch.nonzero(out.argmax(1) == 1).squeeze(-1)", ""),
    ],
)
def test_samples_by_numbers(key: str, expected: str) -> None:
    assert reason(f"    result = out[{key}]") == expected


def test_places_of_which_some_are_left_out() -> None:
    assert reason("    result = torch.nonzero(out.argmax(1) == 1).squeeze(-1)[:3]") == PLACES_LEFT_OUT


@pytest.mark.parametrize(("key", "expected"), [("found", BY_OTHERS), ("torch.tensor(found)", BY_PLACE)])
def test_numbers_that_other_samples_decide_over(key: str, expected: str) -> None:
    """`if y[i] != y[j]`, of all pairs of a rank's own samples."""
    assert reason(LOOP.format(test="y[i] != y[j]") + FOUND.format(key=key)) == expected


def test_numbers_that_each_sample_decides_over() -> None:
    lines = "    found = []\n    for i in range(len(out)):\n        if y[i] > 0:\n            found.append(i)\n"
    placement = placed(HEAD + lines + "    result = out[found]")
    assert isinstance(placement, Shard) and placement.rows.startswith("%")


@pytest.mark.parametrize(
    ("weights", "expected"), [("[0.1 * k for k in range(8)]", AGAIN), ("[0.5, 0.5]", ""), ("[float(t) for t in y]", "")]
)
def test_what_is_taken_side_by_side_with_samples(weights: str, expected: str) -> None:
    """Numbers that a list counts up are those of the first samples of a rank."""
    assert reason(f"    for row, w in zip(out, {weights}):\n        result = w * row.sum()") == expected


@pytest.mark.parametrize(
    "found",
    [
        "[torch.randperm(4) for _ in x]",
        "[torch.randperm(4) for _ in range(len(x))]",
        "[torch.zeros(4)] * len(x)",
        "[row for row in out]",
    ],
)
def test_lists_with_something_for_each_sample(found: str) -> None:
    assert placed(f"{HEAD}    result = torch.stack({found})") == Shard(0)


def test_lists_that_grow_by_something_for_each_sample() -> None:
    lines = "    found = []\n    for i in range(len(x)):\n        found.append(torch.randperm(4))\n"
    assert placed(HEAD + lines + "    result = torch.stack(found)") == Shard(0)


@pytest.mark.parametrize("fill", ["index_fill", "index_fill_"])
def test_rows_that_are_filled_by_places_among_own(fill: str) -> None:
    """As where label smoothing leaves padding out: `true.index_fill_(0, mask.nonzero().squeeze(), 0)`"""
    assert placed(f"{HEAD}    result = out.{fill}(0, torch.nonzero(y == 1).squeeze(-1), 0.0)") == Shard(0)
