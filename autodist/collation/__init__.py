"""What a `collate_fn` makes of a list of samples: tensors with one row for each of them, or not.

A rank collates its own samples. Where it joins what is in them (`torch.cat` of sentences), pads it to the longest
(`pad_sequence`) or leaves some out, the number of rows or of positions is the rank's own, and means over them weigh
the ranks unevenly. Read from the source: such functions are short, and say plainly what they do.
"""

from __future__ import annotations

from autodist.collation.batches import (
    OF_NODES,
    collate_fn,
    has_padding,
    is_listed,
    is_packed,
    marked,
    named,
    names,
    of_graphs,
    picked,
    uneven,
)
from autodist.collation.functions import called, declared, sole
from autodist.collation.kinds import Fields, Key, Kind, Rows, unevenness
from autodist.collation.reading import collated

__all__ = [
    "OF_NODES",
    "Fields",
    "Key",
    "Kind",
    "Rows",
    "called",
    "collate_fn",
    "collated",
    "declared",
    "has_padding",
    "is_listed",
    "is_packed",
    "marked",
    "named",
    "names",
    "of_graphs",
    "picked",
    "sole",
    "uneven",
    "unevenness",
]
