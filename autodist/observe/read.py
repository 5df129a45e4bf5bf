"""What reading the same script says of the values that were measured, to find where one of the two is wrong."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from autodist import catalog
from autodist.deep import deep
from autodist.errors import AutodistError
from autodist.observe.found import Observation
from autodist.placement.lattice import Replicate
from autodist.placement.measured import as_join
from autodist.placement.propagate import propagate
from autodist.project import Project
from autodist.solve.sources import sources
from autodist.source import walk
from autodist.trace import trace


@deep
def compared(script: Path, workdir: Path, found: Sequence[Observation]) -> list[Observation]:
    """The observations, each with what reading says otherwise. Where reading does not know, nothing is said."""
    try:
        project = Project.load(script)
    except AutodistError:
        return list(found)
    known = catalog.load()
    program = trace(project, known)
    if not program.operations:
        return list(found)
    # as they lie, before losses that relate the samples of a batch are seen to
    placements = propagate(program, sources(program, known).plan, catalog=known)
    read: dict[tuple[str, str], set[str | None]] = {}
    wanted = {(each.site, each.text) for each in found}
    for source in project.sources:
        name = os.path.relpath(source.path.resolve(), workdir)
        for node in walk(source.tree):
            if isinstance(node, ast.expr) and node in program.values:
                place = f"{name}:{node.lineno}", ast.unparse(node)
                if place in wanted:
                    lying = [placements.of.get(each, Replicate()) for each in program.at(node).operations]
                    read.setdefault(place, set()).update(map(as_join, lying))
    return [_with(each, read.get((each.site, each.text), set())) for each in found]


def _with(each: Observation, read: set[str | None]) -> Observation:
    """Says so where reading knows one way, and it is another one than what was measured."""
    (said,) = read if len(read) == 1 else (None,)
    measured = "" if each.join is None else f"rows {each.join.axis}" if each.join.kind == "rows" else each.join.kind
    if said is None or each.state == "undecided" or said == measured:
        return each
    return replace(each, read=said)
