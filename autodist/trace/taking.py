"""What is left in lists of which elements are taken out, or in which these change places."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.program import Operation, Region, closure, held
from autodist.source import walk
from autodist.trace.names import thing
from autodist.trace.things import External, Guards, Sequence

LOADING = ("read", "collate", "worker")
"""Kinds of regions that make batches of samples."""
TAKING = frozenset("pop popleft remove discard delitem".split())
"""What takes an element out of a list."""
MOVING = frozenset("sort sorted reverse reversed rotate shuffle".split())
"""What puts the elements of a list into other places."""


def is_listed(operation: Operation) -> bool:
    """Whether it lists what a tensor has along its first axis, `list(x)`, or gives what is left in such a list."""
    above = closure([operation], lambda op: op.inputs[0].operations if op.name == "getitem" else ())
    return {"builtins.list"} <= {each.name for each in above} <= {"builtins.list", "getitem"}


def change_rest(owner: Sequence, name: str, guards: Guards, region: Region) -> None:
    """Note that the order of all elements tells what is left in a list, or what is where in it. In whichever order a
    loader puts samples together, all of a batch comes from them."""
    around = guards[len(owner.guards) :]
    moves = name in MOVING and not any(each.kind in LOADING for each in region.around())
    if moves or name in TAKING and not any(_goes_through(each, owner) for each in around):
        owner.pick(thing(External(f"builtins.list.{name}")))


def taken_from(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """The lists out of which some code takes elements, and fails where they are empty: `rows` of `rows.pop()`"""
    calls = (each.func for one in body for each in walk(one) if isinstance(each, ast.Call))
    yield from (each.value for each in calls if isinstance(each, ast.Attribute) and each.attr in ("pop", "popleft"))


def _goes_through(loop: Region, owner: Sequence) -> bool:
    """Whether a loop goes on until a list is empty: `while rows`, `for _ in range(len(rows))`"""
    if isinstance(loop.node, ast.While):
        asked = [each for each in walk(loop.node.test) if isinstance(each, ast.Compare)]
        return all(ast.unparse(each.comparators[0]) == "0" for each in asked)
    above = closure(held(loop.subject), lambda op: (each for value in op.operands for each in value.operations))
    given = [loop.subject, *(value for op in above for value in op.operands)]
    return loop.kind == "loop" and any(owner in value.things for value in given)
