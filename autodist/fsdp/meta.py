"""How a model is made on rank 0 alone, while the others have it without memory, on the meta device."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autodist.fsdp.sharding import starts
from autodist.interpreter import MOVES, Event, Interpreter
from autodist.models import keys, members, unwrapped
from autodist.rule import Severity
from autodist.script import Built, Concern, Model, Site
from autodist.source import Source
from autodist.values import NOTHING, External, Function

DEVICE_MOVES = frozenset("cuda to cpu xpu mps npu".split())


def built(run: Interpreter, models: list[Model]) -> list[Model]:
    """The models, each with where it is made."""
    return [replace(model, built=_built(run, model)) if not model.wrapped else model for model in models]


def concerns(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Models that cannot be made on the meta device."""
    for model in models:
        if model.wrapped:
            continue
        if "from_pretrained" in model.object.name or ".hub." in model.object.name:
            message = "reads its weights while it is made, which the meta device cannot: leave --meta-device away"
            yield Concern("AD907", model.object.source, model.object.node, message, Severity.REFUSAL)


def _built(run: Interpreter, model: Model) -> Built:
    roots = (model.object, *model.alternatives)
    makers: dict[ast.AST, Site] = {}
    copied = {event.node for event in run.of("copy")}
    for root in roots:
        maker = _maker(run, root.key) or Site(root.source, root.node)
        if maker.node not in copied:
            makers[maker.node] = maker
    ours = members([model])
    begun = starts(run, [model])
    moves: dict[ast.AST, Site] = {}
    draws: dict[ast.AST, Site] = {}
    for event in run.of("move"):
        held = [ours[key] for key in keys(unwrapped(event.value)) if key in ours]
        if held and all(event.order < begun[root.key] for root in held) and isinstance(event.node, ast.Call):
            if _goes_to_device(event.node, run):
                moves[event.node] = Site(event.source, event.node)
            elif isinstance(event.node.func, ast.Attribute) and event.node.func.attr == "apply":
                draws[event.source.statement(event.node)] = Site(event.source, event.source.statement(event.node))
    draws |= {site.node: site for site in _initialisations(run)}
    return Built(tuple(makers.values()), tuple(moves.values()), tuple(draws.values()))


def _maker(run: Interpreter, key: object) -> Site | None:
    """The expression that makes a model, where it gets its first name."""
    for event in sorted((*run.of("bind"), *run.of("bind_part")), key=lambda e: e.order):
        if key in keys(unwrapped(event.value)) and not event.inside_forward:
            return _value(event)
    return None


def _value(event: Event) -> Site | None:
    node = event.node
    if isinstance(node, ast.Assign) and len(node.targets) == 1 or isinstance(node, ast.AnnAssign):
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        value: ast.expr | None = node.value
        if isinstance(target, (ast.Name, ast.Attribute)) and value is not None:
            while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in MOVES:
                value = value.func.value
            return Site(event.source, value)
    return None


def _goes_to_device(call: ast.Call, run: Interpreter) -> bool:
    """`model.to(device)`, rather than `model.to(torch.float16)`"""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in DEVICE_MOVES:
        return False
    if call.func.attr != "to":
        return True
    if not call.args:
        return any(keyword.arg == "device" for keyword in call.keywords)
    things = run.values.get(call.args[0], NOTHING).things
    return not any(isinstance(t, External) and t.name.startswith("torch.") for t in things)


def _initialisations(run: Interpreter) -> Iterator[Site]:
    """Statements outside the model that fill its parameters with random numbers, as rank 0 alone does."""
    applied = {
        thing.node
        for event in run.of("move")
        if isinstance(event.node, ast.Call)
        for argument in event.node.args
        for thing in run.values.get(argument, NOTHING).things
        if isinstance(thing, Function)
    }
    for node in run.values:
        if not isinstance(node, ast.Call):
            continue
        things = run.values.get(node.func, NOTHING).things
        if not any(isinstance(t, External) and t.name.startswith("torch.nn.init.") for t in things):
            continue
        source = run.sources[node]
        around = list(source.ancestors(node))
        if any(isinstance(each, ast.ClassDef) or each in applied for each in around):
            continue
        yield Site(source, _outermost(source, node))


def _outermost(source: Source, node: ast.AST) -> ast.stmt:
    """The statement of the function, or of the file, that a node stands in."""
    found = source.statement(node)
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            break
        if isinstance(ancestor, ast.stmt):
            found = ancestor
    return found
