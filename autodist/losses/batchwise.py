"""Losses that are computed from sums and means over a batch in another way than by adding them up.

Dice losses, statistics that gradients flow through, logarithms of sums: the mean of what ranks make of their shares is
not what one process makes of the batch. It is where the sums themselves are taken over all ranks, and gradients with
them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from autodist.interpreter import Event, Interpreter, Plan
from autodist.losses.weighing import left_over, parts_ranks
from autodist.origins import learnt_from, roots
from autodist.script import Reduction, Site
from autodist.source import Source, counted_of, last_name, operands
from autodist.spread import COLUMNS, COUNT, MEAN, ROWS, SAME, SUM, Spread
from autodist.tensors.mixing import PARTNERS, mixings
from autodist.tensors.operations import MEANS, SUMS, TALLIES
from autodist.values import NOTHING, External, Object

LINEAR: dict[Spread, tuple[type[ast.operator], ...]] = {
    SUM: (ast.Mult, ast.Div),
    MEAN: (ast.Mult, ast.Div, ast.Add, ast.Sub),
}
"""What can as well be done with a sum, or a mean, of all ranks."""
BOUNDING = frozenset("clamp clamp_min max maximum item float int".split())
NUMBERS = frozenset("len int float item numel size".split())
"""What gives a number of Python."""
ROUNDS = 4
"""Sums of what is computed from other sums are found once those are taken over all ranks."""


def joined(
    before: Interpreter, run: Callable[[Plan], Interpreter], plan: Plan, guards: list[Site]
) -> tuple[Reduction, ...]:
    """The sums and means that are to be taken over all ranks, where that makes losses exact."""
    current = before
    if all(is_settled(event, before) for event in before.of("backward")) and not before.of("batch_statistic"):
        return ()
    guarded = frozenset(site.node for site in guards)
    found: dict[ast.expr, Reduction] = {}
    for _ in range(ROUNDS):
        fresh = {node: each for node, each in _joinable(current, guarded).items() if node not in found}
        if not fresh:
            break
        found |= fresh
        current = run(replace(plan, joined=frozenset(found)))
    # of data that every rank has in full, a sum over the ranks would be another one
    entered = {event.node for event in current.of("joined") if not _is_entered_blindly(event)}
    whole = {
        event.node
        for event in current.of("joined")
        if event.grad and not event.value.spread.is_local and not (event.node in entered and _is_entered_blindly(event))
    }
    doubled = {*found} & {n for n in whole if isinstance(n, ast.expr) and n in found and found[n].spread is SUM}
    alone = {e.node for e in current.of("joined") if e.on_one_rank or parts_ranks(e, guarded, current)}
    doubled |= {*found} & alone
    unsettled = {event.node for event in current.of("backward") if not is_settled(event, current)}
    settled: set[ast.AST] = set()
    left: set[ast.AST] = set()
    for event in before.of("backward"):
        reached = _reached(event, before)
        (left if event.node in unsettled or reached & doubled else settled).update(reached)
    unfinished = {_home(event.source, event.node) for event in current.of("batch_statistic")}  # inside a model
    evaluated = {event.node for event in current.of("joined") if not event.grad}
    return tuple(
        replace(each, switch="torch.is_grad_enabled()" if node in evaluated and each.spread is SUM else None)
        for node, each in found.items()
        if (node in settled - left if node in settled | left else _home(each.source, node) not in unfinished)
    )


def _is_entered_blindly(event: Event) -> bool:
    """Whether a function was entered without a call of it, as one that is handed on: its arguments are not known."""
    return bool(event.calls) and event.calls[-1].node is None


def _home(source: Source, node: ast.AST) -> ast.AST | None:
    """The function that a node stands in."""
    return source.function(node)


def _joinable(run: Interpreter, guarded: frozenset[ast.AST]) -> dict[ast.expr, Reduction]:
    """Those that losses are computed from and all ranks come to, the ones that are made of no others."""
    found: dict[ast.expr, Reduction] = {}
    learnt = learnt_from(run)
    # ranks divide by different numbers
    uneven = {event.node for event in run.of("uneven_loss")} | {node for _, node, _ in left_over(run)}
    for event in run.of("joinable"):
        node = event.node
        if not isinstance(node, ast.expr) or not event.grad or event.on_one_rank or parts_ranks(event, guarded, run):
            continue
        if event.source.is_reported(node) or event.inside_forward and run.of("export"):
            continue  # rank 0 alone runs the model for its graph
        if event.value.spread is MEAN and (
            run.uneven(event.value) is not None or not uneven.isdisjoint(ast.walk(node))
        ):
            continue
        if event.inside_forward or not learnt.isdisjoint(ast.walk(node)):
            made = _made(node, event.source, run)
            if not any(_reduces(each, run) for each in ast.walk(made)):
                continue
            array, number = _is_array(made, run), _is_number(made, run)
            found.setdefault(made, Reduction(event.source, made, event.value.spread, array=array, number=number))

    def is_first(node: ast.expr) -> bool:
        made = {*ast.walk(node), *(part for each in roots(node, run, set()) for part in ast.walk(each))}
        return made.isdisjoint(found.keys() - {node})

    first = [node for node in found if is_first(node)]
    # a layer that is run after another one of its kind is computed from all that this one computes
    first = first or [
        node for node in found if _within(node, found[node].source, run).isdisjoint(found.keys() - {node})
    ]
    return {node: found[node] for node in first}


def _is_array(node: ast.expr, run: Interpreter) -> bool:
    """Whether NumPy makes it: `np.bincount(labels.numpy())`, `np.tile(sums, 3).transpose()`."""
    while isinstance(node, ast.Call):
        called = run.values.get(node.func, NOTHING).things
        if any(isinstance(thing, External) and thing.name.startswith("numpy.") for thing in called):
            return True
        node = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    return False


def _is_number(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is a number of Python: `errors.numel()`, `sum(len(target["boxes"]) for target in targets)`,
    `sum(sizes)` after `sizes = [len(each) for each in boxes]`."""
    if isinstance(node, ast.Call) and last_name(node.func) in ("numel", "nelement"):
        return True
    if not isinstance(node, ast.Call) or External("builtins.sum") not in run.values.get(node.func, NOTHING).things:
        return False
    given = node.args[0] if node.args else node
    lists = [value for _, value in run.values.get(given, NOTHING).made] if isinstance(given, ast.Name) else [given]
    parts = [each.elt for each in lists if isinstance(each, ast.GeneratorExp | ast.ListComp)]
    return bool(parts) and len(parts) == len(lists) and all(map(_is_plain_number, parts))


def _is_plain_number(node: ast.expr) -> bool:
    """`len(boxes)`, `boxes.shape[0]`, `mask.sum().item()`, `int(mask.sum())`"""
    if isinstance(node, ast.IfExp):
        return _is_plain_number(node.body) and _is_plain_number(node.orelse)
    if isinstance(node, ast.Subscript):
        return isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
    return isinstance(node, ast.Constant) or isinstance(node, ast.Call) and last_name(node.func) in NUMBERS


def _within(node: ast.expr, source: Source, run: Interpreter) -> set[ast.AST]:
    """What a function computes something from, up to what the function is given."""
    home = source.function(node)
    given = {each.arg for each in ast.walk(home.args) if isinstance(each, ast.arg)} if home is not None else set()
    found: set[ast.AST] = set()
    pending: list[ast.AST] = [node]
    while pending:
        each = pending.pop()
        if each in found or isinstance(each, ast.Name) and each.id in given:
            continue
        found.add(each)
        pending += ast.iter_child_nodes(each)
        if isinstance(each, ast.Name) or isinstance(each, ast.Attribute) and _is_held(each):
            made = run.values.get(each, NOTHING).made
            pending += [value for where, value in made if where is source and source.function(value) is home]
    return found


def _reduces(call: ast.AST, run: Interpreter) -> bool:
    """Whether it is here that a sum or mean is taken, or rows are counted."""
    if not isinstance(call, ast.Call):
        return isinstance(call, ast.Subscript) and counted_of(call) is not None
    name = last_name(call.func)
    losses = {"loss", "loss_function"}
    if run.values.get(call, NOTHING).spread in (MEAN, SUM) and any(_has_rows(each, run) for each in operands(call)):
        return True
    made = run.values.get(call.func, NOTHING).things
    return name in MEANS | SUMS | TALLIES or any(
        isinstance(t, Object) and t.roles & losses or isinstance(t, External) and run.catalog.roles(t.name) & losses
        for t in made
    )


def _is_held(node: ast.Attribute) -> bool:
    """`self.mean`"""
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def _has_rows(node: ast.expr, run: Interpreter) -> bool:
    return run.values.get(node, NOTHING).spread in (ROWS, COLUMNS)


def _made(node: ast.expr, source: Source, run: Interpreter) -> ast.expr:
    """What a name is bound to, in the one place where it is: of `2 * inter + smooth`, what `inter` is computed by."""
    value = run.values.get(node, NOTHING)
    if isinstance(node, ast.BinOp) and isinstance(node.op, LINEAR.get(value.spread, ())):
        sides = [each for each in (node.left, node.right) if run.values.get(each, NOTHING).spread is not SAME]
        divided = isinstance(node.op, ast.Div) and sides[:1] != [node.left]
        if len(sides) == 1 and run.values[sides[0]].spread is value.spread and not divided:
            return _made(sides[0], source, run)
    if isinstance(node, ast.Call):
        inner = [each for each in _bounded(node) if run.values.get(each, NOTHING).spread is value.spread]
        if len(inner) == 1:
            return _made(inner[0], source, run)
    if isinstance(node, ast.Name) and len(value.made) == 1:
        ((where, made),) = value.made
        statement = where.statement(made) if where is source else None
        here = _home(source, made) is _home(source, node)
        returned = isinstance(made, ast.Call) and _reduces(made, run)  # `mean, variance = self.statistics(x)`
        if isinstance(statement, ast.Assign) and statement.value is made and (here or returned):
            return _made(made, source, run) if isinstance(made, ast.Call) else made
    return node


def _bounded(call: ast.Call) -> list[ast.expr]:
    """What a call keeps from being too small, or makes a number: `count` of `count.clamp(min=1)`, `max(1, count)` and
    `count.item()`. Of all ranks it is to be bounded once."""
    receiver = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return [*receiver, *call.args] if last_name(call.func) in BOUNDING else []


def is_settled(event: Event, run: Interpreter) -> bool:
    """Whether a loss is a mean, a sum or the same on all ranks, and no sample's part depends on the others."""
    if event.value.spread not in (MEAN, SUM, COUNT, SAME):
        return False
    if any(mixing.reason != PARTNERS for mixing in mixings(event.value)):
        return False
    return not any(each.node in _reached(event, run) for each in run.of("batch_statistic"))


def _reached(event: Event, run: Interpreter) -> set[ast.AST]:
    """What a loss is computed from."""
    if not isinstance(event.node, ast.Call):
        return set()
    receiver = [event.node.func.value] if isinstance(event.node.func, ast.Attribute) else []
    given = [*receiver, *event.node.args]
    return {each for node in given for found in (node, *roots(node, run, set())) for each in ast.walk(found)}
