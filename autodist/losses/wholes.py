"""Training steps that no loader hands out batches for: where ranks take their shares, and whether they may."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from autodist.interpreter import Interpreter, Plan, once_a_run
from autodist.models import optimized_by, unseen_model
from autodist.placement.arguments import parts
from autodist.placement.lattice import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.opaque import OF_GRAPHS
from autodist.placement.placements import Placements
from autodist.program import EMPTY, Operation, Program, closure, joined
from autodist.script import RowMean, Site
from autodist.solve.facts import is_mean
from autodist.solve.losses import Losses
from autodist.solve.shares import Share, is_plain, shares
from autodist.solve.sizes import first_key
from autodist.solve.sources import Sources
from autodist.solve.steps import given, steps_of
from autodist.solve.written import code_of
from autodist.source import Source, last_name, shortened, walk
from autodist.trace.things import Sequence
from autodist.values import Draw

EVEN = "so that ranks need as many"
FIXED = "is told a number of samples that is written down: a rank has its share of them, give it a name or ask a tensor"
LIBRARIES = ("transformers.", "torchvision.", "timm.", "torch.nn.Sequential", "torch.nn.Module")
"""The beginnings of the names of models that take a batch of samples, each for itself."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True)
class Wholes:
    """The expressions of which a rank takes its share, or where and why it cannot."""

    nodes: frozenset[ast.expr] = frozenset()
    columns: frozenset[ast.expr] = frozenset()
    counts: frozenset[ast.expr] = frozenset()
    batches: frozenset[ast.expr] = frozenset()
    site: Site | None = None
    reason: str = ""


def find(run: Interpreter, sources: Sources, judged: Callable[[Plan], Losses], plan: Plan) -> Wholes | None:
    """What the training steps are given that no loader hands out; None where nothing is known to be a tensor of data.
    How losses lie is ``judged`` by the plan that shares it out."""
    looped = any(each.region.loops for each in steps_of(run.runs.program).backward)
    taken = [] if sources.training or not looped else shares(run.runs.program, sources, run.placements, run.catalog)
    if not taken:
        return None

    def of(*kinds: str) -> frozenset[ast.expr]:
        return frozenset(each.node for each in taken if each.kind in kinds)

    found = Wholes(of("rows"), of("columns"), of("count"), of("batch", "stream"))
    if not found.nodes | found.columns | found.batches:
        return None
    planned = replace(plan, wholes=found.nodes, columns=found.columns, counts=found.counts, batches=found.batches)
    objection = next(_objections(run, sources, taken, judged(planned)), None)
    return found if objection is None else replace(found, site=objection[0], reason=objection[1])


def are_of_steps(found: Wholes, run: Interpreter) -> bool:
    """Whether ranks take all of their shares in the loops that train."""
    around = {loop.node: loop.source for event in run.of("backward") for loop in event.loops}
    inside = {each for loop in around for each in walk(loop)}
    return inside >= found.nodes | found.columns | found.batches


def _objections(run: Interpreter, sources: Sources, taken: list[Share], losses: Losses) -> Iterator[tuple[Site, str]]:
    """Why ranks cannot take their shares."""
    for event in run.of("step"):
        for optimizer in event.value.objects("optimizer"):
            if not optimized_by(optimizer):
                unseen = unseen_model(optimizer, run)
                yield unseen or (
                    Site(event.source, event.node),
                    "the optimizer changes a tensor, not a model that learns from data",
                )
    for each in (share for share in taken if share.kind == "fixed"):
        yield Site(each.source, each.node), f"{shortened(each.source.code(each.node))} {FIXED}"
    for operation in run.runs.program.operations:
        of_one = isinstance(run.placements.of.get(operation), Each) and operation in losses.steps.differentiated
        if of_one and "module" in getattr(operation.owner, "roles", ()) and isinstance(operation.node, ast.expr):
            if "loss" not in operation.owner.roles:
                code = code_of(operation)
                yield Site(operation.source, operation.node), f"{code} takes one sample after the other"
    above = closure(losses.ends, given)
    for operation in sorted(losses.assumed & above, key=lambda each: each.number):
        if operation.owner is not None and isinstance(operation.node, ast.expr):
            code = code_of(operation)
            yield Site(operation.source, operation.node), f"{code}: {operation.name} is not known to keep samples apart"
    for operation in (each for each in losses.steps.ordered if _is_unknown_layer(each)):
        assert isinstance(operation.node, ast.expr)
        code, name = code_of(operation), operation.name.rpartition(".")[2]
        told = f"is not known to keep samples apart ({name})"
        graph = operation.name.startswith(OF_GRAPHS)
        told = f"works on a whole graph, whose nodes depend on each other ({name})" if graph else told
        yield Site(operation.source, operation.node), f"{code} {told}"
    listed = any(not each.is_tensor for each in sources.batches)
    for backward in losses.backward if listed else ():  # of a list of samples, which a loop may take its share of
        if (doubt := losses.doubted_at(backward.node)) is not None:
            code = code_of(doubt[0])
            yield Site(backward.source, backward.node), f"{code}: {doubt[1]}"
    for batch in sorted(sources.batches, key=lambda each: each.number):
        first = first_key(batch)
        if first is not None and len(parts(first) or ()) == 1 and isinstance(batch.node, ast.expr):
            code = code_of(batch)
            yield Site(batch.source, batch.node), f"{code} has one sample, which cannot be shared out"
    for operation in losses.steps.ordered:
        lying = losses.placements.of.get(operation)
        if isinstance(lying, Partial) and " // " in lying.weight and isinstance(operation.node, ast.expr):
            code = code_of(operation)
            yield Site(operation.source, operation.node), f"{code} is rounded for each rank's share"
    for operation, reason in losses.lost_at():
        code = code_of(operation)
        yield Site(operation.source, operation.node), f"{code}: {reason}"
    for operation in sorted(above & losses.steps.reaching, key=lambda each: each.number):
        lying = losses.placements.of.get(operation)
        if isinstance(lying, PerRank) and lying.operation == "join" and "replicated" in lying.reason:
            code = code_of(operation)
            yield Site(operation.source, operation.node), f"{code} may be a rank's share, and may be all of the data"
    for backward in losses.backward:
        ends = backward.inputs[0].operations if backward.inputs else frozenset()
        kinds = {type(losses.placements.of.get(each)) for each in closure(ends, given)}
        if ends & losses.steps.differentiated and kinds.isdisjoint((Shard, Each, PerRank)):
            reason = "this step trains on data that all ranks have, beside others' rows"
            yield Site(backward.source, backward.node), reason
    for each in taken:
        if each.kind in ("rows", "columns") and (again := _overwritten(each, losses, run.runs.program)) is not None:
            code = each.source.code(again)
            yield Site(each.source, again), f"{code} is overwritten by what is computed from it"


def _is_unknown_layer(operation: Operation) -> bool:
    """Whether a layer is run of which the table of operations has no line, and that is no model of a library."""
    one = operation.owner
    layer = "module" in getattr(one, "roles", ()) and getattr(one, "cls", None) is None and operation.name == one.name
    known = operation.known is not None or operation.name.startswith(LIBRARIES)
    return layer and not known and isinstance(operation.node, ast.expr)


def _overwritten(share: Share, losses: Losses, program: Program) -> ast.expr | None:
    """Where a name of the data is bound to what is computed of a rank's share of it, of which it takes one again."""
    home, code = share.source.home(share.node), ast.unparse(share.node)
    for statement in (each for each in walk(home) if isinstance(each, ast.Assign) and share.source.home(each) is home):
        for target in statement.targets:
            if ast.unparse(target) == code and statement.lineno > share.node.lineno:
                lying = losses.placements.value(program.at(statement.value))
                if isinstance(lying, Shard):
                    return target
    return None


@once_a_run
def draws(run: Interpreter) -> list[Draw]:
    """The places where a rank takes its rows of the whole data, in the order in which they are read."""
    plan = run.plan
    numbers = bool(plan.batches) and not plan.wholes and not plan.columns  # only how many a batch made elsewhere has
    return [
        Draw(
            node,
            run.sources[node],
            (),
            whole=True,
            columns=node in plan.columns,
            count=node in plan.counts,
            batch=numbers and node in plan.counts,
            derived=node not in plan.counts and _derives_by(node, run.sources[node]),
        )
        for node in _as_read(plan.taken, run)
        if isinstance(getattr(node, "ctx", ast.Load()), ast.Load)
    ]


def dealt_out(run: Interpreter) -> list[Draw]:
    """The places where a rank takes its rows of batches that the script makes elsewhere, or its share of rounds."""
    turns = [Draw(node, run.sources[node], (), turn=True, even=run.plan.even) for node in _as_read(run.plan.turns, run)]
    return [*(_batch(node, run) for node in _as_read(run.plan.batches, run)), *turns]


def _batch(node: ast.expr, run: Interpreter) -> Draw:
    """A batch that the script makes elsewhere, or an iterable of them."""
    source, value = run.sources[node], run.runs.program.at(node)
    parent = source.parents.get(node)
    over = parent if isinstance(parent, ast.Call) else node
    loop = source.parents.get(over)
    stream = any(isinstance(each, (ast.For, ast.AsyncFor)) and each.iter in (node, over) for each in (parent, loop))
    batches = joined(getattr(each, "element", EMPTY) for each in value.things) if stream else value
    nested = _is_unpacked(parent, loop) or any(isinstance(each, Sequence) and each.parts for each in batches.things)
    return Draw(node, source, (), whole=True, batch=True, stream=stream, nested=nested)


def _as_read(nodes: Collection[ast.expr], run: Interpreter) -> list[ast.expr]:
    """Some expressions in the order in which their statements run first."""
    first: dict[ast.AST, int] = {}
    for each in run.runs.program.operations if nodes else ():
        for at in (each.node, *(region.node for region in each.region.around() if region.function is not None)):
            first.setdefault(at, each.number)

    def place(node: ast.expr) -> tuple[int, int, int]:
        inside = (first[part] for part in walk(run.sources[node].statement(node)) if part in first)
        return min(inside, default=len(first)), node.lineno, node.col_offset

    return sorted(nodes, key=place)


def _is_unpacked(*around: ast.AST | None) -> bool:
    """Whether a batch is taken apart where a step gets it: `for (x,) in loader`, `x, y = next(batches)`"""
    targets = [each.target for each in around if isinstance(each, (ast.For, ast.AsyncFor))]
    targets += [target for each in around if isinstance(each, ast.Assign) for target in each.targets]
    return any(isinstance(each, (ast.Tuple, ast.List)) for each in targets)


def _derives_by(node: ast.expr, source: Source) -> bool:
    """`torch.autograd.grad(u, x, ...)`, or by each of `[x, t]`."""
    parent = source.parents.get(node)
    around = source.parents.get(parent) if isinstance(parent, (ast.List, ast.Tuple)) else parent
    call = source.parents.get(around) if isinstance(around, ast.keyword) else around
    if not isinstance(call, ast.Call) or last_name(call.func) != "grad":
        return False
    inputs = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "inputs")]
    return any(each is node or each is parent for each in inputs)


def row_means(run: Interpreter, losses: Losses) -> list[RowMean]:
    """Every mean over rows of the whole data, of which ranks may have one more or less than others."""
    return _together([*_row_means(run, losses)])


def _row_means(run: Interpreter, losses: Losses) -> Iterator[RowMean]:
    drawn = [each for each in draws(run) if not each.batch]
    program, order = run.runs.program, {draw.node: index for index, draw in enumerate(drawn)}
    placed: dict[ast.expr, list[RowMean]] = {}
    for operation in _means(run, losses) if drawn else ():
        above = closure([operation], given)
        data = {each.node for each in drawn if not above.isdisjoint(program.at(each.node).operations)}
        if not data:
            continue
        read = tuple(each for each in drawn if each.count or each.node in data)
        joined = operation.node in run.plan.joined
        place = None if joined else _counted_at(operation, read, program, losses.placements)
        node = operation.node.value if isinstance(operation.node, ast.AugAssign) else operation.node
        site = place or Site(operation.source, node)
        assert isinstance(site.node, ast.expr)
        placed.setdefault(site.node, []).append(RowMean(site.source, site.node, read, even=place is None))
    for end in losses.backward if drawn else ():
        lying = losses.placements.value(end.inputs[0]) if end.inputs else None
        if not (lying is None or isinstance(lying, (Partial, Replicate))) and isinstance(end.node, ast.expr):
            placed.setdefault(end.node, []).append(RowMean(end.source, end.node, tuple(drawn), even=True))
    for node, means in placed.items():
        if any(mean.even for mean in means) or _are_several(means):
            yield from (replace(mean, draws=_in_order(mean.draws, order), even=True) for mean in means)
        else:
            together = tuple(draw for mean in means for draw in mean.draws)
            yield RowMean(means[0].source, node, _in_order(together, order))


def _means(run: Interpreter, losses: Losses) -> list[Operation]:
    """What takes means over a rank's samples."""
    of = losses.placements.of

    def is_row_mean(placement: Placement | None) -> bool:
        return isinstance(placement, Partial) and is_mean(placement)

    found = sorted(filter(lambda each: is_row_mean(of[each]), of), key=lambda each: each.number)
    begun = (each for each in found if not any(is_row_mean(of.get(one)) for one in given(each)))
    return [each for each in begun if each.node not in run.plan.weighed]


def _counted_at(mean: Operation, drawn: tuple[Draw, ...], program: Program, placements: Placements) -> Site | None:
    """Where the rows of a mean can be counted, since all of them are at hand: where it is taken, or where a function is
    called that gives it back as it is."""
    around = [*mean.region.around()]
    calls = [each for each in around if each.function is not None]
    files = [*(program.entered[each] for each in calls), around[-1].source]
    source, node = files.pop(0), mean.node
    homes = {(draw.source, _around(draw.source, draw.node)) for draw in drawn}
    if steps_of(program).in_module(mean) and homes == {(source, _around(source, node))}:
        return None
    while homes != {(source, _around(source, node))}:
        gives = isinstance(_around(source, node), ast.Lambda) or isinstance(source.statement(node), ast.Return)
        if not calls or not gives:
            return None
        source, node = files.pop(0), calls.pop(0).node
        if not is_mean(placements.joint(program.at(node).operations)):
            return None
    alike = any(placements.of.get(each) == Replicate() for each in program.at(node).operations)
    return Site(source, node) if isinstance(node, ast.expr) and not alike else None


def _are_several(means: list[RowMean]) -> bool:
    """Whether a function gives back the sum of means over rows that do not belong together."""
    joined = {draw.node for draw in means[0].draws}
    return any(joined.isdisjoint(draw.node for draw in mean.draws) for mean in means)


def _in_order(drawn: tuple[Draw, ...], order: dict[ast.expr, int]) -> tuple[Draw, ...]:
    """Each once. The rows are counted of the first: not of what would be drawn once more for that."""
    found = {draw.node: draw for draw in drawn}
    return tuple(sorted(found.values(), key=lambda draw: (not is_plain(draw.node), order.get(draw.node, 0))))


def _together(means: list[RowMean]) -> list[RowMean]:
    """Means over the same rows, all of which need as many on each rank if one does."""
    even = {draw.node for mean in means if mean.even for draw in mean.draws}
    joined = [replace(mean, even=True) if any(draw.node in even for draw in mean.draws) else mean for mean in means]
    return joined if joined == means else _together(joined)


def _around(source: Source, node: ast.AST) -> ast.AST | None:
    """The function that a node stands in."""
    return next((ancestor for ancestor in source.ancestors(node) if isinstance(ancestor, FUNCTIONS)), None)
