"""What is made global so that all ranks show, keep and decide by the same, as `autodist.solve` finds it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from autodist import tensors
from autodist.analyze.launched import is_distributed
from autodist.files import writing
from autodist.files.naming import rank_zero_statements
from autodist.interpreter import Interpreter, Plan, Runs, once_a_run
from autodist.losses import own_gradients
from autodist.placement import Each, Partial, PerRank, Placement, Replicate, Shard
from autodist.placement.between_ranks import OWN_NUMBER
from autodist.placement.call import ROWS
from autodist.placement.placements import Placements
from autodist.placement.plan import Plan as Lying
from autodist.placement.propagate import propagate
from autodist.placement.sizes import AGAIN
from autodist.program import Operation, Program, Value, closure, held
from autodist.reduction import IN_TRAINING, Joining, Reduction, joining
from autodist.rule import Severity
from autodist.script import Concern, Site
from autodist.solve.alone import Alone
from autodist.solve.cuts import made_global, solved
from autodist.solve.demands import Demand
from autodist.solve.facts import IN_LOADER, is_mean
from autodist.solve.gathering import counts_samples
from autodist.solve.kinds import NUMBER, TENSOR, kind_of
from autodist.solve.losses import Losses
from autodist.solve.padding import lengths
from autodist.solve.search import Cut
from autodist.solve.shares import above
from autodist.solve.sources import NUMBERS, Sources
from autodist.solve.steps import steps_of
from autodist.solve.written import assigned, parts_of, readers
from autodist.source import all_of, shortened, walk
from autodist.trace.things import Object


def reduced(
    again: Runs, plan: Plan, run: Interpreter, training: bool = False
) -> tuple[Interpreter, list[Cut], list[Cut]]:
    """The run with what is made global, what that is, and what nothing makes so: all of it, or what losses and later
    steps are computed from, for ``training``. What a plan has made global already, or divides, is left as it is."""
    if is_distributed(run):
        return run, [], []
    program = again.program
    asking = set(_asking_for_writers(program, run))
    alone = Alone(frozenset({*asking, *(site.node for site in rank_zero_statements(run))}))
    met: dict[ast.expr, Cut] = {}
    left: list[Cut] = []
    asked: list[Demand] = []
    reaching = steps_of(program).reaching
    for _ in range(ROUNDS):
        nodes = _made_global(plan)
        before, asked = asked, list(_of_training(run, program))
        if met and asked == before:
            break
        chosen = solved(program, _lying(program, run, plan), run.catalog, alone, asked, training)
        chosen = [each for each in chosen if each.node not in nodes and not _is_divided(each, plan)]
        chosen = [_where_it_trains(each, run) for each in chosen if not _is_in_doubt(each, run)]
        left = [each for each in chosen if not each.is_met]
        fresh = {each.node: _ahead(each, asking) for each in chosen if each.is_met}
        if not fresh:
            break
        met |= fresh
        plan = replace(plan, reduced=plan.reduced | fresh.keys())
        learnt = training or any(op in reaching for node in fresh for op in program.at(node).operations)
        run = again(plan) if learnt else run.under(plan)
    return run, list(met.values()), left


ROUNDS = 4
MAKING = ("fill", "random")
BY_NUMBER = ("elementwise", "add", "multiply", "divide")
TRAINING = frozenset("own_step loose_step picks_data".split())
"""Kinds of events by which training goes by a number."""


def _of_training(run: Interpreter, program: Program) -> Iterator[Demand]:
    """What losses, steps and the choice of samples go by, no gradient flowing through it."""
    users: dict[ast.expr, Operation] = {}
    for operation in program.operations:
        users.update((part, operation) for part in assigned(operation))
    for event in (each for each in run.events if each.kind in TRAINING and not each.inside_forward):
        node, parts = event.node, list(parts_of(event.node)) if event.kind == "picks_data" else []
        if event.kind in ("own_step", "loose_step"):  # `p -= lr * p.grad / batch_size`
            parts = list(_beside_gradients(node.value)) if isinstance(node, ast.AugAssign) else []
        elif isinstance(node, ast.expr) and not parts:
            parts = [node]
        for part in parts:
            made, user = program.at(part).operations, users.get(part)
            learnt = not made.isdisjoint(steps_of(program).differentiated)
            graph = learnt and is_mean(run.placements.joint(made))  # which gradients flow through
            averaged = user is not None and run.counts_samples(part) and is_mean(run.placements.of.get(user))
            if not graph and not averaged and user is not None and not user.region.has_own_backward:
                yield Demand("data" if event.kind == "picks_data" else "loss", user, part)
    yield from _dividing(program, run)
    yield from _meeting_whole(program, run)
    found = losses(program, run, run.plan)
    yield from (Demand("loss", user, part) for user, part in lengths(program, run.placements, found.ends, run.catalog))
    yield from (Demand("loss", user, part) for user, part in found.counted_at())


def _dividing(program: Program, run: Interpreter) -> Iterator[Demand]:
    """Numbers of a rank's samples by which gradients of parameters are divided, or losses that are means already."""
    learnt = steps_of(program).differentiated
    for operation in program.operations:
        known = operation.known
        if known is None or known.cls != "divide" or len(operation.inputs) != 2:
            continue
        held, *_, by = [operation.inputs[0], *parts_of(operation.node)]
        behind = closure(held.operations, lambda op: op.given if op.name.endswith(".data") else ())
        gradients = [each for each in behind if each.name.endswith(".grad")]
        alike = all(run.placements.of.get(each, Replicate()) == Replicate() for each in gradients)
        lying = run.placements.value(held)
        number = isinstance(lying, PerRank) and run.placements.size(held) == ()  # computed of a mean in another way
        mean = number or isinstance(lying, Partial) and lying.reduce == "mean"
        if (
            (mean and operation in learnt or gradients and alike)
            and isinstance(by, ast.expr)
            and run.counts_samples(by)
        ):
            yield Demand("loss", operation, by)


def _meeting_whole(program: Program, run: Interpreter) -> Iterator[Demand]:
    """Where a rank's rows meet those of all ranks in data that it takes its share of elsewhere: `guess == label`"""
    wholes = shared(program, run).wholes if run.plan.wholes else frozenset()
    for operation in program.operations if wholes else ():
        known = operation.known
        if known is None or known.cls not in BY_NUMBER or len(operation.inputs) != 2:
            continue
        lying = [run.placements.value(each) for each in operation.inputs]
        parts = list(parts_of(operation.node))
        for at, (one, other) in enumerate((lying, lying[::-1])):
            rows = isinstance(one, Shard) and not one.axis and other == Replicate()
            if rows and len(parts) == 2 and parts[1 - at] not in run.plan.taken:
                if not wholes.isdisjoint(closure(operation.inputs[1 - at].operations, lambda op: op.given)):
                    yield Demand("loss", operation, parts[at])


def _asking_for_writers(program: Program, run: Interpreter) -> Iterator[ast.If]:
    """`if add_scalar is not None:`, which only rank 0 comes into, since it alone has the writer that is asked for."""
    sites = [Site(event.source, event.node) for event in run.of("writer")]
    lone = {site.node for site in sites if writing.is_lone_writer(site, run)}
    writers = {op for node in lone for op in program.at(node).operations}
    of_them = closure(writers, lambda each: (op for op in program.users[each] if op.name.startswith("object.")))
    for node, value in program.values.items() if lone else ():
        things = (getattr(each, "owner", each) for each in value.things)
        if value.operations & of_them or any(getattr(each, "node", None) in lone for each in things):
            source = next((each for each in run.project.sources if node in each.parents), None)
            above = source.parents[node] if source is not None else None
            asked = source.parents[above] if source is not None and isinstance(above, ast.Compare) else above
            if isinstance(asked, ast.If) and asked.test in (node, above) and not asked.orelse:
                if not writing.asks_for_writer(asked.test, run):  # which is seen to where it is read
                    yield asked


def _ahead(cut: Cut, asking: Collection[ast.AST]) -> Cut:
    """The same of what is made global ahead of where only rank 0 goes."""
    outermost = next((each for each in reversed([*cut.source.ancestors(cut.node)]) if each in asking), None)
    return replace(cut, ahead=outermost) if isinstance(outermost, ast.If) else cut


def _beside_gradients(node: ast.expr) -> Iterator[ast.expr]:
    """What a step is computed from beside gradients."""
    if any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in walk(node)):
        for part in parts_of(node):
            yield from _beside_gradients(part)
    else:
        yield node


def shared(program: Program, run: Interpreter) -> Sources:
    """What each rank has its share of: the loaders that a run shares out among them."""
    shared: dict[ast.AST, set[bool]] = {}
    for value in run.values.values():
        for loader in value.objects("loader"):
            shared.setdefault(loader.node, set()).add(run.shares_out(loader))
    made = [each for each in program.operations if each.name.endswith(".__init__")]
    loaders = {each.owner for each in made if shared.get(each.node) == {True}}
    if is_distributed(run):
        return Sources(training=frozenset(loaders))
    ahead = {each.owner for each in made if shared.get(each.node) == {False}} if run.plan.held else set()
    return run.runs.sources(program, frozenset(loaders), frozenset(ahead))


def placed(program: Program, run: Interpreter) -> Placements:
    """How all values lie under the plan of a run."""
    if not program.operations:
        return Placements()
    return propagate(program, _lying(program, run, run.plan), catalog=run.catalog)


def losses(program: Program, run: Interpreter, plan: Plan, assumes: bool = True) -> Losses:
    """How the losses lie under a plan; where nothing ``assumes`` so, what is not known is lost."""
    return Losses(program, _lying(program, run, plan), run.catalog, assumes)


def needed(cuts: list[Cut], program: Program, run: Interpreter, plan: Plan) -> list[Cut]:
    """What was made global for losses, without what sums that these are computed from, joined since, make so."""
    if not (cuts and plan.joined):
        return cuts
    lying = losses(program, run, replace(plan, reduced=plan.reduced - {each.node for each in cuts})).placements
    return [each for each in cuts if lying.value(program.at(each.node)) != Replicate()]


def terms(program: Program, run: Interpreter, plan: Plan) -> tuple[Reduction, ...]:
    """The sums that are multiplied by the number of ranks; in training alone where evaluation, in which every rank has
    all data, comes to the same place."""
    found = losses(program, run, plan).terms()
    return tuple(
        Reduction(t.source, t.node, Joining.SUM, switch=IN_TRAINING if t.is_evaluated else None) for t in found
    )


def _made_global(plan: Plan) -> list[ast.expr]:
    return [each for each in (*plan.reduced, *plan.gathered, *plan.joined) if isinstance(each, ast.expr)]


def _taken_in_turn(program: Program, run: Interpreter, plan: Plan) -> Iterator[ast.expr]:
    """The names of what loops come to of whose rounds each rank has its share."""
    for turn in plan.turns:
        source = run.sources[turn]
        loop = source.parents[turn]
        target = getattr(loop, "target", None)
        names = {each.id for each in walk(target) if isinstance(each, ast.Name)} if target is not None else set()
        around = loop if isinstance(loop, ast.For) else source.parents[loop]
        reads = (each for each in walk(around) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load))
        yield from (each for each in reads if each.id in names)


def _dealt_out(given: Sources, plan: Plan) -> Mapping[Operation, Mapping[Operation, Placement]]:
    """Where a rank takes its rows of the whole data: what asks how many they are is told of all, `len(x)`."""
    dealt = plan.taken

    def is_of_share(user: Operation) -> bool:
        calls = (each.node for each in user.region.around() if each.function is not None)  # which are given a share
        read = (part for node in (user.node, *calls) for part in walk(node))
        return user.name not in NUMBERS or not dealt or not dealt.isdisjoint(read)

    return {user: held for user, held in given.taken.items() if is_of_share(user)}


def _joined_beside(program: Program, plan: Plan) -> dict[Operation, dict[Operation, Placement]]:
    """Where a rank joins its share of other samples to that of a batch: `torch.cat((x, kept[rows]))`"""
    found: dict[Operation, dict[Operation, Placement]] = {}
    for node in plan.beside:
        for user in readers(program).get(node, ()):
            found.setdefault(user, {}).update({op: Shard(0) for op in program.at(node).operations})
    return found


def _of_shares(program: Program, run: Interpreter, plan: Plan) -> Iterator[tuple[Operation, Placement]]:
    """What is made as large as a batch is, or laid out so, and of a rank's share where the size is divided:
    `torch.ones(batch_size)`, `x.view(batch_size * 3, 4)`"""
    divided = plan.divided or frozenset()
    for node in divided | plan.counts:
        product = run.sources[node].parents[node]
        multiplies = isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult)
        for each in (*readers(program).get(node, ()), *(readers(program).get(product, ()) if multiplies else ())):
            known, given = each.known, list(getattr(each.node, "args", []))
            listed = next((e.elts for e in given if isinstance(e, (ast.Tuple, ast.List))), given)
            cls = known.cls if known is not None else ""
            if cls == "view" and multiplies and product in listed[:1]:
                yield each, Shard(0, parts=0)
            elif cls in ("fill", "random") and node in listed and node in divided:
                yield each, Shard(listed.index(node))
            elif cls == "arange" and node in listed and node in divided:
                yield each, PerRank(each.name, AGAIN, rows=ROWS)


@once_a_run
def scaled_gradients(run: Interpreter) -> Mapping[Operation, bool]:
    """The gradients of samples that are as many times as large as there are ranks, where that counts; and whether
    others are taken there of data that all ranks have."""
    program = run.runs.program
    if is_distributed(run) or not any(each.name in own_gradients.TAKEN for each in program.operations):
        return {}
    lying = _lying(program, run, run.plan, divides=False)
    before = propagate(program, lying, catalog=run.catalog)
    for told in (own_gradients.lost, own_gradients.multiplied):
        if placed := told(program, before):
            lying = replace(lying, placed={**lying.placed, **placed})
            before = propagate(program, lying, catalog=run.catalog)
    return own_gradients.scaled(program, before)


@dataclass(frozen=True)
class _Counts:
    """Which of some sizes is the number of samples of a batch. What is made so large by a number that stays as it is,
    where others become a rank's share, is made for something else: `torch.ones(8, 4)` of eight features. Plans that
    count alike are compared by this, so that only what differs between them is placed anew."""

    given: Sources
    divided: frozenset[ast.expr] | None
    draws: frozenset[int] | None
    without: frozenset[Operation] = frozenset()
    """What is made ahead of where a rank takes its share, and is as large as the whole batch."""

    def __call__(self, operation: Operation, told: Sequence[Value]) -> int | None:
        if operation in self.without:
            return None
        at, known = self.given.counts(operation, told), operation.known
        if at is None or self.divided is None or told[at].operations or known is None or known.cls not in MAKING:
            return at
        loads = any(each.kind in ("read", "collate", "worker") for each in operation.region.around())
        if loads or id(operation.node) in (self.draws or ()):
            return at
        calls = (each.node for each in operation.region.around() if each.function is not None)
        parts = (part for node in (operation.node, *calls) for part in walk(node))
        return None if self.divided.isdisjoint(parts) else at


def _lying(program: Program, run: Interpreter, plan: Plan, divides: bool = True) -> Lying:
    """What placements are propagated from under a plan: some expressions are global already, losses are weighed."""
    given = shared(program, run) if not plan.turns else Sources()
    nodes = _made_global(plan)
    weighed: dict[Operation, Placement] = {
        op: Partial("mean", ROWS) for node in (*plan.weighed, *plan.terms) for op in program.at(node).operations
    }
    gradients = [each for each, in_part in scaled_gradients(run).items() if not in_part] if divides else []
    divided = {each: Shard(given.axis) for each in gradients}
    passed_by = [op for op in program.operations if op.node in plan.untaken]  # training does not come there
    branches = {op.region for op in passed_by if op.region.kind == "branch"}
    untaken = {op: Shard(0) for op in program.operations if op.region in branches} | dict.fromkeys(passed_by, Shard(0))
    decided = {**weighed, **divided, **untaken, **dict(_of_shares(program, run, plan))}
    placed = {**given.plan.placed, **decided}
    taken = {**_dealt_out(given, plan), **_joined_beside(program, plan)}
    lying = replace(given.plan, placed=placed, taken=taken, counts=_Counts(given, plan.divided, plan.draws))
    source, region = program.operations[0].source, program.operations[0].region
    demand = Demand("state", program.operations[0])

    def at(nodes: Iterable[ast.expr]) -> list[Cut]:
        return [Cut(source, each, Shard(0), demand, region) for each in nodes]

    told = [each for each in plan.batches if not any(isinstance(one, Object) for one in program.at(each).things)]
    rounds = {op: Shard(given.axis) for op in program.operations if op.name == "iterate" and op.node in told}
    told = [
        each for each in told if all(op.node is not each for op in rounds)
    ]  # `for rows in np.array_split(order, 6)`
    if told or rounds:  # of which a rank takes its rows where the step is given them, and not where they are made
        shard = Shard(given.axis)
        tuples = [each for each in told if not program.at(each).operations]  # `x, y = next(batches)`
        handed = {op: shard for each in tuples for op in held(program.at(each)) if op.is_tensor}
        before = above(program, plan.batches)
        lying = replace(lying, placed={**decided, **rounds, **handed})
        lying = replace(lying, counts=_Counts(given, plan.divided, plan.draws, frozenset(before)))
        lying = made_global(at(told), program, lying, shard)
    lying = made_global(at(_taken_in_turn(program, run, plan)), program, lying, Each("rows"))
    return made_global(at(nodes), program, lying)


def _is_in_doubt(cut: Cut, run: Interpreter) -> bool:
    """Whether a sum that a loss goes by may be none: a number of all that ranks have filled up to their own lengths."""
    summed = cut.demand.kind == "loss" and joining(cut.placement) is Joining.SUM
    return summed and any(map(run.is_padded, all_of(cut.node, ast.expr)))


def _where_it_trains(cut: Cut, run: Interpreter) -> Cut:
    """The same of a number of samples by which a mean is divided that is now of a share of them, where it trains, and
    now of all, where it is evaluated: the mean has gradients in one case alone."""
    node, source = cut.demand.part, cut.demand.operation.source
    if cut.is_met or node is None:
        return cut
    above = source.parents.get(node)
    mean = above.target if isinstance(above, ast.AugAssign) else above.left if isinstance(above, ast.BinOp) else None
    program, steps = run.runs.program, steps_of(run.runs.program)
    shares, others = set[bool](), set[bool]()
    for user in (each for each in readers(program).get(node, ()) if len(each.inputs) == 2):
        trains = not user.region.without_gradients and steps.has_gradients(user.inputs[0])
        counts = counts_samples(run.placements.value(user.inputs[1]))
        (shares if trains else others).add(counts)
    if not isinstance(mean, (ast.Name, ast.Attribute)) or shares != {True} or True in others:
        return cut
    lying, switch = Partial("sum", ROWS), f"{source.code(mean)}.requires_grad"
    return replace(cut, node=node, source=source, placement=lying, switch=switch)


def _is_divided(cut: Cut, plan: Plan) -> bool:
    """Whether numbers of samples are compared to a batch size that becomes each rank's: `len(x) < batch_size`."""
    if cut.demand.kind != "test" or joining(cut.placement) is not Joining.COUNT:
        return False
    return any(each in (plan.divided or ()) for each in walk(cut.demand.operation.node))


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
    by = joining(cut.placement)
    over = tensors.averaged(cut.node) if by is Joining.WEIGHTED else None
    padded = by is Joining.ROWS and before.is_padded(cut.node)
    kind = kind_of(before.runs.program.at(cut.node if over is None else over))
    number, tensor = kind == NUMBER, kind == TENSOR
    return Reduction(cut.source, cut.node, by, hoist, cut.switch or None, over, padded, number=number, tensor=tensor)


def leftover(left: Iterable[Cut], run: Interpreter) -> Iterator[Concern]:
    """What is wrong where nothing makes a value global of which each rank has its own."""
    for cut in left:
        code = shortened(cut.source.code(cut.node))
        severity, number = Severity.WARNING, "AD601"
        if cut.demand.kind == "handed" and getattr(cut.placement, "reason", "") == IN_LOADER:
            continue  # what loads samples has its own
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
            into = getattr(getattr(cut.demand.operation.node, "func", None), "value", None)
            kept = f"{cut.demand.operation.source.code(into)} " if into and cut.demand.operation.name == "store" else ""
            message = (
                f"{kept}keeps {code} for later steps, computed from this rank's samples alone: ranks go on "
                "with other states than one process; gather it over the ranks before it is kept"
            )
        elif cut.demand.kind == "data":
            message = (
                f"which samples are read depends on {code}, computed from this rank's samples alone: gather it over "
                "the ranks, so that all of them draw alike"
            )
        elif cut.demand.kind in ("state", "loss"):
            message = (
                f"the loss is computed from {code}, and that from this rank's samples alone: gather it over "
                "the ranks, or compute it from all samples before they are shared out"
            )
        else:
            does = "hands on" if cut.demand.kind == "handed" else "reports"
            message = (
                f"{does} {code}, computed from this rank's samples alone: gather it over the "
                "ranks, or compute it on rank 0 from all samples"
            )
        yield Concern(number, cut.source, cut.node, message, severity)


def _decides(cut: Cut, run: Interpreter) -> bool:
    """Whether a branch on a value changes what the ranks do together: whether they step, leave, write or count, or with
    which loss a step goes on: `loss = a if cos > 0 else a + b`."""
    tested = cut.demand.operation
    branch = cut.source.statement(cut.node)
    if isinstance(branch, ast.Return) and getattr(cut.placement, "reason", "") == OWN_NUMBER:
        return False  # `def is_main(): return rank == 0`
    calls = {n.func.attr for n in walk(branch) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    leaves = any(isinstance(n, (ast.Break, ast.Continue, ast.Return, ast.Raise)) for n in walk(branch))
    if leaves or calls & {"backward", "step", "save"}:
        return True
    around = (each for each in cut.source.ancestors(cut.node) if isinstance(each, (ast.If, ast.IfExp, ast.stmt)))
    chosen = next(around, None)
    if isinstance(chosen, (ast.If, ast.IfExp)) and not tested.region.without_gradients:
        blocks = [*chosen.body, *chosen.orelse] if isinstance(chosen, ast.If) else [chosen.body, chosen.orelse]
        learnt = steps_of(run.runs.program).expressions
        if any(inner in learnt for each in blocks for inner in walk(each)):
            return True
    above = cut.source.parents.get(tested.node)
    if not isinstance(above, (ast.If, ast.While)):
        return False
    return any(isinstance(each, ast.AugAssign) for part in (*above.body, *above.orelse) for each in walk(part))
