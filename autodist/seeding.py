"""Seeds that a script sets in every run, and those that it sets where it is asked to: `if args.seed is not None:`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from typing import Any

from autodist.interpreter import Event, Interpreter
from autodist.models import is_main_guard
from autodist.regions import stands_in, within
from autodist.source import Source, last_name, walk
from autodist.values import NOTHING, UNKNOWN

COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Is: lambda left, right: left is right,
    ast.IsNot: lambda left, right: left is not right,
    ast.Eq: lambda left, right: left == right,
    ast.NotEq: lambda left, right: left != right,
    ast.Gt: lambda left, right: left > right,
    ast.GtE: lambda left, right: left >= right,
    ast.Lt: lambda left, right: left < right,
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def is_certain(seed: Event, others: Collection[Event], run: Interpreter) -> bool:
    """Whether a run that trains comes to a seed, or to another one where it does not."""
    trained = next(iter(run.of("backward")), None)
    for depth, (source, node) in enumerate(_frames(seed)):
        for condition, holds in _conditions(source, node):
            branches = (condition.body, condition.orelse)
            taken = frozenset[ast.AST](branches[not holds])
            if trained is not None and taken and within(trained, taken):
                continue
            known = _known(condition.test, seed, depth, run)
            if known is holds:
                continue
            instead = frozenset[ast.AST](branches[holds])
            if known is not None or not any(instead and within(other, instead) for other in others):
                return False
    return True


def is_unconditional(seed: Event) -> bool:
    """Whether a run comes to a seed whatever its options are."""
    return not any(True for source, node in _frames(seed) for _ in _conditions(source, node))


def _frames(event: Event) -> Iterator[tuple[Source, ast.AST]]:
    """Where the calls stand that lead to an event, from the outermost one to the event itself."""
    yield from ((call.source, call.node) for call in event.calls if call.node is not None)
    yield event.source, event.node


def _conditions(source: Source, node: ast.AST) -> Iterator[tuple[ast.If, bool]]:
    """The conditions in a function that a statement is run under, with what they have to be; `if seed is None: return`
    above it is one."""
    inside: ast.AST = node
    for around in source.ancestors(node):
        if isinstance(around, ast.Lambda):
            return
        for block in (getattr(around, field, None) for field in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and inside in block and not isinstance(around, ast.Module):
                for above in block[: block.index(inside)]:
                    if isinstance(above, ast.If) and not above.orelse and isinstance(above.body[-1], ast.Return):
                        yield above, False
        if isinstance(around, ast.If) and not is_main_guard(around) and inside is not around.test:
            yield around, stands_in(source, inside, frozenset(around.body))
        if isinstance(around, FUNCTIONS):
            return
        inside = around


def _known(test: ast.expr, seed: Event, depth: int, run: Interpreter) -> bool | None:
    """What a condition is where no option is given, or None where that is not to be seen."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _known(test.operand, seed, depth, run)
        return None if inner is None else not inner
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and type(test.ops[0]) in COMPARED:
        left, right = (_constant(each, seed, depth, run) for each in (test.left, test.comparators[0]))
        if left is UNKNOWN or right is UNKNOWN:
            return None
        try:
            return bool(COMPARED[type(test.ops[0])](left, right))
        except TypeError:
            return None
    found = _constant(test, seed, depth, run)
    return None if found is UNKNOWN else bool(found)


def _constant(node: ast.expr, seed: Event, depth: int, run: Interpreter) -> object:
    """A constant, or the default of the option or parameter that an expression stands for."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Attribute):
        defaults = {default for source in run.project.sources for default in _defaults(source, node.attr)}
        if len(defaults) == 1:
            return defaults.pop()
    calls = [call for call in seed.calls if call.node is not None]
    if isinstance(node, ast.Name) and 0 < depth <= len(calls):
        given = calls[depth - 1].given()
        if node.id in given:
            return _constant(given[node.id], seed, depth - 1, run)
    return run.values.get(node, NOTHING).const


def _defaults(source: Source, name: str) -> Iterator[object]:
    """The defaults of options of that name, `add_argument("--seed", default=1)`."""
    for node in walk(source.tree):
        if not isinstance(node, ast.Call) or last_name(node.func) != "add_argument":
            continue
        flags = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if name in (flag.lstrip("-").replace("-", "_") for flag in flags):
            given = next((each.value for each in node.keywords if each.arg == "default"), ast.Constant(None))
            yield given.value if isinstance(given, ast.Constant) else UNKNOWN
