"""What models give back: FSDP gathers parameters for the backward pass when it comes to a tensor of these.

It looks into tuples, lists, dictionaries and what a library has announced to `torch.utils._pytree`, and into no others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.fsdp.sharding import blocks_of
from autodist.interpreter import Interpreter
from autodist.models import Key, unwrapped
from autodist.rule import Severity
from autodist.script import Concern, Model
from autodist.source import Source, walk
from autodist.values import NOTHING, External, Function, Items, Object, Table, Value

DEPTH = 4
"""Functions that hand on what others return."""


def concerns(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """The first model of ours that gives back an object in which FSDP finds no tensors."""
    ours = {each.key: each for m in models if not m.wrapped for each in (m.object, *m.alternatives)}
    ours |= {block.key: block for m in models if not m.wrapped for unit in m.units for block in blocks_of(m, unit)}
    seen: set[Key] = set()
    for event in run.of("forward"):
        for module in (ours[t.key] for t in unwrapped(event.value) if isinstance(t, Object) and t.key in ours):
            if module.key in seen or event.inside_forward or not event.grad:
                continue
            seen.add(module.key)
            given = run.values.get(event.node, NOTHING) if isinstance(event.node, ast.expr) else NOTHING
            name = _opaque(given) or _distribution(module, run, DEPTH)
            if name:
                message = (
                    f"gives back a {name}, in which FSDP finds no tensors, so that it would not gather the parameters "
                    "for the backward pass: return the tensors, in a tuple or a dict, or use --strategy ddp"
                )
                yield Concern("AD907", event.source, event.node, message, Severity.REFUSAL)
                return


def _opaque(value: Value, depth: int = DEPTH) -> str:
    """The class of an object of the project that holds samples, alone or in a tuple or dict."""
    for thing in value.things:
        if isinstance(thing, Object) and thing.cls is not None and "module" not in thing.roles:
            bases = [base for each in thing.cls.line() for base in each.bases]
            plain = all(isinstance(base, External) and base.name.startswith("builtins.") for base in bases)
            if plain and _holds_samples(thing):
                return thing.name
        if isinstance(thing, Object) and thing.name == "types.SimpleNamespace" and _holds_samples(thing):
            return "SimpleNamespace"
        inner = (*thing.parts, thing.element) if isinstance(thing, Items) else ()
        inner = (*thing.entries.values(), thing.element) if isinstance(thing, Table) else inner
        found = next((name for each in inner if depth and (name := _opaque(each, depth - 1))), "")
        if found:
            return found
    return ""


def _holds_samples(thing: Object) -> bool:
    return any(v.spread.is_local for v in (*thing.args, *thing.keywords.values(), *thing.attributes.values()))


def _distribution(module: Object, run: Interpreter, depth: int) -> str:
    """The distribution of torch that a module's forward pass gives back."""
    return next((name for each in module.functions("forward") if (name := _returned(each, run, depth))), "")


def _returned(function: Function, run: Interpreter, depth: int) -> str:
    """The distribution that a function returns."""
    node = function.node
    if isinstance(node, ast.Lambda) or not depth:
        return ""
    returns = [each.value for each in walk(node) if isinstance(each, ast.Return) and each.value is not None]
    pending = [value for value in returns if function.source.function(value) is node]
    seen: set[str] = set()
    while pending:
        value = pending.pop()
        if isinstance(value, (ast.Tuple, ast.List)):
            pending += value.elts
        elif isinstance(value, ast.Dict):
            pending += value.values
        elif isinstance(value, ast.Name) and value.id not in seen:
            seen.add(value.id)
            pending += _bound(value.id, node, function.source)
        elif isinstance(value, ast.Call):
            for thing in run.values.get(value.func, NOTHING).things:
                if isinstance(thing, External) and thing.name.startswith("torch.distributions."):
                    return thing.name.rpartition(".")[2]
                inner = _returned(thing, run, depth - 1) if isinstance(thing, Function) else ""
                inner = _distribution(thing, run, depth - 1) if isinstance(thing, Object) else inner
                if inner:
                    return inner
    return ""


def _bound(name: str, node: ast.AST, source: Source) -> Iterator[ast.expr]:
    """What a function binds to a name."""
    for each in walk(node):
        if isinstance(each, ast.Assign) and source.function(each) is node:
            if any(isinstance(target, ast.Name) and target.id == name for target in each.targets):
                yield each.value
