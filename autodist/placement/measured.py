"""What was measured of how values lie, in the words of placements."""

from __future__ import annotations

import ast
import os
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256

from autodist.observations import Measured
from autodist.placement.call import ROWS
from autodist.placement.lattice import Partial, PerRank, Placement, Replicate, Shard, is_even_number, told
from autodist.program import Operation
from autodist.project import Project
from autodist.source import Source, walk

ANY = "*"
"""In the place of how operands lie: however they do."""
MIXES = "measured: what the ranks have cannot be joined to it"


def as_placement(measured: Measured, operation: Operation) -> Placement:
    """How the result of an operation lies of which that was measured."""
    match measured.lies:
        case "rows":
            return Shard(measured.axis or 0)
        case "mean":
            return Partial("mean", ROWS if not measured.weight else f"%{operation.number}")
        case "sum":
            return Partial("sum")
        case "max":
            return Partial("max")
        case "min":
            return Partial("min")
    return PerRank(operation.name, MIXES)


def as_join(placement: Placement) -> str | None:
    """The way of joining that a placement is, None where reading knows none."""
    if isinstance(placement, Replicate):
        return {0: "equal", -1: "sum"}.get(placement.exponent)
    if isinstance(placement, Shard):
        return f"rows {placement.axis}" if not placement.exponent and not placement.order else None
    if isinstance(placement, Partial):
        return placement.reduce if not placement.exponent else None
    return None


def differing(measured: Measured, read: Collection[Placement]) -> str | None:
    """What reading takes a value for that was measured to lie otherwise; None where both may be."""
    said = {as_join(each) for each in read}
    (one,) = said if len(said) == 1 else (None,)
    uneven = any(isinstance(each, Partial) and is_even_number(each.weight) for each in read) and measured.weight
    same = f"rows {measured.axis}" if measured.lies == "rows" else measured.lies
    return one if one is not None and (one != same or one == "mean" and uneven) else None


def lying_alike(given: Iterable[Placement | None]) -> str:
    """How the operands of an operation lie, in words that hold for other numbers of operations as well."""
    return "; ".join(told(each) for each in given if each is not None)


def anchor(source: Source, node: ast.expr) -> tuple[str, tuple[int, int]]:
    """The digest of the text around an expression, its function or its statement, and the place in there."""
    home = source.function(node) or source.statement(node)
    digest = sha256(source.code(home).encode()).hexdigest()[:16]
    return digest, (node.lineno - home.lineno, node.col_offset)


def relative(source: Source, project: Project) -> str:
    """The name of a file within its project."""
    return os.path.relpath(os.path.abspath(source.path), project.base).replace(os.sep, "/")


def located(measured: Collection[Measured], project: Project) -> tuple[Mapping[ast.AST, Measured], list[Measured]]:
    """The expressions of which something was measured, and what is stale: its text has changed since, or is there
    several times. What was measured of other files is passed over."""
    found: dict[ast.AST, Measured] = {}
    stale: list[Measured] = []
    for source in project.sources:
        of_file = [each for each in measured if each.file == relative(source, project)]
        wanted = {each.expression for each in of_file}
        nodes: dict[tuple[str, str, tuple[int, int]], list[ast.expr]] = {}
        for node in walk(source.tree) if of_file else ():
            if isinstance(node, ast.expr) and (text := ast.unparse(node)) in wanted:
                nodes.setdefault((text, *anchor(source, node)), []).append(node)
        for each in of_file:
            same = nodes.get((each.expression, each.digest, each.place), [])
            same = [node for node in same if node.lineno == each.line] if len(same) > 1 else same
            if len(same) == 1:
                found[same[0]] = each
            else:
                stale.append(each)
    return found, stale
