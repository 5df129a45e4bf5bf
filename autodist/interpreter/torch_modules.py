"""Calls of modules of torch, and their methods."""

from __future__ import annotations

import ast

from autodist import tensors
from autodist.interpreter.questions import in_order, pass_of
from autodist.interpreter.stores import Stores
from autodist.interpreter.subscripts import Subscripts
from autodist.interpreter.words import DRAWING, KEPT, MOVES, REMAKES, RETURNS_SELF, SIZES
from autodist.spread import LOCAL
from autodist.values import (
    NOTHING,
    Class,
    External,
    Function,
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

# what can be asked of DistributedDataParallel as of the model in it
SAFE_ON_WRAPPER = frozenset(
    (
        "train eval parameters zero_grad requires_grad_ no_sync module forward training apply modules join to cuda cpu"
    ).split()
)
DETECTING = ("pictures", "boxes")
"""Models whose losses are these, in the catalogue, hand out a dict of them."""


class TorchModules(Subscripts, Stores):
    """What is done with modules."""

    def _module_call(
        self, thing: Wrapped | Object, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        inner = thing.module if isinstance(thing, Wrapped) else thing
        values = [*args, *keywords.values()]
        if not isinstance(inner, Object):
            return self._mixed(values)
        if "loss" in inner.roles and inner.cls is None:
            return self._library_pass(inner, node, args, keywords, scope)
        outermost = self._forward == 0
        if outermost:
            given = self._mixed(values)
            self.event("forward", node, scope, of(thing), given)
            if inner.key not in self._evaluated:
                self.event("training_forward", node, scope, of(thing), given)
        self._forward += 1
        self._passing = inner if outermost else self._passing
        args = self._before_pass(inner, node, args, scope)
        method = pass_of(inner)
        if method is not None:
            result = self.method(inner, method, node, args, keywords, scope)
        elif inner.cls is not None:
            result = self._inherited_pass(inner, inner.cls, node, args, keywords, scope)
        else:
            result = self._library_pass(inner, node, args, keywords, scope)
        result = self._after_pass(inner, node, args, result, scope)
        self._forward -= 1
        return result

    def _before_pass(self, module: Object, node: ast.Call, args: list[Value], scope: Scope) -> list[Value]:
        """What a module is given, after the hooks that are run before it."""
        for hook in self._hooks.get((module, "register_forward_pre_hook"), ()):
            answer = self._hooked(hook, [of(module), of(Items(node, args, NOTHING))], scope)
            parts = [part for thing in answer.things if isinstance(thing, Items) for part in thing.parts]
            args = parts or ([answer] if answer.spread.is_local else args)
        return args

    def _after_pass(self, module: Object, node: ast.Call, args: list[Value], result: Value, scope: Scope) -> Value:
        """What a module gives, after the hooks that are run behind it."""
        for hook in self._hooks.get((module, "register_forward_hook"), ()):
            answer = self._hooked(hook, [of(module), of(Items(node, args, NOTHING)), result], scope)
            result = answer if answer.spread.is_local or answer.things else result
        return result

    def _hooked(self, hook: Value, given: list[Value], scope: Scope) -> Value:
        return union(self.call_function(each, None, given, {}, scope) for each in hook.functions)

    def _normalises(self, layer: Object, node: ast.Call, values: list[Value], scope: Scope) -> None:
        """Note that a layer takes statistics over rows."""
        if "batch_norm" in layer.roles and values and node.args and self._no_grad == 0:
            if values[0].spread.is_local:
                self.event("normalises_rows", node, scope, values[0])

    def _library_pass(
        self, layer: Object, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        """What a layer or a loss of torch makes of what it is given."""
        values = [*args, *keywords.values()]
        if "loss" in layer.roles and layer.cls is None:
            return self._mixed(values)
        result = self._mixed(values)
        if len(values) > 1 and result.spread.is_local and self.catalog.own_loss(layer.name) in DETECTING:
            return self._losses_by_name(layer, node, result, scope)
        if len(values) == 1 and _is_sequence(layer):
            result = self._through_sequence(layer, node, values[0], scope)
        elif layer.args and "module" in layer.roles:
            self._enter_children(layer, node, args, scope)
        several = layer.kind in tensors.RECURRENT or layer.kind == "MultiheadAttention"
        return self._pair(layer, node, result) if several and values and result.spread.is_local else result

    def _losses_by_name(self, layer: Object, node: ast.Call, given: Value, scope: Scope) -> Value:
        """The dict of losses that a detector hands out when it is given targets, in place of what it has found."""
        if self.catalog.own_loss(layer.name) == "boxes" and not self._no_grad:
            self.event("own_loss", node, scope, of(layer))
        found = self._remember(node, lambda: Table(node, {}, NOTHING), ("losses", layer.key))
        found.element = given.but(things=frozenset()).computed(LOCAL)
        return of(found)

    def _pair(self, layer: Object, node: ast.Call, output: Value) -> Value:
        """What a recurrent layer gives, with its state, or attention, with its weights."""
        other = output
        if layer.name.endswith("LSTM"):
            state = self._remember(node, lambda: Items(node, [], NOTHING), ("state", layer.key))
            state.parts = [other, other]
            other = of(state)
        pair = self._remember(node, lambda: Items(node, [], NOTHING), ("pair", layer.key))
        pair.parts = [output, other]
        return of(pair)

    def _through_sequence(self, sequence: Object, node: ast.Call, given: Value, scope: Scope) -> Value:
        """What the layers of a sequence make of what it is given, one after the other."""
        value = given
        begun, _ = self._begun.get(sequence, ([], {}))  # `super().__init__(nn.ReLU(), Block())`
        for child in [*(each for each in begun if self._modules_in(each)), *self._children(sequence)]:
            layers = [t for t in in_order(child.things) if isinstance(t, Object)]
            outputs = [self._through_one(each, node, value, scope) for each in layers]
            value = union(outputs) if outputs else value
        return value if value is not given else self._mixed([given])

    def _through_one(self, layer: Object, node: ast.Call, given: Value, scope: Scope) -> Value:
        given = self._before_pass(layer, node, [given], scope)[0]
        return self._after_pass(layer, node, [given], self._through_layer(layer, node, given, scope), scope)

    def _through_layer(self, layer: Object, node: ast.Call, given: Value, scope: Scope) -> Value:
        if layer.cls is None or not layer.cls.find("forward"):
            return self._library_pass(layer, node, [given], {}, scope)
        output = self.method(layer, "forward", node, [given], {}, scope)
        followed = output.spread.is_local or not given.spread.is_local or output.things
        return output if followed else self._mixed([given])

    def _enter_children(self, module: Object, node: ast.Call, args: list[Value], scope: Scope) -> None:
        """Run the project's own layers inside a Sequential, for what they draw or write."""
        for child in self._children(module):
            for thing in child.things:
                if isinstance(thing, Object) and thing.cls is not None and thing.cls.find("forward"):
                    self.method(thing, "forward", node, args, {}, scope)

    def _inside_method(self, inside: Inside, node: ast.Call, name: str, args: list[Value], scope: Scope) -> Value:
        """A method of some part of a module, or of what is in it."""
        module = inside.module
        if name in ("parameters", "named_parameters"):
            return of(Parameters(module, name == "named_parameters"))
        if name in ("named_children", "named_modules"):
            return self._named_parts(node, of(inside))
        if name in ("children", "modules"):
            return of(Stream(of(inside), NOTHING))
        if name == "requires_grad_":
            self.event("freeze", node, scope, of(module))
        if name in DRAWING or name == "reset_parameters":
            self.event("draw_parameters", node, scope, of(module))
        if name in SIZES or name in ("buffers", "named_buffers", "state_dict", "load_state_dict"):
            return NOTHING
        return of(inside) if not any(value.spread.is_local for value in args) else NOTHING

    def _state_method(self, state: OptimizerState, node: ast.Call, name: str, args: list[Value]) -> Value:
        """`optimizer.state.items()`, `optimizer.state[p].get("exp_avg")`"""
        if name in ("get", "pop", "setdefault") and args:
            return self._entry(state, args[0])
        if name in ("keys", "items", "values"):
            key = of(Parameters(state.module, one=True)) if state.depth == 2 else NOTHING
            entry = self._entry(state, NOTHING)
            if name != "items":
                return of(Stream(key if name == "keys" else entry, NOTHING))
            pair = self._remember(node, lambda: Items(node, [], NOTHING), ("kept", state.depth))
            pair.parts = [key, entry]
            return of(Stream(of(pair), NOTHING))
        return of(state) if state.depth == 0 else NOTHING

    def _named_parts(self, node: ast.Call, part: Value) -> Value:
        """`model.named_modules()`"""
        pair = self._remember(node, lambda: Items(node, [], NOTHING), "named")
        pair.parts = [NOTHING, part]
        return of(Stream(of(pair), NOTHING))

    def _model_method(
        self,
        thing: Thing,
        inner: Object,
        node: ast.Call,
        name: str,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> Value:
        if name in ("parameters", "named_parameters"):
            parent = scope.source.parents.get(node)
            if self._forward and not (isinstance(parent, ast.Call) and getattr(parent.func, "id", "") == "next"):
                self.event("layer_weight", node, scope, of(inner), constant("all"))
            return of(Parameters(inner, name == "named_parameters"))
        if name == "get_parameter":
            return of(Parameters(inner, one=True))
        if name == "reset_parameters":
            self.event("draw_parameters", node, scope, of(inner))
        if name in ("train", "eval"):
            off = args[0].const if args else keywords.get("mode", NOTHING).const
            parts = {each.key for each in self._and_all_within(inner)}
            quiet = name == "eval" or off is False
            self._evaluated = self._evaluated | parts if quiet else self._evaluated - parts
            self.once_evaluated |= self._evaluated
            self.event("mode", node, scope, of(inner), constant(quiet))
        if name in RETURNS_SELF:
            if name == "requires_grad_":
                self.event("freeze", node, scope, of(inner))
            if name in MOVES or name == "apply":
                self.event("move", node, scope, of(thing))
            if name == "apply":
                part = union([of(inner), *self._children(inner), of(Inside(inner))])
                self._call_each(args[:1], node, [part], scope)
            keeps = name in SAFE_ON_WRAPPER or not isinstance(thing, Wrapped) or thing.kind != "planned"
            return of(thing if keeps else inner)
        if name in ("children", "modules", "named_children", "named_modules"):
            part = union([*self._children(inner), of(Inside(inner))])
            return self._named_parts(node, part) if name.startswith("named") else of(Stream(part, NOTHING))
        if name == "get_submodule":
            return union([*self._children(inner), of(Inside(inner))])
        if name in ("forward", "__call__"):
            return self._module_call(inner if not isinstance(thing, Wrapped) else thing, node, args, keywords, scope)
        if name in ("state_dict", "load_state_dict", "zero_grad"):
            self.event("model_" + name, node, scope, of(thing))
            if keywords.get("assign", NOTHING).const is True:  # it has other parameters from here on
                self.event("move", node, scope, of(thing))
            return of(self._state_dict(node, scope))
        if name == "register_buffer":
            self.event("buffer", node, scope, self._mixed(args))
            if len(args) > 1 and isinstance(args[0].const, str):  # no parameter, whatever it is computed from
                self._keep_attribute(node, of(inner), args[0].const, args[1].computed(args[1].spread), scope)
        if name == "register_parameter" and len(args) == 2:
            known = args[0].const
            self._keep_attribute(node, of(thing), known if isinstance(known, str) else KEPT, args[1], scope)
            self.event("grow", node, scope, of(inner))
            return NOTHING
        if name in ("values", "items") and inner.name == "torch.nn.ModuleDict":
            part = union(self._children(inner))
            return self._named_parts(node, part) if name == "items" else of(Stream(part, NOTHING))
        if name in ("add_module", "register_module") and len(args) == 2 and isinstance(args[0].const, str):
            self._keep_attribute(node, of(inner), args[0].const, args[1], scope)
        if name in ("append", "add_module", "register_module", "insert", "extend"):
            inner.args.extend(args)
            self.event("grow", node, scope, of(inner))
            return NOTHING
        if name in REMAKES:
            self.event("grow", node, scope, of(inner))
        if name in ("register_forward_hook", "register_forward_pre_hook"):
            self.event("forward_hook", node, scope, of(inner), union(args[:1]))
            self._hooks[inner, name] = list(dict.fromkeys([*self._hooks.get((inner, name), ()), union(args[:1])]))
        return self._mixed([*args, *keywords.values()])

    def _call_each(self, given: list[Value], node: ast.Call, args: list[Value], scope: Scope) -> None:
        """Call the functions that a module is given, to be called with it or its parts."""
        for function in (thing for value in given for thing in value.things):
            if isinstance(function, Function) and not isinstance(function.owner, Class):
                self.call_function(function, None, args, {}, scope)

    def _state_dict(self, node: ast.Call, scope: Scope) -> Object:
        made = self._remember(node, lambda: Object("state_dict", frozenset(["state"]), node, scope.source, self._path))
        assert isinstance(made, Object)
        return made


def _is_sequence(layer: Object) -> bool:
    """Whether it runs the layers in it one after the other."""
    bases = [base for each in layer.cls.line() for base in each.bases] if layer.cls is not None else []
    names = [layer.name, *(each.name for each in bases if isinstance(each, External))]
    return "torch.nn.Sequential" in names or "torch.nn.modules.container.Sequential" in names
