"""Where the rows of a batch lie in what a layer of a library gives."""

from __future__ import annotations

from collections.abc import Callable

from autodist.spread import COLUMNS, ROWS, SAME, Spread
from autodist.tensors.calls import parts_inside
from autodist.tensors.facts import (
    ALIKE,
    ATTENDING,
    BATCH_FIRST,
    FEATURES,
    FOLDING,
    LAYERS,
    LOSSES,
    NORMALISING_LAST,
    NUMBER_BY_NUMBER,
    RECURRENT,
    STACKS,
)
from autodist.tensors.mixing import PAIRED, STATE, TIME_FIRST, is_whole, pairs
from autodist.values import NOTHING, UNKNOWN, Draw, Object, Value


def runs_along_rows(layer: Object, given: Value) -> bool:
    """Whether a layer of torch takes the axis of a rank's samples for time, or for the features of one sample."""
    short = layer.kind
    if given.spread not in (ROWS, COLUMNS):
        return False
    if given.spread is ROWS and takes_one(short, given):
        return True
    if layer.name.startswith("torch.nn.") and without_time(short, given):
        return True
    if not layer.name.startswith("torch.nn.") or short not in RECURRENT and not short.startswith(ATTENDING):
        return False
    parts = [layer, *(t for value in layer.args[:1] for t in value.things if isinstance(t, Object))]
    named = [part.argument("batch_first", BATCH_FIRST.get(part.kind)) for part in parts]
    told = [each.const for each in named if each is not None]
    if any("**" in part.keywords for part in parts):
        return False  # it may be among those
    second = given.spread is COLUMNS
    return all(const is second for const in told) and (bool(told) or not second)


def takes_one(layer: str, given: Value) -> bool:
    """Whether a layer that works along the last axis is given one axis alone: one sample, whose numbers are no rows."""
    return given.axes == 1 and (layer in FEATURES or layer.startswith("Conv"))


def without_time(layer: str, given: Value) -> bool:
    """Whether a recurrent layer is given rows with no other axis than that of their numbers, which are one sequence to
    it, whatever it is told of its axes."""
    return layer in RECURRENT and given.spread is ROWS and given.axes == 2


def _works_along_last(layer: Object) -> bool:
    """Whether a layer works number by number, or along the last axis alone: `nn.LayerNorm(dim)`."""
    if layer.kind in NORMALISING_LAST:
        shape = layer.argument("normalized_shape", 0)
        return shape is not None and not shape.things and not isinstance(shape.const, (tuple, list))
    return layer.kind in NUMBER_BY_NUMBER or layer.kind in ("Linear", "Embedding")


def of_loss(short: str, given: list[Value], value: Value) -> Spread | str:
    spreads = {each.spread for each in given[:2]}
    if len(spreads) > 1 and not any(each.const is not UNKNOWN for each in given[:2]):
        return "compares rows with something of which it cannot be seen that it has as many"
    if short in ALIKE and pairs(given[:2]):
        return PAIRED
    return value.spread


def through_layer(
    layer: Object, given: list[Value], value: Value, contents: Callable[[Value], list[Value]]
) -> Spread | str:
    """Where the rows lie in the output of a module of a library."""
    short = layer.kind
    if short in LOSSES:
        return of_loss(short, given, value)
    first = given[0] if given else value
    drawn = any(isinstance(each, Draw) and each.columns for each in first.origins)
    if first.spread is COLUMNS and short != "Embedding" and (first.axes == 2 or drawn and (first.axes or 0) < 3):
        return f"may take the axis of the samples for that of the features ({short})"
    if short == "Sequential":
        spread: Spread | str = first.spread
        for part in parts_inside(layer):
            if part.cls is None and not isinstance(spread, str):
                spread = through_layer(part, [first.but(spread=spread)], value, contents)
        return spread
    batch_first = layer.keywords.get("batch_first")
    if short in RECURRENT:
        expected = ROWS if batch_first is not None and batch_first.const is True else COLUMNS
        if first.spread is not expected:
            return (
                f"runs along the rows: {short} {TIME_FIRST}"
                if expected is COLUMNS
                else f"takes the rows for the steps of one sequence: {short} takes its second axis for time"
            )
        if without_time(short, first):
            return f"takes the rows for the steps of one sequence: {short} is given no axis of time beside them"
        states = [part for state in given[1:] for part in _alternatives(state, contents) if part.const is not None]
        if any(not is_whole(state) or state.spread is not COLUMNS for state in states):
            return STATE
        return expected
    if layer.name.startswith("torch.nn.") and short in STACKS:
        return _through_attention(layer, given, short)
    if first.spread is ROWS and takes_one(short, first):
        return f"takes the numbers of one sample for rows ({short})"
    if layer.name.startswith(("torch_geometric.", "dgl.")):
        return "works on a graph, whose nodes depend on each other"
    if layer.name.startswith("transformers.") and all(each.spread in (SAME, ROWS) for each in given):
        return ROWS  # its models take the samples first, whatever they are called by
    if not layer.name.startswith("torch.nn."):
        return f"calls {layer.name}, which cannot be followed"
    if first.spread in (ROWS, COLUMNS) and all(each.spread in (SAME, first.spread) for each in given):
        if short in LAYERS and (first.spread is ROWS or _works_along_last(layer)):
            return first.spread
        if short == "Flatten" and first.spread is ROWS or short == "Unflatten":
            return first.spread
        if short == "GLU" and first.spread is ROWS and first.axes != 1 and layer.argument("dim", 0) is None:
            return ROWS  # halves the last axis
        if short in FOLDING:
            over = layer.argument("dim", 0)
            at = over.const if over is not None else 1 if first.axes in (2, 4) else None  # as torch chose it of old
            known = first.axes is not None and isinstance(at, int) and first.axes + at > 0
            return (
                first.spread
                if isinstance(at, int) and (at > 0 or at < 0 and known)
                else f"works along an axis that may be that of the rows ({short})"
                + ("" if over is not None or short == "Softmax2d" else ": write `dim=1` if it is not")
            )
    return f"runs them through {short}, which is not known to keep rows apart"


def _alternatives(state: Value, contents: Callable[[Value], list[Value]]) -> list[Value]:
    """The tensors that a state is: those of a pair, or one."""
    alone = state.but(things=frozenset())
    held = [each for each in contents(state) if each is not NOTHING]
    return [*held, *([alone] if not state.things or alone.array or alone.spread is not SAME else [])]


def _through_attention(layer: Object, given: list[Value], short: str) -> Spread | str:
    """Sequences attend within themselves; the batch is their second axis, or the first where the layers say so."""
    parts = [layer, *(t for value in layer.args[:1] for t in value.things if isinstance(t, Object))]
    told = [part.keywords["batch_first"].const for part in parts if "batch_first" in part.keywords]
    most = 6 if any(part.name.endswith("Layer") for part in parts) else 9
    if any(len(part.args) > most or "**" in part.keywords for part in parts) or len(set(map(repr, told))) > 1:
        return f"runs them through {short}, of which it cannot be seen which axis it takes for time"
    expected = ROWS if told and told[0] is True else COLUMNS
    if told and told[0] not in (True, False):
        return f"runs them through {short}, of which it cannot be seen which axis it takes for time"
    sequences = given[: 2 if short in ("Transformer", "TransformerDecoder", "TransformerDecoderLayer") else 1]
    if any(not is_whole(each) or each.spread is not expected or each.axes not in (None, 3) for each in sequences):
        return f"runs along the rows: {short} takes its {'second' if expected is ROWS else 'first'} axis for time"
    if any(is_whole(each) for each in given[len(sequences) :]):
        return f"runs them through {short} with a mask that is computed from rows"
    return expected
