"""What tensor operations make of the axis that the ranks share out."""

from __future__ import annotations

import ast
from collections.abc import Callable

from autodist.operations import CLASSES, load
from autodist.source import last_name, walk
from autodist.spread import COLUMNS, COUNT, CROSS, LOCAL, MEAN, ROWS, SAME, SUM, Spread, add, combine, divide, multiply

TABLE = load()
RELATING = TABLE.named("scan") | frozenset("sort argsort msort".split())
"""What relates the numbers along an axis to each other."""
TURNING = TABLE.named("transpose", "permute", "movedim")
"""What exchanges axes."""
IN_PLACE = {f"{name}_": name for name in ("t", "transpose", "swapaxes", "squeeze", "unsqueeze")}
"""What does so to the tensor itself, and gives it."""
KEEPING = TABLE.named("same", "linear") | frozenset(
    "squeeze long int bool byte mul mul_ div div_ scale detach_ FloatTensor LongTensor asscalar astype".split()
)
"""After which a value says the same as before, in another form or place: also rounded, or times a number."""
RESHAPING = TABLE.named("view", "flatten", "unsqueeze")
SELECTING = frozenset("diag diagonal triu tril narrow select flip roll".split())
"""What takes some of a tensor's elements by their places, or puts them elsewhere: as many, whatever they are."""
MEANS = TABLE.named("reduction", kind="mean")
SUMS = TABLE.named("reduction", kind="sum")
TALLIES = frozenset("bincount histc histogram".split())
FIXED = frozenset("minlength range min max".split())
"""What makes a tally as long on one rank as on the others."""
COUNTS = TABLE.named("length") - {"size"}
COUNTED = frozenset("topk kthvalue".split())
"""What is told how many first, and then the axis, which is the last one if it is not told."""
MATRICES = TABLE.named("decomposition") | frozenset(
    "cholesky det inv inverse matrix_norm pinv pinverse slogdet".split()
)
"""What is computed of one matrix."""
GATHERING = TABLE.named("decomposition") | frozenset(
    "unique unique_consecutive quantile nanquantile corrcoef cov kthvalue cummax cummin searchsorted mode".split()
)
"""What relates the samples that it is given, be they labels: of several classes, and answered by gathering them."""
EXTREMES = (
    TABLE.named("reduction", kind="max")
    | TABLE.named("reduction", kind="min")
    | TABLE.named("reduction", kind="none")
    | frozenset("topk sort argsort".split())
) - frozenset("quantile nanquantile std_mean var_mean".split())
"""What is computed of all elements along an axis, and is no sum; quantiles are gathered, see above."""
BEHIND_ANOTHER = TABLE.named("reduction", "scan", "sort", axis=2)
"""What takes something else ahead of the axis: an order, how many, how far."""
DECIDING = TABLE.named("comparison", kind="min")
"""What says of all elements together whether they are those of another tensor."""
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
ARITHMETIC: dict[str, Callable[[Spread, Spread], Spread]] = {
    "mul": multiply,
    "mul_": multiply,
    "div": divide,
    "div_": divide,
    "add": add,
    "add_": add,
    "sub": add,
    "sub_": add,
}
REPEATING = frozenset("repeat expand tile".split())
SPREADING = REPEATING | frozenset("expand_as broadcast_to repeat_interleave".split())
NEW = frozenset("new new_zeros new_ones new_full new_empty".split())
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
UNANSWERED = (
    MATRICES
    | GATHERING
    | frozenset(
        "argwhere cartesian_prod combinations diag expand_dims flatnonzero fliplr logspace nonzero outer randperm "
        "row_stack std_mean take take_along_axis tensor_split trace var_mean".split()
    )
)
"""What the table knows and this module has no answer to: which samples of a batch meet, or where they then lie."""
FOLLOWED = (
    (TABLE.named(*CLASSES) - UNANSWERED)
    | {each.short for each in TABLE if each.module in ("builtins", "torch.fft")}
    | frozenset("kthvalue mode".split())
    | IN_PLACE.keys()
    | frozenset(
        "Bernoulli Categorical FloatTensor Independent LongTensor Normal append apply asscalar astype checkpoint "
        "deque entropy extend fake_quantize filter get getattr grad gru item_ items keys kl_divergence log_prob "
        "log_sigmoid lstm map masked_scatter new_tensor numpy_ pack pack_padded_sequence pad_packed_sequence "
        "pad_sequence quantize rearrange reduce resize resize_ rnn rsample sample scale scatter_ scatter_add_ "
        "sequence_mask shape softmax2d to_tuple unpack values".split()
    )
)
"""What is known of how it treats the samples of a batch: nothing is said of other functions of torch."""
DECOMPOSING = TABLE.named("decomposition")
# What finds some of the samples: how many, and which, says nothing in the order of the others.
FINDING = frozenset("nonzero argwhere unique flatnonzero".split())
PRODUCTS = frozenset("mm matmul cdist addmm addmm_ cosine_similarity pairwise_distance".split())


def reduces(name: str, call: ast.Call, start: int) -> bool:
    """Whether a method (``start`` 0) or function (1) makes one number of all elements of a tensor."""
    if name in NORMS:
        return axis(call, start + 1) is None
    return reduces_axis(name) and axis(call, start) is None


def reduces_axis(name: str) -> bool:
    """Whether a method or function makes fewer elements of a tensor; see `reduces` for all of them."""
    return name in MEANS | SUMS | EXTREMES - {"topk", "sort", "argsort", "mode"} | NORMS


def is_followed(name: str) -> bool:
    """Whether it is known how a function or method treats the samples that it is given; classes only hold them."""
    in_place = name.endswith("_") and name[:-1] in ELEMENTWISE  # `loss.log_()`
    return name in FOLLOWED or in_place or name[:1].isupper()


def gathers(name: str) -> bool:
    """Whether a function or method relates the samples of a batch, whatever axis it names."""
    return name in GATHERING


def decomposes(name: str) -> bool:
    """Whether a function takes a matrix apart, or one for each sample of a batch."""
    return name in DECOMPOSING


def takes_apart(name: str) -> bool:
    """Whether what a method or function gives depends on where in a tensor its elements are, or is no tensor."""
    return name in TAKING_APART


def stays_sharded(name: str) -> bool:
    """Whether torch makes of a tensor that is sharded another one that is, of the same shape."""
    return keeps_elements(name) or name in ("softmax", "log_softmax", "normalize")


def keeps_elements(name: str) -> bool:
    """Whether each element of a result is computed from that element of the tensors which are given."""
    return name in ELEMENTWISE


def drawn(name: str, call: ast.Call) -> ast.expr | None:
    """How many samples a random function draws: the first axis of its shape. None for a single one, or unknown."""
    node = next((k.value for k in call.keywords if k.arg in ("size", "k", "num_samples", "sample_shape")), None)
    position = SHAPES.get(name)
    if node is None and position is not None and len(call.args) > position:
        node = call.args[position]
    if isinstance(node, (ast.Tuple, ast.List)):
        node = node.elts[0] if node.elts else None
    return None if isinstance(node, ast.Starred) or isinstance(node, ast.Constant) and node.value in (0, 1) else node


def puts_second(name: str, call: ast.Call) -> bool:
    """Whether a list of samples becomes a tensor with the samples along its second axis."""
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    if name == "pad_sequence":
        first = options.get("batch_first", call.args[1] if len(call.args) > 1 else ast.Constant(False))
        return isinstance(first, ast.Constant) and first.value is False
    return name == "stack" and axis(call, 1) == 1


def averaged(node: ast.expr) -> ast.expr | None:
    """What the mean of all of it is taken of: `x` of `x.mean()` and `torch.mean(x)`."""
    return _taken_of(node, ("mean",))


def extreme(node: ast.expr) -> tuple[Spread, ast.expr] | None:
    """What the largest or smallest number is taken of: `x` of `x.max()` and `torch.max(x)`."""
    for spread, names in ((Spread.MOST, ("max", "amax")), (Spread.LEAST, ("min", "amin"))):
        over = _taken_of(node, names)
        if over is not None:
            return spread, over
    return None


def _taken_of(node: ast.expr, names: tuple[str, ...]) -> ast.expr | None:
    if not isinstance(node, ast.Call) or last_name(node.func) not in names or node.keywords:
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
        axes = [_index(each) for each in node.elts]
        return 0 if 0 in axes else (axes[0] if axes and axes[0] is not None else False)
    if isinstance(node, ast.Constant) and node.value is None:
        return None
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("tuple", "list") and len(node.args) == 1:
        node = node.args[0]
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range" and len(node.args) > 1:
        node = node.args[0]  # `tuple(range(1, x.dim()))`
    found = _index(node)
    return False if found is None else found


def _index(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if isinstance(node.operand.value, int) else None
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def reduced(name: str, call: ast.Call, position: int, spread: Spread) -> Spread:
    """The spread of ``mean``, ``sum`` and their like over a tensor with ``spread``."""
    if spread in (MEAN, SUM, COUNT, SAME, LOCAL, CROSS):
        return spread
    over = axis(call, position)
    if over is False:
        return LOCAL  # an axis that cannot be read
    if spread is COLUMNS and over == 0 and not any(keyword.arg == "keepdim" for keyword in call.keywords):
        return ROWS  # what came before the samples is gone
    if spread is COLUMNS:
        return COLUMNS if over is not None and over != 1 else (MEAN if name in MEANS else SUM)
    if over is None or over == 0:
        return MEAN if name in MEANS else SUM
    return ROWS


def relates_rows(name: str, call: ast.Call, position: int, spread: Spread) -> bool:
    """Whether each sample's numbers come to depend on the other samples of the batch: `x.softmax(0)`."""
    along = {ROWS: 0, COLUMNS: 1}.get(spread)
    return name in RELATING and along is not None and axis(call, position + (name in BEHIND_ANOTHER)) is along


def moves_along(name: str) -> bool:
    """Whether a method or function relates the elements along an axis, or exchanges axes."""
    name = IN_PLACE.get(name, name)
    return name in RELATING or name in TURNING or name in ("unsqueeze", "flip", "roll")


def _counted_from_first(name: str, call: ast.Call, position: int, axes: int | None) -> ast.Call:
    """A call that names axes from the first one on, of a tensor that has ``axes``: `x.sum(1)` for `x.sum(-1)`."""
    if axes is None or axes < 2 or not (reduces_axis(name) or name in RELATING | COUNTED):
        return call
    position += name in BEHIND_ANOTHER

    def counted(node: ast.expr) -> ast.expr:
        number = _index(node)
        return node if number is None or not -axes <= number < 0 else ast.Constant(number + axes)

    args = [counted(each) if at == position else each for at, each in enumerate(call.args)]
    named = [
        ast.keyword(each.arg, counted(each.value) if each.arg in ("dim", "axis") else each.value)
        for each in call.keywords
    ]
    return ast.Call(call.func, args, named)


def operation(
    name: str, call: ast.Call, base: Spread | None, arguments: list[Spread], axes: int | None = None
) -> Spread:
    """The spread of a tensor operation, as a method of ``base`` or as a function (``base`` is None), of a tensor with
    so many axes, if that is known."""
    name = IN_PLACE.get(name, name)
    if (base or (arguments or [SAME])[0]) is COLUMNS:
        call = _counted_from_first(name, call, 1 if base is None else 0, axes)
    spreads = arguments if base is None else [base, *arguments]
    first = spreads[0] if spreads else SAME
    position = 1 if base is None else 0
    others = [each for each in spreads[1:] if each.is_local]
    if name == "new_tensor" and base is not None:  # of another's type and device, not of its samples
        return arguments[0] if arguments else SAME
    told = bool(call.args) and all(isinstance(each, ast.Constant) for each in call.args)
    if name in NEW and base is not None and told:  # `x.new_zeros(1)`
        return SAME
    if name in REPEATING and base is SAME and others == [COUNT]:  # `mask.repeat(len(x), 1)`: the same for each sample
        return {0: ROWS, 1: COLUMNS}.get(arguments.index(COUNT), LOCAL)
    if first is ROWS and _repeats_all(name, call, position, arguments if base is not None else arguments[1:]):
        return CROSS
    if name in SPREADING and first in (MEAN, SUM, LOCAL):  # `x.mean(0).expand_as(x)`: the same for each sample
        return first
    if name == "repeat_interleave" and first is SAME and others == [COUNT]:  # `torch.arange(4).repeat_interleave(n)`
        return ROWS
    if name in ("dot", "vdot") and spreads == [ROWS, ROWS]:
        return SUM
    if name == "einsum":
        return _einsum(call, spreads[1:])
    if name in ARITHMETIC and len(spreads) == 2:
        return ARITHMETIC[name](first, spreads[1])
    if name in ("reshape", "view", "flatten", "ravel") and first is COLUMNS and axis(call, position) in (None, -1):
        return ROWS
    if name in ("reshape", "view") and first is ROWS and is_one_row_of_all(call.args[position:]):
        return COLUMNS
    if name in ("reshape", "view") and first is ROWS and spreads[1:3] == [SAME, COUNT]:
        return COLUMNS  # `losses.view(length, batch_size)`
    if name in MEANS or name in SUMS:
        return reduced(name, call, position, first)
    if name in RESHAPING and first in (MEAN, SUM) and not others:
        return first
    if name in TALLIES and first in (ROWS, COLUMNS):
        return SUM if len(call.args) > 2 or any(k.arg in FIXED for k in call.keywords) else LOCAL
    if name == "resize_" and arguments and arguments[0] is COUNT:
        return ROWS
    if name in COUNTS:
        return COUNT if first in (ROWS, COLUMNS) else LOCAL if first in (COUNT, LOCAL, CROSS) else SAME
    if name in NORMS or name in COUNTED:  # its order, or how many, comes before the axis
        position += 1
    if name in EXTREMES and first in (ROWS, COLUMNS) and not others and not _compares(name, call, position):
        over = axis(call, position)
        over = -1 if over is None and name in COUNTED and first is ROWS else over
        if over is None or over is False or over == (0 if first is ROWS else 1):
            return LOCAL
    places = name == "where" and len(call.args) + len(call.keywords) == 1 - (base is not None)
    if (name in FINDING or places) and first in (ROWS, COLUMNS):
        return LOCAL
    if name == "size" and first in (ROWS, COLUMNS):
        over = axis(call, position)
        return COUNT if over == (0 if first is ROWS else 1) else (SAME if over is not None else LOCAL)
    if name == "size" and first is LOCAL and axis(call, position) in (0, None):
        return LOCAL  # of those that were found: `labels.unique().size(0)`
    if name in ("size", "dim", "ndimension", "is_floating_point", "get_device", "element_size"):
        return SAME
    if name in TURNING:
        return _turned(call, position, first, name)
    if name == "unsqueeze" and axis(call, position) == 0 and first is ROWS:
        return COLUMNS
    if name in PRODUCTS and {ROWS, COLUMNS} <= set(spreads):
        return CROSS
    if name == "cdist" and spreads[:2] == [ROWS, ROWS]:
        return CROSS
    if name == "item" and first in (ROWS, COLUMNS):
        return LOCAL
    if relates_rows(name, call, position, first):
        return LOCAL
    if name in KEEPING and not others:
        return first
    return combine(spreads)


def _compares(name: str, call: ast.Call, position: int) -> bool:
    """`torch.max(x, torch.tensor(0.1))`: the larger number of each pair, and no number of all of them."""
    given = call.args[position : position + 1] if name in ("max", "min") else []
    calls = (each for other in given for each in walk(other) if isinstance(each, ast.Call))
    return any(
        last_name(each.func) in ELEMENTWISE - {"abs", "round"} | {"tensor", "FloatTensor", "as_tensor"}
        for each in calls
    )


def is_one_row_of_all(sizes: list[ast.expr]) -> bool:
    """`labels.view(1, -1)`, `x.view(1, *x.shape)`: the samples lie along the second axis."""
    behind = behind_one_row(sizes)
    return isinstance(behind, ast.Starred) or behind is not None and _index(behind) == -1


def behind_one_row(sizes: list[ast.expr]) -> ast.expr | None:
    """The second of the sizes that a tensor is given, where the first is one."""
    if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
        sizes = sizes[0].elts
    return sizes[1] if len(sizes) > 1 and _index(sizes[0]) == 1 else None


def _repeats_all(name: str, call: ast.Call, position: int, arguments: list[Spread]) -> bool:
    """`x.repeat(len(x), 1)`, `x.repeat_interleave(len(x), 0)`: there is each sample as often as there are samples."""
    if arguments[:1] != [COUNT]:
        return False
    return name in ("repeat", "tile") or name == "repeat_interleave" and axis(call, position + 1) == 0


def _einsum(call: ast.Call, spreads: list[Spread]) -> Spread:
    """`torch.einsum("bi,bj->ij", x, y)`: a letter stands for the samples, which a sum is over if it is gone."""
    written = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    taken, arrow, left = written.replace(" ", "").partition("->") if isinstance(written, str) else ("", "", "")
    letters = taken.split(",")
    if not arrow or "." in taken or len(letters) != len(spreads):
        return combine(spreads)
    axes = {ROWS: 0, COLUMNS: 1}
    rows = {names[axes[each] :][:1] for names, each in zip(letters, spreads, strict=True) if each in axes}
    if not rows or not all(rows) or not {each for each in spreads if each.is_local} <= axes.keys():
        return combine(spreads)
    if len(rows) > 1:
        return CROSS
    (letter,) = rows
    if letter not in left:
        return SUM
    return ROWS if left.startswith(letter) else COLUMNS


def _turned(call: ast.Call, position: int, spread: Spread, name: str) -> Spread:
    if spread not in (ROWS, COLUMNS):
        return spread
    if name in ("t", "T"):
        return COLUMNS if spread is ROWS else ROWS
    axes = [_index(each) for each in call.args[position:]]
    if len(axes) == 1 and isinstance(call.args[position], (ast.Tuple, ast.List)):
        axes = [_index(each) for each in call.args[position].elts]  # type: ignore[attr-defined]
    if name == "permute":
        return (
            spread if not axes or axes[0] == 0 else (COLUMNS if spread is ROWS else (ROWS if axes[0] == 1 else COLUMNS))
        )
    if 0 not in axes:
        return spread
    return COLUMNS if spread is ROWS else ROWS
