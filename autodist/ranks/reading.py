"""What a value is on one rank, and which values are computed of one rank's samples alone."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, TypeAlias

from autodist.catalog import Catalog
from autodist.placement import Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.between_ranks import ENVIRONMENT, RANKS, WORLD, Reduced, is_rank, reduced_in
from autodist.placement.plan import Plan
from autodist.placement.propagate import propagate
from autodist.program import BATCH, FIELDS, SAMPLE, UNKNOWN, Operation, Program, Region, Value, held, joined
from autodist.solve.written import contents
from autodist.source import Source, all_of, walk
from autodist.trace.processes import NUMBER
from autodist.trace.things import External, Function, Sequence, Stream

RANK_0, RANK_1 = 0, 1
SIZE = 2
"""Two ranks stand for all: the first and the last."""
JOINED = "torch.distributed."
TRUE = frozenset(f"{JOINED}{name}" for name in ("is_initialized", "is_available", "is_torchelastic_launched"))
TYPES: dict[str, Any] = {"builtins.int": int, "builtins.bool": bool, "builtins.str": str, "builtins.float": float}
OPERATORS = frozenset("eq ne lt le gt ge add sub mul mod floordiv not_ is_ is_not and_ or_ neg".split())
NODES = ("object.rank", "object.node_rank", "object.nr", "object.machine_rank")
GRADIENTS = ("torch.Tensor.grad", "torch.autograd.grad")
PLAIN = ("operator.", "math.", "builtins.float", "builtins.int", "builtins.round", "builtins.max", "builtins.min")
TEXTS = ("builtins.str", "builtins.abs", "builtins.sum", "builtins.repr", "builtins.format", "numpy.")
WRAPPERS = frozenset("ddp fully_sharded sharded_ddp".split())
SCALED = "operator.mul"
CLOSE = 60


Store: TypeAlias = tuple[ast.Assign, list[tuple[ast.expr, bool]]]
"""What binds a name, and which conditions have to hold there, or not."""


def same_name(one: ast.Name | ast.Attribute, other: ast.Name | ast.Attribute) -> bool:
    """Whether two expressions are one name, or attributes of one name."""
    told = [(type(each), getattr(each, "id", getattr(each, "attr", ""))) for each in (one, other)]
    return told[0] == told[1]


def _tests(node: ast.AST, source: Source) -> list[tuple[ast.expr, bool]]:
    """The conditions of the branches around a node."""
    found, child = list[tuple[ast.expr, bool]](), node
    for parent in source.ancestors(node):
        if isinstance(parent, ast.If) and child is not parent.test:
            found.append((parent.test, child in parent.body))
        child = parent
    return found


def contained(value: Value) -> Iterator[Value]:
    """A value, and those that lists, dicts and objects in it hold."""
    pending, seen = [value], set[Any]()
    while pending:
        each = pending.pop(0)
        yield each
        for thing in each.things - seen:
            seen.add(thing)
            pending += contents(thing)


def picked(values: Iterable[Value]) -> set[Operation]:
    """The numbers by which what is in lists was looked up: `[rows[i] for i in own]`."""
    found = [by for value in values for thing in value.things for by in getattr(thing, "found_in", {}).values()]
    return {op for by in found for op in by.operations}


class Ranks:
    """A program as two of its ranks run it."""

    def __init__(self, program: Program, sources: Iterable[Source], catalog: Catalog) -> None:
        self.program, self.sources, self.catalog = program, tuple(sources), catalog
        self._reduced = reduced_in(program) or Reduced()
        self._stored: dict[tuple[str | None, str | None], list[Store]] = {}
        self._evaluated: dict[tuple[Operation, int], object] = {}
        self._cut: dict[Any, bool] = {}
        self._asked: set[tuple[ast.expr, int]] = set()
        placed: dict[Operation, Placement] = {each: Replicate() for each in program.operations if self.counts(each)}
        self.placements = propagate(program, Plan(self._shared, placed), catalog=catalog)

    @cached_property
    def spawns(self) -> frozenset[ast.AST]:
        """The calls that start the processes."""
        return frozenset(each.node for each in self.program.operations if each.name == NUMBER)

    def may_part(self, test: ast.expr) -> bool:
        """Whether a condition may hold on one rank and not on another, as far as is known."""
        if isinstance(test, (ast.BoolOp, ast.UnaryOp)):
            return any(map(self.may_part, test.values if isinstance(test, ast.BoolOp) else [test.operand]))
        if isinstance(test, (ast.Name, ast.Attribute)) and not self.program.at(test).operations:
            stores = self.stores(test)
            tests = [part for statement, found in stores for part in (statement.value, *(each for each, _ in found))]
            return any(each is not test and self._differs(each) for part in tests for each in all_of(part, ast.expr))
        lying = [self.placements.of.get(each) for each in self.program.at(test).operations]
        return self.holds(test, RANK_0) is None and any(isinstance(each, PerRank) for each in lying)

    def _differs(self, test: ast.expr) -> bool:
        lying = [self.placements.of.get(each) for each in self.program.at(test).operations]
        return any(isinstance(each, PerRank) for each in lying)

    def counts(self, operation: Operation) -> bool:
        """Whether it gives how many ranks there are."""
        told = operation.inputs[0].constant if operation.inputs else None
        return operation.name in ENVIRONMENT and told in WORLD or self.catalog.has(operation.name, "world_size")

    def _shared(self, operation: Operation) -> Placement:
        """How the batches of a loader lie: shared out by a sampler for several ranks, or the same for all."""
        if operation.name not in (BATCH, FIELDS, SAMPLE) or operation.owner is None:
            return Replicate()
        return Shard(0) if self.is_shared(operation.owner) else Replicate()

    def is_shared(self, loader: Any) -> bool:
        """Whether each rank is given samples of its own."""
        told = [loader.argument("sampler", 3), loader.argument("batch_sampler", 4)]
        given = [each for value in told if value is not None for each in value.things]
        inner = [value for each in given if (value := getattr(each, "argument", lambda *_: None)("sampler", 0))]
        given += [each for value in inner for each in value.things]
        return any("distributed_sampler" in getattr(each, "roles", ()) for each in given) or self.is_cut(loader)

    def is_apart(self, generator: Any) -> bool:
        """Whether a generator is seeded by the rank."""
        made = (each for each in self.program.operations if each.owner is generator and each.inputs)
        return any(
            "seed" in each.name or each.name.endswith((".__init__", "default_rng"))
            for each in made
            if self.by_rank(each.inputs[0])
        )

    def is_cut(self, loader: Any) -> bool:
        """Whether its data set holds a rank's own samples: a slice by the rank, or a stream that is told the rank and
        how many there are."""
        data = loader.argument("dataset", 0)
        things = data.things if data is not None else frozenset()
        return bool(things) and all(self._cuts(each) for each in things)

    def _cuts(self, data: Any) -> bool:
        if data not in self._cut:
            held_by = [*contained(Value(things=frozenset([data])))]
            made = {op for part in held_by for op in part.operations} | picked(held_by)
            streams = "iterable_dataset" in getattr(data, "roles", ())
            told = streams and any(map(self.counts, made)) and any(self.by_rank(Value(frozenset([op]))) for op in made)
            slices = [op for op in self.before(made) if op.name == "builtins.slice"] if not told else []
            self._cut[data] = told or any(self.by_rank(part) for each in slices for part in each.operands)
        return self._cut[data]

    # on one rank

    def evaluated(self, value: Value, rank: int) -> object:
        """The constant that a value is on a rank, or UNKNOWN. What a script falls back to in one process does not
        count."""
        if not value.operations:
            return value.constant
        known = [each for op in value.operations if (each := self._on(op, rank)) is not UNKNOWN]
        return known[0] if known and all(each == known[0] for each in known) else UNKNOWN

    def _on(self, operation: Operation, rank: int) -> object:
        key = operation, rank
        if key not in self._evaluated:
            self._evaluated[key] = UNKNOWN  # of a round of a loop
            self._evaluated[key] = self._computed(operation, rank)
        return self._evaluated[key]

    def _computed(self, operation: Operation, rank: int) -> object:
        name, module, short = operation.name, *operation.name.rpartition(".")[::2]
        if is_rank(operation) or self.catalog.has(name, "rank"):
            return rank
        if name in NODES and self.spawns:  # of one machine, whose number is 0
            return 0
        if self.counts(operation) or name == "torch.cuda.device_count":
            return SIZE
        if name in TRUE:
            return True
        if name == "operator.contains":
            return self._contains(operation, rank)
        given = [self.evaluated(each, rank) for each in operation.inputs]
        if UNKNOWN in given or not given:
            return UNKNOWN
        try:
            if name in TYPES:
                return TYPES[name](given[0])
            if module == "operator" and short in OPERATORS:
                return getattr(operator, short)(*given)
        except (TypeError, ValueError, ArithmeticError):
            pass
        return UNKNOWN

    def _contains(self, operation: Operation, rank: int) -> object:
        """`rank in (-1, 0)`, `"RANK" in os.environ`"""
        wanted, within = operation.inputs[:2]
        inside: object = UNKNOWN
        if any(isinstance(each, External) and each.name == "os.environ" for each in within.things):
            inside = True if wanted.constant in (*RANKS, *WORLD) else UNKNOWN
        parts = [each.parts for each in within.things if isinstance(each, Sequence) and each.parts is not None]
        told: list[Any] | None = list(within.constant) if isinstance(within.constant, tuple) else None
        told = [each.constant for each in parts[0]] if len(parts) == 1 else told
        here = self.evaluated(wanted, rank)
        if told is not None and here is not UNKNOWN and UNKNOWN not in told:
            inside = here in told
        negated = isinstance(operation.node, ast.Compare) and isinstance(operation.node.ops[0], ast.NotIn)
        return inside if inside is UNKNOWN else inside is not negated

    def holds(self, test: ast.expr, rank: int) -> bool | None:
        """Whether a condition holds on a rank, if that is known."""
        if (test, rank) in self._asked:  # `if net is None: net = make()`
            return None
        self._asked.add((test, rank))
        try:
            return self._holds(test, rank)
        finally:
            self._asked.discard((test, rank))

    def _holds(self, test: ast.expr, rank: int) -> bool | None:
        if isinstance(test, ast.BoolOp):
            parts = [self.holds(each, rank) for each in test.values]
            stops = isinstance(test.op, ast.Or)
            return stops if stops in parts else None if None in parts else not stops
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self.holds(test.operand, rank)
            return None if inner is None else not inner
        if isinstance(test, ast.Compare) and isinstance(test.left, (ast.Name, ast.Attribute)) and len(test.ops) == 1:
            none = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
            absent = self._absent(test.left, rank) if none else None
            if absent is not None and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
                return absent is isinstance(test.ops[0], ast.Is)
        found = self.evaluated(self.program.at(test), rank)
        if found is UNKNOWN and isinstance(test, (ast.Name, ast.Attribute)) and not self.program.at(test).operations:
            return self._bound(test, rank)
        return None if found is UNKNOWN else bool(found)

    def stores(self, name: ast.Name | ast.Attribute) -> list[Store]:
        """Where a name is bound, or an attribute of any object, and under which conditions."""
        key = getattr(name, "id", None), getattr(name, "attr", None)
        if key not in self._stored:
            nodes = ((node, source) for source in self.sources for node in walk(source.tree))
            names = ((n, s) for n, s in nodes if isinstance(n, (ast.Name, ast.Attribute)) and same_name(n, name))
            found = [(source.statement(n), _tests(n, source)) for n, source in names if isinstance(n.ctx, ast.Store)]
            plain = all(isinstance(statement, ast.Assign) for statement, _ in found)
            self._stored[key] = [(s, t) for s, t in found if isinstance(s, ast.Assign)] if plain else []
        return self._stored[key]

    def _absent(self, name: ast.Name | ast.Attribute, rank: int) -> bool | None:
        """Whether a name is bound to None on a rank: `writer = SummaryWriter() if rank == 0 else None`"""
        result: bool | None = None
        for statement, tests in self.stores(name):
            told, value = [self.holds(each, rank) for each, _ in tests], statement.value
            if isinstance(value, ast.IfExp):
                chosen = self.holds(value.test, rank)
                told += [None] if chosen is None else []
                value = value.body if chosen else value.orelse
            empty = isinstance(value, ast.Constant) and value.value is None
            if None in told or not (empty or isinstance(value, ast.Call)):
                return None
            result = empty if told[: len(tests)] == [wanted for _, wanted in tests] else result
        return result

    def _bound(self, name: ast.Name | ast.Attribute, rank: int) -> bool | None:
        """What a name that is bound to constants is on a rank: `verbose = 1 if rank == 0 else 0`"""
        result: bool | None = None
        for statement, tests in self.stores(name):
            told = [self.holds(each, rank) for each, _ in tests]
            wanted = [each for _, each in tests]
            value = statement.value
            if isinstance(value, ast.IfExp):
                chosen = self.holds(value.test, rank)
                told += [None] if chosen is None else []
                value = value.body if chosen else value.orelse
            if None in told or not isinstance(value, ast.Constant):
                return None
            result = bool(value.value) if told[: len(wanted)] == wanted else result
        return result

    # what is one rank's own

    def own(self, value: Value) -> Operation | None:
        """The sum or mean over a rank's own samples that a value is, or is computed of, as far as that is sure."""
        return self._own(value, set())

    def _own(self, value: Value, seen: set[Operation]) -> Operation | None:
        parts = [each for each in contained(value) if not self._is_either(each)]
        made = [op for part in parts for op in self._reduced.without(sorted(part.operations, key=lambda op: op.number))]
        for each in made:
            if each in seen:
                continue
            seen.add(each)
            placement = self.placements.of.get(each)
            if isinstance(placement, Partial):
                return each if self._is_sure(each) else None
            if isinstance(placement, PerRank) and self._is_followed(each):
                found = next((own for part in each.operands if (own := self._own(part, seen)) is not None), None)
                if found is not None:
                    return found
        return None

    def is_of_step(self, operation: Operation) -> bool:
        """Whether it is the loss of one step's batch: `loss.item()`"""
        losses = {
            op for each in self.program.of("backward") for value in each.operation.inputs[:1] for op in held(value)
        }
        while operation not in losses:
            known = operation.known
            scaled = any("scaler" in getattr(each.owner, "roles", ()) for each in self.program.users[operation])
            if scaled:  # `scaler.scale(loss)`
                return True
            if (
                known is None
                or known.cls not in ("same", "linear")
                or not operation.inputs
                or operation.inputs[0].operation is None
            ):
                return False
            operation = operation.inputs[0].operation
        return True

    @staticmethod
    def before(ends: Iterable[Operation]) -> set[Operation]:
        """Some operations, and all that they are computed of."""
        pending = list(ends)
        found = set(pending)
        while pending:
            fresh = {op for part in pending.pop().operands for op in held(part)} - found
            found |= fresh
            pending += fresh
        return found

    def by_rank(self, value: Value) -> bool:
        """Whether a seed is computed of a rank's number: `args.seed + rank`."""
        seen, pending = set[Operation](), list(value.operations)
        while pending:
            each = pending.pop()
            if each in seen:
                continue
            seen.add(each)
            here, there = (self.evaluated(Value(frozenset([each])), rank) for rank in (RANK_0, RANK_1))
            if here != there:
                return True
            if each.name.startswith(("operator.", "builtins.")):
                pending += [op for part in each.operands for op in part.operations]
        return False

    def _is_either(self, value: Value) -> bool:
        """Whether a value is that of all ranks in one context, and a rank's own in another."""
        if len(value.operations) < 2:
            return False
        left = self._reduced.without(sorted(value.operations, key=lambda op: op.number))
        lying = {type(self.placements.of.get(each)) for each in left if not self.placements.begins(each)}
        whole = Replicate in lying or any(map(self._is_scaled, left)) and not all(map(self._is_scaled, left))
        if PerRank in lying and any(self.is_reduced(each) for each in left):
            return Replicate in lying
        return whole and bool(lying & {Partial, Shard})

    def _is_scaled(self, operation: Operation) -> bool:
        """Whether it is as many times what a rank has as there are ranks: `n * world_size`"""
        return operation.name == SCALED and any(map(self.counts, held(joined(operation.operands))))

    def _is_sure(self, operation: Operation) -> bool:
        """Whether it is a rank's own in whichever context it is computed, and nobody has scaled it to all ranks."""
        seen, pending = {operation}, [operation]
        while pending and len(seen) < CLOSE:
            one = pending.pop()
            given = {op for value in one.operands for op in held(value)}
            lying = {type(self.placements.of.get(op)) for op in given - {one} if not self.placements.begins(op)}
            if (
                lying == {Replicate} and one in self.program.cyclic
            ):  # it is added up as often as a rank has samples, as far as that is understood
                return False
            if one.name in GRADIENTS or self._is_scaled(one) or any(map(self._is_either, one.operands)):
                return False
            fresh = given - seen
            seen |= fresh
            pending += [each for each in fresh if isinstance(self.placements.of.get(each), (Partial, Shard))]
        return True

    def _is_followed(self, operation: Operation) -> bool:
        name, node = operation.name, operation.node
        if isinstance(node, ast.Call) and any(each.arg is None for each in node.keywords):
            return False  # `"{avg}".format(**vars(self))`: it takes some of it
        return name not in GRADIENTS and (name.startswith((*PLAIN, *TEXTS)) or operation.known is not None)

    def is_reduced(self, operation: Operation) -> bool:
        """Whether ranks have told each other of what it is computed of."""
        seen, pending = {operation}, [operation]
        while pending and len(seen) < CLOSE:
            one = pending.pop(0)
            if one.name in GRADIENTS or one.name.startswith(JOINED) and self.catalog.has(one.name, "collective"):
                return True
            fresh = {op for value in one.operands for op in held(value)} - seen
            seen |= fresh
            pending += sorted(fresh, key=lambda op: op.number)
        return False

    # what stands where

    def loops(self, region: Region) -> frozenset[ast.AST]:
        """The loops around a place, by any way that leads there."""
        return frozenset(each.node for each in region.loops)

    @cached_property
    def step_loops(self) -> frozenset[ast.AST]:
        """The innermost loops around steps, and those that go over the batches of a loader."""
        found = set[ast.AST]()
        for effect in self.program.of("backward"):
            around = [each for each in effect.operation.region.around() if each.kind == "loop"]
            found |= {each.node for each in around[:1]}
        for source in self.sources:
            loops = (each for each in walk(source.tree) if isinstance(each, ast.For))
            found |= {each for each in loops if self._gives_batches(self.program.at(each.iter))}
        return frozenset(found)

    def _gives_batches(self, value: Value, depth: int = 0) -> bool:
        """Whether a loop goes over a loader, or what counts or shows its batches."""
        if any("loader" in getattr(each, "roles", ()) for each in value.things):
            return True
        inner = [each.over for each in value.things if isinstance(each, Stream)]
        inner += [each.inputs[0] for each in value.things if "progress" in getattr(each, "roles", ()) and each.inputs]
        return depth < 4 and any(self._gives_batches(each, depth + 1) for each in inner)

    def wrappers(self) -> Iterator[Any]:
        """The objects that wrap a model for several ranks."""
        for effect in self.program.of("make"):
            if WRAPPERS & getattr(effect.operation.owner, "roles", frozenset()):
                yield effect.operation.owner

    def called(self, value: Value) -> Iterator[ast.AST]:
        """The functions of the project that a call of a value enters."""
        for each in value.things:
            function = each if isinstance(each, Function) else getattr(each, "function", None)
            if isinstance(function, Function):
                yield function.node
            cls = each if hasattr(each, "bases") else getattr(each, "cls", None) if hasattr(each, "roles") else None
            names = ("__init__",) if cls is each else ("__call__", "forward")
            for name in names if cls is not None else ():
                found = cls.find(name) if cls is not None else None
                yield from (one.node for one in found[1].things if isinstance(one, Function)) if found else ()
