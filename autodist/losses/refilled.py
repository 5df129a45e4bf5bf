"""Tensors that are made once, and into which each batch is put: now a rank's share, now all of one."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist.interpreter import Interpreter
from autodist.script import Site
from autodist.source import Source
from autodist.values import NOTHING, Object

CONVERTING = frozenset("float double half long int to cuda cpu type clone detach contiguous".split())


def refitted(run: Interpreter, shares: Iterable[Site]) -> Iterator[tuple[Site, ast.expr]]:
    """What is refilled, `inputs` of `inputs.data.copy_(batch)`, and the batch whose shape it has to take: where
    ``shares``, the sizes that become a rank's share, shape a tensor into which whole batches are put as well."""
    made = {(s.source, name) for s in shares if (name := _made_once(s)) is not None}
    fills = [found for call in run.sources if (found := _filled(call, run)) is not None]
    for source, name in sorted(made, key=lambda each: (str(each[0].path), each[1])):
        own = [(into, batch) for where, into, batch in fills if where is source and into.id == name]
        if {kind for _, batch in own for kind in _shared(batch, run)} == {True, False}:
            yield from ((Site(source, into), batch) for into, batch in own)


def _made_once(site: Site) -> str | None:
    """The name of what a statement makes that shapes it by a batch size."""
    statement = site.source.statement(site.node)
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    return target.id if isinstance(target, ast.Name) else None


def _filled(call: ast.AST, run: Interpreter) -> tuple[Source, ast.Name, ast.expr] | None:
    """Where a batch is put into all of a tensor that keeps its shape, the tensor's name there, and the batch."""
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or call.func.attr != "copy_":
        return None
    inner, resized = call.func.value, False
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr.endswith("_"):
        resized = resized or inner.func.attr in ("resize_", "resize_as_")
        inner = inner.func.value
    if isinstance(inner, ast.Attribute) and inner.attr == "data":  # whose shape is its own
        inner, resized = inner.value, False
    if not isinstance(inner, ast.Name) or not call.args or resized:
        return None
    return run.sources[call], inner, _unconverted(call.args[0])


def _unconverted(node: ast.expr) -> ast.expr:
    """`batch` of `batch.float()`"""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CONVERTING:
        node = node.func.value
    return node


def _shared(batch: ast.expr, run: Interpreter) -> set[bool]:
    """Whether the loaders that a batch comes from are shared out."""
    value = run.values.get(batch, NOTHING)
    return {run.shares_out(each) for each in value.origins if isinstance(each, Object) and "loader" in each.roles}
