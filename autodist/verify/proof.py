"""Runs a pair of scripts and concludes: the entry point of the package."""

from __future__ import annotations

import ast
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from autodist.errors import AutodistError
from autodist.verify.compare import SHARD, TOLERANCES, StepComparison, compare_steps
from autodist.verify.explain import Evidence, explain, with_rules
from autodist.verify.launch import (
    Process,
    RunResult,
    Zygote,
    free_port,
    rank_environment,
    start_process,
    watch,
)
from autodist.verify.outputs import compare_files, compare_folders, compare_printed
from autodist.verify.plan import Device, Dtype, ProcessPlan
from autodist.verify.progress import NoProgress, Progress, StepCounter
from autodist.verify.replay import build_replay
from autodist.verify.samples import compare_samples
from autodist.verify.scratch import Scratch
from autodist.verify.stall import Position, position_in
from autodist.verify.trace import RunTrace, read_trace
from autodist.verify.verdict import Finding, Outcome, Verdict, WorldVerdict

FLOAT32_STEPS = 20
"""In float32 rounding grows with every step, so that only the first ones can be compared."""
OLDEST_FOR_SHARDS = (2, 9)
ATTEMPTS = 4
"""Runs of a pair until every random draw is known to follow the batch, or not to."""
MISMATCH = re.compile(r"collective mismatch|mismatch between collectives|Received data size")
SHOWN_PASSES, SHOWN_BATCHES = 4, 60
"""What reports draw of the samples that were read."""
PRELOADABLE = frozenset({"torchvision", "PIL", "pandas", "scipy", "sklearn", "matplotlib", "tqdm", "tensorboard"})


@dataclass
class Setting:
    """What stays the same over all runs of one verification."""

    before: Path
    after: Path
    workdir: Path
    args: tuple[str, ...]
    steps: int | None
    dtype: Dtype
    device: Device
    timeout: float
    env: dict[str, str]
    python: str
    progress: Progress
    records: Path
    zygote: Zygote | None = None


@dataclass
class Run:
    """The processes of one program, and what they left."""

    traces: list[RunTrace]
    result: RunResult
    scratch: Scratch
    printed: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    died_at: list[Position | None] = field(default_factory=list)
    """Where a process stood that was ended by a signal."""


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
    python: str = sys.executable,
    fork: bool | None = None,
    keep: Path | None = None,
    zygote: Zygote | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Run ``after`` on several ranks and ``before`` on the same samples, and compare what they did.

    ``nproc`` holds the numbers of ranks to try. ``steps`` ends both programs after so many optimizer steps.
    ``workdir`` is the folder that is copied and in which the scripts start: by default the current folder when it
    holds ``before``, else the folder of ``before``. ``keep`` names a folder for traces, output and scratch copies,
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
    for attempt in range(ATTEMPTS):
        place = folder / f"attempt{attempt}"
        (place / "records").mkdir(parents=True, exist_ok=True)
        conversion = run_conversion(setting, world, place, shared)
        replay = place / "replay.json"
        build_replay(conversion.traces).write(replay)
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
    return replace(verdict, seconds=seconds)


def in_workdir(setting: Setting, script: Path, root: Path) -> Path:
    """Where ``script`` lies in a scratch copy."""
    if script.is_relative_to(setting.workdir):
        return root / script.relative_to(setting.workdir)
    home = setting.before.parent
    return root / (home.relative_to(setting.workdir) if home.is_relative_to(setting.workdir) else Path()) / script.name


def prepare(setting: Setting, script: Path, root: Path) -> Scratch:
    """A scratch copy that holds the script where it belongs."""
    scratch = Scratch(root, setting.records)
    scratch.fill(setting.workdir)
    if not script.is_relative_to(setting.workdir):
        scratch.overlay(script.parent, in_workdir(setting, script, root).parent)
    scratch.seal()
    return scratch


def scratch_args(setting: Setting, root: Path) -> tuple[str, ...]:
    """Arguments that name the working folder name its copy instead."""
    prefix = str(setting.workdir) + os.sep
    return tuple(arg.replace(prefix, str(root) + os.sep) for arg in setting.args)


def run_processes(setting: Setting, plans: Sequence[ProcessPlan], scratch: Scratch, what: str, goal: int | None) -> Run:
    """Start, wait, collect."""
    processes: list[Process] = []
    counter = StepCounter([plan.record("trace") for plan in plans])
    setting.progress.begin(what, [plan.name for plan in plans], goal)

    def tick() -> None:
        counts = counter.counts()
        if counts is not None:
            setting.progress.steps(counts)

    try:
        for plan in plans:
            if setting.zygote is not None:
                processes.append(setting.zygote.start(plan, {**setting.env, **plan.env}))
            else:
                processes.append(start_process(plan, {**setting.env, **plan.env}, setting.python))
    finally:
        try:
            result = watch(processes, plans, setting.timeout if len(processes) == len(plans) else 0.0, tick)
        finally:
            setting.progress.end()
    run = Run([read_trace(plan.record("trace")) for plan in plans], result, scratch)
    run.printed = [plan.record("stdout").read_text(encoding="utf-8", errors="replace") for plan in plans]
    run.errors = [plan.record("stderr").read_text(encoding="utf-8", errors="replace") for plan in plans]
    for plan in plans:
        stacks = plan.record("stacks")
        text = stacks.read_text(encoding="utf-8", errors="replace") if stacks.exists() else ""
        run.died_at.append(position_in(text, plan.root))
    return run


def run_conversion(setting: Setting, world: int, folder: Path, shared: Collection[str]) -> Run:
    """The converted script on ``world`` ranks in one scratch copy."""
    root = folder / "conversion"
    scratch = prepare(setting, setting.after, root)
    script = in_workdir(setting, setting.after, root)
    port = free_port()
    synchronised = any("SyncBatchNorm" in text or "sync_batchnorm" in text for text in sources(script))
    plans = [
        ProcessPlan(
            role="conversion",
            rank=rank,
            world=world,
            script=str(script),
            args=scratch_args(setting, root),
            root=str(root),
            cwd=str(root),
            records=str(folder / "records"),
            dtype=setting.dtype,
            device=setting.device,
            steps=setting.steps,
            shared_draws=tuple(sorted(shared)),
            global_batchnorm=synchronised,
            env=rank_environment(rank, world, port),
        )
        for rank in range(world)
    ]
    return run_processes(setting, plans, scratch, f"{setting.after.name} on {world} ranks", setting.steps)


def sources(script: Path) -> list[str]:
    """The text of the script and of the modules beside it."""
    paths = [script, *sorted(script.parent.rglob("*.py"))[:500]]
    return [path.read_text(encoding="utf-8", errors="replace") for path in paths if path.is_file()]


def run_original(setting: Setting, world: int, folder: Path, replay: Path, conversion: Run) -> Run:
    """The original in one process."""
    root = folder / "original"
    scratch = prepare(setting, setting.before, root)
    plan = ProcessPlan(
        role="original",
        rank=0,
        world=world,
        script=str(in_workdir(setting, setting.before, root)),
        args=scratch_args(setting, root),
        root=str(root),
        cwd=str(root),
        records=str(folder / "records"),
        dtype=setting.dtype,
        device=setting.device,
        steps=original_steps(setting, conversion),
        replay=str(replay),
    )
    goal = max((len(rank.steps) for rank in conversion.traces), default=0) or None
    what = f"{setting.before.name} on the samples that the ranks read"
    return run_processes(setting, [plan], scratch, what, goal)


def original_steps(setting: Setting, conversion: Run) -> int | None:
    """Where the conversion did not come to its end, the original need not go on much further either."""
    if all(rank.end is not None and rank.end.code == 0 for rank in conversion.traces):
        return setting.steps
    taken = min(len(rank.steps) for rank in conversion.traces)
    return max(1, taken if setting.steps is None else min(taken, setting.steps))


def conclude(setting: Setting, world: int, conversion: Run, original: Run) -> WorldVerdict:
    """Compare the traces."""
    tolerance = TOLERANCES[setting.dtype]
    base = WorldVerdict(world, setting.dtype, Outcome.NOT_COMPARABLE, "", tolerance=tolerance)
    source = original.traces[0]
    ranks = conversion.traces
    failures = run_failures(conversion)
    if not original.result.timed_out and (source.end is None or source.end.code != 0):
        return original_failed(base, original, failures)
    if not source.steps:
        reason = "no optimizer step was seen in the original: there is nothing to compare"
        return replace(base, reason=reason, findings=tuple(with_rules(failures)))
    if not failures and not any(rank.steps for rank in ranks):
        reason = "no optimizer step was seen in the conversion: there is nothing to compare"
        return replace(base, reason=reason)
    steps = compare_steps(source, ranks, tolerance)
    sample_findings, notes = compare_samples(source, ranks)
    slow = next((run for run in (conversion, original) if run.result.timed_out), None)
    if failures or slow is not None:
        wake = {"steps-per-rank", "step-count", "batches-per-rank", "batch-count", "passes-per-rank", "pass-count"}
        seen = [finding for finding in (*steps.findings, *sample_findings) if finding.kind not in wake]
        findings = [*failures, *seen]
    else:
        findings = [*sample_findings, *steps.findings, *output_findings(setting, conversion, original, steps)]
    notes += probe_notes(source, ranks)
    if steps.grown and not steps.diverged:
        message = f"rounding grew from step to step, up to {steps.grown:.0e}: the training amplifies it"
        notes.append(Finding("rounding", message))
    if source.end is not None and source.end.stopped:
        message = f"compared up to step {len(source.steps)}; what the scripts do after it was not run"
        notes.append(Finding("stopped", message))
    if unsound := too_old_for_shards(source, ranks, setting.device):
        return replace(base, reason=unsound)
    base = replace(
        base,
        findings=tuple(with_rules(findings)),
        cause=explain(Evidence(findings, source, ranks, conversion.scratch.root)) if findings else None,
        notes=tuple(notes),
        steps=len(steps.deviations),
        deviations=tuple(steps.deviations),
        step=steps.first,
        details=details(source, ranks),
    )
    if not findings and slow is not None:
        which = "conversion" if slow is conversion else "original"
        reason = f"the {which} was still running after {setting.timeout:g} s: " + "; ".join(slow.result.states)
        return replace(
            base, reason=f"{reason}; {base.steps} optimizer steps agree so far, --steps limits the comparison"
        )
    if not findings:
        notes = [note for note in notes if note.kind != "draw"]
        base = replace(base, notes=tuple(notes))
        return replace(base, outcome=Outcome.EQUAL, reason=f"{len(steps.deviations)} optimizer steps agree")
    numeric_only = all(finding.step is not None for finding in findings) and steps.first
    if numeric_only:
        return replace(
            base, outcome=Outcome.EQUAL_UNTIL, reason=f"equal until step {steps.first}: {findings[0].message}"
        )
    return replace(base, outcome=Outcome.DIFFERS, reason=findings[0].message)


def too_old_for_shards(source: RunTrace, ranks: Sequence[RunTrace], device: Device) -> str | None:
    """FSDP2 on CPU sums gradients instead of averaging them before torch 2.9: its runs say nothing about the script."""
    sharded = any(
        digest is not None and len(digest) > SHARD
        for rank in ranks
        for step in rank.steps[:1]
        for group in step.groups
        for digest in group.parameters
    )
    version = str(source.started.get("torch", ""))
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if sharded and device == "cpu" and numbers < OLDEST_FOR_SHARDS:
        return f"FSDP2 is wrong on CPU in torch {version}: verify with torch 2.9 or later"
    return None


def original_failed(base: WorldVerdict, original: Run, failures: Sequence[Finding]) -> WorldVerdict:
    """Without the original there is nothing to compare with."""
    end = original.traces[0].end
    if end is None:
        finding = Finding("original-crash", f"the original was killed: {last_line(original.errors[0])}")
    else:
        finding = Finding("original-crash", f"the original fails: {end.error}: {end.message}", end.site)
    return replace(base, reason=finding.message, findings=(finding, *with_rules(failures)))


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "no message"


def run_failures(conversion: Run) -> list[Finding]:
    """Crashes and hangs of the ranks. One failure is enough: the others fail in its wake."""
    result, ranks = conversion.result, conversion.traces
    step = min(len(rank.steps) for rank in ranks)
    if result.hung:
        site = next((state.rpartition(" at ")[2] for state in result.states if " waits in " in state), None)
        return [Finding("hang", "; ".join(result.states), site, step)]
    failed = [rank for rank, code in enumerate(result.codes) if code not in (None, 0)]
    if not failed:
        return []
    ends = {rank: ranks[rank].end for rank in failed}
    first = min(failed, key=lambda rank: (ends[rank] is not None, getattr(ends[rank], "time", 0.0)))
    end = ends[first]
    if end is None:
        place = conversion.died_at[first]
        message = f"rank {first} dies with code {result.codes[first]}: {last_line(conversion.errors[first])}"
        if MISMATCH.search(conversion.errors[first]):
            message = f"the ranks call different collectives: rank {first} {place or 'dies'}"
            others = [f"rank {rank} is at {end.site}" for rank, end in ends.items() if end is not None]
            return [Finding("mismatch", "; ".join([message, *others]), place.site if place else None, step)]
        return [Finding("crash", message, place.site if place else None, step)]
    message = f"rank {first} fails: {end.error}: {end.message}"
    return [Finding("crash", message, end.site, step)]


def output_findings(setting: Setting, conversion: Run, original: Run, steps: StepComparison) -> list[Finding]:
    """What a user sees, as exactly as the steps agree."""
    tolerance = TOLERANCES[setting.dtype]
    if steps.grown:
        allowed = math.inf if steps.diverged else 30 * steps.grown
        printed, parameters = max(tolerance.printed, allowed), max(tolerance.parameters, allowed)
        tolerance = replace(tolerance, printed=printed, parameters=parameters)
    source, ranks = original.traces[0], conversion.traces
    findings = compare_printed(original.printed[0], conversion.printed, tolerance)
    findings += compare_folders(source, ranks)
    findings += compare_files(source, ranks, original.scratch.changed(), conversion.scratch.changed(), tolerance)
    return findings


def probe_notes(source: RunTrace, ranks: Sequence[RunTrace]) -> list[Finding]:
    """What the probes had to say, once each."""
    seen: dict[tuple[str, str], Finding] = {}
    for run in (source, *ranks):
        for note in run.notes:
            if note["topic"] not in ("destroyed", "batchnorm-per-rank", "shared-draw", "wrapped-load"):
                seen.setdefault((note["topic"], note["site"]), Finding(note["topic"], note["message"], note["site"]))
    return list(seen.values())


def details(source: RunTrace, ranks: Sequence[RunTrace]) -> dict[str, object]:
    """What reports draw besides the curves."""
    shown = [key for key in source.passes if all(key in rank.passes for rank in ranks)][:SHOWN_PASSES]
    return {
        "samples": {
            f"{loader}/{number}": [rank.passes[loader, number].batches[:SHOWN_BATCHES] for rank in ranks]
            for loader, number in shown
        },
        "writers": {
            path: sorted(number for number, rank in enumerate(ranks) if any(each.path == path for each in rank.writes))
            for path in sorted({write.path for rank in ranks for write in rank.writes if write.action == "open"})
        },
        "loaders": {loader.number: f"{loader.dataset} at {loader.site}" for loader in ranks[0].loaders},
    }
