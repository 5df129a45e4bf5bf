"""``autodist observe``: what a person, a program or a browser is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from autodist.errors import AutodistError
from autodist.observe.found import ROWS, Observation, observations
from autodist.observe.measured import PARTS, Measured, measure
from autodist.observe.read import compared
from autodist.verify.command import check_report
from autodist.verify.page import STYLE
from autodist.verify.progress import progress_for_terminal

WORDS = {"gradient": "used by the optimizer"}


def observe_command(
    script: Path,
    args: Sequence[str] = (),
    *,
    output_format: str = "text",
    documents: Mapping[str, Path] | None = None,
    report: Path | None = None,
    **options: Any,
) -> int:
    """Run the script, say how its values lie, and return the exit code: 0 done, 2 what cannot be run or shared out."""
    documents = documents or {}
    progress = progress_for_terminal()
    try:
        for path in (*documents.values(), *([] if report is None else [report])):
            check_report(path)
        measured = measure(script, args, progress=progress, **options)
    except AutodistError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    finally:
        progress.close()
    found = compared(script, measured.workdir, observations(measured))
    wanted = {path: WRITERS[name] for name, path in documents.items()}
    if report is not None:
        wanted[report] = as_page
    try:
        for path, writer in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(writer(script, measured, found), encoding="utf-8")
    except OSError as error:
        print(f"error: {error.filename}: cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    sys.stdout.write(WRITERS[output_format](script, measured, found))
    return 0


def advice(each: Observation) -> str:
    """What a distributed script has to do with such a value."""
    kind, trains = each.join.kind if each.join is not None else "", each.kind in ("differentiated", "gradient")
    if each.state == "undecided":
        return "these runs do not tell: other arguments, or more --steps"
    if kind == "equal":
        return "nothing"
    if not kind:
        where = f" before {each.mixing.site}" if each.mixing else ""
        return f"gather what is mixed from all ranks{where}, or reduce its parts apart"
    if trains and kind == "mean" and each.join is not None and each.join.weight == ROWS:
        return "nothing: DDP averages gradients over ranks with equal shares"
    if trains and kind == "sum":
        return "multiply by the number of ranks: DDP averages gradients"
    if trains and kind == "mean":
        return "weight by what each rank counts: DDP averages gradients with equal weights"
    texts = {
        "sum": "all-reduce with sum",
        "mean": "all-reduce, weighted by what each rank counts",
        "max": "all-reduce with max",
        "min": "all-reduce with min",
        "rows": "gather from all ranks, in the order of the samples",
    }
    return texts[kind]


def fault(each: Observation) -> str:
    """What is said where reading and measuring differ."""
    return f"reading takes it for `{each.read}`, which is not what was measured: a fault of autodist, please report it"


def as_text(script: Path, measured: Measured, found: Sequence[Observation]) -> str:
    """A page to read, in the order of the lines."""
    lines = [_headline(script, measured), ""]
    for site, several in groupby(found, key=lambda each: each.site):
        lines.append(site)
        for each in several:
            lines.append(f"  {each.text}  ({WORDS.get(each.kind, each.kind)})")
            lines.append(f"    is {each}" if each.join is not None else f"    {each}")
            lines.append(f"    on ranks: {advice(each)}")
            lines += [f"    {fault(each)}"] if each.read else []
    return "\n".join(lines) + "\n"


def _headline(script: Path, measured: Measured) -> str:
    shares = ":".join(map(str, PARTS))
    return (
        f"{script.name}: {measured.steps} optimizer steps with whole training batches and with three shares of them "
        f"({shares}), in float64 on the CPU, BatchNorm with the statistics of the whole batch; then the same with "
        "other weights. What a value is on the whole batch, as made of those on the shares:"
    )


def as_json(script: Path, measured: Measured, found: Sequence[Observation]) -> str:
    """Everything, for programs."""
    values = [
        {
            "site": each.site,
            "kind": each.kind,
            "text": each.text,
            "state": each.state,
            "join": None if each.join is None else each.join.kind,
            "axis": None if each.join is None else each.join.axis,
            "weight": None if each.join is None or not each.join.weight else each.join.weight,
            "mixing": None if each.mixing is None else {"operation": each.mixing.operation, "site": each.mixing.site},
            "occurrences": each.times,
            "says": str(each),
            "on_ranks": advice(each),
            "read": each.read or None,
        }
        for each in found
    ]
    return json.dumps({"script": str(script), "steps": measured.steps, "values": values}, indent=2) + "\n"


def as_page(script: Path, measured: Measured, found: Sequence[Observation]) -> str:
    """One HTML file that needs no network."""
    rows = "".join(
        f"<tr><td><code>{escape(each.site)}</code></td><td><code>{escape(each.text)}</code></td>"
        f"<td>{escape(WORDS.get(each.kind, each.kind))}</td><td>{escape(str(each))}</td>"
        f"<td>{escape(advice(each))}{f'<br><b>{escape(fault(each))}</b>' if each.read else ''}</td></tr>"
        for each in found
    )
    head = "<tr><th>line</th><th>value</th><th></th><th>on the whole batch it is</th><th>on ranks</th></tr>"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(script.name)}: observed</title><style>{STYLE} td code {{ white-space: pre-wrap; }}</style>"
        f"</head><body><h1>How the values of <code>{escape(script.name)}</code> lie over ranks</h1>"
        f'<p class="soft">{escape(_headline(script, measured))}</p><table>{head}{rows}</table></body></html>\n'
    )


WRITERS = {"text": as_text, "json": as_json}
