"""The last batch of an epoch that a script cuts itself, which may be smaller than the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.reduction import Joining
from autodist.script import TrainingScript
from autodist.source import Source, last_name
from autodist.values import NOTHING, Draw

WHOLE = '''\
def local_rows(batch, size):
    """This rank's rows of a batch of ``size``; all ranks compute a last one that does not divide."""
    assert size % {d}.get_world_size() == 0, "batch size must be divisible by the number of ranks"
    if len(batch) % {d}.get_world_size() != 0:
        return batch
    return batch[{d}.get_rank() :: {d}.get_world_size()]


'''
LEFT_OUT = '''\
def local_rows(batch, size):
    """This rank's rows of a batch of ``size`` that all ranks hold; a smaller one, which is left out, may lose some."""
    assert size % {d}.get_world_size() == 0, "batch size must be divisible by the number of ranks"
    even = len(batch) - len(batch) % {d}.get_world_size()
    return batch[{d}.get_rank() : even : {d}.get_world_size()]


'''


ODD = (
    "the last of these batches has {left} samples, of which two ranks cannot have as many each: what is written ends "
    "with an AssertionError on 2 ranks; leave the last one out, or choose a size that divides the data"
)


def of_tails(script: TrainingScript) -> str | None:
    """The function by which ranks share batches of which the last may not divide: where the script leaves such a one
    out, or where it only takes means, which are the same where each rank has all of its rows."""
    draws = [draw for draw in script.draws if not draw.turn]
    if not draws or len(draws) < len(script.draws) or any(size_of(draw) is None for draw in draws):
        return None
    if all(map(_always_divides, draws)):
        return None
    if all(_is_left_out(draw, script) for draw in draws):
        return LEFT_OUT
    return WHOLE if _takes_means_alone(script) else None


def size_of(draw: Draw) -> str | None:
    """How many samples a slice holds, or a part of an order that is split: all but the last one."""
    node, size = draw.node, draw.size
    if isinstance(node, ast.Call):
        split = draw.batch and draw.stream and isinstance(node.func, ast.Attribute) and node.func.attr == "split"
        size = node.args[0] if split and len(node.args) == 1 and not node.keywords else None
    elif not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice) or node.slice.lower is None:
        return None
    elif size is None:
        size = _step(node.slice.lower, node.slice.upper)
    plain = (
        isinstance(size, ast.Constant) and isinstance(size.value, int) or isinstance(size, (ast.Name, ast.Attribute))
    )
    return draw.source.code(size) if size is not None and plain else None


def _step(lower: ast.expr, upper: ast.expr | None) -> ast.expr | None:
    """The size of `rows[k * 16 : (k + 1) * 16]`, or `rows[i : min(i + 16, len(rows))]`."""
    match upper:
        case ast.Call(func=ast.Name(id="min"), args=[one, other]):
            return _step(lower, one) or _step(lower, other)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return right if ast.dump(left) == ast.dump(lower) else None
        case ast.BinOp(
            left=ast.BinOp(left=counter, op=ast.Add(), right=ast.Constant(value=1)), op=ast.Mult(), right=size
        ):
            return size if ast.dump(ast.BinOp(counter, ast.Mult(), size)) == ast.dump(lower) else None
    return None


def _always_divides(draw: Draw) -> bool:
    """`for i in range(0, 64, 16)`"""
    for loop in draw.source.ancestors(draw.node):
        match loop:
            case ast.For(iter=ast.Call(func=ast.Name(id="range"), args=[_, ast.Constant(value=total), step])):
                size = getattr(step, "value", None)
                return isinstance(total, int) and isinstance(size, int) and size > 0 and total % size == 0
    return False


def _takes_means_alone(script: TrainingScript) -> bool:
    """Whether nothing but means over samples comes of the batches: sums and counts would be those of several ranks."""
    others = (
        *(script.sums + script.amplified + script.own_gradients + script.previews + script.batch_sizes),
        *(script.weighed + script.joined + script.terms + script.gathered + script.reckoned + script.row_means),
        *(script.refitted + script.joined_in_full + script.drawn_for_all + script.counting_whole + script.wholes),
    )
    if others or script.loaders or any(model.batch_norm or model.bypassed for model in script.models):
        return False
    if any(each.by is not Joining.MEAN for each in script.reductions):
        return False
    return not script.adds_up


def _is_left_out(draw: Draw, script: TrainingScript) -> bool:
    """Whether the loop goes on, or ends, where a batch is smaller: `if len(rows) < 16: continue`."""
    size = size_of(draw)
    for test in _tests_below(draw.source, draw.source.statement(draw.node)):
        match test.test:
            case ast.Compare(left=left, ops=[ast.Lt() | ast.NotEq()], comparators=[right]):
                counted = left if draw.source.code(right) == size else None
                of = _counted(counted) if counted is not None else None
                origins = script.values.get(of, NOTHING).origins if of is not None else ()
                if any(isinstance(each, Draw) and each.node is draw.node for each in origins):
                    return isinstance(test.body[-1], (ast.Continue, ast.Break))
                others = (each for each in origins if isinstance(each, Draw))
                if any(draw.source.statement(each.node) is draw.source.statement(draw.node) for each in others):
                    return isinstance(test.body[-1], (ast.Continue, ast.Break))
    return False


def _tests_below(source: Source, statement: ast.stmt) -> Iterator[ast.If]:
    """The conditions that come right after the statements that cut a batch."""
    block = source.block(statement)
    for later in block[block.index(statement) + 1 :]:
        if isinstance(later, ast.If):
            yield later
        elif not isinstance(later, ast.Assign):
            return


def _counted(node: ast.expr) -> ast.expr | None:
    """`rows`, of `len(rows)`, `rows.shape[0]`, `rows.size(0)`"""
    match node:
        case ast.Call(func=ast.Name(id="len"), args=[of]):
            return of
        case ast.Call(func=ast.Attribute(value=of, attr="size"), args=[ast.Constant(value=0)]):
            return of
        case ast.Subscript(value=ast.Attribute(value=of, attr="shape"), slice=ast.Constant(value=0)):
            return of
    return None


def early_check(draw: Draw, d: str) -> tuple[ast.stmt, str] | None:
    """The loop that cuts batches off what it knows the length of, and a line ahead of it that says at once whether the
    last one divides: `for i in range(0, len(x), 16)`."""
    size, node = size_of(draw), draw.node
    if size is None or not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
        return None
    lower = node.slice.lower
    for loop in draw.source.ancestors(node):
        if not isinstance(loop, ast.For):
            continue
        target, rounds = _counting(loop)
        if isinstance(lower, ast.Name) and ast.unparse(target) == lower.id:
            match rounds:
                case ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=0), total, step]):
                    counted = _counted(total)
                    same = counted is not None and ast.unparse(counted) == ast.unparse(node.value)
                    same = same or _is_order_of(node.value, total, loop, draw.source)
                    if isinstance(total, ast.Constant) and size.isdecimal() and total.value % int(size) == 0:  # type: ignore[operator]
                        return None
                    if same and draw.source.code(step) == size:
                        code = f"{draw.source.code(total)} % {size} % {d}.get_world_size() == 0"
                        return loop, f'assert {code}, "the last batch must divide by the number of ranks, too"\n'
    return None


def _counting(loop: ast.For) -> tuple[ast.expr, ast.expr]:
    """What a loop counts by: `i` of `range(...)`, also in `for step, i in enumerate(range(...))`."""
    match loop.target, loop.iter:
        case ast.Tuple(elts=[_, target]), ast.Call(func=ast.Name(id="enumerate"), args=[rounds, *_]):
            return target, rounds
    return loop.target, loop.iter


def _is_order_of(node: ast.expr, total: ast.expr, loop: ast.For, source: Source) -> bool:
    """Whether a name holds an order of as many rows as a loop goes over: `order = torch.randperm(len(x))`, above it."""
    block = source.block(loop)
    for earlier in reversed(block[: block.index(loop)]):
        if isinstance(earlier, ast.Assign) and ast.unparse(node) in map(ast.unparse, earlier.targets):
            match earlier.value:
                case ast.Call(func=func, args=[rows, *_]):
                    orders = last_name(func) in ("permutation", "randperm")
                    return orders and ast.unparse(rows) == ast.unparse(total)
            return False
    return False
