"""Values that several statements of a step report or decide by: they are reduced once, ahead of the first of these."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from autodist.reduction import Joining, Reduction
from autodist.source import Source, all_of, told_once, walk

READING = frozenset("item detach cpu data float mean sum".split())
"""What reads a tensor and leaves it as it is."""
DEFERRED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
AT_TIMES = (ast.IfExp, ast.BoolOp, ast.Lambda, *COMPREHENSIONS)
"""What may leave some of its parts out, or evaluates them more than once."""


def reduced_once(reductions: Sequence[Reduction]) -> list[Reduction]:
    """The same reductions, of which those of one value have one place to be computed at."""
    alike: dict[tuple[object, ...], list[Reduction]] = {}
    for each in reductions:
        if _is_plain(each):
            key = (each.source.path, each.source.code(each.node), each.by, each.switch)
            alike.setdefault(key, []).append(each)
    places = {node: place for group in alike.values() for node, place in _places(group)}
    return [replace(each, hoist=places.get(each.node, each.hoist)) for each in reductions]


def _is_plain(reduction: Reduction) -> bool:
    """Whether it is a number that names alone make: `loss.item()`, `correct / total`."""
    if reduction.by is Joining.COUNT and not reduction.switch or reduction.of is not None:
        return False
    shared = _shared(reduction.source.tree)
    read = {each.id for each in all_of(reduction.node, ast.Name)}
    return read.isdisjoint(shared) and all(_reads_names(each) for each in walk(reduction.node))


@told_once
def _shared(tree: ast.AST) -> frozenset[str]:
    """The names of a module that functions bind."""
    return frozenset(name for each in walk(tree) if isinstance(each, (ast.Global, ast.Nonlocal)) for name in each.names)


def _reads_names(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr=name):
            return name in READING
        case ast.Call(func=ast.Name(id=name)):
            return name in READING
        case ast.Call(args=[], keywords=[]) | ast.Name() | ast.Constant() | ast.BinOp():
            return True
    return isinstance(node, (ast.operator, ast.expr_context))


def _places(group: list[Reduction]) -> Iterator[tuple[ast.expr, ast.stmt]]:
    """Where those of one value are computed that come to hold the same: ahead of the first that is always reached."""
    left = sorted(group, key=lambda each: (each.node.lineno, each.node.col_offset))
    while left:
        first, *others = left
        source, place = first.source, first.hoist or first.source.statement(first.node)
        together = [each for each in others if _can_precede(place, first, source) and _holds_on(place, each)]
        if together or first.switch and _can_precede(place, first, source):
            yield from ((each.node, place) for each in (first, *together))
        left = [each for each in others if each not in together]


def place_of_all(reads: Sequence[ast.Name], source: Source) -> ast.stmt | None:
    """The statement ahead of which what some reads of a name need can be bound for all of them, and for all rounds of
    the loops that they stand in."""
    found: ast.stmt | None = None
    inner = [each for read in reads for each in source.ancestors(read) if isinstance(each, COMPREHENSIONS)]
    bound = (name for each in inner for part in each.generators for name in all_of(part.target, ast.Name))
    if any(name.id == reads[0].id for name in bound):
        return None  # `for row in rows`, which is bound for each round
    for each in source.ancestors(reads[0]):
        if isinstance(each, DEFERRED) or found is not None and not isinstance(each, (ast.For, ast.While, ast.If)):
            break
        if found is not None and isinstance(each, ast.If):
            continue  # of a loop around it, whose rounds come to it again
        if isinstance(each, ast.stmt):
            if _hold_below(each, reads, source):
                found = each
            elif found is not None:
                break
    return found if found is not None and _stands_alone(found, source) else None


def _hold_below(start: ast.stmt, reads: Sequence[ast.Name], source: Source) -> bool:
    """Whether all reads stand in a statement or below it in its block, and nothing changes what the name is before."""
    block = source.block(start)
    below = block[block.index(start) :]
    at = [next((n for n, one in enumerate(below) if one in source.ancestors(read)), -1) for read in reads]
    ahead, last = below[: max(at)], below[max(at)]
    ahead += [] if isinstance(last, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)) else [last]
    return -1 not in at and not any(_changes(node, {reads[0].id}) for one in ahead for node in walk(one))


def is_read_again(read: ast.Name, place: ast.stmt, source: Source) -> bool:
    """Whether a loop at or below a statement comes to a read in each of its rounds."""
    around = [*source.ancestors(read)]
    inner = around[: around.index(place) + 1]
    return any(
        isinstance(each, (ast.While, *COMPREHENSIONS))
        or isinstance(each, ast.For)
        and not any(read is node for node in walk(each.iter))
        for each in inner
    )


def _can_precede(place: ast.stmt, first: Reduction, source: Source) -> bool:
    """Whether a line can stand ahead of a statement that always comes to the value."""
    alone = _stands_alone(place, source)
    around: list[ast.AST] = []
    for each in source.ancestors(first.node):
        if each is place:
            break
        around.append(each)
    return alone and not isinstance(place, ast.While) and not any(isinstance(each, AT_TIMES) for each in around)


def _stands_alone(place: ast.stmt, source: Source) -> bool:
    """Whether a line can stand ahead of a statement: not of an `elif`, or behind a semicolon."""
    parent = source.parents[place]
    is_elif = isinstance(place, ast.If) and isinstance(parent, ast.If) and place in parent.orelse
    return not source.line(place.lineno)[: place.col_offset].strip() and not is_elif


def _holds_on(place: ast.stmt, other: Reduction) -> bool:
    """Whether a value is still the same where it is read again, in a statement below or inside of one."""
    source, inner = other.source, list(other.source.ancestors(other.node))
    block = source.block(place)
    last = next((at for at, each in enumerate(block) if each in inner), -1)
    start = block.index(place)
    if last < start or any(isinstance(each, DEFERRED) for each in inner[: inner.index(block[last])]):
        return False
    names = {each.id for each in all_of(other.node, ast.Name)}
    return not any(_changes(node, names) for each in block[start : last + 1] for node in walk(each))


def _changes(node: ast.AST, names: set[str]) -> bool:
    """`loss = 2 * loss`, `loss.data.mul_(2)`, `del loss`"""
    if isinstance(node, ast.Name):
        return node.id in names and not isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return isinstance(node.value, ast.Name) and node.value.id in names
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
        return any(isinstance(each, ast.Name) and each.id in names for each in walk(node.func.value))
    return False
