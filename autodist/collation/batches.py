"""What is asked of the batches of a loader, and of what is computed from them."""

from __future__ import annotations

import ast
from collections.abc import Callable

from autodist.collation.functions import BEGINNING, called
from autodist.collation.kinds import Fields, Key, Kind, Rows, unevenness
from autodist.source import last_name
from autodist.values import NOTHING, PACKED, SETTLED, Function, Object, Part, Trimmed, Value

OF_NODES = frozenset("x pos edge_index edge_attr edge_weight batch".split())
"""What a batch of graphs has for each of their nodes or edges."""


def fields(value: Value) -> dict[Object, list[Key]]:
    """The loaders whose own functions made a value's samples, or of which words were packed, and which parts of their
    batches it comes from."""
    packed = {o.loader for o in value.origins if isinstance(o, Part) and o.key == PACKED}
    loaders = [each for each in _loaders(value) if each in packed or collate_fn(each) is not None or of_graphs(each)]
    return {loader: [o.key for o in value.origins if isinstance(o, Part) and o.loader is loader] for loader in loaders}


def _loaders(value: Value) -> list[Object]:
    return [o for o in value.origins if isinstance(o, Object) and "loader" in o.roles]


def is_packed(value: Value) -> bool:
    """Whether it is what `pack_padded_sequence` makes."""
    return any(isinstance(origin, Part) and origin.key == PACKED for origin in value.origins)


def collate_fn(loader: Object) -> Value | None:
    """What a loader is told to make batches by."""
    found = loader.argument("collate_fn", 6)
    return found if found is not None and found.things else None


def names(value: Value) -> str:
    """What the functions that made a value's samples are called, or filled them up, for a message."""
    loaders = {each.node for each in _loaders(value)}
    pads = [o.node for o in value.origins if isinstance(o, Trimmed) and o.padded and o.node not in loaders]
    if pads:
        return " and ".join(sorted({f"{last_name(each.func)}()" for each in pads if isinstance(each, ast.Call)}))
    known = sorted(set(map(named, fields(value))))
    return " and ".join(filter(None, known)) or (
        "pack_padded_sequence()" if is_packed(value) else "the loader of graphs"
    )


def named(loader: Object) -> str:
    """What the function is called by which a loader makes its batches."""
    found = sorted(set(map(_name, called(collate_fn(loader) or NOTHING))))
    return " and ".join("collate_fn" if name == "<lambda>" else f"{name}()" for name in found)


def _name(function: Function) -> str:
    cls = function.defined_in
    return cls.node.name if cls is not None and function.name in (BEGINNING, "__call__") else function.name


def of_graphs(loader: Object) -> bool:
    """Whether a batch is one graph of several, with the nodes of all of them."""
    return loader.name.startswith(("torch_geometric.", "dgl."))


def picked(value: Value, key: object) -> Value:
    """One field of a batch."""
    if not isinstance(key, (int, str)) or isinstance(key, bool):
        return value
    chosen = {Part(loader, key) for loader, keys in fields(value).items() if not keys}
    return value.but(origins=value.origins | chosen) if chosen else value


def marked(value: Value, key: Key) -> Value:
    """A loss that has been looked at (SETTLED), or words of which the paddings are gone (PACKED)."""
    marks = {Part(loader, key) for loader in (_loaders(value) if key == PACKED else fields(value))}
    return value.but(origins=value.origins | marks) if marks else value


def has_padding(value: Value, made: Callable[[Object], Kind]) -> bool:
    """Whether something of what a value is computed from is filled up to the longest sample."""
    parts = fields(value).items()
    return any(unevenness(made(loader), key) is Rows.PADDED for loader, keys in parts for key in (keys or (None,)))


def is_listed(value: Value, made: Callable[[Object], Kind]) -> bool:
    """Whether it is a list with what each sample has, as a `collate_fn` hands on what differs in size."""
    for loader, keys in fields(value).items():
        kind = made(loader)
        parts = [kind.at(key) if isinstance(kind, Fields) else kind for key in keys] or [kind]
        if Rows.EACH in parts:
            return True
    return False


def uneven(value: Value, made: Callable[[Object], Kind], target: bool = False) -> Rows | None:
    """What makes a value, or a loss with this target, longer on one rank than on another; ``made`` tells what a
    loader's batches are."""
    found: list[Rows | None] = []
    for loader, keys in fields(value).items():
        if PACKED in keys and target:
            found.append(Rows.JOINED)
        elif SETTLED not in keys:
            keys = [key for key in keys if key != PACKED]
            found += [unevenness(made(loader), key) for key in (keys or (None,))]
    if None in found and Rows.FEWER not in found and Rows.JOINED not in found:
        return None  # what goes with one number for each sample is padded and does not count as often
    return next((each for each in (Rows.FEWER, Rows.JOINED, Rows.PADDED) if each in found), None)
