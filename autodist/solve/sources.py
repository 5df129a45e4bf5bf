"""What is shared out over the ranks: batches of loaders that train, and those that a step makes by hand.

A batch is made by hand by a draw of a number of samples, by a slice of the data that is another one in each step, or by
a step that takes all of the data. What has as many rows as such a batch is a part of it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Iterable, Mapping
from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autodist.catalog import Catalog
from autodist.placement.arguments import SHAPES, ZEROS
from autodist.placement.decided import side_by_side
from autodist.placement.lattice import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.placements import Placements
from autodist.placement.plan import Plan
from autodist.placement.propagate import propagate
from autodist.placement.samples import OF_TIME
from autodist.program import BATCH, FIELDS, SAMPLE, Operation, Program, Region, Value, closure
from autodist.solve import sizes
from autodist.solve.batches import SINGLE, Batches, batch_sizes, keys, laid_out
from autodist.solve.kinds import NUMBER, kind_of
from autodist.solve.steps import all_held, given
from autodist.solve.written import parts_of
from autodist.source import argument, is_mask, walk

LOADERS = (BATCH, FIELDS, SAMPLE)
NUMBERS = ("builtins.len", "torch.Tensor.size", "torch.Tensor.shape")


@dataclass(frozen=True)
class Sources:
    """What each rank has its share of."""

    training: frozenset[Any] = frozenset()
    """The loaders whose batches reach a gradient."""
    batches: frozenset[Operation] = frozenset()
    """The draws and slices that a step makes its batch of."""
    wholes: frozenset[Operation] = frozenset()
    """The tensors with all of the data of which a step takes its rows."""
    axis: int = 0
    """Along which axis the samples of hand-made batches lie."""
    rows: frozenset[Hashable] = frozenset()
    """The keys of the numbers of samples that a whole batch has."""
    reaching: frozenset[Operation] = frozenset()
    """What gradients are computed from, back to these."""
    steps: frozenset[Operation] = frozenset()
    """What of that is computed in the loops around the steps."""
    taken: Mapping[Operation, Mapping[Operation, Placement]] = field(default_factory=dict)
    """The uses of tensors with all of the data in steps, and how they lie there."""

    def placement_of(self, operation: Operation) -> Placement:
        """How what a source gives lies over the ranks."""
        if operation in self.batches:
            return Each("range") if operation.name in SINGLE else Shard(self.axis)
        return Shard(0) if operation.owner in self.training else Replicate()

    def counts(self, operation: Operation, told: Row[Value]) -> int | None:
        """Which of some sizes is the number of samples of the whole batch, in what gradients are computed from."""
        viewed = operation.name.endswith((".view", ".reshape"))  # of a batch, wherever that is
        within = operation.name == "range.index" and not self._loops.isdisjoint(operation.region.loops)
        if not self.rows or not (viewed or within or operation in self.reaching):
            return None
        begun = operation.name.endswith(ZEROS)  # states, ahead of the first step
        places = range(len(told) if begun or operation in self.steps else 1)
        found = (at for at in places if sizes.key(told[at]) in self.rows)
        return next((at for at in found if viewed or within or self._may_count(told, at, operation)), None)

    def _may_count(self, told: Row[Value], at: int, operation: Operation) -> bool:
        """Whether a number that is as large as a batch may be its number of samples, by how it is written: the size of
        a vector, `torch.ones(8)`, or of a row, `torch.ones(1, 8)`, and one that has a name where the batch's has none,
        are of something else."""
        size, axes = told[at], len(told)
        if size.operations:
            return True
        if any(isinstance(each, ast.Constant) and each.value == size.constant for each in walk(operation.node)):
            return axes > (2 if at else 1)
        written = [argument(each.node, "batch_size", 1) for each in self.training if isinstance(each.node, ast.Call)]
        return not written or not all(isinstance(each, ast.Constant) for each in written)

    @cached_property
    def _loops(self) -> frozenset[Region]:
        """The loops around the draws and slices of batches."""
        return frozenset(loop for each in self.batches for loop in each.region.loops)

    @cached_property
    def plan(self) -> Plan:
        """What placements are propagated from."""
        placed = {each: self.placement_of(each) for each in self.batches}
        return Plan(self.placement_of, placed, self.taken, counts=self.counts)


def sources(program: Program, catalog: Catalog, ahead: frozenset[Any] = frozenset()) -> Sources:
    """What each rank has its share of, in a program: nothing of what the loaders give that are read ``ahead`` of all
    steps, which pick their batches of it."""
    found = _Found(program, catalog)
    found.ahead = ahead
    by_rows = found.by_rows()
    by_columns = found.by_columns(by_rows) if found.backward else None
    if by_columns is None:
        return by_rows
    if _steps_along(by_rows):
        return by_columns
    rows, columns = found.lying(by_rows), found.lying(by_columns)
    if found.takes_time(rows):  # rows are no samples, whatever columns are
        return by_columns if found.losses(by_columns, columns) >= found.losses(by_rows, rows) else by_rows
    better = found.losses(by_columns, columns) > found.losses(by_rows, rows)
    return by_columns if better and found.are_deep(by_columns, columns) else by_rows


class _Found(Batches):
    ahead: frozenset[Any] = frozenset()

    def by_rows(self) -> Sources:
        """The sources, where the samples of a batch lie along the first axis."""
        loaders = [each for each in self.ordered if each.name in LOADERS and each.owner is not None]
        loaders = [each for each in loaders if each.owner not in self.ahead]
        loaders = [each for each in loaders if not each.region.without_gradients] or loaders
        if loaders:
            training = self._with_others(frozenset(each.owner for each in loaders))
            told = (size for each in training for size in batch_sizes(each))
            return self._sources(loaders, training=training, rows=keys(told))
        made = self.made_by_hand()
        made = {each: told for each, told in made.items() if not each.region.without_gradients} or made
        if not made:
            return self._whole(0)
        rows = keys(size for told in made.values() for size in told)
        places = {(each.node, each.name) for each in made if self.number_drawn(each) is not None}
        again = [each for each in self.program.operations if (each.node, each.name) in places]
        again = [each for each in again if each.region.without_gradients or not self.is_before(each)]  # for evaluation
        return self._sources(made, batches=frozenset({*made, *again}), rows=rows)

    def _with_others(self, training: frozenset[Any]) -> frozenset[Any]:
        """The loaders that train, and what else the same call makes if nothing tells them apart."""
        made: dict[ast.AST, set[Any]] = {}
        for each in self.program.operations:
            if each.name.endswith(".__init__") and "loader" in getattr(each.owner, "roles", ()):
                made.setdefault(each.node, set()).add(each.owner)
        found = set(training)
        for group in made.values():
            others = group - training
            if others != group and not _told_apart(group - others, others):
                found |= others
        return frozenset(found)

    def by_columns(self, found: Sources) -> Sources | None:
        """The sources, where they lie along the second axis."""
        if found.training:
            return None
        if found.wholes:
            return self._whole(1)
        if all(map(sizes.second_slice, found.batches)):  # `x[:, i : i + size]`, of sequences
            cuts = filter(None, map(sizes.second_slice, found.batches))
            told = (size for cut in cuts for size in sizes.lengths(cut))
            return self._sources(found.batches, batches=found.batches, axis=1, rows=keys(told))
        if not all(sizes.first_slice(each) or len(self.shape(each)) > 1 for each in found.batches):
            return None
        second = keys(size for each in found.batches for size in self.shape(each)[1:2])
        rows = second or keys(size for each in self.upstream(found.batches) for size in laid_out(each))
        return self._sources(found.batches, batches=found.batches, axis=1, rows=rows)

    def _sources(self, ends: Iterable[Operation], **what: Any) -> Sources:
        found = self.upstream(self.backward, frozenset(ends))
        reaching = frozenset(each for each in found if not self.is_of_module(each))
        steps = frozenset(each for each in reaching if not self.is_before(each))
        return Sources(reaching=reaching, steps=steps, **what)

    def _whole(self, axis: int) -> Sources:
        """What steps take of the data that was there before, or that each makes anew of nothing that is drawn. What
        picks samples by such numbers is as long as these, and what is picked by others is no whole."""
        found = self._taken_of(self._is_data, axis)
        return found if found.wholes else self._taken_of(self._is_made, axis)

    def _taken_of(self, is_data: Callable[[Operation], bool], axis: int) -> Sources:
        taken: dict[Operation, dict[Operation, Placement]] = {}
        seen, pending = set(self.backward), [*self.backward]
        while pending:
            user = pending.pop()
            for each in {*self._followed(user), *side_by_side(user, self.program)}:  # which say how often
                if is_data(each):
                    taken.setdefault(user, {})[each] = Shard(axis)
                elif each not in seen and not self.is_of_module(each):
                    seen.add(each)
                    pending.append(each)
        alike: dict[tuple[ast.AST, str], list[Operation]] = {}
        for each in taken:
            alike.setdefault((each.node, each.name), []).append(each)
        for each in self.program.operations:
            for user in alike.get((each.node, each.name), ()):
                again = (
                    op for op in taken[user].keys() & given(each) if self._place(op, each) is self._place(op, user)
                )
                taken.setdefault(each, {}).update(dict.fromkeys(again, Shard(axis)))
        wholes = frozenset(each for user, used in taken.items() if user.name not in NUMBERS for each in used)
        taken = {user: used for user, used in taken.items() if wholes.issuperset(used)}
        counted = (each for each in self.program.operations if each.name in NUMBERS and given(each) & wholes)
        rows = keys(Value(frozenset([size])) for each in counted for size in self._sizes_along(axis, each))
        return self._sources(wholes, wholes=wholes, axis=axis, rows=rows, taken=taken)

    def _sizes_along(self, axis: int, counted: Operation) -> list[Operation]:
        """What reads how many numbers lie along an axis of the operand of `len(x)`, `x.size(0)` or `x.shape`."""
        told = counted.argument("dim", 1)
        if counted.name not in SHAPES or told is not None:
            return [counted] if (told.constant if told is not None else 0) == axis else []
        return [each for each in self.program.users[counted] if each.name == "getitem" and _tells(each, axis)]

    def _place(self, data: Operation, user: Operation) -> ast.AST:
        """Where data are read that an operation is given, itself or by the functions around it: a rank takes its share
        there, whoever calls the function."""
        node = user.node
        for call in (each for each in user.region.around() if each.function is not None):
            if not any(data in self.program.at(part).operations for part in parts_of(call.node)):
                break
            node = call.node
        return node

    def _followed(self, user: Operation) -> frozenset[Operation]:
        """What an operation has its rows from: of what picks some by number, the numbers."""
        first = sizes.first_key(user)
        if first is None:
            return given(user)
        picking = all_held([first])
        one = self.once_a_step(user) and self.varies(first) or any(map(self.draws_anew, picking))
        told = any(self._is_data(each) or self._is_mask(each) for each in picking)
        return picking if one or told else given(user)

    def _is_field(self, operation: Operation) -> bool:
        """Whether it reads an attribute of what was loaded ahead of the steps, which no tensor has: `graph.x`"""
        read = isinstance(operation.node, ast.Attribute) and operation.name.startswith("torch.Tensor.")
        read = read and operation.name not in SHAPES
        return read and operation.known is None and all(map(self.is_before, given(operation)))

    def _is_mask(self, operation: Operation) -> bool:
        """Whether it is there ahead of the steps, and says by its name that it picks samples:
        `output[data.train_mask]`"""
        read = operation.name.startswith("object.") and all(map(self.is_before, given(operation)))
        told = isinstance(operation.node, ast.expr) and is_mask(operation.node, operation.source)
        return told and (read or self.is_before(operation))

    def _is_data(self, operation: Operation) -> bool:
        """Whether it is a tensor that was made before the steps, and is not trained."""
        if not (operation.is_tensor or self._is_mask(operation)) or operation in self.gone_through:
            return False
        if operation.name in SHAPES or any(map(self._is_field, self.program.users[operation])):
            return False  # `x.shape`, and `graph` of `graph.x`, an object that was loaded
        if operation.name in ("numpy.where", "numpy.nonzero") and len(operation.inputs) == 1:
            return False  # a tuple
        before = self.is_before(operation) or self._is_mask(operation) or self._is_field(operation)
        if not before or self.is_of_module(operation):
            return False
        return kind_of(Value(frozenset([operation]))) != NUMBER  # `n = len(x)`

    def _is_made(self, operation: Operation) -> bool:
        """Whether each step makes it of numbers that count up: `torch.linspace(0, 1, 30).view(-1, 1)`"""
        above = closure([operation], given)
        known = [each.known for each in above]
        counts = any(each is not None and each.cls == "arange" for each in known)
        alone = all(each is not None and each.cls not in ("random", "random_like") for each in known)
        return counts and alone and operation.is_tensor and not any(each.owner is not None for each in above)

    def lying(self, found: Sources) -> Placements:
        """How values lie where these sources are shared out."""
        return propagate(self.program, found.plan, self._catalog)

    def takes_time(self, placements: Placements) -> bool:
        """Whether a layer takes the samples for time, if they lie where they are taken to."""
        lying = (placements.of.get(each) for each in self.reaching)
        return any(isinstance(each, PerRank) and each.reason == OF_TIME for each in lying)

    def are_deep(self, found: Sources, placements: Placements) -> bool:
        """Whether data have an axis behind that of the samples, so that it is not that of the features."""
        data = found.batches or found.wholes
        return all(len(placements.sizes.get(each) or ()) > found.axis + 1 for each in data)

    def losses(self, found: Sources, placements: Placements) -> int:
        """How many losses are means or sums over the samples of all ranks."""
        along = slice(found.axis, found.axis + 1)
        if any((placements.sizes.get(each) or (0, 0))[along] in ((), (1,)) for each in found.batches):
            return 0  # no samples lie along an axis that is not there
        lying = [placements.value(each.inputs[0]) for each in self.backward if each.inputs]
        return sum(isinstance(each, Partial) for each in lying)


def _tells(item: Operation, axis: int) -> bool:
    """Whether it takes one entry of a shape: `x.shape[0]`"""
    return len(item.inputs) > 1 and item.inputs[1].constant == axis


def _told_apart(these: set[Any], others: set[Any]) -> bool:
    """Whether a name is bound to another constant where some objects are made than where others are."""
    for name in set.intersection(*({*each.settings} for each in these | others)):
        values = {repr(each.settings[name]) for each in these}
        if len(values) == 1 and values.isdisjoint(repr(each.settings[name]) for each in others):
            return True
    return not others


def _steps_along(found: Sources) -> bool:
    """Whether slices step along sequences: `x = text[i : i + n]; y = text[i + 1 : i + 1 + n]`."""
    starts: dict[Value, set[Hashable]] = {}
    for each in found.batches:
        cut = sizes.first_slice(each)
        if cut is not None:
            starts.setdefault(each.inputs[0], set()).add(sizes.key(cut.inputs[0]))
    return any(len(each) > 1 for each in starts.values())
