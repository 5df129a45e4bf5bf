"""Losses that take the samples of a batch one by one, and go by what number each has there: a rank counts its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autodist.interpreter import Interpreter, Loop
from autodist.losses import rounds
from autodist.script import Site
from autodist.source import Source, last_name, walk
from autodist.values import NOTHING, Function, Items

BINDING = (ast.Assign, ast.AugAssign, ast.AnnAssign)


def used(run: Interpreter) -> Iterator[Site]:
    """Where the number of a sample in its batch says more than which sample it is: `loss += 0.9**i * f(out[i], y[i])`,
    `weights[i]`, `y[i - 1]`, `if i > 0:`."""
    if run.plan.wholes is not None:
        return
    for loop in _loops(run):
        assert loop.through is not None
        rows = _Rows(rounds.body_of(loop.through, loop.source), loop.source, run)
        yield from rows.used(rounds.numbers(loop.through))


def _loops(run: Interpreter) -> list[Loop]:
    """Those over a rank's samples, within the steps of training."""
    found: dict[ast.AST, Loop] = {}
    for event in run.events:
        if not event.grad or event.on_one_rank:
            continue
        for at, loop in enumerate(event.loops):
            if loop.node in found or not (loop.by_row and loop.certain) or loop.through is None:
                continue
            within = any(each.node in run.step_loops for each in event.loops[:at])
            all_ranks = any(each in run.plan.gathered for each in walk(loop.through.iter))  # it numbers the rows of all
            if within and loop.through.iter not in run.plan.turns and not all_ranks:
                found[loop.node] = loop
    return list(found.values())


@dataclass(frozen=True)
class _Rows:
    """What computes with one row: the body of a loop, or that of a function which it hands the number to."""

    body: list[ast.AST]
    source: Source
    run: Interpreter
    known: frozenset[tuple[ast.AST, str]] = frozenset()
    """The functions that have led here, and what they call the number."""

    def used(self, names: frozenset[str]) -> Iterator[Site]:
        """The first such use."""
        for _ in self.body if names else ():  # what is computed from numbers is known after as many rounds at most
            names, before = names | self._derived(names), names
            if names == before:
                break
        for node in self._others(names):
            if self._bears(node):
                yield Site(self.source, node)
                return
        for function, name in self._handed_on(names):
            if (function.node, name) not in self.known:
                body = function.node.body
                inner: list[ast.AST] = [*body] if isinstance(body, list) else [body]
                known = self.known | {(function.node, name)}
                for found in _Rows(inner, function.source, self.run, known).used(frozenset({name})):
                    yield found
                    return

    def _reads(self, names: frozenset[str]) -> Iterator[ast.Name]:
        for node in (each for part in self.body for each in ast.walk(part)):
            if isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
                yield node

    def _others(self, names: frozenset[str]) -> Iterator[ast.Name]:
        """Where the numbers are read, and not to take a sample."""
        for node in self._reads(names):
            takes = _takes_sample(node, self.source, self.run) and not _is_moved(node, self.body)
            if not takes and not _is_shown(node, self.source) and self._call(node) is None:
                yield node

    def _handed_on(self, names: frozenset[str]) -> Iterator[tuple[Function, str]]:
        """The functions that are given a number, and what they call it."""
        for node in self._reads(names):
            if (call := self._call(node)) is not None:
                for function in self._functions(call):
                    yield from ((function, each) for each in function.parameters if function.given(call, each) is node)

    def _call(self, name: ast.Name) -> ast.Call | None:
        """That which gives a number to functions of the project, unless they make another number of it."""
        above = self.source.parents.get(name)
        above = self.source.parents.get(above) if isinstance(above, ast.keyword) else above
        if not isinstance(above, ast.Call) or name is above.func:
            return None
        functions = self._functions(above)
        takes = [any(each.given(above, name_) is name for name_ in each.parameters) for each in functions]
        made = self.run.values.get(above, NOTHING)
        counts = any(map(_gives, functions)) and not (made.spread.is_local or made.origins)
        return above if takes and all(takes) and not counts else None

    def _functions(self, call: ast.Call) -> list[Function]:
        return self.run.values.get(call.func, NOTHING).functions

    def _derived(self, names: frozenset[str]) -> frozenset[str]:
        """Names of what is computed from numbers alone: `factor = 0.9**i`."""
        read = {self.source.statement(each) for each in self._others(names)}
        bound = [each for each in read if isinstance(each, ast.Assign) and not self._is_of_sample(each.value)]
        return frozenset(t.id for each in bound for t in each.targets if isinstance(t, ast.Name))

    def _bears(self, name: ast.Name) -> bool:
        """Whether losses go by it: it is part of a term, or decides about one."""
        for above in self.source.ancestors(name):
            if above in self.body and isinstance(above, ast.expr):
                return self._is_of_sample(above)  # of a comprehension
            if isinstance(above, ast.IfExp) and name in ast.walk(above.test):
                return self._is_of_sample(above.body) != self._is_of_sample(above.orelse)
            if isinstance(above, (ast.If, ast.While)) and name in ast.walk(above.test):
                return self._decides(above)
            if isinstance(above, ast.Expr):  # `writer.add_scalar("loss", term, step + i)` is only shown
                return self._grows(above.value)
            if isinstance(above, ast.stmt):
                value = above.value if isinstance(above, (*BINDING, ast.Return)) else None
                return value is not None and any(self._is_of_sample(each) for each in ast.walk(value))
        return False

    def _decides(self, branch: ast.If | ast.While) -> bool:
        """Whether a condition leaves terms out, rather than say how the first is begun: `if i == 0: loss = term`."""
        learns = [
            any(self._grows(each) for part in block for each in ast.walk(part))
            for block in (branch.body, branch.orelse)
        ]
        if any(
            isinstance(each, (ast.Continue, ast.Break, ast.Return)) for part in branch.body for each in ast.walk(part)
        ):
            return any(self._grows(each) for part in self.body for each in ast.walk(part))
        return learns[0] != learns[1]

    def _grows(self, node: ast.AST) -> bool:
        """Whether it keeps or adds up what is computed from samples."""
        if isinstance(node, (*BINDING, ast.Return)):
            return node.value is not None and self._is_of_sample(node.value)
        added = isinstance(node, ast.Call) and last_name(node.func) in rounds.GROWING
        return added and isinstance(node, ast.Call) and any(map(self._is_of_sample, node.args))

    def _is_of_sample(self, node: ast.AST) -> bool:
        """Whether gradients flow from it; in a function, whether it is computed from samples: its result may be what
        they flow through."""
        value = self.run.values.get(node, NOTHING) if isinstance(node, ast.expr) else NOTHING
        return value.spread.is_local and (bool(value.models) or bool(self.known))


def _gives(function: Function) -> bool:
    if isinstance(function.node, ast.Lambda):
        return True
    return any(isinstance(each, ast.Return) and each.value is not None for each in ast.walk(function.node))


def _is_moved(name: ast.Name, body: list[ast.AST]) -> bool:
    """Whether it is that of another sample: `j = (i + 1) % n`. What is multiplied may number the places in each."""
    made = [
        each.value for part in body for each in ast.walk(part) if isinstance(each, ast.Assign) and _binds(each, name)
    ]
    sums = [[n.op for n in ast.walk(each) if isinstance(n, ast.BinOp)] for each in made]
    return any(ops and all(isinstance(op, (ast.Add, ast.Sub, ast.Mod)) for op in ops) for ops in sums)


def _binds(statement: ast.Assign, name: ast.Name) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name.id for each in statement.targets)


def _takes_sample(name: ast.Name, source: Source, run: Interpreter) -> bool:
    """`i` of `out[i]`, `out[i, :n]`, `out[i : i + 1]`, and of what is written to its place"""
    index: ast.AST = name
    above = source.parents.get(index)
    while isinstance(above, ast.BinOp):
        index, above = above, source.parents.get(above)
    if isinstance(above, ast.Slice):
        lower = above.lower
        times = isinstance(lower, ast.BinOp) and isinstance(lower.op, ast.Mult)  # `out[2 * i : 2 * i + 2]`
        if not times and not (isinstance(lower, ast.Name) and lower.id == name.id):
            return False
        index, above = above, source.parents.get(above)
    elif index is not name:
        return False
    if isinstance(above, ast.Tuple) and above.elts[0] is index:
        index, above = above, source.parents.get(above)
    if not isinstance(above, ast.Subscript) or above.slice is not index:
        return False
    held = run.values.get(above.value, NOTHING)
    inside = [part for t in held.things if isinstance(t, Items) for part in (*t.parts, t.element)]
    listed = any(part.spread.is_local or part.origins for part in inside)
    return not isinstance(above.ctx, ast.Load) or held.spread.is_local or listed or bool(held.origins)


def _is_shown(name: ast.Name, source: Source) -> bool:
    for above in source.ancestors(name):
        if isinstance(above, (ast.stmt, ast.comprehension)):
            break
        if isinstance(above, ast.JoinedStr) or isinstance(above, ast.Call) and last_name(above.func) in rounds.SHOWING:
            return True
    return False
