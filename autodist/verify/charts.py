"""Charts as inline SVG: lines over optimizer steps, and which rank read which sample."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 18, 42
MOST_POINTS = 1500
MOST_CELLS = 360
RANK_COLOURS = ("#2f6fb0", "#d9822b", "#3f9d5d", "#b8405e", "#7a5bb0", "#8a6d3b", "#2ba3a3", "#c2447f")


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    name: str
    values: Sequence[float]
    colour: str
    dashed: bool = False


def thinned(count: int) -> list[int]:
    """The positions that are drawn."""
    step = max(1, math.ceil(count / MOST_POINTS))
    return sorted({*range(0, count, step), *([count - 1] if count else [])})


def line_chart(
    lines: Sequence[Line],
    logarithmic: bool = False,
    levels: Sequence[tuple[str, float]] = (),
    mark: tuple[str, int] | None = None,
) -> str:
    """Values over steps; ``levels`` are horizontal lines with a name, ``mark`` is a step with one.

    On a log scale zero lies at the bottom.
    """
    finite = [
        value for line in lines for value in line.values if math.isfinite(value) and (value > 0 or not logarithmic)
    ]
    finite += [value for _, value in levels]
    if not finite:
        return '<p class="empty">nothing to draw</p>'
    low, high = (min(finite), max(finite))
    if logarithmic:
        low, high = math.floor(math.log10(max(low, 1e-18))), math.ceil(math.log10(max(high, 1e-17)))
    if high - low < 1e-12:
        low, high = low - 0.5, high + 0.5
    count = max(len(line.values) for line in lines)
    wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def across(step: float) -> float:
        return LEFT + wide * (step / max(1, count - 1))

    def up(value: float) -> float:
        scaled = math.log10(max(value, 10.0**low)) if logarithmic else value
        return TOP + tall * (1 - (min(max(scaled, low), high) - low) / (high - low))

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for tick in ticks(low, high, logarithmic):
        value = 10.0**tick if logarithmic else tick
        label = f"1e{int(tick)}" if logarithmic else f"{tick:.4g}"
        y = up(value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="label" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    for step in step_ticks(count):
        parts.append(f'<text class="label" x="{across(step):.1f}" y="{HEIGHT - 24}" text-anchor="middle">{step}</text>')
    parts.append(f'<text class="label" x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end">optimizer step</text>')
    labels = []
    for name, value in levels:
        y = up(value)
        parts.append(f'<line class="level" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        labels.append(
            f'<text class="label halo" x="{WIDTH - RIGHT}" y="{y - 3:.1f}" text-anchor="end">{escape(name)}</text>'
        )
    if mark is not None and mark[1] < count:
        x, anchor = across(mark[1]), "start" if mark[1] < count / 2 else "end"
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + tall}"/>')
        at = x + (4 if anchor == "start" else -4)
        labels.append(
            f'<text class="label halo" x="{at:.1f}" y="{TOP - 5}" text-anchor="{anchor}">{escape(mark[0])}</text>'
        )
    for line in lines:
        points = [
            f"{across(at):.1f},{up(line.values[at]):.1f}"
            for at in thinned(len(line.values))
            if math.isfinite(line.values[at])
        ]
        dash = ' stroke-dasharray="5 4"' if line.dashed else ""
        if len(points) == 1:
            left, _, top = points[0].partition(",")
            parts.append(f'<circle cx="{left}" cy="{top}" r="3" fill="{line.colour}"/>')
        parts.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{line.colour}" stroke-width="1.6"{dash}/>'
        )
    return "".join([*parts, *labels, "</svg>", legend([(line.name, line.colour) for line in lines])])


def ticks(low: float, high: float, logarithmic: bool) -> list[float]:
    """Round values along the vertical axis."""
    if logarithmic:
        every = max(1, math.ceil((high - low) / 6))
        return [float(value) for value in range(int(low), int(high) + 1, every)]
    rough = (high - low) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    size *= next(factor for factor in (1, 2, 5, 10) if factor * size >= rough)
    first = math.ceil(low / size)
    return [round(index * size, 12) for index in range(first, math.floor(high / size) + 1)]


def step_ticks(count: int) -> list[int]:
    """Round steps along the horizontal axis."""
    if count <= 1:
        return [0]
    rough = count / 8
    size = 10 ** max(0, math.floor(math.log10(rough)))
    size *= next(factor for factor in (1, 2, 5, 10) if factor * size >= rough)
    return list(range(0, count, int(size)))


def legend(entries: Sequence[tuple[str, str]]) -> str:
    """Names with their colours."""
    items = "".join(f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in entries)
    return f'<p class="legend">{items}</p>'


def sample_chart(batches: Sequence[Sequence[Sequence[object]]]) -> str:
    """One pass over a loader: columns are the samples in order, rows the steps, colours the ranks that read them."""
    count = max((len(each) for each in batches), default=0)
    samples = sorted({str(s): s for each in batches for batch in each for s in batch}.values(), key=sort_key)
    if not samples or not count:
        return '<p class="empty">nothing was read</p>'
    column = {str(sample): at * min(1.0, MOST_CELLS / len(samples)) for at, sample in enumerate(samples)}
    columns = min(len(samples), MOST_CELLS)
    rows = min(count, 60)
    cell, tall = (WIDTH - LEFT - RIGHT) / columns, max(3.0, min(12.0, 240 / rows))
    height = rows * tall + 24
    parts = [f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img">']
    for rank, each in enumerate(batches):
        colour = RANK_COLOURS[rank % len(RANK_COLOURS)]
        for row, batch in enumerate(each[:rows]):
            for sample in batch:
                x, y = LEFT + math.floor(column[str(sample)]) * cell, row * tall
                title = escape(f"rank {rank}, step {row}, sample {sample}")
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(cell, 1):.1f}" height="{tall - 0.5:.1f}" '
                    f'fill="{colour}"><title>{title}</title></rect>'
                )
    parts.append(f'<text class="label" x="{LEFT - 6}" y="{tall:.0f}" text-anchor="end">step 0</text>')
    parts.append(f'<text class="label" x="{LEFT - 6}" y="{rows * tall:.0f}" text-anchor="end">step {rows - 1}</text>')
    parts.append(f'<text class="label" x="{LEFT}" y="{height - 6:.0f}">{len(samples)} samples in their order</text>')
    names = [(f"rank {rank}", RANK_COLOURS[rank % len(RANK_COLOURS)]) for rank in range(len(batches))]
    return "".join([*parts, "</svg>", legend(names)])


def sort_key(sample: object) -> tuple[int, float, str]:
    """Numbers before texts."""
    return (0, float(sample), "") if isinstance(sample, (int, float)) else (1, 0.0, str(sample))
