"""The HTML report: one file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from autodist.verify.charts import Line, line_chart, sample_chart
from autodist.verify.coverage import Coverage
from autodist.verify.verdict import Deviation, Finding, Outcome, Tolerance, Verdict, WorldVerdict

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5d6878; --line: #d8dde5; --paper: #fff; --box: #f5f7fa;
  --good: #2c7a4b; --bad: #b3352f; --unsure: #9a6a10; --one: #2f6fb0; --two: #d9822b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa5b5; --line: #353d49; --paper: #14181e;
  --box: #1c222b; --good: #63c08a; --bad: #ef7d76; --unsure: #e0b052; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 0 auto;
  max-width: 62rem; padding: 1.5rem; }
h1 { font-size: 1.3rem; margin: 0 0 .3rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
h3 { font-size: .95rem; margin: 1.2rem 0 .3rem; color: var(--soft); }
code { font: 13px ui-monospace, monospace; overflow-wrap: anywhere; } .soft { color: var(--soft); }
.verdict { border-left: 5px solid; background: var(--box); padding: .7rem 1rem; margin: .8rem 0; }
.good { border-color: var(--good); } .bad { border-color: var(--bad); } .unsure { border-color: var(--unsure); }
.verdict b { text-transform: uppercase; letter-spacing: .03em; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td code { white-space: nowrap; } th { color: var(--soft); font-weight: 500; }
td.number, th.number { text-align: right; white-space: nowrap; }
svg { width: 100%; height: auto; background: var(--box); }
.grid { stroke: var(--line); stroke-width: 1; } .level { stroke: var(--soft); stroke-dasharray: 2 3; }
.mark { stroke: var(--bad); stroke-dasharray: 4 3; } .label { fill: var(--soft); font-size: 11px; }
.halo { paint-order: stroke; stroke: var(--box); stroke-width: 4px; stroke-linejoin: round; }
.legend { margin: .2rem 0 0; font-size: 13px; color: var(--soft); }
.legend span { margin-right: 1.2rem; } .legend i { display: inline-block; width: 14px; height: 3px; margin-right: .4rem;
  vertical-align: middle; } .empty { color: var(--soft); font-style: italic; }
.lines td { border: 0; padding: 0 .8rem 0 0; } .lines td code { white-space: pre-wrap; }
.lines .missing { background: var(--box); color: var(--bad); } .lines .untried { color: var(--soft); }
details summary { cursor: pointer; color: var(--soft); }
"""
COLOURS = {Outcome.EQUAL: "good", Outcome.EQUAL_UNTIL: "bad", Outcome.DIFFERS: "bad", Outcome.NOT_COMPARABLE: "unsure"}
MOST_PASSES = 4


def write_page(verdict: Verdict, path: Path) -> None:
    """Store the report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(verdict), encoding="utf-8")


def page(verdict: Verdict) -> str:
    """The whole document."""
    before, after = Path(verdict.before).name, Path(verdict.after).name
    body = "".join(world_section(world) for world in verdict.worlds) + coverage_section(verdict.coverage)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(after)}: {escape(verdict.outcome.value)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{question(before, after)}</h1>"
        f'<p class="soft"><code>{escape(verdict.before)}</code><br><code>{escape(verdict.after)}</code></p>'
        f"{body}</body></html>\n"
    )


def question(before: str, after: str) -> str:
    """The headline; a conversion into a folder of its own has the name of the original."""
    if before == after:
        return f"Does the conversion of <code>{escape(before)}</code> train the same model?"
    return f"Does <code>{escape(after)}</code> train the same model as <code>{escape(before)}</code>?"


def world_section(world: WorldVerdict) -> str:
    """One number of ranks."""
    parts = [
        f"<h2>{world.nproc} rank{'s' if world.nproc > 1 else ''}, {escape(world.dtype)}, {escape(world.device)}</h2>",
        f'<div class="verdict {COLOURS[world.outcome]}"><b>{escape(world.outcome.value)}</b>: {escape(world.reason)}',
    ]
    if world.cause is not None:
        site = f" <code>{escape(world.cause.site)}</code>" if world.cause.site else ""
        parts.append(
            f"<br>Likely cause: {escape(world.cause.name)} [{escape(world.cause.rule)}], "
            f"{escape(world.cause.hint)}{site}"
        )
    parts.append("</div>")
    parts.append(finding_table("Findings", world.findings))
    parts.append(finding_table("Notes", world.notes))
    if world.deviations:
        parts += [agreement_table(world), *charts(world)]
    parts += [samples(world), writers(world)]
    if world.seconds:
        took = ", ".join(f"{escape(name)} {seconds:.1f} s" for name, seconds in world.seconds.items())
        parts.append(f'<p class="soft">{took}</p>')
    return "".join(parts)


def coverage_section(coverage: Coverage | None) -> str:
    """The changed lines of all files, marked where they never ran."""
    if coverage is None or not coverage.lines:
        return ""
    told = "".join(f"<p>{escape(sentence)}</p>" for sentence in coverage.sentences())
    one_way = {(each.file, each.number): each for each in coverage.decisions[1]}
    files: dict[str, list[str]] = {}
    for line in coverage.lines:
        way = one_way.get((line.file, line.number))
        state, note = ("", "") if line.ran else ("missing", "never ran") if line.missing else ("untried", "not tried")
        if line.ran and way is not None:
            state, note = ("untried", f"{way.never}, not tried") if way.settled else ("missing", way.never)
        files.setdefault(line.file, []).append(
            f'<tr class="{state}"><td class="number">{line.number}</td><td><code>{escape(line.text)}</code></td>'
            f"<td>{note}</td></tr>"
        )
    opened = "" if coverage.complete else " open"
    tables = "".join(
        f'<details{opened}><summary>{escape(name)}</summary><table class="lines">{"".join(rows)}</table></details>'
        for name, rows in files.items()
    )
    return f"<h2>Changed lines that ran</h2>{told}{tables}"


def finding_table(title: str, findings: Sequence[Finding]) -> str:
    """Findings or notes, one a row."""
    if not findings:
        return ""
    rows = "".join(
        f"<tr><td>{escape(each.kind)}</td><td>{escape(each.message)}</td>"
        f"<td><code>{escape(each.site or '')}</code></td>"
        f'<td class="number">{"" if each.step is None else each.step}</td><td>{escape(each.rule or "")}</td></tr>'
        for each in findings
    )
    head = '<tr><th>kind</th><th>what</th><th>line</th><th class="number">step</th><th>rule</th></tr>'
    return f"<h3>{title}</h3><table>{head}{rows}</table>"


def agreement_table(world: WorldVerdict) -> str:
    """The largest deviations beside what is tolerated."""
    if world.tolerance is None:
        return ""
    rows = "".join(
        f'<tr><td>{name}</td><td class="number">{world.largest(name):.1e}</td>'
        f'<td class="number">{getattr(world.tolerance, name):.0e}</td>'
        f'<td class="number">{margin_text(world.margin(name))}</td></tr>'
        for name in ("loss", "gradient", "parameters")
    )
    head = (
        f'<tr><th>over {world.steps} steps</th><th class="number">largest relative deviation</th>'
        '<th class="number">tolerance</th><th class="number">margin</th></tr>'
    )
    return f"<h3>Agreement</h3><table>{head}{rows}</table>"


def margin_text(margin: float | None) -> str:
    """How far from the tolerance."""
    if margin is None:
        return "no deviation"
    return f"{rounded(margin)} times below" if margin >= 1 else f"{rounded(1 / margin)} times above"


def rounded(value: float) -> str:
    """One digit that counts."""
    short = float(f"{value:.1g}")
    return f"{short:,.0f}" if short < 1e6 else f"{short:.0e}"


def charts(world: WorldVerdict) -> list[str]:
    """Losses of both runs for each optimizer, and the deviations."""
    parts = []
    mark = None if world.step is None else ("differs from here", world.step)
    optimizers = sorted({each.optimizer for each in world.deviations})
    for optimizer in optimizers:
        own = [each for each in world.deviations if each.optimizer == optimizer]
        name = f" of optimizer {optimizer}" if len(optimizers) > 1 else ""
        lines = [
            Line("original", [each.original_loss for each in own], "var(--one)"),
            Line(f"{world.nproc} ranks", [each.converted_loss for each in own], "var(--two)", dashed=True),
        ]
        parts.append(f"<h3>Loss before each step{name}</h3>{line_chart(lines, mark=mark_among(own, world.step))}")
    lines = [
        Line("loss", [each.loss for each in world.deviations], "var(--one)"),
        Line("gradient", [each.gradient for each in world.deviations], "var(--two)"),
        Line("parameters", [each.parameters for each in world.deviations], "#3f9d5d"),
    ]
    levels = [] if world.tolerance is None else tolerance_levels(world.tolerance)
    parts.append(
        f"<h3>Relative deviation of each step</h3>{line_chart(lines, logarithmic=True, levels=levels, mark=mark)}"
    )
    return parts


def mark_among(own: Sequence[Deviation], step: int | None) -> tuple[str, int] | None:
    """Where among the steps of one optimizer the first step lies that differs."""
    at = next((at for at, each in enumerate(own) if step is not None and each.step >= step), None)
    return None if at is None else ("differs from here", at)


def tolerance_levels(tolerance: Tolerance) -> list[tuple[str, float]]:
    """A line for each tolerance, one for those that are the same."""
    names: dict[float, list[str]] = {}
    for name in ("loss", "gradient", "parameters"):
        names.setdefault(getattr(tolerance, name), []).append(name)
    return [(f"tolerance of {' and '.join(same)}", value) for value, same in names.items()]


def samples(world: WorldVerdict) -> str:
    """Which rank read which sample, in the first passes over the loaders."""
    passes = world.details.get("samples", {})
    names = world.details.get("loaders", {})
    parts: list[str] = []
    for key, batches in list(passes.items())[:MOST_PASSES]:
        loader, _, number = str(key).partition("/")
        title = escape(f"{names.get(int(loader), 'loader ' + loader)}, pass {number}")
        opened = " open" if not parts else ""
        parts.append(f"<details{opened}><summary>{title}</summary>{sample_chart(batches)}</details>")
    return "<h3>Which rank read which sample</h3>" + "".join(parts) if parts else ""


def writers(world: WorldVerdict) -> str:
    """The files that each rank wrote."""
    files = world.details.get("writers", {})
    if not files:
        return ""
    rows = "".join(
        f"<tr><td><code>{escape(path)}</code></td><td>{', '.join(f'rank {rank}' for rank in ranks)}</td></tr>"
        for path, ranks in files.items()
    )
    return f"<h3>Files written</h3><table><tr><th>path</th><th>by</th></tr>{rows}</table>"
