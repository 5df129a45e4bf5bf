"""Files that one rank writes and others read, and what ranks go on from."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.program import Effect, Operation, Value
from autodist.ranks.reading import RANK_0, RANK_1, WRAPPERS, Ranks
from autodist.ranks.waiting import meetings
from autodist.ranks.ways import Ways
from autodist.ranks.wrapped import path_of
from autodist.rule import Severity
from autodist.script import Concern
from autodist.trace.objects import ordered_modules


def _reached(operation: Operation, ways: Ways) -> list[tuple[bool | None, bool | None]]:
    found = ways.to(operation.node, operation.source)
    return [(ways.reached(way, RANK_0), ways.reached(way, RANK_1)) for way in found]


def on_one(operation: Operation, ways: Ways) -> bool:
    """Whether only rank 0 comes to it, by any way."""
    told = _reached(operation, ways)
    return bool(told) and all(here is not False and there is False for here, there in told)


def _on_all(operation: Operation, ways: Ways) -> bool:
    return any(here is not False and there is not False for here, there in _reached(operation, ways))


def restored(ranks: Ranks, ways: Ways) -> Iterator[Concern]:
    """States that only rank 0 goes on from."""
    program = ranks.program
    sent = [each.number for each in program.operations if each.name.startswith("torch.distributed.broadcast")]
    for each in program.operations:
        roles: frozenset[str] = getattr(each.owner, "roles", frozenset())
        if not each.name.endswith(".load_state_dict") or not on_one(each, ways):
            continue
        if any(number > each.number for number in sent):
            continue
        trains = (
            "optimizer" in roles
            or bool(WRAPPERS & roles)
            or not _is_wrapped(each, ranks)
            and _is_used(each, ranks, ways)
        )
        if trains and program.of("backward"):
            message = (
                "only rank 0 goes on from the checkpoint here: the others keep what they began with, and ranks train "
                "apart; load on all ranks, with map_location"
            )
            yield Concern("AD312", each.source, each.node, message, Severity.WARNING)


def _is_wrapped(load: Operation, ranks: Ranks) -> bool:
    """Whether a wrapper that is made later gives all ranks the weights of rank 0."""
    for effect in ranks.program.of("make"):
        made = effect.operation
        if "ddp" in getattr(made.owner, "roles", ()) and made.number > load.number and made.inputs:
            if load.owner in made.inputs[0].things:
                return True
    return False


def _is_used(load: Operation, ranks: Ranks, ways: Ways) -> bool:
    """Whether all ranks compute with a model after that."""
    layers = {*ordered_modules(Value(things=frozenset([load.owner])))}
    passes = (each for each in ranks.program.operations if each.number > load.number and each.owner in layers)
    return any(_on_all(each, ways) for each in passes if each.is_tensor and each.inputs)


def unwaited(ranks: Ranks, ways: Ways) -> Iterator[Concern]:
    """What rank 0 writes and all read, with nothing that makes the others wait for it."""
    program = ranks.program
    saves = [each.operation for each in _saves(ranks) if on_one(each.operation, ways)]
    written = {key: each for each in saves if (key := _path(each, 1)) is not None}
    fetched = {each.name: each for each in reversed(_downloads(ranks)) if on_one(each, ways)}
    if not written and not fetched:
        return
    waits = {each.node for each in meetings(ranks)}
    joined = [each.number for each in program.operations if each.node in waits and _on_all(each, ways)]
    told = set[ast.AST]()
    for each in program.operations:
        if each.name in ("torch.load", "torch.jit.load") and each.inputs:
            key = _path(each, 0)
            save = written.get(key) if key is not None else None
        else:
            save = fetched.get(each.name) if _reads(each) else None
        if save is None or save.number > each.number or each.node in told or save.node is each.node:
            continue
        between = any(save.number < number < each.number for number in joined)
        if not between and _on_all(each, ways):
            told.add(each.node)
            message = (
                f"rank 0 writes this at line {getattr(save.node, 'lineno', 0)}, and nothing makes the others wait for "
                "it: they read what is not there yet, or half of it; put dist.barrier() in between"
            )
            yield Concern("AD313", each.source, each.node, message, Severity.WARNING)


def _path(operation: Operation, place: int) -> tuple[str, ast.AST | None] | None:
    """A path as far as two of them are surely the same: a variable is that of its function."""
    value = operation.inputs[place]
    text = path_of(operation, value, place)
    plain = text.isidentifier() and not isinstance(value.constant, str)
    return None if text == "?" else (text, operation.source.function(operation.node) if plain else None)


def _saves(ranks: Ranks) -> list[Effect]:
    return [each for each in ranks.program.of("save") if len(each.operation.inputs) > 1]


def _downloads(ranks: Ranks) -> list[Operation]:
    flagged = (each for each in ranks.program.operations if "download" in each.keywords)
    return [each for each in flagged if each.keywords["download"].constant is True]


def _reads(operation: Operation) -> bool:
    flag = operation.keywords.get("download")
    return flag is None or flag.constant is False
