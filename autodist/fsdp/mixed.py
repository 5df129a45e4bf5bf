"""Whole tensors that meet the shards of a parameter: torch computes with one or the other, never with both at once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autodist import tensors
from autodist.fsdp.restored import is_loaded
from autodist.fsdp.weights import COMPUTING, sharded_keys, sharded_reads, uses
from autodist.interpreter import Interpreter
from autodist.models import Keys, keys, unwrapped
from autodist.script import Model, Site
from autodist.source import Source, walk
from autodist.values import NOTHING, External, Parameters, of

CHANGING = frozenset("copy_ add_ sub_ mul_ div_ lerp_ masked_fill_".split())
"""Methods that change a tensor by another one of its shape."""
MAKING = frozenset(
    "randn rand randint normal ones zeros full eye arange linspace empty from_numpy diag tril triu".split()
)
"""Functions of torch that make a tensor with axes, if they are not given a shard."""
DEPTH = 8
"""Names that stand for what other names stand for."""


def mixed(run: Interpreter, models: list[Model]) -> Iterator[tuple[Site, str]]:
    """Whole tensors that a step computes with beside shards outside of models, each with what cuts it: `cut_like({},
    p.data)`. Gradients do not flow through that."""
    wholes = wholes_of(run, models)
    for node in sharded_reads(run, models):
        source = run.sources[node]
        sharded = _data_of(node, source)
        if not wholes.is_sharded(node) or sharded is None:
            continue
        changed, beside = _beside(sharded, source)
        for other in beside:
            found = wholes.is_whole(other, source) or is_loaded(other, source, run)
            if found and (changed or other not in run.flowing):
                given = "{}.detach()" if other in run.flowing else "{}"
                yield Site(source, other), f"cut_like({given}, {source.code(sharded)})"

    for node, state in _states(run, wholes.ours):
        _, beside = _beside(node, state)
        for other in beside:
            if is_loaded(other, state, run) or wholes.is_whole(other, state):
                yield Site(state, other), f"cut_like({{}}, {state.code(node)})"


def _states(run: Interpreter, ours: Keys) -> Iterator[tuple[ast.Subscript, Source]]:
    """Tensors of the states of sharded models: `own_state[name]` of `own_state = model.state_dict()`"""
    taken = {event.node for event in run.of("model_state_dict") if keys(unwrapped(event.value)) & ours}
    for node in list(run.values) if taken else ():
        if isinstance(node, ast.Subscript):
            states = run.values.get(node.value, NOTHING).objects("state")
            if any(state.node in taken for state in states):
                yield node, run.sources[node]


def wholes_of(run: Interpreter, models: list[Model]) -> Wholes:
    """What is known of the tensors of a run."""
    ours = sharded_keys(run, models)
    return Wholes(run, ours, frozenset(use.site.node for use in uses(run, models) if use.number is None))


def _data_of(node: ast.expr, source: Source) -> ast.expr | None:
    """A parameter with its `.data` or `.grad`."""
    *_, longest = (node, *_longer(node, source))
    return longest if isinstance(longest, (ast.Name, ast.Attribute, ast.Subscript)) else None


def _beside(sharded: ast.expr, source: Source) -> tuple[bool, list[ast.expr]]:
    """Whether an operation changes the shards, and what it takes beside them: `p.data.mul_(mask)`, `p.grad += noise`,
    `p * mask`"""
    parent = source.parents.get(sharded)
    call = source.parents.get(parent) if isinstance(parent, ast.Attribute) else None
    if isinstance(parent, ast.Attribute) and isinstance(call, ast.Call) and call.func is parent:
        return True, call.args[:1] if parent.attr in CHANGING else []
    if isinstance(parent, ast.AugAssign) and parent.target is sharded:
        return True, [parent.value]
    if isinstance(parent, ast.BinOp) and not isinstance(parent.op, ast.MatMult):
        return False, [parent.right if parent.left is sharded else parent.left]
    return False, []


@dataclass(frozen=True)
class Wholes:
    """What is known of tensors: those of ``ours`` are shards, but for what is ``gathered``."""

    run: Interpreter
    ours: Keys
    gathered: frozenset[ast.AST]

    def is_sharded(self, node: ast.expr) -> bool:
        things = self.run.values.get(node, NOTHING).things
        held = (t.module for t in things if isinstance(t, Parameters) and t.one)
        if not any(keys(unwrapped(of(module))) & self.ours for module in held):
            return False
        source = self.run.sources[node]
        return not any(each in self.gathered for each in (*walk(node), *_longer(node, source)))

    def is_whole(self, node: ast.expr, source: Source, depth: int = DEPTH) -> bool:
        """Whether an expression is certainly a tensor with axes, and no shard."""
        if node in self.gathered:
            return True
        match node:
            case ast.BinOp(left=left, right=right):
                sharded = not isinstance(node.op, ast.MatMult) and (self.is_sharded(left) or self.is_sharded(right))
                return not sharded and (self.is_whole(left, source, depth) or self.is_whole(right, source, depth))
            case ast.Compare(left=left, comparators=[right]):
                sharded = self.is_sharded(left) or self.is_sharded(right)
                return not sharded and (self.is_whole(left, source, depth) or self.is_whole(right, source, depth))
            case ast.UnaryOp(operand=operand):
                return self.is_whole(operand, source, depth)
            case ast.Attribute(value=value, attr="T" | "mT" | "data"):
                return self.is_whole(value, source, depth)
            case ast.Subscript(value=value, slice=ast.Slice()):
                return self.is_whole(value, source, depth)
            case ast.Call():
                return self._is_made_whole(node, source, depth)
            case ast.Name(id=name) if depth and not self.is_sharded(node):
                bound = list(_bound(name, source.home(node)))
                return bool(bound) and all(self.is_whole(each, source, depth - 1) for each in bound)
        return False

    def _is_made_whole(self, call: ast.Call, source: Source, depth: int) -> bool:
        names = [t.name for t in self.run.values.get(call.func, NOTHING).things if isinstance(t, External)]
        if names:
            library, _, name = names[0].rpartition(".")
            if library not in COMPUTING or tensors.reduces(name, call, 1):
                return False
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            if any(self.is_sharded(each) for each in given):
                return False
            return name in MAKING and bool(given) or any(self.is_whole(each, source, depth) for each in given)
        if not isinstance(call.func, ast.Attribute) or tensors.reduces(call.func.attr, call, 0):
            return False
        return call.func.attr not in ("item", "tolist", "numpy") and self.is_whole(call.func.value, source, depth)


def _longer(node: ast.expr, source: Source) -> Iterator[ast.expr]:
    """`p.data` and `p.grad.data` of a name `p`."""
    parent = source.parents.get(node)
    while isinstance(parent, ast.Attribute) and parent.attr in ("data", "grad"):
        yield parent
        parent = source.parents.get(parent)


def _bound(name: str, home: ast.AST) -> Iterator[ast.expr]:
    """What a function or file binds to a name, alone or as one of several: `u, s, v = torch.svd(w)`"""
    for each in walk(home):
        if isinstance(each, ast.Assign):
            targets = [t for target in each.targets for t in getattr(target, "elts", [target])]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                yield each.value
