"""What loops carry from one round to the next, in names, attributes, dicts and lists."""

from __future__ import annotations

import ast
from textwrap import indent

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


@pytest.mark.parametrize(
    "lines",
    [
        "[((result := last).sum(), last := row) for row in x]",
        "{n: ((result := w), w := 0.5 * w) for n, row in enumerate(x)}",
        "sum(row.sum() for row in x if (result := last) is not None and (last := row) is not None)",
        "[rows.append(row) for row in x if (result := rows[-1]) is not None]",
        "[[(result := last, last := v) for v in row] for row in x]",
        "rest = list(x)\nwhile rest:\n    result = last\n    last = rest.pop()",
        "while k < len(x):\n    result = last\n    last = x[k]\n    k += 1",
    ],
)
def test_rounds_of_comprehensions_and_of_while(lines: str) -> None:
    assert is_carried(lines)


@pytest.mark.parametrize(
    "lines",
    [
        "[(last := row, result := last) for row in x]",
        "[result := 2 * row for row in x]",
        "[last := row for row in x]\nresult = last",
        "rest = list(x)\nwhile rest:\n    last = rest.pop()\n    result = last",
    ],
)
def test_what_their_rounds_bind_ahead_of_reading_it(lines: str) -> None:
    assert not is_carried(lines)


STEP = """\
def step(row):
    {names} last
    result = last
    last = row
def keep(row):
    {names} last
    last = row
def read():
    return last
"""


@pytest.mark.parametrize("names", ["global", "nonlocal"])
@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ("for row in x:\n    step(row)", True),
        ("[step(row) for row in x]", True),
        ("list(map(step, x))", True),
        ("for row in x:\n    result = read()\n    keep(row)", True),
        ("for row in x:\n    keep(row)\n    result = read()", False),
        ("for row in x:\n    keep(row)\n    result = last", False),
        ("for row in x:\n    result = read()\n    last = row", True),
        ("for row in x:\n    last = row\n    result = read()", False),
    ],
)
def test_names_that_functions_bind(names: str, rounds: str, expected: bool) -> None:
    lines = STEP.format(names=names) + rounds
    if names == "nonlocal":
        lines = "def run():\n" + indent("last = x[0]\n" + lines, "    ") + "\nrun()"
    assert is_carried(lines) is expected


@pytest.mark.parametrize("owner", ["Kept", "kept"])
def test_attributes_of_a_class(owner: str) -> None:
    lines = f"Kept.last = x[0]\nkept = Kept()\nfor row in x:\n    result = {owner}.last\n    Kept.last = row"
    assert is_carried(lines)


def test_a_list_that_is_the_default_of_a_parameter() -> None:
    assert is_carried("def keep(row, seen=[x[0]]):\n    result = seen[-1]\n    seen.append(row)\n" + LOOP + "keep(row)")


def test_no_round_follows_behind_a_loop() -> None:
    assert not is_carried(LOOP + "k = w; w *= 0.5\nresult = w")


def test_a_method_that_binds_ahead_of_another_that_reads() -> None:
    lines = (
        "class Net:\n    def keep(self, row):\n        self.row = row\n    def read(self):\n        return self.row\n"
    )
    lines += "net = Net()\nnet.row = x[0]\n"
    assert not is_carried(lines + LOOP + "net.keep(row); result = net.read()")
    assert is_carried(lines + LOOP + "result = net.read(); net.keep(row)")


ON_FUNCTION = """\
def step(row):
    result = step.last
    step.last = row
def ahead(row):
    ahead.last = row
    result = ahead.last
def found(row):
    result = getattr(found, 'last', None)
    found.last = row
class Step:
    def __call__(self, row):
        result = getattr(self, 'last', None)
        self.last = row
step.last = ahead.last = x[0]
"""


@pytest.mark.parametrize(("call", "expected"), [("step", True), ("ahead", False), ("found", True), ("Step()", True)])
@pytest.mark.parametrize("rounds", ["for row in x:\n    call(row)", "[call(row) for row in x]", "list(map(call, x))"])
def test_attributes_of_functions(call: str, expected: bool, rounds: str) -> None:
    assert is_carried(f"{ON_FUNCTION}call = {call}\n{rounds}") is expected


def test_an_attribute_of_another_function() -> None:
    assert not is_carried(ON_FUNCTION + "result = step.last\nfor row in x:\n    ahead(row)")
