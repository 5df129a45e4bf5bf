"""Modules that normalise over batches."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from autodist.catalog import Catalog
from autodist.program import Operation, Program, Value, closure
from autodist.solve.parameters import CONTAINERS, LAYERS
from autodist.solve.steps import given
from autodist.trace.calls import REST
from autodist.trace.things import Heap, Listing, Method, Object

LAYER = ("BatchNorm", "LazyBatchNorm")
"""Beginnings of the names of layers that do."""


@lru_cache(maxsize=2)
def normalising(program: Program, catalog: Catalog) -> Normalising:
    """Which modules of a program normalise over batches: found once for all of them."""
    return Normalising(program, catalog)


class Normalising:
    """Which modules normalise over batches."""

    def __init__(self, program: Program, catalog: Catalog) -> None:
        self._program, self._catalog = program, catalog
        self._made: dict[ast.AST, dict[Object, None]] = {}
        for value in program.values.values():
            for each in value.things:
                if isinstance(each, Object):
                    self._made.setdefault(each.node, {})[each] = None
        called = [program.at(node.func) for node in program.values if isinstance(node, ast.Call)]
        self._called = frozenset[Any](each for value in called for each in (*value.operations, *value.things))
        self._found: dict[ast.AST, bool] = {}

    def are(self, node: ast.AST) -> bool:
        """Whether a module that is made at ``node`` normalises over batches, or a part of it, or a module that it takes
        parts of. What comes from a library of which nothing is known may: to synchronise layers that are not there
        changes nothing."""
        if node not in self._found:
            made = {*self._made.get(node, {}), *self._program.at(node).operations}
            self._found[node] = any(self._normalises(one) for one in self._parts(made))
        return self._found[node]

    def _parts(self, roots: set[Any]) -> Iterator[Any]:
        """The modules that some hold, those that they take layers of, and operations of libraries that make layers."""
        seen, pending = set[Any](), [*roots]
        while pending:
            each = pending.pop()
            each = each.owner if isinstance(each, Method) else each  # `nn.Sequential(*vgg.features)`
            if each in seen or not isinstance(each, (Heap, Operation)):
                continue
            seen.add(each)
            if isinstance(each, Operation):
                pending += [each.owner]
                yield each
            elif not isinstance(each, Object) or each.roles & LAYERS or each in roots or each in self._called:
                values, told = [*each.contents()], [*_given(each)] if isinstance(each, Object) else []
                pending += [thing for value in (*values, *told) for thing in value.things]
                values += told if getattr(each, "name", "").endswith(CONTAINERS) else ()
                pending += closure((op for value in values for op in value.operations), given)
                yield each

    def _normalises(self, one: Any) -> bool:
        if isinstance(one, Operation):
            library = "." in one.name and not one.name.startswith(("object.", "function.", "loader."))
            unseen = one in self._called and library and not self._catalog.knows(one.name)
            first = next(iter(one.inputs), Value()).constant
            return unseen or one.owner is None and self._catalog.normalises(one.name, first)
        if not isinstance(one, Object):
            return False
        first, told = next(iter(one.inputs), Value()).constant, one.keywords.get("norm", Value()).constant
        if isinstance(told, str) and told.lower().replace("_", "") == "batchnorm":  # `GCN(4, 8, 2, norm="batch_norm")`
            return True
        if "batch_norm" in one.roles or not all(map(self._catalog.knows, one.library_names)):
            return True
        names = [(each, each.rpartition(".")[2]) for each in one.library_names]
        if any(name.startswith(LAYER) or self._catalog.normalises(each, first) for each, name in names):
            return True
        return REST in one.keywords and names[0][1] in CONTAINERS and not any(_holds(each) for each in _given(one))


def _given(one: Object) -> Iterator[Value]:
    yield from one.inputs
    yield from one.keywords.values()


def _holds(value: Value) -> bool:
    """Whether anything is known of the layers that a container is given: a file of settings may name them."""
    lists = [each for each in value.things if isinstance(each, Listing)]
    return bool(value.operations) or len(lists) < len(value.things) or any(any(each.contents()) for each in lists)
