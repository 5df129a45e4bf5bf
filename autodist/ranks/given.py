"""Which samples ranks are given, and what is counted of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from autodist.placement.between_ranks import ENVIRONMENT
from autodist.program import Operation, Value, held
from autodist.ranks.launched import ONE_MACHINE, comes_from
from autodist.ranks.reading import RANK_0, RANK_1, Ranks, contained
from autodist.rule import Severity
from autodist.script import Concern
from autodist.source import walk

DRAWS = frozenset(["random_draw", "index_draw"])
SPLIT_ELSEWHERE = ("split_dataset_by_node", "split_by_node", "StatefulDataLoader")


def loaders(ranks: Ranks) -> Iterator[Operation]:
    """The calls that make loaders."""
    for each in ranks.program.of("make"):
        if "loader" in getattr(each.operation.owner, "roles", ()):
            yield each.operation


def shuffled(ranks: Ranks) -> Iterator[Concern]:
    """Loaders that are given a sampler and are to shuffle."""
    for each in loaders(ranks):
        sampler, shuffle = each.argument("sampler", 3), each.argument("shuffle", 2)
        if "shuffle" not in [key.arg for key in getattr(each.node, "keywords", ())]:  # it may have been taken out
            continue
        if shuffle is None or shuffle.constant is not True or sampler is None or sampler.constants:
            continue
        message = (
            "shuffle=True beside a sampler: DataLoader raises ValueError; leave it out, and let the sampler shuffle "
            "(DistributedSampler does unless it is told not to)"
        )
        yield Concern("AD209", each.source, each.node, message, Severity.WARNING)


def by_local_rank(ranks: Ranks) -> Iterator[Concern]:
    """Shares of the data by the number on the machine: the same on each of several nodes."""
    texts = [source.text for source in ranks.sources]
    if ranks.spawns or any(each in text for text in texts for each in ONE_MACHINE):
        return
    on_nodes = any("LOCAL_WORLD_SIZE" in text for text in texts)
    for each in ranks.program.operations:
        sampler = "distributed_sampler" in getattr(each.owner, "roles", ()) and each.name.endswith(".__init__")
        given = each.argument("rank", 2) if sampler else None
        if given is None and on_nodes:
            continue
        if given is None and each.name in ("iterate", "range.index", "builtins.slice"):
            near = [op for part in each.operands for op in _near(part)]
            given = next((Value(frozenset([op])) for op in near if op.name in ENVIRONMENT and _is_local(op)), None)
            given = given if given is not None and any(map(ranks.counts, near)) else None
        if given is not None and comes_from(given, ranks, local=True):
            message = (
                "the share of the data is that of LOCAL_RANK, the number on the machine: ranks of two nodes go over "
                "the same share, and nobody over the rest; use the rank among all"
            )
            yield Concern("AD210", each.source, each.node, message, Severity.WARNING)
            return


def _is_local(operation: Operation) -> bool:
    return bool(operation.inputs) and operation.inputs[0].constant == "LOCAL_RANK"


def _near(value: Value) -> set[Operation]:
    """What a number is computed of."""
    pending, seen = list(value.operations), set[Operation]()
    while pending:
        each = pending.pop()
        if each not in seen:
            seen.add(each)
            plain = each.name.startswith(("operator.", "builtins.int", "builtins.slice"))
            pending += [op for part in each.operands for op in part.operations] if plain else []
    return seen


def streams(ranks: Ranks) -> Iterator[Concern]:
    """Streams of samples that all ranks read from beginning to end."""
    texts = [source.text for source in ranks.sources]
    if any(each in text for text in texts for each in SPLIT_ELSEWHERE):
        return
    passes = [op for each in ranks.program.of("backward") for part in each.operation.inputs for op in held(part)]
    trained = {each.owner for each in ranks.before(passes)}
    for each in loaders(ranks):
        if each.owner not in trained:
            continue
        data = each.argument("dataset", 0)
        for thing in data.things if data is not None else ():
            found = stream(thing)
            if found is not None and not _parts(found, ranks):
                message = (
                    f"{found.name} gives each rank the whole stream: nothing in it asks for the rank, and no sampler "
                    "shares out an IterableDataset; give each rank every so many samples, as itertools.islice does"
                )
                yield Concern("AD211", each.source, each.node, message, Severity.WARNING)
                return


def stream(thing: Any) -> ast.ClassDef | None:
    """The class of the project that a data set is, if that is read as a stream."""
    cls = getattr(thing, "cls", None)
    names = {getattr(each, "name", "") for each in cls.line()} if cls is not None and hasattr(cls, "line") else set()
    return cls.node if cls is not None and any(name.endswith("IterableDataset") for name in names) else None


def _parts(node: ast.ClassDef, ranks: Ranks) -> bool:
    """Whether what a stream gives hangs on the rank, or on chance, or cannot be told."""
    begins = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
    skipped = {part for each in begins for part in walk(each)}
    inside = [each for each in walk(node) if isinstance(each, ast.expr) and each not in skipped]
    for each in inside:
        value = ranks.program.at(each)
        if ranks.by_rank(value) or ranks.evaluated(value, RANK_0) != ranks.evaluated(value, RANK_1):
            return True
        if any(DRAWS & ranks.catalog.roles(op.name) for op in value.operations):
            return True
    known = [ranks.program.at(each) for each in inside if isinstance(each, ast.Call)]
    return not any(value.operations or value.things for value in known)


def counted(ranks: Ranks) -> Iterator[Concern]:
    """Sums over padded shares that are divided by the length of the data."""
    for each in ranks.program.operations:
        if each.name != "operator.truediv" or len(each.inputs) < 2:
            continue
        lengths = [op for op in each.inputs[1].operations if op.name in ("data.length", "builtins.len")]
        if len(lengths) != len(each.inputs[1].operations) or not lengths or each.inputs[1].constants:
            continue
        if not any(map(ranks.is_reduced, each.inputs[0].operations)):
            continue
        loader = next((op for op in lengths if _is_padded(op, ranks)), None)
        if loader is not None:
            message = (
                "the sum goes over the shares of a DistributedSampler, which gives some samples twice where they do "
                "not divide by the number of ranks, and is divided by how many data there are: divide by how many were "
                "seen, summed up as well, or give drop_last or whole data"
            )
            yield Concern("AD611", each.source, each.node, message, Severity.WARNING)


def _is_padded(length: Operation, ranks: Ranks) -> bool:
    """Whether a set is gone over by a sampler that fills shares up."""
    things = {thing for part in length.inputs[:1] for thing in part.things} | {
        op for part in length.inputs[:1] for op in part.operations
    }
    for each in loaders(ranks):
        data, sampler = each.argument("dataset", 0), each.argument("sampler", 3)
        if data is None or sampler is None:
            continue
        parts = [*contained(data)]
        if not things & {each for part in parts for each in (*part.things, *part.operations)}:
            continue
        for thing in sampler.things:
            drops = thing.argument("drop_last", 5) if hasattr(thing, "argument") else None
            order = thing.argument("shuffle", 3) if hasattr(thing, "argument") else None
            evaluates = order is not None and order.constant is False
            filled = evaluates and (drops is None or drops.constant is False)
            if "distributed_sampler" in getattr(thing, "roles", ()) and filled:
                return True
    return False
