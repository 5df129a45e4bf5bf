"""What a sample's number among those of its rank decides over: `if i > 0: loss += criterion(out[i], y[i])`. The sample
has another number in the batch, so that one process decides otherwise."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

from autodist.program import Operation, Program, Region, held
from autodist.source import Source, walk

DECIDED = "the number of a sample decides over it, and each rank counts its own"
DECIDED_BEFORE = "earlier rounds of the loop decide over it, and each rank goes round with its own samples"
COMPUTING = ("operator.", "builtins.", "math.")
"""Beginnings of the names of operations that make numbers and tests of numbers."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.While)
AROUND = (ast.For, ast.comprehension, *FUNCTIONS)
LEAVING = (ast.Continue, ast.Break, ast.Return)
ENDING = (ast.Break, ast.Return)
TAKING = frozenset(["iterate", "range.index"])
"""The names of what loops come to."""
Ways: TypeAlias = tuple[type[ast.stmt], ...]
Leaving: TypeAlias = dict[tuple[ast.stmt, Ways], list[ast.expr]]


@lru_cache(maxsize=2)
def decided(program: Program) -> Mapping[Operation, frozenset[Operation | Region]]:
    """The operations that are computed or not by what numbers are that loops count, and which numbers these are, or by
    what earlier rounds of loops have left or whether these were the last, and which loops these are."""
    made, kept = _computed(program), _left_before(program)
    ended = frozenset(loop for loop in program.loops if _may_end_early(loop, program))
    if not made and not ended and not any(each.carried_by for each in program.values.values()):
        return {}
    tests: dict[ast.AST, frozenset[Operation | Region]] = {}
    leaving: Leaving = {}

    def of(test: ast.expr) -> frozenset[Operation | Region]:
        read = program.at(test)
        numbers = frozenset(number for op in read.operations for number in made.get(op, ()))
        return numbers.union(read.carried_by, *(kept.get(op, ()) for op in read.operations))

    def deciding(node: ast.AST, source: Source) -> frozenset[Operation | Region]:
        if node not in tests:
            asked = [each for each in _tests(node, source, leaving) if of(each)]
            asked = [each for each in asked if not _begins_alike(node, each, source)]
            if isinstance(node, ast.Call) and len(program.at(node.func).things) > 1:
                asked += _choosing(node.func, source)
            tests[node] = frozenset(number for each in asked for number in of(each))
        return tests[node]

    found = {}
    for each in program.operations:
        calls = (region for region in each.region.around() if region.function is not None)
        places = [(each.node, each.source), *((region.node, region.source) for region in calls)]
        numbers = frozenset(number for node, source in places for number in deciding(node, source))
        numbers |= (ended & each.region.loops) if each.name not in TAKING else frozenset()
        if numbers and each not in made:
            found[each] = numbers
    return found


@lru_cache(maxsize=2)
def dependents(program: Program) -> Mapping[Operation, list[Operation]]:
    """The operations whose placement goes by that of others, of which they are given nothing: by what counts the number
    that decides over them, and by what is gone through side by side with what they take."""
    found: dict[Operation, list[Operation]] = {}
    for each, numbers in decided(program).items():
        for number in numbers:
            for told in held(number.subject) if isinstance(number, Region) else [number]:
                found.setdefault(told, []).append(each)
    for each in program.operations:
        for given in (op for value in each.operands for loop in value.carried_by for op in held(loop.subject)):
            found.setdefault(given, []).append(each)
    for each in program.operations:
        for given in (op for other in side_by_side(each, program) for op in other.given):
            found.setdefault(given, []).append(each)
    return found


def side_by_side(operation: Operation, program: Program) -> list[Operation]:
    """What is taken in the same rounds of something else: `zip(outputs, targets, weights)`"""
    made = program.made_at[operation.node] if operation.name in ("iterate", "range.index") else ()
    beside = (each for each in made if each.name == "iterate" and each is not operation)
    return [each for each in beside if each.region is operation.region]


def is_behind(operation: Operation, number: Operation) -> bool:
    """Whether it is computed once the loop has ended that counts a number: `loss /= i + 1` behind it"""
    node = number.node
    loop = next((each for each in number.source.ancestors(node) if isinstance(each, AROUND)), None)
    if not isinstance(loop, ast.For) or node not in walk(loop.iter):
        return False
    return all(each.node is not loop for each in operation.region.everywhere)


def _computed(program: Program) -> dict[Operation, frozenset[Operation]]:
    """What is computed of the numbers that loops count, and of which: not what is taken by them, `y[i]`."""
    found: dict[Operation, frozenset[Operation]] = {}
    for each in program.operations:
        if each.name == "range.index":
            found[each] = frozenset([each])
        elif each.name.startswith(COMPUTING):
            of = frozenset(number for value in each.operands for op in value.operations for number in found.get(op, ()))
            found |= {each: of} if of else {}
    return found


def _left_before(program: Program) -> dict[Operation, frozenset[Region]]:
    """What is computed in loops of what their earlier rounds have left, and which loops these are: `n == 0`"""
    found: dict[Operation, frozenset[Region]] = {}
    for each in program.operations:
        given = (found.get(op, frozenset()) for value in each.operands for op in value.operations)
        of = frozenset[Region]().union(*(value.carried_by for value in each.operands), *given) & each.region.loops
        found |= {each: of} if of else {}
    return found


def _may_end_early(loop: Region, program: Program) -> bool:
    """Whether one of its rounds may be the last, before it has gone through all that it goes over."""
    node = loop.node
    if not isinstance(node, ast.For):
        return False
    ends = (each for one in node.body for each in walk(one) if isinstance(each, ENDING))
    tests = (loop.source.conditions(each) for each in ends if node in _ended_by(each, loop.source))
    return any(all(program.at(test).constant is not False for test in several) for several in tests)


def _ended_by(leaving: ast.AST, source: Source) -> Iterator[ast.AST]:
    """The loops that a `break` or a `return` ends."""
    inner = leaving
    for above in source.ancestors(leaving):
        if isinstance(above, FUNCTIONS):
            return
        if isinstance(above, LOOPS) and inner not in above.orelse:
            yield above
            if isinstance(leaving, ast.Break):
                return
        inner = above


def _tests(node: ast.AST, source: Source, leaving: Leaving) -> Iterator[ast.expr]:
    """What decides whether something is computed: the conditions around it, those by which rounds and functions are
    left ahead of it, and those that end the loops around it. ``leaving`` keeps these, by the block that leaves."""
    yield from source.conditions(node)
    inner = node
    for above in source.ancestors(node):
        if isinstance(inner, ast.stmt) and not isinstance(inner, FUNCTIONS):
            yield from _left_by(source.before(inner), LEAVING, leaving)
        if isinstance(above, FUNCTIONS):
            return
        if isinstance(above, LOOPS):
            yield from _left_by(above.body, ENDING, leaving)
        inner = above


def _choosing(function: ast.expr, source: Source) -> Iterator[ast.expr]:
    """What decides which of several functions is called: `losses[i % 2](out, y)`, `by_number.get(i, mse)(out, y)`, also
    by way of a name."""
    parts, seen = [*walk(function)], set[ast.AST]()
    for store in (each for name in parts if isinstance(name, ast.Name) for each in source.stores(name)):
        statement = source.parents[store]
        if statement in seen:  # `model = wrapped(model)`
            continue
        seen.add(statement)
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and statement.value is not None:
            yield from source.conditions(store)
            parts += walk(statement.value)
    for each in parts:
        if isinstance(each, ast.Subscript):
            yield each.slice
        elif isinstance(each, ast.Call):
            yield from each.args
        elif isinstance(each, ast.IfExp):
            yield each.test


def _left_by(statements: Iterable[ast.stmt], ways: Ways, leaving: Leaving) -> Iterator[ast.expr]:
    branches = (ast.If, ast.Match)
    for each in (each for each in statements if isinstance(each, branches)):
        if (each, ways) not in leaving:
            inner = (part for part in walk(each) if isinstance(part, branches))
            found = [part for part in inner if any(isinstance(one, ways) for one in walk(part))]
            leaving[each, ways] = [part.test if isinstance(part, ast.If) else part.subject for part in found]
        yield from leaving[each, ways]


def _begins_alike(node: ast.AST, test: ast.expr, source: Source) -> bool:
    """Whether the other way comes to the same: it begins a sum with what is added here, `loss = term` beside `loss +=
    term`, or computes that as well."""
    branch = source.parents.get(test)
    if not isinstance(branch, (ast.If, ast.IfExp)):
        return False
    sides = [each if isinstance(each, list) else [each] for each in (branch.body, branch.orelse)]
    inside = [any(part is node for each in side for part in walk(each)) for side in sides]
    if True not in inside:
        return False
    other = [*_values(sides[not inside.index(True)])]
    if isinstance(node, ast.AugAssign) or isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        added = [node.value] if isinstance(node, ast.AugAssign) else [node.left, node.right]
        return any(ast.dump(each) == ast.dump(one) for each in added for one in other)
    return any(ast.dump(node) == ast.dump(part) for one in other for part in walk(one))


def _values(side: Iterable[ast.stmt | ast.expr]) -> Iterator[ast.expr]:
    """What one side of a branch gives, or binds names to."""
    for each in (part for one in side for part in (walk(one) if isinstance(one, ast.stmt) else [one])):
        if isinstance(each, (ast.Assign, ast.AugAssign)):
            yield each.value
        elif isinstance(each, ast.expr) and each in side:
            yield each
