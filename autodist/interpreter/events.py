"""What a run leaves behind: what the script does, where, and under which circumstances."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from autodist.source import Source
from autodist.values import NOTHING, Function, Scope, Value


@dataclass(frozen=True)
class Loop:
    """A loop that is being run. `optimizer.step(closure)` is one, where L-BFGS takes its steps outside of any other."""

    node: ast.For | ast.While | ast.AsyncFor | ast.comprehension | ast.Call
    source: Source
    scope: Scope
    function: Function | None
    by_row: bool = False
    """It takes the samples of a batch one by one."""
    certain: bool = False
    """It takes samples, and none of several outputs of a model or fields of a batch."""

    @property
    def through(self) -> ast.For | ast.AsyncFor | ast.comprehension | None:
        """The same, if it goes through something."""
        return None if isinstance(self.node, (ast.While, ast.Call)) else self.node


@dataclass(frozen=True)
class Call_:
    """A call that is being run."""

    node: ast.Call | None
    source: Source
    scope: Scope
    function: Function

    def given(self) -> dict[str, ast.expr]:
        """The expressions that parameters stand for, where the call spells them out."""
        if self.node is None or any(isinstance(each, ast.Starred) for each in self.node.args):
            return {}
        spec = self.function.node.args
        names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        found = dict(zip(names[names[:1] in (["self"], ["cls"]) :], self.node.args, strict=False))
        return found | {keyword.arg: keyword.value for keyword in self.node.keywords if keyword.arg}

    def stands_for(self, name: str, kind: Callable[[ast.expr], bool]) -> bool:
        """Whether a parameter is given an expression of some kind."""
        given = self.given().get(name)
        return given is not None and not isinstance(given, ast.Name) and kind(given)


@dataclass(frozen=True)
class Event:
    """Something that the script does, where, and under which circumstances."""

    kind: str
    order: int
    node: ast.AST
    source: Source
    value: Value
    scope: Scope
    function: Function | None
    loops: tuple[Loop, ...]
    calls: tuple[Call_, ...]
    on_one_rank: bool
    grad: bool
    inside_forward: bool
    detail: Value = NOTHING
