"""Whether a value is one tensor, or may be a tuple or a list of several."""

from __future__ import annotations

import ast

from autodist.interpreter.questions import last_part, literal_int, objects_called
from autodist.interpreter.whole_data import WholeData
from autodist.interpreter.words import MOVES
from autodist.source import Source, all_of, argument, first_index, last_name, operands, walk
from autodist.spread import COUNT, LOCAL, ROWS, SAME
from autodist.tensors import facts, operations, picking
from autodist.tensors.calls import number_of
from autodist.tensors.facts import ELEMENTWISE, FOLDING, LAYERS, PER_ROW
from autodist.tensors.picking import FORMS
from autodist.values import Class, External, Index, Object, Value, Wrapped

SINGLE = frozenset(f"torch.nn.{name}" for name in LAYERS | FOLDING | {"Sequential"})
"""Modules of torch that give one tensor."""
JOINING = (
    ELEMENTWISE
    | PER_ROW
    | MOVES
    | FORMS
    | frozenset("softmax log_softmax normalize argmax argmin tolist cat pad mean sum amax amin logsumexp norm".split())
)
"""Functions and methods that give one tensor."""

PAIRS = frozenset("max min sort topk median mode kthvalue cummax cummin".split())
"""Functions and methods that give values and their places, where they are told an axis or how many."""

OF_TENSORS = FORMS | frozenset("size shape dim ndim numel dtype".split())
"""What a tensor has, and a list has not."""


class Single(WholeData):
    """Which values are one tensor."""

    def gives_tensor(self, node: ast.expr, value: Value, depth: int = 6) -> bool:
        """Whether what models computed is one tensor: a model may give a tuple."""
        made = [each for _, each in value.made] if isinstance(node, ast.Name) else [node]
        unpacked = {each for source, each in value.made if _is_unpacked(each, source)} & {*made}
        return bool(made) and depth > 0 and all(e in unpacked or self._makes_tensor(e, depth) for e in made)

    def _makes_tensor(self, node: ast.expr, depth: int) -> bool:
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.BinOp) or _is_of_pair(node)
        called = (t.module if isinstance(t, Wrapped) else t for t in self._lately(node.func).things)
        modules = [t for t in called if isinstance(t, Object) and "module" in t.roles]
        if not modules:
            layers = {t.name for t in self._lately(node.func).things if isinstance(t, External)}
            return last_part(node.func) in JOINING or bool(layers) and layers <= SINGLE  # made for a sequence
        return all(t.name in SINGLE if t.cls is None else self._returns_tensor(t.cls, depth - 1) for t in modules)

    def _returns_tensor(self, cls: Class, depth: int) -> bool:
        """Whether the forward pass of a model returns one tensor, wherever it does."""
        bodies = [each.node for each in cls.functions("forward")]
        found = [each.value for body in bodies for each in all_of(body, ast.Return)]
        given = [(each, self._lately(each)) for each in found if each is not None]
        one = all(not value.things and self.gives_tensor(each, value, depth) for each, value in given)
        return bool(given) and len(given) == len(found) and one

    def _is_tensor(self, node: ast.expr, value: Value) -> bool:
        """Whether samples are in a tensor, as after `images.cpu()`: a batch may still be a list of fields, and a field
        a list of views."""
        if not value.models and not value.things:
            if value.axes is not None or isinstance(node, ast.Name) and self._is_used_as_tensor(node):
                return True
        made = [each for _, each in value.made] if isinstance(node, ast.Name) else [node]
        names = {each.func.attr for each in made if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)}
        return not value.models and bool(made) and len(names) == len(made) and names <= MOVES | {"detach", "clone"}

    def _is_at_place(self, index: ast.expr, holder: ast.expr, base: Value) -> bool:
        """Whether one sample is taken by its place, `images[0]`, `images[-1]`, also as a loop goes over places that are
        the same on all ranks: `for i in range(6): show(images[i])`."""
        if number_of(index) is not None:
            one = self._is_tensor(holder, base) or self._is_picked_by_condition(holder)
            return one and not self._is_recurrent_state(holder)
        value = self._lately(index)
        if base.spread is ROWS and self._is_one_number(index, value):
            return self._is_tensor(holder, base)
        loops = [thing.loop for thing in value.things if isinstance(thing, Index)]
        calls = [each for each in loops if isinstance(each, ast.Call) and last_part(each) == "range"]
        same = all(self._lately(bound).spread is SAME for each in calls for bound in each.args)
        if not calls or len(calls) != len(value.things) or not same or value.spread is not SAME:
            return False
        return self._is_tensor(holder, base) or self.gives_tensor(holder, base)

    def _is_one_number(self, index: ast.expr, value: Value) -> bool:
        """Whether an index is one place that is computed: `losses.argmax()`, `len(x) // 2`, `random.randrange(n)`, also
        by a name."""
        if value.things:
            return False
        if value.spread is COUNT:
            return True
        found = self._bound_to(index) if isinstance(index, ast.Name) else [index]
        return bool(found) and all(map(self._gives_place, found))

    def _gives_place(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("item", "cpu"):
            node = node.func.value
        if not isinstance(node, ast.Call):
            return False
        names = {t.name for t in self._lately(node.func).things if isinstance(t, External)}
        if names and names <= {"random.randrange", "random.randint"}:
            return True
        bound = isinstance(node.func, ast.Attribute) and not names
        return last_part(node.func) in ("argmax", "argmin") and operations.axis(node, 0 if bound else 1) is None

    def _bound_to(self, name: ast.expr) -> list[ast.expr]:
        """What a name is bound to in its function, where nothing but plain assignments binds it."""
        source = self.sources.get(name)
        if source is None or not isinstance(name, ast.Name):
            return []
        bound = [source.parents[each] for each in source.stores(name)]
        values = [each.value for each in bound if isinstance(each, ast.Assign)]
        return values if len(values) == len(bound) else []

    def _is_picked_by_condition(self, holder: ast.expr) -> bool:
        """`x[out != y]`, of which the first sample on a rank is another one than that of the whole batch"""
        made = [each for _, each in self._lately(holder).made] if isinstance(holder, ast.Name) else [holder]
        chosen = [each for each in made if isinstance(each, ast.Subscript)]
        return (
            bool(chosen)
            and len(chosen) == len(made)
            and all(
                self._lately(each.slice).spread is ROWS and picking.is_condition(each.slice, self._lately)
                for each in chosen
            )
        )

    def _is_recurrent_state(self, holder: ast.expr) -> bool:
        """Whether its first axis is that of layers, as of `h` in `output, h = self.gru(x)` and `output, (h, c) =
        self.lstm(x)`: `h[-1]` has all samples."""
        source = self.sources.get(holder)
        if not isinstance(holder, ast.Name) or source is None:
            return False
        before = [each for each in source.stores(holder) if each.lineno < holder.lineno]
        last = max(before, key=lambda each: (each.lineno, each.col_offset), default=None)
        statement = source.statement(last) if last is not None else None
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            return False
        target = statement.targets[0]
        called = self._lately(statement.value.func).things
        recurrent = bool(called) and all(isinstance(t, Object) and t.kind in facts.RECURRENT for t in called)
        return recurrent and isinstance(target, ast.Tuple) and last in set(walk(target.elts[-1]))

    def is_one_sample(self, node: ast.expr) -> bool:
        """Whether a sample is taken by its place, `images[0]`, which is as large as any other."""
        if not isinstance(node, ast.Subscript) or self._lately(node).spread is not LOCAL:
            return False
        first = first_index(node)
        held, number = self._lately(node.value), self._lately(first)
        counted = bool(number.things) and all(isinstance(each, Index) for each in number.things)
        return held.spread is ROWS and not held.things and (number_of(first) is not None or counted)

    def _is_used_as_tensor(self, name: ast.Name) -> bool:
        """Whether a field of a batch, bound once, is a tensor by what else is done with it: `images.size(0)`,
        `model(images)`."""
        source = self.sources.get(name)
        if source is None:
            return False
        home = source.home(name)
        named = [each for each in all_of(home, ast.Name) if each.id == name.id]
        bound = [each for each in named if isinstance(each.ctx, ast.Store)]
        if len(bound) != 1:
            return False
        field = isinstance(source.parents[bound[0]], (ast.Tuple, ast.List))  # a model may be given a whole batch, too
        return any(self._wants_tensor(each, source.parents[each], field) for each in named)

    def _wants_tensor(self, name: ast.Name, parent: ast.AST, field: bool) -> bool:
        if isinstance(parent, ast.Attribute):
            return parent.attr in OF_TENSORS
        if not field or not isinstance(parent, ast.Call) or parent.args != [name] or parent.keywords:
            return False
        return any("module" in each.roles for each in objects_called(self._lately(parent.func)))

    def splits_by_number(self, node: ast.AST) -> bool:
        """`out.split(4)`, `torch.split(out, 4)`: parts of so many samples, of which a rank has fewer."""
        if not isinstance(node, ast.Call) or last_part(node.func) != "split" or not node.args:
            return False
        held = next((each for each in operands(node) if self._lately(each).spread is ROWS), None)
        rest = node.args[1:] if held is node.args[0] else node.args
        along = argument(node, "dim", 2 if held is node.args[0] else 1)
        if held is None or not rest or along is not None and literal_int(along) != 0:
            return False
        size = self._lately(rest[0])
        return isinstance(size.const, int) and size.const > 0 and not self.is_batch_size(rest[0])

    def is_batch_size(self, node: ast.expr) -> bool:
        """Whether a number is that of the samples of a loader's batch, or several times as much: `2 * batch_size`."""
        given = [argument(each, "batch_size", 1) for each in self.loader_calls if isinstance(each, ast.Call)]
        names = {last_name(each) for each in given if isinstance(each, (ast.Name, ast.Attribute))}
        numbers = {each.value for each in given if isinstance(each, ast.Constant)}
        parts = list(all_of(node, ast.expr))
        named = any(isinstance(each, (ast.Name, ast.Attribute)) and last_name(each) in names for each in parts)
        return named or any(isinstance(each, ast.Constant) and each.value in numbers for each in parts)


def _is_pair(node: ast.expr) -> bool:
    """`out.max(1)`, `torch.sort(out, dim=1)`"""
    return isinstance(node, ast.Call) and last_part(node.func) in PAIRS and bool(node.args or node.keywords)


def _is_of_pair(node: ast.expr) -> bool:
    """`out.max(1)[1]`, `out.topk(5).indices`"""
    if isinstance(node, ast.Subscript):
        return literal_int(node.slice) in (0, 1, -1) and _is_pair(node.value)
    return isinstance(node, ast.Attribute) and node.attr in ("values", "indices") and _is_pair(node.value)


def _is_unpacked(node: ast.expr, source: Source) -> bool:
    """`_, guesses = out.max(1)`"""
    statement = source.parents.get(node)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return _is_pair(node) and any(isinstance(each, (ast.Tuple, ast.List)) for each in targets)
