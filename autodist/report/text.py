"""Results as lines for people."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from click import style

from autodist.report import Run, counted, shown
from autodist.rule import Diagnostic, Rule, Severity

ORDER = [Severity.NOTE, Severity.WARNING, Severity.REFUSAL]
COLORS = {Severity.NOTE: "green", Severity.WARNING: "yellow", Severity.REFUSAL: "red"}


def line(diagnostic: Diagnostic, also: Sequence[int] = ()) -> str:
    """``train.py:12:5: AD301 message``, with a word before what needs a person, and other lines that it holds for."""
    place = f"{shown(diagnostic.source.path)}:{diagnostic.line}:{diagnostic.column}:"
    code = style(diagnostic.code, fg=COLORS[diagnostic.severity], bold=True)
    label = "" if diagnostic.severity is Severity.NOTE else f"{diagnostic.severity.value}: "
    lines = ", ".join(map(str, also))
    return f"{place} {label}{code} {diagnostic.message}" + (
        f" (also line{'s'[: len(also) > 1]} {lines})" if also else ""
    )


def grouped(diagnostics: Iterable[Diagnostic]) -> list[str]:
    """A line for each reason in a file, where it holds first. What needs a person stands before the rest."""
    groups: dict[tuple[Path, str, str, Severity], list[Diagnostic]] = {}
    for each in diagnostics:
        groups.setdefault((each.source.path, each.code, each.message, each.severity), []).append(each)
    first = sorted(groups.values(), key=lambda group: -ORDER.index(group[0].severity))
    return [line(group[0], sorted({each.line for each in group} - {group[0].line})) for group in first]


def summary(run: Run, quiet: bool, verbose: bool) -> str:
    """What happened to one script: what is left to a person, each change and its reason, how to launch the result.

    Of a script that cannot be converted it says nothing but why.
    """
    return "\n".join(_summary(run, quiet, verbose))


def _summary(run: Run, quiet: bool, verbose: bool) -> Iterator[str]:
    worst = (Severity.REFUSAL,) if run.result.refused else (Severity.WARNING, Severity.REFUSAL)
    left = [each for each in run.result.diagnostics if each.severity in worst]
    if quiet or run.result.refused:
        yield from grouped(left)
        return
    yield style(_headline(run), bold=True)
    if left:
        lines = grouped(left)
        subject = "thing needs" if len(lines) == 1 else "things need"
        worse = max(left, key=lambda each: ORDER.index(each.severity))
        yield style(f"{len(lines)} {subject} a person (`autodist rule {worse.code}` says why):", bold=True)
        yield from (f"  {each}" for each in lines)
    changes = [each for each in run.result.diagnostics if each not in left and (each.fix or verbose)]
    if left and changes:
        yield style("changed:", bold=True)
    yield from (f"  {each}" for each in (map(line, changes) if verbose else grouped(changes)))
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
    """What `autodist check` prints: one line per reason, or with ``verbose`` for each finding and note."""
    if verbose:
        return "\n".join(line(each) for run in runs for each in run.result.diagnostics)
    return "\n".join(each for run in runs for each in grouped(run.findings))


def explained(runs: Iterable[Run], rules: Iterable[Rule]) -> str:
    """The documentation of rules, each with the lines of the scripts that it speaks of."""
    diagnostics = [each for run in runs for each in run.result.diagnostics]
    return "\n".join(part for rule in rules for part in _explained(rule, diagnostics))


def _explained(rule: Rule, diagnostics: Iterable[Diagnostic]) -> Iterator[str]:
    yield style(f"{rule.code} {rule.name}", bold=True)
    yield f"{rule.docs}\n"
    found = [each for each in diagnostics if each.code == rule.code]
    if not found:
        yield "It finds nothing here.\n"
    for each in found:
        yield line(each)
        code = each.source.text.splitlines()[each.line - 1 : each.line]
        yield from (f"{each.line:6} | {part}\n       | {' ' * (each.column - 1)}^" for part in code)
        yield ""
