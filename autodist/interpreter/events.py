"""What a run leaves behind: what the script does, where, and under which circumstances."""

from __future__ import annotations

import ast
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
