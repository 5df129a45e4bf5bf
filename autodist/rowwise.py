"""Which operations keep the rows of a batch apart.

A loader promises that the samples of a batch do not depend on each other. Of a tensor that holds all the data nobody
promises that: its first axis may be time, or the nodes of a graph. So whoever wants to deal its rows out to ranks
follows them through every operation up to the loss, and what is not known here to treat each row alike is a reason
not to. How many axes a tensor has decides some of it, and is followed as far as the source tells.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from autodist.spread import COLUMNS, COUNT, LOCAL, MEAN, ROWS, SAME, SUM, Spread
from autodist.tensors import IN_PLACE
from autodist.values import (
    NOTHING,
    UNKNOWN,
    Class,
    Draw,
    External,
    Function,
    Index,
    Items,
    Mixing,
    Object,
    Table,
    Value,
    Wrapped,
)

Latest = Callable[[ast.expr], Value]

ELEMENTWISE = frozenset(
    "relu relu_ relu6 leaky_relu elu selu celu gelu silu mish softplus softsign tanh sigmoid logsigmoid hardtanh "
    "hardsigmoid tanhshrink acos asin atan acosh asinh atanh sinh cosh erf erfc exp expm1 log log1p log2 log10 sqrt "
    "rsqrt pow square abs clamp clip clamp_min clamp_max sin cos tan atan sinh cosh erf sign floor ceil round "
    "reciprocal neg add add_ sub sub_ mul mul_ div div_ eq ne lt "
    "gt le ge where maximum minimum masked_fill dropout dropout1d dropout2d dropout3d alpha_dropout float double half "
    "bfloat16 long int bool byte type type_as to cuda cpu detach detach_ clone data contiguous requires_grad_ numpy "
    "zeros_like ones_like rand_like randn_like Variable tensor as_tensor from_numpy asarray array astype FloatTensor "
    "DoubleTensor LongTensor Tensor view_as expand_as reshape_as square_ item isnan isinf logical_not logical_and "
    "logical_or float32 float64 int64 FloatTensor zero_ copy retain_grad nan_to_num fill_ normal_ uniform_ "
    "bernoulli_ exponential_ toarray todense".split()
)
"""Each number of the result comes from one number of each operand."""

PER_ROW = frozenset(
    "linear bilinear embedding one_hot conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d layer_norm group_norm pixel_shuffle bmm "
    "baddbmm".split()
)
"""Each row of the result comes from one row of the first operand."""

ALONG = frozenset(
    "mean sum nansum nanmean max min amax amin argmax argmin softmax log_softmax norm std var prod median logsumexp "
    "topk sort argsort cumsum cumprod any all normalize cosine_similarity".split()
)
"""Work along the axis that they name."""

LAYERS = frozenset(
    (
        "Linear Bilinear Identity Dropout Dropout1d Dropout2d Dropout3d AlphaDropout Embedding Conv1d Conv2d Conv3d "
        "ConvTranspose1d ConvTranspose2d ConvTranspose3d MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d "
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d LayerNorm "
        "GroupNorm InstanceNorm1d InstanceNorm2d RMSNorm BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm ReLU ReLU6 "
        "LeakyReLU PReLU ELU SELU CELU GELU SiLU Mish Softplus Softsign Tanh Sigmoid LogSigmoid Hardtanh Hardswish "
        "Hardsigmoid Threshold Tanhshrink Upsample PixelShuffle ZeroPad2d ConstantPad1d ReflectionPad2d RNNCell "
        "LSTMCell GRUCell"
    ).split()
)
FEATURES = frozenset(
    "Linear Bilinear LayerNorm RMSNorm GroupNorm BatchNorm1d BatchNorm2d RNNCell LSTMCell GRUCell".split()
)
FOLDING = frozenset("Flatten Unflatten Softmax LogSoftmax Softmax2d".split())
RECURRENT = frozenset("RNN LSTM GRU".split())
STACKS = frozenset(
    "Transformer TransformerEncoder TransformerDecoder TransformerEncoderLayer TransformerDecoderLayer".split()
)
BATCH_FIRST = {
    "RNN": 5,
    "LSTM": 4,
    "GRU": 4,
    "MultiheadAttention": 8,
    "Transformer": 10,
    "TransformerEncoderLayer": 6,
    "TransformerDecoderLayer": 6,
}
"""Where layers take by position which axis the samples lie along."""
ATTENDING = ("Transformer", "MultiheadAttention")
LOSSES = frozenset(
    "l1_loss mse_loss cross_entropy nll_loss poisson_nll_loss gaussian_nll_loss kl_div binary_cross_entropy "
    "binary_cross_entropy_with_logits margin_ranking_loss hinge_embedding_loss huber_loss smooth_l1_loss "
    "soft_margin_loss L1Loss MSELoss CrossEntropyLoss NLLLoss NLLLoss2d PoissonNLLLoss GaussianNLLLoss KLDivLoss "
    "BCELoss BCEWithLogitsLoss MarginRankingLoss HingeEmbeddingLoss HuberLoss SmoothL1Loss SoftMarginLoss".split()
)
ALIKE = LOSSES - frozenset("cross_entropy nll_loss CrossEntropyLoss NLLLoss NLLLoss2d".split())
"""Losses over two tensors of one shape: others are broadcast, which pairs rows."""

PICKING = frozenset("max min topk sort median".split())
"""What gives values and their positions."""

PRODUCTS = frozenset("matmul mm mv spmm smm".split())
QUESTIONS = frozenset("size dim numel nelement ndimension is_floating_point element_size get_device".split())
PLAIN_BUILTINS = frozenset("len float int print str repr isinstance type hasattr format bool id abs round".split())
FACTORIES = frozenset("zeros ones full empty rand randn new_zeros new_ones new".split())
NEW = frozenset("new_zeros new_ones new_full new_empty".split())
CONVERTING = frozenset(
    "tensor as_tensor Tensor FloatTensor DoubleTensor LongTensor IntTensor array asarray from_numpy".split()
)
CREATING = frozenset(
    "tensor as_tensor from_numpy Tensor FloatTensor DoubleTensor LongTensor IntTensor HalfTensor BoolTensor ByteTensor "
    "array asarray loadtxt genfromtxt linspace arange logspace zeros ones full eye rand randn randint normal uniform "
    "random random_sample standard_normal empty zeros_like ones_like rand_like randn_like randperm permutation vstack "
    "hstack concatenate stack cat column_stack".split()
)
RANDOM_SIZES = {"normal": 2, "uniform": 2, "random": 0, "random_sample": 0, "standard_normal": 0, "randn": 0, "rand": 0}


def is_whole(value: Value) -> bool:
    """Whether a value is computed from this rank's rows of a tensor that holds all of them."""
    return value.spread.is_local and any(isinstance(each, Draw) and each.whole for each in value.origins)


def mixings(value: Value) -> list[Mixing]:
    """What may have mixed the rows of a value: what tells most first, then in the order of the source."""
    found = [each for each in value.origins if isinstance(each, Mixing)]
    telling = {ONE: 0, ENVIRONMENT: 0, GRAPH: 1}
    return sorted(found, key=lambda m: (telling.get(m.reason, 2), str(m.source.path), m.node.lineno, m.node.col_offset))


def broadcasts(node: ast.expr) -> bool:
    """Whether one row meets each of the others: `x + places.unsqueeze(0)`, `places.unsqueeze(0).expand_as(x)`."""
    return isinstance(node, ast.BinOp) or isinstance(node, ast.Call) and _called(node) == "expand_as"


def runs_along_rows(layer: Object, given: Value) -> bool:
    """Whether a layer of torch takes the axis of a rank's samples for time, or for the features of one sample."""
    short = layer.name.rpartition(".")[2]
    if given.spread not in (ROWS, COLUMNS):
        return False
    if given.spread is ROWS and takes_one(short, given):
        return True
    if not layer.name.startswith("torch.nn.") or short not in RECURRENT and not short.startswith(ATTENDING):
        return False
    parts = [layer, *(t for value in layer.args[:1] for t in value.things if isinstance(t, Object))]
    named = [part.argument("batch_first", BATCH_FIRST.get(part.name.rpartition(".")[2])) for part in parts]
    told = [each.const for each in named if each is not None]
    if any("**" in part.keywords for part in parts):
        return False  # it may be among those
    second = given.spread is COLUMNS
    return all(const is second for const in told) and (bool(told) or not second)


def takes_one(layer: str, given: Value) -> bool:
    """Whether a layer that works along the last axis is given one axis alone: one sample, whose numbers are no rows."""
    return given.axes == 1 and (layer in FEATURES or layer.startswith("Conv"))


def has_one_row(node: ast.expr, latest: Latest) -> bool:
    """`x[None]`, `x.unsqueeze(0)`, `torch.tensor([x])`: a batch of one sample, made so in the source."""
    if isinstance(node, ast.Subscript):
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        return latest(node.value).array and _adds_axis(first, latest)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    if library(node, latest) is None:
        added = node.func.attr in ("unsqueeze", "expand_dims") and _axis(node, node.args) == 0
        return latest(node.func.value).array and added
    if node.func.attr == "unsqueeze":
        return _axis(node, node.args[1:]) == 0
    if node.func.attr in CONVERTING and node.args:
        lists = [t for t in latest(node.args[0]).things if isinstance(t, Items)]
        for each in lists[:1] if len(lists) == 1 else []:
            whole = isinstance(each.node, ast.List) and each.element is NOTHING
            return whole and len(each.parts) == 1 and each.parts[0].const is UNKNOWN
    return False


# -------------------------------------------------------------------- axes


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
        sides = [_surely(latest(each)) for each in (node.left, node.right)]
        return max(sides) if not isinstance(node.op, ast.MatMult) or min(sides) > 1 else 0
    if not isinstance(node, ast.Call) or is_entered(node, latest):
        return 0
    layers = _layers(node, latest)
    if layers:
        if node.args and all(layer.name.endswith(".Embedding") for layer in layers):
            return max(_surely(latest(node.args[0])), 1) + 1
        keep = all(layer.cls is None and layer_axes(layer, 0) == 0 for layer in layers)
        return _surely(latest(node.args[0])) if keep and node.args else 0
    method = isinstance(node.func, ast.Attribute) and library(node, latest) is None
    if _called(node) == "pad" and not method and node.args:
        return _surely(latest(node.args[0]))
    given = [node.func.value, *node.args] if method else node.args  # type: ignore[attr-defined]
    if _called(node) in ELEMENTWISE | {"softmax", "log_softmax"} and given:
        return _surely(latest(given[0]))
    if _called(node) in PRODUCTS and len(given) > 1:
        sides = [_surely(latest(each)) for each in given[:2]]
        return max(sides) if min(sides) > 1 else 0
    if _called(node) not in ("transpose", "swapaxes", "permute"):
        return 0
    rest = node.args if method else node.args[1:]
    named = [_number(each) for each in (rest[0].elts if _is_list(rest) else rest)]  # type: ignore[attr-defined]
    return max((at + 1 if at >= 0 else -at for at in named if at is not None), default=0)


def _surely(value: Value) -> int:
    """How many axes a tensor has at least."""
    return max(value.axes or 0, value.least)


def told_axes(test: ast.expr) -> dict[str, int]:
    """How many axes the variables have where a condition holds: `if len(x.shape) == 3 and ...`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return {name: axes for part in test.values for name, axes in told_axes(part).items()}
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return {}
    asked, axes = test.left, _number(test.comparators[0])
    if isinstance(asked, ast.Call) and isinstance(asked.func, ast.Name) and asked.func.id == "len" and asked.args:
        tensor = _size_asked(asked.args[0])
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
    tensor = _size_asked(node.value)
    counts = {
        len(each.elts)
        for each in node.targets
        if isinstance(each, (ast.Tuple, ast.List)) and not any(isinstance(part, ast.Starred) for part in each.elts)
    }
    return {tensor.id: counts.pop()} if isinstance(tensor, ast.Name) and len(counts) == 1 else {}


def makes_tensor(node: ast.Call) -> bool:
    """`torch.zeros(1, n, size)`, `weight.new_zeros(1, n, size)`"""
    return _called(node) in FACTORIES


APPLYING = ("torch.utils.checkpoint.checkpoint",)
"""Functions of libraries that do nothing to the rows but hand them to their first argument."""


def is_entered(node: ast.Call, latest: Latest) -> bool:
    """Whether a call runs code of the project, which is followed by itself."""
    applied = any(isinstance(t, External) and t.name in APPLYING for t in latest(node.func).things)
    called = node.args[0] if applied and node.args else node.func
    things = [t.module if isinstance(t, Wrapped) else t for t in latest(called).things]
    return any(isinstance(t, (Function, Class)) or isinstance(t, Object) and t.cls is not None for t in things)


def _called(node: ast.Call) -> str:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return IN_PLACE.get(name, name)


def library(node: ast.Call, latest: Latest) -> str | None:
    """The qualified name of the library function that a call names."""
    names = sorted(t.name for t in latest(node.func).things if isinstance(t, External))
    if not names and isinstance(node.func, ast.Attribute):
        owners = [t.name for t in latest(node.func.value).things if isinstance(t, Object) and "generator" in t.roles]
        names = [f"{name}.{node.func.attr}" for name in owners if name.startswith("numpy")]
    # one activation or another, one loss or another
    shorts = {name.rpartition(".")[2] for name in names if name.startswith("torch.")}
    alike = len(shorts) == len(names) and any(shorts <= kind for kind in (ELEMENTWISE - CREATING, ALIKE))
    return names[0] if len(names) == 1 or names and alike else None


def _layers(node: ast.Call, latest: Latest) -> list[Object]:
    """The modules of a library that may be called, as `criterion` is one loss or another."""
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr in ("forward", "__call__") and not latest(called).things:
        called = called.value  # `model.forward(x)`
    things = [t.module if isinstance(t, Wrapped) else t for t in latest(called).things]
    found = [each for each in things if isinstance(each, Object) and each.cls is None]
    found.sort(key=lambda layer: (layer.name, layer.node.lineno, layer.node.col_offset))
    return found if len(found) == len(things) else []


def _call(node: ast.Call, latest: Latest) -> tuple[bool, int | None]:
    layers = _layers(node, latest)
    given = [latest(arg) for arg in node.args]
    if layers:
        inner = given[0].axes if given else None
        axes = {layer_axes(layer, inner) for layer in layers}
        return True, axes.pop() if len(axes) == 1 else None
    name = library(node, latest)
    method = isinstance(node.func, ast.Attribute) and name is None
    short = _called(node) if name is None else name.rpartition(".")[2]
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
    shape = _shape(node)
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
    if short in ("zeros", "ones", "empty", "rand", "randn"):
        if isinstance(first, (ast.Tuple, ast.List)):
            return len(first.elts)
        sized = _size_asked(first)
        if len(shape) == 1 and sized is not None:
            return latest(sized).axes if latest(sized).array else None
        if len(shape) == 1:
            return 1 if first is not None and isinstance(latest(first).const, int) else None
        plain = all(isinstance(arg, (ast.Constant, ast.Name, ast.Attribute, ast.BinOp)) for arg in shape)
        return len(shape) if shape and plain else None
    if short in ("full", "randint", "random", "uniform", "standard_normal", "random_sample"):
        size = next((k.value for k in node.keywords if k.arg == "size"), None)
        sized = next((found for arg in node.args if (found := _size_asked(arg)) is not None), None)
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


def _size_asked(node: ast.expr | None) -> ast.expr | None:
    """The tensor in `x.size()`, `x.shape`."""
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
        return node.func.value if not node.args else None
    return None


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
        start = _axis(node, rest, ("start_dim",))
        return 1 if start is None else 2 if start == 1 and len(rest) < 2 else None
    if short in ALONG and short not in ("softmax", "log_softmax", "sort", "argsort", "cumsum", "cumprod", "normalize"):
        over = _axis(node, rest)
        if over is None:
            return None if rest or any(k.arg in ("dim", "axis") for k in node.keywords) else 0
        kept = any(k.arg in ("keepdim", "keepdims") for k in node.keywords) or len(rest) > 1
        return None if base.axes is None else base.axes if kept else base.axes - 1
    if short in ("squeeze", "stack", "cat", "einsum", "gather", "repeat", "expand", "chunk", "split"):
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
    short = layer.name.rpartition(".")[2]
    if short == "Sequential":
        for part in _inside(layer):
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


def _inside(layer: Object) -> list[Object]:
    """The parts of a container of layers."""
    found: list[Object] = []
    for value in layer.args:
        for thing in value.things:
            if isinstance(thing, Object):
                found.append(thing)
    return found


def _indexed(node: ast.Subscript, latest: Latest) -> tuple[bool, int | None]:
    base = latest(node.value)
    if not base.array:
        return False, None
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    axes = base.axes
    if isinstance(node.value, ast.Call) and _called(node.value) in PICKING:
        return True, axes
    if len(parts) > 1 and _is_each_row(parts[0], latest):
        flat = all(latest(part).array and latest(part).axes == 1 for part in parts[1:])
        return True, axes - len(parts) + 1 if axes is not None and flat else None
    for part in parts:
        if _adds_axis(part, latest):
            axes = None if axes is None else axes + 1
        elif _is_one(part, latest):
            axes = None if axes is None else axes - 1
    single = len(parts) == 1 and _is_one(parts[0], latest)
    array = not single or axes is not None and axes > 0
    return array, axes if all(not _is_one(part, latest) or _is_number(part, latest) for part in parts) else None


def _adds_axis(part: ast.expr, latest: Latest) -> bool:
    """`None`, `np.newaxis`"""
    named = any(isinstance(t, External) and t.name == "numpy.newaxis" for t in latest(part).things)
    return named or isinstance(part, ast.Constant) and part.value is None


def _is_one(part: ast.expr, latest: Latest) -> bool:
    """Whether an index picks one element."""
    if isinstance(part, (ast.Slice, ast.List)) or isinstance(part, ast.Constant) and not isinstance(part.value, int):
        return False
    return not latest(part).array


def _is_number(part: ast.expr, latest: Latest) -> bool:
    """Whether an index is known to be one number, and not a list or an array of them."""
    value = latest(part)
    return isinstance(value.const, int) or any(isinstance(t, Index) for t in value.things)


# -------------------------------------------------------------------- rows


def followed(node: ast.expr, value: Value, latest: Latest, contents: Callable[[Value], list[Value]]) -> Spread | str:
    """Where the rows lie in a result that is computed from a rank's rows, or a reason why they may be mixed."""
    if isinstance(node, ast.Call):
        return _of_call(node, value, latest, contents)
    if isinstance(node, ast.Subscript):
        return _of_index(node, value, latest)
    if isinstance(node, ast.BinOp):
        return _of_operator(node, value, latest)
    if isinstance(node, ast.Attribute):
        base = latest(node.value)
        if is_whole(base) and node.attr in ("T", "mT", "H"):
            return _turned(base, [0, 1])
        return value.spread
    if isinstance(node, ast.Compare):
        parts = [latest(node.left), *map(latest, node.comparators)]
        rows = {part.spread for part in parts if is_whole(part)} & {ROWS, COLUMNS}
        if _beside(parts):
            return STATISTIC
        return PAIRED if len(rows) > 1 or _pairs(parts) else value.spread
    return value.spread


def _pairs(values: Iterable[Value]) -> bool:
    """Whether broadcasting pairs every row of one with every row of another: their numbers of axes differ."""
    axes = {each.axes for each in values if is_whole(each) and each.spread in (ROWS, COLUMNS)}
    return len(axes - {None}) > 1


STATE = "carries a state that has the size of the whole batch"
ONE = "has one sample"
ENVIRONMENT = "draws what happens next from the output of the model: an environment answers, not a data set"
GRAPH = "is a matrix product over the rows, which mixes them"
PAIRED = "broadcasts tensors of different shapes, which pairs every row with every other one"


OF_WORDS = re.compile(r"^transformers\.\w*(LM|LMHeadModel|TokenClassification|ConditionalGeneration|PreTraining)(\.|$)")
"""Models whose own loss leaves out the words that are labelled -100."""
PARTNERS = "puts each row in the place of another one"
STATISTIC = "puts a number that is computed from all rows beside each of them"


CHOSEN = (
    "picks some of the rows by a condition or an index, more on one rank than on another: a mean over these is not the "
    "mean of the ranks' means"
)


def _beside(values: Iterable[Value]) -> bool:
    """Whether a mean, a sum or a number of rows is combined with rows."""
    spreads = {each.spread for each in values if is_whole(each)}
    return bool(spreads & {ROWS, COLUMNS}) and bool(spreads - {ROWS, COLUMNS})


def _of_operator(node: ast.BinOp, value: Value, latest: Latest) -> Spread | str:
    left, right = latest(node.left), latest(node.right)
    spreads = {each.spread for each in (left, right) if is_whole(each)}
    if isinstance(node.op, ast.MatMult):
        return _product(left, right)
    if {ROWS, COLUMNS} <= spreads or _pairs((left, right)):
        return PAIRED
    if _beside((left, right)):
        return STATISTIC
    if MEAN in (left.spread, right.spread) and COUNT in (left.spread, right.spread):
        return "multiplies a mean with the number of a rank's rows"
    return value.spread


def _product(left: Value, right: Value) -> Spread | str:
    if is_whole(left) and not is_whole(right):
        return left.spread if left.spread in (ROWS, COLUMNS) else LOCAL
    if is_whole(left) and is_whole(right) and left.spread is ROWS and right.spread is ROWS:
        if min(_surely(left), _surely(right)) > 2:
            return ROWS
    return GRAPH


def _of_call(node: ast.Call, value: Value, latest: Latest, contents: Callable[[Value], list[Value]]) -> Spread | str:
    if is_entered(node, latest):
        return value.spread
    if makes_tensor(node):
        return _made(_shape(node), latest)
    given = [latest(arg) for arg in node.args]
    named = [latest(keyword.value) for keyword in node.keywords]
    layers = _layers(node, latest)
    if layers and all(layer.roles & {"module", "loss", "dropout", "batch_norm"} for layer in layers):
        through = [through_layer(layer, [*given, *named], value, contents) for layer in layers]
        told = next((each for each in through if isinstance(each, str)), through[0])
        same = isinstance(told, str) or all(each is told for each in through)
        return told if same else f"runs them through one of {len(layers)} layers, which place them differently"
    name = library(node, latest)
    if name is not None and name.endswith("parallel.data_parallel") and given:
        held = [t for t in given[0].things if isinstance(t, Object) and t.cls is None]
        parts = [through_layer(layer, given[1:2], value, contents) for layer in held] or [value.spread]
        return next((each for each in parts if isinstance(each, str)), parts[0])
    if name is not None:
        return _of_function(name, node, given, named, value, latest, contents)
    if isinstance(node.func, ast.Attribute) and node.func.attr == "scale":
        if any(True for _ in latest(node.func.value).objects("scaler")):
            return value.spread
    if isinstance(node.func, ast.Attribute) and (is_whole(latest(node.func.value)) or latest(node.func.value).array):
        if node.func.attr in PRODUCTS and not is_whole(latest(node.func.value)):
            return GRAPH
        return _of_method(node.func.attr, node, latest(node.func.value), node.args, given, value, latest)
    return f"calls {ast.unparse(node.func)}, which cannot be followed"


def _of_function(
    name: str,
    node: ast.Call,
    given: list[Value],
    named: list[Value],
    value: Value,
    latest: Latest,
    contents: Callable[[Value], list[Value]],
) -> Spread | str:
    short = name.rpartition(".")[2]
    if short in ("tuple", "list") and any(isinstance(t, Items) for v in given for t in v.things):
        return value.spread
    if name.startswith("builtins."):
        numbers = short == "range" and all(each.spread in (SAME, COUNT) for each in given)
        return value.spread if short in PLAIN_BUILTINS or numbers else f"calls {short}() on the rows"
    if name == "apex.amp.scale_loss":
        return value.spread
    if not name.startswith(("torch.", "numpy.")):
        return f"calls {name}, which cannot be followed"
    if short in ("cat", "concat", "concatenate", "stack"):
        over = _axis(node, node.args[1:])
        over = _length(node.args[1], latest) if over is None and len(node.args) == 2 else over
        parts = [p for each in given[:1] for p in contents(each)] or given[:1]
        spreads = {part.spread for part in parts if is_whole(part)}
        if spreads == {ROWS} and (over is not None and over > 0 or over == -1 and short != "stack"):
            return ROWS
        return f"joins tensors along their rows ({short})"
    if short == "einsum":
        return _of_einsum(node, latest)
    if short == "pad" and not name.startswith("torch."):
        return "pads them axis by axis (numpy.pad)"
    if short in LOSSES:
        return _of_loss(short, [*given, *named], value)
    if short in FACTORIES:
        return _made(_shape(node), latest)
    if not given:
        return value.spread
    if not is_whole(given[0]) and short in PRODUCTS:
        return GRAPH
    if not is_whole(given[0]) and short not in ELEMENTWISE:
        if any(is_whole(part) for part in contents(given[0])):
            return value.spread if short in ELEMENTWISE else f"calls {short} on a list of rows"
        return f"calls {short} with the rows as its second operand, which may mix them"
    return _of_method(short, node, given[0], node.args[1:], given[1:], value, latest)


def _of_einsum(node: ast.Call, latest: Latest) -> Spread | str:
    """`torch.einsum("ncvl,vw->ncwl", (x, A))`: the letter of the rows stands for them alone, and stays."""
    unclear = "is a sum of products over axes that cannot be read (einsum)"
    if len(node.args) < 2 or not isinstance(node.args[0], ast.Constant) or not isinstance(node.args[0].value, str):
        return unclear
    taken, arrow, left = node.args[0].value.replace(" ", "").partition("->")
    operands = node.args[1].elts if isinstance(node.args[1], (ast.Tuple, ast.List)) else node.args[1:]
    letters = taken.split(",")
    if not arrow or "." in taken or len(letters) != len(operands):
        return unclear
    rows = set()
    for names, operand in zip(letters, map(latest, operands), strict=True):
        if is_whole(operand):
            at = {ROWS: 0, COLUMNS: 1}.get(operand.spread, len(names))
            rows.add(names[at] if at < len(names) else "")
    for names, operand in zip(letters, map(latest, operands), strict=True):
        if not is_whole(operand) and rows & set(names):
            return "multiplies rows with something that is not known to have as many (einsum)"
        if is_whole(operand) and sum(names.count(each) for each in rows) != 1:
            return PAIRED
    if len(rows) > 1:
        return PAIRED
    letter = rows.pop()
    if not letter or letter not in left:
        return "sums over the rows (einsum)"
    return {0: ROWS, 1: COLUMNS}.get(left.index(letter), "moves the rows to a later axis")


def may_pair(node: ast.expr, latest: Latest) -> list[ast.expr]:
    """Two tensors of rows that a loss compares, if it cannot be seen that they have one shape."""
    if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult):
        parts = [node.left, node.right]
    elif isinstance(node, ast.Call) and len(node.args) >= 2:
        name = library(node, latest)
        names = [layer.name for layer in _layers(node, latest)] or [name or ""]
        parts = node.args[:2] if any(each.rpartition(".")[2] in ALIKE for each in names) else []
    else:
        parts = []
    values = [latest(part) for part in parts]
    if not parts or not all(is_whole(each) and each.spread is ROWS for each in values):
        return []
    return [] if values[0].axes is not None and values[0].axes == values[1].axes else parts


def _of_loss(short: str, given: list[Value], value: Value) -> Spread | str:
    spreads = {each.spread for each in given[:2]}
    if len(spreads) > 1 and not any(each.const is not UNKNOWN for each in given[:2]):
        return "compares rows with something of which it cannot be seen that it has as many"
    if short in ALIKE and _pairs(given[:2]):
        return PAIRED
    return value.spread


def _shape(node: ast.Call) -> Sequence[ast.expr]:
    """The shape that a call asks for: `torch.zeros(n, 4)`, `torch.zeros(size=(n, 4))`"""
    return node.args or [keyword.value for keyword in node.keywords if keyword.arg in ("size", "shape")]


def _made(shape: Sequence[ast.expr], latest: Latest) -> Spread | str:
    """A tensor whose shape holds the number of a rank's rows."""
    if len(shape) == 1 and isinstance(shape[0], (ast.Tuple, ast.List)):
        shape = shape[0].elts
    sizes = [latest(each) for each in shape]
    if len(sizes) == 1:  # `torch.ones(logits.shape)`
        sizes = next((list(t.parts) for t in sizes[0].things if isinstance(t, Items)), sizes)
    at = [index for index, each in enumerate(sizes) if each.spread is COUNT]
    if sizes and all(each.spread is SAME and not each.things for each in sizes):
        return SAME  # `x.new(1, 4)`
    return {0: ROWS, 1: COLUMNS}.get(at[0], LOCAL) if len(at) == 1 else "has the number of rows in its shape"


def _of_method(
    short: str,
    node: ast.Call,
    base: Value,
    rest: Sequence[ast.expr],
    given: Sequence[Value],
    value: Value,
    latest: Latest,
) -> Spread | str:
    others = [each for each in given if is_whole(each) and each.spread in (ROWS, COLUMNS)]
    if _beside((base, *given)) and short not in ("view", "reshape", "expand", "repeat", *FACTORIES):
        return STATISTIC
    if short in FACTORIES:
        return _made(rest, latest)
    if short in QUESTIONS or short == "backward" or base.spread in (MEAN, SUM, COUNT) and not others:
        return value.spread
    if base.spread not in (ROWS, COLUMNS) and base.spread is not SAME:
        return value.spread
    if short in ELEMENTWISE:
        if any(each.spread is not base.spread for each in others if base.spread is not SAME) or _pairs((base, *others)):
            return PAIRED
        return base.spread if base.spread is not SAME else value.spread
    if short in ("t", "transpose", "swapaxes", "permute"):
        axes = [_number(each) for each in (rest[0].elts if _is_list(rest) else rest)]  # type: ignore[attr-defined]
        return _turned(base, [0, 1] if short == "t" else axes)
    if short == "pad":
        return _padded(node, rest, base)
    if base.spread is COLUMNS:
        if short in ("view", "reshape", "flatten") and (not rest or _number(rest[0]) == -1):
            return ROWS
        if short == "flatten" and _number(rest[0]) == 0:
            return ROWS
        if short == "squeeze" and rest and _number(rest[0]) == 0:
            return ROWS  # of the state of one layer
        if (
            short in ("expand", "repeat")
            and len(rest) > 1
            and _number(rest[1]) in ((1, -1) if short == "expand" else (1,))
        ):
            return COLUMNS
        if short in ("softmax", "log_softmax", "mean", "sum", "max", "argmax") and _axis(node, rest) in (2, -1):
            return (
                COLUMNS if _axis(node, rest) == 2 or (base.axes or 0) > 2 else f"works along an unknown axis ({short})"
            )
        return COLUMNS if short in ("embedding", "linear") else f"calls {short} on rows that lie along the second axis"
    if short in PER_ROW:
        beside = short in ("bmm", "baddbmm", "bilinear") and all(each.spread is ROWS for each in others)
        return ROWS if not others or beside else f"mixes rows ({short})"
    if short in ALONG:
        return _along(short, node, rest, base, value)
    if short in ("view", "reshape"):
        shape = rest[0].elts if _is_list(rest) else rest  # type: ignore[attr-defined]
        first = shape[0] if shape else None
        if first is not None and (_number(first) == -1 or latest(first).spread is COUNT):
            return ROWS
        if first is not None and (_number(first) == 1 or latest(first).const == 1):
            second = shape[1] if len(shape) > 1 else None
            return COLUMNS if second is not None and latest(second).spread is COUNT else ONE
        return f"gives its rows another shape ({short}): write -1 for the first axis"
    if short in ("flatten", "ravel"):
        return ROWS
    if short == "squeeze":
        return ROWS if not rest or _number(rest[0]) not in (None, 0) else "drops the axis of the rows"
    if short in ("unsqueeze", "expand_dims"):
        at = _axis(node, rest)
        if at is not None and (at > 0 or at == -1 or at < 0 and base.axes is not None and base.axes + 1 + at > 0):
            return ROWS
        return COLUMNS if at == 0 else "adds an axis that may come before that of the rows"
    if short == "gather" and _axis(node, rest) not in (None, 0) and len(others) == len(given) - 1:
        return ROWS
    if short in ("chunk", "split", "tensor_split"):
        return (
            _along(short, node, rest[1:], base, value)
            if _axis(node, rest[1:]) is not None
            else f"cuts the rows ({short})"
        )
    if short in PRODUCTS:
        return _product(base, given[0]) if given else LOCAL
    if short in ("expand", "repeat"):
        first = rest[0] if rest else None
        fits = first is not None and (_number(first) in (-1, 1) or latest(first).spread is COUNT)
        return ROWS if fits and (short == "expand" or _number(first) == 1) else f"repeats rows ({short})"
    if short in ("sample", "rsample", "multinomial"):
        return ENVIRONMENT
    return f"calls {short}, which is not known to keep rows apart"


def _padded(node: ast.Call, rest: Sequence[ast.expr], base: Value) -> Spread | str:
    """`F.pad(x, (1, 0, 0, 0))` adds to the last axes, as many as pairs of numbers are not zero."""
    given = [*rest[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "pad")]
    numbers = [_number(each) for each in given[0].elts] if given and isinstance(given[0], (ast.Tuple, ast.List)) else []
    changed = [at // 2 + 1 for at, number in enumerate(numbers) if number != 0]
    behind = _surely(base) - (1 if base.spread is ROWS else 2)
    if numbers and max(changed, default=0) <= behind:
        return base.spread
    return "adds to an axis that may be that of the rows (pad)"


def _along(short: str, node: ast.Call, rest: Sequence[ast.expr], base: Value, value: Value) -> Spread | str:
    over = _axis(node, rest[1:] if short == "topk" else rest)  # how many comes first
    if short == "topk" and over is None:
        over = -1
    if over is None:
        written = bool(rest) or any(k.arg in ("dim", "axis") for k in node.keywords)
        if not written and short in ("normalize", "cosine_similarity"):
            return ROWS
        if written and short not in ("max", "min"):
            return f"works along an axis that cannot be read ({short})"
        return value.spread if short in ("mean", "sum", "nansum", "nanmean") and not written else LOCAL
    if over > 0 or over < 0 and _surely(base) + over > 0:
        return ROWS
    if over == 0:
        return value.spread if short in ("mean", "sum") else f"works along the rows ({short})"
    return f"works along the last axis ({short}), which may be that of the rows: write a positive number"


def _turned(base: Value, axes: Sequence[int | None]) -> Spread | str:
    at = 0 if base.spread is ROWS else 1
    if None in axes or not axes:
        return "turns axes that cannot be read"
    if len(axes) == 2:
        plain = [a if a is not None and a >= 0 else (base.axes or -9) + (a or 0) for a in axes]
        if any(a < 0 for a in plain):
            return "turns an axis that may be that of the rows"
        first, second = plain
        at = second if at == first else first if at == second else at
    else:
        at = list(axes).index(at) if at in axes else 9
    return {0: ROWS, 1: COLUMNS}.get(at, "moves the rows to a later axis")


def _of_index(node: ast.Subscript, value: Value, latest: Latest) -> Spread | str:
    base = latest(node.value)
    if not is_whole(base):
        key = latest(node.slice)
        if is_whole(key) and key.spread is ROWS and any(isinstance(o, Draw) and o.batch for o in key.origins):
            return ROWS  # the numbers of a rank's samples
        return "picks elements by numbers that are computed from rows" if is_whole(key) else value.spread
    if base.things or base.spread not in (ROWS, COLUMNS):
        return value.spread
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if base.spread is COLUMNS:
        if len(parts) == 1 and _is_one(parts[0], latest) and _is_number(parts[0], latest):
            return ROWS
        return COLUMNS if len(parts) == 1 and isinstance(parts[0], ast.Slice) else "picks columns"
    if isinstance(parts[0], ast.Slice) and parts[0].lower is parts[0].upper is parts[0].step is None:
        return ROWS
    if isinstance(parts[0], ast.Constant) and parts[0].value is ... and (base.axes or 0) >= len(parts):
        return ROWS
    if _adds_axis(parts[0], latest):
        return COLUMNS
    if isinstance(node.value, ast.Call) and _called(node.value) in PICKING:
        return ROWS  # the values or the positions
    if len(parts) > 1 and _is_each_row(parts[0], latest):
        return ROWS if all(latest(part).spread in (SAME, ROWS) for part in parts[1:]) else CHOSEN
    if any(isinstance(t, Index) for t in latest(parts[0]).things):
        return "takes one row at a time"
    return "picks some of the rows" if isinstance(parts[0], ast.Slice) else CHOSEN


def _is_each_row(index: ast.expr, latest: Latest) -> bool:
    """Whether an index goes through all the rows: `range(out.shape[0])` of `out[range(out.shape[0]), labels]`."""
    made = [each for _, each in latest(index).made] if isinstance(index, ast.Name) else [index]
    if len(made) != 1 or not isinstance(made[0], ast.Call) or _called(made[0]) not in ("range", "arange"):
        return False
    number = made[0].args[0] if len(made[0].args) == 1 else None
    return number is not None and latest(number).spread is COUNT


def through_layer(
    layer: Object, given: list[Value], value: Value, contents: Callable[[Value], list[Value]]
) -> Spread | str:
    """Where the rows lie in the output of a module of a library."""
    short = layer.name.rpartition(".")[2]
    if short in LOSSES:
        return _of_loss(short, given, value)
    first = given[0] if given else value
    drawn = any(isinstance(each, Draw) and each.columns for each in first.origins)
    if first.spread is COLUMNS and short != "Embedding" and (first.axes == 2 or drawn and (first.axes or 0) < 3):
        return f"may take the axis of the samples for that of the features ({short})"
    if short == "Sequential":
        spread: Spread | str = first.spread
        for part in _inside(layer):
            if part.cls is None and not isinstance(spread, str):
                spread = through_layer(part, [first.but(spread=spread)], value, contents)
        return spread
    batch_first = layer.keywords.get("batch_first")
    if short in RECURRENT:
        expected = ROWS if batch_first is not None and batch_first.const is True else COLUMNS
        if first.spread is not expected:
            return (
                f"runs along the rows: {short} takes its first axis for time"
                if expected is COLUMNS
                else (f"runs along the rows: {short} takes its second axis for time")
            )
        states = [part for state in given[1:] for part in _alternatives(state, contents) if part.const is not None]
        if any(not is_whole(state) or state.spread is not COLUMNS for state in states):
            return STATE
        return expected
    if layer.name.startswith("torch.nn.") and short in STACKS:
        return _through_attention(layer, given, short)
    if first.spread is ROWS and takes_one(short, first):
        return f"takes the numbers of one sample for rows ({short})"
    if layer.name.startswith(("torch_geometric.", "dgl.")):
        return "works on a graph, whose nodes depend on each other"
    if layer.name.startswith("transformers.") and all(each.spread in (SAME, ROWS) for each in given):
        return ROWS  # its models take the samples first, whatever they are called by
    if not layer.name.startswith("torch.nn."):
        return f"calls {layer.name}, which cannot be followed"
    if first.spread in (ROWS, COLUMNS) and all(each.spread in (SAME, first.spread) for each in given):
        if short in LAYERS and (first.spread is ROWS or short in ("Linear", "Embedding", "Dropout", "ReLU", "Tanh")):
            return first.spread
        if short == "Flatten" and first.spread is ROWS or short == "Unflatten":
            return first.spread
        if short in FOLDING:
            over = layer.argument("dim", 0)
            at = over.const if over is not None else 1 if first.axes in (2, 4) else None  # as torch chose it of old
            known = first.axes is not None and isinstance(at, int) and first.axes + at > 0
            return (
                first.spread
                if isinstance(at, int) and (at > 0 or at < 0 and known)
                else f"works along an axis that may be that of the rows ({short})"
                + ("" if over is not None or short == "Softmax2d" else ": write `dim=1` if it is not")
            )
    return f"runs them through {short}, which is not known to keep rows apart"


def _alternatives(state: Value, contents: Callable[[Value], list[Value]]) -> list[Value]:
    """The tensors that a state is: those of a pair, or one."""
    alone = state.but(things=frozenset())
    held = [each for each in contents(state) if each is not NOTHING]
    return [*held, *([alone] if not state.things or alone.array or alone.spread is not SAME else [])]


def _through_attention(layer: Object, given: list[Value], short: str) -> Spread | str:
    """Sequences attend within themselves; the batch is their second axis, or the first where the layers say so."""
    parts = [layer, *(t for value in layer.args[:1] for t in value.things if isinstance(t, Object))]
    told = [part.keywords["batch_first"].const for part in parts if "batch_first" in part.keywords]
    most = 6 if any(part.name.endswith("Layer") for part in parts) else 9
    if any(len(part.args) > most or "**" in part.keywords for part in parts) or len(set(map(repr, told))) > 1:
        return f"runs them through {short}, of which it cannot be seen which axis it takes for time"
    expected = ROWS if told and told[0] is True else COLUMNS
    if told and told[0] not in (True, False):
        return f"runs them through {short}, of which it cannot be seen which axis it takes for time"
    sequences = given[: 2 if short in ("Transformer", "TransformerDecoder", "TransformerDecoderLayer") else 1]
    if any(not is_whole(each) or each.spread is not expected or each.axes not in (None, 3) for each in sequences):
        return f"runs along the rows: {short} takes its {'second' if expected is ROWS else 'first'} axis for time"
    if any(is_whole(each) for each in given[len(sequences) :]):
        return f"runs them through {short} with a mask that is computed from rows"
    return expected


def _length(node: ast.expr, latest: Latest) -> int | None:
    """`len(sizes)` of a literal list that nothing was added to."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "len":
        return None
    lists = [t for t in latest(node.args[0]).things if isinstance(t, Items)] if len(node.args) == 1 else []
    if len(lists) != 1 or lists[0].element is not NOTHING or not isinstance(lists[0].node, ast.List):
        return None
    return len(lists[0].parts)


def _is_list(rest: Sequence[ast.expr]) -> bool:
    return len(rest) == 1 and isinstance(rest[0], (ast.Tuple, ast.List))


def _number(node: ast.expr | None) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def _axis(node: ast.Call, rest: Sequence[ast.expr], names: tuple[str, ...] = ("dim", "axis")) -> int | None:
    """The axis that a call names, by position or keyword."""
    for keyword in node.keywords:
        if keyword.arg in names:
            return _number(keyword.value)
    return _number(rest[0]) if rest else None


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
