"""What modules consist of, whose parameters something is, and whether they normalise a batch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

from autodist.interpreter import Interpreter, once_a_run
from autodist.script import Model
from autodist.source import Source, all_of
from autodist.values import (
    NOTHING,
    Class,
    External,
    Function,
    Inside,
    Items,
    Object,
    Parameters,
    Path_,
    Stream,
    Table,
    Thing,
    Value,
    Wrapped,
)

Key = tuple[int, Path_]
Keys = frozenset[Key]
"""What tells objects from others, in every run of the interpreter."""


def optimized_modules(run: Interpreter) -> list[Object]:
    """The modules whose parameters an optimizer is given."""
    found: dict[Object, None] = {}
    for event in run.of("optimizer"):
        for thing in event.value.objects("optimizer"):
            found.update(dict.fromkeys(optimized_by(thing)))
    return list(found)


def whose_parameters(value: Value, depth: int = 6) -> Iterator[Thing]:
    """The modules whose parameters something is, or holds."""
    if depth == 0:
        return
    for thing in value.things:
        if isinstance(thing, Parameters):
            yield thing.module.module if isinstance(thing.module, Wrapped) else thing.module
        elif isinstance(thing, Items):
            for part in (*thing.parts, thing.element):
                yield from whose_parameters(part, depth - 1)
        elif isinstance(thing, Table):
            for part in (*thing.entries.values(), thing.element):
                yield from whose_parameters(part, depth - 1)
        elif isinstance(thing, Stream):
            yield from whose_parameters(thing.element, depth - 1)


def optimized_by(optimizer: Object, depth: int = 4) -> list[Object]:
    """The modules whose parameters one optimizer is given, or that around which it is: `Lookahead(optimizer)`."""
    values = (*optimizer.args, *optimizer.keywords.values())
    given = [thing for value in values for thing in unwrapped(value) if isinstance(thing, Object)]
    whole = [thing for thing in given if "module" in thing.roles]  # `create_optimizer(model)`
    inner = [t for t in given if "optimizer" in t.roles and t is not optimizer] if depth else []
    around = [module for thing in inner for module in optimized_by(thing, depth - 1)]
    own = (each for value in values for each in whose_parameters(value) if isinstance(each, Object))
    return [*whole, *own, *around]


def owned_parameters(run: Interpreter) -> set[Object]:
    """The parameters that are attributes of the modules that train."""
    held = (v for module in optimized_modules(run) for part in parts(module) for v in part.attributes.values())
    return {each for value in held for each in value.objects("parameter")}


def loose_parameters(optimizer: Object, inside: set[Object]) -> bool:
    """Whether an optimizer is also given tensors that belong to no module, which owns those ``inside``."""
    pending = [*optimizer.args, *optimizer.keywords.values()]
    for _ in range(200):
        if not pending:
            break
        value = pending.pop()
        for thing in value.things:
            if isinstance(thing, Object) and "parameter" in thing.roles and thing not in inside:
                return True
            if isinstance(thing, Items):
                pending += [*thing.parts, thing.element]
            elif isinstance(thing, Table):
                pending += [*thing.entries.values(), thing.element]
    return False


def holds_only_parameters(optimizer: Object) -> bool:
    """Whether an optimizer is given tensors that a script has made as parameters, in no module, and nothing else:
    `torch.optim.SGD([w, b], lr=0.1)`."""
    given = optimizer.argument("params", 0)
    pending = [given] if given is not None else []
    found = False
    for _ in range(200):
        if not pending:
            return found
        value = pending.pop()
        if not value.things:
            return False
        for thing in value.things:
            if isinstance(thing, Items):
                pending += [*thing.parts, *([thing.element] if thing.element.things or not thing.parts else [])]
            elif isinstance(thing, Object) and "parameter" in thing.roles:
                found = True
            else:
                return False
    return False


_PARTS: WeakKeyDictionary[Object, list[Object]] = WeakKeyDictionary()
"""What modules hold once their run is over, which is asked of each of them again and again."""


def parts(module: Object) -> list[Object]:
    """The module and all that it holds."""
    found = _PARTS.get(module)
    if found is None:
        found = _PARTS[module] = _parts(module)
    return found


def _parts(module: Object) -> list[Object]:
    found: dict[int, Object] = {}
    pending: list[Value] = [Value(frozenset([module]))]
    containers: set[int] = set()
    read: set[int] = set()
    while pending:
        value = pending.pop()
        if id(value.things) in read:
            continue
        read.add(id(value.things))
        for thing in value.things:
            if isinstance(thing, Wrapped):
                thing = thing.module
            if isinstance(thing, Object) and ("module" in thing.roles or "batch_norm" in thing.roles):
                if id(thing) not in found:
                    found[id(thing)] = thing
                    pending += [*thing.args, *thing.keywords.values(), *thing.attributes.values()]
            elif isinstance(thing, (Items, Table, Stream)) and id(thing) not in containers:
                containers.add(id(thing))
                if isinstance(thing, Items):
                    pending += [*thing.parts, thing.element]
                elif isinstance(thing, Table):
                    pending += [*thing.entries.values(), thing.element]
                else:
                    pending.append(thing.element)
    return list(found.values())


def unwrapped(value: Value) -> set[Thing]:
    """What a value holds, without wrappers."""
    return {t.module if isinstance(t, Wrapped) else t for t in value.things}


def keys(things: Iterable[Thing]) -> Keys:
    """What tells the objects among some things from others, in every run of the interpreter."""
    return frozenset(t.key for t in things if isinstance(t, Object))


def members(models: Iterable[Model]) -> dict[Key, Object]:
    """The modules that a model may be, by the keys of their parts."""
    roots = (each for model in models for each in (model.object, *model.alternatives))
    return {part.key: root for root in roots for part in parts(root)}


def parts_of(thing: Thing) -> list[Object]:
    """`parts` for anything."""
    return parts(thing) if isinstance(thing, Object) else []


def normalises(module: Object, run: Interpreter) -> bool:
    """Whether a module, or a part of it, normalises over batches, or a module that it takes parts of.

    What comes from a library of which nothing is known may: to synchronise layers that are not there changes nothing.
    """
    return _normalises(run, module)


@once_a_run
def _normalises(run: Interpreter, module: Object) -> bool:
    members = _and_what_gave_parts(module, run)
    return any(_has_batch_norm(each, run) for each in members) or any(_is_unseen(each, run) for each in members)


def holds_batch_norm(module: Object, run: Interpreter) -> bool:
    """Whether a layer that normalises over batches is made where a module is, or may be.

    `normalises` is content with a class that speaks of one: `if normed: layers.append(nn.BatchNorm2d(n))`.
    """
    inside = _and_what_gave_parts(module, run)
    if any(_is_batch_norm(each, run) or _is_unseen(each, run) for each in inside):
        return True
    calls = {id(each.node) for each in inside}
    made = (t for value in run.values.values() for t in value.things if isinstance(t, Object))
    return any(_is_batch_norm(each, run) and not calls.isdisjoint(each.path) for each in made)


def _is_unseen(module: Object, run: Interpreter) -> bool:
    """Whether a module, its class's base or a part that its methods call comes from a library that is not known."""
    if module.cls is None:
        return not run.catalog.knows(module.name) or _holds_unseen(module) and not any(_spoken_of(module, run))
    bases = [base for each in module.cls.line() for base in each.bases if isinstance(base, External)]
    called = {node.func.attr for node in _calls(module.cls) if isinstance(node.func, ast.Attribute)}
    held = _flattened(value for name, value in module.attributes.items() if name in called)
    made = [thing for thing in held if isinstance(thing, Object) and thing.cls is None and not thing.roles]
    return not all(map(run.catalog.knows, [*(each.name for each in bases), *(each.name for each in made)]))


def _holds_unseen(module: Object) -> bool:
    """`nn.Sequential(*layers)` of a list of which no layer is known, as where a file of settings names them."""
    starred = isinstance(module.node, ast.Call) and any(isinstance(each, ast.Starred) for each in module.node.args)
    return starred and module.name in CONTAINERS and all(isinstance(t, Items) for t in _flattened(module.args))


def _spoken_of(container: Object, run: Interpreter) -> Iterator[Object]:
    """The models of libraries that a container's layers come out of: `nn.Sequential(*list(vgg.features)[:35])`."""
    starred = [each for each in container.node.args if isinstance(each, ast.Starred)]
    spoken = (node for each in starred for node in all_of(each, ast.expr))
    things = (thing for node in spoken for thing in run.values.get(node, NOTHING).things)
    return (t for t in things if isinstance(t, Object) and t.cls is None and "module" in t.roles)


CONTAINERS = frozenset(f"torch.nn.{name}" for name in ("Sequential", "ModuleList", "ModuleDict"))


def _and_what_gave_parts(module: Object, run: Interpreter) -> list[Object]:
    """A module, all that it holds, and what it has layers of: `nn.Sequential(*list(resnet.children())[:-1])`."""
    found: dict[Object, None] = {}
    pending = [module]
    while pending:
        for each in parts(pending.pop()):
            if each not in found:
                found[each] = None
                pending += [t for t in _taken_from(each) if t not in found]
                pending += _spoken_of(each, run) if each.name in CONTAINERS else ()
    return list(found)


def _taken_from(module: Object) -> Iterator[Object]:
    """Modules of which a container holds layers, or a class in an attribute that its methods call."""
    if module.cls is None:
        held = [*module.args, *module.keywords.values()] if module.name in CONTAINERS else []
    else:
        called = {node.func.attr for node in _calls(module.cls) if isinstance(node.func, ast.Attribute)}
        held = [value for name, value in module.attributes.items() if name in called]
    for thing in _flattened(held):
        inner = thing.module if isinstance(thing, Inside) else None
        inner = inner.module if isinstance(inner, Wrapped) else inner
        if isinstance(inner, Object):
            yield inner


def _calls(cls: Class) -> Iterator[ast.Call]:
    return (node for each in cls.line() for node in all_of(each.node, ast.Call))


def _flattened(values: Iterable[Value]) -> Iterator[Thing]:
    """What values hold, and what lists and dicts among it hold."""
    pending, seen = list(values), set[int]()
    while pending:
        for thing in pending.pop().things:
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            yield thing
            if isinstance(thing, Items):
                pending += [*thing.parts, thing.element]
            elif isinstance(thing, Table):
                pending += [*thing.entries.values(), thing.element]
            elif isinstance(thing, Stream):
                pending.append(thing.element)


def _has_batch_norm(module: Object, run: Interpreter) -> bool:
    """Whether a module normalises over batches, or its class, or what that calls, speaks of something that does."""
    return _is_batch_norm(module, run) or module.cls is not None and _speaks_of_batch_norm(run, module.cls)


@once_a_run
def _speaks_of_batch_norm(run: Interpreter, cls: Class) -> bool:
    pending: list[Class | Function] = list(cls.line())
    seen: set[Class | Function] = set()
    while pending:
        spoken = pending.pop()
        if spoken in seen:
            continue
        seen.add(spoken)
        for node in all_of(spoken.node, ast.Attribute, ast.Name):
            for thing in run.values.get(node, NOTHING).things:
                if isinstance(thing, External):
                    if _brings_batch_norm(thing.name, _first_argument(node, spoken.source, run), run):
                        return True
                elif isinstance(thing, Class):
                    pending += thing.line()
                elif isinstance(thing, Function) and thing.owner is None:
                    pending.append(thing)
    return False


def _is_batch_norm(module: Object, run: Interpreter) -> bool:
    """Whether a module is a layer that normalises over batches, or one of a library that has such layers."""
    first = module.args[0].const if module.args else None
    named = module.keywords["norm"].const if "norm" in module.keywords else None  # `GCN(4, 8, 2, norm="batch_norm")`
    if isinstance(named, str) and named.lower().replace("_", "") == "batchnorm":
        return True
    return "batch_norm" in module.roles or _brings_batch_norm(module.name, first, run)


def _first_argument(node: ast.expr, source: Source, run: Interpreter) -> object:
    """What a call of ``node`` is given first, as far as known."""
    parent = source.parents.get(node)
    called = isinstance(parent, ast.Call) and parent.func is node and parent.args
    return run.values.get(parent.args[0], Value()).const if called else None  # type: ignore[union-attr]


def _brings_batch_norm(name: str, first: object, run: Interpreter) -> bool:
    return name.rpartition(".")[2].startswith(("BatchNorm", "LazyBatchNorm")) or run.catalog.normalises(name, first)
