"""The seed of an order of samples."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from autodist.edits import InsertAfter, SetArgument
from autodist.rule import Context
from autodist.script import Loader, OrderSeed, Site, TrainingScript
from autodist.source import Source

from ._collectives import AS_ON_RANK_ZERO
from ._preamble import Planned, argument, defined, dist, imported, planned

Alike = tuple[Site, Planned]
"""A loader or sampler, and the edits that have all ranks draw the same order from it."""


def order_seed(script: TrainingScript, context: Context, source: Source, node: ast.Call) -> tuple[str, Planned]:
    """The code for the seed by which a loader shuffles that a call makes, or a sampler: that of the script."""
    found = script.order_seeds.get(node, OrderSeed(node))
    if found.shut or script.distributed or found.late and _seeded_later(found, script) is not None:
        return "0", ()
    if found.code is not None:
        return found.code, ()
    torch, imports = imported(context, source, "torch")
    if found.alike:
        return f"{torch}.initial_seed()", imports
    d, dist_import = dist(context, source)
    helper = defined(script, source, AS_ON_RANK_ZERO.replace("{d}", d))
    return f"as_on_rank_zero({torch}.initial_seed())", (*imports, *dist_import, *helper)


def generator(
    script: TrainingScript, context: Context, source: Source, node: ast.Call, number: str = "0"
) -> tuple[str, Planned]:
    """The code for a generator of its own with that seed, or as many more as the ``number`` says."""
    seed, needed = order_seed(script, context, source, node)
    torch, imports = imported(context, source, "torch")
    code = " + ".join(each for each in (seed, number) if each != "0") or "0"
    return f"{torch}.Generator().manual_seed({code})", (*imports, *needed)


def drawn_alike(
    script: TrainingScript, context: Context, loaders: Collection[ast.AST] | None = None
) -> Iterator[Alike]:
    """What gives loaders that only evaluate, and their samplers, a generator of their own by which all ranks draw the
    same order; of these ``loaders`` alone, and of all samplers, where they are told."""
    if not script.trains or script.distributed:
        return
    shuffling = [site for site in script.evaluation_loaders if _shuffles(site.node)]
    shuffling = [site for site in shuffling if loaders is None or site.node in loaders]
    for site in (*shuffling, *script.evaluation_samplers):
        assert isinstance(site.node, ast.Call)
        alike, needed = generator(script, context, site.source, site.node)
        yield site, (*needed, *planned(site.source, SetArgument(site.node, "generator", alike)))


def _shuffles(call: ast.AST) -> bool:
    assert isinstance(call, ast.Call)
    shuffle = argument(call, "shuffle", 2)
    fixed = isinstance(shuffle, ast.Constant) and not shuffle.value
    return shuffle is not None and not fixed and argument(call, "generator") is None


def seeding_later(script: TrainingScript, context: Context, loader: Loader) -> Planned | None:
    """Have the sampler of a loader take the seed that the script sets after the loader is made; None if the script does
    so where the loader has no name."""
    found = script.order_seeds.get(loader.node, OrderSeed(loader.node))
    if not found.late or script.distributed:
        return ()
    later = _seeded_later(found, script)
    if later is None:
        return None
    site, name = later
    torch, imports = imported(context, site.source, "torch")
    return (
        *imports,
        *planned(site.source, InsertAfter(site.statement, f"{name}.sampler.seed = {torch}.initial_seed()\n")),
    )


def _seeded_later(found: OrderSeed, script: TrainingScript) -> tuple[Site, str] | None:
    """Where the script seeds in the function that then passes over the loader, and the loader's name there."""
    loader = next((each for each in script.loaders if each.node is found.node), None)
    for epoch in loader.epochs if loader is not None else ():
        for site in found.late:
            home = site.source.home(site.node)
            above = site.statement.lineno < epoch.statement.lineno
            if site.source is epoch.source and home is epoch.source.home(epoch.statement) and above and epoch.loader:
                return site, epoch.loader
    return None
