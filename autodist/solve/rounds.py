"""The rounds of a loop over an evaluation of which each rank has its own, and how values lie then."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from autodist.catalog import Catalog
from autodist.placement import Each, Partial, PerRank, Placement, Replicate
from autodist.placement.arguments import gives_zeros
from autodist.placement.placements import Placements
from autodist.placement.plan import Plan
from autodist.placement.propagate import propagate
from autodist.program import BATCH, FIELDS, SAMPLE, VIEWS, Operation, Program, Value, closure
from autodist.solve.steps import all_held, given
from autodist.solve.stores import bound_by, changes, spells
from autodist.solve.written import parts_of
from autodist.source import Source, walk
from autodist.trace.things import Heap, Object, Sequence
from autodist.trace.things import Mapping as Table

EVALUATION = "evaluation"
LOADED = (BATCH, FIELDS, SAMPLE)
FILLING = frozenset("fill fill_like arange container".split())
LOOPS = (ast.For, ast.AsyncFor, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True)
class Left:
    """What a loop leaves to what follows, by the code that names it, and what joins the ranks' values: "sum", "max",
    "min", the "sums" of a list, the "table" of a dict of sums or lists, or "list"; "anew" if it follows from others."""

    code: str
    joined: str
    tensors: bool = False
    """Whether there may be tensors in it that are on a GPU."""
    value: str = ""
    """The code that computes it "anew" of what is global by then."""


@dataclass
class Shared:
    """A loop over an evaluation, and what is made global behind it; or why it stays as it is. That of a list, or of the
    numbers that are added up, `sum(f(x) for x in loader)`, is part of its ``listing``."""

    loop: ast.For | ast.comprehension
    source: Source
    over: ast.expr
    listing: ast.ListComp | ast.GeneratorExp | None = None
    left: list[Left] = field(default_factory=list)
    reasons: list[tuple[Source, ast.AST, str]] = field(default_factory=list)
    functions: dict[ast.AST, Source] = field(default_factory=dict)
    """The functions that its rounds enter."""
    elsewhere: set[ast.AST] = field(default_factory=set)
    """Those of them that are entered from elsewhere, too."""
    drops: bool = False
    """Whether its rounds come to dropout, which there is none of in evaluation mode."""

    @property
    def root(self) -> ast.stmt | ast.expr:
        """All of its code."""
        return self.listing or self.loop  # type: ignore[return-value]

    @property
    def is_exact(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons

    def say(self, node: ast.AST, reason: str, source: Source | None = None) -> None:
        """Note why it stays as it is."""
        self.reasons.append((source or self.source, node, reason))


class Rounds:
    """The rounds of a loop over an evaluation."""

    def __init__(self, shared: Shared, program: Program, catalog: Catalog, base: Placements) -> None:
        self._shared, self._program, self._catalog, self._base = shared, program, catalog, base
        self._loop, self._source = shared.root, shared.source
        self._rounds = frozenset(each for each in program.loops if each.node is shared.loop)
        self._loading = {each.node for each in program.at(shared.over).things}
        owners = program.at(shared.over).things
        self._given = {each for each in program.operations if each.name in LOADED and each.owner in owners}
        self._inside = self._given | {
            each
            for each in program.operations
            if self._rounds & each.region.loops or any(region.node in self._loading for region in each.region.around())
        }

    # how values lie

    @cached_property
    def _kept(self) -> frozenset[Operation]:
        """What goes on from round to round. A function that goes round in itself, of what it is given anew in each
        call, as the layers of a model do, is not meant."""
        cycles = [each for each in self._program.cycles if not each.isdisjoint(self._inside)]
        found = {op for each in cycles if not self._is_in_one_call(each) for op in each if op in self._inside}
        for user in self._inside - found:  # `loss - last`, of `last = loss` in the round before
            later = {each for each in given(user) & self._inside if each.number >= user.number}
            if later and not any(user in each and self._is_in_one_call(each) for each in cycles):
                found.add(user)
        return frozenset(found)

    def _is_in_one_call(self, cycle: frozenset[Operation]) -> bool:
        first, *others = cycle
        for region in first.region.around():
            if region in self._rounds:
                return False
            if region.function is not None and all(region in each.region.around() for each in others):
                given = [self._program.at(part) for part in parts_of(region.node)]
                if all_held(given).isdisjoint(cycle):
                    return True
        return False

    @cached_property
    def _going_on(self) -> set[Operation]:
        """What is computed from what earlier rounds have left."""
        return closure(self._kept, self._users)

    @cached_property
    def _of_batch(self) -> set[Operation]:
        """What is computed of one batch, and of nothing that an earlier round has left."""
        return closure(self._given, lambda each: (user for user in self._users(each) if user not in self._going_on))

    def _users(self, operation: Operation) -> Iterator[Operation]:
        return (each for each in self._program.users[operation] if each in self._inside)

    @cached_property
    def _placements(self) -> Placements:
        """How values lie where each rank has rounds of its own."""
        placed: dict[Operation, Placement] = {each: Each(EVALUATION) for each in self._of_batch}
        plan = replace(self._base.plan or Plan(whole_placements), placed=placed, rounds=self._rounds)
        found = propagate(self._program, plan, catalog=self._catalog)
        wrong = {each: self._lying(each) for each in self._kept if not self._adds(each, found)}
        if not wrong:
            return found
        return propagate(self._program, replace(plan, placed={**placed, **wrong}), catalog=self._catalog)

    def _adds(self, operation: Operation, found: Placements) -> bool:
        """Whether it adds what a round has to what those before had."""
        known = operation.known
        lying = found.of.get(operation, Replicate())
        adds = (
            operation.name.rpartition(".")[2] in VIEWS | {"setitem"}
            or known is not None
            and known.cls in ("add", "scatter", "same")
        )
        return isinstance(lying, PerRank) or adds and isinstance(lying, Partial)

    def _lying(self, operation: Operation) -> Placement:
        """How what is computed of an earlier round's lies: the largest or smallest so far, or nothing simple."""
        short = operation.name.rpartition(".")[2]
        kind = {"maximum": "max", "minimum": "min", "fmax": "max", "fmin": "min"}.get(short, short)
        if kind in ("max", "min") and len(operation.inputs) == 2 and not operation.keywords:
            return Partial(kind)  # type: ignore[arg-type]
        return PerRank(operation.name, "it is computed from what the batches before have left")

    # what is changed

    @cached_property
    def _code(self) -> dict[ast.AST, Source]:
        """The functions that the rounds enter, and those by which samples are made."""
        found: dict[ast.AST, Source] = {}
        for region, source in self._program.entered.items():
            loads = any(each.node in self._loading for each in region.around())
            if region.function is not None and (loads or not self._rounds.isdisjoint(region.loops)):
                found.setdefault(region.function, source)
        return found

    def _changes(self) -> Iterator[tuple[ast.AST, ast.expr]]:
        """What the loop itself changes. Methods of the script's own objects say themselves what they do."""
        for node, base in changes(self._loop):
            value = self._program.at(base)
            objects = value.things and all(isinstance(each, Object) and each.cls is not None for each in value.things)
            if not isinstance(node, ast.Call) or not objects or value.operations:
                yield node, base

    def _is_of_rounds(self, value: Value) -> bool:
        """Whether it is what one round has computed, or a list or dict of such that was made in it."""
        if not all(isinstance(self._placements.of.get(op, Replicate()), (Each, Replicate)) for op in value.operations):
            return False
        for each in value.things:
            if isinstance(each, Heap):
                made = isinstance(each, (Sequence, Table)) and not self._rounds.isdisjoint(each.guards)
                if not made or not all(map(self._is_of_rounds, each.contents())):
                    return False
        return True

    def _is_kept(self, base: ast.expr) -> bool:
        """Whether an expression may be a tensor, a list or an object, which others may have as well."""
        value = self._program.at(base)
        return bool(value.operations) or any(isinstance(each, Heap) for each in value.things)

    def _is_own(self, base: ast.expr) -> bool:
        """Whether something was made in the round that changes it."""
        value = self._program.at(base)
        heaps = [each for each in value.things if isinstance(each, Heap)]
        if not value.operations and not heaps:
            return False
        made = all(not self._rounds.isdisjoint(each.guards) for each in heaps)
        nodes = next((each for each in self._nodes if base in each), frozenset())
        elsewhere = {op for op in value.operations if op not in self._inside and op.node in nodes}  # of other calls
        reached = not value.operations or elsewhere != value.operations
        return made and reached and self._are_own(value.operations - elsewhere, nodes)

    @cached_property
    def _nodes(self) -> list[frozenset[ast.AST]]:
        """The code of each function that the rounds enter."""
        return [frozenset(walk(function)) for function in self._code]

    def _are_own(self, made: Iterable[Operation], nodes: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether nothing outside of a round has the memory of what operations give, maybe after changing it. What is
        computed in the ``nodes`` of a function by calls outside of the rounds is not theirs."""
        pending, seen = [*made], set[Operation]()
        while pending:
            each = pending.pop()
            if each in seen or each in self._of_batch:
                continue
            seen.add(each)
            line = each.known
            if line is not None and line.cls in FILLING and each in self._inside - self._kept:
                continue
            changed = each.name.rpartition(".")[2] == "setitem" and each in self._inside and bool(each.inputs)
            if not changed or any(isinstance(thing, Heap) for thing in each.inputs[0].things):
                return False
            pending += (op for op in each.inputs[0].operations if op in self._inside or op.node not in nodes)
        return True

    def _mentioned(self, code: str) -> ast.stmt | None:
        """The last statement ahead of the loop, each time that the loop is come to, that mentions a name."""
        for around in (self._loop, *self._source.ancestors(self._loop)):
            if around is not self._loop and isinstance(around, (*LOOPS, *FUNCTIONS, ast.Module)):
                return None
            if not isinstance(around, ast.stmt):
                continue
            block = self._source.block(around)
            for before in reversed(block[: block.index(around)]):
                if any(spells(each, code) for each in walk(before)):
                    return before
        return None

    def _begun(self, code: str) -> ast.expr | None:
        """What a name is bound to ahead of the loop each time that the loop is come to, if nothing mentions it between
        the two."""
        before = self._mentioned(code)
        found = bound_by(before, code) if before is not None else None
        return found if found is not None and self._is_fresh(found) else None

    def _is_fresh(self, node: ast.expr) -> bool:
        """Whether an expression gives a number, or what nothing else holds: `[]`, `torch.zeros(3)`"""
        value = self._program.at(node)
        literal = isinstance(node, (ast.Constant, ast.List, ast.ListComp, ast.Dict, ast.DictComp))
        named = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript))
        alone = literal or not value.operations or not named and all(map(gives_zeros, value.operations))
        return alone and all(each.node is node for each in value.things if isinstance(each, Heap))


def whole_placements(operation: Operation) -> Placement:
    """Every rank has all of the data."""
    return Replicate()
