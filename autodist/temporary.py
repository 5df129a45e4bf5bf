"""Temporary files: one that each rank has for itself, and one that is written to be put in place of another."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Event, Interpreter
from autodist.script import Site
from autodist.source import Source, all_of, last_name, walk
from autodist.values import NOTHING, External, Object

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
LEAVING = (ast.Return, ast.Yield, ast.YieldFrom, ast.Break, ast.Continue, ast.Global, ast.Nonlocal, ast.Await)
SHARED = frozenset(
    "backward forward step optimizer loader wrap wrapped collective random random_number numpy_draw seed".split()
)
"""What all ranks do, or none."""


def is_private(event: Event, run: Interpreter) -> bool:
    """Whether something is written to a file that no other rank sees: one in memory, or a temporary one."""
    if not isinstance(event.node, ast.Call):
        return False
    things = (thing for node in event.node.args for thing in run.values.get(node, NOTHING).things)
    if any(isinstance(thing, Object) and thing.name in IN_MEMORY | MAKING for thing in things):
        return True
    paths = [_is_temporary(path, event.source, run) for path in event.node.args]
    # of `shutil.copy(file.name, path)` the other path is no temporary one
    return bool(paths) and (all if last_name(event.node.func) in PLACING | COPYING else any)(paths)


def put_in_place(run: Interpreter) -> Iterator[Site]:
    """The statements that make a temporary file, write it and give it the name of another: of those that only rank 0
    gives one, the other ranks would leave theirs behind."""
    seen: set[ast.AST] = set()
    placing = [
        event
        for event in run.of("write")
        if isinstance(event.node, ast.Call) and last_name(event.node.func) in PLACING and not event.on_one_rank
    ]
    for event in placing:
        assert isinstance(event.node, ast.Call)
        source = event.source
        home = source.function(event.node)
        made = [each for path in event.node.args[:1] for each in _made(path, source, run)]
        made += [each.func.value for each in [event.node] if isinstance(each.func, ast.Attribute) and not each.args[1:]]
        calls = [each for each in made if isinstance(each, ast.Call) and _makes(each, run)]
        if home is None or not calls or event.node in seen:
            continue
        seen.add(event.node)
        span = _span(source, home, calls[0], run)
        yield from (Site(source, statement) for statement in span)


def _span(source: Source, home: ast.AST, call: ast.Call, run: Interpreter) -> list[ast.stmt]:
    """The neighbouring statements that know of a temporary file, if nothing outside of them needs what they do."""
    names = set(_names(source, home, call))
    reads = [each for each in all_of(home, ast.Name) if each.id in names]
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


def _names(source: Source, home: ast.AST, call: ast.Call) -> Iterator[str]:
    """What a temporary file, and its path, are called."""
    found: set[str] = set()
    statement = source.statement(call)
    items = statement.items if isinstance(statement, ast.With) else []
    targets = [item.optional_vars for item in items if call in walk(item.context_expr)]
    targets += statement.targets if isinstance(statement, ast.Assign) else []
    found |= {each.id for target in targets if target for each in all_of(target, ast.Name)}
    for each in all_of(home, ast.Assign):  # `path = file.name`
        if any(isinstance(name, ast.Name) and name.id in found for name in walk(each.value)):
            if isinstance(each.value, (ast.Name, ast.Attribute, ast.Call)):
                found |= {target.id for target in each.targets if isinstance(target, ast.Name)}
    yield from found


def _is_temporary(path: ast.expr, source: Source, run: Interpreter) -> bool:
    """`file.name` of a temporary file, under whatever name."""
    return any(isinstance(each, ast.Call) and _makes(each, run) for each in _made(path, source, run))


def _made(path: ast.expr, source: Source, run: Interpreter, depth: int = 4) -> Iterator[ast.expr]:
    """The calls that a path comes from, within its function."""
    if isinstance(path, ast.Attribute) and path.attr == "name":
        things = [each for each in run.values.get(path.value, NOTHING).things if isinstance(each, Object)]
        yield from (each.node for each in things if isinstance(each.node, ast.expr))
    elif isinstance(path, ast.Call) and last_name(path.func) in ("Path", "str") and path.args and depth:
        yield from _made(path.args[0], source, run, depth - 1)
    elif isinstance(path, ast.Name) and depth:
        home = source.function(path) or source.tree
        for each in all_of(home, ast.Assign):
            for target in each.targets:
                if isinstance(target, ast.Name) and target.id == path.id:
                    yield from _made(each.value, source, run, depth - 1)
                elif isinstance(target, ast.Tuple) and any(
                    isinstance(part, ast.Name) and part.id == path.id for part in target.elts
                ):
                    yield each.value  # `descriptor, path = tempfile.mkstemp()`


def _makes(call: ast.Call, run: Interpreter) -> bool:
    return any(isinstance(t, External) and t.name in MAKING for t in run.values.get(call.func, NOTHING).things)
