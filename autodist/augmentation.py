"""What data sets draw while one sample is read: augmentation, which should differ from rank to rank.

No step of the analysis enters `__getitem__`, which a loader calls; its source says what it draws from. What a library
does there of which nothing is known may draw from any generator.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from autodist import collation
from autodist.catalog import ANY_GENERATOR, RANDOM_ROLES
from autodist.interpreter import Interpreter
from autodist.source import Source, all_of, argument, walk
from autodist.values import NOTHING, Class, External, Function, Items, LocalModule, Object, Table, Thing, Value

OWN = frozenset(
    "seed RandomState default_rng Generator get_state set_state getstate setstate Random SystemRandom "
    "empty_like".split()
)
"""What draws nothing, or makes a generator of its own."""
SEEDING = frozenset({"seed", "any_seed"})
READING = ("__getitem__", "__getitems__")
SETTING = ("set_transform", "with_transform")
FILLING = frozenset("uniform_ normal_ random_ bernoulli_ exponential_ log_normal_ geometric_ cauchy_".split())
"""Methods of tensors that draw."""
TOLD = RANDOM_ROLES | {"random_transform", "dropout"}
"""What calls of the steps tell themselves, as events."""
OF_TENSORS = frozenset(["torch.utils.data.TensorDataset"])
"""What is given data alone."""
MOST = 60
"""So many functions of a data set are looked through."""
MOST_HELD = 400
"""So many things that it holds."""


@dataclass(frozen=True)
class Drawn:
    """A call that draws from the generator of a library."""

    library: str
    source: Source
    node: ast.AST
    known: bool = True
    """Whether it does so, or may: nothing is known of it."""


def per_sample(loader: Object, run: Interpreter, stream: bool = False) -> list[Drawn]:
    """What a loader's process draws for each sample: nothing of what its workers draw, which torch seeds."""
    return _drawn_for(loader, run, stream) if _may_read_itself(loader) else []


def by_workers(loader: Object, run: Interpreter, stream: bool = False) -> list[Drawn]:
    """What the workers of a loader draw for each sample, from generators that follow torch's in the main process."""
    return [] if _reads_itself(loader) else _drawn_for(loader, run, stream)


def collating(loader: Object, run: Interpreter) -> list[Drawn]:
    """What its `collate_fn` draws."""
    told = collation.collate_fn(loader) or NOTHING
    return [*_drawn_by(_with_calls(list(collation.called(told))), run), *_by_libraries(told, run)]


def own_generators(loader: Object, run: Interpreter) -> dict[ast.AST, Object]:
    """The generators of the script's own from which a loader's samples are drawn, and nothing else: by the calls that
    make them, `self.rng = np.random.default_rng(0)`."""
    functions = reading(loader)
    inside = {node for function in functions for node in walk(function.node)}
    found: dict[ast.AST, Object] = {thing.node: thing for function in functions for thing in asked(function)}
    for node, value in run.values.items() if found else ():
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load) and node not in inside:
            for thing in value.things:
                if isinstance(thing, Object) and isinstance(run.sources[node].parents.get(node), ast.Attribute):
                    found.pop(thing.node, None)
    return found


def reading(loader: Object, stream: bool = False) -> list[Function]:
    """The functions of the project that run while a rank's samples are read and put together."""
    dataset, told = loader.argument("dataset", 0) or NOTHING, collation.collate_fn(loader) or NOTHING
    return [*([] if stream else _read_by(dataset)), *_with_calls(list(collation.called(told)))]


def asked(function: Function) -> Iterator[Object]:
    """The generators that a function draws from by their methods."""
    for node in walk(function.node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from generators(node.func.value, function)


def generators(node: ast.expr, function: Function) -> Iterator[Object]:
    """The generators that a name in a function may stand for."""
    for thing in _named(node, function):
        if isinstance(thing, Object) and "generator" in thing.roles:
            yield thing


def drawn_on_tensors(called: Value, source: Source, node: ast.AST, run: Interpreter) -> Iterator[Drawn]:
    """What a function or layer of a library draws that is given tensors, where no event tells: from torch, if nothing
    is known of it."""
    names = [each.name for each in called.things if isinstance(each, External)]
    names += [each.name for each in _held_in(called, run) if isinstance(each, Object) and each.cls is None]
    untold = [each for each in names if TOLD.isdisjoint(run.catalog.roles(each))]
    for drawn in (each for name in untold for each in _drawn_from(name, source, node, run)):
        if drawn.known or drawn.library == "torch":
            yield drawn


def _drawn_for(loader: Object, run: Interpreter, stream: bool) -> list[Drawn]:
    """What is drawn for the samples that a rank takes: each draws alike for all samples of a stream that it reads, and
    puts together its own."""
    if stream:
        return collating(loader, run)
    dataset = loader.argument("dataset", 0) or NOTHING
    set_later = _drawn_by(_with_calls(list(_set_later(run))), run)
    return [*_drawn_by(_read_by(dataset), run), *set_later, *_by_libraries(dataset, run), *collating(loader, run)]


def _set_later(run: Interpreter) -> Iterator[Function]:
    """The functions that a data set of a library is told to run for each sample: `train_set.set_transform(augment)`."""
    for source in (each for each in run.project.sources if "_transform(" in each.text):
        for node in walk(source.tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SETTING:
                yield from (function for each in node.args for function in _callable(run.values.get(each, NOTHING)))


def _reads_itself(loader: Object) -> bool:
    told = loader.argument("num_workers", 5)
    return told is None or told.const == 0


def _may_read_itself(loader: Object) -> bool:
    """Whether an option may say that it has no workers, whatever the default is."""
    written = argument(loader.node, "num_workers", 5)
    fixed = isinstance(written, ast.Constant) or written is None and "**" not in loader.keywords
    return _reads_itself(loader) or not fixed


def seeded_again(loader: Object, run: Interpreter) -> set[str]:
    """The libraries whose generators a loader's process seeds for single samples, `np.random.seed(index)`."""
    return {each.library for each in seeding(loader, run)}


def seeding(loader: Object, run: Interpreter) -> list[Drawn]:
    """The calls by which a loader's process seeds the generators of libraries for single samples."""
    if not _reads_itself(loader):
        return []
    functions = _read_by(loader.argument("dataset", 0) or NOTHING)
    return [Drawn(library(call, each), each.source, call) for each in functions for call in _seeds(each, run)]


def _drawn_by(functions: Iterable[Function], run: Interpreter) -> list[Drawn]:
    """What functions of the project draw, or what they call of libraries."""
    return [
        drawn for function in functions for drawn in (*mentioned(function, run), *_called_of_libraries(function, run))
    ]


def _read_by(dataset: Value) -> Collection[Function]:
    """What is run for one sample, with all that it calls."""
    return _with_calls([each for thing in _datasets(dataset) for each in _reading(thing)])


def _with_calls(functions: list[Function]) -> Collection[Function]:
    seen: dict[ast.AST, Function] = {}
    while functions and len(seen) < MOST:
        function = functions.pop()
        if function.node not in seen:
            seen[function.node] = function
            functions += _called(function)
    return seen.values()


def _by_libraries(given: Value, run: Interpreter) -> Iterator[Drawn]:
    """What the data sets, transforms and collators of libraries draw, which a loader is given or holds."""
    for thing in _held_in(given, run):
        if isinstance(thing, Object) and thing.cls is None:
            yield from _drawn_from(thing.name, thing.source, thing.node, run)


def _held_in(given: Value, run: Interpreter) -> Iterator[Thing]:
    pending, seen = [*given.things], set[Thing]()
    while pending and len(seen) < MOST_HELD:
        thing = pending.pop()
        if thing in seen:
            continue
        seen.add(thing)
        yield thing
        if isinstance(thing, Object) and thing.name in OF_TENSORS:
            continue
        kept = thing.attributes.values() if isinstance(thing, Object) else ()
        given_ = () if isinstance(thing, Object) and thing.cls is not None else _held(thing)
        pending += [each for part in (*given_, *kept) for each in part.things if _may_run(each, thing, run)]


def _may_run(thing: Thing, holder: Thing, run: Interpreter) -> bool:
    """Whether what something holds may be run for a sample: of a class of the project, only what is known to draw, as
    it may hold anything."""
    if not isinstance(thing, Object) or thing.cls is not None or not isinstance(holder, Object) or holder.cls is None:
        return True
    return run.catalog.draws(thing.name) != ANY_GENERATOR


def _called_of_libraries(function: Function, run: Interpreter) -> Iterator[Drawn]:
    """What a function calls of libraries that may draw: `warp(image)`, `self.augment(image=image)`."""
    for node in walk(function.node):
        if not isinstance(node, ast.Call):
            continue
        name = name_of(node.func, function)
        if name and not name.startswith(".") and RANDOM_ROLES.isdisjoint(run.catalog.roles(name)):
            yield from _drawn_from(name, function.source, node, run)
        holders = [node.func, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
        called = Value(frozenset(each for holder in holders for each in _named(holder, function)))
        for thing in _held_in(called, run):
            if isinstance(thing, Object) and thing.cls is None and "generator" not in thing.roles:
                yield from _drawn_from(thing.name, function.source, node, run)


def _drawn_from(name: str, source: Source, node: ast.AST, run: Interpreter) -> Iterator[Drawn]:
    libraries = run.catalog.draws(name)
    yield from (Drawn(each, source, node, libraries != ANY_GENERATOR) for each in sorted(libraries))


def _held(thing: Thing) -> tuple[Value, ...]:
    """What is in a list or a table, or was given to what made an object."""
    if isinstance(thing, Items):
        return (*thing.parts, thing.element)
    if isinstance(thing, Table):
        return (*thing.entries.values(), thing.element)
    return (*thing.args, *thing.keywords.values()) if isinstance(thing, Object) else ()


def _datasets(value: Value) -> Iterator[Object]:
    """The data sets of the script's own in a value, also inside of a Subset, each once: it may be made of what it was,
    `data = Subset(data, chosen)`."""
    seen: set[Thing] = set()
    pending = [*value.things]
    while pending:
        thing = pending.pop(0)
        if thing in seen:
            continue
        seen.add(thing)
        if isinstance(thing, Object):
            yield thing
        if isinstance(thing, Items) or isinstance(thing, Object) and thing.cls is None:
            kept = thing.attributes.values() if isinstance(thing, Object) else ()
            pending = [*(each for part in (*_held(thing), *kept) for each in part.things), *pending]


def _reading(dataset: Object) -> Iterator[Function]:
    """What is run for one sample: a method of the class, and transforms that it is given or makes for itself."""
    own = [each for name in READING for each in _methods(dataset.cls, name)] if dataset.cls is not None else []
    yield from (_bound(each, dataset) for each in own)
    for made in _methods(dataset.cls, "__init__") if dataset.cls is not None else ():
        yield from _given_on(_bound(made, dataset))  # `super().__init__(transform=self.augment)`
    given = (*dataset.args, *dataset.keywords.values(), *dataset.attributes.values())
    yield from (function for each in given for function in _callable(each))


def _given_on(function: Function) -> Iterator[Function]:
    """The functions of the project that a function gives to what it calls."""
    for call in all_of(function.node, ast.Call):
        for node in (*call.args, *(each.value for each in call.keywords)):
            yield from (thing for thing in _named(node, function) if isinstance(thing, Function))


def _methods(cls: Class, name: str) -> Iterator[Function]:
    found = cls.find(name)
    yield from (each for each in (found[1].things if found is not None else ()) if isinstance(each, Function))


def _bound(function: Function, owner: Thing) -> Function:
    return Function(function.node, function.source, function.scope, owner, function.defined_in)


def _callable(value: Value, depth: int = 4) -> Iterator[Function]:
    """The functions of the project that a call of a value runs, or of something that it holds: `Compose([Noise()])`."""
    for thing in value.things if depth else ():
        if isinstance(thing, Function):
            yield thing
        elif isinstance(thing, Object) and thing.cls is not None:
            for name in ("__call__", "forward", "get_params"):
                yield from (_bound(each, thing) for each in _methods(thing.cls, name))
            for part in (*thing.args, *thing.keywords.values(), *thing.attributes.values()):  # `for t in self.steps:`
                yield from _callable(part, depth - 1)
        else:
            for part in _held(thing):
                yield from _callable(part, depth - 1)


def _called(function: Function) -> Iterator[Function]:
    """The functions of the project that a function calls, or gives to what calls them: `map(augment, images)`."""
    for node in walk(function.node):
        if isinstance(node, ast.Call):
            called = _named(node.func, function)
            told = (*node.args, *(each.value for each in node.keywords))
            given = [thing for each in told for thing in _named(each, function) if not isinstance(thing, Class)]
            yield from (each for thing in (*called, *given) for each in _run_by(thing))


def _run_by(thing: Thing) -> Iterator[Function]:
    """What a call of something runs: of a class, its constructor, and what its object does when that is called."""
    if isinstance(thing, Class):
        for name in ("__init__", "__call__"):
            yield from (_bound(each, thing) for each in _methods(thing, name))
    else:
        yield from _callable(Value(frozenset([thing])))


def _named(node: ast.expr, function: Function, depth: int = 4) -> Iterator[Thing]:
    """What a name, or the attribute of one, stands for in a function: `common.get_patch`, `self.crop`, `Crop.apply`."""
    owner = function.owner
    if isinstance(node, ast.Name):
        scope = function.scope.find(node.id)
        if scope is not None:
            yield from scope.names[node.id].things
        elif owner is not None and node.id == "self":
            yield owner
    elif isinstance(node, ast.Attribute) and depth:
        if isinstance(node.value, ast.Call) and getattr(node.value.func, "id", None) == "super":
            yield from _above(node.attr, function)
        else:
            for thing in _named(node.value, function, depth - 1):
                yield from _attribute(thing, node.attr)


def _attribute(thing: Thing, name: str) -> Iterator[Thing]:
    """What a module, a class or an object of the project has by a name."""
    if isinstance(thing, LocalModule):
        yield from thing.scope.names.get(name, NOTHING).things
    cls = thing.cls if isinstance(thing, Object) else thing if isinstance(thing, Class) else None
    if cls is not None:
        yield from (_bound(each, thing) for each in _methods(cls, name))
    if isinstance(thing, Object):
        yield from thing.attributes.get(name, NOTHING).things


def _above(name: str, function: Function) -> Iterator[Thing]:
    """The method that a method finds in the classes that its own derives from: `super().__getitem__`."""
    owner, inside = function.owner, function.defined_in
    cls = owner.cls if isinstance(owner, Object) else owner if isinstance(owner, Class) else None
    found = cls.find(name, skip=inside) if cls is not None and inside is not None else None
    if found is not None and owner is not None:
        yield from (_bound(each, owner) for each in found[1].functions)


def mentioned(function: Function, run: Interpreter) -> Iterator[Drawn]:
    """What a function that no step of the analysis enters draws from, by what it calls."""
    calls = list(all_of(function.node, ast.Call))
    seeds = {library(call, function) for call in _seeds(function, run) if not _is_chosen(call, function)}
    for node in calls:
        name = name_of(node.func, function)
        if isinstance(node.func, ast.Attribute) and node.func.attr in FILLING and not name.startswith("torch.nn.init"):
            if not any(each.arg == "generator" for each in node.keywords):
                yield Drawn("torch", function.source, node)
        draws = RANDOM_ROLES & run.catalog.roles(name) and name.rpartition(".")[2] not in OWN
        if draws and library(node, function) not in seeds and not any(k.arg == "generator" for k in node.keywords):
            yield Drawn(library(node, function), function.source, node)


def _seeds(function: Function, run: Interpreter) -> Iterator[ast.Call]:
    """The calls in a function that seed a generator by what they are given, `np.random.seed(index)`."""
    for node in walk(function.node):
        if isinstance(node, ast.Call) and node.args:
            if not SEEDING.isdisjoint(run.catalog.roles(name_of(node.func, function))):
                yield node


def _is_chosen(node: ast.AST, function: Function) -> bool:
    """Whether a condition decides that it is run: `if self.partition != "train": np.random.seed(index)`."""
    around = takewhile(lambda each: each is not function.node, function.source.ancestors(node))
    return any(isinstance(each, (ast.If, ast.IfExp)) for each in around)


def library(call: ast.Call, function: Function) -> str:
    """The library whose generator a call seeds or draws from."""
    return name_of(call.func, function).partition(".")[0]


def name_of(node: ast.expr, function: Function) -> str:
    """The name in its library of what a function calls: `numpy.random.rand` for `np.random.rand`."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value, function)}.{node.attr}"
    scope = function.scope.find(node.id) if isinstance(node, ast.Name) else None
    held = scope.names[node.id].things if scope is not None and isinstance(node, ast.Name) else ()
    return next((thing.name for thing in held if isinstance(thing, External)), "")
