"""Which seed the order of a loader's samples follows.

In one process a loader shuffles by torch's generator, as the script has seeded it. A sampler that is given a seed when
it is made takes the seed of that generator there, if all ranks have the same one; or what the script seeds it with; or
that of rank 0.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from autodist import regions, seeding
from autodist.interpreter import Event, Interpreter
from autodist.randomness.drawing import is_per_sample, libraries_of
from autodist.script import OrderSeed, Site
from autodist.source import Source, argument, last_name, simple, walk

OPTIONS = "add_argument"


def order_seeds(
    run: Interpreter,
    sites: Collection[Site],
    apart: Collection[Site],
    seeded: bool,
    waiting: frozenset[ast.AST],
    alone: frozenset[ast.AST],
) -> Iterator[OrderSeed]:
    """For each call of some ``sites`` that makes a loader or sampler, the seed of its order. ``seeded`` if the script
    itself seeds torch in any case: all ranks are seeded alike at the start otherwise. Ranks are seeded ``apart`` ahead
    of some loops; in some statements the others are ``waiting`` for rank 0, or it is ``alone``."""
    seeds = [e for e in run.of("seed") if "torch" in libraries_of(e, run) and not is_per_sample(e, run) and _told(e)]
    steady = [e for e in seeds if seeding.is_unconditional(e)]
    for site in sites:
        assert isinstance(site.node, ast.Call)
        own = _own_generator(site.node, site.source)
        if own is not None:
            yield OrderSeed(site.node, own)
            continue
        made = _made_at(site, run)
        rounds = [_Rounds(loop, run) for loop in apart]
        alike = bool(made) and all(_is_alike(event, steady, rounds, seeded) for event in made)
        last = max((e for e in steady if made and e.order < made[0].order), key=lambda e: e.order, default=None)
        if last is None and made and seeded:  # `loader = ...`, and `torch.manual_seed(0)` below it
            last = next((e for e in steady if e.order > made[0].order), None)
        code = _code(last, site, run, known=alike) if last is not None else None
        late: tuple[Site, ...] = ()
        if code is None and not alike and seeded and last is not None and made[0].order < last.order:
            frames = [
                *((call.source, call.node) for call in last.calls if call.node is not None),
                (last.source, last.node),
            ]
            late = tuple(Site(source, node) for source, node in frames)
        if any(event.on_one_rank or regions.within(event, alone) for event in made):
            alike = True  # nobody else draws there
        shut = any(regions.within(event, waiting) for event in made)
        yield OrderSeed(site.node, code, alike, shut and not alike, late)


class _Rounds:
    """A loop ahead of which ranks are seeded apart: when, and in which loops around."""

    def __init__(self, loop: Site, run: Interpreter) -> None:
        inside = [e for e in run.events if e.node is loop.node or any(each.node is loop.node for each in e.loops)]
        self.start = min((e.order for e in inside), default=-1)
        outer = [[each.node for each in e.loops] for e in inside]
        self.around = {
            node for loops in outer for node in (loops[: loops.index(loop.node)] if loop.node in loops else loops)
        }


def _is_alike(made: Event, seeds: list[Event], rounds: list[_Rounds], seeded: bool) -> bool:
    """Whether torch's generator has one seed on all ranks where something is made: none have been seeded apart since
    they were seeded alike, also not in an earlier round of a loop, or earlier call by a library."""
    around = {loop.node for loop in made.loops}
    above = [each for each in seeds if each.order < made.order]
    for seed in [*reversed(above), None]:
        if seed is None and seeded:
            return False
        since = seed.order if seed is not None else -1
        within = {loop.node for loop in seed.loops} if seed is not None else set()
        again = bool(rounds) and _is_called_back(made) and not (seed is not None and _is_called_back(seed))
        if not again and not any(since < e.start < made.order or (around & e.around) - within for e in rounds):
            return True
    return False


def _is_called_back(event: Event) -> bool:
    """Whether a library calls the function in which something happens, as often as it likes."""
    return any(call.node is None for call in event.calls)


def _made_at(site: Site, run: Interpreter) -> list[Event]:
    """What happens where a call makes a loader or sampler."""
    found = [event for event in run.events if event.node is site.node]
    inside = set(walk(site.node)) | {*site.source.ancestors(site.node)} if not found else set()
    return found or [event for event in run.events if event.node in inside and event.source is site.source]


def _told(seed: Event) -> ast.expr | None:
    """What a call is given to seed by."""
    if not isinstance(seed.node, ast.Call):
        return None
    return next((each for each in (argument(seed.node, "seed", 0), *seed.node.args[:1]) if each is not None), None)


def _own_generator(call: ast.Call, source: Source) -> str | None:
    """The code for the seed of the generator that a loader has been given: `generator=g`."""
    given = argument(call, "generator")
    if given is None or isinstance(given, ast.Constant):
        return None
    made = [given]
    if isinstance(given, (ast.Name, ast.Attribute)):
        bound = (each for each in walk(source.tree) if isinstance(each, ast.Assign))
        made = [each.value for each in bound if last_name(given) in map(last_name, each.targets)]
    if not made or not all(_is_generator(each) for each in made):
        return None
    told = given.args[0] if isinstance(given, ast.Call) and last_name(given.func) == "manual_seed" else None
    if told is not None and simple(told):
        return source.code(told)
    return f"{source.code(given)}.initial_seed()" if simple(given) else None


def _is_generator(made: ast.expr) -> bool:
    """`torch.Generator()`, `torch.Generator().manual_seed(1)`"""
    calls = [each for each in walk(made) if isinstance(each, ast.Call)]
    return isinstance(made, ast.Call) and any(last_name(each.func) == "Generator" for each in calls)


def _code(seed: Event, site: Site, run: Interpreter, known: bool) -> str | None:
    """An expression of the script for a seed that can be read where a loader is made. Where the generator has the seed
    there, it is ``known`` anyway, and a number need not be written twice."""
    for expression, source in _said(seed):
        if isinstance(expression, ast.Constant) and isinstance(expression.value, int):
            return None if known else source.code(expression)
        if source is site.source and _is_readable(expression, site, seed, run):
            code = source.code(expression)
            return code if _is_integer(expression, run) else None if known else f"int({code})"
    return None


def _said(seed: Event) -> Iterator[tuple[ast.expr, Source]]:
    """What a generator is seeded by: as the function says that does it, and as each caller does in turn."""
    expression, source = _told(seed), seed.source
    for call in (None, *reversed([each for each in seed.calls if each.node is not None])):
        if call is not None:
            given = call.given()
            name = expression.id if isinstance(expression, ast.Name) else ""
            expression, source = given.get(name), call.source
        if expression is None:
            return
        parts = [expression.left, expression.right] if isinstance(expression, ast.BinOp) else []
        yield from ((each, source) for each in (expression, *(p for p in parts if not isinstance(p, ast.Constant))))


def _is_readable(expression: ast.expr, site: Site, seed: Event, run: Interpreter) -> bool:
    """Whether an expression means the same where a loader is made."""
    root: ast.expr = expression
    while isinstance(root, (ast.Attribute, ast.Subscript)):
        root = root.value
    if not simple(expression) or not isinstance(root, ast.Name):
        return False
    source, home = site.source, site.source.home(site.node)
    if any(isinstance(each, (ast.Lambda, ast.comprehension)) for each in source.ancestors(site.node)):
        return False
    stores = [each for each in source.stores(root) if each is not root]
    there = source.home(expression)
    if there is not home and (not isinstance(there, ast.Module) or _binds(home, root.id)):
        return False
    given = not isinstance(there, ast.Module) and root.id in {
        each.arg for each in walk(there.args) if isinstance(each, ast.arg)
    }
    if len(stores) + given != 1:
        return False
    line = site.source.statement(site.node).lineno if there is home else None
    if stores and line is not None and stores[0].lineno >= line:
        return False
    if isinstance(expression, ast.Name):
        return True
    low, high = sorted((getattr(expression, "lineno", 0), getattr(site.node, "lineno", 0)))
    name = last_name(expression)
    return not any(
        isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and each.attr == name
        and (there is not home or low <= each.lineno <= high)
        for each in walk(source.tree)
    )


def _binds(home: ast.AST, name: str) -> bool:
    """Whether a function has a variable of its own by a name."""
    return any(
        isinstance(each, ast.arg)
        and each.arg == name
        or isinstance(each, ast.Name)
        and each.id == name
        and isinstance(each.ctx, ast.Store)
        for each in walk(home)
    )


def _is_integer(expression: ast.expr, run: Interpreter) -> bool:
    """Whether a seed is known to be a number: an option says so, or an annotation, or its default."""
    value = run.values.get(expression)
    if value is not None and isinstance(value.const, int):
        return True
    name = last_name(expression) or ""
    return any(_declares(each, name) for source in run.project.sources for each in walk(source.tree))


def _declares(node: ast.AST, name: str) -> bool:
    """`add_argument("--seed", type=int)`, `seed: int`, `seed = 1`."""
    match node:
        case ast.Call(func=called) if last_name(called) == OPTIONS:
            flags = [each.value for each in node.args if isinstance(each, ast.Constant)]
            kind = argument(node, "type")
            named = name in (flag.lstrip("-").replace("-", "_") for flag in flags if isinstance(flag, str))
            return named and isinstance(kind, ast.Name) and kind.id == "int"
        case ast.AnnAssign(target=ast.Name(id=found), annotation=ast.Name(id="int")):
            return found == name
        case ast.arg(arg=found, annotation=ast.Name(id="int")):
            return found == name
        case ast.Assign(targets=[ast.Name(id=found)], value=ast.Constant(value=int())):
            return found == name
    return False
