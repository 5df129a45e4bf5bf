"""What loaders yield: this rank's samples, and as many as every rank has, or not."""

from __future__ import annotations

import ast
from abc import abstractmethod

from autodist.interpreter.machine import Machine
from autodist.solve.layouts import Layout
from autodist.source import walk
from autodist.spread import LOCAL, RANK, SAME
from autodist.values import Object, Value, of


class Loaders(Machine):
    """Questions about loaders."""

    def _batch(self, loader: Object) -> Value:
        """What a loader yields: this rank's samples, unless all ranks hold them as a whole."""
        return Value(spread=SAME if loader.key in self.plan.held else LOCAL, origins=frozenset([loader]))

    @abstractmethod
    def layout(self, loader: Object) -> Layout:
        """How a loader lays out its batches."""

    def shares_out(self, loader: Object) -> bool:
        """Whether a loader yields this rank's samples, by the plan or by what the script does itself."""
        if loader.key in self.plan.held:
            return False
        return self.plan.sharded is None or loader.key in self.plan.sharded or self.is_sharded(loader)

    def is_sharded(self, loader: Object) -> bool:
        """Whether the script itself gives the loader a sampler that shares samples out."""
        for name in ("sampler", "batch_sampler"):
            value = loader.argument(name)
            if value is not None and self._shares_out(value):
                return True
        dataset = loader.argument("dataset", 0)
        return dataset is not None and (dataset.spread is RANK or self._streams_share(dataset))

    def _streams_share(self, dataset: Value) -> bool:
        """Whether a stream's class itself picks the samples of its rank."""
        return any(
            "iterable_dataset" in thing.roles and self._shares_out(of(thing))
            for thing in dataset.things
            if isinstance(thing, Object)
        )

    def _shares_out(self, value: Value) -> bool:
        if value.spread is RANK:
            return True
        for thing in value.things:
            if isinstance(thing, Object):
                if "distributed_sampler" in thing.roles:
                    return True
                if any(
                    inner.spread is RANK or self._shares_out(inner) for inner in (*thing.args, *thing.keywords.values())
                ):
                    return True
                if thing.cls is not None and any(v.spread is RANK for v in thing.attributes.values()):
                    return True
                if thing.cls is not None and any(self._mentions_rank(c.node) for c in thing.cls.line()):
                    return True
        return False

    def _mentions_rank(self, node: ast.ClassDef) -> bool:
        return any(isinstance(n, ast.Attribute) and n.attr == "get_rank" for n in walk(node))
