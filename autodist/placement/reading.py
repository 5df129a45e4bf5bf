"""What is known of values while they are placed: how they lie, and what loops go over."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeGuard

from autodist import operations
from autodist.catalog import Catalog
from autodist.placement import arguments
from autodist.placement.along import BY_PLACE
from autodist.placement.call import OTHER_SIZE, ROWS, Call, told_parts
from autodist.placement.lattice import (
    PIECES,
    Each,
    Partial,
    PerRank,
    Placement,
    Replicate,
    Shard,
    counted,
    is_multiple,
    share,
)
from autodist.placement.layout import OF_WHOLE
from autodist.placement.patterns import axes_of
from autodist.placement.placements import Placements
from autodist.placement.plan import Asked, Plan
from autodist.placement.products import PAIRED
from autodist.placement.shapes import Sizes
from autodist.placement.transfer import ORDERED
from autodist.placement.whole_numbers import WholeNumbers
from autodist.program import BATCH, FIELDS, SAMPLE, Operation, Program, Region, Value, closure, held
from autodist.trace.taking import LOADING, MOVING, TAKING
from autodist.trace.things import External, Mapping, Sequence, Stream, is_of_loader

SOURCES = (BATCH, FIELDS)
LOADED = (BATCH, FIELDS, SAMPLE)
PADDING = ("pad_sequence", "pad_packed_sequence")
"""Names of what makes samples as long as the longest of them."""

PACKING = ("pack_padded_sequence", "pack_sequence")
"""Names of what lays the words of all samples behind each other."""


IN_PLACE = "builtins.list."
"""Begins the names of methods that put the elements of a list into other places."""
REST = "what is left in it goes by the order of all samples, and each rank takes some of its own out"
MORE = "it holds something beside what is computed of each sample, which every rank counts anew"
PUTTING = ("append", "appendleft", "insert", "add")
BY_OTHERS = "what it holds of a sample goes by the others of the batch"
MEASURING = frozenset("fill random arange view expand repeat unflatten per_sample index".split())
"""Classes of operations that take numbers for sizes and places."""


def is_list(value: Value) -> bool:
    """Whether it is a list, and no tensor of as many numbers: `guess.tolist()`"""
    listed = all(each.name.endswith(("builtins.list", ".tolist")) for each in value.operations)
    return (
        listed
        and not value.constants
        and (bool(value.operations) or any(isinstance(each, Sequence) for each in value.things))
    )


def is_moved(placement: Placement | None) -> TypeGuard[PerRank]:
    """Whether it is a list that holds all it was given, in an order of its own."""
    ordered = isinstance(placement, PerRank) and placement.reason == ORDERED
    return ordered and isinstance(placement, PerRank) and placement.operation.rpartition(".")[2] in MOVING


def _is_arithmetic(operation: Operation) -> bool:
    """Whether it computes a number of numbers: `len(x) * x.shape[1]`"""
    return operation.name.startswith("operator.") or operation.name in ("builtins.int", "builtins.float")


def _cuts_pieces(cut: Operation) -> bool:
    """`[2 * i : 2 * i + 2]`, one of the pieces of two that a loop counts"""
    start, stop = (each.operation for each in cut.inputs[:2])
    if start is None or stop is None or start.name != "operator.mul" or stop.name != "operator.add":
        return False
    size, again = stop.inputs[1].constant, stop.inputs[0].operation
    alike = again is not None and [each.operations for each in again.inputs] == [e.operations for e in start.inputs]
    counts = any(each.name == "range.index" for value in start.inputs for each in value.operations)
    return alike and counts and type(size) is int and any(each.constant == size for each in start.inputs)


def shaped(value: Value) -> list[Value]:
    """The tensors of which a value is the shape: `x.shape`"""
    shapes = [each for each in value.operations if each.name in arguments.SHAPES and len(each.inputs) == 1]
    return [each.inputs[0] for each in shapes] if len(shapes) == len(value.operations) and not value.things else []


def _cut_of(operation: Operation) -> Operation | None:
    """The slice that a subscript takes: `x[i : i + 8]`"""
    cut = operation.inputs[1].operation if operation.name == "getitem" and len(operation.inputs) > 1 else None
    return cut if cut is not None and cut.name == "builtins.slice" else None


def _goes_in_steps(cut: Operation) -> bool:
    """Whether slices begin where those before them end: `[i : i + 8]` of `range(0, n, 8)`"""
    start, stop = (each.operation for each in cut.inputs[:2])
    if start is None or stop is None or start.name != "range.index" or stop.name != "operator.add":
        return False
    bounds = start.inputs
    steps = len(bounds) == 3 and bounds[0].constant == 0 and stop.inputs[0].operations == frozenset([start])
    return steps and bool(bounds[2]) and stop.inputs[1] == bounds[2]


class Reading:
    """Values of a program, some of which are placed."""

    def __init__(self, program: Program, plan: Plan, catalog: Catalog | None) -> None:
        self._program, self._plan, self._catalog = program, plan, catalog
        self._found = Placements()
        self._cyclic = program.cyclic
        self._whole_numbers = WholeNumbers(program)
        self._asked: list[Asked] = []
        """What the plan was asked of the operation that is placed."""

    def _sharded(self, operation: Operation) -> Placement:
        """How what an operation gives lies that reads what the plan shares out."""
        answer = self._plan.sharded(operation)
        self._asked.append((operation, None, answer))
        return answer

    def _counting(self, operation: Operation, told: list[Value]) -> int | None:
        """Which of some sizes is the whole batch's number of samples."""
        answer = self._plan.counts(operation, told)
        self._asked.append((operation, told, answer))
        return answer

    def _operand(self, value: Value) -> Placement | None:
        """How a value lies, or what is in it."""
        if not value.things:
            return self._found.joint(value.operations)
        if any(isinstance(self._found.joint(keys.operations), (Each, PerRank)) for keys in arguments.keys(value)):
            return PerRank("builtins.dict", "its keys are each rank's own")
        if value.things and value.operations and (self._is_shared_out(value) or self._is_one_for_each(value)):
            return self._found.value(value)
        found = self._found.joint(held(value))
        if isinstance(found, PerRank) and found.operation == "join" and len(value.things) + bool(value.operations) > 1:
            several = [self._found.value(value), *(self._operand(Value(things=frozenset([t]))) for t in value.things)]
            if len(alike := {each for each in several if each is not None}) == 1:
                return alike.pop()  # lists with one for each sample, of what ranks have and of what they are given
        lost = self._lost_in_list(value, found)
        order = lost.operation if is_moved(lost) and lost.operation.startswith(IN_PLACE) else ""
        if lost is not None and not order:
            return lost
        if value.things and not value.operations and any(map(self._is_lost, self._tests_of(value))):
            return PerRank("list", BY_OTHERS)
        if any(getattr(each, "kind", "") == "set" for each in value.things) and isinstance(found, (Each, Shard)):
            return PerRank("builtins.set", "which of its elements are alike, all samples together tell")
        picked = self._picked(value) if value.things and not value.operations else ""
        listed = isinstance(found, Each) and value.things and not value.operations
        if picked and found is None or listed and self._has_each(value):
            order = order or self._in_turn(value)
            return Shard(self._samples_deep(value), order=order, rows=self._rows_in(value))  # one for each sample
        if found == Replicate() and value.things and not value.operations and self._is_filled_by_each(value):
            return Shard(0)  # of what each of them is given, `[torch.randperm(9) for _ in x]`
        return found

    def _in_turn(self, value: Value) -> str:
        """The order of several lists behind each other with one for each of a rank's samples: `[0] * n + [1] * n`"""
        pending, lists = [each.node for each in value.things][:1], list[ast.AST]()
        while pending:
            node = pending.pop()
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                pending += [node.left, node.right]
            else:
                lists.append(node)
        made = [self._program.at(each).operations for each in lists]
        repeated = (bool(several) and all(each.name == "list.repeat" for each in several) for several in made)
        if len(lists) < 2 or not all(repeated):
            return ""
        lying = map(self._found.joint, made)
        alike = all(isinstance(each, Shard) and each.rows == ROWS for each in lying)
        return f"{len(lists)} in turn" if alike else "lists in turn"

    def _is_shared_out(self, value: Value) -> bool:
        """Whether it is a part of a list that is a batch: `samples[i : i + 8]`"""
        return value.operations <= self._plan.placed.keys() and all(each.name == "getitem" for each in value.operations)

    def _is_filled_by_each(self, value: Value) -> bool:
        """Whether a list is given something in each round of a loop over a rank's samples, and in no other loop."""
        lists = [each for each in value.things if isinstance(each, Sequence)]
        loops = [self._filled_in(each) for each in lists if each.parts is None]
        return len(loops) == len(value.things) and all(len(e) == 1 and self._comes_to_each(e[0]) for e in loops)

    def _samples_deep(self, value: Value) -> int:
        """In which lists of lists there is one for each sample: those inside, in `[[s[t] for s in batch] for t in
        range(6)]`"""
        lists, depth = [each for each in value.things if isinstance(each, Sequence)], 0
        while inner := [t for each in lists for t in each.element.things if isinstance(t, Sequence)]:
            loops = [loop for each in lists for loop in self._filled_in(each)]
            if not loops or any(self._operand(each.subject) not in (None, Replicate()) for each in loops):
                return depth
            lists, depth = inner, depth + 1
        return depth

    def _filled_in(self, listed: Sequence) -> list[Region]:
        """The loops in whose rounds a list is given its elements."""
        rounds = getattr(listed.node, "generators", [])
        within = {loop for region in listed.stores.values() for loop in region.loops} - set(listed.guards)
        return [loop for loop in self._program.loops if loop.node in rounds] + sorted(within, key=id)

    def _first(self, operation: Operation) -> Placement | None:
        """How the first operand of another operation lies for that."""
        taken, self._found.taken = self._found.taken, self._plan.taken.get(operation, {})
        found = self._found.value(operation.inputs[0])
        self._found.taken = taken
        return found

    def _lost_in_list(self, value: Value, found: Placement | None) -> PerRank | None:
        """Why a list says nothing of that of all samples, if it does not."""
        ordered = self._orders_of(value) if isinstance(found, Each) else []
        if ordered and ordered[0].rpartition(".")[2] in TAKING:
            return None if self._is_of_one_sample(value) else PerRank(ordered[0], REST)
        if ordered:
            return PerRank(ordered[0], ORDERED)
        if isinstance(found, Each) and value.things and not value.operations and self._holds_more(value):
            return PerRank("list", MORE)
        places = {op for keys in arguments.places(value) for op in keys.operations}
        if not any(isinstance(self._found.of.get(each), (Each, Shard, PerRank)) for each in places):
            return None
        if self._is_one_for_each(value):
            return None
        inside = list(held(value))
        if all(each in self._found.of for each in inside) and not self._adds_up(inside):
            return PerRank("setitem", "each rank puts what it has into a list of all")
        return None

    def _holds_more(self, value: Value, zeros: bool = False) -> bool:
        """Whether a list that is given one for each of a rank's samples is given something else beside these, once:
        `rows = [penalty]; for row in out: rows.append(row.sum())`. What is zero adds nothing to a sum, and is one more
        where ``zeros`` count."""
        lists = [each for each in value.things if isinstance(each, Sequence)]
        if any(map(self._joins_more, lists)):
            return True
        filled = [each for each in lists if self._is_given_each(each)]
        if not filled or self._is_of_one_sample(value):
            return False
        for each in filled:
            loading = any(region.kind in LOADING for guard in each.guards for region in guard.around())
            begun = each.node.elts if isinstance(each.node, ast.List) else []
            beside = [node for node, region in each.stores.items() if self._puts_once(node, region)]
            less = not zeros and all(arguments.is_zero(self._program.at(part)) for part in begun)
            if not loading and (beside or begun and not less):
                return True
        return False

    def _is_given_each(self, listed: Sequence) -> bool:
        """Whether a list is given one for each of a rank's samples, also together: `rows += [… for row in x]`"""
        together = (node.value for node in listed.stores if isinstance(node, ast.AugAssign))
        added = (self._found.joint(held(self._program.at(each))) for each in together)
        return any(map(self._comes_to_each, self._filled_in(listed))) or any(isinstance(each, Each) for each in added)

    def _joins_more(self, listed: Sequence) -> bool:
        """Whether a list is one with one for each sample and another with something else: `rows + [penalty]`"""
        if not isinstance(listed.node, ast.BinOp):
            return False
        sides = [[*held(self._program.at(each))] for each in (listed.node.left, listed.node.right)]
        lying = [self._found.joint(each) for each in sides if each]
        return len(lying) == 2 and Replicate() in lying and any(isinstance(each, Each) for each in lying)

    def _puts_once(self, node: ast.AST, region: Region) -> bool:
        """Whether one element is put into a list, in no loop over samples."""
        single = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PUTTING
        around = region.everywhere
        return single and not any(
            each.kind in LOADING or each.kind == "loop" and self._comes_to_each(each) for each in around
        )

    @staticmethod
    def _orders_of(value: Value) -> list[str]:
        """What has taken some elements out of a list, or put them into other places."""
        told = (each for thing in value.things for each in getattr(thing, "picked", Value()).things)
        names = {each.name for each in told if isinstance(each, External)}
        return sorted(names, key=lambda name: (name.rpartition(".")[2] in MOVING, name))

    def _adds_up(self, inside: Iterable[Operation]) -> bool:
        """Whether what ranks have apart in a list is added up from round to round."""
        apart = [each for each in inside if self._found.of[each] != Replicate()]
        return bool(apart) and all(each in self._cyclic for each in apart)

    def _is_as_long(self, value: Value) -> bool:
        """Whether it has one size on all ranks: one of their samples, and a list that holds no single samples."""
        if value.operations or not value.things or not all(isinstance(each, Sequence) for each in value.things):
            return self._is_one_of_many(value)
        return not self._picked(value) and not isinstance(self._found.joint(held(value)), (Each, PerRank, type(None)))

    def _picked(self, value: Value) -> str:
        """By what a list has been given some of a rank's samples, and not others; empty if it has all of them."""
        tests = self._tests_of(value)
        apart = (each for each in tests if not isinstance(self._found.of.get(each, Replicate()), Replicate))
        return ",".join(sorted(f"%{each.number}" for each in apart))

    @staticmethod
    def _tests_of(value: Value) -> set[Operation]:
        """What decides over what a list has been given."""
        return {op for thing in value.things for op in getattr(thing, "picked", Value()).operations}

    def _is_lost(self, operation: Operation) -> bool:
        return isinstance(self._found.of.get(operation), PerRank)

    def _rows_in(self, value: Value) -> str:
        """What counts the elements of a list that has one for each of a rank's samples."""
        inside = {op for each in value.things for part in getattr(each, "contents", tuple)() for op in part.operations}
        one = self._found.joint(value.operations or inside)  # those in lists of lists count nothing
        told = one.loop if isinstance(one, Each) and one.loop not in ("range", "loader") else ROWS
        told = f"number of {PIECES}" if told == PIECES else told
        return self._picked(value) or told

    def _number_of_samples(self, operation: Operation) -> Placement | None:
        """What says of a rank's number of samples what it says of the batch's: `len(x) // 2`, `max(1, len(x))`."""
        if operation.name not in ("operator.floordiv", "builtins.max") or len(operation.inputs) != 2:
            return None
        by = next((each.constant for each in operation.inputs[::-1] if type(each.constant) is int), None)
        numbers = [each for each in map(self._operand, operation.inputs) if counted(each)]
        if by is None or len(numbers) != 1 or not isinstance(numbers[0], Partial):
            return None
        if operation.name == "builtins.max":
            return numbers[0] if by <= 1 else None
        divided = by > 0 and self._operand(operation.inputs[0]) == numbers[0]
        return replace(numbers[0], weight=share(numbers[0].weight, by)) if divided else None

    def _part_in_turn(self, operation: Operation) -> Shard | None:
        """One of the equal parts that a batch is taken apart into, which are those of one process, since ranks' samples
        take turns: `x.chunk(2)`, `x.split(len(x) // 2)`. Of several batches behind each other it is one of them."""
        short = operation.name.rpartition(".")[2]
        known = operation.known if short in ("chunk", "split") else None
        of = self._operand(operation.inputs[0]) if known is not None and len(operation.inputs) > 1 else None
        if known is None or not isinstance(of, Shard) or of.axis or of.in_parts:
            return None
        told, along = operation.inputs[1], arguments.call(operation, known).axis
        if along not in (None, 0):
            return None
        number = told.constant if short == "chunk" and type(told.constant) is int else 0
        if of.order:
            return replace(of, order="") if number and of.order == f"{number} in turn" else None
        rows = share(of.rows, number) if number else counted(self._operand(told)) if short == "split" else ""
        return replace(of, rows=rows) if rows.startswith(f"{of.rows} // ") else None

    def _size_as(self, size: Value, counts: bool) -> Placement | None:
        """How a size lies, which may be the number of samples of the whole batch."""
        return Partial("sum", ROWS) if counts else self._operand(size)

    def _is_over_samples(self, loop: Region) -> bool:
        if loop in self._plan.rounds:
            return True
        if isinstance(loop.node, ast.While):
            return any(map(self._tells_of_samples, arguments.asked(loop.subject)))
        over = self._operand(loop.subject)
        if not isinstance(over, Shard):
            return isinstance(over, Each)
        tuples = any(self._gives_several(each) for each in loop.subject.operations)
        several = [*held(Value(things=loop.subject.things))]  # of a loader, or of several side by side
        batches = any(each.name in LOADED or each in self._plan.placed for each in several)
        batches = batches or any(each.name == FIELDS for each in loop.subject.operations)
        listed = arguments.parts(loop.subject) is not None  # `[out, out.flip(1)]`
        rounds = (self._found.of.get(each) for each in several if each.name == "iterate")
        pieces = any(isinstance(each, Shard) for each in rounds)  # `zip(x.split(1, 1), y.split(1, 1))`
        return not (tuples or batches or listed or pieces) and over.axis == 0

    def _tells_of_samples(self, tested: Value) -> bool:
        """Whether a loop that goes on while a list has some more has a round for each sample."""
        samples = isinstance(self._found.joint(held(tested)), (Each, Shard) if tested.operations else Each)
        return samples and is_list(tested) and not any(map(self._gives_several, tested.operations))

    def _piece(self, over: Value) -> Shard | None:
        """One of the pieces that a loop takes a rank's samples in: as many pieces as in one process, `x.chunk(4)`, or
        as large ones."""
        kinds = {each.name.rpartition(".")[2] for each in over.operations}
        if kinds not in ({"split"}, {"chunk"}):
            return None
        for each in over.operations:
            known, told = each.known, each.inputs[1] if len(each.inputs) > 1 else Value()
            axis = arguments.call(each, known).axis if known is not None else -1
            alike = (
                self._operand(told) in (None, Replicate()) and not told.things and (told.constants or told.operations)
            )
            if not each.inputs or self._operand(each.inputs[0]) != Shard(0) or axis not in (None, 0) or not alike:
                return None
        return Shard(0, rows=PIECES) if kinds == {"split"} else Shard(0)

    def _gives_several(self, operation: Operation) -> bool:
        """Whether it gives several tensors with a rank's samples, in a list or one: `x.chunk(2, dim=1)`"""
        seen, pending = set[Operation](), [operation]
        while pending:
            each = pending.pop()
            if each in seen:
                continue
            seen.add(each)
            key = each.inputs[1].operation if each.name == "getitem" and len(each.inputs) > 1 else None
            listed = each.name == "builtins.list" and bool(each.inputs) and bool(each.inputs[0].operations)
            if listed or each.name == "setitem":  # `list(x.chunk(2, dim=1))`, `pieces[i] = pieces[i] + 1`
                pending += each.inputs[0].operations
            elif key is not None:  # `skipped[::-1]`
                cut = key.name == "builtins.slice"
                if cut and self._holds_batches(each.inputs[0]):
                    return True
                pending += each.inputs[0].operations if cut else ()
            elif arguments.gives_several(each, each.known):
                return True
        return False

    def _are_alike(self, operation: Operation) -> bool:
        """Whether shapes are compared that all ranks find alike: they have as many samples of one as of another."""
        tensors = [shaped(each) for each in operation.inputs]
        found = {self._operand(each) for several in tensors for each in several}
        return all(tensors) and len(found) == 1 and isinstance(next(iter(found)), Shard)

    def _holds_batches(self, value: Value) -> bool:
        """Whether it is a list of tensors that have a rank's samples, as many on all ranks."""
        listed = not value.operations and any(isinstance(each, (Sequence, Mapping, Stream)) for each in value.things)
        return (
            listed
            and isinstance(self._found.joint(held(value)), Shard)
            and isinstance(self._operand(value), Shard)
            and not self._picked(value)
        )

    def _is_one_of_many(self, value: Value) -> bool:
        """Whether it is one of a rank's samples, `x[0]`, which are all of one size: nobody has padded them to the
        longest."""
        picked = [each for each in value.operations if isinstance(self._found.of.get(each), PerRank)]
        if not picked or any(each.name != "getitem" for each in picked):
            return False
        given = closure(
            {op for each in picked for op in each.inputs[0].operations},
            lambda each: (op for v in each.operands for op in held(v) if isinstance(self._found.of.get(op), Shard)),
        )
        shared = all(isinstance(self._found.of.get(each), Shard) for each in given)
        return shared and not any(each.name.endswith(PADDING) for each in given)

    def _are_columns(self, value: Value) -> bool:
        """Whether it is those of each sample, of samples that are combined with each other: `costs.split(sizes, -1)`"""
        for each in value.operations:
            sizes = self._operand(each.inputs[1]) if each.name.endswith(".split") and each.inputs[1:] else None
            axis = each.argument("dim", 2)
            if not isinstance(sizes, Shard) or axis is None or axis.constant != -1:
                return False
        return bool(value.operations)

    def _numbers_round(self, key: Value, taken: Value) -> bool:
        """Whether a key is the number of the sample that a loop has come to, in the round that takes something."""
        number, round_ = key.operation, taken.operation
        counts = number is not None and number.name == "range.index" and isinstance(self._operand(key), Each)
        return counts and round_ is not None and number is not None and number.region is round_.region

    def _packed(self, operation: Operation) -> Shard | None:
        """The words of sentences that were packed, of which ranks have different numbers: `.data` or `[0]` of what
        `pack_padded_sequence` gives."""
        first = operation.name == "getitem" and operation.inputs[1:] and operation.inputs[1].constant == 0
        packed = operation.inputs[0].operations if first or operation.name == "torch.Tensor.data" else ()
        if not packed or not all(each.name.endswith(PACKING) for each in packed):
            return None
        words = ",".join(sorted(f"%{each.number}" for each in packed))
        lying = self._found.joint(packed)
        return replace(lying, axis=0, rows=f"words of {words}") if isinstance(lying, Shard) else None

    def _longest(self, operation: Operation, value: Value, axis: int) -> Placement:
        """How long samples are: of what a rank fills up to its own longest one, the most over the ranks, where that is
        shown; tensors that are made to measure, and loops, go by their own."""
        if axis not in (0, 1) or not self._is_filled_up(value):
            return Replicate()
        return Partial("max") if self._is_shown(operation) else Replicate()

    def _is_filled_up(self, value: Value) -> bool:
        """Whether it has samples that a rank fills up to its own longest one."""
        given = closure(value.operations, lambda op: op.inputs[0].operations if self._keeps_shape(op) else ())
        ends = [each for each in given if not self._keeps_shape(each)]
        return bool(ends) and all(map(self._fills_up, ends))

    def _filling(self, size: Value) -> Each | None:
        """The sample that is filled up to a rank's longest by so many numbers: `longest - len(row)`"""
        less = size.operation
        if less is None or less.name != "operator.sub":
            return None
        longest, own = (self._operand(each) for each in less.inputs)
        fills = isinstance(longest, Partial) and longest.reduce == "max" and isinstance(own, Each)
        return own if fills and isinstance(own, Each) else None

    def _fills_up(self, operation: Operation) -> bool:
        """`pad_sequence(rows)`, and `torch.stack([F.pad(row, (0, longest - len(row))) for row in rows])`"""
        rows = list(held(operation.inputs[0])) if operation.name.endswith(".stack") and operation.inputs else []
        padded = bool(rows) and all(each.name.endswith(".pad") for each in rows)
        own = (self._operand(amount) for each in rows for amount in each.inputs[1:2])
        return operation.name.endswith("pad_sequence") or padded and not all(each == Replicate() for each in own)

    def _is_shown(self, size: Operation) -> bool:
        """Whether a size is shown, or computed with, and nothing is made to measure by it."""
        below = self._program.depending([size])
        kinds = {each.kind for each in self._program.effects if each.operation in below}
        numbers, before = {size}, 0
        while len(numbers) > before:
            before, following = len(numbers), {user for each in numbers for user in self._program.users[each]}
            numbers |= {
                op for op in filter(_is_arithmetic, following) if all(v.operations <= numbers for v in op.inputs)
            }
        users = {user for each in numbers for user in self._program.users[each]} - numbers
        known = {user: user.known for user in users}
        measured = any(
            user.name.startswith("range") or each is not None and each.cls in MEASURING for user, each in known.items()
        )
        return bool(kinds) and "test" not in kinds and not measured

    def _keeps_shape(self, operation: Operation) -> bool:
        known = operation.known
        return known is not None and known.cls in ("same", "elementwise", "transpose") and bool(operation.inputs)

    def _shaped_like(self, operation: Operation) -> Operation | None:
        """What reads the shape that a tensor is made with: `torch.randn(x.shape)`, `torch.zeros(*x.size())`"""
        told = operation.inputs[:1] if operation.name.endswith("full") else operation.inputs[-1:]
        given = [*told, *(each for name, each in operation.keywords.items() if name in ("*", "size", "shape"))]
        for value in given:
            for each in value.operations:
                shape = next(iter(each.inputs[0].operations), each) if each.name == "iterate" and each.inputs else each
                if shape.name in arguments.SHAPES and len(shape.inputs) == 1:
                    return shape
        return None

    def _laid_together(
        self, operation: Operation, known: operations.Operation, call: Call
    ) -> tuple[Placement | None, Sizes]:
        """A list with an entry for each of a rank's samples as one tensor: `torch.stack(found)`, `torch.cat(found)`"""
        sizes = self._found.size(operation.inputs[0])
        axis = call.axis if isinstance(call.axis, int) else 0
        lost = self._lost_in_list(operation.inputs[0], self._found.joint(held(operation.inputs[0])))
        if lost is None and self._holds_more(operation.inputs[0], zeros=True):
            lost = PerRank("list", MORE)
        if lost is not None and lost.reason in (ORDERED, REST, MORE) and not is_moved(lost):
            return lost, None
        order = lost.operation if is_moved(lost) else ""
        if known.cls == "stack":
            stacked = Shard(axis, rows=self._rows_in(operation.inputs[0]), order=order)
            return stacked, (*sizes[1 : axis + 1], None, *sizes[axis + 1 :]) if sizes else None
        of = ",".join(sorted(f"%{each.number}" for each in held(operation.inputs[0])))
        each = sizes[axis + 1] if sizes is not None and len(sizes) > axis + 1 else None
        alike = each not in (None, OTHER_SIZE) or all(map(self._is_row, held(operation.inputs[0])))
        rows = self._rows_in(operation.inputs[0]) if alike else f"pieces of {of}"
        laid = Shard(axis, rows=rows, order=order, parts=told_parts([each]) if alike else 1)
        return laid, (*sizes[1 : axis + 1], None, *sizes[axis + 2 :]) if sizes else None

    def _lays_pieces(self, value: Value) -> bool:
        """Whether it is a list of what is computed of each of the pieces that a batch is cut into, in their order:
        `[model(x[i : i + 8]) for i in range(0, len(x), 8)]`"""
        lists = [each for each in value.things if isinstance(each, Sequence)]
        node = lists[0].node if len(lists) == len(value.things) == 1 and not value.operations else None
        listed = isinstance(node, ast.ListComp) and len(node.generators) == 1 and not node.generators[0].ifs
        placed = self._found.joint(held(value))
        if not listed or not isinstance(placed, Shard) or placed != Shard(0, rows=PIECES) or lists[0].stores:
            return False
        above = closure(held(value), lambda op: () if _cut_of(op) is not None else op.given)
        cuts = [cut for each in above if (cut := _cut_of(each)) is not None]
        return bool(cuts) and all(map(_goes_in_steps, cuts))

    @staticmethod
    def _are_rows(value: Value) -> bool:
        """Whether it is one of what a batch was turned into, with something of each sample: `part` of `zip(*batch)`"""
        return bool(value.operations) and not value.things and all(each.name == "iterate" for each in value.operations)

    def _is_row(self, operation: Operation) -> bool:
        """Whether it is a row of a tensor of a rank's samples, or as much of each, all of which are of one size."""
        if operation.name not in ("iterate", "getitem") or not self._is_one_of_rows(operation):
            return False
        given = closure(operation.inputs[0].operations, lambda op: (e for v in op.operands for e in held(v)))
        return not any(each.name.endswith(PADDING) for each in given)

    def _is_one_of_rows(self, operation: Operation) -> bool:
        if not isinstance(self._found.value(operation.inputs[0]), Shard):
            return False
        keys = arguments.keys_of(operation.inputs[1]) if operation.inputs[1:] else []
        return all(key.is_constant or key.operation is not None and self._is_place(key.operation) for key in keys)

    @staticmethod
    def _is_place(key: Operation) -> bool:
        """Whether it is the number of a loop's round, or the bounds of a slice that are written down."""
        told = all(each.is_constant for each in key.inputs)
        return key.name == "range.index" or key.name == "builtins.slice" and told

    def _has_each(self, value: Value) -> bool:
        """Whether a list has an entry for each of a rank's samples, and is not made for one of them: `[row, zeros]`"""
        if value.things and value.operations and self._is_one_for_each(value):
            return True
        inside = self._found.joint(held(value))
        if inside == Replicate() and value.things and not value.operations:
            return self._is_filled_by_each(value)
        if not isinstance(inside, Each) or not value.things:
            return False
        lists = [each for each in value.things if isinstance(each, Sequence)]
        loops = [loop for each in lists for loop in self._filled_in(each)]
        within = [loop for loop in loops if isinstance(self._found.value(loop.subject), Each)]  # one of the samples
        filled = any(self._comes_to_each(loop) for loop in loops if loop not in within)
        return filled or not self._is_of_one_sample(value)

    def _is_of_one_sample(self, value: Value) -> bool:
        """Whether a list is made for each sample that a loop comes to: `parts` of `for row in out: parts = []`"""
        lists = [each for each in value.things if isinstance(each, Sequence)]
        made = ([loop for guard in each.guards for loop in guard.around() if loop.kind == "loop"] for each in lists)
        return bool(lists) and all(any(map(self._comes_to_each, loops)) for loops in made)

    def _comes_to_each(self, loop: Region) -> bool:
        """Whether a loop goes over a rank's samples, also as a list of what a data set gives."""
        listed = not is_of_loader(loop.subject) and isinstance(self._found.joint(held(loop.subject)), Each)
        return listed or self._is_over_samples(loop)

    def _is_one_for_each(self, value: Value) -> bool:
        """Whether it is a list with one for each of a rank's samples, and nothing else: `[0] * len(x)`"""
        repeated = all(arguments.is_repeated(each, value) for each in value.things)
        return repeated and isinstance(self._found.value(value), Shard)

    def _repeats(self, operation: Operation) -> str:
        """What counts the entries of a list that has the same one for each of a rank's samples: `[0] * len(x)`"""
        entry, times = operation.inputs
        rows = counted(self._size_as(times, self._counting(operation, [times]) == 0))
        one = len(arguments.parts(entry) or ()) == 1 and self._operand(entry) in (None, Replicate())
        return rows if one else ""

    def _spread_out(self, operation: Operation) -> Placement | None:
        """What is replicated, repeated for each of a rank's samples: `token.expand(len(x), -1)`; or these themselves,
        so that each meets all of them: `x.repeat(len(x), 1)`."""
        lying = self._operand(operation.inputs[0])
        if isinstance(lying, Shard) and operation.name.endswith(".repeat"):
            told, axes = arguments.sizes_of(operation), self._found.size(operation.inputs[0])
            place = lying.axis + len(told) - len(axes) if axes is not None else len(told)
            counts = any(counted(self._operand(each)) for each in told[place : place + 1])
            return PerRank(operation.name, PAIRED) if counts else None
        if lying != Replicate():
            return None
        if operation.name.endswith("repeat_interleave"):  # `torch.arange(4).repeat_interleave(n)`
            rows, over = counted(self._operand(operation.inputs[-1])), operation.inputs[0].operations
            numbers = {each.inputs[0].constant for each in over if each.name.endswith(".arange") and each.inputs}
            order = f"{numbers.pop()} in turn" if len(numbers) == 1 else "each in turn"
            return Shard(0, order=order, rows=rows) if rows and len(operation.inputs) > 1 else None
        told = arguments.sizes_of(operation)
        at = self._counting(operation, told)
        for place, each in enumerate(told):
            if rows := counted(self._size_as(each, place == at)):
                return Shard(place, rows=rows)
        return None

    def _sized_by_pattern(self, operation: Operation) -> tuple[Placement, Sizes] | None:
        """What is replicated, repeated for each of a rank's samples: `repeat(token, "d -> b d", b=len(x))`; or samples
        of which it is written down how many all ranks have: `rearrange(x, "(b n) d -> b n d", b=16)`"""
        lying = self._operand(operation.inputs[0]) if operation.inputs else None
        before, after = (axes_of(each) for each in arguments.equation(operation).partition("->")[::2])
        if isinstance(lying, Shard) and before:
            word = before[lying.axis][0] if lying.axis < len(before) and before[lying.axis] else ""
            told = operation.keywords.get(word)
            return (PerRank(operation.name, OF_WHOLE), None) if told and not counted(self._operand(told)) else None
        if lying != Replicate():
            return None
        for place, axis in enumerate(after):
            told = operation.keywords.get(axis[0]) if len(axis) == 1 else None
            if told is not None and (rows := counted(self._operand(told))):
                return Shard(place, rows=rows), (None,) * len(after)
        return None

    def _filled(self, placement: Placement, number: Placement) -> Placement:
        """A tensor of one number: `torch.full((len(x),), 1 / len(x))`"""
        if Replicate() in (number, placement):
            return placement if number == Replicate() else number
        if isinstance(number, Each) and isinstance(placement, Each):
            return placement
        if isinstance(number, PerRank) and isinstance(placement, Shard) and number.over == placement.rows:
            return replace(number, rows=number.over)
        return PerRank("torch.full", "it is filled with a rank's own")

    def _weighs_apart(self, operation: Operation, known: operations.Operation) -> bool:
        """Whether a loss has weights of each rank's own, and not one for each of its samples."""
        named = {name: operation.keywords.get(name, Value()) for name in ("weight", "pos_weight")}
        named["weight"] = arguments.option(operation, known, "weight") or named["weight"]
        lying = {name: self._operand(each) for name, each in named.items() if self._is_apart(each)}
        first = self._operand(operation.inputs[0]) if operation.inputs else None
        return any(known.cls != "loss" or name != "weight" or each != first for name, each in lying.items())

    def _is_apart(self, value: Value) -> bool:
        return not isinstance(self._operand(value) or Replicate(), Replicate)

    def _slice(self, operation: Operation) -> Placement:
        """`[start : start + n]`: places that begin where ranks have come to are each rank's own."""
        bounds = [self._operand(each) for each in operation.inputs]
        after = operation.inputs[1].operation if len(operation.inputs) > 1 else None
        if after is not None and isinstance(bounds[0], Each) and after.name == "operator.add":
            if after.inputs[0].operations == operation.inputs[0].operations and after.inputs[1].constant == 1:
                return bounds[0]  # `[i : i + 1]`
        if _cuts_pieces(operation):
            return Each(PIECES)
        starts = operation.inputs and operation.inputs[0].constant not in (None, 0)
        own = next((each for each in bounds if isinstance(each, (Partial, PerRank))), None)
        if own is not None and (starts or is_multiple(own)):
            return own if isinstance(own, PerRank) else PerRank(operation.name, BY_PLACE)
        return next((each for each in bounds if isinstance(each, Each)), Replicate())
