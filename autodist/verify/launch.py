"""Starts the processes of a run, watches over them, and leaves none behind."""

from __future__ import annotations

import atexit
import functools
import json
import os
import secrets
import select
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import autodist
from autodist.errors import AutodistError
from autodist.verify.plan import ProcessPlan
from autodist.verify.stall import StallWatch

ADDED_PATH = "AUTODIST_ADDED_PATH"
"""As in ``bootstrap.py``, which may not be imported here: it loads torch."""
HASH_SEED = "PYTHONHASHSEED"
PORTS = range(20000, 29000)
POLL_SECONDS = 0.03
START_SECONDS = 120.0
GRACE_SECONDS = 1.5
"""How long the others may run on after one process failed."""
LEAVING_SECONDS = 6.0
"""How long what a program has started may take to end after it: workers of loaders look every 5 s whether it lives."""


Tick = Callable[[], None]
"""Called again and again while processes run."""


class Process(Protocol):
    """One process of a run, forked or not."""

    pid: int

    def poll(self) -> int | None:
        """The exit code, None while it runs."""


def environment(env: dict[str, str], python: str = sys.executable) -> dict[str, str]:
    """What every process of a verification finds: one thread each, no compiler, the package importable."""
    package = Path(autodist.__file__).resolve().parent
    installed = str(package.parent) in site_folders()
    if installed and python != sys.executable:
        added = {ADDED_PATH: alone(package)}
    else:
        added = {} if installed else {ADDED_PATH: str(package.parent)}
    inherited = {key: value for key, value in os.environ.items() if key not in RENDEZVOUS}
    wanted = env.get("PYTHONPATH", inherited.get("PYTHONPATH", ""))
    paths = [*added.values(), *filter(None, wanted.split(os.pathsep))]
    fixed = {
        **added,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        HASH_SEED: "0",
        "TORCH_COMPILE_DISABLE": "1",
        "MPLBACKEND": "Agg",
        "WANDB_MODE": "disabled",
    }
    if Path("/sys/class/net/lo").exists():
        fixed["GLOO_SOCKET_IFNAME"] = "lo"
    return {**inherited, **fixed, **{key: value for key, value in env.items() if key != "PYTHONPATH"}}


@functools.cache
def alone(package: Path) -> str:
    """A folder with this package and none of those that are installed beside it, for another Python."""
    folder = tempfile.mkdtemp(prefix="autodist-package-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (Path(folder) / package.name).symlink_to(package, target_is_directory=True)
    return folder


def site_folders() -> set[str]:
    """Where Python finds installed packages by itself."""
    return {str(Path(path).resolve()) for path in (*site.getsitepackages(), site.getusersitepackages())}


RENDEZVOUS = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}
)


def rank_environment(rank: int, world: int, port: int, local: int = 0) -> dict[str, str]:
    """What torchrun tells a rank on one node, or on nodes of ``local`` ranks each."""
    local = local or world
    node = rank // local
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % local),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(min(local, world - node * local)),
        "GROUP_RANK": str(node),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def free_port() -> int:
    """A port nobody listens on.

    It lies below those that the system gives out by itself, or another process could be given it before the ranks
    take it.
    """
    first = secrets.randbelow(len(PORTS))
    ports: list[int] = [*PORTS[first:], *PORTS[:first]]
    for port in ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AutodistError(f"no port between {PORTS.start} and {PORTS.stop} of 127.0.0.1 is free for the ranks to meet at")


@dataclass
class ForkedProcess:
    """A child of the zygote; its end is reported over the zygote's pipe."""

    pid: int
    zygote: Zygote

    def poll(self) -> int | None:
        self.zygote.read_answers()
        return self.zygote.ended.get(self.pid)


class Zygote:
    """The launching side of ``autodist.verify.zygote``."""

    def __init__(self, preload: Sequence[str], env: dict[str, str], log: Path, python: str = sys.executable) -> None:
        self.ended: dict[int, int] = {}
        self._started: list[int] = []
        self._ready = False
        self._waiting = b""
        self._log = log
        self._python = python
        self._preload, self._env = preload, env
        self._hashing: dict[str, Zygote] = {}
        with open(log, "wb") as errors:
            self._process = subprocess.Popen(
                [python, "-m", "autodist.verify.zygote", *preload],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(env, python),
                start_new_session=True,
            )

    def __enter__(self) -> Zygote:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the zygote and whatever it still has running."""
        for other in self._hashing.values():
            other.close()
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def hashing(self, seed: str) -> Zygote:
        """Another one, whose processes hash strings by ``seed``: that is settled as Python starts."""
        if seed not in self._hashing:
            log = self._log.with_name(f"{self._log.stem}-hashing-{seed}{self._log.suffix}")
            self._hashing[seed] = Zygote(self._preload, {**self._env, HASH_SEED: seed}, log, self._python)
        return self._hashing[seed]

    def start(self, plan: ProcessPlan, env: dict[str, str]) -> ForkedProcess:
        """Fork one process of a run."""
        if HASH_SEED in plan.env and self._env.get(HASH_SEED) != plan.env[HASH_SEED]:
            return self.hashing(plan.env[HASH_SEED]).start(plan, env)
        self._until(lambda: self._ready)
        request = {
            "plan": plan.to_json(),
            "env": environment(env, self._python),
            "stdout": str(plan.record("stdout")),
            "stderr": str(plan.record("stderr")),
        }
        assert self._process.stdin is not None
        self._process.stdin.write((json.dumps(request) + "\n").encode())
        self._process.stdin.flush()
        self._until(lambda: bool(self._started))
        return ForkedProcess(self._started.pop(), self)

    def _until(self, condition: Any) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not condition():
            self.read_answers(0.2)
            if self._process.poll() is not None or time.monotonic() > deadline:
                log = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                raise AutodistError("cannot start Python with torch: " + (log[-1] if log else "it did not answer"))

    def read_answers(self, timeout: float = 0.0) -> None:
        """Take in what the zygote has said."""
        pipe = self._process.stdout
        assert pipe is not None
        while select.select([pipe], [], [], timeout)[0]:
            block = os.read(pipe.fileno(), 1 << 16)
            if not block:
                return
            timeout = 0.0
            self._waiting += block
            *lines, self._waiting = self._waiting.split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def _take(self, said: dict[str, Any]) -> None:
        if "ready" in said:
            self._ready = True
        elif "started" in said:
            self.ended.pop(said["started"], None)  # numbers of processes come around again
            self._started.append(said["started"])
        elif "ended" in said:
            self.ended[said["ended"]] = said["code"]


def start_process(plan: ProcessPlan, env: dict[str, str], python: str = sys.executable) -> subprocess.Popen[bytes]:
    """Start one process of a run without a zygote: slower, and possible everywhere."""
    path = plan.record("plan")
    path.write_text(plan.to_json(), encoding="utf-8")
    with open(plan.record("stdout"), "wb") as out, open(plan.record("stderr"), "wb") as errors:
        return subprocess.Popen(
            [python, "-m", "autodist.verify.bootstrap", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            env=environment(env, python),
            start_new_session=True,
        )


@dataclass
class RunResult:
    """How the processes of a run ended."""

    codes: list[int | None]
    """Exit codes; None for a process that had to be killed."""
    timed_out: bool = False
    seconds: float = 0.0
    hung: bool = False
    states: list[str] = field(default_factory=list)
    """Where each process stood when the run was ended for it."""
    left: list[int] = field(default_factory=list)
    """Processes that came to their end and left others running, which they had started."""


def group_lives(pid: int) -> bool:
    """Whether anything still runs that a process, itself gone, has started."""
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def kill_group(pid: int) -> None:
    """Kill a process with everything it started."""
    for send in (os.killpg, os.kill):
        try:
            send(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


class OwnGroups:
    """The process groups of a run. One that has gone is neither asked after nor signalled again: its number may be
    that of a stranger's by then."""

    def __init__(self, processes: Sequence[Process]) -> None:
        self._processes = processes
        self._ours = set(range(len(processes)))

    def poll(self) -> list[int | None]:
        """The exit codes of the processes that lead the groups."""
        codes = [process.poll() for process in self._processes]
        ended = {index for index in self._ours if codes[index] is not None}
        self._ours -= {index for index in ended if not group_lives(self._processes[index].pid)}
        return codes

    def left(self) -> list[int]:
        """Those in which something runs."""
        return sorted(self._ours)

    def kill(self) -> None:
        """End what runs."""
        self.poll()
        for index in self.left():
            kill_group(self._processes[index].pid)


def watch(processes: Sequence[Process], plans: Sequence[ProcessPlan], timeout: float, tick: Tick) -> RunResult:
    """Wait for all processes, at most ``timeout`` seconds, and not long after the first failure or a deadlock."""
    started = time.monotonic()
    failed_at: float | None = None
    ended_at: float | None = None
    result = RunResult([None] * len(processes))
    stall, groups = StallWatch(plans), OwnGroups(processes)
    try:
        while True:
            tick()
            result.codes = groups.poll()
            now = time.monotonic()
            live = {index: processes[index].pid for index, code in enumerate(result.codes) if code is None}
            if not live:
                ended_at = ended_at or now
                result.left = groups.left()
                if not result.left or now - ended_at > LEAVING_SECONDS:
                    break
                time.sleep(POLL_SECONDS)
                continue
            if failed_at is None and any(code not in (None, 0) for code in result.codes):
                failed_at = now
            if failed_at is not None and now - failed_at > GRACE_SECONDS:
                break
            states = stall.stalled(live)
            if states is not None:
                result.hung, result.states = True, states
                break
            if now - started > timeout:
                waiting = {index: pid for index, pid in live.items() if not stall.finished(index)}
                result.timed_out, result.states = True, stall.described(stall.positions(waiting))
                break
            time.sleep(POLL_SECONDS)
    finally:
        groups.kill()
        result.seconds = time.monotonic() - started
    return result
