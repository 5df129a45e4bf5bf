"""What seeds the workers of a loader, where all ranks would seed theirs alike, and augment their samples alike.

Torch seeds workers from the generator that the loader draws from. A `worker_init_fn` may seed them again, by numbers
that every rank has (`np.random.seed(42 + worker_id)`), and a loader may be given a generator that was seeded
(`generator=g`). No step of the analysis enters a `worker_init_fn`; its source says what it seeds by.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist import augmentation, collation
from autodist.interpreter import Interpreter
from autodist.script import Loader, Site
from autodist.source import last_name
from autodist.values import Function

APART = frozenset(
    "initial_seed get_worker_info get_state get_rng_state getstate get_rank randint random_ urandom randbits "
    "SeedSequence local_rank global_rank rank".split()
)
"""What differs by rank: generators as torch has seeded them in a worker, what is drawn from them, and the rank."""
DEPTH = 3


def alike(loaders: Iterable[Loader], run: Interpreter) -> Iterator[Site]:
    """The numbers by which a `worker_init_fn` seeds workers of training loaders, if all ranks have the same."""
    found: dict[ast.AST, Site] = {}
    for loader in loaders:
        told = loader.object.argument("worker_init_fn", 10)
        if told is None or loader.iterable:  # workers that deal out a stream must draw the same on all ranks
            continue
        for function in collation.called(told):
            found |= {site.node: site for site in _seeds(function, run, DEPTH)}
    yield from found.values()


def by_generator(loaders: Iterable[Loader], run: Interpreter) -> Iterator[Loader]:
    """Training loaders that are given a generator, which begins alike on all ranks, and whose workers draw."""
    for loader in loaders:
        told = loader.object.argument("generator", 12)
        if told is None or told.const is None or loader.iterable:
            continue
        if augmentation.by_workers(loader.object, run):
            yield loader


def _seeds(function: Function, run: Interpreter, depth: int) -> Iterator[Site]:
    calls = [node for node in ast.walk(function.node) if isinstance(node, ast.Call)]
    for call in calls:
        given = [*call.args, *(each.value for each in call.keywords if each.arg == "seed")]
        if not given or isinstance(given[0], ast.Starred) or not _seeds_by(call, function, run, depth):
            continue
        if _names(given[0], function).isdisjoint(APART):
            yield Site(function.source, given[0])


def _seeds_by(call: ast.Call, function: Function, run: Interpreter, depth: int) -> bool:
    """Whether a call seeds a generator by what it is given: one of a library, or a function of the project."""
    if not augmentation.SEEDING.isdisjoint(run.catalog.roles(augmentation.name_of(call.func, function))):
        return True
    if not depth or not isinstance(call.func, ast.Name):
        return False
    scope = function.scope.find(call.func.id)
    inner = collation.called(scope.names[call.func.id]) if scope is not None else ()
    return any(_is_seeded_by_argument(each, run, depth - 1) for each in inner)


def _is_seeded_by_argument(function: Function, run: Interpreter, depth: int) -> bool:
    """Whether a function seeds by its first parameter."""
    spec = function.node.args if isinstance(function.node, (ast.FunctionDef, ast.Lambda)) else None
    first = next(iter(spec.args), None) if spec is not None else None
    sites = _seeds(function, run, depth) if first is not None else ()
    return first is not None and any(first.arg in _names(site.node, function) for site in sites)


def _names(node: ast.AST, function: Function) -> set[str]:
    """The names and attributes in an expression, and in what the function binds those names to."""
    bound = [each for each in ast.walk(function.node) if isinstance(each, (ast.Assign, ast.AnnAssign))]
    found: set[str] = set()
    pending = [node]
    while pending:
        inner = {last_name(each) for each in ast.walk(pending.pop()) if isinstance(each, (ast.Name, ast.Attribute))}
        for each in bound:
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            stored = {name for target in targets for name in map(last_name, ast.walk(target)) if name}
            if not stored.isdisjoint(inner - found) and each.value is not None:
                pending.append(each.value)
        found |= inner
    return found
