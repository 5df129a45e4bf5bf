"""What a step draws once for its whole batch: a number that decides, a length, a mixing weight, one vector of noise.

Ranks whose dropout and noise differ would each draw their own. They part ways by a number that says what is run, and
train with several vectors where one process has one: rank 0 draws for all. Inside a model's forward pass, that goes
for single numbers, by which layers are left out; a vector there may be noise of its weights.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from autodist import randomness, regions
from autodist.interpreter import Event, Interpreter
from autodist.placement.placements import Placements
from autodist.program import closure
from autodist.script import Site
from autodist.solve.batch_draws import BatchDraws, is_asked_for
from autodist.solve.steps import given
from autodist.source import Source, last_name, walk
from autodist.values import NOTHING, Draw


def common_draws(
    run: Interpreter,
    lies: Placements,
    alone: frozenset[ast.AST],
    dealt: Collection[ast.AST],
    whole: Collection[ast.AST],
) -> tuple[tuple[Site, ...], tuple[Site, ...]]:
    """Calls by which steps draw from torch what serves a whole batch: those by which rank 0 can draw for all, and those
    by which each rank draws its own, by how values ``lies`` where losses are computed. ``alone`` are statements that
    not all ranks run, ``dealt`` draws of which each rank has its share, ``whole`` sizes those of batches."""
    program, draws = run.runs.program, run.runs.draws
    settled, inside = {*randomness.picks_of_all(run)}, {each for statement in alone for each in walk(statement)}
    found: dict[bool, list[Site]] = {True: [], False: []}
    for draw, joined in BatchDraws(program, draws, run.catalog, lies).found():
        around = (region.node for each in program.made_at[draw.node] for region in draws.around(each.region))
        shared = not {draw.node, *draw.source.ancestors(draw.node)}.isdisjoint(dealt)
        shared = shared or not {*walk(draw.node)}.isdisjoint(whole)
        if not shared and draw.node not in settled and inside.isdisjoint((draw.node, *around)):
            found[joined].append(Site(draw.source, draw.node))
    return tuple(found[True]), tuple(found[False])


def orders(
    run: Interpreter, alone: frozenset[ast.AST], shared: Collection[Draw], own: Collection[ast.AST]
) -> list[Site] | None:
    """Calls by which steps, and the loops around them, draw their samples or the order of them from torch,
    ``torch.randperm(n)``, so that ranks that are seeded apart can have them in common; None where some cannot. Of
    batches that are ``shared`` out each rank has its rows, and its ``own`` it draws itself."""
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    rows = {draw.node for draw in shared}
    found: dict[ast.AST, Site] = {}
    for event in randomness.ordering(run):
        node = event.node
        local = isinstance(node, ast.expr) and not run.is_alike(node)
        if node in own or local and node not in rows:
            continue  # noise for a rank's own samples
        if not any(loop.node in training for loop in event.loops) or _is_shown_only(event, run):
            continue
        many = (isinstance(each, (ast.ListComp, ast.GeneratorExp)) for each in event.source.ancestors(node))
        if not isinstance(node, ast.Call) or any(many):  # as many broadcasts as there are rows
            return None
        found[node] = Site(event.source, node)
    events = [e for kind in randomness.DRAWS for e in run.of(kind) if e.node in found]
    if not all(_is_met_by_all(event, run, alone, {loop.node for loop in event.loops}) for event in events):
        return None  # evaluations included: all ranks make them, unless they are ``alone``
    return list(found.values())


def deciding(sites: Collection[Site], run: Interpreter) -> list[Site]:
    """Those draws that a condition or a schedule goes by, as that of an evaluation on some of the data. What a step
    draws comes to it by losses, which are those of all ranks."""
    if not sites:
        return []
    asked = {e.node: e.source for kind in ("test", "schedule") for e in run.of(kind) if not e.inside_forward}
    said = {part for node, source in asked.items() for part in _said_by(node, source)}
    drawn: dict[ast.AST, set[ast.AST]] = {}
    for event in (each for kind in randomness.DRAWS for each in run.of(kind)):
        if run.step_loops.isdisjoint(loop.node for loop in event.loops):
            calls = (call.node for call in event.calls if call.node is not None)
            drawn.setdefault(event.node, {event.node}).update(calls)
    return [site for site in sites if not said.isdisjoint(drawn.get(site.node, ()))]


def undecided(libraries: frozenset[str], run: Interpreter) -> frozenset[str]:
    """Those of some ``libraries`` from which loops around steps draw nothing that a condition goes by: ranks may draw
    from them apart."""
    training = {loop.node for event in run.of("backward") for loop in event.loops}
    drawn: dict[ast.AST, set[str]] = {}
    sites: dict[ast.AST, Site] = {}
    for event in (each for kind in randomness.DRAWS for each in run.of(kind)) if libraries else ():
        own = isinstance(event.node, ast.expr) and not run.is_alike(event.node)
        inside = any(loop.node in training for loop in event.loops) and not event.inside_forward
        if inside and not own and not randomness.is_per_sample(event, run):
            drawn.setdefault(event.node, set()).update(randomness.libraries_of(event, run))
            sites[event.node] = Site(event.source, event.node)
    return libraries.difference(*(drawn[site.node] for site in deciding(sites.values(), run)))


def _said_by(asked: ast.AST, source: Source) -> set[ast.AST]:
    """All that a condition is computed from in its function, by the names of variables."""
    home = source.home(asked)
    bound = [each for each in walk(home) if isinstance(each, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For))]
    found, fresh = set[ast.AST](), set(walk(asked))
    while fresh:
        found |= fresh
        names = {each.id for each in fresh if isinstance(each, ast.Name)}
        made = (_made(each) for each in bound if any(name in names for name in _targets(each)))
        fresh = {node for each in made if each is not None for node in walk(each)} - found
    return found


def _targets(bound: ast.stmt) -> Iterator[str]:
    targets = bound.targets if isinstance(bound, ast.Assign) else [getattr(bound, "target", bound)]
    yield from (each.id for target in targets for each in walk(target) if isinstance(each, ast.Name))


def _made(bound: ast.stmt) -> ast.expr | None:
    return bound.iter if isinstance(bound, ast.For) else getattr(bound, "value", None)


def _is_shown_only(event: Event, run: Interpreter) -> bool:
    """Whether a method of a model draws what no step learns from and no condition asks for, behind that method:
    ``model.generate(...)``."""
    outer = next((each.node for each in event.calls if "module" in getattr(each.function.owner, "roles", ())), None)
    if outer is None:
        return False
    program = run.runs.program
    asked = [each for each in program.of("test") if all(region.node is not outer for region in each.region.around())]
    said = closure((each.operation for each in (*program.of("backward"), *asked)), given)
    return said.isdisjoint(program.made_at.get(event.node, ()))


def _is_met_by_all(event: Event, run: Interpreter, alone: frozenset[ast.AST], training: Collection[ast.AST]) -> bool:
    """Whether all ranks draw there, equally often: no worker of a loader, no branch that goes by a rank's samples. They
    go through loops that are ``training`` equally often."""
    if event.on_one_rank or regions.within(event, alone) or randomness.is_per_sample(event, run):
        return False
    return come_alike(event, run, training)


def come_alike(event: Event, run: Interpreter, training: Collection[ast.AST]) -> bool:
    """Whether no condition or loop around an event, or around the calls that lead there, goes by a rank's samples."""
    if any(call.node is None for call in event.calls) and not run.runs.draws.is_met_by_all(event.node, run.placements):
        return False
    chain = [(call.source, call.node) for call in event.calls if call.node is not None] + [(event.source, event.node)]
    return not any(_goes_by_rank(source, node, run, training) for source, node in chain)


def _goes_by_rank(source: Source, node: ast.AST, run: Interpreter, training: Collection[ast.AST]) -> bool:
    """Whether a rank's samples say whether, or how often, something is run."""
    inner = node
    for around in source.ancestors(node):
        asked: list[ast.expr] = []
        match around:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                break
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                if isinstance(around, ast.While) and around not in training and _goes_by_length([test], source, run):
                    return True
                asked = [] if inner is test and not isinstance(around, ast.While) else [test]
            case ast.BoolOp(values=values):
                asked = values[: values.index(inner)] if isinstance(inner, ast.expr) and inner in values else values
            case ast.For(iter=through):
                if around not in training and _goes_by_length(_counts(through), source, run):
                    return True
                asked = [through] if inner is not through and _counts_rows(through, run) else []
            case ast.GeneratorExp() if is_asked_for(around, source):
                return True  # as many as are asked for
            case ast.ListComp(generators=generators) | ast.GeneratorExp(generators=generators):
                asked = [each.iter for each in generators if each.iter is not inner and _counts_rows(each.iter, run)]
                asked += [test for each in generators for test in each.ifs]
        if not all(map(run.is_alike, asked)):
            return True
        inner = around
    return False


def _counts_rows(through: ast.expr, run: Interpreter) -> bool:
    """Whether a loop goes through a rank's samples, and not through the batches of a loader."""
    return not all(map(run.is_alike, [through, *(through.args if isinstance(through, ast.Call) else ())]))


def _counts(through: ast.expr) -> list[ast.expr]:
    """The numbers that say how often a loop is run: `range(1, n)`."""
    return through.args if isinstance(through, ast.Call) and last_name(through.func) == "range" else []


def _goes_by_length(sizes: list[ast.expr], source: Source, run: Interpreter) -> bool:
    """Whether a loop is run so often as `y.size(1)` says, of a batch that a rank may have padded to another length than
    others have."""
    told: list[ast.AST] = [each for each in sizes if not isinstance(run.values.get(each, NOTHING).const, int)]
    names = [each for size in told for each in walk(size) if isinstance(each, ast.Name)]
    bound = [source.statement(stored) for name in names for stored in source.stores(name)]
    told += [each.value for each in bound if isinstance(each, ast.Assign)]
    return any(_is_given(name, source) for name in names) or any(map(_asks_for_size, told))


def _is_given(name: ast.Name, source: Source) -> bool:
    """Whether a name is that of a parameter."""
    home = source.home(name)
    spec = home.args if isinstance(home, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
    return spec is not None and any(isinstance(each, ast.arg) and each.arg == name.id for each in walk(spec))


def _asks_for_size(node: ast.AST) -> bool:
    return any(last_name(each) in ("len", "shape", "size") for each in walk(node))
