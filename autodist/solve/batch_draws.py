"""What a step draws once for its whole batch: a number that decides, a length, a mixing weight, one vector of noise.

Ranks whose dropout and noise differ would each draw their own. They part ways by a number that says what is run, and
train with several vectors where one process has one: rank 0 draws for all, where all come to the draw and have the same
sizes there. In the forward pass of a model, that goes for single numbers, by which layers are left out; a vector there
may be noise of its weights.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.catalog import Catalog
from autodist.placement import Each, Partial, Placement, Replicate, Shard
from autodist.placement.placements import Placements
from autodist.program import Operation, Program, Region, Value, closure, held
from autodist.solve.draws import FILLING, Draw, Draws, reads_samples
from autodist.solve.parameters import Parameters
from autodist.solve.steps import given, steps_of
from autodist.source import Source
from autodist.trace.things import Object

NUMBERS = frozenset("item int float bool tolist".split())
"""The last parts of the names of what takes one number out of a tensor."""
EXHAUSTING = frozenset("sum list tuple set dict sorted max min".split())
WITHOUT_SIZE = ("device", "dtype")
"""Keywords that say nothing of how much is drawn."""
PADDING = (".pad", "pad_sequence", "pad_packed_sequence")
"""Ends of the names of what fills samples up to the longest of those that a rank has."""
DATA = ("loader", "sample", "iterate", "getitem", "data.")
"""Beginnings of the names of operations that give samples, or take some of them."""
LOADER = "torch.utils.data.DataLoader"


class BatchDraws:
    """The draws from torch's generator by which steps serve a whole batch: the same numbers are to serve all ranks."""

    def __init__(self, program: Program, draws: Draws, catalog: Catalog, placements: Placements) -> None:
        self._program, self._draws, self._catalog, self._placements = program, draws, catalog, placements
        self._steps, self._parameters = steps_of(program), Parameters(program)
        self._training = frozenset(loop for each in self._steps.backward for loop in each.region.loops)

    def found(self) -> Iterator[tuple[Draw, bool]]:
        """Each call that draws so, and whether rank 0 can draw there for all: all ranks come to it, equally often, and
        have tensors of one size there."""
        for operations in self._program.made_at.values():
            drawn = [each for operation in operations for each in self._draws.drawn(operation)]
            if not drawn or any(each.library != "torch" for each in drawn) or not isinstance(drawn[0].node, ast.Call):
                continue
            common = [each for each in drawn if self._is_for_a_batch(each.operation)]
            joined = len(common) == len(operations) and all(self._is_joinable(each.operation) for each in common)
            if joined or any(self._is_learned_from(each.operation) for each in common):
                yield common[0], joined

    def _is_for_a_batch(self, operation: Operation) -> bool:
        """Whether an operation of a step draws as much as the step asks for, however many samples a rank has."""
        region, steps = operation.region, self._steps
        if not steps.in_pass(operation) or self._placements.of.get(operation) != Replicate():
            return False
        around = self._draws.around(region)
        if any(map(reads_samples, around)) or any(map(self._is_for_samples, around)):
            return False
        if operation.inputs and any(map(steps.is_of_module, operation.inputs[0].operations)) and _fills(operation):
            return False
        like = operation.name.endswith("_like") or _fills(operation)
        if not like and not all(self._is_alike(each) for each in self._told(operation)):
            return False
        single = self._is_single(operation)
        if any(map(self._is_in_model, around)) and not single:
            return False
        return single or steps.in_step(operation) or self._is_learned_from(operation)

    def _is_learned_from(self, operation: Operation) -> bool:
        """Whether steps, and no models, draw what losses are computed of, other than the data of loaders or the order
        that they are taken in."""
        if operation not in self._steps.reaching or any(map(self._is_in_model, self._draws.around(operation.region))):
            return False
        below = closure([operation], lambda op: () if op.name.startswith(DATA) else self._program.users[op])
        return not below.isdisjoint(self._steps.backward)

    def _told(self, operation: Operation) -> list[Value]:
        """What may say how much a draw gives."""
        return [*operation.inputs, *(v for name, v in operation.keywords.items() if name not in WITHOUT_SIZE)]

    def _is_alike(self, value: Value) -> bool:
        lying = self._placements.value(value)
        return lying in (None, Replicate()) or isinstance(lying, Partial) and lying.reduce == "max"

    def _is_for_samples(self, region: Region) -> bool:
        """Whether a loop goes on as often as a rank has samples, or goes through them."""
        if region.kind != "loop":
            return False
        lying = map(self._placements.value, self._draws.told(region))
        return region in self._placements.sample_loops or any(_counts_samples(each) for each in lying)

    def _is_in_model(self, region: Region) -> bool:
        """Whether it is the forward pass of a module that has parameters."""
        if getattr(region.function, "name", "") != "forward" or not region.inputs:
            return False
        modules = [each for each in region.inputs[0].things if isinstance(each, Object)]
        return any(map(self._parameters.parameters, modules))

    def _is_single(self, operation: Operation) -> bool:
        """Whether it draws one number, or several of which each is one axis, as far as is known."""
        sizes = self._placements.sizes.get(operation)
        if sizes is not None and all(each == 1 for each in sizes):
            return True
        if isinstance(operation.owner, Object) and operation.name.startswith("torch.distributions."):
            told = (*operation.owner.inputs, *operation.owner.keywords.values(), *operation.operands)
            return all(each.is_constant for each in told)
        users = self._program.users[operation]
        return bool(users) and all(each.name.rpartition(".")[2] in NUMBERS for each in users)

    def _is_joinable(self, operation: Operation) -> bool:
        """Whether all ranks come to a draw, with tensors of one size through which no gradient flows."""
        node, source = operation.node, operation.source
        if self._has_gradient(operation) or not self._draws.is_met_by_all(node, self._placements):
            return False
        kept = not operation.region.without_gradients or operation in self._steps.reaching
        loops = [each for each in self._draws.around(operation.region) if each.kind == "loop"]
        rounds = [value for each in loops if each not in self._training for value in self._draws.told(each)]
        sizes = self._placements.sizes.get(operation)
        known = sizes is not None and None not in sizes
        alike = known or not any(map(self._may_be_filled_up, self._told(operation)))
        alike = alike and not any(map(self._may_be_filled_up, rounds)) and not _is_statement(operation)
        return kept and alike and not any(is_asked_for(each, source) for each in source.ancestors(node))

    def _has_gradient(self, operation: Operation) -> bool:
        """Whether gradients flow through it to what is trained: what rank 0 sends has none."""
        if "dropout" in self._catalog.roles(operation.name):
            return operation in self._steps.differentiated
        owner = operation.owner if operation.name.endswith(".rsample") else None
        told = (*owner.inputs, *owner.keywords.values()) if isinstance(owner, Object) else ()
        above = closure((each for value in told for each in held(value)), given)
        return not above.isdisjoint(self._steps.differentiated) or any(map(self._steps.is_of_module, above))

    def _may_be_filled_up(self, value: Value) -> bool:
        """Whether a number, or the size of a tensor, goes by how long the samples of a rank are, which it may have
        filled up to its own longest one."""
        return any(map(self._fills_up, closure(value.operations, given)))

    def _fills_up(self, operation: Operation) -> bool:
        if operation.name.endswith(PADDING):
            return True
        loader = operation.owner
        if not operation.name.startswith("loader.") or not isinstance(loader, Object):
            return False
        told = loader.argument("collate_fn", 6)
        return loader.name != LOADER or told is not None and told.constant is not None


def _counts_samples(lying: Placement | None) -> bool:
    return isinstance(lying, Partial) and lying.reduce == "sum" or isinstance(lying, (Each, Shard))


def _fills(operation: Operation) -> bool:
    return operation.name.rpartition(".")[2] in FILLING


def _is_statement(operation: Operation) -> bool:
    """`noise.normal_()`, whose result nobody takes."""
    return isinstance(operation.source.parents.get(operation.node), ast.Expr)


def is_asked_for(node: ast.AST, source: Source) -> bool:
    """Whether a generator gives as many as are asked for; `sum(loss_of(x) for x in loader)` asks for all."""
    call = source.parents.get(node)
    exhausted = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in EXHAUSTING
    return isinstance(node, ast.GeneratorExp) and not exhausted
