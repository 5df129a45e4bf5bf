"""Tensors with all of the data, and batches that are made elsewhere: where a rank takes its share of them."""

from __future__ import annotations

import ast

from autodist.interpreter.contents import Contents
from autodist.source import Source, last_name
from autodist.spread import LOCAL
from autodist.values import NOTHING, UNKNOWN, Draw, Items, Scope, Stream, Value, of, union


class WholeData(Contents):
    """Where ranks take their shares of what no loader hands out."""

    def _shared_out(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """A rank's share of what a step is given, where the plan has it take one."""
        if node in self.plan.batches:
            return self._dealt_out(node, value, scope)
        if node not in self.plan.taken or not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            return value
        columns, count = node in self.plan.columns, node in self.plan.counts
        even = count and bool(self.plan.batches) and not self.plan.wholes and not self.plan.columns
        derived = not count and _derives_by(node, scope.source)
        draw = Draw(node, scope.source, (), whole=True, columns=columns, count=count, batch=even, derived=derived)
        self.event("whole", node, scope, of(draw))
        return value.but(spread=LOCAL, origins=value.origins | {draw}, const=UNKNOWN)

    def _dealt_out(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """This rank's rows of a batch that the script makes elsewhere, or of each that it iterates over."""
        parent = scope.source.parents.get(node)
        over = parent if isinstance(parent, ast.Call) else node
        loop = scope.source.parents.get(over)
        stream = any(isinstance(each, (ast.For, ast.AsyncFor)) and each.iter in (node, over) for each in (parent, loop))
        batch = self._element(value, node) if stream else value
        nested = _is_unpacked(parent, loop) or any(isinstance(each, Items) and each.parts for each in batch.things)
        draw = Draw(node, scope.source, (), whole=True, batch=True, stream=stream, nested=nested)
        self.event("dealt_out", node, scope, of(draw))
        shared = self._rows_of(batch, draw, node)
        return of(Stream(shared, NOTHING)) if stream else shared

    def _rows_of(self, value: Value, draw: Draw, node: ast.expr, at: tuple[int, ...] = ()) -> Value:
        """Tensors of a batch as this rank's rows of them."""
        tuples = [t for t in value.things if isinstance(t, Items) and t.parts]
        if not tuples:
            return Value(spread=LOCAL, origins=frozenset([draw]))
        items = self._remember(node, lambda: Items(node, [], NOTHING), ("rows", *at))
        count = max(len(each.parts) for each in tuples)
        parts = [union(each.parts[i] for each in tuples if i < len(each.parts)) for i in range(count)]
        items.parts = [self._rows_of(part, draw, node, (*at, i)) for i, part in enumerate(parts)]
        return of(items)


def _is_unpacked(*around: ast.AST | None) -> bool:
    """Whether a batch is taken apart where a step gets it: `for (x,) in loader`, `x, y = next(batches)`"""
    targets = [each.target for each in around if isinstance(each, (ast.For, ast.AsyncFor))]
    targets += [target for each in around if isinstance(each, ast.Assign) for target in each.targets]
    return any(isinstance(each, (ast.Tuple, ast.List)) for each in targets)


def _derives_by(node: ast.expr, source: Source) -> bool:
    """`torch.autograd.grad(u, x, ...)`, or by each of `[x, t]`."""
    parent = source.parents.get(node)
    around = source.parents.get(parent) if isinstance(parent, (ast.List, ast.Tuple)) else parent
    call = source.parents.get(around) if isinstance(around, ast.keyword) else around
    if not isinstance(call, ast.Call) or last_name(call.func) != "grad":
        return False
    inputs = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "inputs")]
    return any(each is node or each is parent for each in inputs)
