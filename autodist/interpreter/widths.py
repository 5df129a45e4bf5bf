"""How many numbers each sample has along its last axis, as far as layers and parameters tell."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable

from autodist.interpreter.attributes import Attributes
from autodist.interpreter.questions import last_part, objects_called
from autodist.source import indices, operands
from autodist.spread import ROWS
from autodist.tensors import axes
from autodist.values import Function, Object, Thing, Value, Wrapped

PRODUCTS = frozenset("matmul mm bmm".split())
MAKING = frozenset("randn rand zeros ones empty Tensor FloatTensor normal uniform".split())

CHANNELWISE = frozenset(
    "BatchNorm2d BatchNorm3d InstanceNorm2d Dropout2d MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d "
    "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d".split()
)
"""What leaves as many channels as it is given."""
ARITHMETIC: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


class Widths(Attributes):
    """The last axis of what layers and products give."""

    def _widths(self, node: ast.expr, depth: int = 10) -> set[int]:
        """How many numbers something has along its last axis, of whichever layers it may come from."""
        if not depth:
            return set()
        made = [each for _, each in self._lately(node).made if each is not node]
        if isinstance(node, (ast.Name, ast.Attribute)):
            return set[int]().union(*(self._widths(each, depth - 1) for each in made))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            return self._sized(node.right, -1)
        if isinstance(node, ast.BinOp):
            return self._widths(node.left, depth - 1) | self._widths(node.right, depth - 1)
        if isinstance(node, ast.Subscript):
            parts = indices(node)
            behind = (self._lately(node.value).axes or 0) > len(parts)
            behind = behind or isinstance(node.value, ast.Call) and self._gives_pair(node.value)
            return self._widths(node.value, depth - 1) if behind else set()
        if not isinstance(node, ast.Call):
            return set()
        things = [t.module if isinstance(t, Wrapped) else t for t in self._lately(node.func).things]
        layers = [t for t in things if isinstance(t, Object) and t.cls is None]
        own = [] if layers else self._made_here(node)  # a layer of a sequence, where it is made
        if layers or own:
            given = self._widths(node.args[0], depth - 1) if node.args and layers else set[int]()
            layers = layers or own
            return set[int]().union(*(axes.widths(each, given) for each in layers))
        if any(isinstance(t, (Object, Function)) for t in things):  # of the project
            return set[int]().union(*(self._widths(each, depth - 1) for each in made))
        product = self._product(node)
        if product is not None:
            return product
        tensor = next((each for each in operands(node) if self._lately(each).spread is ROWS), None)
        if tensor is not None and self._leaves_channels(node, tensor):
            return self._channels(tensor, depth - 1)
        keeps = last_part(node.func) in axes.ALIKE - {"linear", "t", "transpose", "swapaxes"}
        return self._widths(tensor, depth - 1) if tensor is not None and keeps else set()

    def _width(self, value: Value) -> int | None:
        """How many numbers the last layer of a model gives, if that can be read."""
        models = [t.module if isinstance(t, Wrapped) else t for t in value.models]
        model = models[0] if len(models) == 1 else None
        if not isinstance(model, Object):
            return None
        last: Iterable[Thing] = [model]
        if model.name.endswith("nn.Sequential"):
            last = [thing for given in model.args[-1:] for thing in given.things]
        elif model.cls is not None:
            returned = _returned(model)
            last = self._lately(returned.func).things if isinstance(returned, ast.Call) else ()
        layers = [each for each in last if isinstance(each, Object) and each.name == "torch.nn.Linear"]
        widths = {told.const for each in layers if (told := each.argument("out_features", 1)) is not None}
        width = widths.pop() if len(widths) == 1 else None
        return width if isinstance(width, int) else None

    def _product(self, node: ast.Call) -> set[int] | None:
        """`torch.matmul(x, self.weight)`, `F.linear(x, self.weight)`; nothing of other calls."""
        name = last_part(node.func)
        given = operands(node)
        method = isinstance(node.func, ast.Attribute) and self._lately(node.func.value).spread is ROWS
        weight = given[1 if method else 2] if len(given) > (1 if method else 2) else None
        if weight is None or name not in PRODUCTS | {"linear"}:
            return None
        return self._sized(weight, 0 if name == "linear" else -1)

    def _made_here(self, node: ast.expr) -> list[Object]:
        """The layer of torch that a call makes."""
        return [t for t in self._lately(node).things if isinstance(t, Object) and t.name.startswith("torch.nn.")]

    def _is_of_untold_width(self, node: ast.expr) -> bool:
        """Whether a layer gave it, one axis of numbers for each sample, and does not tell how many."""
        made = [each for _, each in self._lately(node).made] or [node]
        calls = [each for each in made if isinstance(each, ast.Call)]
        layers = [t for each in calls for t in (*objects_called(self._lately(each.func)), *self._made_here(each))]
        linear = bool(layers) and all(each.name == "torch.nn.Linear" for each in layers)
        return linear and self._is_flat(node) and not self._widths(node)

    def _is_flat(self, node: ast.expr) -> bool:
        """Whether the numbers of each sample lie along one axis, also after a product with a matrix."""
        if self._lately(node).axes == 2:
            return True
        made = [each for _, each in self._lately(node).made] if isinstance(node, ast.Name) else []
        node = made[0] if len(made) == 1 else node
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) and len(self._sizes(node.right)) == 2:
            return self._is_flat(node.left)
        return self._lately(node).axes == 2

    def _sized(self, node: ast.expr, axis: int) -> set[int]:
        """How long an axis of a parameter is."""
        sizes = self._sizes(node)
        size = sizes[axis] if sizes else None
        return {size} if size is not None else set()

    def _sizes(self, node: ast.expr, depth: int = 6) -> list[int | None]:
        """The sizes of a parameter, or of what one is made of: `nn.Parameter(torch.randn(6, 4) * 0.1)`."""
        if not depth:
            return []
        if isinstance(node, (ast.Name, ast.Attribute)) and not _turns(node):
            value = self._lately(node)
            parameters = [each.node for each in value.objects("parameter") if each.node.args]
            made = [each.args[0] for each in parameters] or [each for _, each in value.made if each is not node]
            return self._sizes(made[0], depth - 1) if len(made) == 1 else []
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
            return self._sizes(node.left, depth - 1) or self._sizes(node.right, depth - 1)
        if isinstance(node, ast.Attribute):
            return self._sizes(node.value, depth - 1)[::-1]
        if not isinstance(node, ast.Call):
            return []
        name, receiver = last_part(node.func), getattr(node.func, "value", None)
        if name in MAKING and node.args:
            sizes = node.args[0].elts if isinstance(node.args[0], (ast.Tuple, ast.List)) else node.args
            return [self._told(each) for each in sizes]
        if name == "Parameter" and node.args or name.endswith("_") and node.args and ".init." in ast.unparse(node.func):
            return self._sizes(node.args[0], depth - 1)
        if _turns(node.func) and receiver is not None and not node.args:
            return self._sizes(receiver, depth - 1)[::-1]
        alike = name in axes.ALIKE or name.endswith("_")
        return self._sizes(receiver, depth - 1) if alike and receiver is not None else []

    def _worked_out(self, node: ast.expr, named: int | None = None) -> int | None:
        """The number that an expression stands for, `(size // 8) ** 2 * width`, if what is not known of it were
        ``named``."""
        if not isinstance(node, ast.BinOp) or type(node.op) not in ARITHMETIC:
            told = self._told(node)
            return told if told is not None or not isinstance(node, (ast.Name, ast.Attribute)) else named
        left, right = self._worked_out(node.left, named), self._worked_out(node.right, named)
        if left is None or right is None or right <= 0 or isinstance(node.op, ast.Pow) and right > 4:
            return None
        return ARITHMETIC[type(node.op)](left, right)

    def _told(self, node: ast.expr) -> int | None:
        const = self._lately(node).const if not isinstance(node, ast.Constant) else node.value
        return const if isinstance(const, int) and not isinstance(const, bool) else None

    def _leaves_channels(self, node: ast.Call, tensor: ast.expr) -> bool:
        """Whether only channels are left of what a convolution gives: `.mean(2)`, `.squeeze(2)`, `.mean((2, 3))`."""
        given = self._lately(tensor).axes
        written = [each for each in [*node.args, *(k.value for k in node.keywords)] if each is not tensor]
        if last_part(node.func) not in ("mean", "sum", "amax", "squeeze") or len(written) != 1 or given is None:
            return False
        named = written[0].elts if isinstance(written[0], (ast.Tuple, ast.List)) else written
        numbers = {int(ast.unparse(each)) % given for each in named if ast.unparse(each).lstrip("-").isdigit()}
        return given > 2 and numbers == {*range(2, given)}

    def _channels(self, node: ast.expr, depth: int) -> set[int]:
        """How many channels a convolution gives, also through what keeps them."""
        told = [each.argument("out_channels", 1) for each in self._convolutions(node, depth)]
        return {each.const for each in told if each is not None and isinstance(each.const, int)}

    def _convolutions(self, node: ast.expr, depth: int = 10) -> list[Object]:
        """The layers of whose channels something still has all."""
        if not depth:
            return []
        if isinstance(node, (ast.Name, ast.Attribute)):
            made = [each for _, each in self._lately(node).made if each is not node]
            return [found for each in made for found in self._convolutions(each, depth - 1)]
        if not isinstance(node, ast.Call):
            return []
        layers = [t for t in self._lately(node.func).things if isinstance(t, Object) and t.cls is None]
        found = [each for each in layers if each.kind.startswith("Conv")]
        if found:
            return found
        short = {each.kind for each in layers} or {last_part(node.func)}
        tensor = next((each for each in operands(node) if self._lately(each).spread is ROWS), None)
        keeps = short <= axes.KEEPING - {"Linear"} | axes.ALIKE | CHANNELWISE
        return self._convolutions(tensor, depth - 1) if tensor is not None and keeps else []


def _turns(node: ast.expr) -> bool:
    """`weight.T`, `weight.t()`"""
    return isinstance(node, ast.Attribute) and node.attr in ("t", "T")


def _returned(module: Object) -> ast.expr | None:
    """What a forward pass returns, if it does so in one place."""
    bodies = [each.node for each in module.functions("forward")]
    returns = [n.value for body in bodies for n in ast.walk(body) if isinstance(n, ast.Return)]
    return returns[0] if len(returns) == 1 else None
