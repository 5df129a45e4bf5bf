"""Outputs of models: what libraries' models give that nobody reads, and what a wrapper does not find its tensors in."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autodist.interpreter import Event, Interpreter
from autodist.models.reading import is_own, methods_of
from autodist.program import Value as Traced
from autodist.solve.parameters import LAYERS
from autodist.source import last_name
from autodist.trace import things
from autodist.values import NOTHING, Object

POOLING = frozenset(f"{name}Model" for name in "Auto Bert Roberta XLMRoberta Albert Camembert Ernie ViT Beit".split())
FOUND_IN = ("NamedTuple", "namedtuple", "Output", ".dict", "OrderedDict")
"""Ends of the names of classes in whose objects the wrapper finds tensors."""


def gives_parameters(passes: Iterable[Event], run: Interpreter) -> bool:
    """Whether parameters themselves are among the outputs of a model, `{"boxes": boxes, "scale": self.scale}`."""
    outputs = (each for event in passes for each in _held(run.runs.program.at(event.node)))
    return any(op.name.endswith(("nn.Parameter", ".weight", ".bias")) for each in outputs for op in each.operations)


def gives_objects(passes: Iterable[Event], run: Interpreter) -> bool:
    """Whether a model gives its outputs in an object of a class that is no list, tuple or dict."""
    for given in (run.runs.program.at(event.node).things for event in passes):
        if not any(isinstance(each, (things.Sequence, things.Mapping)) for each in given):
            if any(map(_is_opaque, given)):
                return True
    return False


def _is_opaque(thing: object) -> bool:
    """Whether it holds tensors that the wrapper does not find: in named tuples and outputs of transformers, it does."""
    if not isinstance(thing, things.Object) or thing.roles & LAYERS:
        return False
    held = any(op.is_tensor for each in _held(Traced(things=frozenset([thing]))) for op in each.operations)
    return held and not any(name.endswith(FOUND_IN) for name in thing.library_names)


def _held(value: Traced, depth: int = 5) -> Iterator[Traced]:
    """A value, and what it holds."""
    yield value
    for each in value.things if depth else ():
        if isinstance(each, things.Object) and each.roles & LAYERS:
            continue
        inside = [*each.contents()] if isinstance(each, things.Heap) else []
        inside += each.keywords.values() if isinstance(each, things.Object) else ()
        for inner in inside:
            yield from _held(inner, depth - 1)


def leaves_auxiliary(module: Object, run: Interpreter) -> bool:
    """`fcn_resnet50(aux_loss=True)`, also with weights that bring that part, whose second output nobody asks for."""
    if not module.name.startswith("torchvision.models.segmentation.") or module.name.endswith(
        "lraspp_mobilenet_v3_large"
    ):
        return False
    asked = module.argument("aux_loss", 3)
    brought = [given for name in ("weights", "pretrained") if (given := module.argument(name)) is not None]
    has = asked.const not in (None, False) if asked is not None else any(v.const not in (None, False) for v in brought)
    return has and not any(quoted in source.text for source in run.project.sources for quoted in ("'aux'", '"aux"'))


def leaves_pooled(module: Object) -> bool:
    """Whether a class reads the states of the words that an encoder of transformers gives, and not what its last layer
    makes of them all: `self.bert(x)[0]`, `self.bert(x).last_hidden_state`."""
    methods = methods_of(module.cls) if module.cls is not None else {}
    held = {name for name, value in module.attributes.items() if any(_pools(thing) for thing in value.things)}
    if not held or "forward" not in methods:
        return False
    for node in (each for method in methods.values() for each in ast.walk(method)):
        named = isinstance(node, ast.Attribute) and node.attr == "pooler_output"
        if named or isinstance(node, ast.Subscript) and getattr(node.slice, "value", None) in (1, "pooler_output"):
            return False
    return not any(name in held and 1 in kept for method in methods.values() for name, kept in _taken(method))


def _pools(thing: object) -> bool:
    """Whether it is an encoder of transformers with a layer that only pooled outputs come from."""
    if not isinstance(thing, Object) or thing.cls is not None or not thing.name.startswith("transformers."):
        return False
    pooled = thing.keywords.get("add_pooling_layer", NOTHING).const is not False
    return pooled and thing.name.split(".")[1] in POOLING


def _taken(method: ast.FunctionDef) -> Iterator[tuple[str, set[int]]]:
    """Parts of which a method takes some of several outputs, and which: `a, _ = self.part(x)`, `self.part(x)[0]`."""
    read = {n.id for n in ast.walk(method) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    for node in ast.walk(method):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                named = [each.id if isinstance(each, ast.Name) else None for each in targets]
                kept = {at for at, name in enumerate(named) if name is None or name in read and name != "_"}
                if any(isinstance(each, ast.Starred) for each in targets) or len(kept) == len(targets):
                    continue
            case ast.Subscript(value=value, slice=ast.Constant(value=int(at))):
                kept = {at}
            case _:
                continue
        if isinstance(value, ast.Call) and last_name(value.func) == "values" and not value.args:  # of a dict
            value = value.func.value if isinstance(value.func, ast.Attribute) else value
        if isinstance(value, ast.Call) and is_own(value.func):
            yield value.func.attr, kept
