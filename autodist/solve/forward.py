"""Forward passes: the calls of modules that values come from, and through which gradients flow back from these."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autodist.program import Operation, Program, Region, Value, closure
from autodist.solve.parameters import LAYERS, unwrapped
from autodist.solve.steps import all_held, given, is_constant
from autodist.trace.attributes import ordered
from autodist.trace.things import Heap, Method, Object

PASSES = ("__call__", "forward")
"""The methods of a module that are its forward pass."""

SPREADING = "torch.nn.parallel.data_parallel"
"""The function that runs a module that it is given, `data_parallel(model, x)`."""


@dataclass(frozen=True)
class Pass:
    """The forward pass of a module that is no part of another one: where it is called, and the module, if it is known
    what is called there."""

    node: ast.AST
    module: Object | None = None


@lru_cache(maxsize=2)
def forward_passes(program: Program) -> ForwardPasses:
    """The forward passes of a program: found once for all that asks for them."""
    return ForwardPasses(program)


class ForwardPasses:
    """Which forward passes operations are run in."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._behind: dict[frozenset[Operation], list[Pass]] = {}
        self._around: dict[Region, dict[Pass, None]] = {}
        self._inside: dict[Object, set[Any]] = {}

    def behind(self, operations: Iterable[Operation]) -> list[Pass]:
        """The passes through which gradients flow back from what some operations give: `model(x)` of `loss`."""
        ends = frozenset(each for each in operations if not is_constant(each))
        if ends not in self._behind:
            above = closure(ends, lambda op: (each for each in _given(op) if not is_constant(each)))
            found = (each for op in sorted(above, key=lambda op: op.number) for each in self._of(op))
            self._behind[ends] = list(dict.fromkeys(found))
        return self._behind[ends]

    def differentiated(self, backward: Operation) -> list[Pass]:
        """Those of what a backward pass differentiates."""
        return self.behind(_given(backward))

    def _of(self, operation: Operation) -> Iterable[Pass]:
        """The passes that an operation is run in, or that it is: of a layer of a library."""
        around = self._of_region(operation.region)
        if around:
            return around
        if operation.name == "call":
            return [Pass(operation.node)]
        if operation.name == SPREADING and operation.inputs:
            return [Pass(operation.node, each) for each in unwrapped(operation.inputs[0])]
        owner = operation.owner if operation.name in getattr(operation.owner, "library_names", ()) else None
        return self._called(operation.node, owner)

    def _of_region(self, region: Region) -> dict[Pass, None]:
        """The outermost passes that lead to a region, on each way."""
        if region not in self._around:
            self._around[region] = {}  # for what leads to itself
            found: dict[Pass, None] = {}
            around = [region.parent] if region.parent is not None else []
            for each in (*around, *sorted(region.others, key=_place)):
                found |= self._of_region(each) or dict.fromkeys(self._entered(region))
            self._around[region] = found
        return self._around[region]

    def _entered(self, region: Region) -> Iterator[Pass]:
        """The passes that a region is itself: a call of the function of one, or of what a container of layers runs."""
        if region.function is None:
            return
        given = ordered(region.inputs[0].things) if region.inputs else []
        for each in [each for each in given if _runs(each, region.function)] or [None]:
            yield from self._called(region.node, each)

    def _called(self, node: ast.AST, run: Any) -> Iterator[Pass]:
        """The modules that are called at a node, of which one is ``run`` there, or has a part that is."""
        called = ordered(self._program.at(node.func).things) if isinstance(node, ast.Call) else []
        modules = [module for each in called for module in _passing(each) if not _is_loss(module)]
        if len(modules) > 1 and run is not None:
            modules = [each for each in modules if run in self._parts(each)] or modules
        if not modules and isinstance(run, Object) and not _is_loss(run):
            modules = [run] if _may_be_module(run) else []
        yield from (Pass(node, each) for each in modules)

    def _parts(self, module: Object) -> set[Any]:
        """A module and all that is in it."""
        if module not in self._inside:
            found: set[Any] = {module}
            pending: list[Any] = [module]
            while pending:
                each = pending.pop()
                held = [
                    *each.contents(),
                    *(each.inputs + tuple(each.keywords.values()) if isinstance(each, Object) else ()),
                ]
                fresh = {t for value in held for t in value.things if isinstance(t, Heap)} - found
                found |= fresh
                pending += fresh
            self._inside[module] = found
        return self._inside[module]


def _given(operation: Operation) -> Iterator[Operation]:
    """What an operation is given, and what objects of libraries are made of that it is given, or is a method of:
    `Normal(model(x), 1).log_prob(y)`."""
    yield from given(operation)
    objects = [each for value in operation.operands for each in value.things if isinstance(each, Object)]
    objects += [operation.owner] if isinstance(operation.owner, Object) else []
    for each in objects:
        if each.cls is None and not each.roles & LAYERS:
            yield from all_held((*each.inputs, *each.keywords.values()))


def _runs(thing: Any, function: ast.AST) -> bool:
    """Whether a function is the forward pass of a module, which it is given first."""
    cls = thing.cls if isinstance(thing, Object) and _may_be_module(thing) else None
    found = [cls.find(name) for name in PASSES] if cls is not None else []
    return any(getattr(each, "node", None) is function for one in found if one for each in one[1].things)


def _passing(called: Any) -> Iterator[Object]:
    """The modules whose forward pass it is to call something: a module, its wrapper, or `model.forward`."""
    if isinstance(called, Method):
        name = called.function if isinstance(called.function, str) else called.function.name
        called = called.owner if name in PASSES else None
    return unwrapped(Value(things=frozenset([called])))


def _may_be_module(one: Object) -> bool:
    """Whether it is a module, or may be one of a library that is not known, or derive from one."""
    return bool(one.roles & LAYERS) or not one.roles and (one.cls is None or bool(one.cls.libraries))


def _is_loss(module: Object) -> bool:
    """Whether it is a loss of a library."""
    return "loss" in module.roles and module.cls is None


def _place(region: Region) -> tuple[str, int, int]:
    return str(region.source.path), getattr(region.node, "lineno", 0), getattr(region.node, "col_offset", 0)
