"""Evaluating an expression, and keeping what came of it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from autodist import alternatives
from autodist.interpreter.events import Call_
from autodist.interpreter.overloads import Overloads
from autodist.interpreter.questions import children_of, is_known, last_part, literal_int, objects_called
from autodist.interpreter.single import Single
from autodist.interpreter.words import COUNTING, CUTTING, REST, SIZES
from autodist.placement.opaque import FIELDS_OF_NODES, OF_GRAPHS
from autodist.source import counted_of, filled_in, first_index, last_name, operands
from autodist.spread import COUNT, CROSS, LOCAL, MEAN, ROWS, SAME, SUM, Spread, measured
from autodist.tensors import axes, calls, operations, picking
from autodist.tensors.named_axes import from_front
from autodist.tensors.picking import FORMS
from autodist.values import (
    NOTHING,
    UNKNOWN,
    Amplified,
    External,
    Function,
    Gathered,
    Index,
    Inside,
    Items,
    Object,
    OptimizerState,
    Parameters,
    Portion,
    Scope,
    Table,
    Thing,
    Turn,
    Value,
    Wrapped,
    union,
)

SIGNS = frozenset("sign sign_ sgn argmax argmin argsort".split())
"""What does not tell how large something is."""
ONE_NUMBER = frozenset("item float".split())
NUMBERS = ONE_NUMBER | {"tolist"}
LINEAR = FORMS | NUMBERS | frozenset("sum mean neg float double half div divide true_divide".split())
"""What keeps a factor that all samples have."""
BILINEAR = frozenset("mul multiply dot vdot inner outer matmul mm mv bmm einsum tensordot".split())
"""What keeps one that one of the operands has."""


OPERATIONS = frozenset([ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Subscript])
COMPUTING = frozenset([ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Subscript, ast.Call])
READ = frozenset([ast.Name, ast.Attribute, ast.Constant])
OF_ROWS = frozenset([ast.Attribute, ast.Call, ast.Subscript, ast.BinOp])


ANY = 20
"""So many axes stand for an unknown number of them, to see how many an operation adds."""


class Evaluation(Single, Overloads):
    """Expressions, of whatever kind."""

    def eval(self, node: ast.expr, scope: Scope) -> Value:
        """What an expression may evaluate to."""
        handler = self._evaluators.get(type(node))
        if handler is None:
            handler = self._evaluators[type(node)] = getattr(self, "of_" + type(node).__name__, self._other)
        return self._noted(node, handler(node, scope), scope)

    @cached_property
    def _evaluators(self) -> dict[type[ast.expr], Callable[[Any, Scope], Value]]:
        """How each kind of expression is evaluated that has been met so far."""
        return {}

    def _noted(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """Keep what ``node`` evaluated to, and take for granted what is planned for it."""
        plan, kind = self.plan, type(node)
        if kind in READ and value.spread is SAME and not value.origins and node not in plan.named:
            if not plan.turns and not plan.gathered and node not in plan.taken and node not in plan.batches:
                return self._read(node, value, scope)
        operates, reduced = kind in OPERATIONS, node in plan.reduced
        if self._outcomes and (value.things or value.models):
            value = self._possible(value)
        if plan.turns and not reduced and self._is_taken(value):
            return self._kept(node, value.but(spread=LOCAL), scope)  # of one sample, whatever its axes are
        if reduced:
            kept = frozenset(t for t in value.things if not isinstance(t, Parameters))
            gathered = [Gathered(node)] if value.spread is ROWS else []
            origins: frozenset[Amplified | Gathered] = frozenset(gathered)
            origins |= {each for each in value.origins if isinstance(each, Amplified)}
            value = Value(kept if not value.spread.is_local else frozenset(), models=value.models, origins=origins)
        if value.spread.is_local and (told := self.catalog.measured.get(node)) is not None:
            value = value.computed(measured(told)).but(axes=told.axes)
        if node in plan.joined:
            if self._counts_some(node, value):
                value = value.but(spread=SUM)
            self.event("joined", node, scope, value)
            if value.spread is MEAN or value.spread is SUM and not self._no_grad:
                value = value.but(spread=SAME)
        if operates and value.spread.is_local:
            value = self._with_axes(node, value, scope)
        if node in plan.untaken and value.spread is CROSS:
            value = value.but(spread=ROWS)
        if plan.gathered:
            value = self._gathered(node, value)
        if isinstance(node, ast.Call) and (not self._forward or self._criterion):
            self._note_unfollowed(node, value, scope)
        if value.origins and kind in OF_ROWS and self.is_one_row(value):
            value = self._of_one_row(node, value)
        counted = counted_of(node) if operates else None
        if node in plan.divided:
            value = value.but(spread=COUNT, const=UNKNOWN)
        if self._counts_some(node, value):
            value = value.but(spread=SUM)
        elif counted is not None and not reduced and (found := self._found_by(node, counted)) is not None:
            value = Value(spread=SUM, origins=found.origins)
        if value.origins and any(isinstance(each, Portion) for each in value.origins):
            value = self._portion(node, value)
        if value.origins and (kind is ast.Compare or isinstance(node, ast.Call) and last_name(node.func) in SIGNS):
            value = value.without(Amplified)
        if value.models and (self._no_grad and isinstance(node, (ast.BinOp, ast.Call)) or _is_count(node)):
            value = value.but(models=frozenset())
        if not self._forward:
            value = self._weighed(node, value)
        if node in plan.taken or node in plan.batches:
            value = self._shared_out(node, value, scope)
        if operates and not value.things and value.spread is SAME and calls.is_zero(node, self.latest):
            value = value.but(zero=True)
        if value.things and node in plan.wraps:  # made in the argument of a call
            value = self._planned(node, value)
            self.event("wrapped", node, scope, value)
        return self._kept(node, value, scope)

    def _read(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """Keep what a name, an attribute or a constant is that all ranks have alike, and of which nothing is planned:
        most of all that is evaluated, of which less is to be asked."""
        if self._outcomes and (value.things or value.models):
            value = self._possible(value)
        if (value.things or value.weights) and not self._forward:
            value = self._weighed(node, value)
        return self._kept(node, value, scope)

    def _gathered(self, node: ast.expr, value: Value) -> Value:
        """What is known of a value where the rows that losses compare are those of all ranks."""
        if node in self.plan.gathered:
            if value.spread in (ROWS, COUNT) and not self._no_grad:
                return value.but(spread=SAME, origins=value.origins | {Gathered(node)})
        if (counted := counted_of(node)) is not None and value.spread is SAME:
            return value.but(origins=value.origins | self._lately(counted).origins)
        if isinstance(node, ast.Call) and self.is_gathered(value) and last_name(node.func) in ONE_NUMBER:
            return value.but(origins=frozenset(o for o in value.origins if not isinstance(o, Gathered)))
        return value

    def _is_taken(self, value: Value) -> bool:
        """Whether it is computed from a sample of which a rank has taken its share, in the round that is about it."""
        loops = {loop.node for loop in self._loops if loop.through is not None and loop.through.iter in self.plan.turns}
        return value.spread.is_local and any(isinstance(each, Turn) and each.loop in loops for each in value.origins)

    def _as_row(self, value: Value) -> Value:
        """What a list keeps of a sample of which a rank has taken its share: one of its rows."""
        taken = self.plan.turns and value.spread is LOCAL and not value.things and self._is_taken(value)
        return value.but(spread=ROWS).without(Turn) if taken else value

    def _kept(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        self.latest[node] = value
        if value.const is UNKNOWN and type(node) in (ast.Name, ast.Subscript, ast.Attribute):
            if (spreads := self.spreads.get(node)) is None:
                spreads = self.spreads[node] = set()
            spreads.add(value.spread)
        old = self.values.get(node)
        if old is not value:
            self.values[node] = value if old is None else old | value
        self.sources[node] = scope.source
        return value

    def _with_axes(self, node: ast.expr, value: Value, scope: Scope) -> Value:
        """A value with as many axes as an operation makes."""
        if isinstance(node, ast.Call) and calls.is_entered(node, self._lately):
            return value
        self._note_squeezed(node, value, scope)
        if value.things or value.spread not in (ROWS, Spread.COLUMNS) or value.axes is not None:
            return value
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) and self._gives_pair(node.value):
            return value.but(axes=3) if isinstance(node.slice, ast.Constant) and node.slice.value == 0 else value
        if isinstance(node, ast.Subscript) and self._takes_one(node):
            return value
        layers = objects_called(self._lately(node.func)) if isinstance(node, ast.Call) else []
        if not layers:
            found = axes.computed(node, self._axes_of)
        elif all(each.cls is None for each in layers) and isinstance(node, ast.Call) and node.args:
            outputs = {axes.through(each, self._axes_of(node.args[0]), self.given_axes) for each in layers}
            found = outputs.pop() if len(outputs) == 1 else None
        else:
            found = None
        return value if found is None else value.but(axes=found)

    def _takes_one(self, node: ast.Subscript) -> bool:
        """Whether an index takes one of the samples, `out[0]`, whose axes are laid beside those of each other one."""
        first = first_index(node)
        return self._lately(node.value).spread is ROWS and self._axes_of(first) == 0

    def _note_squeezed(self, node: ast.expr, value: Value, scope: Scope) -> None:
        """`model(x).squeeze()`, which drops the axis of the samples as well, should there be one of them."""
        if not isinstance(node, ast.Call) or last_name(node.func) != "squeeze" or node.keywords or value.things:
            return
        given = [each for each in operands(node) if not self._lately(each).things]
        if len(given) == 1:
            self.event("squeezed", node, scope, value)

    def _gives_pair(self, call: ast.Call) -> bool:
        """Whether a recurrent layer is called."""
        layers = objects_called(self._lately(call.func))
        return bool(layers) and all(map(axes.gives_pair, layers))

    def _axes_of(self, node: ast.expr) -> int | None:
        value = self._lately(node)
        return 0 if isinstance(value.const, (int, float)) and not isinstance(value.const, bool) else value.axes

    def _counts_some(self, node: ast.expr, value: Value) -> bool:
        """Whether it is a number of nodes, of which ranks have more or fewer: `len(data.x)`."""
        if value.spread is not COUNT or not value.origins:
            return False
        counted = counted_of(node)
        of_nodes = isinstance(counted, ast.Attribute) and counted.attr in FIELDS_OF_NODES | {"batch"}
        return of_nodes and any(isinstance(o, Object) and o.name.startswith(OF_GRAPHS) for o in value.origins)

    def _found_by(self, node: ast.expr, counted: ast.expr) -> Value | None:
        """The condition on a rank's samples of which it is counted how often it holds: `len(np.where(hits)[0])`,
        `hits.nonzero().size(0)`."""
        if _counts_later_axis(node):
            return None
        for _ in range(6):
            made = self._lately(counted).made if isinstance(counted, ast.Name) else ()
            if len(made) == 1:
                ((_, counted),) = made
            elif isinstance(counted, ast.Subscript) and literal_int(counted.slice) == 0:
                counted = counted.value
            elif isinstance(counted, ast.Call) and isinstance(counted.func, ast.Attribute):
                if last_part(counted.func) in picking.PLACES:
                    break
                if last_part(counted.func) not in FORMS | {"tolist"}:
                    return None
                counted = counted.func.value
            else:
                return None
        else:
            return None
        options = {each.value for each in counted.keywords}  # `as_tuple=False`, and no `where(found, 2.0, 1.0)`
        given = [self._lately(each) for each in operands(counted) if each not in options]
        given = [each for each in given if not each.things]
        rows = given[0] if len(given) == 1 else NOTHING
        return rows if rows.spread is ROWS and not rows.models and rows.origins else None

    def _of_one_row(self, node: ast.expr, value: Value) -> Value:
        """What is computed from one sample alone: each of them has it, whatever axes it is taken along."""
        given = [each for each in map(self._lately, children_of(node)) if each.spread.is_local]
        if value.things or not given or not all(map(self.is_one_row, given)):
            return value
        if value.spread is COUNT:
            return Value(origins=frozenset(each for each in value.origins if isinstance(each, Turn)))  # of its own
        own = value.spread in (MEAN, SUM, LOCAL, Spread.COLUMNS)
        own = own or value.spread is CROSS and all(each.spread is ROWS for each in given)
        return value.but(spread=ROWS) if own else value

    def _chosen(
        self,
        value: Value,
        tests: Sequence[tuple[ast.expr, Value]],
        scope: Scope,
        within: ast.comprehension | None = None,
    ) -> Value:
        """What a list grows by where samples decide whether it does: `if labels[i] != labels[j]: others.append(j)`."""
        found = next(((node, each) for node, each in tests if each.spread is ROWS), None)
        loop = next((loop.node for loop in reversed(self._loops) if loop.by_row), within)
        if found is None or value.spread not in (SAME, ROWS, LOCAL):
            return value
        _, deciding = found
        if value.spread is LOCAL:  # read off one sample: `wrong.append(guess.item())`
            return value if loop is None or value.things else value.but(origins=value.origins | {Turn(loop)})
        if value.spread is ROWS:  # a number of those samples: `[guess for guess, label in pairs if guess != label]`
            return value
        if any(not isinstance(t, Index) for t in value.things):
            return value
        turn = frozenset([Turn(loop)] if loop is not None else [])
        if within is not None and not value.things:  # `1 for guess, label in pairs if guess == label`
            return deciding.but(things=frozenset(), const=UNKNOWN, origins=deciding.origins | turn)
        return deciding.but(things=frozenset(), const=UNKNOWN, spread=LOCAL, origins=deciding.origins | turn)

    def pairs_turn(self, given: Iterable[Value]) -> bool:
        """Whether the sample that a loop has come to meets the others of the batch: `(out - out[i]).pow(2)`."""
        rows = [value for value in given if value.spread is ROWS and not value.things]
        return len({self.is_by_turn(value) for value in rows}) > 1

    def added_up(self, value: Value) -> Value:
        """What comes of a number that each sample has, when all of them have been added."""
        portion = any(isinstance(each, Portion) for each in value.origins)
        return value.but(spread=MEAN if portion else SUM).without(Portion, Turn)

    def _portion(self, node: ast.expr, value: Value) -> Value:
        """What has been divided by the number of samples, where it is added up: the sum is a mean. Whatever else is
        computed from it wants the number of samples of all ranks."""
        if type(node) in OPERATIONS and not self._keeps_factor(node, value):
            changed = value.spread in (MEAN, SUM) and not self.is_by_turn(value)
            return (value.but(spread=LOCAL) if changed else value).without(Portion)
        if value.spread is SUM:
            return value.but(spread=MEAN).without(Portion)
        if value.spread is MEAN and not self.is_by_turn(value):
            return value.but(spread=LOCAL).without(Portion)
        return value

    def _keeps_factor(self, node: ast.expr, value: Value) -> bool:
        """Whether an operation gives twice as much of twice as much: sums, moves, `x * y` of which one is divided by
        the number of samples."""
        if Portion(node) in value.origins:
            return True
        divided = [any(isinstance(each, Portion) for each in self._lately(each).origins) for each in operands(node)]
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, (ast.Mult, ast.MatMult)):
                return not all(divided)
            return isinstance(node.op, (ast.Add, ast.Sub)) or isinstance(node.op, ast.Div) and not divided[1]
        if isinstance(node, ast.Call) and last_name(node.func) in BILINEAR:
            return sum(divided) < 2
        if isinstance(node, ast.Call):
            return calls.is_entered(node, self._lately) or last_name(node.func) in LINEAR
        return not isinstance(node, ast.Compare)

    def _note_unfollowed(self, node: ast.Call, value: Value, scope: Scope) -> None:
        """Note what functions of libraries make of what models computed, of which nothing else is known."""
        given = [self._lately(child) for child in operands(node)]
        rows = [each for each in given if each.spread in (ROWS, Spread.COLUMNS) and not each.things]
        if not rows:
            return
        callee = self._lately(node.func)
        called = {thing.name for thing in callee.things if isinstance(thing, External)}
        if called and all(map(self.catalog.keeps_samples, called)):
            return
        libraries = {name.rpartition(".")[2] for name in called}
        names = libraries or {last_name(node.func)}  # `loss_func(out, y)` after `loss_func = F.cross_entropy`
        if all(map(operations.is_followed, names)) or calls.is_entered(node, self._lately):
            return
        if any(isinstance(thing, (Object, Wrapped)) for thing in callee.things):
            return
        if any(each.models for each in rows) or any(map(operations.gathers, names)):
            self.event("unfollowed", node, scope, value)

    def is_gathered(self, value: Value) -> bool:
        """Whether a value is computed from rows of all ranks that losses compare with each other."""
        return value.spread is SAME and any(
            isinstance(each, Gathered) and each.node in self.plan.gathered for each in value.origins
        )

    def _possible(self, value: Value) -> Value:
        """A value without what is made only where tests come out another way than they do here."""
        if all(map(self._can_be, value.things)) and all(map(self._can_be, value.models)):
            return value
        things = frozenset(thing for thing in value.things if self._can_be(thing))
        models = frozenset(thing for thing in value.models if self._can_be(thing))
        return value if value.things and not things else value.but(things=things, models=models)

    def _can_be(self, thing: Thing) -> bool:
        made = alternatives.owner_of(thing)
        where = self._made_where.get(made) if made is not None else None
        return not where or not alternatives.contradicts(where, self._outcomes)

    def _weighed(self, node: ast.expr, value: Value) -> Value:
        """Outside of forward passes: whether a value is computed from parameters, so that gradients flow to them."""
        if not (value.things or value.weights) and type(node) not in COMPUTING:
            return value
        name = last_part(node) if isinstance(node, ast.Call) else ""
        cut = name in CUTTING or name in SIZES or name in ("float", "int", "bool", "len")
        owners: frozenset[Thing] = frozenset()
        found = value
        if isinstance(node, ast.Attribute):
            if any(isinstance(t, Object) and "parameter" in t.roles for t in value.things):
                held = self.values.get(node.value, NOTHING).things
                owners = frozenset(t for t in held if isinstance(t, Object) and "module" in t.roles)
        elif cut:
            found = value.but(weights=frozenset()) if value.weights else value
        elif type(node) in COMPUTING:
            called = self.values.get(node.func, NOTHING).things if isinstance(node, ast.Call) else ()
            if not any(isinstance(t, Function) for t in called):
                found = self._with_weights(value, node)
        kinds = {type(each) for each in value.things}
        computed = found.weights or Parameters in kinds
        kept = computed or owners or Inside in kinds or OptimizerState in kinds
        if not kept and found is value or any(map(self._is_constructor, self._calls)):
            return value
        if kept:
            self.apart[node] = len(self.events)
        if owners:
            return value.but(weights=owners) if not self._no_grad else value
        if computed and not self._no_grad:
            self.flowing.add(node)
        return found

    def _is_constructor(self, call: Call_) -> bool:
        """Whether a call makes a module: its parameters are its own yet, whole and untrained."""
        function = call.function
        roles = getattr(function.owner, "roles", ())
        return "module" in roles and getattr(function.node, "name", "") == "__init__"

    def _with_weights(self, value: Value, node: ast.expr) -> Value:
        """A value with the modules whose parameters its operands are, or are computed from."""
        if self._no_grad:
            return value
        found = value.weights
        for child in children_of(node):
            operand = self.values.get(child, NOTHING)
            for each in (operand, *self._contents(operand)) if operand.things else (operand,):
                if each.weights:
                    found = found | each.weights
                for thing in each.things:  # a registry of hundreds of functions is come by as often
                    if isinstance(thing, Parameters) and not thing.cut:
                        found = found | {thing.module}
        return value.but(weights=found) if found else value

    def _other(self, node: ast.expr, scope: Scope) -> Value:
        values = [self.eval(child, scope) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return self._mixed(values)

    def _arguments(self, node: ast.Call, scope: Scope) -> tuple[list[Value], dict[str, Value]]:
        args: list[Value] = []
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                value = self.eval(arg.value, scope)
                lists = [t for t in value.things if isinstance(t, Items) and t.parts]
                sizes = {len(each.parts) for each in lists}
                if len(sizes) == 1:
                    args += [self._part(value, index, 0) for index in range(sizes.pop())]
                    later = union(each.element for each in lists)  # what was appended since
                    args += [later] if later is not NOTHING else []
                else:
                    args.append(self._element(value, arg))
            else:
                args.append(self._firm(self._made(self.eval(arg, scope), arg, scope), arg))
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value, scope)
            if keyword.arg is not None:
                keywords[keyword.arg] = self._firm(self._made(value, keyword.value, scope), keyword.value)
                continue
            for thing in value.things:
                if isinstance(thing, Table):
                    keywords.update(
                        {k: v for k, v in thing.entries.items() if isinstance(k, str) and k not in keywords}
                    )
                    value = value | thing.element
            if value.spread.is_local or value.origins or not any(map(is_known, value.things)):
                keywords[REST] = value.but(things=frozenset(), const=UNKNOWN)  # any argument may be among them
        return args, keywords

    def spelled_out(self, node: ast.Call, position: int, tensor: Value) -> ast.Call:
        """A call with the whole numbers that its arguments are sure to be, axes counted from the first one of the
        tensor that it is a method of, or is given ahead of ``position``: `x.norm(2, dim)` as `x.norm(2, 1)`, but not
        `x.norm(2, args.dim)`, which has another default than a run may ask for."""

        def told(each: ast.expr) -> ast.expr:
            value = self._lately(each)
            whole = isinstance(each, (ast.Name, ast.Attribute)) and type(value.const) is int and not value.things
            whole = whole and (value.firm or self._is_literal(each) or self._is_setting(each))
            if whole:
                return ast.copy_location(ast.Constant(value.const), each)
            written = self._bound_to(each) if isinstance(each, ast.Name) else []
            return written[0] if len(written) == 1 and _names_axes(written[0]) else each

        node = self.filled_in(node)
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        if any(isinstance(each, (ast.Name, ast.Attribute)) for each in given):
            keywords = [ast.keyword(keyword.arg, told(keyword.value)) for keyword in node.keywords]
            node = ast.Call(node.func, [told(each) for each in node.args], keywords)
        axes = tensor.axes if not tensor.things and not self.is_one_row(tensor) else None
        return from_front(self._function_name(node), node, position, axes)

    def filled_in(self, node: ast.Call) -> ast.Call:
        """A call with the arguments that `partial` has given to what it calls."""
        return filled_in(node, self.presets.get(node, ()))

    def _function_name(self, node: ast.Call) -> str:
        """The name that a library has for what is called, `softmax` after `from torch import softmax as sm`, or that
        of the call."""
        names = {t.name.rpartition(".")[2] for t in self._lately(node.func).things if isinstance(t, External)}
        return names.pop() if len(names) == 1 else last_part(node.func)

    def _is_setting(self, name: ast.expr) -> bool:
        """Whether an object of the project has it: `self.dim`."""
        holder = self._lately(name.value) if isinstance(name, ast.Attribute) else NOTHING
        return any(isinstance(t, Object) and t.cls is not None for t in holder.things)

    def _is_literal(self, name: ast.expr) -> bool:
        """Whether a name is bound to nothing but numbers that are written there."""
        values = self._bound_to(name)
        return bool(values) and all(map(_is_number, values))

    def _firm(self, value: Value, node: ast.expr) -> Value:
        """A literal passed to a function decides the branches in it."""
        return value.but(firm=True) if isinstance(node, ast.Constant) else value

    def _made(self, value: Value, node: ast.expr, scope: Scope) -> Value:
        """A local value remembers the expression that computed it."""
        if not value.spread.is_local or isinstance(node, (ast.Name, ast.Attribute)) and value.made:
            return value
        return value.but(made=frozenset([(scope.source, node)]))


def _counts_later_axis(node: ast.expr) -> bool:
    """`found.size(1)`, `found.shape[1]`"""
    if isinstance(node, ast.Subscript):
        return literal_int(node.slice) != 0
    return isinstance(node, ast.Call) and last_name(node.func) == "size" and [*map(literal_int, node.args)] != [0]


def _is_count(node: ast.expr) -> bool:
    """Whether no gradient flows through a call, since it gives numbers of classes."""
    return isinstance(node, ast.Call) and last_part(node) in COUNTING


def _is_number(node: ast.expr) -> bool:
    """A whole number as it is written, `-1` as well."""
    inner = node.operand if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else node
    return isinstance(inner, ast.Constant) and type(inner.value) is int


def _names_axes(node: ast.expr) -> bool:
    """`(1, 2)`, `tuple(range(1, x.dim()))`: several axes, the first of which is written there."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return bool(node.elts) and all(map(_is_number, node.elts))
    if isinstance(node, ast.Call) and last_name(node.func) in ("tuple", "list") and len(node.args) == 1:
        node = node.args[0]
    counts = isinstance(node, ast.Call) and last_name(node.func) == "range"
    return isinstance(node, ast.Call) and counts and len(node.args) > 1 and _is_number(node.args[0])
