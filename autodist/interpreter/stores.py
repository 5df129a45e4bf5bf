"""What is written to names, attributes and items."""

from __future__ import annotations

import ast
from collections.abc import Hashable, Sequence

from autodist.interpreter.machine import Entered, Stored
from autodist.interpreter.questions import is_hashable
from autodist.interpreter.shared import Shared
from autodist.interpreter.words import KEPT
from autodist.source import Source, last_name
from autodist.spread import LOCAL, SAME
from autodist.values import (
    NOTHING,
    UNKNOWN,
    Class,
    Function,
    Inside,
    Items,
    LocalModule,
    Object,
    Parameters,
    Scope,
    Stream,
    Table,
    Value,
    Wrapped,
    constant,
    drawn_by_evaluation,
    of,
    stored,
    union,
)


def _left_beside(old: Value, value: Value) -> Value:
    """What is there still where a condition may not hold: but not a model that is made there and wrapped there."""
    planned = frozenset(t.module for t in value.things if isinstance(t, Wrapped) and t.kind == "planned")
    return old.but(things=old.things - planned) if planned & old.things else old


class Stores(Shared):
    """Assignments to targets, of whatever kind."""

    def _merge(self, table: Table, other: Table) -> None:
        """`table.update(other)`, `counts += other`"""
        for key, value in other.entries.items():
            old = table.entries.get(key, NOTHING) if self._branches else NOTHING
            table.entries[key] = old | value
        table.element = table.element | other.element
        table.stores |= other.stores

    def _holds_samples(self, value: Value) -> bool:
        """Whether it is a tensor or a list of this rank's samples, or of what is computed from them."""
        kinds = (Items, Stream)
        return all(isinstance(t, kinds) for t in value.things) and (value.spread.is_local or self.holds_local(value))

    def _count_samples(self, table: Table, samples: Value, node: ast.expr, scope: Scope) -> None:
        """`counts.update(labels)`, `Counter(labels)`: the keys are samples."""
        table.element = table.element | Value(spread=LOCAL, origins=samples.origins)

    def assign(self, target: ast.expr, value: Value, scope: Scope, made: ast.expr | None, within: bool = False) -> None:
        """Bind ``value`` to a name, attribute, item or pattern; ``within`` what it holds, where that is changed in
        place, `counts += hits`."""
        if isinstance(target, ast.Name):
            for names, name in self._holders(target, scope)[1:] if within else ():
                names[name] = value
            home = scope
            if target.id in scope.outer:
                home = (scope.parent or scope).find(target.id) or scope.top
                self._flag(home, target.id, value)
                if (self._branches or (home, target.id) in self._flags) and target.id in home.names:
                    value = value | home.names[target.id]
            home.names[target.id] = value = self._flagged(home, target.id, value)
            if not within:
                home.shared.pop(target.id, None)
                home.viewers.pop(target.id, None)
            self.values[target] = self.values.get(target, NOTHING) | value
            self.sources[target] = scope.source
        elif isinstance(target, (ast.Tuple, ast.List)):
            value = _that_unpacks(self._as_appended(value, len(target.elts)), target.elts)
            for index, part in enumerate(target.elts):
                if isinstance(part, ast.Starred):
                    self.assign(part.value, self._element(value, part), scope, made)
                else:
                    self.assign(part, self._part(value, index, len(target.elts)), scope, made)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, value, scope, made)
        elif isinstance(target, ast.Attribute):
            self._set_attribute(target, value, scope)
        elif isinstance(target, ast.Subscript):
            self._set_item(target, value, scope, made)

    def _flag(self, holder: object, name: Hashable, value: Value) -> None:
        """Note what is written while a signal is handled, and what a thread says yes or no to."""
        if (by := self._signalled) is not None and ("signal" in by.roles or isinstance(value.const, bool)):
            self._flags[holder, name] = self._flags.get((holder, name), NOTHING) | Value(origins=frozenset([by]))

    def _flagged(self, holder: object, name: Hashable, value: Value) -> Value:
        """What is written under a name, which may be another value in each process if a signal comes in between."""
        flag = self._flags.get((holder, name)) if self._flags else None
        return value.but(origins=value.origins | flag.origins, firm=False) if flag is not None else value

    def _set_attribute(self, target: ast.Attribute, value: Value, scope: Scope) -> None:
        base = self.eval(target.value, scope)
        kept = isinstance(
            scope.source.parents.get(target), ast.AugAssign
        )  # `p.data -= lr * p.grad` changes it in place
        if target.attr in ("data", "grad") and any(isinstance(t, Parameters) for t in base.things) and not kept:
            if target.attr == "data" or value.const is not None:
                self.event(f"replace_{target.attr}", target, scope, base)
        if target.attr == "data" and kept and not base.things and base.spread is SAME and value.spread.is_local:
            for names, name in self._holders(target.value, scope):  # `counts.data += hits`
                names[name] = value
        self._note_refill(target, scope)
        if target.attr == "requires_grad":
            self.event(
                "freeze", target, scope, Value(frozenset(t.module for t in base.things if isinstance(t, Parameters)))
            )
        self._keep_attribute(target, base, target.attr, value, scope)
        self.values[target] = self.values.get(target, NOTHING) | value
        self.sources[target] = scope.source

    def _note_refill(self, target: ast.expr, scope: Scope) -> None:
        """Note what may change the length of a data set: an attribute of it is bound, grows or shrinks."""
        base = self._lately(target.value) if isinstance(target, ast.Attribute) else NOTHING
        held = [t for t in base.things if isinstance(t, Object)]
        if any("dataset" in t.roles or t.cls is not None and t.cls.find("__len__") for t in held):
            self.event("refill", target, scope, base, constant(last_name(target)))

    def _keep_attribute(self, node: ast.AST, base: Value, name: str, value: Value, scope: Scope) -> None:
        """`base.name = value`, `setattr(base, name, value)`, `base.register_parameter(name, value)`"""
        replaces = any(isinstance(t, Parameters) for t in value.things) or any(True for _ in value.objects("parameter"))
        if replaces and self._modules_in(base) and not isinstance(scope.source.parents.get(node), ast.AugAssign):
            self.event("replace_parameter", node, scope, base, value)
        if replaces or self._modules_in(value):
            self._note_growth(node, base, name, value, scope)
        if any(isinstance(t, (Parameters, Items, Table)) for t in value.things):
            self.event("keep", node, scope, value)
        for thing in base.things:
            if isinstance(thing, Wrapped):
                thing = thing.module
            if isinstance(thing, Object):
                keep = len(base.things) > 1 or name == KEPT or not self._always_runs_for(thing)
                self._flag(thing, name, value)
                keep = keep or (thing, name) in self._flags
                old = thing.attributes.get(name, NOTHING) if keep else NOTHING
                thing.attributes[name] = self._flagged(thing, name, _left_beside(old, value) | value)
                if keep and len(base.things) == 1 and name != KEPT and self._calls:
                    self._stored[thing, name] = Stored(self._calls[-1], self._branches, value)
            elif isinstance(thing, (LocalModule, Class)):
                self._flag(thing.scope, name, value)
                thing.scope.names[name] = self._flagged(thing.scope, name, value)

    def _note_growth(self, node: ast.AST, base: Value, name: str, value: Value, scope: Scope) -> None:
        """A module is given a part or a parameter that it did not have by this name: `model.fc = nn.Linear(8, 4)`."""
        given = frozenset(t.key for t in value.things if isinstance(t, Object))
        wrapped = any(isinstance(t, Wrapped) for t in value.things)  # `model.features = nn.DataParallel(...)`
        for thing in (t.module if isinstance(t, Wrapped) else t for t in base.things):
            if not isinstance(thing, Object) or "module" not in thing.roles or wrapped:
                continue
            held = frozenset(t.key for t in thing.attributes.get(name, NOTHING).things if isinstance(t, Object))
            if not given or not given <= held:
                self.event("grow", node, scope, of(thing), value)

    def _note_layer(self, target: ast.Subscript, base: Value, key: Value, value: Value, scope: Scope) -> None:
        """A module is given another layer by its place or name: `model.classifier[6] = nn.Linear(8, 4)`."""
        for thing in (t.module if isinstance(t, (Inside, Wrapped)) else t for t in base.things):
            if isinstance(thing, Object) and "module" in thing.roles:
                self.event("grow", target, scope, of(thing), value)
                layers, place = thing.args, key.const
                if isinstance(place, int) and len(layers) > 1 and -len(layers) <= place < len(layers):
                    layers[place] = layers[place] | value

    @staticmethod
    def _put(thing: Object, key: str, value: Value) -> None:
        """What an object of a library holds under a key."""
        thing.attributes[f"[{key}]"] = thing.attributes.get(f"[{key}]", NOTHING) | value

    def _always_runs_for(self, thing: Object) -> bool:
        """Whether what runs now runs once for each time that an object is made: it was made in the same blocks."""
        born = self._born.get(thing, ())
        return born[: len(self._branches)] == self._branches

    def _set_item(self, target: ast.Subscript, value: Value, scope: Scope, made: ast.expr | None) -> None:
        base = self.eval(target.value, scope)
        key = self.eval(target.slice, scope)
        self.event("set_item", target, scope, value, base)
        if self._modules_in(value):
            self._note_layer(target, base, key, value, scope)
        for writer in base.objects("writer"):
            self.event("tracker", target, scope, value, of(writer))
        written = frozenset(t for t in base.things if isinstance(t, Parameters) and t.one)
        if written:
            self.event("write_part", target, scope, Value(written))
        self._put_under(target, base, key, value, scope, made)
        for thing in base.things:
            if isinstance(thing, Object) and thing.cls is None and not thing.roles and isinstance(key.const, str):
                called = any(isinstance(t, (Class, Function)) for t in value.things)  # `ChainMap(...)["model"] = Net`
                if called or self._forward and value.spread.is_local:  # `output["loss"] = loss`
                    self._put(thing, key.const, value)
        if not base.things and key.const is not UNKNOWN and any(isinstance(t, (Class, Function)) for t in value.things):
            self._becomes_table(target.value, base, key, value, scope)
        if value.spread.is_local:
            self._keep_inside(target.value, value, scope)
        places = target.slice.elts if isinstance(target.slice, ast.Tuple) else []
        noise = drawn_by_evaluation([value, key, *map(self._lately, places)])
        for names, name in self._holders(target.value, scope):
            held = names[name]
            if noise and not held.things:
                names[name] = held = held.but(origins=held.origins | noise)
            if value.spread.is_local and not held.things and held.spread is SAME:
                names[name] = held.but(spread=LOCAL, origins=held.origins | value.origins)

    def _put_under(
        self, target: ast.Subscript, base: Value, key: Value, value: Value, scope: Scope, made: ast.expr | None
    ) -> None:
        """What dicts and lists hold under a key or at a place from here on."""
        for thing in base.things:
            if isinstance(thing, Table):
                if key.const is not UNKNOWN and is_hashable(key.const):
                    self._flag(thing, key.const, value)
                    keep = self._branches or (thing, key.const) in self._flags
                    held = thing.entries.get(key.const, NOTHING) if keep else NOTHING
                    held = _left_beside(held, value) | value
                    held = thing.entries[key.const] = self._flagged(thing, key.const, held)
                    if self._branches and len(base.things) == 1:
                        call = self._calls[-1] if self._calls else None
                        entered = Entered(target, call, self._branches, value, held)
                        self._entered_last.setdefault(thing, {})[key.const] = entered
                else:
                    thing.element = thing.element | value
                if made is not None:
                    thing.stores |= stored(scope.source, [made])
            elif isinstance(thing, Items):
                thing.element = thing.element | value
                if isinstance(key.const, int) and -len(thing.parts) <= key.const < len(thing.parts):
                    thing.parts[key.const] = thing.parts[key.const] | value
                if made is not None:
                    thing.stores |= stored(scope.source, [made])

    def _becomes_table(self, target: ast.expr, base: Value, key: Value, value: Value, scope: Scope) -> None:
        """`options["model"] = Net`: what nothing is known of holds a class or function by name from here on."""
        if not isinstance(target, ast.Name) or base.spread is not SAME or not is_hashable(key.const):
            return
        table = self._remember(target, lambda: Table(target, {}, NOTHING), "held")
        table.entries[key.const] = table.entries.get(key.const, NOTHING) | value
        self.assign(ast.Name(target.id, ast.Store()), base | of(table), scope, None)

    def _keep_inside(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """`table.total[key] += loss.item()`: what a library's table may give back from here on."""
        while isinstance(target, (ast.Attribute, ast.Subscript)):
            for thing in self.values.get(target, NOTHING).things:
                if isinstance(thing, Object) and thing.cls is None and not thing.roles:
                    kept = Value(spread=LOCAL, origins=value.origins)
                    thing.attributes[KEPT] = thing.attributes.get(KEPT, NOTHING) | kept
            target = target.value

    def _grow(self, base: Value, pairs: Sequence[tuple[Value, ast.expr]], scope: Scope, name: str) -> None:
        for thing in base.things:
            if isinstance(thing, Items):
                for value, expression in pairs:
                    if name in ("extend", "update"):
                        value = self._element(value, expression) if value.things else value
                    thing.element = thing.element | value
                    thing.stores |= stored(scope.source, [expression])

    def _note_held_models(self, node: ast.AST, value: Value, scope: Scope) -> None:
        """Note that models come into a list: `nets.append(Net())`, `nets += [Net()]`."""
        held = union(each for each in [value, *self._contents(value)] if self._modules_in(each))
        if held is not NOTHING:
            self.event("hold_models", node, scope, held)

    def _as_appended(self, value: Value, count: int) -> Value:
        """A value that is taken apart into ``count``, where a list in it was made empty and given as many, one by one:
        ``found = []``, ``if train: found.append(train_loader)``, ``if test: found.append(test_loader)``."""
        things = set(value.things)
        for thing in value.things:
            fits = isinstance(thing, Items) and not thing.parts and len(thing.stores) == count
            if isinstance(thing, Items) and fits and all(_is_appended_once(thing, *store) for store in thing.stores):
                told = [self._lately(expression) for _, expression in thing.stores]
                things = things - {thing} | {Items(thing.node, told, NOTHING)}
        return value.but(things=frozenset(things))


def _is_appended_once(items: Items, source: Source, expression: ast.expr) -> bool:
    """Whether an expression is appended to a list in the function that makes it, and in no loop."""
    call = source.parents.get(expression)
    if not isinstance(call, ast.Call) or last_name(call.func) != "append" or items.node not in source.parents:
        return False
    loops = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
    inside = [*source.ancestors(call), *source.ancestors(items.node)]
    return source.home(call) is source.home(items.node) and not any(isinstance(each, loops) for each in inside)


def _that_unpacks(value: Value, targets: list[ast.expr]) -> Value:
    """A value that is bound to several names: of a function that returns a model or a tuple, or a tensor or a tuple
    (``return (loss, out) if labels is not None else out``), the tuple of as many."""
    tuples = [thing for thing in value.things if isinstance(thing, Items)]
    fits = any(len(each.parts) == len(targets) for each in tuples)
    known = any(part.spread.is_local for each in tuples for part in each.parts)
    if fits and known and value.spread.is_local and all(each.is_told for each in tuples):
        value = value.but(spread=SAME)
    return value.but(things=frozenset(tuples)) if fits else value
