"""Runs a project in a copy, in one process or on several ranks, and gathers what it leaves behind."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from .imposed import Seen, global_batch_norm, in_double, one_order

GRACE = 5.0
"""Seconds that the other ranks have once one has failed."""


@dataclass
class Run:
    """What one run of a project left behind."""

    folder: Path
    codes: list[int | None] = field(default_factory=list)
    printed: list[list[str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    rows: list[Counter[str]] = field(default_factory=list)
    amounts: list[int] = field(default_factory=list)
    draws: list[list[str]] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    seconds: float = 0.0
    hung: bool = False
    first: int = 0
    """The rank that failed first."""

    @property
    def failed(self) -> bool:
        """Whether a rank did not come to its end."""
        return self.hung or any(self.codes)

    @property
    def failure(self) -> str:
        """The last line of the rank that failed first; the others mostly miss it."""
        code, error = self.codes[self.first], self.errors[self.first]
        lines = [line for line in error.splitlines() if line.strip()]
        return lines[-1][:300] if lines else f"exit code {code}"


def run(project: Path, command: Sequence[str], ranks: int, seconds: float, scratch: Path) -> Run:
    """Run a project in a copy: in one process that knows of no ranks (``ranks`` = 0), or on some."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    work = folder / "work"
    shutil.copytree(project, work, ignore=shutil.ignore_patterns("__pycache__", ".git"))
    before = set(_files(work))
    found, begun, port = Run(folder), time.monotonic(), _free_port()
    pids = [_start(folder, command, rank, ranks, port) for rank in range(max(ranks, 1))]
    found.codes, found.hung, found.first = _wait(pids, begun + seconds)
    found.seconds = time.monotonic() - begun
    for rank in range(max(ranks, 1)):
        out = (folder / f"out{rank}").read_text(errors="replace")
        found.printed.append([line.split("\r")[-1].rstrip() for line in out.splitlines() if line.strip()])
        found.errors.append((folder / f"err{rank}").read_text(errors="replace"))
        seen = folder / f"seen{rank}.json"
        content: dict[str, Any] = {"rows": {}, "amount": 0, "draws": []}
        content |= json.loads(seen.read_text()) if seen.exists() else {}
        found.rows.append(Counter(content["rows"]))
        found.amounts.append(content["amount"])
        found.draws.append(content["draws"])
    found.files = {name: work / name for name in _files(work) if name not in before}
    return found


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _start(folder: Path, command: Sequence[str], rank: int, ranks: int, port: int) -> int:
    """Fork a rank, which has torch imported already. Answers with its process id, that of its group."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{name}{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(folder / "work")
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)
        if ranks:
            os.environ.update(_environment(rank, ranks, port))
        code = _run_here(folder, command, rank, ranks)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun sets; two names more by which Fabric and Accelerate know that they are launched, on CPUs."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "judge",
        "ACCELERATE_USE_CPU": "true",
    }


def _run_here(folder: Path, command: Sequence[str], rank: int, ranks: int) -> int:
    seen = Seen()
    in_double()
    one_order(seen.draws)
    seen.watch()
    if ranks and any("SyncBatchNorm" in path.read_text(errors="replace") for path in Path().rglob("*.py")):
        global_batch_norm()
    code = 0
    try:
        sys.path.insert(0, os.getcwd())
        if command[0] == "-m":
            sys.argv = list(command[1:])
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(command)
            sys.path[0] = str(Path(command[0]).resolve().parent)
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    (folder / f"seen{rank}.json").write_text(
        json.dumps({"rows": seen.rows, "amount": seen.amount, "draws": seen.draws})
    )
    return code


def _wait(pids: Sequence[int], deadline: float) -> tuple[list[int | None], bool, int]:
    """The exit codes, whether time ran out, and which rank failed first; kills what is left and what it started."""
    codes: dict[int, int] = {}
    timed_out = False
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes and (found := os.waitpid(pid, os.WNOHANG))[0]:
                codes[pid] = os.waitstatus_to_exitcode(found[1])
                if codes[pid]:
                    deadline = min(deadline, time.monotonic() + GRACE)
        if time.monotonic() > deadline:
            timed_out = not any(codes.values())
            break
        time.sleep(0.02)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        if pid not in codes:
            os.waitpid(pid, 0)
    failed = [pids.index(pid) for pid, code in codes.items() if code]
    return [codes.get(pid) for pid in pids], timed_out, failed[0] if failed else 0
