"""What a script's names and attributes stand for beside numbers: functions, classes, objects and containers.

Objects and containers are told apart by their allocation sites: one stands for all that are made at a place in one
context.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from autodist.program import EMPTY, Region, Value, joined
from autodist.source import Source

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Guards: TypeAlias = tuple[Region, ...]
"""The regions around a place that may run more or less often than once."""


@dataclass(eq=False)
class Frame:
    """Names and what they stand for: of a module, a class, or one call of a function."""

    source: Source
    parent: Frame | None = None
    names: dict[str, Value] = field(default_factory=dict)
    is_class: bool = False
    elsewhere: dict[str, Frame] = field(default_factory=dict)
    """The frames of names that are `global` or `nonlocal` here."""
    told_apart: set[str] = field(default_factory=set)
    """What loops bind that are run for each element apart: no settings of the script."""
    versions: dict[str, int] = field(default_factory=dict)
    """How often a name was bound anew that code elsewhere reads or binds: by `global`, `nonlocal`, as an attribute."""
    guards: Guards = ()
    """The regions around the call of a function, and those that it is in itself."""
    rebound: dict[Any, frozenset[Region]] = field(default_factory=dict)
    """The loops in whose rounds code elsewhere binds something else to its names."""
    read_by_others: set[str] = field(default_factory=set)
    """The names that code elsewhere has read."""
    is_comprehension: bool = False

    def version_of(self, name: str) -> int:
        """How often a name was bound anew that code elsewhere reads or binds."""
        return self.versions.get(name, 0)

    @property
    def module(self) -> Frame:
        """The frame of the module."""
        frame = self
        while frame.parent is not None:
            frame = frame.parent
        return frame

    @property
    def home(self) -> Frame:
        """The frame whose names `:=` binds: that around a comprehension."""
        return self.parent.home if self.is_comprehension and self.parent is not None else self

    @property
    def settings(self) -> dict[str, Any]:
        """The names that are constants."""
        return {name: value.constant for name, value in self.names.items() if value.is_constant}

    def find(self, name: str) -> Frame | None:
        """The frame that has a name, seen from this one. Functions do not see the names of the class around them."""
        if name in self.elsewhere:
            return self.elsewhere[name]
        frame: Frame | None = self
        while frame is not None:
            if name in frame.names and (frame is self or not frame.is_class):
                return frame
            frame = frame.parent
        return None


@dataclass(frozen=True)
class External:
    """A module, class, function or attribute of a library, by its qualified name."""

    name: str


@dataclass(eq=False)
class LocalModule:
    """A file of the project."""

    name: str
    frame: Frame


@dataclass(eq=False)
class Function:
    """A function of the project, and the class in whose body it is defined."""

    node: Definition
    frame: Frame
    defined_in: Class | None = None
    role: str = ""
    """`staticmethod`, `classmethod`, `property`, or `no_grad`, which a decorator gives it."""
    made: dict[ast.expr, Value] = field(default_factory=dict)
    """What calls make that are the defaults of parameters: once, where the function is defined."""

    @property
    def name(self) -> str:
        """Its name in the source."""
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name


@dataclass(frozen=True)
class Method:
    """A function, or a method of a library's class by its name, bound to its owner."""

    owner: Any
    function: Any


@dataclass(frozen=True, eq=False)
class Partial:
    """A callable with some of its arguments."""

    function: Value
    inputs: tuple[Value, ...]
    keywords: dict[str, Value]


@dataclass(eq=False)
class Class:
    """A class of the project."""

    node: ast.ClassDef
    frame: Frame
    bases: tuple[Any, ...]

    def line(self) -> Iterator[Class | External]:
        """The class and those that it derives from, each once, those of libraries among them."""
        seen: set[Any] = set()
        pending: list[Any] = [self]
        while pending:
            each = pending.pop(0)
            if each not in seen:
                seen.add(each)
                yield each
                pending[:0] = each.bases if isinstance(each, Class) else ()

    def find(self, name: str, after: Class | None = None) -> tuple[Class, Value] | None:
        """The class in its line that defines a name; with ``after``, only those that come later."""
        line = [each for each in self.line() if isinstance(each, Class)]
        if after is not None and after in line:
            line = line[line.index(after) + 1 :]
        return next(((each, each.frame.names[name]) for each in line if name in each.frame.names), None)

    @property
    def libraries(self) -> list[str]:
        """The classes of libraries that it derives from."""
        return [each.name for each in self.line() if isinstance(each, External)]


@dataclass(eq=False)
class Heap:
    """What can change after it was made. ``version`` counts its changes, ``places`` is under which keys something is
    put that are no constants."""

    node: ast.AST
    guards: Guards
    version: int = 0
    places: Value = field(default=EMPTY, kw_only=True)
    found_in: dict[Heap | None, Value] = field(default_factory=dict, kw_only=True)
    """The lists and dicts in which it is looked up, and by which keys; by which tests it is chosen under None."""
    rebound: dict[Any, frozenset[Region]] = field(default_factory=dict, kw_only=True)
    """The loops in whose rounds something else is bound to its keys, or put somewhere into it under None."""

    def choose(self, key: Value, container: Heap | None = None) -> None:
        """Have it looked up by a key, or chosen by a test."""
        above = container.found_in if container is not None else {}
        for each, by in ((container, Value(key.operations)), *above.items()):
            if by.operations:
                self.found_in[each] = self.found_in.get(each, EMPTY) | by

    def place(self, key: Value) -> None:
        """Have something put under a key."""
        if (places := self.places | Value(key.operations)) != self.places:
            self.places, self.version = places, self.version + 1

    @property
    def slots(self) -> dict[Any, Slot]:
        """What is bound in it by name or key."""
        return {}

    def version_of(self, key: Any) -> int:
        """How often what is bound to a key has changed; of None, all of it."""
        if key is None:
            return self.version
        slot = self.slots.get(key)
        return slot.version if slot is not None else -1

    def contents(self) -> Iterator[Value]:
        """The values that it holds."""
        return iter(())

    def replace(self, current: Callable[[Value], Value]) -> None:
        """Have it hold others."""
        for each in self.slots.values():
            each.value = current(each.value)


def picked_by(value: Value) -> Value:
    """The conditions under which lists and iterators are given their elements."""
    return joined(each.picked for each in value.things if isinstance(each, Listing))


@dataclass(eq=False)
class Slot:
    """What an attribute or an entry holds, and between which guards it was bound last."""

    value: Value
    guards: Guards
    version: int = 0
    below: set[Guards] = field(default_factory=set)
    """Below which branches and loops it is bound; elsewhere it may not be there, or be what a class says."""

    def __post_init__(self) -> None:
        self.below.add(self.guards)


@dataclass(eq=False)
class Object(Heap):
    """An instance of a class of the project (``cls``) or of a library (``name``)."""

    name: str = ""
    cls: Class | None = None
    roles: frozenset[str] = frozenset()
    attributes: dict[Any, Slot] = field(default_factory=dict)
    inputs: tuple[Value, ...] = ()
    keywords: dict[str, Value] = field(default_factory=dict)
    source: Source | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """The names that were constants where it was made: `train` of `make_loader(data, train)`."""
    buffers: set[Any] = field(default_factory=set)
    """The names of the attributes of a module that are buffers."""
    made: Value = EMPTY
    """The operation by which a class of a library makes it."""

    def argument(self, name: str, position: int | None = None) -> Value | None:
        """What it was made with, by name or position."""
        if name in self.keywords:
            return self.keywords[name]
        return self.inputs[position] if position is not None and position < len(self.inputs) else None

    @property
    def slots(self) -> dict[Any, Slot]:
        """Its attributes."""
        return self.attributes

    def contents(self) -> Iterator[Value]:
        """What its attributes hold."""
        return (each.value for each in self.attributes.values())

    @property
    def library_names(self) -> list[str]:
        """The class of a library that it is of, or those that its class derives from."""
        return [self.name] if self.cls is None else self.cls.libraries


@dataclass(eq=False)
class Listing(Heap):
    """What gives one element after the other."""

    picked: Value = field(default=EMPTY, kw_only=True)
    """The conditions under which it is given an element, or gives one."""

    def pick(self, conditions: Value) -> None:
        """Have further conditions."""
        if self.picked | conditions != self.picked:
            self.picked, self.version = self.picked | conditions, self.version + 1


@dataclass(eq=False)
class Sequence(Listing):
    """A list, tuple, set or deque: its ``parts`` while their places are known, and what may be anywhere in it."""

    kind: str = "list"
    parts: list[Value] | None = None
    anywhere: Value = EMPTY
    stores: dict[ast.AST, Region] = field(default_factory=dict)
    """The calls and additions by which it is given elements, and in which regions."""

    def contents(self) -> Iterator[Value]:
        """What it holds."""
        yield from self.parts or ()
        yield self.anywhere

    @property
    def element(self) -> Value:
        """What an element may be."""
        return joined(self.contents())

    def replace(self, current: Callable[[Value], Value]) -> None:
        """Have it hold others."""
        self.parts = [current(each) for each in self.parts] if self.parts is not None else None
        self.anywhere = current(self.anywhere)

    def empty(self) -> None:
        """Hold nothing, as if it were made just now."""
        self.parts, self.anywhere, self.picked, self.version = [], EMPTY, EMPTY, self.version + 1

    def forget_places(self) -> None:
        """No longer know what is where."""
        if self.parts is not None:
            self.anywhere, self.parts = self.element, None


@dataclass(eq=False)
class Mapping(Heap):
    """A dict: its entries by constant key, what may be under any other, and what keys there are."""

    kind: str = "dict"
    entries: dict[Any, Slot] = field(default_factory=dict)
    anywhere: Value = EMPTY
    keys: Value = EMPTY
    popped: set[Any] = field(default_factory=set)
    """The keys that were surely taken out again."""

    @property
    def slots(self) -> dict[Any, Slot]:
        """Its entries."""
        return self.entries

    def contents(self) -> Iterator[Value]:
        """What it holds."""
        yield from (each.value for each in self.entries.values())
        yield self.anywhere

    def replace(self, current: Callable[[Value], Value]) -> None:
        """Have it hold others."""
        super().replace(current)
        self.anywhere = current(self.anywhere) if self.anywhere is not EMPTY else EMPTY

    def empty(self) -> None:
        """Hold nothing, as if it were made just now."""
        self.anywhere, self.keys, self.version = EMPTY, EMPTY, self.version + 1
        self.entries.clear()
        self.popped.clear()

    @property
    def element(self) -> Value:
        """What an entry may be."""
        return joined(self.contents())


@dataclass(eq=False)
class Stream(Listing):
    """An iterator, with what it gives, and the values that it goes over."""

    element: Value = EMPTY
    over: Value = EMPTY

    def contents(self) -> Iterator[Value]:
        """What it gives."""
        yield self.element


def keyed(entries: dict[str, Value], guards: Guards) -> dict[Any, Slot]:
    """The entries of a dict that is made of keywords."""
    return {key: Slot(value, guards) for key, value in entries.items()}


def is_of_loader(value: Value) -> bool:
    """Whether going through a value gives the batches of a loader: `enumerate(tqdm(loader))`"""
    pending, seen = [*value.things], set[int]()
    while pending:
        each = pending.pop()
        if "loader" in getattr(each, "roles", ()):
            return True
        if id(each) not in seen:  # what a function hands to itself may go through itself
            seen.add(id(each))
            over = each.over if isinstance(each, Stream) else EMPTY
            if isinstance(each, Object) and each.roles & {"progress", "reader"}:
                over = each.argument("iterable", 0) or EMPTY
            pending += over.things
    return False


def kept_by(names: dict[str, Value]) -> dict[Heap, list[Value]]:
    """What the lists, dicts and objects that names stand for hold, and those that objects have."""
    found: dict[Heap, list[Value]] = {}
    pending = list(names.values())
    while pending:
        for each in pending.pop().things:
            if isinstance(each, (Sequence, Mapping, Object)) and each not in found:
                found[each] = list(each.contents())
                pending += found[each] if isinstance(each, Object) and each.cls is not None else []
    return found


def is_anew(end: Value, start: Value) -> bool:
    """Whether a name is bound to something else at the ``end`` of a round than at its ``start``."""
    return start | end != start


def carried(names: dict[str, Value], loop: Region, bound: Iterable[str]) -> dict[str, Value]:
    """The names at the head of a loop, of which some may be ``bound`` to what an earlier round has left."""
    return names | {each: names[each].left_by(frozenset([loop])) for each in bound}


def left(names: dict[str, Value], loop: Region) -> dict[str, Value]:
    """The names behind a loop, which has no more rounds."""
    return {name: each.not_left_by(loop) for name, each in names.items()}


def merged(one: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    """The names where two ways meet."""
    if one is other:
        return one
    result = dict(one)
    for name, value in other.items():
        result[name] = result[name] | value if name in result else value
    return result
