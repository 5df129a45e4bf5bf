"""Where a rank takes its share of what no loader hands out: of data that steps read as a whole, and of batches that are
made outside of the functions with the steps."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

from autodist.catalog import Catalog
from autodist.placement import Replicate, Shard, arguments
from autodist.placement.placements import Placements
from autodist.program import Operation, Program, Region, Value, closure, held
from autodist.solve import sizes
from autodist.solve.sources import NUMBERS, Sources
from autodist.solve.steps import steps_of
from autodist.solve.written import parts_of
from autodist.source import Source, all_of, counted_of, walk
from autodist.trace.things import External, Sequence

RECURRENT = ("RNN", "LSTM", "GRU")
GOING_THROUGH = ("builtins.enumerate", "builtins.iter", "builtins.list", "itertools.islice")
"""What gives what it is given itself, one after the other."""
Place: TypeAlias = tuple[Source, ast.expr]


@dataclass(frozen=True)
class Share:
    """An expression of which a rank takes its share: its ``rows`` or ``columns``, those of a ``batch``, of each batch
    that a ``stream`` gives, or of a ``count`` of all samples. Where that is ``fixed``, it cannot."""

    source: Source
    node: ast.expr
    kind: str


def shares(program: Program, sources: Sources, placements: Placements, catalog: Catalog) -> list[Share]:
    """Where ranks take their shares, each place once, in the order of the text. The ``placements`` are those of batches
    that are shared out where they are made."""
    found = _Shares(program, sources, placements, catalog)
    several = dict.fromkeys([*found.of_wholes(), *found.of_batches(), *found.of_counts()])
    return sorted(several, key=lambda each: (str(each.source.path), each.node.lineno, each.node.col_offset))


class _Shares:
    def __init__(self, program: Program, sources: Sources, placements: Placements, catalog: Catalog) -> None:
        self._program, self._sources, self._catalog = program, sources, catalog
        self._placements = placements
        self._steps = steps_of(program)
        self._homes = {self._frames(each)[-1][1] for each in self._steps.backward}
        self._kind = "columns" if sources.axis else "rows"

    def _frames(self, operation: Operation) -> list[tuple[Source, ast.AST | None, ast.AST]]:
        """The functions in which an operation is run, from the outermost, each with what leads there in its text."""
        around = [*operation.region.around()]
        calls = [each for each in around if each.function is not None][::-1]
        functions = [None, *(each.function for each in calls)]
        files = [around[-1].source, *(self._program.entered[each] for each in calls)]
        return list(zip(files, functions, [*(each.node for each in calls), operation.node], strict=True))

    def _from_home(self, operation: Operation) -> list[tuple[Source, ast.AST]]:
        """The same from the innermost function with a step on, or of all where none is among them."""
        frames = self._frames(operation)
        home = max((at for at, each in enumerate(frames) if each[1] in self._homes), default=0)
        return [(source, node) for source, _, node in frames[home:]]

    def _place(self, user: Operation, told: Callable[[Value], bool]) -> Place | None:
        """Where something is read that an operation is given: in the function with the step, if that reads it."""
        for source, node in self._from_home(user):
            for part in _parts(node):
                if told(self._program.at(part)):
                    return source, part
        return None

    # data that is read as a whole

    def of_wholes(self) -> Iterator[Share]:
        """The reads of tensors with all of the data."""
        for user, taken in self._sources.taken.items():
            if user not in self._sources.reaching and user not in self._steps.backward or user.name in NUMBERS:
                continue
            for data in taken:
                one = frozenset([data])
                if sizes.key(Value(one)) not in self._sources.rows and (place := self._read(user, one)) is not None:
                    yield Share(*place, self._kind)

    def _read(self, user: Operation, data: frozenset[Operation]) -> Place | None:
        return self._place(user, lambda value: not data.isdisjoint(value.operations))

    # batches

    def of_batches(self) -> Iterator[Share]:
        """Where batches come into the functions with the steps, or the data that these cut them out of along another
        axis than that of the samples."""
        along = {each: self._cut_out_of(each) for each in self._sources.batches}
        yield from (Share(*place, self._kind) for place in along.values() if place is not None)
        if None in along.values():
            yield from self._entering()

    def _cut_out_of(self, batch: Operation) -> Place | None:
        """`data` of `data[:, i : i + n]`, or of a call that does so, in a function with a step."""
        first = sizes.first_key(batch)
        cut = sizes.as_slice(first) if first is not None else None
        if sizes.second_slice(batch) is not None and self._sources.axis:
            return None
        if not (self._sources.axis or cut is not None and sizes.is_whole(cut)):
            return None
        place = self._read(batch, frozenset(batch.inputs[0].operations))
        return place if place is not None and place[0].function(place[1]) in self._homes else None

    def _entering(self) -> Iterator[Share]:
        """The batches that the loops around steps go over, or else what the functions with steps are given."""
        loops = [[each for each in end.region.around() if each.kind == "loop"] for end in self._steps.backward]
        inner = dict.fromkeys(each[0] for each in loops if each)
        for several in (inner, dict.fromkeys(loop for each in loops for loop in each)):
            streams = [(each, over) for each in several if (over := self._stream(each)) is not None]
            if streams:
                yield from (Share(loop.source, over, "stream") for loop, over in streams)
                return
        for end in self._steps.backward:
            found: list[Share] = []
            for source, body, given in self._bodies(end):
                found += self._in_body(source, body, given if found else frozenset())
            yield from found

    def _bodies(self, end: Operation) -> Iterator[tuple[Source, list[ast.stmt], frozenset[str]]]:
        """The statements of the loop around a step that calls its function, and of that, with what it is given."""
        source, home, _ = self._frames(end)[-1]
        loop = next((each for each in end.region.around() if each.kind == "loop"), None)
        if loop is not None and loop.source.function(loop.node) is not home:
            yield loop.source, getattr(loop.node, "body", []), frozenset()
        if isinstance(home, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield source, home.body, frozenset(each.arg for each in all_of(home.args, ast.arg))
        elif home is None:
            yield source, source.tree.body, frozenset()

    def _in_body(self, source: Source, body: list[ast.stmt], given: frozenset[str]) -> Iterator[Share]:
        assigned = [each for part in body for each in walk(part) if isinstance(each, ast.Assign)]
        taken = (target for each in assigned if self._holds(each.value) for target in each.targets)
        bound = given | {each.id for target in taken for each in walk(target) if isinstance(each, ast.Name)}
        for statement in body:
            if self._sources.axis or self._are_odd:
                yield from (Share(source, each, self._kind) for each in self._names(statement))
            else:
                yield from (Share(source, each, "batch") for each in self._first(statement, bound))

    def _stream(self, loop: Region) -> ast.expr | None:
        """`batches` of `for i, (x, y) in enumerate(batches):`, if these are batches."""
        if not isinstance(loop.node, (ast.For, ast.AsyncFor)):
            return None
        over = loop.node.iter
        if not any(self._holds(each) for each in walk(loop.node.target) if isinstance(each, ast.expr)):
            return None
        while isinstance(over, ast.Call) and over.args and self._goes_through(over.func):
            over = over.args[0]
        return over

    def _goes_through(self, function: ast.expr) -> bool:
        named = [each.name for each in self._program.at(function).things if isinstance(each, External)]
        return any(each in GOING_THROUGH or self._catalog.has(each, "progress") for each in named)

    def _first(self, node: ast.AST, bound: frozenset[str]) -> Iterator[ast.expr]:
        """The expressions of a statement that have a rank's samples, and of what they are computed from nothing has. Of
        names that are ``bound`` to such, it has been taken there."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return
        for part in _parts(node):
            inside = any(self._holds(each) for each in all_of(part, ast.expr) if each is not part)
            if inside or not self._holds(part):
                yield from self._first(part, bound)
            elif not (isinstance(part, ast.Name) and part.id in bound):
                yield part

    @cached_property
    def _are_odd(self) -> bool:
        """Whether batches have a number of samples that no two ranks can share evenly."""
        told = {each[1] for key in self._sources.rows if isinstance(key, frozenset) for each in key if _is_number(each)}
        return bool(told) and all(each % 2 for each in told)

    def _names(self, node: ast.AST) -> Iterator[ast.expr]:
        """The names that a statement reads batches by."""
        nested = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        inside = [] if isinstance(node, nested) else [each for each in walk(node) if isinstance(each, ast.Name)]
        named = (each for each in inside if isinstance(each.ctx, ast.Load) and self._holds(each))
        if self._are_odd:
            return named
        return (each for each in named if not self._program.at(each).operations.isdisjoint(self._sources.batches))

    def _holds(self, node: ast.expr) -> bool:
        """Whether an expression is a tensor of a batch that a loss is computed from, or a tuple or list of such."""
        value, of = self._program.at(node), self._placements.of
        parts = [part for each in value.things if isinstance(each, Sequence) for part in each.parts or ()]
        made = (each for part in (value, *parts) for each in part.operations if each in self._sources.reaching)
        lying = (of.get(each) for each in made if each.is_tensor or each in self._sources.batches)
        return any(isinstance(each, Shard) and not each.in_parts for each in lying)

    # numbers of samples

    def of_counts(self) -> Iterator[Share]:
        """The numbers of all samples that shape what steps compute with of their shares, and that loops count to;
        ``fixed`` where they are written down as numbers."""
        within = self._sources.reaching - self._sources.batches - self._before
        for each in within if self._sources.rows else ():
            told, state = self._sizes_of(each), self._steps.is_before(each) and each.name.endswith(arguments.ZEROS)
            at = self._sources.counts(each, told) if told and (state or self._steps.in_pass(each)) else None
            if at is not None:
                yield from self._number(each, told[at], state)
            elif each.name.endswith((".view", ".reshape")) and self._steps.in_pass(each):
                products = (op for size in told for op in size.operations if op.name == "operator.mul")
                counts = (size for op in products for size in op.inputs if sizes.key(size) in self._sources.rows)
                for size in counts:  # `y.view(batch_size * length)`
                    yield from self._number(each, size, state)

        for each in within:
            for zeros in self._states_of(each) - self._before:
                if len(told := self._sizes_of(zeros)) == 3:  # of layers, samples and features
                    yield from self._number(zeros, told[1], True)

    def _states_of(self, operation: Operation) -> frozenset[Operation]:
        """What makes the states that a recurrent layer begins with, of a batch that it is given."""
        known = operation.known
        batched = (
            known is not None and known.cls == "sequence" and isinstance(self._placements.of.get(operation), Shard)
        )
        given = operation.inputs[1:2] if batched and known is not None and known.short in RECURRENT else ()
        made = frozenset(each for value in given for each in held(value))
        return frozenset(each for each in made if each.name.endswith(arguments.ZEROS))

    @cached_property
    def _before(self) -> frozenset[Operation]:
        """What the batches are computed of that enter the functions with steps."""
        entering = [share.node for share in self.of_batches()]
        return above(self._program, entering)

    def _sizes_of(self, operation: Operation) -> tuple[Value, ...]:
        if operation.name.startswith(("torch.", "numpy.")):
            return tuple(arguments.sizes_of(operation))
        return operation.inputs if operation.name == "range.index" else ()

    def _number(self, user: Operation, told: Value, state: bool) -> Iterator[Share]:
        known = user.known
        if known is not None and known.cls == "random":  # all ranks draw alike, and take their shares
            yield from (Share(user.source, node, "batch") for node in [user.node] if isinstance(node, ast.expr))
            return
        place = self._place_of_number(user, sizes.key(told))
        if place is None:
            yield from (
                Share(user.source, node, "fixed") for node in [user.node] if state and isinstance(node, ast.expr)
            )
        elif (of := counted_of(place[1])) is None:
            yield Share(*place, "count")
        elif (place := self._read(user, self._program.at(of).operations) or (place[0], of)) is not None:
            yield Share(*place, self._kind)

    def _place_of_number(self, user: Operation, key: object) -> Place | None:
        for source, node in self._from_home(user):
            for each in walk(node.iter if isinstance(node, (ast.For, ast.AsyncFor)) else node):
                if isinstance(each, ast.expr) and sizes.key(self._program.at(each)) == key:
                    if is_plain(counted_of(each) or each):
                        return source, each
        return None


def joined_in_full(program: Program, placements: Placements) -> Iterator[Place]:
    """The samples that a step joins to a rank's share of a batch, and of which each rank has all: made-up ones, or
    those of a memory. They would count for too much, as many times as there are ranks."""
    steps = steps_of(program)
    for each in steps.ordered:
        known = each.known
        listed = next(iter(each.node.args), None) if isinstance(each.node, ast.Call) else None
        if known is None or known.cls != "concatenate" or not isinstance(listed, (ast.List, ast.Tuple)):
            continue
        axis = arguments.call(each, known).axis or 0
        lying = [placements.value(program.at(part)) for part in listed.elts]
        along = any(isinstance(one, Shard) and one.axis == axis for one in lying)
        for part in listed.elts if along else ():
            value = program.at(part)
            learnt = not value.operations.isdisjoint(steps.differentiated | steps.states)
            empty = (placements.size(value) or (None,))[0] == 0
            if placements.value(value) == Replicate() and not learnt and not empty:
                yield each.source, part


def above(program: Program, nodes: Iterable[ast.expr]) -> frozenset[Operation]:
    """What is computed of that ranks take their shares of, at some nodes."""
    names, made = set[Operation](), set[Operation]()
    for node in nodes:
        (names if isinstance(node, (ast.Name, ast.Attribute)) else made).update(held(program.at(node)))
        made.update(program.made_at.get(node, ()))
    return frozenset(closure(names.union(*(each.given for each in made)), lambda op: op.given))


def _parts(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that one is computed from, or a statement, those in lists and tuples among them."""
    pending: list[ast.AST] = [*parts_of(node)] if isinstance(node, ast.expr) else [*ast.iter_child_nodes(node)]
    while pending:
        each = pending.pop(0)
        nests = isinstance(each, (ast.stmt, ast.withitem)) and isinstance(node, ast.stmt)
        if nests or isinstance(each, (ast.Tuple, ast.List, ast.Starred, ast.keyword, ast.IfExp)):
            pending += ast.iter_child_nodes(each)
        elif isinstance(each, ast.expr) and not isinstance(each, ast.Lambda):
            if not isinstance(getattr(each, "ctx", None), ast.Store):
                yield each


def _is_number(key: Any) -> bool:
    """Whether a part of the key of a number is a constant."""
    return isinstance(key, tuple) and len(key) == 2 and key[0] is int and isinstance(key[1], int)


def is_plain(node: ast.expr) -> bool:
    """`x`, `self.x`: what can be written once more."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)
