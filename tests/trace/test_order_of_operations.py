"""Two runs of one command choose alike where several places are as good: sets of operations have one order."""

from __future__ import annotations

from programs import traced

from autodist.program import held

LINES = """
import torch
flag = input()
""" + "".join(f"if flag == '{each}':\n    x = torch.randn({each}, 4)\n" for each in range(1, 24))


def test_the_same_order_in_each_run() -> None:
    """Operations lie elsewhere in memory each time, which is how Python would order them."""
    text = LINES + "result = [x, x + 1]"
    found, runs = set(), []
    for _ in range(4):
        program = traced(text)
        runs.append(program)  # so that the next one's lie elsewhere
        orders = [tuple(each.number for each in value.operations) for value in program.values.values()]
        orders += [tuple(each.number for each in held(value)) for value in program.values.values()]
        assert any(len(each) > 20 for each in orders)
        found.add(tuple(orders))
    assert len(found) == 1
