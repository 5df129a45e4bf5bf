"""Attributes: of modules, classes, objects and tensors."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from functools import cached_property
from typing import Any

from autodist.program import EMPTY, Operation, Value, constant, joined
from autodist.trace.names import thing
from autodist.trace.statements import Statements
from autodist.trace.things import (
    Class,
    External,
    Frame,
    Function,
    Heap,
    LocalModule,
    Mapping,
    Method,
    Object,
    Sequence,
    Slot,
    Stream,
)

PASSES = {"forward": "super().forward", "__call__": "super().__call__"}
"""The passes of a class of a library, which one of the project that derives from it has of its own."""


class Super:
    """`super()`: an object, seen from the class after the one whose method is run."""

    def __init__(self, owner: Any, cls: Class) -> None:
        self.owner, self.cls = owner, cls

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Super) and (self.owner, self.cls) == (other.owner, other.cls)

    def __hash__(self) -> int:
        return hash((self.owner, self.cls))


class Mode(Heap):
    """Whether modules train or are evaluated: what functions have read that ask for it."""

    def __init__(self, run: Attributes) -> None:
        super().__init__(run.main.frame.source.tree, ())
        self._run = run

    def version_of(self, key: Any) -> int:
        return int(self._run.evaluates)


HOLDING = {("module", "DataParallel"), ("module", "DistributedDataParallel")}
HOLDING |= {("dataset", "DataLoader"), ("dataset", "Subset")}
"""Attributes by which objects of libraries give what they were made with."""


EVALUATING = re.compile(r"\.eval\b|\.train\(\s*[^)\s]|\.training\s*=[^=]")
"""What may tell a module that it is evaluated."""


def ordered(things: frozenset[Any]) -> list[Any]:
    """Things in an order that is the same in each run."""
    return sorted(things, key=_place) if len(things) > 1 else list(things)


def _place(one: Any) -> tuple[str, int, int, str]:
    node = getattr(one, "node", None) or getattr(getattr(one, "owner", None), "node", None)
    return type(one).__name__, getattr(node, "lineno", 0), getattr(node, "col_offset", 0), str(getattr(one, "name", ""))


class Attributes(Statements):
    """What stands behind a dot."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._set_on: dict[Operation | External, dict[str, Slot]] = {}
        """Attributes that the script sets on results of libraries, `args.device = device`, and on what these are."""
        self._set_somewhere: dict[Object, Value] = {}
        """What objects hold under names that a script puts together: `setattr(self, f"layer{i}", layer)`."""
        self._set_on_functions: dict[Function, Object] = {}
        """What the script sets on its own functions: `step.last = loss`."""
        self.told_to_evaluate = False
        """Whether the script has told a module not to train: `model.eval()`."""
        self._mode = Mode(self)

    @property
    def evaluates(self) -> bool:
        """Whether modules are evaluated here."""
        return self.told_to_evaluate and self.region.without_gradients

    @cached_property
    def _always_trains(self) -> bool:
        """Whether the script tells no module that it is evaluated."""
        return not any(EVALUATING.search(source.text) for source in self.project.sources)

    def of_Attribute(self, node: ast.Attribute, frame: Frame) -> Value:
        return self.attribute(self.eval(node.value, frame), node.attr, node, frame)

    def attribute(self, base: Value, name: str, node: ast.AST, frame: Frame) -> Value:
        """`base.name`"""
        found = EMPTY
        for each in ordered(base.things):
            found |= self.attribute_of(each, name, node, frame)
        if base.operations:
            found |= self._attribute_of_result(base.results, name, node, frame)
        elif base.constants and not base.things:
            found |= self.record(f"builtins.str.{name}", node, frame, [base])
        return found

    def _attribute_of_result(self, base: Value, name: str, node: ast.AST, frame: Frame) -> Value:
        known, surely = self.set_on(base, name)
        if surely:
            return known
        method = self.method_name(base, name)
        method = "torch.Tensor.numel" if method == "torch.Tensor.size" else method  # of an array: it is not called
        return known | self.record(method, node, frame, [base])

    def set_on(self, base: Value, name: str) -> tuple[Value, bool]:
        """What the script has set under a name on results of libraries, and whether it is set wherever the script comes
        here. A tensor's stays what it was set to."""
        slots = {each: self._set_on.get(each, {}).get(name) for each in base.operations}
        known = joined(self.current(slot.value) for slot in slots.values() if slot is not None)
        sure = (each.is_tensor or slot is not None and self.is_surely_bound(slot) for each, slot in slots.items())
        return known, known is not EMPTY and all(sure)

    def method_name(self, base: Value, name: str) -> str:
        """What the table of operations knows a method or an attribute of a value by."""
        return f"torch.Tensor.{name}" if any(each.is_tensor for each in base.operations) else f"object.{name}"

    def attribute_of(self, one: Any, name: str, node: ast.AST, frame: Frame) -> Value:
        """The same of one thing."""
        if isinstance(one, LocalModule):
            if name in one.frame.names:
                return self.elsewhere(one.frame, name)
            if name == "__dict__":
                return self.names_of(one.frame, node)
            inner = self.import_module(f"{one.name}.{name}")
            return thing(inner) if inner is not None else EMPTY
        if isinstance(one, External):
            slot = self._set_on.get(one, {}).get(name)
            return thing(External(f"{one.name}.{name}")) | (slot.value if slot is not None else EMPTY)
        if isinstance(one, Class):
            return self._of_class(one, name)
        if isinstance(one, Super):
            return self._of_super(one, name)
        if isinstance(one, Object):
            return self._of_object(one, name, node, frame)
        if isinstance(one, (Sequence, Mapping, Stream)):
            return thing(Method(one, name))
        if name == "__name__" and isinstance(one, Function):
            return constant(one.name)
        if isinstance(one, Function) and name in (state := self._state_of(one, name)).attributes:
            return self.current(state.attributes[name].value).left_by(self.carriers(state, name))
        if isinstance(one, Method) and isinstance(one.owner, Object):  # `layer.running_mean.tolist`
            return self._attribute_of_result(self._held(one.owner, str(one.function), node, frame), name, node, frame)
        return self.record(f"function.{name}", node, frame, [thing(one)])

    def _state_of(self, one: Function, name: str) -> Object:
        """What holds the attributes of a function, of which one is read."""
        state = self._set_on_functions.setdefault(one, Object(one.node, one.frame.guards))
        self.read(state, name)
        return state

    def _held(self, one: Object, name: str, node: ast.AST, frame: Frame) -> Value:
        """What an attribute of an object of a library holds. Modules that are evaluated without gradients do not train,
        where the script says so to one of them at all."""
        if name == "training":
            self.read(self._mode)
        if name == "training" and (self.evaluates or self._always_trains):
            return constant(self._always_trains)
        return self.record(f"{one.library_names[0]}.{name}", node, frame, [thing(one)], owner=one, tag="held")

    def _of_class(self, cls: Class, name: str) -> Value:
        if name == "__name__":
            return constant(cls.node.name)
        found = cls.find(name)
        if found is not None:
            held = self.elsewhere(found[0].frame, name)
            bound = (isinstance(each, Function) and each.role == "classmethod" for each in held.things)
            things = (Method(cls, each) if own else each for each, own in zip(held.things, bound, strict=True))
            return replace(held, things=frozenset(things))
        libraries = cls.libraries
        return thing(Method(cls, name)) if libraries else EMPTY

    def _of_super(self, one: Super, name: str) -> Value:
        line = one.owner if isinstance(one.owner, Class) else one.owner.cls
        found = line.find(name, one.cls) if line is not None else None
        if found is None:
            return thing(Method(one.owner, PASSES.get(name, name)))
        return self._bound(found[1], one.owner)

    def _bound(self, value: Value, owner: Any) -> Value:
        """What a class defines, seen from an object of it."""
        things = set()
        for each in value.things:
            if isinstance(each, Function) and each.role == "classmethod":
                things.add(Method(owner.cls if isinstance(owner, Object) else owner, each))
            elif isinstance(each, Function) and each.role != "staticmethod":
                things.add(Method(owner, each))
            else:
                things.add(each)
        return replace(value, things=frozenset(things))

    def _of_object(self, one: Object, name: str, node: ast.AST, frame: Frame) -> Value:
        self.read(one, name)
        if (slot := one.attributes.get(name)) is not None:
            held = self.possible(self.current(slot.value)).left_by(self.carriers(one, name))
            found = one.cls.find(name) if one.cls is not None else None
            if found is None or self.is_surely_bound(slot, one.guards):
                return held
            return held | self._bound(self.elsewhere(found[0].frame, name), one)  # what its class says
        if name == "__class__" and one.cls is not None:
            return thing(one.cls)
        if name == "__dict__":
            return self.make_mapping_of(one, node)
        found = one.cls.find(name) if one.cls is not None else None
        if found is not None:
            bound = self._bound(self.elsewhere(found[0].frame, name), one)
            properties = [each for each in bound.things if isinstance(each, Method) and _is_property(each)]
            if not properties:
                return bound
            return self.call(Value(things=frozenset(properties)), node, frame, [], {})
        if one.cls is not None and not one.cls.libraries:
            if one.cls.find("__getattr__"):
                return self.call(self._of_object(one, "__getattr__", node, frame), node, frame, [constant(name)], {})
            return EMPTY
        if (name, one.name.rpartition(".")[2]) in HOLDING:
            given = one.argument(name, 0)
            if given is not None:
                return given
        if name == "tensors" and "torch.utils.data.TensorDataset" in one.library_names:
            return self.sequence(node, list(one.inputs), kind="tuple")
        if self.is_data(one, name):
            return self._held(one, name, node, frame)
        if not one.roles and (field := self.field_of(one, name)) is not None:
            return field
        return thing(Method(one, name))

    def field_of(self, one: Object, name: object) -> Value | None:
        """What a record of a library holds under a name, or at a place: `Output(loss=loss).loss`, `output[0]`"""
        slot = one.attributes.get(("entry", name)) or one.attributes.get(name)
        if slot is not None:
            return self.current(slot.value)
        if type(name) is int and 0 <= name < len(one.keywords):
            return list(one.keywords.values())[name]
        return one.keywords.get(name) if isinstance(name, str) else None

    def is_data(self, one: Object, name: str) -> bool:
        """Whether an attribute of an object of a library is read for what it holds, and is no method: those that
        nobody calls."""
        return name in ("training", "dataset", "weight", "bias", "param_groups", "batch_size", "in_features", "data")

    def names_of(self, frame: Frame, node: ast.AST) -> Value:
        """The names of a module or a function, and what they stand for: `vars(module)`, `locals()`"""
        made: Mapping = self.make(node, Mapping, frame)
        for name, value in frame.names.items():
            self.bind(made, made.entries, name, value)
        return thing(made)

    def make_mapping_of(self, one: Object, node: ast.AST) -> Value:
        """`vars(one)`"""
        made: Mapping = self.make(node, Mapping, one)
        if all(isinstance(key, str) for key in one.attributes):
            made.entries = one.attributes  # what is put into it, the object has: `vars(self).update(options)`
        else:
            made.entries.update({key: slot for key, slot in one.attributes.items() if isinstance(key, str)})
        return thing(made)

    def store_attribute(self, base: Value, name: str, value: Value, node: ast.AST, frame: Frame) -> None:
        """`base.name = value`"""
        for each in ordered(base.things):
            if isinstance(each, Object):
                self._tell_setter(each, name, value, node, frame)
                self.bind(each, each.attributes, name, value)
            elif isinstance(each, Function):
                state = self._set_on_functions.setdefault(each, Object(each.node, each.frame.guards))
                self.bind(state, state.attributes, name, value)
            elif isinstance(each, (LocalModule, Class)):
                self.bind_elsewhere(each.frame, name, value)
        cleared = name == "grad" and value.is_constant  # which the next backward pass puts there
        owners: list[Operation | External] = [*(() if cleared else base.operations)]
        owners += [each for each in base.things if isinstance(each, External)]
        for owner in owners:
            slots = self._set_on.setdefault(owner, {})
            slot = slots.setdefault(name, Slot(value, self.guards))
            slot.value |= value
            self.note_bound(slot)
        if base.operations and name == "data":
            self.change_viewed(Value(base.operations), value, node, frame)
        elif base.operations:
            self.record("setattr", node, frame, [Value(base.operations), constant(name), value])

    def _tell_setter(self, one: Object, name: str, value: Value, node: ast.AST, frame: Frame) -> None:
        """Run the `__setattr__` of a class, unless it is that which binds."""
        setter = one.cls.find("__setattr__") if one.cls is not None else None
        if setter is not None and self.context.function not in setter[1].things:
            self.call(self._bound(setter[1], one), node, frame, [constant(name), value], {})


def _is_property(method: Method) -> bool:
    return isinstance(method.function, Function) and method.function.role == "property"
