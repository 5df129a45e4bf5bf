"""Temporary files: one that each rank has for itself, and one that is written to be put in place of another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Event, Interpreter
from autodist.program import Value
from autodist.script import Site
from autodist.source import Source, all_of, last_name, walk
from autodist.trace.things import Method, Object

IN_MEMORY = frozenset(["io.BytesIO", "io.StringIO"])
MAKING = frozenset(
    [
        "tempfile.NamedTemporaryFile",
        "tempfile.SpooledTemporaryFile",
        "tempfile.TemporaryFile",
        "tempfile.mkstemp",
    ]
)
PLACING = frozenset("replace rename move link".split())
"""What gives a file another name, under which it stays."""
COPYING = frozenset("copy copy2 copyfile copytree symlink".split())
PATHS = frozenset(["getitem", "pathlib.Path", "builtins.str", "os.fspath"])
"""What gives the path that it is given."""
LEAVING = (ast.Return, ast.Yield, ast.YieldFrom, ast.Break, ast.Continue, ast.Global, ast.Nonlocal, ast.Await)
SHARED = frozenset(
    "backward forward step optimizer loader wrap wrapped collective random random_number numpy_draw seed".split()
)
"""What all ranks do, or none."""


def is_private(event: Event, run: Interpreter) -> bool:
    """Whether something is written to a file that no other rank sees: one in memory, or a temporary one."""
    if not isinstance(event.node, ast.Call):
        return False
    values = [run.runs.program.at(node) for node in event.node.args]
    if any(isinstance(each, Object) and each.name in IN_MEMORY | MAKING for value in values for each in value.things):
        return True
    paths = [bool(_made(value)) for value in values]
    # of `shutil.copy(file.name, path)` the other path is no temporary one
    return bool(paths) and (all if last_name(event.node.func) in PLACING | COPYING else any)(paths)


def put_in_place(run: Interpreter) -> Iterator[Site]:
    """The statements that make a temporary file, write it and give it the name of another: of those that only rank 0
    gives one, the other ranks would leave theirs behind."""
    for event in {event.node: event for event in run.of("write") if not event.on_one_rank}.values():
        if not isinstance(event.node, ast.Call) or last_name(event.node.func) not in PLACING:
            continue
        method = [event.node.func.value] if isinstance(event.node.func, ast.Attribute) else []
        paths = [*event.node.args[:1], *(method if not event.node.args[1:] else ())]  # `Path(file.name).rename(path)`
        made = {each for path in paths for each in _made(run.runs.program.at(path))}
        home = event.source.function(event.node)
        inside = {each for each in made if home is not None and each in event.source.parents}
        if home is not None and inside:
            span = _span(event.source, home, min(inside, key=lambda each: getattr(each, "lineno", 0)), run)
            yield from (Site(event.source, statement) for statement in span)


def _span(source: Source, home: ast.AST, call: ast.AST, run: Interpreter) -> list[ast.stmt]:
    """The neighbouring statements that know of a temporary file, if nothing outside of them needs what they do."""
    reads = [each for each in all_of(home, ast.Name) if call in _made(run.runs.program.at(each))]
    first = source.statement(call)
    while True:
        block = source.block(first)
        around = [
            next(
                (at for at, each in enumerate(block) if each in (source.statement(read), *source.ancestors(read))), None
            )
            for read in reads
        ]
        if None not in around:
            break
        above = next((each for each in source.ancestors(first) if isinstance(each, ast.stmt)), None)
        if above is None or above is home:
            return []
        first = above
    places = [at for at in around if at is not None]
    span = block[min(places) : max(places) + 1] if places else []
    inside = {each for statement in span for each in walk(statement)}
    bound = {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    others = (each for each in all_of(home, ast.Name) if each not in inside)
    if any(isinstance(each, LEAVING) for each in inside) or any(each.id in bound for each in others):
        return []
    for event in run.events:
        chain = [event.node, *(each.node for each in event.calls)]
        if event.kind in SHARED and any(node in inside for node in chain):
            return []
    return span


def _made(value: Value) -> set[ast.AST]:
    """The calls that make the temporary files that a value may be, or the path of: `file`, `file.name`"""
    found, pending, seen = set[ast.AST](), [value], set[object]()
    while pending:
        each = pending.pop()
        owners = (
            thing.owner if isinstance(thing, Method) and thing.function == "name" else thing for thing in each.things
        )
        found |= {one.node for one in owners if isinstance(one, Object) and one.name in MAKING}
        for operation in each.operations - seen:
            seen.add(operation)
            found |= {operation.node} if operation.name in MAKING else set()
            pending += operation.inputs[:1] if operation.name in PATHS else ()
    return found
