"""What parts of a module compute through a forward pass, and which of that comes to what it returns."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from autodist.models.reading import has_no_gradient, is_own
from autodist.values import Object

MOST_SETTINGS = 6
"""Of more settings within one forward pass, not all combinations are looked at."""
LAST = " in the last turn"
Flow = dict[str, frozenset[str]]
"""What each local variable was computed by: names of parts."""


def is_table(thing: Object) -> bool:
    return thing.name == "torch.nn.Embedding" or "parameter" in thing.roles


class Forward:
    """Follows what parts compute through a forward pass, the settings of the module being known."""

    def __init__(
        self,
        parts: dict[str, frozenset[str]],
        settings: dict[str, bool],
        kept: set[int] | None = None,
        learns: bool = False,
        unread: Collection[str] = (),
    ) -> None:
        """``parts`` tells which part an attribute stands for; a method stands for all that it reads. Of several outputs
        ``kept`` are the places of those that are read, if not all are. With ``learns``, only what gradients come back
        to has a say. What is kept under ``unread`` names has none."""
        self._unread = unread
        self._learns = learns
        self._own = parts
        self._settings = settings
        self._kept = kept
        self._used: set[str] = set()
        self._in_last_turn = False
        self.last: set[str] = set()
        """The parts of the last turns of loops, each marked as such."""

    def used(self, forward: ast.FunctionDef) -> set[str]:
        """The parts that have a say in what is returned, or kept in another way."""
        self._block(forward.body, {})
        return self._used

    def _block(self, body: Iterable[ast.stmt], flow: Flow) -> bool:
        """Whether the end of the block is reached."""
        return all(self._statement(statement, flow) for statement in body)

    def _statement(self, node: ast.stmt, flow: Flow) -> bool:
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            self._assign(node, flow)
        elif isinstance(node, ast.If):
            return self._if(node, flow)
        elif isinstance(node, (ast.For, ast.While)):
            for _ in range(2):  # what a round computes may reach the next
                round_ = dict(flow)
                if isinstance(node, ast.For):
                    self._bind(node.target, self._parts(node.iter, flow), round_, adds=True)
                self._block(node.body, round_)
                _join(flow, round_)
            self._last_turn(node, flow)
            self._block(node.orelse, flow)
        elif isinstance(node, ast.With):
            return self._block(node.body, flow)
        elif isinstance(node, ast.Return) and self._kept is not None:
            outputs = getattr(node.value, "values" if isinstance(node.value, ast.Dict) else "elts", [node.value])
            few = [each for at, each in enumerate(outputs) if at in self._kept or len(outputs) == 1]
            self._used |= frozenset().union(*(self._parts(each, flow) for each in few if each is not None))
        else:  # a result, or a call whose effects are not followed
            self._used |= self._parts(node, flow)
        return not isinstance(node, (ast.Return, ast.Raise, ast.Continue, ast.Break))

    def _last_turn(self, node: ast.For | ast.While, flow: Flow) -> None:
        """What is read after the loop of what its last turn computes."""
        outer, self._in_last_turn = self._in_last_turn, True
        last = dict(flow)
        if isinstance(node, ast.For):
            self._bind(node.target, self._parts(node.iter, flow), last, adds=False)
        self._block(node.body, last)
        self._in_last_turn = outer
        _join(flow, last)

    def _if(self, node: ast.If, flow: Flow) -> bool:
        decided = self._decided(node.test)
        if decided is not None:
            return self._block(node.body if decided else node.orelse, flow)
        other = dict(flow)
        ends = self._block(node.body, flow), self._block(node.orelse, other)
        if not ends[0]:
            flow.clear()
        if ends[1] or not ends[0]:
            _join(flow, other)
        return any(ends)

    def _assign(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign, flow: Flow) -> None:
        found = self._parts(node.value, flow) if node.value is not None else frozenset()
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self._bind(target, found, flow, adds=isinstance(node, ast.AugAssign))

    def _bind(self, target: ast.expr, found: frozenset[str], flow: Flow, adds: bool) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            for each in target.elts:
                self._bind(each, found, flow, adds)
        elif isinstance(target, ast.Name):
            flow[target.id] = found | (flow.get(target.id, frozenset()) if adds else frozenset())
        elif not (is_own(target) and target.attr in self._unread):
            self._used |= found

    def _decided(self, test: ast.expr) -> bool | None:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            decided = self._decided(test.operand)
            return None if decided is None else not decided
        if isinstance(test, ast.BoolOp):
            each = [self._decided(value) for value in test.values]
            stop = isinstance(test.op, ast.Or)
            return stop if stop in each else None if None in each else not stop
        return self._settings.get(ast.unparse(test))

    def _parts(self, node: ast.AST, flow: Flow) -> frozenset[str]:
        """The parts that an expression is computed by."""
        if self._learns and has_no_gradient(node):
            return frozenset()
        if isinstance(node, ast.Name):
            return flow.get(node.id, frozenset())
        if isinstance(node, ast.IfExp):
            decided = self._decided(node.test)
            arms = [node.body, node.orelse] if decided is None else [node.body if decided else node.orelse]
            return frozenset().union(*(self._parts(arm, flow) for arm in arms))
        own = self._own.get(node.attr, frozenset()) if is_own(node) else frozenset()
        if self._in_last_turn:
            own = frozenset(f"{name}{LAST}" for name in own)
            self.last |= own
        return own.union(*(self._parts(child, flow) for child in ast.iter_child_nodes(node)))


def _join(flow: Flow, other: Flow) -> None:
    for name, found in other.items():
        flow[name] = flow.get(name, frozenset()) | found
