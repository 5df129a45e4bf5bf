"""Where ranks are seeded apart so that dropout differs, and what becomes of the batches that they draw."""

from __future__ import annotations

import ast
from collections.abc import Collection

from autodist import randomness
from autodist.analyze.launched import is_distributed
from autodist.common_draws import deciding, orders
from autodist.interpreter import Interpreter
from autodist.script import Apart, Loader, Model, Site
from autodist.source import argument, simple
from autodist.values import NOTHING, Draw, External, drawn_by_evaluation


def gone_apart(
    run: Interpreter,
    loaders: list[Loader],
    draws: frozenset[object],
    shared: Collection[Draw],
    models: list[Model],
    varied: frozenset[str],
    common: tuple[Site, ...],
    once: Collection[ast.AST],
    alone: frozenset[ast.AST],
    sizes: Collection[ast.AST],
) -> tuple[tuple[Apart, ...], frozenset[ast.expr], tuple[Site, ...]]:
    """The loops ahead of which ranks are seeded apart, the draws by which each then draws samples for itself, and what
    rank 0 draws for all of them. Of the batches that are ``shared`` out some are ``draws``; ``varied`` are libraries
    that draw noise alone, ``common`` is what steps draw once for a batch and rank 0 can
    draw for all, ``once`` what it cannot, ``alone`` what not all ranks run, and
    ``sizes`` are those of batches."""
    taken_over = {site.node for site in common}
    dealt_out = {each.node for each in shared if id(each.node) not in draws}
    apart = randomness.diverge(run, loaders, draws | dealt_out, models, varied, taken_over, once)
    drawn = bool(shared) or randomness.draws_data(loaders, run)
    acting = not apart and bool(shared) and randomness.acts_by_chance(models, run)
    if is_distributed(run) or acting or not apart and not drawn:
        return apart, frozenset(), common
    if apart:
        decided = [] if not loaders else deciding(orders(run, alone, shared, ()) or (), run)
        asked = drawn_by_evaluation(event.value for event in randomness.decided_by_noise(run))
        taken_over |= {draw.node for draw in asked}  # what is decided by them rank 0 decides
        return apart, frozenset(), (*common, *(site for site in decided if site.node not in taken_over))
    dealt = frozenset[ast.AST](each.node for each in shared)
    for_all = dealt | {each.node for each in randomness.drawn_for_all(run, (), dealt, sizes)}
    if not randomness.drops_alike(run, models, (), draws, loaders, for_all, taken_over):
        return (), frozenset(), common
    # ranks that restore one state of a generator are alike again: they would draw the same samples
    restored = any("set_rng_state" in source.text for source in run.project.sources)
    own = [] if restored else _drawn_by_each(run, shared)
    ordered = orders(run, alone, shared, own)
    made = {each.object.node for each in loaders}  # calls that are written anew
    if ordered is None or any(not made.isdisjoint(site.source.ancestors(site.node)) for site in ordered):
        return (), frozenset(), common
    taken_over |= {site.node for site in ordered}
    apart = randomness.diverge(run, loaders, frozenset(), models, varied, taken_over, once)
    return (apart, frozenset(own), (*common, *ordered)) if apart else ((), frozenset(), common)


def _drawn_by_each(run: Interpreter, draws: Collection[Draw]) -> list[ast.expr]:
    """Draws of numbers of samples, `torch.randint(len(data), (batch_size,))`, that each rank can make for its share of
    the batch alone, if nothing else is shared out."""
    return [draw.node for draw in draws] if all(_draws_row_of_numbers(each, run) for each in draws) else []


def _draws_row_of_numbers(draw: Draw, run: Interpreter) -> bool:
    """Whether torch draws one number for each sample, independently, from the generator that dropout draws from."""
    node = draw.node
    if not isinstance(node, ast.Call) or draw.batch or draw.size is None or argument(node, "generator") is not None:
        return False
    sizes = draw.source.parents.get(draw.size)
    alone = isinstance(sizes, (ast.Tuple, ast.List)) and len(sizes.elts) == 1 and node in draw.source.ancestors(sizes)
    names = {thing.name for thing in run.values.get(node.func, NOTHING).things if isinstance(thing, External)}
    return alone and names == {"torch.randint"} and simple(draw.size)
