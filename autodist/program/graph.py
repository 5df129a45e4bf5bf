"""Operations, regions, effects, and the program that they make."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

from autodist.operations import Operation as Known
from autodist.operations import Table, load
from autodist.program.values import EMPTY, Value
from autodist.source import Source

RegionKind: TypeAlias = Literal["module", "call", "loop", "branch", "with", "try", "read", "collate", "worker", "hook"]


def gives_tensors(name: str, known: Known | None, inputs: Sequence[Value]) -> bool:
    """Whether an operation may give tensors, by its name, its line of the table and what it is given."""
    if name.startswith(TENSOR_ROOTS):
        return True
    through = name.startswith(THROUGH) or known is not None and known.cls not in NO_TENSORS
    return through and any(each.is_tensor for value in inputs for each in value.operations)


BATCH, FIELDS, SAMPLE = "loader.batch", "loader.fields", "loader.sample"
"""The names of what a loader gives: a field of its batches, batches of which the fields are not known, and one sample
of those that a `collate_fn` lays together."""
DRAWN = "loader.sampler.length"
"""The name of how many samples a loader's sampler draws: each rank's own number, once they are shared out."""
CHOSEN = "loader.sampler.choice"
"""The name of what a sampler or a subset draws by: all ranks are to read the samples that one process does."""
WORKER = "worker.number"
"""The name of the number that a worker of a loader has: those of all ranks count from 0."""
TENSOR_ROOTS = ("torch.", "numpy.", "loader.", "sample", "torchvision.", "einops.", "callback", "data.index")
"""The beginnings of the names of operations that give tensors or arrays, or what holds such."""
FUNCTION = "torch.autograd.Function"
GRADIENT = f"{FUNCTION}.gradient"
"""The name of what such a function's own backward pass is given."""
HOOKED = "gradient.hooked"
"""The name of what a function is given that a backward pass calls with a gradient."""
VIEWS = frozenset(
    "getitem data detach view view_as reshape flatten ravel unflatten squeeze unsqueeze t T mT H mH transpose permute "
    "swapaxes swapdims movedim moveaxis expand narrow select diagonal numpy from_numpy asarray as_tensor real".split()
)
"""The names of operations that give the same numbers in the same memory: changed in place, both are."""
BESIDE = ("picked", "keys", "places")
"""What decides over the elements of lists and dicts: which they are given, and where."""
THROUGH = ("operator.", "getitem", "setitem", "iterate", "call", "object.", "builtins.", "recursion", "torch", "copy.")
"""Those of operations that give tensors where they are given some."""
NO_TENSORS = ("container", "fact", "length", "table", "whole")
"""The classes of those that may give something else."""


@dataclass(eq=False)
class Region:
    """A part of the program that runs as a whole: a module, a call of a function, the body of a loop or of a branch, a
    ``with`` or ``try`` block, and what a loader runs: to read a sample, to lay samples together, as a worker begins, or
    a function that a backward pass calls.
    ``subject`` is what decides over it: the test, what is looped over, the context manager, the loader."""

    kind: RegionKind
    source: Source
    node: ast.AST
    parent: Region | None = None
    subject: Value = EMPTY
    quiet: bool = False
    """Whether it says that no gradients are kept: `with torch.no_grad():`."""
    function: ast.AST | None = None
    """The function whose body it is."""
    inputs: tuple[Value, ...] = ()
    """What the function is given, the object first whose method it is."""
    others: set[Region] = field(default_factory=set)
    """From where else a function is called with the same arguments, where it is not run again."""

    def around(self) -> Iterator[Region]:
        """The region and those around it, from the innermost."""
        region: Region | None = self
        while region is not None:
            yield region
            region = region.parent

    @cached_property
    def within(self) -> frozenset[Region]:
        """The region and those around it."""
        return frozenset(self.around())

    @property
    def without_gradients(self) -> bool:
        """Whether no gradients are kept in it."""
        return any(each.quiet for each in self.around())

    @property
    def has_own_backward(self) -> bool:
        """Whether it is a pass of a `torch.autograd.Function`, through which no gradients flow otherwise."""
        withs = [each.subject.things for each in self.around() if each.kind == "with"]
        return any(getattr(each, "name", "") == FUNCTION for things in withs for each in things)

    @property
    def in_hook(self) -> bool:
        """Whether a backward pass runs it, with a gradient: `x.register_hook(function)`"""
        return any(each.kind == "hook" for each in self.around())

    @property
    def everywhere(self) -> frozenset[Region]:
        """The region and those around it, whichever way leads there."""
        found: set[Region] = set()
        pending: list[Region] = [self]
        while pending:
            each = pending.pop()
            if each not in found:
                found.add(each)
                pending += [each.parent, *each.others] if each.parent is not None else each.others
        return frozenset(found)

    def is_within(self, inside: Callable[[Region], bool]) -> bool:
        """Whether each way that leads there goes through one of some regions."""
        pending: list[Region] = [self]
        seen: set[Region] = set()
        while pending:
            each = pending.pop()
            if each in seen or inside(each):
                continue
            if each.parent is None:
                return False
            seen.add(each)
            pending += [each.parent, *each.others]
        return True

    @cached_property
    def loops(self) -> frozenset[Region]:
        """The loops around it, whichever way leads there; asked for once the program is whole."""
        return frozenset(each for each in self.everywhere if each.kind == "loop")


@dataclass(eq=False)
class Operation:
    """A call, an operator or a read, in one context, and the value that it gives. ``name`` is what the table of
    operations knows it by, ``owner`` the object whose method or forward pass it is."""

    number: int
    name: str
    inputs: tuple[Value, ...]
    keywords: Mapping[str, Value]
    source: Source
    node: ast.AST
    region: Region
    owner: Any = None
    known: Known | None = None
    """Its line of the table of operations, with the user's own lines."""
    is_tensor: bool = False
    """Whether it may give a tensor, an array, or a number that is computed of some."""

    def argument(self, name: str, position: int | None = None) -> Value | None:
        """An argument by its name or position."""
        if name in self.keywords:
            return self.keywords[name]
        return self.inputs[position] if position is not None and position < len(self.inputs) else None

    @property
    def operands(self) -> Iterator[Value]:
        """All that it is given."""
        yield from self.inputs
        yield from self.keywords.values()

    @cached_property
    def given(self) -> frozenset[Operation]:
        """The operations whose results it is given, or what holds them; asked for once the program is whole."""
        return frozenset(each for value in self.operands for each in held(value))

    def __hash__(self) -> int:
        """By its number, so that sets of operations have the same order in each run, and conversions are the same."""
        return self.number

    def __repr__(self) -> str:
        return f"%{self.number} = {self.name} line {getattr(self.node, 'lineno', '?')}"


@dataclass(frozen=True, eq=False)
class Effect:
    """What an operation does beside giving a value: it prints, writes, draws, steps, takes gradients, or decides which
    code runs."""

    kind: str
    operation: Operation
    region: Region
    """Where: that of the operation, or in which a branch asks for what it gave."""


@dataclass(eq=False)
class Program:
    """What a script does. ``values`` says what each expression may evaluate to, in any context."""

    operations: list[Operation] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    values: dict[ast.AST, Value] = field(default_factory=dict)
    batches: dict[ast.AST, Value] = field(default_factory=dict)
    """What loaders give whose batches a function makes, by where they are made."""
    entered: dict[Region, Source] = field(default_factory=dict)
    """The calls of functions of the script, and in which file each function is."""
    complete: bool = True
    """Whether it was read to its end."""
    table: Table = field(default_factory=load)
    """What is known of operations by their names, with the user's own lines."""

    def at(self, node: ast.AST) -> Value:
        """What an expression may evaluate to."""
        return self.values.get(node, EMPTY)

    def giving(self, operations: Collection[Operation]) -> frozenset[ast.expr]:
        """The expressions that may evaluate to what some operations give, or to what holds it."""
        given = ((node, held(value)) for node, value in self.values.items() if isinstance(node, ast.expr))
        return frozenset(node for node, inside in given if any(each in operations for each in inside))

    def is_read(self, operation: Operation) -> bool:
        """Whether something is computed or decided by what an operation gives."""
        return bool(self.users[operation]) or operation in self._tested

    @cached_property
    def _tested(self) -> frozenset[Operation]:
        return frozenset(each.operation for each in self.of("test"))

    def of(self, *kinds: str) -> list[Effect]:
        """The effects of some kinds, in the order in which they were met."""
        return [each for each in self.effects if each.kind in kinds]

    @cached_property
    def made_at(self) -> Mapping[ast.AST, Sequence[Operation]]:
        """The operations that each expression or statement makes, in any context."""
        found: dict[ast.AST, list[Operation]] = {}
        for each in self.operations:
            found.setdefault(each.node, []).append(each)
        return found

    @cached_property
    def cycles(self) -> list[frozenset[Operation]]:
        """The groups of operations that are given, by way of each other, what they gave in an earlier round."""
        groups = _strongly_connected(self.operations, self.users)
        return [frozenset(each) for each in groups if len(each) > 1 or each[0] in self.users[each[0]]]

    @cached_property
    def cyclic(self) -> frozenset[Operation]:
        """The operations that are given, by way of others, what they have given in an earlier round of a loop."""
        return frozenset(each for group in self.cycles for each in group)

    @cached_property
    def loops(self) -> frozenset[Region]:
        """All loops."""
        return frozenset(loop for each in self.operations for loop in each.region.loops)

    @cached_property
    def calls(self) -> frozenset[Region]:
        """All calls of functions of the script that compute something."""
        regions = (region for each in self.operations for region in each.region.around())
        return frozenset(each for each in regions if each.function is not None)

    @cached_property
    def rounds(self) -> Mapping[Operation, Sequence[Operation]]:
        """The operations that run as often as a loop has rounds, by those that give what it goes over."""
        found: dict[Operation, dict[Operation, None]] = {}
        for each in self.operations:
            for over in (op for loop in each.region.loops for op in held(loop.subject)):
                found.setdefault(over, {})[each] = None
        return {over: list(each) for over, each in found.items()}

    def depending(self, changed: Iterable[Operation]) -> set[Operation]:
        """Some operations, what is computed from them, and what runs as often as loops have rounds over that."""
        return closure(changed, lambda each: (*self.users[each], *self.rounds.get(each, ())))

    @cached_property
    def users(self) -> Mapping[Operation, Sequence[Operation]]:
        """The operations that are given what an operation gives, itself or in a list or a dict, or a list that it has
        had filled or not."""
        found: dict[Operation, dict[Operation, None]] = {each: {} for each in self.operations}
        for user in self.operations:
            for value in user.operands:
                beside = (getattr(thing, name, EMPTY) for thing in value.things for name in BESIDE)
                for each in (*held(value), *(op for told in beside for op in told.operations)):
                    found[each][user] = None
        return {each: list(users) for each, users in found.items()}


def closure(start: Iterable[Operation], following: Callable[[Operation], Iterable[Operation]]) -> set[Operation]:
    """Some operations, and all that follow from them."""
    found = set(start)
    pending = list(found)
    while pending:
        fresh = set(following(pending.pop())) - found
        found |= fresh
        pending += fresh
    return found


def _strongly_connected(
    operations: Sequence[Operation], users: Mapping[Operation, Sequence[Operation]]
) -> Iterator[list[Operation]]:
    """Tarjan's strongly connected components, without recursion."""
    index: dict[Operation, int] = {}
    low: dict[Operation, int] = {}
    stack: list[Operation] = []
    on_stack: set[Operation] = set()
    for root in operations:
        pending: list[tuple[Operation, Iterator[Operation]]] = []
        if root not in index:
            index[root] = low[root] = len(index)
            stack.append(root)
            on_stack.add(root)
            pending.append((root, iter(users[root])))
        while pending:
            node, rest = pending[-1]
            following = next(rest, None)
            if following is None:
                pending.pop()
                if pending:
                    low[pending[-1][0]] = min(low[pending[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node) if len(stack) < 8 else len(stack) - 1 - stack[::-1].index(node)
                    group = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(group)
                    yield group
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                pending.append((following, iter(users[following])))
            elif following in on_stack:
                low[node] = min(low[node], index[following])


def held(value: Value) -> Iterator[Operation]:
    """The operations that give a value or what is in it."""
    return _inside(value) if value.things else iter(value.operations)


def _inside(value: Value) -> Iterator[Operation]:
    pending, seen = [value], set()
    while pending:
        each = pending.pop()
        yield from each.operations
        for thing in each.things:
            if thing not in seen and hasattr(thing, "contents"):
                seen.add(thing)
                pending.extend(thing.contents())
