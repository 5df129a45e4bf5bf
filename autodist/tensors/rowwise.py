"""Which operations keep the rows of a batch apart.

A loader promises that the samples of a batch do not depend on each other. Of a tensor that holds all the data nobody
promises that: its first axis may be time, or the nodes of a graph. So whoever wants to deal its rows out to ranks
follows them through every operation up to the loss, and what is not known here to treat each row alike is a reason
not to. How many axes a tensor has decides some of it, and is followed as far as the source tells.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence

from autodist.source import indices
from autodist.spread import COLUMNS, COUNT, LOCAL, MEAN, ROWS, SAME, SUM, Spread
from autodist.tensors.calls import (
    Latest,
    axis_of,
    called_name,
    is_entered,
    is_list,
    layers_of,
    library,
    makes_tensor,
    number_of,
    shape_asked,
)
from autodist.tensors.facts import (
    ALIKE,
    ALONG,
    ELEMENTWISE,
    FACTORIES,
    LOSSES,
    PER_ROW,
    PICKING,
    PLAIN_BUILTINS,
    PRODUCTS,
    QUESTIONS,
)
from autodist.tensors.mixing import CHOSEN, ENVIRONMENT, GRAPH, ONE, PAIRED, SINGLE, STATISTIC, is_whole, pairs
from autodist.tensors.shapes import adds_axis, is_each_row, is_number, is_one, surely
from autodist.tensors.torch_layers import of_loss, through_layer
from autodist.values import NOTHING, Draw, Index, Items, Object, Value

TURNED = "combines rows that lie along different axes, of which it cannot be seen that each meets its own alone"
IMPLICIT = frozenset("softmax log_softmax softmin".split())
"""What torch used to choose an axis for: the second of two or four, the first of one or three."""


def broadcasts(node: ast.expr) -> bool:
    """Whether one row meets each of the others: `x + places.unsqueeze(0)`, `places.unsqueeze(0).expand_as(x)`."""
    return isinstance(node, ast.BinOp) or isinstance(node, ast.Call) and called_name(node) == "expand_as"


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
        return PAIRED if len(rows) > 1 or pairs(parts) else value.spread
    return value.spread


def _beside(values: Iterable[Value]) -> bool:
    """Whether a mean, a sum or a number of rows is combined with rows."""
    spreads = {each.spread for each in values if is_whole(each)}
    return bool(spreads & {ROWS, COLUMNS}) and bool(spreads - {ROWS, COLUMNS})


def _of_operator(node: ast.BinOp, value: Value, latest: Latest) -> Spread | str:
    left, right = latest(node.left), latest(node.right)
    spreads = {each.spread for each in (left, right) if is_whole(each)}
    if isinstance(node.op, ast.MatMult):
        return _product(left, right)
    if {ROWS, COLUMNS} <= spreads:
        if _aligned(left, right) or _aligned(right, left):
            return COLUMNS
        return TURNED if None in (left.axes, right.axes) else PAIRED
    if pairs((left, right)):
        return PAIRED
    if _beside((left, right)):
        return STATISTIC
    if MEAN in (left.spread, right.spread) and COUNT in (left.spread, right.spread):
        return "multiplies a mean with the number of a rank's rows"
    return value.spread


def _aligned(turned: Value, other: Value) -> bool:
    """Whether rows lie along the last axis of both: `x.t() * weights`, of a matrix and a number for each row."""
    return turned.spread is COLUMNS and turned.axes == 2 and other.spread is ROWS and other.axes == 1


def _product(left: Value, right: Value) -> Spread | str:
    if is_whole(left) and not is_whole(right):
        return left.spread if left.spread in (ROWS, COLUMNS) else LOCAL
    if is_whole(left) and is_whole(right) and left.spread is ROWS and right.spread is ROWS:
        if min(surely(left), surely(right)) > 2:
            return ROWS
    return GRAPH


def _pads_own(name: str | None, given: Value) -> bool:
    """Whether a mask says of each sample where it is padded: torch takes those by rows, whatever comes first else."""
    return (name or "").endswith("key_padding_mask") and is_whole(given) and given.spread is ROWS


def _of_call(node: ast.Call, value: Value, latest: Latest, contents: Callable[[Value], list[Value]]) -> Spread | str:
    if is_entered(node, latest):
        return value.spread
    if makes_tensor(node):
        return _made(shape_asked(node), latest)
    given = [latest(arg) for arg in node.args]
    named = [latest(keyword.value) for keyword in node.keywords]
    layers = layers_of(node, latest)
    if layers and all(layer.roles & {"module", "loss", "dropout", "batch_norm"} for layer in layers):
        beside = [each for k, each in zip(node.keywords, named, strict=True) if not _pads_own(k.arg, each)]
        through = [through_layer(layer, [*given, *beside], value, contents) for layer in layers]
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
    if isinstance(node.func, ast.Attribute) and node.func.attr == "log_prob" and not is_whole(latest(node.func.value)):
        return ROWS if [each.spread for each in given] == [ROWS] else "asks for their probability (log_prob)"
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
        over = axis_of(node, node.args[1:])
        over = _length(node.args[1], latest) if over is None and len(node.args) == 2 else over
        parts = [p for each in given[:1] for p in contents(each)] or given[:1]
        spreads = {part.spread for part in parts if is_whole(part)}
        if spreads == {ROWS} and (over is not None and over > 0 or over == -1 and short != "stack"):
            return ROWS
        return f"joins tensors along their rows ({short})"
    if short == "einsum":
        return _of_einsum(node, latest)
    if name == "torch.autograd.grad":
        return _of_gradient(node, latest, contents)
    if short == "pad" and not name.startswith("torch."):
        return "pads them axis by axis (numpy.pad)"
    if short in LOSSES:
        return of_loss(short, [*given, *named], value)
    if short in FACTORIES:
        return _made(shape_asked(node), latest)
    if not given:
        return value.spread
    if not is_whole(given[0]) and short in PRODUCTS:
        return GRAPH
    if not is_whole(given[0]) and short not in ELEMENTWISE:
        if any(is_whole(part) for part in contents(given[0])):
            return value.spread if short in ELEMENTWISE else f"calls {short} on a list of rows"
        return f"calls {short} with the rows as its second operand, which may mix them"
    return _of_method(short, node, given[0], node.args[1:], given[1:], value, latest)


def _of_gradient(node: ast.Call, latest: Latest, contents: Callable[[Value], list[Value]]) -> Spread | str:
    """`torch.autograd.grad(u, x, torch.ones_like(u))`: where no row of ``u`` depends on another one of ``x``, the
    gradient by a row is that of its own."""
    names = ("outputs", "inputs", "grad_outputs")
    given = dict(zip(names, node.args, strict=False)) | {k.arg: k.value for k in node.keywords if k.arg in names}
    inputs = latest(given["inputs"]) if "inputs" in given else NOTHING
    if not all(is_whole(each) and each.spread is ROWS for each in contents(inputs) or [inputs]):
        return "derives by something else than rows (grad)"
    outputs = latest(given["outputs"]) if "outputs" in given else NOTHING
    if outputs.spread is SUM or outputs.spread is ROWS and "grad_outputs" in given:
        return ROWS
    return "derives something else than rows or their sum (grad)"


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
        names = [layer.name for layer in layers_of(node, latest)] or [name or ""]
        parts = node.args[:2] if any(each.rpartition(".")[2] in ALIKE for each in names) else []
    else:
        parts = []
    values = [latest(part) for part in parts]
    if not parts or not all(is_whole(each) and each.spread is ROWS for each in values):
        return []
    return [] if values[0].axes is not None and values[0].axes == values[1].axes else parts


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
        if any(each.spread is not base.spread for each in others if base.spread is not SAME) or pairs((base, *others)):
            return PAIRED
        return base.spread if base.spread is not SAME else value.spread
    if short in ("t", "transpose", "swapaxes", "permute"):
        axes = [number_of(each) for each in (rest[0].elts if is_list(rest) else rest)]  # type: ignore[attr-defined]
        return _turned(base, [0, 1] if short == "t" else axes)
    if short == "pad":
        return _padded(node, rest, base)
    if base.spread is COLUMNS:
        if short in ("view", "reshape", "flatten") and (not rest or number_of(rest[0]) == -1):
            return ROWS
        if short == "flatten" and number_of(rest[0]) == 0:
            return ROWS
        if short in ("view", "reshape") and _keeps_second(rest[0].elts if is_list(rest) else rest, latest):  # type: ignore[attr-defined]
            return COLUMNS
        if short == "squeeze" and rest and number_of(rest[0]) == 0:
            return ROWS  # of the state of one layer
        if (
            short in ("expand", "repeat")
            and len(rest) > 1
            and number_of(rest[1]) in ((1, -1) if short == "expand" else (1,))
        ):
            return COLUMNS
        if short in ("softmax", "log_softmax", "mean", "sum", "max", "argmax") and axis_of(node, rest) in (2, -1):
            return (
                COLUMNS
                if axis_of(node, rest) == 2 or (base.axes or 0) > 2
                else f"works along an unknown axis ({short})"
            )
        return COLUMNS if short in ("embedding", "linear") else f"calls {short} on rows that lie along the second axis"
    if short in PER_ROW:
        beside = short in ("bmm", "baddbmm", "bilinear") and all(each.spread is ROWS for each in others)
        return ROWS if not others or beside else f"mixes rows ({short})"
    if short in ALONG:
        return _along(short, node, rest, base, value)
    if short in ("view", "reshape"):
        shape = rest[0].elts if is_list(rest) else rest  # type: ignore[attr-defined]
        first = shape[0] if shape else None
        if first is not None and (number_of(first) == -1 or latest(first).spread is COUNT):
            return ROWS
        if first is not None and (number_of(first) == 1 or latest(first).const == 1):
            second = shape[1] if len(shape) > 1 else None
            return COLUMNS if second is not None and latest(second).spread is COUNT else ONE
        return f"gives its rows another shape ({short}): write -1 for the first axis"
    if short in ("flatten", "ravel"):
        return ROWS
    if short == "squeeze":
        return ROWS if not rest or number_of(rest[0]) not in (None, 0) else "drops the axis of the rows"
    if short in ("unsqueeze", "expand_dims"):
        at = axis_of(node, rest)
        if at is not None and (at > 0 or at == -1 or at < 0 and base.axes is not None and base.axes + 1 + at > 0):
            return ROWS
        return COLUMNS if at == 0 else "adds an axis that may come before that of the rows"
    if short == "gather" and axis_of(node, rest) not in (None, 0) and len(others) == len(given) - 1:
        return ROWS
    if short in ("chunk", "split", "tensor_split"):
        return (
            _along(short, node, rest[1:], base, value)
            if axis_of(node, rest[1:]) is not None
            else f"cuts the rows ({short})"
        )
    if short == "unbind" and axis_of(node, rest) is not None:
        return _along(short, node, rest, base, value)
    if short in PRODUCTS:
        return _product(base, given[0]) if given else LOCAL
    if short in ("expand", "repeat"):
        first = rest[0] if rest else None
        fits = first is not None and (number_of(first) in (-1, 1) or latest(first).spread is COUNT)
        return ROWS if fits and (short == "expand" or number_of(first) == 1) else f"repeats rows ({short})"
    if short in ("sample", "rsample", "multinomial"):
        return ENVIRONMENT
    return f"calls {short}, which is not known to keep rows apart"


def _keeps_second(shape: Sequence[ast.expr], latest: Latest) -> bool:
    """Whether a shape leaves the samples along the second axis: `x.view(x.shape[0], x.shape[1], 1)`."""
    sizes = [latest(each).spread for each in shape]
    return len(sizes) > 1 and sizes[0] is SAME and sizes[1] is COUNT and sizes.count(COUNT) == 1


def _padded(node: ast.Call, rest: Sequence[ast.expr], base: Value) -> Spread | str:
    """`F.pad(x, (1, 0, 0, 0))` adds to the last axes, as many as pairs of numbers are not zero."""
    given = [*rest[:1], *(keyword.value for keyword in node.keywords if keyword.arg == "pad")]
    numbers = (
        [number_of(each) for each in given[0].elts] if given and isinstance(given[0], (ast.Tuple, ast.List)) else []
    )
    changed = [at // 2 + 1 for at, number in enumerate(numbers) if number != 0]
    behind = surely(base) - (1 if base.spread is ROWS else 2)
    if numbers and max(changed, default=0) <= behind:
        return base.spread
    return "adds to an axis that may be that of the rows (pad)"


def _along(short: str, node: ast.Call, rest: Sequence[ast.expr], base: Value, value: Value) -> Spread | str:
    over = axis_of(node, rest[1:] if short == "topk" else rest)  # how many comes first
    if short == "topk" and over is None:
        over = -1
    if over is None:
        written = bool(rest) or any(k.arg in ("dim", "axis") for k in node.keywords)
        if not written and short in ("normalize", "cosine_similarity"):
            return ROWS
        if written and short not in ("max", "min"):
            return f"works along an axis that cannot be read ({short})"
        if short in IMPLICIT:  # as torch chose the axis of old
            told = f"works along an axis that may be that of the rows ({short}): write `dim=1` if it is not"
            return ROWS if base.axes in (2, 4) else told
        return value.spread if short in ("mean", "sum", "nansum", "nanmean") and not written else LOCAL
    if over > 0 or over < 0 and surely(base) + over > 0:
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
        numbers = (o.batch or o.node is node.slice for o in key.origins if isinstance(o, Draw))
        if is_whole(key) and key.spread is ROWS and any(numbers):
            return ROWS  # the numbers of a rank's samples
        return "picks elements by numbers that are computed from rows" if is_whole(key) else value.spread
    if base.things or base.spread not in (ROWS, COLUMNS):
        return value.spread
    parts = indices(node)
    if base.spread is COLUMNS:
        if len(parts) == 1 and is_one(parts[0], latest) and is_number(parts[0], latest):
            return ROWS
        return COLUMNS if len(parts) == 1 and isinstance(parts[0], ast.Slice) else "picks columns"
    if isinstance(parts[0], ast.Slice) and parts[0].lower is parts[0].upper is parts[0].step is None:
        return ROWS
    if isinstance(parts[0], ast.Constant) and parts[0].value is ... and (base.axes or 0) >= len(parts):
        return ROWS
    if adds_axis(parts[0], latest):
        return COLUMNS
    if isinstance(node.value, ast.Call) and called_name(node.value) in PICKING:
        return ROWS  # the values or the positions
    if len(parts) > 1 and is_each_row(parts, latest):
        return ROWS if all(latest(part).spread in (SAME, ROWS) for part in parts[1:]) else CHOSEN
    if any(isinstance(t, Index) for t in latest(parts[0]).things):
        return SINGLE
    return "picks some of the rows" if isinstance(parts[0], ast.Slice) else CHOSEN


def _length(node: ast.expr, latest: Latest) -> int | None:
    """`len(sizes)` of a literal list that nothing was added to."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "len":
        return None
    lists = [t for t in latest(node.args[0]).things if isinstance(t, Items)] if len(node.args) == 1 else []
    if len(lists) != 1 or lists[0].element is not NOTHING or not isinstance(lists[0].node, ast.List):
        return None
    return len(lists[0].parts)
