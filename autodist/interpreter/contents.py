"""What is inside: in containers, modules and objects."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from autodist.interpreter.loaders import Loaders
from autodist.interpreter.machine import Machine
from autodist.interpreter.questions import wrapped
from autodist.spread import LOCAL, SAME, combine
from autodist.values import (
    NOTHING,
    UNKNOWN,
    Index,
    Inside,
    Items,
    Object,
    OptimizerState,
    Parameters,
    Scope,
    Stream,
    Table,
    Thing,
    Value,
    Wrapped,
    constant,
    of,
    union,
)

UNROLLED = 8
"""How many elements of a list that is written out a loop goes through one by one."""


class Contents(Loaders, Machine):
    """Questions about what values hold."""

    def _part(self, value: Value, index: int, count: int) -> Value:
        """What unpacking gives the target at ``index``."""
        tuples = [t for t in value.things if isinstance(t, Items) and t.parts]
        found = union(t.parts[index] if index < len(t.parts) else t.element for t in tuples)
        for thing in value.things.difference(tuples):
            if isinstance(thing, Stream):
                found = found | thing.element
            elif isinstance(thing, Parameters) and thing.named and count == 2:
                found = found | (of(Parameters(thing.module, one=True)) if index else NOTHING)
            else:
                found = found | self._element(value.but(things=frozenset([thing])), None)
        if not value.things:
            return value.but(const=UNKNOWN, firm=False)
        if value.spread.is_local:
            found = found | value.but(things=frozenset(), const=UNKNOWN, firm=False)
        return found

    def _element(self, value: Value, node: ast.AST | None) -> Value:
        """What iterating over a value gives."""
        found = NOTHING
        for thing in (each.module if isinstance(each, Wrapped) else each for each in value.things):
            if isinstance(thing, Items):
                held = [*thing.parts, *([] if thing.element is NOTHING else [thing.element])]
                found = found | union(held)
            elif isinstance(thing, Stream):
                found = found | thing.element
            elif isinstance(thing, Table):
                keys = [constant(key) for key in thing.entries]
                found = found | (keys[0] if len(keys) == 1 else NOTHING)
            elif isinstance(thing, Object) and "loader" in thing.roles:
                found = found | self._batch(thing)
            elif isinstance(thing, Object) and "progress" in thing.roles:
                inner = thing.argument("iterable", 0)
                if inner is not None:
                    found = found | self._element(inner, node)
            elif isinstance(thing, Object) and thing.cls is not None and thing.cls.find("__iter__"):
                iterator = self.method(thing, "__iter__", None, [], {}, Scope(thing.source))
                if thing in iterator.things:
                    found = found | self.method(thing, "__next__", None, [], {}, Scope(thing.source))
                    iterator = iterator.but(things=iterator.things - {thing})
                found = found | self._element(iterator, node)
            elif isinstance(thing, Object) and thing.cls is not None and thing.cls.find("__next__"):
                found = found | self.method(thing, "__next__", None, [], {}, Scope(thing.source))
            elif isinstance(thing, Object) and "module" in thing.roles:
                found = found | union(self._children(thing))
            elif isinstance(thing, Parameters):
                found = found | of(thing if thing.named else replace(thing, one=True, part=thing.one))
            elif isinstance(thing, Inside):
                found = found | of(thing)
            elif isinstance(thing, OptimizerState) and thing.depth == 2:
                found = found | of(Parameters(thing.module, one=True))
            elif isinstance(thing, Index) and isinstance(node, (ast.For, ast.comprehension)):
                found = found | of(thing).but(origins=value.origins)  # those that are counted
        if value.spread is not SAME:
            found = found | value.but(things=frozenset(), const=UNKNOWN, firm=False)
        return found

    def _children(self, thing: Object) -> list[Value]:
        held = (*thing.args, *thing.attributes.values())
        layers = {"batch_norm", "dropout"}  # of those, a list of modules holds many
        inner = [
            v for v in held if self._modules_in(v) or any(isinstance(t, Object) and t.roles & layers for t in v.things)
        ]
        containers = [v for value in thing.args for v in self._contents(value)]
        return [v for v in inner if not any(isinstance(t, Items) for t in v.things)] + containers

    def _and_all_within(self, module: Object) -> set[Object]:
        """A module and those in it, at any depth."""
        found, pending = {module}, [module]
        while pending:
            inner = {t for v in self._children(pending.pop()) for t in v.things if isinstance(t, Object)} - found
            found |= inner
            pending += inner
        return found

    def _one_inside(self, value: Value, depth: int = 2) -> Value:
        """What one of the numbers of a list is, or of a list of lists."""
        held = [each for each in self._contents(value) if each is not NOTHING]
        return union(each | self._one_inside(each, depth - 1) if depth and each.things else each for each in held)

    def _with_contents(self, value: Value) -> Value:
        """What a tensor is that is made of a number or of a list of numbers."""
        listed = any(isinstance(thing, (Items, Stream)) for thing in value.things)
        return value | self._one_inside(value) if listed else value

    def _as_dict(self, value: Value, node: ast.expr) -> Value | None:
        """What an object holds by names that has a rank's samples: `vars(out)`, `out.__dict__`, `out._asdict()`."""
        holders = [t for t in value.things if isinstance(t, Object) and not t.roles]
        held = {name: each for holder in holders for name, each in holder.attributes.items()}
        if len(holders) != 1 or not any(each.spread.is_local for each in held.values()):
            return None
        table = self._remember(node, lambda: Table(node, {}, NOTHING), ("fields", holders[0].key))
        table.entries = held
        return of(table)

    def _planned(self, target: ast.expr, value: Value) -> Value:
        """A model in its planned wrapper, or a list or dict of such. What may also be a pair, `return net, other`, is
        not one where it is wrapped as a model."""
        tables = [thing for thing in value.things if isinstance(thing, Table)]
        if len(tables) == 1 == len(value.things):
            table = self._remember(target, lambda: Table(target, {}, NOTHING), "planned")
            table.entries = {key: wrapped(each, "planned") for key, each in tables[0].entries.items()}
            table.element = wrapped(tables[0].element, "planned")
            return of(table)
        lists = [thing for thing in value.things if isinstance(thing, Items)]
        if any(True for _ in value.objects("module")):
            value, lists = value.but(things=value.things - frozenset(lists)), []
        if not lists:
            return wrapped(value, "planned")
        items = self._remember(target, lambda: Items(target, [], NOTHING), "planned")
        items.parts = [wrapped(part, "planned") for part in lists[0].parts] if len(lists) == 1 else []
        items.element = union(wrapped(each, "planned") for each in self._contents(value))
        return of(items)

    def _contents(self, value: Value) -> list[Value]:
        found: list[Value] = []
        for thing in value.things:
            if isinstance(thing, Items):
                found += [*thing.parts, thing.element]
            elif isinstance(thing, Table):
                found += [*thing.entries.values(), thing.element]
            elif isinstance(thing, Stream):
                found.append(thing.element)
        return found

    def _mixed(self, values: Sequence[Value]) -> Value:
        spreads = [value.spread for value in values]
        if any(value.things for value in values) and not any(spread.is_local for spread in spreads):
            if any(self.holds_local(value) for value in values):
                inside = values
                for _ in range(3):
                    inside = [each for value in inside for each in self._contents(value)]
                    values = [*values, *inside]  # of which it is made: `total((out, y))`
                spreads.append(LOCAL)
        return union(values).computed(combine(spreads))

    def holds_local(self, value: Value, depth: int = 3) -> bool:
        """Whether a container or object of the project holds something local."""
        if not value.things:
            return False
        seen: set[int] = set()
        level = [value]
        for _ in range(depth):
            self._steps += sum(len(outer.things) for outer in level) // 8  # hundreds cost as much as running code
            things = {id(thing): thing for outer in level for thing in outer.things if id(thing) not in seen}
            seen |= things.keys()
            level = [each for thing in things.values() for each in self._held(thing) if each is not value]
            if any(each.spread.is_local for each in level):
                return True
        return False

    def _held(self, thing: Thing) -> list[Value]:
        if isinstance(thing, (Items, Table, Stream)):
            return self._contents(of(thing))
        if isinstance(thing, Object) and thing.cls is not None and "module" not in thing.roles:
            return list(thing.attributes.values())
        return []

    def _modules_in(self, value: Value) -> bool:
        for thing in value.things:
            if isinstance(thing, Object) and "module" in thing.roles and "loss" not in thing.roles:
                return True
            if isinstance(thing, Wrapped):
                return True
        return False
