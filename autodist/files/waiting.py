"""Where ranks wait for a file: until rank 0 has written what they read, or until all have looked for it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist import regions
from autodist.files import looking, preparing, temporary, writing
from autodist.interpreter import Event, Interpreter, once_a_run
from autodist.script import Site
from autodist.solve import paths
from autodist.source import Source, last_name, walk
from autodist.values import NOTHING

READ_WITHOUT_PATH = frozenset("__getitem__ __iter__ forward".split())
LISTING = frozenset("listdir glob iglob".split())
OF_PATHS = frozenset("open write_text write_bytes rename replace".split())
"""Methods of paths that are given something else."""
MEETING = frozenset("barrier all_reduce all_gather all_gather_object all_gather_into_tensor".split())
"""Collectives that no rank leaves before all have come to them."""
ENDING = frozenset("exit quit _exit".split())


def read_back(run: Interpreter, prepared: frozenset[ast.AST]) -> Iterator[tuple[Event, list[Event]]]:
    """Reads of files by all ranks, each with what may have written the file before."""
    written = [e for e in run.events if _writes_file(e, run)]
    written = [e for e in written if not regions.within(e, prepared) and not temporary.is_private(e, run)]
    for event in run.events:
        if not _reads_file(event, run):
            continue
        if event.on_one_rank or event.function is not None and event.function.name in READ_WITHOUT_PATH:
            continue
        before = [
            w for w in written if w.order < event.order and not w.on_one_rank and _may_be_same_file(w, event, run)
        ]
        if before and not event.inside_forward:
            yield event, before


def for_rank_zero(run: Interpreter, prepared: frozenset[ast.AST]) -> Iterator[Site]:
    """Reads of what rank 0 may just have written, where the script does not wait for it itself."""
    seen: dict[ast.AST, int] = {}
    met = [e.order for e in run.of("collective") if isinstance(e.node, ast.Call) and last_name(e.node.func) in MEETING]
    made = [e for e in run.of("mkdir") if isinstance(e.node, ast.Call) and e.node.args and not e.on_one_rank]
    for event in run.of("exists"):
        test = event.source.statement(event.node)
        if not isinstance(test, ast.If) or not any(isinstance(each, ast.Raise) for each in test.body):
            continue
        asked = [ast.dump(arg) for arg in event.node.args[:1]] if isinstance(event.node, ast.Call) else []
        if any(e.order < event.order and [ast.dump(arg) for arg in e.node.args[:1]] == asked for e in made):  # type: ignore[attr-defined]
            if test not in seen and not event.on_one_rank:
                seen[test] = event.order
                yield Site(event.source, test)
    for event, before in read_back(run, prepared):
        if any(before[-1].order < order < event.order for order in met):
            continue
        source, statement = _place(event, before[-1], run)
        statement = _listing(source, statement, before[-1].order, event.order, run) or statement
        if statement in seen:
            seen[statement] = event.order
        elif not any(_comes_by(source, each, statement) and order > before[-1].order for each, order in seen.items()):
            seen[statement] = event.order
            yield Site(source, statement)


def is_read_on_each_node(site: Site, run: Interpreter) -> bool:
    """Whether a statement fetches files, or makes those that all ranks read later, and can do so again: each node may
    have a disk of its own."""
    around = frozenset([site.node])
    inside = [event for event in run.events if regions.within(event, around)]
    if any(event.kind == "write" and preparing.removes(event.node) for event in inside):
        return False
    if any(event.kind == "download" for event in inside):
        return True
    written = [event for event in inside if _writes_file(event, run)]
    later = [e for e in run.events if _reads_file(e, run) and not e.on_one_rank and not regions.within(e, around)]
    return any(w.order < e.order and _may_be_same_file(w, e, run) for w in written for e in later)


def _writes_file(event: Event, run: Interpreter) -> bool:
    return event.kind in ("save", "write") or event.kind == "open" and writing.opens_for_writing(event.node, run)


def _reads_file(event: Event, run: Interpreter) -> bool:
    return event.kind in ("load", "read") or event.kind == "open" and not writing.opens_for_writing(event.node, run)


def _listing(source: Source, statement: ast.stmt, written: int, read: int, run: Interpreter) -> ast.stmt | None:
    """Where ranks list what rank 0 has written meanwhile, before they read it: one that lists earlier finds less."""
    for event in run.of("exists"):
        listing = event.source is source and isinstance(event.node, ast.Call) and last_name(event.node.func) in LISTING
        if listing and written < event.order < read and not event.on_one_rank:
            found = source.statement(event.node)
            if found is not statement and _comes_by(source, found, statement):
                return found
    return None


def first_writes(run: Interpreter, waits: Iterable[Site], guarded: Iterable[Site]) -> Iterator[Site]:
    """Where rank 0 writes a file that ranks read if they find it: one that looks later than the others would find it
    half written, and go another way."""
    asked = (site.node for site in waits if isinstance(site.node, ast.If))
    tests: set[ast.AST] = {node for node in asked if looking.tests_files(node.test)}
    entered: set[ast.AST] = set()
    for site in guarded:
        statement = site.source.statement(site.node)
        home = site.source.function(statement)
        if _runs_where_missing(site.source, statement, tests):
            yield Site(site.source, statement)
        elif home is not None and home not in entered and _is_entered_where_missing(home, tests, run):
            entered.add(home)  # all ranks have looked once they come to the first
            yield Site(site.source, statement)


def _runs_where_missing(source: Source, statement: ast.stmt, tests: set[ast.AST]) -> bool:
    """Whether a statement is run where a file was looked for and not found."""
    return not tests.isdisjoint(source.ancestors(statement)) and looking.stands_where_missing(source, statement)


def _is_entered_where_missing(home: ast.AST, tests: set[ast.AST], run: Interpreter, depth: int = 4) -> bool:
    """Whether a function is called there, `data = Loader(path).prepare()`, by itself or by another one."""
    for call, source in run.callers.get(home, {}).items() if depth else ():
        statement, caller = source.statement(call), source.function(call)
        if _runs_where_missing(source, statement, tests):
            return True
        if caller is not None and _is_entered_where_missing(caller, tests, run, depth - 1):
            return True
    return False


def rewrites(run: Interpreter, guarded: Iterable[Site], prepared: frozenset[ast.AST]) -> Iterator[Site]:
    """Where rank 0 writes a file anew that ranks have read since they last took a step together: a slower one would
    read what is half written."""
    statements: dict[ast.AST, Source] = {site.source.statement(site.node): site.source for site in guarded}
    read: list[Event] = []
    for event in run.events:
        if event.kind in regions.TOGETHER:
            read = []
        elif event.on_one_rank or regions.within(event, prepared):
            continue
        elif _reads_file(event, run):
            read.append(event)
        elif _writes_file(event, run) and any(_is_same_file(event, each, run) for each in read):
            around = (event.source.statement(event.node), *event.source.ancestors(event.node))
            found = next((each for each in around if each in statements), None)
            if found is not None and not looking.stands_where_missing(event.source, event.source.statement(event.node)):
                yield Site(event.source, found)


def _is_same_file(written: Event, read: Event, run: Interpreter) -> bool:
    """Whether a file is surely written that was read: of checkpoints, one whose path is spelled alike."""
    if read.kind == "load":
        return not _path(written, run).isdisjoint(_path(read, run))
    return _may_be_same_file(written, read, run)


def looked(run: Interpreter, guarded: Iterable[Site], prepared: frozenset[ast.AST]) -> Iterator[Site]:
    """Where rank 0 makes or removes what ranks have looked for, which ends a script that finds it: `if exists(path):
    sys.exit()`. One that looks later than the others would find what rank 0 has made."""
    made = [e for e in run.of("mkdir") if not e.on_one_rank and not regions.within(e, prepared)]
    changes = {site.source.statement(site.node): site.source for site in guarded}
    changes |= {event.source.statement(event.node): event.source for event in made}
    found: dict[ast.stmt, Source] = {}
    for event in run.of("exists"):
        test = event.source.statement(event.node)
        if not isinstance(test, ast.If) or event.node not in walk(test.test) or regions.within(event, prepared):
            continue
        there, missing = (test.body, test.orelse) if looking.finds(test.test) else (test.orelse, test.body)
        if event.on_one_rank or not any(_ends(each) for branch in there for each in walk(branch)):
            continue
        home, asked = event.source.home(test), _asked(event.node)
        own = sorted((each for each in changes if changes[each] is event.source), key=lambda each: each.lineno)
        inside = [next((e for e in own if _stands_in(e, branch, event.source)), None) for branch in (there, missing)]
        later = (e for e in own if e.lineno > test.lineno and event.source.home(e) is home and _names_path(e, asked))
        first = [*filter(None, inside), *([next(later, None)] if inside[1] is None else [])]
        found |= {each: event.source for each in first if each is not None}
    yield from (Site(source, statement) for statement, source in found.items())


def numbered(run: Interpreter, guarded: Iterable[Site]) -> Iterator[Site]:
    """Where a folder is made under the first name that is free, `exp3`, on all ranks, or to be read from later: a rank
    that looks later than the others would find it taken, and go on with the next."""
    alone = {site.source.statement(site.node) for site in guarded}
    loads = [event.order for event in run.of("load") if not event.on_one_rank]
    homes: set[ast.AST] = set()
    for event in run.of("mkdir"):
        statement = event.source.statement(event.node)
        home = event.source.home(statement)
        if event.on_one_rank or home in homes:
            continue
        if not any(order > event.order for order in loads) and not alone.isdisjoint(
            (statement, *event.source.ancestors(statement))
        ):
            continue
        made = paths.made_of(run.runs.program.at(writing.folder(event, run)))
        loops = (loop.node for each in made for loop in each.region.loops)
        if any(map(paths.looks_for_files, made)) or any(map(_tries_names, loops)):
            homes.add(home)
            yield Site(event.source, statement)


def _tries_names(loop: ast.AST) -> bool:
    """`while os.path.exists(path): ...`, `while True: if not os.path.exists(path): break`"""
    if isinstance(loop, ast.While) and looking.tests_files(loop.test):
        return True
    return any(isinstance(n, ast.If) and looking.ends_search(n) for n in walk(loop))


def _ends(node: ast.AST) -> bool:
    """`sys.exit()`, `raise ValueError(path)`"""
    return isinstance(node, ast.Raise) or isinstance(node, ast.Call) and last_name(node.func) in ENDING


def _asked(node: ast.AST) -> str:
    """The path that is looked for, as it is written."""
    if not isinstance(node, ast.Call):
        return ""
    if node.args:
        return ast.dump(node.args[0])
    return ast.dump(node.func.value) if isinstance(node.func, ast.Attribute) else ""


def _names_path(statement: ast.stmt, asked: str) -> bool:
    """Whether a call of a statement is given a path, or is one of its methods."""
    calls = [each for each in walk(statement) if isinstance(each, ast.Call)]
    return any(asked == _asked(call) or asked in map(ast.dump, call.args) for call in calls)


def _stands_in(statement: ast.stmt, branch: list[ast.stmt], source: Source) -> bool:
    return any(each in branch for each in (statement, *source.ancestors(statement)))


def _place(event: Event, written: Event, run: Interpreter) -> tuple[Source, ast.stmt]:
    """The statement before which ranks wait. What reads a file at once may do so in a class that knows nothing of who
    wrote it, `Rows("train.csv")`: there they wait where that is called."""
    source, node = _opened(event, run)
    for own, other in zip(event.calls, (*written.calls, None), strict=False):
        if other is not None and own.node is other.node and own.function is other.function:
            continue
        if own.node is not None and (event.kind == "read" or event.kind == "open" and own.function.name == "__init__"):
            source, node = own.source, own.node
        break
    statement: ast.stmt = source.statement(node)
    for ancestor in source.ancestors(statement):
        if isinstance(ancestor, ast.If) and looking.tests_files(ancestor.test):
            statement = ancestor
    above = source.before(statement)
    return source, next((each for each in above if _insists_on_file(each)), statement)


def _insists_on_file(statement: ast.stmt) -> bool:
    """`assert os.path.isfile(path)`, `if not os.path.exists(path): raise ...`, or `return`"""
    if isinstance(statement, ast.If):
        leaves = any(isinstance(each, (ast.Raise, ast.Return)) for each in statement.body)
        return leaves and looking.tests_files(statement.test)
    return isinstance(statement, ast.Assert) and looking.tests_files(statement.test)


def _comes_by(source: Source, waiting: ast.AST, statement: ast.stmt) -> bool:
    """Whether whoever comes to a statement has come by another one, further up in its block or in one around it."""
    if not isinstance(waiting, ast.stmt) or waiting not in source.parents:
        return False
    block = source.block(waiting)
    around = {statement, *source.ancestors(statement)}
    return any(each in around for each in block[block.index(waiting) :])


def _opened(event: Event, run: Interpreter) -> tuple[Source, ast.AST]:
    """Where a file is opened that is read: `with open(path, "rb") as f: state = torch.load(f)`"""
    read = event.node.args[:1] if isinstance(event.node, ast.Call) and event.kind == "load" else []
    for thing in (t for arg in read for t in run.values.get(arg, NOTHING).objects("file")):
        if any(isinstance(each, ast.With) for each in thing.source.ancestors(thing.node)):
            return thing.source, thing.node
    return event.source, event.node


def _may_be_same_file(written: Event, read: Event, run: Interpreter) -> bool:
    if read.kind == "load":
        return written.kind == "save"
    return paths.may_be_same(_path(written, run), _path(read, run))


def _path(event: Event, run: Interpreter) -> frozenset[str]:
    """How the path may be spelled that a file is written to, or read from."""
    return _spelled(run, event.node, _writes_file(event, run))


@once_a_run
def _spelled(run: Interpreter, call: ast.AST, writes: bool) -> frozenset[str]:
    if not isinstance(call, ast.Call):
        return frozenset()
    given = [*call.args, *(each.value for each in call.keywords)]
    if isinstance(call.func, ast.Attribute) and (not given or call.func.attr in OF_PATHS):
        given = [call.func.value, *given]  # `path.stat()`, and of `os.replace(new, old)` nothing
    if writes and last_name(call.func) in temporary.COPYING:
        given = given[1:]  # what is copied is only read
    found = [paths.spelled(run.runs.program.at(node)) for node in given]
    return frozenset().union(*(found if writes else list(filter(None, found))[:1]))
