"""What is changed in place, and what loops add up: counts, sums, tensors that are filled step by step."""

from __future__ import annotations

import ast

from autodist import operations
from autodist.placement import arguments
from autodist.placement.along import BY_PLACE
from autodist.placement.by_number import AS_MANY
from autodist.placement.call import OTHER_SIZE, ROWS, Call
from autodist.placement.lattice import Each, Partial, PerRank, Placement, Replicate, Shard, counted
from autodist.placement.measures import Measures
from autodist.placement.reading import is_moved
from autodist.placement.shapes import Sizes
from autodist.placement.subscripts import subscript
from autodist.program import VIEWS, Operation, Value, held

REPLACED = "samples are replaced by what is not theirs"


class InPlace(Measures):
    """Placements of what holds other numbers than before."""

    def _stored(self, operation: Operation) -> tuple[Placement | None, Sizes]:
        """A tensor of which some numbers have been replaced."""
        base, key, value = operation.inputs
        old, new, sizes = self._operand(base), self._operand(value) or Replicate(), self._found.size(base)
        by = self._operand(key) or Replicate()
        if old is None:
            return None, None
        if isinstance(old, Shard) and new == old and any(map(self._gives_several, base.operations)):
            return old, sizes  # one of several pieces along another axis
        if isinstance(old, Shard):
            part, _ = subscript(old, sizes, key, self._operand, self._found.size, base=base)
            fits = not isinstance(part, PerRank) and isinstance(new, (Shard, Replicate, Each))
            fits = fits and not self._meets_another([key, value])  # `y[j] = y[i]`
            return (old if fits else PerRank("setitem", REPLACED)), sizes
        if new == Replicate() and arguments.is_whole(key):
            return (old if arguments.is_zero(value) and isinstance(old, Partial) else new), sizes
        if self._adds_to_itself(value, base):
            summed = new == Partial("sum") or operation in self._cyclic and isinstance(by, (Each, Shard))
            if summed or isinstance(new, Partial) and new.reduce == "sum":
                return self._added(base, old), sizes
        if old == Replicate() and isinstance(new, Each) and self._is_made_for_one(base):
            return Each(ROWS), sizes
        alike = old == new and (isinstance(by, Replicate) or not isinstance(old, Replicate))
        if alike or isinstance(old, Each):
            return old, sizes
        if isinstance(by, Replicate) and all(map(self._found.begins, base.operations)) and not self._is_counted(key):
            return (PerRank("setitem", AS_MANY) if self._is_written_down(new, sizes, key) else new), sizes
        if isinstance(by, Replicate) and isinstance(new, Replicate):
            sums = isinstance(old, Partial) and old.reduce == "sum" and not arguments.is_zero(value)
            return (PerRank("setitem", "it would be counted as often as there are ranks") if sums else old), sizes
        return PerRank("setitem", "each rank puts what it has into a tensor of all"), sizes

    def _is_made_for_one(self, base: Value) -> bool:
        """Whether a tensor is made anew for each sample that a loop comes to."""
        begun = [each for each in base.operations if each.name != "setitem"]
        loops = [[loop for loop in each.region.around() if loop.kind == "loop"] for each in begun]
        return bool(begun) and all(any(map(self._comes_to_samples, several)) for several in loops)

    def _is_written_down(self, new: Placement, sizes: Sizes, key: Value) -> bool:
        """Whether a tensor is made with as many rows as a whole batch has samples, which a rank's share is put into."""
        _, part = subscript(Replicate(), sizes, key, self._operand, self._found.size)
        along = part[new.axis : new.axis + 1] if isinstance(new, Shard) and not new.in_parts and part else ()
        return any(each not in (None, OTHER_SIZE, 1) for each in along)

    def _is_counted(self, key: Value) -> bool:
        """Whether it tells as many places as a rank has samples: `rows[: len(x)]`"""
        slices = (op for each in arguments.keys_of(key) for op in each.operations if op.name == "builtins.slice")
        return any(counted(self._operand(bound)) for each in slices for bound in each.inputs)

    def _adds(self, operation: Operation) -> bool:
        known = operation.known
        return known is not None and known.cls in ("add", "scatter")

    def _added(self, base: Value, old: Placement) -> Placement:
        """A tensor to whose numbers those of a rank's samples are added: a sum, if it begins with zeros."""
        begun = [each for each in base.operations if each.name != "setitem" and each not in self._cyclic]
        if isinstance(old, Partial) and old.reduce == "sum" or all(map(arguments.gives_zeros, begun)):
            return Partial("sum")
        return PerRank("setitem", "the numbers that it begins with would be counted as often as there are ranks")

    def _scattered(self, operation: Operation, known: operations.Operation) -> tuple[Placement | None, Sizes]:
        """A tensor to which numbers are added in places that samples tell."""
        base, *rest = operation.inputs
        old, sizes = self._operand(base), self._found.size(base)
        given = [self._operand(each) for each in (*rest, *operation.keywords.values()) if any(held(each))]
        if old is None or None in given:
            return None, None
        mixed = next((each for each in (old, *given) if isinstance(each, PerRank)), None)
        if mixed is not None or all(each == Replicate() for each in given):
            return mixed or old, sizes
        if not arguments.accumulates(operation, known):
            return PerRank(known.name, "each rank puts what it has into a tensor of all"), sizes
        return self._added(base, old), sizes

    def _is_among_own(self, operation: Operation) -> bool:
        """Whether numbers are put among a rank's own samples, by their places there, which a tensor of its own tells:
        `zeros.index_add(0, graph_of_node, nodes)`"""
        axis, places = operation.argument("dim", 1), operation.argument("index", 2)
        base, at = (self._operand(each) for each in (operation.inputs[0], places or Value()))
        found = isinstance(at, PerRank) and bool(at.rows) and at.reason == BY_PLACE  # `mask.nonzero()`
        among = isinstance(base, Shard) and not base.axis and (found or isinstance(at, Shard) and not at.axis)
        return axis is not None and axis.constant == 0 and among

    def _adds_to_itself(self, value: Value, base: Value, above: frozenset[Operation] = frozenset()) -> bool:
        """Whether a value is what a tensor had in some place, and something more."""
        for each in value.operations - above:
            if each.name == "setitem":  # `counts[label][guess] += 1`
                inner, above = each.inputs[0], above | {each}
                if _is_part(inner, base) and self._adds_to_itself(each.inputs[2], inner, above):
                    return True
            elif self._adds(each) and any(_is_part(given, base) for given in each.inputs):
                return True
        return False

    def _accumulated(self, operation: Operation, call: Call, placement: Placement) -> Placement:
        """What a loop over samples adds up: the sum of what each of them adds."""
        loops = (each for each in operation.region.loops if not isinstance(each.node, ast.While))
        over = [each.subject for each in loops if each.subject.things]
        lost = [self._lost_in_list(each, self._found.joint(held(each))) for each in over]
        apart = any(isinstance(each.placement, Each) for each in call.operands)
        if found := [each for each in lost if each is not None and not (apart and is_moved(each))]:
            return found[0]  # in other rounds on each rank
        overs = {each.placement.over for each in call.operands if isinstance(each.placement, Each)}
        if overs - {""}:
            return self._averaged(call, overs)
        if isinstance(placement, Each):
            return placement if self._is_put_back(operation) or self._adds_parts(operation) else Partial("sum")
        parts = [each.placement for each in call.operands if isinstance(each.placement, Each)]
        sums = [each.placement for each in call.operands if isinstance(each.placement, Partial)]
        rest = [each.placement for each in call.operands if each.placement == Replicate()]
        if len(parts) + len(sums) + len(rest) < len(call.operands) or any(each.reduce != "sum" for each in sums):
            return placement
        over_samples = parts and sums and not rest or self._goes_over_samples(operation)
        result = Partial("sum") if over_samples else placement
        begun = all(arguments.begins_with_zero(each) for each in operation.inputs if each.operations)
        if isinstance(result, Partial) and result.reduce == "sum" and not begun:
            return call.apart("the number that it begins with would be counted as often as there are ranks")
        return result

    def _is_put_back(self, operation: Operation) -> bool:
        """Whether what is added to is a sample's own: `flags[i] += 1`"""
        stores = [each for each in self._program.users[operation] if each.name == "setitem"]
        return any(
            operation in each.inputs[2].operations and isinstance(self._found.value(each.inputs[0]), Shard)
            for each in stores
        )

    def _averaged(self, call: Call, overs: set[str]) -> Placement:
        """The mean over samples that a loop adds up, each divided by how many they are."""
        means = {Partial("mean", each) for each in overs}
        others = {each.placement for each in call.operands if not isinstance(each.placement, Each)}
        fits = len(means) == 1 and others <= {*means, Replicate()}
        return means.pop() if fits else call.apart("it adds up samples that are divided by different numbers")

    def _is_only_begun(self, value: Value) -> bool:
        """Whether all that is known of a sum yet is the zero that it begins with."""
        if not all(map(self._found.begins, value.operations)):
            return False
        return not value.things and all(each[1] in (0, None) for each in value.constants)


def _is_part(value: Value, base: Value) -> bool:
    """Whether it is read from what a tensor holds."""
    views = (each for each in value.operations if each.name.rpartition(".")[2] in VIEWS and each.inputs)
    return any(_is_same(each.inputs[0], base) for each in views)


def _is_same(one: Value, other: Value) -> bool:
    """Whether one may be the other, or both are read from the same place of something: `table[a]`."""
    if one.operations & other.operations:
        return True
    items = [(a, b) for a in one.operations for b in other.operations if a.name == b.name == "getitem"]
    return any(a.inputs[1:] == b.inputs[1:] and a.inputs[0].operations & b.inputs[0].operations for a, b in items)
