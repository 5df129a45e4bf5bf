"""What is an array, and how many axes it has, of what is computed from tensors that hold all of the data."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from autodist.source import counted_of, first_index, indices
from autodist.spread import COUNT, ROWS
from autodist.tensors.calls import (
    Latest,
    axis_of,
    called_name,
    is_entered,
    is_list,
    layers_of,
    library,
    number_of,
    parts_inside,
    shape_asked,
    size_asked,
)
from autodist.tensors.facts import (
    ALONG,
    CONVERTING,
    CREATING,
    ELEMENTWISE,
    LAYERS,
    LOSSES,
    NEW,
    PICKING,
    PRODUCTS,
    QUESTIONS,
    RANDOM_SIZES,
    STACKS,
)
from autodist.values import NOTHING, UNKNOWN, External, Index, Items, Object, Table, Value


def has_one_row(node: ast.expr, latest: Latest) -> bool:
    """`x[None]`, `x.unsqueeze(0)`, `torch.tensor([x])`: a batch of one sample, made so in the source."""
    if isinstance(node, ast.Subscript):
        first = first_index(node)
        return latest(node.value).array and adds_axis(first, latest)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if library(node, latest) is None:
        added = node.func.attr in ("unsqueeze", "expand_dims") and axis_of(node, node.args) == 0
        return latest(node.func.value).array and added
    if node.func.attr == "unsqueeze":
        return axis_of(node, node.args[1:]) == 0
    if node.func.attr in CONVERTING and node.args:
        lists = [t for t in latest(node.args[0]).things if isinstance(t, Items)]
        for each in lists[:1] if len(lists) == 1 else []:
            whole = isinstance(each.node, ast.List) and each.element is NOTHING
            return whole and len(each.parts) == 1 and each.parts[0].const is UNKNOWN
    return False


def shaped(node: ast.expr, value: Value, latest: Latest, called: bool) -> Value:
    """``value`` with what is known of its shape; ``called`` if ``node`` names a method that is called."""
    if called or isinstance(node, (ast.Name, ast.Constant)):
        return value
    name = library(node, latest) if isinstance(node, ast.Call) else None
    if value.things and not (name or "").startswith("torch.nn.functional."):
        return value
    array, axes, least = value.array, value.axes, _least(node, latest)
    if isinstance(node, ast.Attribute):
        base = latest(node.value)
        if base.things:
            return value  # what an object holds
        array = base.array and node.attr in ("data", "grad", "real", "T", "mT", "values")
        axes = base.axes if array else None
    elif isinstance(node, ast.Call):
        if is_entered(node, latest):
            return value
        if (name or "").startswith("torch.distributions."):
            return value.but(array=False, axes=None)  # what is drawn from it is a tensor
        array, axes = _call(node, latest)
    elif isinstance(node, ast.Subscript):
        if any(isinstance(t, (Items, Table)) for t in latest(node.value).things):
            return value  # what a container holds
        array, axes = _indexed(node, latest)
    elif isinstance(node, ast.BinOp):
        left, right = latest(node.left), latest(node.right)
        array = left.array or right.array
        known = [each.axes for each in (left, right) if each.array]
        axes = max(a for a in known if a is not None) if known and None not in known else None
        if isinstance(node.op, ast.MatMult):
            axes = _product_axes(left.axes, right.axes)
    elif isinstance(node, ast.UnaryOp):
        array, axes = latest(node.operand).array, latest(node.operand).axes
    elif isinstance(node, ast.Compare):
        parts = [latest(node.left), *map(latest, node.comparators)]
        arrays = [part.axes for part in parts if part.array]
        array, axes = bool(arrays), max(a for a in arrays if a is not None) if arrays and None not in arrays else None
    if (array, axes, least) == (value.array, value.axes, value.least):
        return value
    return value.but(array=array, axes=axes, least=least)


def _least(node: ast.expr, latest: Latest) -> int:
    """How many axes a tensor has at least whose axes are exchanged, `x.transpose(1, 3)`, and what is computed from
    it number by number."""
    if isinstance(node, ast.BinOp):
        sides = [surely(latest(each)) for each in (node.left, node.right)]
        return max(sides) if not isinstance(node.op, ast.MatMult) or min(sides) > 1 else 0
    if not isinstance(node, ast.Call) or is_entered(node, latest):
        return 0
    layers = layers_of(node, latest)
    if layers:
        if node.args and all(layer.kind == "Embedding" for layer in layers):
            return max(surely(latest(node.args[0])), 1) + 1
        keep = all(layer.cls is None and layer_axes(layer, 0) == 0 for layer in layers)
        return surely(latest(node.args[0])) if keep and node.args else 0
    method = isinstance(node.func, ast.Attribute) and library(node, latest) is None
    if called_name(node) == "pad" and not method and node.args:
        return surely(latest(node.args[0]))
    given = [node.func.value, *node.args] if method else node.args  # type: ignore[attr-defined]
    if called_name(node) in ELEMENTWISE | {"softmax", "log_softmax"} and given:
        return surely(latest(given[0]))
    if called_name(node) in PRODUCTS and len(given) > 1:
        sides = [surely(latest(each)) for each in given[:2]]
        return max(sides) if min(sides) > 1 else 0
    if called_name(node) not in ("transpose", "swapaxes", "permute"):
        return 0
    rest = node.args if method else node.args[1:]
    named = [number_of(each) for each in (rest[0].elts if is_list(rest) else rest)]  # type: ignore[attr-defined]
    return max((at + 1 if at >= 0 else -at for at in named if at is not None), default=0)


def surely(value: Value) -> int:
    """How many axes a tensor has at least."""
    return max(value.axes or 0, value.least)


def told_axes(test: ast.expr) -> dict[str, int]:
    """How many axes the variables have where a condition holds: `if len(x.shape) == 3 and ...`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return {name: axes for part in test.values for name, axes in told_axes(part).items()}
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return {}
    asked, axes = test.left, number_of(test.comparators[0])
    if isinstance(asked, ast.Call) and isinstance(asked.func, ast.Name) and asked.func.id == "len" and asked.args:
        tensor = size_asked(asked.args[0])
    elif (
        isinstance(asked, ast.Call)
        and isinstance(asked.func, ast.Attribute)
        and asked.func.attr in ("dim", "ndimension")
    ):
        tensor = asked.func.value
    else:
        tensor = asked.value if isinstance(asked, ast.Attribute) and asked.attr == "ndim" else None
    return {tensor.id: axes} if isinstance(tensor, ast.Name) and axes is not None else {}


def unpacked_axes(node: ast.Assign) -> dict[str, int]:
    """How many axes a variable has of which a statement takes all sizes: `batch, length, width = x.shape`."""
    tensor = size_asked(node.value)
    counts = {
        len(each.elts)
        for each in node.targets
        if isinstance(each, (ast.Tuple, ast.List)) and not any(isinstance(part, ast.Starred) for part in each.elts)
    }
    return {tensor.id: counts.pop()} if isinstance(tensor, ast.Name) and len(counts) == 1 else {}


def _call(node: ast.Call, latest: Latest) -> tuple[bool, int | None]:
    layers = layers_of(node, latest)
    given = [latest(arg) for arg in node.args]
    if layers:
        inner = given[0].axes if given else None
        axes = {layer_axes(layer, inner) for layer in layers}
        return True, axes.pop() if len(axes) == 1 else None
    name = library(node, latest)
    method = isinstance(node.func, ast.Attribute) and name is None
    short = called_name(node) if name is None else name.rpartition(".")[2]
    if name is not None and not name.startswith(("torch.", "numpy.")):
        return False, None
    if method:
        assert isinstance(node.func, ast.Attribute)
        base = latest(node.func.value)
        if short in NEW:
            return True, _created_axes(short.removeprefix("new_"), node, given, latest)
        if not base.array or short in QUESTIONS or short in ("item", "tolist"):
            return False, None
        return True, _computed_axes(short, base, node, node.args, latest)
    if name is None:
        return False, None
    if short not in CREATING:
        arrays = [each for each in given if each.array]
        if not arrays:
            return (
                any(isinstance(arg, (ast.List, ast.Tuple, ast.Name)) for arg in node.args[:1])
                and short in ("Variable",),
                None,
            )
        return True, _computed_axes(short, given[0], node, node.args[1:], latest)
    if short in RANDOM_SIZES and name.startswith("numpy."):
        sized = len(node.args) > RANDOM_SIZES[short] or any(k.arg == "size" for k in node.keywords)
        if not sized:
            return False, None
    first = given[0] if given else None
    if short in ("tensor", "as_tensor", "array", "asarray") and first is not None:
        if isinstance(first.const, (int, float, bool)):
            return False, None
    return bool(node.args or node.keywords), _created_axes(short, node, given, latest)


def _created_axes(short: str, node: ast.Call, given: Sequence[Value], latest: Latest) -> int | None:
    shape = shape_asked(node)
    first = shape[0] if shape else None
    if short in ("linspace", "arange", "logspace", "randperm", "permutation"):
        return 1
    if short in ("loadtxt", "genfromtxt", "eye", "column_stack"):
        return 2
    if short in ("cat", "concatenate", "stack"):
        parts = [p for v in given[:1] for t in v.things if isinstance(t, Items) for p in (*t.parts, t.element)]
        depths = {part.axes for part in parts if part is not NOTHING}
        known = depths.pop() if len(depths) == 1 else None
        return known if known is None or short != "stack" else known + 1
    if short in ("vstack", "hstack"):
        return None
    if short in ("zeros", "ones", "empty", "rand", "randn", "new"):
        if isinstance(first, (ast.Tuple, ast.List)):
            return len(first.elts)
        sized = size_asked(first)
        if len(shape) == 1 and sized is not None:
            return latest(sized).axes if latest(sized).array else None
        if len(shape) == 1:
            counts = first is not None and (counted_of(first) or isinstance(latest(first).const, int))
            return 1 if counts else None
        return len(shape) if shape and not any(isinstance(each, ast.Starred) for each in shape) else None
    if short == "choice":
        size = next((k.value for k in node.keywords if k.arg == "size"), node.args[1] if len(node.args) > 1 else None)
        if isinstance(size, (ast.Tuple, ast.List)):
            return len(size.elts)
        return 1 if size is not None and (counted_of(size) or isinstance(latest(size).const, int)) else None
    if short in ("full", "randint", "random", "uniform", "standard_normal", "random_sample"):
        size = next((k.value for k in node.keywords if k.arg == "size"), None)
        sized = next((found for arg in node.args if (found := size_asked(arg)) is not None), None)
        if size is None and sized is not None:
            return latest(sized).axes if latest(sized).array else None
        size = size or next((arg for arg in reversed(node.args) if isinstance(arg, (ast.Tuple, ast.List))), None)
        return len(size.elts) if isinstance(size, (ast.Tuple, ast.List)) else None
    if isinstance(first, (ast.List, ast.Tuple)):
        depth, inner = 1, first.elts[0] if first.elts else None
        while isinstance(inner, (ast.List, ast.Tuple)):
            depth, inner = depth + 1, inner.elts[0] if inner.elts else None
        return depth if isinstance(inner, (ast.Constant, ast.UnaryOp)) else None
    return given[0].axes if given and given[0].array else None


def _computed_axes(short: str, base: Value, node: ast.Call, rest: Sequence[ast.expr], latest: Latest) -> int | None:
    if short in ("unsqueeze", "expand_dims"):
        return None if base.axes is None else base.axes + 1
    if short in ("view", "reshape"):
        shape = rest[0].elts if len(rest) == 1 and isinstance(rest[0], (ast.Tuple, ast.List)) else rest
        return len(shape) if shape and not any(isinstance(each, ast.Starred) for each in shape) else None
    if short == "ravel":
        return 1
    if short == "permute":
        turned = rest[0].elts if len(rest) == 1 and isinstance(rest[0], (ast.Tuple, ast.List)) else rest
        return len(turned) if turned and not any(isinstance(each, ast.Starred) for each in turned) else base.axes
    if short == "flatten":
        start = axis_of(node, rest, ("start_dim",))
        return 1 if start is None else 2 if start == 1 and len(rest) < 2 else None
    if short in ALONG and short not in ("softmax", "log_softmax", "sort", "argsort", "cumsum", "cumprod", "normalize"):
        over = axis_of(node, rest)
        if over is None:
            return None if rest or any(k.arg in ("dim", "axis") for k in node.keywords) else 0
        kept = any(k.arg in ("keepdim", "keepdims") for k in node.keywords) or len(rest) > 1
        return None if base.axes is None else base.axes if kept else base.axes - 1
    if short in ("squeeze", "stack", "cat", "einsum", "gather", "repeat", "expand", "chunk", "split", "unbind"):
        return None
    if short in ("embedding", "one_hot"):
        return None if base.axes is None else base.axes + 1
    if short in ("matmul", "mm", "mv", "dot"):
        return {"mm": 2, "mv": 1}.get(short, _product_axes(base.axes, latest(rest[0]).axes if rest else None))
    if short in LOSSES:
        return None if any(k.arg in ("reduction", "reduce", None) for k in node.keywords) else 0
    others = [latest(arg) for arg in rest]
    if any(each.array and each.axes is None for each in others):
        return None
    known = [each.axes for each in (base, *others) if each.array]
    return max(a for a in known if a is not None) if known and None not in known else None


def _product_axes(left: int | None, right: int | None) -> int | None:
    """How many axes a matrix product has; with a vector, it has one less than the other operand."""
    return max(left, right) if left is not None and right is not None and min(left, right) > 1 else None


def layer_axes(layer: Object, axes: int | None) -> int | None:
    """How many axes the output of a layer has."""
    short = layer.kind
    if short == "Sequential":
        for part in parts_inside(layer):
            axes = layer_axes(part, axes) if part.cls is None else None
        return axes
    if short == "Embedding":
        return None if axes is None else axes + 1
    if short == "Flatten":
        start = layer.argument("start_dim", 0)
        return 2 if start is None or start.const == 1 else 1 if start.const == 0 and len(layer.args) == 1 else None
    if short in LOSSES:
        return None if {"reduction", "reduce"} & layer.keywords.keys() else 0
    return axes if short in LAYERS | STACKS or short in ("Softmax", "LogSoftmax") else None


def _indexed(node: ast.Subscript, latest: Latest) -> tuple[bool, int | None]:
    base = latest(node.value)
    if not base.array:
        key = latest(node.slice)
        return key.array and (key.axes or 0) > 0 and not base.things, None  # which only tensors and arrays take
    parts = indices(node)
    axes = base.axes
    if isinstance(node.value, ast.Call) and called_name(node.value) in PICKING:
        return True, axes
    if len(parts) > 1 and is_each_row(parts, latest):
        flat = all(latest(part).array and latest(part).axes == 1 for part in parts[1:])
        return True, axes - len(parts) + 1 if axes is not None and flat else None
    for part in parts:
        if adds_axis(part, latest):
            axes = None if axes is None else axes + 1
        elif is_one(part, latest):
            axes = None if axes is None else axes - 1
    single = len(parts) == 1 and is_one(parts[0], latest)
    array = not single or axes is not None and axes > 0
    return array, axes if all(not is_one(part, latest) or is_number(part, latest) for part in parts) else None


def adds_axis(part: ast.expr, latest: Latest) -> bool:
    """`None`, `np.newaxis`"""
    named = any(isinstance(t, External) and t.name == "numpy.newaxis" for t in latest(part).things)
    return named or isinstance(part, ast.Constant) and part.value is None


def is_one(part: ast.expr, latest: Latest) -> bool:
    """Whether an index picks one element."""
    if isinstance(part, (ast.Slice, ast.List)) or isinstance(part, ast.Constant) and not isinstance(part.value, int):
        return False
    return not latest(part).array


def is_each_row(parts: Sequence[ast.expr], latest: Latest) -> bool:
    """Whether the first of several indices goes through all the rows: `range(out.shape[0])` of
    `out[range(out.shape[0]), labels]`. Beside labels of the samples, `range(batch_size)` has as many as these."""
    call = counted_off(parts[0], latest)
    number = call.args[0] if call is not None and len(call.args) == 1 else None
    labelled = any(latest(part).spread is ROWS and not latest(part).things for part in parts[1:])
    return number is not None and (labelled or latest(number).spread is COUNT)


def counted_off(index: ast.expr, latest: Latest) -> ast.Call | None:
    """The call that counts off what an index goes through: `range(n)`, `torch.arange(n)`, also as a list, on a device,
    or by a name."""
    if isinstance(index, ast.Name):
        made = [each for _, each in latest(index).made if each is not index]
        index = made[0] if len(made) == 1 else index
    if not isinstance(index, ast.Call):
        return None
    name = called_name(index)
    if name in ("range", "arange"):
        return index
    if name in ("list", "tensor", "LongTensor", "as_tensor", "array") and len(index.args) >= 1:
        return counted_off(index.args[0], latest)
    moved = isinstance(index.func, ast.Attribute) and name in ("to", "cuda", "cpu", "long", "int", "type", "type_as")
    return counted_off(index.func.value, latest) if moved and isinstance(index.func, ast.Attribute) else None


def is_number(part: ast.expr, latest: Latest) -> bool:
    """Whether an index is known to be one number, and not a list or an array of them."""
    value = latest(part)
    return isinstance(value.const, int) or any(isinstance(t, Index) for t in value.things)


def is_zero(node: ast.expr, values: Mapping[ast.expr, Value]) -> bool:
    """`torch.zeros(3)`, `np.zeros(3)`, `torch.tensor(0.0)`, also once it is moved to a device, `[0] * 3`, and the items
    of such, and `0.9 * total` as long as there is nothing of it."""
    if isinstance(node, ast.Subscript):
        return values[node.value].zero if node.value in values else False
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mult, ast.Div)):
        parts = (node.left, node.right) if isinstance(node.op, ast.Mult) else (node.left,)
        held = [values[each] for each in parts if each in values]
        if any(each.zero or each.const == 0 and each.const is not False for each in held):
            return True
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
        return all(isinstance(each, ast.Constant) and each.value == 0 for each in node.left.elts)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    name = node.func.attr
    if name in ("zeros", "zeros_like", "new_zeros"):
        return True
    if name == "tensor":
        return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
    if name in ("to", "cuda", "cpu", "float", "double", "long", "int", "clone", "detach"):
        base = values.get(node.func.value)
        return base is not None and base.zero
    return False
