"""What tensor operations make of the axis that the ranks share out."""

from __future__ import annotations

import ast
from collections.abc import Callable

from autodist.source import last_name
from autodist.spread import COLUMNS, COUNT, CROSS, LOCAL, MEAN, ROWS, SAME, SUM, Spread, add, combine, divide, multiply
from autodist.tensors import patterns

RELATING = frozenset(
    "softmax log_softmax softmin normalize cumsum cumprod logcumsumexp sort argsort msort diff".split()
)
"""What relates the numbers along an axis to each other."""
TURNING = frozenset("t T transpose permute swapaxes movedim".split())
"""What exchanges axes."""
IN_PLACE = {f"{name}_": name for name in ("t", "transpose", "swapaxes", "squeeze", "unsqueeze")}
"""What does so to the tensor itself, and gives it."""
# Methods and functions after which a value says the same as before, in another form or place.
KEEPING = frozenset(
    "item cpu cuda to detach detach_ float double half long int bool numpy tolist clone data type requires_grad_ "
    "contiguous type_as byte bfloat16 mul mul_ div div_ neg squeeze float32 asarray array as_tensor tensor from_numpy "
    "FloatTensor LongTensor asscalar astype Variable scale".split()
)
RESHAPING = frozenset("view reshape unsqueeze flatten ravel".split())
SELECTING = frozenset("diag diagonal triu tril narrow select flip roll".split())
"""What takes some of a tensor's elements by their places, or puts them elsewhere: as many, whatever they are."""
MEANS = frozenset("mean nanmean average".split())
SUMS = frozenset("sum nansum count_nonzero".split())
TALLIES = frozenset("bincount histc histogram".split())
FIXED = frozenset("minlength range min max".split())
"""What makes a tally as long on one rank as on the others."""
COUNTS = frozenset("numel nelement __len__".split())
EXTREMES = frozenset(
    "max min amax amin argmax argmin topk kthvalue sort argsort any all norm vector_norm std var prod median mode "
    "logsumexp".split()
)
DECIDING = frozenset("equal allclose array_equal array_equiv".split())
"""What says of all elements together whether they are those of another tensor."""
COUNTED = frozenset("topk kthvalue".split())
"""What is told how many first, and then the axis, which is the last one if it is not told."""
ELEMENTWISE = frozenset(
    "abs neg pow square sqrt rsqrt exp log log1p sign relu clamp clip clamp_min clamp_max sigmoid tanh isnan isinf "
    "isfinite gt lt ge le eq ne clone detach float double half bfloat16 to cpu cuda mul div add sub where "
    "logical_and logical_or logical_not absolute relu gelu silu softplus erf sin cos round floor ceil trunc reciprocal "
    "maximum minimum lerp addcmul addcdiv fmod remainder nan_to_num".split()
)
"""What computes each element of a tensor from that element of others."""
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
FOLLOWED = (
    RELATING
    | TURNING
    | IN_PLACE.keys()
    | KEEPING
    | RESHAPING
    | MEANS
    | SUMS
    | TALLIES
    | COUNTS
    | EXTREMES
    | ELEMENTWISE
    | ARITHMETIC.keys()
) | frozenset(
    "dot vdot einsum size dim ndimension shape len min max abs sum float int bool str repr print format round "
    "pow list tuple zip enumerate range isinstance hasattr getattr set sorted map filter reversed dict norm "
    "vector_norm split chunk unbind cat concat concatenate stack vstack hstack column_stack gather scatter "
    "scatter_ scatter_add_ scatter_add index_select take_along_dim masked_select masked_fill masked_fill_ "
    "one_hot expand expand_as repeat repeat_interleave tile broadcast_to flip flipud roll narrow select view_as "
    "reshape_as squeeze unsqueeze_ unflatten swapaxes resize_ resize new_zeros new_ones new_full new_empty "
    "new_tensor zeros_like ones_like full_like empty_like rand_like randn_like randint_like zeros ones full "
    "empty rand randn randint arange eye linspace dropout pad interpolate upsample conv1d conv2d conv3d "
    "conv_transpose2d avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d adaptive_avg_pool2d "
    "adaptive_max_pool2d unfold fold grid_sample affine_grid linear bilinear embedding layer_norm group_norm "
    "instance_norm batch_norm pixel_shuffle leaky_relu elu selu hardtanh softsign logsigmoid tanhshrink "
    "softshrink gumbel_softmax log_sigmoid sigmoid_ relu_ tanh_ relu6 hardswish mish expm1 log2 log10 exp2 sinh "
    "cosh tan asin acos atan atan2 acosh asinh atanh erfc erfinv lgamma digamma sgn signbit square_ xlogy "
    "logaddexp hypot heaviside bernoulli multinomial normal normal_ uniform_ random_ exponential_ bernoulli_ "
    "fill_ zero_ copy_ clamp_ clamp_min_ clamp_max_ add sub rsub sub_ add_ true_divide floor_divide divide "
    "multiply subtract pow_ sqrt_ exp_ abs_ neg_ masked_scatter bmm baddbmm mm matmul mv addmm cdist "
    "pairwise_distance cosine_similarity cross triu tril diagonal rot90 rearrange reduce pack unpack "
    "retain_grad register_hook backward grad fft rfft irfft ifft fft2 ifft2 rfft2 irfft2 stft istft real imag "
    "angle conj view_as_real view_as_complex complex polar quantize fake_quantize checkpoint get append extend "
    "items values keys astype copy numpy_ where_ cpu_ nan_to_num_ isclose allclose equal any all argmax argmin "
    "logical_xor bitwise_and bitwise_or bitwise_not sequence_mask pad_sequence pack_padded_sequence "
    "pad_packed_sequence rnn lstm gru log_softmax softmax2d threshold l1_loss mse_loss cross_entropy nll_loss "
    "poisson_nll_loss gaussian_nll_loss kl_div binary_cross_entropy binary_cross_entropy_with_logits "
    "margin_ranking_loss hinge_embedding_loss huber_loss smooth_l1_loss soft_margin_loss multi_margin_loss "
    "multilabel_margin_loss multilabel_soft_margin_loss triplet_margin_loss triplet_margin_with_distance_loss "
    "to_tuple cosine_embedding_loss ctc_loss scaled_dot_product_attention item_ sample rsample log_prob entropy Normal "
    "Categorical Bernoulli kl_divergence Independent Variable FloatTensor apply pin_memory".split()
)
"""What is known of how it treats the samples of a batch: nothing is said of other functions of torch."""
GATHERING = frozenset(
    "unique unique_consecutive quantile nanquantile corrcoef cov svd svdvals qr eigh eigvalsh pca_lowrank kthvalue "
    "cummax cummin searchsorted mode".split()
)
"""What relates the samples that it is given, be they labels."""
CENTRING = frozenset("cov corrcoef".split())
"""What is computed of all rows and columns of the one matrix that it takes."""
DECOMPOSING = frozenset("svd svdvals qr eigh eigvalsh pca_lowrank".split())
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
    return name in RELATING and along is not None and axis(call, position + (name in ("normalize", "diff"))) is along


def moves_along(name: str) -> bool:
    """Whether a method or function relates the elements along an axis, or exchanges axes."""
    name = IN_PLACE.get(name, name)
    return name in RELATING or name in TURNING or name in ("unsqueeze", "flip", "roll")


def pairs_rows(name: str, call: ast.Call, position: int, spread: Spread) -> bool:
    """Whether each sample of the batch comes to stand in the place of another one: `x.flip(0)`, `x.roll(1, 0)`."""
    turned = name == "flip" and axis(call, position) == 0 or name == "roll" and axis(call, position + 1) == 0
    return spread is ROWS and (turned or name == "flipud")


def _counted_from_first(name: str, call: ast.Call, position: int, axes: int | None) -> ast.Call:
    """A call that names axes from the first one on, of a tensor that has ``axes``: `x.sum(1)` for `x.sum(-1)`."""
    if axes is None or axes < 2 or not (reduces_axis(name) or name in RELATING | COUNTED):
        return call
    position += name in NORMS | COUNTED | {"normalize", "diff"}

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
    placed = patterns.moved(name, call, first)
    if placed is not None:
        return placed
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
    calls = (each for other in given for each in ast.walk(other) if isinstance(each, ast.Call))
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
