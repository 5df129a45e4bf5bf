"""Data: what loaders and data sets give."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from autodist.program import BATCH, CHOSEN, EMPTY, FIELDS, SAMPLE, WORKER, Operation, Value, constant, held, joined
from autodist.trace.attributes import ordered
from autodist.trace.names import thing
from autodist.trace.objects import Objects, called_by
from autodist.trace.things import Frame, Mapping, Object, Sequence, picked_by

TENSORS = "torch.utils.data.TensorDataset"
HOLDING = ("Subset", "ConcatDataset", "ChainDataset")


class Data(Objects):
    """What going through loaders and data sets gives."""

    @cached_property
    def _held_in(self) -> list[Any]:
        """The data sets of others that a sample is read by way of."""
        return []

    def element_of(self, one: Any, node: ast.AST, frame: Frame) -> Value:
        if not isinstance(one, Object):
            return super().element_of(one, node, frame)
        if "loader" in one.roles:
            return self._batch(one, node, frame)
        iterating = one.cls.find("__iter__") if one.cls is not None else None
        if iterating is not None:
            iterator = self.call(self.attribute(thing(one), "__iter__", node, frame), node, frame, [], {})
            return (
                self.next_of(iterator, node, frame)
                if iterator.things != frozenset([one])
                else self._next(one, node, frame)
            )
        if one.cls is not None and one.cls.find("__getitem__"):
            return self.sample(thing(one), node, frame)
        if "progress" in one.roles or "reader" in one.roles:
            over = one.argument("iterable", 0)
            return self.element(over, node, frame) if over is not None else EMPTY
        if one.name == TENSORS or one.name.endswith(HOLDING):
            return self.sample(thing(one), node, frame)
        found = super().element_of(one, node, frame)
        return found if found is not EMPTY else self.record("iterate", node, frame, [thing(one)], owner=one)

    def next_of(self, iterator: Value, node: ast.AST, frame: Frame) -> Value:
        """`next(iterator)`"""
        found = EMPTY
        for each in iterator.things:
            stepping = isinstance(each, Object) and each.cls is not None and each.cls.find("__next__")
            found |= self._next(each, node, frame) if stepping else self.element_of(each, node, frame)
        if iterator.operations:
            found |= self.record("iterate", node, frame, [Value(iterator.operations)])
        return found

    def _next(self, one: Object, node: ast.AST, frame: Frame) -> Value:
        return self.call(self.attribute(thing(one), "__next__", node, frame), node, frame, [], {})

    def _batch(self, loader: Object, node: ast.AST, frame: Frame) -> Value:
        """What a loader gives: the samples of its data set laid together, field by field."""
        if loader.cls is not None and loader.cls.find("__iter__"):
            iterator = self.call(self.attribute(thing(loader), "__iter__", node, frame), node, frame, [], {})
            return self.next_of(iterator, node, frame)
        data = loader.argument("dataset", 0) or EMPTY
        place = loader.node
        self._choose(loader, data, node, frame)
        with self.told_apart(loader):
            self._begin_worker(loader, frame)
            with self.within("read", place, frame, thing(loader)):
                sample = self.sample(data, place, frame)
        collate = loader.argument("collate_fn", 7)
        whole = self.record(FIELDS, place, frame, [data], owner=loader, tag=("whole", loader))
        unseen = self._is_unseen(data)
        usual = collate is not None and any(
            str(getattr(t, "name", "")).endswith("default_collate") for t in collate.things
        )
        if collate is not None and not usual and not (collate.is_constant and collate.constant is None):
            given = self._collated(sample, loader, place, frame, ("sample",), SAMPLE)
            if given is EMPTY:
                given = self.record(SAMPLE, place, frame, [data], owner=loader, tag=loader)
            with self.told_apart(loader), self.within("collate", place, frame, thing(loader)):
                samples = self.sequence(place, None, given, "samples")
                made = self.call(collate, place, frame, [samples], {})
            self.program.batches[place] = self.program.batches.get(place, EMPTY) | made
            return made or whole
        batch = self._collated(sample, loader, place, frame, ()) if not unseen else EMPTY
        return batch if batch is not EMPTY else whole

    def _begin_worker(self, loader: Object, frame: Frame) -> None:
        """What a loader runs as one of its workers begins."""
        begin = loader.argument("worker_init_fn", 10)
        if begin is not None and begin.things:
            with self.within("worker", loader.node, frame, thing(loader)):
                self.call(begin, loader.node, frame, [self.record(WORKER, loader.node, frame, owner=loader)], {})

    def laid_together(self, samples: Value, node: ast.AST, frame: Frame) -> Value:
        """What `default_collate` makes of a list of samples: a tensor of each of their fields."""
        return self._fields_of(self.element(samples, node, frame), node, frame, (), picked_by(samples))

    def _fields_of(
        self, sample: Value, node: ast.AST, frame: Frame, path: tuple[Any, ...], picked: Value = EMPTY
    ) -> Value:
        found = EMPTY
        for each in ordered(sample.things) if len(path) < 4 else ():
            if isinstance(each, Sequence) and each.parts is not None:
                parts = [self._fields_of(part, node, frame, (*path, at), picked) for at, part in enumerate(each.parts)]
                found |= self.listing(node, parts, ("fields", path), kind="list")
            elif isinstance(each, Mapping):
                made = self.make(node, lambda n, g: Mapping(n, g), ("fields", path))
                for key, slot in each.entries.items():
                    self.bind(made, made.entries, key, self._fields_of(slot.value, node, frame, (*path, key), picked))
                found |= thing(made)
        leaf = Value(sample.operations, sample.constants)
        unseen = [each for each in leaf.operations if each.name == SAMPLE and not each.inputs[0].operations]
        if unseen:  # of a data set of a library, whose samples may have several fields
            owner, by = unseen[0].owner, {"picked": picked} if picked != EMPTY else {}
            return found | self.record(FIELDS, node, frame, [thing(owner)], by, owner=owner, tag=path)
        if leaf:
            listed = self.make(node, lambda n, g: Sequence(n, g), ("samples", path))
            listed.version += listed.anywhere != leaf
            listed.anywhere = leaf
            listed.pick(picked)
            found |= self.record("torch.stack", node, frame, [thing(listed)], tag=path)
        return found

    def _choose(self, loader: Object, data: Value, node: ast.AST, frame: Frame) -> None:
        """Note what tells which samples are read: weights of a sampler, the numbers of a subset, as they are by now."""
        samplers = joined(loader.argument(*each) or EMPTY for each in (("sampler", 3), ("batch_sampler", 4)))
        subsets = frozenset(each for each in data.things if isinstance(each, Object) and each.name.endswith(HOLDING))
        for each in ordered(samplers.things | subsets):
            if isinstance(each, Object):
                given = (*each.inputs, *each.keywords.values(), *each.contents())
                told = [self.current(value) for value in given if any(held(value))]
                self.record(CHOSEN, node, frame, told, owner=loader, tag=each)

    def _is_unseen(self, data: Value, within: int = 4) -> bool:
        """Whether it is a data set of a library, or a part of one, whose samples have fields, and no more is known."""
        parts = [
            each.argument("dataset", 0) or EMPTY
            for each in data.things
            if isinstance(each, Object) and any(name.endswith(HOLDING) for name in each.library_names)
        ]
        if len(parts) < len(data.things) or not (parts or data.operations) or not within:
            return False
        return all(map(self._is_data_set, data.operations)) and all(self._is_unseen(e, within - 1) for e in parts)

    def _is_data_set(self, operation: Operation) -> bool:
        """Whether an operation gives a data set of a library, and no tensor: `datasets.MNIST(folder)`"""
        return not operation.is_tensor or self.catalog.has(operation.name, "download")

    def _collated(
        self, sample: Value, loader: Object, node: ast.AST, frame: Frame, path: tuple[Any, ...], name: str = BATCH
    ) -> Value:
        found = EMPTY
        for each in sample.things:
            if isinstance(each, Sequence) and each.parts is not None and len(path) < 4:
                parts = [self._collated(p, loader, node, frame, (*path, at), name) for at, p in enumerate(each.parts)]
                kind = "list" if name == BATCH else each.kind
                found |= self._kept(Sequence(node, (), kind=kind, parts=parts), loader, path)
            elif isinstance(each, Sequence) and name == BATCH and each.element.operations and len(path) < 4:
                part = self._collated(each.element, loader, node, frame, (*path, "*"), name)
                found |= self._kept(Sequence(node, (), anywhere=part), loader, path)  # as many in each sample
            elif isinstance(each, Mapping) and len(path) < 4:
                made = Mapping(node, ())
                for key, slot in each.entries.items():
                    self.bind(
                        made, made.entries, key, self._collated(slot.value, loader, node, frame, (*path, key), name)
                    )
                made.anywhere = self._collated(each.anywhere, loader, node, frame, (*path, "*"), name)
                found |= self._kept(made, loader, path)
            else:
                found |= self.record(name, node, frame, [thing(each)], owner=loader, tag=(loader, path))
        leaf = Value(sample.operations, sample.constants)
        if leaf.operations or leaf.constants:
            found |= self.record(name, node, frame, [leaf], owner=loader, tag=(loader, path))
        return found

    def _kept(self, made: Sequence | Mapping, loader: Object, path: tuple[Any, ...]) -> Value:
        """The same list or dict each time, so that going through the loader again gives the same."""
        held: Any = self.rests.setdefault((loader, path, type(made)), made)
        if held is not made:
            before = list(held.contents())
            if isinstance(made, Sequence):
                held.parts, held.anywhere = made.parts, made.anywhere
            else:
                held.entries, held.anywhere = made.entries, made.anywhere
            held.version += before != list(held.contents())
        return thing(held)

    def sample(self, data: Value, node: ast.AST, frame: Frame) -> Value:
        """One sample of a data set."""
        found = EMPTY
        for each in data.things:
            if isinstance(each, Object):
                found |= self._sample_of(each, node, frame)
            elif isinstance(each, (Sequence, Mapping)):
                found |= self.element_of(each, node, frame)
        if data.operations:
            raw = self.record("sample", node, frame, [Value(data.operations)])
            for each in sorted(data.operations, key=lambda op: op.number):
                self._read_by(each, called_by(each.operands) if self._is_data_set(each) else [], raw, node, frame)
            found |= raw
        return found

    def _read_by(self, owner: Any, held: Iterable[Any], raw: Value, node: ast.AST, frame: Frame) -> None:
        """Run what a data set of a library was given to run for a sample, and read the data sets that it reads."""
        if owner in self._held_in:
            return
        self._held_in.append(owner)
        for each in held:
            data = isinstance(each, Object) and ("dataset" in each.roles or each.cls and each.cls.find("__getitem__"))
            self.sample(thing(each), node, frame) if data else self.call(thing(each), node, frame, [raw], {})
        self._held_in.pop()

    def _sample_of(self, one: Object, node: ast.AST, frame: Frame) -> Value:
        if one.cls is not None and one.cls.find("__getitem__"):
            index = self.record("data.index", node, frame, owner=one)
            return self.call(self.attribute(thing(one), "__getitem__", node, frame), node, frame, [index], {})
        if one.cls is not None and one.cls.find("__iter__"):
            return self.element_of(one, node, frame)
        if TENSORS in one.library_names:
            parts = [self.record("sample", node, frame, [each], tag=(one, at)) for at, each in enumerate(one.inputs)]
            return self.sequence(node, parts, kind="tuple")
        if any(name.endswith(HOLDING) for name in one.library_names):
            inner = one.argument("dataset", 0) or one.argument("datasets", 0) or EMPTY
            listed = any(isinstance(each, Sequence) for each in inner.things)
            if one in self._held_in:  # `data = Subset(data, some)`, of a loop
                return EMPTY
            self._held_in.append(one)
            found = self.sample(self.element(inner, node, frame) if listed else inner, node, frame)
            self._held_in.pop()
            return found
        raw = self.record("sample", node, frame, [thing(one)], owner=one, tag=one)
        self._read_by(one, called_by([*one.inputs, *one.keywords.values()]), raw, node, frame)
        return EMPTY

    def length(self, one: Object, node: ast.AST, frame: Frame) -> Value:
        """`len(loader)`, `len(data_set)`"""
        if one.cls is not None and one.cls.find("__len__"):
            return self.call(self.attribute(thing(one), "__len__", node, frame), node, frame, [], {})
        layers = self.parts(thing(one))
        if layers is not None:
            return constant(len(layers))
        kind = "loader.length" if "loader" in one.roles else "data.length"
        return self.record(kind, node, frame, [thing(one)], owner=one)
