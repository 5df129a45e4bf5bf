"""``autodist verify``: the command line around ``verify``."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from autodist.errors import AutodistError
from autodist.verify.page import rounded, write_page
from autodist.verify.placement import Wanted
from autodist.verify.plan import Dtype
from autodist.verify.preempted import Again
from autodist.verify.progress import progress_for_terminal
from autodist.verify.proof import verify
from autodist.verify.verdict import Verdict, WorldVerdict

INTERRUPTED = 130


def verify_command(
    before: Path,
    after: Path,
    args: Sequence[str] = (),
    *,
    nproc: Sequence[int] = (2,),
    steps: int | None = None,
    dtype: Dtype = "float64",
    device: Wanted = "auto",
    timeout: float = 600.0,
    env: Mapping[str, str] | None = None,
    workdir: Path | None = None,
    base: Path | None = None,
    keep: Path | None = None,
    nnodes: int = 1,
    output_format: str = "text",
    documents: Mapping[str, Path] | None = None,
    report: Path | None = None,
    stream: TextIO | None = None,
    modules: Sequence[str | None] = (None, None),
    preempt: tuple[int, int | None] | None = None,
    preempt_args: str | None = None,
    require_coverage: bool = False,
) -> int:
    """Verify, say what came out, and return the exit code: 0 equal, 1 not, 2 bad usage.

    With ``require_coverage`` it is 1, too, where something that has changed could have run in these runs and did not.
    """
    stream = stream or sys.stdout
    documents = documents or {}
    progress = progress_for_terminal()
    try:
        for path in (*documents.values(), *([] if report is None else [report])):
            check_report(path)
        verdict = verify(
            before,
            after,
            nproc,
            args,
            steps=steps,
            dtype=dtype,
            device=device,
            timeout=timeout,
            env=env,
            workdir=workdir,
            base=base,
            keep=keep,
            nnodes=nnodes,
            progress=progress,
            modules=modules,
            again=None if preempt is None else Again(*preempt, tuple(shlex.split(preempt_args or ""))),
        )
    except AutodistError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        progress.close()
        print("interrupted, all processes of the verification are gone", file=sys.stderr)
        return INTERRUPTED
    finally:
        progress.close()
    try:
        if report is not None:
            write_page(verdict, report)
        for name, path in documents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(WRITERS[name](verdict), encoding="utf-8")
    except OSError as error:
        print(f"error: {error.filename}: cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    stream.write(WRITERS[output_format](verdict))
    covered = verdict.coverage is not None and verdict.coverage.complete
    return verdict.exit_code or int(require_coverage and not covered)


def check_report(path: Path) -> None:
    """Find out before the runs, rather than after them, that a report cannot be written."""
    if path.is_dir():
        raise AutodistError("is a folder: name a file for the report, such as report.html", path)
    existing = next((each for each in (path, *path.parents) if each.exists()), Path())
    if not os.access(existing, os.W_OK) or (existing != path and not existing.is_dir()):
        raise AutodistError("the report cannot be written here", path)


def as_json(verdict: Verdict) -> str:
    """Everything, for programs."""
    content = asdict(verdict)
    content["outcome"] = verdict.outcome.value
    content["text"] = as_text(verdict)
    content["coverage"] = None if verdict.coverage is None else verdict.coverage.as_json()
    for world, told in zip(verdict.worlds, content["worlds"], strict=True):
        told["coverage"] = None if world.coverage is None else world.coverage.as_json()
    return json.dumps(standard(content), indent=2) + "\n"


def standard(value: Any) -> Any:
    """Without the infinities and the NaN that JSON does not know: they become texts."""
    if isinstance(value, dict):
        return {key: standard(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [standard(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def as_text(verdict: Verdict) -> str:
    """What a person wants to know, worst first."""
    told = verdict.coverage.sentences() if verdict.coverage is not None else []
    return "".join([*map(world_text, verdict.worlds), *(f"  {sentence}\n" for sentence in told)])


def world_text(world: WorldVerdict) -> str:
    """One number of ranks."""
    where = f"on {world.nproc} rank{'s' if world.nproc > 1 else ''} ({world.device}) in {world.dtype}"
    lines = [f"{world.outcome.value.upper()} {where}: {world.reason}"]
    if world.deviations and world.tolerance is not None:
        lines.append(
            f"  largest relative deviation over {world.steps} steps: "
            f"loss {world.largest('loss'):.1e} (tolerance {world.tolerance.loss:.0e}), "
            f"gradient {world.largest('gradient'):.1e} ({world.tolerance.gradient:.0e}), "
            f"parameters {world.largest('parameters'):.1e} ({world.tolerance.parameters:.0e})"
        )
        margins = {name: world.margin(name) for name in ("loss", "gradient", "parameters")}
        closest = min((margin, name) for name, margin in margins.items() if margin) if any(margins.values()) else None
        if closest is not None and closest[0] > 1 and world.equal:
            lines[-1] += f", {closest[1]} closest: {rounded(closest[0])} times below"
    if world.cause is not None:
        lines.append(f"  likely cause: {world.cause}")
    lines += [f"  {'step ' + str(each.step) + ' ' if each.step is not None else ''}{each}" for each in world.findings]
    lines += [f"  note: {each}" for each in world.notes]
    if world.seconds:
        lines.append("  " + ", ".join(f"{name} {seconds:.1f} s" for name, seconds in world.seconds.items()))
    return "\n".join(lines) + "\n"


def as_markdown(verdict: Verdict) -> str:
    """The verdict for a pull request: a table of the numbers of ranks, and why it is not equal where it is not."""
    before, after = Path(verdict.before).name, Path(verdict.after).name
    lines = [f"### autodist verify: {verdict.outcome.value.upper()}", ""]
    converted = f"`{after}`" if after != before else "Its conversion"
    lines += [f"`{before}` in one process. {converted} on several ranks, with the same samples.", ""]
    lines += ["| ranks | verdict | steps | loss | gradient | parameters |", "|---|---|---|---|---|---|"]
    lines += [_row(world) for world in verdict.worlds]
    if any(world.deviations for world in verdict.worlds):
        lines += [
            "",
            "Loss, gradient and parameters: the largest relative deviation of all steps, and what is tolerated.",
        ]
    for world in verdict.worlds:
        told = [f"likely cause: {world.cause}"] if world.cause is not None else []
        told += [f"{f'step {each.step} ' if each.step is not None else ''}{each}" for each in world.findings]
        lines += ["", f"**{world.nproc} rank{'s' if world.nproc > 1 else ''}**: {_line(world.reason)}"] + [
            f"- {_line(each)}" for each in told[:MOST_TOLD]
        ]
        if len(told) > MOST_TOLD:
            lines.append(f"- and {len(told) - MOST_TOLD} more, see the report")
        if world.notes:
            lines += ["", "<details><summary>notes</summary>", "", *(f"- {_line(str(each))}" for each in world.notes)]
            lines += ["", "</details>"]
    if verdict.coverage is not None and (told := verdict.coverage.sentences()):
        lines += ["", *(f"- {_line(sentence)}" for sentence in told)]
    return "\n".join(lines) + "\n"


def _row(world: WorldVerdict) -> str:
    cells = [f"{world.nproc} ({world.device}, {world.dtype})", world.outcome.value, str(world.steps)]
    for name in ("loss", "gradient", "parameters"):
        tolerated = f" ({getattr(world.tolerance, name):.0e})" if world.tolerance is not None else ""
        cells.append(f"{world.largest(name):.1e}{tolerated}" if world.deviations else "")
    return f"| {' | '.join(cells)} |"


def _line(text: str) -> str:
    return text.replace("\n", " ").replace("<", "&lt;")


WRITERS = {"text": as_text, "json": as_json, "markdown": as_markdown}
MOST_TOLD = 20
"""Findings in a comment; the report has all."""
