"""Why nothing can be shared out of a training step in which no batch is seen, in the words of its author."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from autodist.interpreter import Event, Interpreter
from autodist.models import modules_behind, optimized_by
from autodist.script import Site
from autodist.source import last_name, shortened, walk
from autodist.values import NOTHING, External, Index, Object

GRAPHS = ("torch_geometric.nn.", "dgl.nn.", "dgl.function.")
MULTIPLYING = frozenset("mm matmul dot mv bmm".split())
Reason = tuple[Site, str]


def reason(backward: Event, run: Interpreter) -> Reason:
    """What a person can do about a step without a batch, and where."""
    tried: list[Callable[[Event, Interpreter], Iterator[Reason]]] = [_graph, _once, _one_sample, _unseen]
    found = next((each for attempt in tried for each in attempt(backward, run)), None)
    return found or (
        Site(backward.source, backward.node),
        "every step trains on all of the data (or on data whose batch axis cannot be seen): there is no batch to "
        "share out",
    )


def optimised(run: Interpreter) -> Reason | None:
    """`torch.optim.Adam([image])`: what is optimised is the result."""
    for event in run.of("step"):
        for optimizer in event.value.objects("optimizer"):
            given = optimizer.node.args[0] if optimizer.node.args else None
            if not isinstance(given, (ast.List, ast.Tuple)) or optimized_by(optimizer):
                continue
            names = ", ".join(ast.unparse(each) for each in given.elts)
            if all(isinstance(each, (ast.Name, ast.Attribute)) for each in given.elts):
                message = (
                    f"optimises {names}, and no model that learns from data: every step uses all of it, so there is no "
                    "batch to share out; run one process for each such task"
                )
                return Site(optimizer.source, optimizer.node), message
    return None


def fitted_by_hand(run: Interpreter) -> Reason | None:
    """`U -= lr * U.grad` of a loss such as `(U @ V.t() - R) ** 2`: a tensor may have a row for each row of the data,
    which a rank would have to take beside them. Where data are multiplied by it, or it is a number, it has none."""
    steps = run.of("loose_step")
    tensors = {thing for event in steps for thing in event.value.objects("parameter")}
    if all(_is_number(each.node) for each in tensors) and all(e.value.things for e in steps):
        return None
    for node in run.values:
        match node:
            case ast.BinOp(op=ast.MatMult(), left=left, right=right):
                pair = (left, right)
            case ast.Call(func=ast.Attribute(attr=name, value=left), args=[right]) if name in MULTIPLYING:
                pair = (left, right)
            case ast.Call(func=ast.Attribute(attr=name), args=[left, right, *_]) if name in MULTIPLYING | {"linear"}:
                pair = (left, right)
            case _:
                continue
        if run.has_rows(pair[0]) and run.is_alike(pair[1]):
            return None
    event = next(iter(steps), None)
    if event is None or not isinstance(event.node, (ast.expr, ast.stmt)):
        return None
    step = shortened(event.source.code(event.node))
    message = (
        f"steps by {step} on all of the data at once, and it cannot be seen that the tensors that it trains have no "
        "row for each of the data, which a rank would have to take: draw batches with a loader, or make them "
        "parameters of a module"
    )
    return Site(event.source, event.node), message


def _is_number(made: ast.Call) -> bool:
    """`torch.randn((), requires_grad=True)`, `torch.zeros(1, requires_grad=True)`"""
    given = made.args[-1:] if last_name(made.func) == "normal" else made.args[:1]
    sizes = [*given, *(each.value for each in made.keywords if each.arg == "size")]
    return len(made.args) < 2 and len(sizes) == 1 and ast.unparse(sizes[0]) in ("()", "1", "(1,)", "[1]", "[]")


def _graph(backward: Event, run: Interpreter) -> Iterator[Reason]:
    """Layers over a graph, whose nodes are no samples."""
    layers = [t for event in run.of("make") for t in event.value.things if isinstance(t, Object)]
    for layer in layers:
        if layer.name.startswith(GRAPHS):
            kind = layer.kind
            message = (
                f"every step trains on a whole graph, whose nodes depend on each other ({kind}): "
                "draw parts of it with a loader, such as torch_geometric.loader.NeighborLoader"
            )
            yield Site(layer.source, layer.node), message


def _once(backward: Event, run: Interpreter) -> Iterator[Reason]:
    """A step that is taken once shows how it is done, and trains nothing."""
    if not any(event.loops for kind in ("backward", "step") for event in run.of(kind)):
        message = "takes a single step, outside of any loop: put it into a loop over batches"
        yield Site(backward.source, backward.node), message


def _one_sample(backward: Event, run: Interpreter) -> Iterator[Reason]:
    """`x, y = data[[i]], labels[[i]]`: batches of one."""
    loop = backward.loops[-1] if backward.loops else None
    for node in walk(loop.node) if loop is not None else ():
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.List) and len(node.slice.elts) == 1:
            if any(isinstance(thing, Index) for thing in run.values.get(node.slice.elts[0], NOTHING).things):
                assert loop is not None
                message = f"each step trains on one sample, which cannot be shared out: {ast.unparse(node)} has one"
                yield Site(loop.source, node), message


def _unseen(backward: Event, run: Interpreter) -> Iterator[Reason]:
    """What the model is given in a step, if it cannot be seen how it is made."""
    steps = {loop.node for loop in backward.loops[-1:]}
    for event in run.of("forward"):
        if not isinstance(event.node, ast.Call) or not any(loop.node in steps for loop in event.loops):
            continue
        for given in event.node.args:
            value = run.values.get(given, NOTHING)
            if not isinstance(given, ast.Name) or value.things or modules_behind(run, given) or value.spread.is_local:
                continue
            made = _bound(given, run)
            if made is not None and _is_of_torch(made, run):
                continue
            origin = f", made by {shortened(ast.unparse(made))}," if made is not None else ""
            message = (
                f"cannot see of {given.id}{origin} which of its axes the samples lie along, so that a rank could take "
                "its share: make it with torch.tensor(...), or read it with a torch DataLoader"
            )
            yield Site(event.source, given), message


def _bound(name: ast.Name, run: Interpreter) -> ast.expr | None:
    """The expression that a name is bound to last."""
    source = run.sources.get(name)
    found = None
    for node in walk(source.tree) if source is not None else ():
        if isinstance(node, ast.Assign) and node.lineno < name.lineno:
            targets = [t for target in node.targets for t in walk(target)]
            if any(isinstance(target, ast.Name) and target.id == name.id for target in targets):
                found = node.value
    return found


def _is_of_torch(made: ast.expr, run: Interpreter) -> bool:
    called = run.values.get(made.func, NOTHING).things if isinstance(made, ast.Call) else frozenset()
    return any(isinstance(thing, External) and thing.name.startswith("torch.") for thing in called)
