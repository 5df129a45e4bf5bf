"""Runs a script in scratch copies of its folder, to measure it at several sizes of its batch."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autodist.errors import AutodistError
from autodist.project import module_of
from autodist.source import Source
from autodist.verify.launch import Zygote
from autodist.verify.placement import Wanted, gpu_count, placed
from autodist.verify.progress import Progress
from autodist.verify.runs import Run, Setting, run_bare

DIVISORS = (1, 2, 4, 8)
"""A step is timed at the whole batch, and at these parts of it."""
LEAST_STEPS = 6
"""As many steps as the probe needs (autodist/verify/probes/measuring.py)."""


def measure(
    script: Path,
    args: Sequence[str],
    progress: Progress,
    *,
    workdir: Path | None = None,
    device: Wanted = "auto",
    timeout: float = 600.0,
    python: str = sys.executable,
    zygote: Zygote | None = None,
    divisors: Sequence[int] = DIVISORS,
) -> tuple[list[dict[str, Any]], list[str]]:
    """What each run found, that of the whole batch first, and why some found nothing. Raises AutodistError.

    ``zygote`` is a process to fork from that other runs share.
    """
    found: list[dict[str, Any]] = []
    gaps: list[str] = []
    with _setting(script.resolve(), args, progress, workdir, device, timeout, python) as setting:
        setting.zygote = zygote
        for divisor in divisors:
            if divisor > 1 and found[0]["samples"] < divisor:
                break
            folder = setting.records / f"divided-{divisor}"
            run = run_bare(setting, 1, folder, timeout, divisor)
            result = folder / "bare-records" / "original.measured"
            if result.exists():
                found.append(json.loads(result.read_text(encoding="utf-8")))
            elif divisor == 1:
                raise AutodistError(f"nothing was measured: {_why(run, timeout)}", script)
            else:
                gaps.append(f"a batch divided by {divisor} was not measured: {_why(run, timeout)}")
            if found[0]["samples"] == 0:
                gaps.append("no DataLoader gives its batches, so they cannot be divided")
                break
    return found, gaps


def _why(run: Run, timeout: float) -> str:
    """What a person may do about a run that measured nothing."""
    said = [line for line in run.errors[0].strip().splitlines() if line.strip()]
    if run.result.timed_out:
        return f"the script took fewer than {LEAST_STEPS} optimizer steps in {timeout:.0f} s (--timeout)"
    code = run.result.codes[0]
    if code is not None and code < 0:
        return f"the script was ended by {signal.Signals(-code).name}, as by a system that runs out of memory"
    if code != 0:
        return f"the script fails with these arguments: {said[-1].strip() if said else f'exit code {code}'}"
    return f"the script took fewer than {LEAST_STEPS} steps of an optimizer; arguments after -- may let it take more"


@contextmanager
def _setting(
    script: Path,
    args: Sequence[str],
    progress: Progress,
    workdir: Path | None,
    device: Wanted,
    timeout: float,
    python: str,
) -> Iterator[Setting]:
    """As for a verification, of a script that is compared with none."""
    name = module_of(script, Source.read(script).tree)
    if workdir is None:
        top = script.parents[name.count(".") + (script.stem == "__main__")] if name else script.parent
        workdir = Path.cwd() if script.is_relative_to(Path.cwd()) else top
    elif not workdir.is_dir():
        raise AutodistError("no such folder", workdir)
    gpus = 0 if device == "cpu" else gpu_count(python)
    placements = {1: placed(device, 1, gpus, lambda: None)}
    records, temporary = (Path(tempfile.mkdtemp(prefix=prefix)) for prefix in ("autodist-plan-", "ad"))
    folder, names = workdir.resolve(), {script: name} if name else {}
    env: Mapping[str, str] = _environment() if gpus else {}
    try:
        yield Setting(
            script,
            script,
            folder,
            script.parent,
            folder,
            tuple(args),
            None,
            "float32",
            placements,
            timeout,
            dict(env),
            python,
            progress,
            records,
            temporary,
            names,
        )
    finally:
        for made in (records, temporary):
            shutil.rmtree(made, ignore_errors=True)


def _environment() -> dict[str, str]:
    """What a verification takes from a script for the sake of equal numbers, and its speed is to be measured with."""
    threads = str(max(1, (os.cpu_count() or 1) // 2))
    return {"TORCH_COMPILE_DISABLE": "0", "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
