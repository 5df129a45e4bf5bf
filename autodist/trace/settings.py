"""Settings that decide over several branches of a script, which go together: what was made where `args.net` is "lstm"
is not there where it is another one."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TypeAlias

from autodist.program import Operation, Region, Value
from autodist.project import Project
from autodist.source import Source, walk

Outcomes: TypeAlias = Mapping[str, bool]
PLAIN = (ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.expr_context, ast.cmpop)
BINDING = ("setattr", "delattr", "exec", "globals", "locals")
"""What binds names and attributes that are not spelled out."""
OPPOSITE: Mapping[type[ast.cmpop], type[ast.cmpop]] = {ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.NotIn: ast.In}


class Settings:
    """How tests of settings come out in branches."""

    def __init__(self, project: Project) -> None:
        self._sources, self._told = project.sources, dict[Region, Outcomes]()

    def of(self, regions: Iterable[Region]) -> Outcomes:
        """The tests that surely hold where one is in all of some regions, or surely do not, and which of them do."""
        found: dict[str, bool] = {}
        for each in (region for region in regions if region.kind == "branch"):
            if each not in self._told:
                self._told[each] = self._of_branch(each)
            found |= self._told[each]
        return found

    def of_operation(self, operation: Operation) -> Outcomes:
        """The same where an operation is run, whichever way leads there."""
        inner: list[Region] = []
        for each in operation.region.around():
            inner.append(each)
            if each.others:
                break
        return self.of(inner)

    def possible(self, value: Value, guards: Iterable[Region]) -> Value:
        """What a value may be between some guards, of what was made in other branches."""
        here = self.of(guards) if len(value.things) + len(value.operations) > 1 else {}
        if not here:
            return value

        def may_be(there: Outcomes) -> bool:
            return all(here.get(test, holds) is holds for test, holds in there.items())

        things = frozenset(each for each in value.things if may_be(self.of(getattr(each, "guards", ()))))
        made = frozenset(each for each in value.operations if may_be(self.of_operation(each)))
        return replace(value, things=things, operations=made) if things or made else value

    def _of_branch(self, region: Region) -> Outcomes:
        branch = region.source.parents.get(region.node)
        if isinstance(branch, ast.If):
            return self._outcomes(branch.test, region.node in branch.body, region.source)
        if isinstance(branch, ast.IfExp):
            return self._outcomes(branch.test, region.node is branch.body, region.source)
        return {}

    def _outcomes(self, test: ast.expr, holds: bool, source: Source) -> Outcomes:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._outcomes(test.operand, not holds, source)
        if isinstance(test, ast.BoolOp):
            if isinstance(test.op, ast.And) is not holds:
                return {}
            return {each: out for part in test.values for each, out in self._outcomes(part, holds, source).items()}
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and (op := OPPOSITE.get(type(test.ops[0]))) is not None:
            test, holds = ast.Compare(test.left, [op()], test.comparators), not holds
        return {f"{source.path}: {ast.unparse(test)}": holds} if self._is_settled(test, source) else {}

    def _is_settled(self, test: ast.expr, source: Source) -> bool:
        """Whether a test is of names that the module binds once, and of attributes that nothing binds."""
        nodes = [*walk(test)]
        names = [each.id for each in nodes if isinstance(each, ast.Name)]
        told = all(isinstance(each, PLAIN) for each in nodes)
        once = all(self._bound[source, name] == 1 and self._at_top[source, name] == 1 for name in names)
        attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
        return told and bool(names) and once and not self._is_opaque and attributes.isdisjoint(self._stored)

    @cached_property
    def _bound(self) -> Counter[tuple[Source, str]]:
        """How often names are bound in each file, wherever."""
        return Counter((source, name) for source in self._sources for name in _bound_in(walk(source.tree)))

    @cached_property
    def _at_top(self) -> Counter[tuple[Source, str]]:
        plain = (
            (source, each) for source in self._sources for each in source.tree.body if isinstance(each, ast.Assign)
        )
        return Counter((source, name) for source, each in plain for name in _bound_in(walk(each)))

    @cached_property
    def _is_opaque(self) -> bool:
        """Whether attributes or names may be bound by others than assignments."""
        nodes = (each for source in self._sources for each in walk(source.tree))
        return any(isinstance(each, ast.Name) and each.id in BINDING for each in nodes)

    @cached_property
    def _stored(self) -> frozenset[str]:
        """The attributes that are bound anywhere."""
        nodes = (each for source in self._sources for each in walk(source.tree))
        return frozenset(e.attr for e in nodes if isinstance(e, ast.Attribute) and not isinstance(e.ctx, ast.Load))


def _bound_in(nodes: Iterable[ast.AST]) -> Iterable[str]:
    for each in nodes:
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            yield each.id
        elif isinstance(each, ast.arg):
            yield each.arg
        elif isinstance(each, (ast.Global, ast.Nonlocal)):
            yield from each.names
