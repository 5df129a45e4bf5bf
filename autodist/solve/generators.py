"""Generators of a script's own from which samples are drawn, and what seeds workers: both begin alike on all ranks."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from autodist.placement.placements import Placements
from autodist.program import Operation, Program, Region, Value, closure
from autodist.program.values import ANY_CONSTANT
from autodist.solve.draws import Draws, is_for_a_batch, reads_samples
from autodist.solve.steps import given
from autodist.source import Source, all_of, argument, last_name, walk
from autodist.trace.things import Object

MAKING = (
    "numpy.random.Generator",
    "numpy.random.RandomState",
    "numpy.random.default_rng",
    "random.Random",
    "torch.Generator",
)
ASKED = frozenset("manual_seed initial_seed get_state set_state device bit_generator spawn getstate setstate".split())
"""Methods of generators that draw nothing."""
SIMPLE = (ast.Constant, ast.Name, ast.Attribute, ast.BinOp, ast.Add, ast.expr_context)
"""What a seed is made of that can be said once more."""
PICKING = ("getitem", "iterate")
NO_NUMBERS = tuple(f"numpy.random.{each}" for each in ("SeedSequence", "PCG64", "Philox", "MT19937", "SFC64"))
"""What generators are made with that is no number."""
APART = frozenset(
    "initial_seed get_worker_info get_state get_rng_state getstate get_rank randint random_ urandom randbits "
    "SeedSequence local_rank global_rank rank".split()
)
"""What differs by rank: generators as torch has seeded them in a worker, what is drawn from them, and the rank."""


@dataclass(frozen=True)
class Kept:
    """A generator that an object keeps as ``name``, and can begin anew behind the ``last`` statement of its constructor
    by a ``seed``; that of torch knows its own."""

    made: ast.Call
    source: Source
    name: ast.expr
    last: ast.stmt
    seed: ast.expr | None


class Generators:
    """What is drawn from generators that the script makes, beside those of libraries."""

    def __init__(self, program: Program, draws: Draws) -> None:
        self._program, self._draws = program, draws

    def of_samples(self, loaders: Iterable[ast.AST], placements: Placements | None = None) -> list[Object]:
        """The generators from which the samples of some loaders are drawn, and nothing else: as ``placements`` tell,
        nothing for whole batches."""
        nodes = [*loaders]
        read = {each for loader in nodes for each in self._draws.reading(loader)}
        ours = {each for loader in nodes for each in self._draws.made_at(loader)}
        found = {each: None for op in self._in_order(read) for each in _asked(op) if "generator" in each.roles}
        made = {each.owner for each in read if _short(each) == "__init__"} | self._of_batches(read, placements)
        alone = (each for each in found if each not in made and not any(self._elsewhere(each, ours)))
        return [e for e in alone if self._is_made_there(e) and all(map(_may_be_number, self._seeds_of(e)))]

    @staticmethod
    def _of_batches(read: Iterable[Operation], placements: Placements | None) -> set[Object]:
        """The generators from which a `collate_fn` draws for a whole batch, which are to begin alike."""
        told = (each for each in read if placements is not None and is_for_a_batch(each, placements))
        return {each for operation in told for each in _asked(operation)}

    def _is_made_there(self, generator: Object) -> bool:
        """Whether a call makes it itself, and no other function that is given the class: `map(random.Random, seeds)`"""
        called = generator.node.func if isinstance(generator.node, ast.Call) else generator.node
        return generator.name in self._program.at(called).functions

    def are_several(self, generator: Object) -> bool:
        """Whether one call makes several, each by a seed of its own: `[random.Random(k) for k in range(4)]`"""
        made = (each for each in self._program.made_at.get(generator.node, ()) if _short(each) == "__init__")
        looped = any(each.region.loops for each in made)
        return looped and not all(each.is_constant for each in self._seeds_of(generator))

    def _seeds_of(self, generator: Object) -> list[Value]:
        """What generators are made with at a place."""
        made = (each for each in self._program.made_at.get(generator.node, ()) if _short(each) == "__init__")
        return [seed for each in made for seed in (*each.inputs[:1], *each.keywords.values())]

    def kept(
        self,
        loaders: Sequence[tuple[ast.AST, bool]],
        settled: Collection[ast.AST],
        placements: Placements | None = None,
    ) -> tuple[list[Kept], list[tuple[Source, ast.AST]]]:
        """The generators from which samples of some loaders (some are streams) are drawn, besides those that are
        ``settled``: such as can begin anew once their object has drawn all else, and the others."""
        read = {each for loader, stream in loaders for each in self._draws.reading(loader, stream)}
        ours = {each for loader, _ in loaders for each in self._draws.made_at(loader)}
        again: dict[ast.AST, Kept] = {}
        left: dict[ast.AST, Source] = {}
        once = self._of_batches(read, placements)
        for operation in self._in_order(read):
            if placements is not None and is_for_a_batch(operation, placements):
                continue
            drawn = _asked(operation)
            told = operation.keywords.get("generator", Value())
            if not drawn and told.operations and self._makes_generators:
                left[operation.node] = operation.source
            for each in drawn:
                if each.node in settled or self._is_begun_for_a_sample(each, read):
                    continue
                numbered = all(map(_may_be_number, self._seeds_of(each)))
                begun = _begun_anew(each, self._elsewhere(each, ours)) if numbered and each not in once else None
                if begun is not None:
                    again[each.node] = begun
                elif each.source is not None:
                    left[each.node] = each.source
        return [*again.values()], [(source, node) for node, source in left.items() if node not in again]

    def seeds_of_workers(self, loaders: Iterable[ast.AST]) -> list[tuple[Source, ast.expr]]:
        """The numbers by which a `worker_init_fn` seeds workers of some loaders, where all ranks have the same."""
        found: dict[ast.expr, Source] = {}
        for operation in (each for loader in loaders for each in self._draws.beginning(loader)):
            told = operation.argument("seed", 0) if self._draws.seeds(operation) else None
            if told is None or any(map(_is_apart, closure(told.operations, given))):
                continue
            written = argument(operation.node, "seed", 0) if isinstance(operation.node, ast.Call) else None
            if written is not None and not isinstance(written, ast.Starred):
                source, written = _as_the_worker_says(operation.source, written, operation.region)
                found[written] = source
        return [(source, written) for written, source in found.items()]

    def one_by_one(self, placements: Placements) -> list[Operation]:
        """What is drawn in steps for one of a rank's samples after the other: from a generator that is not seeded for
        each of them."""
        loops = placements.sample_loops
        inside = [each for each in self._program.operations if not loops.isdisjoint(each.region.loops)]
        anew = {each.owner for each in inside if _short(each) in ("__init__", "manual_seed", "seed")}
        return [each for each in inside if any(one not in anew for one in _asked(each))]

    @property
    def _makes_generators(self) -> bool:
        return any(each.name.endswith(".Generator.__init__") for each in self._program.operations)

    def _in_order(self, operations: Iterable[Operation]) -> list[Operation]:
        return sorted(operations, key=lambda each: each.number)

    def _elsewhere(self, generator: Object, ours: set[Object]) -> list[Operation]:
        """What draws from the generators that are made at a place, or is given one, and not for samples of loaders of
        ``ours`` alone."""

        def reads(region: Region) -> bool:
            return reads_samples(region) and region.subject.things <= ours

        used = (each for each in self._program.operations if any(one.node is generator.node for one in _asked(each)))
        return [each for each in used if not each.region.is_within(reads)]

    def _is_begun_for_a_sample(self, generator: Object, read: set[Operation]) -> bool:
        """Whether it is made for each sample, or seeded by a number of it: `np.random.default_rng(index)`"""
        own = [each for each in read if each.owner is generator and _short(each) in ("__init__", "manual_seed", "seed")]
        made = generator.source.statement(generator.node) if generator.source and own else None
        stays = isinstance(made, ast.Assign) and any(isinstance(each, ast.Attribute) for each in made.targets)
        stays = stays or generator.source is not None and _is_cached(generator.source.function(generator.node))
        return bool(own) and (not stays or any(value.operations for each in own for value in each.operands))


def _is_cached(function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> bool:
    """Whether what a function has made once stays: `@functools.cached_property`"""
    decorators = [each for made in function.decorator_list for each in walk(made)] if function is not None else []
    return any(last_name(each) in ("cached_property", "cache", "lru_cache") for each in decorators)


def _may_be_number(seed: Value) -> bool:
    """Whether the rank can be added to a seed: not to a list, nor to what SeedSequences give."""
    above = closure(seed.operations, lambda op: given(op) if op.name in PICKING else ())
    numbers = all(issubclass(each[0], (int, float)) or each == ANY_CONSTANT for each in seed.constants)
    return numbers and not seed.things and not any(each.name.startswith(NO_NUMBERS) for each in above)


def _short(operation: Operation) -> str:
    return operation.name.rpartition(".")[2]


def _asked(operation: Operation) -> list[Object]:
    """The generators that an operation draws from, or is given."""
    if _short(operation) in (*ASKED, "__init__"):
        return []
    given = [thing for value in operation.operands for thing in value.things]
    given += [operation.owner, *(op.owner for value in operation.operands for op in value.operations if _seeds(op))]
    found = (each for each in given if isinstance(each, Object) and each.cls is None)
    return list(dict.fromkeys(each for each in found if each.name in MAKING))


def _seeds(operation: Operation) -> bool:
    """`torch.Generator().manual_seed(3)`, which gives the generator."""
    return operation.name == "torch.Generator.manual_seed"


def _is_apart(operation: Operation) -> bool:
    """Whether ranks have something else there."""
    told = [each.constant for each in operation.operands if operation.name.startswith("os.environ")]
    return _short(operation) in APART or any(isinstance(each, str) and "RANK" in each for each in told)


def _as_the_worker_says(source: Source, written: ast.expr, region: Region) -> tuple[Source, ast.expr]:
    """What a function is given by whose parameter it seeds, in the function that the loader calls."""
    calls = [each for each in region.around() if each.function is not None and each.kind in ("call", "with")]
    within = next((at for at, each in enumerate(calls) if each.parent and each.parent.kind == "worker"), 0)
    for call in calls[:within]:
        spec = getattr(call.function, "args", None)
        places = [each.arg for each in (*spec.posonlyargs, *spec.args)] if isinstance(spec, ast.arguments) else []
        names = [each.id for each in all_of(written, ast.Name) if each.id in places]
        told = (
            argument(call.node, names[0], places.index(names[0])) if names and isinstance(call.node, ast.Call) else None
        )
        if told is None:
            break
        source, written = call.source, told
    return source, written


def _begun_anew(generator: Object, elsewhere: Iterable[Operation]) -> Kept | None:
    """How a generator begins anew at the end of the constructor that makes it, where nothing is drawn from it
    ``elsewhere`` but there."""
    source, made = generator.source, generator.node
    if source is None or not isinstance(made, ast.Call):
        return None
    method, statement = source.function(made), source.statement(made)
    if not isinstance(method, ast.FunctionDef) or method.name != "__init__" or statement not in method.body:
        return None
    if not isinstance(statement, ast.Assign) or len(statement.targets) > 1 or any(all_of(method, ast.Return)):
        return None
    if not _is_kept_itself(source, made, statement):
        return None
    (name,), seed = statement.targets, None
    if generator.name != "torch.Generator":
        seed = next((each for key in ("seed", "x") if (each := argument(made, key, 0)) is not None), None)
        if statement.value is not made or not _is_there_later(seed, method):
            return None
    within = all(each.region.is_within(lambda region: region.function is method) for each in elsewhere)
    return Kept(made, source, name, method.body[-1], seed) if within and isinstance(name, ast.Attribute) else None


def _is_kept_itself(source: Source, made: ast.Call, statement: ast.Assign) -> bool:
    """Whether a statement keeps the generator that it makes, and no list of such: `self.g = torch.Generator()`"""
    inner: ast.AST = made
    while inner is not statement.value:
        around = source.parents[inner]
        if not isinstance(around, ast.Attribute) and not (isinstance(around, ast.Call) and around.func is inner):
            return False
        inner = around
    return True


def _is_there_later(seed: ast.expr | None, method: ast.FunctionDef) -> bool:
    """Whether a seed is the same at the end of a constructor."""
    if seed is None or not all(isinstance(each, SIMPLE) for each in walk(seed)):
        return False
    stored = {n.id for n in walk(method) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    constants = all(isinstance(each.value, int) for each in all_of(seed, ast.Constant))
    return constants and stored.isdisjoint(n.id for n in all_of(seed, ast.Name))
