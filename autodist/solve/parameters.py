"""The parameters of modules in a program, as bits: one for each, and two for each list of layers."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from autodist.program import BATCH, EMPTY, FIELDS, SAMPLE, Operation, Program, Region, Value, closure
from autodist.trace.objects import WRAPPING
from autodist.trace.things import Mapping, Object, Sequence, Stream

WITHOUT_PARAMETERS = (
    *("Dropout", "Identity", "Flatten", "Unflatten", "MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool"),
    *("Upsample", "PixelShuffle", "ZeroPad", "ReflectionPad", "ReplicationPad", "ConstantPad", "ReLU", "LeakyReLU"),
    *("Softmax", "LogSoftmax", "Sigmoid", "Tanh", "GELU", "SiLU", "ELU"),
)
"""Beginnings of the names of layers that have none."""
CONTAINERS = ("Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict")
GIVING = ("children", "modules", "named_children", "named_modules")
"""Methods that give the layers of a model."""
BIASED = ("Linear", "Conv1d", "Conv2d", "Conv3d")
COPYING = ("TransformerEncoder", "TransformerDecoder")
"""What copies a module that it is given."""
LAYERS = frozenset(["module", "batch_norm"])
POOLING = frozenset(f"{name}Model" for name in "Auto Bert Roberta XLMRoberta Albert Camembert Ernie ViT Beit".split())
"""Encoders of transformers that end in a layer which one of their outputs comes from alone."""
AS_ROW = ("values", "items", "to_tuple")
"""Methods of outputs that give all of them."""
ALL, LAST = "all", "last"
"""Of several layers that one place makes: that each of them is run, and the last of them is."""
BESIDE = "beside"
"""The parameters that one of several outputs of a model comes from alone."""
SAMPLES = (BATCH, FIELDS, SAMPLE)
FACTS = ("fact", "length")
"""Classes of operations whose results do not depend on the numbers that they are given."""
EVERY = -1
"""All parameters, as bits."""


class Parameters:
    """The parameters of modules, and which operations read them."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._bits: dict[Hashable, int] = {}
        self._held: dict[Object, int] = {}
        self._read: dict[Operation, int] = {}
        self.backwards = [each.operation for each in program.of("backward")]
        self._steps = frozenset(loop for each in self.backwards for loop in each.region.loops)
        self._roots: dict[ast.AST, dict[Object, None]] = {}
        for value in program.values.values():
            for each in value.things:
                if isinstance(each, Object) and each.roles & LAYERS:
                    self._roots.setdefault(each.node, {})[each] = None
                    self.parameters(each)

    def parameters(self, module: Object, frozen: frozenset[ast.AST] = frozenset()) -> int:
        """The parameters of a module and of all that it holds."""
        if not frozen and module in self._held:
            return self._held[module]
        found, seen, pending = 0, set[Any](), [Value(things=frozenset([module]))]
        while pending:
            value = pending.pop()
            for op in value.operations:
                found |= self._bit(op) if is_parameter(op) else 0
            for each in value.things:
                if each in seen or isinstance(each, Object) and (each.node in frozen or not each.roles & LAYERS):
                    continue
                seen.add(each)
                if isinstance(each, Object):
                    found |= self._own(each)
                    copies = each.name.endswith(COPYING)
                    pending += [*each.contents(), *(() if copies else (*each.inputs, *each.keywords.values()))]
                elif isinstance(each, (Sequence, Mapping, Stream)):
                    pending += each.contents()
        if not frozen:
            self._held[module] = found
        return found

    def _bit(self, key: Hashable) -> int:
        return 1 << self._bits.setdefault(key, len(self._bits))

    def _own(self, layer: Object) -> int:
        """The parameters of a layer of a library; of one of several that are made in a loop, also that all are run."""
        names = [each.rpartition(".")[2] for each in layer.library_names]
        if layer.cls is not None and layer.cls.find("forward"):
            return 0  # of what a base of a library makes, nothing is known
        if names and names[0] == "Sequential":
            return union(map(self._of_library, (*layer.inputs, *layer.keywords.values())))
        if "loss" in layer.roles or not names or names[0] in CONTAINERS or names[0].startswith(WITHOUT_PARAMETERS):
            return 0
        found = self._set_later(layer, "weight")
        if names[0] in BIASED:
            bias = layer.argument("bias", 2 if names[0] == "Linear" else 7)
            found |= self._set_later(layer, "bias") if bias is None or bias.constant is not False else 0
        found |= self._bit((layer, BESIDE)) if has_output_beside(layer) else 0
        return found | self._each_of(layer)

    def _of_library(self, value: Value) -> int:
        """The parameters of layers that a model of a library gives, of which it is not told which they are:
        `Sequential(*resnet.children())`."""
        above = closure(value.operations, lambda each: each.given if each.owner is None else ())
        taken = any(each.name.rpartition(".")[2] in GIVING and isinstance(each.owner, Object) for each in above)
        return union(map(self._bit, value.operations)) if taken else 0

    def _set_later(self, layer: Object, name: str) -> int:
        """A parameter of a layer, or what it was given in its place: `head.weight = table.weight`."""
        slot = layer.attributes.get(name)
        if slot is None:
            return self._bit((layer, name))
        found = union(self._bit(op if is_parameter(op) else (op.owner, name)) for op in slot.value.operations)
        others = {op.owner for op in slot.value.operations if isinstance(op.owner, Object)}
        return found | union(self._each_of(each) for each in others)

    def _each_of(self, layer: Object) -> int:
        return self._bit((layer, ALL)) | self._bit((layer, LAST)) if self._is_several(layer) else 0

    def _is_several(self, layer: Object) -> bool:
        return any(each.kind == "loop" and each not in self._steps for each in layer.guards)

    def _given(self, op: Operation) -> int:
        """The parameters that an operation reads itself."""
        if op not in self._read:
            self._read[op] = self._reads(op)
        return self._read[op]

    def _reads(self, op: Operation) -> int:
        if is_parameter(op):
            return self._bit(op)
        layer, short = op.owner, op.name.rpartition(".")[2]
        if op.name == "call" and op.inputs:
            return self._of_library(op.inputs[0])
        if short in ("getitem", "pooler_output", *AS_ROW) and op.inputs:
            return self._of_output(op, short)
        if not isinstance(layer, Object) or not layer.roles & LAYERS or op.name.endswith(".__init__"):
            return 0
        if short.endswith("parameters"):
            return self.parameters(layer)
        own = self._own(layer) if layer.name.endswith(CONTAINERS) or layer.cls is not None else self.parameters(layer)
        if short in ("weight", "bias") and own & self._bit((layer, "bias")):
            own &= ~self._bit((layer, "bias" if short == "weight" else "weight"))
        if self._is_several(layer) and not self._all_run(op, layer):
            own &= ~self._each_of(layer)
        return own & ~self._bit((layer, BESIDE)) if has_output_beside(layer) else own

    def _of_output(self, op: Operation, short: str) -> int:
        """The parameters that one of several outputs of a library's model comes from alone, where that is read."""
        keys = {short} if short != "getitem" else {op.inputs[1].constant} if len(op.inputs) > 1 else set()
        found = 0
        for each in op.inputs[0].operations:
            if short == "getitem" and each.name.endswith(AS_ROW) and each.inputs:
                found |= self._of_output(replace(op, inputs=(each.inputs[0], *op.inputs[1:])), short)
            elif isinstance(each.owner, Object) and keys & has_output_beside(each.owner):
                found |= self._bit((each.owner, BESIDE))
        return found

    def _all_run(self, op: Operation, layer: Object) -> bool:
        """Whether all layers are run that are made at one place: in a loop, or by a container."""
        made = looping(layer.guards)
        for node in self._calls_around(op):
            called = self._program.at(node.func).things
            if any(isinstance(each, Object) and runs_in_turn(each) and made - looping(each.guards) for each in called):
                return True
            index = node.func.slice if isinstance(node.func, ast.Subscript) else node
            if index is not node and self._go_by_samples(self._program.at(index).operations):
                return False
            if isinstance(node.func, ast.Subscript) and isinstance(index, (ast.Constant, ast.UnaryOp)):
                if not any(map(is_told, self._program.at(node.func.value).things)):
                    return False
        return bool(op.region.loops - self._steps)

    def _go_by_samples(self, ops: Iterable[Operation]) -> bool:
        """Whether what some operations give depends on the samples of a batch, and not only on how many there are."""
        return any(op.name in SAMPLES for op in closure(ops, lambda op: () if _is_fact(op) else op.given))

    def _calls_around(self, op: Operation) -> Iterator[ast.Call]:
        nodes = [op.node, *(each.node for each in op.region.around() if each.function is not None)]
        return (each for each in nodes if isinstance(each, ast.Call))

    def _as_often_as(self, root: Object) -> int:
        """What tells that all of several layers are run, of those that are made once for each of several models."""
        made = looping(root.guards)
        layers = (key for key in self._bits if isinstance(key, tuple) and key[1] in (ALL, LAST))
        return union(self._bit(key) for key in layers if looping(key[0].guards) - self._steps <= made)

    def _in_pass(self, region: Region | None) -> bool:
        """Whether a module runs there."""
        calls = (
            each.node for each in (region.around() if region is not None else ()) if isinstance(each.node, ast.Call)
        )
        called = (getattr(thing, "owner", thing) for each in calls for thing in self._program.at(each.func).things)
        return any(True for each in called for _ in unwrapped(Value(things=frozenset([each]))))


def _is_fact(op: Operation) -> bool:
    """Whether it tells the shape, the length or the type of what it is given."""
    known = op.known
    return known is not None and known.cls in FACTS


def is_parameter(op: Operation) -> bool:
    frozen = op.argument("requires_grad", 1)
    return op.name.endswith("nn.Parameter") and (frozen is None or frozen.constant is not False)


def has_output_beside(layer: Object) -> frozenset[object]:
    """How an output of a library's model is read that has parameters of its own: what an encoder pools of all words, or
    what a segmentation model computes on the way, `fcn_resnet50(aux_loss=True)`."""
    library, _, name = layer.name.partition(".")
    if library == "transformers" and layer.cls is None and name.partition(".")[0] in POOLING:
        pools = layer.keywords.get("add_pooling_layer", EMPTY).constant is not False
        return frozenset([1, "pooler_output"]) if pools else frozenset()
    if layer.name.startswith("torchvision.models.segmentation.") and not name.endswith("lraspp_mobilenet_v3_large"):
        asked, weights = layer.argument("aux_loss", 3), [layer.argument(name) for name in ("weights", "pretrained")]
        told = [asked] if asked is not None else [each for each in weights if each is not None]
        return frozenset(["aux", *AS_ROW]) if any(each.constant not in (None, False) for each in told) else frozenset()
    return frozenset()


def looping(guards: Iterable[Region]) -> frozenset[Region]:
    return frozenset(each for each in guards if each.kind == "loop")


def runs_in_turn(thing: Object) -> bool:
    """Whether it runs the layers in it one after the other."""
    return "torch.nn.Sequential" in thing.library_names


def is_told(thing: Any) -> bool:
    """Whether it is a list of which it is known what is where."""
    lists = [thing, *(t for each in thing.inputs for t in each.things)] if is_list(thing) else [thing]
    return any(isinstance(each, Sequence) and each.parts is not None for each in lists)


def is_list(thing: Any) -> bool:
    names = thing.library_names if isinstance(thing, Object) else []
    return any(each.endswith(("ModuleList", "ModuleDict")) for each in names)


def unwrapped(value: Value) -> Iterator[Object]:
    """The modules that a value may be, without wrappers."""
    for each in value.things:
        inner = each.argument("module", 0) if isinstance(each, Object) and each.name.endswith(WRAPPING) else None
        if inner is not None:
            yield from unwrapped(inner)
        elif isinstance(each, Object) and each.roles & LAYERS:
            yield each


def union(masks: Iterable[int]) -> int:
    found = 0
    for each in masks:
        found |= each
    return found


def intersection(masks: list[int]) -> int:
    found = EVERY
    for each in masks:
        found &= each
    return found if masks else 0
