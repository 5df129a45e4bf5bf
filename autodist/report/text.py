"""Results as lines for people."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from click import style

from autodist.report import Run, counted, shown
from autodist.rule import Diagnostic, Severity

COLORS = {Severity.NOTE: "green", Severity.WARNING: "yellow", Severity.REFUSAL: "red"}


def line(diagnostic: Diagnostic) -> str:
    """``train.py:12:5: AD301 message``, with a word before what needs a person."""
    place = f"{shown(diagnostic.source.path)}:{diagnostic.line}:{diagnostic.column}:"
    code = style(diagnostic.code, fg=COLORS[diagnostic.severity], bold=True)
    label = "" if diagnostic.severity is Severity.NOTE else f"{diagnostic.severity.value}: "
    return f"{place} {label}{code} {diagnostic.message}"


def summary(run: Run, quiet: bool, verbose: bool) -> str:
    """What happened to one script: each change and its reason, what is left to a person, how to launch the result.

    Of a script that cannot be converted it says nothing but why.
    """
    return "\n".join(_summary(run, quiet, verbose))


def _summary(run: Run, quiet: bool, verbose: bool) -> Iterator[str]:
    worst = (Severity.REFUSAL,) if run.result.refused else (Severity.WARNING, Severity.REFUSAL)
    left = [each for each in run.result.diagnostics if each.severity in worst]
    if quiet or run.result.refused:
        yield from map(line, left)
        return
    yield style(_headline(run), bold=True)
    for diagnostic in run.result.diagnostics:
        if diagnostic not in left and (diagnostic.fix or verbose):
            yield f"  {line(diagnostic)}"
    if left:
        subject = "thing needs" if len(left) == 1 else "things need"
        yield style(f"{len(left)} {subject} a person:", bold=True)
        yield from (f"  {line(diagnostic)}" for diagnostic in left)
    if run.launches:
        yield style("run it:", bold=True)
        width = max(len(launch.label) for launch in run.launches)
        yield from (f"  {launch.label:{width}}  {launch.command}" for launch in run.launches)


def _headline(run: Run) -> str:
    entry = shown(run.entry)
    if not run.result.changed:
        return f"{entry}:1: nothing to change"
    fixed = sum(diagnostic.fix is not None for diagnostic in run.result.diagnostics)
    return f"{entry}: {counted(fixed, 'change')}{_written(run)}"


def _written(run: Run) -> str:
    if not run.outputs:
        return ""
    if len(run.outputs) == 1:
        return f" -> {shown(run.outputs[0])}"
    folder = Path(os.path.commonpath([output.parent for output in run.outputs]))
    return f" -> {counted(len(run.outputs), 'file')} in {shown(folder)}/"


def listing(runs: Iterable[Run], verbose: bool) -> str:
    """What `autodist check` prints: one line per finding."""
    return "\n".join(line(each) for run in runs for each in (run.result.diagnostics if verbose else run.findings))
