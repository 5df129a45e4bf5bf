"""Where values that differ by rank reach the outside: printed, logged, saved, or decided upon.

Each is traced back to the smallest expression whose global value follows from the ranks' values. `escapes` finds them
(`finding.py`): `exposure.py` says what an event hands to the outside, `keeping.py` what a step hands to the next ones,
and `resolving.py` traces it back. `placed` (`placing.py`) says where each is made global.
"""

from __future__ import annotations

from autodist.escapes.finding import SINKS, escapes
from autodist.escapes.origins import fed_to_losses, learnt_from, roots
from autodist.escapes.placing import Placed, distinguishing, given_instead, placed, summed_up_before, upstream

__all__ = [
    "SINKS",
    "Placed",
    "distinguishing",
    "escapes",
    "fed_to_losses",
    "given_instead",
    "learnt_from",
    "placed",
    "roots",
    "summed_up_before",
    "upstream",
]
