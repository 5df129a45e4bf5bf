"""How many axes tensors have, as far as the source tells: of what is computed, and of what data sets hold.

Two tensors of a batch whose numbers of axes differ are broadcast: the last axes are laid beside each other, so that the
samples of one meet another axis of the other, and each sample all others. Nothing is said of what cannot be read.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from autodist.operations import load
from autodist.source import Source, all_of, indices, last_name, walk
from autodist.values import Class, Object

Axes = Callable[[ast.expr], int | None]
Key = int | str | None

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
LOSSES = frozenset(
    "l1_loss mse_loss poisson_nll_loss kl_div huber_loss smooth_l1_loss soft_margin_loss L1Loss MSELoss PoissonNLLLoss "
    "KLDivLoss HuberLoss SmoothL1Loss SoftMarginLoss".split()
)
"""What compares two tensors number by number, and takes those of different shapes."""
RECURRENT = frozenset("RNN LSTM GRU".split())
CLASSIFIED = frozenset("MNIST FashionMNIST KMNIST EMNIST CIFAR10 CIFAR100 SVHN STL10 ImageFolder".split())
"""Data sets of torchvision with one label for each sample."""
SPLIT = frozenset("random_split Subset".split())
READING = frozenset("read_csv read_excel read_table read_parquet read_feather DataFrame".split())
"""What makes a table of pandas."""
TEXTS = frozenset("loadtxt genfromtxt".split())
"""What gives a table, or one column alone: where it is asked for columns, it is a table."""
FILES = (
    READING | TEXTS | frozenset("load open loadmat File read_pickle read_hdf read_json loads memmap fromfile".split())
)
"""What reads data of which the source does not tell the shape."""
VIEWS = frozenset("values iloc loc T".split())
"""What a table or an array is read through."""
SAMPLED = ("make_regression", "make_classification", "make_moons", "make_circles", "make_blobs", "make_friedman1")
"""Functions of scikit-learn that give samples, and a number for each."""


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


def compared(node: ast.expr, names: Callable[[ast.Call], set[str]]) -> list[ast.expr]:
    """The operands that an operation lays beside each other, axis by axis from the last one."""
    if isinstance(node, ast.BinOp):
        return [] if isinstance(node.op, ast.MatMult) else [node.left, node.right]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if not isinstance(node, ast.Call) or any(isinstance(each, ast.Starred) for each in node.args):
        return []
    called = names(node)
    if called and called <= LOSSES:
        return [*node.args[:2], *(k.value for k in node.keywords if k.arg in ("input", "target"))]
    if called and called <= BROADCASTING:
        method = isinstance(node.func, ast.Attribute) and last_name(node.func.value) not in MODULES
        return [*([node.func.value] if method else []), *node.args]  # type: ignore[attr-defined]
    return []


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


def widths(layer: Object, given: set[int]) -> set[int]:
    """How many numbers the output of a layer may have along its last axis, with those that it is ``given``."""
    short = layer.kind
    if short == "Sequential":
        for part in (t for value in layer.args for t in value.things if isinstance(t, Object)):
            given = widths(part, given) if part.cls is None else set()
        return given
    told = layer.argument("hidden_size" if short in RECURRENT else "out_features", 1)
    if short == "Embedding":
        told = layer.argument("embedding_dim", 1)
        return {told.const} if told is not None and isinstance(told.const, int) else set()
    if short == "Linear" or short in RECURRENT and not {"bidirectional", "proj_size"} & layer.keywords.keys():
        return {told.const} if told is not None and isinstance(told.const, int) else set()
    return given if short in KEEPING else set()


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


# -------------------------------------------------------------------- data sets


def _gives_table_or_column(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in TEXTS


def of_field(loader: Object, key: Key) -> int | None:
    """How many axes a field of a loader's batches has."""
    if loader.argument("collate_fn", 6) is not None or loader.argument("batch_sampler") is not None:
        return None
    data = loader.argument("dataset", 0)
    held = [thing for thing in (data.things if data is not None else ()) if isinstance(thing, Object)]
    found = {_of_samples(each, key) for each in held}
    axes = found.pop() if len(found) == 1 else None
    return None if axes is None else axes + 1


def _of_samples(data: Object, key: Key) -> int | None:
    """How many axes a field of a data set's samples has."""
    short = data.name.rpartition(".")[2]
    if short in SPLIT and data.args:
        inner = [thing for thing in data.args[0].things if isinstance(thing, Object)]
        return _of_samples(inner[0], key) if len(inner) == 1 else None
    if data.cls is not None:
        return _of_class(data, key)
    if short == "TensorDataset" and isinstance(key, int):
        given = data.node.args
        if key >= len(given) or any(isinstance(each, ast.Starred) for each in given):
            return None
        home = data.source.function(data.node) or data.source.tree
        axes = _Reading().of_body(home).of(given[key])
        return None if axes is None or not axes else axes - 1
    return 0 if short in CLASSIFIED and data.name.startswith("torchvision.") and key == 1 else None


def is_read(loader: Object) -> bool:
    """Whether what a loader's batches hold comes out of a file, as far as the source tells."""
    data = loader.argument("dataset", 0)
    held = [thing for thing in (data.things if data is not None else ()) if isinstance(thing, Object)]
    return len(held) == 1 and _is_read(held[0])


def _is_read(data: Object) -> bool:
    short = data.name.rpartition(".")[2]
    if short in SPLIT and data.args:
        inner = [thing for thing in data.args[0].things if isinstance(thing, Object)]
        return len(inner) == 1 and _is_read(inner[0])
    if data.cls is None and short != "TensorDataset":
        return False
    return _comes_out_of_file(data.node, data.source, data.cls)


@lru_cache(maxsize=256)
def _comes_out_of_file(made: ast.AST, source: Source, cls: Class | None) -> bool:
    """Whether a class of the project reads a file, or what tensors of a `TensorDataset` are computed from."""
    parts: list[ast.AST] = [cls.node] if cls is not None else [*made.args] if isinstance(made, ast.Call) else []
    seen: list[ast.AST] = [made] if cls is not None else []
    home = source.function(made) or source.tree
    bound = list(all_of(home, ast.Assign)) if cls is None else []
    while parts:
        part = parts.pop()
        seen.append(part)
        calls = all_of(part, ast.Call)
        if any(last_name(each.func) in FILES for each in calls):
            return True
        names = {ast.unparse(each) for each in walk(part) if isinstance(each, (ast.Name, ast.Attribute))}
        for each in bound:
            targets = {ast.unparse(t) for target in each.targets for t in all_of(target, ast.expr)}
            if names & targets and each.value not in seen:
                parts.append(each.value)
    return False


def _of_class(data: Object, key: Key) -> int | None:
    """What `__getitem__` of a class of the project gives, with what `__init__` has kept."""
    assert data.cls is not None
    bodies = [data.cls.find(name) for name in ("__init__", "__getitem__")]
    functions = [
        next((getattr(t, "node", None) for t in found[1].things), None) if found is not None else None
        for found in bodies
    ]
    made, item = functions
    if not isinstance(item, ast.FunctionDef) or len(item.args.args) != 2 or item.decorator_list:
        return None
    reading = _Reading()
    if isinstance(made, ast.FunctionDef):
        names = [each.arg for each in made.args.args[1:]]
        home = data.source.function(data.node) or data.source.tree
        outer = _Reading().of_body(home)
        told = dict(zip(names, data.node.args, strict=False)) | {k.arg: k.value for k in data.node.keywords if k.arg}
        if not any(isinstance(each, ast.Starred) for each in data.node.args):
            reading.names |= {name: outer.of(each) for name, each in told.items()}
        reading.run(made.body)
    kept = {name: axes for name, axes in reading.names.items() if name.startswith("self.")}
    reading = _Reading(kept | {item.args.args[1].arg: 0})
    reading.run(item.body)
    return _agreed(_returned(each, key, reading) for each in reading.returned)


def _returned(node: ast.expr, key: Key, reading: _Reading) -> int | None:
    if isinstance(node, ast.Tuple):
        return reading.of(node.elts[key]) if isinstance(key, int) and 0 <= key < len(node.elts) else None
    if isinstance(node, ast.Dict):
        found = [
            v for k, v in zip(node.keys, node.values, strict=True) if isinstance(k, ast.Constant) and k.value == key
        ]
        return reading.of(found[0]) if found and isinstance(key, str) else None
    return None


def _agreed(found: Iterable[int | None]) -> int | None:
    """What branches agree on, as far as it is known of them: samples of a batch have one shape."""
    known = {each for each in found if each is not None}
    return known.pop() if len(known) == 1 else None


class _Reading:
    """One pass over the statements of a function, in their order: how many axes what it names has."""

    def __init__(self, names: dict[str, int | None] | None = None) -> None:
        self.names = dict(names or {})
        self.frames: set[str] = set()
        self.texts: set[str] = set()
        self.returned: list[ast.expr] = []

    def of_body(self, home: ast.AST) -> _Reading:
        """The names of a function or module, after all of its statements."""
        self.run(getattr(home, "body", []))
        return self

    def run(self, body: Iterable[ast.stmt]) -> None:
        """Follow what names stand for."""
        for statement in body:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Return) and node.value is not None:
            self.returned.append(node.value)
        elif isinstance(node, ast.Assign):
            axes = self.of(node.value)
            for target in node.targets:
                self._bind(target, node.value, axes)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, node.value, self.of(node.value))
        elif isinstance(node, ast.If):
            self._branch(node)
        elif isinstance(node, (ast.With, ast.Try)):
            self.run(node.body)
        elif isinstance(node, (ast.For, ast.While)):
            for each in walk(node):
                if isinstance(each, (ast.Name, ast.Attribute)) and isinstance(each.ctx, ast.Store):
                    self.names[ast.unparse(each)] = None
            for each in walk(node):
                self._grown(each)
        elif isinstance(node, ast.Expr):
            self._grown(node.value)

    def _grown(self, node: ast.AST) -> None:
        """`rows.append(row)`: a list has one axis where it is known to be one of numbers."""
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("append", "extend")
        ):
            number = node.func.attr == "append" and len(node.args) == 1 and self.of(node.args[0]) == 0
            if not number:
                self.names[ast.unparse(node.func.value)] = None

    def _bind(self, target: ast.expr, value: ast.expr, axes: int | None) -> None:
        if isinstance(target, (ast.Name, ast.Attribute)):
            name = ast.unparse(target)
            self.names[name] = axes
            self.frames = self.frames | {name} if axes == 2 and self._is_frame(value) else self.frames - {name}
            self.texts = self.texts | {name} if _gives_table_or_column(value) else self.texts - {name}
        elif isinstance(target, (ast.Tuple, ast.List)):
            several = self._several(value, len(target.elts))
            if several is not None:
                for each, found in zip(target.elts, several, strict=True):
                    if isinstance(each, (ast.Name, ast.Attribute)):
                        self.names[ast.unparse(each)] = found
                return
            pairs = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
            for at, each in enumerate(target.elts):
                self._bind(each, value, self.of(value.elts[at]) if pairs else None)  # type: ignore[attr-defined]

    def _several(self, value: ast.expr, number: int) -> list[int | None] | None:
        """What a function of scikit-learn gives at once: splits of arrays, samples and their labels."""
        name = last_name(value.func) if isinstance(value, ast.Call) else ""
        if not isinstance(value, ast.Call) or any(isinstance(each, ast.Starred) for each in value.args):
            return None
        if name == "train_test_split" and number == 2 * len(value.args):
            return [axes for each in value.args for axes in [self.of(each)] * 2]
        pair = any(each.arg == "return_X_y" for each in value.keywords) or name in SAMPLED
        return [2, 1] if pair and number == 2 else None

    def _is_frame(self, node: ast.expr) -> bool:
        """Whether it is a table of pandas, whose columns are attributes, too."""
        if isinstance(node, ast.Name):
            return node.id in self.frames
        if not isinstance(node, ast.Call):
            return isinstance(node, ast.Subscript) and self._is_frame(node.value)
        method = isinstance(node.func, ast.Attribute) and self._is_frame(node.func.value)
        return last_name(node.func) in READING or method and last_name(node.func) in ALIKE - {"to_numpy", "to"}

    def _branch(self, node: ast.If) -> None:
        """Either branch: what is bound in both has one shape, what is changed in one may have another one."""
        before = dict(self.names)
        self.run(node.body)
        then, self.names = self.names, dict(before)
        self.run(node.orelse)
        for name in {*then, *self.names}:
            either = [then.get(name), self.names.get(name)]
            changed = before.get(name) is not None and None in either
            self.names[name] = None if changed else _agreed(either)

    def of(self, node: ast.expr) -> int | None:
        """How many axes an expression has. A text, which names a column, counts as a number does."""
        if isinstance(node, ast.Attribute) and ast.unparse(node) not in self.names:
            column = self._is_frame(node.value) and node.attr not in VIEWS | {"shape", "columns", "index"}
            return 1 if column else self.of(node.value) if node.attr in VIEWS else None
        if isinstance(node, (ast.Name, ast.Attribute)):
            return self.names.get(ast.unparse(node))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return 0
        if isinstance(node, ast.List) and not node.elts:
            return None  # whatever will be put into it
        if isinstance(node, (ast.List, ast.ListComp)):
            return 1
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
            if ast.unparse(node.value) in self.texts or _gives_table_or_column(node.value):
                return _indexed(node, lambda each: 2 if each is node.value else self.of(each))
        if isinstance(node, ast.IfExp):
            return _agreed([self.of(node.body), self.of(node.orelse)])
        return computed(node, self.of)
