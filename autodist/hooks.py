"""Functions that a backward pass calls with gradients, before these are averaged over the ranks."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Event, Interpreter
from autodist.interpreter.autograd_functions import is_autograd_function
from autodist.models import keys, members, unwrapped
from autodist.rule import Severity
from autodist.script import Concern, Model
from autodist.source import last_name
from autodist.values import NOTHING, Class, Function, Parameters, of

SCALING = frozenset("mul div true_divide neg negative multiply divide".split())
SAME = frozenset("clone detach contiguous to float double half bfloat16".split())
BENDING = frozenset(
    "clamp clamp_ clip clip_ clamp_min clamp_max hardtanh hardtanh_ tanh sigmoid sign sign_ sgn norm normalize pow "
    "sqrt exp log round".split()
)
"""What of twice a gradient is not twice what it is of that."""
INSTEAD = "change `.grad` between backward() and step() instead"


def concerns(run: Interpreter, models: list[Model]) -> Iterator[Concern]:
    """Hooks that would see another gradient than in the original, or none."""
    ours = frozenset(members(models))
    for event in run.of("gradient_hook"):
        held = [t for t in event.value.things if isinstance(t, Parameters) and keys(unwrapped(of(t.module))) & ours]
        if held and run.plan.bare:
            message = (
                "hooks a gradient of a parameter that is sharded: FSDP has another parameter in its place, for which "
                f"the hook is never called; {INSTEAD}"
            )
            yield Concern("AD907", event.source, event.node, message, Severity.REFUSAL)
            return
        if not held and not (event.grad and (event.value.models or not _is_alike(event, run))):
            if not keys(unwrapped(event.value)) & ours:
                continue
        if _is_proportional(event, run) or not held and _only_reads(event):
            continue
        message = (
            "hooks a gradient of this rank's samples, before it is averaged over the ranks, and does more than scale "
            f"it: what becomes of their mean is something else; {INSTEAD}"
            if held
            else "hooks the gradient of a loss that is a mean over this rank's samples, which is as many times as "
            "large for each sample as there are ranks, and does more than scale it: change gradients of parameters, "
            "between backward() and step()"
        )
        yield Concern("AD904", event.source, event.node, message, Severity.REFUSAL)
        return


def reentrant(run: Interpreter) -> Iterator[Concern]:
    """Functions with a backward pass of their own that runs another one, as of reversible layers: the wrapper is told
    twice of the gradients of their parameters."""
    for node in run.values:
        if not isinstance(node, ast.Attribute) or node.attr != "apply":
            continue
        owners = run.values.get(node.value, NOTHING).things
        for cls in (thing for thing in owners if isinstance(thing, Class) and is_autograd_function(thing)):
            inner = next((n for n in ast.walk(cls.source.tree) if _runs_backward(n, cls)), None)
            if inner is not None:
                message = (
                    "runs a backward pass within a backward pass, which would tell the wrapper twice that a gradient "
                    "is there: leave the gradients to autograd, as torch.utils.checkpoint does"
                )
                yield Concern("AD904", cls.source, inner, message, Severity.REFUSAL)
                return


def bent(run: Interpreter) -> Iterator[Concern]:
    """Functions with a backward pass of their own that clips or normalises the gradients it is given, those of
    a mean over a rank's samples."""
    seen: set[Class] = set()
    for node in run.values:
        if not isinstance(node, ast.Attribute) or node.attr != "apply":
            continue
        owners = run.values.get(node.value, NOTHING).things
        for cls in (thing for thing in owners if isinstance(thing, Class) and is_autograd_function(thing)):
            found = next(_bending(cls), None) if cls not in seen else None
            seen.add(cls)
            if found is not None:
                message = (
                    f"{last_name(found.func)}() of the gradients of this rank's samples, which are as many times as "
                    "large as in one process as there are ranks, is none that averaging them gives: results differ "
                    "where it does more than scale them"
                )
                yield Concern("AD602", cls.source, found, message, Severity.WARNING)


def _bending(cls: Class) -> Iterator[ast.Call]:
    """Where the backward pass of a function computes something of a gradient that does not grow with it."""
    backward = next((n for n in cls.node.body if isinstance(n, ast.FunctionDef) and n.name == "backward"), None)
    if backward is None:
        return
    spec = backward.args
    names = {each.arg for each in spec.args[1:]} | ({spec.vararg.arg} if spec.vararg is not None else set())

    def speaks(node: ast.AST) -> bool:
        return any(isinstance(each, ast.Name) and each.id in names for each in ast.walk(node))

    for statement in (each for each in ast.walk(backward) if isinstance(each, ast.Assign)):
        if speaks(statement.value):
            names |= {n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    names.discard(spec.args[0].arg if spec.args else "")
    for node in ast.walk(backward):
        if isinstance(node, ast.Call) and last_name(node.func) in BENDING:
            of_tensor = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            bounds = [*node.args, *(keyword.value for keyword in node.keywords)]
            given = [each for each in (*of_tensor, *node.args[:1]) if speaks(each)]
            zero = [each for each in bounds if each not in given]
            only_sign = len(zero) == 1 and isinstance(zero[0], ast.Constant) and zero[0].value == 0
            if given and not only_sign:  # `clamp(min=0)` grows with what it is given
                yield node


def _runs_backward(node: ast.AST, cls: Class) -> bool:
    """Whether a call computes gradients, in a function of its own or in a method that a backward pass calls."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "backward":
        return False
    if ast.unparse(node.func) not in ("torch.autograd.backward", "autograd.backward"):
        imports = (each for each in ast.walk(cls.source.tree) if isinstance(each, (ast.Import, ast.ImportFrom)))
        modules = {(name.asname or name.name).partition(".")[0] for each in imports for name in each.names}
        if not modules.isdisjoint(n.id for n in ast.walk(node.func) if isinstance(n, ast.Name)):
            return False  # a function of a library, that computes one
    around = [each.name for each in cls.source.ancestors(node) if isinstance(each, ast.FunctionDef)]
    return any("backward" in name for name in around)


def _is_alike(event: Event, run: Interpreter) -> bool:
    """Whether all ranks have the tensor whose gradient is hooked."""
    method = event.node.func if isinstance(event.node, ast.Call) else None
    return isinstance(method, ast.Attribute) and run.is_alike(method.value)


def _only_reads(event: Event) -> bool:
    """Whether a hook keeps or prints gradients of samples, and gives nothing back."""
    functions = event.detail.functions
    return bool(functions) and all(not isinstance(f.node, ast.Lambda) and not _returned(f) for f in functions)


def _returned(function: Function) -> list[ast.expr]:
    if isinstance(function.node, ast.Lambda):
        return [function.node.body]
    found = [node.value for node in ast.walk(function.node) if isinstance(node, ast.Return) and node.value is not None]
    return [value for value in found if not (isinstance(value, ast.Constant) and value.value is None)]


def _is_proportional(event: Event, run: Interpreter) -> bool:
    """Whether a hook gives back the gradient times something that is alike on all ranks: so is the mean of such."""
    functions = event.detail.functions
    if not functions or len(functions) < len(event.detail.things):
        return False
    for function in functions:
        arguments = [a.arg for a in function.node.args.args][function.owner is not None :]
        statements = [] if isinstance(function.node, ast.Lambda) else function.node.body
        plain = all(isinstance(s, ast.Return) or _is_docstring(s) for s in statements)
        values = _returned(function)
        if len(arguments) != 1 or not values or not plain:
            return False
        if not all(_scales(value, arguments[0], run) for value in values):
            return False
    return True


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _scales(node: ast.expr, name: str, run: Interpreter) -> bool:
    """Whether an expression is proportional to a name."""

    def fixed(other: ast.expr) -> bool:
        inside = [n for n in ast.walk(other) if isinstance(n, ast.expr)]
        return all(map(run.is_alike, inside)) and not any(isinstance(n, ast.Name) and n.id == name for n in inside)

    match node:
        case ast.Name(id=found):
            return found == name
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _scales(operand, name, run)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _scales(left, name, run) and fixed(right) or _scales(right, name, run) and fixed(left)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _scales(left, name, run) and fixed(right)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub(), right=right):
            return _scales(left, name, run) and _scales(right, name, run)
        case ast.IfExp(test=test, body=body, orelse=other):
            return fixed(test) and _scales(body, name, run) and _scales(other, name, run)
        case ast.Call(func=ast.Attribute(value=base, attr=attr), args=args, keywords=[]):
            if attr in SAME | SCALING and _scales(base, name, run):
                return all(fixed(each) for each in args)
            return attr in SCALING and bool(args) and _scales(args[0], name, run) and all(map(fixed, args[1:]))
    return False
