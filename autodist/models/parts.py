"""What modules consist of, and whose parameters something is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

from autodist.interpreter import Interpreter
from autodist.script import Model
from autodist.values import (
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
