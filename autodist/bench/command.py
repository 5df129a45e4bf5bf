"""``autodist bench``: the command line around a benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from autodist.bench import page, table
from autodist.bench.runs import Setting, machine, run
from autodist.bench.table import Outcome, Row
from autodist.config import Strategy, load
from autodist.convert import convert
from autodist.errors import AutodistError
from autodist.project import Project
from autodist.result import Result
from autodist.rule import Severity
from autodist.terminal import Terminal
from autodist.verify.command import INTERRUPTED, check_report

DONE, LOOK, BAD_INPUT = 0, 1, 2
PLAIN = "as it is"
ON_CPU = (
    "There is no GPU: ranks are processes on this machine's cores, which gloo joins. Each has one thread, as torchrun "
    "gives it, or as many as OMP_NUM_THREADS says. Ratios between versions mean something; speed-ups are a CPU's."
)
COLUMNS = (
    "A step takes as long as on its slowest rank; data is what it waits for its loader, compute the rest, and "
    "communication the time in which collectives run, most of it beside the backward pass. Evaluation is one pass, "
    "where the steps come to one."
)


def bench_command(
    script: Path,
    args: Sequence[str],
    *,
    nproc: Sequence[int],
    strategies: Sequence[str],
    steps: int,
    warmup: int,
    repeats: int,
    profiled: int = 5,
    timeout: float = 600.0,
    workdir: Path | None = None,
    output_format: str = "text",
    report: Path | None = None,
) -> int:
    """Run all versions and print the table: 0 done, 1 where a version does not run, 2 bad input."""
    terminal = Terminal()
    try:
        if report is not None:
            check_report(report)
        outcome = _outcome(
            script, args, nproc, strategies, (steps, warmup, repeats, profiled), timeout, workdir, terminal
        )
        if report is not None:
            page.write(outcome, report)
    except AutodistError as error:
        terminal.error(error)
        return BAD_INPUT
    except OSError as error:
        terminal.error(AutodistError(f"the report cannot be written: {error.strerror}", report))
        return BAD_INPUT
    except KeyboardInterrupt:
        terminal.say("interrupted, all processes of the benchmark are gone")
        return INTERRUPTED
    terminal.show(shown(outcome, output_format))
    return DONE if all(row.runs for row in outcome.rows) else LOOK


def shown(outcome: Outcome, output_format: str) -> str:
    """The table in a format."""
    if output_format == "json":
        import json

        return json.dumps(table.as_json(outcome), indent=2) + "\n"
    return table.as_markdown(outcome) if output_format == "markdown" else table.as_text(outcome)


def _outcome(
    script: Path,
    args: Sequence[str],
    nproc: Sequence[int],
    strategies: Sequence[str],
    counts: tuple[int, int, int, int],
    timeout: float,
    workdir: Path | None,
    terminal: Terminal,
) -> Outcome:
    project = Project.load(script)
    if project.entry.is_notebook:
        raise AutodistError("is a notebook: convert it to a script first", script)
    folder = (workdir or script.parent).resolve()
    if not script.resolve().is_relative_to(folder):
        raise AutodistError("--workdir must be a folder that the script lies in", script)
    steps, warmup, repeats, profiled = counts
    ranks = machine(nproc)
    setting = Setting(script.resolve(), tuple(args), folder, steps, warmup, profiled, timeout)
    rows, notes = [Row(PLAIN, 1)], [COLUMNS]
    versions: dict[str, Result] = {}
    for name in strategies:
        result = convert(project, replace(load(script.parent, {}), strategy=Strategy(name)))
        if reason := _refusal(result):
            notes.append(f"{name}: refused, {reason}")
            rows.append(Row(name, 1, problem="refused"))
            continue
        versions[name] = result
        rows += [Row(name, each) for each in ranks]
    said: list[dict[str, Any]] = []
    for repeat in range(repeats):  # one after the other, so that all versions see the same noise
        for row in rows:
            if not row.problem:
                terminal.say(f"run {repeat + 1} of {repeats}: {row.name}, {row.ranks} ranks")
                found = run(setting, versions.get(row.name), row.ranks, said.append)
                if isinstance(found, str):
                    row.problem, row.runs = found, []
                else:
                    row.runs.append(found)
    if not said:
        raise AutodistError(f"no version could be measured: as it is, it {rows[0].problem}", script)
    notes += [*_problems(rows)] + ([ON_CPU] if said[0]["device"] == "cpu" else [])
    return Outcome(script.name, said[0]["device"], said[0]["torch"], rows, notes, steps, warmup, repeats)


def _refusal(result: Result) -> str | None:
    refusals = [each for each in result.diagnostics if each.severity is Severity.REFUSAL]
    if refusals:
        return f"{refusals[0].code} {refusals[0].message}"
    return "there is nothing to convert" if not result.changed else None


def _problems(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        if row.problem and row.problem != "refused":
            yield f"{row.name}, {row.ranks} ranks: {row.problem}"
            row.problem = "failed"
