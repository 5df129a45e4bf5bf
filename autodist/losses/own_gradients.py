"""Gradients of a rank's own samples that something changes in place, or an optimizer steps by: noise that follows its
gradient, `optim.SGD([delta])`, and `delta.grad.div_(norm)` ahead of that."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autodist.interpreter import Interpreter, once_a_run, shared_out
from autodist.models import modules_behind
from autodist.placement import Placement, Replicate, Shard
from autodist.placement.lattice import times
from autodist.placement.placements import Placements
from autodist.placement.transfer import SCALES
from autodist.program import Operation, Program, Value, closure, held, joined
from autodist.solve.facts import is_mean, is_sum
from autodist.solve.steps import steps_of
from autodist.source import Source, walk
from autodist.values import NOTHING

VIEWS = frozenset("data detach view reshape squeeze unsqueeze flatten transpose permute".split())
TAKEN = ("torch.autograd.grad", "torch.Tensor.grad")
"""The names of the operations that give gradients."""
HARMLESS = frozenset("zero_ detach_ requires_grad_".split())


@dataclass(frozen=True)
class OwnGradient:
    """The gradient of ``leaf``, a variable, which has to be divided right behind the ``backward`` statement; or, where
    it is not known to be of one backward pass alone, nothing."""

    leaf: str
    source: Source
    node: ast.expr
    """What asks for that: the leaf among an optimizer's parameters, or a gradient that is changed."""
    backward: ast.stmt | None


def own_gradients(run: Interpreter) -> list[OwnGradient]:
    """The gradients of samples to divide where they are made."""
    found: dict[tuple[ast.AST, str], OwnGradient] = {}
    for node, source, statement in (*_stepped(run), *_changed(run)):
        leaf = node.value if isinstance(node, ast.Attribute) else node
        if isinstance(leaf, ast.Name):
            each = OwnGradient(leaf.id, source, node, _backward(leaf.id, source.statement(statement), source, run))
            key = (source.home(node), leaf.id)
            if key not in found or found[key].backward is None:
                found[key] = each
    return list(found.values())


def scaled(program: Program, placements: Placements) -> dict[Operation, bool]:
    """The gradients of a rank's samples that are those of a mean over them, as many times as large as there are ranks,
    where something goes by how large they are; and whether others are taken there of data that all ranks have."""
    of, effects = placements.of, {each.operation for each in program.effects}

    def goes_by_size(gradient: Operation) -> bool:
        carried = closure([gradient], lambda op: (e for e in program.users[op] if getattr(of.get(e), "exponent", 0)))
        users = {user for each in carried for user in program.users[each]}
        return any(each in effects or getattr(of.get(each), "reason", "") == SCALES for each in users)

    taken = (each for each in program.operations if each.name in TAKEN)
    amplified = (each for each in taken if isinstance(lying := of.get(each), Shard) and lying.exponent == 1)
    return {each: Replicate() in map(of.get, program.made_at[each.node]) for each in amplified if goes_by_size(each)}


def lost(program: Program, placements: Placements) -> dict[Operation, Placement]:
    """The gradients of samples that go by how large they were in an earlier round, so that nothing is told of them, and
    how they lie where that is that of one process."""
    taken = (each for each in program.operations if each.name in TAKEN)
    return {each: Shard(0) for each in taken if getattr(placements.of.get(each), "reason", "") == SCALES}


def multiplied(program: Program, placements: Placements) -> dict[Operation, Placement]:
    """The gradients of samples that are of means over a rank's, or of sums, which are multiplied so that the average
    over ranks is that of one process, where that is not told yet, and how they lie then."""
    of = placements.of
    ends = (op for each in steps_of(program).backward for op in held(joined(each.inputs[:1])))
    above = closure((each for each in ends if is_sum(of.get(each)) or is_mean(of.get(each))), lambda op: op.given)
    found = dict[Operation, Placement]()
    for each in program.operations:
        if each.name not in TAKEN or not isinstance(lying := of.get(each), Shard) or lying.exponent:
            continue
        mean = each.name == TAKEN[0] and is_mean(placements.value(each.argument("outputs", 0) or Value()))
        if mean or each.name == TAKEN[1] and not each.inputs[0].operations.isdisjoint(above):
            found[each] = times(lying, 1)
    return found


def is_of(node: ast.AST, source: Source, gradients: list[OwnGradient]) -> bool:
    """Whether what is read is one of these gradients."""
    return isinstance(node, ast.Attribute) and any(
        isinstance(node.value, ast.Name)
        and node.value.id == each.leaf
        and source.home(node) is each.source.home(each.node)
        for each in gradients
        if each.source is source
    )


def _stepped(run: Interpreter) -> Iterator[tuple[ast.expr, Source, ast.AST]]:
    """The samples of a rank's own that an optimizer steps, and where it does."""
    steps = [(event, made.node) for event in run.of("step") for made in event.value.objects("optimizer")]
    for event in run.of("optimizer"):
        call, source = event.node, event.source
        given = call.args[0] if isinstance(call, ast.Call) and call.args else None
        for leaf in given.elts if isinstance(given, (ast.List, ast.Tuple)) else ():
            value = run.values.get(leaf, NOTHING)
            if not value.things and _has_samples(leaf, run):
                own = (each.node for each, made in steps if made is call and each.source is source)
                yield from ((leaf, source, step) for step in own if source.home(step) is source.home(call))


@once_a_run
def _lying(run: Interpreter) -> Placements:
    """How values lie before these gradients are divided."""
    return shared_out(run.runs.program, run)


def _has_samples(node: ast.expr, run: Interpreter) -> bool:
    return any(isinstance(_lying(run).of.get(each), Shard) for each in run.runs.program.at(node).operations)


def _changed(run: Interpreter) -> Iterator[tuple[ast.expr, Source, ast.AST]]:
    """The gradients of a rank's own samples that something changes, behind a backward pass."""
    if not run.of("backward"):
        return
    for node in run.values:
        if isinstance(node, ast.Attribute) and node.attr == "grad" and node in run.sources:
            value = run.values.get(node.value, NOTHING)
            own = not (value.things or modules_behind(run, node.value)) and _is_changed(node, run.sources[node])
            if own and _has_samples(node.value, run):
                yield node, run.sources[node], node


def _is_changed(node: ast.expr, source: Source) -> bool:
    """`delta.grad.div_(n)`, `delta.grad.data.mul_(n)`, `delta.grad[bad] = 0`, `delta.grad /= n`."""
    while True:
        above = source.parents.get(node)
        if isinstance(above, ast.Call) and node in above.args and isinstance(above.func, ast.Name):
            return isinstance(source.parents.get(above), ast.Expr) and above.func.id != "print"  # `unit(delta.grad)`
        if isinstance(above, ast.Subscript) and above.value is node:
            return isinstance(above.ctx, ast.Store)
        if isinstance(above, ast.AugAssign):
            return above.target is node
        if not isinstance(above, ast.Attribute):
            return False
        call = source.parents.get(above)
        called = isinstance(call, ast.Call) and call.func is above
        if called and above.attr.endswith("_") and not above.attr.endswith("__"):
            return above.attr not in HARMLESS
        if above.attr not in VIEWS:
            return False
        node = call if called and isinstance(call, ast.Call) else above


def _backward(leaf: str, statement: ast.stmt, source: Source, run: Interpreter) -> ast.stmt | None:
    """The one backward pass ahead of ``statement`` that the gradient of ``leaf`` is of, if it begins anew for that."""
    events = [each for each in run.of("backward") if each.source is source]
    if not events:
        return None
    home = source.home(statement)
    for each in (statement, *source.ancestors(statement)):
        if each is home:
            break
        if not isinstance(each, ast.stmt):
            continue
        block = source.block(each)
        before = block[: block.index(each)]
        passes = [one for one in before if any(source.statement(event.node) is one for event in events)]
        if not passes:
            continue
        ends = (op for op in steps_of(run.runs.program).backward if source.statement(op.node) is passes[-1])
        lying = [_lying(run).of.get(each) for op in ends for each in held(joined(op.inputs[:1]))]
        # attacks on a test set, too
        both = Replicate() in lying and not all(
            each == Replicate() or is_sum(each) for each in lying
        )  # a test set, too
        begins = any(_begins(one, leaf, run) for one in block)
        return passes[-1] if len(passes) == 1 and begins and not both else None
    return None


def _begins(statement: ast.stmt, leaf: str, run: Interpreter) -> bool:
    """Whether a statement makes the variable anew, or clears its gradient."""
    for node in walk(statement):
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            held = target.value if isinstance(target, ast.Attribute) and target.attr == "grad" else target
            if isinstance(held, ast.Name) and held.id == leaf:
                return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = node.func.value
            if node.func.attr == "zero_grad" and any(run.values.get(receiver, NOTHING).objects("optimizer")):
                return True
            named = any(isinstance(each, ast.Name) and each.id == leaf for each in walk(receiver))
            if node.func.attr == "zero_" and named:
                return True
    return False
