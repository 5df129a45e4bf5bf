"""How many axes and numbers values have: of tables that are read, and of what sizes are computed from."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from math import prod

from autodist import operations
from autodist.placement import arguments
from autodist.placement.along import SO_MANY
from autodist.placement.call import OTHER_SIZE, ROWS, Call, Operand
from autodist.placement.lattice import GUESSED, SUMMED, Partial, PerRank, Placement, Replicate, Shard, counted
from autodist.placement.layout import GROUPED, OF_WHOLE
from autodist.placement.layout import view as view_of
from autodist.placement.loops import Loops
from autodist.placement.shapes import Sizes
from autodist.placement.sizes import AGAIN, OF_SIZES
from autodist.placement.subscripts import subscript
from autodist.program import UNKNOWN, Operation, Program, Value, closure, held
from autodist.trace.things import Object

ALIGNING = frozenset("add multiply divide elementwise loss".split())
"""Classes of operations that lay the last axes of operands beside each other."""
FILES = frozenset(
    "load open loadtxt genfromtxt loadmat File read_pickle read_hdf read_json loads memmap fromfile".split()
)
"""Names of what reads data of which the source does not tell the shape."""
MAY_GROUP = f"{GUESSED} whether it lays several samples of a rank into each row"
MAY_LACK_AXIS = f"{GUESSED} whether it lays a column of numbers beside a row, each meeting all others"

COUNT, UNTOLD = (None, True), (None, False)
"""Sizes of a view: the number of a rank's samples, and one or several of which nothing is told."""
OF_SHAPES = (*arguments.SHAPES, "iterate", "getitem", "operator.add")
"""The names of what sizes are read from."""
PRODUCTS = ("math.prod", "numpy.prod", "numpy.multiply")
"""The names of what multiplies all sizes of a shape."""
COUNTING_AXES = ("builtins.len", "torch.Tensor.ndim", "torch.Tensor.dim", "torch.Tensor.ndimension")
"""The names of what tells how many axes there are, of a shape or a tensor."""
COMPUTED: dict[str, Callable[[int, int], int]] = {
    f"operator.{each.__name__}": each for each in (operator.add, operator.sub, operator.mul, operator.floordiv)
}
"""What computes a size from two numbers."""


def _data_sets(value: Value, within: int = 4) -> Iterator[Operation]:
    """What gives the data sets of which others are parts: `Subset(data, places)`"""
    yield from value.operations
    for each in value.things if within else ():
        given = (*each.inputs, *each.keywords.values()) if isinstance(each, Object) else ()
        yield from (op for part in given for op in _data_sets(part, within - 1))


def _parts_of(value: Value) -> Iterator[ast.expr]:
    """What a tuple of sizes is written as: its elements, or the two that are joined, `x.shape[:2] + (-1,)`."""
    joins = value.operation
    if joins is not None and joins.name == "operator.add" and isinstance(joins.node, ast.BinOp):
        yield from (joins.node.left, joins.node.right)
    elif len(written := {getattr(each, "node", None) for each in value.things}) == 1:
        (node,) = written
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield from (node.left, node.right)
        elif not value.operations:
            yield from getattr(node, "elts", [])


@lru_cache(maxsize=2)
def unpacked(program: Program) -> dict[Operation, int]:
    """How many axes results have whose shapes are unpacked, wherever they are come to: `n, t, c = x.shape`. What is
    asked how many it has, or made by what is called from several places, may have others elsewhere."""
    found: dict[Operation, set[int]] = {}
    for each in program.operations:
        parts = getattr(each.node, "elts", []) if each.name == "getitem" else []
        shapes = [op for op in each.inputs[0].operations if op.name in arguments.SHAPES] if parts else []
        if any(isinstance(part, ast.Starred) or not isinstance(part.ctx, ast.Store) for part in parts):
            continue
        for of in (op for shape in shapes if len(shape.inputs) == 1 for op in shape.inputs[0].operations):
            decided = any(region.kind in ("branch", "try") for region in each.region.within - of.region.within)
            if not decided and not any(region.others for region in of.region.within) and not _is_asked(of, program):
                found.setdefault(of, set()).add(len(parts))
    return {of: counts.pop() for of, counts in found.items() if len(counts) == 1}


def _is_asked(operation: Operation, program: Program) -> bool:
    """Whether it is asked how many axes a result has: `x.ndim == 4`"""
    users = program.users[operation]
    shapes = [op for each in users if each.name in arguments.SHAPES for op in program.users[each]]
    return any(each.name in COUNTING_AXES[1:] for each in users) or any(e.name == COUNTING_AXES[0] for e in shapes)


def begins_behind(key: Value, axis: int) -> bool:
    """Whether a slice takes only what comes behind an axis: `x.shape[1:]`"""
    match arguments.bounds(key):
        case [int(start), _, None]:
            return start > axis
    return False


OF_OWN = "it draws from what each rank has of its own"


class Measures(Loops):
    """The sizes of values of a program, some of which are placed."""

    def _numbers(self, call: Call, told: list[Value], rows: int | None) -> tuple[int | None, ...]:
        """The sizes that a tensor is given: None for the number of samples, or for what may be that."""
        counts = [place == rows or bool(counted(self._operand(each))) for place, each in enumerate(told)]
        if len(told) != len(call.sizes):
            return tuple(None if place == rows else size for place, size in enumerate(call.sizes))
        numbers = [self._number(each) for each in told]
        sizes = [size if number is None else number for number, size in zip(numbers, call.sizes, strict=True)]
        if sum(counts) != 1:
            return tuple(None if place == rows else size for place, size in enumerate(sizes))
        sized = zip(sizes, counts, strict=True)
        return tuple(None if count else OTHER_SIZE if size is None else size for size, count in sized)

    def _number(self, value: Value, within: int = 4) -> int | None:
        """A size that is computed from those of tensors: `x.size(1) // 2`"""
        op = value.operation
        if type(value.constant) is int and op is None:
            return value.constant
        if op is None or not within:
            return None
        if op.name in COUNTING_AXES:
            return self._axes(op)
        if op.name in ("torch.Tensor.size", "getitem") and len(op.inputs) == 2 and type(op.inputs[1].constant) is int:
            of = op.inputs[0].operation if op.name == "getitem" else op
            sizes = self._found.size(of.inputs[0]) if of is not None and of.name in arguments.SHAPES else None
            axis = op.inputs[1].constant
            return sizes[axis] if sizes is not None and -len(sizes) <= axis < len(sizes) else None
        computed = COMPUTED.get(op.name)
        numbers = [self._number(each, within - 1) for each in op.inputs]
        known = [each for each in numbers if each is not None]
        return computed(*known) if computed is not None and len(known) == 2 and known[1] else None

    def _axes(self, counting: Operation) -> int | None:
        """How many axes a tensor has that are counted: `x.ndim`, `len(x.shape)`"""
        of = counting.inputs[0]
        if counting.name == "builtins.len":
            shape = of.operation
            if shape is None or shape.name not in arguments.SHAPES or len(shape.inputs) != 1:
                return None
            of = shape.inputs[0]
        sizes = self._found.size(of)
        return None if sizes is None else len(sizes)

    def _repeated(self, value: Value) -> list[tuple[int | None, bool]] | None:
        """The sizes that are told by repeating some: `(1,) * (x.ndim - 1)`"""
        made = next(iter(value.operations)) if len(value.operations) == 1 else None
        if made is None or made.name not in ("operator.mul", "list.repeat"):
            return None
        for listed, times in (made.inputs, made.inputs[::-1]):
            parts = arguments.parts(listed)
            told = listed.constant if isinstance(listed.constant, tuple) else [e.constant for e in parts or [Value()]]
            if all(type(each) is int for each in told):
                number = self._number(times)
                return [UNTOLD] if number is None else [(each, False) for each in told] * number
        return None

    def _led_by_shape(self, view: Operation, known: operations.Operation) -> tuple[Placement, Sizes] | None:
        """A view whose sizes are those of a tensor, some of them, beside others: `q.view(*q.shape[:-1], -1, 2)`,
        `q.view(q.shape[:2] + (-1,))`. With as many samples first as it has, it keeps them as they are."""
        first, before = self._operand(view.inputs[0]), self._found.size(view.inputs[0])
        nodes = list(getattr(view.node, "args", []))[view.name == "torch.reshape" :]
        sizes_of = closure([view], lambda op: op.given if op is view or op.name in OF_SHAPES else ())
        laid, led = self._spelled(nodes, sizes_of) if isinstance(first, (Shard, Replicate)) else ([], False)
        given = map(self._operand, view.inputs[1:])
        if first == Replicate() and not led and any(isinstance(e, PerRank) and e.reason == OF_SIZES for e in given):
            return first, None  # all ranks have as many numbers of it: none of its axes is as long as a rank's batch
        if not led or isinstance(first, Replicate) and any(counts for _, counts in laid):
            return None
        result = None if UNTOLD in laid else tuple(None if size == -1 else size for size, _ in laid)
        if not isinstance(first, Shard):
            return first or Replicate(), result
        if laid[:1] == [COUNT] and not first.axis:
            whole = first.rows in (ROWS, SUMMED + ROWS) and not first.order  # and no half of the batch, or two in turn
            return (replace(first, rows=ROWS, parts=1) if whole else PerRank(known.name, GROUPED)), result
        sizes = tuple(size for size, _ in laid)
        call = Call(known.name, (Operand(first, before),), sizes=sizes) if before and result else None
        return (view_of(call), result) if call is not None else None

    def _spelled(
        self, nodes: Iterable[ast.expr], above: set[Operation], within: int = 4
    ) -> tuple[list[tuple[int | None, bool]], bool]:
        """The sizes that are written one after the other, and whether each counts samples; and whether some of them are
        those of a tensor, of which it may not be told how many there are. Of what is written in a function, what it
        comes to be in one call is ``above`` the view there."""
        found: list[tuple[int | None, bool]] = []
        led = False
        for node in nodes:
            value = self._program.at(node.value if isinstance(node, ast.Starred) else node)
            value = replace(value, operations=value.operations & above or value.operations)
            shape = self._shape_told(value) or self._repeated(value)
            parts = list(_parts_of(value)) if within else []
            if isinstance(value.constant, tuple):
                found += [(each, False) for each in value.constant]
                continue
            if shape is None and parts:
                shape, inside = self._spelled(parts, above, within - 1)
                led |= inside
            elif shape is not None:
                led = True
            number = self._number(value)
            one = COUNT if counted(self._operand(value)) == ROWS else (OTHER_SIZE if number is None else number, False)
            found += [one] if shape is None else shape
        return found, led

    def _shape_told(self, value: Value) -> list[tuple[int | None, bool]] | None:
        """The sizes of a tensor, or the first or last of them, that a value is: `x.shape[:-1]`"""
        of, cut = value.operation, slice(None)
        of = of.inputs[0].operation if of is not None and of.name == "iterate" and of.inputs else of
        if of is not None and of.name == "getitem" and (by := of.inputs[1].operation) is not None:
            bounds = [each.constant for each in by.inputs] if by.name == "builtins.slice" else [UNKNOWN]
            if not all(each is None or type(each) is int for each in bounds) or bounds[2] is not None:
                return None
            of, cut = of.inputs[0].operation, slice(*bounds)
        if of is None or of.name not in arguments.SHAPES or len(of.inputs) != 1:
            return None
        lying, sizes = self._operand(of.inputs[0]), self._found.size(of.inputs[0])
        axis = lying.axis if isinstance(lying, Shard) and lying.rows == ROWS and not lying.in_parts else None
        if sizes is None:  # of which the first counts the samples
            return [COUNT, UNTOLD] if axis == 0 and cut.start in (None, 0) and cut.stop != 0 else None
        return [COUNT if at == axis else (size, False) for at, size in enumerate(sizes)][cut]

    def _by_sizes(
        self,
        operation: Operation,
        known: operations.Operation,
        call: Call,
        placement: Placement,
        given: Sequence[Value],
        told: list[Value],
        sizes: Sequence[Sizes],
    ) -> Placement:
        """The placement of a result, where it goes by sizes: how long samples are, and what they are laid out by."""
        if known.cls == "length" and placement == Replicate():
            (at,) = call.named()[:1] or (call.number("default") or 0,)
            return self._longest(operation, operation.inputs[0], at % call.first.axes if call.first.axes else at)
        if known.cls != "view":
            return placement
        if self._may_group(given[0], sizes[0], told):
            return PerRank(known.name, MAY_GROUP)
        if any(map(self._counts_whole, told)):
            return call.apart(OF_WHOLE)
        rows_told = ""
        if isinstance(placement, Shard) and placement.axis < len(told):
            rows_told = counted(self._operand(told[placement.axis]))
        if not isinstance(placement, Shard) or not rows_told:
            return placement
        several = placement.order.endswith(" in turn") or placement.rows.startswith(f"{ROWS} // ")
        if not placement.axis and (rows_told.startswith(f"{ROWS} // ") or rows_told == ROWS and several):
            return call.apart(GROUPED)  # `out.view(len(x) // 2, 2, -1)`, and what has more or fewer rows than samples
        return replace(placement, rows=rows_told)  # `torch.tensor(words).view(len(batch), -1)`

    def _may_lack_axis(
        self, operation: Operation, known: operations.Operation, given: Iterable[Value], sizes: Iterable[Sizes]
    ) -> bool:
        """Whether a column that a layer gives, (n, 1), meets numbers of a batch that may lie along one axis, (n): of
        those in a file nothing tells."""
        if known.cls not in ALIGNING or known.parameters.get("alike") or operation.region.without_gradients:
            return False
        beside = list(zip(given, sizes, strict=False))
        shards = [(value, size) for value, size in beside if isinstance(self._operand(value), Shard)]
        others = [v for v, size in shards if size is None and (self._is_as_loaded(v) or self._is_summed(v))]
        columns = [value for value, size in shards if value not in others and self._is_column(value, size)]
        return bool(columns) and len(shards) == 2 and bool(others)

    def _may_group(self, value: Value, sizes: Sizes, told: list[Value]) -> bool:
        """Whether what a layer gives, of which it is not told how many numbers these are, is laid into rows of several:
        `out.view(-1, 8)` keeps samples of eight, and puts two of four together."""
        if sizes is None or None not in sizes[1:] or self._operand(value) != Shard(0):
            return False
        if len(told) < 2 or told[0].constant != -1:
            return False
        row = [self._number(each) for each in told[1:]]
        channels, numbers = (prod(size or 1 for size in each) for each in (sizes[1:], row))
        if len(sizes) > 2:  # `conv(x).view(-1, 100)` of 16 channels
            return None not in row and numbers > 0 and bool(numbers % channels and channels % numbers)
        layers = [each.known for each in value.operations]
        made = all(known is not None and ("width" in known.parameters or known.cls == "flatten") for known in layers)
        return made and all(size is not None and size > 0 for size in row) and row != [1]

    def _one_sample(self, value: Value) -> Sizes:
        """The sizes of one of a rank's samples, `scores[0]`, which all have alike; None for anything else."""
        taken = value.operation
        key = arguments.keys_of(taken.inputs[1])[:1] if taken is not None and taken.name == "getitem" else []
        if taken is None or not key or type(key[0].constant) is not int or self._operand(taken.inputs[0]) != Shard(0):
            return None
        if isinstance(self._found.of.get(taken), Shard):
            return None  # a field of the batch, as far as losses tell
        sizes = self._found.size(taken.inputs[0])
        return sizes[1:] if sizes else None

    def _is_as_large(self, value: Value) -> bool:
        """Whether it is as large on each rank as in one process: what joins over the ranks, or one of a rank's samples,
        `x[0]`, `x[:1]`."""
        if isinstance(self._operand(value), Partial):
            return True
        taken = value.operation
        key = arguments.keys_of(taken.inputs[1])[:1] if taken is not None and taken.name == "getitem" else []
        if taken is None or not key or self._operand(taken.inputs[0]) != Shard(0):
            return False
        if type(key[0].constant) is int:
            return not isinstance(self._found.of.get(taken), Shard)
        return arguments.bounds(key[0]) in ([None, 1, None], [0, 1, None], [-1, None, None])

    def _counts_whole(self, size: Value) -> bool:
        """Whether it is computed from a number of a rank's samples that was made that of all ranks."""
        wholes = self._wholes
        if not wholes:
            return False
        above = closure(size.operations, lambda op: (each for value in op.operands for each in value.operations))
        return not wholes.isdisjoint(above)

    @cached_property
    def _wholes(self) -> set[Operation]:
        """What is made that of all ranks."""
        return {each for each, lying in self._plan.placed.items() if lying == Replicate()}

    def _is_column(self, value: Value, sizes: Sizes, within: int = 6) -> bool:
        """Whether it is one number for each sample on an axis of its own, as `nn.Linear(8, 1)` gives."""
        if sizes is not None:
            return len(sizes) == 2 and sizes[1] == 1
        for each in value.operations:
            known = each.known
            if known is not None and "width" in known.parameters:
                if arguments.call(each, known).width != 1:
                    return False
            elif (
                known is None
                or known.cls not in ("same", "elementwise", "linear")
                or not within
                or not each.inputs
                or not self._is_column(each.inputs[0], self._found.size(each.inputs[0]), within - 1)
            ):
                return False
        return bool(value.operations)

    def _sizes_of_field(self, batch: Value, key: Value) -> Sizes:
        """The sizes of a field of a batch, as far as a data set of a library is told of: labels lie along one axis."""
        data = [part for each in batch.operations for part in each.operands]
        known = [
            line
            for each in (op for part in data for op in _data_sets(part))
            if (line := each.known) is not None and line.cls == "table"
        ]
        told = {tuple(each.parameters.get("samples", ())) for each in known}
        fields = told.pop() if len(told) == 1 else ()
        at = key.constant if type(key.constant) is int else -1
        return (None,) * (fields[at] + 1) if 0 <= at < len(fields) and fields[at] >= 0 else None

    def _is_summed(self, value: Value) -> bool:
        """Whether it has an axis less than what it is computed from: `(users(i) * items(j)).sum(1)`"""
        made = [(each, each.known) for each in value.operations]
        known = [(each, line) for each, line in made if line is not None and line.cls in ("reduction", "comparison")]
        calls = [arguments.call(each, line) for each, line in known]
        return bool(made) and len(calls) == len(made) and not any(each.axis is None or each.keepdim for each in calls)

    def _is_as_loaded(self, value: Value) -> bool:
        """Whether it is a field of a batch that comes out of a file."""
        above = closure(value.operations, lambda op: (each for part in op.operands for each in held(part)))
        learnt = any(each.owner is not None and "module" in getattr(each.owner, "roles", ()) for each in above)
        return not learnt and any(each.name.rpartition(".")[2] in FILES for each in above)

    def _drawn_of_own(self, operation: Operation, known: operations.Operation) -> tuple[Placement, Sizes]:
        """What is drawn from what each rank has of its own: `torch.multinomial` draws for each row of weights apart."""
        weights, *numbers = operation.inputs
        lying, sizes = self._operand(weights), self._found.size(weights)
        if known.parameters.get("by_row") and isinstance(lying, Shard) and not lying.axis and sizes and len(sizes) == 2:
            return lying, (sizes[0], self._number(numbers[0]) if numbers else None)
        share = [rows for each in arguments.sizes_of(operation, known) if (rows := counted(self._operand(each)))]
        if len(share) == 1 and share[0].startswith(ROWS):  # so many of each rank's samples: `len(x) // 2`
            pools = arguments.drawn_from(operation, known)
            of_numbers = any(counted(self._operand(each)) or self._are_own_numbers(each) for each in pools)
            drawn = tuple(map(self._number, arguments.sizes_of(operation, known)))
            return PerRank(known.name, AGAIN, rows=share[0]) if of_numbers else Shard(0, rows=share[0]), drawn
        return PerRank(known.name, OF_OWN if share else SO_MANY), None

    def _of_drawn(self, operation: Operation, known: operations.Operation, sizes: Sizes) -> Sizes:
        """The sizes of what is drawn: of `random.sample(memory, 8)` behind the first those that each of them has."""
        pool = arguments.drawn_from(operation, known) if known.cls == "random" else []
        if not pool or not (pool[0].things or pool[0].operations) or sizes is None:
            return sizes
        each = self._found.size(pool[0])
        return sizes if each == () else None if each is None else (*sizes[:1], *each[1:])

    def _of_table(self, operation: Operation) -> Sizes:
        """The sizes of what a table gives that all ranks have alike; empty for what the table of operations does not
        call one."""
        name = operation.name
        if name.startswith("object."):
            name = f"pandas.DataFrame.{name.removeprefix('object.')}"
        known = self._program.table.find(name)
        first = operation.inputs[0] if operation.inputs else Value()
        if any(self._operand(each) not in (None, Replicate()) for each in operation.operands):
            return ()
        if known is None or known.cls != "table":
            column = operation.name.startswith("object.") and isinstance(operation.node, ast.Attribute)
            column = column and name.rpartition(".")[2] not in ("columns", "index", "values")
            return (None,) if column and len(self._found.size(first) or ()) == 2 else ()
        axes = known.parameters.get("axes")
        sizes = self._found.size(first)
        return (None,) * (axes if isinstance(axes, int) else len(sizes or ())) or None

    def _of_tables(self, operation: Operation, key: Value) -> Sizes:
        """The sizes of one of several tables, `x, y = make_regression(64, 4)`, and of columns of a text that has some,
        `np.loadtxt("a.txt")[:, 0]`; None for anything else."""
        made = operation.inputs[0].operation
        known = made.known if made is not None else None
        if made is None or known is None or known.cls != "table":
            return None
        told, at = known.parameters, key.constant
        if "most" in told and len(keys := arguments.keys_of(key)) == told["most"]:
            of = (None,) * len(keys)
            return subscript(Replicate(), of, key, self._operand, self._found.size)[1]
        if not isinstance(at, int):
            return None
        if told.get("halves") and at // 2 < len(made.inputs):
            return self._found.size(made.inputs[at // 2])
        asked = told.get("told") is None or made.keywords.get(str(told["told"]), Value()).constant is True
        gives = told.get("gives", ()) if asked else ()
        return (None,) * gives[at] if isinstance(gives, list) and at < len(gives) else None
