"""Where the ranks must put a set in the same order."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist import randomness, regions
from autodist.files import preparing
from autodist.interpreter import Interpreter, leaves_ties
from autodist.script import Site, Unordered
from autodist.source import Source, last_name

NUMBERS = frozenset(
    "int float len round ord range arange bincount nonzero argmax argmin argsort randint long min max".split()
)
"""Functions and methods that give numbers, of whatever they are called."""
KEEPING = frozenset(
    "tolist numpy cpu detach flatten ravel reshape view squeeze unique list set tuple sorted array".split()
)
"""Those that give numbers of numbers."""
INTEGERS = frozenset("int int64 int32 int_ long float float32 float64".split())


def unordered(run: Interpreter, prepared: frozenset[ast.AST]) -> Iterator[Unordered]:
    """Where all ranks together put a set in order. Of what is sorted or counted right away the order is none, and
    numbers have the same order in every process."""
    seen: set[ast.AST] = set()
    for event in run.of("ordered"):
        early = event.source is not run.project.entry and not event.calls
        called_back = any(call.node is None for call in event.calls)
        if event.node in seen or event.on_one_rank or early or called_back or randomness.is_per_sample(event, run):
            continue
        seen.add(event.node)
        parent = event.source.parents.get(event.node)
        if isinstance(parent, ast.Call) and event.node in parent.args and _needs_no_order(parent):
            continue
        assert isinstance(event.node, ast.expr)
        if not run.holds_alike(event.node):
            continue  # of a rank's own samples
        if _is_sorted_at_once(event.source, event.node) or _holds_numbers(event.source, event.node):
            continue
        waiting = regions.within(event, prepared)
        if not waiting or not preparing.is_kept_for_others(event, run):
            yield Unordered(Site(event.source, event.node), event.detail.const is True, waiting)


def _needs_no_order(call: ast.Call) -> bool:
    """Whether a call answers alike whatever the order of what it is given."""
    name = call.func.id if isinstance(call.func, ast.Name) else ""
    return name in ("len", "set", "sum", "max", "min", "any", "all") or name == "sorted" and not leaves_ties(call)


def _is_sorted_at_once(source: Source, node: ast.expr) -> bool:
    """`classes = list(set(labels))`, and `classes.sort()` below."""
    statement = source.parents.get(node)
    if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
        return False
    block = source.block(statement)
    following = block[block.index(statement) + 1 :][:1]
    call = following[0].value if following and isinstance(following[0], ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "sort"
        and isinstance(call.func.value, ast.Name)
        and call.func.value.id == statement.targets[0].id
        and not leaves_ties(call)
    )


def _holds_numbers(source: Source, node: ast.expr, seen: frozenset[str] = frozenset()) -> bool:
    """Whether something is a number, or holds nothing else, as far as can be told from the function around it."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float))
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return bool(node.elts) and all(_holds_numbers(source, each, seen) for each in node.elts)
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return _holds_numbers(source, node.elt, seen)
    if isinstance(node, ast.BinOp):
        known = [
            _holds_numbers(source, each, seen) and not isinstance(each, ast.Name) for each in (node.left, node.right)
        ]
        fewer = isinstance(node.op, (ast.Sub, ast.Div, ast.FloorDiv, ast.BitAnd))  # of what both hold
        return any(known) if fewer else isinstance(node.op, (ast.BitOr, ast.BitXor)) and all(known)
    if isinstance(node, ast.Call):
        return _gives_numbers(source, node, seen)
    if isinstance(node, ast.Subscript):  # `ids = [int(each) for each in line.split()]`, `ids[1:]`
        return isinstance(node.value, ast.Name) and _holds_numbers(source, node.value, seen)
    if isinstance(node, ast.Name) and node.id not in seen:
        bound = [each for each in source.stores(node) if not _is_what_it_was(_assigned(source, each), node.id)]
        values = [_assigned(source, each) for each in bound]
        return any(_comes_before(source, each, node) for each in bound) and all(
            value is not None and _holds_numbers(source, value, seen | {node.id}) for value in values
        )
    return False


def _is_what_it_was(value: ast.expr | None, name: str) -> bool:
    """`ids = list(set(ids))`, which holds nothing new."""
    while isinstance(value, ast.Call) and last_name(value.func) in KEEPING and len(value.args) == 1:
        value = value.args[0]
    return isinstance(value, ast.Name) and value.id == name


def _gives_numbers(source: Source, call: ast.Call, seen: frozenset[str]) -> bool:
    name = last_name(call.func)
    if name == "map" and call.args:
        return isinstance(call.args[0], ast.Name) and call.args[0].id in ("int", "float", "len")
    if name in ("min", "max"):
        return isinstance(call.func, ast.Attribute)  # `np.min(labels)`, and not that of Python, which takes words
    if name == "astype":
        return bool(call.args) and last_name(call.args[0]) in INTEGERS
    if name in KEEPING:
        method = isinstance(call.func, ast.Attribute) and not call.args
        held = call.func.value if isinstance(call.func, ast.Attribute) and method else next(iter(call.args), None)
        return held is not None and _holds_numbers(source, held, seen)
    return name in NUMBERS


def _assigned(source: Source, name: ast.Name) -> ast.expr | None:
    """What a name is bound to by a plain assignment, or one of several names by one of several values."""
    statement = source.parents.get(name)
    if isinstance(statement, ast.Assign) and name in statement.targets:
        return statement.value
    whole = source.parents.get(statement) if isinstance(statement, (ast.Tuple, ast.List)) else None
    if not isinstance(statement, (ast.Tuple, ast.List)) or not isinstance(whole, ast.Assign):
        return None
    if statement not in whole.targets or not isinstance(whole.value, (ast.Tuple, ast.List)):
        return None
    if any(isinstance(each, ast.Starred) for each in (*statement.elts, *whole.value.elts)):
        return None
    return next(
        (value for target, value in zip(statement.elts, whole.value.elts, strict=False) if target is name), None
    )


def _comes_before(source: Source, name: ast.Name, use: ast.Name) -> bool:
    """Whether a name has been bound wherever it is used, and is not what the function was given."""
    statement = source.statement(name)
    around = [source.statement(use), *source.ancestors(source.statement(use))]
    block = source.block(statement)
    return any(each in block and statement.lineno < use.lineno for each in around if isinstance(each, ast.stmt))
