"""Functions that a backward pass calls with gradients, before these are averaged over the ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Interpreter
from autodist.placement import Partial
from autodist.program import GRADIENT, closure, held
from autodist.rule import Severity
from autodist.script import Concern

BENDING = frozenset(
    "clamp clamp_ clip clip_ clamp_min clamp_max hardtanh hardtanh_ tanh sigmoid sign sign_ sgn norm normalize pow "
    "sqrt exp log round".split()
)
"""What of twice a gradient is not twice what it is of that."""
INSTEAD = "change `.grad` between backward() and step() instead"


def concerns(run: Interpreter) -> Iterator[Concern]:
    """Hooks that would see another gradient than in the original, or none."""
    of = run.placements.of
    for effect in run.runs.program.of("gradient_hook"):
        hook = effect.operation
        given, back = hook.inputs
        gradient = next((of[each] for each in given.operations if each in of), None)
        held_by_module = isinstance(gradient, Partial)
        if held_by_module and run.plan.bare:
            message = (
                "hooks a gradient of a parameter that is sharded: FSDP has another parameter in its place, for which "
                f"the hook is never called; {INSTEAD}"
            )
            yield Concern("AD907", hook.source, hook.node, message, Severity.REFUSAL)
            return
        gives = run.placements.joint(held(back))
        if gradient is None or gives == gradient or gives is None and not (held_by_module or back.things):
            continue
        message = (
            "hooks a gradient of this rank's samples, before it is averaged over the ranks, and does more than scale "
            f"it: what becomes of their mean is something else; {INSTEAD}"
            if held_by_module
            else "hooks the gradient of a loss that is a mean over this rank's samples, which is as many times as "
            "large for each sample as there are ranks, and does more than scale it: change gradients of parameters, "
            "between backward() and step()"
        )
        yield Concern("AD904", hook.source, hook.node, message, Severity.REFUSAL)
        return


def steps_within_backward(run: Interpreter) -> Concern | None:
    """An optimizer for each parameter that steps as soon as there is its gradient:
    `p.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())`."""
    for effect in run.runs.program.of("optimizer.step"):
        hook = next((each for each in effect.region.around() if each.kind == "hook"), None)
        if hook is not None:
            message = (
                "steps an optimizer from a hook, in the midst of the backward pass: the gradient there is that of this "
                "rank's samples, before it is averaged over the ranks; step after backward()"
            )
            return Concern("AD904", hook.source, hook.node, message, Severity.REFUSAL)
    return None


def reentrant(run: Interpreter) -> Iterator[Concern]:
    """Functions with a backward pass of their own that runs another one, as of reversible layers: the wrapper is told
    twice of the gradients of their parameters."""
    for effect in run.runs.program.of("backward", "autograd_backward"):
        if effect.region.has_own_backward:
            message = (
                "runs a backward pass within a backward pass, which would tell the wrapper twice that a gradient "
                "is there: leave the gradients to autograd, as torch.utils.checkpoint does"
            )
            yield Concern("AD904", effect.operation.source, effect.operation.node, message, Severity.REFUSAL)
            return


def bent(run: Interpreter) -> Iterator[Concern]:
    """Functions with a backward pass of their own that clips or normalises the gradients it is given, those of
    a mean over a rank's samples."""
    program = run.runs.program
    gradients = [each for each in program.operations if each.name == GRADIENT]
    reached = closure(gradients, lambda each: (user for user in program.users[each] if user.region.has_own_backward))
    seen: set[ast.AST] = set()
    for each in sorted(reached, key=lambda op: op.number):
        short = each.name.rpartition(".")[2]
        bounds = [value.constant for value in each.operands if value.constants]
        if short in BENDING and bounds != [0] and each.node not in seen:  # `clamp(min=0)` grows with what it is given
            seen.add(each.node)
            message = (
                f"{short}() of the gradients of this rank's samples, which are as many times as "
                "large as in one process as there are ranks, is none that averaging them gives: results differ "
                "where it does more than scale them"
            )
            yield Concern("AD602", each.source, each.node, message, Severity.WARNING)
