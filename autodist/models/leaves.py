"""Tensors of a script's own that gradients flow to: parameters that it trains, or data that a loss is derived by."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autodist.interpreter import Interpreter
from autodist.values import NOTHING, Items, Object, Table, Thing, Value

CHANGED_BY = frozenset("grad data copy_ add_ sub_ mul_ div_ clamp_ fill_ zero_ uniform_ normal_".split())
"""What is asked of a tensor that is trained: its gradient, or to change in place."""
MOST = 2000


def derived_by(run: Interpreter) -> frozenset[int]:
    """The calls that make tensors with `requires_grad=True` which nothing trains: `torch.autograd.grad(u, x)` derives
    a loss by them, and they are data like any other, as the points of a physics-informed network are."""
    leaves = {leaf for value in run.values.values() for leaf in value.objects("parameter") if _is_written(leaf)}
    if not leaves:
        return frozenset()
    trained = set[Thing]()
    for node, value in run.values.items():
        if isinstance(node, (ast.Attribute, ast.Subscript)) and _changes(node):
            trained |= set(run.values.get(node.value, NOTHING).things)
        for made in (t for t in value.things if isinstance(t, Object) and not t.roles & {"dataset", "loader"}):
            trained |= _held([*made.args, *made.keywords.values()])
            trained |= _held(made.attributes.values()) if "module" in made.roles else set()
    for event in run.of("own_step"):
        trained |= set(event.value.things)
    for source in {leaf.source for leaf in leaves}:
        for each in ast.walk(source.tree):
            if isinstance(each, ast.AugAssign):
                trained |= set(run.values.get(each.target, NOTHING).things)
    return frozenset(id(leaf.node) for leaf in leaves - trained)


def _changes(node: ast.Attribute | ast.Subscript) -> bool:
    """`w.data`, `w.grad`, `w[0] = 1`."""
    return isinstance(node, ast.Attribute) and node.attr in CHANGED_BY or not isinstance(node.ctx, ast.Load)


def _is_written(leaf: Object) -> bool:
    """`torch.tensor(x, requires_grad=True)`, not `nn.Parameter(x)`."""
    return any(keyword.arg == "requires_grad" for keyword in leaf.node.keywords) and not leaf.name.endswith("Parameter")


def _held(values: Iterable[Value]) -> set[Thing]:
    """What values are, and what is in those that are containers."""
    found, pending = set[Thing](), list(values)
    for _ in range(MOST):
        if not pending:
            break
        for thing in pending.pop().things - found:
            found.add(thing)
            if isinstance(thing, Items):
                pending += [*thing.parts, thing.element]
            elif isinstance(thing, Table):
                pending += [*thing.entries.values(), thing.element]
    return found
