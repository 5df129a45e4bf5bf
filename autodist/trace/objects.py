"""Objects: made by classes of the project and of libraries, and modules of torch."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from collections.abc import Sequence as Row
from typing import Any

from autodist.program import EMPTY, FUNCTION, GRADIENT, Value, constant, held, joined
from autodist.source import all_of
from autodist.trace.attributes import PASSES, ordered
from autodist.trace.calls import GRADIENT_HOOKS, REST, Calls, Keywords
from autodist.trace.names import thing
from autodist.trace.things import Class, External, Frame, Function, Mapping, Method, Object, Partial, Sequence, Slot

CONTAINERS = frozenset(f"torch.nn.{name}" for name in ("Sequential", "ModuleList", "ModuleDict", "ParameterList"))
MODULE = "torch.nn.Module"
ITSELF = frozenset(
    "to cuda cpu train eval half float double bfloat16 requires_grad_ apply share_memory type compile".split()
)
"""Methods of a module that give the module."""
WRAPPED = frozenset(["ddp", "data_parallel", "sharded_ddp", "fully_sharded"])
"""Roles of what wraps a module."""
WRAPPING = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "ShardedDataParallel")
ALIASES = frozenset(
    "torch.compile torch.jit.script copy.copy torch.nn.SyncBatchNorm.convert_sync_batchnorm fully_shard".split()
)
"""What gives the module that it is given, as far as its passes go."""
HOOKS = ("register_forward_pre_hook", "register_forward_hook")
"""Methods that give a module functions to run before its passes, and behind them."""
FUNCTIONS = frozenset([FUNCTION, "torch.autograd.function.Function"])
"""The class of functions with a backward pass of their own, by its names."""
PARAMETERS = frozenset("parameters named_parameters buffers named_buffers state_dict".split())


NAMESPACES = ("types.SimpleNamespace", "argparse.Namespace")
"""Classes whose objects have the attributes that they are made with."""
NUMBERS = ("fractions.Fraction", "decimal.Decimal")
"""Classes whose objects are numbers, computed from those that they are made of."""


class Objects(Calls):
    """What is made of classes, and what calls of it give."""

    def instantiate(self, cls: Class, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        roles = (
            frozenset().union(*(self.catalog.roles(name) for name in cls.libraries)) if cls.libraries else frozenset()
        )
        if MODULE in cls.libraries or any(name.startswith("torch.nn.") for name in cls.libraries):
            roles |= {"module"}
        one: Object = self.make(node, lambda n, g: Object(n, g, cls=cls, roles=roles), cls)
        one.source = frame.source
        made = cls.find("__init__")
        if made is None:
            self._given(one, inputs, keywords)
            self._fields(one, cls, inputs, keywords)
        else:
            for each in made[1].things:
                if isinstance(each, Function):
                    self.enter(each, node, frame, [thing(one), *inputs], keywords)
        return thing(one)

    def _given(self, one: Object, inputs: Row[Value], keywords: Keywords) -> None:
        """Keep what the class of a library was made with."""
        if len(one.inputs) == len(inputs):
            one.inputs = tuple(a | b for a, b in zip(one.inputs, inputs, strict=True))
        else:
            one.inputs = tuple(inputs)
        one.keywords = {**one.keywords, **keywords}

    def _fields(self, one: Object, cls: Class, inputs: Row[Value], keywords: Keywords) -> None:
        """The attributes of a dataclass or a named tuple."""
        names: dict[str, ast.expr | None] = {}
        for each in reversed([each for each in cls.line() if isinstance(each, Class)]):
            for statement in each.node.body:
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    names[statement.target.id] = statement.value
        for place, (name, default) in enumerate(names.items()):
            if place < len(inputs):
                self.bind(one, one.attributes, name, inputs[place])
            elif name in keywords:
                self.bind(one, one.attributes, name, keywords[name])
            elif default is not None:
                self.bind(one, one.attributes, name, self._default(default, cls, name))

    def _default(self, default: ast.expr, cls: Class, name: str) -> Value:
        """What a field holds that is not given: a literal, or what `field(default_factory=...)` makes."""
        if isinstance(default, ast.Call):
            for keyword in default.keywords:
                value = self.eval(keyword.value, cls.frame)
                if keyword.arg == "default_factory":
                    return self.call(value, default, cls.frame, [], {})
                if keyword.arg == "default":
                    return value
        return cls.frame.names.get(name, EMPTY)

    def library_object(
        self, name: str, roles: frozenset[str], node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords
    ) -> Object:
        """An object of a class of a library."""
        one: Object = self.make(node, lambda n, g: Object(n, g, name=name, roles=roles), name)
        one.source, one.settings = frame.source, frame.settings
        self._given(one, inputs, keywords)
        for key, value in keywords.items() if name in NAMESPACES else ():
            self.bind(one, one.attributes, key, value)
        one.made = self.record(name + ".__init__", node, frame, inputs, keywords, owner=one)
        self.effect("make", one.made)
        return one

    # calling objects

    def call_object(self, one: Object, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        """`model(x)`, between what is run before and behind the passes of a layer."""
        before, behind = (one.attributes.get(("hook", name)) for name in HOOKS)
        if before is not None:
            changed = self._hooked(before, one, node, frame, [self.sequence(node, list(inputs), kind="tuple")])
            inputs = self.parts(changed) or ([changed] if changed != EMPTY else inputs)
        result = self._pass(one, node, frame, inputs, keywords)
        if behind is not None:
            given = self.sequence(node, list(inputs), kind="tuple")
            changed = self._hooked(behind, one, node, frame, [given, result])
            result = changed if changed != EMPTY else result
        return result

    def _hooked(self, hook: Slot, one: Object, node: ast.AST, frame: Frame, given: list[Value]) -> Value:
        """What is to take the place of what a layer is given, or gives."""
        with self.told_apart((node, one)):
            found = self.call(hook.value, node, frame, [thing(one), *given], {})
        return Value(found.operations, frozenset(), found.things)

    def _pass(self, one: Object, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        if one.cls is None:
            return self._call_library_object(one, node, frame, inputs, keywords)
        for name in ("__call__", "forward"):
            found = one.cls.find(name)
            if found is not None and (name == "__call__" or "module" in one.roles):
                for each in found[1].things:
                    if isinstance(each, Function):
                        given = [*inputs] if each.role == "staticmethod" else [thing(one), *inputs]
                        return self.enter(each, node, frame, given, keywords)
        return self._library_pass(one, node, frame, inputs, keywords)

    def _library_pass(self, one: Object, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        """The pass of the class of a library that an object's class derives from."""
        if any(name in CONTAINERS for name in one.library_names):
            return self._in_sequence(one, node, frame, inputs)
        library = next(iter(one.library_names), "object")
        return self.record(library, node, frame, inputs, keywords, owner=one, tag=one)

    def _call_library_object(
        self, one: Object, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords
    ) -> Value:
        short = one.name.rpartition(".")[2]
        inner = one.argument("module", 0)
        if inner is not None and (short in WRAPPING or one.roles & WRAPPED):
            self.effect("wrapped.forward", self.record(f"{one.name}.forward", node, frame, owner=one))
            return self.call(inner, node, frame, inputs, keywords)
        if one.name in CONTAINERS:
            return self._in_sequence(one, node, frame, inputs)
        if short == "Compose" and one.inputs:
            return self._each_in_turn(self.parts(one.inputs[0]), one.inputs[0], node, frame, inputs)
        if "loss" in one.roles:  # which weighs samples or classes
            weights = {"weight": one.argument("weight", 0), "pos_weight": one.argument("pos_weight")}
            told = {name: Value(each.operations) for name, each in weights.items() if each is not None}
            keywords = {**keywords, **{name: each for name, each in told.items() if each.operations}}
        for each in called_by([*one.inputs, *one.keywords.values()]) if not is_module(one) else ():
            if isinstance(self._function_of(each), Function):
                self.call(thing(each), node, frame, [], {"*": self.record("callback", node, frame)})
        return self.record(one.name, node, frame, inputs, keywords, owner=one, tag=one)

    def _in_sequence(self, one: Object, node: ast.AST, frame: Frame, inputs: Row[Value]) -> Value:
        self.read(one)
        return self._each_in_turn(self.layers(one), thing(one), node, frame, inputs)

    def _each_in_turn(
        self, layers: list[Value] | None, held: Value, node: ast.AST, frame: Frame, inputs: Row[Value]
    ) -> Value:
        """Call layers one after the other."""
        value = inputs[0] if inputs else EMPTY
        if layers is None:  # one at least, of a number that is not known
            result = EMPTY
            for _ in range(2):
                result |= self.call(self.element(held, node, frame), node, frame, [value | result], {})
            return result or value
        for number, layer in enumerate(layers):
            with self.told_apart((node, number)):
                value = self.call(layer, node, frame, [value], {})
        return value

    def layers(self, one: Object) -> list[Value] | None:
        """The layers of a container of torch, in order, if they are known."""
        lists = any(each.endswith(".ParameterList") for each in one.library_names)
        added = [
            slot.value
            for key, slot in one.attributes.items()
            if isinstance(key, str) and key not in one.buffers and (lists or not _is_parameter(slot.value))
        ]
        inputs: list[Value] | None = list(one.inputs)
        if len(one.inputs) == 1:
            tables = [each for each in one.inputs[0].things if isinstance(each, Mapping)]
            if tables:
                inputs = [slot.value for slot in tables[0].entries.values()]
            elif any(isinstance(each, Sequence) for each in one.inputs[0].things):
                inputs = self.parts(one.inputs[0])
        unknown = inputs is None or "some" in one.attributes or REST in one.keywords
        return None if unknown else [*(inputs or ()), *added]

    def put_layer(self, one: Object, place: object, value: Value) -> None:
        layers = self.layers(one) if any(name in CONTAINERS for name in one.library_names) else None
        certain = self.guards == one.guards and len(one.inputs) == len(layers or ())
        if layers and certain and isinstance(place, int) and -len(layers) <= place < len(layers):
            layers[place] = value
            one.inputs, one.version = tuple(layers), one.version + 1

    def element_of(self, one: Any, node: ast.AST, frame: Frame) -> Value:
        if isinstance(one, Object) and any(name in CONTAINERS for name in one.library_names):
            self.read(one)
            layers = self.layers(one)
            more = one.attributes["some"].value if "some" in one.attributes else EMPTY
            more |= one.keywords.get(REST, EMPTY)
            if layers is None:  # lists of them, or each for itself: `nn.Sequential(*layers, nn.Linear(4, 1))`
                alone = [any(isinstance(t, Object) for t in each.things) for each in one.inputs]
                given = zip(one.inputs, alone, strict=True)
                return more | joined(each if is_one else self.element(each, node, frame) for each, is_one in given)
            return joined(layers) | more
        if isinstance(one, Method) and isinstance(one.owner, Object) and isinstance(one.function, str):
            return self.element(self._held(one.owner, one.function, node, frame), node, frame)  # `list(vgg.features)`
        return super().element_of(one, node, frame)

    def parts(self, value: Value) -> list[Value] | None:
        if len(value.things) == 1 and not (value.operations or value.constants):
            (one,) = value.things
            if isinstance(one, Object) and any(name in CONTAINERS for name in one.library_names):
                self.read(one)
                return self.layers(one)
            if isinstance(one, Object) and (fields := self._named_fields(one)) is not None:
                return fields
        return super().parts(value)

    def _named_fields(self, one: Object) -> list[Value] | None:
        """What a named tuple holds."""
        named = one.cls is not None and "typing.NamedTuple" in one.cls.libraries
        return [self.current(slot.value) for slot in one.attributes.values()] if named else None

    def item_of_object(self, one: Object, key: Value, node: ast.AST, frame: Frame) -> Value:
        self.read(one)
        entry = one.attributes.get(("entry", key.constant))
        if entry is not None:
            return entry.value
        if one.cls is None and not one.roles and (field := self.field_of(one, key.constant)) is not None:
            return field
        if (fields := self._named_fields(one)) is not None and type(key.constant) is int and key.constant < len(fields):
            return fields[key.constant]
        if any(name in CONTAINERS for name in one.library_names):
            layers, place = self.layers(one), key.constant
            table = [each for value in one.inputs for each in value.things if isinstance(each, Mapping)]
            if table and isinstance(place, str):
                return self.entry(table[0], key, node, frame)
            if layers is not None and type(place) is int and -len(layers) <= place < len(layers):
                return layers[place]
            return self.element_of(one, node, frame)
        return super().item_of_object(one, key, node, frame)

    # methods of libraries

    def object_method(
        self, one: Object, name: str, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords
    ) -> Value:
        if is_module(one):
            known = self._module_method(one, name, node, frame, inputs, keywords)
            if known is not None:
                return known
        names = one.library_names
        if name == "_asdict":
            return self.make_mapping_of(one, node)
        if name == "__setitem__" and len(inputs) == 2:
            self.bind(one, one.attributes, ("entry", inputs[0].constant), inputs[1])
        if name in ("__iter__", "__next__"):
            return self.element_of(one, node, frame) if name == "__next__" else self.stream_of(one, node, frame)
        if "optimizer" in one.roles and name == "step" and (inputs or "closure" in keywords):
            closure = keywords.get("closure", joined(inputs[:1]))
            with self.within("loop", node, frame):  # as often as it sees fit, and outside of any other loop, maybe
                loss = self.call(closure, node, frame, [], {})
            if one.cls is not None or not one.name.startswith("torch.optim.") or one.name.endswith("LBFGS"):
                self.answered([closure])  # by which it decides how far it steps
            self._note_method(one, name, self.record(f"{names[0]}.step", node, frame, inputs, keywords, owner=one))
            return loss
        one.settings = frame.settings if name == "__init__" else one.settings
        if one.name.endswith("FunctionCtx"):
            if name == "save_for_backward":
                self.bind(one, one.attributes, "saved_tensors", self.sequence(node, inputs, kind="tuple"))
            return constant(None)
        self.callbacks(node, frame, [*inputs, *keywords.values()])
        result = self.record(f"{names[0] if names else 'object'}.{name}", node, frame, inputs, keywords, owner=one)
        self._note_method(one, name, result)
        return result

    def answered(self, called: Row[Value]) -> None:
        """Note what functions return that an optimizer calls, which decides by it how far it steps, or a search."""
        for each in (each for value in called for each in value.things):
            function = self._function_of(each)
            if not isinstance(function, Function):
                continue
            left = all_of(function.node, ast.Return)
            for end in [function.node] if isinstance(function.node, ast.Lambda) else left:
                value = end.body if isinstance(end, ast.Lambda) else end.value
                if value is not None:
                    self.effect("closure", self.record("closure", end, function.frame, [self.program.at(value)]))

    def _function_of(self, called: Any) -> Any:
        """The function of a method, or that an object is called by: `study.optimize(Objective(data))`."""
        if isinstance(called, Object) and called.cls is not None and "module" not in called.roles:
            found = called.cls.find("__call__")
            return next(iter(found[1].things), None) if found is not None else None
        if isinstance(called, Partial):
            return next((self._function_of(each) for each in called.function.things), None)
        return called.function if isinstance(called, Method) else called

    def stream_of(self, one: Object, node: ast.AST, frame: Frame) -> Value:
        """`iter(loader)`"""
        raise NotImplementedError

    def callbacks(self, node: ast.AST, frame: Frame, given: Row[Value]) -> None:
        """Run the functions that a library is given to call: of their arguments nothing is known."""
        for value in given:
            for each in value.things:
                function = self._function_of(each)
                if isinstance(function, Function) and function.node not in self.entered:
                    self.call(thing(each), node, frame, [], {"*": self.record("callback", node, frame)})

    def _note_method(self, one: Object, name: str, result: Value) -> None:
        """Note what a method of an object of a library does, by what the object is."""
        for role in sorted(one.roles):
            self.effect(f"{role}.{name}", result)
        for library in one.library_names:
            for role in sorted(self.catalog.roles(f"{library}.{name}")):
                self.effect(role, result)

    def _module_method(
        self, one: Object, name: str, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords
    ) -> Value | None:
        """The methods that torch gives every module."""
        if name in ("__init__", "super"):
            self._given(one, inputs, keywords)
            return constant(None)
        if name == PASSES["forward"] or name == PASSES["__call__"] and one.cls and not one.cls.find("forward"):
            return self._library_pass(one, node, frame, inputs, keywords)
        if name == PASSES["__call__"]:
            return self.call(self.attribute(thing(one), "forward", node, frame), node, frame, inputs, keywords)
        if name == "forward":
            return self.call_object(one, node, frame, inputs, keywords)
        self.told_to_evaluate |= name == "eval" or name == "train" and bool(inputs)
        if name in ITSELF:
            self.effect("module." + name, self.record(f"{MODULE}.{name}", node, frame, inputs, keywords, owner=one))
            return thing(one)
        if name in ("append", "add_module", "register_module", "insert") and inputs:
            key = (
                inputs[0].constant
                if len(inputs) > 1
                else f"#{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}"
            )
            certain = self.guards == one.guards and isinstance(key, str)
            self.bind(one, one.attributes, key if certain else "some", inputs[-1] | self._some(one, certain))
            return thing(one)
        if name in ("extend", "update") and inputs:
            self.bind(one, one.attributes, "some", self._some(one, False) | self.element(inputs[0], node, frame))
            return thing(one)
        if name in ("register_buffer", "register_parameter") and len(inputs) > 1:
            self.bind(one, one.attributes, inputs[0].constant or "buffer", inputs[1])
            one.buffers |= {inputs[0].constant or "buffer"} if name == "register_buffer" else set()
            return constant(None)
        if name in GRADIENT_HOOKS:
            self.hooked(one, thing(one), node, frame, inputs)
        if name in HOOKS and inputs:
            before = one.attributes.get(("hook", name))
            self.bind(one, one.attributes, ("hook", name), inputs[0] | (before.value if before is not None else EMPTY))
            return self.record(f"{MODULE}.{name}", node, frame, inputs, keywords, owner=one)
        if name == "children" and one.cls is not None and all(e.guards == one.guards for e in one.attributes.values()):
            return self.sequence(node, self.parts_of(one, deep=False))
        if name in ("children", "modules", "values") or name.startswith("named_") and name not in PARAMETERS:
            inner = joined(self.parts_of(one, name in ("modules", "named_modules")))
            if not inner and one.cls is None and one.name not in CONTAINERS:  # a library's model
                inner = self._held(one, name, node, frame)
            if name.startswith("named_"):
                inner = self._pair(node, self.record(f"{MODULE}.{name}", node, frame, owner=one), inner, "named")
            return self.sequence(node, None, inner)
        if name == "items":
            return self.sequence(node, None, self._pair(node, EMPTY, self.element_of(one, node, frame), "item"))
        if name in PARAMETERS:
            found = self.record(f"{MODULE}.{name}", node, frame, [thing(one)], owner=one)
            return found
        return None

    def _some(self, one: Object, certain: bool) -> Value:
        held = one.attributes.get("some")
        return held.value if held is not None and not certain else EMPTY

    def parts_of(self, one: Object, deep: bool = True) -> list[Value]:
        """The modules within a module: itself and all, or those right below it."""
        found: dict[Object, None] = {one: None} if deep else {}
        pending = [one]
        while pending:
            each = pending.pop()
            self.read(each)
            for value in (*each.contents(), *each.inputs):
                for inner in ordered_modules(value):
                    if inner not in found and inner is not one:
                        found[inner] = None
                        pending += [inner] if deep else []
        return [thing(each) for each in found]

    def _static(
        self, cls: Class, name: str, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords
    ) -> Value:
        found = cls.find(name)
        functions = (each for each in (found[1].things if found is not None else ()) if isinstance(each, Function))
        return joined(self.enter(each, node, frame, inputs, keywords) for each in functions)

    def class_method(
        self, cls: Class, name: str, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords
    ) -> Value:
        if name == "apply" and not FUNCTIONS.isdisjoint(cls.libraries):
            ctx = Object(node, self.guards, name="torch.autograd.function.FunctionCtx")
            ctx = self.make(node, lambda n, g: ctx, "ctx")
            with self.within("with", node, frame, thing(External(FUNCTION))):  # whose gradients are those of `backward`
                result = self._static(cls, "forward", node, frame, [thing(ctx), *inputs], keywords)
            apart, own = self.told_apart((node, "backward")), thing(External(FUNCTION)) | thing(
                External("torch.no_grad")
            )
            with apart, self.within("with", node, frame, own):
                gradient = self.record(GRADIENT, node, frame, [result])
                back = self._static(cls, "backward", node, frame, [thing(ctx), gradient], {})
            gradients = Value(back.operations | {op for each in back.things for op in held(thing(each))})
            return result if result.things else self.record(FUNCTION, node, frame, [result, gradients])
        if name in ("from_pretrained", "from_config"):
            return self.instantiate(cls, node, frame, inputs[:1], {})
        return self.record(f"{next(iter(cls.libraries), 'object')}.{name}", node, frame, inputs, keywords)


def called_by(given: Iterable[Value]) -> list[Any]:
    """What a library may call of what it is given, itself or in lists."""
    found: dict[Any, None] = {}
    pending = [*given]
    while pending:
        for each in ordered(pending.pop(0).things):
            if isinstance(each, (Sequence, Mapping)) and each not in found:
                pending += each.contents()
            found[each] = None
    return [each for each in found if isinstance(each, (Function, Method, Object, Partial))]


def ordered_modules(value: Value) -> list[Object]:
    """The modules that a value may be, or holds."""
    found: dict[Object, None] = {}
    pending, seen = [value], set()
    while pending:
        for each in pending.pop().things:
            if isinstance(each, Object) and "module" in each.roles:
                found[each] = None
            elif isinstance(each, (Sequence, Mapping)) and each not in seen:
                seen.add(each)
                pending.extend(each.contents())
            elif isinstance(each, Method) and isinstance(each.owner, Object) and "module" in each.owner.roles:
                found[each.owner] = None
    return list(found)


def is_module(one: Object) -> bool:
    """Whether it is a module of torch, or wraps one."""
    return bool(one.roles & ({"module", "loss"} | WRAPPED)) or one.name.rpartition(".")[2] in WRAPPING


def is_class_like(name: str) -> bool:
    """Whether a name of a library is that of a class: `Tokenizer`, not `tokenize`, nor `Get_rank` of MPI, nor that of a
    kind of numbers."""
    short = name.rpartition(".")[2]
    return (
        name not in NUMBERS
        and short[:1].isupper()
        and not short.isupper()
        and not ("_" in short and short[1:].islower())
    )


def _is_parameter(value: Value) -> bool:
    """What `register_parameter` gives a module beside its layers."""
    return bool(value.operations) and all(each.name.endswith(".Parameter") for each in value.operations)
