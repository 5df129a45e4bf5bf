"""What the arguments of a recorded operation say: which are operands, and which name axes, sizes or reductions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from autodist import operations
from autodist.placement.call import OTHER_SIZE, Call
from autodist.program import BATCH, FIELDS, UNKNOWN, Operation, Value, closure, constant
from autodist.trace import things
from autodist.trace.things import Sequence

METHODS = "torch.Tensor."
UNTOLD = "object."
"""Begins the names of methods whose owner is not known."""
ZEROS = ("zeros", "zeros_like", "new_zeros", ".empty", "empty_like", "new_empty")
"""Names of what sums begin with, or what is filled before it is read."""
FIELDS_OF_RESULTS = frozenset(["torch.Tensor.values", "torch.Tensor.indices"])
"""Names of what an operation gives of several tensors."""
TYPES = (".Tensor", "FloatTensor", "DoubleTensor", "LongTensor", "IntTensor", "HalfTensor", "BoolTensor")
"""Names of classes that make a tensor of data, or of sizes."""
SEVERAL = frozenset(
    "grad max min median mode kthvalue topk sort std_mean var_mean split chunk tensor_split unbind".split()
)
"""What gives several tensors, if it is told along which axis."""
LISTS = frozenset(["reduction", "concatenate", "stack", "container", "comparison"])
"""Classes of operations that may be given a list of tensors."""
SHAPE = "normalized_shape"
MIXED = {"pad": "pad", "layer_norm": SHAPE, "rms_norm": SHAPE}
"""What functions call the argument that has a number for each axis which they compute together."""
SHAPES = ("torch.Tensor.shape", "torch.Tensor.size", "object.shape", "object.size")
SIZED = frozenset("view expand repeat repeat_each fill random unflatten".split())
SIZES = ("size", "k", "num_samples")
"""The keywords that tell how many numbers are drawn."""
LEAVING_OUT = ("weight", "ignore_index")
"""The options by which a loss is a mean over other numbers than those of its samples."""
OPTIONS = {"weight": "weight", "ignore_index": "ignored"}
"""Where the table says at which place a loss takes them."""
WIDER = frozenset(["bidirectional", "proj_size"])
"""The options by which a recurrent layer gives more or fewer numbers than it is told."""
SETTINGS = frozenset("dim axis size generator device dtype".split())
"""Arguments that no numbers are computed with."""
NAMES = (("input", "src", "query", "tgt", "x", "tensor"), ("memory", "key", "tgt", "target", "other"))
"""What the first two arguments are called where they are given by name."""
WITH_AXES = frozenset("permute transpose movedim flatten squeeze unsqueeze".split())

ASKING = frozenset(f"operator.{each}" for each in "lt le gt ge eq ne not_".split()) | {"builtins.bool", "builtins.len"}
"""The names of operations that ask whether a list has some more: `len(rows) > 0`"""


def asked(test: Value) -> Iterator[Value]:
    """What a test asks about: `rows` of `rows`, `not rows` and `len(rows) > 0`."""
    asking = closure(test.operations, lambda op: (e for v in op.operands for e in v.operations if op.name in ASKING))
    yield Value(frozenset(each for each in test.operations if each.name not in ASKING), things=test.things)
    for each in asking:
        yield from each.operands if each.name in ASKING else ()


def parts(value: Value) -> list[Value] | None:
    """What a tuple or list has at which place, if it is known."""
    if isinstance(value.constant, tuple):
        return [Value(constants=frozenset([(type(each), each)])) for each in value.constant]
    if len(value.things) == 1 and not value.operations and not value.constants:
        (one,) = value.things
        if isinstance(one, Sequence) and one.parts is not None:
            return one.parts
    return None


def keys_of(key: Value) -> list[Value]:
    """What a subscript says of each axis, `x[a, b]`; a list tells numbers along one of them."""
    told = parts(key)
    return [key] if told is None or any(getattr(each, "kind", "") == "list" for each in key.things) else told


def bounds(key: Value) -> list[object]:
    """The start, the stop and the step of a slice, None for those that are not known or not told; nothing of another
    key."""
    cut = key.operation
    return [each.constant for each in cut.inputs] if cut is not None and cut.name == "builtins.slice" else []


def goes_forward(key: Value) -> bool:
    """Whether it is a slice that does not begin from the end."""
    told = bounds(key)
    return bool(told) and not (isinstance(told[0], int) and told[0] < 0) and told[2] in (None, 1)


def given_first(operation: Operation, place: int = 0) -> Value:
    """One of the first two arguments of an operation: `F.pad(input=x, pad=(1, 0))`"""
    named = (operation.keywords[each] for each in NAMES[place] if each in operation.keywords)
    return operation.inputs[place] if len(operation.inputs) > place else next(named, Value())


def is_repeated(thing: object, value: Value) -> bool:
    """Whether the operations of a value tell how a list lies that is among what it may be: `[0] * len(x)`"""
    return any(each.name == "list.repeat" and each.node is getattr(thing, "node", None) for each in value.operations)


def is_whole(key: Value) -> bool:
    """Whether a subscript takes all of a tensor: `seen[:]`, `seen[...]`"""
    return key.constant is Ellipsis or bounds(key) == [None, None, None]


def keys(value: Value) -> Iterator[Value]:
    """The keys of dicts that were made without any."""
    for each in value.things:
        if isinstance(each, things.Mapping) and not each.entries and each.keys.operations:
            yield each.keys


def places(value: Value) -> Iterator[Value]:
    """The places of lists, and of dicts that have entries already, under which something is put."""
    for each in value.things:
        if isinstance(each, things.Heap):
            yield each.places
            yield each.keys if isinstance(each, things.Mapping) and each.entries else Value()


def gives_several(operation: Operation, known: operations.Operation | None) -> bool:
    """Whether an operation gives a tuple of tensors, and not one."""
    if operation.name == "torch.autograd.grad":
        return True
    if known is None:
        return operation.owner is not None and operation.name not in (BATCH, FIELDS)
    if known.short in ("nonzero", "where") and len(operation.inputs) == 1:  # of each axis, where all hold
        return operation.name.startswith("numpy.") or known.short == "where" or "as_tuple" in operation.keywords
    if known.cls == "decomposition" and not known.short.endswith("vals"):
        return True
    along = known.short in SEVERAL and (len(operation.inputs) > 1 or bool(operation.keywords))
    return along or known.cls == "sequence" or known.short in ("LSTMCell", "pad_packed_sequence", "native_batch_norm")


def is_zero(value: Value, within: int = 9) -> bool:
    """Whether it is what sums begin with, by so many operations that change no number: rounds of loops have no end."""
    zeros = [each for each in value.operations if within and gives_zeros(each, within - 1)]
    if len(zeros) != len(value.operations) or value.things or not (zeros or value.constants):
        return False
    return all(each[1] in (0, None) for each in value.constants)


def begins_with_zero(value: Value) -> bool:
    """Whether no constant but zero is among what it may be."""
    return all(each[1] in (0, None) for each in value.constants)


def gives_zeros(operation: Operation, within: int = 9) -> bool:
    """`torch.zeros(3)`, `torch.zeros(1).to(device)`, `torch.tensor(0.0)`"""
    if operation.name.endswith((".zero_", ".fill_")):
        return operation.name.endswith(".zero_") or is_zero(operation.argument("value", 1) or Value(), within)
    if operation.name.endswith(ZEROS):
        return not any(each.operations for each in operation.inputs)
    if operation.name == "setitem":  # `counts[:] = 0`
        return is_whole(operation.inputs[1]) and is_zero(operation.inputs[2], within)
    if operation.name == "list.element":  # `[0.0 for _ in range(n)]`
        return is_zero(operation.inputs[0], within)
    if operation.name == "list.repeat":  # `[0.0] * n`
        listed = parts(operation.inputs[0])
        return bool(listed) and all(map(is_zero, listed or ()))
    if operation.name.endswith((".to", ".cuda", ".double", ".float", ".tensor", ".array")) and operation.inputs:
        return is_zero(operation.inputs[0], within)
    return False


def operands(operation: Operation, known: operations.Operation) -> Iterator[Value]:
    """The values that an operation computes with."""
    given = [each for each in operation.inputs if _computes(each)]
    if known.name.endswith("einsum") and given:
        given = given[1:] if isinstance(given[0].constant, str) else given
    if known.cls in ("fill", "random"):
        yield from sizes_of(operation, known)
        return
    if known.short == "numel":  # of a shape: `x.size().numel()`
        shapes = [op for each in given for op in each.operations if op.name in SHAPES and len(op.inputs) == 1]
        yield from (each.inputs[0] for each in shapes) if shapes else given
        return
    if known.cls == "sequence":
        yield from given[: 3 if known.short == "MultiheadAttention" else 1]
        return
    if known.cls == "per_sample" and known.short in MIXED:  # and the sizes of what it computes together
        told = operation.argument(MIXED[known.short], 1)
        yield from (each for each in operation.operands if _computes(each) and each is not told)
        return
    if known.cls == "pattern":
        yield from given[:1]
        return
    if known.short in ("to", "cuda", "type", "type_as", "astype"):  # where or in which type it is held
        yield from given[:1]
        return
    first = known.cls not in (
        "add",
        "multiply",
        "divide",
        "contraction",
        "pairwise",
        "loss",
        "sample_loss",
        "elementwise",
    )
    if known.cls == "sample_loss" and isinstance(known.parameters.get("weight"), int):
        given = given[:2]
    for place, each in enumerate(given):
        if place and (first or isinstance(each.constant, (str, bool))) and not each.operations and not each.things:
            continue  # an axis, or a setting
        inner = parts(each) if known.cls in ("concatenate", "stack", "container", "contraction") else None
        yield from inner if inner is not None else [each]
    if operation.owner is not None and operation.owner.name.startswith("torch.distributions."):
        owned = [*operation.owner.inputs, *operation.owner.keywords.values()]
        matrix = operation.owner.name.endswith("MultivariateNormal")  # beside the mean
        yield from (each for each in (owned[:1] if matrix else owned) if each.operations)
    named, product = [*operation.keywords.items()], known.cls == "contraction"
    for name, each in sorted(named, key=lambda item: item[0] != "input") if product else named:
        inner = parts(each) if known.cls in ("concatenate", "stack") else None  # `torch.cat(tensors=[x, y])`
        if name in SETTINGS or name == "weight" and not product:
            continue
        if inner is not None:
            yield from inner
        elif each.operations or each.things and known.cls in ("concatenate", "stack"):
            yield each


def drawn_sizes(operation: Operation) -> list[Value] | None:
    """The sizes that a distribution is told, of which it draws one for each: `normal.sample((len(x), 1))`"""
    if operation.owner is None or not operation.owner.name.startswith("torch.distributions."):
        return None
    told = operation.argument("sample_shape", 0) if operation.name.endswith((".sample", ".rsample")) else None
    own = any(each.operations for each in (*operation.owner.inputs, *operation.owner.keywords.values()))
    return parts(told) if told is not None and not own else None


def _computes(value: Value) -> bool:
    return bool(value.operations or value.things or value.constants)


def listed(operation: Operation, known: operations.Operation) -> bool:
    """Whether it works on a list of values, and not on a tensor."""
    if known.cls not in LISTS or not operation.inputs or known.cls in ("concatenate", "stack"):
        return False
    first = operation.inputs[0]
    return any(isinstance(each, Sequence) or hasattr(each, "element") for each in first.things)


@lru_cache(maxsize=4096)
def call(operation: Operation, known: operations.Operation) -> Call:
    """What the arguments of an operation tell, without its operands; asked for once the program is whole."""
    settings = dict(operation.keywords)
    if operation.owner is not None:
        settings |= operation.owner.keywords
    axis = _axis(operation, known, settings)
    return Call(
        known.name,
        (),
        axis=axis,
        untold=axis is None and _is_untold(operation, known, settings),
        keepdim=any(settings[each].constant is True for each in ("keepdim", "keepdims") if each in settings),
        sizes=tuple(map(_size, sizes_of(operation, known))) if known.cls in SIZED else (),
        without_axes=known.cls in SIZED and any(parts(each) == [] for each in operation.operands),
        equation=equation(operation),
        words={name: _size(each) for name, each in settings.items()} if known.cls == "pattern" else {},
        reduction=_reduction(operation, known, settings.get("reduction")),
        training=_is_training(operation, known),
        batch_first=any(_may_be_true(each) for each in _settings_of("batch_first", settings, operation, known)),
        is_told=_is_told(operation, known),
        mixed=_mixed(operation, known),
        width=_width(operation, known),
        bounded=any(not each.is_constant or each.constant not in (None, 0) for each in _beside(operation)),
        leaves_out=any(is_set(option(operation, known, each)) for each in LEAVING_OUT),
    )


def _beside(operation: Operation) -> Iterator[Value]:
    """What an operation is given beside its first operand."""
    return (each for each in (*operation.inputs[1:], *operation.keywords.values()))


def _is_training(operation: Operation, known: operations.Operation) -> bool:
    """Whether a function takes the statistics of a batch, `F.batch_norm(x, mean, var, training=True)`. Those of layers
    are made those of all ranks."""
    place = known.parameters.get("training")
    told = operation.argument("training", place if isinstance(place, int) else None)
    return told is not None and told.constant is not False


def _width(operation: Operation, known: operations.Operation) -> int | None:
    """How many numbers a layer gives along the axis that it computes, if it is told: `nn.Linear(8, 3)`"""
    name, at = str(known.parameters.get("width", "")), known.parameters.get("at", 1)
    made = operation.owner
    if made is None or known.cls == "sequence" and (made.inputs[5:] or WIDER & made.keywords.keys()):
        return None
    told = made.argument(name, at) if name else None
    return told.constant if told is not None and type(told.constant) is int else None


def _mixed(operation: Operation, known: operations.Operation) -> slice | None:
    """The last axes, of which an argument has a number each, or two: `nn.LayerNorm((4, 8))`, `F.pad(x, (1, 0))`. A size
    that is not known is taken for one number, `nn.LayerNorm(args.width)`."""
    place, pads = known.parameters.get("shape"), known.short == "pad"
    if not isinstance(place, int):
        return None
    maker = operation.owner if operation.owner is not None else operation
    told = maker.argument(MIXED.get(known.short, SHAPE), place)
    inner = parts(told) if told is not None else None
    if inner is not None:
        count = len(inner) // 2 if pads else len(inner)
        return slice(-count, None) if count else slice(0, 0)
    shape, start = told.operation if told is not None else None, 0
    if shape is not None and shape.name == "getitem":
        match bounds(shape.inputs[1]):
            case [first, None, None]:
                shape, start = shape.inputs[0].operation, first if isinstance(first, int) else 0
    if shape is not None and shape.name in SHAPES and len(shape.inputs) == 1:
        return slice(start, None)
    return None if pads else slice(-1, None)


def option(operation: Operation, known: operations.Operation, name: str) -> Value | None:
    """An option of a loss, which may be given to its module: `F.nll_loss(x, y, w)`, `nn.NLLLoss(w)(x, y)`. None if it
    has no such option, or is not told it."""
    place = known.parameters.get(OPTIONS[name])
    if not isinstance(place, int):
        return None
    maker = operation.owner if operation.owner is not None else operation
    if maker.inputs[place : place + 1]:
        return maker.inputs[place]
    return maker.keywords.get(name) or operation.keywords.get(name)


def is_set(told: Value | None) -> bool:
    """Whether an option may be something else than None."""
    return told is not None and told.constant is not None


def _is_told(operation: Operation, known: operations.Operation) -> bool:
    """Whether it is given the argument that the table names."""
    name, at = known.parameters.get("told"), known.parameters.get("at")
    return name is None or name in operation.keywords or isinstance(at, int) and at < len(operation.inputs)


def accumulates(operation: Operation, known: operations.Operation) -> bool:
    """Whether it adds to the numbers in some places, and does not replace them."""
    name = known.parameters.get("accumulate")
    told = operation.keywords.get(str(name), Value())
    return name is None or told.constant is True or told.constant == "sum"


def _settings_of(
    name: str, settings: Mapping[str, Value], operation: Operation, known: operations.Operation
) -> Iterator[Value]:
    """What a layer is told, or the layer that it is made of: `nn.TransformerEncoder(layer, 2)`."""
    if name in settings:
        yield settings[name]
    place = known.parameters.get(name)
    if isinstance(place, int) and operation.owner is not None:
        yield from operation.owner.inputs[place : place + 1]
    for value in operation.owner.inputs[:1] if operation.owner is not None else ():
        yield from (each.keywords[name] for each in value.things if name in getattr(each, "keywords", {}))


def _may_be_true(value: Value) -> bool:
    """Whether a setting is True, or not told."""
    return not value.is_constant or value.constant is True


def _is_true(value: Value | None) -> bool:
    return value is not None and value.constant is True


def _reduction(operation: Operation, known: operations.Operation, told: Value | None) -> str:
    """What it makes of several numbers, "mean" if it is not told, empty if that is not known."""
    place = known.parameters.get("reduction")
    if told is None and isinstance(place, int) and place < len(operation.inputs):
        told = operation.inputs[place]
    told = told if told is not None and told else constant("mean")
    later = getattr(operation.owner, "slots", {}).get("reduction")  # `criterion.reduction = "sum"`
    told = told | later.value if later is not None else told
    return str(told.constant or "mean") if told.is_constant else ""


def equation(operation: Operation) -> str:
    """What is written of axes: ahead of the operands, behind them (`rearrange(x, "b n d -> n b d")`), or in a layer."""
    given = operation.inputs if operation.owner is None else operation.owner.inputs
    behind = operation.name.startswith("einops.") and operation.owner is None
    told = given[behind : behind + 1] or [v for v in (operation.keywords.get("pattern"),) if v is not None]
    first = told[0].constant if told else UNKNOWN
    return first if isinstance(first, str) else ""


def _axis(
    operation: Operation, known: operations.Operation, settings: Mapping[str, Value]
) -> int | tuple[int, ...] | slice | None:
    if known.cls == "flatten" and operation.owner is not None:  # the layer
        told = [_numbers(each) for each in operation.owner.inputs]
        start, end = settings.get("start_dim", Value()), settings.get("end_dim", Value())
        first = told[0] if told else _numbers(start)
        last = told[1] if len(told) > 1 else _numbers(end)
        return (first if isinstance(first, int) else 1, last if isinstance(last, int) else -1)
    for name in ("dim", "axis", "dims", "start_dim"):
        if name in settings:
            return _numbers(settings[name])
    if known.cls in WITH_AXES and known.cls not in ("squeeze", "unsqueeze"):
        given = [_numbers(each) for each in operation.inputs[1:]]
        if known.cls == "permute" and len(given) == 1:
            return given[0]
        numbers = tuple(each for each in given if isinstance(each, int))
        return numbers or None
    if known.short == "pad_sequence":
        return 0 if _is_true(settings.get("batch_first")) or len(operation.inputs) > 1 else 1
    told_axis = _given_axis(operation, known)
    return _numbers(told_axis) if told_axis is not None else None


def _given_axis(operation: Operation, known: operations.Operation) -> Value | None:
    """What is given at the place of the axis, to a function or to the maker of a layer."""
    place = known.parameters.get("axis", 1 if known.cls == "unsqueeze" else None)
    if not isinstance(place, int):
        return None
    given = operation.owner.inputs if operation.owner is not None else operation.inputs
    place += known.name.startswith(METHODS) and operation.owner is None
    return given[place] if place < len(given) else None


def _is_untold(operation: Operation, known: operations.Operation, settings: Mapping[str, Value]) -> bool:
    """Whether an axis is given, and not known: `softmax(x, self.dim)`"""
    named = next((settings[each] for each in ("dim", "axis") if each in settings), _given_axis(operation, known))
    return named is not None and not (named.is_constant and named.constant is None)


def _numbers(value: Value) -> int | tuple[int, ...] | slice | None:
    if type(value.constant) is int:
        return value.constant
    listed = [op for each in value.things for part in getattr(each, "contents", tuple)() for op in part.operations]
    if listed and all(each.name == "range.index" for each in listed):
        return _some_axes(listed[0])
    inner = parts(value)
    numbers = [each.constant for each in inner or () if type(each.constant) is int]
    return tuple(numbers) if inner and len(numbers) == len(inner) else None


def _some_axes(counting: Operation) -> slice | None:
    """`range(1, x.ndim)`, `range(x.dim() - 1)`"""
    start, stop = counting.inputs[0] if len(counting.inputs) > 1 else Value(), counting.inputs[:2][-1]
    less, of = 0, stop.operation
    if of is not None and of.name == "operator.sub" and type(of.inputs[1].constant) is int:
        less, of = of.inputs[1].constant, of.inputs[0].operation
    if of is None or not of.name.endswith((".ndim", ".dim")) or len(counting.inputs) > 2:
        return None
    return slice(start.constant if type(start.constant) is int else 0, -less or None)


def sizes_of(operation: Operation, known: operations.Operation | None = None) -> list[Value]:
    """The sizes that an operation is given."""
    tensor = operation.name.startswith((METHODS, UNTOLD)) or operation.name.endswith(
        ("reshape", "broadcast_to", "tile")
    )
    place = known.parameters.get("sizes") if known is not None else None
    given = [operation.keywords[each] for each in SIZES if each in operation.keywords]
    if not given and isinstance(place, int) and place >= 0:
        told = (
            operation.owner.inputs
            if operation.owner is not None and known is not None and known.cls == "unflatten"
            else operation.inputs
        )
        given = list(told[place : place + 1])
    elif not given:
        given = list(operation.inputs[1:] if tensor else operation.inputs)
        if place is not None or operation.name.endswith("full"):  # `torch.randint(9, (3,))`
            tuples = [each for each in given if parts(each) is not None]
            given = tuples[-1:] or given[:1] if operation.name.endswith("full") else tuples[-1:]
    inner = parts(given[0]) if given else None
    return inner if inner is not None else given


def drawn_from(operation: Operation, known: operations.Operation) -> list[Value]:
    """What samples are drawn from: `random.sample(data, 8)`."""
    place = known.parameters.get("sizes")
    return list(operation.inputs[:place] if isinstance(place, int) and place else ())


def _size(value: Value) -> int | None:
    """A size that is a constant, None for a number of samples, and a number like no other for a setting."""
    if type(value.constant) is int:
        return value.constant
    counted = [each for each in value.operations if _counts(each)]
    return None if counted and len(counted) == len(value.operations) else OTHER_SIZE


def _counts(operation: Operation) -> bool:
    """Whether it is a size, or a product that has one first: `len(x) * length`."""
    multiplied = closure([operation], lambda each: each.given if each.name == "operator.mul" else ())
    return any(each.name in ("torch.Tensor.size", "builtins.len", "getitem") for each in multiplied)
