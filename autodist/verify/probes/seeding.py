"""Seeds that scripts set themselves, and states of generators that they read and bring back."""

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
                if not self._context.probing:
                    self._report_seed(_library, args, kwargs)
                    if not self._context.inside_worker:
                        streams.forget(_library)
                return _plain(*args, **kwargs)

            setattr(owner, name, functools.wraps(plain)(seeded))
        states: list[tuple[Any, str, str, str]] = [
            (torch, "get_rng_state", "set_rng_state", "torch"),
            (torch.random, "get_rng_state", "set_rng_state", "torch"),
            (random, "getstate", "setstate", "python"),
        ]
        if "numpy" in sys.modules:
            states.append((sys.modules["numpy"].random, "get_state", "set_state", "numpy"))
        for owner, read, restore, library in states:
            self._patch_state(owner, read, restore, library)

    def _patch_state(self, owner: Any, read: str, restore: str, library: str) -> None:
        plain_read, plain_restore = getattr(owner, read), getattr(owner, restore)

        @functools.wraps(plain_read)
        def reading(*args: Any, **kwargs: Any) -> Any:
            if self._by_script():
                self._draws.reading(library)
            return plain_read(*args, **kwargs)

        @functools.wraps(plain_restore)
        def restoring(*args: Any, **kwargs: Any) -> Any:
            result = plain_restore(*args, **kwargs)
            if self._by_script():
                self._draws.restored(library)
            return result

        setattr(owner, read, reading)
        setattr(owner, restore, restoring)

    def _by_script(self) -> bool:
        return not (self._context.probing or self._context.inside_sample or self._draws.busy)

    def _report_seed(self, library: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Seeds that a conversion sets ahead of its first step may be those that its original lacks."""
        value = next(iter((*args, *kwargs.values())), None)
        drawn, seed = self._draws.seeding(library, value if isinstance(value, int) else None)
        if self._context.inside_sample:  # a data set that seeds each of its samples
            self._context.seeded_in_sample.add(library)
            if not self._context.inside_worker:
                self._context.seeded_by_samples.add(library)
            return
        self._context.seeded_by_samples.discard(library)
        if self._context.distributed and not self._context.steps and seed is not None:
            self._context.trace.emit("seed", library=library, drawn=drawn, seed=seed)
