"""One run, whose cost grows with the script and not faster; nothing is too deep."""

from __future__ import annotations

import pytest
from programs import bound, named, told, traced

from autodist.program import Program
from autodist.trace.machine import Machine

CALLS = "import torch\nx = torch.randn(8, 4)\ndef step(v):\n    return v.relu() + 1\n"


def steps(program: Program) -> int:
    assert program.complete
    return len(program.operations)


def test_a_function_that_is_given_the_same_again_is_not_run_again() -> None:
    program = traced(CALLS + "a = step(x)\nb = step(x)\nresult = a\n")
    assert len(named(program, "torch.Tensor.relu")) == 1
    assert bound(program, "a") == bound(program, "b")


def test_a_function_is_run_again_where_an_object_that_it_reads_has_changed() -> None:
    program = traced(
        "class A:\n    pass\na = A()\na.n = 1\ndef read():\n    return a.n\none = read()\na.n = 2\nresult = read()\n"
    )
    assert told(bound(program, "one")) == {1}
    assert told(bound(program, "result")) == {2}


def test_a_function_that_is_given_something_else_has_operations_of_its_own() -> None:
    program = traced(CALLS + "a = step(x)\nb = step(a)\n")
    assert len(named(program, "torch.Tensor.relu")) == 2


@pytest.mark.parametrize(
    ("script", "size"),
    [
        (lambda n: CALLS + "".join(f"y{i} = step(x + {i})\n" for i in range(n)), 100),
        (lambda n: CALLS + "y = x\n" + "y = step(y)\n" * n, 100),
        (lambda n: CALLS + "".join(f"def f{i}(v):\n    return {f'f{i - 1}(v)' if i else 'step(v)'} * 2\n"
         f"" for i in range(n // 5)) + f"y = f{n // 5 - 1}(x)\n", 100),
        (lambda n: CALLS + "import sys\nname = sys.argv[1]\nif name == 'a':\n    y = x\n"
         "" + "".join(f"elif name == 'b{i}':\n    y = step(x + {i})\n" for i in range(n)), 100),
    ],
    ids=["lines", "chain", "depth of calls", "branches"],
)  # fmt: skip
def test_twice_the_script_makes_at_most_twice_the_operations(script: object, size: int) -> None:
    assert callable(script)
    assert steps(traced(script(2 * size))) <= 2.1 * steps(traced(script(size)))


@pytest.mark.parametrize(
    "lines",
    [
        "y = x" + ".relu()" * 300,
        "y = " + " + ".join(["x"] * 1000),
        "import sys\nif sys.argv[1] == 'a':\n    y = x\n" + "".join(f"elif sys.argv[1] == 'b{i}':\n"
         f"    y = x + {i}\n" for i in range(900)),
    ],
    ids=["chained calls", "terms", "branches"],
)  # fmt: skip
def test_nothing_is_too_deep(lines: str) -> None:
    assert traced(CALLS + lines + "\nresult = y\n").complete


def nested(depth: int) -> str:
    """Loops within each other, each of which changes a name and a list that the others read."""
    lines = ["import torch", "x = torch.randn(8, 4)", "held = []"]
    for at in range(depth):
        lines.append(f"{'    ' * at}for i{at} in range(int(x.sum())):")
        lines.append(f"{'    ' * (at + 1)}x = x * {at}")
    inside = "    " * depth
    lines += [f"{inside}held.append(x)", f"{inside}x = x + held.pop()"]
    return "\n".join(lines) + "\n"


def test_loops_within_loops_take_a_few_rounds_each(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    tick = Machine.tick

    def counted(machine: Machine) -> None:
        counts[-1] += 1
        tick(machine)

    monkeypatch.setattr(Machine, "tick", counted)
    for depth in (4, 8):
        counts.append(0)
        steps(traced(nested(depth)))
    assert counts[1] <= 6 * counts[0]


def test_what_a_loop_has_changed_in_place_is_not_what_the_next_one_begins_with() -> None:
    program = traced(
        "import torch\nx = torch.randn(4)\nfor epoch in range(2):\n    total = torch.zeros(4)\n    for i in range(3):\n"
        "        total = total + x\n    total.clamp_(0)\n"
    )
    (added,) = named(program, "operator.add")
    assert {each.name for each in added.inputs[0].operations} == {"torch.zeros", "operator.add"}


def dispatched(kinds: int) -> str:
    """A class that writes what it is given by its type, each of which writes its parts so again, as `pickle` does."""
    methods = "".join(
        f"    def save_{i}(self, part, depth):\n        self.written.append(part + {i})\n"
        f"        self.save(part + {i}, depth + 1)\n        self.save(part * {i}, depth + {i})\n"
        for i in range(kinds)
    )
    table = ", ".join(f"'{i}': Writer.save_{i}" for i in range(kinds))
    save = "    def save(self, part, depth):\n        TABLE[str(type(part))](self, part, depth)\n"
    init = "    def __init__(self):\n        self.written = []\n"
    return f"class Writer:\n{init}{save}{methods}TABLE = {{{table}}}\nWriter().save(input(), 0)\n"


def test_functions_that_call_each_other_by_what_they_are_given() -> None:
    assert steps(traced(dispatched(24))) <= 2.5 * steps(traced(dispatched(12)))


def test_very_many_numbers() -> None:
    assert traced("for i in range(10**30):\n    n = i\nresult = n\n").complete


@pytest.mark.parametrize(
    ("given", "large", "ways"),
    [
        ("x + {}", 100, 12),
        ("nn.Linear(4, {} + 1)(x)", 100, 12),
        ("nn.Linear(4, {} + 1)", 100, 48),
        ("x + {}", 10_000, 48),
    ],
)
def test_functions_of_data_are_read_in_fewer_ways_in_a_large_program(
    given: str, large: int, ways: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What augments data is read for the thirteenth data set together with the twelfth; models lie otherwise each."""
    monkeypatch.setattr("autodist.trace.calls.LARGE", large)
    calls = "".join(f"y{i} = run({given.format(i)})\n" for i in range(60))
    before = "x.relu()\n" * 100
    program = traced(f"{CALLS}{before}from torch import nn\ndef run(v):\n    return torch.atan(v.weight)\n{calls}")
    assert len(named(program, "torch.atan")) == ways
