"""Operators, and what they make of sums and means over a rank's samples."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

from autodist import carried
from autodist.interpreter.evaluation import Evaluation
from autodist.interpreter.questions import (
    OF_SETS,
    is_new_axis,
    last_part,
    literal_int,
    makes_set,
    spine,
    sums_products,
    truth,
)
from autodist.source import Source, all_of, first_index, indices, last_name, walk
from autodist.spread import (
    COUNT,
    CROSS,
    LOCAL,
    MEAN,
    RANK,
    RATE,
    ROWS,
    SAME,
    SUM,
    Spread,
    add,
    combine,
    divide,
    multiply,
)
from autodist.tensors import crossing, operations
from autodist.tensors.named_axes import is_unread
from autodist.values import (
    NOTHING,
    UNKNOWN,
    External,
    Index,
    Items,
    Parameters,
    Portion,
    Scope,
    Stream,
    Table,
    Turn,
    Value,
    constant,
    is_clock,
    of,
    stored,
    union,
)

ARITHMETIC: Mapping[str, type[ast.operator]] = {
    "div": ast.Div,
    "divide": ast.Div,
    "true_divide": ast.Div,
    "sub": ast.Sub,
    "subtract": ast.Sub,
    "mul": ast.Mult,
    "multiply": ast.Mult,
}
"""Functions and methods that are operators by name."""


def _words_of_both(left: Value, right: Value) -> list[Value]:
    """What a list of words holds that another is added to, or maybe added to: ``["train", "valid"] + (["test"] if test
    else [])``; nothing where that is not told."""
    first, *others = [[t.parts for t in value.things if isinstance(t, Items) and t.parts] for value in (left, right)]
    if len(first) != 1 or len(left.things) != 1 or len(others[0]) > 1:
        return []
    lists = [t for value in (left, right) for t in value.things]
    told = all(isinstance(t, Items) and t.element is NOTHING for t in lists)
    words = [*first[0], *(others[0][0] if others[0] else [])]
    return words if told and all(isinstance(each.const, str) for each in words) else []


def _tuples_of_both(left: Value, right: Value, result: Items) -> list[Value]:
    """What is in a tuple that another is added to, as models put a loss before what they give: `(loss,) + outputs`."""
    tuples = [thing for value in (left, right) for thing in value.things]
    if len(left.things) != 1 or len(right.things) != 1:
        return []
    if all(isinstance(t, Items) and t.is_told and isinstance(t.node, ast.Tuple | ast.BinOp) for t in tuples):
        return [] if result in tuples else [part for t in tuples if isinstance(t, Items) for part in t.parts]
    return []


NUMBERS = frozenset([MEAN, SUM, COUNT, RATE, LOCAL])
"""How a number relates that a rank has of its samples."""
BLENDING = frozenset("add sub mul div lerp copy".split())
"""What brings parameters nearer to others, by itself or together."""

MOST_REPEATED = 8
"""Up to how many times a list of numbers is written out."""


class Arithmetic(Evaluation):
    """Expressions with operators."""

    def of_BinOp(self, node: ast.BinOp, scope: Scope) -> Value:
        left, right = self.eval(node.left, scope), self.eval(node.right, scope)
        if (overloaded := self._overloaded(node.op, left, right, scope)) is not None:
            return overloaded
        if isinstance(node.op, ast.Add) and any(isinstance(t, (Items, Stream)) for t in left.things | right.things):
            listed = [
                (each, value)
                for each, value in ((node.left, left), (node.right, right))
                if value.spread.is_local and not value.things and self._is_list(each)
            ]
            rows = [value for _, value in listed]  # `guesses + out.argmax(1).tolist()`
            both = union([*self._contents(left), *self._contents(right), *rows])
            items = self._remember(node, lambda: Items(node, [], NOTHING))
            items.stores |= stored(scope.source, (each for each, _ in listed))
            told = _words_of_both(left, right) or _tuples_of_both(left, right, items)
            items.parts = told
            items.element = items.element | both if not told else NOTHING
            for value in (left, right):
                for thing in value.things:
                    if isinstance(thing, Items) and thing is not items:
                        items.stores |= thing.stores
            joined = of(items) | Value(frozenset(t for t in left.things | right.things if isinstance(t, Parameters)))
            if left.spread is right.spread is ROWS:  # `[0] * len(x) + [1] * len(x)`
                return joined.but(spread=ROWS, origins=left.origins | right.origins)
            return joined
        if isinstance(node.op, OF_SETS) and _holds_set(left) and _holds_set(right):
            return self._combined(node, [left, right])
        if isinstance(node.op, ast.Mult):
            for many, number in ((left, right), (right, left)):
                if number.spread is COUNT and any(isinstance(t, Items) for t in many.things):
                    items = self._remember(node, lambda: Items(node, [], NOTHING))
                    items.element = items.element | union(self._contents(many))
                    return Value(frozenset([items]), ROWS, number.origins)  # `[""] * len(x)`, one for each sample
                repeated = _numbers_repeated(many, number)
                if repeated and carried.is_counted_at_once(node, scope.source):  # `[0.0] * 3`, what sums begin with
                    items = self._remember(node, lambda: Items(node, [], NOTHING))
                    items.parts, items.element = repeated, NOTHING
                    return of(items)
        if isinstance(node.op, ast.Mod) and (isinstance(left.const, str) or isinstance(node.left, ast.JoinedStr)):
            if right.spread.is_local or self.holds_local(right):
                self.event("format", node.right, scope, right)
                return right.computed(LOCAL)
            return self._text([left, right])
        self._note_blending([(node.left, left), (node.right, right)], scope)
        if isinstance(node.op, ast.Mult) and self._comes_to_naught(node, left, right):
            return Value(models=left.models | right.models, zero=True)
        if isinstance(node.op, ast.Add) and right.const == 1 and self._is_last(left):
            return Value(spread=COUNT, origins=left.origins)  # `i + 1`, after a loop over samples
        if isinstance(node.op, (ast.Add, ast.Sub)):
            left, right = self._term(node.left, left, right, scope), self._term(node.right, right, left, scope)
        self._note_scaling(node.left, node.op, node.right, right, scope)
        spread = self._binary(node.op, left, right, literal=isinstance(node.left, ast.Constant))
        if self._weighs_by_number(left, right) or self._weighs_by_number(right, left):
            return Value(spread=LOCAL, origins=left.origins | right.origins, models=left.models | right.models)
        apart = self._divided_each(node, left, right)
        if apart:
            each = left.spread if left.spread is not RATE else right.spread
            spread = MEAN if each is SUM else each
        elif spread is ROWS and isinstance(node.op, (ast.Add, ast.Sub)) and _is_portion(left) is not _is_portion(right):
            if left.spread is right.spread:
                spread = LOCAL
        if (
            {left.spread, right.spread} == {ROWS, Spread.COLUMNS}
            and crossing.are_apart(node, self._lately)
            or self.pairs_turn((left, right))
        ):
            spread = CROSS
        elif not apart and not (self.is_by_turn(right) and node in spine(scope.source.statement(node))):
            self._note_statistic(node.op, left, right, node, scope, (node.left, node.right))
        if isinstance(node.op, ast.Div) and left.spread is right.spread and left.spread in (MEAN, SUM):
            self.event("mean_loss", node, scope, right, left)  # `(each * mask).sum() / mask.sum()`
            if node in self.plan.weighed:
                return Value(spread=MEAN, origins=left.origins, models=left.models)
        kept: list[type] = [Index] if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)) else []
        kept += [] if spread.is_local or isinstance(node.op, ast.MatMult) else [Parameters]
        things = frozenset(t for t in left.things | right.things if isinstance(t, tuple(kept)))
        return Value(things, spread, left.origins | right.origins | apart, left.models | right.models)

    def _combined(self, node: ast.expr, sets: Sequence[Value]) -> Value:
        """The set that others make together: `set(names) - set(left_out)`"""
        held = [each for value in sets for each in (*self._contents(value), value)]
        local = [each for each in held if each.spread.is_local]
        if local:
            return Value(spread=LOCAL, origins=frozenset().union(*(each.origins for each in local)))
        items = self._remember(node, lambda: Items(node, [], NOTHING))
        items.element = union([items.element, *(each for value in sets for each in self._contents(value))])
        return of(items)

    def _term(self, node: ast.expr, value: Value, other: Value, scope: Scope) -> Value:
        """A sum over a rank's samples that is added to something else, see `losses/terms.py`."""
        return value.but(spread=MEAN) if node in self.plan.terms and value.spread is SUM else value

    def _note_blending(self, operands: Sequence[tuple[ast.expr, Value]], scope: Scope) -> None:
        """Note a number, as of a rank's samples, that says how parameters follow others: `a.lerp(b, 0.5 ** (len(x) /
        1000))`. All ranks must have the one of the whole batch, or the average is another. Not what divides gradients,
        see `_note_scaling`."""
        if self._forward or not any(isinstance(t, Parameters) for _, value in operands for t in value.things):
            return
        if any(isinstance(each, ast.Attribute) and each.attr == "grad" for node, _ in operands for each in walk(node)):
            return
        for node, value in operands:
            if value.spread in NUMBERS and not (value.things or value.models):
                self.event("statistic", node, scope, value)

    def _comes_to_naught(self, node: ast.BinOp, left: Value, right: Value) -> bool:
        """`loss + 0 * out[0]`, `0.0 * out.sum()`: what is there only that all layers have gradients. As many zeros as
        there are samples are still as many."""
        sides = ((node.left, node.right, right), (node.right, node.left, left))
        return not (left.things or right.things) and any(
            _is_naught(naught) and (value.spread not in (ROWS, Spread.COLUMNS) or _is_picked(held))
            for naught, held, value in sides
        )

    def _weighs_by_number(self, one: Value, number: Value) -> bool:
        """Whether what a model makes of a sample meets the number that it has in a rank's batch: `i * each` of `for i,
        each in enumerate(losses)`."""
        if not one.models:
            return False
        loops = {each.loop for each in one.origins if isinstance(each, Turn)}
        counted = {thing.loop for thing in number.things if isinstance(thing, Index)}
        going = [loop.through for loop in self._loops if loop.node in loops and loop.through is not None]
        return any(not counted.isdisjoint(walk(each.iter)) for each in going)

    def _is_last(self, number: Value) -> bool:
        """Whether a loop over samples, one by one, has left a number as that of the last one."""
        return any(isinstance(t, Index) and any(t.loop is each for each in self.counted_loops) for t in number.things)

    def _note_scaling(self, held: ast.expr, op: ast.operator, by: ast.expr, number: Value, scope: Scope) -> None:
        """Note by how many samples of a rank a gradient is divided, which is that of all ranks: `p.grad /= len(x)`."""
        while isinstance(held, ast.Attribute) and held.attr == "data":
            held = held.value
        if not isinstance(held, ast.Attribute) or held.attr != "grad" or number.spread is not COUNT:
            return
        if isinstance(op, ast.Div) and any(isinstance(t, Parameters) for t in self._lately(held.value).things):
            self.event("scales_gradient", by, scope, number)

    def _divided_each(self, node: ast.BinOp, left: Value, right: Value) -> frozenset[Portion]:
        """Whether it divides what each sample has by how many samples there are: `errors / len(x)`."""
        if isinstance(node.op, ast.Div) and right.spread is COUNT:
            each = left
        elif isinstance(node.op, ast.Mult) and RATE in (left.spread, right.spread):
            each = right if left.spread is RATE else left
        else:
            return frozenset()
        one = each.spread is ROWS or each.spread is MEAN and self.is_by_turn(each)
        if each is left and each.spread is SUM and not self.is_by_turn(right):
            one = self.is_by_turn(each)  # the sum over a part of the batch, by how many samples the batch has
        return frozenset([Portion(node)]) if one and not _is_portion(each) and not each.things else frozenset()

    def _divided_by_call(self, node: ast.Call, args: list[Value], result: Value) -> frozenset[Portion]:
        """`errors.div(len(x))`, `torch.full((n,), 1 / n)`"""
        if result.spread is not ROWS or result.things or _is_portion(result):
            return frozenset()
        name = last_part(node.func).rstrip("_")
        fills = name in ("full", "full_like", "fill") or ARITHMETIC.get(name) is ast.Mult
        divides = ARITHMETIC.get(name) is ast.Div and bool(args) and args[-1].spread is COUNT
        return (
            frozenset([Portion(node)])
            if divides or fills and any(each.spread is RATE for each in args)
            else frozenset()
        )

    def _note_statistic(
        self,
        op: ast.operator,
        left: Value,
        right: Value,
        node: ast.expr,
        scope: Scope,
        sides: tuple[ast.expr, ast.expr] | None = None,
    ) -> None:
        """Note a statistic of the batch beside each sample, as of `mask / mask.mean()` and `mask /= mask.mean()`."""
        if sides is not None and not self._no_grad and isinstance(op, (ast.Add, ast.Sub, ast.Div, ast.Mult)):
            for rows, value, side in ((left, right, sides[1]), (right, left, sides[0])):
                if self._adds_to_losses(op, rows):
                    continue
                if rows.spread is ROWS and value.spread in (MEAN, SUM) and not value.things:
                    if not self._forward and not value.models and isinstance(side, (ast.Call, ast.Name)):
                        self.event("statistic", side, scope, value)
                elif (
                    self._steers(op, rows, value, side is sides[0])
                    and isinstance(side, (ast.Call, ast.Name))
                    or rows.spread in self._samples()
                    and value.spread is LOCAL
                    and self._is_of_extremes(side)
                ):
                    self.event("statistic", side, scope, value)
        if sides is not None and isinstance(op, ast.Mult) and any(map(self._is_by_whole_sum, sides)):
            self._note_count(left, right, sides, scope)  # `weights / weights.sum() * len(weights)`
        if sides is not None and isinstance(op, ast.Div) and self._is_by_whole_sum(node):
            for inner in filter(None, map(_operation, walk(sides[0]))):
                if inner[0] is ast.Mult:  # `weights * len(weights) / weights.sum()`
                    self._note_count(self._lately(inner[1]), self._lately(inner[2]), inner[1:], scope)

    def _note_count(self, left: Value, right: Value, sides: tuple[ast.expr, ast.expr], scope: Scope) -> None:
        """Note a number of samples that each of them is multiplied by, which is that of all ranks."""
        for rows, count, side in ((left, right, sides[1]), (right, left, sides[0])):
            if rows.spread is ROWS and count.spread is COUNT:
                self.event("scales_gradient", side, scope, count)

    def _is_by_whole_sum(self, node: ast.expr) -> bool:
        """Whether something is divided by a sum that has been taken over all ranks."""
        whole = self.plan.reduced | self.plan.joined
        if not whole:
            return False
        pairs = self._lately(node).made if isinstance(node, ast.Name) else ()
        made = [each for _, each in pairs] if isinstance(node, ast.Name) else [node]
        found = [_operation(each) for one in made for each in walk(one)]
        found += [_operation(source.parents[one]) for source, one in pairs if one in source.parents]
        divisors = [each[2] for each in found if each is not None and each[0] is ast.Div]
        return any(part in whole for each in divisors for part in walk(each))

    def _is_of_extremes(self, node: ast.expr, depth: int = 4) -> bool:
        """Whether a number is computed from the largest and smallest of samples, through which no gradient flows."""
        value = self._lately(node)
        if not value.spread.is_local:
            return True
        if self._forward or value.models or value.things or not depth:
            return False
        if isinstance(node, ast.BinOp):
            return self._is_of_extremes(node.left, depth - 1) and self._is_of_extremes(node.right, depth - 1)
        if isinstance(node, ast.Name):
            return bool(value.made) and all(self._is_of_extremes(made, depth - 1) for _, made in value.made)
        found = operations.extreme(node)
        if found is None or self._lately(found[1]).spread not in (ROWS, Spread.COLUMNS):
            return False
        return self._is_of_all(found[1], set())

    def _is_of_all(self, node: ast.expr, seen: set[ast.expr]) -> bool:
        """Whether a tensor holds something of each of a rank's samples: it is no row that a loop or an index picks."""
        value = self._lately(node)
        if not value.spread.is_local or node in seen:
            return True
        seen.add(node)
        if isinstance(node, ast.Name):
            loaded = self._is_loaded(node.id)
            return loaded is not False and (bool(value.made) or loaded is True) and self._all_of_all(value.made, seen)
        if isinstance(node, ast.Subscript):
            first = first_index(node)
            kept = isinstance(first, ast.Slice) and (first.lower, first.upper, first.step) == (None, None, None)
            named = isinstance(first, ast.Constant) and isinstance(first.value, str)
            return (kept or named) and self._is_of_all(node.value, seen)
        if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Call, ast.Attribute)):
            parts = (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
            return all(self._is_of_all(each, seen) for each in parts)
        return False

    def _all_of_all(self, made: Iterable[tuple[Source, ast.expr]], seen: set[ast.expr]) -> bool:
        return all(self._is_of_all(each, seen) for _, each in made)

    def _is_loaded(self, name: str) -> bool | None:
        """Whether the innermost loop that binds a name takes it from a loader; nothing if no loop binds it."""
        for loop in reversed(self._loops):
            through = loop.through
            if through is not None and name in {n.id for n in all_of(through.target, ast.Name)}:
                over = self._lately(through.iter)
                streams = [thing.over for thing in over.things if isinstance(thing, Stream)]
                return any(True for each in (over, *streams) for _ in each.objects("loader"))
        return None

    def _steers(self, op: ast.operator, loss: Value, number: Value, first: bool) -> bool:
        """Whether a number that a rank has of its samples, such as the loss of an earlier step, weighs a loss."""
        if self._forward or not loss.models or isinstance(op, ast.Sub):
            return False
        if loss.spread in (MEAN, SAME) and number.spread is COUNT:
            return isinstance(op, ast.Div) and not first  # a mean is divided by the size of the batch once more
        if loss.spread not in (MEAN, SUM, LOCAL):
            return False
        if number.models or number.things or number.spread not in (MEAN, SUM, LOCAL):
            return False
        return isinstance(op, ast.Mult) or not first and loss.spread is not number.spread  # else it is weighed

    def _samples(self) -> tuple[Spread, ...]:
        """How samples lie. The columns of a recurrent model are of several kinds."""
        return (ROWS,) if self._forward else (ROWS, Spread.COLUMNS)

    def _adds_to_losses(self, op: ast.operator, rows: Value) -> bool:
        """Whether something is added to what may be losses, one for each sample: the mean of both is that of all."""
        may_be = self._criterion or rows.axes == 1 if self._forward else bool(rows.models)
        return isinstance(op, ast.Add) and may_be

    def _binary(self, op: ast.operator, left: Value, right: Value, literal: bool = False) -> Spread:
        a, b = left.spread, right.spread
        if isinstance(op, (ast.Add, ast.Sub)):
            start = not literal and not a.is_local and left.const is not UNKNOWN  # of an accumulator
            start = start and (not is_counted_in(left) or self._forward > 0)
            zero_left = start or left.const == 0 or left.zero
            return add(a, b, zero_left, right.const == 0 or right.zero)
        if isinstance(op, ast.Mult):
            return multiply(a, b)
        if isinstance(op, (ast.Div, ast.FloorDiv)):
            if a is COUNT and b is COUNT and self.is_by_turn(left) and not self.is_by_turn(right):
                return RATE  # what share of the samples a part of the batch has
            return divide(a, b)
        if isinstance(op, ast.MatMult):
            if sums_products(left, right, not self._no_grad):
                return SUM
            return CROSS if {a, b} == {ROWS, Spread.COLUMNS} else combine([a, b])
        return combine([a, b])

    def of_UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Value:
        value = self.eval(node.operand, scope)
        if isinstance(node.op, ast.Not):
            decided = truth(value, node.operand)
            if decided is not None:
                return constant(not decided, firm=True)
            return value.computed(combine([value.spread]))
        if isinstance(node.op, ast.USub) and isinstance(value.const, (int, float)):
            return constant(-value.const)
        kept = frozenset(t for t in value.things if isinstance(t, Parameters))
        return value.but(things=kept, const=UNKNOWN, firm=False)

    def of_BoolOp(self, node: ast.BoolOp, scope: Scope) -> Value:
        values: list[Value] = []
        stop = isinstance(node.op, ast.Or)
        for part in node.values:
            value = self.eval(part, scope)
            decided = truth(value, part)
            if decided is stop:
                if not values or not stop:  # whatever `ema` is, `ema and self.training` holds for nothing in evaluation
                    return constant(stop, firm=True)
                return self._mixed(values)
            if decided is None:
                values.append(value)
        if not values:
            return constant(not stop, firm=True)
        mixed = self._mixed(values)
        return mixed.but(things=frozenset().union(*(v.things for v in values))) if stop or len(values) == 1 else mixed

    def _is_given(self, node: ast.expr, value: Value) -> bool:
        """Whether a parameter stands for samples that its function is called with, so that it is not None:
        `if labels is not None` in a forward pass that is given them."""
        definition = self._calls[-1].function.node if self._calls else None
        if definition is None or not isinstance(node, ast.Name):
            return False
        spec = definition.args
        named = any(each.arg == node.id for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs))
        return named and value.spread in (ROWS, Spread.COLUMNS) and value.const is UNKNOWN and not value.optional

    def _is_list(self, node: ast.expr) -> bool:
        """Whether a rank's samples are a list: `labels.tolist()`, also by a name."""
        made = self._bound_to(node) if isinstance(node, ast.Name) else [node]
        calls = [each for each in made if isinstance(each, ast.Call) and last_name(each.func) in ("tolist", "list")]
        return bool(calls) and len(calls) == len(made)

    def of_Compare(self, node: ast.Compare, scope: Scope) -> Value:
        values = [self.eval(part, scope) for part in (node.left, *node.comparators)]
        if len(values) == 2:
            decided = compare(node.ops[0], *values)
            if decided is None and isinstance(node.ops[0], (ast.Eq, ast.NotEq)) and self._is_told_empty(values[1]):
                decided = self._is_empty(values[0], isinstance(node.ops[0], ast.Eq))
            if decided is None and values[1].const is None and self._is_given(node.left, values[0]):
                decided = {ast.Is: False, ast.IsNot: True}.get(type(node.ops[0]))
            if decided is not None:
                return constant(decided, firm=True)
        if all(value.spread is COUNT for value in values) or all(map(self._is_shape, values)):
            return NOTHING
        if isinstance(node.ops[0], (ast.In, ast.NotIn)) and _asks_for_key(*values[:2]):
            return NOTHING
        ordered = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
        if isinstance(node.ops[0], ordered) and not any(v.spread.is_local for v in values):
            compared = frozenset(t for value in values for t in value.things if isinstance(t, Parameters))
            if compared:
                return Value(compared)
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)) and not any(value.spread is RANK for value in values):
            return _of_clocks(union(values))  # what is None on one rank is so on all, unless a signal has set it
        mixed = self._mixed(values)
        if {value.spread for value in values} == {ROWS, Spread.COLUMNS} and crossing.are_apart(node, self._lately):
            return mixed.computed(CROSS)  # `labels[:, None] == labels[None]`
        if self.pairs_turn(values):
            return mixed.computed(CROSS)
        if len(values) == 2 and self._stands_across(node.left, node.comparators[0]):
            return mixed.but(models=frozenset()).computed(Spread.COLUMNS)
        contained = isinstance(node.ops[0], (ast.In, ast.NotIn)) and mixed.spread in (ROWS, Spread.COLUMNS)
        pairs = zip((node.left, *node.comparators), values, strict=True)
        lists = isinstance(node.ops[0], (ast.Eq, ast.NotEq)) and all(
            value.spread is ROWS and not value.things and self._is_list(each) for each, value in pairs
        )
        if contained or lists:
            return mixed.computed(LOCAL)  # one answer, whatever it is of
        return mixed.but(models=frozenset())  # it has no gradient

    def _is_shape(self, value: Value) -> bool:
        """`x.shape`, whose first number is that of this rank's samples, which is as good to compare as one of all."""
        parts = self._contents(value) if all(isinstance(t, Items) for t in value.things) else []
        return bool(parts) and not value.spread.is_local and {each.spread for each in parts} == {COUNT, SAME}

    def _is_empty(self, value: Value, wanted: bool) -> bool | None:
        """Whether a value is, or is not, an empty list, where that is decided."""
        if self._is_told_empty(value):
            return wanted
        return not wanted if value.const is not UNKNOWN and value.firm and not value.things else None

    def _is_told_empty(self, value: Value) -> bool:
        """A list that is written out as empty where it is handed on or compared, and that nothing is put into, by which
        a layer is told to leave something out: `norm=[]`."""
        held = [thing for thing in value.things if isinstance(thing, Items)]
        if not held or len(held) < len(value.things):
            return False
        empty = [t.node for t in held if isinstance(t.node, ast.List) and not (t.node.elts or t.parts or t.stores)]
        places = [self.sources[each].parents.get(each) for each in empty if each in self.sources]
        handed = [each for each in places if isinstance(each, (ast.Call, ast.keyword, ast.arguments, ast.Compare))]
        return len(handed) == len(held)

    def _stands_across(self, *sides: ast.expr) -> bool:
        """Whether labels are compared with a column of classes: `labels == torch.arange(3).unsqueeze(1)` has a column
        for each sample."""
        for labels, classes in (sides, sides[::-1]):
            value, other = self._lately(labels), self._lately(classes)
            flat = value.spread is ROWS and value.axes in (1, None) and not value.things
            made = [classes, *(each for _, each in other.made)]
            if flat and other.spread is SAME and any(map(_is_column_of_numbers, made)):
                return True
        return False

    def _text(self, values: Sequence[Value]) -> Value:
        """A string made of values: what it says of the ranks can no longer be reduced."""
        mixed = union(values)
        if any(value.spread is RANK for value in values):
            return Value(spread=RANK)
        if mixed.spread.is_local:
            return mixed.computed(LOCAL)
        return _of_clocks(mixed)

    def _note_filled(self, given: Sequence[ast.expr], scope: Scope) -> None:
        """Note a number computed from this rank's samples that stands for theirs from here on, no gradient flowing
        through it: `torch.where(mask, beta, 1 - beta)`, `mask[mask == 1] = negative / (positive + negative)`."""
        for each in given if not (self._no_grad or self._forward) else ():
            value = self._lately(each)
            if value.spread in (MEAN, SUM, LOCAL) and not value.models and not value.things:
                self.event("statistic", each, scope, value)

    def _note_named(self, node: ast.Call, callee: Value, base: Value | None, args: list[Value], scope: Scope) -> None:
        """`mask.div(mask.mean())`, `torch.sub(x, x.mean(0))`, `x.softmax(0)`, in place: `mask.div_(mask.mean())`."""
        name = self._function_name(node)
        op = ARITHMETIC.get(name.rstrip("_"))
        library = any(isinstance(t, External) for t in callee.things)
        operands = args[:2] if library or base is None else [base, *args[:1]]
        if library and not args:
            operands = [self._lately(each.value) for each in node.keywords if each.arg == "input"]
        along = bool(operands) and operands[0].spread in (ROWS, Spread.COLUMNS)
        if along and not self.is_one_row(operands[0]):
            position, spread = 1 if args and (library or base is None) else 0, operands[0].spread
            spelled = self.spelled_out(node, position, operands[0])
            if operations.relates_rows(name, spelled, position, spread):
                return
            if library and self._forward and operations.gathers(name):
                if operands[0].axes is None and spread is ROWS and operations.decomposes(name):
                    self.event("unfollowed", node, scope, operands[0])  # of a matrix for each sample, or of all?
            if is_unread(name, spelled, position) and (library or base is None or not base.things):
                self.event("unfollowed", node, scope, operands[0])
        if name in SUBSTITUTING:
            self._note_filled(node.args, scope)
        if name.rstrip("_") in BLENDING and isinstance(node.func, ast.Attribute):
            given = [*([] if library else [node.func.value]), *node.args, *(each.value for each in node.keywords)]
            self._note_blending([(each, self._lately(each)) for each in given], scope)
        if op is None or len(operands) < 2:
            return
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        if receiver is not None and not library and node.args:
            self._note_scaling(receiver, op(), node.args[0], args[0], scope)
        written = node.args if library else [receiver, *node.args] if receiver is not None else []
        sides = (written[0], written[1]) if len(written) > 1 else None
        self._note_statistic(op(), operands[0], operands[1], node, scope, sides)


SUBSTITUTING = frozenset(["where", "masked_fill", "masked_fill_"])
"""What puts one number in the place of many."""


def _is_naught(node: ast.expr) -> bool:
    """`0`, `0.0`"""
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value == 0


def _is_picked(node: ast.expr) -> bool:
    """`out[0]`, `out[0, 0]`"""
    if not isinstance(node, ast.Subscript):
        return False
    parts = indices(node)
    return all(literal_int(each) is not None for each in parts)


def _operation(node: ast.AST) -> tuple[type[ast.operator], ast.expr, ast.expr] | None:
    """What is computed of two operands: `x / y`, `x /= y`, `x.div(y)`, `torch.div(x, y)`."""
    if isinstance(node, ast.BinOp):
        return type(node.op), node.left, node.right
    if isinstance(node, ast.AugAssign):
        return type(node.op), node.target, node.value
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    named, given = ARITHMETIC.get(node.func.attr.rstrip("_")), [node.func.value, *node.args]
    return (named, given[-2], given[-1]) if named is not None and len(given) > 1 else None


def compare(op: ast.cmpop, left: Value, right: Value) -> bool | None:
    """The outcome of a comparison, if it is decided."""
    if isinstance(op, (ast.Is, ast.IsNot)) and right.const is None:
        known_not_none = (
            bool(left.things) and left.const is UNKNOWN and not any(isinstance(t, External) for t in left.things)
        )
        if left.const is None and left.firm and not left.things:
            return isinstance(op, ast.Is)
        told = left.firm and left.const is not UNKNOWN and left.const is not None and not left.optional  # `fix(2020)`
        return isinstance(op, ast.IsNot) if known_not_none or told else None
    if left.const is UNKNOWN or right.const is UNKNOWN or not (left.firm or right.firm):
        return None
    if left.things or right.things:
        return None
    try:
        if isinstance(op, ast.Eq):
            return bool(left.const == right.const)
        if isinstance(op, ast.NotEq):
            return bool(left.const != right.const)
    except Exception:  # constants of odd types: nothing is decided
        return None
    return None


def _is_column_of_numbers(node: ast.expr) -> bool:
    """`torch.arange(3).unsqueeze(1)`, `np.arange(3)[:, None]`, `torch.arange(3).view(-1, 1).to(device)`"""
    adds = False
    while isinstance(node, (ast.Subscript, ast.Call)):
        if isinstance(node, ast.Subscript):
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
            adds = adds or len(parts) == 2 and is_new_axis(parts[1])
            node = node.value
        elif last_part(node.func) == "arange":
            return adds
        elif isinstance(node.func, ast.Attribute):
            numbers = [literal_int(each) for each in node.args]
            adds = adds or node.func.attr == "unsqueeze" and numbers in ([1], [-1])
            adds = adds or node.func.attr in ("view", "reshape") and numbers[-1:] == [1]
            node = node.func.value
        else:
            return False
    return False


def is_counted_in(value: Value) -> bool:
    """Whether a sum begins with a number that each rank would add to it, as `counts = 1` does."""
    return isinstance(value.const, (int, float)) and value.const != 0


def _holds_set(value: Value) -> bool:
    return any(isinstance(t, Items) and makes_set(t.node) for t in value.things)


def _asks_for_key(key: Value, held: Value) -> bool:
    """`"aux" in out`, of a dict whose keys do not go by samples: all ranks have the same, whatever they hold."""
    if key.const is UNKNOWN or key.spread.is_local or held.spread.is_local or not held.things:
        return False
    return all(
        isinstance(t, Table) and t.keyed is None and (key.const in t.entries or not t.element.spread.is_local)
        for t in held.things
    )


def _is_portion(value: Value) -> bool:
    return any(isinstance(each, Portion) for each in value.origins)


def _of_clocks(value: Value) -> Value:
    """What each process finds of its own, of all that a value is made of."""
    found = frozenset(each for each in value.origins if is_clock(each))
    return Value(origins=found) if found else NOTHING


def _numbers_repeated(many: Value, times: Value) -> list[Value]:
    """The numbers of `[0.0] * n`, if it is known how many."""
    lists = [t for t in many.things if isinstance(t, Items)]
    if len(lists) != 1 or len(many.things) > 1 or not isinstance(lists[0].node, ast.List) or not lists[0].parts:
        return []
    plain = all(isinstance(part.const, (int, float)) for part in lists[0].parts) and lists[0].element is NOTHING
    count = times.const if isinstance(times.const, int) and not isinstance(times.const, bool) else 0
    return lists[0].parts * count if plain and len(lists[0].parts) * count <= MOST_REPEATED else []
