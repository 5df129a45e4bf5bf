"""Runs a pair of scripts and concludes: the entry point of the package."""

from __future__ import annotations

import ast
import functools
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autodist.errors import AutodistError
from autodist.project import module_of
from autodist.source import Source
from autodist.verify.alone import drawn_in_evaluation, goes_by_time, single_draws
from autodist.verify.changes import changed_files
from autodist.verify.conclude import conclude, conclude_alone, without_probes
from autodist.verify.coverage import joined
from autodist.verify.explain import CAUSES, CONSEQUENCES
from autodist.verify.launch import Zygote
from autodist.verify.nodes import Nodes, refusal
from autodist.verify.peers import is_distributed, run_peers, together
from autodist.verify.placement import Wanted, gpu_count, placed, sharing_refusal
from autodist.verify.plan import Dtype
from autodist.verify.preempted import Again, preempted
from autodist.verify.progress import NoProgress, Progress
from autodist.verify.replay import build_replay
from autodist.verify.runs import OTHER_HASHES, Setting, Steering, run_bare, run_conversion, run_original, sources
from autodist.verify.scratch import entries_of
from autodist.verify.verdict import Cause, Finding, Outcome, Verdict, WorldVerdict

FLOAT32_STEPS = 20
"""In float32 rounding grows with every step, so that only the first ones can be compared."""
OF_STEPS = frozenset({"loss", "gradient", "parameters", "rounding"})
"""Findings that rounding can bring about."""
ATTEMPTS = 6
"""Runs of a pair until every random draw is known to follow the batch, or not to, or cannot be told to."""
HASHING = ("set", "frozenset", "hash")
PRELOADABLE = frozenset({"torchvision", "PIL", "pandas", "scipy", "sklearn", "matplotlib", "tqdm", "tensorboard"})


def verify(
    before: Path,
    after: Path,
    nproc: Sequence[int] = (2,),
    args: Sequence[str] = (),
    *,
    steps: int | None = None,
    dtype: Dtype = "float64",
    device: Wanted = "auto",
    timeout: float = 600.0,
    env: Mapping[str, str] | None = None,
    workdir: Path | None = None,
    start: Path | None = None,
    base: Path | None = None,
    python: str = sys.executable,
    fork: bool | None = None,
    keep: Path | None = None,
    nnodes: int = 1,
    zygote: Zygote | None = None,
    progress: Progress | None = None,
    modules: Sequence[str | None] = (None, None),
    again: Again | None = None,
) -> Verdict:
    """Run ``after`` on several ranks and ``before`` on the same samples, and compare what they did.

    ``nproc`` holds the numbers of ranks to try. ``steps`` ends both programs after so many optimizer steps.
    ``workdir`` is the folder that is copied and in which the scripts start: by default the current folder when it
    holds ``before``, else the folder of ``before``; ``start`` is a folder below it to start in. ``base`` is the
    folder of the conversion's files, by default that of ``after``. ``keep`` names a folder for traces, output and
    scratch copies, which are removed otherwise. ``nnodes`` are the nodes that the ranks are spread over, where this
    machine can be divided, or take themselves to be. ``device`` is ``auto`` for a GPU for each rank, one GPU for
    several where torch can do that, or else the CPU. ``zygote`` is a process to fork from that several verifications
    share. ``modules`` are the names by which `python -m` starts the scripts; one that imports from its package is
    started so in any case. ``again`` has the conversion killed in some step, and go on, once it is found equal.
    """
    before, after = Path(before).resolve(), Path(after).resolve()
    check_input(before, after, nproc, timeout, workdir, keep, again)
    counts = [*nproc, *([again.ranks] if again is not None else [])]
    if nnodes < 1 or any(count % nnodes for count in counts):
        raise AutodistError(f"--nodes {nnodes}: the ranks cannot be spread evenly over so many nodes")
    pairs = zip((before, after), modules, strict=True)
    named = {path: name or module_of(path, Source.read(path).tree) or "" for path, name in pairs}
    if workdir is None:
        top = before.parents[named[before].count(".") + (before.stem == "__main__")] if named[before] else before.parent
        workdir = Path.cwd() if before.is_relative_to(Path.cwd()) else top
    gpus = 0 if device == "cpu" else gpu_count(python)
    sharded = any("fully_shard" in text for text in sources(after, *([] if base is None else [base])))

    sharing = functools.partial(sharing_refusal, "cuda", sharded, python)
    placements = {count: placed(device, count, gpus, sharing) for count in counts}
    records = Path(tempfile.mkdtemp(prefix="autodist-verify-")) if keep is None else keep.resolve()
    records.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix="ad"))
    setting = Setting(
        before,
        after,
        workdir.resolve(),
        (base or folder_of(after, before, workdir.resolve())).resolve(),
        (start or workdir).resolve(),
        tuple(args),
        steps if dtype == "float64" else min(steps or FLOAT32_STEPS, FLOAT32_STEPS),
        dtype,
        placements,
        timeout,
        dict(env or {}),
        python,
        progress or NoProgress(),
        records,
        temporary,
    )
    setting.modules = {path: name for path, name in named.items() if name}
    setting.changes = changed_files(before, after, setting.base, setting.workdir, setting.modules)
    setting.zygote = zygote
    divide(setting, nnodes)
    # where the original is distributed, each of its ranks is compared with one that orders sets as it does
    setting.hashes_apart = not is_distributed(before) and any(map(orders_by_hash, sources(after, setting.base)))
    on_cpu = any(placement.device == "cpu" for placement in placements.values())
    forks = (sys.platform == "linux" and on_cpu) if fork is None else fork
    try:
        if zygote is not None or not forks:
            return Verdict(str(before), str(after), tuple(_worlds(setting, nproc, again)))
        with Zygote(imported_packages((before, after)), setting.env, records / "zygote.log", python) as zygote:
            setting.zygote = zygote
            if setting.hashes_apart:
                zygote.hashing(OTHER_HASHES)  # they import torch side by side
            return Verdict(str(before), str(after), tuple(_worlds(setting, nproc, again)))
    finally:
        if setting.division is not None:
            setting.division.close()
        shutil.rmtree(temporary, ignore_errors=True)
        if keep is None:
            shutil.rmtree(records, ignore_errors=True)


def _worlds(setting: Setting, nproc: Sequence[int], again: Again | None) -> Iterator[WorldVerdict]:
    """The verdicts on all numbers of ranks, and on runs of them that are interrupted."""
    for count in nproc:
        verdict = verify_world(setting, count)
        yield verdict
        if again is not None and verdict.equal:
            yield preempted(setting, verdict, again, setting.records / f"nproc{count}-preempted")


def divide(setting: Setting, nodes: int) -> None:
    """Make the nodes that the ranks run on, where that can be done."""
    setting.nodes = nodes
    if nodes == 1:
        return
    on_gpu = any(each.device != "cpu" for each in setting.placements.values())
    shared = "what runs on GPUs shares the network of this machine; --device cpu divides it"
    setting.undivided = shared if on_gpu else refusal() or ""
    if not setting.undivided:
        setting.division = Nodes(nodes)


def folder_of(after: Path, before: Path, workdir: Path) -> Path:
    """The folder of a conversion's files: as far above the script as modules lie that are called like the original's,
    as in `out/lib` and `out/tools/train.py`."""
    found, inner = after.parent, after
    if after.is_relative_to(workdir):
        return found
    for there, here in zip(after.parents, before.parents, strict=False):
        beside = [path for path in entries_of(there) if path != inner and (here / path.name).exists()]
        if any(path.suffix == ".py" or any(each.suffix == ".py" for each in two_levels(path)) for path in beside):
            found = there
        if here == workdir or here.name != there.name:
            break
        inner = there
    return found


def two_levels(folder: Path) -> Iterator[Path]:
    """What lies in a folder and in the folders in it; nothing in a file."""
    for path in entries_of(folder):
        yield path
        yield from entries_of(path)


def check_input(
    before: Path,
    after: Path,
    nproc: Sequence[int],
    timeout: float,
    workdir: Path | None,
    keep: Path | None,
    again: Again | None = None,
) -> None:
    """What can be said before anything runs."""
    for path in (before, after):
        Source.read(path)
    if again is not None and is_distributed(before):
        raise AutodistError("--preempt compares with an original in one process, and this one is distributed", before)
    if any(count < 1 for count in nproc) or not nproc:
        raise AutodistError("the number of processes must be at least 1")
    if not timeout > 0:
        raise AutodistError("the timeout must be a positive number of seconds")
    if workdir is not None and not workdir.is_dir():
        raise AutodistError("no such folder", workdir)
    if keep is not None and (keep.is_file() or (keep.is_dir() and any(keep.iterdir()))):
        raise AutodistError("traces and scratch copies need an empty folder", keep)


def imported_packages(scripts: Sequence[Path]) -> list[str]:
    """Known packages that the scripts import, worth importing once for all processes."""
    names: set[str] = set()
    for script in scripts:
        for path in (script, *script.parent.glob("*.py")):
            try:
                tree = Source.read(path).tree
            except AutodistError:
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    names.update(alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    names.add(node.module.partition(".")[0])
    return sorted(names & PRELOADABLE)


def verify_world(setting: Setting, world: int) -> WorldVerdict:
    """One number of ranks. What float32 puts apart after equal steps is a fault only where float64 does so too."""
    verdict = compared(setting, world, setting.records / f"nproc{world}")
    differs = verdict.outcome in (Outcome.DIFFERS, Outcome.EQUAL_UNTIL)
    if setting.hashes_apart and world > 1 and differs:
        setting = replace(setting, hashes_apart=False)
        alike = compared(setting, world, setting.records / f"nproc{world}-hashes-alike")
        if alike.equal:
            return replace(verdict, cause=Cause("keep-order-of-sets", *CAUSES["keep-order-of-sets"]))
        verdict = alike
    if setting.dtype == "float64" or verdict.outcome is not Outcome.EQUAL_UNTIL or not in_training(verdict):
        return verdict
    exact = compared(replace(setting, dtype="float64"), world, setting.records / f"nproc{world}-float64")
    return within_rounding(verdict, exact) if exact.equal else verdict


def orders_by_hash(text: str) -> bool:
    """Whether a module makes sets for more than to look something up in them, or hashes something: those of strings
    have another order, and strings another hash, in each process."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    looked_up = {each for node in ast.walk(tree) if isinstance(node, ast.Compare) for each in node.comparators}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Set, ast.SetComp)) and node not in looked_up:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HASHING:
            return True
    return False


def in_training(verdict: WorldVerdict) -> bool:
    """Whether all that differs are numbers of optimizer steps, and what follows from them, as where another optimizer
    begins later with parameters that have come apart."""
    first = verdict.step if verdict.step is not None else math.inf
    return all(
        finding.kind in CONSEQUENCES
        or finding.kind in OF_STEPS
        or finding.kind == "initial-parameters"
        and (finding.step or 0) > first
        for finding in verdict.findings
    )


def within_rounding(verdict: WorldVerdict, exact: WorldVerdict) -> WorldVerdict:
    """Equal: in float32 a training may amplify rounding until a ReLU or an absolute value decides another way."""
    message = (
        f"in float32 {verdict.reason}; in float64 the same {exact.steps} steps agree "
        f"(gradient {exact.largest('gradient'):.0e}): it is rounding that grew"
    )
    agreed = tuple(each for each in verdict.deviations if verdict.step is None or each.step < verdict.step)
    return replace(
        verdict,
        outcome=Outcome.EQUAL,
        reason=f"{exact.reason} in float64, {len(agreed)} in float32",
        findings=(),
        cause=None,
        step=None,
        steps=len(agreed),
        deviations=agreed,
        notes=(*verdict.notes, Finding("rounding", message)),
        seconds={name: seconds + exact.seconds.get(name, 0.0) for name, seconds in verdict.seconds.items()},
    )


def compared(setting: Setting, world: int, folder: Path) -> WorldVerdict:
    """The conversion first, then the original on the samples the ranks read."""
    started = time.monotonic()
    folder.mkdir(exist_ok=True)
    steering = Steering()
    peers = is_distributed(setting.before)
    gaps: list[str] = []
    for attempt in range(ATTEMPTS):
        last, held = attempt == ATTEMPTS - 1, steering.held()
        place = folder / f"attempt{attempt}"
        (place / "records").mkdir(parents=True, exist_ok=True)
        conversion = run_conversion(setting, world, place, steering)
        replay = place / "replay.json"
        build_replay(conversion.traces).write(replay)
        if peers:
            original = run_peers(setting, world, place, conversion)
            original, conversion, gaps = together(original, conversion, setting)
        else:
            original = run_original(setting, world, place, replay, conversion, steering)
            if steering.misjudged(original.traces[0]) and not last:
                continue
        verdict, coverage = conclude(setting, world, conversion, original), conversion.coverage
        if verdict.equal or peers or last or not steering.unaligned(original.traces[0]):
            break
    if not peers and any(finding.kind == "original-crash" for finding in verdict.findings):
        seconds_left = min(setting.timeout, 30 + 4 * original.result.seconds)
        verdict = without_probes(verdict, run_bare(setting, world, place, seconds_left))
    if verdict.equal and world > 1 and not peers:
        steering.alone, steering.apart = tuple(single_draws(conversion.traces)), drawn_in_evaluation(conversion.traces)
        if steering.alone or steering.apart or goes_by_time(sources(setting.after, setting.base)):
            place = folder / "alone"
            (place / "records").mkdir(parents=True)
            own = run_conversion(setting, world, place, steering)
            verdict, coverage = conclude_alone(setting, verdict, original, own), joined(coverage, own.coverage)
    seconds = {
        "conversion": conversion.result.seconds,
        "original": original.result.seconds,
        "total": time.monotonic() - started,
    }
    notes = [*held_still(held), *(Finding("not-compared", gap) for gap in gaps)]
    return replace(verdict, seconds=seconds, notes=(*verdict.notes, *notes), coverage=coverage)


def held_still(draws: Sequence[tuple[str, list[int]]]) -> list[Finding]:
    """What a reader has to know of draws that were not as they are without the verifier."""
    if not draws:
        return []
    named = ", ".join(f"{name} ({site})" for name, _, site in (draw.rpartition(" ") for draw, _ in draws))
    message = "held still in both programs, since what the ranks draw cannot be put together for the whole batch"
    return [Finding("held-still", f"{named}: {message}")]
