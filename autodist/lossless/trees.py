"""Makes new lossless trees out of old ones.

LibCST's own ``with_changes`` and transformers check every node they make, and the checks reject spacing that the
parser accepts, as that of ``raise E from(e)``; so nodes are copied here without them. What comes out is parsed anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

import libcst as cst

_Node = TypeVar("_Node", bound=cst.CSTNode)
_SPACE = (cst.BaseParenthesizableWhitespace, cst.TrailingWhitespace, cst.EmptyLine, cst.Newline, cst.Comment)


def changed(node: _Node, **changes: Any) -> _Node:
    """A copy of ``node`` with some of its fields changed."""
    copy: _Node = object.__new__(type(node))
    for name in _fields(type(node)):
        object.__setattr__(copy, name, changes[name] if name in changes else getattr(node, name))
    return copy


def code_of(node: cst.CSTNode) -> str:
    """The code of ``node`` by itself."""
    return cst.Module([]).code_for_node(node)


class Rebuilder:
    """Rebuilds the parts of a tree that something is done to, and no others.

    ``parents`` are the old nodes around the one at hand, outermost first.
    """

    into_space = False
    """Whether whitespace and comments are looked at, too."""

    def __init__(self) -> None:
        self.parents: list[cst.CSTNode] = []

    def enters(self, node: cst.CSTNode) -> bool:
        """Whether something is done to ``node`` or in it."""
        raise NotImplementedError

    def leave(self, old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode | Sequence[cst.CSTNode] | None:
        """What becomes of ``old``, which is ``new`` with all done that is done in it."""
        raise NotImplementedError

    def rebuild(self, node: cst.CSTNode) -> Any:
        """What becomes of ``node``."""
        if (isinstance(node, _SPACE) and not self.into_space) or not self.enters(node):
            return node
        self.parents.append(node)
        changes = {}
        for name in _fields(type(node)):
            value = getattr(node, name)
            if isinstance(value, cst.CSTNode):
                new = self.rebuild(value)
            elif isinstance(value, list | tuple):
                new = self._rebuild_all(value)
            else:
                continue
            if new is not value:
                changes[name] = new
        self.parents.pop()
        return self.leave(node, changed(node, **changes) if changes else node)

    def _rebuild_all(self, nodes: Sequence[Any]) -> Sequence[Any]:
        """What becomes of the nodes in one field; several nodes may come from one."""
        result: list[Any] = []
        for node in nodes:
            new = self.rebuild(node)
            result += new if isinstance(new, list | tuple) else [new]
        same = len(result) == len(nodes) and all(new is old for new, old in zip(result, nodes, strict=True))
        return nodes if same else result


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
