"""The modules of a script: which of them train, and where each becomes a distributed one.

`trained.py` finds them, `wrapping.py` the place, `nameless.py` that of models without a name; `places.py` knows what a
place is. `moves.py` knows when they come to their device, `placing.py` brings
those that do so late. `parts.py` knows what modules consist of, `history.py` what the script does to them, and
`passes.py` patterns of forward passes that a wrapper does not follow. What is asked of the passes themselves (which
parameters a loss surely reads, what decides over that, what is changed in place), the program graph tells:
`solve/learned.py` and `solve/passes.py`.
"""

from __future__ import annotations

from autodist.models.behind import differentiated, modules_behind
from autodist.models.moves import Shuttles, moved_too_late, shuttles
from autodist.models.parts import (
    Key,
    Keys,
    holds_only_parameters,
    keys,
    loose_parameters,
    members,
    optimized_by,
    optimized_modules,
    owned_parameters,
    parts,
    unwrapped,
    whose_parameters,
)
from autodist.models.places import at, is_main_guard
from autodist.models.placing import placed_when_wrapped
from autodist.models.trained import UNSEEN, trained_models, unseen_beside, unseen_model
from autodist.models.wrapping import elsewhere, settled_at, wrap_plan

__all__ = [
    "UNSEEN",
    "Key",
    "Keys",
    "Shuttles",
    "at",
    "differentiated",
    "elsewhere",
    "holds_only_parameters",
    "is_main_guard",
    "keys",
    "loose_parameters",
    "members",
    "modules_behind",
    "moved_too_late",
    "optimized_by",
    "optimized_modules",
    "owned_parameters",
    "parts",
    "placed_when_wrapped",
    "settled_at",
    "shuttles",
    "trained_models",
    "unseen_beside",
    "unseen_model",
    "unwrapped",
    "whose_parameters",
    "wrap_plan",
]
