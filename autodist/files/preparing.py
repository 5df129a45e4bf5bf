"""Statements that put data on disk before training: rank 0 runs them first, or alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.files import temporary
from autodist.files.fetching import downloads, is_fetched_whatever_is_there
from autodist.files.looking import (
    Met,
    ends_search,
    file_test,
    is_left_out,
    places,
    stands_where_missing,
    tests_files,
    with_answer,
)
from autodist.files.writing import binds_for_others, opens_for_writing
from autodist.interpreter import Event, Interpreter
from autodist.regions import stands_in, within
from autodist.script import Site
from autodist.source import Source, all_of, walk
from autodist.values import Function, drawn_from

PREPARING = frozenset("download open write save".split())
TRAINING = frozenset("backward loader optimizer forward step wrap wrapped pass".split())
REMOVING = frozenset("rmtree remove unlink rmdir removedirs".split())


def preparations(run: Interpreter) -> tuple[list[Site], list[Site]]:
    """Statements that put data on disk before training, the outermost ones that do nothing of the training: those
    that rank 0 runs first, since they do nothing when the files are there, and those that rank 0 runs alone."""
    wide = frozenset[ast.AST]()
    while True:
        prepared, alone = _preparations(run, wide)
        wider = frozenset(_around_others([*prepared, *alone], run)) - wide
        if not wider:
            return prepared, alone
        wide |= wider


def _around_others(sites: list[Site], run: Interpreter) -> Iterator[ast.AST]:
    """The statements in which ranks come to another one, by a call: they cannot wait for each other in there."""
    nodes = frozenset(site.node for site in sites)
    for event in run.events if len(nodes) > 1 else ():
        if event.kind in PREPARING:
            around = (next((n for n in (node, *s.ancestors(node)) if n in nodes), None) for node, s in places(event))
            yield from [*dict.fromkeys(node for node in around if node is not None)][:-1]


def _preparations(run: Interpreter, wide: frozenset[ast.AST]) -> tuple[list[Site], list[Site]]:
    """The same, without statements that are too ``wide``: what is called in them is looked at in their place."""
    start = next((e.order for e in run.events if e.kind in ("backward", "optimizer")), len(run.events))
    steps = next((e.order for e in run.events if e.kind == "backward"), len(run.events))
    found: dict[ast.stmt, Site] = {}
    alone: dict[ast.stmt, Site] = {}
    met = Met.of(run)
    happening: dict[tuple[int, ast.AST | None], set[str]] = {}
    for event in run.events:
        for depth, call in enumerate(event.calls):
            kind = "removal" if event.kind == "write" and removes(event.node) else event.kind
            if kind in ("iter", "iterate") and any(True for _ in drawn_from(event.value)):
                kind = "pass"  # which draws, on rank 0 alone, what all draw from
            happening.setdefault((depth, call.node), set()).add(kind)
    for event in run.events:
        if (
            event.order >= (steps if event.kind == "download" else start)
            or event.kind not in PREPARING
            or event.on_one_rank
            or event.inside_forward
        ):
            continue
        if event.kind == "open" and not opens_for_writing(event.node, run) or temporary.is_private(event, run):
            continue
        if event.kind == "download" and not downloads(event.node, run):
            continue
        if _takes_free_name(event, met):
            continue
        chain = [(depth, each.node, each.source) for depth, each in enumerate(event.calls)]
        for depth, node, source in chain:
            if node is None:
                continue
            inside = happening[depth, node]
            if inside & TRAINING:
                continue
            fetched = event.kind == "download"
            spared = (fetched or "removal" not in inside) and _is_spared(event, depth)
            statement = source.statement(node)
            anew = not fetched or is_fetched_whatever_is_there(event, run)
            outer = file_test(source, statement, met)
            if statement in wide or outer in wide:
                continue
            if outer is statement and anew and not spared:
                if _runs_alone(statement, node, event.calls[depth].function, inside):
                    alone.setdefault(statement, Site(source, statement))
                    break
                if fetched:
                    continue  # others may do the rest of it at the same time
            if fetched or spared or outer is not statement:
                outer = _attempt(source, outer, run) if fetched else outer
                found |= {each: Site(source, each) for each in with_answer(source, outer, met)}
            break
        else:
            statement = event.source.statement(event.node)
            outer = file_test(event.source, statement, met)
            if event.kind == "download":
                anew = outer is statement
                outer = _attempt(event.source, outer, run)
                if anew and _fetches_anew(event, outer, run):
                    outer = _with_archive(event.source, outer)
                    alone.setdefault(outer, Site(event.source, outer))
                    continue
            if event.kind == "write" and removes(event.node):
                continue  # who comes second finds something else there
            if event.kind == "open" and _is_kept_open(event, outer):
                continue  # who comes second goes on writing there
            if event.kind == "download" or outer is not statement:
                found |= {each: Site(event.source, each) for each in with_answer(event.source, outer, met)}
    prepared = _as_one(list(found.values()), run)
    first = frozenset(site.node for site in prepared)
    prepared = [each for each in prepared if first.isdisjoint(each.source.ancestors(each.node))]
    return prepared, [site for site in alone.values() if not stands_in(site.source, site.node, first)]


def not_guarded_within(alone: list[Site], prepared: list[Site], run: Interpreter) -> list[Site]:
    """Those of the statements that rank 0 runs alone which need that: where others call what writes the same way, as
    `model.save(path)` also in each epoch, it is guarded in the function itself."""
    outside = frozenset(site.node for site in (*prepared, *alone))
    writing = [
        event
        for event in run.events
        if event.kind in ("save", "write", "mkdir", "download")
        or event.kind == "open"
        and opens_for_writing(event.node, run)
    ]
    elsewhere = {event.node for event in writing if not event.on_one_rank and not within(event, outside)}
    needed = []
    for site in alone:
        inside = [event.node for event in writing if within(event, frozenset([site.node]))]
        if not inside or not elsewhere.issuperset(inside):
            needed.append(site)
    return needed


def _as_one(found: list[Site], run: Interpreter) -> list[Site]:
    """The same statements, but for those in several branches of one condition, which are waited for together."""
    chains: dict[ast.If, list[Site]] = {}
    for site in found:
        if (chain := _chain_of(site.source, site.node)) is not None:
            chains.setdefault(chain, []).append(site)
    lifted: dict[ast.AST, Site] = {}
    for chain, sites in chains.items():
        branches = {id(site.source.block(site.node)) for site in sites if isinstance(site.node, ast.stmt)}
        if len(branches) > 1 and _only_makes(chain, run):
            lifted |= {site.node: Site(site.source, chain) for site in sites}
    return list({site.node: site for site in (lifted.get(each.node, each) for each in found)}.values())


def _chain_of(source: Source, statement: ast.AST) -> ast.If | None:
    """The `if` with all its `elif` and `else`, of which a statement is in a branch."""
    node, chain = statement, None
    while isinstance(parent := source.parents.get(node), ast.If):
        if chain is not None and parent.orelse != [node]:
            break
        node = chain = parent
    return chain


def _only_makes(chain: ast.If, run: Interpreter) -> bool:
    """Whether a condition binds data sets and the like in all of its branches, and neither trains nor leaves."""
    inside = list(all_of(chain, ast.stmt))
    plain = all(isinstance(each, (ast.If, ast.Assign, ast.AnnAssign, ast.Expr, ast.Raise)) for each in inside)
    around = frozenset([chain])
    happens = {event.kind for event in run.events if within(event, around)}
    makes = (event.value for event in run.events if event.kind == "make" and within(event, around))
    models = any(".transforms." not in each.name for value in makes for each in value.objects("module"))
    return plain and not models and not happens & (TRAINING | {"exit", "optimizer"})


def _is_kept_open(event: Event, test: ast.stmt) -> bool:
    """`log = open(path, "a") if there is one, and else open(path, "w")`, to which the script goes on writing."""
    statement = event.source.statement(event.node)
    bound = isinstance(statement, ast.Assign) and statement.value is event.node
    return bound and statement is not test and binds_for_others(event.source, statement, test)


def _is_spared(event: Event, depth: int) -> bool:
    """Whether what writes a file asks first whether it is there: ranks that come later then leave it alone."""
    below = [(call.node, call.source) for call in event.calls[depth + 1 :]] + [(event.node, event.source)]
    for node, source in below:
        if node is not None and stands_where_missing(source, source.statement(node)):
            return True
    inner = [call.node for call in event.calls[depth + 1 :]] + [event.node]
    for call, writing in zip(event.calls[depth:], inner, strict=True):
        tests = [n for n in all_of(call.function.node, ast.If) if tests_files(n.test)]
        ahead = [test for test in tests if test.lineno <= getattr(writing, "lineno", 0)]
        if any(isinstance(n, ast.Return) for test in ahead for n in walk(test)):
            return True
        if any(binds_for_others(call.function.source, test) for test in tests):
            return True  # it notes what it has found
    return False


def _takes_free_name(event: Event, met: Met) -> bool:
    """Whether a loop tries one name after the other until there is no such file: ranks that come later would not leave
    what is there alone, and take the next one."""
    for node, source in places(event):
        test = file_test(source, source.statement(node), met)
        if not isinstance(test, ast.If):
            continue
        loops = (each for each in source.ancestors(test) if isinstance(each, (ast.While, ast.For)))
        if ends_search(test) and any(source.function(loop) is source.function(test) for loop in loops):
            return True
    return False


def is_kept_for_others(event: Event, run: Interpreter) -> bool:
    """Whether what happens is left out where a file is there, which is written later: of ranks that wait for rank 0,
    none comes there. `if path.is_file(): return load(path)`, or `if not os.path.exists(path):` around it."""
    frames = [*((call.node, call.source) for call in event.calls), (event.node, event.source)]
    for depth, (node, source) in enumerate(frames):
        if node is None or not is_left_out(source, source.statement(node)):
            continue
        around = [call.node for call in event.calls[:depth]]
        later = (e for e in run.events if e.order > event.order and e.kind in PREPARING)
        if any([call.node for call in e.calls[:depth]] == around and _stores(e, run) for e in later):
            return True
    return False


def _stores(event: Event, run: Interpreter) -> bool:
    return event.kind != "open" or opens_for_writing(event.node, run)


def removes(node: ast.AST) -> bool:
    """`shutil.rmtree(folder)`"""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REMOVING


def _runs_alone(statement: ast.stmt, call: ast.AST, function: Function, inside: set[str]) -> bool:
    """Whether a call leaves nothing behind but files."""
    if not isinstance(statement, ast.Expr) or statement.value is not call or isinstance(function.node, ast.Lambda):
        return False
    if inside & {"random", "random_number", "numpy_draw", "seed", "collective", "writer", "file_handler", "log_config"}:
        return False
    return not any(
        isinstance(n, (ast.Global, ast.Nonlocal)) or isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
        for n in walk(function.node)
    )


def _fetches_anew(event: Event, statement: ast.stmt, run: Interpreter) -> bool:
    """Whether a statement downloads, or takes out of an archive, files that another rank has put in place already, and
    leaves nothing else behind."""
    inside = set(walk(statement))
    if not is_fetched_whatever_is_there(event, run) or any(
        isinstance(n, ast.If) and tests_files(n.test) for n in inside
    ):
        return False
    bound = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    home = event.source.home(statement)
    read = (n for n in all_of(home, ast.Name) if isinstance(n.ctx, ast.Load) and n not in inside)
    return isinstance(statement, (ast.Expr, ast.Try, ast.For)) and bound.isdisjoint(n.id for n in read)


def _attempt(source: Source, statement: ast.stmt, run: Interpreter) -> ast.stmt:
    """The `try` around a statement that may fail, with the loop that tries again, or the statement itself: what waits
    for rank 0 has to come whether it fails or not."""
    found = statement
    for ancestor in source.ancestors(statement):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        again = isinstance(ancestor, (ast.For, ast.While)) and isinstance(found, ast.Try)
        if not again and not (isinstance(ancestor, ast.Try) and ancestor.handlers):
            continue
        assert isinstance(ancestor, ast.stmt)
        around = frozenset([ancestor])
        if any(isinstance(each, ast.Return) for each in walk(ancestor)):
            break
        if any(event.kind in TRAINING and within(event, around) for event in run.events):
            break
        found = ancestor
    return found


def _with_archive(source: Source, statement: ast.stmt) -> ast.stmt:
    """The `with zipfile.ZipFile(path) as archive:`, or the loop over names, of which a statement is all there is, or
    itself."""
    above = source.parents[statement]
    if not isinstance(above, (ast.With, ast.For)) or above.body != [statement] or getattr(above, "orelse", []):
        return statement
    return _with_archive(source, above)
