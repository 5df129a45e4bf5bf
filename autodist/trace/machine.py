"""The state of a run: the program recorded so far, the context and the region that it is in."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from collections.abc import Mapping as Map
from collections.abc import Sequence as Row
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from autodist.catalog import Catalog
from autodist.program import EMPTY, Effect, Operation, Program, Region, Value, closure, constant, joined
from autodist.program.graph import VIEWS, RegionKind, gives_tensors
from autodist.project import Project
from autodist.trace.settings import Settings
from autodist.trace.things import External, Frame, Function, Guards, Heap, LocalModule, Object, Slot, is_anew

MOST_STEPS = 400_000
UNCERTAIN = frozenset(["loop", "branch", "try", "hook"])
"""Regions that may not run, or run several times."""

WHOLE = constant(...)
BINDING = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.Tuple, ast.List, ast.Dict, ast.Return)
"""What keeps what an expression gives, which is read again when other code has run."""


class Interrupted(Exception):
    """The script is too large to be followed to its end."""


def is_view(operation: Operation) -> bool:
    """Whether it gives the same numbers in the same memory as what it is given."""
    return operation.name.rpartition(".")[2] in VIEWS and bool(operation.inputs)


def _viewed(view: Operation) -> frozenset[Operation]:
    return view.inputs[0].operations if is_view(view) else frozenset()


def _place_of(view: Operation) -> Value:
    return view.inputs[1] if view.name == "getitem" and len(view.inputs) > 1 else WHOLE


NUMBERS = frozenset("item float int bool len round count index tolist dim ndimension numel size shape".split())
"""The names of operations that give numbers, or texts: they are not changed in place."""


def changes_in_place(operation: Operation) -> bool:
    """Whether `x += y` changes what an operation gave, so that whoever else has it sees it: a tensor or an array."""
    seen, pending = {operation}, [operation]
    while pending:
        each = pending.pop()
        if not each.is_tensor or each.name.rpartition(".")[2] in NUMBERS:
            continue
        given = {op for value in each.inputs for op in value.operations} - seen
        if not each.name.startswith(("operator.", "builtins.")):
            return True
        seen |= given
        pending += given
    return False


@dataclass(eq=False)
class Context:
    """One way in which a function is entered: what it was given there, and what it gave. Entered again from the same
    place it makes the same operations."""

    function: Function | None
    parent: Context | None = None
    arguments: tuple[Value, ...] = ()
    result: Value = EMPTY
    done: bool = False
    takes_layers: bool = False
    """Whether it is given a model or a layer, or is called by what is."""
    active: bool = False
    region: Region | None = None
    operations: dict[Any, Operation] = field(default_factory=dict)
    regions: dict[Any, Region] = field(default_factory=dict)
    made: dict[Any, Any] = field(default_factory=dict)
    called: dict[Any, Context] = field(default_factory=dict)
    loops: dict[ast.AST, dict[str, Value]] = field(default_factory=dict)
    """The names at the end of the last round of each loop that was run."""
    ahead: dict[ast.AST, frozenset[str]] = field(default_factory=dict)
    """The names that were bound when a loop was come to first."""
    guards: Guards = ()
    reads: dict[tuple[Heap | Frame, Any], int] = field(default_factory=dict)
    """The attributes and entries that it has read and had not bound itself, with the versions that it found."""
    writes: set[tuple[Heap | Frame, Any]] = field(default_factory=set)
    """Those that it has surely bound."""

    def is_current(self) -> bool:
        """Whether what it has read is as it was."""
        return self.done and all(each.version_of(key) == version for (each, key), version in self.reads.items())


@dataclass
class Ending:
    """How a block is left: what functions return, and the names as they are at `break` and `continue`."""

    returned: list[Value] = field(default_factory=list)
    yielded: list[Value] = field(default_factory=list)


class Machine(ABC):
    """The state of a run, and what its layers ask of those above them."""

    def __init__(self, project: Project, catalog: Catalog) -> None:
        self.project, self.catalog = project, catalog
        self.program = Program(table=catalog.operations)
        self.context = Context(None)
        self.main = LocalModule("__main__", Frame(project.entry))
        self.region = Region("module", project.entry, project.entry.tree)
        self.guards: Guards = ()
        self.settings = Settings(project, self.program)
        self.modules: dict[str, LocalModule] = {}
        self.contexts: dict[ast.AST, list[Context]] = {}
        """The contexts of each function."""
        self.endings: list[Ending] = []
        self.entered: set[ast.AST] = set()
        self.heaps: list[Heap] = []
        self.changed: dict[Operation, frozenset[Operation]] = {}
        """What tensors hold after they were changed in place, by the operations that made them."""
        self._views: dict[Operation, dict[Operation, None]] = {}
        """The views of tensors that are kept, by the operations that made these."""
        self._held_by: dict[Operation, set[tuple[Heap, Any]]] = {}
        """The attributes and entries that were bound to what operations give."""
        self._rounds: list[tuple[Region, set[tuple[Heap | Frame, Any]]]] = []
        """The loops that are run, and the attributes and entries that are surely bound in this round."""
        self.turned: set[tuple[Operation, Operation]] = set()
        self._slots_bound: list[Slot] = []
        """The attributes and entries that were bound, one after the other."""
        self.rebindings = 0
        """How often something else was bound in a loop to an attribute, an entry, or a name of another function."""
        self.entered_again = 0
        """How many contexts were made for functions that call themselves: where each of twenty calls each, too many."""
        self._steps = 0
        self._effects: set[tuple[str, Operation, Region | None]] = set()

    def tick(self) -> None:
        """Count one step of the run. Raises Interrupted where there are too many."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise Interrupted

    # the graph

    def record(
        self,
        name: str,
        node: ast.AST,
        frame: Frame,
        inputs: Row[Value] = (),
        keywords: Map[str, Value] | None = None,
        owner: Object | None = None,
        tag: object = None,
    ) -> Value:
        """The value of an operation at ``node``. Run again in the same context, it is the same operation, with what it
        is given then beside what it was given before."""
        key = node, name, tag
        found = self.context.operations.get(key)
        if found is None:
            number = len(self.program.operations)
            known = self.program.table.find(name)
            found = Operation(
                number, name, tuple(inputs), keywords or {}, frame.source, node, self.region, owner, known
            )
            self.program.operations.append(found)
            self.context.operations[key] = found
        elif len(found.inputs) == len(inputs) and found.keywords.keys() == (keywords or {}).keys():
            before = [*found.operands]
            found.inputs = tuple(a | b for a, b in zip(found.inputs, inputs, strict=True))
            found.keywords = {key: value | (keywords or {})[key] for key, value in found.keywords.items()}
            if any(a is not b for a, b in zip(before, found.operands, strict=True)):
                self.settings.grow(found)
        else:  # `f(*args)` of different tuples
            self.settings.grow(found)
            found.inputs = (joined([*found.operands, *inputs, *(keywords or {}).values()]),)
            found.keywords = {}
        self.changed.pop(found, None)  # run again, it gives another tensor, which nobody has changed yet
        found.is_tensor = found.is_tensor or gives_tensors(name, found.known, inputs)
        if is_view(found) and not name.endswith(".data") and isinstance(frame.source.parents.get(node), BINDING):
            for base in closure(found.inputs[0].operations, _viewed):
                self._views.setdefault(base, {})[found] = None
        return Value(frozenset([found]))

    def effect(self, kind: str, value: Value, region: Region | None = None) -> None:
        """Note what the operation that gives a value does beside, or what is done with it in a ``region``."""
        for operation in value.operations:
            if (kind, operation, region) not in self._effects:
                self._effects.add((kind, operation, region))
                self.program.effects.append(Effect(kind, operation, region or operation.region))

    @contextmanager
    def told_apart(self, number: object) -> Iterator[None]:
        """A context for one of the rounds of a loop that are run apart."""
        outer = self.context
        inner = outer.called.get(number)
        if inner is None:
            inner = outer.called[number] = Context(outer.function, outer)
        inner.reads, inner.writes, inner.guards = outer.reads, outer.writes, outer.guards
        self.context = inner
        try:
            yield
        finally:
            self.context = outer

    @contextmanager
    def within(self, kind: RegionKind, node: ast.AST, frame: Frame, subject: Value = EMPTY) -> Iterator[Region]:
        """Be in a region of this context."""
        key = kind, node
        region = self.context.regions.get(key)
        if region is None:
            region = Region(kind, frame.source, node, self.region, subject)
            self.context.regions[key] = region
        self.come_to(region)
        region.subject = region.subject | subject
        region.quiet = region.quiet or kind == "with" and self.is_quiet(subject)
        around, guards = self.region, self.guards
        self.region = region
        if kind in UNCERTAIN:
            self.guards = (*guards, region)
        try:
            yield region
        finally:
            self.region, self.guards = around, guards

    def come_to(self, region: Region) -> None:
        """Note that code is come to that may have been come to in another way before."""
        if region.parent is not self.region and self.region not in region.others:
            region.others.add(self.region)
            self.settings.ways += 1

    def is_quiet(self, subject: Value) -> bool:
        """Whether a context manager, or a decorator, keeps no gradients: `torch.no_grad()`."""
        given = [(each.name, each.inputs) for each in subject.operations]
        given += [(each.name, ()) for each in subject.things if isinstance(each, External)]
        return any(
            self.catalog.has(name, "no_grad")
            or self.catalog.has(name, "set_grad_enabled")
            and bool(inputs)
            and inputs[0].constant is False
            for name, inputs in given
        )

    def change(self, before: Value, after: Value) -> None:
        """Note that a tensor is changed in place: whoever else has it sees what it holds then."""
        for each in before.operations - after.operations:
            self.changed[each] = self.changed.get(each, frozenset()) | after.operations
            fresh = {(each, new) for new in after.operations} - self.turned
            self.turned |= fresh
            for heap, key in self._held_by.get(each, ()) if fresh else ():
                heap.slots[key].version += 1
                heap.version += 1

    def change_viewed(self, before: Value, after: Value, node: ast.AST, frame: Frame) -> None:
        """Note that a tensor is changed in place, and so is what it is a view of: `counts[label][guess] += 1`."""
        self.change(before, after)
        pending, seen = [(before, after)], set(before.operations)
        self._change_views(before, after, WHOLE, seen, node, frame)
        while pending:
            view, held = pending.pop()
            for each in sorted(view.operations, key=lambda op: op.number):
                if not is_view(each) or not each.inputs[0].operations:
                    continue
                key = _place_of(each)
                base = Value(each.inputs[0].operations)
                changed = self.record("setitem", node, frame, [base, key, held], tag=each)
                if not base.operations <= seen:
                    seen |= base.operations
                    self.change(base, changed)
                    self._change_views(base, changed, key, seen, node, frame)
                    pending.append((base, changed))

    def _change_views(
        self, base: Value, after: Value, key: Value, seen: set[Operation], node: ast.AST, frame: Frame
    ) -> None:
        """Note that views are changed which were made before of a tensor that is: `flat = counts.view(-1)`."""
        views = {view: None for each in base.operations for view in self._views.get(each, ())}
        for each in after.operations if views else ():
            self._views.setdefault(each, {}).update(views)
        statement = frame.source.statement(node) if views else node
        for view in sorted(views, key=lambda op: op.number):
            if (
                view in seen
                or {type(each.constant) for each in (key, _place_of(view))} == {int}
                and _place_of(view) != key
            ):
                continue
            given = [after, *view.inputs[1:]]
            self.change(
                Value(frozenset([view])), self.record(view.name, statement, frame, given, view.keywords, tag=view)
            )

    def current(self, value: Value) -> Value:
        """A value, with what its tensors may hold by now."""
        if self.changed.keys().isdisjoint(value.operations):
            return value
        found, pending = set(value.operations), list(value.operations)
        while pending:
            new = self.changed.get(pending.pop(), frozenset()) - found
            found |= new
            pending += new
        return replace(value, operations=frozenset(found))

    def possible(self, value: Value) -> Value:
        """What a value may be here, of what was made in other branches than those of the function that is run: it may
        be called in any."""
        return self.settings.possible(value, self.guards[len(self.context.guards) :])

    # objects and what they hold

    def make(self, node: ast.AST, make: Callable[[ast.AST, Guards], Any], tag: object = None) -> Any:
        """What is allocated at ``node`` in this context: once, however often it is run."""
        key = node, tag
        found = self.context.made.get(key)
        if found is None:
            found = self.context.made[key] = make(node, self.guards)
            if isinstance(found, Heap):
                self.heaps.append(found)
        return found

    def read(self, thing: Heap | Frame, key: Any = None) -> None:
        """Note that an attribute or an entry was read in the function that is run, or all that an object holds."""
        context = self.context
        if context.function is not None and (thing, key) not in context.writes:
            context.reads.setdefault((thing, key), thing.version_of(key))

    def take_over(self, inner: Context) -> None:
        """Note what a function has read and bound that was called."""
        context = self.context
        for loop in self.bound_in_round(*inner.writes):
            for thing, key in inner.writes:
                if isinstance(thing, Frame) and key in thing.names:
                    thing.names[key] = thing.names[key].not_left_by(loop)
        if context.function is None:
            return
        for place, version in inner.reads.items():
            if place not in context.writes:
                context.reads.setdefault(place, version)
        if self.guards == context.guards:
            context.writes |= inner.writes

    def bind(self, thing: Heap, slots: dict[Any, Slot], key: Any, value: Value) -> None:
        """Bind an attribute or an entry. What it held is gone where this surely comes after it was bound."""
        if self.guards == self.context.guards:
            self.context.writes.add((thing, key))
        for each in value.operations if slots is thing.slots else ():
            self._held_by.setdefault(each, set()).add((thing, key))
        self.bound_in_round((thing, key))
        slot = slots.get(key)
        if slot is None:
            slots[key] = self.note_bound(Slot(value, self.guards))
            thing.version += 1
            if isinstance(thing, Object):  # `getattr(self, "last", None)` finds it in the next round
                self.rebind(thing, key, thing.guards)
            return
        if is_anew(value, slot.value):
            self.rebind(thing, key, slot.guards)
        surely = slot.guards[: len(self.guards)] == self.guards
        held = value if surely else slot.value | value
        slot.guards = self.guards if surely else slot.guards
        self.note_bound(slot)
        if held != slot.value:
            slot.value = held
            slot.version += 1
            thing.version += 1

    def note_bound(self, slot: Slot) -> Slot:
        """Note that an attribute or an entry is bound here."""
        slot.below.add(self.guards)
        self._slots_bound.append(slot)
        return slot

    @property
    def bindings(self) -> int:
        """How often an attribute or an entry was bound so far."""
        return len(self._slots_bound)

    def bound_in_all(self, arms: Row[Region], since: int) -> None:
        """Note that what each branch of a statement has bound is bound behind it, of those that code goes on from."""
        for slot in self._slots_bound[since:] if arms else ():
            if all((*self.guards, each) in slot.below for each in arms):
                slot.below.add(self.guards)

    def is_surely_bound(self, slot: Slot, made: Guards = ()) -> bool:
        """Whether an attribute or an entry is bound wherever the script comes to the code that is run, with what was
        ``made`` below some branches and loops."""
        return any(each in (self.guards[: len(each)], made[: len(each)]) for each in slot.below)

    # what loops carry in objects and containers

    @contextmanager
    def round_of(self, loop: Region) -> Iterator[None]:
        """While one round of a loop is run."""
        self._rounds.append((loop, set()))
        try:
            yield
        finally:
            self._rounds.pop()

    def bound_in_round(self, *places: tuple[Heap | Frame, Any]) -> frozenset[Region]:
        """Note that attributes, entries and names are surely bound in this round of the innermost loop. Gives it."""
        if not (self._rounds and self.guards and self.guards[-1] is self._rounds[-1][0]):
            return frozenset()
        self._rounds[-1][1].update(places)
        return frozenset([self._rounds[-1][0]])

    def rebind(self, thing: Heap | Frame, key: Any, before: Guards) -> None:
        """Note that something else is bound to a key in the loops around than what was bound ``before`` them."""
        before_them = thing.rebound.get(key, frozenset())
        loops = before_them | {each for each in self.guards if each.kind == "loop" and each not in before}
        if loops == before_them:
            return
        thing.rebound[key] = loops
        self.rebindings += 1
        if isinstance(thing, Frame):
            thing.versions[key] = thing.version_of(key) + 1
            return
        thing.version += 1
        if key in thing.slots:
            thing.slots[key].version += 1

    def carriers(self, thing: Heap | Frame, key: Any, place: object = None) -> frozenset[Region]:
        """The loops around of which an earlier round may have left what is bound to a key, or stands somewhere and is
        read at a ``place``: that is not surely bound in this one."""
        here = [loop for loop, bound in self._rounds if (thing, key if place is None else place) in bound]
        inner = self.guards[self.guards.index(here[-1]) + 1 :] if here and here[-1] in self.guards else self.guards
        return thing.rebound.get(key, frozenset()) & frozenset(inner)

    # what layers ask of those above them

    @abstractmethod
    def eval(self, node: ast.expr, frame: Frame) -> Value: ...

    @abstractmethod
    def block(self, body: Row[ast.stmt], frame: Frame) -> bool: ...

    @abstractmethod
    def attribute(self, base: Value, name: str, node: ast.AST, frame: Frame) -> Value: ...

    @abstractmethod
    def call(
        self, callee: Value, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Map[str, Value]
    ) -> Value: ...

    @abstractmethod
    def element(self, value: Value, node: ast.AST, frame: Frame) -> Value: ...

    @abstractmethod
    def delete_entry(self, node: ast.expr, frame: Frame) -> None: ...

    @abstractmethod
    def taken_in(self, body: list[ast.stmt]) -> Value: ...

    @abstractmethod
    def import_module(self, name: str) -> LocalModule | None: ...
