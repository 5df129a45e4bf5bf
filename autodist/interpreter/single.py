"""Whether a value is one tensor, or may be a tuple or a list of several."""

from __future__ import annotations

import ast

from autodist.interpreter.questions import last_part, literal_int
from autodist.interpreter.whole_data import WholeData
from autodist.interpreter.words import MOVES
from autodist.source import argument, last_name, operands
from autodist.spread import ROWS
from autodist.tensors.picking import FORMS
from autodist.tensors.rowwise import ELEMENTWISE, FOLDING, LAYERS, PER_ROW
from autodist.values import NOTHING, Class, External, Function, Object, Value, Wrapped

SINGLE = frozenset(f"torch.nn.{name}" for name in LAYERS | FOLDING | {"Sequential"})
"""Modules of torch that give one tensor."""
JOINING = ELEMENTWISE | PER_ROW | MOVES | FORMS | frozenset("softmax log_softmax normalize cat pad".split())
"""Functions and methods that give one tensor."""


class Single(WholeData):
    """Which values are one tensor."""

    def gives_tensor(self, node: ast.expr, value: Value, depth: int = 6) -> bool:
        """Whether what models computed is one tensor: a model may give a tuple."""
        made = [each for _, each in value.made] if isinstance(node, ast.Name) else [node]
        return bool(made) and depth > 0 and all(self._makes_tensor(each, depth) for each in made)

    def _makes_tensor(self, node: ast.expr, depth: int) -> bool:
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.BinOp)
        called = (t.module if isinstance(t, Wrapped) else t for t in self._lately(node.func).things)
        modules = [t for t in called if isinstance(t, Object) and "module" in t.roles]
        if not modules:
            layers = {t.name for t in self._lately(node.func).things if isinstance(t, External)}
            return last_part(node.func) in JOINING or bool(layers) and layers <= SINGLE  # made for a sequence
        return all(t.name in SINGLE if t.cls is None else self._returns_tensor(t.cls, depth - 1) for t in modules)

    def _returns_tensor(self, cls: Class, depth: int) -> bool:
        """Whether the forward pass of a model returns one tensor, wherever it does."""
        _, forward = cls.find("forward") or (cls, NOTHING)
        bodies = [t.node for t in forward.things if isinstance(t, Function)]
        found = [each.value for body in bodies for each in ast.walk(body) if isinstance(each, ast.Return)]
        given = [(each, self._lately(each)) for each in found if each is not None]
        one = all(not value.things and self.gives_tensor(each, value, depth) for each, value in given)
        return bool(given) and len(given) == len(found) and one

    def _is_tensor(self, node: ast.expr, value: Value) -> bool:
        """Whether samples are in a tensor, as after `images.cpu()`: a batch may still be a list of fields."""
        made = [each for _, each in value.made] if isinstance(node, ast.Name) else [node]
        names = {each.func.attr for each in made if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)}
        return not value.models and bool(made) and len(names) == len(made) and names <= MOVES | {"detach", "clone"}

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
        calls = (event.node for event in self.events if event.kind == "loader")
        given = [argument(each, "batch_size", 1) for each in calls if isinstance(each, ast.Call)]
        names = {last_name(each) for each in given if isinstance(each, (ast.Name, ast.Attribute))}
        numbers = {each.value for each in given if isinstance(each, ast.Constant)}
        parts = [each for each in ast.walk(node) if isinstance(each, ast.expr)]
        named = any(isinstance(each, (ast.Name, ast.Attribute)) and last_name(each) in names for each in parts)
        return named or any(isinstance(each, ast.Constant) and each.value in numbers for each in parts)
