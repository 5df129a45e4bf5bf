"""Outputs of models in which a wrapper does not find its tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autodist.interpreter import Event, Interpreter
from autodist.program import Value as Traced
from autodist.solve.parameters import LAYERS
from autodist.trace import things

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
