"""Lists, tuples, dicts and what goes through them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from collections.abc import Mapping as Map
from collections.abc import Sequence as Row
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from autodist.program import EMPTY, MANY, UNKNOWN, Operation, Region, Value, closure, constant, held, joined
from autodist.source import is_generator, walk
from autodist.trace.names import Names, thing
from autodist.trace.taking import change_rest
from autodist.trace.things import External, Frame, Heap, Mapping, Sequence, Stream, is_anew, picked_by

MOST_PARTS = 64
"""Of longer lists it is not told apart what is where."""
UNROLLED = 8
"""Loops over literal lists of so many elements are run for each apart."""
GROWING = frozenset("append appendleft add insert extend extendleft update put push".split())
SHRINKING = frozenset("pop popleft remove clear sort reverse popitem rotate discard".split())
READING = ("iterate", "getitem", "builtins.int", "torch.Tensor.item", "torch.Tensor.tolist")
"""Beginnings of the names of operations that hand on what they are given."""
DEEP = 9
"""So many operations back it is looked whether a number was drawn."""
LISTING = frozenset("list tuple sorted set".split())
"""The functions that list the keys of a dict."""


@dataclass(eq=False)
class Visit:
    """A loop that visits each entry of a dict once, and stores it anew: `for name in sums: sums[name] /= n`"""

    mapping: Mapping
    loop: ast.For | ast.AsyncFor
    key: str
    frame: Frame
    before: Value
    after: Value | None = None
    """What the entry holds once it has been stored in this round."""


class Containers(Names):
    """Containers, and what is in them."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._visits: list[Visit] = []

    def begin_anew(self, target: ast.expr, node: ast.expr, frame: Frame, beside: ast.AST | None = None) -> None:
        """Forget what a list or a dict held in the last round of a loop that makes it anew in each: `sums = {}`, if the
        name had it alone."""
        if isinstance(target, ast.Tuple) and isinstance(node, ast.Tuple):
            for one, other in zip(target.elts, node.elts, strict=False):
                self.begin_anew(one, other, frame, node)
        yields = self.context.function is not None and is_generator(self.context.function.node)
        if not isinstance(target, ast.Name) or not self.guards or self.guards[-1].kind != "loop" or yields:
            return
        name = target.id
        for each in frame.names.get(name, EMPTY).things:
            if not isinstance(each, (Sequence, Mapping)) or each.node is not node:
                continue
            names = [value for other, value in frame.names.items() if other != name]
            others = [value for heap in self.heaps if heap.node is not beside for value in heap.contents()]
            if not any(each in value.things for value in (*names, *others)):
                each.empty()

    # loops over the keys of a dict

    @contextmanager
    def visiting(self, loop: ast.For | ast.AsyncFor, frame: Frame) -> Iterator[Visit | None]:
        """While the rounds of a loop are run that stores each entry of a dict anew."""
        found = self._visit(loop, frame)
        if found is None:
            yield None
            return
        self._visits.append(found)
        try:
            yield found
        finally:
            self._visits.remove(found)
        if found.after is None:
            return
        surely = any(_stores(each, found.key) for each in loop.body)
        found.mapping.replace(lambda held: found.after or held if surely else held | (found.after or held))
        found.mapping.version += 1

    def _visit(self, loop: ast.For | ast.AsyncFor, frame: Frame) -> Visit | None:
        node, key = loop.iter, loop.target
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LISTING and node.args:
            node = node.args[0]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
            if node.func.attr == "items" and isinstance(key, ast.Tuple) and key.elts:
                key = key.elts[0]
            elif node.func.attr != "keys":
                return None
            node = node.func.value
        stored = isinstance(key, ast.Name) and any(_stores(each, key.id) for each in _statements(loop))
        if not stored or not isinstance(key, ast.Name) or not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        things = self.eval(node, frame).things
        one = next(iter(things)) if len(things) == 1 else None
        return Visit(one, loop, key.id, frame, self.current(one.element)) if isinstance(one, Mapping) else None

    def visited(self, one: Any, node: ast.AST, frame: Frame) -> Visit | None:
        """The loop whose round a subscript is of, if that is the entry visited in it."""
        for each in self._visits:
            if each.mapping is one and each.frame is frame and isinstance(node, ast.Subscript):
                if isinstance(node.slice, ast.Name) and node.slice.id == each.key:
                    return each
        return None

    def sequence(
        self, node: ast.AST, parts: Row[Value] | None, anywhere: Value = EMPTY, kind: str = "list", of: Row[Value] = ()
    ) -> Value:
        """The list or tuple that is made at ``node``, ``of`` what others hold."""
        made: Sequence = self.make(node, lambda n, g: Sequence(n, g, kind=kind), kind)
        new = list(parts) if parts is not None and len(parts) <= MOST_PARTS else None
        anywhere = anywhere if new is not None else anywhere | joined(parts or ())
        if (made.parts, made.anywhere) != (new, anywhere):
            if kind == "tuple" and made.parts is not None and new is not None and len(new) == len(made.parts):
                new = [a | b for a, b in zip(made.parts, new, strict=True)]  # of another round
            made.parts, made.anywhere = new, made.anywhere | anywhere
            made.version += 1
        made.pick(joined(map(picked_by, of)))
        return thing(made)

    def of_Tuple(self, node: ast.Tuple | ast.List | ast.Set, frame: Frame) -> Value:
        parts, starred, lists = [], EMPTY, []
        for each in node.elts:
            if isinstance(each, ast.Starred):
                value = self.eval(each.value, frame)
                listed = self.parts(value)
                lists.append(value)
                parts += listed or []
                starred |= EMPTY if listed is not None else self.element(value, each, frame)
            else:
                parts.append(self.eval(each, frame))
        if isinstance(node, ast.Tuple) and starred is EMPTY and parts and all(each.is_constant for each in parts):
            return constant(tuple(each.constant for each in parts))
        places = parts if starred is EMPTY else None
        kind = "tuple" if isinstance(node, ast.Tuple) else "list" if isinstance(node, ast.List) else "set"
        return self.sequence(node, places, starred if places is not None else starred | joined(parts), kind, lists)

    of_List = of_Tuple
    of_Set = of_Tuple

    def of_Dict(self, node: ast.Dict, frame: Frame) -> Value:
        made: Mapping = self.make(node, Mapping)
        for key, each in zip(node.keys, node.values, strict=True):
            value = self.eval(each, frame)
            if key is None:
                self._take_over(made, value)
            else:
                self.put(made, self.eval(key, frame), value)
        return thing(made)

    def _take_over(self, made: Mapping, value: Value) -> None:
        """`{**defaults, ...}`, `settings.update(others)`"""
        for each in value.things:
            if isinstance(each, Mapping):
                self.read(each)
                for key, slot in list(each.entries.items()):
                    self.bind(made, made.entries, key, slot.value)
                self._anywhere(made, each.anywhere, each.keys)
        if value.operations:
            self._anywhere(made, value.results, EMPTY)

    def made_of(self, node: ast.AST, others: Row[Value]) -> Value:
        """`defaults | settings`"""
        made: Mapping = self.make(node, Mapping)
        for each in others:
            self._take_over(made, each)
        return thing(made)

    def count(self, made: Mapping, value: Value, node: ast.AST, frame: Frame) -> None:
        """`counter.update(words)`"""
        others = Value(things=frozenset(each for each in value.things if isinstance(each, Mapping)))
        self._take_over(made, others)
        words = Value(value.operations, value.constants, value.things - others.things)
        if words is not EMPTY and (words.operations or words.things):
            counts = self.record("collections.Counter", node, frame, [words]) if any(held(words)) else MANY
            self.put(made, self.element(words, node, frame), counts)

    def put(self, made: Mapping, key: Value, value: Value) -> None:
        """Have a dict hold something under a key."""
        name = key.constant
        made.popped.discard(name)
        if name is not UNKNOWN and len(made.entries) < MOST_PARTS:
            self.bind(made, made.entries, name, value)
        elif _is_told(key):
            for _, each in key.constants:  # one of these
                held = made.entries.get(each)
                self.bind(made, made.entries, each, value | (held.value if held is not None else EMPTY))
        else:
            self._anywhere(made, value, key)

    def _anywhere(self, made: Mapping | Sequence, value: Value, key: Value = EMPTY) -> None:
        before = made.anywhere
        made.anywhere = before | value
        changed = made.anywhere != before
        if isinstance(made, Mapping):
            keys = made.keys | key
            changed, made.keys = changed or keys != made.keys, keys
        made.version += changed

    def grow(self, made: Sequence, value: Value, method: str = "append") -> None:
        """Put something into a list: at its end while no branch or loop makes it uncertain, or anywhere."""
        self._pick(made)
        certain = made.parts is not None and made.guards == self.guards and method == "append"
        if certain and made.parts is not None and len(made.parts) < MOST_PARTS:
            made.parts.append(value)
            made.version += 1
            return
        if made.parts is not None:
            made.forget_places()
            made.version += 1
        self.rebind(made, None, made.guards)
        self.bound_in_round(*[(made, -1)] * (method == "append"))
        self._anywhere(made, value)

    def _one_each(self, made: Sequence, value: Value, node: ast.AST, frame: Frame) -> Value:
        """What is put into a list: a number that is written down, in a loop over tensors, comes once for each of what
        that goes over, `counts.append(1)`."""
        numbers = value.constants and all(issubclass(kind, (int, float)) for kind, _ in value.constants)
        if value.operations or value.things or not numbers:
            return value
        loops = [each for each in self.guards[len(made.guards) :] if each.kind == "loop"]
        given = [op for each in loops for op in held(each.subject)]
        over = any(op.is_tensor or any(each.is_tensor for v in op.inputs for each in v.operations) for op in given)
        return self.record("list.element", node, frame, [value]) if over else value

    def extend(self, made: Sequence, value: Value, node: ast.AST, frame: Frame, method: str = "extend") -> None:
        """Put into a list what another one holds."""
        made.pick(picked_by(value))
        listed = self.parts(value)
        for each in listed if listed is not None else [self.element(value, node, frame)]:
            self.grow(made, each, "append" if listed is not None else method)

    def chosen(self, one: Value, other: Value, test: Value, node: ast.AST, frame: Frame, name: str = "") -> Value:
        """Note what a test chooses: of two lists the one to put something into; of two numbers one, `1 if a == b else
        0`, which is computed from what the test is then."""
        for each in one.things ^ other.things:
            if isinstance(each, Heap):
                each.choose(test)
        told = one.constants and other.constants and one != other and not one.operations | other.operations
        numbers = told and all(kind in (int, float, bool) for kind, _ in one.constants | other.constants)
        if not numbers:
            return EMPTY
        of_sample = any(each.is_tensor for each in test.operations) or any(map(_counts_samples, test.operations))
        if not of_sample and not test.carried_by:
            return EMPTY
        return self.record("operator.choice", node, frame, [test], tag=name)

    def _pick(self, made: Sequence) -> None:
        """Note what decides how much is put into a list, or taken off it, here."""
        later = self.guards[len(made.guards) :]
        made.pick(joined(each.subject if each.kind == "branch" else picked_by(each.subject) for each in later))
        loop = next((each.node for each in reversed(later) if each.kind == "loop"), None)
        made.pick(joined(map(self.program.at, _tests_ahead(loop))))
        for container, key in made.found_in.items():  # `lists[label].append(x)`
            made.pick(key)
            if container is not None:
                container.place(key)

    def listing(self, node: ast.AST, parts: list[Value], tag: object, kind: str = "tuple") -> Value:
        """One of several tuples or lists that are made at a place, each by its tag."""
        made: Sequence = self.make(node, lambda n, g: Sequence(n, g, kind=kind), tag)
        if made.parts is None or len(made.parts) != len(parts):
            made.parts = parts
        joint = [a | b for a, b in zip(made.parts, parts, strict=True)]
        made.version += joint != made.parts
        made.parts = joint
        return thing(made)

    # taking things out

    def parts(self, value: Value) -> list[Value] | None:
        """What a list or tuple has at which place, if it is known."""
        if isinstance(value.constant, (tuple, str)) and not value.things:
            return [constant(each) for each in value.constant[:MOST_PARTS]]
        if value.operations or value.constants or len(value.things) != 1:
            return self._parts_of_several(value)
        (one,) = value.things
        if isinstance(one, Sequence):
            self.read(one)
            return list(map(self.current, one.parts)) if one.parts is not None and one.anywhere is EMPTY else None
        return None

    def keys_of(self, value: Value) -> list[Value] | None:
        """The keys of a dict, if all are known."""
        one = next(iter(value.things)) if len(value.things) == 1 and not value.operations else None
        if not isinstance(one, Mapping) or one.keys is not EMPTY or one.anywhere is not EMPTY:
            return None
        self.read(one)
        return [constant(each) for each in one.entries]

    def words_of(self, over: Value) -> list[Value]:
        """The words of a list that may have them all or not: `["train"] + (["test"] if args.test else [])`"""
        if over.operations or not over.things or not all(isinstance(each, Sequence) for each in over.things):
            return []
        for each in over.things:
            self.read(each)
        words = joined(self.current(each.element) for each in over.things)
        known = sorted(each for kind, each in words.constants if kind is str)
        whole = not words.operations and not words.things and len(known) == len(words.constants)
        return [constant(each) for each in known] if whole and 1 < len(known) <= UNROLLED else []

    def _parts_of_several(self, value: Value) -> list[Value] | None:
        """Those of several tuples of one length."""
        if value.operations or len(value.things) + len(value.constants) < 2:
            return None
        told = [self.parts(thing(each)) for each in value.things]
        told += [self.parts(constant(each)) if isinstance(each, tuple) else None for _, each in value.constants]
        if any(each is None for each in told) or len({len(each or ()) for each in told}) != 1:
            return None
        return [joined(each) for each in zip(*[each or [] for each in told], strict=True)]

    def entry(self, container: Any, key: Value, node: ast.AST, frame: Frame, default: Value = EMPTY) -> Value:
        """What a list or dict has under a key or at a place, or the ``default``. Which of its numbers and texts it is,
        a key tells that is computed from samples, `names[label]`, or counts them, `weights[i]`."""
        visit = self.visited(container, node, frame)
        if visit is not None:
            self.read(container)
            return visit.after if visit.after is not None else visit.before
        found = self._entry(container, key, node, frame) | default
        for each in found.things if key.operations or container.found_in else ():
            if isinstance(each, Heap):
                each.choose(key, container)
        told_apart = any(each not in (0, None) for _, each in found.constants)  # and not only what counts begin with
        if found.things or not found:
            return found
        by_sample = any(each.is_tensor for each in key.operations)
        counted = any(map(_is_counted_up, found.operations))
        by_number = (counted or len(found.constants) > 1) and any(map(_counts_samples, key.operations))
        if (told_apart or counted) and (by_sample or by_number) or any(map(self._is_drawn, key.operations)):
            found |= self.record("getitem", node, frame, [thing(container), Value(key.operations)], tag="by sample")
        return found

    def _is_drawn(self, operation: Operation) -> bool:
        """Whether it is a number of a sample that was drawn, or what was looked up by one, a few operations ago."""
        seen, last = {operation}, [operation]
        for _ in range(DEEP):
            if any(self.catalog.has(each.name, "index_draw") for each in last):
                return True
            read = (each for each in last if each.name.startswith(READING))
            last = list({op for each in read for value in each.operands for op in value.operations} - seen)
            seen.update(last)
        return False

    def _entry(self, container: Any, key: Value, node: ast.AST, frame: Frame) -> Value:
        name = key.constant
        if isinstance(container, Mapping) and container.kind == "defaultdict" and name is UNKNOWN:
            self._anywhere(container, EMPTY, key)  # which reading puts there
        if not isinstance(container, Mapping) or name is UNKNOWN or container.keys is not EMPTY:
            self.read(container)
        else:
            self.read(container, name)
        if isinstance(container, Mapping):
            one_of = [constant(each) for _, each in key.constants] if _is_told(key) else []
            if len(one_of) > 1 and container.keys is EMPTY and container.anywhere is EMPTY:
                return joined(self._entry(container, each, node, frame) for each in one_of)
            if name is not UNKNOWN and name in container.entries:
                held = self.current(container.entries[name].value).left_by(self.carriers(container, name))
                return held | (EMPTY if container.keys is EMPTY else container.anywhere)
            if name is not UNKNOWN and container.keys is EMPTY and container.anywhere is EMPTY:
                return EMPTY
            return self.current(container.anywhere if name is not UNKNOWN else container.element)
        if isinstance(container, Sequence):
            if container.parts is not None and container.anywhere is EMPTY:
                if type(name) is int and -len(container.parts) <= name < len(container.parts):
                    return self.current(container.parts[name]).left_by(self.carriers(container, name))
            carriers = self.carriers(container, None, name) if name is not UNKNOWN else frozenset[Region]()
            return self.current(container.element).left_by(carriers)
        return self.element(thing(container), node, frame)

    def element(self, value: Value, node: ast.AST, frame: Frame) -> Value:
        """What going through a value gives."""
        found = EMPTY
        for each in value.things:
            found |= self.element_of(each, node, frame)
        for _, each in value.constants:
            if isinstance(each, (str, bytes, tuple)):
                found |= joined(constant(part) for part in each[:MOST_PARTS])
        if value.operations:
            found |= self.record("iterate", node, frame, [value.results])
        return found

    def element_of(self, one: Any, node: ast.AST, frame: Frame) -> Value:
        """What going through one thing gives."""
        if isinstance(one, (Sequence, Stream)):
            self.read(one)
            return self.current(one.element).left_by(self.carriers(one, None))
        if isinstance(one, Mapping):
            self.read(one)
            keys = joined(constant(each) for each in one.entries)
            return keys | (EMPTY if one.entries and one.keys.operations else one.keys)  # of one of these
        if isinstance(one, External):
            return self.record("iterate", node, frame, [thing(one)])
        return EMPTY

    def pairs(self, container: Mapping, node: ast.AST) -> list[Value] | None:
        """The items of a dict whose keys are all known."""
        self.read(container)
        if container.keys is not EMPTY or container.anywhere is not EMPTY:
            return None
        items = []
        for key, slot in container.entries.items():
            items.append(self._pair(node, constant(key), slot.value, ("item", key)))
        return items

    def _pair(self, node: ast.AST, key: Value, value: Value, tag: object) -> Value:
        pair: Sequence = self.make(node, lambda n, g: Sequence(n, g, kind="tuple"), tag)
        if pair.parts != [key, value]:
            pair.parts, pair.version = [key, value], pair.version + 1
        return thing(pair)

    # methods

    def container_method(
        self,
        owner: Sequence | Mapping,
        name: str,
        node: ast.AST,
        frame: Frame,
        inputs: Row[Value],
        given: Map[str, Value],
    ) -> Value:
        """A method of a list, a set or a dict of the script."""
        if isinstance(owner, Mapping):
            return self._mapping_method(owner, name, node, frame, inputs, given)
        if name in GROWING and inputs:
            owner.stores[node] = self.region
        if name in ("extend", "extendleft", "update") and inputs:
            self.extend(owner, inputs[0], node, frame, name)
        elif name in GROWING and inputs:
            self.grow(owner, self._one_each(owner, inputs[-1], node, frame), name)
        elif name in ("pop", "popleft"):
            self._pick(owner)
            popped = self.entry(owner, inputs[0] if inputs else constant(-1), node, frame)
            self.take_out(owner, name)
            told_apart = popped.operations and not popped.things and not popped.constants
            if told_apart and any(isinstance(each.node, ast.While) for each in self.guards[len(owner.guards) :]):
                return self.record("builtins.list.pop", node, frame, [popped])
            return popped
        elif name in SHRINKING:
            self._pick(owner)
            if name == "clear" and owner.guards == self.guards:
                owner.empty()
            else:
                self.take_out(owner, name)
        elif name == "copy":
            return self.sequence(node, self.parts(thing(owner)), owner.anywhere, owner.kind, [thing(owner)])
        elif name in ("count", "index", "__len__"):
            return self.record(f"builtins.list.{name}", node, frame, [thing(owner), *inputs])
        elif name in ("union", "difference", "intersection", "symmetric_difference"):
            others = joined(self.element(each, node, frame) for each in inputs)
            return self.sequence(node, None, owner.element | others, owner.kind, [thing(owner), *inputs])
        return constant(None)

    def _mapping_method(
        self, owner: Mapping, name: str, node: ast.AST, frame: Frame, inputs: Row[Value], given: Map[str, Value]
    ) -> Value:
        self.read(owner)
        if name in ("get", "pop", "setdefault") and inputs:
            default = inputs[1] if len(inputs) > 1 else constant(None)
            slot = owner.entries.get(inputs[0].constant) if inputs[0].is_constant else None
            known = slot is not None and (
                self.is_surely_bound(slot, owner.guards) or name == "pop" and len(inputs) < 2  # which fails elsewhere
            )
            found = self.entry(owner, inputs[0], node, frame, default if name == "get" and slot is None else EMPTY)
            if name == "setdefault":
                self.put(owner, inputs[0], found | default)
            if name == "pop" and slot is not None and owner.guards == self.guards:
                owner.popped.add(inputs[0].constant)
            return found if known else found | default
        if name == "items":
            pairs = self.pairs(owner, node)
            if pairs is not None:
                return self.sequence(node, pairs, kind="items")
            return self.sequence(
                node, None, self._pair(node, self.element_of(owner, node, frame), owner.element, "item")
            )
        if name == "values":
            known = owner.keys is EMPTY and owner.anywhere is EMPTY
            there = [slot.value for key, slot in owner.entries.items() if key not in owner.popped]
            return self.sequence(node, there if known else None, EMPTY if known else owner.element)
        if name == "keys":
            known = owner.keys is EMPTY
            parts = [constant(each) for each in owner.entries] if known else None
            return self.sequence(node, parts, EMPTY if known else self.element_of(owner, node, frame))
        if name == "update":
            for each in inputs:
                if owner.kind == "Counter":
                    self.count(owner, each, node, frame)
                else:
                    self._take_over(owner, each)
            for key, value in given.items():
                self.put(owner, constant(key), value)
        if name == "copy":
            made: Mapping = self.make(node, Mapping)
            self._take_over(made, thing(owner))
            return thing(made)
        if name == "clear":
            owner.version += 1
        return constant(None)

    def take_out(self, owner: Sequence, name: str) -> None:
        """Have a list hold less, or its elements in other places."""
        change_rest(owner, name, self.guards, self.region)
        owner.version += owner.parts is not None
        owner.forget_places()

    def store_entry(self, container: Any, key: Value, value: Value, node: ast.AST, frame: Frame) -> None:
        """`container[key] = value`"""
        visit = self.visited(container, node, frame)
        if visit is not None:
            surely = any(node in _targets(each) for each in visit.loop.body)
            visit.after = value if surely else (visit.after or visit.before) | value
        elif isinstance(container, Mapping):
            self.put(container, key, value)
        elif isinstance(container, Sequence):
            place = key.constant
            container.place(key)
            if (
                container.parts is not None
                and type(place) is int
                and -len(container.parts) <= place < len(container.parts)
            ):
                before = container.parts[place]
                self.bound_in_round((container, place))
                if is_anew(value, before):
                    self.rebind(container, place, container.guards)
                held = value if container.guards == self.guards else before | value
                container.parts[place] = held
                container.version += held != before
            else:
                self._anywhere(container, value)


def _is_told(key: Value) -> bool:
    """Whether it is known which constants a key may be."""
    return bool(key.constants) and not (key.operations or key.things) and key.constants != MANY.constants


def _statements(loop: ast.For | ast.AsyncFor) -> Iterator[ast.stmt]:
    return (each for part in loop.body for each in walk(part) if isinstance(each, ast.stmt))


def _stores(statement: ast.stmt, key: str) -> bool:
    """Whether a statement stores the entry of a key: `sums[key] /= n`"""
    return any(
        isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Name) and each.slice.id == key
        for each in _targets(statement)
    )


def _targets(statement: ast.stmt) -> list[ast.expr]:
    return [statement.target] if isinstance(statement, ast.AugAssign) else getattr(statement, "targets", [])


def _is_counted_up(operation: Operation) -> bool:
    """Whether it is a number that a loop counts to, or computed of it: `0.1 * k` of `[0.1 * k for k in range(10)]`"""
    above = closure([operation], lambda op: () if op.is_tensor else op.given)
    return any(each.name == "range.index" for each in above) and not any(each.is_tensor for each in above)


def _counts_samples(operation: Operation) -> bool:
    """Whether it is computed of a number by which a loop may count samples: `i < 4`, of `for i in range(len(x))`"""
    above = closure([operation], lambda op: () if op.is_tensor else (e for v in op.operands for e in held(v)))
    return any(each.name == "range.index" for each in above) and any(each.is_tensor for each in above)


def _tests_ahead(loop: ast.AST | None) -> list[ast.expr]:
    """The tests by which a loop goes on to its next round: `if text is None: continue`"""
    body = loop.body if isinstance(loop, (ast.For, ast.While)) else []
    tests = [each for each in body if isinstance(each, ast.If)]
    return [each.test for each in tests if any(isinstance(part, ast.Continue) for part in each.body)]
