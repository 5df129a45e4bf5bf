"""Branches that training does not take, as far as their tests tell, and that would mix the samples of a batch.

Promptable models repeat one picture for many prompts, `if image.shape[0] != prompt.shape[0]`; a training step has as
many of one as of the other. What such a branch does to the samples says nothing of the loss. It is said at its line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Interpreter
from autodist.placement import PerRank, Shard
from autodist.placement.layout import OF_WHOLE
from autodist.program import Operation
from autodist.rule import Severity
from autodist.script import Concern
from autodist.solve.losses import MEETING
from autodist.source import Source, counted_of, last_name, shortened
from autodist.values import NOTHING, UNKNOWN, Object

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
CONTAINERS = frozenset("list tuple dict set str int float bool Mapping Sequence Iterable List Tuple Dict".split())
OF_TENSORS = frozenset("shape size dim ndim dtype device data grad requires_grad to cpu cuda numpy item".split())
OUTCOMES: dict[type[ast.cmpop], tuple[bool, bool, bool]] = {
    ast.Eq: (False, True, False),
    ast.NotEq: (True, False, True),
    ast.Lt: (True, False, False),
    ast.LtE: (True, True, False),
    ast.Gt: (False, False, True),
    ast.GtE: (False, True, True),
}
"""How a comparison comes out where the left side is less, equal and greater."""


def untaken(run: Interpreter, settings: bool = False) -> dict[ast.expr, tuple[Source, ast.expr]]:
    """The operations that let samples of a batch meet where training does not come, and the test that says so: by what
    a batch always is, or also by ``settings`` as they are written."""
    found: dict[ast.expr, tuple[Source, ast.expr]] = {}
    if not run.of("backward"):
        return found  # nothing trains: no samples are shared out
    for operation, lying in run.placements.of.items():
        meets = isinstance(lying, PerRank) and lying.reason in MEETING | {OF_WHOLE}
        first = meets and not any(isinstance(run.placements.of.get(each), PerRank) for each in operation.given)
        if first and isinstance(operation.node, ast.expr) and operation.node not in found:
            if (test := _avoided(operation, run, settings)) is not None:
                found[operation.node] = test
    return found


def concerns(tests: dict[ast.expr, tuple[Source, ast.expr]], run: Interpreter) -> Iterator[Concern]:
    """What has to be known by whoever does take such a branch in training."""
    for node, (source, test) in tests.items():
        where = run.sources[node]
        message = (
            f"{shortened(where.code(node))} lets each sample of a batch meet the others, of which a rank has only its "
            f"own share; training is taken not to come here, by the test {shortened(source.code(test))}: where it "
            "does, results differ from those of one process"
        )
        yield Concern("AD602", where, node, message, Severity.WARNING)


def _avoided(operation: Operation, run: Interpreter, settings: bool) -> tuple[Source, ast.expr] | None:
    """The test by which a step does not come to an operation, in its function or in those that call it."""
    calls = [(each.source, each.node) for each in operation.region.around() if each.kind == "call"]
    places = [(operation.source, operation.node), *calls]
    for source, node in places:
        for test, holds in _tests_around(source, node):
            if expected(test, run, settings) is (not holds):
                return source, test
    return None


def _tests_around(source: Source, node: ast.AST) -> Iterator[tuple[ast.expr, bool]]:
    """The tests that decide whether a function comes to a node, and how they come out then."""
    inner = node
    for outer in source.ancestors(node):
        if isinstance(outer, ast.If | ast.IfExp) and inner is not outer.test:
            body = outer.body if isinstance(outer.body, list) else [outer.body]
            yield outer.test, inner in body
        if isinstance(inner, ast.stmt):
            for before in _left_before(source, inner):
                yield before.test, False
        if isinstance(outer, FUNCTIONS):
            return
        inner = outer


def _left_before(source: Source, statement: ast.stmt) -> Iterator[ast.If]:
    """The conditions under which a function is left before it comes to a statement: `if alike: return x`."""
    for each in source.block(statement):
        if each is statement:
            return
        if isinstance(each, ast.If) and isinstance(each.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
            yield each


def expected(test: ast.expr, run: Interpreter, settings: bool = False) -> bool | None:
    """How a test comes out in a step of training, where that can be told: a step has several samples, as many of one
    field of its batch as of another, in tensors, and its model in training mode."""
    value = run.values.get(test, NOTHING)
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = expected(operand, run, settings)
            return None if inner is None else not inner
        case ast.BoolOp(op=op, values=parts):
            stop = isinstance(op, ast.Or)
            each = [expected(part, run, settings) for part in parts]
            return stop if stop in each else (None if None in each else not stop)
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _compared(left, op, right, run, settings)
        case ast.Call(func=ast.Name(id="isinstance"), args=[held, kinds]) if _is_tensor(held, run):
            names = {last_name(each) for each in (kinds.elts if isinstance(kinds, ast.Tuple) else [kinds])}
            return True if "Tensor" in names else False if names <= CONTAINERS else None
        case ast.Call(func=ast.Name(id="hasattr"), args=[held, ast.Constant(value=str() as name)]):
            return _has(held, name, run)
        case ast.Attribute(attr="training"):
            return True
    known = settings and value.const is not UNKNOWN and not value.things and run.is_alike(test)
    return bool(value.const) if known else None


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr, run: Interpreter, settings: bool) -> bool | None:
    first, second = run.values.get(left, NOTHING), run.values.get(right, NOTHING)
    if isinstance(op, ast.Is | ast.IsNot):
        known = second.const is None and first.const is not UNKNOWN and not first.things
        return (first.const is None) is isinstance(op, ast.Is) if known else None
    outcomes = OUTCOMES.get(type(op))
    if outcomes is None:
        return None
    if settings and isinstance(first.const, str) and isinstance(second.const, str):
        return (first.const == second.const) is isinstance(op, ast.Eq)
    if _counts(left, run) and _counts(right, run) or _is_shape(left, run) and _is_shape(right, run):
        return outcomes[1]
    for number, other, side in ((left, second, 2), (right, first, 0)):
        if _counts(number, run) and other.const in (0, 1):
            return outcomes[side]  # a batch has several samples
    axes = _axes(left, run)
    if axes is not None and isinstance(second.const, int):
        return outcomes[(axes > second.const) - (axes < second.const) + 1]
    return None


def _counts(node: ast.expr, run: Interpreter) -> bool:
    """Whether it is the number of samples of a batch, as it is: `x.shape[0]`, `len(x)`, `n` after `n = x.size(0)`."""
    made = run.runs.program.at(node).operations
    return run.counts_samples(node) and not any(each.name.startswith("operator.") for each in made)


def _is_shape(node: ast.expr, run: Interpreter) -> bool:
    """`x.shape`, `x.size()`, `x.shape[:2]`"""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
        node = node.value
    sizes = node.func if isinstance(node, ast.Call) and not node.args else node
    named = isinstance(sizes, ast.Attribute) and sizes.attr in ("shape", "size")
    return named and isinstance(sizes, ast.Attribute) and _is_tensor(sizes.value, run)


def _is_tensor(node: ast.expr, run: Interpreter) -> bool:
    things = run.values.get(node, NOTHING).things
    return not things and any(isinstance(each, Shard) for each in run.lies(node))


def _has(node: ast.expr, name: str, run: Interpreter) -> bool | None:
    """Whether something has an attribute: a tensor, or an object of a class of the project."""
    if _is_tensor(node, run):
        return name in OF_TENSORS
    things = run.values.get(node, NOTHING).things
    if not things or not all(isinstance(each, Object) and each.cls is not None for each in things):
        return None
    held = [isinstance(t, Object) and (name in t.attributes or t.cls is not None and t.cls.find(name)) for t in things]
    return bool(held[0]) if len({bool(each) for each in held}) == 1 else None


def _axes(node: ast.expr, run: Interpreter) -> int | None:
    """How many axes a tensor has that is asked for them: `x.dim()`, `x.ndim`, `len(x.shape)`."""
    asked = node.func if isinstance(node, ast.Call) else node
    if isinstance(asked, ast.Attribute) and asked.attr in ("dim", "ndim", "ndimension"):
        return run.axes(asked.value)
    shape = counted_of(node) if isinstance(node, ast.Call) else None
    if isinstance(shape, ast.Attribute) and shape.attr == "shape":
        return run.axes(shape.value)
    return None
