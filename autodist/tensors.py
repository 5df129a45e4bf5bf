"""What methods and functions make of a tensor, by their names: which of its numbers they join, and how they draw."""

from __future__ import annotations

import ast

from autodist.operations import load
from autodist.source import last_name
from autodist.spread import LOCAL, SAME, Spread, combine

TABLE = load()
TURNING = TABLE.named("transpose", "permute", "movedim")
"""What exchanges axes."""
KEEPING = TABLE.named("same", "linear") | frozenset(
    "squeeze long int bool byte mul mul_ div div_ scale detach_ FloatTensor LongTensor asscalar astype".split()
)
"""After which a value says the same as before, in another form or place: also rounded, or times a number."""
SELECTING = frozenset("diag diagonal triu tril narrow select flip roll".split())
"""What takes some of a tensor's elements by their places, or puts them elsewhere: as many, whatever they are."""
MEANS = TABLE.named("reduction", kind="mean")
SUMS = TABLE.named("reduction", kind="sum")
COUNTS = TABLE.named("length") - {"size"}
EXTREMES = (
    TABLE.named("reduction", kind="max")
    | TABLE.named("reduction", kind="min")
    | TABLE.named("reduction", kind="none")
    | frozenset("topk sort argsort".split())
) - frozenset("quantile nanquantile std_mean var_mean".split())
"""What is computed of all elements along an axis, and is no sum."""
TENSORS = frozenset("to cpu cuda clone detach float double half bfloat16".split())
"""What gives the same elements as a tensor, and not as numbers."""
CASTS = frozenset("int bool long byte short int32 int64 complex".split())
ELEMENTWISE = (
    (TABLE.named("elementwise", "linear", "add", "multiply", "divide") | TENSORS)
    - CASTS
    - frozenset("equal expand_as view_as_real view_as_complex deg2rad resolve_conj".split())
)
"""What computes each element of a tensor from that element of others, and as many; `torch.equal` decides."""
TAKING_APART = frozenset(
    "item tolist numpy histc histogram quantile view reshape flatten ravel t transpose permute mm matmul dot mv bmm "
    "cat stack hstack vstack outer einsum det svd svdvals qr inverse pinverse matrix_norm linear cosine_similarity "
    "mse_loss l1_loss triu tril diag trace unique topk sort argsort mode cumsum cov corrcoef".split()
)
"""What takes a tensor apart, or reads its values, in a way that a shard does not answer for the whole."""
NEW = frozenset("new new_zeros new_ones new_full new_empty".split())
ASKING = frozenset("size dim ndimension is_floating_point get_device element_size".split())
"""What is asked of a tensor that goes by its layout."""
RECURRENT = frozenset("RNN LSTM GRU".split())
"""Layers that give their outputs and their states."""
NORMS = frozenset(["norm", "vector_norm"])
# Where random functions take the shape of what they draw: the number of a positional argument, -1 for the last one.
SHAPES = {
    "torch.rand": 0,
    "torch.randn": 0,
    "torch.normal": 2,
    "torch.randperm": 0,
    "torch.randint": -1,
    "torch.multinomial": 1,
    "torch.distributions.sample": 0,
    "numpy.random.rand": 0,
    "numpy.random.randn": 0,
    "numpy.random.random": 0,
    "numpy.random.random_sample": 0,
    "numpy.random.permutation": 0,
    "numpy.random.randint": 2,
    "numpy.random.uniform": 2,
    "numpy.random.normal": 2,
    "numpy.random.standard_normal": 0,
    "numpy.random.choice": 1,
    "random.sample": 1,
}


def reduces(name: str, call: ast.Call, start: int) -> bool:
    """Whether a method (``start`` 0) or function (1) makes one number of all elements of a tensor."""
    if name in NORMS:
        return axis(call, start + 1) is None
    return reduces_axis(name) and axis(call, start) is None


def reduces_axis(name: str) -> bool:
    """Whether a method or function makes fewer elements of a tensor; see `reduces` for all of them."""
    return name in MEANS | SUMS | EXTREMES - {"topk", "sort", "argsort", "mode"} | NORMS


def takes_apart(name: str) -> bool:
    """Whether what a method or function gives depends on where in a tensor its elements are, or is no tensor."""
    return name in TAKING_APART


def stays_sharded(name: str) -> bool:
    """Whether torch makes of a tensor that is sharded another one that is, of the same shape."""
    return name in ELEMENTWISE or name in ("softmax", "log_softmax", "normalize")


def drawn(name: str, call: ast.Call) -> ast.expr | None:
    """How many samples a random function draws: the first axis of its shape. None for a single one, or unknown."""
    node = next((k.value for k in call.keywords if k.arg in ("size", "k", "num_samples", "sample_shape")), None)
    position = SHAPES.get(name)
    if node is None and position is not None and len(call.args) > position:
        node = call.args[position]
    if isinstance(node, (ast.Tuple, ast.List)):
        node = node.elts[0] if node.elts else None
    return None if isinstance(node, ast.Starred) or isinstance(node, ast.Constant) and node.value in (0, 1) else node


def averaged(node: ast.expr) -> ast.expr | None:
    """What the mean of all of it is taken of: `x` of `x.mean()` and `torch.mean(x)`."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "mean" or node.keywords:
        return None
    if node.args:
        return node.args[0] if len(node.args) == 1 else None
    return node.func.value if isinstance(node.func, ast.Attribute) else None


def axis(call: ast.Call, position: int) -> int | bool | None:
    """The axis a reduction names: an index, None for all axes, False for one that cannot be read."""
    node: ast.expr | None = call.args[position] if len(call.args) > position else None
    for keyword in call.keywords:
        if keyword.arg in ("dim", "axis", "dims"):
            node = keyword.value
    if node is None:
        return None
    if isinstance(node, (ast.Tuple, ast.List)):
        axes = [number_of(each) for each in node.elts]
        return 0 if 0 in axes else (axes[0] if axes and axes[0] is not None else False)
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("tuple", "list") and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range" and len(node.args) > 1:
        node = node.args[0]  # `tuple(range(1, x.dim()))`
    found = number_of(node)
    return False if found is None else found


def number_of(node: ast.expr | None) -> int | None:
    """A whole number that is written out, maybe with a minus."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number_of(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def computed(name: str, call: ast.Call, base: Spread | None, arguments: list[Spread]) -> Spread:
    """The spread of what a method of ``base`` computes, or a function (``base`` is None)."""
    given = arguments if base is None else [base, *arguments]
    first, position = (given[0] if given else SAME), 1 if base is None else 0
    if name == "new_tensor" and base is not None:  # of another's type and device, not of its samples
        return arguments[0] if arguments else SAME
    if name in NEW and base is not None and call.args and all(isinstance(each, ast.Constant) for each in call.args):
        return SAME  # `x.new_zeros(1)`
    if name in COUNTS or name == "size" and axis(call, position) in (0, None):
        return LOCAL if first.is_local else SAME
    if name in ASKING:
        return SAME
    return first if name in MEANS | SUMS | TURNING else combine(given)
