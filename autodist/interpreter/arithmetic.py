"""Operators."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from autodist import carried
from autodist.interpreter.evaluation import Evaluation
from autodist.interpreter.questions import OF_SETS, makes_set, truth
from autodist.source import last_name
from autodist.spread import LOCAL, RANK, SAME, WORLD, Spread, combine
from autodist.values import (
    NOTHING,
    PLAIN,
    UNKNOWN,
    External,
    Index,
    Items,
    Parameters,
    Scope,
    Stream,
    Table,
    Value,
    constant,
    is_clock,
    of,
    union,
)


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


MOST_REPEATED = 8
"""Up to how many times a list of numbers is written out."""


class Arithmetic(Evaluation):
    """Expressions with operators."""

    def of_BinOp(self, node: ast.BinOp, scope: Scope) -> Value:
        left, right = self.eval(node.left, scope), self.eval(node.right, scope)
        if (overloaded := self._overloaded(node.op, left, right, scope)) is not None:
            return overloaded
        if isinstance(node.op, ast.Add) and any(isinstance(t, (Items, Stream)) for t in left.things | right.things):
            rows = [
                value
                for each, value in ((node.left, left), (node.right, right))
                if value.spread.is_local and not value.things and self._is_list(each)
            ]  # `guesses + out.argmax(1).tolist()`
            both = union([*self._contents(left), *self._contents(right), *rows])
            items = self._remember(node, lambda: Items(node, [], NOTHING))
            told = _words_of_both(left, right) or _tuples_of_both(left, right, items)
            items.parts = told
            items.element = items.element | both if not told else NOTHING
            return of(items) | Value(frozenset(t for t in left.things | right.things if isinstance(t, Parameters)))
        if isinstance(node.op, OF_SETS) and _holds_set(left) and _holds_set(right):
            return self._combined(node, [left, right])
        if isinstance(node.op, ast.Mult):
            for many, number in ((left, right), (right, left)):
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
        if isinstance(node.op, ast.Mult) and not (left.things or right.things):
            if _is_naught(node.left) or _is_naught(node.right):  # `loss + 0 * out[0]`, so that all have gradients
                return PLAIN
        spread = self._binary(node.op, left, right)
        kept: list[type] = [Index] if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)) else []
        kept += [] if spread.is_local or isinstance(node.op, ast.MatMult) else [Parameters]
        things = frozenset(t for t in left.things | right.things if isinstance(t, tuple(kept)))
        return Value(things, spread, left.origins | right.origins)

    def _combined(self, node: ast.expr, sets: Sequence[Value]) -> Value:
        """The set that others make together: `set(names) - set(left_out)`"""
        held = [each for value in sets for each in (*self._contents(value), value)]
        local = [each for each in held if each.spread.is_local]
        if local:
            return Value(spread=LOCAL, origins=frozenset().union(*(each.origins for each in local)))
        items = self._remember(node, lambda: Items(node, [], NOTHING))
        items.element = union([items.element, *(each for value in sets for each in self._contents(value))])
        return of(items)

    def _binary(self, op: ast.operator, left: Value, right: Value) -> Spread:
        if isinstance(op, (ast.Div, ast.FloorDiv)) and right.spread is WORLD:
            return LOCAL if left.spread is SAME else left.spread
        return combine([left.spread, right.spread])

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
            if decided is not None:
                return constant(decided, firm=True)
        if isinstance(node.ops[0], (ast.In, ast.NotIn)) and _asks_for_key(*values[:2]):
            return NOTHING
        ordered = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)
        if isinstance(node.ops[0], ordered) and not any(v.spread.is_local for v in values):
            compared = frozenset(t for value in values for t in value.things if isinstance(t, Parameters))
            if compared:
                return Value(compared)
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)) and not any(value.spread is RANK for value in values):
            return _of_clocks(union(values))  # what is None on one rank is so on all, unless a signal has set it
        return self._mixed(values)

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

    def _text(self, values: Sequence[Value]) -> Value:
        """A string made of values: what it says of the ranks can no longer be reduced."""
        mixed = union(values)
        if any(value.spread is RANK for value in values):
            return Value(spread=RANK)
        if mixed.spread.is_local:
            return mixed.computed(LOCAL)
        return _of_clocks(mixed)


def _is_naught(node: ast.expr) -> bool:
    """`0`, `0.0`"""
    return isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.value == 0


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


def _holds_set(value: Value) -> bool:
    return any(isinstance(t, Items) and makes_set(t.node) for t in value.things)


def _asks_for_key(key: Value, held: Value) -> bool:
    """`"aux" in out`, of a dict whose keys do not go by samples: all ranks have the same, whatever they hold."""
    if key.const is UNKNOWN or key.spread.is_local or held.spread.is_local or not held.things:
        return False
    return all(isinstance(t, Table) and (key.const in t.entries or not t.element.spread.is_local) for t in held.things)


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
