"""Seeds that scripts set themselves."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from autodist.verify.probes.draws import Draws

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext


class SeedingProbe:
    """Watches the functions that seed a library."""

    def __init__(self, context: ProbeContext, draws: Draws) -> None:
        self._context = context
        self._draws = draws

    def install(self) -> None:
        """Patch those of torch, Python and, where it is in use, NumPy."""
        streams = self._context.streams
        owners: list[tuple[Any, str, str]] = [(torch, "manual_seed", "torch"), (torch.random, "manual_seed", "torch")]
        owners += [(torch, "seed", "torch"), (random, "seed", "python")]
        if "numpy" in sys.modules:
            owners.append((sys.modules["numpy"].random, "seed", "numpy"))
        for owner, name, library in owners:
            plain = getattr(owner, name)

            def seeded(*args: Any, _plain: Any = plain, _library: str = library, **kwargs: Any) -> Any:
                self._report_seed(_library, args, kwargs)
                streams.forget(_library)
                return _plain(*args, **kwargs)

            setattr(owner, name, functools.wraps(plain)(seeded))

    def _report_seed(self, library: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Seeds that a conversion sets ahead of its first step may be those that its original lacks."""
        self._draws.seeded_at[library] = self._draws.count[library]
        value = next(iter((*args, *kwargs.values())), None)
        if self._context.inside_sample:  # a data set that seeds each of its samples
            return
        if self._context.distributed and not self._context.steps and isinstance(value, int):
            self._context.trace.emit("seed", library=library, value=value, drawn=self._draws.count[library])
