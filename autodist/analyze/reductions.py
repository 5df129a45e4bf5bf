"""What is made global so that all ranks show, keep and decide by the same, as `autodist.solve` finds it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from autodist import naming, regions
from autodist.analyze.launched import is_distributed
from autodist.interpreter import Interpreter, Plan, Runs, once_a_run
from autodist.origins import learnt_from
from autodist.placement import Partial, Placement, Replicate, Shard
from autodist.placement.call import ROWS
from autodist.placement.plan import Plan as Lying
from autodist.program import Program
from autodist.rule import Severity
from autodist.script import Concern, Reduction, Site
from autodist.solve.alone import Alone
from autodist.solve.cuts import made_global, solved
from autodist.solve.demands import Demand
from autodist.solve.facts import is_number_of_samples, is_sum, is_weighted
from autodist.solve.search import Cut
from autodist.solve.sources import Sources, sources
from autodist.source import shortened
from autodist.spread import Spread
from autodist.tensors import operations
from autodist.values import NOTHING


def reduced(again: Runs, plan: Plan, run: Interpreter) -> tuple[Interpreter, list[Cut], list[Cut]]:
    """The run with what is made global, what that is, and what nothing makes so. What another plan has made global
    already, or divides, is left as it is."""
    if is_distributed(run):
        return run, [], []
    program, given = again.program, _given(again.program, run)
    nodes = [each for each in (*plan.reduced, *plan.gathered, *plan.joined) if isinstance(each, ast.expr)]
    alone = Alone(frozenset(site.node for site in rank_zero_statements(run)))
    chosen = solved(program, _lying(program, given, plan, nodes), run.catalog, alone)
    chosen = [each for each in chosen if each.node not in nodes and not _is_divided(each, plan)]
    met = [each for each in chosen if each.is_met]
    left = [each for each in chosen if not each.is_met]
    return again(replace(plan, reduced=plan.reduced | {each.node for each in met})), met, left


def _given(program: Program, run: Interpreter) -> Sources:
    """What each rank has its share of: the loaders that a run shares out among them."""
    given = sources(program, run.catalog)
    shared: dict[ast.AST, set[bool]] = {}
    for value in run.values.values():
        for loader in value.objects("loader"):
            shared.setdefault(loader.node, set()).add(run.shares_out(loader))
    made = (each for each in program.operations if each.name.endswith(".__init__"))
    loaders = {each.owner for each in made if shared.get(each.node) == {True}}
    by_hand = given.batches or given.wholes
    return given if by_hand and not given.training else replace(given, training=given.training | loaders)


def _lying(program: Program, given: Sources, plan: Plan, nodes: Sequence[ast.expr]) -> Lying:
    """What placements are propagated from, where some expressions are global already, and losses are weighed."""
    weighed = {op: Partial("mean", ROWS) for node in plan.weighed for op in program.at(node).operations}
    lying = replace(given.plan, placed={**given.plan.placed, **weighed})
    source, region = program.operations[0].source, program.operations[0].region
    demand = Demand("state", program.operations[0])
    return made_global([Cut(source, each, Shard(0), demand, region) for each in nodes], program, lying)


def _is_divided(cut: Cut, plan: Plan) -> bool:
    """Whether numbers of samples are compared to a batch size that becomes each rank's: `len(x) < batch_size`."""
    if cut.demand.kind != "test" or spread_of(cut.placement) is not Spread.COUNT:
        return False
    return any(each in plan.divided for each in ast.walk(cut.demand.operation.node))


def spread_of(placement: Placement) -> Spread:
    """What ranks' values have to do with the global one, in the words of the rules."""
    match placement:
        case Shard():
            return Spread.ROWS
        case Partial(reduce="mean"):
            return Spread.FEWER if is_weighted(placement) else Spread.MEAN
        case Partial(reduce="max"):
            return Spread.MOST
        case Partial(reduce="min"):
            return Spread.LEAST
        case Replicate():
            return Spread.COUNT
    if is_sum(placement):
        return Spread.COUNT if is_number_of_samples(placement) else Spread.SUM
    return Spread.LOCAL


@once_a_run
def rank_zero_statements(run: Interpreter) -> list[Site]:
    """The statements that rank 0 alone will run."""
    prepared, alone = regions.preparations(run)
    writes = regions.writes(run, frozenset(site.node for site in (*prepared, *alone)), naming.folders_apart(run))[0]
    return [*alone, *writes]


def filled_up(reductions: Iterable[Reduction]) -> Iterator[Concern]:
    """Where rows are gathered that may be longer on one rank than on another, which the script does not fill up."""
    for each in (reduction for reduction in reductions if reduction.padded):
        message = (
            "is filled up with zeros where samples of another rank are longer, not as the script pads: scores that do "
            "not leave padding out differ from those of one process"
        )
        yield Concern("AD601", each.source, each.node, message, Severity.WARNING)


def reduction_at(cut: Cut, hoist: ast.stmt | None, before: Interpreter) -> Reduction:
    """What a rule is told of what is made global; ``before`` that knows what each rank has."""
    spread = spread_of(cut.placement)
    over = operations.averaged(cut.node) if spread is Spread.FEWER else None
    value = before.values.get(cut.node, NOTHING)
    padded = spread is Spread.ROWS and value.axes != 1 and before.has_padding(value)
    return Reduction(cut.source, cut.node, spread, hoist, cut.switch or None, over, padded)


def leftover(left: Iterable[Cut], run: Interpreter) -> Iterator[Concern]:
    """What is wrong where nothing makes a value global of which each rank has its own."""
    for cut in left:
        code = shortened(cut.source.code(cut.node))
        severity, number = Severity.WARNING, "AD601"
        if cut.demand.kind == "handed":
            continue
        if cut.demand.kind == "answer":
            severity, number = Severity.REFUSAL, "AD904"
            message = (
                f"the optimizer decides by {code}, which differs between ranks and cannot be reduced over "
                "them: let the closure return a mean or a sum over the samples of the batch"
            )
        elif cut.demand.kind == "test":
            if not _decides(cut, run):
                continue
            message = (
                f"decides on {code}, which differs between ranks: they would part ways here; "
                "decide on a value that is reduced over the ranks"
            )
        elif cut.demand.kind == "memory":
            message = (
                f"keeps {code} for later steps, computed from this rank's samples alone: ranks go on "
                "with other states than one process; gather it over the ranks before it is kept"
            )
        elif cut.demand.kind in ("state", "loss"):
            message = (
                f"the loss is computed from {code}, and that from this rank's samples alone: gather it over "
                "the ranks, or compute it from all samples before they are shared out"
            )
        else:
            message = (
                f"reports {code}, computed from this rank's samples alone: gather it over the "
                "ranks, or compute it on rank 0 from all samples"
            )
        yield Concern(number, cut.source, cut.node, message, severity)


def _decides(cut: Cut, run: Interpreter) -> bool:
    """Whether a branch on a value changes what the ranks do together: whether they step, leave, write or count, or with
    which loss a step goes on: `loss = a if cos > 0 else a + b`."""
    tested = cut.demand.operation
    branch = cut.source.statement(cut.node)
    calls = {n.func.attr for n in ast.walk(branch) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    leaves = any(isinstance(n, (ast.Break, ast.Continue, ast.Return, ast.Raise)) for n in ast.walk(branch))
    if leaves or calls & {"backward", "step", "save"}:
        return True
    around = (each for each in cut.source.ancestors(cut.node) if isinstance(each, (ast.If, ast.IfExp, ast.stmt)))
    chosen = next(around, None)
    if isinstance(chosen, (ast.If, ast.IfExp)) and not tested.region.without_gradients:
        blocks = [*chosen.body, *chosen.orelse] if isinstance(chosen, ast.If) else [chosen.body, chosen.orelse]
        learnt = learnt_from(run)
        if any(inner in learnt for each in blocks for inner in ast.walk(each)):
            return True
    above = cut.source.parents.get(tested.node)
    if not isinstance(above, (ast.If, ast.While)):
        return False
    return any(isinstance(each, ast.AugAssign) for part in above.body for each in ast.walk(part))
