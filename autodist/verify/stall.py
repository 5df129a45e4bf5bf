"""Recognises that all ranks wait for each other, and says where each of them stands."""

from __future__ import annotations

import glob
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autodist.verify.plan import ProcessPlan

SAMPLE_SECONDS = 0.25
"""How often a process is asked what it has used."""
QUIET_SECONDS = 2.0
"""All ranks must have been idle for so long before they are asked where they are."""
IDLE_SHARE = 0.05
"""Of one core; a process below it does nothing."""
STARVED_SHARE = 0.5
"""Of the time; a thread that is ready to run and waits for a core for longer is not waiting for another rank."""
STACK_SECONDS = 1.0

FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')
THREAD = re.compile(r"^(?:Current thread|Thread) 0x", re.MULTILINE)
WAITS = {
    "backward": "backward",
    "_engine_run_backward": "backward",
    "init_process_group": "init_process_group",
    "_verify_param_shape_across_processes": "the construction of DistributedDataParallel",
    "_sync_module_states": "the construction of DistributedDataParallel",
    "_sync_buffers": "the forward pass of DistributedDataParallel, which synchronises buffers",
    "normalise_over_ranks": "the forward pass of SyncBatchNorm",
}
"""Python functions in which a rank waits for others, and what a user calls them."""
COLLECTIVES = re.compile(
    r"_?(all_gather|all_reduce|all_to_all|barrier|broadcast|gather|isend|irecv|monitored_barrier|recv|reduce|"
    r"reduce_scatter|scatter|send|wait)(_\w+)?"
)
DISTRIBUTED = ("torch/distributed/", "nn/parallel/distributed.py")


@dataclass(frozen=True)
class Position:
    """Where one rank stands."""

    site: str
    function: str
    waits_in: str | None
    """The collective, None for a rank that is at work."""

    def __str__(self) -> str:
        if self.waits_in is not None:
            return f"waits in {self.waits_in} at {self.site}"
        return f"is at {self.site} in {self.function}"


def position_in(stacks: str, root: str) -> Position | None:
    """Read what faulthandler printed about all threads; the main thread is the one that runs the script."""
    for block in THREAD.split(stacks):
        frames = FRAME.findall(block)
        if not any(name == "_execute" and path.endswith("bootstrap.py") for path, _, name in frames):
            continue
        inner: list[tuple[str, str]] = []
        for path, line, name in frames:
            if path.startswith(root):
                site = f"{os.path.relpath(path, root)}:{line}"
                return Position(site, name, waiting_function(inner))
            inner.append((path, name))
    return None


def waiting_function(inner: Sequence[tuple[str, str]]) -> str | None:
    """The function nearest to the script in which a rank waits for the others."""
    for path, name in reversed(inner):
        if COLLECTIVES.fullmatch(name) and any(part in path for part in DISTRIBUTED):
            return name
        if name in WAITS:
            return WAITS[name]
    if any(part in path for path, _ in inner for part in DISTRIBUTED):
        return inner[-1][1]
    return None


def cpu_seconds(pid: int) -> float | None:
    """CPU time the process has used, None where it is gone or the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def ready_seconds(pid: int) -> dict[str, float]:
    """For how long each thread of a process was ready to run and had no core; empty where the system does not say."""
    found = {}
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        try:
            with open(path, encoding="ascii") as file:
                found[path] = int(file.read().split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            continue
    return found


def is_runnable(pid: int) -> bool:
    """Whether a thread of a process runs or waits for a core, of which it is told only later for how long, or for a
    device, as ranks do that begin to use a GPU beside others; what waits for another rank is asleep."""
    for path in glob.glob(f"/proc/{pid}/task/*/stat"):
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                if file.read().rpartition(")")[2].split()[0] in ("R", "D"):
                    return True
        except (OSError, IndexError):
            continue
    return False


@dataclass(frozen=True)
class Sample:
    """What a process had used at one moment, in seconds."""

    time: float
    used: float
    ready: Mapping[str, float]
    runnable: bool = False

    def idle_since(self, before: Sample) -> bool:
        """Whether it did nothing meanwhile, and not for want of a core."""
        if self.runnable:
            return False
        passed = self.time - before.time
        starved = any(
            ready - before.ready.get(each, ready) > STARVED_SHARE * passed for each, ready in self.ready.items()
        )
        return self.used - before.used <= IDLE_SHARE * passed + 0.011 and not starved


@dataclass
class StallWatch:
    """Follows the processes of one run."""

    plans: Sequence[ProcessPlan]
    _samples: dict[int, Sample] = field(default_factory=dict)
    _quiet_since: float | None = None

    def finished(self, index: int) -> bool:
        """The script of this process came to its end; the process itself stays until all others have ended."""
        return self.plans[index].record("ended").exists()

    def stalled(self, live: dict[int, int]) -> list[str] | None:
        """Given the running processes as index and pid: what each rank does, once all of them wait."""
        now = time.monotonic()
        if not self._all_idle(live, now):
            self._quiet_since = None
            return None
        self._quiet_since = self._quiet_since or now
        waiting = [index for index in live if not self.finished(index)]
        if now - self._quiet_since < QUIET_SECONDS or not waiting:
            return None
        self._quiet_since = None
        positions = self.positions({index: live[index] for index in waiting})
        if all(each is not None and each.waits_in is not None for each in positions.values()):
            return self.described(positions)
        return None

    def _all_idle(self, live: dict[int, int], now: float) -> bool:
        idle = True
        for index, pid in live.items():
            before = self._samples.get(index)
            if before is not None and now - before.time < SAMPLE_SECONDS:
                continue
            used = cpu_seconds(pid)
            if used is None:
                return False
            self._samples[index] = sample = Sample(now, used, ready_seconds(pid), is_runnable(pid))
            idle = idle and before is not None and sample.idle_since(before)
        return idle

    def positions(self, live: dict[int, int]) -> dict[int, Position | None]:
        """Ask every process for its stacks."""
        sizes = {}
        for index, pid in live.items():
            path = self.plans[index].record("stacks")
            sizes[index] = path.stat().st_size if path.exists() else 0
            try:
                os.kill(pid, signal.SIGUSR1)
            except ProcessLookupError:
                continue
        found: dict[int, Position | None] = {}
        deadline = time.monotonic() + STACK_SECONDS
        for index in live:
            plan = self.plans[index]
            text = ""
            while time.monotonic() < deadline:
                time.sleep(0.03)
                path = plan.record("stacks")
                text = path.read_text(encoding="utf-8", errors="replace")[sizes[index] :] if path.exists() else ""
                if position_in(text, plan.root) is not None:
                    break
            found[index] = position_in(text, plan.root)
        return found

    def described(self, positions: dict[int, Position | None]) -> list[str]:
        """One sentence for each process."""
        sentences = []
        for index, plan in enumerate(self.plans):
            who = {"conversion": "rank", "peer": "the original's rank"}.get(plan.role, "the original")
            who = who if plan.role == "original" else f"{who} {plan.rank}"
            if index in positions:
                sentences.append(f"{who} {positions[index] or 'is somewhere outside the script'}")
            elif self.finished(index):
                sentences.append(f"{who} has finished")
            else:
                sentences.append(f"{who} is gone")
        return sentences
