"""How many axes tensors have that are computed, as far as the source tells."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence

from autodist.operations import load
from autodist.source import indices, last_name
from autodist.values import Object

Axes = Callable[[ast.expr], int | None]
MODULES = frozenset("torch np numpy F nn functional pd pandas".split())
ALIKE = frozenset(
    "to cuda cpu float double half bfloat16 long int bool byte type astype type_as detach detach_ clone contiguous "
    "data numpy requires_grad_ Variable relu relu_ relu6 leaky_relu elu selu celu gelu silu mish softplus softsign "
    "tanh sigmoid logsigmoid hardtanh sin cos exp log log1p log2 log10 sqrt rsqrt pow square abs neg sign floor ceil "
    "round reciprocal erf clamp clip clamp_min clamp_max softmax log_softmax normalize dropout layer_norm isnan isinf "
    "nan_to_num cumsum cumprod flip roll zeros_like ones_like rand_like randn_like empty_like full_like copy t "
    "transpose swapaxes linear from_numpy share_memory_ pin_memory to_numpy drop dropna fillna sample reset_index "
    "sort_values head tail get_dummies".split()
)
"""What gives as many axes as its first operand has."""
BROADCASTING = frozenset(
    "add sub mul div subtract multiply divide true_divide eq ne lt gt le ge where maximum minimum logical_and "
    "logical_or masked_fill add_ sub_ mul_ div_ fmod remainder atan2 lerp".split()
)
REDUCING = frozenset("mean sum nansum nanmean amax amin argmax argmin norm std var prod logsumexp any all".split())
CREATING = frozenset("zeros ones rand randn empty full randint normal uniform standard_normal random".split())
SIZED_LAST = frozenset("randint normal uniform random standard_normal".split())
CONVERTING = frozenset(
    "tensor as_tensor array asarray Tensor FloatTensor LongTensor IntTensor DoubleTensor BoolTensor".split()
)
NUMBERS = frozenset("int float bool len item".split())
LAYERS = {
    name + dimension: axes
    for dimension, axes in (("1d", 3), ("2d", 4), ("3d", 5))
    for name in "Conv ConvTranspose MaxPool AvgPool AdaptiveAvgPool AdaptiveMaxPool InstanceNorm".split()
} | {"BatchNorm2d": 4, "BatchNorm3d": 5, "Flatten": 2}
"""How many axes layers give that take nothing else, of a batch."""
KEEPING = load().layers("same", "elementwise", "random_like", "scan") | frozenset(
    "Linear PReLU LayerNorm RMSNorm BatchNorm1d GroupNorm Upsample".split()
)
"""Layers that give as many axes as they are given."""
RECURRENT = frozenset("RNN LSTM GRU".split())
READING = frozenset("read_csv read_excel read_table read_parquet read_feather DataFrame".split())
"""What makes a table of pandas."""


def computed(node: ast.expr, of: Axes) -> int | None:
    """How many axes the result of an operation has, whose operands have ``of``; 0 for a number."""
    if isinstance(node, ast.Constant):
        return 0 if isinstance(node.value, (int, float)) and not isinstance(node.value, bool) else None
    if isinstance(node, ast.UnaryOp):
        return of(node.operand)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        return 2 if of(node.left) == of(node.right) == 2 else None
    if isinstance(node, ast.BinOp):
        return _most([of(node.left), of(node.right)])
    if isinstance(node, ast.Compare):
        return _most([of(node.left), *map(of, node.comparators)])
    if isinstance(node, ast.Subscript):
        return _indexed(node, of)
    return _called(node, of) if isinstance(node, ast.Call) else None


def through(layer: Object, given: int | None, inside: Mapping[object, int | None]) -> int | None:
    """How many axes the output of a layer of torch has, with what those of the project ``inside`` of it give."""
    short = layer.kind
    if short == "Sequential":
        for part in (t for value in layer.args for t in value.things if isinstance(t, Object)):
            given = through(part, given, inside) if part.cls is None else inside.get(part.key)
        return given
    if short == "Flatten" and (layer.args or layer.keywords):
        return None
    if short == "Embedding":
        return None if given is None else given + 1
    return given if short in KEEPING else LAYERS.get(short)


def gives_pair(layer: Object) -> bool:
    """Whether a layer gives its output and its state, each of which has three axes for a batch."""
    return layer.cls is None and layer.name.startswith("torch.nn.") and layer.kind in RECURRENT


def _most(found: Sequence[int | None]) -> int | None:
    return None if None in found else max(each for each in found if each is not None)


def _indexed(node: ast.Subscript, of: Axes) -> int | None:
    axes = of(node.value)
    if axes is None or not axes:
        return None
    for part in indices(node):
        if isinstance(part, ast.Constant) and part.value is None:
            axes += 1
        elif of(part) == 0 or _number(part) is not None:
            axes -= 1
        elif of(part) == 1:
            continue  # those that a list names
        elif not isinstance(part, ast.Slice) and not (isinstance(part, ast.Constant) and part.value is ...):
            return None
    return axes


def _called(node: ast.Call, of: Axes) -> int | None:
    name = last_name(node.func)
    method = isinstance(node.func, ast.Attribute) and last_name(node.func.value) not in MODULES
    given = [node.func.value, *node.args] if method else node.args  # type: ignore[attr-defined]
    if name in NUMBERS and (name == "item") is method and len(given) == 1:
        return 0 if name != "int" or not method else of(given[0])
    if any(isinstance(each, ast.Starred) for each in given) or any(k.arg is None for k in node.keywords):
        return None
    if not method and name in CREATING:
        return _created(name, node, of)
    if not method and name in ("arange", "linspace", "randperm"):
        return 1
    if not given:
        return None
    if name in CONVERTING and not method:
        return _listed(given[0], of)
    if name in READING and not method:
        return 2
    if name in ("fit_transform", "pop") and method and len(given) > 1:
        return of(given[1]) if name == "fit_transform" else 1 if of(given[0]) == 2 else None
    if name == "pad" and not method and last_name(getattr(node.func, "value", None)) in ("np", "numpy"):
        return _padded(given)
    if name in ("cat", "concat", "concatenate", "stack") and not method:
        known = {of(each) for each in given[0].elts} if isinstance(given[0], (ast.List, ast.Tuple)) else set()
        axes = known.pop() if len(known) == 1 else None
        return None if axes is None else axes + (name == "stack")
    return _of_tensor(name, node, given[0], given[1:], of)


def _of_tensor(name: str, node: ast.Call, tensor: ast.expr, rest: Sequence[ast.expr], of: Axes) -> int | None:
    axes = of(tensor)
    if name in ("view", "reshape"):
        if len(rest) == 1 and isinstance(rest[0], (ast.Tuple, ast.List)):
            return len(rest[0].elts)
        return len(rest) if len(rest) > 1 or rest and _number(rest[0]) is not None else None
    if name in ("view_as", "reshape_as", "expand_as"):
        return of(rest[0]) if len(rest) == 1 else None
    if name in ("flatten", "ravel"):
        start = _option(node, rest, "start_dim")
        if name == "ravel" or start is None:
            return 1
        first = _number(start)
        return first + 1 if first is not None and first >= 0 and len(rest) + len(node.keywords) == 1 else None
    if name in ("expand", "repeat") and len(rest) > 1:
        return len(rest)
    if axes is None:
        return None
    if name in ALIKE:
        return axes
    if name in BROADCASTING:
        return _most([axes, *map(of, rest)])
    if name in ("unsqueeze", "expand_dims"):
        return axes + 1
    if name in ("embedding", "one_hot"):
        return axes + 1
    if name == "permute":
        return axes
    if name in REDUCING:
        over = _option(node, rest[name == "norm" :], "dim", "axis")
        if over is None:
            return 0 if not node.keywords and len(rest) <= (name == "norm") else None
        kept = next((k.value for k in node.keywords if k.arg in ("keepdim", "keepdims")), None)
        if _number(over) is None or len(rest) > 1 + (name == "norm"):
            return None
        if kept is not None:
            return axes if isinstance(kept, ast.Constant) and kept.value is True else None
        return axes - 1
    return None


def _option(node: ast.Call, rest: Sequence[ast.expr], *names: str) -> ast.expr | None:
    """What a call is told by keyword, or first of all."""
    return next((k.value for k in node.keywords if k.arg in names), rest[0] if rest else None)


def _created(name: str, node: ast.Call, of: Axes) -> int | None:
    size = next((k.value for k in node.keywords if k.arg == "size"), None)
    args = [size] if size is not None else node.args
    if name in SIZED_LAST and size is None:
        args = [each for each in node.args[-1:] if isinstance(each, (ast.Tuple, ast.List))]
    elif name == "full":
        args = node.args[:1]
    if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
        return None if any(isinstance(each, ast.Starred) for each in args[0].elts) else len(args[0].elts)
    return len(args) if len(args) > 1 or args and of(args[0]) == 0 else None


def _listed(node: ast.expr, of: Axes) -> int | None:
    """How many axes an array of a list has."""
    if isinstance(node, (ast.List, ast.Tuple)):
        inner = _listed(node.elts[0], of) if node.elts else None
        return None if inner is None else inner + 1
    return of(node)


def _padded(given: Sequence[ast.expr]) -> int | None:
    """`np.pad(x, ((0, 1), (0, 0)))` names each axis."""
    width = given[1] if len(given) > 1 else None
    if not isinstance(width, (ast.Tuple, ast.List)) or not all(isinstance(each, ast.Tuple) for each in width.elts):
        return None
    return len(width.elts)


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    plain = isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool)
    return node.value if plain else None  # type: ignore[attr-defined]
