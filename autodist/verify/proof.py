"""Runs a pair of scripts and concludes: the entry point of the package."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from autodist.errors import AutodistError
from autodist.verify.conclude import conclude
from autodist.verify.launch import Zygote
from autodist.verify.peers import is_distributed, run_peers, together
from autodist.verify.plan import Device, Dtype
from autodist.verify.progress import NoProgress, Progress
from autodist.verify.replay import build_replay
from autodist.verify.runs import Setting, run_conversion, run_original
from autodist.verify.verdict import Finding, Verdict, WorldVerdict

FLOAT32_STEPS = 20
"""In float32 rounding grows with every step, so that only the first ones can be compared."""
ATTEMPTS = 4
"""Runs of a pair until every random draw is known to follow the batch, or not to."""
PRELOADABLE = frozenset({"torchvision", "PIL", "pandas", "scipy", "sklearn", "matplotlib", "tqdm", "tensorboard"})


def verify(
    before: Path,
    after: Path,
    nproc: Sequence[int] = (2,),
    args: Sequence[str] = (),
    *,
    steps: int | None = None,
    dtype: Dtype = "float64",
    device: Device | Literal["auto"] = "auto",
    timeout: float = 600.0,
    env: Mapping[str, str] | None = None,
    workdir: Path | None = None,
    start: Path | None = None,
    python: str = sys.executable,
    fork: bool | None = None,
    keep: Path | None = None,
    zygote: Zygote | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Run ``after`` on several ranks and ``before`` on the same samples, and compare what they did.

    ``nproc`` holds the numbers of ranks to try. ``steps`` ends both programs after so many optimizer steps.
    ``workdir`` is the folder that is copied and in which the scripts start: by default the current folder when it
    holds ``before``, else the folder of ``before``; ``start`` is a folder below it to start in. ``keep`` names a
    folder for traces, output and scratch copies,
    which are removed otherwise. ``device`` is ``cuda`` where every rank can have a GPU of its own, unless it is
    given. ``zygote`` is a process to fork from that several verifications share.
    """
    before, after = Path(before).resolve(), Path(after).resolve()
    for path in (before, after):
        if not path.is_file():
            raise AutodistError("no such script", path)
    if any(count < 1 for count in nproc) or not nproc:
        raise AutodistError("the number of processes must be at least 1")
    if workdir is None:
        workdir = Path.cwd() if before.is_relative_to(Path.cwd()) else before.parent
    records = Path(tempfile.mkdtemp(prefix="autodist-verify-")) if keep is None else keep.resolve()
    records.mkdir(parents=True, exist_ok=True)
    setting = Setting(
        before,
        after,
        workdir.resolve(),
        (start or workdir).resolve(),
        tuple(args),
        steps if dtype == "float64" else min(steps or FLOAT32_STEPS, FLOAT32_STEPS),
        dtype,
        chosen_device(device, max(nproc), python),
        timeout,
        dict(env or {}),
        python,
        progress or NoProgress(),
        records,
    )
    setting.zygote = zygote
    forks = (sys.platform == "linux" and setting.device == "cpu") if fork is None else fork
    try:
        if zygote is not None or not forks:
            return Verdict(str(before), str(after), tuple(verify_world(setting, count) for count in nproc))
        with Zygote(imported_packages((before, after)), setting.env, records / "zygote.log", python) as zygote:
            setting.zygote = zygote
            return Verdict(str(before), str(after), tuple(verify_world(setting, count) for count in nproc))
    finally:
        if keep is None:
            shutil.rmtree(records, ignore_errors=True)


def chosen_device(wanted: Device | Literal["auto"], ranks: int, python: str) -> Device:
    """GPUs when there is one for each rank, since NCCL takes no two ranks on one; else the CPU."""
    if wanted == "cpu" or (wanted == "auto" and not list(Path("/dev").glob("nvidia[0-9]*"))):
        return "cpu"
    question = "import torch; print(torch.cuda.device_count())"
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    count = int(answer.stdout.strip() or 0) if answer.returncode == 0 else 0
    if count >= ranks:
        return "cuda"
    if wanted == "cuda":
        raise AutodistError(f"{ranks} ranks need {ranks} GPUs, there are {count}: NCCL takes one rank a GPU")
    return "cpu"


def imported_packages(scripts: Sequence[Path]) -> list[str]:
    """Known packages that the scripts import, worth importing once for all processes."""
    names: set[str] = set()
    for script in scripts:
        for path in (script, *script.parent.glob("*.py")):
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError):
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    names.update(alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module.partition(".")[0])
    return sorted(names & PRELOADABLE)


def verify_world(setting: Setting, world: int) -> WorldVerdict:
    """One number of ranks: the conversion first, then the original on the samples the ranks read."""
    started = time.monotonic()
    folder = setting.records / f"nproc{world}"
    folder.mkdir(exist_ok=True)
    shared: set[str] = set()
    peers = is_distributed(setting.before)
    gaps: list[str] = []
    for attempt in range(ATTEMPTS):
        place = folder / f"attempt{attempt}"
        (place / "records").mkdir(parents=True, exist_ok=True)
        conversion = run_conversion(setting, world, place, shared)
        replay = place / "replay.json"
        build_replay(conversion.traces).write(replay)
        if peers:
            original = run_peers(setting, world, place, conversion)
            original, conversion, gaps = together(original, conversion, setting)
            break
        original = run_original(setting, world, place, replay, conversion)
        misjudged = {note["message"] for note in original.traces[0].notes if note["topic"] == "shared-draw"} - shared
        if not misjudged:
            break
        shared |= misjudged
    verdict = conclude(setting, world, conversion, original)
    seconds = {
        "conversion": conversion.result.seconds,
        "original": original.result.seconds,
        "total": time.monotonic() - started,
    }
    return replace(verdict, seconds=seconds, notes=(*verdict.notes, *(Finding("not-compared", gap) for gap in gaps)))
