"""Where a script that joins a process group itself surely has one, and what says elsewhere which rank this is."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist.analyze.own_rank import FUNCTIONS, ahead, exits, is_told_rank, leaves, own_nodes, own_test
from autodist.interpreter import Event, Interpreter
from autodist.models import is_main_guard
from autodist.rule import Severity
from autodist.script import Concern, Shards, Site, WithoutGroup
from autodist.source import Source, walk

Place = tuple[ast.AST, Source]


def without_group(
    run: Interpreter, sites: Iterable[Site], read_back: Iterable[tuple[Event, list[Event]]] = ()
) -> dict[ast.AST, WithoutGroup]:
    """What to ask instead of the process group, for those of ``sites`` where it may not exist: ahead of
    `init_process_group`, after `destroy_process_group`, or where a condition leaves it out. ``read_back`` says which
    events read what others have written."""
    joins, ends = run.of("init_process_group"), run.of("destroy_process_group")
    if not joins:
        return {}
    optional = sometimes_joined(run) is not None

    def is_early(event: Event) -> bool:
        return event.order < joins[0].order

    def is_late(event: Event) -> bool:
        return any(_follows(end, event) for end in ends)

    kept = {w for read, written in read_back for w in written if is_late(read) or is_early(read)}
    found: dict[ast.AST, WithoutGroup] = {}
    for site in dict.fromkeys(sites):
        inside = set(walk(site.node))
        events = [event for event in run.events if event.node in inside]
        early, late = any(map(is_early, events)), any(map(is_late, events))
        if not (early or late or optional):
            continue
        read = any(event in kept for event in events)
        own = own_test(run, site, events, early, late) if not read else None
        told = own is None and not read and is_told_rank(run)
        found[site.node] = WithoutGroup(own, told, not early and not late, read)
    return found


def gathered_without_group(run: Interpreter, sharded: Shards) -> Iterator[Concern]:
    """What needs the shards of all ranks where they have no process group."""
    sites = {site.node: site for site in (*sharded.saves, *sharded.reads)}
    places = without_group(run, sites.values())
    for node, site in sites.items():
        if node in places and not places[node].optional:
            message = (
                "needs the shards of all ranks, which have no process group here: call destroy_process_group below"
            )
            yield Concern("AD907", site.source, node, message, Severity.REFUSAL)


# where the group is joined, and left


def sometimes_joined(run: Interpreter) -> Site | None:
    """The statement that joins a process group only under a condition, or not where that fails."""
    for event in run.of("init_process_group"):
        returned = False
        for node, source in _chain(event):
            statement = _condition(node, source, run) or (source.statement(node) if returned else None)
            if statement is not None:
                return Site(source, statement)
            returned = _may_have_returned(node, source, run)
    return None


def _chain(event: Event) -> list[Place]:
    """Where something happens, and the calls that lead there, outwards."""
    calls = [(call.node, call.source) for call in reversed(event.calls) if call.node is not None]
    return [(event.node, event.source), *calls]


def _condition(node: ast.AST, source: Source, run: Interpreter) -> ast.stmt | None:
    """The innermost condition around a call, in its function, under which alone the script joins a group."""
    inner = node
    for around in source.ancestors(node):
        if isinstance(around, FUNCTIONS):
            return None
        match around:
            case ast.If() if not (is_main_guard(around) or _asks_for_group(around)):
                if not _joins_otherwise(around, source, run):
                    return around
            case ast.Try() if inner in around.body and not all(leaves(each.body) for each in around.handlers):
                return around
        inner = around
    return None


def _asks_for_group(condition: ast.If) -> bool:
    """`if not dist.is_initialized():`: it is joined in one way or another."""
    return "is_initialized" in ast.unparse(condition.test)


def _joins_otherwise(condition: ast.If, source: Source, run: Interpreter) -> bool:
    """Whether the script joins a group where a condition does not hold, too: in its other branch, or, where it returns,
    after it."""
    others = list(condition.orelse)
    if condition.body and isinstance(condition.body[-1], ast.Return):
        block = source.block(condition)
        others += block[block.index(condition) + 1 :]
    joining = {event.node for event in run.of("init_process_group")}
    return any(node in joining for each in others for node in walk(each))


def _may_have_returned(node: ast.AST, source: Source, run: Interpreter) -> bool:
    """Whether a function may have returned ahead of a call in it, without a group: `if world_size == 1: return`."""
    joining = {event.node for event in run.of("init_process_group")}
    for statement in ahead(node, source, source.function(node)):
        if isinstance(statement, ast.If) and not _asks_for_group(statement):
            inside = [*own_nodes(statement)]
            if any(isinstance(each, ast.Return) for each in inside) and joining.isdisjoint(inside):
                return True
    return False


def _follows(end: Event, event: Event) -> bool:
    """Whether something may happen after the group has been left."""
    if event.order < end.order:
        return False
    shared = 0
    for ours, theirs in zip(end.calls, event.calls, strict=False):
        if ours.node is not theirs.node:
            break
        shared += 1
    later = event.calls[shared].node if shared < len(event.calls) else event.node
    (node, source), *inner = [*((call.node, call.source) for call in end.calls[shared:]), (end.node, end.source)]
    if node is None or later is None or any(each is None for each, _ in inner):
        return True  # what a library runs
    if any(each is not None and _never_goes_on(each, place) for each, place in inner):
        return False
    return _goes_on_to(source.statement(node), later, source)


def _never_goes_on(node: ast.AST, source: Source) -> bool:
    """Whether the process ends after a statement of a function, ahead of its return."""
    statement = source.statement(node)
    block = source.block(statement)
    return any(isinstance(each, ast.Raise) or exits(each) for each in block[block.index(statement) :])


def _goes_on_to(statement: ast.stmt, later: ast.AST, source: Source) -> bool:
    """Whether something in the same function is run after a statement of it: not behind a `return`."""
    left = False
    while not isinstance(statement, FUNCTIONS):
        block, parent = source.block(statement), source.parents[statement]
        behind = block[block.index(statement) + 1 :]
        if not left:
            for each in behind:
                if any(node is later for node in walk(each)):
                    return True
            left = leaves([statement, *behind])
        if isinstance(parent, ast.Try):
            behind = [] if statement in parent.finalbody else list(parent.finalbody)
            behind += parent.orelse if statement in parent.body and not left else []
            if any(node is later for each in behind for node in walk(each)):
                return True
        while not isinstance(parent, (ast.stmt, ast.Module)):
            parent = source.parents[parent]
        if not isinstance(parent, ast.stmt):
            return False
        statement = parent
    return False
