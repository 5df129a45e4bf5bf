"""Who solves tasks: each runner makes a candidate of a project, in a folder that holds a copy of it."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.ddp_bench.judge import REFUSAL, WARNING
from benchmarks.ddp_bench.tasks import HERE, Task

SECONDS = 120
AGENT_SECONDS = 1800
Runner = Callable[[Task, Path], bool]
"""Changes the copy. False where the runner has nothing for this task."""


def identity(task: Task, folder: Path) -> bool:
    """Change nothing."""
    return True


def autodist(task: Task, folder: Path) -> bool:
    """`autodist convert --in-place`: 1 says that a person must look at what it wrote, 2 that it wrote nothing."""
    what = ["-m", task.command[1]] if task.command[0] == "-m" else [task.command[0]]
    command = [sys.executable, "-m", "autodist", "convert", *what, "--strategy", "ddp", "--in-place", "--quiet"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        wrote = any(
            path.read_bytes() != (folder / path.relative_to(task.project)).read_bytes() for path in _sources(task)
        )
        (folder / (WARNING if wrote else REFUSAL)).write_text("\n".join(said))
    return True


def _sources(task: Task) -> list[Path]:
    return sorted(task.project.rglob("*.py"))


def msfmktransplt(task: Task, folder: Path) -> bool:
    """Ascend's script migration with `distributed`; $MSFMKTRANSPLT is its ms_fmk_transplt.py, run by its own Python."""
    script = task.command[0]
    if "MSFMKTRANSPLT" not in os.environ or script == "-m":
        return False
    with tempfile.TemporaryDirectory() as out:
        command = [*shlex.split(os.environ["MSFMKTRANSPLT"]), "-i", str(folder), "-o", out, "-v", "2.8.0"]
        command += ["distributed", "-m", str(folder / script)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        written = Path(out) / f"{folder.name}_msft_multi"
        if not written.is_dir():
            (folder / REFUSAL).write_text((done.stdout + done.stderr)[-300:])
            return True
        for path in written.rglob("*.py"):
            text = path.read_text()
            for npu, cpu in NPU_ON_CPU:
                text = re.sub(npu, cpu, text)
            (folder / path.relative_to(written)).write_text(text)
    return True


NPU_ON_CPU = (
    (r"(?m)^import torch_npu$", ""),
    (r"(?m)^import torch\.npu$", ""),
    (r"(?m)^if torch\.npu\.current_device\(\).*\n.*\n", ""),
    (r"'hccl'", "'gloo'"),
    (r"'RANK_SIZE'", "'WORLD_SIZE'"),
    (r"'RANK_ID'", "'RANK'"),
    (r"f'npu:\{DEVICE_ID\}'", "'cpu'"),
    (r"\.npu\(\)", ".cpu()"),
    (r"torch(_npu)?\.npu\.is_available\(\)", "False"),
    (r"device_ids=\[DEVICE_ID\], ", ""),
)
"""What it writes for Ascend's devices, as the judge can run it: on CPUs, with gloo."""


def overlaid(files: Callable[[Task], Path]) -> Runner:
    """Lay files that somebody wrote over the copy."""

    def runner(task: Task, folder: Path) -> bool:
        if not files(task).is_dir():
            return False
        shutil.copytree(files(task), folder, dirs_exist_ok=True)
        return True

    return runner


def agent(command: str, with_tools: bool) -> Runner:
    """A coding agent: a command that is started in the copy, and is told the task on standard input."""

    def runner(task: Task, folder: Path) -> bool:
        process = subprocess.Popen(
            shlex.split(command),
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "DDP_BENCH_TASK": task.name},
            start_new_session=True,
        )
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(task.instruction(with_tools), AGENT_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has left running, too
        process.wait()
        return True

    return runner


RUNNERS: dict[str, Runner] = {
    "identity": identity,
    "autodist": autodist,
    "expert": overlaid(lambda task: task.solution),
    "accelerate": overlaid(lambda task: HERE / "guides" / "accelerate" / task.name),
    "fabric": overlaid(lambda task: HERE / "guides" / "fabric" / task.name),
    "msfmktransplt": msfmktransplt,
}
NEEDS = {"accelerate": "accelerate", "fabric": "lightning_fabric"}
"""Packages that a runner's candidates import."""
