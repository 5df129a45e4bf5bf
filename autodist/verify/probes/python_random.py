"""Python's own random functions where a training loop calls them.

As for tensors, every call takes one number of the generator, which seeds that call, so that what a loop over the rows
of a batch draws more often in the original than on a rank is seen, and held still.
"""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING, Any

from autodist.verify.probes.parts import rank_seed
from autodist.verify.probes.streams import key_seed

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext
    from autodist.verify.probes.draws import Draws

FUNCTIONS = (
    "random",
    "uniform",
    "randint",
    "randrange",
    "getrandbits",
    "choice",
    "choices",
    "sample",
    "shuffle",
    "gauss",
    "normalvariate",
    "betavariate",
    "expovariate",
    "triangular",
)
MOST_PER_STEP = 1000
"""Draws of a rank that are written down between two steps."""


class PythonRandomProbe:
    """Replaces the functions of ``random`` that draw from its global generator."""

    def __init__(self, context: ProbeContext, draws: Draws) -> None:
        self._context = context
        self._draws = draws
        self._step = -1
        self._noted = 0

    def install(self) -> None:
        """Scripts that import these functions get those that are steered."""
        for name in FUNCTIONS:
            self._patch(name)

    def _patch(self, name: str) -> None:
        plain = getattr(random, name)
        full_name = f"random.{name}"

        @functools.wraps(plain)
        def drawn(*args: Any, **kwargs: Any) -> Any:
            context = self._context
            if context.inside_sample or context.probing:
                return plain(*args, **kwargs)
            if self._draws.held(full_name) is not None:
                seed = key_seed("still", full_name, context.steps)
            elif context.batch_rows:
                seed = random.Random.getrandbits(random._inst, 60)
                seed = self._noted_seed(full_name, seed)
            else:
                return plain(*args, **kwargs)
            return getattr(random.Random(seed), name)(*args, **kwargs)

        setattr(random, name, drawn)

    def _noted_seed(self, name: str, seed: int) -> int:
        context = self._context
        if context.steps != self._step:
            self._step, self._noted = context.steps, 0
        self._noted += 1
        if self._noted <= MOST_PER_STEP or not context.distributed:
            return self._draws.single_seed(name, seed)
        return rank_seed(seed, context.plan.rank) if context.draws_apart() else seed
