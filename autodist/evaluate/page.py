"""The report of an evaluation: one HTML file that needs no network, and the same as Markdown or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from autodist.evaluate.record import Record, Status
from autodist.evaluate.tables import Table, diff_sizes, score, share_equal, tables
from autodist.report import tool_version
from autodist.verify.page import STYLE

COLOURS = {
    Status.EQUAL: "good",
    Status.STATIC: "unsure",
    Status.WARNED: "unsure",
    Status.REFUSED: "unsure",
    Status.WRONG: "bad",
}
HEADS = {
    Status.EQUAL: "equal",
    Status.STATIC: "not run",
    Status.WARNED: "warned",
    Status.REFUSED: "refused",
    Status.WRONG: "wrong",
}
OWN_STYLE = """
td.good { color: var(--good); } td.bad { color: var(--bad); } td.unsure { color: var(--unsure); }
body { max-width: 80rem; }
"""


def write(records: Sequence[Record], strategy: str, path: Path) -> None:
    """Store the report, as JSON or Markdown where the name ends so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    form = {".json": as_json, ".md": as_markdown}.get(path.suffix, as_html)
    path.write_text(form(records, strategy), encoding="utf-8")


def as_json(records: Sequence[Record], strategy: str) -> str:
    """Everything, for programs."""
    content: dict[str, Any] = {
        "schema": 1,
        "tool": {"name": "autodist", "version": tool_version()},
        "strategy": strategy,
        "score": dict(score(records)),
        "tables": {
            table.title.lower(): {
                name: {status.value: counts[status] for status in Status if counts[status]}
                for name, counts in table.rows
            }
            for table in tables(records)
        },
        "scripts": [record.to_json() for record in records],
    }
    return json.dumps(content, indent=2) + "\n"


def as_markdown(records: Sequence[Record], strategy: str) -> str:
    """The counts, and a line for each script in the order in which they were given."""
    sizes = diff_sizes(records)
    lines = [f"| {strategy.upper()} | scripts |", "| --- | --- |"]
    lines += [f"| {name} | {count} |" for name, count in score(records)]
    lines += ["", f"{share_equal(records)}." + (f" Medians: +{sizes[0]:g} -{sizes[1]:g} lines." if sizes else ""), ""]
    lines += ["| script | outcome | lines added / removed |", "| --- | --- | --- |"]
    for record in records:
        size = f"+{record.added} -{record.removed}" if record.added else ""
        why = "" if record.status is Status.EQUAL else ": " + record.reason.replace("|", "\\|")
        lines.append(f"| {record.name} | {HEADS[record.status]}{why} | {size} |")
    return "\n".join(lines) + "\n"


def as_html(records: Sequence[Record], strategy: str) -> str:
    """The page."""
    sizes = diff_sizes(records)
    body = [
        f"<h1>{len(records)} training scripts, converted to {escape(strategy.upper())}</h1>",
        f'<p class="soft">autodist {escape(tool_version())}. {escape(share_equal(records))}.',
        f" A conversion adds {sizes[0]:g} lines and removes {sizes[1]:g} (medians).</p>" if sizes else "</p>",
        "<table>",
        *(f'<tr><td>{escape(name)}</td><td class="number">{count}</td></tr>' for name, count in score(records)),
        "</table>",
        _scripts(records),
        *(_table(table) for table in tables(records)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>autodist evaluate</title><style>{STYLE}{OWN_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _scripts(records: Sequence[Record]) -> str:
    head = '<tr><th>script</th><th>outcome</th><th class="number">diff</th><th class="number">s</th><th></th></tr>'
    order = list(Status)
    rows = "".join(_row(record) for record in sorted(records, key=lambda each: (-order.index(each.status), each.name)))
    return f"<h2>Scripts</h2><table>{head}{rows}</table>"


def _row(record: Record) -> str:
    size = f"+{record.added} -{record.removed}" if record.added else ""
    more = [f"{each.code} {each.message} ({each.path}:{each.line})" for each in record.warnings]
    if record.comparison is not None:
        more += [*record.comparison.findings, *record.comparison.notes]
    details = "".join(f"<li>{escape(text)}</li>" for text in more)
    details = f"<details><summary>{len(more)} remarks</summary><ul>{details}</ul></details>" if more else ""
    return (
        f"<tr><td><code>{escape(record.name)}</code></td>"
        f'<td class="{COLOURS[record.status]}">{escape(record.status.value)}</td><td class="number">{size}</td>'
        f'<td class="number">{record.seconds:.0f}</td><td>{escape(record.reason)}{details}</td></tr>'
    )


def _table(table: Table) -> str:
    head = "".join(f'<th class="number">{HEADS[status]}</th>' for status in Status)
    rows = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f'<td class="number">{counts[status] or ""}</td>' for status in Status)
        + "</tr>"
        for name, counts in table.rows
    )
    return f"<h2>{escape(table.title)}</h2><table><tr><th></th>{head}</tr>{rows}</table>"
