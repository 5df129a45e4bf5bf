"""What libraries give whose code is not followed: models, their outputs and losses, and batches of any kind."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

from autodist.placement.call import ROWS
from autodist.placement.in_place import InPlace
from autodist.placement.lattice import EITHER, GUESSED, Each, Partial, PerRank, Placement, Replicate, Shard, is_guessed
from autodist.placement.measured import ANY, as_placement, lying_alike
from autodist.placement.products import PAIRED
from autodist.placement.shapes import Sizes
from autodist.program import FIELDS, Operation, Value, closure, held, joined
from autodist.source import Source, last_name, walk

NOT_KNOWN = f"{GUESSED} what it computes"
WRAPPED = f"{GUESSED} how it goes through a loader that is shared out"
DETECTORS = frozenset(["boxes", "pictures"])
"""The kinds of models that hand out a dict of losses where they are given targets."""
COUNTED = frozenset("words next_words pixels".split())
"""The kinds of models whose losses are means over labels that are not left out, which a batch has at hand."""
FUNCTIONS = ("scipy.", "sklearn.metrics.")
"""Beginnings of the names of functions that compute what they are given, and keep nothing of it."""
LOSSES = frozenset(["loss", "loss_function"])
OF_DICTS = ("torch.Tensor.items", "torch.Tensor.values", "torch.Tensor.get", "torch.Tensor.pop")
"""Methods by which a batch gives its fields."""
OWN = "what a model counts of "
"""Begins the names of what models of libraries take the mean over, `words` of the catalog of their losses."""
OF_GRAPHS = ("torch_geometric.", "dgl.")
"""Beginnings of the names of loaders whose batches are graphs, joined to one."""
FIELDS_OF_NODES = frozenset("x pos edge_index edge_attr edge_weight".split())
OF_PAIRS = "logits_per_"
"""Begins the names of what models of pictures and texts say of each pair of a batch."""
NODES = "nodes"
"""Counts the nodes of a batch, of which graphs have different numbers."""
VIEWED = ("iterate", "getitem")
SEEN = ("torch.", "builtins.", "object.", "loader.")
"""Begins the names of functions and methods that go through no loader which they are given."""


class Opaque(InPlace):
    """Placements of what is computed by libraries that the table of operations does not name."""

    def _roles(self, operation: Operation) -> frozenset[str]:
        known = self._catalog.roles(operation.name) if self._catalog is not None else frozenset()
        return known | getattr(operation.owner, "roles", frozenset())

    def _unknown(self, operation: Operation) -> Placement | None:
        """An operation that the table does not know: replicated of what is replicated."""
        found = [each for each in map(self._operand, operation.operands) if each is not None]
        apart = [each for each in found if not isinstance(each, Replicate) or each.exponent]
        if not apart:
            unknown = isinstance(operation.node, ast.Call) and not operation.name.startswith(SEEN)
            return PerRank(operation.name, WRAPPED) if unknown and self._are_shared(operation.inputs) else Replicate()
        mixed = next((each for each in apart if isinstance(each, PerRank)), None)
        if mixed is not None:
            return mixed
        if operation.owner is None and operation.name.startswith(FUNCTIONS) and len({*apart}) == 1:
            if isinstance(apart[0], Each):
                return apart[0]  # of one sample alone
        if operation.inputs and (field := self._field(operation.inputs[0], operation)) is not None:
            return field
        rows = {each.rows for each in apart if isinstance(each, Shard)} - {ROWS}
        counts, *others = sorted(rows) or [ROWS]
        if all(isinstance(each, Shard) and replace(each, rows=ROWS) == Shard(0) for each in apart) and not others:
            if self._roles(operation) & LOSSES:
                return self._loss(operation, "mean", counts)
            if "log_likelihood" in self._roles(operation):
                return self._loss(operation, "sum", counts)
            if self._is_model(operation):
                own = self._own_loss(operation)
                hands_out = own in DETECTORS and len(operation.inputs) > 1
                return _mean_over(own) if hands_out else Shard(0, rows=counts)
        return PerRank(operation.name, NOT_KNOWN)

    def _measured(self, operation: Operation, placement: Placement | None) -> tuple[Placement | None, Sizes] | None:
        """How a result lies that reading does not know, where that was measured of what lies as its operands do."""
        told = self._catalog.measured.get(operation.node) if self._catalog is not None else None
        if told is None or not is_guessed(placement):
            return None
        given = [self._found.joint(held(each)) for each in operation.operands]
        if placement.reason == WRAPPED or any(isinstance(each, PerRank) for each in given):
            return None
        if told.operation != operation.name or {lying_alike(given), ANY}.isdisjoint(told.given):
            return None
        self._found.measured.add(operation)
        return as_placement(told, operation), None if told.axes is None else (None,) * told.axes

    def _goes_through_shared(self, owner: Any) -> bool:
        """Whether a library that is not known is given a loader that is shared out: `for x in Prefetcher(loader)`."""
        return owner is not None and self._are_shared((*owner.inputs, *owner.keywords.values()))

    def _are_shared(self, given: Iterable[Value]) -> bool:
        """Whether a loader is among some values, or what it gives, that is shared out."""
        loaders = {each for value in given for each in value.things if "loader" in getattr(each, "roles", ())}
        made = [op for op in self._program.operations if op.owner in loaders] if loaders else []
        return any(isinstance(self._sharded(each), Shard) for each in made)

    def _loss(self, operation: Operation, usual: str, rows: str) -> Placement:
        """A loss of a library, which is a mean over samples, a sum, or one for each; ``rows`` counts these."""
        told = operation.keywords.get("reduction") or getattr(operation.owner, "keywords", {}).get("reduction")
        if told is not None and not told.is_constant:
            return PerRank(operation.name, EITHER)
        reduction = str(told.constant) if told is not None else usual
        if reduction == "none":
            return Shard(0, rows=rows)
        return Partial("sum") if reduction == "sum" else Partial("mean", rows)

    @cached_property
    def _labels_left_out(self) -> bool:
        """Whether labels may be -100, which losses leave out when they are not told what to."""
        return any(map(leaves_labels_out, {each.source for each in self._program.operations}))

    # outputs of models

    def _own_loss(self, operation: Operation) -> str:
        """Over what a model takes its own loss, if that is no mean over samples."""
        callee = operation.inputs[0].operations if operation.name == "call" and operation.inputs else frozenset()
        names = [getattr(operation.owner, "name", "") or operation.name, *(each.name for each in callee)]
        found = (self._catalog.own_loss(each) for each in names) if self._catalog is not None else iter(())
        return next(filter(None, found), "")

    def _field(self, of: Value, operation: Operation) -> Placement | None:
        """An output of a model of a library, or a field of a batch that is no tensor, by its name or place."""
        if self._are_fields(of):
            lying = self._operand(of)
            nodes = isinstance(lying, Shard) and self._is_of_nodes(of, operation)
            return replace(lying, rows=NODES) if nodes and isinstance(lying, Shard) else lying
        if of.operations and all(map(takes_first, of.operations)):  # `model(x, labels=x)[:2]`
            of = joined(each.inputs[0] for each in of.operations)
        models = [each for each in of.operations if self._is_model(each) and each.known is None]
        if not models or len(models) < len(of.operations):
            return None
        lying = self._operand(of)
        if not isinstance(operation.node, ast.Attribute) and operation.name != "getitem" or lying != Shard(0):
            return lying if operation.name in VIEWED or operation.name in OF_DICTS else None
        named = operation.inputs[1].constant if operation.name == "getitem" else operation.name.rpartition(".")[2]
        if str(named).startswith(OF_PAIRS) and any(self._own_loss(each) == "contrasted" for each in models):
            return PerRank(operation.name, PAIRED)
        if named != "loss" and not (named == 0 and any(map(_is_given_labels, models))):
            return lying
        return _mean_over(next(filter(None, map(self._own_loss, models)), ""))

    @staticmethod
    def _is_of_nodes(of: Value, operation: Operation) -> bool:
        """Whether it has an entry for each node of the graphs of a batch: `data.x`. Labels may be of graphs."""
        graphs = all(str(getattr(each.owner, "name", "")).startswith(OF_GRAPHS) for each in of.operations)
        return graphs and operation.name.rpartition(".")[2] in FIELDS_OF_NODES

    def _are_fields(self, value: Value) -> bool:
        """Whether it is a batch that is no tensor, or fields of it: `batch`, `batch.items()`, `batch.pop("labels")`"""
        return bool(value.operations) and all(map(self._is_field, value.operations))

    def _is_field(self, operation: Operation, within: int = 4) -> bool:
        if operation.name == FIELDS:
            return True
        named = operation.name in OF_DICTS or operation.name in VIEWED and operation not in self._cyclic
        inner = operation.inputs[0].operations if named and operation.inputs else ()
        outer = [each for each in inner if self._is_field(each, within - 1)] if within else []
        pairs = operation.name not in VIEWED or all(each.name != FIELDS for each in outer)  # of `batch.items()`
        return bool(outer) and len(outer) == len(inner) and pairs and operation.name != "getitem"

    # models

    def _is_model(self, operation: Operation) -> bool:
        """Whether it is a call of a model, or of a part of one: it computes each sample apart, and normalises over all
        of them if at all."""
        if "module" in self._roles(operation):
            return True
        callee = operation.inputs[0].operations if operation.name == "call" and operation.inputs else frozenset()
        above = closure(callee, lambda each: (op for value in each.inputs[:1] for op in held(value)))
        return bool(callee) and any(self._makes_model(each) for each in above)

    def _makes_model(self, operation: Operation) -> bool:
        held = [each for value in operation.inputs[:1] for each in value.things]
        inside = any("module" in getattr(each, "roles", ()) for each in held)
        return inside or "module" in self._roles(operation) or operation in self._with_parameters

    @cached_property
    def _with_parameters(self) -> set[Operation]:
        """What the script asks for its parameters: a model that a library, or code that is not followed, has made."""
        asked = (each for each in self._program.operations if each.name.endswith(".parameters") and each.inputs)
        return {op for each in asked for op in each.inputs[0].operations}


@cache
def leaves_labels_out(source: Source) -> bool:
    """Whether a file has labels that are -100: it writes the number, other than as an index, asks a loss for it
    (`criterion.ignore_index`), or has collators of transformers make the labels."""
    nodes = list(walk(source.tree))
    indices = {id(each) for node in nodes if isinstance(node, ast.Subscript) for each in walk(node.slice)}
    named = (each for each in nodes if isinstance(each, (ast.Name, ast.Attribute)))
    told = any(
        last_name(each).startswith("DataCollatorFor") or isinstance(each, ast.Attribute) and each.attr == "ignore_index"
        for each in named
    )
    negative = (each for each in nodes if isinstance(each, ast.UnaryOp) and id(each) not in indices)
    return told or any(ast.unparse(each) == "-100" for each in negative)


def takes_first(operation: Operation) -> bool:
    """Whether it takes the first ones of several outputs."""
    cut = operation.inputs[1].operation if operation.name == "getitem" and len(operation.inputs) > 1 else None
    begins = cut.inputs[0] if cut is not None and cut.name == "builtins.slice" else None
    return begins is not None and begins.is_constant and begins.constant in (None, 0)


def _is_given_labels(operation: Operation) -> bool:
    """Whether a model is, as far as is known: `model(**batch)`"""
    return "labels" in operation.keywords or "**" in operation.keywords


def _mean_over(own: str) -> Placement:
    """A loss that a model of a library takes itself: a mean over samples, if it cannot be told over what else."""
    return Partial("mean", OWN + own if own in COUNTED else ROWS)
