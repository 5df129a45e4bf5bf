"""From the placements of what is read to those of all that is computed: a fixpoint over a program."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from autodist import operations
from autodist.catalog import Catalog
from autodist.placement import arguments
from autodist.placement.along import BY_PLACE, SAMPLES_BESIDE
from autodist.placement.between_ranks import gives_rank, rank, reduced_in
from autodist.placement.by_number import PAIRED
from autodist.placement.call import ROWS, Call, Operand
from autodist.placement.decided import dependents, side_by_side
from autodist.placement.kept import KEPT, depending, nearest
from autodist.placement.lattice import (
    COLUMNS,
    GUESSED,
    PARTS,
    PIECES,
    Each,
    Partial,
    PerRank,
    Placement,
    Replicate,
    Shard,
    counted,
    is_paired,
    multiple,
    part_of,
    piecewise,
    times,
)
from autodist.placement.measures import COUNT, MAY_LACK_AXIS, PRODUCTS, begins_behind, unpacked
from autodist.placement.opaque import WRAPPED, Opaque
from autodist.placement.patterns import REST, sides
from autodist.placement.placements import Placements, given_numbers, giving_zeros, joint
from autodist.placement.plan import Plan, Sharded
from autodist.placement.reading import SOURCES, is_list, is_moved, shaped
from autodist.placement.shapes import Sizes, result_sizes
from autodist.placement.sizes import AGAIN
from autodist.placement.subscripts import subscript
from autodist.placement.transfer import BETWEEN, transfer
from autodist.program import DRAWN, FUNCTION, GRADIENT, HOOKED, SAMPLE, Operation, Program, Value, closure, held, joined
from autodist.trace.calls import REST as STARRED
from autodist.trace.things import Listing

MOST_AXES = 5
NO_NUMBERS = frozenset("length fact fill fill_like random random_like container".split())
"""Classes of what computes no numbers from several others."""
OF_GRAPHS = (".num_graphs", ".num_nodes", ".num_edges")
"""What a batch of graphs counts of itself."""


def propagate(
    program: Program,
    plan: Plan | Sharded,
    catalog: Catalog | None = None,
) -> Placements:
    """The placements of all values of a program, where what its sources give lies as a plan says. Of the last ones,
    under other plans, only what depends on the difference is placed anew."""
    plan = plan if isinstance(plan, Plan) else Plan(plan)
    kept = KEPT.of(program, catalog)
    propagation = Propagation(program, plan, catalog)
    near = nearest(plan, kept)
    found = propagation.run(program.operations) if near is None else propagation.run(depending(near, program), near[0])
    kept.append(found)
    return found


class Propagation(Opaque):
    def run(self, operations_: Sequence[Operation], before: Placements | None = None) -> Placements:
        if before is not None:
            self._found = Placements(
                dict(before.of), dict(before.sizes), measured=set(before.measured), asked=dict(before.asked)
            )
            for each in operations_:
                self._found.of.pop(each, None)
                self._found.sizes.pop(each, None)
                self._found.measured.discard(each)
        self._found.plan = self._plan
        self._found.reduced, self._found.zeros = reduced_in(self._program), giving_zeros(self._program)
        self._settle(operations_)
        again = [each for each in operations_ if each in self._cyclic]
        while lost := [each for each in again if isinstance(self._found.of.get(each), PerRank)]:
            behind = self._program.depending(lost)
            again = [each for each in again if each in behind]
            for (
                each
            ) in again:  # what they were given at first was not settled yet, and they keep it from round to round
                self._found.of.pop(each, None)
            self._settle(again)
            still = [each for each in lost if isinstance(self._found.of.get(each), PerRank)]
            if len(again) == len(still):
                break
            again = still
        self._found.sample_loops = frozenset(each for each in self._program.loops if self._is_over_samples(each))
        return self._found

    def _settle(self, first: Iterable[Operation]) -> None:
        """Place some operations, and whatever uses them, until nothing changes."""
        users, dependents_ = self._program.users, dependents(self._program)
        pending = deque(first)
        waiting = set(pending)
        rounds: dict[Operation, int] = {}
        numbers = given_numbers(self._program)
        while pending:
            operation = pending.popleft()
            waiting.discard(operation)
            self._found.taken, self._found.single = self._plan.taken.get(operation, {}), operation in numbers
            self._asked = []
            placement, sizes = self._shared(operation)
            if self._asked or operation in self._found.asked:
                self._found.asked[operation] = self._asked
            before = self._found.of.get(operation), self._found.sizes.get(operation, ())
            if placement is None or (placement, sizes) == before:
                continue
            rounds[operation] = rounds.get(operation, 0) + 1
            if rounds[operation] > 8:
                placement = PerRank(operation.name, "it lies otherwise in each round of a loop")
                if before[0] == placement:
                    continue
            self._found.of[operation], self._found.sizes[operation] = placement, sizes
            for user in (*users[operation], *dependents_.get(operation, ())):
                if user not in waiting:
                    waiting.add(user)
                    pending.append(user)
        self._found.taken, self._found.single = {}, False

    def _shared(self, operation: Operation) -> tuple[Placement | None, Sizes]:
        placement, sizes = self._result(operation)
        if sizes is None and (axes := unpacked(self._program).get(operation)):
            sizes = (None,) * axes
        placement, sizes = self._measured(operation, placement) or (placement, sizes)
        if operation not in self._plan.placed:
            return self._in_its_round(operation, placement), sizes
        if isinstance(placement, Partial) and placement.exponent and self._plan.placed[operation] == Replicate():
            return Replicate(placement.exponent), sizes  # of gradients of a mean over a rank's samples
        as_it_was = isinstance(placement, Partial)  # a mean that keeps its axis has one row, of all ranks as well
        return self._plan.placed[operation], sizes if as_it_was else (None, *sizes[1:]) if sizes else None

    def _result(self, operation: Operation) -> tuple[Placement | None, Sizes]:
        if operation.name in SOURCES:
            return self._without_some(operation, self._sharded(operation)), self._batch_sizes(operation)
        if operation.name == DRAWN:
            return (Partial("sum", ROWS) if isinstance(self._sharded(operation), Shard) else Replicate()), ()
        if operation.name == SAMPLE:
            shared = isinstance(self._sharded(operation), Shard)
            return (Each("loader") if shared else Replicate()), self._found.size(operation.inputs[0])
        if "world_size" in self._roles(operation):
            return Replicate(1), ()
        if operation.name.endswith(".batch_size") and "loader" in getattr(operation.owner, "roles", ()):
            return Replicate(-int(isinstance(self._sharded(operation), Shard))), ()
        if gives_rank(operation):
            return rank(Call(operation.name, ())), ()
        if operation.name == "iterate" and self._goes_through_shared(operation.owner):
            return PerRank(operation.name, WRAPPED), None
        if operation.name in ("iterate", "range.index"):
            placement, sizes = self._round(operation)
            return self._beside(operation, placement, self._rounds_beside(operation)) or placement, sizes
        if (words := self._packed(operation)) is not None:
            return words, None
        if operation.name == "getitem":
            placement, sizes = self._item(operation)
            return self._part_taken(operation, placement), sizes
        if operation.name == "builtins.slice":
            return self._slice(operation), ()
        if operation.name == "data.index":
            return Replicate(), ()
        if operation.name == "setitem":
            return self._stored(operation)
        if operation.name == "list.element":
            return (Each(ROWS) if self._goes_over_samples(operation) else Replicate()), ()
        if operation.name == "list.repeat" and (rows := self._repeats(operation)):
            return Shard(0, rows=rows, parts=len(arguments.parts(operation.inputs[0]) or (None,))), (None,)
        if operation.name == "list.repeat" and (own := self._filling(operation.inputs[1])) is not None:
            return own, None  # `[0] * (longest - len(row))`
        if operation.name in arguments.FIELDS_OF_RESULTS and not self._are_fields(operation.inputs[0]):
            return self._operand(operation.inputs[0]), self._found.size(operation.inputs[0])
        if operation.name == "torch.autograd.grad":
            return self._gradient(
                operation, operation.argument("outputs", 0) or Value(), operation.argument("inputs", 1)
            )
        if operation.name == FUNCTION:  # what it gives, and the gradients that its own backward pass gives
            given, back = operation.inputs
            forward = self._operand(given)
            gradients = [self._found.of[each] for each in back.operations if each in self._found.of]
            lost = next((each for each in gradients if isinstance(each, PerRank)), None)
            if isinstance(forward, Shard) and any(getattr(each, "exponent", 1) != 1 for each in gradients):
                lost = lost or PerRank(
                    FUNCTION, "its gradients are not in proportion to what its backward pass is given"
                )
            return lost or forward, self._found.size(given)
        if operation.name in (GRADIENT, HOOKED):
            return self._gradient_given(operation)
        if operation.name == "torch.Tensor.grad":
            found, sizes = self._gradient(operation, self._losses_of(operation.inputs[0]), operation.inputs[0])
            trained = isinstance(self._operand(operation.inputs[0]), Replicate) and isinstance(
                found, (Partial, PerRank)
            )
            return (Replicate() if trained else found), sizes  # which is averaged over the ranks
        if operation.name == "sample":
            return self._joined(operation), self._row(operation)
        if operation.owner is not None and "scaler" in getattr(operation.owner, "roles", ()):
            return self._joined(operation), ()  # `scaler.scale(loss)`
        if operation.name.endswith(arguments.TYPES):
            return self._typed(operation)
        if (told := arguments.drawn_sizes(operation)) is not None:
            lying = [self._size_as(each, self._counting(operation, told) == at) for at, each in enumerate(told)]
            shards = [Shard(at, rows=counted(each)) for at, each in enumerate(lying) if counted(each)]
            return (shards[0] if shards else Replicate()), (None,) * len(told) or None
        if operation.name.endswith(OF_GRAPHS) and isinstance(self._operand(operation.inputs[0]), Shard):
            return Partial("sum", ROWS if operation.name.endswith("num_graphs") else ""), ()
        if (sizes := self._of_table(operation)) != ():
            return Replicate(), sizes
        name = (
            "operator.truediv"
            if operation.name == "operator.floordiv" and self._of_ranks(operation)
            else operation.name
        )
        if name.startswith(arguments.UNTOLD):
            name = "torch.Tensor." + name.removeprefix(arguments.UNTOLD)  # of what is asked as a tensor is
        if name == "builtins.int" and self._whole_numbers.are(joined(operation.inputs[:1])):
            name = "builtins.float"  # it changes nothing
        if name == "builtins.sum" and any(map(is_list, operation.inputs[1:])):
            name = "torch.cat"  # `sum(lists, [])`
        if name.endswith(".where") and len(operation.inputs) == 1:
            name = "torch.nonzero"
        if (part := self._part_in_turn(operation)) is not None:
            return part, self._found.size(operation.inputs[0])
        if operation.name in PRODUCTS and (shape := self._shape_told(joined(operation.operands))) is not None:
            return (multiple(Partial("sum", ROWS)) if COUNT in shape else Replicate()), ()  # `math.prod(x.shape)`
        if (number := self._number_of_samples(operation)) is not None:
            return number, ()
        known = self._program.table.find("torch.Tensor.size" if name == "torch.Tensor.shape" else name)
        if known is None or known.cls == "table":
            chosen = self._found.size(operation.inputs[0]) if operation.name == "random.choice" else (None,)
            sizes = None if chosen is None else chosen[1:]  # of one of what it chooses from
            return self._unknown(operation), sizes if operation.name.startswith("random.") else None
        if known.cls in BETWEEN:
            return transfer(known, Call(operation.name, ())), (
                self._found.size(operation.inputs[0]) if operation.inputs else None
            )
        return self._known(operation, known)

    def _without_some(self, operation: Operation, lying: Placement) -> Placement:
        """How a batch lies of which a `collate_fn` leaves out samples, by what these are."""
        by = operation.keywords.get("picked", Value())
        apart = sorted(each.number for each in by.operations if self._found.of.get(each, Replicate()) != Replicate())
        return (
            replace(lying, rows=",".join(f"%{each}" for each in apart)) if apart and isinstance(lying, Shard) else lying
        )

    def _batch_sizes(self, operation: Operation) -> Sizes:
        given = operation.inputs[0] if operation.inputs else Value()
        sizes = self._found.size(given) if given.operations else None
        if given.constants and not given.operations:
            return (None,)
        return (None, *sizes) if sizes is not None else None

    def _row(self, operation: Operation) -> Sizes:
        sizes = self._found.size(operation.inputs[0])
        return sizes[1:] if sizes else None

    def _typed(self, operation: Operation) -> tuple[Placement | None, Sizes]:
        """`torch.FloatTensor(data)`, or of sizes."""
        first = self._operand(operation.inputs[0]) if operation.inputs else Replicate()
        if rows := counted(first):
            return Shard(0, rows=rows), (None,) * len(operation.inputs)
        if isinstance(first, Shard) and not operation.inputs[0].operations and not self._has_each(operation.inputs[0]):
            first = replace(first, axis=first.axis + 1)  # of rows of which each has a number of each sample
        return first, self._found.size(operation.inputs[0]) if operation.inputs else None

    def _of_ranks(self, operation: Operation) -> bool:
        """Whether a number is divided that all ranks have alike, as by how many they are."""
        return all(isinstance(self._operand(each), (Replicate, type(None))) for each in operation.inputs)

    def _rounds_beside(self, operation: Operation) -> dict[Operation, Placement | None]:
        """What a loop takes in the same rounds, and how it lies there."""
        taken, found = self._found.taken, {}
        for each in side_by_side(operation, self._program):
            self._found.taken = self._plan.taken.get(each, {})
            found[each] = self._round(each)[0]
        self._found.taken = taken
        return found

    def _round(self, operation: Operation) -> tuple[Placement | None, Sizes]:
        """What a loop has come to that goes over samples, or over their numbers."""
        over, numbers = operation.inputs[0] if operation.inputs else Value(), operation.name == "range.index"
        placement, sizes = self._operand(over), self._found.size(over)
        if placement is None and not numbers:
            listed = all(isinstance(each, Listing) for each in over.things)
            return (None, None) if over.operations else (Replicate(), () if listed else None)
        if numbers and self._holds_batches(operation.keywords.get("of", over)):
            return Replicate(), ()
        if numbers and len(operation.inputs) > 2 and operation.inputs[2].constant not in (1, -1):
            lying = self._operand(operation.inputs[1])  # `for i in range(0, len(x), 8)`, of pieces that are as large
            if counted(lying) and self._operand(operation.inputs[2]) in (None, Replicate()):
                return Each(PIECES), ()
        if numbers and operation.inputs:
            over = operation.inputs[min(len(operation.inputs), 2) - 1]
            placement = self._size_as(over, self._counting(operation, [over]) == 0) or placement
            if counted(placement) and len(operation.inputs) > 1 and operation.inputs[0].constant != 0:
                return PerRank(operation.name, BY_PLACE), ()  # `range(1, len(x))`: each rank leaves out one of its own
        if numbers and "of" in operation.keywords:  # `enumerate(labels)`
            of = operation.keywords["of"]
            fields, lying = self._are_fields(of), self._operand(of)
            if is_paired(lying) and self._are_columns(of):
                return Each(ROWS), ()
            samples = lying.rows if isinstance(lying, Shard) and not lying.axis and not fields else ""
            return (lying and (Each(samples) if samples else Replicate())), ()
        if numbers:
            waits = placement is None and any(each.operations for each in operation.inputs)
            if isinstance(placement, Each) and self._are_own_numbers(over):
                return PerRank(operation.name, AGAIN), ()  # `for j in range(i)`
            if isinstance(placement, Each):  # `range(len(boxes))`, of one sample
                return part_of(placement, f"%{operation.number}"), ()
            return (None if waits else Each(counted(placement)) if counted(placement) else placement or Replicate()), ()
        if isinstance(placement, PerRank) and placement.reason == AGAIN and placement.rows == ROWS:
            return Each(ROWS), ()  # `for i in torch.arange(len(x))`
        if self._are_fields(over) or over.operations and (field := self._field(over, operation)) is not None:
            return (placement if self._are_fields(over) else field), None
        if (piece := self._piece(over)) is not None:
            return piece, sizes
        if isinstance(placement, PerRank) and is_paired(placement) and self._are_columns(over):
            return replace(placement, blocks=COLUMNS), None
        if isinstance(placement, Shard) and not any(self._gives_several(each) for each in over.operations):
            placement = Each(placement.rows) if placement.axis == 0 else replace(placement, axis=placement.axis - 1)
        elif isinstance(placement, Each) and over.operations and not (sizes and sizes[0]):
            placement = part_of(placement, f"%{operation.number}")
        several = any(self._gives_several(each) for each in over.operations)
        return placement, sizes if several or not sizes else sizes[1:]

    def _losses_of(self, value: Value) -> Value:
        """The losses that are computed from a value, and differentiated."""
        losses = {op for each in self._program.of("backward") for op in held(joined(each.operation.inputs[:1]))}
        found = closure(value.operations, lambda op: filter(_keeps_graph, self._program.users[op]))
        return Value(frozenset(losses & found))

    def _gradient_given(self, operation: Operation) -> tuple[Placement | None, Sizes]:
        """What backward passes of the script's own, and hooks, are given: gradients of a mean over a rank's samples are
        N times those of the batch's, and those of a parameter, which a hook is given, are averaged later."""
        if operation.owner is not None:
            return Shard(0, 1), None  # what a module has given
        of, sizes = self._operand(operation.inputs[0]), self._found.size(operation.inputs[0])
        if isinstance(of, (PerRank, Shard)):
            return times(of, 1), sizes
        learnt = operation.name == HOOKED and isinstance(of, Replicate)
        return (Partial("mean", ROWS) if learnt else of and Replicate()), sizes

    def _gradient(self, operation: Operation, of: Value, by: Value | None) -> tuple[Placement | None, Sizes]:
        """The gradients of a loss with regard to samples: those of a mean over a rank's are N times as large."""
        loss, by = self._operand(of), by or Value()
        placement, sizes = self._operand(by), self._found.size(by)
        sizes = sizes[1:] if sizes and by.things and not by.operations else sizes  # of each of a list
        if loss is None or placement is None:
            return None, None
        if isinstance(placement, Shard) and isinstance(loss, Partial) and loss.reduce in ("sum", "mean"):
            return times(placement, loss.exponent + (loss.reduce == "mean")), sizes
        if isinstance(placement, Shard) and isinstance(loss, Shard):
            return placement, sizes
        if isinstance(placement, Replicate) and isinstance(loss, Partial):
            return loss, sizes
        return (
            loss if isinstance(loss, (PerRank, Replicate)) else PerRank(operation.name, "of no loss over samples")
        ), None

    def _joined(self, operation: Operation) -> Placement:
        """What holds or gives back what it is given."""
        found = joint(p for p in (self._found.value(each) for each in operation.operands) if p is not None)
        return found if found is not None else Replicate()

    def _item(self, operation: Operation) -> tuple[Placement | None, Sizes]:
        """`x[key]`: a field of a batch, a size of a shape, or some numbers of a tensor."""
        base = operation.inputs[0]
        placement = self._found.value(base)
        if placement is None and not base.operations:  # of a list
            placement = self._operand(base)
            if placement is None and any(held(base)):
                return None, None
            slices = any(map(arguments.bounds, operation.inputs[1:]))
            if isinstance(placement, Shard) and slices and self._has_each(base):
                return subscript(placement, None, operation.inputs[1], self._operand, self._found.size)
            return self._chosen(placement or Replicate(), operation.inputs[1:]), None
        if placement is None:
            return None, None
        key = operation.inputs[1] if len(operation.inputs) > 1 else Value()
        if (sizes := self._of_tables(operation, key)) is not None:
            return placement, sizes
        if isinstance(placement, PerRank) and placement.blocks == COLUMNS and self._numbers_round(key, base):
            return self._operand(key), None
        shape = self._shape(base, operation)
        if shape is not None:
            return shape, ()
        if (field := self._field(base, operation)) is not None:
            return field, self._sizes_of_field(base, key)
        if len(operation.inputs) == 1:
            return placement, None  # `model(**collated(batch))`: all that has names
        if (state := self._state(base, operation)) is not None:
            return state
        if any(self._gives_several(each) for each in base.operations) and len(arguments.keys_of(key)) < 2:
            return placement, self._found.size(base)
        if isinstance(placement, Each) and isinstance(self._operand(key) or Replicate(), (Each, Replicate)):
            whole = Replicate(), self._found.size(base), key, lambda each: Replicate(), self._found.size
            several = len(arguments.keys_of(key)) > 1
            several |= key.constant in (None, Ellipsis)
            several |= key.operation is not None and key.operation.name == "builtins.slice"
            return placement, subscript(*whole)[1] if several else None  # of one sample, by what is that sample's

        def number(bound: Value) -> Placement | None:
            return self._size_as(bound, self._counting(operation, [bound]) == 0)

        numbers = self._whole_numbers.are_of_samples
        lies, size, own = self._operand, self._found.size, self._are_own_numbers
        return subscript(placement, self._found.size(base), key, lies, size, number, numbers, own, base)

    def _part_taken(self, operation: Operation, placement: Placement | None) -> Placement | None:
        """What a subscript takes of one sample, which is a part of it where a loop over its parts tells the place."""
        keys = arguments.keys_of(operation.inputs[1]) if isinstance(placement, Each) and operation.inputs[1:] else []
        lying = (self._operand(each) for each in keys)
        return next((each for each in lying if isinstance(each, Each) and each.loop.startswith(PARTS)), placement)

    def _chosen(self, placement: Placement, key: Sequence[Value]) -> Placement:
        """What a list or a dict holds under a key: of a sample, if that tells the key."""
        by = self._operand(key[0]) if key else None
        if by is None or by == Replicate() or isinstance(placement, PerRank):
            return placement
        if placement == Replicate() and isinstance(by, (Each, PerRank)):
            return PerRank("getitem", AGAIN) if self._are_own_numbers(key[0]) else by
        return PerRank("getitem", SAMPLES_BESIDE)

    def _state(self, base: Value, operation: Operation) -> tuple[Placement, Sizes] | None:
        """The last state of an LSTM, in which layers come first, then the samples: `_, (h, c) = self.lstm(x)`."""
        before = [
            each.inputs[0] if each.name == "getitem" and len(each.inputs) > 1 else None for each in base.operations
        ]
        outer = [op for value in before if value is not None for op in value.operations]
        if outer and all(self._is_recurrent(each) and each.name.endswith("LSTM") for each in outer):
            if all(each.inputs[1].constant == 1 for each in base.operations):
                return self._found.of[next(iter(base.operations))], (None, None, None)
        if base.operations and all(map(self._is_recurrent, base.operations)):
            place, found = operation.inputs[1].constant if len(operation.inputs) > 1 else None, self._found.value(base)
            if place in (1, -1) and isinstance(found, Shard):
                return replace(found, axis=1), (None, None, None)
        return None

    def _is_recurrent(self, operation: Operation) -> bool:
        return operation.owner is not None and operation.name.endswith(("nn.LSTM", "nn.GRU", "nn.RNN"))

    def _shape(self, base: Value, operation: Operation) -> Placement | None:
        """`x.shape[0]`"""
        shapes = [each for each in base.operations if each.name in arguments.SHAPES]
        if len(shapes) != len(base.operations) or len(operation.inputs) < 2:
            return None
        axis = operation.inputs[1].constant
        found = [self._first(each) for each in shapes]
        sharded = {each.axis: each.rows for each in found if isinstance(each, Shard)}
        if sharded and begins_behind(operation.inputs[1], max(sharded)):
            return Replicate()
        if not sharded or type(axis) is not int:
            return None
        lengths = {len(self._found.size(each.inputs[0]) or ()) for each in shapes}
        axis = axis % lengths.pop() if axis < 0 and len(lengths) == 1 and lengths != {0} else axis
        if axis not in sharded:
            return self._longest(operation, shapes[0].inputs[0], axis)
        counts = Partial("sum", sharded[axis])
        return piecewise(counts) if sharded[axis] == PIECES else counts

    def _known(self, operation: Operation, known: operations.Operation) -> tuple[Placement | None, Sizes]:
        if (found := self._told_by_class(operation, known)) is not None:
            return found
        given = list(arguments.operands(operation, known))
        if known.short == "pad" and isinstance(self._operand(given[0]), Each):
            given = given[:1]  # one sample, filled up as `pad_sequence` does to the longest of a rank's
        if (found := self._of_own_samples(operation, known, given)) is not None:
            return found
        call = arguments.call(operation, known)
        if "ignored" in known.parameters and self._labels_left_out:
            call = replace(call, leaves_out=True)
        if known.cls in ("index", "gather"):
            places = (*operation.inputs[1:], *(v for name, v in operation.keywords.items() if name == "index"))
            call = replace(call, numbers=any(map(self._whole_numbers.are_of_samples, places)))
        if known.cls in ("stack", "concatenate") and operation.inputs and self._has_each(operation.inputs[0]):
            return self._laid_together(operation, known, call)
        told = arguments.sizes_of(operation, known) if known.cls in arguments.SIZED else []
        counts = any(counted(self._operand(each)) for each in told)  # `torch.zeros(2, len(x), 8)`
        rows = self._counting(operation, told) if told and not counts else None
        if known.cls == "view" and told[:1] and told[0].constant == -1 and self._operand(given[0]) == Shard(0):
            rows = None  # whatever `x.view(-1, 8)` lays behind each other, it is not the samples
        operands, sizes, unknown = self._operands_of(operation, known, call, given, rows)
        if not operands:
            return (None, None) if unknown else (Replicate(), () if call.without_axes else None)
        each = arguments.listed(operation, known) and not self._is_one_for_each(operation.inputs[0])
        if each and not self._has_each(operation.inputs[0]):
            counts = known.kind == "sum" and not any(held(operation.inputs[0]))  # `sum(1 for label in labels if label)`
            if self._picked(operation.inputs[0]) and known.cls == "reduction" and not counts:
                return PerRank(known.name, "ranks put different numbers of values into that list"), sizes[0]
            if not self._picked(operation.inputs[0]):
                return self._of_list(operands[0].placement, known), sizes[0]
        if known.cls == "same" and known.parameters and not any(isinstance(e.placement, Shard) for e in operands):
            operands, sizes = operands[known.parameters["of"] :], sizes[:1]  # `x.copy_(y)`
            if not operands:  # `x.fill_(0)`
                return Replicate(), sizes[0]
        if self._may_lack_axis(operation, known, given, sizes):
            return PerRank(known.name, MAY_LACK_AXIS), () if known.cls == "loss" else None
        call = replace(
            call, operands=tuple(operands), sizes=self._numbers(call, told, rows), parameters=known.parameters
        )
        alike = all(each.placement == Replicate() for each in operands)
        if known.cls == "multiply" and any(map(_is_naught, given)):  # `0 * unused.sum()`, and as many zeros as samples
            alike = not any(isinstance(each.placement, Shard) for each in operands)
        placement = Replicate() if alike else _under_all(known, call, tuple(sizes), _parts(call))
        if not alike:
            if known.parameters.get("all") and self._is_filled_up(given[0]) and self._is_shown(operation):
                return PerRank(known.name, "each rank fills its samples up to its own longest one"), ()
            if known.parameters.get("compares") and all(map(is_list, operation.inputs)):
                return PerRank(known.name, "it compares lists of all samples"), ()
            placement = self._by_sizes(operation, known, call, placement, given, told, sizes)
            if isinstance(placement, Shard) and placement.in_parts and told[placement.axis : placement.axis + 1]:
                size = self._operand(told[placement.axis])
                one = size == Partial("sum", ROWS) and placement.rows == ROWS  # `x.view(len(x), -1)`
                placement = replace(placement, parts=1 if one else placement.parts)
        if known.short == "full" and len(operation.inputs) > 1:
            placement = self._filled(placement, self._operand(operation.inputs[1]) or Replicate())
        if operation in self._cyclic and known.cls == "add":
            placement = self._accumulated(operation, call, placement)
        if known.cls in arguments.SIZED and STARRED in operation.keywords:
            return placement, None  # `x.view(len(x), *others)`
        return placement, self._of_drawn(operation, known, result_sizes(known, operation.name, call, tuple(sizes)))

    def _told_by_class(
        self, operation: Operation, known: operations.Operation
    ) -> tuple[Placement | None, Sizes] | None:
        """What its class tells of an operation without its operands."""
        if known.cls == "length" and operation.inputs:
            one = operation.inputs[0]
            axes = operation.name == "builtins.len" and shaped(one)  # `len(x.shape)`
            if self._is_as_long(one) or self._holds_batches(one) or axes:
                return Replicate(), ()
        if known.parameters.get("compares") and self._are_alike(operation):
            return Replicate(), ()
        if known.cls in ("expand", "repeat", "repeat_each") and (shard := self._spread_out(operation)) is not None:
            return shard, (None,) * (1 if known.cls == "repeat_each" else len(arguments.sizes_of(operation)))
        if known.cls == "pattern" and (told := self._sized_by_pattern(operation)) is not None:
            return told
        if known.cls == "concatenate" and operation.inputs and self._lays_pieces(operation.inputs[0]):
            return Shard(0), self._found.size(operation.inputs[0])
        if known.cls == "stack" and operation.inputs and self._are_rows(operation.inputs[0]):
            axis = arguments.call(operation, known).axis  # its rows are stacked: it is as it was
            rows = self._operand(operation.inputs[0])
            if isinstance(rows, Shard) and not rows.axis and isinstance(axis, int):
                rows = replace(rows, axis=axis)
            return rows, None
        if known.cls == "view" and (laid := self._led_by_shape(operation, known)) is not None:
            return laid
        if known.cls in ("fill", "random") and (like := self._shaped_like(operation)) is not None:
            placement = self._first(like)
            return (placement if isinstance(placement, Shard) else Replicate()), self._found.size(like.inputs[0])
        alike = known.cls in ("fill_like", "random_like") and known.short.endswith("_like")
        if alike and operation.inputs and (sample := self._one_sample(operation.inputs[0])) is not None:
            return Replicate(), sample
        if alike and operation.inputs and self._is_as_large(operation.inputs[0]):
            return Replicate(), self._found.size(operation.inputs[0])
        if known.cls == "random" and any(self._is_apart(each) for each in arguments.drawn_from(operation, known)):
            return self._drawn_of_own(operation, known)
        if known.cls == "scatter" and (not isinstance(base := self._operand(operation.inputs[0]), Shard)):
            return self._scattered(operation, known)
        if known.cls == "scatter" and self._is_among_own(operation):
            return base, self._found.size(operation.inputs[0])
        if known.cls in ("loss", "sample_loss") and self._weighs_apart(operation, known):
            return PerRank(known.name, "it weighs samples by what each rank has of its own"), ()
        return None

    def _of_own_samples(
        self, operation: Operation, known: operations.Operation, given: Sequence[Value]
    ) -> tuple[Placement | None, Sizes] | None:
        """What is computed of the samples that loops have come to: of their lengths, their numbers, or of pairs."""
        if known.cls == "fill" and any(each.kind == "collate" for each in operation.region.around()):
            told = arguments.sizes_of(operation, known)
            rows = [(at, counted(self._operand(each))) for at, each in enumerate(told)]
            if len(found := [Shard(at, rows=each) for at, each in rows if each]) == 1:
                return found[0], (None,) * len(told)  # however long that makes each of them
        if known.cls == "fill" and (filling := [lying for each in given if (lying := self._filling(each))]):
            return filling[0], (None,) * len(given)
        if (own := self._numbers_of_own(operation, known, given)) is not None:
            return own, (None,) if isinstance(own, PerRank) and own.rows else ()
        if len(given) > 1 and known.cls not in NO_NUMBERS and self._meets_another(given):
            return Call(known.name, ()).paired(PAIRED), None
        return None

    def _operands_of(
        self, operation: Operation, known: operations.Operation, call: Call, given: Sequence[Value], rows: int | None
    ) -> tuple[list[Operand], list[Sizes], bool]:
        """How what an operation is given lies, its sizes, and whether some of it has no placement yet."""
        operands: list[Operand] = []
        sizes: list[Sizes] = []
        unknown = False
        for place, value in enumerate(given):
            placement = self._size_as(value, place == rows and known.cls in ("fill", "random"))
            if placement is None and value.operations:
                unknown = True
                continue
            if known.cls == "add" and self._is_only_begun(value):
                continue
            in_any_order = known.cls == "length" or known.cls == "reduction" and known.kind != "none"
            if in_any_order and value.things and is_moved(placement):
                placement = Shard(0, rows=self._rows_in(value))
            size = self._found.size(value)
            summed = arguments.listed(operation, known) and not self._has_each(value)
            listed = known.cls in ("stack", "concatenate") or summed
            if size and value.things and not value.operations and listed:
                size = size[1:]  # of what is listed
            if size is None and call.equation and "..." not in call.equation and known.cls == "contraction":
                size = (None,) * len(call.equation.split("->")[0].split(",")[place].strip())
            if size is None and known.cls == "pattern" and [REST] not in sides(call)[0]:
                size = (None,) * len(sides(call)[0])
            sizes.append(size)
            name = ",".join(sorted(f"%{each.number}" for each in value.operations))
            operands.append(Operand(placement or Replicate(), size if size is not None else (), name=name))
        return operands, sizes, unknown

    def _of_list(self, element: Placement, known: operations.Operation) -> Placement:
        """The sum or mean of what a list holds."""
        if isinstance(element, (Replicate, PerRank)) or known.cls != "reduction":
            return element
        if isinstance(element, Partial):
            linear = element.reduce in ("sum", "mean") and known.kind in ("sum", "mean") or element.reduce == known.kind
            return (
                multiple(element) if linear else PerRank(known.name, "it is not linear in numbers that are each rank's")
            )
        return element


def _parts(call: Call) -> tuple[int, ...]:
    """How many entries in a row are parts of one sample, of each operand: what placements that are equal differ by."""
    return tuple(each.placement.parts for each in call.operands if isinstance(each.placement, Shard))


@lru_cache(maxsize=8192)
def _under_all(known: operations.Operation, call: Call, sizes: tuple[Sizes, ...], parts: tuple[int, ...]) -> Placement:
    """The result under every number of axes that operands may have whose number is not known; ``parts`` tells apart
    calls that are otherwise equal."""
    shards = [size for each, size in zip(call.operands, sizes, strict=True) if isinstance(each.placement, Shard)]
    untold = PerRank(known.name, f"{GUESSED} how many axes it is given")
    if None not in shards:
        fewer = call.apart("its operands have fewer axes than it needs")
        return _tried(known, call) or (untold if None in sizes else fewer)
    least = max((each.placement.axis + 1 for each in call.operands if isinstance(each.placement, Shard)), default=1)
    least = max([least, *(each + 1 if each >= 0 else -each for each in call.named())])
    known_axes = max((len(each) for each in sizes if each), default=0)
    least = max(least, known_axes)
    tried = range(least, max(MOST_AXES, least) + 1)
    results = []
    for axes in tried:
        operands = tuple(
            replace(each, sizes=(None,) * axes * isinstance(each.placement, Shard)) if size is None else each
            for each, size in zip(call.operands, sizes, strict=True)
        )
        found = _tried(known, replace(call, operands=operands))
        if found is not None:
            results.append(found)
            if axes == known_axes and not isinstance(found, PerRank):
                break
    distinct = list(dict.fromkeys(results))
    if len(distinct) > 1 and known.cls in ("contraction", "pairwise"):
        return PerRank(known.name, f"{GUESSED} how many axes it is given, and so which it sums over")
    if len(distinct) > 1 and least == 1:
        distinct = list(dict.fromkeys(results[1:]))  # a batch has more than its samples' axis
    if len(distinct) == 1:
        return distinct[0]
    simple = [each for each in distinct if not isinstance(each, PerRank)]
    return simple[0] if len(simple) == 1 else untold


def _tried(known: operations.Operation, call: Call) -> Placement | None:
    try:
        return transfer(known, call)
    except (IndexError, ZeroDivisionError, ValueError, TypeError):
        return None


def _is_naught(value: Value) -> bool:
    """Whether it is zero, and written down as that: `0 * unused.sum()`"""
    return not value.operations and not value.things and value.constant in (0, 0.0) and value.constant is not False


def _keeps_graph(operation: Operation) -> bool:
    """Whether gradients flow through an operation to what it is given."""
    return not operation.region.without_gradients and not operation.name.endswith((".detach", ".data", ".grad"))
