"""Scripts that start their own processes: every process of the run is one of those already."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

PATIENCE = 60
"""Seconds that a rank waits for the first one to come to where it would start it."""


class LauncherProbe:
    """Patches ``torch.multiprocessing.spawn`` in the ranks of a program, to call what it would start.

    What a script does before, such as making a folder, one process does: the other ranks come after rank 0.
    """

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._launched, self._ended = (replace(context.plan, rank=0).record(name) for name in ("launched", "ended"))

    def install(self) -> None:
        """Patch the launcher; an original in one process keeps it, and so do programs that do not call it."""
        plan = self._context.plan
        starts = plan.role == "peer" or b".spawn(" in Path(plan.script).read_bytes()
        if not (self._context.distributed and starts):
            return
        torch.multiprocessing.spawn = self._spawn  # type: ignore[attr-defined]
        if plan.rank == 0:
            self._announce_joining()
        elif b".spawn(" in Path(plan.script).read_bytes():
            self._wait_for_first()

    def _announce_joining(self) -> None:
        """A script may join without starting any process: the others are waited for there as well."""
        plain = dist.init_process_group

        @functools.wraps(plain)
        def init(*args: Any, **kwargs: Any) -> None:
            self._launched.touch()
            plain(*args, **kwargs)

        dist.init_process_group = init
        dist.distributed_c10d.init_process_group = init

    def _wait_for_first(self) -> None:
        latest = time.monotonic() + PATIENCE
        while time.monotonic() < latest and not (self._launched.exists() or self._ended.exists()):
            time.sleep(0.01)

    def _spawn(
        self, fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, *_: Any, **options: Any
    ) -> None:
        plan = self._context.plan
        if nprocs != plan.world:
            who = "original" if plan.role == "peer" else "conversion"
            raise SystemExit(f"the {who} starts {nprocs} processes: compare on as many (--nproc {nprocs})")
        self._launched.touch()
        fn(plan.rank, *args)
