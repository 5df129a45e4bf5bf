"""Gradient accumulation: the backward passes of a window, and which of them is the last one."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from autodist.interpreter import Event, Interpreter
from autodist.models import differentiated, keys, unwrapped
from autodist.script import Deferral, Model, Site
from autodist.solve.learned import learned
from autodist.source import Source, walk
from autodist.values import NOTHING, Object

PURE = (
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.BinOp,
    ast.BoolOp,
    ast.Compare,
    ast.UnaryOp,
    ast.operator,
    ast.boolop,
    ast.cmpop,
    ast.unaryop,
    ast.expr_context,
)
LEAVING = (ast.Break, ast.Continue, ast.Return)


def deferrals(run: Interpreter, models: list[Model], sharded: bool) -> Iterator[Deferral]:
    """Backward passes before which a model is told whether a step follows, so that gradients are reduced once.

    Of a ``sharded`` one, only where each window ends in a pass that reduces them, or what is left of one is carried
    over: gradients that are kept whole are not seen by `zero_grad`, nor by what reads gradients in between. Others are
    told ahead of the forward pass, which prepares for the reduction.
    """
    seen: set[ast.AST] = set()
    for event in run.of("backward"):
        node = event.node
        if node in seen or not isinstance(node, ast.Call):
            continue
        seen.add(node)
        scopes = (ast.For, ast.While, ast.FunctionDef)
        loop = next((a for a in event.source.ancestors(node) if isinstance(a, scopes)), None)
        if not isinstance(loop, (ast.For, ast.While)) or _within("backward", loop, event.source, run) != {node}:
            continue
        target = _target(event, loop, run, models)
        if target is None or not _is_in_any_case(node, loop, event.source):
            continue
        statement = event.source.statement(node)
        first = statement if sharded else _forward(loop, event, run)
        last = _inside(loop, event, run, first, sharded) or _after(loop, event, run) if first is not None else None
        if first is not None and last is not None:
            yield Deferral(Site(event.source, first), target, last)


def _forward(loop: ast.For | ast.While, event: Event, run: Interpreter) -> ast.stmt | None:
    """The statement of a loop in which the first forward pass is run, if that stands there ahead of the backward
    pass in any case."""
    source = event.source
    inside = {*source.ancestors(event.node), source.statement(event.node)}
    held = [each for each in loop.body if each in inside]
    ahead = loop.body[: loop.body.index(held[0]) + 1] if held else []
    passes = [each for each in run.of("forward") if each.grad and loop in {*each.source.ancestors(each.node)}]
    passes += [each for each in run.of("forward") if each.grad and any(call.node in inside for call in each.calls)]
    places = {place for each in passes for place in (each.node, *(c.node for c in each.calls if c.node is not None))}
    return next((each for each in ahead if not places.isdisjoint(walk(each))), None)


def _within(kind: str, node: ast.AST, source: Source, run: Interpreter) -> set[ast.AST]:
    """The places inside a node where something happens, or functions are called that do it."""
    found: set[ast.AST] = set()
    for event in run.of(kind):
        places = (event.node, *(call.node for call in event.calls if call.node is not None))
        found.update(place for place in places if node in source.ancestors(place))
    return found


def _target(event: Event, loop: ast.AST, run: Interpreter, models: list[Model]) -> str | None:
    """The name of the one model that is differentiated, if all of its layers run each time."""
    ours = keys(differentiated(run, event))
    held = [model for model in models if model.object.key in ours]
    if len(held) != 1 or held[0].sharded or held[0].wrapped:
        return None
    model = held[0]
    if learned(run.runs.program).varies(model.object.node):
        return None
    for forward in run.of("forward"):
        call = forward.node
        if not isinstance(call, ast.Call) or not forward.grad or loop not in forward.source.ancestors(call):
            continue
        things = [t for t in unwrapped(run.values.get(call.func, NOTHING)) if isinstance(t, Object)]
        plain = all(isinstance(n, (ast.Name, ast.Attribute, ast.expr_context)) for n in walk(call.func))
        if plain and things and all(t.key == model.object.key for t in things):
            return forward.source.code(call.func)
    return None


# -------------------------------------------------------------------- the two forms


def _inside(loop: ast.For | ast.While, event: Event, run: Interpreter, first: ast.stmt, sharded: bool) -> str | None:
    """`if (i + 1) % steps == 0: optimizer.step()` after the backward pass, in the same loop."""
    source = event.source
    steps = _within("step", loop, source, run)
    found = {_condition(step, loop, source) for step in steps}
    condition = next(iter(found), None)
    if len(found) != 1 or condition is None or condition.orelse:
        return None
    block = source.block(condition)
    before = next((a for a in (source.statement(event.node), *source.ancestors(event.node)) if a in block), None)
    if before is None or not isinstance(before, ast.stmt) or block.index(before) >= block.index(condition):
        return None
    if first in block:
        before = first
    elif not sharded:
        return None
    between = block[block.index(before) : block.index(condition)]
    counts = any(isinstance(n, ast.Mod) for n in walk(condition.test))
    if not counts or not _is_same(condition.test, between, source, run):
        return None
    if _reads_gradients(run, condition) or not _only_there(condition, loop, source, run):
        return None
    kinds = ("optimizer_zero_grad", "model_zero_grad") if sharded else ("step",)
    alone = _happens_only(kinds, condition, event, run)
    if not alone and not (sharded and _ends_with_loader(condition.test, loop)):
        return None
    return source.code(condition.test)


def _is_in_any_case(node: ast.AST, loop: ast.AST, source: Source) -> bool:
    """Whether each round of a loop comes to a node that does not leave the round before."""
    around = itertools.takewhile(lambda each: each is not loop, source.ancestors(node))
    return all(isinstance(each, (ast.With, ast.expr, ast.Expr)) for each in around)


def _condition(step: ast.AST, loop: ast.AST, source: Source) -> ast.If | None:
    """The outermost condition around a step, inside the loop."""
    found = None
    for ancestor in source.ancestors(step):
        if ancestor is loop:
            return found
        if isinstance(ancestor, ast.If):
            found = ancestor
        elif not isinstance(ancestor, (ast.Expr, ast.With, ast.Assign)):
            return None
    return None


def _is_same(test: ast.expr, between: list[ast.stmt], source: Source, run: Interpreter) -> bool:
    """Whether a test says the same before some statements as after them, and the same on all ranks."""
    names = {n.id for n in walk(test) if isinstance(n, ast.Name)}
    attributes = {n.attr for n in walk(test) if isinstance(n, ast.Attribute)}
    for node in walk(test):
        counts = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
        if not counts and not isinstance(node, PURE):
            return False
        if isinstance(node, ast.expr) and not run.is_alike(node):
            return False
    for statement in between:
        for node in walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in names:
                return False
    stored = (n for each in run.project.sources for n in walk(each.tree) if isinstance(n, ast.Attribute))
    return not any(n.attr in attributes and isinstance(n.ctx, ast.Store) and not _is_made(n, run) for n in stored)


def _is_made(node: ast.Attribute, run: Interpreter) -> bool:
    """Whether an attribute is set where its object is made."""
    for source in run.project.sources:
        scope = source.function(node)
        if scope is not None:
            return scope.name == "__init__"
    return False


def _reads_gradients(run: Interpreter, condition: ast.AST) -> bool:
    """Whether the script reads gradients anywhere but under a condition."""
    for source in run.project.sources:
        for node in walk(source.tree):
            if isinstance(node, ast.Attribute) and node.attr == "grad":
                if condition in source.ancestors(node):
                    continue
                return True
    return False


def _only_there(condition: ast.AST, loop: ast.AST, source: Source, run: Interpreter) -> bool:
    """Whether gradients are clipped, and divided by a loss scale, where the step is."""
    kinds = ("clip", "unscale")
    return all(_within(kind, loop, source, run) <= _within(kind, condition, source, run) for kind in kinds)


def _happens_only(kinds: tuple[str, ...], condition: ast.AST, event: Event, run: Interpreter) -> bool:
    """Whether gradients are cleared, or applied, where the step is, or before all backward passes."""
    for kind in kinds:
        for each in run.of(kind):
            first = not each.loops and each.order < event.order
            places = (each.node, *(call.node for call in each.calls if call.node is not None))
            if not first and not any(condition in event.source.ancestors(place) for place in places):
                return False
    return True


def _ends_with_loader(test: ast.expr, loop: ast.AST) -> bool:
    """`... or i + 1 == len(loader)`, in a loop that is not left before: each pass over the data ends with a step."""
    terms = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else []
    ends = any(
        isinstance(term, ast.Compare)
        and isinstance(term.ops[0], ast.Eq)
        and any(isinstance(n, ast.Call) for n in walk(term))
        for term in terms
    )
    return ends and not any(isinstance(n, LEAVING) for n in walk(loop))


def _after(loop: ast.For | ast.While, event: Event, run: Interpreter) -> str | None:
    """`for micro_step in range(steps): ... loss.backward()`, and a step after the loop."""
    source = event.source
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name) or loop.orelse:
        return None
    head = loop.iter
    if not isinstance(head, ast.Call) or getattr(head.func, "id", "") != "range" or len(head.args) != 1:
        return None
    kinds = ("step", "clip", "unscale", "optimizer_zero_grad", "model_zero_grad")
    if any(_within(kind, loop, source, run) for kind in kinds):
        return None
    block = source.block(loop)
    rest = block[block.index(loop) + 1 :]
    if not any(_within("step", statement, source, run) for statement in rest):
        return None
    if any(isinstance(n, LEAVING) for n in walk(loop)) or not _is_same(head.args[0], loop.body, source, run):
        return None
    if any(isinstance(n, ast.Name) and n.id == loop.target.id and isinstance(n.ctx, ast.Store) for n in _body(loop)):
        return None
    count = head.args[0]
    if isinstance(count, ast.Constant) and isinstance(count.value, int):
        return f"{loop.target.id} == {count.value - 1}"
    return f"{loop.target.id} == {source.code(count)} - 1"


def _body(loop: ast.For) -> Iterator[ast.AST]:
    return (node for statement in loop.body for node in walk(statement))
