"""Whether ranks call the same collectives, as often, in the same order, with tensors of the same type."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from autodist.program import Operation
from autodist.ranks.reading import RANK_0, RANK_1, Ranks
from autodist.ranks.waiting import Meeting, meetings
from autodist.ranks.ways import Ways
from autodist.rule import Severity
from autodist.script import Concern
from autodist.source import Source, all_of, shortened, walk

TRIMMED = ("operator.mod", "operator.floordiv")
FEW = 40


def rounds(ranks: Ranks, ways: Ways) -> Iterator[Concern]:
    """Loops over a rank's own share in which it waits for the others: shares may differ by one."""
    told = set[ast.AST]()
    for meeting in meetings(ranks):
        for way in ways.to(meeting.node, meeting.source):
            for loop in way.within:
                if isinstance(loop, ast.For) and loop not in told and _is_own(loop.iter, ranks):
                    told.add(loop)
                    source = next(each for each in ranks.sources if loop in each.parents)
                    line = getattr(meeting.node, "lineno", 0)
                    message = (
                        f"{shortened(source.code(loop.iter))} is this rank's share, which may be longer than that of "
                        f"another, and each round waits for all ranks at line {line}: give all ranks as many rounds"
                    )
                    yield Concern("AD803", source, loop, message, Severity.WARNING)


def _is_own(node: ast.expr, ranks: Ranks) -> bool:
    """Whether something is a share that is taken by every so many: `files[rank::world_size]`."""
    if (
        isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in ("enumerate", "sorted", "list", "tqdm")
        and node.args
    ):
        return _is_own(node.args[0], ranks)
    if isinstance(node, ast.Name):
        stores = [each for each, _ in ranks.stores(node)]
        return len(stores) == 1 and not isinstance(stores[0].value, ast.Name) and _is_own(stores[0].value, ranks)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        ends = [node.slice.lower, node.slice.step] if node.slice.upper is None else []
        return len(ends) == 2 and _by_turns(ends[0], ends[1], ranks) and not _trimmed(node.value, ranks)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range" and len(node.args) == 3:
        start, stop, step = node.args
        return _by_turns(start, step, ranks) and not _trimmed(stop, ranks)
    return False


def _by_turns(start: ast.expr | None, step: ast.expr | None, ranks: Ranks) -> bool:
    if start is None or step is None:
        return False
    here, there = (ranks.evaluated(ranks.program.at(start), each) for each in (RANK_0, RANK_1))
    return (here, there) == (RANK_0, RANK_1) and any(map(ranks.counts, ranks.program.at(step).operations))


def _trimmed(node: ast.expr, ranks: Ranks) -> bool:
    """Whether a length may have been made to divide."""
    value = ranks.program.at(node)
    if value.is_constant:
        return True
    pending, seen = list(value.operations), set[Operation]()
    while pending and len(seen) < FEW:
        each = pending.pop()
        if each.name in TRIMMED:
            return True
        if each not in seen:
            seen.add(each)
            pending += [op for part in each.operands for op in part.operations]
    return any(isinstance(part, ast.BinOp) and isinstance(part.op, (ast.Mod, ast.FloorDiv)) for part in walk(node))


def orders(ranks: Ranks) -> Iterator[Concern]:
    """Branches of which ranks take one each, and that call the same collectives in another order."""
    found: dict[Source, list[Meeting]] = {}
    for each in meetings(ranks):
        found.setdefault(each.source, []).append(each)
    for source, here in found.items():
        for branch in all_of(source.tree, ast.If):
            if branch.orelse and ranks.holds(branch.test, RANK_0) is not ranks.holds(branch.test, RANK_1):
                sides = [_inside(block, here) for block in (branch.body, branch.orelse)]
                kinds = [[each.kind for each in side] for side in sides]
                if Counter(kinds[0]) == Counter(kinds[1]) and kinds[0] != kinds[1]:
                    pairs = zip(*sides, strict=True)
                    first, other = next((one, two) for one, two in pairs if one.kind != two.kind)
                    message = (
                        f"ranks that go this way call {first.kind} while the others call {other.kind} (line "
                        f"{getattr(other.node, 'lineno', 0)}): collectives are matched by their order, which must be "
                        "the same on all ranks"
                    )
                    yield Concern("AD804", source, first.node, message, Severity.WARNING)


def _inside(block: list[ast.stmt], known: list[Meeting]) -> list[Meeting]:
    within = {node for statement in block for node in walk(statement)}
    return sorted((each for each in known if each.node in within), key=lambda each: getattr(each.node, "lineno", 0))


def types(ranks: Ranks) -> Iterator[Concern]:
    """Tensors that ranks make of another type each, and reduce."""
    told = set[ast.AST]()
    for each in ranks.program.operations:
        if not ranks.catalog.has(each.name, "collective") or not each.inputs or each.node in told:
            continue
        for made in each.inputs[0].operations:
            keywords = made.node.keywords if isinstance(made.node, ast.Call) else []
            asked = next((key.value for key in keywords if key.arg == "dtype"), None)
            if asked is not None and (test := _chosen(asked, ranks)) is not None:
                told.add(each.node)
                message = (
                    f"ranks give tensors of different types (`{shortened(ast.unparse(test))}` chooses, line "
                    f"{test.lineno}), whose bytes would be added up as they lie: give the same type on all ranks"
                )
                yield Concern("AD804", each.source, each.node, message, Severity.WARNING)
                break


def _chosen(asked: ast.expr, ranks: Ranks) -> ast.expr | None:
    """The condition by which ranks choose different types."""
    values = [asked]
    if isinstance(asked, (ast.Name, ast.Attribute)):
        values = [statement.value for statement, _ in ranks.stores(asked)]
    for each in values:
        if isinstance(each, ast.IfExp) and ast.dump(each.body) != ast.dump(each.orelse):
            here, there = ranks.holds(each.test, RANK_0), ranks.holds(each.test, RANK_1)
            if here is not None and there is not None and here is not there:
                return each.test
    return None
