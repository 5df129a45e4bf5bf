"""Patterns of forward passes that DistributedDataParallel does not synchronise."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Event, Interpreter
from autodist.models import unused
from autodist.models.history import History, freezes, grows, happens_during_training, learning
from autodist.models.parts import parts, unwrapped
from autodist.regions import exclusive
from autodist.source import Source
from autodist.values import NOTHING, Object


def pattern_of(module: Object, history: History) -> str | None:
    """Orders of forward and backward passes that DistributedDataParallel does not synchronise."""
    last: Event | None = None
    forward: Event | None = None
    passes = [*history.forwards.get(module, []), *history.backwards.get(module, [])]
    for event in sorted(passes, key=lambda e: e.order):
        if event.kind == "forward":
            last, forward = None, event
            continue
        other = last if last is not None and last.node is not event.node else None
        twice = other is not None and not exclusive(event.source, event.node, other.node)
        if twice or forward is not None and _repeats(event, forward):
            return (
                "it goes through backward twice after one forward, which DistributedDataParallel leaves unsynchronised"
            )
        last = event
    return None


def _repeats(backward: Event, forward: Event) -> bool:
    """Whether a loop of its own is around a backward pass: `for loss in losses: loss.backward(retain_graph=True)`."""
    around = {loop.node for loop in forward.loops}
    kept = isinstance(backward.node, ast.Call) and any(k.arg == "retain_graph" for k in backward.node.keywords)
    return kept and any(loop.node not in around for loop in backward.loops)


def parts_by_turns(module: Object, run: Interpreter, history: History) -> str | None:
    """Whether several forward passes of one step may run different parts: the wrapper looks for unused parameters in
    the last of them alone."""
    before: list[Event] = []
    shown: set[Event] = set()
    evaluates = False
    passes = [*history.forwards.get(module, []), *history.backwards.get(module, [])]
    modes = [each for each in run.of("mode") if module in unwrapped(each.value)]
    for event in sorted([*passes, *modes], key=lambda e: e.order):
        if event.kind == "mode":
            evaluates = event.detail.const is True
            continue
        if event.kind == "forward":
            before.append(event)
            shown |= {event} if evaluates else set()
            continue
        if before and before[-1] not in shown:  # what it gave in evaluations, gradients on, was only shown
            computed = _computed_by(event, run) if shown else set()
            before = [each for each in before if each not in shown or each.node in computed]
        loops = {loop.node for loop in event.loops}
        ahead = {each for each in before if loops and not each.loops}  # as one that has lazy layers made
        if ahead:
            computed = _computed_by(event, run)
            before = [each for each in before if each not in ahead or each.node in computed]
        again = any(loop.node not in loops for each in before for loop in each.loops)
        pairs = ((one, other) for at, one in enumerate(before) for other in before[:at] if one.node is not other.node)
        if again or any(not exclusive(one.source, one.node, other.node) for one, other in pairs):
            if unused.runs_by_chance(parts(module), run):
                return "it runs other parts in each of several forward passes before one backward pass"
        before = []
    return None


def _computed_by(backward: Event, run: Interpreter) -> set[ast.AST]:
    """The expressions that a loss was computed by."""
    reached: set[ast.AST] = set()
    pending: list[ast.AST] = [backward.node]
    while pending:
        node = pending.pop()
        if node not in reached:
            reached.add(node)
            pending += ast.iter_child_nodes(node)
            value = run.values.get(node, NOTHING) if isinstance(node, ast.expr) else NOTHING
            pending += [made for _, made in value.made]
    return reached


def learns_by_gradients_alone(module: Object, run: Interpreter, history: History) -> str | None:
    """Whether a step's only loss is one of gradients with regard to samples: the wrapper would wait for the gradient of
    a last bias, which has no say in it, though the forward pass has used it. It also finds no such bias unused."""
    backwards = history.backwards.get(module, [])
    if any(is_of_gradients_alone(event, run) for event in backwards):
        return "it learns from its derivatives alone, in which a last bias has no say, whose gradient it would wait for"
    return None


def is_of_gradients_alone(event: Event, run: Interpreter) -> bool:
    """Whether what goes backward was computed from gradients of a model, and from nothing else that one gave."""
    grads = {each.node for each in run.of("autograd_grad") if each.detail.const is True}
    if not grads:
        return False
    passes = {each.node for each in run.of("forward")}
    loss = event.node.func.value if isinstance(event.node, ast.Call) else None  # type: ignore[attr-defined]
    reached: set[ast.AST] = set()
    pending: list[ast.AST] = [loss] if loss is not None else []
    while pending:  # past the gradients, not into what they are taken of
        node = pending.pop()
        if node not in reached:
            reached.add(node)
            pending += ast.iter_child_nodes(node) if node not in grads else ()
            value = run.values.get(node, NOTHING) if isinstance(node, ast.expr) else NOTHING
            pending += [made for _, made in value.made] if node not in grads else []
    return bool(reached & grads) and passes.isdisjoint(reached)


def changes(module: Object, history: History) -> str | None:
    """Whether parameters are frozen or released during training, which the wrapper does not notice."""
    if happens_during_training(freezes(module, history), module, history):
        return "its parameters are frozen or released during training, which DistributedDataParallel does not notice"
    if happens_during_training(grows(module, history), module, history):
        return "it is given further layers during training, which DistributedDataParallel does not notice"
    return None


def leaves_outputs(module: Object, history: History) -> bool:
    """Whether a training step leaves out one of several outputs, and the part that made it: `score, _ = model(x)`."""
    for event in learning(module, history):
        parent = event.source.parents.get(event.node)
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple):
            targets = parent.targets[0].elts
            left = [
                at
                for at, each in enumerate(targets)
                if isinstance(each, ast.Name) and (each.id.startswith("_") or not _is_read(each.id, event))
            ]
            if left and not _goes_into_others(module, left, len(targets)):
                return True
    return False


def _goes_into_others(module: Object, left: list[int], count: int) -> bool:
    """Whether outputs that are left out are what the others are computed from: `logits, cross_entropy(logits, y)`."""
    node = next((each.node for each in module.functions("forward")), None)
    if node is None:
        return False
    given = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
    returns = [each.elts if isinstance(each, ast.Tuple) else [] for each in given]
    if not returns or any(len(each) != count for each in returns):
        return False
    trains = [each for each in returns if not all(map(_is_none, (e for at, e in enumerate(each) if at not in left)))]
    return bool(trains) and all(_is_in_others(node, outputs, left) for outputs in trains)


def _is_none(node: ast.expr) -> bool:
    """`return logits, None`, where there is nothing to compare with."""
    return isinstance(node, ast.Constant) and node.value is None


def _is_in_others(node: ast.AST, outputs: list[ast.expr], left: list[int]) -> bool:
    """Whether the others of some outputs are computed from those that are left out."""
    others = [each for at, each in enumerate(outputs) if at not in left]
    kept = {each.id for each in others if isinstance(each, ast.Name)}
    bound = [n for n in ast.walk(node) if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)]
    computed = [*others, *(n.value for n in bound if n.targets[0].id in kept)]  # type: ignore[attr-defined]
    loops = [each for each in ast.walk(node) if isinstance(each, (ast.For, ast.While))]
    again = {n.id for loop in loops for n in ast.walk(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    again |= {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}  # `x = x - f(x)`, its last one unread
    return all(
        isinstance(each, ast.Name) and each.id not in again and any(_reads(other, each) for other in computed)
        for each in (outputs[at] for at in left)
    )


def _reads(node: ast.expr, name: ast.expr) -> bool:
    """Whether an expression reads a variable, with its gradient as far as the text tells."""
    cuts = any(isinstance(each, ast.Attribute) and each.attr in ("detach", "data", "argmax") for each in ast.walk(node))
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return isinstance(name, ast.Name) and name.id in names and node is not name and not cuts


def _is_read(name: str, event: Event) -> bool:
    """Whether the function in which a model is called reads what it binds there to a name, come what may: not in one of
    the branches of an `if` alone, below the call."""
    above = set(event.source.ancestors(event.node))
    home = event.source.home(event.node)
    reads = [n for n in ast.walk(home) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
    branches = [list(_branches(each, event.source, above)) for each in reads]
    if any(not each for each in branches):
        return True
    taken = {outermost for each in branches for outermost in each[-1:]}
    return any((branch, not part) in taken for branch, part in taken)


def _branches(node: ast.AST, source: Source, above: set[ast.AST]) -> Iterator[tuple[ast.If, bool]]:
    """The `if`s around a node that are not around a call of a model, and whether it stands in their first block."""
    inner = node
    for each in source.ancestors(node):
        if isinstance(each, ast.If) and each not in above and inner is not each.test:
            yield each, inner in each.body
        inner = each
