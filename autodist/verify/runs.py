"""Runs one program of a pair: a scratch copy, its processes, and what they leave."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from autodist.errors import AutodistError
from autodist.notebook import SUFFIX, script_name
from autodist.source import Source
from autodist.verify.changes import Changed
from autodist.verify.coverage import Coverage
from autodist.verify.launch import (
    HASH_SEED,
    Process,
    RunResult,
    Zygote,
    free_port,
    rank_environment,
    start_process,
    watch,
)
from autodist.verify.nodes import INTERFACE, Nodes
from autodist.verify.outside import Outside
from autodist.verify.placement import Placement
from autodist.verify.plan import OUTPUT_MARK, TEMPORARY, Dtype, ProcessPlan
from autodist.verify.progress import Progress, StepCounter
from autodist.verify.scratch import MOST_READ, Scratch, python_files, text_of
from autodist.verify.stall import Position, position_in
from autodist.verify.trace import PassKey, RunTrace, read_trace

LEVELS_ABOVE = 2
"""Folders above the working folder that a script may reach for by ``..``."""
OTHER_HASHES = "1"
"""By what the rank hashes strings that does so in another way than the others."""


@dataclass
class Setting:
    """What stays the same over all runs of one verification."""

    before: Path
    after: Path
    workdir: Path
    base: Path
    """The folder of the conversion's files; ``after`` lies in it where ``before`` lies among its own."""
    start: Path
    """Where the scripts start: the working folder, or a folder below it."""
    args: tuple[str, ...]
    steps: int | None
    dtype: Dtype
    placements: dict[int, Placement]
    """For each number of ranks."""
    timeout: float
    env: dict[str, str]
    python: str
    progress: Progress
    records: Path
    temporary: Path
    """For temporary files of all runs: its path is short, since the address of a socket may have 107 characters."""
    modules: Mapping[Path, str] = field(default_factory=dict)
    """The names of scripts that are started by name, as `python -m` does."""
    zygote: Zygote | None = None
    nodes: int = 1
    """Nodes that the ranks believe to run on, the same number on each."""
    division: Nodes | None = None
    """Those that they run on indeed, if this machine can be divided."""
    undivided: str = ""
    """Why it cannot."""
    changes: tuple[Changed, ...] = ()
    """The files of the conversion with what has changed in them."""
    hashes_apart: bool = False
    """Another rank than the first hashes strings, and so orders sets of them, in another way than it does."""

    def environment(self, rank: int, world: int, port: int) -> dict[str, str]:
        """What torchrun tells a rank."""
        gpus = self.placements[world].gpus
        local = world // self.nodes if self.nodes > 1 else gpus
        env = rank_environment(rank, world, port, min(local, gpus) if gpus else local)
        if self.division is not None:
            env |= {"MASTER_ADDR": self.division.names[0], "GLOO_SOCKET_IFNAME": INTERFACE}
        return env

    def node(self, rank: int, world: int) -> int:
        """The number of the node that a rank runs on; 0 where all of them run here."""
        return 0 if self.division is None else rank // (world // self.nodes)


@dataclass
class Run:
    """The processes of one program, and what they left."""

    traces: list[RunTrace]
    result: RunResult
    scratch: Scratch
    printed: list[str] = field(default_factory=list)
    captured: list[bool] = field(default_factory=list)
    """All that a process printed, from beginning to end, came to us."""
    errors: list[str] = field(default_factory=list)
    died_at: list[Position | None] = field(default_factory=list)
    """Where a process stood that was ended by a signal."""
    coverage: Coverage | None = None
    """What of the changed code some rank came to."""


def in_workdir(setting: Setting, script: Path, root: Path) -> Path:
    """Where ``script`` lies in a scratch copy, or the script that a notebook makes."""
    script = script.with_name(script_name(script))
    if script.is_relative_to(setting.workdir):
        return root / script.relative_to(setting.workdir)
    home = setting.before.parent
    return root / (home.relative_to(setting.workdir) if home.is_relative_to(setting.workdir) else Path()) / script.name


def scratch_root(setting: Setting, outer: Path) -> Path:
    """Where the copy of the working folder lies: two folders deep, in folders named like those it lies in."""
    return outer.joinpath(*setting.workdir.parts[1:][-1 - LEVELS_ABOVE :])


def overlaid(setting: Setting, script: Path, root: Path) -> Path:
    """The folder of a scratch copy that takes in the conversion's files."""
    levels = len(script.parent.relative_to(setting.base).parts)
    place = in_workdir(setting, script, root)
    if levels > len(place.parent.relative_to(root).parts):
        raise AutodistError("imports modules from above the working folder: --workdir names one further up", script)
    return place.parents[levels]


def prepare(setting: Setting, script: Path, outer: Path) -> Scratch:
    """A scratch copy that holds the script where it belongs."""
    root = scratch_root(setting, outer)
    scratch = Scratch(root, outer, setting.records)
    scratch.fill(setting.workdir)
    scratch.surround(setting.workdir)
    if not script.is_relative_to(setting.workdir):
        scratch.overlay(setting.base, overlaid(setting, script, root), script)
    if script.suffix == SUFFIX:
        place = in_workdir(setting, script, root)
        place.write_text(Source.read(script).text, encoding="utf-8")
    scratch.seal()
    temporary, store = temporary_folder(setting), outer.with_name(f"{outer.name}-outside")
    kept = str(outer), str(outer.parent / "records"), str(temporary)
    store.mkdir(parents=True, exist_ok=True)
    scratch.outside = Outside(str(store), str(setting.workdir), str(root), kept, private_places())
    return scratch


def place_of(setting: Setting, path: Path, root: Path) -> Path:
    """Where a file of the conversion lies in a scratch copy."""
    if path == setting.after or path.is_relative_to(setting.workdir):
        return in_workdir(setting, path, root)
    return overlaid(setting, setting.after, root) / path.relative_to(setting.base)


def temporary_folder(setting: Setting) -> Path:
    """A new folder for the temporary files of a run."""
    folder = setting.temporary / str(len(os.listdir(setting.temporary)))
    folder.mkdir()
    return folder


def private_places() -> tuple[str, ...]:
    """How paths of caches and libraries begin."""
    named = (os.environ.get(name) for name in ("XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME"))
    return (os.path.expanduser("~/."), f"{sys.prefix}{os.sep}", *(f"{path}{os.sep}" for path in named if path))


def elsewhere(scratch: Scratch) -> dict[str, Any]:
    """What the plan of a process says about paths outside its scratch copy."""
    outside = scratch.outside
    assert outside is not None
    return {
        "outside": outside.store,
        "home": outside.home,
        "private": outside.private,
        "temporary": outside.kept[-1],
    }


def on_node(setting: Setting, scratch: Scratch, rank: int, world: int) -> dict[str, Any]:
    """The same of a rank: each node has what is outside of the working folder for itself."""
    told, node = elsewhere(scratch), setting.node(rank, world)
    if setting.division is None:
        return told
    if node:
        assert scratch.outside is not None
        told["outside"] = f"{scratch.outside.store}-{setting.division.names[node]}"
        os.makedirs(told["outside"], exist_ok=True)
        if told["outside"] not in [each.store for each in scratch.on_other_nodes]:
            scratch.on_other_nodes.append(replace(scratch.outside, store=told["outside"]))
    names = (setting.division.namespaces[node], setting.division.names[node], setting.division.hosts)
    return {**told, "node": names}


def scratch_args(setting: Setting, root: Path) -> tuple[str, ...]:
    """Arguments that name the working folder name its copy instead."""
    prefix = str(setting.workdir) + os.sep
    return tuple(arg.replace(prefix, str(root) + os.sep) for arg in setting.args)


@dataclass
class Steering:
    """What earlier runs of a pair have shown about its random draws, by function and line."""

    shared: set[str] = field(default_factory=set)
    """Draws that look as if they followed the batch, and do not."""
    held_in_conversion: dict[str, list[int]] = field(default_factory=dict)
    """Draws that cannot be put together and are held still, with the dimensions along which the programs vary."""
    held_in_original: dict[str, list[int]] = field(default_factory=dict)
    alone: tuple[str, ...] | None = None
    """Single numbers that each rank draws for itself, in a run in which it goes by its own clock as well."""
    apart: frozenset[PassKey] = frozenset()
    """Evaluations for which it then draws noise of its own."""

    def misjudged(self, original: RunTrace) -> bool:
        """Whether a run of the original has shown draws that it shares with all ranks."""
        known = len(self.shared)
        self.shared |= {note["message"] for note in original.notes if note["topic"] == "shared-draw"}
        return len(self.shared) > known

    def unaligned(self, original: RunTrace) -> bool:
        """Whether a run of the original has shown draws that are to be held still."""
        before = self.held()
        for note in original.notes:
            if note["topic"] == "unaligned":
                for held, draw in (
                    (self.held_in_conversion, note["site"]),
                    (self.held_in_original, note["message"]),
                ):
                    held[draw] = sorted({*held.get(draw, []), *note["varying"]})
        return self.held() != before

    def held(self) -> list[tuple[str, list[int]]]:
        """What is held still in the original."""
        return sorted((draw, list(varying)) for draw, varying in self.held_in_original.items())


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
            if setting.zygote is not None and plan.device == "cpu":
                processes.append(setting.zygote.start(plan, {**setting.env, **plan.env}))
            else:
                processes.append(start_process(plan, {**setting.env, **plan.env}, setting.python))
    finally:
        try:
            result = watch(processes, plans, setting.timeout if len(processes) == len(plans) else 0.0, tick)
        finally:
            setting.progress.end()
    run = Run([read_trace(plan.record("trace")) for plan in plans], result, scratch)
    mark = OUTPUT_MARK.decode()
    printed = [plan.record("stdout").read_text(encoding="utf-8", errors="replace") for plan in plans]
    run.captured = [text.count(mark) > 1 for text in printed]
    run.printed = [in_folder(text.replace(mark, ""), plan) for text, plan in zip(printed, plans, strict=True)]
    for trace, plan in zip(run.traces, plans, strict=True):
        trace.logs[:] = [in_folder(line, plan) for line in trace.logs]
    run.errors = [plan.record("stderr").read_text(encoding="utf-8", errors="replace") for plan in plans]
    for plan in plans:
        stacks = plan.record("stacks")
        text = stacks.read_text(encoding="utf-8", errors="replace") if stacks.exists() else ""
        run.died_at.append(position_in(text, plan.root))
    return run


def run_conversion(
    setting: Setting,
    world: int,
    folder: Path,
    steering: Steering,
    preempt: int | None = None,
    first: tuple[int, tuple[tuple[int, int, int], ...]] = (0, ()),
    scratch: Scratch | None = None,
) -> Run:
    """The converted script on ``world`` ranks in one scratch copy. It is sent SIGTERM in step ``preempt``, or goes on
    in the ``scratch`` copy of an earlier run, after the ``first`` steps and passes of that."""
    scratch = scratch or prepare(setting, setting.after, folder / "conversion")
    assert scratch.outer is not None
    outer = scratch.outer
    root = scratch.root
    script = in_workdir(setting, setting.after, root)
    port, placement = free_port(), setting.placements[world]
    ran = folder / "records" / "ran"
    ran.write_bytes(bytes(sum(len(each.sites) for each in setting.changes)))
    synchronised = any("SyncBatchNorm" in text or "sync_batchnorm" in text for text in sources(script, setting.base))
    plans = [
        ProcessPlan(
            role="conversion",
            rank=rank,
            world=world,
            script=str(script),
            module=setting.modules.get(setting.after),
            args=scratch_args(setting, root),
            root=str(root),
            outer=str(outer),
            cwd=str(root / setting.start.relative_to(setting.workdir)),
            records=str(folder / "records"),
            dtype=setting.dtype,
            device=placement.device,
            shared_gpu=placement.shared,
            steps=setting.steps,
            shared_draws=tuple(sorted(steering.shared)),
            held=steering.held_in_conversion,
            apart=tuple(sorted(steering.apart)),
            alone=steering.alone,
            preempt=preempt,
            first=first,
            global_batchnorm=synchronised,
            changed={str(place_of(setting, each.path, root)): [each.first, *each.lines] for each in setting.changes},
            map=str(ran),
            env=setting.environment(rank, world, port)
            | ({HASH_SEED: OTHER_HASHES} if setting.hashes_apart and rank == 1 else {}),
            **on_node(setting, scratch, rank, world),
        )
        for rank in range(world)
    ]
    run = run_processes(setting, plans, scratch, f"{setting.after.name} on {world} ranks", setting.steps)
    files = tuple((place_of(setting, each.path, Path()).as_posix(), each) for each in setting.changes)
    run.coverage = Coverage(files, ran.read_bytes())
    return without_own_disks(setting, run)


def without_own_disks(setting: Setting, run: Run) -> Run:
    """The run, in which a node's own copy of what the first node writes to its disk, a download, is nobody else's."""
    world = len(run.traces)
    first = {write.path for rank in range(world) if not setting.node(rank, world) for write in run.traces[rank].writes}
    for rank, trace in enumerate(run.traces):
        if setting.node(rank, world):
            trace.writes[:] = [each for each in trace.writes if not (os.path.isabs(each.path) and each.path in first)]
            trace.reads[:] = [each for each in trace.reads if not os.path.isabs(each.path)]
    return run


def in_folder(text: str, plan: ProcessPlan) -> str:
    """What a process says, without the folders of its run."""
    text = text.replace(plan.root, ".").replace(plan.outer, "...")
    return text.replace(plan.temporary, TEMPORARY) if plan.temporary else text


def sources(script: Path, *folders: Path) -> list[str]:
    """The text of the script, of the modules beside it and of those in other folders of its project."""
    beside = {path for folder in {script.parent, *folders} for path in islice(python_files(folder), MOST_READ)}
    texts = [text_of(path) for path in sorted(beside - {script})]
    return [Source.read(script).text, *texts] if script.is_file() else texts


def run_original(setting: Setting, world: int, folder: Path, replay: Path, conversion: Run, steering: Steering) -> Run:
    """The original in one process."""
    outer = folder / "original"
    scratch = prepare(setting, setting.before, outer)
    root = scratch.root
    plan = ProcessPlan(
        role="original",
        rank=0,
        world=world,
        script=str(in_workdir(setting, setting.before, root)),
        module=setting.modules.get(setting.before),
        args=scratch_args(setting, root),
        root=str(root),
        outer=str(outer),
        cwd=str(root / setting.start.relative_to(setting.workdir)),
        records=str(folder / "records"),
        dtype=setting.dtype,
        device=setting.placements[world].device,
        steps=original_steps(setting, conversion),
        replay=str(replay),
        held=steering.held_in_original,
        **elsewhere(scratch),
    )
    goal = max((len(rank.steps) for rank in conversion.traces), default=0) or None
    what = f"{setting.before.name} on the samples that the ranks read"
    return run_processes(setting, [plan], scratch, what, goal)


def run_bare(setting: Setting, world: int, folder: Path, seconds: float, divided: int = 0) -> Run:
    """The original without the probes, for so many seconds: once more, when it has failed, or to be measured, its
    batches divided."""
    outer = folder / "bare"
    scratch = prepare(setting, setting.before, outer)
    (folder / "bare-records").mkdir(parents=True)
    plan = ProcessPlan(
        role="original",
        rank=0,
        world=world,
        script=str(in_workdir(setting, setting.before, scratch.root)),
        args=scratch_args(setting, scratch.root),
        root=str(scratch.root),
        outer=str(outer),
        cwd=str(scratch.root / setting.start.relative_to(setting.workdir)),
        records=str(folder / "bare-records"),
        dtype=setting.dtype,
        device=setting.placements[world].device,
        module=setting.modules.get(setting.before),
        bare=True,
        divided=divided,
        **elsewhere(scratch),
    )
    setting = replace(setting, timeout=seconds)
    what = f"with a batch divided by {divided}" if divided > 1 else "measured" if divided else "without probes"
    return run_processes(setting, [plan], scratch, f"{setting.before.name} {what}", None)


def original_steps(setting: Setting, conversion: Run) -> int | None:
    """Where the conversion did not come to its end, the original need not go on much further either."""
    if all(rank.end is not None and rank.end.code == 0 for rank in conversion.traces):
        return setting.steps
    taken = min(len(rank.steps) for rank in conversion.traces)
    if any(rank.end is not None and rank.end.error for rank in conversion.traces):
        taken += 1  # the original may fail in the same place, after its last step
    return max(1, taken if setting.steps is None else min(taken, setting.steps))
