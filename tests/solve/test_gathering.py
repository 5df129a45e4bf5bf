"""Which rows become those of all ranks: found in as many steps as there are things that they are computed from."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from programs import CATALOG, traced
from test_gradients import BACKWARD, HEAD

from autodist.solve.alone import Alone
from autodist.solve.gathering import Gathered, Gathering
from autodist.solve.gradients import Gradients
from autodist.solve.losses import Losses
from autodist.solve.sources import sources

MET = "loss = m.sort(1).values[:, 0].pow(2).mean()"


def gathered(step: str) -> list[str]:
    """The rows that become those of all ranks."""
    lines = "\n".join("    " + line for line in (step + BACKWARD).splitlines())
    program = traced(f"{HEAD}\nfor x, y in loader:\n{lines}\n")
    losses = Losses(program, sources(program, CATALOG).plan, CATALOG)
    passes = {each.node for each in losses.backward}
    mended = Gradients(program, losses, Alone()).mended(gathering=passes)
    found = [each for several in mended.values() for each in several]
    return [each.source.code(each.node) for each in found if isinstance(each, Gathered)]


@pytest.mark.parametrize("step", ["m = m + m", "m = m * m\nm = m + 1", "a = m\nm = a * m", "m = torch.cat([m, m])"])
def test_rows_are_found_behind_what_is_computed_twice(step: str) -> None:
    assert gathered(f"m = net(x).t()\n{step}\n{MET}") == ["net(x)"]


def visits(monkeypatch: pytest.MonkeyPatch, step: str) -> int:
    count = 0
    before = Gathering._rows_of

    def counted(*given: object) -> object:
        nonlocal count
        count += 1
        return before(*given)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Gathering, "_rows_of", counted)
        gathered(step)
    return count


def wide(often: int) -> str:
    return f"m = torch.cat([{', '.join(['m'] * often)}])\n" * 3


def deep(often: int) -> str:
    return "m = m * m + m\n" * often


@pytest.mark.parametrize("written", [wide, deep])
def test_twice_as_much_takes_twice_as_many_steps(
    monkeypatch: pytest.MonkeyPatch, written: Callable[[int], str]
) -> None:
    steps = [visits(monkeypatch, f"m = net(x).t()\n{written(often)}\n{MET}") for often in (24, 48)]
    assert steps[1] <= 2 * steps[0]
