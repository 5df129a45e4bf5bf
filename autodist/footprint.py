"""How much memory a model's training holds besides activations, as far as reading the source tells."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from autodist.interpreter import Interpreter
from autodist.models import optimized_by, parts, unwrapped
from autodist.source import Source
from autodist.values import NOTHING, External, Items, Object, Parameters, Thing, Value

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
"""Of one number."""

TYPES = {"half": "float16", "double": "float64", "float": "float32", **{name: name for name in BYTES}}
"""What a method such as `model.half()`, or an attribute of torch, makes of a number."""

STATES = {"SGD": 0, "Rprop": 2, "Adagrad": 1, "RMSprop": 1, "Muon": 1, "ASGD": 1}
"""Tensors that an optimizer keeps for each parameter; two, as Adam does, if it is not listed."""

OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
CONTAINERS = frozenset(["ModuleList", "Sequential", "ModuleDict"])
NORMS = ("BatchNorm", "SyncBatchNorm")


class Uncounted(Exception):
    """A part whose size is known only when it is made."""

    def __init__(self, source: Source, node: ast.AST) -> None:
        super().__init__(f"line {getattr(node, 'lineno', 1)} of {source.path.name}")


@dataclass(frozen=True)
class Footprint:
    """The parameters of all models that train, and the bytes of parameters, gradients and optimizer state.

    ``types`` are those of the parameters' numbers, and ``weights`` their bytes.
    """

    parameters: int
    weights: int
    held: int
    optimizers: tuple[str, ...]
    types: tuple[str, ...]


def footprint(run: Interpreter, models: list[Object]) -> Footprint:
    """What training holds. Raises Uncounted."""
    sizes = {module.key: _Count(run).module(module) for module in models}
    made = [t for event in run.of("optimizer") for t in event.value.objects("optimizer")]
    held = weights = 0
    for module in models:
        own = {part.key for part in parts(module)}
        states = [_states(each, run) for each in made if any(m.key in own for m in optimized_by(each))]
        taken = sizes[module.key] * BYTES[_type(module, run)]
        weights, held = weights + taken, held + taken * (2 + max(states, default=2))
    types = dict.fromkeys(_type(module, run) for module in models)
    names = dict.fromkeys(each.name.rpartition(".")[2] for each in made)
    return Footprint(sum(sizes.values()), weights, held, tuple(names), tuple(types))


def _type(module: Object, run: Interpreter) -> str:
    """What a number of a model's parameters is, in the end."""
    found = "float32"
    for node in run.values:
        if not isinstance(node, ast.Call):
            continue
        if any(isinstance(t, External) and t.name == "torch.set_default_dtype" for t in _things(node.func, run)):
            found = next((name for arg in node.args for name in _named(arg, run)), found)
    for keyword in module.node.keywords:
        if keyword.arg in ("dtype", "torch_dtype"):
            found = next(_named(keyword.value, run), found)
    for event in run.of("move"):
        call = event.node
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and module in unwrapped(event.value):
            given = [call.func.attr] if call.func.attr != "to" else []
            for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
                given += _named(argument, run)
            found = next((TYPES[name] for name in given if name in TYPES), found)
    return found


def _named(node: ast.expr, run: Interpreter) -> Iterator[str]:
    """The type that an expression such as `torch.bfloat16` is."""
    for thing in _things(node, run):
        if isinstance(thing, External) and thing.name.startswith("torch."):
            name = thing.name.removeprefix("torch.")
            if name in TYPES:
                yield TYPES[name]


def _things(node: ast.expr, run: Interpreter) -> Iterable[Thing]:
    return run.values.get(node, NOTHING).things


def _states(optimizer: Object, run: Interpreter) -> int:
    name = optimizer.name.rpartition(".")[2]
    if name == "SGD":
        momentum = optimizer.argument("momentum", 2)
        return 0 if momentum is None or momentum.const == 0 else 1
    return STATES.get(name, 2)


class _Count:
    """Counts the parameters of one model; each of its parts once."""

    def __init__(self, run: Interpreter) -> None:
        self._run = run
        self._seen: set[object] = set()

    def module(self, module: Object) -> int:
        """The parameters of a module and of all that it holds."""
        if module.key in self._seen or "loss" in module.roles:
            return 0
        self._seen.add(module.key)
        return (self._own(module) - self._tied(module)) * self._repeats(module)

    def _tied(self, module: Object) -> int:
        """Weights that are another layer's, as in `self.head.weight = self.embedding.weight`."""
        weight = module.attributes.get("weight", NOTHING)
        others = [t for t in weight.things if isinstance(t, Parameters) and t.module is not module]
        if module.cls is not None or not others:
            return 0
        sizes = {"Linear": ("in_features", "out_features"), "Embedding": ("num_embeddings", "embedding_dim")}
        names = sizes.get(module.name.rpartition(".")[2], ())
        return math.prod(self._number(module, name, at, None) for at, name in enumerate(names)) if names else 0

    def _own(self, module: Object) -> int:
        if module.cls is not None:
            held = sum(self._values([value]) for value in module.attributes.values())
            return held + sum(self._values([value]) for value in (*module.args, *module.keywords.values()))
        if "parameter" in module.roles:
            return self._tensor(module)
        first = (module.argument("model_name", 0) or NOTHING).const
        known = self._run.catalog.parameters(module.name, first)
        if known:
            return known
        library, _, name = module.name.rpartition(".")
        if not library.startswith("torch.nn"):
            raise Uncounted(module.source, module.node)
        if name in CONTAINERS:
            return self._values(module.args)
        return self._layer(module, name)

    def _values(self, values: list[Value]) -> int:
        return sum(self.module(each) for value in values for each in _modules(value))

    def _layer(self, module: Object, name: str) -> int:
        """The parameters of a layer of torch."""

        def number(argument: str, position: int, default: int | None = None) -> int:
            return self._number(module, argument, position, default)

        bias = int((module.argument("bias") or Value(const=True)).const is not False)
        if name.startswith("Lazy"):
            raise Uncounted(module.source, module.node)
        if name == "Linear":
            return number("in_features", 0) * (outputs := number("out_features", 1)) + bias * outputs
        if name.startswith("Conv"):
            axes = 3 if "3d" in name else 2 if "2d" in name else 1
            kernel = self._kernel(module, axes)
            inputs, outputs = number("in_channels", 0), number("out_channels", 1)
            groups = number("groups", 8 if "Transpose" in name else 6, 1)
            return inputs * outputs // groups * kernel + bias * outputs
        if name in ("Embedding", "EmbeddingBag"):
            return number("num_embeddings", 0) * number("embedding_dim", 1)
        if name.startswith(NORMS):
            return 2 * number("num_features", 0)
        if name in ("LayerNorm", "RMSNorm"):
            return (2 if name == "LayerNorm" else 1) * number("normalized_shape", 0)
        if name == "GroupNorm":
            return 2 * number("num_channels", 1)
        if name in ("LSTM", "GRU", "RNN"):
            inputs, hidden, layers = number("input_size", 0), number("hidden_size", 1), number("num_layers", 2, 1)
            gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
            ways = 2 if (module.argument("bidirectional") or NOTHING).const is True else 1
            sizes = [inputs] + [ways * hidden] * (layers - 1)
            return sum(ways * gates * hidden * (size + hidden + 2) for size in sizes)
        if name == "MultiheadAttention":
            return 4 * number("embed_dim", 0) * (number("embed_dim", 0) + 1)
        if name in ("TransformerEncoderLayer", "TransformerDecoderLayer"):
            width, inner = number("d_model", 0), number("dim_feedforward", 2, 2048)
            attentions = 1 if "Encoder" in name else 2
            attention = 4 * width * (width + 1) + 2 * width
            return attentions * attention + 2 * width * inner + inner + width + 2 * width
        if name in ("TransformerEncoder", "TransformerDecoder"):
            return self._values(module.args[:1]) * number("num_layers", 1)
        if name in ("Transformer", "Bilinear", "ParameterList", "ParameterDict"):
            raise Uncounted(module.source, module.node)
        return 0

    def _number(self, module: Object, name: str, position: int, default: int | None) -> int:
        value = module.argument(name, position)
        if value is None and default is not None:
            return default
        if value is not None and isinstance(value.const, int):
            return value.const
        call = module.node
        node = next((k.value for k in call.keywords if k.arg == name), None)
        if node is None and position < len(call.args):
            node = call.args[position]
        found = self._folded(node)
        if found is None:
            raise Uncounted(module.source, call)
        return found

    def _kernel(self, module: Object, axes: int) -> int:
        call = module.node
        node = next((k.value for k in call.keywords if k.arg == "kernel_size"), None)
        node = call.args[2] if node is None and len(call.args) > 2 else node
        if isinstance(node, (ast.Tuple, ast.List)):
            sizes = [self._folded(each) for each in node.elts]
            if all(sizes):
                return math.prod(size for size in sizes if size is not None)
        size = self._folded(node)
        if size is None:
            raise Uncounted(module.source, call)
        return int(size**axes)

    def _tensor(self, parameter: Object) -> int:
        """`nn.Parameter(torch.zeros(length, width))`"""
        inner = parameter.node.args[0] if parameter.node.args else None
        if isinstance(inner, ast.Call):
            names = [t.name for t in self._run.values.get(inner.func, NOTHING).things if isinstance(t, External)]
            shape = (
                inner.args[0].elts if inner.args and isinstance(inner.args[0], (ast.Tuple, ast.List)) else inner.args
            )
            sizes = [self._folded(each) for each in shape]
            if names and all(n.rpartition(".")[2] in ("zeros", "ones", "randn", "rand", "empty") for n in names):
                if sizes and None not in sizes:
                    return math.prod(size for size in sizes if size is not None)
        if self._folded(inner) is not None or isinstance(inner, ast.Constant):
            return 1
        raise Uncounted(parameter.source, parameter.node)

    def _folded(self, node: ast.expr | None) -> int | None:
        """The value of an expression of numbers that are known."""
        if node is None:
            return None
        const = self._run.values.get(node, NOTHING).const
        if isinstance(const, int):
            return const
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            left, right = self._folded(node.left), self._folded(node.right)
            if left is not None and right is not None:
                folded: int = OPERATORS[type(node.op)](left, right)
                return folded
        return None

    def _repeats(self, module: Object) -> int:
        """How often the expression that makes a module is run by the loops around it."""
        times = 1
        for ancestor in module.source.ancestors(module.node):
            if isinstance(ancestor, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
                break
            heads = [ancestor.iter] if isinstance(ancestor, ast.For) else []
            if isinstance(ancestor, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
                heads = [generator.iter for generator in ancestor.generators]
            for head in heads:
                times *= self._length(head, module)
        return times

    def _length(self, head: ast.expr, module: Object) -> int:
        if isinstance(head, (ast.List, ast.Tuple)):
            return len(head.elts)
        if isinstance(head, ast.Call) and isinstance(head.func, ast.Name) and head.func.id == "range":
            sizes = [self._folded(each) for each in head.args]
            known = [size for size in sizes if size is not None]
            if len(known) == len(sizes):
                return len(range(*known))
        raise Uncounted(module.source, head)


def _modules(value: Value) -> Iterator[Object]:
    pending, seen = [value], set()
    while pending:
        for thing in pending.pop().things:
            if isinstance(thing, Object) and thing.roles & {"module", "parameter", "batch_norm"}:
                yield thing
            elif isinstance(thing, Items) and id(thing) not in seen:
                seen.add(id(thing))
                pending += [*thing.parts, thing.element]
