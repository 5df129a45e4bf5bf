"""The branches that operations are in, and what parameters there are, or are asked for, in one of their sides alone."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from autodist.program import Operation, Program, Region, Value
from autodist.solve.parameters import LAYERS, Parameters, is_parameter, union, unwrapped
from autodist.source import Source
from autodist.trace.things import Object

SETTING = ("object.", "operator.", "builtins.")
"""Beginnings of the names of operations that give the same of the same settings."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Test = tuple[Hashable, bool]
"""What a branch asks, and which answer leads there."""


@dataclass(frozen=True)
class Branch:
    """One side of a branch: of a test of the mode that steps always pass, or of whether some parameters exist."""

    trains: bool | None = None
    exist: int = 0


@dataclass(frozen=True)
class Rest:
    """What follows on an `if` whose body does not come to its end: `if x is None: return y`."""

    node: ast.If
    source: Source


Side = Region | Rest


class Sides(Parameters):
    """The sides of branches."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._branches: dict[Region, frozenset[Side]] = {}
        self._sides: dict[Side, Branch] = {}
        self._rests: dict[ast.AST, frozenset[Side]] = {}

    def _branches_at(self, op: Operation) -> frozenset[Side]:
        """The branches that an operation is in, whichever way leads there."""
        return self._branches_of(op.region) | self._rest(op.node, op.source)

    def _branches_of(self, region: Region) -> frozenset[Side]:
        found = self._branches.get(region)
        if found is None:
            self._branches[region] = frozenset()
            ways = [self._branches_of(each) for each in (region.parent, *region.others) if each is not None]
            found = frozenset.intersection(*ways) if ways else frozenset()
            found |= {region} if region.kind == "branch" else set()
            found |= self._rest(region.node, region.source) if region.function and not region.others else set()
            self._branches[region] = found
        return found

    def _rest(self, node: ast.AST, source: Source) -> frozenset[Side]:
        """What is left earlier in the blocks around a node, under conditions that are not known."""
        found = self._rests.get(node)
        if found is None:
            rests: set[Side] = set()
            inner = node
            for each in source.ancestors(node):
                if isinstance(inner, FUNCTIONS):
                    break
                if isinstance(inner, ast.stmt):
                    block = source.block(inner)
                    before = block[: block.index(inner)]
                    rests |= {Rest(e, source) for e in before if isinstance(e, ast.If) and self._leaves(e)}
                inner = each
            found = self._rests[node] = frozenset(rests)
        return found

    def _leaves(self, branch: ast.If) -> bool:
        last = branch.body[-1]
        return isinstance(last, (ast.Return, ast.Continue, ast.Break)) and not self._program.at(branch.test).is_constant

    def _tests_around(self, op: Operation) -> Iterator[ast.expr | None]:
        """What decides whether an operation runs, on any way that leads there; None where that cannot be told."""
        calls = [each for each in op.region.everywhere if each.function is not None]
        sides: set[Side] = {each for each in op.region.everywhere if each.kind == "branch"}
        sides |= self._rest(op.node, op.source).union(*(self._rest(each.node, each.source) for each in calls))
        for asked in map(_asked, sides):
            yield asked[0] if asked is not None else None

    def _side(self, side: Side) -> Branch:
        found = self._sides.get(side)
        if found is None:
            asked = _asked(side)
            found = Branch() if asked is None else self._told(side, *asked)
            called = (each for each, places in self._called.items() if all(side in place for place in places))
            found = replace(found, exist=found.exist | union(map(self.parameters, called)))
            self._sides[side] = found
        return found

    def deciding(self, node: ast.AST) -> Iterator[ast.If | ast.IfExp]:
        """The conditions in forward passes by which other parameters are read of the modules made at ``node``."""
        whole = union(map(self.parameters, self._roots.get(node, ())))
        read: dict[ast.If | ast.IfExp, list[int]] = {}
        for op in self._program.operations if whole else ():
            for side in self._branches_at(op) if self._given(op) & whole else ():
                branch = side.node if isinstance(side, Rest) else side.source.parents.get(side.node)
                if isinstance(branch, (ast.If, ast.IfExp)) and self._in_pass(_around(op, side)):
                    body = branch.body[0] if isinstance(branch, ast.If) else branch.body
                    read.setdefault(branch, [0, 0])[side.node is body] |= self._given(op) & whole
        yield from (branch for branch, (beside, inside) in read.items() if beside != inside)

    @cached_property
    def _called(self) -> dict[Object, list[frozenset[Side]]]:
        """The models that steps call, and in which branches they do so."""
        found: dict[Object, list[frozenset[Side]]] = {}
        seen: set[Region] = set()
        for op in self._program.operations:
            if op.region.without_gradients:
                continue
            if isinstance(op.owner, Object) and op.owner.roles & LAYERS and op.name in op.owner.library_names:
                if not self._in_pass(op.region):
                    found.setdefault(op.owner, []).append(self._branches_at(op))
            for each in op.region.around():
                if each.function and isinstance(each.node, ast.Call) and each not in seen:
                    seen.add(each)
                    for model in unwrapped(self._program.at(each.node.func)):
                        if not self._in_pass(each.parent):
                            found.setdefault(model, []).append(self._branches_of(each))
        return found

    def _told(self, side: Side, asked: ast.expr, holds: bool) -> Branch:
        if isinstance(asked, ast.Attribute) and asked.attr == "training":
            return Branch(holds)
        value, key = self._program.at(asked), _key(side, self._program)
        things = [each for each in value.things if isinstance(each, Object) and each.roles & LAYERS]
        found = union(self.parameters(each) for each in things) if holds else 0
        found |= union(self._bit(op) for op in value.operations if holds and is_parameter(op))
        return Branch(exist=found | (self._made_where.get(key, 0) if key is not None else 0))

    @cached_property
    def _made_where(self) -> dict[Test, int]:
        """The parameters of layers that are made on one side of a test."""
        found: dict[Test, int] = {}
        for each in (each for roots in list(self._roots.values()) for each in roots):
            for key in (_key(region, self._program) for region in branching(each.guards)):
                if key is not None:
                    found[key] = found.get(key, 0) | self.parameters(each)
        return found


def _around(op: Operation, side: Side) -> Region | None:
    """The region that a branch of an operation is in."""
    if isinstance(side, Region):
        return side
    home = side.source.function(side.node)
    return next((each for each in op.region.around() if each.function is home), None)


def _asked(side: Side) -> tuple[ast.expr, bool] | None:
    """What decides whether a branch is taken: an expression that is to hold or not, or to be None or not."""
    above = side.node if isinstance(side, Rest) else side.source.parents.get(side.node)
    if not isinstance(above, (ast.If, ast.IfExp)):
        return None
    holds = side.node is (above.body if isinstance(above, ast.IfExp) else above.body[0])
    test = above.test
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, holds = test.operand, not holds
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        if isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None:
            return test.left, holds is isinstance(test.ops[0], (ast.IsNot, ast.NotEq))
        if isinstance(test.ops[0], (ast.NotEq, ast.IsNot, ast.NotIn)):
            holds = not holds
    return test, holds


def _key(side: Side, program: Program) -> Test | None:
    """The same for all branches that ask the same of the same settings; None where it may be something else."""
    asked = _asked(side)
    if asked is None:
        return None
    test, holds = asked
    compared = isinstance(test, ast.Compare)
    first, *others = [test.left, *test.comparators] if isinstance(test, ast.Compare) else [test]
    named = getattr(first, "attr", getattr(first, "id", "")) if not program.at(first).operations else "computed"
    told = tuple(_form(program.at(each)) for each in (first, *others))
    kind = isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.In, ast.NotIn))
    return ((compared, kind, named, told), holds) if named and all(told) else None


def _form(value: Value, depth: int = 4) -> Hashable:
    """What a setting is read from; None where it may be another one in each step."""
    found: list[Hashable] = [*value.constants]
    for op in value.operations:
        inner = tuple(_form(each, depth - 1) for each in op.operands) if depth else (None,)
        if op.name.startswith(SETTING) and all(inner):
            found.append((op.name, inner))
        elif op.region.loops:
            return None
        else:
            found.append(op.number)
    return frozenset(found) if found and not value.things else None


def branching(guards: Iterable[Region]) -> frozenset[Region]:
    return frozenset(each for each in guards if each.kind == "branch")
