"""What must be replicated: what is printed, logged, written, reported, or decides which code runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autodist.program import BATCH, CHOSEN, Operation, Program, Region, Value
from autodist.solve.alone import Alone
from autodist.trace.things import Object

INNER = frozenset("recursion callback yield iterate range.index getitem setitem sample gradient_hook".split())
"""Operations of the graph itself."""
KINDS = {"scheduler.step": "schedule", "test": "test", "closure": "answer"}
SHOWN = frozenset("print log write tracker save".split())
"""Effects that hand all that they are given to the outside."""


@dataclass(frozen=True)
class Demand:
    """An operation that must be given the same on all ranks, for what it does beside giving a value: it prints it, or
    it decides which code runs."""

    kind: str
    operation: Operation
    part: ast.expr | None = None
    """The one expression of those that the operation is given which is demanded, if not all are."""


def demands(program: Program, alone: Alone) -> Iterator[Demand]:
    """What a program must have replicated, in the order in which it is met."""
    kinds: dict[Operation, str] = {}
    for effect in program.effects:
        kind = KINDS.get(effect.kind, effect.kind if effect.kind in SHOWN else "")
        if kind and not (kind == "test" and inside_forward(effect.region, program)):
            kinds.setdefault(effect.operation, kind)
    kinds |= {each: "log" for each in program.operations if each.name.startswith("threading.Thread.")}
    yield from (Demand("handed", each) for each in _called_alone(program, alone))
    for operation in program.operations:
        if alone.calls(operation) or operation.region.in_hook:
            continue  # it communicates with nobody: what it is given is made global where it is called
        given = isinstance(operation.node, ast.Call) or operation.name == "setitem"  # `run["loss"] = loss`
        guarded = given and _is_last_alone(operation, program, alone) or _is_setting(operation)
        drawn = operation.name in (BATCH, CHOSEN)
        kind = (
            kinds.get(operation)
            or ("data" if drawn else "")
            or ("handed" if guarded or _is_handed_over(operation, program) else "")
        )
        if kind == "handed" and "writer" in getattr(operation.owner, "roles", ()) and not is_given_a_model(operation):
            kind = "tracker"
        if kind and not (kind in ("test", "handed") and inside_forward(operation.region, program)):
            yield Demand(kind, operation)


def is_given_a_model(operation: Operation) -> bool:
    """Whether a model is among what it is given, with an example of what it is run on: `writer.add_graph(model, x)`"""
    return any(
        "module" in getattr(each, "roles", ()) or isinstance(each, Object) and each.cls and each.cls.find("forward")
        for value in operation.inputs
        for each in value.things
    )


def _is_setting(operation: Operation) -> bool:
    """Whether it sets what an optimizer goes by: `group["lr"] = 0.1 * loss.item()`"""
    return operation.name == "setitem" and any(map(_is_of_groups, operation.inputs[0].operations))


def _is_of_groups(operation: Operation) -> bool:
    pending, seen = [operation], set[Operation]()
    while pending:
        each = pending.pop()
        if each.name.endswith(".param_groups"):
            return True
        if each.name in ("iterate", "getitem") and each not in seen:  # what loops hand on may be of itself
            seen.add(each)
            pending += each.inputs[0].operations
    return False


def _is_last_alone(operation: Operation, program: Program, alone: Alone) -> bool:
    """Whether rank 0 alone runs an operation, in a statement that does nothing more with what it gives."""
    statement = alone.around(operation.node, operation.source)
    users = program.users[operation] if statement is not None else ()
    return statement is not None and all(alone.around(each.node, each.source) is not statement for each in users)


def _called_alone(program: Program, alone: Alone) -> Iterator[Operation]:
    """The calls of the project's functions in what rank 0 runs alone, with what they are given."""
    for region in sorted(program.calls, key=lambda each: getattr(each.node, "lineno", 0)):
        outer = region.parent
        if isinstance(region.node, ast.Call) and outer is not None and alone.around(region.node, outer.source):
            given = [*region.node.args, *(each.value for each in region.node.keywords)]
            values = tuple(program.at(each) for each in given)
            yield Operation(-1, "call", values, {}, outer.source, region.node, outer)


def _is_handed_over(operation: Operation, program: Program) -> bool:
    """Whether an operation that no table knows is given something, and nobody asks for what it gives: it does something
    with it that is not seen here, as a logger, a figure or a file does."""
    module = operation.owner is not None and "module" in getattr(operation.owner, "roles", ())
    made = operation.name.endswith(".__init__") or isinstance(
        operation.source.parents.get(operation.node), ast.withitem
    )
    if made or module or program.users[operation] or not isinstance(operation.node, ast.Call):
        return False
    if operation.name.endswith((".append", ".extend")) and _is_list(operation.inputs[0]):
        return False
    return operation.known is None and operation.name not in INNER


def _is_list(value: Value) -> bool:
    """`[0] * n`, `labels.tolist()`"""
    return all(each.name.endswith(("list.repeat", "builtins.list", ".tolist")) for each in value.operations)


def inside_forward(inner: Region, program: Program) -> bool:
    """Whether a region is part of a forward pass of a module."""
    for region in inner.around():
        if region.kind == "call" and isinstance(region.node, ast.Call):
            called = program.at(region.node.func).things
            if any("module" in getattr(each, "roles", ()) for each in called):
                return True
    return False
