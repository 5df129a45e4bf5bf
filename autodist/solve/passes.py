"""The forward passes of modules: what they change."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property, lru_cache

from autodist.program import VIEWS, Operation, Program, Region, Value, closure, held
from autodist.solve.parameters import LAYERS, runs_in_turn
from autodist.solve.steps import changes_in_place
from autodist.source import Source, walk
from autodist.trace.things import Object, Sequence

INPLACE = {
    **dict.fromkeys(("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid"), 0),
    **dict.fromkeys(("LeakyReLU", "ELU", "CELU", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"), 1),
    **dict.fromkeys(("Threshold", "RReLU", "Hardtanh"), 2),
}
"""Layers of torch that have an argument `inplace`, and its position."""
KEEPING = ("requires_grad_", "detach_")
"""What leaves the numbers of a tensor as they are."""
PASSES = ("forward", "__call__")
"""The methods that run a model."""


@lru_cache(maxsize=2)
def passes(program: Program) -> Passes:
    """The forward passes of a program: found once for all modules."""
    return Passes(program)


class Passes:
    """Which modules run in which regions."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def change_input(self, node: ast.AST) -> bool:
        """Whether a module that is made at ``node`` changes in place what it is given: `nn.ReLU(True)` comes first."""
        things = {each for value in self._program.values.values() for each in value.things}
        return any(self._changes(each) for each in things if isinstance(each, Object) and each.node is node)

    def _changes(self, module: Object) -> bool:
        first = next(iter(module.inputs), None)
        if module.cls is not None or first is None or not runs_in_turn(module):
            return _is_in_place(module) or module in self._changing
        lists = (each.parts for each in first.things if isinstance(each, Sequence))
        told = next((each[0] for each in lists if each), first)
        return any(self._changes(each) for each in told.things if isinstance(each, Object))

    @cached_property
    def _changing(self) -> set[Object]:
        """The modules of the project in whose passes it is changed what they are given."""
        found: set[Object] = set()
        for op in filter(_changes_first, self._program.operations):
            base = closure(op.inputs[0].operations, _viewed)
            for region in op.region.everywhere:
                if any(not base.isdisjoint(held(each)) for each in region.inputs[1:]):
                    found |= set(run_in(region))
        return found


def run_in(region: Region) -> Iterator[Object]:
    """The modules of which a region is the forward pass."""
    if getattr(region.function, "name", "") in PASSES and region.inputs:
        yield from (each for each in region.inputs[0].things if isinstance(each, Object) and each.roles & LAYERS)


def made_for(program: Program, source: Source, node: ast.AST) -> Iterator[tuple[Source, ast.expr]]:
    """The arguments of calls of functions in which a module is made, at ``node`` of a file: `fit(Net(), loader)`, or
    `fit(build(), loader)`, where that function makes it."""
    home, found = source.function(node), set[ast.expr]()
    makers = [each for each in program.entered if each.function is home] if home is not None else []
    for region in program.entered:
        call = region.node if isinstance(region.node, ast.Call) else None
        for given in (*call.args, *(each.value for each in call.keywords)) if call is not None else ():
            if given in found or not isinstance(given, (ast.Call, ast.IfExp)):
                continue
            held = program.at(given).things
            if not any(isinstance(each, Object) and each.node is node and each.roles & LAYERS for each in held):
                continue
            inside = set(walk(given))
            if node in inside or any(each.node in inside for maker in makers for each in maker.around()):
                found.add(given)
                yield region.source, given


def _changes_first(op: Operation) -> bool:
    """Whether an operation changes in place what it is given first."""
    if not op.inputs or op.name.endswith(KEEPING):
        return False
    told = op.keywords.get("inplace", Value()).constant is True
    changed = op.name == "setitem" or changes_in_place(op)
    return told or changed or isinstance(op.owner, Object) and _is_in_place(op.owner)


def _is_in_place(layer: Object) -> bool:
    short = layer.name.removeprefix("torch.nn.")
    told = layer.argument("inplace", INPLACE[short]) if short in INPLACE else None
    return told is not None and told.constant is True


def _viewed(op: Operation) -> frozenset[Operation]:
    return op.inputs[0].operations if op.inputs and op.name.rpartition(".")[2] in VIEWS else frozenset()
