"""Where ranks wait for each other, and some of them never come."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from autodist.program import Operation
from autodist.ranks.reading import RANK_0, RANK_1, WRAPPERS, Ranks
from autodist.ranks.ways import Test, Way, Ways, assigned_under
from autodist.rule import Severity
from autodist.script import Concern
from autodist.source import Source, all_of, shortened

DEEPEST = 3
NEW_GROUP = "torch.distributed.new_group"
FAR = 1_000
"""A rank of many."""
Key: TypeAlias = tuple[str, frozenset[ast.AST], frozenset[tuple[ast.AST, bool]]]
"""What kind of collective it is, in which loops, and under which conditions that all ranks decide alike."""


@dataclass(frozen=True)
class Meeting:
    """A line where ranks wait for each other."""

    kind: str
    source: Source
    node: ast.AST


def meetings(ranks: Ranks) -> Iterator[Meeting]:
    """The collectives of a program, what wrapped models exchange in their passes among them."""
    found: dict[tuple[str, ast.AST], Meeting] = {}
    sharded = [each for each in ranks.wrappers() if "fully_sharded" in each.roles]
    for each in ranks.program.operations:
        if kind := _kind(each, ranks, bool(sharded)):
            found.setdefault((kind, each.node), Meeting(kind, each.source, each.node))
    if any(True for _ in ranks.wrappers()):
        for effect in ranks.program.of("backward"):
            backward = effect.operation
            found.setdefault(("backward", backward.node), Meeting("backward", backward.source, backward.node))
    yield from found.values()


def _kind(operation: Operation, ranks: Ranks, sharded: bool) -> str:
    short = operation.name.rpartition(".")[2]
    if operation.name == NEW_GROUP:
        return short
    if ranks.catalog.has(operation.name, "collective"):
        group = operation.keywords.get("group")
        return short if group is None or group.constant is None else ""
    owner: frozenset[str] = getattr(operation.owner, "roles", frozenset())
    if sharded and "fully_sharded" in owner and short in ("forward", "state_dict", "clip_grad_norm_"):
        return short
    if WRAPPERS & owner and short == "forward" and not operation.region.without_gradients:
        return short
    return ""


def concerns(ranks: Ranks, ways: Ways) -> Iterator[Concern]:
    """Collectives that not all ranks reach, or not as often."""
    reached: tuple[Counter[Key], Counter[Key]] = Counter(), Counter()
    lone: dict[Key, list[tuple[Meeting, int, Way]]] = {}
    gone: list[tuple[Meeting, Way]] = []
    for meeting in meetings(ranks):
        for way in ways.to(meeting.node, meeting.source):
            here = [ways.reached(way, each) for each in (RANK_0, RANK_1)]
            key: Key = meeting.kind, frozenset(way.within), ways.open(way)
            for rank in (RANK_0, RANK_1):
                reached[rank][key] += here[rank] is not False
            if (here[0] is False) is not (here[1] is False):
                lone.setdefault(key, []).append((meeting, RANK_1 if here[0] is False else RANK_0, way))
            if here != [False, False]:
                gone.append((meeting, way))
            if meeting.kind == "new_group" and here == [True, True] and ways.reached(way, FAR) is False:
                yield _deadlock(meeting, RANK_0, way, ranks)
    told = set[ast.AST]()
    amiss = {key: found for key, found in lone.items() if reached[0][key] != reached[1][key]}
    sides: dict[str, set[int]] = {}
    for key, found in amiss.items():
        sides.setdefault(key[0], set()).update(rank for _, rank, _ in found)
    for key, found in amiss.items():
        for meeting, rank, way in found if len(sides[key[0]]) == 1 else ():
            if meeting.node not in told and not told & {call for _, call in way.through}:
                told.add(meeting.node)
                yield _deadlock(meeting, rank, way, ranks)
    yield from _by_own_loss(gone, ranks, told)


def _deadlock(meeting: Meeting, rank: int, way: Way, ranks: Ranks) -> Concern:
    who = "only rank 0 reaches" if rank == RANK_0 else "rank 0 does not reach"
    line = getattr(meeting.node, "lineno", 0)
    parting = [test for test, _ in (*way.tests, *(each for tests in way.left for each in tests))]
    apart = [each for each in parting if ranks.holds(each, RANK_0) is not ranks.holds(each, RANK_1)]
    where = f" (ranks part at `{shortened(ast.unparse(apart[0]))}`, line {apart[0].lineno})" if apart else ""
    waits = {"backward": "backward of the wrapped model", "forward": "forward of the wrapped model"}.get(meeting.kind)
    message = (
        f"deadlock: {who} line {line}{where}, and {waits or meeting.kind} waits for all ranks: call it on every rank, "
        "outside of that condition"
    )
    return Concern("AD801", meeting.source, meeting.node, message, Severity.WARNING)


def _by_own_loss(gone: list[tuple[Meeting, Way]], ranks: Ranks, told: set[ast.AST]) -> Iterator[Concern]:
    """Conditions on a rank's own samples that decide whether it reaches a collective."""
    seen = set[ast.AST]()
    for meeting, way in gone:
        for tests in ([each] for each in way.tests):
            yield from _decided(tests, meeting, ranks, seen, told)
        for tests in way.left:
            yield from _decided(tests, meeting, ranks, seen, told)


def _decided(
    tests: list[Test], meeting: Meeting, ranks: Ranks, seen: set[ast.AST], told: set[ast.AST]
) -> Iterator[Concern]:
    for test, _ in tests:
        if test in seen or meeting.node in told or ranks.holds(test, 0) is not None:
            continue
        found = deciding(test, ranks)
        if found is None:
            continue
        seen.add(test)
        source = next(each for each in ranks.sources if test in each.parents)
        line = getattr(meeting.node, "lineno", 0)
        value = shortened(found.source.code(found.node)) if isinstance(found.node, ast.expr) else "it"
        message = (
            f"each rank decides here by its own samples ({value}, line {getattr(found.node, 'lineno', 0)}), and ranks "
            f"that decide otherwise wait forever at line {line}: all_reduce what is compared, or broadcast rank 0's "
            "decision"
        )
        yield Concern("AD802", source, test, message, Severity.WARNING)


def deciding(test: ast.expr, ranks: Ranks, depth: int = 0) -> Operation | None:
    """The sum or mean over a rank's own samples by which a condition is decided, itself or by way of what is counted
    where such a condition holds: `if loss < best: bad = 0`, `if bad > patience`."""
    parts = [*test.values] if isinstance(test, ast.BoolOp) else [test]
    found = next((own for each in parts if (own := ranks.own(ranks.program.at(each)))), None)
    if found is not None or depth >= DEEPEST or isinstance(test, ast.Constant):
        return found
    if any(ranks.is_reduced(each) for each in ranks.program.at(test).operations):
        return None
    for node in all_of(test, ast.expr):
        if not isinstance(node, (ast.Name, ast.Attribute)) or any(
            map(ranks.is_reduced, ranks.program.at(node).operations)
        ):
            continue
        for source in ranks.sources:
            for outer in assigned_under(node, source):
                if outer is not test and (found := deciding(outer, ranks, depth + 1)) is not None:
                    return found
    return None
