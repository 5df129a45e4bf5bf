"""The report of a benchmark: one HTML file with a plot that needs no network, or the table as Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from pathlib import Path

from autodist.bench.table import Outcome, Row, as_json, as_markdown, cells, headline
from autodist.verify.page import STYLE

WIDTH, HEIGHT = 720, 320
LEFT, RIGHT, TOP, BOTTOM = 48, 120, 16, 36
COLOURS = ("var(--one)", "var(--two)", "var(--good)", "var(--unsure)", "var(--bad)")
PLOT = "polyline { fill: none; stroke-width: 2 } body { max-width: 80rem }"


def write(outcome: Outcome, path: Path) -> None:
    """Store the report, as JSON or Markdown where the name ends so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        text = json.dumps(as_json(outcome), indent=2) + "\n"
    else:
        text = as_markdown(outcome) if path.suffix == ".md" else page(outcome)
    path.write_text(text, encoding="utf-8")


def page(outcome: Outcome) -> str:
    """The whole document."""
    title = f"{escape(outcome.script)}: how fast it is on {escape(outcome.device)}"
    head, *rows = cells(outcome)
    lines = ["".join(f"<th>{escape(each)}</th>" for each in head)]
    lines += ["".join(f"<td>{escape(each)}</td>" for each in row) for row in rows]
    table = "".join(f"<tr>{line}</tr>" for line in lines)
    notes = "".join(f"<li>{escape(each)}</li>" for each in outcome.notes)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}{PLOT}</style></head><body><h1>{title}</h1>"
        f"<p>{escape(headline(outcome))}</p>{plot(outcome)}<table>{table}</table><ul>{notes}</ul>"
        f"<pre>{escape(as_markdown(outcome))}</pre></body></html>\n"
    )


def plot(outcome: Outcome) -> str:
    """Speed-up over the number of ranks, with what N ranks would give at best."""
    known = [row for row in outcome.rows[1:] if outcome.speedup(row) is not None]
    if not known:
        return '<p class="empty">no conversion ran: there is nothing to draw</p>'
    most = max(2, *(row.ranks for row in known))
    highest = max(float(most), *(outcome.speedup(row) or 0.0 for row in known))
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(ranks: float, faster: float) -> str:
        return f"{LEFT + wide * (ranks - 1) / (most - 1):.1f},{TOP + tall * (1 - faster / highest):.1f}"

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="times as fast as the script as it is">']
    for level in range(int(highest) + 1):
        x, y = at(1, level).split(",")
        parts.append(f'<line class="grid" x1="{x}" x2="{LEFT + wide}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="label" x="{LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{level}</text>')
    for ranks in sorted({row.ranks for row in known}):
        x = at(ranks, 0).split(",")[0]
        parts.append(f'<text class="label" x="{x}" y="{HEIGHT - 18}" text-anchor="middle">{ranks}</text>')
    parts.append(f'<text class="label" x="{LEFT + wide}" y="{HEIGHT - 4}" text-anchor="end">ranks</text>')
    ideal = f"{at(1, 1)} {at(most, most)}"
    parts.append(f'<polyline points="{ideal}" stroke="var(--soft)" stroke-dasharray="5 4"/>')
    for number, name in enumerate(dict.fromkeys(row.name for row in known)):
        own = sorted((row for row in known if row.name == name), key=lambda row: row.ranks)
        parts += _line(outcome, own, COLOURS[number % len(COLOURS)], at, TOP + 14 + 18 * number)
    return "".join([*parts, "</svg>", '<p class="legend">times as fast as the script as it is; dashed: ideal</p>'])


def _line(outcome: Outcome, rows: list[Row], colour: str, at: Callable[[float, float], str], beside: int) -> list[str]:
    places = [at(row.ranks, outcome.speedup(row) or 0.0) for row in rows]
    dots = [place.split(",") for place in places]
    legend = f'<polyline points="{WIDTH - 110},{beside} {WIDTH - 86},{beside}" stroke="{colour}"/>'
    return [
        f'<polyline points="{" ".join(places)}" stroke="{colour}"/>',
        *(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in dots),
        legend,
        f'<text class="label" x="{WIDTH - 80}" y="{beside + 4}">{escape(rows[0].name)}</text>',
    ]
