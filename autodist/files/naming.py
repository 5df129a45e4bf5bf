"""Names that a script takes from the clock or draws for itself: each rank would have another one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.files import preparing, writing
from autodist.interpreter import Event, Interpreter, once_a_run
from autodist.rule import Severity
from autodist.script import Concern, Site
from autodist.source import Source
from autodist.values import NOTHING, Object, is_clock

PLACES = ("log_dir", "logdir", "run_dir")
READING = frozenset("load read exists".split())


def named_apart(run: Interpreter) -> tuple[Site, ...]:
    """What names a place that all ranks read from: only rank 0 writes there, under its own name."""
    names = {_whole(origin.source, origin.node): origin for origin in _read(run) if not _is_early(origin, run)}
    return tuple(Site(origin.source, node) for node, origin in names.items())


def concerns(run: Interpreter) -> Iterator[Concern]:
    """The names that ranks cannot agree on, since they have not found each other yet."""
    for origin in dict.fromkeys(origin for origin in _read(run) if _is_early(origin, run)):
        message = (
            "each rank takes another name here, while modules are imported, and reads where rank 0 has not written: "
            "take it in a function that the training script calls"
        )
        yield Concern("AD307", origin.source, origin.node, message, Severity.WARNING)


def folders_apart(run: Interpreter) -> frozenset[ast.AST]:
    """Calls that make a folder of which each rank would have one of its own, though only rank 0 writes there."""
    shared = {site.node for site in named_apart(run)}
    return frozenset(
        event.node
        for event in run.of("mkdir")
        if any(_whole(origin.source, origin.node) not in shared for origin in _clocks(event, run))
    )


def places_of_writers(run: Interpreter, alone: list[Site]) -> tuple[Site, ...]:
    """What all ranks ask of a writer that rank 0 alone has: `os.path.join(writer.log_dir, "last.pt")`."""
    there = {site.node for site in alone}
    return tuple(
        Site(source, node)
        for node, source in run.sources.items()
        if isinstance(node, ast.Attribute)
        and node.attr in PLACES
        and any(isinstance(t, Object) and "writer" in t.roles for t in run.values.get(node.value, NOTHING).things)
        and there.isdisjoint(source.ancestors(node))
    )


def _is_early(origin: Object, run: Interpreter) -> bool:
    """Whether it is read while a module of the project is imported, before the ranks have found each other."""
    return any(
        event.node is origin.node and event.source is not run.project.entry and not event.calls
        for event in run.of("clock")
    )


def _read(run: Interpreter) -> Iterator[Object]:
    """What names the places that all ranks read from."""
    for event in run.events:
        if _reads(event, run) and not event.on_one_rank:
            yield from _clocks(event, run)


def _reads(event: Event, run: Interpreter) -> bool:
    return event.kind in READING or event.kind == "open" and not writing.opens_for_writing(event.node, run)


def _clocks(event: Event, run: Interpreter) -> Iterator[Object]:
    """Where a path was named."""
    if not isinstance(event.node, ast.Call):
        return
    paths = [*event.node.args, *(keyword.value for keyword in event.node.keywords)]
    if isinstance(event.node.func, ast.Attribute):
        paths.append(event.node.func.value)  # `folder.mkdir()`
    for path in paths:
        for origin in run.values.get(path, NOTHING).origins:
            if isinstance(origin, Object) and is_clock(origin):
                yield origin


def _whole(source: Source, node: ast.expr) -> ast.expr:
    """`datetime.now().strftime("%H")` of `datetime.now()`, and `uuid4().hex` of `uuid4()`."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.Attribute):
        called = source.parents.get(parent)
        if not (isinstance(called, ast.Call) and called.func is parent):
            return _whole(source, parent)
        if all(isinstance(each, ast.Constant) for each in (*called.args, *(k.value for k in called.keywords))):
            return _whole(source, called)
    return node


@once_a_run
def rank_zero_statements(run: Interpreter) -> list[Site]:
    """The statements that rank 0 alone will run."""
    prepared, alone = preparing.preparations(run)
    writes = writing.writes(run, frozenset(site.node for site in (*prepared, *alone)), folders_apart(run))[0]
    return [*alone, *writes]
