"""Measures the expressions of which reading does not know how they lie, for `convert --observe`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from autodist.catalog import Catalog
from autodist.deep import deep
from autodist.observations import Measured
from autodist.observe.found import PASSED, ROWS, Occurrences, Steps, occurrences, place_of_seen
from autodist.observe.joins import close, joins
from autodist.observe.measured import measure
from autodist.placement.lattice import Replicate, is_guessed
from autodist.placement.measured import ANY, anchor, differing, lying_alike, relative
from autodist.placement.placements import Placements
from autodist.placement.propagate import propagate
from autodist.program import Operation, Program, held
from autodist.project import Project
from autodist.solve.sources import sources
from autodist.source import Source
from autodist.trace import trace
from autodist.verify.probes.observing import place_of

COMPUTED = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript)
LEAST = 2
"""Occurrences on which the ranks' values differ; of one alone nothing is concluded."""

NAUGHT = 1e-12


@dataclass(frozen=True)
class Site:
    """An expression that is recorded."""

    source: Source
    node: ast.expr


@deep
def observed(project: Project, facts: Catalog, everything: bool = False, **options: Any) -> list[Measured]:
    """How expressions lie of which reading does not know it, or ``everything``, measured by runs of the script. Kept
    are those that reading does not know, and those of which it says something else.

    Raises AutodistError where the script fails, or its batches cannot be shared out; ``options`` are those of
    `measure`.
    """
    facts.measured = {}
    program = trace(project, facts)
    placements = propagate(program, sources(program, facts).plan, catalog=facts)
    wanted = _sites(project, program, placements, everything)
    if not wanted:
        return []
    places: dict[Path, list[tuple[int, int, int, int]]] = {}
    for each in wanted:
        places.setdefault(each.source.path.resolve(), []).append(place_of(each.node))
    found = measure(project.entry.path, places=places, **options)
    judged: dict[Site, Measured] = {}
    steps = [Steps(each) for each in found.rounds]
    seen = [each for of in found.rounds for each in of.whole if each.kind == "site"]
    for site in wanted:
        at = f"{':'.join(map(str, place_of(site.node)))} "
        name = str(site.source.path.resolve().relative_to(found.workdir))
        line = f"{name}:{site.node.lineno}"
        leaves = dict.fromkeys(place_of_seen(e) for e in seen if e.text.startswith(at) and e.site == line)
        every = [occurrences(leaf, found.rounds, steps) for leaf in leaves]
        told = {_judged(each) for each in every}
        if len(told) == 1 and (one := told.pop()) is not None:
            judged[site] = _kept(site, project, program, one, every, found.steps)
    return _needed(judged, program, placements, facts)


def _sites(project: Project, program: Program, placements: Placements, everything: bool) -> list[Site]:
    """What is computed in a way that the table does not know, or of that; and what is differentiated."""
    own = {*project.sources}
    found: dict[ast.expr, Site] = {}
    for each in program.operations:
        lying = placements.of.get(each, Replicate())
        unknown = each.known is None and not isinstance(lying, Replicate)
        if isinstance(each.node, COMPUTED) and each.source in own:
            if is_guessed(lying) or unknown and isinstance(each.node, ast.Call) or everything and each.is_tensor:
                found[each.node] = Site(each.source, each.node)
    for effect in program.of("backward"):
        node = effect.operation.node
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
            found[node.func.value] = Site(effect.operation.source, node.func.value)
    return list(found.values())


Judgment = tuple[str, int | None, int | None, str]
"""How a value lies, along which axis, with how many axes, and weighted by what."""


def _judged(found: Occurrences) -> Judgment | None:
    """How a value lies for certain; None where these runs do not tell.

    Nothing is concluded of what is the same on all shares, or from numbers that never differ among samples or shares:
    a head that begins at zero and a unit that is dead hide what is done with them.
    """
    if found.uneven is not None or not all(each.known for each in found.values):
        return None
    every = [joins(each) for each in found.values]
    alike = [any(way.kind == "equal" for way in ways) for ways in every]
    telling = [at for at, each in enumerate(found.values) if not (alike[at] or _is_naught(each.whole))]
    if len(telling) < LEAST or {found.rounds[at] for at in telling} != {*found.rounds}:
        return None
    ways = [way for way in every[telling[0]] if all(way in every[at] for at in telling)]
    values = [found.values[at] for at in telling]
    wholes = [torch.as_tensor(each.whole) for each in values]
    counts = {each.dim() for each in wholes}
    axes = counts.pop() if len(counts) == 1 else None
    if not ways:
        return "mixed", None, axes, ""
    if len({(way.kind, way.axis) for way in ways}) > 1 or not all(bool(torch.isfinite(w).all()) for w in wholes):
        return None
    way, *_ = ways
    if way.kind == "rows":
        axis = way.axis or 0
        sizes = [tuple(torch.as_tensor(e).shape[axis] for e in (each.whole, *each.shares)) for each in values]
        if sizes != [found.rows[at] for at in telling]:
            return None  # some of the samples, or several rows of each: in another order on ranks, or more on some
        if not _all_vary([each.double().movedim(axis, 0).reshape(each.shape[axis], -1) for each in wholes]):
            return None
        return "rows", axis, axes, ""
    shares = [
        torch.stack([torch.as_tensor(e).double() for e in each.shares]).reshape(len(each.shares), -1) for each in values
    ]
    if not _all_vary(shares) or way.weight == PASSED:
        return None
    return way.kind, None, axes, "" if way.weight in ("", ROWS) else way.weight


def _is_naught(value: Any) -> bool:
    """Whether it is zero but for rounding."""
    tensor = torch.as_tensor(value)
    return tensor.is_floating_point() and bool((tensor.abs() < NAUGHT).all())


def _all_vary(tables: Sequence[torch.Tensor]) -> bool:
    """Whether each column differs between rows, in one of several tables, or in all where these have other columns."""
    vary = [
        torch.tensor([not close(column, column[:1].expand_as(column)) for column in each.unbind(1)]) for each in tables
    ]
    if len({each.numel() for each in vary}) > 1:
        return all(bool(each.all()) for each in vary)
    return bool(torch.stack(vary).any(0).all())


def _kept(
    site: Site,
    project: Project,
    program: Program,
    judged: Judgment,
    every: Sequence[Occurrences],
    steps: int,
) -> Measured:
    lies, axis, axes, weight = judged
    digest, place = anchor(site.source, site.node)
    names = {each.name for each in _made_at(program, site)}
    mixing = next((each.mixing for each in every if each.mixing is not None), None) if lies == "mixed" else None
    return Measured(
        relative(site.source, project),
        site.node.lineno,
        ast.unparse(site.node),
        digest,
        place,
        names.pop() if len(names) == 1 else "",
        lies,
        axis,
        axes,
        weight,
        (ANY,),
        f"{mixing.operation} at {mixing.site}" if mixing is not None else "",
        max(len(each.values) for each in every),
        steps,
    )


def _made_at(program: Program, site: Site) -> Iterator[Operation]:
    return (each for each in program.at(site.node).operations if each.node is site.node)


def _needed(judged: dict[Site, Measured], program: Program, before: Placements, facts: Catalog) -> list[Measured]:
    """What reading does not know, with how operands lie then, and what it knows otherwise."""
    facts.measured = {site.node: each for site, each in judged.items()}
    placements = propagate(program, sources(program, facts).plan, catalog=facts)
    facts.measured = {}
    result = []
    for site, each in judged.items():
        used = [op for op in _made_at(program, site) if op in placements.measured]
        given = {lying_alike(placements.joint(held(v)) for v in op.operands) for op in used}
        if used or differing(each, [before.of.get(op, Replicate()) for op in program.at(site.node).operations]):
            result.append(replace(each, given=tuple(sorted(given))))
    return result
