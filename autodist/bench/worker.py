"""Runs a script for some steps and times them: ``python worker.py PLAN.json``. Needs torch and the standard library.

A step ends with each step of the optimizer that steps first. What loaders take is data, a pass over one in which no
optimizer steps is an evaluation, and collectives are timed by torch's profiler in further steps, since that slows down.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import runpy
import sys
import time
from pathlib import Path
from typing import Any

WAIT = 20.0
"""Seconds that a rank waits for the others when it has done its steps."""


def rows_of(batch: Any) -> int:
    """How many samples a batch holds."""
    if hasattr(batch, "shape"):
        return int(batch.shape[0]) if len(batch.shape) else 0
    if isinstance(batch, dict):
        return max(map(rows_of, batch.values()), default=0)
    if isinstance(batch, (list, tuple)):
        parts = [rows_of(each) for each in batch]
        return max(parts, default=0) or len(batch)
    return 0


class Times:
    """What is measured of one process."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.steps = 0
        self.stepping: int | None = None
        self.last = time.perf_counter()
        self.data = self.evaluation = 0.0
        self.rows = 0
        self.kept: list[dict[str, float]] = []
        self.evaluations: list[float] = []
        self.profiler: Any = None
        self.communication: float | None = None

    def install(self) -> None:
        """Patch the iteration of loaders, and look on as optimizers step."""
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook
        from torch.utils.data import dataloader

        self.torch = torch
        iteration: Any = dataloader._BaseDataLoaderIter
        start, following = iteration.__init__, iteration.__next__

        @functools.wraps(start)
        def begin(this: Any, *args: Any, **kwargs: Any) -> None:
            this._bench = time.perf_counter(), self.steps, self.evaluation, self.rows
            start(this, *args, **kwargs)

        @functools.wraps(following)
        def take(this: Any) -> Any:
            before = time.perf_counter()
            try:
                batch = following(this)
            except StopIteration:
                self.end_pass(this)
                raise
            finally:
                self.data += time.perf_counter() - before
            self.rows += rows_of(batch)
            return batch

        iteration.__init__, iteration.__next__ = begin, take
        register_optimizer_step_post_hook(self.stepped)

    def end_pass(self, iteration: Any) -> None:
        """A loader has come to its end: without a step, that was an evaluation."""
        begun, steps, other, rows = iteration._bench
        if steps == self.steps:
            self.synchronise()
            took = time.perf_counter() - begun - (self.evaluation - other)
            self.evaluation += took
            self.evaluations.append(took)
            self.data, self.rows = 0.0, rows  # what it read belongs to no step

    def synchronise(self) -> None:
        """Wait for the GPU."""
        if self.torch.cuda.is_available():
            self.torch.cuda.synchronize()

    def stepped(self, optimizer: Any, *_: Any) -> None:
        """A step is done."""
        if self.stepping is None:
            self.stepping = id(optimizer)
        if id(optimizer) != self.stepping:
            return
        self.synchronise()
        now = time.perf_counter()
        self.steps += 1
        warm, timed, profiled = self.plan["warmup"], self.plan["steps"], self.plan["profiled"]
        if warm < self.steps <= warm + timed:
            seconds = now - self.last - self.evaluation
            self.kept.append({"seconds": seconds, "data": min(self.data, seconds), "rows": float(self.rows)})
        self.data = self.evaluation = 0.0
        self.rows = 0
        if self.steps == warm + timed:
            if not profiled:
                self.leave()
            self.begin_profile()
        elif self.steps == warm + timed + profiled:
            self.end_profile(profiled)
            self.leave()
        self.last = time.perf_counter()

    def begin_profile(self) -> None:
        """Time collectives from here on."""
        activities = [self.torch.profiler.ProfilerActivity.CPU]
        if self.torch.cuda.is_available():
            activities.append(self.torch.profiler.ProfilerActivity.CUDA)
        self.profiler = self.torch.profiler.profile(activities=activities)
        self.profiler.__enter__()

    def end_profile(self, steps: int) -> None:
        """How long collectives ran in each step: each moment once, in which one does."""
        self.profiler.__exit__(None, None, None)
        on_gpu = self.torch.cuda.is_available()
        names = ("nccl",) if on_gpu else ("gloo:",)
        spans = sorted(
            (each.time_range.start, each.time_range.end)
            for each in self.profiler.events()
            if each.name.lower().startswith(names)
        )
        total, until = 0.0, float("-inf")
        for first, last in spans:
            total += max(0.0, last - max(first, until))
            until = max(until, last)
        self.communication = total / 1e6 / steps

    def leave(self) -> None:
        """Write down what was measured, and end when all ranks have."""
        self.write()
        folder, world = Path(self.plan["records"]), int(os.environ.get("WORLD_SIZE", "1"))
        until = time.monotonic() + WAIT
        while len([*folder.glob("*.json")]) < world and time.monotonic() < until:
            time.sleep(0.02)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def write(self) -> None:
        """The record of this rank."""
        on_gpu = self.torch.cuda.is_available()
        host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        record = {
            "device": self.torch.cuda.get_device_name() if on_gpu else "cpu",
            "torch": self.torch.__version__,
            "steps": self.kept,
            "evaluations": self.evaluations,
            "communication": self.communication,
            "memory": self.torch.cuda.max_memory_allocated() if on_gpu else host,
        }
        path = Path(self.plan["records"]) / f"{os.environ.get('RANK', '0')}.json"
        path.with_suffix(".part").write_text(json.dumps(record), encoding="utf-8")
        path.with_suffix(".part").rename(path)


def main() -> None:
    """Run the script of a plan under the timers."""
    plan = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    times = Times(plan)
    sys.argv = [plan["script"], *plan["args"]]
    sys.path[0] = str(Path(plan["script"]).parent)
    times.install()
    runpy.run_path(plan["script"], run_name="__main__")
    if times.kept:  # it came to its end before
        times.leave()


if __name__ == "__main__":
    main()
