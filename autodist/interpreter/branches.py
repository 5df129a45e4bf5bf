"""What runs under a condition, or may not run to its end."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property

from autodist import alternatives
from autodist.interpreter.evaluation import Evaluation
from autodist.interpreter.questions import joined, truth
from autodist.spread import RANK
from autodist.values import NOTHING, Scope, Value, union


class Branches(Evaluation):
    """`if`, `try`, `match`, and `x if test else y`."""

    def do_If(self, node: ast.If, scope: Scope) -> bool:
        test = self.eval(node.test, scope)
        self.event("test", node.test, scope, test)
        decided, outcomes = self._decided(node.test, test, scope)
        if decided is not None:
            taken, other = (node.body, node.orelse) if decided else (node.orelse, node.body)
            left = self.block(taken, scope)
            for name in (_flags(taken) | _flags(other)) & scope.names.keys():  # it tells this call from others
                scope.names[name] = _firmly(scope.names[name])
            return left
        return self._fork([node.body, node.orelse], scope, test.spread is RANK, outcomes)

    def _decided(
        self, test: ast.expr, value: Value, scope: Scope
    ) -> tuple[bool | None, tuple[alternatives.Outcomes, alternatives.Outcomes]]:
        """Whether a test is decided, and what is known where it holds and where it does not."""
        holds, fails = alternatives.told(test, scope, self._lately, self._settled)
        known = truth(value, test)
        decided = known if known is not None else alternatives.decided(holds, fails, self._outcomes)
        return decided, ({**self._outcomes, **holds}, {**self._outcomes, **fails})

    @cached_property
    def _settled(self) -> alternatives.Settled:
        return alternatives.settled(self.project.sources)

    def _fork(
        self,
        blocks: Sequence[Sequence[ast.stmt]],
        scope: Scope,
        one_rank: bool = False,
        outcomes: Sequence[alternatives.Outcomes] = (),
    ) -> bool:
        """Run alternatives from one state, and join what they leave. ``outcomes`` tell how tests come out in
        each."""
        start, ends = dict(scope.names), []
        around, known = self._branches, self._outcomes
        self._one_rank += one_rank
        for index, block in enumerate(blocks):
            scope.names = dict(start)
            self._outcomes = outcomes[index] if outcomes else known
            self._branches = (*around, id(block))
            if not self.block(block, scope):
                ends.append(scope.names)
        self._branches, self._outcomes = around, known
        left_on_one_rank = one_rank and len(ends) == 1
        if not left_on_one_rank:
            self._one_rank -= one_rank
        scope.names = joined(ends) if ends else start
        return not ends

    def do_Try(self, node: ast.Try, scope: Scope) -> bool:
        left = self.block(node.body, scope)
        around = self._branches
        after = [] if left else [scope.names]
        start = dict(scope.names)
        for handler in node.handlers:
            scope.names = dict(start)
            self._branches = (*around, id(handler))
            if handler.name:
                scope.names[handler.name] = NOTHING
            if not self.block(handler.body, scope):
                after.append(scope.names)
        self._branches = around
        scope.names = joined(after) if after else start
        if not left:
            left = self.block(node.orelse, scope)
        return self.block(node.finalbody, scope) or not after

    do_TryStar = do_Try

    def do_Match(self, node: ast.Match, scope: Scope) -> bool:
        self.eval(node.subject, scope)
        return self._fork([case.body for case in node.cases] + [[]], scope)

    def of_IfExp(self, node: ast.IfExp, scope: Scope) -> Value:
        test = self.eval(node.test, scope)
        self.event("test", node.test, scope, test)
        decided, outcomes = self._decided(node.test, test, scope)
        if decided is not None:
            return _firmly(self.eval(node.body if decided else node.orelse, scope))
        known, parts = self._outcomes, list[Value]()
        self._one_rank += test.spread is RANK
        for part, self._outcomes in zip((node.body, node.orelse), outcomes, strict=True):
            parts.append(self.eval(part, scope))
        self._one_rank -= test.spread is RANK
        self._outcomes, result = known, union(parts)
        return result.but(spread=RANK) if test.spread is RANK else result


def _flags(block: Sequence[ast.stmt]) -> set[str]:
    """Names that a block sets to yes or no: `training = False`."""
    stores = [each for each in block if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)]
    flags = [each for each in stores if isinstance(each.value, ast.Constant) and isinstance(each.value.value, bool)]
    return {target.id for each in flags for target in each.targets if isinstance(target, ast.Name)}


def _firmly(value: Value) -> Value:
    return value.but(firm=True) if isinstance(value.const, bool) else value
