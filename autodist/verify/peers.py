"""Originals that are distributed already: run on as many ranks as the conversion, and put together for the comparison.

Their batch size, learning rate and schedule are meant for several ranks, so that one process would train another
model. Each rank of the original reads what the same rank of the conversion read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autodist.verify.compare import TOLERANCES, shape_of, spread
from autodist.verify.launch import free_port
from autodist.verify.plan import ProcessPlan
from autodist.verify.replay import build_replay, replicated, union
from autodist.verify.runs import (
    Run,
    Setting,
    elsewhere,
    in_workdir,
    original_steps,
    prepare,
    run_processes,
    scratch_args,
    sources,
)
from autodist.verify.trace import Group, Pass, RunTrace, Step

JOINS = re.compile(r"\binit_process_group\(|\bhvd\.init\(|^\s*(?:import|from) +(?:horovod|fairscale)\b", re.MULTILINE)
SMALL = 1e-6
"""Gradients that are zero but for rounding differ between ranks by as much as they are long."""
LOCAL_RANK = re.compile(r"""add_argument\(\s*["'](--local[_-]rank)["']""")


def is_distributed(script: Path) -> bool:
    """Whether a script, or a module beside it that it imports, joins a process group."""
    text = script.read_text(encoding="utf-8", errors="replace")
    names = set(re.findall(r"^\s*(?:import|from) +(\w+)", text, re.MULTILINE))
    beside = [path for name in names for path in (script.parent / f"{name}.py", script.parent / name / "__init__.py")]
    texts = [text, *(path.read_text(encoding="utf-8", errors="replace") for path in beside if path.is_file())]
    return any(JOINS.search(each) for each in texts)


def run_peers(setting: Setting, world: int, folder: Path, conversion: Run) -> Run:
    """The original on ``world`` ranks in one scratch copy, as its own launcher would start it: on one node, as it
    may know of no others."""
    setting = replace(setting, division=None)
    outer = folder / "original"
    scratch = prepare(setting, setting.before, outer)
    root = scratch.root
    script = in_workdir(setting, setting.before, root)
    option = next((found[1] for text in sources(script) if (found := LOCAL_RANK.search(text))), None)
    port, placement = free_port(), setting.placements[world]
    plans = []
    for rank in range(world):
        replay = folder / f"replay{rank}.json"
        env = setting.environment(rank, world, port)
        replace(build_replay([conversion.traces[rank]]), draws={}).write(replay)
        plans.append(
            ProcessPlan(
                role="peer",
                rank=rank,
                world=world,
                script=str(script),
                args=(*([f"{option}={env['LOCAL_RANK']}"] if option else []), *scratch_args(setting, root)),
                root=str(root),
                outer=str(outer),
                cwd=str(root / setting.start.relative_to(setting.workdir)),
                records=str(folder / "records"),
                dtype=setting.dtype,
                device=placement.device,
                shared_gpu=placement.shared,
                steps=original_steps(setting, conversion),
                replay=str(replay),
                env=env,
                module=setting.modules.get(setting.before),
                **elsewhere(scratch),
            )
        )
    goal = max((len(rank.steps) for rank in conversion.traces), default=0) or None
    return run_processes(setting, plans, scratch, f"{setting.before.name} on {world} ranks", goal)


def together(original: Run, conversion: Run, setting: Setting) -> tuple[Run, Run, list[str]]:
    """The ranks of the original as one process that took whole batches, the conversion, and what is not compared.

    A sharded original shows each rank its own part of gradients, or of parameters. What its ranks do not agree on is
    left out on both sides; the losses of all steps, and what is saved in the end, remain.
    """
    if any(trace.end is None or trace.end.code != 0 for trace in original.traces) or not original.traces[0].steps:
        failed = next((t for t in original.traces if t.end is not None and t.end.code != 0), original.traces[0])
        return replace(original, traces=[failed]), conversion, []
    first = original.traces[0]
    passes = {key: whole_pass([trace.passes[key] for trace in original.traces]) for key in shared_keys(original.traces)}
    steps, ranks, notes = comparable_steps(original.traces, conversion.traces, setting)
    made = [write for trace in original.traces[1:] for write in trace.writes if write.action.startswith("mkdir")]
    merged = replace(first, passes=passes, steps=steps, writes=[*first.writes, *made])
    return replace(original, traces=[merged]), replace(conversion, traces=ranks), notes


def shared_keys(traces: Sequence[RunTrace]) -> list[tuple[int, int]]:
    """Passes that all ranks made."""
    return [key for key in traces[0].passes if all(key in trace.passes for trace in traces)]


def whole_pass(found: Sequence[Pass]) -> Pass:
    """What the ranks read together, or what each of them read in full."""
    whole = replace(
        found[0],
        steered=any(each.steered for each in found),
        trains=any(each.trains for each in found),
        exhausted=all(each.exhausted for each in found),
    )
    if replicated(found):
        return whole
    natural = [replace(each, batches=each.natural) for each in found]
    return replace(whole, batches=union(found), natural=union(natural))


def comparable_steps(
    originals: Sequence[RunTrace], ranks: Sequence[RunTrace], setting: Setting
) -> tuple[list[Step], list[RunTrace], list[str]]:
    """The steps of the original as one process, those of the conversion with the same gaps, and what is left out."""
    count = min(len(trace.steps) for trace in (*originals, *ranks))
    tolerance = TOLERANCES[setting.dtype].loss
    steps: list[Step] = []
    converted: list[list[Step]] = [[] for _ in ranks]
    left_out: set[str] = set()
    for number in range(count):
        own, theirs = [t.steps[number] for t in originals], [t.steps[number] for t in ranks]
        losses = [sum(each) / len(originals) for each in zip(*(step.losses for step in own), strict=False)]
        mean = replace(own[0], losses=losses, forwards=[])
        if any(shape_of(step) != shape_of(theirs[0]) for step in own):
            left_out |= {"parameters", "gradients"}
            mean, *theirs = [without_tensors(step) for step in (mean, *theirs)]
        else:
            mean, theirs, dropped = without_shards(mean, own, theirs, tolerance)
            left_out |= dropped
        steps.append(mean)
        for kept, step in zip(converted, theirs, strict=True):
            kept.append(step)
    steps += originals[0].steps[count:]
    for kept, trace in zip(converted, ranks, strict=True):
        kept += trace.steps[count:]
    notes = [f"the original shards its {' and '.join(sorted(left_out))}, which are not compared"] if left_out else []
    return steps, [replace(trace, steps=kept) for trace, kept in zip(ranks, converted, strict=True)], notes


def without_tensors(step: Step) -> Step:
    """The step with the settings of its groups alone."""
    return replace(step, groups=[Group(group.settings, [], []) for group in step.groups], initial=None)


def without_shards(
    mean: Step, own: Sequence[Step], theirs: Sequence[Step], tolerance: float
) -> tuple[Step, list[Step], set[str]]:
    """Leave out what the ranks of the original do not agree on."""
    dropped: set[str] = set()
    changed = list(theirs)
    for kind in ("gradients", "parameters"):
        for index in range(len(mean.groups)):
            copies = list(zip(*(getattr(step.groups[index], kind) for step in own), strict=True))
            floor = SMALL * max((part[0] for parts in copies for part in parts if part is not None), default=0.0)
            if all(spread(parts, floor) <= tolerance for parts in copies):
                continue
            dropped.add(kind)
            mean = replace(mean, groups=blanked(mean.groups, index, kind))
            changed = [replace(step, groups=blanked(step.groups, index, kind)) for step in changed]
    if "parameters" in dropped:
        mean = replace(mean, initial=None)
    return mean, changed, dropped


def blanked(groups: Sequence[Group], index: int, kind: str) -> list[Group]:
    """The groups, one of them without its gradients or parameters."""
    gaps: Any = [None] * len(getattr(groups[index], kind))
    return [replace(group, **{kind: gaps}) if at == index else group for at, group in enumerate(groups)]
