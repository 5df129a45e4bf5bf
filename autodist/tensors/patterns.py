"""What `einops` makes of the axis that the ranks share out, as its patterns tell: `rearrange(x, "b n d -> 1 b (n d)")`.

A word stands for an axis, and brackets for one that several are joined to.
"""

from __future__ import annotations

import ast

from autodist.spread import COLUMNS, CROSS, LOCAL, MEAN, ROWS, SUM, Spread

REARRANGING = frozenset("rearrange reduce repeat".split())
BATCH = frozenset("b B bs batch batch_size".split())
"""What the samples are called where several axes are joined, of which the first may be another one."""


def moved(name: str, call: ast.Call, spread: Spread) -> Spread | None:
    """Where the samples of a tensor lie after a call of `einops`; None for one of another library."""
    written = call.args[1] if name in REARRANGING and len(call.args) > 1 else None
    text = written.value if isinstance(written, ast.Constant) and isinstance(written.value, str) else ""
    taken, arrow, left = text.partition("->")
    if not arrow or spread not in (ROWS, COLUMNS):
        return None
    before, after = _axes(taken), _axes(left)
    at = 0 if spread is ROWS else 1
    if at >= len(before) or ["..."] in before[: at + 1] or not before[at]:
        return LOCAL
    words = before[at]
    word = next((each for each in words if each in BATCH), words[0])
    found = next((index for index, axis in enumerate(after) if word in axis), None)
    if found is None:
        ways = {"mean": MEAN, "sum": SUM}
        way = call.args[2] if name == "reduce" and len(call.args) > 2 else None
        return ways.get(str(way.value), LOCAL) if isinstance(way, ast.Constant) else LOCAL
    if ["..."] in after[: found + 1]:
        return LOCAL
    # moved on from the second axis, the samples are a sequence: `rearrange(q, "b n (h d) -> b h n d")`
    return {0: ROWS, 1: COLUMNS}.get(found, LOCAL if spread is ROWS else CROSS)


def _axes(side: str) -> list[list[str]]:
    """The words of each axis: `b (h w) c` has three of them."""
    found: list[list[str]] = []
    inside = False
    for word in side.replace("(", " ( ").replace(")", " ) ").split():
        if word in "()":
            inside = word == "("
            if inside:
                found.append([])
        elif inside:
            found[-1].append(word)
        else:
            found.append([word])
    return found
