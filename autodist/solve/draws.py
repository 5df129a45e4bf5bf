"""What draws random numbers, from whose generator, and for what: samples as a loader reads them, its workers, a step.

The generator of a library is a state that all draws of a process share. What is drawn for the samples that a rank reads
should differ from rank to rank; what all ranks need must come from a generator that they have alike.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

from autodist.catalog import ANY_GENERATOR, RANDOM_ROLES, Catalog
from autodist.placement import Replicate, Shard
from autodist.placement.placements import Placements
from autodist.program import BATCH, FIELDS, SAMPLE, Operation, Program, Region, Value, closure, held
from autodist.solve.steps import given, steps_of
from autodist.source import Source, argument
from autodist.trace.objects import called_by
from autodist.trace.things import Object

OWN = frozenset(
    "seed RandomState default_rng Generator get_state set_state getstate setstate Random SystemRandom "
    "empty_like __init__".split()
)
"""What draws nothing, or makes a generator of its own."""
FILLING = frozenset("uniform_ normal_ random_ bernoulli_ exponential_ log_normal_ geometric_ cauchy_".split())
"""Methods of tensors that draw."""
SAMPLING = ("sample", "rsample")
"""Methods of torch's distributions that draw."""
SEEDING = ("seed", "any_seed")
TOLD = RANDOM_ROLES | {"random_transform", "dropout"}
"""What draws in a step by what it is called."""
SETTING = ("set_transform", "with_transform")
"""Methods by which a data set of a library is told what to run for each sample."""
INTERNAL = frozenset(
    "object function loader data range process builtins operator generator closure worker list module".split()
)
"""The beginnings of the names of operations that are those of no library that may draw."""
DATA = frozenset("loader sampler batch_sampler".split())
READING = ("read", "collate")
DECIDING = ("branch", "loop")


@dataclass(frozen=True)
class Draw:
    """An operation that draws from the generator of a library, or seeds it, or may: nothing is ``known`` of it."""

    library: str
    operation: Operation
    known: bool = True

    @property
    def source(self) -> Source:
        """Where it stands."""
        return self.operation.source

    @property
    def node(self) -> ast.AST:
        """The call that draws; where a library reads a sample, what makes the loader."""
        return self.operation.node


class Draws:
    """The draws of a program."""

    def __init__(self, program: Program, catalog: Catalog) -> None:
        self._program, self._catalog = program, catalog
        self._around: dict[Region, frozenset[Region]] = {}

    def per_sample(self, loader: ast.AST, stream: bool = False, placements: Placements | None = None) -> list[Draw]:
        """What the process of a loader that trains draws itself for the samples that a rank takes: nothing of what its
        workers draw, which torch seeds, nor, as ``placements`` tell, for a whole batch. From a ``stream``, all ranks
        read alike, and put together their own."""
        return self._of_samples(self.made_at(loader, _may_read_itself), stream, placements)

    def by_workers(self, loader: ast.AST, stream: bool = False, placements: Placements | None = None) -> list[Draw]:
        """What the workers of a loader draw for each sample: torch seeds them from that of the main process."""
        return self._of_samples(self.made_at(loader, lambda each: not _reads_itself(each)), stream, placements)

    def per_batch(self, loader: ast.AST, placements: Placements) -> list[tuple[Draw, bool]]:
        """What its `collate_fn` draws once for a whole batch, and whether its process may do so itself."""
        itself = bool(self.made_at(loader, _may_read_itself))
        run = self._run_by(self.made_at(loader), READING[1:])
        found = {each.node: each for op in run if is_for_a_batch(op, placements) for each in self.drawn(op)}
        return [(each, itself) for each in found.values() if each.known]

    def collating(self, loader: ast.AST) -> list[Draw]:
        """What its `collate_fn` draws."""
        return self._of_samples(self.made_at(loader), stream=True)

    def seeding(self, loader: ast.AST, training: bool = True) -> list[Draw]:
        """The calls by which a loader's process seeds the generators of libraries for single samples,
        `np.random.seed(index)`."""
        read = self._run_by(self.made_at(loader, _reads_itself, training), ("read",))
        return [each for operation in read for each in self.seeds(operation)]

    def of_libraries(self, operation: Operation) -> list[Draw]:
        """What a function or layer of a library draws that no name tells of: from torch, if nothing is known of it."""
        names = [each for each in self._names(operation) if TOLD.isdisjoint(self._catalog.roles(each))]
        return [each for each in self._named(names, operation) if each.known or each.library == "torch"]

    def in_steps(self, placements: Placements) -> Iterator[Draw]:
        """What libraries draw for a rank's samples, before a model sees them or inside of it: `augment(images)`,
        `drop_path(x, 0.1)`. What is made of outputs of a model is a loss or a metric."""
        for operation in self._program.operations:
            rows = [each for value in operation.operands for each in value.operations]
            rows = [each for each in rows if isinstance(lying := placements.of.get(each), Shard) and not lying.axis]
            drawn = self.of_libraries(operation) if rows and isinstance(operation.node, ast.Call) else []
            if drawn and (_is_in_forward(operation.region) or not all(map(self._is_output, rows))):
                yield from drawn

    # loaders

    def reading(self, loader: ast.AST, stream: bool = False, training: bool = True) -> list[Operation]:
        """What is done while the samples of a loader are read and put together."""
        return self._run_by(self.made_at(loader, training=training), READING[stream:])

    def is_met_by_all(self, node: ast.AST, placements: Placements) -> bool:
        """Whether all ranks come to a call, equally often: no condition or loop around it goes by a rank's samples, and
        no library calls the function that it stands in."""
        operations = self._program.made_at.get(node, ())
        around = {region for each in operations for region in self.around(each.region)}
        told = (value for each in around if each.kind in DECIDING for value in self.told(each))
        alike = (placements.value(each) in (None, Replicate()) for each in told)
        called = any(each.kind == "call" and each.node in self._by_libraries or reads_samples(each) for each in around)
        return bool(operations) and not called and placements.sample_loops.isdisjoint(around) and all(alike)

    @cached_property
    def _by_libraries(self) -> frozenset[ast.AST]:
        """Where libraries call functions of the script."""
        return frozenset(each.node for each in self._program.operations if each.name == "callback")

    def told(self, region: Region) -> Iterator[Value]:
        """What says whether, or how often, a branch or loop is run: `range(n)` goes by its bounds."""
        yield region.subject
        if isinstance(region.node, ast.While):
            yield self._program.at(region.node.test)
        for each in held(region.subject):
            yield from each.operands if each.name == "range.index" else ()

    def is_read(self, node: ast.AST) -> bool:
        """Whether a call is made for single samples that loaders read, or as their workers begin, and nowhere else."""
        return self._read_at.get(node, False)

    @cached_property
    def _read_at(self) -> Mapping[ast.AST, bool]:
        within = {each: each.is_within(reads_samples) for each in {op.region for op in self._program.operations}}
        found: dict[ast.AST, bool] = {}
        for each in self._program.operations:
            found[each.node] = found.get(each.node, True) and within[each.region]
        return found

    def beginning(self, loader: ast.AST) -> list[Operation]:
        """What is done as the workers of a loader begin."""
        return self._run_by(self.made_at(loader), ("worker",))

    @cached_property
    def _training(self) -> frozenset[Any]:
        """The loaders whose batches gradients are computed from."""
        reaching = steps_of(self._program).reaching
        return frozenset(each.owner for each in reaching if each.name in (BATCH, FIELDS, SAMPLE))

    @cached_property
    def _reads(self) -> Mapping[Any, Mapping[str, list[Operation]]]:
        """What loaders run to read a sample, to put samples together, and as a worker begins."""
        found: dict[Any, dict[str, list[Operation]]] = {}
        for operation in self._program.operations:
            for region in self.around(operation.region):
                for loader in region.subject.things if region.kind in (*READING, "worker") else ():
                    found.setdefault(loader, {}).setdefault(region.kind, []).append(operation)
        return found

    def around(self, region: Region) -> frozenset[Region]:
        """A region and those around it, whichever way leads there."""
        if region not in self._around:
            self._around[region] = region.everywhere
        return self._around[region]

    def made_at(self, node: ast.AST, which: Any = lambda each: True, training: bool = True) -> list[Object]:
        """The loaders that are made by a call: those that train, or do not, if there are such."""
        made = [each for each in self._reads if each.node is node]
        made = [each for each in made if (each in self._training) is training] or made
        return [each for each in made if which(each)]

    def _run_by(self, loaders: Iterable[Object], kinds: Iterable[str]) -> list[Operation]:
        found = {op: None for each in loaders for kind in kinds for op in self._reads[each].get(kind, ())}
        return sorted(found, key=lambda each: each.number)

    def _of_samples(self, loaders: list[Object], stream: bool, placements: Placements | None = None) -> list[Draw]:
        """What is drawn for the samples of some loaders, each call once."""
        run = self._run_by(loaders, READING[stream:])
        run = [each for each in run if placements is None or not is_for_a_batch(each, placements)]
        run += self._set_later if loaders and not stream else []
        seeds = [each for operation in run for each in self.seeds(operation)]
        found: dict[tuple[str, ast.AST], Draw] = {}
        for each in (drawn for operation in run for drawn in self.drawn(operation)):
            if not any(_is_seeded_by(each, seed) for seed in seeds):
                found.setdefault((each.library, each.node), each)
        return list(found.values())

    @cached_property
    def _set_later(self) -> list[Operation]:
        """What a data set of a library is told to run for each sample: `train_set.set_transform(augment)`."""
        calls = [r for each in self._program.calls for r in each.around() if _sets_transform(r.node)]
        return [each for each in self._program.operations if calls and not self.around(each.region).isdisjoint(calls)]

    # operations

    def seeds(self, operation: Operation) -> list[Draw]:
        """The generator of a library that an operation seeds by what it is given."""
        seeds = any(self._catalog.has(operation.name, role) for role in SEEDING) and any(operation.operands)
        return [Draw(operation.name.partition(".")[0], operation)] if seeds else []

    def drawn(self, operation: Operation) -> list[Draw]:
        """What an operation draws from the generators of libraries."""
        short = operation.name.rpartition(".")[2]
        own = operation.keywords.get("generator", Value())
        if own.operations or own.things or short in OWN:
            return []
        roles = self._catalog.roles(operation.name)
        if RANDOM_ROLES & roles or "dropout" in roles and _drops(operation):
            return [Draw(operation.name.partition(".")[0], operation)]
        if operation.name.startswith("torch.Tensor."):
            return [Draw("torch", operation)] if short in FILLING else []
        if operation.name.startswith("torch.distributions."):
            return [Draw("torch", operation)] if short in SAMPLING else []
        return self._named(self._names(operation), operation)

    def _names(self, operation: Operation) -> list[str]:
        """The names of libraries by which an operation is known, and of objects of libraries that it may call."""
        if isinstance(operation.owner, Object) and operation.owner.cls is None:
            return [each.name for each in _held(operation.owner)]
        told = operation.name in ("sample", "call")  # of what a library has made: `make_dataset("train")`
        made = operation.inputs[0].operations if told and operation.inputs else ()
        names = [*(each.name for each in made if not each.is_tensor), operation.name]
        return [each for each in names if "." in each and each.partition(".")[0] not in INTERNAL]

    def _named(self, names: Iterable[str], operation: Operation) -> list[Draw]:
        return [
            Draw(library, operation, drawn != ANY_GENERATOR)
            for drawn in map(self._catalog.draws, names)
            for library in sorted(drawn)
        ]

    def _is_output(self, operation: Operation) -> bool:
        """Whether it is computed of what a model gives."""
        return any("module" in getattr(each.owner, "roles", ()) for each in closure([operation], given))


def _drops(operation: Operation) -> bool:
    """Whether it drops numbers out: `F.dropout(x, training=False)` does not, nor does a layer that is being made."""
    training = operation.argument("training", 2)
    return not operation.name.endswith("__init__") and (training is None or training.constant is not False)


def _held(owner: Object) -> Iterator[Object]:
    """An object of a library and those of libraries that it holds: data sets, transforms, collators."""
    pending, seen = [owner], {owner}
    while pending:
        one = pending.pop()
        if one.cls is not None or one.roles & DATA or "generator" in one.roles:
            continue
        yield one
        kept = [thing for value in one.contents() for thing in value.things]
        fresh = [
            each
            for each in (*called_by([*one.inputs, *one.keywords.values()]), *kept)
            if isinstance(each, Object) and each not in seen
        ]
        if not one.name.endswith("TensorDataset"):
            seen.update(fresh)
            pending += fresh


def _reads_itself(loader: Object) -> bool:
    told = loader.argument("num_workers", 5)
    return told is None or told.constant == 0


def _may_read_itself(loader: Object) -> bool:
    """Whether an option may say that it has no workers, whatever the default is."""
    written = argument(loader.node, "num_workers", 5) if isinstance(loader.node, ast.Call) else None
    fixed = isinstance(written, ast.Constant) or written is None and "**" not in loader.keywords
    return _reads_itself(loader) or not fixed


def _is_seeded_by(draw: Draw, seed: Draw) -> bool:
    """Whether a generator is seeded ahead of a draw for the same sample, whatever a condition says."""
    inside = seed.operation.region in draw.operation.region.around() and seed.operation.region.kind == "call"
    return inside and draw.library == seed.library


def _is_in_forward(region: Region) -> bool:
    return any(getattr(each.function, "name", "") == "forward" for each in region.around())


def is_for_a_batch(operation: Operation, placements: Placements) -> bool:
    """Whether a `collate_fn` computes it once for a batch, of what all ranks have: `random.random()`, outside of loops
    over its samples."""
    within = [*takewhile(lambda each: each.kind != "collate", operation.region.around())]
    told = [*operation.operands, *(each.subject for each in within if each.kind == "loop")]
    alike = (placements.joint(held(each)) in (None, Replicate()) for each in told)
    collated = len(within) < len([*operation.region.around()])
    return collated and placements.of.get(operation) == Replicate() and all(alike)


def reads_samples(region: Region) -> bool:
    """Whether a loader runs it for a sample, or as a worker begins."""
    return region.kind in (*READING, "worker") or _sets_transform(region.node)


def _sets_transform(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SETTING
