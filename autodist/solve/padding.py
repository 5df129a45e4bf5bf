"""The padding of batches: what fills samples up to the longest of a rank's own, and where losses come to depend on how
far that is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from autodist import operations
from autodist.catalog import Catalog
from autodist.placement import Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.arguments import SHAPES, parts, sizes_of
from autodist.placement.filled import is_rest
from autodist.placement.padded import LISTED, propagate_padding
from autodist.placement.placements import Placements
from autodist.program import Operation, Program, Value, closure, held, joined
from autodist.solve.steps import given

FILLING = ("pad_sequence", "pad_packed_sequence", "to_padded_tensor")
"""Ends of the names of what fills samples up to the longest."""
TOLD = ("total_length", "output_size")
"""The arguments that tell such a function the length."""


def padding(program: Program, lying: Placements, fields: Iterable[Operation] = ()) -> Mapping[Operation, int]:
    """What fills samples up to the longest of a rank's own, and along which axis; ``fields`` are of batches of which it
    is known that they have been."""
    found = {op: axis for op in program.operations if (axis := _filled_along(op, lying)) is not None}
    for each in fields:
        above = closure([each], given)
        if not above & found.keys():
            found[each] = _beside_samples(lying.of.get(each))
    return found


def _beside_samples(placed: Placement | None) -> int:
    """The axis of the words, where the samples lie along one of the first two."""
    return 0 if isinstance(placed, Shard) and placed.axis == 1 else 1


def _filled_along(operation: Operation, lying: Placements) -> int | None:
    """Along which axis an operation has numbers for the places of a rank's longest sample."""
    placed = lying.of.get(operation)
    within = any(each.kind == "collate" for each in operation.region.around())
    if placed is None or placed == Replicate() and not within:
        return None
    if operation.name.endswith(FILLING) and not any(each in operation.keywords for each in TOLD):
        first = operation.argument("batch_first", 1)
        told = int(first is not None and first.constant is not False)
        return _beside_samples(placed) if isinstance(placed, Shard) else told
    if not within:
        return None  # a length that a script computes in a step is made that of all ranks
    known = operations.load().find(operation.name)
    if known is not None and known.cls == "fill" and isinstance(placed, Shard):
        sizes = [lying.value(each) for each in sizes_of(operation, known)]
        longest = [at for at, each in enumerate(sizes) if isinstance(each, Partial) and each.reduce == "max"]
        return longest[0] if longest else None
    if operation.name.endswith(LISTED):
        return 1 if any(map(is_rest, closure(operation.given, given))) else None
    pads = [parts(each.argument("pad", 1) or Value()) or [] for each in held(joined(operation.inputs[:1]))]
    if operation.name.endswith(".stack") and all(any(each.operations for each in amounts) for amounts in pads):
        behind = max((at // 2 for amounts in pads for at, each in enumerate(amounts) if each.operations), default=0)
        return max(len(lying.sizes.get(operation) or ()) - 1 - behind, 1) if pads else None
    return None


def lost_at(
    program: Program, sources: Mapping[Operation, int], ends: Iterable[Operation], catalog: Catalog
) -> Iterator[tuple[Operation, str]]:
    """The operations by which losses come to depend on how far samples are filled up, and why."""
    lying = propagate_padding(program, sources, operations.load(), catalog)

    def is_lost(operation: Operation) -> bool:
        return isinstance(lying.of.get(operation), PerRank) and operation.name not in SHAPES

    above = closure(filter(is_lost, ends), lambda op: filter(is_lost, given(op)))
    for each in sorted(above, key=lambda op: op.number):
        if not any(map(is_lost, given(each) - {each})):
            yield each, getattr(lying.of[each], "reason", "")
