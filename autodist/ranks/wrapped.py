"""Passes that go round the wrapper, and checkpoints whose keys the wrapper has named."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from autodist.program import Operation, Value, held, joined
from autodist.ranks.reading import WRAPPERS, Ranks
from autodist.rule import Severity
from autodist.script import Concern
from autodist.source import Source, shortened, walk
from autodist.trace.objects import ordered_modules

PREFIX = ('"module."', "'module.'", "consume_prefix_in_state_dict_if_present")
CUT = (".grad", ".detach", ".item", ".data", ".tolist", ".numpy")
"""The names of operations that no gradient flows through."""
DDP = frozenset(["ddp"])


def rounds(ranks: Ranks) -> Iterator[Concern]:
    """Forward passes of a model that gradients flow through, and its wrapper knows nothing of: `model.module(x)`."""
    inner: set[Any] = set()
    for wrapper in ranks.wrappers():
        if DDP & wrapper.roles and (model := wrapper.argument("module", 0)) is not None:
            inner |= {each for each in ordered_modules(Value(things=model.things)) if each in model.things}
    learnt = _learnt(ranks) if inner else set()
    told = set[ast.AST]()
    for source in ranks.sources if learnt else ():
        for node in walk(source.tree):
            if not isinstance(node, ast.Call) or node in told:
                continue
            called = ranks.program.at(node.func).things
            direct = called and all(each in inner for each in called)
            if direct and learnt & ranks.program.at(node).operations and not _in_module(node, source, ranks):
                told.add(node)
                message = (
                    f"{shortened(source.code(node.func))}(...) goes round the DDP wrapper: it knows nothing of this "
                    "pass, gradients are not averaged, and ranks drift apart; call the wrapped model itself"
                )
                yield Concern("AD413", source, node, message, Severity.WARNING)


def _learnt(ranks: Ranks) -> set[Operation]:
    """What losses are computed of; nothing, where a script averages gradients itself."""
    operations = ranks.program.operations
    if any(ranks.catalog.has(each.name, "collective") and _is_of_gradients(each) for each in operations):
        return set()
    pending = [op for each in ranks.program.of("backward") for op in held(joined(each.operation.inputs[:1]))]
    found = set(pending)
    while pending:
        fresh = {op for value in pending.pop().operands for op in held(value)} - found
        found |= fresh
        pending += [each for each in fresh if not each.name.endswith(CUT)]
    return {each for each in found if not each.region.without_gradients}


def _is_of_gradients(operation: Operation) -> bool:
    return ".grad" in operation.source.code(operation.source.statement(operation.node))


def _in_module(node: ast.AST, source: Source, ranks: Ranks) -> bool:
    """Whether a pass is part of that of another module, which may be wrapped."""
    classes = (each for each in source.ancestors(node) if isinstance(each, ast.ClassDef))
    return any(getattr(base, "attr", getattr(base, "id", "")) == "Module" for each in classes for base in each.bases)


def prefixed(ranks: Ranks) -> Iterator[Concern]:
    """Checkpoints of wrappers that the script itself loads into what is not wrapped."""
    if any(mark in source.text for source in ranks.sources for mark in PREFIX):
        return
    saved: dict[str, Operation] = {}
    for effect in ranks.program.of("save"):
        given = effect.operation
        state = [op for value in given.inputs[:1] for op in held(value) if op.name.endswith(".state_dict")]
        wrapped = [op for op in state if DDP & getattr(op.owner, "roles", frozenset())]
        if wrapped and len(given.inputs) > 1:
            saved[path_of(given, given.inputs[1], 1)] = wrapped[0]
    for each in ranks.program.operations if saved else ():
        owner: frozenset[str] = getattr(each.owner, "roles", frozenset())
        if not each.name.endswith(".load_state_dict") or WRAPPERS & owner or not each.inputs:
            continue
        if not ("module" in owner or getattr(each.owner, "cls", None) is not None) or "optimizer" in owner:
            continue
        loads = _loads(each.inputs[0])
        found = next(
            (saved[path] for op in loads if op.inputs and (path := path_of(op, op.inputs[0], 0)) in saved), None
        )
        if found is not None:
            line = getattr(found.node, "lineno", 0)
            message = (
                f"the checkpoint was saved from the DDP wrapper (line {line}), whose keys begin with `module.`, and is "
                "loaded into a model that is not wrapped: it would not fit; save `model.module.state_dict()`"
            )
            yield Concern("AD414", each.source, each.node, message, Severity.WARNING)


def _loads(value: Value) -> list[Operation]:
    """The reads that a value is, or an entry of what they give."""
    found: list[Operation] = []
    for each in held(value):
        inner = [op for part in each.inputs[:1] for op in held(part)] if each.name == "getitem" else [each]
        found += [op for op in inner if op.name in ("torch.load", "torch.jit.load")]
    return found


def path_of(operation: Operation, value: Value, place: int) -> str:
    """A path as far as two of them can be compared."""
    if isinstance(value.constant, str):
        return value.constant
    call = operation.node
    return ast.unparse(call.args[place]) if isinstance(call, ast.Call) and place < len(call.args) else "?"
