"""All that is found in a script that distributes itself."""

from __future__ import annotations

from collections.abc import Iterator

from autodist.catalog import Catalog
from autodist.project import Project
from autodist.ranks import agreeing, given, kept, launched, shown, stepping, waiting, wrapped
from autodist.ranks.reading import Ranks
from autodist.ranks.standing import Standing
from autodist.ranks.starting import Starts
from autodist.ranks.ways import Ways
from autodist.script import Concern
from autodist.trace import trace

OF_PROGRAMS = (
    *(launched.devices, launched.tensors, launched.spawning, launched.endings),
    *(agreeing.orders, agreeing.types),
    *(stepping.clipping, stepping.synchronising, stepping.averaging, stepping.rates, stepping.sharding),
    *(stepping.weights, stepping.leaving_out),
    *(given.shuffled, given.by_local_rank, given.streams, given.counted),
)
OF_WAYS = (agreeing.rounds, kept.restored, kept.unwaited)


def concerns(project: Project, catalog: Catalog) -> Iterator[Concern]:
    """What goes wrong on several ranks, if the script joins them itself; what is not sure is not said."""
    read = _read(project, catalog)
    if read is None:
        return
    ranks, ways = read
    yield from shown.concerns(ranks, ways)
    yield from waiting.concerns(ranks, ways)
    yield from wrapped.rounds(ranks)
    yield from wrapped.prefixed(ranks)
    for of_program in OF_PROGRAMS:
        yield from of_program(ranks)
    for of_ways in OF_WAYS:
        yield from of_ways(ranks, ways)
    starts = Starts(ranks, ways)
    for found in (starts.prints, starts.downloads, starts.devices, starts.seeds):
        yield from found()


def standing(project: Project, catalog: Catalog) -> Standing | None:
    """What tells which findings of rules for conversion stand, if the script can be read rank by rank."""
    read = _read(project, catalog)
    return Standing(*read) if read is not None else None


def _read(project: Project, catalog: Catalog) -> tuple[Ranks, Ways] | None:
    if not any("init_process_group" in source.text for source in project.sources):
        return None
    program = trace(project, catalog)
    if not program.complete or not program.of("init_process_group"):
        return None
    ranks = Ranks(program, project.sources, catalog)
    return ranks, Ways(ranks)
