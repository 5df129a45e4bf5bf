"""The number of an epoch, where the statement that starts a pass over a loader does not know it by itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from itertools import pairwise

from autodist.interpreter import Event, Loop
from autodist.script import Epoch
from autodist.source import Source, all_of, last_name, walk
from autodist.values import Function


def numbered_around(event: Event, events: Iterable[Event], name: str | None) -> Epoch | None:
    """The pass as the one loop around it numbers it: by a `while` loop's own count of rounds, `epoch += 1`, or ahead of
    the call that leads there, `train_one_epoch()` in `for epoch in range(start, epochs):`."""
    loops = [loop for loop in event.loops if isinstance(loop.node, (ast.For, ast.While, ast.Call))]
    if len(loops) != 1 or name is None:
        return None
    number, source = _count(loops[0]), event.source
    if number is None:
        return None
    start = event.node if isinstance(event.node, ast.stmt) else source.statement(event.node)
    if loops[0].function is event.function and loops[0].source is source:
        return Epoch(source, start, name, number)
    if _is_of_same_object(number, loops[0].function, event.function):
        return Epoch(source, start, name, number)
    entered = [call for call in event.calls if call.node is not None and _stands_in(call.node, loops[0])]
    if len(entered) != 1 or event.calls[-1] is not entered[0]:
        return None
    call = entered[0]
    given = call.given().get(name)
    if isinstance(given, (ast.Name, ast.Attribute)):
        name = ast.unparse(given)  # a parameter of what is called
    elif not _means_the_same(name, event, loops[0]):
        return None
    if any(each.node is event.node and each.calls[-1:] != event.calls[-1:] for each in events):
        return None  # called from several places
    assert call.node is not None
    return Epoch(call.source, call.source.statement(call.node), name, number)


def repeats(loop: Loop, event: Event, name: str | None) -> bool:
    """Whether each round of a loop passes over the same loader, whose name it does not bind: `for net in nets:`, and
    not `for phase in phases:`, around `for x, y in loaders[phase]:`."""
    for call in reversed(event.calls):
        if call.function is loop.function:
            break
        given = call.given().get(name or "")
        if isinstance(given, ast.expr):
            name = ast.unparse(given)
        elif name is None or _binds(call.function, _root(name), call.function.source):
            return False
    if name is None:
        return False
    bound = {ast.unparse(each) for each in walk(loop.node) if isinstance(getattr(each, "ctx", None), ast.Store)}
    return bound.isdisjoint(map(ast.unparse, all_of(ast.parse(name), ast.expr)))


def counts_on(loops: Mapping[ast.AST | None, Source]) -> bool:
    """Whether each of several loops over epochs begins to count where the one above it ends, `range(warm)` and
    `range(warm, epochs)`, or stands in another branch: no number comes twice."""
    counted = [each for each in loops if isinstance(each, ast.For)]
    if len(counted) < len(loops) or len({*loops.values()}) > 1:
        return False
    if len({ast.unparse(each.target) for each in counted}) > 1:
        return False  # of which a function reads one alone
    ordered = sorted(counted, key=lambda each: each.lineno)
    return all(_excludes(a, b, loops[a]) or _follows(b, a) for a, b in pairwise(ordered))


def _follows(later: ast.For, earlier: ast.For) -> bool:
    bounds = [_bounds(earlier.iter), _bounds(later.iter)]
    return None not in bounds and bounds[0][1] == bounds[1][0]  # type: ignore[index]


def _bounds(over: ast.expr) -> tuple[str, str] | None:
    """The first number of `range(start, end)`, and the one behind its last."""
    while isinstance(over, ast.Call) and last_name(over.func) in ("tqdm", "track") and over.args:
        over = over.args[0]
    if not isinstance(over, ast.Call) or last_name(over.func) not in ("range", "trange") or len(over.args) > 2:
        return None
    given = [*(["0"] if len(over.args) == 1 else []), *map(ast.unparse, over.args)]
    return (given[0], given[1]) if len(given) == 2 else None


def _excludes(one: ast.AST, other: ast.AST, source: Source) -> bool:
    """Whether two loops stand in the branches of one condition."""
    ways = [{each, *source.ancestors(each)} for each in (one, other)]
    branches = [each for each in ways[0] & ways[1] if isinstance(each, ast.If)]
    return any(not ways[0].isdisjoint(each.body) and not ways[1].isdisjoint(each.orelse) for each in branches)


def _count(loop: Loop) -> str | None:
    """What counts the rounds of a loop: the variable of a `for` over a range, or what a `while` adds one to in each."""
    if isinstance(loop.node, ast.For):
        ranged = isinstance(loop.node.iter, ast.Call) and ast.unparse(loop.node.iter.func).endswith("range")
        return ast.unparse(loop.node.target) if ranged else None
    if not isinstance(loop.node, ast.While):
        return None
    counted = [ast.unparse(target) for each in loop.node.body if (target := _counted_up(each)) is not None]
    asked = [each for each in counted if each in map(ast.unparse, walk(loop.node.test))]
    found = asked or [each for each in counted if "epoch" in each.lower()]
    return found[0] if len(found) == 1 else None


def _counted_up(statement: ast.stmt) -> ast.expr | None:
    """`epoch`, of `epoch += 1` and `epoch = epoch + 1`"""
    match statement:
        case ast.AugAssign(target=target, op=ast.Add(), value=ast.Constant(value=1)):
            return target
        case ast.Assign(targets=[target], value=ast.BinOp(left=left, op=ast.Add(), right=ast.Constant(value=1))):
            return target if ast.unparse(left) == ast.unparse(target) else None
    return None


def _is_of_same_object(number: str, *functions: Function | None) -> bool:
    """Whether two methods of an object call an attribute by the same name, `self.epoch`."""
    owners = [function.owner if function is not None else None for function in functions]
    return number.startswith("self.") and owners[0] is not None and owners[0] is owners[1]


def _stands_in(node: ast.AST, loop: Loop) -> bool:
    return any(node is each for statement in getattr(loop.node, "body", ()) for each in walk(statement))


def _means_the_same(name: str, event: Event, loop: Loop) -> bool:
    """Whether a loader has the same name where a loop calls what passes over it: that of a module, or of an object."""
    if _is_of_same_object(name, loop.function, event.function):
        return True
    root = _root(name)
    return loop.source is event.source and not any(
        _binds(function, root, event.source) for function in (loop.function, event.function) if function is not None
    )


def _root(name: str) -> str:
    """`loaders`, of `loaders[phase]`"""
    return name.partition(".")[0].partition("[")[0]


def _binds(function: Function, name: str, source: Source) -> bool:
    given = {each.arg for each in walk(function.node.args) if isinstance(each, ast.arg)}
    return name in given or bool(source.stores_within(function.node, name))
