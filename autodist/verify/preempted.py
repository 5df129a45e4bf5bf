"""A conversion that is sent SIGTERM in some step, and goes on when started again: compared with the original."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autodist.verify.compare import TOLERANCES, StepComparison, compare_steps
from autodist.verify.conclude import agreement, run_failures
from autodist.verify.coverage import joined
from autodist.verify.outputs import compare_files, compare_folders, compare_lines, compare_printed, shares_of_batches
from autodist.verify.replay import Replay, build_replay, replicated, union
from autodist.verify.runs import Run, Setting, Steering, run_conversion, run_original
from autodist.verify.samples import compare_samples
from autodist.verify.text import printed_lines
from autodist.verify.trace import PassKey, RunTrace, Save
from autodist.verify.verdict import Finding, Outcome, WorldVerdict

REQUEUED = 75
"""EX_TEMPFAIL: what a training that can be gone on with ends with."""
INTERRUPTED = "/interrupted"
"""How the keys begin that a checkpoint has only where it was written inside an epoch."""


@dataclass(frozen=True)
class Again:
    """How a run is interrupted: on how many ranks it goes on, in which step the signal comes, if it is said, and what
    the second start is given besides."""

    ranks: int
    step: int | None = None
    args: tuple[str, ...] = ()


def preempted(setting: Setting, whole: WorldVerdict, again: Again, folder: Path) -> WorldVerdict:
    """Kill, start again, and compare; ``whole`` is the verdict on the run that was left alone."""
    world = whole.nproc
    step = again.step or random.Random(setting.after.read_bytes()).randint(1, max(1, whole.steps - 1))
    what = f"sent SIGTERM in step {step}, gone on with {again.ranks} rank{'s' * (again.ranks > 1)}"
    base = replace(whole, reason="", findings=(), deviations=(), notes=(), seconds={}, step=None, cause=None)
    steering = Steering()
    places = [folder / name for name in ("cut", "rest", "whole")]
    for place in places:
        (place / "records").mkdir(parents=True)
    cut = run_conversion(setting, world, places[0], steering, preempt=step)
    if (failures := _not_requeued(cut, step)) is not None:
        return _differs(base, what, failures)
    begun = _interrupted(cut)
    second = replace(setting, args=(*setting.args, *again.args))
    rest = run_conversion(second, again.ranks, places[1], steering, first=(step, begun), scratch=cut.scratch)
    if failures := run_failures(rest) or _begun_anew(rest, whole):
        return _differs(base, what, failures)
    replay = places[2] / "replay.json"
    _joined(build_replay(cut.traces), build_replay(rest.traces)).write(replay)
    original = run_original(setting, world, places[2], replay, rest, steering)
    steps, findings, notes = _compared(setting, step, cut, rest, original)
    base = replace(
        base,
        notes=tuple(notes),
        deviations=tuple(steps.deviations),
        steps=len(steps.deviations),
        step=steps.first,
        coverage=joined(cut.coverage, rest.coverage),
    )
    if findings:
        return _differs(base, what, findings)
    return replace(base, outcome=Outcome.EQUAL, reason=f"{what}: {agreement(len(steps.deviations), original)}")


def _differs(base: WorldVerdict, what: str, findings: Sequence[Finding]) -> WorldVerdict:
    reason = f"{what}: {findings[0].message}"
    return replace(base, outcome=Outcome.DIFFERS, reason=reason, findings=tuple(findings))


def _not_requeued(cut: Run, step: int) -> list[Finding] | None:
    """What is wrong with how the ranks ended after the signal, if anything."""
    counts = [len(rank.steps) for rank in cut.traces]
    codes = [rank.end.code if rank.end is not None else None for rank in cut.traces]
    if cut.result.hung or any(code not in (0, REQUEUED) for code in codes):
        return run_failures(cut) or [Finding("preempted-exit", f"the ranks end with {codes} after the signal")]
    if len(set(counts)) > 1:
        return [Finding("steps-per-rank", f"after the signal the ranks end after {counts} steps", None, min(counts))]
    if set(codes) != {REQUEUED}:
        message = (
            f"the ranks end with exit codes {codes} after {counts[0]} steps, where {REQUEUED} says that all is saved, "
            "and asks for another start: convert with --on-preempt"
        )
        return [Finding("preempted-exit", message, None, step)]
    if counts[0] != step:
        return [Finding("preempted-late", f"the signal came in step {step}, the ranks end after step {counts[0]}")]
    return None


def _begun_anew(rest: Run, whole: WorldVerdict) -> list[Finding]:
    """What is said where the second start is the whole training once more."""
    if len(rest.traces[0].steps) < whole.steps:
        return []
    message = (
        "the second start trains anew: the script does not look for its checkpoint itself; give the option that names "
        "it by --preempt-args, as in --preempt-args '--resume last.pt'"
    )
    return [Finding("preempted-anew", message, None, 1)]


def _interrupted(cut: Run) -> tuple[tuple[int, int, int], ...]:
    """The pass that each loader is to begin with: the next one, or one that has not ended, after so many batches."""
    begun: dict[int, tuple[int, int, int]] = {}
    for (loader, number), each in cut.traces[0].passes.items():
        ended = each.exhausted or not each.trains
        begun[loader] = (loader, number + 1, 0) if ended else (loader, number, len(each.batches))
    return tuple(begun.values())


def _joined(first: Replay, second: Replay) -> Replay:
    """What both runs read and drew, as one."""
    passes = {**first.passes, **second.passes}
    passes |= {key: first.passes[key] + second.passes[key] for key in first.passes.keys() & second.passes.keys()}
    return replace(
        first,
        passes=passes,
        training=first.training | second.training,
        begun=first.begun | second.begun,
        ends={**first.ends, **second.ends},
        draws={**second.draws, **first.draws},
        own_rows={**second.own_rows, **first.own_rows},
        parted=first.parted | second.parted,
    )


def _compared(
    setting: Setting, step: int, cut: Run, rest: Run, original: Run
) -> tuple[StepComparison, list[Finding], list[Finding]]:
    """Steps up to the signal on the ranks that there were, and then on those that went on; what was read, printed and
    written in both runs, as if it were one."""
    tolerance, source = TOLERANCES[setting.dtype], original.traces[0]
    steps = compare_steps(replace(source, steps=source.steps[:step]), cut.traces, tolerance)
    later = compare_steps(replace(source, steps=source.steps[step:]), rest.traces, tolerance)
    steps.deviations += [replace(each, step=each.step + step) for each in later.deviations]
    steps.findings += [
        replace(each, step=each.step + step if each.step is not None else None) for each in later.findings
    ]
    if steps.first is None and later.first is not None:
        steps.first = later.first + step
    ranks = _one_run(cut, rest)
    findings, notes = compare_samples(source, ranks)
    shares = shares_of_batches(source, ranks)
    texts = [_printed(original.printed[0], cut.printed[0], rest.printed[0]), *cut.printed[1:], *rest.printed[1:]]
    printed, printed_notes = compare_printed(original.printed[0], texts, tolerance, shares)
    logs = [_ending(source.logs, cut.traces[0].logs, rest.traces[0].logs)]
    logged, log_notes = compare_lines("logs", source.logs, logs, tolerance, shares)
    files = original.scratch.changed(), rest.scratch.changed()
    written, file_notes = compare_files(source, ranks, *files, tolerance, shares)
    found = [*steps.findings, *findings, *printed, *logged, *compare_folders(source, ranks), *written]
    return steps, found, [*notes, *printed_notes, *log_notes, *file_notes]


def _printed(whole: str, first: str, second: str) -> str:
    return "\n".join(_ending(*map(printed_lines, (whole, first, second))))


def _ending(whole: Sequence[str], first: Sequence[str], second: Sequence[str]) -> list[str]:
    """The lines of both runs but for those that the second one says before it goes on."""
    left = max(0, len(whole) - len(first))
    return [*first, *(second[-left:] if left else [])]


def _one_run(cut: Run, rest: Run) -> list[RunTrace]:
    """Traces as of one run on as many ranks as there were at most: samples are dealt out anew, rank 0 has the rest."""
    world = max(len(cut.traces), len(rest.traces))
    keys = dict.fromkeys(key for run in (cut, rest) for key in run.traces[0].passes)
    ranks = [RunTrace(f"rank{rank}", loaders=cut.traces[0].loaders) for rank in range(world)]
    for key in keys:
        for rank, batches in enumerate(_dealt(key, cut, rest, world)):
            last = rest.traces[0].passes.get(key) or cut.traces[0].passes[key]
            ranks[rank].passes[key] = replace(last, batches=batches)
    first, second = cut.traces[0], rest.traces[0]
    ranks[0].steps = [*first.steps, *second.steps]
    others = (each for run in (cut, rest) for rank in run.traces[1:] for each in rank.writes)
    folders = (each for each in others if each.action.startswith("mkdir"))  # whichever rank is the first
    ranks[0].writes, ranks[0].contents = [*first.writes, *second.writes, *folders], {
        **first.contents,
        **second.contents,
    }
    ranks[0].saves = [each for each in (*first.saves, *second.saves) if not _inside(each)]
    for other in ranks[1:]:
        other.steps = ranks[0].steps
    return ranks


def _dealt(key: PassKey, cut: Run, rest: Run, world: int) -> list[list[list[object]]]:
    """The batches of a pass, of which either all ranks read all samples, or each a share."""
    shares: list[list[list[object]]] = [[] for _ in range(world)]
    for run in (cut, rest):
        passes = [rank.passes[key] for rank in run.traces if key in rank.passes]
        if not passes:
            continue
        alike = len(passes) > 1 and replicated(passes) or len(passes) == 1 and not passes[0].trains
        for batch in passes[0].batches if alike else union(passes):
            for rank in range(world):
                shares[rank].append(batch if alike else batch[rank::world])
    return shares


def _inside(save: Save) -> bool:
    return any(key.startswith(INTERRUPTED) for key in save.content)
