"""Scripts that start their own processes: every process of the run is one of those already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext


class LauncherProbe:
    """Patches ``torch.multiprocessing.spawn`` in the ranks of an original, to call what it would start."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context

    def install(self) -> None:
        """Patch the launcher; other programs keep it."""
        if self._context.plan.role == "peer":
            torch.multiprocessing.spawn = self._spawn  # type: ignore[attr-defined]

    def _spawn(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, *_: Any, **options: Any
    ) -> None:
        plan = self._context.plan
        if nprocs != plan.world:
            raise SystemExit(f"the original starts {nprocs} processes: compare on as many (--nproc {nprocs})")
        fn(plan.rank, *args)
