"""A plan as an HTML page with a plot: how many times as fast N devices are, and would be with a ring alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from autodist.plan.planning import Outcome, Row
from autodist.plan.report import advice, as_text, time
from autodist.plan.speed import traffic
from autodist.verify.page import STYLE

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 48, 150, 16, 36
PLOT = "polyline { fill: none; stroke-width: 2 } .band { fill: var(--one); opacity: .15 } pre { overflow-x: auto }"
Curve = Sequence[tuple[int, float]]


def write_page(outcome: Outcome, name: str, path: Path) -> None:
    """Store the report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(outcome, name), encoding="utf-8")


def page(outcome: Outcome, name: str) -> str:
    """The whole document."""
    title = f"{escape(name)} on {escape(outcome.device.name)}"
    rows = "".join(_row(row) for row in outcome.rows)
    head = "".join(f'<th class="number">{each}</th>' for each in ("GPUs", "step", "times as fast", "from", "to"))
    table = f"<table><tr>{head}<th>limit</th><th>strategy</th></tr>{rows}</table>" if outcome.one else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}{PLOT}</style></head><body>"
        f'<h1>{title}</h1><div class="verdict good">{escape(advice(outcome))}</div>'
        f"{plot(outcome)}{table}<pre>{escape(as_text(outcome, name))}</pre></body></html>\n"
    )


def _row(row: Row) -> str:
    best = row.best
    if best is None or best.step is None or row.speedup is None:
        why = escape(row.problem or "nothing fits")
        return f'<tr><td class="number">{row.ranks}</td><td colspan="6">{why}</td></tr>'
    low, likely, high = row.speedup
    figures = (str(row.ranks), time(best.step.total), f"{likely:.2f}", f"{low:.2f}", f"{high:.2f}")
    cells = "".join(f'<td class="number">{each}</td>' for each in figures)
    return f"<tr>{cells}<td>{best.step.limit}</td><td>{escape(best.name)}</td></tr>"


def ring(outcome: Outcome) -> Curve:
    """What a ring alone would give: the batch divides evenly, and the backward pass hides what it covers."""
    assert outcome.one is not None
    found = []
    for row in outcome.rows:
        sent = traffic("ddp", outcome.known.model, row.ranks, outcome.device, outcome.known.backward)
        share = outcome.one * row.samples / outcome.known.batch
        found.append(
            (row.ranks, row.samples * row.ranks / outcome.known.batch * outcome.one / (share + sent.exposed(share)))
        )
    return found


def plot(outcome: Outcome) -> str:
    """Speed over the number of devices, both on scales that double."""
    known = [row for row in outcome.rows if row.speedup is not None]
    if outcome.one is None or not known:
        return '<p class="empty">how long a step takes on this device is not known: there is nothing to draw</p>'
    most = max(2, *(row.ranks for row in outcome.rows))
    lines = (
        ("ideal", [(1, 1.0), (most, float(most))], "var(--soft)", True),
        ("ring alone", ring(outcome), "var(--two)", True),
        ("this plan", [(row.ranks, row.speedup[1]) for row in known if row.speedup], "var(--one)", False),
    )
    lowest = min(1.0, *(row.speedup[0] for row in known if row.speedup))
    bottom, top = math.floor(math.log2(max(lowest, 1 / 64))), math.ceil(math.log2(most))
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(ranks: float, faster: float) -> str:
        height = (math.log2(max(faster, 2.0**bottom)) - bottom) / max(1, top - bottom)
        return f"{LEFT + wide * math.log2(ranks) / math.log2(most):.1f},{TOP + tall * (1 - height):.1f}"

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="times as fast as one device">']
    for level in range(bottom, top + 1):
        x, y = at(1, 2.0**level).split(",")
        parts.append(f'<line class="grid" x1="{x}" x2="{LEFT + wide}" y1="{y}" y2="{y}"/>')
        parts.append(
            f'<text class="label" x="{LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{2.0**level:g}</text>'
        )
    for row in outcome.rows:
        x = at(row.ranks, 1).split(",")[0]
        parts.append(f'<text class="label" x="{x}" y="{HEIGHT - 18}" text-anchor="middle">{row.ranks}</text>')
    parts.append(f'<text class="label" x="{LEFT + wide}" y="{HEIGHT - 4}" text-anchor="end">devices</text>')
    spans = [(row.ranks, *row.speedup) for row in known if row.speedup]
    around = [at(ranks, high) for ranks, _, _, high in spans] + [at(ranks, low) for ranks, low, _, _ in spans[::-1]]
    parts.append(f'<polygon class="band" points="{" ".join(around)}"/>')
    for at_line, (name, curve, colour, dashed) in enumerate(lines):
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        points = " ".join(at(*point) for point in curve)
        parts.append(f'<polyline points="{points}" stroke="{colour}"{dash}/>')
        beside = TOP + 12 + 18 * at_line
        line = f'<polyline points="{WIDTH - 140},{beside} {WIDTH - 116},{beside}" stroke="{colour}"{dash}/>'
        parts += [line, f'<text class="label" x="{WIDTH - 110}" y="{beside + 4}">{name}</text>']
    return "".join([*parts, "</svg>", '<p class="legend">times as fast as one device; the band is the range</p>'])
