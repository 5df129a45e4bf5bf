"""The runs of a benchmark: each in a scratch copy of the script's folder, so that nothing there is written to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autodist.bench.table import Measured, measured
from autodist.errors import AutodistError
from autodist.result import Result
from autodist.verify.launch import POLL_SECONDS, RENDEZVOUS, OwnGroups, free_port, rank_environment
from autodist.verify.scratch import Scratch

WORKER = Path(__file__).with_name("worker.py")
TAIL = 2_000
"""Characters of the output of a process that are looked at for why it failed."""


@dataclass(frozen=True)
class Setting:
    """What all runs have in common. Times are in seconds."""

    script: Path
    args: tuple[str, ...]
    workdir: Path
    steps: int
    warmup: int
    profiled: int
    timeout: float


def run(setting: Setting, result: Result | None, ranks: int, seen: Callable[[dict[str, Any]], None]) -> Measured | str:
    """Run the script as it is, or its conversion, once; the measurement, or why there is none."""
    with TemporaryDirectory(prefix="autodist-bench-") as name:
        outer = Path(name)
        scratch = Scratch(outer / "work" / setting.workdir.name, outer / "work")
        scratch.fill(setting.workdir)
        scratch.surround(setting.workdir)
        for file in result.changed if result is not None else ():
            place = scratch.root / file.source.path.resolve().relative_to(setting.workdir)
            place.unlink(missing_ok=True)  # it may be a link
            place.write_bytes(file.source.encode(file.after))
        records = outer / "records"
        records.mkdir()
        plan = {
            "script": str(scratch.root / setting.script.relative_to(setting.workdir)),
            "args": setting.args,
            "records": str(records),
            "steps": setting.steps,
            "warmup": setting.warmup,
            "profiled": setting.profiled if ranks > 1 else 0,
        }
        (outer / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
        problem = _processes(setting, outer, scratch.root, ranks, conversion=result is not None)
        found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(records.glob("*.json"))]
        complete = len(found) == (ranks if result is not None else 1)
        taken = measured(found) if complete else None
        if taken is None:
            return problem or f"ends before {setting.warmup + 1} steps"
        seen(found[0])
        return taken


def _processes(setting: Setting, outer: Path, root: Path, ranks: int, conversion: bool) -> str:
    """Run all ranks to their end; why one failed."""
    kept = {key: value for key, value in os.environ.items() if key not in RENDEZVOUS}
    port, processes, logs = free_port(), list[subprocess.Popen[bytes]](), list[Path]()
    until = time.monotonic() + setting.timeout
    try:
        for rank in range(ranks):
            told = rank_environment(rank, ranks, port) if conversion else {}
            env = {**kept, "PYTHONDONTWRITEBYTECODE": "1", **told}
            env.setdefault("OMP_NUM_THREADS", "1")
            env.setdefault("MPLBACKEND", "Agg")
            env.setdefault("WANDB_MODE", "disabled")
            log = outer / f"{rank}.log"
            with log.open("wb") as stream:
                process = subprocess.Popen(
                    [sys.executable, str(WORKER), str(outer / "plan.json")],
                    cwd=root,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            processes.append(process)
            logs.append(log)
        groups = OwnGroups(processes)
        while None in (codes := groups.poll()):
            if any(codes):
                time.sleep(1.0)  # the one that failed first says why, and others follow
                codes = groups.poll()
                break
            if time.monotonic() > until:
                return f"takes longer than {setting.timeout:.0f} s"
            time.sleep(POLL_SECONDS)
    finally:
        OwnGroups(processes).kill()
        for process in processes:
            process.wait()
    failed = [log for code, log in zip(codes, logs, strict=True) if code]
    return _last_line(failed[0]) if failed else ""


def _last_line(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")[-TAIL:].strip()
    return f"fails: {text.splitlines()[-1]}" if text else "fails"


def machine(limit: Sequence[int]) -> list[int]:
    """The numbers of ranks that are tried: those asked for, or 1, 2, 4, 8 as far as there are GPUs, or cores."""
    if limit:
        return [*limit]
    asked = "import torch; print(torch.cuda.device_count())"
    told = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    if told.returncode:
        raise AutodistError("bench runs the script and needs torch: pip install 'torch-autodist[verify]'")
    most = int(told.stdout) or os.cpu_count() or 1
    return [ranks for ranks in (1, 2, 4, 8) if ranks <= most]
