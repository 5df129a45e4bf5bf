"""Results as Markdown, for a pull request or a job summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autodist.report import Run, counted, shown
from autodist.report.diff import diff
from autodist.rule import Diagnostic, Severity

LABELS = {Severity.NOTE: "change", Severity.WARNING: "**warning**", Severity.REFUSAL: "**refusal**"}


def render(runs: Iterable[Run]) -> str:
    """One section per script."""
    return "".join(f"{line}\n" for run in runs for line in _section(run))


def _section(run: Run) -> Iterator[str]:
    yield f"## `{shown(run.entry)}` to {run.strategy.value.upper()}\n"
    if run.result.refused:
        yield "Cannot be converted.\n"
    elif not run.result.changed:
        yield "Nothing to change.\n"
    if run.findings:
        yield "| line | rule | | reason |\n|---|---|---|---|"
        yield from map(_row, run.findings)
    if run.result.changed:
        yield f"\n<details><summary>{counted(len(run.result.changed), 'changed file')}</summary>\n"
        yield f"~~~~diff\n{diff(run.result)}~~~~\n\n</details>\n"
    if run.launches:
        yield "~~~~sh\n" + "\n".join(f"{each.command}  # {each.label}" for each in run.launches) + "\n~~~~"


def _row(diagnostic: Diagnostic) -> str:
    place = f"`{shown(diagnostic.source.path)}:{diagnostic.line}`"
    reason = diagnostic.message.replace("|", "\\|").replace("\n", " ")
    return f"| {place} | {diagnostic.code} {diagnostic.rule} | {LABELS[diagnostic.severity]} | {reason} |"
