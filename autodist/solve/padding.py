"""The padding of batches: what fills samples up to the longest of a rank's own, and where losses come to depend on how
far that is."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

from autodist.catalog import Catalog
from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.arguments import SHAPES, TYPES, is_set, keys_of, option, parts, sizes_of
from autodist.placement.filled import is_rest
from autodist.placement.padded import LISTED, propagate_padding
from autodist.placement.placements import Placements
from autodist.program import Operation, Program, Value, closure, held, joined
from autodist.solve.steps import given
from autodist.source import all_of

FILLING = ("pad_sequence", "pad_packed_sequence", "to_padded_tensor")
"""Ends of the names of what fills samples up to the longest."""
GROWING = (".append", ".extend", ".insert")
"""Ends of the names of what adds to a sample that is a list."""
RESTS = ("zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "pad")
"""Ends of the names of what samples are filled up with."""
CUT = "builtins.slice"
"""The name of what tells where samples are cut."""
TOLD = ("total_length", "output_size")
"""The arguments that tell such a function the length."""


def padding(program: Program, lying: Placements) -> Mapping[Operation, int]:
    """What fills samples up to the longest of a rank's own, and along which axis."""
    return {op: axis for op in program.operations if (axis := _filled_along(op, program, lying)) is not None}


def _beside_samples(placed: Placement | None) -> int:
    """The axis of the words, where the samples lie along one of the first two."""
    return 0 if isinstance(placed, Shard) and placed.axis == 1 else 1


def _filled_along(operation: Operation, program: Program, lying: Placements) -> int | None:
    """Along which axis an operation has numbers for the places of a rank's longest sample."""
    placed = lying.of.get(operation)
    within = any(each.kind == "collate" for each in operation.region.around())
    if placed is None or placed == Replicate() and not within:
        return None
    if operation.name.endswith(FILLING) and not any(each in operation.keywords for each in TOLD):
        first = operation.argument("batch_first", 1)
        told = int(first is not None and first.constant is not False)
        return _beside_samples(placed) if isinstance(placed, Shard) else told
    known = operation.known
    typed = operation.name.endswith(TYPES)  # `torch.LongTensor(len(rows), longest)`
    if isinstance(placed, Shard) and (typed or known is not None and known.cls == "fill"):
        sizes = [*operation.inputs] if typed or known is None else sizes_of(operation, known)
        own = [at for at, each in enumerate(sizes) if at != placed.axis and _is_told_by_own(each, within, lying)]
        if own or not typed:
            return own[0] if own else None
    if operation.name.endswith((*LISTED, *TYPES)):
        above = closure(operation.given, given)
        filled = within or any(_is_longest(lying.of.get(each)) for each in above)
        return 1 if filled and any(map(is_rest, above)) or _are_grown(above, program, lying) else None
    if operation.name == "getitem" and isinstance(placed, Shard):  # `out[:, :longest]`
        cuts = [each.operation for each in keys_of(operation.inputs[1])] if operation.inputs[1:] else []
        own = [at for at, each in enumerate(cuts) if each is not None and _cuts_at_longest(each, lying)]
        return own[0] if own else None
    return _stacked_along(operation, lying) if operation.name.endswith(".stack") else None


def _cuts_at_longest(cut: Operation, lying: Placements) -> bool:
    begins = cut.name == CUT and cut.inputs[0].constant in (None, 0)
    return begins and any(_longest_in(cut.inputs[1], lying))


def _stacked_along(operation: Operation, lying: Placements) -> int | None:
    """The same of samples that are filled up one by one, and put together: `torch.stack([F.pad(row, (0, longest -
    len(row))) for row in rows])`"""
    rows = [*held(joined(operation.inputs[:1]))]
    rests = [op for op in closure(rows, given) if op.name.endswith(RESTS)]
    told = closure((op for each in rests for value in each.operands for op in held(value)), given)
    within = any(each.kind == "collate" for each in operation.region.around())
    if not within and not any(_is_longest(lying.of.get(each)) for each in told):
        return None
    pads = [parts(each.argument("pad", 1) or Value()) or [] for each in rows]
    if pads and all(any(each.operations for each in amounts) for amounts in pads):
        behind = max((at // 2 for amounts in pads for at, each in enumerate(amounts) if each.operations), default=0)
        return max(len(lying.sizes.get(operation) or ()) - 1 - behind, 1)
    return 1 if any(_is_longest(lying.of.get(each)) for each in told) else None


def lengths(
    program: Program, lying: Placements, ends: Iterable[Operation], catalog: Catalog
) -> Iterator[tuple[Operation, ast.expr]]:
    """What tells a step how far to fill up or cut its samples, the longest of a rank's own, where losses depend on it;
    and what is made or cut by it."""
    sources = padding(program, lying)
    lost = [each for each, _ in lost_at(program, sources, ends, catalog)] if sources else []
    loading = ("read", "collate", "worker")
    for each in sorted(closure(lost, given), key=lambda op: op.number):
        inside = any(region.kind in loading for region in each.region.around())
        if inside or not each.name.endswith((CUT, *RESTS)) or not isinstance(each.node, ast.AST):
            continue
        told = [part for part in all_of(each.node, ast.expr) if _is_longest(lying.value(program.at(part)))]
        yield from ((each, part) for part in told if each.source.parents.get(part) not in told)
        numbers = (value for value in each.operands if lying.size(value) == () and not told)
        for op in (op for value in numbers for op in _longest_in(value, lying)):
            users = sorted(program.users[op], key=lambda user: user.number)
            yield from ((user, op.node) for user in users[:1] if isinstance(op.node, ast.expr))


def _is_told_by_own(size: Value, within: bool, lying: Placements) -> bool:
    """Whether a size is one that a rank's own samples tell; in a step, by the longest of them."""
    return _is_own(lying.value(size)) if within else any(_longest_in(size, lying))


def _longest_in(size: Value, lying: Placements) -> Iterator[Operation]:
    """What a size is computed of that is the largest or smallest of a rank's own samples: `y.max() % 3`"""

    def made_of(operation: Operation) -> Iterable[Operation]:
        settled = lying.of.get(operation) == Replicate() or _is_longest(lying.of.get(operation))
        return () if settled else given(operation)

    return (op for op in closure(size.operations, made_of) if _is_longest(lying.of.get(op)))


def _is_longest(size: Placement | None) -> bool:
    """Whether a length is the largest or smallest of those of a rank's own samples."""
    return isinstance(size, Partial) and size.reduce in ("max", "min")


def _is_own(size: Placement | None) -> bool:
    """Whether a length is one that a rank's own samples tell, which are not counted by it."""
    return isinstance(size, (Each, PerRank)) or isinstance(size, Partial) and size.reduce != "sum"


def _are_grown(samples: Iterable[Operation], program: Program, lying: Placements) -> bool:
    """Whether samples have been added to as often as a rank's longest one tells: `while len(row) < longest:
    row.append(0)`"""
    grown = [user for each in samples for user in program.users[each] if user.name.endswith(GROWING)]
    loops = [each for user in grown for each in user.region.around() if each.kind in ("loop", "branch")]
    told = closure((op for each in loops for op in held(each.subject)), given)
    return any(_is_own(lying.of.get(op)) and not op.name.endswith(GROWING) for op in told)


def lost_at(
    program: Program, sources: Mapping[Operation, int], ends: Iterable[Operation], catalog: Catalog
) -> Iterator[tuple[Operation, str]]:
    """The operations by which losses come to depend on how far samples are filled up, and why."""
    lying = propagate_padding(program, sources, catalog)

    def is_lost(operation: Operation) -> bool:
        return isinstance(lying.of.get(operation), PerRank) and operation.name not in SHAPES

    above = closure(filter(is_lost, ends), lambda op: filter(is_lost, given(op)))
    for each in sorted(above, key=lambda op: op.number):
        if not any(map(is_lost, given(each) - {each})) and not _leaves_out_cuts(each, sources):
            yield each, getattr(lying.of[each], "reason", "")


def _leaves_out_cuts(loss: Operation, sources: Mapping[Operation, int]) -> bool:
    """Whether a loss that leaves labels out is only given samples that are cut to a length: what is cut off of these
    is left out in any case."""
    known = loss.known
    told = known is not None and is_set(option(loss, known, "ignore_index"))
    return told and all(each.name == "getitem" for each in closure([loss], given) & sources.keys())
