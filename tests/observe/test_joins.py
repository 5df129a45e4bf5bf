"""What joins three shares of a value, and when that cannot be told."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from autodist.observe.joins import Join, Values, joins, settled  # noqa: E402

ROWS = {"rows": (7.0, 5.0, 3.0)}


def values(whole: object, *shares: object, **counts: tuple[float, ...]) -> Values:
    """A value, with the rows of its shares."""
    return Values(whole, shares, {**ROWS, **counts})


def mean(*shares: float) -> float:
    """Weighted by the rows."""
    return sum(count * share for count, share in zip(ROWS["rows"], shares, strict=True)) / sum(ROWS["rows"])


@pytest.mark.parametrize(
    ("value", "join"),
    [
        (values(3, 3, 3, 3), Join("equal")),
        (values(torch.arange(15.0), *torch.arange(15.0).split([7, 5, 3])), Join("rows", 0)),
        (values(torch.eye(15)[:2], *torch.eye(15)[:2].split([7, 5, 3], 1)), Join("rows", 1)),
        (values(7.5, 1.5, 2.0, 4.0), Join("sum")),
        (values(mean(0.3, 0.7, 0.1), 0.3, 0.7, 0.1), Join("mean", weight="rows")),
        (values(1.5 / 3.5, 0.25, 0.5, 1.0, tokens=(2.0, 1.0, 0.5)), Join("mean", weight="tokens")),
        (values(4.0, 1.5, 4.0, 2.0), Join("max")),
        (values(-4.0, 1.5, -4.0, 2.0), Join("min")),
        (values(float("nan"), float("nan"), float("nan"), float("nan")), Join("equal")),
    ],
)
def test_what_joins(value: Values, join: Join) -> None:
    assert settled([value]) == ("known", join)


def test_an_accident_is_undecided_until_it_is_not() -> None:
    largest = values(4.0, 0.0, 0.0, 4.0)
    assert {each.kind for each in joins(largest)} == {"sum", "max"}
    assert settled([largest]) == ("undecided", None)
    assert settled([largest, values(6.0, 2.0, 1.0, 3.0)]) == ("known", Join("sum"))
    assert settled([largest, values(3.0, 2.0, 1.0, 3.0)]) == ("known", Join("max"))
    assert settled([largest, values(5.0, 2.0, 1.0, 3.0)]) == ("mixed", None)


def test_zero_says_nothing() -> None:
    assert settled([values(0.0, 0.0, 0.0, 0.0)] * 4) == ("undecided", None)
    assert settled([values(0, 0, 0, 0), values(1, 1, 1, 1)]) == ("known", Join("equal"))
    assert settled([]) == ("undecided", None)
    assert settled([values((9, 9), (3, 9), (3, 9), (3, 9))]) == ("undecided", None), "only shapes were kept"


def test_exactness_follows_the_type() -> None:
    halves = [torch.tensor(each, dtype=torch.float32) for each in (1 / 3, 1 / 7, 1 / 9)]
    whole = torch.tensor(mean(1 / 3, 1 / 7, 1 / 9), dtype=torch.float32)
    assert settled([values(whole, *halves)]) == ("known", Join("mean", weight="rows"))
    off = [values(mean(0.3, 0.7, 0.1) * (1 + 1e-6), 0.3, 0.7, 0.1)]
    assert settled(off) == ("mixed", None)
