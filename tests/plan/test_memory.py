"""What one rank holds: whole, sharded over all ranks or over a node, with and without activation checkpointing."""

from __future__ import annotations

from itertools import pairwise

import pytest

from autodist.plan.devices import GIB, device
from autodist.plan.measured import Measured, Size
from autodist.plan.memory import need

P, G, O, UNIT, REST = 800, 800, 1600, 100, 100  # noqa: E741 - the letters of the formulas
SMALL, LARGE = Size(8, 0.1, ((800, 400), (0, 500)), 360, 100), Size(16, 0.2, ((800, 800), (0, 1000)), 720, 100)
KNOWN = Measured("cpu", 200, P, G, O, 50, units=8, largest=UNIT, rest=REST, sizes=(SMALL, LARGE))
READ = Measured(count=200, parameters=P, gradients=G, state=O)


@pytest.mark.parametrize(
    ("strategy", "ranks", "samples", "checkpointing", "expected"),
    [
        ("ddp", 1, 16, False, P + O + 50 + (800 + 800)),  # gradients of the last step are there while it computes
        ("ddp", 1, 16, True, P + O + 50 + (800 + 0.28 * 800)),
        ("ddp", 2, 8, False, P + O + 50 + G + (800 + 400)),  # the buckets, too
        ("zero", 2, 8, False, P + O / 2 + 50 + G + (800 + 400)),
        ("fsdp", 2, 8, False, (P + O) / 2 + 50 + (REST + 2 * UNIT) + (REST + UNIT) + (400 + 400)),
        ("fsdp", 16, 8, False, (P + O) / 16 + 50 + 300 + 200 + 500),
        ("hsdp", 16, 8, False, (P + O) / 8 + 50 + 300 + 200 + 500),
        ("fsdp", 16, 8, True, (P + O) / 16 + 50 + 300 + 200 + 0.28 * 400 + 50),
    ],
)
def test_with_activations(strategy: str, ranks: int, samples: float, checkpointing: bool, expected: float) -> None:
    assert need(KNOWN, strategy, ranks, 8, samples, checkpointing).total == pytest.approx(expected)


def test_activations_grow_with_the_batch() -> None:
    totals = [need(KNOWN, "ddp", 1, 8, samples, False).total for samples in (4, 8, 12, 16, 32)]
    assert [after - before for before, after in pairwise(totals)] == [200, 200, 200, 800]


@pytest.mark.parametrize(
    ("strategy", "ranks", "expected"),
    [
        ("ddp", 1, P + G + O),
        ("ddp", 4, P + 2 * G + O),
        ("zero", 4, P + 2 * G + O / 4),
        ("fsdp", 4, (P + G + O) / 4),
        ("hsdp", 32, (P + G + O) / 8),
    ],
)
def test_without_activations_it_is_the_least(strategy: str, ranks: int, expected: float) -> None:
    found = need(READ, strategy, ranks, 8, 0, False)
    assert found.total == pytest.approx(expected)
    assert found.training is None


@pytest.mark.parametrize(
    ("share", "known", "fits"),
    [(0.5, True, "yes"), (0.95, True, "tight"), (1.0, True, "no"), (0.4, False, "unknown"), (0.6, False, "doubtful")],
)
def test_what_fits(share: float, known: bool, fits: str) -> None:
    target = device("A100 40GB")
    size = int(share * target.memory - 0.1 * GIB)
    sizes = (Size(1, 0.0, ((0, 0),)),) if known else ()
    assert need(Measured(parameters=size, sizes=sizes), "ddp", 1, 8, 1, False).fits(target) == fits
