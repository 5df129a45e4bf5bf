"""Classes of the project, and what is made of them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from autodist.interpreter.records import Records
from autodist.interpreter.words import REST
from autodist.values import (
    NOTHING,
    Bound,
    Class,
    External,
    Function,
    Object,
    Scope,
    Table,
    Thing,
    Value,
    constant,
    of,
    union,
)

PARTS: Mapping[str, Mapping[str, str]] = {
    "torch.nn.Transformer": {"encoder": "torch.nn.TransformerEncoder", "decoder": "torch.nn.TransformerDecoder"},
}
"""What modules of torch are made of, as far as those who derive from them call the parts."""
FINISHING = ("__post_init__", "__attrs_post_init__")
"""What data classes call once their fields are filled."""
CONTAINERS = ("torch.nn.Module", "torch.nn.Sequential")
"""What has no forward pass of its own, or none but that of its parts."""


class Classes(Records):
    """Classes: definitions and instances."""

    def do_ClassDef(self, node: ast.ClassDef, scope: Scope) -> None:
        bases: list[Thing] = []
        roles: set[str] = set()
        for base in node.bases:
            for thing in self.eval(base, scope).things:
                if isinstance(thing, Class):
                    bases.append(thing)
                    roles |= thing.roles
                elif isinstance(thing, External):
                    bases.append(thing)
                    roles |= self._class_roles(thing.name) | self._unseen_module(thing.name, node)
        body = Scope(scope.source, scope, is_class=True)
        made = self._remember(node, lambda: Class(node, scope.source, body, tuple(bases), frozenset(roles)))
        made.scope = body
        self._decorate(node, of(made), scope)
        self.block(node.body, body)
        for value in body.names.values():
            for thing in value.things:
                if isinstance(thing, Function) and thing.defined_in is None:
                    thing.defined_in = made
        if roles & {"module", "loss"} and "__call__" in body.names:  # a module without another forward pass
            body.names.setdefault("forward", body.names["__call__"])
        scope.names[node.name] = of(made)
        self._subclassed(made, node, scope)

    def _subclassed(self, cls: Class, node: ast.ClassDef, scope: Scope) -> None:
        """Tell a base class of one that derives from it: `def __init_subclass__(cls): registry[cls.__name__] = cls`."""
        found = cls.find("__init_subclass__", skip=cls)
        keywords = {each.arg: self.eval(each.value, scope) for each in node.keywords if each.arg is not None}
        for thing in found[1].things if found is not None else ():
            if isinstance(thing, Function):
                bound = self._remember(node, partial(replace, thing, owner=cls), thing)
                self.call_function(bound, None, [], keywords, scope)

    def _class_roles(self, name: str) -> frozenset[str]:
        """What instances of a class derived from ``name`` are."""
        if name in ("torch.utils.data.Dataset", "torch.utils.data.dataset.Dataset"):
            return frozenset(["dataset"])
        if name in ("torch.optim.Optimizer", "torch.optim.optimizer.Optimizer"):
            return frozenset(["optimizer"])
        if name.endswith(("PreTrainedModel", ".MessagePassing", ".ModelMixin")):
            return frozenset(["module"])
        roles = self.catalog.roles(name)
        if roles & {"dropout", "batch_norm"} and name.startswith("torch.nn.") and name.rpartition(".")[2][0].isupper():
            return roles | {"module"}
        return roles - {"download"} if "download" in roles else roles

    def _unseen_module(self, base: str, node: ast.ClassDef) -> frozenset[str]:
        """A class with a forward pass that derives from one of a library of which nothing is known is a module."""
        forward = any(isinstance(each, ast.FunctionDef) and each.name == "forward" for each in node.body)
        return frozenset(["module"]) if forward and not self.catalog.knows(base) else frozenset()

    def _instantiate(
        self, cls: Class, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        if cls.whole is not None:
            return self._instantiate(cls.whole, node, [*cls.args, *args], {**cls.keywords, **keywords}, scope)
        made = self._remember(node, lambda: Object(cls.node.name, cls.roles, node, scope.source, self._path, cls), cls)
        made.args, made.keywords = args, keywords
        self._born[made] = self._branches
        if cls.is_dict:
            made.attributes.update({f"[{key}]": value for key, value in _entries(args, keywords).items()})
        if cls.find("__init__"):
            self.method(made, "__init__", node, args, keywords, scope)
        else:
            self._fill(cls, made, args, keywords)
            for finish in FINISHING:
                if cls.find(finish):
                    self.method(made, finish, node, [], {}, scope)
            self._brings_in(made, node, scope)
            self._downloaded(cls, node, args, keywords, scope)
        self.event("make", node, scope, of(made))
        if "optimizer" in cls.roles and not cls.find("__init__"):
            self.event("optimizer", node, scope, of(made))
        if made.is_writer:
            self.event("writer", node, scope)
        if "framework" in cls.roles:
            self.event("framework", node, scope, constant(cls.node.name))
        return of(made)

    def _bare(self, cls: Class, node: ast.Call, scope: Scope) -> Value:
        """An object of a class before its constructor has run: `super().__new__(cls)`."""
        return of(
            self._remember(node, lambda: Object(cls.node.name, cls.roles, node, scope.source, self._path, cls), cls)
        )

    def _downloaded(
        self, cls: Class, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> None:
        """A data set of a library that a class of the project derives from, made with `download=True`."""
        bases = [base.name for each in cls.line() for base in each.bases if isinstance(base, External)]
        if not any(self.catalog.has(base, "download") and not self.catalog.has(base, "no_download") for base in bases):
            return
        wanted = keywords.get("download", args[4] if len(args) > 4 else constant(False))
        if REST in keywords or wanted.const not in (False, None):
            self.event("download", node, scope)

    def _super(self, node: ast.Call, name: str, scope: Scope) -> Value:
        args, keywords = self._arguments(node, scope)
        if name == "__new__" and args:  # what is made is initialised by whoever calls it
            return union(self._bare(cls, node, scope) for cls in args[0].things if isinstance(cls, Class))
        call = next((c for c in reversed(self._calls) if c.function.owner is not None), None)
        if call is None or not isinstance(call.function.owner, Object):
            return NOTHING
        owner, defined = call.function.owner, call.function.defined_in
        found = owner.cls.find(name, skip=defined) if owner.cls is not None else None
        if found is None:
            if name == "__init__" and owner.cls is not None:
                self._downloaded(owner.cls, node, args, keywords, scope)
                self._inherit_parts(owner, owner.cls, node, args, keywords)
                self._begun[owner] = args, keywords
            asked = {"loader", "optimizer", "sampler"} & owner.roles
            if name == "__init__" and asked and not ("loader" in asked and _hands_on(node, call.function)):
                owner.args, owner.keywords, owner.node, owner.source = args, keywords, node, scope.source
                if "optimizer" in owner.roles:
                    self.event("optimizer", node, scope, of(owner))
                else:
                    self.event("make", node, scope, of(owner))
            if name in ("forward", "__call__") and owner.roles & {"module", "loss"} and owner.cls is not None:
                if name == "__call__" and owner.cls.find("forward"):
                    return self.method(owner, "forward", node, args, keywords, scope)
                return self._inherited_pass(owner, owner.cls, node, args, keywords, scope)
            if name == "step" and "optimizer" in owner.roles:
                return union(self._closures(owner, node, args, keywords, scope))
            if "scaler" in owner.roles:
                return self._called_by_name(Bound(owner, name), node, args, keywords, scope)
            return NOTHING
        bound = self._noted(node.func, self._bound(found[1], owner, node, scope), scope)
        return union(self.call_function(each, node, args, keywords, scope) for each in bound.functions)

    def _inherited_pass(
        self,
        owner: Object,
        cls: Class,
        node: ast.Call,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> Value:
        """The forward pass of a class that derives from a layer or a loss of torch: what that makes of its input."""
        bases = (base for each in cls.line() for base in each.bases if isinstance(base, External))
        base = next((each.name for each in bases if each.name.startswith("torch.nn.")), "")
        if not base or base in CONTAINERS:
            return self._library_pass(owner, node, args, keywords, scope)
        make = partial(Object, base, self.catalog.roles(base) | {"module"}, owner.node, owner.source, owner.path)
        layer = self._remember(owner.node, make, ("inherited", owner.key))
        layer.args, layer.keywords = self._begun.get(owner, (owner.args, owner.keywords))
        if not self._lately(node.func).things:  # `super().forward`
            self._noted(node.func, of(layer), scope)
        return self._library_pass(layer, node, args, keywords, scope)

    def _inherit_parts(
        self, owner: Object, cls: Class, node: ast.Call, args: list[Value], keywords: dict[str, Value]
    ) -> None:
        """The modules that a class of torch makes for those that derive from it: `self.encoder` of nn.Transformer."""
        bases = {base.name for each in cls.line() for base in each.bases if isinstance(base, External)}
        for base in sorted(bases & PARTS.keys()):
            for attribute, name in PARTS[base].items():
                make = partial(Object, name, frozenset(["module"]), node, owner.source, self._path)
                part = self._remember(node, make, attribute)
                part.args, part.keywords = args, keywords
                owner.attributes[attribute] = of(part)


def _entries(args: list[Value], keywords: Mapping[str, Value]) -> dict[object, Value]:
    """What a dict holds that is made of these: `Settings({"net": Net}, width=8)`."""
    tables = [thing for value in args[:1] for thing in value.things if isinstance(thing, Table)]
    held = {key: value for table in tables for key, value in table.entries.items()} | dict(keywords)
    return {key: value.but(firm=False) for key, value in held.items()}


def _hands_on(node: ast.Call, function: Function) -> bool:
    """Whether `super().__init__(*args, **kwargs)` hands on what it is given: where the class is called says it all."""
    spec = function.node.args
    rest, options = spec.vararg, spec.kwarg
    if rest is None or options is None or len(spec.args) + len(spec.kwonlyargs) + len(spec.posonlyargs) != 1:
        return False
    given = [ast.unparse(each) for each in node.args], [(each.arg, ast.unparse(each.value)) for each in node.keywords]
    return given == ([f"*{rest.arg}"], [(None, options.arg)])
