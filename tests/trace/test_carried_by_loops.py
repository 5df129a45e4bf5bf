"""What loops carry from one round to the next, in names, attributes, dicts and lists."""

from __future__ import annotations

import ast

import pytest
from programs import traced

HEAD = """\
import torch
x = torch.randn(8, 4)
class Kept:
    pass
kept = Kept()
kept.last, table, rows, last, pair = x[0], {'last': x[0]}, [x[0]], x[0], (x[0], 0)
first, k, w = True, 0, 1.0
"""
LOOP = "for row in x:\n    "


def is_carried(lines: str) -> bool:
    """Whether an earlier round may have left what `result` is bound to."""
    values = traced(HEAD + lines.replace("; ", "\n    ")).values
    stores = (each for each in values if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return any(values[each].carried_by for each in stores if each.id == "result")


@pytest.mark.parametrize(
    "lines",
    [
        "result = last; last = row",
        "result = first; first = False",
        "result = w; w *= 0.5",
        "if row.sum() > 0:\n        last = row\n    result = last",
        "result = last.detach() if k else last; last = row",
        "before, last = last, row; result = before",
        "result = pair[0]; pair = (row, k)",
        "result, number = pair; pair = (row, k)",
        "result = kept.last; kept.last = row",
        "result = table['last']; table['last'] = row",
        "result = rows[-1]; rows.append(row)",
        "rows.append(row); result = rows[-2]",
        "for result in rows:\n        pass\n    rows.append(row)",
        "for _ in range(2):\n        w = 0.5 * w\n    result = w",
    ],
)
def test_what_is_read_ahead_of_being_bound_anew(lines: str) -> None:
    assert is_carried(LOOP + lines)


@pytest.mark.parametrize(
    "lines",
    [
        "last = row; result = last",
        "if row.sum() > 0:\n        last = row\n    else:\n        last = 2 * row\n    result = last",
        "result = w",
        "kept.last = row; result = kept.last",
        "table['last'] = row; result = table['last']",
        "rows.append(row); result = rows[-1]",
        "mine = [row]; mine.append(2 * row); result = mine[0]",
        "w = 1.0\n    for _ in range(2):\n        w = 0.5 * w\n    result = w",
    ],
)
def test_what_each_round_binds_ahead_of_reading_it(lines: str) -> None:
    assert not is_carried(LOOP + lines)


def test_no_round_follows_behind_a_loop() -> None:
    assert not is_carried(LOOP + "k = w; w *= 0.5\nresult = w")


def test_a_method_that_binds_ahead_of_another_that_reads() -> None:
    lines = (
        "class Net:\n    def keep(self, row):\n        self.row = row\n    def read(self):\n        return self.row\n"
    )
    lines += "net = Net()\nnet.row = x[0]\n"
    assert not is_carried(lines + LOOP + "net.keep(row); result = net.read()")
    assert is_carried(lines + LOOP + "result = net.read(); net.keep(row)")
