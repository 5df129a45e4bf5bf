"""Tensors with all of the data: where a step may take its rows from them, and whether those are mixed."""

from __future__ import annotations

import ast

from autodist.interpreter.contents import Contents
from autodist.interpreter.questions import children_of, last_part, literal_int, spine
from autodist.interpreter.words import SPLITTING
from autodist.source import Source, counted_of, is_mask
from autodist.spread import COUNT, MEAN, ROWS, SAME, Spread
from autodist.tensors import calls, mixing, rowwise, shapes
from autodist.values import NOTHING, UNKNOWN, Draw, Items, Mixing, Scope, Stream, Turn, Value, of, union

JOINING = frozenset("cat concat concatenate stack vstack".split())


class WholeData(Contents):
    """Where steps may train on all of the data: what is a tensor, and what becomes of its rows."""

    def _augmented(self, node: ast.AugAssign, spread: Spread, scope: Scope) -> frozenset[Mixing]:
        """Where steps may train on all of the data: why `x op= y` may mix its rows."""
        parts = [self._lately(node.target), self._lately(node.value)]
        if self.plan.wholes is None or not any(map(mixing.is_whole, parts)) or self.is_one_row(parts[1]):
            return frozenset()
        plain = ast.BinOp(node.target, node.op, node.value)
        found = rowwise.followed(plain, Value(spread=spread), self._lately, self._contents)
        if not isinstance(found, str) and spread is MEAN and all(part.spread is not MEAN for part in parts):
            found = "divides by the number of rows in place: write `x = x / n`"
        if found == mixing.STATISTIC and self._forward:
            found = f"{found}, inside the model"
        return frozenset([Mixing(node.value, scope.source, found)]) if isinstance(found, str) else frozenset()

    def _followed(self, node: ast.expr, value: Value, scope: Scope, wholes: frozenset[ast.expr]) -> Value:
        """What is asked where steps may train on all of the data: what is a tensor, and what becomes of its rows."""
        parent = scope.source.parents.get(node)
        called = isinstance(parent, ast.Call) and parent.func is node
        if node not in self.plan.reduced:
            value = shapes.shaped(node, value, self._lately, called)
            if value.array and value.spread is SAME and shapes.has_one_row(node, self._lately):
                value = value.but(origins=value.origins | {Mixing(node, scope.source, mixing.ONE)})
            elif isinstance(node, ast.Call) and last_part(node.func) in JOINING and not _joins_written(node):
                kept = (o for o in value.origins if not (isinstance(o, Mixing) and o.reason == mixing.ONE))
                value = value.but(origins=frozenset(kept))  # of samples that are made one by one
            elif isinstance(node, ast.BinOp) and value.spread is SAME and value.origins:
                sides = [side for side in (self._lately(node.left), self._lately(node.right)) if side.array]
                if not all(mixing.mixings(side) for side in sides):  # it is broadcast
                    value = value.but(origins=value.origins - set(mixing.mixings(value)))
            elif mixing.is_whole(value) and rowwise.broadcasts(node):
                alone = [side for side in map(self._lately, children_of(node)) if not mixing.is_whole(side)]
                single = {each for side in alone for each in mixing.mixings(side) if each.reason == mixing.ONE}
                value = value.but(origins=value.origins - single) if single else value
            if isinstance(node, (ast.Name, ast.Attribute)):
                value = self._whole(node, value, scope, wholes)
            elif not called and self._is_given_rows(node):
                value = self._apart(node, value, scope)
            if node in self.plan.batches:
                value = self._dealt_out(node, value, scope)
        self.latest[node] = value
        return value

    def _dealt_out(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """This rank's rows of a batch that the script makes elsewhere, or of each that it iterates over."""
        parent = scope.source.parents.get(node)
        over = parent if isinstance(parent, ast.Call) else node
        loop = scope.source.parents.get(over)
        stream = any(isinstance(each, (ast.For, ast.AsyncFor)) and each.iter in (node, over) for each in (parent, loop))
        batch = self._element(value, node) if stream else value
        nested = any(isinstance(thing, Items) and thing.parts for thing in batch.things)
        draw = Draw(node, scope.source, (), whole=True, batch=True, stream=stream, nested=nested)
        self.event("dealt_out", node, scope, of(draw))
        shared = self._rows_of(batch, draw, node)
        return of(Stream(shared, NOTHING)) if stream else shared

    def _rows_of(self, value: Value, draw: Draw, node: ast.expr, at: tuple[int, ...] = ()) -> Value:
        """Tensors of a batch as this rank's rows of them."""
        tuples = [t for t in value.things if isinstance(t, Items) and t.parts]
        if not tuples:
            origins = frozenset(o for o in value.origins if isinstance(o, Mixing)) | {draw}
            return Value(spread=ROWS, origins=origins, array=True, axes=value.axes)
        items = self._remember(node, lambda: Items(node, [], NOTHING), ("rows", *at))
        count = max(len(each.parts) for each in tuples)
        parts = [union(each.parts[i] for each in tuples if i < len(each.parts)) for i in range(count)]
        items.parts = [self._rows_of(part, draw, node, (*at, i)) for i, part in enumerate(parts)]
        return of(items)

    def is_batch(self, value: Value) -> bool:
        """Whether a value is known to be made of samples that are cut out of data, a tensor or a tuple of them."""
        leaves, pending = list[Value](), [value]
        while pending:
            each = pending.pop()
            tuples = [t for t in each.things if isinstance(t, Items) and t.parts]
            if tuples and len(leaves) + len(pending) < 20:
                pending += [part for items in tuples for part in items.parts]
            else:
                leaves.append(each)
        cut = [any(isinstance(o, Draw) and _cuts(o) for o in leaf.origins) for leaf in leaves]
        plain = all(not leaf.things and not leaf.models and leaf.spread is SAME for leaf in leaves)
        if not any(cut) or not plain:
            return False
        # a tuple may also be a list of samples: only tensors end the search for its parts
        return len(leaves) == 1 and leaves[0] is value or all(leaf.array for leaf in leaves)

    def _whole(self, node: ast.Name | ast.Attribute, value: Value, scope: Scope, wholes: frozenset[ast.expr]) -> Value:
        """A tensor with all the data, where a training step may take its rows from it."""
        plain = value.spread is SAME and not value.things and not value.models and not value.weights
        if not plain or not isinstance(node.ctx, ast.Load):
            return value
        if not value.array and not is_mask(node, scope.source):
            return self._counted(node, value, scope)
        if any(not isinstance(each, Mixing) and not (isinstance(each, Draw) and each.once) for each in value.origins):
            if self._loops and not self._forward and self._no_grad == 0 and any(map(_is_cut, value.origins)):
                self.event("may_be_piece", node, scope, value)
            return value
        if node in wholes or node in self.plan.columns:
            columns = node in self.plan.columns
            derived = _derives_by(node, scope.source)
            draw = Draw(node, scope.source, (), whole=True, columns=columns, derived=derived)
            self.event("whole", node, scope, of(draw))
            spread = Spread.COLUMNS if columns else ROWS
            return value.but(spread=spread, origins=value.origins | {draw}, const=UNKNOWN)
        if self._loops and not self._forward and self._no_grad == 0:
            if not _asks_size(node, scope.source) or _counts_each(node, scope.source):
                self.event("may_be_whole", node, scope, value)
        return value

    def _counted(self, node: ast.Name | ast.Attribute, value: Value, scope: Scope) -> Value:
        """The number of all rows, given to what makes a tensor: a rank's has as many as it has rows."""
        if node in self.plan.counts:
            shares = bool(self.plan.batches) and not self.plan.wholes and not self.plan.columns  # equal ones
            draw = Draw(node, scope.source, (), whole=True, count=True, batch=shares)
            self.event("whole", node, scope, of(draw))
            return value.but(spread=COUNT, origins=value.origins | {draw}, const=UNKNOWN)
        inner: ast.AST = node
        parent = scope.source.parents.get(node)
        while isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Mult):  # `y.view(batch_size * length)`
            inner, parent = parent, scope.source.parents.get(parent)
        if self._loops and not self._forward and isinstance(parent, ast.Call) and inner in parent.args:
            self.event("may_be_count", node, scope, value)
        return value

    def _operands(self, node: ast.expr) -> list[Value]:
        """What an expression has just been computed from."""
        found = [self._lately(child) for child in children_of(node)]
        return [*found, *(inner for value in found for inner in self._contents(value))]

    def _is_given_rows(self, node: ast.expr) -> bool:
        """Whether some of what an expression has just been computed from, or holds, is rows of the whole data."""
        for value in map(self._lately, children_of(node)):
            if mixing.is_whole(value) or value.things and any(map(mixing.is_whole, self._contents(value))):
                return True
        return False

    def _apart(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """A value computed from rows of the whole data: where they lie, or that they may have been mixed."""
        rows = [each for each in self._operands(node) if mixing.is_whole(each)]
        if all(map(self.is_one_row, rows)) or self._adds_row(node, scope.source):
            return value  # whatever becomes of the axes of one row alone
        if isinstance(node, ast.Subscript) and self.is_one_row(value) and self._lately(node.value).spread is ROWS:
            return value.but(origins=value.origins | self._gone_through(value, scope.source))
        paired = rowwise.may_pair(node, self._lately) if not self._forward else []
        if paired:
            self.event("may_pair", node, scope, value)
        if value.spread is MEAN and node not in self.plan.weighed and self._takes_mean(node):
            self.event("row_mean", node, scope, value)
        if self._one_result_of_rows(node, value, scope):
            reason = "uses rows together with something that is not known to have as many"
            return value.but(origins=value.origins | {Mixing(node, scope.source, reason)})
        found = rowwise.followed(node, value, self._lately, self._contents)
        if isinstance(found, str):
            inside = ", inside the model" if found == mixing.STATISTIC and self._forward else ""
            mixed = Mixing(node, scope.source, found + inside)
            value = value.but(origins=value.origins | {mixed})
            for thing in value.things:
                if isinstance(thing, Items):
                    thing.element = thing.element | Value(origins=frozenset([mixed]))
            return value
        if isinstance(node, ast.Call) and calls.makes_tensor(node):
            origins = frozenset().union(*(each.origins for each in self._operands(node)))
            return Value(spread=found, origins=origins | value.origins, array=True, axes=value.axes)
        unchanged = found is value.spread or any(isinstance(thing, Items) for thing in value.things)
        return value if unchanged else value.but(spread=found)

    def _adds_row(self, node: ast.expr, source: Source) -> bool:
        """Whether a loop over rows adds to a sum: `loss = loss + criterion(output[i], target[i])`."""
        sums = isinstance(node, ast.BinOp) and node in spine(source.statement(node))
        return sums and isinstance(node, ast.BinOp) and self.is_one_row(self._lately(node.right))

    def _gone_through(self, value: Value, source: Source) -> frozenset[Mixing]:
        """That a row is one of those which a loop takes one after the other."""
        turns = (each.loop for each in value.origins if isinstance(each, Turn))
        loops = (each for each in turns if isinstance(each, (ast.For, ast.AsyncFor, ast.comprehension)))
        return frozenset(Mixing(each.iter, source, mixing.ONE_BY_ONE) for each in loops)

    def _one_result_of_rows(self, node: ast.expr, value: Value, scope: Scope) -> bool:
        """Whether rows meet data of which every rank has all: then those of all ranks are wanted."""
        if self._forward or not isinstance(node, (ast.Call, ast.BinOp, ast.Compare)):
            return False
        children = list(children_of(node))
        rows = [c for c in children if mixing.is_whole(self._lately(c)) and self._lately(c).spread is ROWS]
        foreign = isinstance(node, ast.Call) and self._is_foreign(node)
        whole = [c for c in children if self._lately(c).array and self._lately(c).spread is SAME]
        whole = [c for c in whole if self._lately(c).axes != 0 and not self._names_features(c)]  # one number, no rows
        if not rows or not (foreign or whole):
            return False
        for child in rows:
            self.event("meets", child, scope, self._lately(child))
        return True

    def _names_features(self, node: ast.expr) -> bool:
        """Whether these are numbers that have picked features of a batch before, `batch[:, nodes]`."""
        drawn = {each for each in self._lately(node).origins if isinstance(each, Draw)}
        return bool(drawn) and any(e.kind == "picks_features" and drawn & e.value.things for e in self.events)

    def _takes_mean(self, node: ast.expr) -> bool:
        """Whether a mean over rows is taken here, and was not handed on."""
        if (
            not isinstance(node, (ast.Call, ast.BinOp))
            or isinstance(node, ast.Call)
            and calls.is_entered(node, self._lately)
        ):
            return False
        return all(self._lately(child).spread is not MEAN for child in children_of(node))

    def _is_foreign(self, node: ast.Call) -> bool:
        """Whether a call leaves torch, NumPy and Python, as one that plots does."""
        name = calls.library(node, self._lately)
        return name is not None and name.partition(".")[0] not in ("torch", "numpy", "builtins", "math", "copy", "apex")


def _joins_written(node: ast.Call) -> bool:
    """Whether it is written out what is joined, `torch.cat([h, x])`: parts of one sample, maybe."""
    return bool(node.args) and isinstance(node.args[0], (ast.List, ast.Tuple))


def _cuts(draw: Draw) -> bool:
    """Whether a draw is a part of the data, or of its order, or makes as many samples as it is asked for."""
    node = draw.node
    return (
        isinstance(node, ast.Subscript)
        or draw.size is not None
        or isinstance(node, ast.Call)
        and last_part(node) in (*SPLITTING, "BatchSampler")
    )


def _is_cut(origin: object) -> bool:
    return isinstance(origin, Draw) and _cuts(origin)


def _derives_by(node: ast.expr, source: Source) -> bool:
    """`torch.autograd.grad(u, x, ...)`, or by each of `[x, t]`."""
    parent = source.parents.get(node)
    around = source.parents.get(parent) if isinstance(parent, (ast.List, ast.Tuple)) else parent
    call = source.parents.get(around) if isinstance(around, ast.keyword) else around
    if not isinstance(call, ast.Call) or last_part(call.func) != "grad":
        return False
    inputs = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "inputs")]
    return any(each is node or each is parent for each in inputs)


def _counts_each(node: ast.expr, source: Source) -> bool:
    """Whether something is there for each row: the rounds of a loop, `for i in range(len(x))`, or what is written
    later, `torch.zeros(len(x), 4)`."""
    asked = source.parents.get(node)
    for _ in range(2):
        if isinstance(asked, ast.expr) and counted_of(asked) is node:
            break
        asked = source.parents.get(asked) if asked is not None else None
    call = source.parents.get(asked) if asked is not None else None
    if isinstance(call, ast.Tuple):
        asked, call = call, source.parents.get(call)
    if isinstance(call, ast.Call) and last_part(call.func) in ("zeros", "empty"):
        return asked in call.args
    if not isinstance(call, ast.Call) or last_part(call.func) != "range" or call.args[-1] is not asked:
        return False
    begins = len(call.args) == 1 or len(call.args) == 2 and literal_int(call.args[0]) == 0
    around = source.parents.get(call)
    return begins and isinstance(around, (ast.For, ast.comprehension)) and around.iter is call


def _asks_size(node: ast.expr, source: Source) -> bool:
    """`x.shape`, `len(x)`: what is asked of the whole."""
    parent = source.parents.get(node)
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("shape", "size", "ndim", "dim", "dtype", "device", "numel")
    return isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "len"
