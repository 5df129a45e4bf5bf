"""What loaders yield: this rank's samples, and as many as every rank has, or not."""

from __future__ import annotations

import ast
from abc import abstractmethod

from autodist import collation
from autodist.collation import Fields, Rows
from autodist.interpreter.machine import Machine
from autodist.solve.layouts import Layout
from autodist.source import walk
from autodist.spread import COLUMNS, RANK, ROWS, SAME
from autodist.tensors import picking
from autodist.values import SETTLED, Evened, Object, Scope, Trimmed, Value, of


class Loaders(Machine):
    """Questions about loaders."""

    def _batch(self, loader: Object) -> Value:
        """What a loader yields: this rank's samples, if it is sharded."""
        shared = COLUMNS if self.layout(loader).is_second(None) else ROWS
        return Value(spread=shared if self.shares_out(loader) else SAME, origins=frozenset([loader]))

    @abstractmethod
    def layout(self, loader: Object) -> Layout:
        """How a loader lays out its batches."""

    def named_fields(self, loader: Object) -> frozenset[str]:
        """The names under which its `collate_fn` puts parts of a batch."""
        kind = self.collated(loader)
        return frozenset(key for key in kind.parts if isinstance(key, str)) if isinstance(kind, Fields) else frozenset()

    def uneven(self, value: Value, target: bool = False) -> Rows | None:
        """What makes samples that a `collate_fn` puts together, or a condition picks, more on one rank than another."""
        picked = picking.picks(value)
        if picked is not None:
            return Rows.JOINED if picked.joined else Rows.FEWER
        if picking.is_padded(value, by_loader=False):
            return Rows.PADDED
        return collation.uneven(value, self.collated, target)

    def is_listed(self, value: Value) -> bool:
        """Whether it is a list that a `collate_fn` has made, with what each of a rank's samples has."""
        if value.spread is not ROWS or value.things or value.models or value.axes is not None:
            return False
        plain = all(isinstance(made, (ast.Name, ast.Attribute, ast.Subscript)) for _, made in value.made)
        return plain and collation.is_listed(value, self.collated)

    def has_padding(self, value: Value) -> bool:
        """Whether something of what a value is computed from is filled up to the longest sample of a rank's."""
        return value.spread.is_local and (picking.is_padded(value) or collation.has_padding(value, self.collated))

    def collated(self, loader: Object) -> collation.Kind:
        collate = collation.collate_fn(loader)
        if collate is None:
            pooled = any(
                mark in each.text for each in self.project.sources for mark in ("global_", ".batch", "readout")
            )
            return Rows.JOINED if collation.of_graphs(loader) and not pooled else None
        made: collation.Kind = self._remember(loader.node, lambda: collation.collated(collate), "collated")
        return made

    def cut_at(self, bound: ast.expr, scope: Scope) -> frozenset[Trimmed]:
        """What tells the length that samples have been cut to: a number, or others that were filled up to it,
        `out[:, : padded.shape[1]]`."""
        padded = frozenset(each for each in self._lately(bound).origins if isinstance(each, Trimmed) and each.padded)
        return padded or frozenset([Trimmed(bound, scope.source)])

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
        return dataset is not None and (dataset.spread in (RANK, ROWS) or self._streams_share(dataset))

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

    def _evened(self, loss: Value, node: ast.expr) -> Value:
        """A mean that has been noted: where it trains, how many numbers it is of has been thought of."""
        if node in self.plan.weighed:
            return loss.but(origins=picking.whole(collation.marked(loss, SETTLED)).origins | {Evened(node)})
        return picking.whole(loss) if not self._no_grad else loss
