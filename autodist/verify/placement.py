"""Where the ranks of a run compute: a GPU for each, one GPU for several, or the CPU."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autodist.errors import AutodistError
from autodist.verify.launch import OwnGroups, environment, free_port, rank_environment
from autodist.verify.plan import Device

Wanted = Literal["auto", "cpu", "cuda"]
Refusal = str
"""Why something is not possible."""
CHECK_SECONDS = 120.0
CHECK_RANKS = 2


@dataclass(frozen=True)
class Placement:
    """The device of all processes of a run."""

    device: Device
    gpus: int = 0
    """GPUs of one node, as torchrun would have them: ranks beyond them begin another node on the same GPUs."""
    shared: bool = False
    """Several ranks compute on one GPU. NCCL takes no two ranks on one device, so they speak over gloo."""
    note: str | None = None
    """What a reader of the verdict should know about it."""

    def __str__(self) -> str:
        if self.device == "cpu":
            return "CPU"
        return f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}{', shared over gloo' if self.shared else ', NCCL'}"


def placed(wanted: Wanted, ranks: int, gpus: int, sharing: Callable[[], Refusal | None]) -> Placement:
    """The placement of ``ranks`` processes on a machine that has ``gpus``.

    ``sharing`` finds out whether this torch computes rightly with two ranks on one GPU, which is asked only where it
    matters. A wish for ``cuda`` that cannot be met is an error; ``auto`` falls back to the CPU and says why.
    """
    if wanted == "cpu" or (wanted == "auto" and not gpus):
        return Placement("cpu")
    if not gpus:
        raise AutodistError("--device cuda: torch finds no GPU here; --device cpu needs none")
    if gpus >= ranks:
        return Placement("cuda", gpus=ranks)
    refusal = sharing()
    if refusal is None:
        note = f"{ranks} ranks share {gpus} GPU{'s' if gpus > 1 else ''} over gloo: what NCCL alone does is not tested"
        return Placement("cuda", gpus=gpus, shared=True, note=note)
    reason = f"{ranks} ranks would have to share {gpus} GPU{'s' if gpus > 1 else ''}, and {refusal}"
    if wanted == "cuda":
        raise AutodistError(f"--device cuda: {reason}; use --device cpu, or fewer ranks")
    return Placement("cpu", note=f"run on the CPU: {reason}")


@functools.cache
def gpu_count(python: str = sys.executable) -> int:
    """GPUs that torch can use, 0 where there are none."""
    if not list(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/kfd").exists() and sys.platform == "linux":
        return 0  # asking torch takes a second
    question = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    return int(answer.stdout.split()[-1]) if answer.returncode == 0 and answer.stdout.split() else 0


@functools.cache
def sharing_refusal(
    device: Device = "cuda", sharded: bool = False, python: str = sys.executable, seconds: float = CHECK_SECONDS
) -> Refusal | None:
    """Let two processes train on one device over gloo: why that does not work, None where it does.

    It depends on the versions of torch, gloo and the driver, and has gone wrong in silence, so it is tried.
    """
    port, started = free_port(), time.monotonic()
    command: Sequence[str] = [python, "-m", "autodist.verify.sharing", device, *(["--sharded"] if sharded else [])]
    with tempfile.TemporaryDirectory(prefix="autodist-sharing-") as folder:
        logs = [Path(folder) / f"rank{rank}.log" for rank in range(CHECK_RANKS)]
        processes = []
        try:
            for rank, log in enumerate(logs):
                env = environment(rank_environment(rank, CHECK_RANKS, port, local=1), python)
                with log.open("wb") as file:
                    processes.append(
                        subprocess.Popen(command, stdout=file, stderr=file, env=env, start_new_session=True)
                    )
            while any(process.poll() is None for process in processes):
                if time.monotonic() - started > seconds:
                    return f"two ranks on one device do not get through a check in {seconds:.0f} s"
                if any(process.poll() for process in processes):
                    break
                time.sleep(0.05)
            codes = [process.poll() for process in processes]  # before those that wait for a dead one are ended
        finally:
            OwnGroups(processes).kill()
            for process in processes:
                process.wait()
        for code, log in zip(codes, logs, strict=True):
            if code:
                said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
                died = f"a rank ends with code {code}" if code > 0 else f"a rank dies of {signal.Signals(-code).name}"
                return f"this torch cannot do that ({said[-1] if said else died})"
        return None
