"""What a script does, as a graph: values, the operations that give them, regions of control flow, and effects.

`trace/` records it, once for a project; it knows Python and nothing of ranks. Passes over it (placement, solving) read
it and change nothing. Nothing here reads source.
"""

from autodist.program.graph import (
    BATCH,
    CHOSEN,
    DRAWN,
    FIELDS,
    FUNCTION,
    GRADIENT,
    HOOKED,
    SAMPLE,
    VIEWS,
    WORKER,
    Effect,
    Operation,
    Program,
    Region,
    closure,
    held,
)
from autodist.program.values import EMPTY, MANY, UNKNOWN, Value, constant, joined

__all__ = [
    "BATCH",
    "CHOSEN",
    "DRAWN",
    "EMPTY",
    "FIELDS",
    "FUNCTION",
    "GRADIENT",
    "HOOKED",
    "MANY",
    "SAMPLE",
    "UNKNOWN",
    "VIEWS",
    "WORKER",
    "Effect",
    "Operation",
    "Program",
    "Region",
    "Value",
    "closure",
    "constant",
    "held",
    "joined",
]
