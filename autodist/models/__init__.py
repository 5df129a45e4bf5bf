"""The modules of a script: which of them train (`trained.py`), and where each becomes a distributed one.

What stands in the way is asked of their forward passes: parts that some steps leave out (`unused.py`), tensors that
are changed in place (`inplace.py`) and those of no axes (`scalars.py`).
"""

from __future__ import annotations

from autodist.models.trained import (
    UNSEEN,
    Key,
    Keys,
    at,
    is_main_guard,
    keys,
    loose_parameters,
    members,
    normalises,
    optimized_by,
    owned_values,
    parts,
    settled_at,
    trained_models,
    unseen_model,
    unwrapped,
    whose_parameters,
    wrap_plan,
)

__all__ = [
    "UNSEEN",
    "Key",
    "Keys",
    "at",
    "is_main_guard",
    "keys",
    "loose_parameters",
    "members",
    "normalises",
    "optimized_by",
    "owned_values",
    "parts",
    "settled_at",
    "trained_models",
    "unseen_model",
    "unwrapped",
    "whose_parameters",
    "wrap_plan",
]
