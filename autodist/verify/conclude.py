"""From two runs to a verdict."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from autodist.verify.alone import single_draws
from autodist.verify.compare import SHARD, TOLERANCES, StepComparison, compare_steps
from autodist.verify.explain import CONSEQUENCES, Evidence, explain, with_rules
from autodist.verify.outputs import compare_files, compare_folders, compare_logs, compare_printed, shares_of_batches
from autodist.verify.plan import Device
from autodist.verify.runs import Run, Setting
from autodist.verify.samples import compare_samples
from autodist.verify.text import printed_lines
from autodist.verify.trace import OWN, End, RunTrace, Step
from autodist.verify.verdict import Finding, Outcome, Tolerance, WorldVerdict

OLDEST_FOR_SHARDS = (2, 9)
MISMATCH = re.compile(r"collective mismatch|mismatch between collectives|Received data size")
FRAME = re.compile(r'^ *File "([^"]+)", line \d+, in .*\n(?: +(.*)\n)?', re.MULTILINE)
PROBES = os.path.join("autodist", "verify", "probes", "")
DENIED = re.compile(r"Permission denied|Errno 13|EACCES|unable to open database file")
ANYTHING = 1e30
"""Relative tolerance once values have diverged; NumPy takes no infinite one."""
NOT_FINITE = "the original has neither a loss nor a gradient that is a finite number"
SHOWN_PASSES, SHOWN_BATCHES = 4, 60
"""What reports draw of the samples that were read."""
IN_THE_WAKE = frozenset(
    {"steps-per-rank", "step-count", "batches-per-rank", "batch-count", "passes-per-rank", "pass-count"}
)
"""Findings that follow when a run does not come to its end."""
FOR_EXPLANATIONS = frozenset({"destroyed", "batchnorm-per-rank", "shared-draw", "unaligned", "wrapped-load"})
"""Notes of the probes that are no news to a reader."""
REPLACED = "replaced"
"""The topic of what the probes stood in for: each fails without a GPU."""
FAULTS = frozenset({"moved-after-wrapping", "gpu-of-others"})
"""Notes of the probes on what a run on the CPU does not show, and which is wrong all the same."""
ALONE = "once each rank goes by its own clock and its own draws, as it does without the probes"
BETWEEN_RANKS = frozenset(
    {
        "steps-per-rank",
        "learning-rate-differs-between-ranks",
        "settings-differ-between-ranks",
        "gradients-differ-between-ranks",
        "parameters-differ-between-ranks",
    }
)
"""Findings that tell ranks from each other."""


def conclude(setting: Setting, world: int, conversion: Run, original: Run) -> WorldVerdict:
    """Compare the traces."""
    tolerance = TOLERANCES[setting.dtype]
    placement = setting.placements[world]
    base = WorldVerdict(world, setting.dtype, Outcome.NOT_COMPARABLE, "", tolerance=tolerance, device=str(placement))
    source = original.traces[0]
    ranks = conversion.traces
    failures = run_failures(conversion)
    if not original.result.timed_out and (source.end is None or source.end.code != 0):
        failed = original_failed(base, original, failures)
        return replace(
            failed, reason=failed.reason + found_above(setting, source.end), notes=tuple(held_back(original))
        )
    if not source.steps:
        reason = "no optimizer step was seen in the original: there is nothing to compare"
        return replace(base, reason=reason, findings=tuple(with_rules(failures)))
    if not failures and not any(rank.steps for rank in ranks):
        reason = "no optimizer step was seen in the conversion: there is nothing to compare"
        return replace(base, reason=reason)
    if not failures and (blind := blindness(conversion, original)):
        return replace(base, reason=blind)
    steps = compare_steps(source, ranks, tolerance)
    sample_findings, notes = compare_samples(source, ranks)
    slow = next((run for run in (conversion, original) if run.result.timed_out), None)
    if failures or slow is not None:
        seen = [finding for finding in (*steps.findings, *sample_findings) if finding.kind not in IN_THE_WAKE]
        findings = [*failures, *seen]
    else:
        seen, output_notes = output_findings(setting, conversion, original, steps)
        findings = [*sample_findings, *steps.findings, *seen, *left_processes(conversion, original)]
        findings += unseen_faults(ranks) + gpu_needed(source, ranks)
        findings += [] if source.started.get("role") == "peer" else alike_noise(ranks)
        notes += output_notes
    if not findings and not steps.diverged:
        notes += other_distributions(source, ranks, tolerance, steps.grown)
    notes += apart_notes(ranks) + probe_notes(source, ranks) + extent_notes(source, steps)
    notes += [Finding("device", placement.note)] if placement.note else []
    notes += held_back(conversion) if failures else []
    if unsound := too_old_for_shards(source, ranks, setting.placements[world].device):
        return replace(base, reason=unsound)
    notes += node_notes(setting)
    evidence = Evidence(findings, source, ranks, conversion.scratch.root, setting.division is not None)
    base = replace(
        base,
        findings=tuple(with_rules(findings)),
        cause=explain(evidence) if findings else None,
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
        base = replace(base, notes=tuple(note for note in notes if note.kind != "draw"))
        known = len(steps.deviations) - len(steps.not_finite)
        if steps.not_finite and not known:
            return replace(base, reason=f"{NOT_FINITE} in any of {len(steps.not_finite)} steps: nothing was compared")
        return replace(base, outcome=Outcome.EQUAL, reason=agreement(known, original))
    causes = [finding for finding in findings if finding.kind not in CONSEQUENCES]
    if steps.first and not failures and causes and all(finding.step is not None for finding in causes):
        first = min(causes, key=lambda finding: finding.step or 0)
        reason = f"equal until step {steps.first}: {first.message}"
        return replace(base, outcome=Outcome.EQUAL_UNTIL, reason=reason)
    return replace(base, outcome=Outcome.DIFFERS, reason=findings[0].message)


def agreement(steps: int, original: Run) -> str:
    """What was found to be equal."""
    lines = len(printed_lines(original.printed[0])) + len(original.traces[0].logs)
    counts = {"optimizer step": steps, "printed line": lines, "file": len(original.scratch.changed())}
    *first, last = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    return f"{', '.join(first)} and {last} agree" if first else f"{last} agree"


def blindness(conversion: Run, original: Run) -> str | None:
    """Why what was recorded cannot be trusted: a probe that hears nothing would find nothing that differs."""
    who = ["the original", *(f"rank {rank}" for rank in range(len(conversion.traces)))]
    traces, captured = [*original.traces, *conversion.traces], [all(original.captured), *conversion.captured]
    for name, trace, kept in zip(who, traces, captured, strict=True):
        if trace.end is None or trace.end.code != 0:
            continue
        if trace.unheard is None or trace.unheard:
            probes = ", ".join(trace.unheard or ["all"])
            return f"the probes of {name} were put out of action: nothing is known about {probes}"
        if not kept:
            return f"the standard output of {name} was redirected: nothing is known about what it prints"
        if any(loader.samples != 0 for loader in trace.loaders) and not any(
            each.batches for each in trace.passes.values()
        ):
            return f"{name} makes data loaders, and none was seen to give a batch: nothing is known about its samples"
        if not any(step.losses or has_gradient(step) for step in trace.steps):
            return f"neither a loss nor a gradient was seen in {name}: there is nothing to compare"
    return None


def has_gradient(step: Step) -> bool:
    """Some parameter has one."""
    return any(gradient is not None for group in step.groups for gradient in group.gradients)


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
        finding = Finding(
            "original-crash", f"the original fails: {end.error}: {end.message}{in_a_probe(end)}", end.site
        )
    same = end is not None and any(f"{end.error}: {end.message}" in each.message for each in failures)
    reason = f"both programs fail in the same way: {end.error}: {end.message}" if end and same else finding.message
    return replace(base, reason=reason, findings=(finding, *with_rules(failures)))


def found_above(setting: Setting, end: End | None) -> str:
    """Where a module lies that the scripts do not find, since it is above the folder in which they start."""
    missing = re.search(r"No module named '(\w+)", end.message) if end and end.error == "ModuleNotFoundError" else None
    if missing is None:
        return ""
    name = missing[1]
    above = [each for each in setting.before.parents if each in setting.workdir.parents]
    there = next((each for each in above if (each / name).is_dir() or (each / f"{name}.py").is_file()), None)
    if there is None:
        return ""
    return (
        f"; {name} lies in {there}, above the working folder, which is all that is copied: start there, or name it by "
        f"--workdir {there}, with PYTHONPATH=. where the script finds it by that"
    )


def without_probes(verdict: WorldVerdict, bare: Run) -> WorldVerdict:
    """What is to be said of an original that fails, once it has run without the probes."""
    end, result = bare.traces[0].end, bare.result
    failed = end is not None and end.code != 0 or end is None and not result.timed_out
    if failed:
        return verdict
    how = "goes on" if result.timed_out else "ends well"
    reason = (
        f"a fault of verify, and of neither script: without its probes the original {how}. Nothing is known about the "
        "conversion. Please report it, with the folder that --keep names; what the probes do is in docs/limits.md"
    )
    findings = (Finding("fault-of-verify", reason), *(replace(each, rule=None, hint=None) for each in verdict.findings))
    return replace(verdict, reason=reason, findings=findings, cause=None)


def in_a_probe(end: End) -> str:
    """Says so where an error arises in our own code, and not in what it calls for the script."""
    frames = FRAME.findall(end.traceback)
    if not frames or PROBES not in frames[-1][0] or "plain" in frames[-1][1]:
        return ""
    return " (this arises in a probe of verify: most likely a fault of verify and not of the script, please report it)"


def held_back(run: Run) -> list[Finding]:
    """A run that failed may have been refused to write where the user's files are."""
    said = [*run.errors, *(trace.end.message for trace in run.traces if trace.end is not None)]
    if not any(DENIED.search(text) for text in said):
        return []
    message = (
        "verify refuses what other programs and C++ libraries write outside the working folder, so that the user's "
        "files stay as they are; what Python itself writes there is kept for the run"
    )
    return [Finding("held-back", message)]


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
    message = f"rank {first} fails: {end.error}: {end.message}{in_a_probe(end)}"
    return [Finding("crash", message, end.site, step)]


def output_findings(
    setting: Setting, conversion: Run, original: Run, steps: StepComparison
) -> tuple[list[Finding], list[Finding]]:
    """Findings and notes on what a user sees, as exactly as the steps agree."""
    tolerance = TOLERANCES[setting.dtype]
    if steps.grown:
        allowed = ANYTHING if steps.diverged else 30 * steps.grown
        printed, parameters = max(tolerance.printed, allowed), max(tolerance.parameters, allowed)
        tolerance = replace(tolerance, printed=printed, parameters=parameters)
    source, ranks = original.traces[0], conversion.traces
    shares = shares_of_batches(source, ranks)
    in_print, notes = compare_printed(original.printed[0], conversion.printed, tolerance, shares)
    logged, log_notes = compare_logs(source, ranks, tolerance, shares)
    files = original.scratch.changed(), conversion.scratch.changed()
    in_files, file_notes = compare_files(source, ranks, *files, tolerance, shares)
    return in_print + logged + compare_folders(source, ranks) + in_files, notes + log_notes + file_notes


def left_processes(conversion: Run, original: Run) -> list[Finding]:
    """Processes that outlive the script, where the original leaves none."""
    if not conversion.result.left or original.result.left:
        return []
    ranks = ", ".join(str(rank) for rank in conversion.result.left)
    return [Finding("processes-left", f"processes that rank {ranks} has started run on after its end")]


def node_notes(setting: Setting) -> list[Finding]:
    """Whether the ranks ran on nodes, or only took themselves to."""
    if setting.nodes == 1:
        return []
    if setting.division is not None:
        message = (
            f"the ranks ran on {setting.nodes} nodes: each with its own network and host name, and its own home and "
            "other folders outside of the working folder, which they share"
        )
    else:
        message = f"the ranks only took themselves to be on {setting.nodes} nodes: {setting.undivided}"
    return [Finding("nodes", message)]


def extent_notes(source: RunTrace, steps: StepComparison) -> list[Finding]:
    """How far the comparison reaches."""
    notes = []
    if steps.grown and not steps.diverged:
        message = f"rounding grew from step to step, up to {steps.grown:.0e}: the training amplifies it"
        notes.append(Finding("rounding", message))
    if steps.not_finite:
        first, count = steps.not_finite[0], len(steps.not_finite)
        which = f"{count} of {len(steps.deviations)} steps, first in step {first}"
        message = f"{NOT_FINITE} in {which}: nothing is known of these"
        notes.append(Finding("not-finite", message))
    if source.end is not None and source.end.stopped:
        message = f"compared up to step {len(source.steps)}; what the scripts do after it was not run"
        notes.append(Finding("stopped", message))
    return notes


def alike_noise(ranks: Sequence[RunTrace]) -> list[Finding]:
    """Ranks whose generators are in the same state drop out the same units and draw the same noise, which the original
    draws for each sample anew. The probes give every rank its own, so that no number shows it."""
    if len(ranks) < 2:
        return []
    for key, first in ranks[0].passes.items():
        passes = [rank.passes[key] for rank in ranks if key in rank.passes]
        if not first.trains or len(passes) < len(ranks):
            continue
        for source in sorted(set.intersection(*(each.sources for each in passes))):
            states = {OWN if source == OWN else (each.noise or {}).get(source) for each in passes}
            if len(states) == 1 and None not in states:
                what = "augment their samples" if source.startswith("samples") else "draw dropout and noise"
                message = f"the ranks {what} from generators in the same state: what one draws the others repeat"
                return [Finding("noise-alike", message, first.site)]
    for site, state in ranks[0].noise.items():
        if all(rank.noise.get(site) == state for rank in ranks):
            message = "the ranks draw noise from generators in the same state: what one draws the others repeat"
            return [Finding("noise-alike", message, site)]
    return []


def other_distributions(
    source: RunTrace, ranks: Sequence[RunTrace], tolerance: Tolerance, grown: float
) -> list[Finding]:
    """Ranks that draw by other weights than the original, such as those that each computes of its own samples: they
    draw the same numbers but for a few, so that a few steps do not show it. Whether a step uses them is not known."""
    allowed = max(tolerance.printed, 30 * grown)
    for number, rank in enumerate(ranks):
        if len(rank.distributions) != len(source.distributions):
            continue
        for own, expected in zip(rank.distributions, source.distributions, strict=True):
            pairs = zip(own["content"], expected["content"], strict=True)
            if own["outcomes"] == expected["outcomes"] and any(abs(a - b) > allowed for a, b in pairs):
                message = (
                    f"rank {number} draws from {own['outcomes']} outcomes by other weights than the original, and drew "
                    "the same here, by the same random numbers; where a step uses what it draws, weights must agree"
                )
                return [Finding("other-distribution", message, own["site"])]
    return []


def apart_notes(ranks: Sequence[RunTrace]) -> list[Finding]:
    """Numbers that the original draws once for a batch, and ranks that are seeded apart each for itself."""
    for drawn, site in list(single_draws(ranks).values())[:1]:
        message = f"{drawn}: one number for a batch, which each rank draws for itself; here they drew alike"
        return [Finding("drawn-apart", message, site)]
    return []


def conclude_alone(setting: Setting, verdict: WorldVerdict, original: Run, conversion: Run) -> WorldVerdict:
    """What ranks come to that each have a clock and draws of their own, where they are equal otherwise."""
    findings, ranks = run_failures(conversion), conversion.traces
    if not findings and not conversion.result.timed_out:
        steps = compare_steps(ranks[0], ranks, TOLERANCES[setting.dtype])
        findings = [finding for finding in steps.findings if finding.kind in BETWEEN_RANKS]
    if not findings:
        return verdict
    message = f"{ALONE}: {findings[0].message}"
    findings = [replace(findings[0], message=message), *findings[1:]]
    evidence = Evidence(findings, original.traces[0], ranks, conversion.scratch.root)
    return replace(
        verdict,
        outcome=Outcome.DIFFERS,
        reason=message,
        findings=tuple(with_rules(findings)),
        cause=explain(evidence),
        step=findings[0].step,
    )


def probe_notes(source: RunTrace, ranks: Sequence[RunTrace]) -> list[Finding]:
    """What the probes had to say, once each."""
    seen: dict[tuple[str, str], Finding] = {}
    for run in (source, *ranks):
        for note in run.notes:
            if note["topic"] not in FOR_EXPLANATIONS | FAULTS | {REPLACED}:
                message = note["message"] + (_replaced((source, *ranks)) if note["topic"] == "on-cpu" else "")
                seen.setdefault((note["topic"], note["site"]), Finding(note["topic"], message, note["site"]))
    return list(seen.values())


def _replaced(runs: Sequence[RunTrace]) -> str:
    """What the probes stood in for, and what that hides."""
    names = dict.fromkeys(note["message"] for run in runs for note in run.notes if note["topic"] == REPLACED)
    return f", with {', '.join(names)} replaced: whether tensors meet on one device is not tested" if names else ""


def gpu_needed(source: RunTrace, ranks: Sequence[RunTrace]) -> list[Finding]:
    """What fails without a GPU in the conversion of an original that runs there."""
    if any(note["topic"] in ("on-cpu", REPLACED) for note in source.notes):
        return []
    found = {note["message"]: note for run in ranks for note in run.notes if note["topic"] == REPLACED}
    message = "fails on a machine without a GPU, where the original runs"
    return [Finding("gpu-needed", f"{name} {message}", note["site"]) for name, note in found.items()]


def unseen_faults(ranks: Sequence[RunTrace]) -> list[Finding]:
    """What would be wrong on GPUs alone."""
    found = {
        note["topic"]: Finding(note["topic"], note["message"], note["site"])
        for run in ranks
        for note in run.notes
        if note["topic"] in FAULTS
    }
    return list(found.values())


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
