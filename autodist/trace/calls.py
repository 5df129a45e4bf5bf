"""Calls: of functions and classes of the project, and of whatever else can be called."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from collections.abc import Mapping as Map
from collections.abc import Sequence as Row
from dataclasses import replace
from typing import Any

from autodist.program import EMPTY, HOOKED, Region, Value, constant, joined
from autodist.source import is_generator
from autodist.trace.attributes import Attributes, Super, ordered
from autodist.trace.machine import Context, Ending
from autodist.trace.names import thing
from autodist.trace.taking import TAKING, is_listed, taken_from
from autodist.trace.things import (
    Class,
    Definition,
    External,
    Frame,
    Function,
    Guards,
    Mapping,
    Method,
    Object,
    Partial,
    Sequence,
    Stream,
    keyed,
)

REST, NAMED_REST = "*", "**"
"""Under these names stands what a call unpacks of which it is not known how much it is."""
MOST_CONTEXTS = 48
"""A function that is called in more ways is read for the others together."""
MOST_OF_DATA, LARGE = 12, 10_000
"""The same of one that computes with no layers, as what reads or augments data, once there are so many operations."""
DEEPEST = 60
MOST_AT_ONCE = 2
"""So often a function is followed into itself."""

GRADIENT_HOOKS = frozenset(
    "register_hook register_post_accumulate_grad_hook register_full_backward_hook register_backward_hook "
    "register_full_backward_pre_hook".split()
)
"""Methods of tensors and modules that take a function which a backward pass calls."""

Keywords = Map[str, Value]


def _having(name: str, base: Value) -> list[Any]:
    """The things whose method is called: where some models of the project define it, no models that do not."""
    things = ordered(base.things)
    own = {each: each.cls for each in things if isinstance(each, Object) and each.cls and "module" in each.roles}
    defined = {each: name in each.attributes or cls.find(name) is not None for each, cls in own.items()}
    return [each for each in things if defined.get(each, True)] if any(defined.values()) else things


def _takes(called: Any, inputs: Row[Value], keywords: Keywords) -> bool:
    """Whether a function or a class of the project takes such a call: of several that may stand in one place, `kinds[
    kind](model, train, test)`, others are not meant."""
    made = called.find("__init__") if isinstance(called, Class) else None
    functions = made[1].things if made is not None else [called]
    specs = [each.node.args for each in functions if isinstance(each, Function)]
    if len(specs) != 1 or REST in keywords or NAMED_REST in keywords:
        return True
    spec, number = specs[0], len(inputs) + (made is not None)
    names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    known = {*names[number:], *(each.arg for each in spec.kwonlyargs)}
    if number > len(names) and spec.vararg is None or not (spec.kwarg is not None or keywords.keys() <= known):
        return False
    return keywords.keys() >= {*names[number : len(names) - len(spec.defaults)]}


class Calls(Attributes):
    """Call expressions."""

    def of_Call(self, node: ast.Call, frame: Frame) -> Value:
        self.tick()
        func = node.func
        if isinstance(func, ast.Name) and func.id == "super" and frame.find("super") is None:
            return self._super(node, frame)
        if not isinstance(func, ast.Attribute):
            callee = self.eval(func, frame)
            inputs, keywords = self._arguments(node, frame)
            return self.call(callee, node, frame, inputs, keywords)
        base = self.eval(func.value, frame)
        callee = joined(self.attribute_of(each, func.attr, func, frame) for each in _having(func.attr, base))
        self.program.values[func] = self.program.at(func) | callee
        inputs, keywords = self._arguments(node, frame)
        result = self.call(callee, node, frame, inputs, keywords)
        if base.operations or base.constants and not base.things:
            result |= self.method_of_result(base, func.attr, node, frame, inputs, keywords)
        return result

    def method_of_result(
        self, base: Value, name: str, node: ast.Call, frame: Frame, inputs: Row[Value], keywords: Keywords
    ) -> Value:
        """A method of a tensor, a text, or of whatever an operation gives."""
        given = replace(base, things=frozenset())
        if not base.operations:
            return self.record(f"builtins.str.{name}", node, frame, [given, *inputs], keywords)
        stored, surely = self.set_on(base, name)
        found = self.call(stored, node, frame, inputs, keywords) if stored is not EMPTY else EMPTY
        if surely:
            return found
        if not any(each.is_tensor for each in base.operations):
            self.callbacks(node, frame, [*inputs, *keywords.values()])
            if name == "optimize":  # of a study, which chooses the next trial by what a function returns
                self.answered([*inputs, *keywords.values()])
        if name in GRADIENT_HOOKS:
            self.hooked(None, given, node, frame, inputs)
        if name in TAKING and all(map(is_listed, base.operations)):
            return self._taken(name, given, node, frame, inputs)
        qualified = self.method_name(base, name)
        result = self.record(qualified, node, frame, [given, *inputs], keywords) | found
        if name == "backward":
            self.effect("backward", result)
        if name.endswith("_") and not name.endswith("__"):  # in place
            self.change_viewed(given, result, node, frame)
            home = node.func.value if isinstance(node.func, ast.Attribute) else None
            if isinstance(home, (ast.Name, ast.Attribute)):
                self.assign(home, result | Value(constants=base.constants, things=base.things), frame)
        return result

    def _taken(self, name: str, listed: Value, node: ast.Call, frame: Frame, inputs: Row[Value]) -> Value:
        """What is taken out of a list of a tensor's rows, `list(x).pop()`: in a loop that goes on while it has some,
        one after the other. Elsewhere some of them are left."""
        loop = next((each for each in reversed(self.guards) if each.kind == "loop"), None)
        if loop is not None and isinstance(loop.node, ast.While):
            return self.record("iterate", node, frame, [listed])
        found = self.record("getitem", node, frame, [listed, inputs[0] if inputs else constant(-1)])
        if isinstance(node.func, ast.Attribute):
            self.take_from(node.func.value, listed, name == "pop" and not inputs, node.func, frame)
        return found if name.startswith("pop") else constant(None)

    def taken_in(self, body: list[ast.stmt]) -> Value:
        """The lists out of which some code takes elements, and fails where they are empty."""
        return joined(map(self.program.at, taken_from(body)))

    def delete_entry(self, node: ast.expr, frame: Frame) -> None:
        """`del rows[0]`"""
        if not isinstance(node, ast.Subscript):
            return
        found = self.eval(node.value, frame)
        for each in found.things:
            if isinstance(each, Sequence):
                self.take_out(each, "delitem")
        if all(map(is_listed, found.operations)):
            self.take_from(node.value, found.results, False, node, frame)

    def take_from(self, home: ast.expr, listed: Value, last: bool, node: ast.AST, frame: Frame) -> None:
        """Have a name stand for what is left in a list of a tensor's rows, without its last one or another."""
        if isinstance(home, (ast.Name, ast.Attribute)) and listed.operations:
            bounds = [constant(each) for each in ((None, -1, None) if last else (1, None, None))]
            cut = self.record("builtins.slice", node, frame, bounds)
            self.assign(home, self.record("getitem", node, frame, [listed, cut], tag="rest"), frame)

    def hooked(self, module: Object | None, base: Value, node: ast.AST, frame: Frame, inputs: Row[Value]) -> None:
        """Run a function that a backward pass calls with a gradient, of which it may give another."""
        gradient = self.record(HOOKED, node, frame, [base], owner=module)
        given = [base, gradient, gradient] if module is not None else [gradient]
        with self.within("hook", node, frame):
            back = self.call(joined(inputs[:1]), node, frame, given, {})
        self.effect("gradient_hook", self.record("gradient_hook", node, frame, [gradient, back]))

    def _arguments(self, node: ast.Call, frame: Frame) -> tuple[list[Value], dict[str, Value]]:
        inputs: list[Value] = []
        keywords: dict[str, Value] = {}
        for each in node.args:
            if not isinstance(each, ast.Starred):
                inputs.append(self.eval(each, frame))
                continue
            value = self.eval(each.value, frame)
            parts = self.parts(value)
            if parts is not None:
                inputs += parts
            else:
                keywords[REST] = keywords.get(REST, EMPTY) | self.element(value, each, frame)
        for keyword in node.keywords:
            value = self.eval(keyword.value, frame)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
                continue
            for one in value.things:
                if isinstance(one, Mapping):
                    self.read(one)
                    keywords |= {key: slot.value for key, slot in one.entries.items() if isinstance(key, str)}
                    if one.anywhere is not EMPTY:
                        keywords[NAMED_REST] = keywords.get(NAMED_REST, EMPTY) | one.anywhere
            if value.operations:
                rest = self.record("getitem", keyword.value, frame, [value.results], tag=NAMED_REST)
                keywords[NAMED_REST] = keywords.get(NAMED_REST, EMPTY) | rest
        return inputs, keywords

    def _super(self, node: ast.Call, frame: Frame) -> Value:
        """`super()`, `super(Net, self)`"""
        given = [self.eval(each, frame) for each in node.args]
        function = self.context.function
        cls = function.defined_in if function is not None else None
        owners = self.context.arguments[0].things if self.context.arguments else frozenset()
        if len(given) == 2:
            owners = given[1].things
            cls = next((each for each in given[0].things if isinstance(each, Class)), cls)
        if cls is None:
            return EMPTY
        return Value(things=frozenset(Super(each, cls) for each in owners if isinstance(each, (Object, Class))))

    def call(self, callee: Value, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        """What a call gives, of whatever is called."""
        result, several = EMPTY, ordered(callee.things)
        for each in [each for each in several if _takes(each, inputs, keywords)] or several:
            result |= self._call_one(each, node, frame, inputs, keywords)
        if callee.operations:
            result |= self.record("call", node, frame, [callee.results, *inputs], keywords)
        return result

    def _call_one(self, one: Any, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        if isinstance(one, Function):
            return self.enter(one, node, frame, inputs, keywords)
        if isinstance(one, Method):
            return self._method(one, node, frame, inputs, keywords)
        if isinstance(one, Class):
            return self.instantiate(one, node, frame, inputs, keywords)
        if isinstance(one, External):
            return self.library_call(one.name, node, frame, inputs, keywords)
        if isinstance(one, Partial):
            merged = {**one.keywords, **keywords}
            return self.call(one.function, node, frame, [*one.inputs, *inputs], merged)
        if isinstance(one, Object):
            return self.call_object(one, node, frame, inputs, keywords)
        return EMPTY

    def _method(self, one: Method, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        if isinstance(one.function, Function):
            return self.enter(one.function, node, frame, [thing(one.owner), *inputs], keywords)
        if isinstance(one.owner, (Sequence, Mapping)):
            return self.container_method(one.owner, one.function, node, frame, inputs, keywords)
        if isinstance(one.owner, Stream):
            return self.element(thing(one.owner), node, frame)
        if isinstance(one.owner, Class):
            return self.class_method(one.owner, one.function, node, frame, inputs, keywords)
        return self.object_method(one.owner, one.function, node, frame, inputs, keywords)

    # functions of the project

    def enter(self, function: Function, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        """Run a function of the project, unless it was run with the same arguments."""
        names = self._bind(function, inputs, keywords)
        arguments = tuple(names.values())
        context = self._context(function, node, arguments)
        if context is None:
            return self.record("recursion", node, frame, [*inputs, *keywords.values()])
        grown = tuple(a | b for a, b in zip(context.arguments, arguments, strict=True))
        same = all(a is b or a == b for a, b in zip(grown, context.arguments, strict=True))
        if not (same and context.is_current()):
            context.arguments = grown
            self._run(function, context, node, frame, dict(zip(names, grown, strict=True)))
        elif context.region is not None:
            self.come_to(context.region)
        self.take_over(context)
        return context.result

    def _context(self, function: Function, node: ast.AST, arguments: tuple[Value, ...]) -> Context | None:
        """The context in which a function is run for a call."""
        key = node, function
        found = self.context.called.get(key)
        several, loops = self.contexts.setdefault(function.node, []), _loops(self.guards)
        tensors = any(op.is_tensor for each in arguments for op in each.operations)
        if found is None and not (tensors and loops):  # of data that all steps have, one call may take a rank's share
            alike = (each for each in self._as_quiet(function, several) if each.arguments == arguments)
            alike = (each for each in alike if _loops(each.guards) == loops)
            found = next((each for each in alike if each.is_current()), None)
        if found is None:
            depth = sum(1 for each in several if each.active)
            most = MOST_AT_ONCE if self.entered_again < MOST_CONTEXTS else 1
            if depth >= most or len(self.endings) > DEEPEST:
                return None
            layers = self._takes_layers(arguments)
            most_contexts = MOST_CONTEXTS if layers or len(self.program.operations) < LARGE else MOST_OF_DATA
            found = self._shared(function, several) if len(several) >= most_contexts else None
            if found is None:
                found = Context(function, self.context, arguments, takes_layers=layers)
                several.append(found)
                self.entered_again += bool(depth)
        if found.active:
            return None
        self.context.called[key] = found
        return found

    def _takes_layers(self, arguments: Row[Value]) -> bool:
        """Whether a function is given a model or a layer, or is called by what is."""
        given = (each for value in arguments for each in value.things)
        return self.context.takes_layers or any("module" in getattr(each, "roles", ()) for each in given)

    def _shared(self, function: Function, several: Row[Context]) -> Context | None:
        """The context for all further calls of a function: one for steps, and one for what keeps no gradients."""
        return next(self._as_quiet(function, several[::-1]), None)

    def _as_quiet(self, function: Function, several: Row[Context]) -> Iterator[Context]:
        """The contexts that keep gradients if a call does that is met here, or none as that does."""
        quiet = self.region.without_gradients or function.role == "no_grad"
        return (each for each in several if each.region and each.region.without_gradients == quiet)

    def _run(self, function: Function, context: Context, node: ast.AST, frame: Frame, names: dict[str, Value]) -> None:
        inner = Frame(function.frame.source, function.frame, names, guards=self.guards)
        ending = Ending()
        outer, self.context = self.context, context
        context.active, context.reads, context.writes, context.guards = True, {}, set(), self.guards
        self.entered.add(function.node)
        self.endings.append(ending)
        quiet = thing(External("torch.no_grad")) if function.role == "no_grad" else EMPTY
        try:
            with self.within("with" if quiet else "call", node, frame, quiet) as region:
                context.region, region.function, region.inputs = region, function.node, context.arguments
                self.program.entered[region] = inner.source
                result = self._body(function.node, inner, ending)
        finally:
            self.endings.pop()
            self.context, context.active = outer, False
        context.result = context.result | result
        context.done = True

    def _body(self, definition: Definition, inner: Frame, ending: Ending) -> Value:
        if isinstance(definition, ast.Lambda):
            return self.eval(definition.body, inner)
        falls = self.block(definition.body, inner)
        result = joined(ending.returned)
        if is_generator(definition):
            element = joined(ending.yielded)
            made: Stream = self.make(definition, Stream)
            made.version += made.element != made.element | element
            made.element |= element
            return thing(made)
        return result | constant(None) if falls else result

    def _bind(self, function: Function, inputs: Row[Value], keywords: Keywords) -> dict[str, Value]:
        """What the parameters of a function stand for in a call."""
        spec = function.node.args
        placed = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        defaults = dict(zip(reversed(placed), reversed(spec.defaults), strict=False))
        defaults |= {k.arg: d for k, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if d is not None}
        rest = keywords.get(REST, EMPTY) | keywords.get(NAMED_REST, EMPTY)
        given = dict(keywords)
        names: dict[str, Value] = {}
        for place, name in enumerate([*placed, *(each.arg for each in spec.kwonlyargs)]):
            if place < len(inputs) and place < len(placed):
                names[name] = inputs[place]
            elif name in given:
                names[name] = given.pop(name)
            elif name in defaults:
                default = defaults[name]
                names[name] = (function.made.get(default) or self.eval(default, function.frame)) | rest
            else:
                names[name] = rest
        if spec.vararg is not None:
            more, unknown = list(inputs[len(placed) :]), keywords.get(REST)
            parts = more if unknown is None else None
            made = Sequence(spec.vararg, self.guards, kind="tuple", parts=parts)
            made.anywhere = EMPTY if unknown is None else unknown | joined(more)
            names[spec.vararg.arg] = self._known(spec.vararg, made)
        if spec.kwarg is not None:
            entries = {key: value for key, value in given.items() if key not in (REST, NAMED_REST)}
            table = Mapping(spec.kwarg, self.guards, entries=keyed(entries, self.guards))
            table.anywhere = keywords.get(NAMED_REST, EMPTY)
            names[spec.kwarg.arg] = self._known(spec.kwarg, table)
        return names

    def _known(self, node: ast.AST, made: Sequence | Mapping) -> Value:
        """The same tuple or dict as before, where the same is unpacked into it: so that calls can be told alike."""
        names = made.parts is None if isinstance(made, Sequence) else tuple(made.entries)
        known = self.rests.setdefault((node, names, *(each.anew for each in made.contents())), made)
        if isinstance(made, Sequence) and isinstance(known, Sequence) and made.parts and known.parts:
            known.parts = [one | other for one, other in zip(known.parts, made.parts, strict=True)]
        for name, slot in known.slots.items():
            if name in made.slots:  # and none that the function has put into it
                slot.value |= made.slots[name].value
        return thing(known)

    # what layers above make of it

    @property
    def rests(self) -> dict[Any, Sequence | Mapping]:
        """What `*values` and `**options` have stood for."""
        return self._rests

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._rests: dict[Any, Sequence | Mapping] = {}

    def instantiate(self, cls: Class, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        """An object of a class of the project."""
        raise NotImplementedError

    def library_call(self, name: str, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        """A call of a function or class of a library."""
        raise NotImplementedError

    def call_object(self, one: Object, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords) -> Value:
        """`model(x)`"""
        raise NotImplementedError

    def object_method(
        self, one: Object, name: str, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords
    ) -> Value:
        """A method that a class of a library defines."""
        raise NotImplementedError

    def answered(self, called: Row[Value]) -> None:
        """Note what functions return that an optimizer calls, or a search."""
        raise NotImplementedError

    def callbacks(self, node: ast.AST, frame: Frame, given: Row[Value]) -> None:
        """Run the functions that a library is given to call: of their arguments nothing is known."""
        raise NotImplementedError

    def class_method(
        self, cls: Class, name: str, node: ast.AST, frame: Frame, inputs: Row[Value], keywords: Keywords
    ) -> Value:
        """A method that a library's class gives a class of the project: `Function.apply`."""
        raise NotImplementedError


def _loops(guards: Guards) -> list[Region]:
    """The loops among the regions around a place: what they run is seen apart from what is run once."""
    return [each for each in guards if each.kind == "loop"]
