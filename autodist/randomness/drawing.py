"""What draws random numbers, from which library's generator, and what is seeded."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist import seeding
from autodist.interpreter import Event, Interpreter, Loop, is_setting, once_a_run
from autodist.models import is_main_guard
from autodist.script import Site
from autodist.source import Source, argument, last_name, walk
from autodist.values import (
    NOTHING,
    External,
    Object,
    Parameters,
    Value,
    drawn_by_evaluation,
    is_clock,
)

DROPOUT = ("ropout", "Transformer", "RReLU", "rrelu")
"""What is in the names of torch's layers and functions that draw for each number of a sample."""
DRAWS = ("random", "random_number", "numpy_draw")
"""Kinds of events: arrays, single numbers, and what libraries draw from NumPy's own generator."""


def draw_events(run: Interpreter) -> list[Event]:
    """Where numbers are drawn from a generator that the script does not pass on."""
    return [event for kind in DRAWS for event in run.of(kind)]


def drawn(run: Interpreter) -> Iterator[str]:
    """The libraries that numbers are drawn from."""
    for event in draw_events(run):
        yield from libraries_of(event, run)


def seeded(run: Interpreter) -> Iterator[str]:
    """Libraries that the script seeds in any case before it draws from them (a seed drawn at random is none)."""
    first: dict[str, int] = {}
    for event in draw_events(run):
        for library in libraries_of(event, run):
            first[library] = min(event.order, first.get(library, event.order))
    mended = [e for e in run.of("unseeded") if not [*e.value.objects("generator")] and not e.loops and not reseeds(e)]
    seeds = [(event, library) for event in [*run.of("seed"), *mended] for library in libraries_of(event, run)]
    for event, library in seeds:
        others = [other for other, same in seeds if same == library]
        if event.order < first.get(library, event.order + 1) and seeding.is_certain(event, others, run):
            yield library


def reseeds(event: Event) -> bool:
    """Whether a sampler says `np.random.seed()`, a statement without which the generator goes on as it was seeded."""
    node = event.node
    if not is_of_sampler(event):
        return False
    bare = isinstance(node, ast.Call) and not node.args and not node.keywords
    return bare and isinstance(event.source.parents.get(node), ast.Expr) and not [*event.value.objects("generator")]


def seeds_of(event: Event) -> tuple[list[Site], list[Site]]:
    """What to replace where ranks would be seeded apart: the call, or what it takes where no seed is given: the default
    of an option, `args.seed or time.time()`, `if seed is None: seed = time.time()`."""
    standing = []
    for origin in sorted((o for o in event.value.origins if isinstance(o, Object) and is_clock(o)), key=_place):
        around = (origin.node, *origin.source.ancestors(origin.node))
        found = next((n for n in around if isinstance(n, ast.expr) and _stands_in(origin.source, n)), None)
        if found is None:
            return [Site(event.source, event.node)], []
        standing.append(Site(origin.source, found))
    return ([], standing) if standing else ([Site(event.source, event.node)], [])


def _place(made: Object) -> tuple[str, int, int]:
    return str(made.source.path), made.node.lineno, made.node.col_offset


def _stands_in(source: Source, node: ast.expr) -> bool:
    """Whether an expression is what is taken where nothing is given."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.keyword):
        return parent.arg == "default"
    if isinstance(parent, ast.Assign):
        around = source.parents.get(parent)
        return isinstance(around, ast.If) and parent in around.body and not is_main_guard(around)
    others = parent.values[1:] if isinstance(parent, ast.BoolOp) else ()
    return node in others or isinstance(parent, ast.IfExp) and node is not parent.test


def is_per_sample(event: Event, run: Interpreter) -> bool:
    """Whether something happens while one sample is read, or a worker starts: ranks may differ there."""
    return is_of_sampler(event) or run.runs.draws.is_read(event.node)


def libraries_of(event: Event, run: Interpreter) -> set[str]:
    """The libraries whose generator a call seeds or draws from."""
    if event.kind == "numpy_draw":
        return {"numpy"}
    if not isinstance(event.node, ast.Call):
        return {"torch"}
    names = {t.name for t in run.values.get(event.node.func, NOTHING).things if isinstance(t, External)}
    return {"cuda" if name.startswith("torch.cuda") else name.partition(".")[0] for name in names} or {"torch"}


def is_in(loop: Loop, event: Event) -> bool:
    return any(each.node is loop.node for each in event.loops)


@once_a_run
def in_loop(run: Interpreter, node: ast.AST) -> list[Event]:
    """The events in a loop, in their order."""
    return _by_loop(run).get(node, [])


@once_a_run
def _by_loop(run: Interpreter) -> dict[ast.AST, list[Event]]:
    found: dict[ast.AST, list[Event]] = {}
    for event in run.events:
        for node in {each.node for each in event.loops}:
            found.setdefault(node, []).append(event)
    return found


def is_for_a_parameter(event: Event, run: Interpreter) -> bool:
    """Whether noise has the shape of a parameter or its gradient, to which it is added: `torch.randn(p.shape)`."""
    if event.kind not in DRAWS or event.inside_forward:
        return False
    asked = (n for n in walk(event.node) if isinstance(n, ast.Attribute) and n.attr in ("shape", "size"))
    return any(isinstance(t, Parameters) for n in asked for t in run.values.get(n.value, NOTHING).things)


def is_of_sampler(event: Event) -> bool:
    """Whether a sampler draws the order of the samples."""
    owners = [call.function.owner for call in event.calls]
    return any(isinstance(owner, Object) and owner.roles & {"sampler", "batch_sampler"} for owner in owners)


def names_order(call: ast.Call) -> bool:
    return last_name(call.func) in ("permutation", "randperm", "shuffle", "sample")


def decided_by_noise(run: Interpreter) -> list[Event]:
    """Where an evaluation's noise decides, as in `if validation_loss < best` of a VAE, or what the learning rate is:
    ranks must agree on it."""
    asked = [event for kind in ("test", "schedule") for event in run.of(kind) if not event.inside_forward]
    asked += [event for event in run.of("set_item") if is_setting(event.node)]
    return [event for event in asked if is_noise_of_evaluation(event.value)]


def is_noise_of_evaluation(value: Value) -> bool:
    """Whether something is computed from what an evaluation has drawn."""
    return bool(drawn_by_evaluation([value]))


def names_order_of(event: Event) -> bool:
    return isinstance(event.node, ast.Call) and names_order(event.node)


def is_for_one_row(event: Event, run: Interpreter) -> bool:
    """Whether something is drawn anew for each of a rank's samples."""
    return not run.sample_loops.isdisjoint(loop.node for loop in event.loops)


def is_parted(event: Event, apart: set[ast.AST]) -> bool:
    return any(loop.node in apart for loop in event.loops)


def is_noise(node: ast.expr) -> bool:
    """`np.random.normal(0, 1, size)`: an array, not a number to decide by."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    least = {"normal": 2, "uniform": 2, "randn": 0, "rand": 0, "standard_normal": 0, "random": 0}.get(node.func.attr)
    return least is not None and (len(node.args) > least or argument(node, "size") is not None)


def is_dropout(event: Event, run: Interpreter) -> bool:
    return is_call_of(event, run, (*DROPOUT, "transforms"))


def is_call_of(event: Event, run: Interpreter, words: tuple[str, ...]) -> bool:
    """Whether what is called has one of some words in the name by which its library knows it."""
    if not isinstance(event.node, ast.Call):
        return False
    called = run.values.get(event.node.func, NOTHING).things
    return any(word in thing.name for thing in called if isinstance(thing, External) for word in words)
