"""Training steps that take all of the data: which tensors hold it, and whether a rank may take its rows of them.

It may where every row is treated by itself up to the loss, and the loss is a mean or a sum over them. Ranks may then
hold one row more or less than others, so a mean counts for as many rows as it was taken over.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from autodist.interpreter import Event, Interpreter, Plan
from autodist.losses import one_by_one
from autodist.models import optimized_by, unseen_model
from autodist.script import RowMean, Site
from autodist.source import Source, is_generator, is_index, is_mask, last_name, shortened, walk
from autodist.spread import MEAN, SAME, SUM
from autodist.tensors.calls import library
from autodist.tensors.facts import CONVERTING, ELEMENTWISE
from autodist.tensors.mixing import ONE_BY_ONE, SINGLE, STATE, STATISTIC, TIME_FIRST, WRITTEN, mixings
from autodist.values import NOTHING, Draw, Function, Turn

MOST = 6
EVEN = "so that ranks need as many"
MOVING = frozenset("to cuda cpu float double long".split())
"""Methods whose result has the shape of their tensor."""
COUNTED = (STATE, SINGLE, WRITTEN)
"""What may stand against a rank's rows only because something beside them is told how many there are of all ranks."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Wholes:
    """The tensors with all the data, or where and why a rank cannot take its rows of them."""

    nodes: frozenset[ast.expr] = frozenset()
    columns: frozenset[ast.expr] = frozenset()
    counts: frozenset[ast.expr] = frozenset()
    batches: frozenset[ast.expr] = frozenset()
    site: Site | None = None
    reason: str = ""


def find(run: Callable[[Plan], Interpreter], plan: Plan, through_time: bool = False) -> Wholes | None:
    """What the training steps read in full; None where nothing is known to be a tensor of data.

    Where steps read on ``through_time``, the samples can lie along the second axis only.
    """
    first = run(_with(plan, Wholes()))
    candidates = _candidates(first)
    homes = {(e.source, _around(e.source, e.node)) for e in first.of("backward")}
    near = frozenset(node for node, source in candidates.items() if (source, _around(source, node)) in homes)
    refused: Wholes | None = None
    counts = _counts(first, homes)
    columns = Wholes(columns=_outer(first, homes))
    batches = _batches(run, plan, first)
    tried = [
        Wholes(batches=batches),
        Wholes(near, batches=batches),
        Wholes(near),
        Wholes(frozenset(candidates)),
        Wholes(_read(first, homes)),
        Wholes(_picking(near, first)),
        columns,
        Wholes(columns=near - columns.columns),
        Wholes(batches=_given(first, near, homes) - columns.columns),
        Wholes(batches=near - columns.columns),  # what each step makes anew, and all ranks have as many rows of
    ]
    even: Wholes | None = None
    for trial in [columns] if through_time else list(dict.fromkeys(tried)):
        found = _try(run, plan, trial)
        if found is not None and found.reason.endswith(EVEN):
            even = even or replace(found, site=None, reason="")
            continue
        if found is not None and found.reason.endswith(COUNTED):
            several = (_try(run, plan, replace(found, counts=each, site=None, reason="")) for each in counts)
            found = next((each for each in several if each is not None and each.site is None), found)
        if found is not None and found.site is not None and found.batches and not found.nodes:
            found = _with_counts(run, plan, found, counts)
        if found is not None and found.site is None:
            return found
        if refused is None or refused.reason.endswith(TIME_FIRST) and found is not None and found.columns:
            refused = found or refused  # the samples are the columns, so what stands against them is the reason
    return even or refused


def _try(run: Callable[[Plan], Interpreter], plan: Plan, trial: Wholes) -> Wholes | None:
    """What of ``trial`` reaches a gradient, with what stands against it; None if nothing does."""
    if not trial.nodes | trial.columns | trial.batches:
        return None
    reached = _reaching(run(_with(plan, trial)))
    found = Wholes(trial.nodes & reached, trial.columns & reached, trial.counts & reached, trial.batches & reached)
    if not found.nodes | found.columns | found.batches:
        return None
    current = run(_with(plan, found))
    divided = [each for each in current.of("mean_loss") if isinstance(each.node, ast.BinOp) and not each.value.models]
    ratios = frozenset(event.node for event in divided if isinstance(event.node, ast.expr))
    if ratios:  # of two sums, `(losses * mask).sum() / mask.sum()`, which are weighed as in a batch of a loader
        current = run(replace(_with(plan, found), weighed=ratios))
    objection = next(_objections(current), None)
    return found if objection is None else replace(found, site=objection[0], reason=objection[1])


def _with_counts(
    run: Callable[[Plan], Interpreter], plan: Plan, found: Wholes, counts: list[frozenset[ast.expr]]
) -> Wholes:
    """The same with numbers of samples as a rank's, where that is all that stands against it: each shapes
    the state that a batch meets, or stands in what the last objection is to. An evaluation keeps its own."""
    known, current = sorted(frozenset().union(*counts), key=lambda each: (each.lineno, each.col_offset)), found
    for _ in range(MOST):
        if current.site is None:
            return current
        inside = set(walk(current.site.node))
        fresh = [each for each in known if each not in current.counts]
        alike = {ast.unparse(each) for each in current.counts}
        named: dict[str, set[ast.expr]] = {}
        for each in fresh:
            if each in inside and (not alike or ast.unparse(each) in alike):
                named.setdefault(ast.unparse(each), set()).add(each)
        groups = [{each} for each in fresh] if current.reason.endswith(STATE) else [*named.values()]
        tried = (current.counts | group for group in groups)
        several = (_try(run, plan, replace(found, counts=each, site=None, reason="")) for each in tried)
        better = (e for e in several if e is not None and e.counts and _goes_further(e, current))
        chosen = next(better, None)
        if chosen is None:
            return found
        current = chosen
    return found


def _goes_further(found: Wholes, before: Wholes) -> bool:
    """Whether nothing, or something else, stands against what is found, of as many batches."""
    if found.batches != before.batches or not before.counts <= found.counts:
        return False
    return found.site is None or (found.site.node, found.reason) != (before.site and before.site.node, before.reason)


def _given(run: Interpreter, near: frozenset[ast.expr], homes: set[Home]) -> frozenset[ast.expr]:
    """Those of the tensors that a step gives to its models, or puts beside what these make."""
    pieces = {e.node for e in run.of("may_be_piece") if (e.source, _around(e.source, e.node)) in homes}
    named = (each for each in near | pieces if isinstance(each, ast.expr) and _is_plain(each))
    return frozenset(each for each in named if _meets_model(each, run))


def _meets_model(node: ast.expr, run: Interpreter) -> bool:
    above = run.sources[node].ancestors(node)
    around = itertools.takewhile(lambda each: isinstance(each, (ast.expr, ast.keyword)), above)
    return any(isinstance(each, ast.expr) and bool(run.values.get(each, NOTHING).models) for each in around)


def _picking(near: frozenset[ast.expr], run: Interpreter) -> frozenset[ast.expr]:
    """The numbers of the rows that a step learns from, of what a model gives for all of them: `output[idx_train]`,
    where these cannot be shared out, as the nodes of a graph. What a condition gives are no numbers: `np.where(y > 0)`
    is a tuple."""
    picking = (each for each in near if is_index(each, run.sources[each]))
    return frozenset(each for each in picking if not _is_condition(each, run.sources[each]))


def _is_condition(node: ast.expr, source: Source) -> bool:
    """Whether a name stands for a comparison, and is not called a mask, or for where one holds."""
    return any(
        isinstance(value, ast.Compare)
        and not is_mask(node, source)
        or isinstance(value, ast.Call)
        and last_name(value.func) in ("where", "nonzero")
        for value in _bound_to(last_name(node), source)
    )


def _bound_to(name: str, source: Source) -> Iterator[ast.expr]:
    """What a module assigns to a name, or to an attribute of it."""
    for each in walk(source.tree):
        if not isinstance(each, ast.Assign):
            continue
        for target in each.targets:
            several = isinstance(target, ast.Tuple) and isinstance(each.value, ast.Tuple)
            targets = target.elts if isinstance(target, ast.Tuple) and several else [target]
            values = each.value.elts if isinstance(each.value, ast.Tuple) and several else [each.value]
            yield from (value for one, value in zip(targets, values, strict=False) if last_name(one) == name)


Home = tuple[Source, ast.AST | None]


def _batches(run: Callable[[Plan], Interpreter], plan: Plan, first: Interpreter) -> frozenset[ast.expr]:
    """Where batches that the script makes elsewhere come into its training steps, each in one place."""
    steps = first.step_loops
    around = frozenset(loop.node for event in first.of("backward") for loop in event.loops[-2:])
    chosen = _iterated(steps, first) or _iterated(around, first)  # a batch that takes several steps
    if chosen:
        return frozenset(chosen)
    trained = first.of("backward")
    homes = {(e.source, _around(e.source, e.node)) for e in trained}
    inside = {call.node for e in trained for call in e.calls}  # what gives the loss of a step, and no batch for it
    for _ in range(MOST):
        current = run(_with(plan, Wholes(batches=frozenset(chosen))))
        entering = (e for e in current.of("may_be_batch") if _enters(e, steps, homes, current))
        fresh = next((e for e in entering if e.node not in chosen and e.node not in inside), None)
        if fresh is None:
            break
        assert isinstance(fresh.node, ast.expr)
        chosen.add(fresh.node)
    return frozenset(chosen)


def _iterated(loops: frozenset[ast.AST], run: Interpreter) -> set[ast.expr]:
    """The iterables of batches that loops go over."""
    heads = {loop.iter for loop in loops if isinstance(loop, (ast.For, ast.AsyncFor))}
    return {
        event.node
        for event in run.of("may_be_batches")
        if isinstance(event.node, ast.expr)
        and (event.node in heads or event.source.parents.get(event.node) in heads)
        and run.is_batch(event.value)
    }


def _enters(event: Event, steps: frozenset[ast.AST], homes: set[Home], run: Interpreter) -> bool:
    """Whether a statement of the function that holds the loop of the training steps, or such a step, gives it a
    batch."""
    loop = event.loops[-1] if event.loops else None
    if loop is None or loop.node not in steps or not event.grad or not run.is_batch(event.value):
        return False
    home = event.source, _around(event.source, event.node)
    return home == (loop.source, _around(loop.source, loop.node)) or home in homes


def _counts(run: Interpreter, homes: set[Home]) -> list[frozenset[ast.expr]]:
    """The names in the functions with the steps that may say how many rows there are, those alike together."""
    found: dict[tuple[str, Home], set[ast.expr]] = {}
    for event in run.of("may_be_count"):
        assert isinstance(event.node, ast.expr)
        home = event.source, _around(event.source, event.node)
        call = next(each for each in event.source.ancestors(event.node) if isinstance(each, ast.Call))
        if _is_plain(event.node) and home in homes and run.runs.may_count(event.node, call):
            found.setdefault((ast.unparse(event.node), home), set()).add(event.node)
    return [frozenset(nodes) for nodes in found.values()]


def _outer(run: Interpreter, homes: set[Home]) -> frozenset[ast.expr]:
    """The tensors that the functions with the steps read, and that no step makes."""
    steps = run.step_loops
    found = set()
    for event in run.of("may_be_whole"):
        node = event.node
        if (event.source, _around(event.source, node)) in homes and isinstance(node, ast.expr) and _is_plain(node):
            inside = [loop for loop in event.loops if loop.node in steps]
            if inside and not any(
                isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store) and _alike(n, node)
                for n in walk(inside[-1].node)
            ):
                found.add(node)
    return frozenset(found)


def _candidates(run: Interpreter) -> dict[ast.expr, Source]:
    """The names of tensors in training steps that no function of the project is just given."""
    steps = run.step_loops
    return {
        event.node: event.source
        for event in run.of("may_be_whole")
        if any(loop.node in steps for loop in event.loops)
        and isinstance(event.node, ast.expr)
        and _is_plain(event.node)
        and not _is_handed_on(event.node, event.source, run)
    }


def _read(run: Interpreter, homes: set[Home]) -> frozenset[ast.expr]:
    """The names of tensors that functions with the steps read, also those that they give to others of the project:
    `self.net_u(self.x, self.t)`."""
    named = (e for e in run.of("may_be_whole") if (e.source, _around(e.source, e.node)) in homes)
    return frozenset(e.node for e in named if isinstance(e.node, ast.expr) and _is_plain(e.node))


def _with(plan: Plan, found: Wholes) -> Plan:
    return replace(plan, wholes=found.nodes, columns=found.columns, counts=found.counts, batches=found.batches)


def _is_plain(node: ast.expr) -> bool:
    """`x`, `self.x`: what can be written once more."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _is_handed_on(node: ast.expr, source: Source, run: Interpreter) -> bool:
    """Whether a function of the project is given the tensor, and takes the rows itself."""
    parent = source.parents.get(node)
    parent = source.parents.get(parent) if isinstance(parent, ast.keyword) else parent
    things = run.values.get(parent.func, NOTHING).things if isinstance(parent, ast.Call) else ()
    return any(isinstance(thing, Function) for thing in things)


def _reaching(run: Interpreter) -> frozenset[ast.expr]:
    origins = frozenset().union(*(event.value.origins for event in run.of("backward")))
    return frozenset(each.node for each in origins if isinstance(each, Draw) and each.whole)


def _objections(run: Interpreter) -> Iterator[tuple[Site, str]]:
    """Why the rows of the whole data cannot be dealt out."""
    # what is drawn before training is data like any other
    around: set[ast.AST] = {loop.node for event in run.of("backward") for loop in event.loops}
    drawn = [thing for event in run.of("draw") if not _is_before(event, around) for thing in event.value.things]
    fresh = {thing.node for thing in drawn if isinstance(thing, Draw) and thing not in run.feature_draws}
    for event in run.of("step"):
        for optimizer in event.value.objects("optimizer"):
            if not optimized_by(optimizer):
                unseen = unseen_model(optimizer, run)
                yield unseen or (
                    Site(event.source, event.node),
                    "the optimizer changes a tensor, not a model that learns from data",
                )
    shared = [any(isinstance(o, Draw) and o.whole for o in event.value.origins) for event in run.of("backward")]
    for event, is_shared in zip(run.of("backward"), shared, strict=True):
        if not is_shared and event.value.models:
            yield Site(event.source, event.node), "this step trains on data that all ranks have, beside others' rows"
    read = frozenset().union(*(event.detail.origins for event in run.of("forward")))
    for event in run.of("backward"):
        cut = [o for o in event.value.origins if isinstance(o, Draw) and o.whole]
        for mixing in mixings(event.value):
            if mixing.reason == STATISTIC and mixing not in read and all(draw.batch for draw in cut):
                continue  # it weighs the loss, as a mask does, and is warned of as in a batch of a loader
            if mixing.reason == ONE_BY_ONE:
                yield from one_by_one.objections(mixing.node, run)
                continue
            yield Site(mixing.source, mixing.node), f"{shortened(mixing.source.code(mixing.node))} {mixing.reason}"
        if any(isinstance(origin, Turn) for origin in event.value.origins):
            yield Site(event.source, event.node), "the loss is that of the last row that a loop has come to"
        for origin in event.value.origins:
            if isinstance(origin, Draw) and not origin.whole and origin.node in fresh:
                yield Site(origin.source, origin.node), (
                    "a part of the data is cut out beside it in each step"
                    if isinstance(origin.node, ast.Subscript)
                    else "random numbers are drawn beside it in each step"
                )
        if event.value.spread not in (MEAN, SUM, SAME):
            yield Site(event.source, event.node), "the loss is not known to be a mean or a sum over the rows"
    for site, left, right in paired(run):
        if not (_is_written(left) and _is_written(right)):
            reason = "may compare tensors of different shapes, which pairs every row with every other one"
            yield site, f"{shortened(site.source.code(site.node))} {reason}"  # type: ignore[arg-type]
    for draw in draws(run):
        for node, source in run.sources.items():
            if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Store):
                continue
            if (
                source is draw.source
                and _alike(node, draw.node)
                and _around(source, node) is _around(source, draw.node)
            ):
                if run.values.get(node, NOTHING).spread.is_local:
                    yield Site(source, node), f"{source.code(node)} is overwritten by what is computed from it"
    for mean in row_means(run):
        if mean.even:
            derived = any(draw.derived for draw in draws(run))  # by what this function was given, and no other
            reason = f"{shortened(mean.source.code(mean.node))} is a mean over rows that are not counted there"
            yield Site(mean.source, mean.node), reason if derived else f"{reason}, {EVEN}"


def _is_before(event: Event, steps: set[ast.AST]) -> bool:
    """Whether something happens once, before the loops that train: not in them, nor in what hands out batches."""
    if not event.loops:
        return True
    if any(loop.node in steps for loop in event.loops):
        return False
    for call in event.calls:
        if call.node is None or not steps.isdisjoint(call.source.ancestors(call.node)):
            return False
        hands_out = call.function.name.startswith("__") and call.function.name != "__init__"
        if hands_out or is_generator(call.function.node):
            return False
    return True


def _alike(one: ast.expr, other: ast.expr) -> bool:
    return ast.unparse(one) == ast.unparse(other)


def draws(run: Interpreter, kind: str = "whole") -> list[Draw]:
    """The places where a rank takes its rows, in the order of execution."""
    found: dict[ast.AST, Draw] = {}
    for event in run.of(kind):
        for thing in event.value.things:
            if isinstance(thing, Draw):
                found.setdefault(thing.node, thing)
    return list(found.values())


def paired(run: Interpreter) -> Iterator[tuple[Site, ast.expr, ast.expr]]:
    """Where a step compares two tensors of rows whose shapes cannot be seen to agree."""
    reached = frozenset().union(*(event.value.origins for event in run.of("backward")))
    seen: set[ast.AST] = set()
    for event in run.of("may_pair"):
        if event.node in seen or not event.grad or not event.value.origins & reached:
            continue
        seen.add(event.node)
        assert isinstance(event.node, (ast.BinOp, ast.Call))
        parts = [event.node.left, event.node.right] if isinstance(event.node, ast.BinOp) else event.node.args[:2]
        left, right = _different(parts[0], parts[1])
        yield Site(event.source, event.node), _converted(left, run), _converted(right, run)


def _different(left: ast.expr, right: ast.expr) -> tuple[ast.expr, ast.expr]:
    """What decides whether two tensors have one shape: `output` and `y` of `output * scale` and `y * scale`."""
    while isinstance(left, ast.BinOp) and isinstance(right, ast.BinOp) and type(left.op) is type(right.op):
        if isinstance(left.op, ast.MatMult):
            break
        if _alike(left.right, right.right):
            left, right = left.left, right.left
        elif _alike(left.left, right.left):
            left, right = left.right, right.right
        else:
            break
    return left, right


def _converted(node: ast.expr, run: Interpreter) -> ast.expr:
    """What a tensor is made of that has its shape: the array `y` of `torch.tensor(y).to(device)`."""
    inner = node
    while True:
        if isinstance(inner, ast.BinOp) and not isinstance(inner.op, ast.MatMult):  # its operands are compared, too
            inner = inner.left if run.values.get(inner.left, NOTHING).array else inner.right
            continue
        if not isinstance(inner, ast.Call) or not isinstance(function := inner.func, ast.Attribute):
            break
        named = library(inner, lambda each: run.values.get(each, NOTHING)) is not None
        if named and function.attr in CONVERTING and inner.args:
            inner = inner.args[0]
        elif not named and (function.attr in MOVING or function.attr in ELEMENTWISE and not inner.args):
            inner = function.value
        elif named and function.attr in ELEMENTWISE and len(inner.args) == 1:
            inner = inner.args[0]
        else:
            return node
    return inner if _is_plain(inner) and run.values.get(inner, NOTHING).array else node


def _is_written(node: ast.expr) -> bool:
    """A name, which can be asked for its shape before it is used."""
    return _is_plain(node)


def row_means(run: Interpreter) -> list[RowMean]:
    """Every mean over rows of the whole data."""
    return _together([*_row_means(run)])


def _row_means(run: Interpreter) -> Iterator[RowMean]:
    order = {draw.node: index for index, draw in enumerate(draws(run))}
    placed: dict[ast.expr, list[RowMean]] = {}
    for event in run.of("row_mean"):
        drawn = [o for o in event.value.origins if isinstance(o, Draw) and o.whole]
        if all(draw.batch for draw in drawn):
            continue  # all ranks have as many
        assert isinstance(event.node, ast.expr)
        place = _counted_at(event, drawn, run)
        site = place or Site(event.source, event.node)
        assert isinstance(site.node, ast.expr)
        placed.setdefault(site.node, []).append(RowMean(site.source, site.node, tuple(drawn), even=place is None))
    for node, means in placed.items():
        if any(mean.even for mean in means) or _are_several(means):
            yield from (replace(mean, draws=_in_order(mean.draws, order), even=True) for mean in means)
        else:
            together = tuple(draw for mean in means for draw in mean.draws)
            yield RowMean(means[0].source, node, _in_order(together, order))


def _counted_at(event: Event, drawn: list[Draw], run: Interpreter) -> Site | None:
    """Where the rows of a mean can be counted, since all of them are at hand: where it is taken, or where a function is
    called that gives it back as it is."""
    source, node, calls = event.source, event.node, list(event.calls)
    homes = {(draw.source, _around(draw.source, draw.node)) for draw in drawn}
    if event.inside_forward and homes == {(source, _around(source, node))}:
        return None
    while homes != {(source, _around(source, node))}:
        gives = isinstance(_around(source, node), ast.Lambda) or isinstance(source.statement(node), ast.Return)
        call = calls.pop() if calls and gives else None
        if call is None or call.node is None or run.values.get(call.node, NOTHING).spread is not MEAN:
            return None
        source, node = call.source, call.node
    assert isinstance(node, ast.expr)
    return None if SAME in run.spreads.get(node, ()) else Site(source, node)


def _are_several(means: list[RowMean]) -> bool:
    """Whether a function gives back the sum of means over rows that do not belong together."""
    joined = {draw.node for draw in means[0].draws}
    return any(joined.isdisjoint(draw.node for draw in mean.draws) for mean in means)


def _in_order(drawn: tuple[Draw, ...], order: dict[ast.expr, int]) -> tuple[Draw, ...]:
    """Each once. The rows are counted of the first: not of what would be drawn once more for that."""
    found = {draw.node: draw for draw in drawn}
    return tuple(sorted(found.values(), key=lambda draw: (not _is_plain(draw.node), order.get(draw.node, 0))))


def _together(means: list[RowMean]) -> list[RowMean]:
    """Means over the same rows, all of which need as many on each rank if one does."""
    even = {draw.node for mean in means if mean.even for draw in mean.draws}
    joined = [replace(mean, even=True) if any(draw.node in even for draw in mean.draws) else mean for mean in means]
    return joined if joined == means else _together(joined)


def _around(source: Source, node: ast.AST) -> ast.AST | None:
    """The function that a node stands in."""
    return next((ancestor for ancestor in source.ancestors(node) if isinstance(ancestor, FUNCTIONS)), None)
