"""Samples that are taken by their place in the batch, which a rank's share has others at."""

from __future__ import annotations

import ast
from collections.abc import Callable

from autodist.interpreter.attributes import Attributes
from autodist.interpreter.questions import last_part, literal_int
from autodist.source import Source, argument, first_index, operands, walk
from autodist.spread import COUNT, ROWS
from autodist.tensors import operations, picking
from autodist.tensors.facts import CONVERTING
from autodist.values import NOTHING, Index, Items, Mixing, Picked, Piece, Scope, Trimmed, Turn, Value


class Places(Attributes):
    """Which places of the first axis an index names."""

    def _placed(self, axis: ast.expr, holder: ast.expr, base: Value, scope: Scope) -> frozenset[Picked | Turn]:
        """What an index on the first axis takes of a rank's samples: those that a loop has come to, or some by their
        place. A share of them, `out[: len(x) // 2]`, is that share of the whole batch."""
        if base.spread is not ROWS or base.things or self.is_by_turn(base):
            return frozenset()
        turns = self._turns(axis)
        if turns:
            return turns
        computed = bool(base.models) and self.plan.wholes is None
        some = _is_head(axis) and not _takes_fields(axis, scope.source)
        some = some or _is_part(axis) and (computed or self._is_tensor(holder, base))
        tensor = self._is_held(holder, base) or _is_among_indices(axis, scope.source)
        some = some or computed and (self._stays_fixed(axis) or self._is_one(axis) and tensor)
        some = some or computed and _are_numbers(axis, self._lately)
        some = some or self.plan.wholes is None and self._stays_fixed(axis) and _splits(axis, holder, scope.source)
        return frozenset([Picked(axis, scope.source, place=True)]) if some else frozenset()

    def _is_of_one(self, value: Value) -> bool:
        """Whether one of a rank's samples is taken by its place, `out[0]`, which is as large as any other."""
        return any(isinstance(each, Picked) and each.place and self._is_one(each.node) for each in value.origins)

    def _picked_by_call(self, node: ast.Call, result: Value, scope: Scope) -> frozenset[Mixing | Picked]:
        """What a call takes of a rank's samples: `out.narrow(0, 0, 4)`, `torch.masked_select(errors, keep)`."""
        name = last_part(node.func)
        if self.plan.wholes is not None or result.spread is not ROWS or not node.args:
            return frozenset()
        if name in picking.SELECTING:
            return frozenset([Picked(node.args[-1], scope.source)])
        given = [each for each in operands(node) if each not in node.args or each is node.args[0]]
        held = next((each for each in given if self._lately(each).spread is ROWS), None)
        rest = node.args[1:] if held is node.args[0] else node.args
        if (
            name not in ("narrow", "select", "index_select")
            or held is None
            or len(rest) < 2
            or literal_int(rest[0]) != 0
        ):
            return frozenset()
        fixed = any(self._lately(each).spread is not COUNT and literal_int(each) != 0 for each in rest[1:])
        fixed = _are_numbers(rest[1], self._lately) if name == "index_select" else fixed or name == "select"
        return frozenset([Picked(rest[1], scope.source, place=True)]) if fixed else frozenset()

    def _joined_pieces(self, node: ast.Call, result: Value, scope: Scope) -> Value:
        """What a call makes of a list of what samples have: `torch.cat([target["boxes"] for target in targets])` has
        more rows on one rank than on another."""
        name = last_part(node.func)
        if result.spread.is_local and self.plan.wholes is None and picking.pads_to_longest(node, self._lately):
            return result.without(Piece).but(
                origins=result.without(Piece).origins | {Trimmed(node, scope.source, True)}
            )
        if name in ("split", "split_with_sizes") and self._splits_by_own_lengths(node):
            return result.without(Picked).but(origins=result.without(Picked).origins | {Piece()})
        if name not in picking.JOINING | picking.STACKING or not (node.args or node.keywords):
            return result
        if picking.is_piece(result, one=True):
            return picking.joined(result, node, scope.source)
        if not picking.is_piece(result) or name in picking.STACKING:
            return result.without(Piece)
        lists = [t for each in node.args[:1] for t in self._lately(each).things if isinstance(t, Items)]
        made = [expression for each in lists for _, expression in each.stores]
        one_row = bool(made) and all(map(_is_one_row, made))
        whole = any(each.is_told or each.by_batch or each.by_layer for each in lists)
        if one_row or whole or operations.axis(node, 1) not in (None, 0):
            return result.without(Piece) if one_row else result
        return picking.joined(result, node, scope.source)

    def _splits_by_own_lengths(self, node: ast.Call) -> bool:
        """`errors.split([len(boxes) for boxes in targets])`"""
        given = argument(node, "split_size_or_sections", 0)
        told = self._lately(given) if given is not None else NOTHING
        return any(isinstance(t, Items) and self._one_inside(told).spread is COUNT for t in told.things)

    def _with_rows_second(self, node: ast.Call, result: Value) -> bool:
        """`out.view(2, -1, 3)`: as many parts as the number says, each of which has its share of the samples."""
        if last_part(node.func) not in ("view", "reshape") or result.spread is not ROWS or self.plan.wholes is not None:
            return False
        sizes = node.args[isinstance(node.func, ast.Attribute) and self._lately(node.func.value).spread is not ROWS :]
        sizes = list(sizes[0].elts) if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)) else sizes
        first = literal_int(sizes[0]) if len(sizes) > 1 else None
        if first is not None and first > 1 and self._takes_apart(node, sizes):
            return False
        if first is None or any(isinstance(each, Turn) for each in result.origins):
            return False
        if first == 1:  # `labels.view(1, -1)`
            return ast.unparse(sizes[1]) == "-1"
        return first > 1 and not self.is_batch_size(sizes[0])

    def _takes_apart(self, node: ast.Call, sizes: list[ast.expr]) -> bool:
        """`x.view(5, -1, 8)` of sequences, as many axes as before: what is taken for time begins within samples."""
        held = node.func.value if isinstance(node.func, ast.Attribute) else None
        before = self._axes_of(held) if held is not None else None
        parts = before is not None and 2 < len(sizes) <= before and not self.is_batch_size(sizes[0])
        return parts and self._lately(held).spread is ROWS and ast.unparse(sizes[1]) == "-1"  # type: ignore[arg-type]

    def _counts_off(self, axis: ast.expr) -> bool:
        """Whether it takes a share of the samples, or those of one of several batches that were joined:
        `out[: len(x)]`."""
        bounds = _bounds(axis)
        return bool(bounds) and all(self._lately(each).spread is COUNT for each in bounds)

    def _stays_fixed(self, axis: ast.expr) -> bool:
        """Whether a slice has a bound that does not follow the number of a rank's samples: `out[1 : len(x)]`, `out[:k]`
        with `k = 2`. A batch size does, since ranks share it out."""
        return any(self._lately(each).spread is not COUNT and not self.is_batch_size(each) for each in _bounds(axis))

    def _is_held(self, holder: ast.expr, base: Value) -> bool:
        """Whether an index of ``holder`` is one on the first axis of a tensor, or of its parts of so many samples."""
        return self.gives_tensor(holder, base) or self.splits_by_number(holder)

    def _is_one(self, axis: ast.expr) -> bool:
        """`out[0]`, `out[i]` of `for i in range(3)`; not of `for i, target in enumerate(targets)`, which takes all"""
        value = self._lately(axis)
        loops = [thing.loop for thing in value.things if isinstance(thing, Index)]
        stops = [each for loop in loops if isinstance(loop, ast.Call) for each in loop.args]
        counted = bool(loops) and not any(self._lately(each).spread in (COUNT, ROWS) for each in stops)
        return literal_int(axis) is not None or isinstance(value.const, int) or counted


ADDING_ROWS = frozenset("unsqueeze expand_dims view reshape".split())


def _are_numbers(node: ast.expr, lately: Callable[[ast.expr], Value]) -> bool:
    """`[0, 3]`, `torch.tensor([0, 3])`, or a name of one"""
    if isinstance(node, ast.Call) and last_part(node.func) in CONVERTING and node.args:
        node = node.args[0]
    if isinstance(node, ast.Name):
        made = [each for _, each in lately(node).made if each is not node]
        return bool(made) and all(not isinstance(each, ast.Name) and _are_numbers(each, lately) for each in made)
    return isinstance(node, ast.List) and bool(node.elts) and all(literal_int(each) is not None for each in node.elts)


def _splits(axis: ast.expr, holder: ast.expr, source: Source) -> bool:
    """Whether a batch is taken apart at a place: `x[:shots]`, beside `x[shots:]`."""
    if not isinstance(axis, ast.Slice) or axis.step is not None or (axis.lower is None) is (axis.upper is None):
        return False
    name, at = ast.unparse(holder), ast.unparse(axis.lower or axis.upper or holder)
    wanted = f"{name}[:{at}]" if axis.lower is not None else f"{name}[{at}:]"
    home = source.function(axis) or source.tree
    return any(isinstance(each, ast.Subscript) and ast.unparse(each) == wanted for each in walk(home))


def _bounds(axis: ast.expr) -> list[ast.expr]:
    """Those of a slice, but for its beginning at 0."""
    bounds = [axis.lower, axis.upper, axis.step] if isinstance(axis, ast.Slice) else []
    return [each for each in bounds if each is not None and literal_int(each) != 0]


def _is_one_row(node: ast.expr) -> bool:
    """`x[None]`, `x.unsqueeze(0)`, `x.view(1, -1)`"""
    if isinstance(node, ast.Subscript):
        first = first_index(node)
        return isinstance(first, ast.Constant) and first.value is None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    told = literal_int(node.args[0]) if node.args else None
    return told == (0 if node.func.attr in ("unsqueeze", "expand_dims") else 1) and node.func.attr in ADDING_ROWS


def _is_part(index: ast.expr) -> bool:
    """`images[2:5]`, `images[:-1]`, `images[::2]`: a part of a batch, or of the fields of one"""
    if not isinstance(index, ast.Slice):
        return False
    bounds = [each for each in (index.lower, index.upper, index.step) if each is not None]
    plain = (each.operand if isinstance(each, ast.UnaryOp) else each for each in bounds)
    return any(literal_int(each) != 0 for each in bounds) and all(literal_int(each) is not None for each in plain)


def _is_among_indices(axis: ast.expr, source: Source) -> bool:
    """`gradients[0, 1]`, `out[0, :]`: only a tensor has more than one index at a time."""
    indices = source.parents.get(axis)
    return isinstance(indices, ast.Tuple) and isinstance(source.parents.get(indices), ast.Subscript)


def _takes_fields(axis: ast.expr, source: Source) -> bool:
    """Whether what a slice takes is bound one by one: the fields of a batch, `x, edges, mask = batch[:3]`."""
    taken = source.parents.get(axis)
    statement = source.parents.get(taken) if taken is not None else None
    if not isinstance(axis, ast.Slice) or not isinstance(statement, ast.Assign) or statement.value is not taken:
        return False
    patterns = (each for each in statement.targets if isinstance(each, (ast.Tuple, ast.List)))
    return axis.upper is not None and any(len(each.elts) == literal_int(axis.upper) for each in patterns)


def _is_head(index: ast.expr) -> bool:
    """`images[:8]`"""
    if not isinstance(index, ast.Slice) or index.step is not None or index.lower is not None:
        return False
    return literal_int(index.upper) is not None if index.upper is not None else False
