"""Rank checks around a loop or a condition, where all that happens in there is for rank 0 alone."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping

from autodist import regions
from autodist.files import preparing
from autodist.interpreter import Event, Interpreter
from autodist.script import Site
from autodist.source import Source, last_name, walk
from autodist.values import NOTHING, External, Object, Stream, drawn_from

SHARED = preparing.TRAINING | frozenset(
    "random random_number numpy_draw draw local_draw noise_drawn seed collective progress exit leave download".split()
)
PURE = frozenset(
    "enumerate zip range sorted reversed list tuple dict set len min max sum int float str round abs format join split"
    " rsplit replace strip lower upper zfill items keys values detach cpu numpy item clone squeeze unsqueeze permute"
    " transpose view reshape clamp astype tolist isinstance hasattr getattr".split()
)
"""Functions and methods that only give something back, of whatever they are called."""
TAKING = frozenset("pop popleft popitem heappop next send".split())
"""What takes something out of what all ranks have."""
LIBRARIES = ("os.path.", "numpy.", "torch.", "matplotlib.", "pathlib.", "torchvision.utils.", "PIL.", "math.")
DRAWING = ("torch.rand", "numpy.random", "torch.distributed", "torch.bernoulli", "torch.multinomial", "torch.normal")


def lifted(
    sites: Iterable[Site], run: Interpreter, kept: Mapping[ast.AST, Source], waits: Iterable[Site]
) -> list[Site]:
    """The statements that rank 0 runs alone, where that is the case of a whole loop or condition around them as that.

    ``kept`` are expressions that all ranks compute, and ``waits`` statements before which they wait.
    """
    sites = list(sites)
    alone = frozenset(site.node for site in sites)
    together = {*kept, *(site.node for site in waits)}
    found: dict[ast.AST, Site] = {}
    for site in sites:
        around = _around(site, alone, together, run)
        found.setdefault(around, Site(site.source, around))
    return [each for each in found.values() if not _stands_inside(each, found)]


def _stands_inside(site: Site, found: Collection[ast.AST]) -> bool:
    return any(around in found for around in site.source.ancestors(site.node))


def _around(site: Site, alone: frozenset[ast.AST], together: set[ast.AST], run: Interpreter) -> ast.AST:
    """The outermost loop, or condition with several branches, that rank 0 may run alone with the statement."""
    found = site.node
    for around in site.source.ancestors(site.node):
        if not isinstance(around, (ast.For, ast.If)) or not _is_alone(around, alone, run):
            break
        above = site.source.parents.get(around)
        if isinstance(above, ast.If) and above.orelse == [around]:
            continue  # an `elif`
        if isinstance(around, ast.For) or _writes_in_each_branch(around, alone):
            found = around
    if found is site.node:
        return found
    inside = set(walk(found))
    if inside & together or _is_read_elsewhere(site.source, found):
        return site.node
    happens = (e for e in run.events if regions.within(e, frozenset([found])) and not regions.within(e, alone))
    return site.node if any(map(_is_shared, happens)) else found


def _is_shared(event: Event) -> bool:
    """Whether every rank has to take part, or the ranks would be left in different states."""
    return event.kind in SHARED or event.kind in ("iter", "iterate") and any(True for _ in drawn_from(event.value))


def _writes_in_each_branch(condition: ast.If, alone: frozenset[ast.AST]) -> bool:
    """Whether a condition has several branches, in each of which rank 0 does something alone."""
    branches = [condition.body, condition.orelse]
    return all(any(node in alone for each in branch for node in walk(each)) for branch in branches)


def _is_alone(statement: ast.stmt, alone: frozenset[ast.AST], run: Interpreter) -> bool:
    """Whether all of a statement may run on rank 0 alone: it does what rank 0 does alone, or leaves nothing behind."""
    if statement in alone:
        return not any(isinstance(n, ast.Call) and last_name(n.func) in TAKING for n in walk(statement))
    if isinstance(statement, ast.For):
        return (
            not statement.orelse
            and _is_pure(statement.iter, run)
            and not _draws(statement.iter, run)
            and all(isinstance(n, (ast.Name, ast.Tuple, ast.List, ast.expr_context)) for n in walk(statement.target))
            and all(_is_alone(each, alone, run) for each in statement.body)
        )
    if isinstance(statement, ast.If):
        branches = (*statement.body, *statement.orelse)
        return _is_pure(statement.test, run) and all(_is_alone(each, alone, run) for each in branches)
    if isinstance(statement, ast.Assign):
        return all(isinstance(each, ast.Name) for each in statement.targets) and _is_pure(statement.value, run)
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and _only_shows(statement.value, run)
    return isinstance(statement, ast.Pass)


def _only_shows(call: ast.Call, run: Interpreter) -> bool:
    """`print(name)`, `plt.plot(losses)`"""
    shows = isinstance(call.func, ast.Name) and call.func.id == "print" or _is_of(call.func, ("matplotlib.",), run)
    return shows and all(_is_pure(each, run) for each in ast.iter_child_nodes(call) if each is not call.func)


def _is_pure(node: ast.AST, run: Interpreter) -> bool:
    """Whether an expression only gives something back, and draws nothing."""
    if any(isinstance(n, (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)) for n in walk(node)):
        return False
    calls = (n for n in walk(node) if isinstance(n, ast.Call))
    return all(_is_of(call.func, LIBRARIES, run) or _is_builtin(call.func, run) for call in calls)


def _draws(iterable: ast.expr, run: Interpreter) -> bool:
    """Whether a loop goes on with an iterator, or over samples, which may draw."""
    given = [n for n in walk(iterable) if isinstance(n, (ast.Name, ast.Attribute))]
    inner = {id(n.value) for n in given if isinstance(n, ast.Attribute)}
    inner |= {id(n.func) for n in walk(iterable) if isinstance(n, ast.Call)}
    things = (each for n in given if id(n) not in inner for each in run.values.get(n, NOTHING).things)
    return any(isinstance(each, (Object, Stream)) for each in things)


def _is_builtin(func: ast.expr, run: Interpreter) -> bool:
    things = run.values.get(func, NOTHING).things
    return last_name(func) in PURE and all(isinstance(each, External) for each in things)


def _is_of(func: ast.expr, libraries: tuple[str, ...], run: Interpreter) -> bool:
    """Whether what is called is a function of one of the libraries, that draws nothing."""
    things = run.values.get(func, NOTHING).things
    names = [each.name for each in things if isinstance(each, External)]
    known = bool(names) and len(names) == len(things)
    return known and all(each.startswith(libraries) and not each.startswith(DRAWING) for each in names)


def _is_read_elsewhere(source: Source, statement: ast.AST) -> bool:
    """Whether names that a statement binds are read outside it, other than where another loop binds them."""
    inside = set(walk(statement))
    bound = {n.id for n in inside if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    home = source.home(statement)
    if any(isinstance(n, (ast.Global, ast.Nonlocal)) and not bound.isdisjoint(n.names) for n in walk(home)):
        return True
    return any(
        isinstance(n, ast.Name)
        and n.id in bound
        and isinstance(n.ctx, ast.Load)
        and n not in inside
        and not _is_bound_around(source, n)
        for n in walk(home)
    )


def _is_bound_around(source: Source, name: ast.Name) -> bool:
    """Whether a loop or comprehension around a name binds it anew for each round."""
    inner: ast.AST = name
    for around in source.ancestors(name):
        targets = [each.target for each in getattr(around, "generators", ())]
        targets += [around.target] if isinstance(around, ast.For) and inner is not around.iter else []
        if any(isinstance(n, ast.Name) and n.id == name.id for target in targets for n in walk(target)):
            return True
        inner = around
    return False
