"""Runs a script on whole batches and on unequal shares of them, and reads the values that it came to."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autodist.errors import AutodistError
from autodist.observe.joins import SHARES
from autodist.project import module_of
from autodist.source import Source
from autodist.verify.launch import Zygote
from autodist.verify.placement import Placement
from autodist.verify.plan import Place, ProcessPlan
from autodist.verify.probes.observing import Seen, pickled
from autodist.verify.progress import NoProgress, Progress
from autodist.verify.proof import imported_packages
from autodist.verify.replay import Replay
from autodist.verify.runs import Run, Setting, elsewhere, in_workdir, prepare, run_processes, scratch_args
from autodist.verify.trace import RunTrace

PARTS = (7, 5, 3)
"""How rows are shared out: unequally, so that no weight is taken for another."""
CPU = Placement("cpu")


@dataclass
class Round:
    """One run on the whole batches, and one for each share."""

    whole: list[Seen]
    shares: list[list[Seen]]


@dataclass
class Measured:
    """What all runs have shown."""

    rounds: list[Round] = field(default_factory=list)
    steps: int = 0
    workdir: Path = Path()


def measure(
    script: Path,
    args: Sequence[str] = (),
    *,
    steps: int = 3,
    timeout: float = 600.0,
    env: Mapping[str, str] | None = None,
    workdir: Path | None = None,
    zygote: Zygote | None = None,
    progress: Progress | None = None,
    places: Mapping[Path, Sequence[Place]] | None = None,
) -> Measured:
    """Run ``script`` for so many optimizer steps in copies of its folder, on the CPU and in float64. Beside what others
    see the expressions are recorded that have some ``places`` in its files.

    Raises AutodistError where it fails, or takes no step with batches of a loader.
    """
    script = Path(script).resolve()
    source = Source.read(script)
    name = module_of(script, source.tree)
    if workdir is None:
        top = script.parents[name.count(".") + (script.stem == "__main__")] if name else script.parent
        workdir = Path.cwd() if script.is_relative_to(Path.cwd()) else top
    records, temporary = Path(tempfile.mkdtemp(prefix="autodist-observe-")), Path(tempfile.mkdtemp(prefix="ad"))
    workdir = workdir.resolve()
    setting = Setting(
        script,
        script,
        workdir,
        workdir,
        workdir,
        tuple(args),
        steps + 1,  # what follows the last step that counts is seen, too
        "float64",
        {1: CPU},
        timeout,
        dict(env or {}),
        sys.executable,
        progress or NoProgress(),
        records,
        temporary,
    )
    setting.modules = {script: name} if name else {}
    named = {os.path.relpath(path, workdir).replace(os.sep, "/"): [*each] for path, each in (places or {}).items()}
    try:
        if zygote is not None or sys.platform != "linux":
            setting.zygote = zygote
            return _measured(setting, named)
        with Zygote(imported_packages([script]), setting.env, records / "zygote.log") as own:
            setting.zygote = own
            return _measured(setting, named)
    finally:
        shutil.rmtree(records, ignore_errors=True)
        shutil.rmtree(temporary, ignore_errors=True)


def _measured(setting: Setting, places: dict[str, list[Place]]) -> Measured:
    """Twice, the second time with other weights; before that once to see which batches train and what is drawn."""
    first = _run(setting, "first", None, None, {}, None)
    passes = {key: each for key, each in first.passes.items() if each.trains}
    if not first.steps:
        raise AutodistError("takes no optimizer step: there is nothing to observe", setting.before)
    if not passes:
        raise AutodistError(
            "trains on no batch of a DataLoader: batches that are made by hand cannot be shared out yet", setting.before
        )
    samples = {key: each.batches for key, each in first.passes.items()}
    batches = [batch for key in passes for batch in samples[key]]
    if any(len(batch) < SHARES for batch in batches[: len(first.steps)]):
        raise AutodistError(f"has batches of fewer than {SHARES} samples: they cannot be shared out", setting.before)
    replays = [Replay(1, [each.dataset for each in first.loaders], samples, training=set(passes))]
    for share in range(SHARES):
        own = {key: [_share(batch, share) for batch in each] for key, each in samples.items() if key in passes}
        replays.append(replace(replays[0], passes={**samples, **own}))
    held = _held(first, _run(setting, "share", replays[-1], None, {}, None))
    result = Measured(steps=min(len(first.steps), (setting.steps or 1) - 1), workdir=setting.workdir)
    for shaken in (False, True):
        states = setting.records / f"{'shaken-' * shaken}whole" / "records" / "states"
        seen: list[list[Seen]] = []
        for number, replay in enumerate(replays):
            name = f"{'shaken-' * shaken}{'whole' if not number else f'share{number}'}"
            _run(setting, name, replay, (str(states), number > 0, shaken, places), held, seen)
        result.rounds.append(Round(seen[0], seen[1:]))
    return result


def _share(batch: list[Any], share: int) -> list[Any]:
    """The rows of a batch that one of the shares has, in their order; each has one at least."""
    ends = [0]
    for number, part in enumerate(PARTS):
        left = SHARES - 1 - number
        wanted = round(len(batch) * sum(PARTS[: number + 1]) / sum(PARTS)) if part else 0
        ends.append(len(batch) if not left else min(max(wanted, ends[-1] + 1), len(batch) - left))
    return batch[ends[share] : ends[share + 1]]


def _held(whole: RunTrace, share: RunTrace) -> dict[str, list[int]]:
    """The draws that follow the batch, with the dimensions along which they do: they are held still."""
    shapes: dict[str, list[int]] = {draw.seed: draw.shape for draw in share.draws}
    held: dict[str, list[int]] = {}
    for draw in whole.draws:
        other = shapes.get(draw.seed, draw.shape)
        if draw.shape != other:
            name = f"{draw.function} {draw.site}"
            differ = [at for at, size in enumerate(draw.shape) if at >= len(other) or other[at] != size]
            held[name] = sorted({*held.get(name, []), *(differ or [0])})
    return held


def _run(
    setting: Setting,
    name: str,
    replay: Replay | None,
    observing: tuple[str, bool, bool, dict[str, list[Place]]] | None,
    held: dict[str, list[int]],
    seen: list[list[Seen]] | None,
) -> RunTrace:
    """One process, as a rank of one that reads what it is told. Raises AutodistError where it fails."""
    folder = setting.records / name
    (folder / "records").mkdir(parents=True)
    scratch = prepare(setting, setting.before, folder / "copy")
    if replay is not None:
        replay.write(folder / "replay.json")
    plan = ProcessPlan(
        role="conversion",
        rank=0,
        world=1,
        script=str(in_workdir(setting, setting.before, scratch.root)),
        module=setting.modules.get(setting.before),
        args=scratch_args(setting, scratch.root),
        root=str(scratch.root),
        outer=str(folder / "copy"),
        cwd=str(scratch.root / setting.start.relative_to(setting.workdir)),
        records=str(folder / "records"),
        dtype=setting.dtype,
        steps=setting.steps,
        replay=str(folder / "replay.json") if replay is not None else None,
        held=held,
        observing=observing,
        **elsewhere(scratch),
    )
    run = run_processes(setting, [plan], scratch, f"{setting.before.name}: {name}", setting.steps)
    _check(setting, name, run)
    if seen is not None:
        seen.append(list(pickled(str(plan.record("seen")))))
    shutil.rmtree(folder / "copy", ignore_errors=True)
    return run.traces[0]


def _check(setting: Setting, name: str, run: Run) -> None:
    end = run.traces[0].end
    if run.result.timed_out or run.result.hung:
        raise AutodistError(
            f"was still running after {setting.timeout:g} s ({name}): --steps ends it earlier", setting.before
        )
    if end is None or end.code != 0:
        why = (
            f"{end.error}: {end.message} ({end.site})"
            if end is not None
            else (run.errors[0].strip().splitlines() or ["killed"])[-1]
        )
        of = " on a share of the batches" if "share" in name else ""
        raise AutodistError(f"fails{of}: {why}", setting.before)
