"""What attributes are: of tensors, objects, modules, classes and libraries."""

from __future__ import annotations

import ast
from abc import abstractmethod
from dataclasses import replace
from functools import cached_property

from autodist.catalog import public
from autodist.interpreter.evaluation import Evaluation
from autodist.interpreter.names import Names
from autodist.interpreter.questions import MODULE_METHODS, given_to, is_hidden, kept_as, last_part
from autodist.interpreter.words import KEPT, SIZES
from autodist.source import Source, walk
from autodist.spread import LOCAL, RANK, SAME
from autodist.values import (
    NOTHING,
    UNKNOWN,
    Bound,
    Class,
    External,
    Function,
    Inside,
    Items,
    LocalModule,
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
    is_clock,
    of,
    union,
)

MORE_METHODS = ("add_module", "compile", "extra_repr", "get_", "register_", "set_", "share_memory", "to_empty")
WEIGHTS = ("weight", "bias", "in_proj_", "cls_token", "pos_embed")
"""How names of parameters begin in modules of libraries."""
BUFFERS = frozenset("running_mean running_var num_batches_tracked".split())
ABOUT_TENSORS = frozenset(
    "shape dtype device ndim requires_grad is_leaf is_cuda grad_fn names layout itemsize nbytes is_sparse".split()
)


CONTRASTS = frozenset("logits_per_image logits_per_text logits_per_audio".split())
"""What models that compare two kinds of samples hand out for each pair of the batch."""


HANDED_AROUND = frozenset("step zero_grad scale unscale_ update".split())
"""Methods of optimizers and scalers that may go by names of their own: `step = optimizer.step`."""


class Attributes(Evaluation, Names):
    """Expressions with a dot."""

    def of_Attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        if self._loops:
            self.loops_of.setdefault(node, set()).add(self._loops[-1].node)
        base = self.eval(node.value, scope)
        if node.attr == "grad" and not base.spread.is_local and not _is_cleared(node, scope.source):
            self.event("gradient", node, scope, base)
        return self._attribute_of(node, base, scope)

    def _attribute_of(self, node: ast.Attribute, base: Value, scope: Scope) -> Value:
        if node.attr == "__dict__" and (fields := self._as_dict(base, node)) is not None:
            return fields
        if node.attr == "__class__":
            self.event("asked_class", node, scope, base)
            return class_of(base)
        found = union(self._attribute(thing, node, base, scope) for thing in base.things)
        if base.spread.is_local and not base.things:
            found = found | self._tensor_attribute(node, base, scope)
        elif not base.things and (
            base.spread is RANK or any(map(is_clock, base.origins)) or node.attr == "data" and base.origins
        ):
            found = found | base
        elif not base.things and base.origins and base.spread is SAME and node.attr not in ABOUT_TENSORS:
            found = found | base.but(const=UNKNOWN, firm=False)  # as the values of a topk
        return found

    def _shape(self, base: Value, node: ast.AST) -> Value:
        """The sizes of a tensor of a rank's samples, the first of which mostly counts these."""
        items = self._remember(node, lambda: Items(node, [], NOTHING), "shape")
        items.parts = [base.computed(LOCAL), *[NOTHING] * 7]
        return of(items)

    def _tensor_attribute(self, node: ast.Attribute, base: Value, scope: Scope) -> Value:
        name = node.attr
        if name == "shape":
            return self._shape(base, node)
        if name == "data" and self.is_packed(node.value):
            return base
        if name in ("data", "grad"):
            return base
        if name in ("dtype", "device", "ndim", "requires_grad", "is_cuda", "num_features", "num_node_features"):
            return NOTHING
        if name in ("T", "mT", "H", "num_graphs", "num_nodes", "num_edges"):
            return base.computed(LOCAL)
        if name == "loss" or name in CONTRASTS:
            return base.computed(LOCAL)
        return base.but(const=UNKNOWN, firm=False)

    @abstractmethod
    def is_packed(self, node: ast.expr) -> bool:
        """Whether it is what lays the words of all samples behind each other: `pack_padded_sequence(out, lengths)`"""

    def _attribute(self, thing: Thing, node: ast.Attribute, base: Value, scope: Scope) -> Value:
        name = node.attr
        if isinstance(thing, Wrapped):
            return of(thing.module) if name == "module" else self._attribute(thing.module, node, base, scope)
        if isinstance(thing, External):
            if f"{thing.name}.{name}" in self.project.modules:  # in a folder without an `__init__.py`
                return self._module(f"{thing.name}.{name}", node)
            return of(External(public(f"{thing.name}.{name}")))
        if isinstance(thing, LocalModule):
            if name == "__dict__":
                return self._namespace(thing, node)
            if name in thing.scope.names:
                return thing.scope.names[name]
            return (
                self._module(f"{thing.source.module}.{name}", node)
                if f"{thing.source.module}.{name}" in self.project.modules
                else NOTHING
            )
        if isinstance(thing, Class):
            found = thing.find(name)
            return self._bound_to_class(found[1], thing) if found else NOTHING
        if isinstance(thing, Object):
            return self._object_attribute(thing, name, node, scope)
        if isinstance(thing, Items) and base.spread.is_local:
            return base.but(things=frozenset())
        if isinstance(thing, Parameters) and name in ("data", "grad"):
            return of(replace(thing, cut=True))
        if isinstance(thing, Inside):
            return self._inside(thing.module, name)
        return NOTHING

    def _namespace(self, module: LocalModule, node: ast.AST) -> Value:
        """`module.__dict__`, `vars(module)`"""
        asked = ast.Attribute(ast.Name(module.source.module), "__dict__", ast.Load())
        names = self._remember(node, lambda: Table(asked, {}, NOTHING), module)
        names.entries.update(module.scope.names)
        return of(names)

    def _note_weight(self, module: Object, node: ast.AST, scope: Scope) -> None:
        """Within a forward pass: a parameter of a layer is named, and not just asked for its shape or type."""
        parent = scope.source.parents.get(node)
        if not (isinstance(parent, ast.Attribute) and (parent.attr in ABOUT_TENSORS or parent.attr in SIZES)):
            self.event("layer_weight", node, scope, of(module))

    def _inside(self, module: Thing, name: str) -> Value:
        """An attribute of a module of a library, or of a part of one that is not known."""
        if name.startswith(WEIGHTS):
            return of(Parameters(module, one=True))
        if name in ABOUT_TENSORS or name in BUFFERS:
            return NOTHING
        return of(Inside(module))

    def _just_stored(self, thing: Object, name: str) -> Value | None:
        """What the function that now runs has stored before, wherever else something may be stored there:
        `self.loss = ...; return self.loss`."""
        found = self._stored.get((thing, name))
        if found is None or not self._calls or found.call is not self._calls[-1]:
            return None
        return found.value if self._branches[: len(found.branches)] == found.branches else None

    def _object_attribute(self, thing: Object, name: str, node: ast.AST, scope: Scope) -> Value:
        if name in thing.attributes and not is_hidden(thing, name):
            held = self._just_stored(thing, name) or thing.attributes[name]
            if "module" in thing.roles and any(True for _ in held.objects("parameter")):
                if not self._forward:
                    return held | of(Parameters(thing, one=True))
                self._note_weight(thing, node, scope)
            return held
        if thing.cls is not None and not thing.is_writer:
            found = thing.cls.find(name)
            if found is not None:
                return self._bound(found[1], thing, node, scope)
            if thing.cls.is_dict and f"[{name}]" in thing.attributes:
                return thing.attributes[f"[{name}]"]  # `__getattr__ = dict.__getitem__`
            if thing.looks_up(name):
                return self.method(thing, "__getattr__", None, [constant(name, firm=True)], {}, scope)
        if name == "training" and "module" in thing.roles and self._no_grad and thing.key in self._evaluated:
            return constant(False, firm=True)
        if name == "module" and "module" in thing.roles:  # of what wrapped it, and does not any more
            return of(thing)
        if name == "_modules" and "module" in thing.roles:
            children = union([*self._children(thing), of(Inside(thing))])
            return of(self._remember(node, lambda: Table(node, {}, children), thing))
        if name == "_parameters" and "module" in thing.roles:
            return of(self._remember(node, lambda: Table(node, {}, of(Parameters(thing, one=True))), thing))
        if name == "state" and "optimizer" in thing.roles and thing.cls is None:
            given = [t for value in given_to(thing) for t in self.parameters_in(value)]
            return Value(frozenset(OptimizerState(t.module) for t in given))
        steps = thing.cls is None and not thing.roles.isdisjoint(["optimizer", "scaler"])
        if steps and name in HANDED_AROUND and not _is_called(node, scope.source):
            return of(Bound(thing, name))
        if "loader" in thing.roles:
            if name == "dataset":
                return thing.argument("dataset", 0) or NOTHING
            if name == "batch_size":
                return (thing.argument("batch_size", 1) or NOTHING).but(spread=SAME)
            if name in ("sampler", "batch_sampler"):
                return thing.argument(name) or NOTHING
        if "dataset" in thing.roles and name == "dataset":
            return thing.argument("dataset", 0) or NOTHING
        if "module" in thing.roles and self._forward and name.startswith(WEIGHTS):
            self._note_weight(thing, node, scope)
        named = name not in MODULE_METHODS and not name.startswith(MORE_METHODS)
        if named and (layer := thing.layers.get(name)) is not None:
            return layer
        if "module" in thing.roles and not self._forward and named:
            return thing.attributes.get(KEPT, NOTHING) | self._inside(thing, name)
        if thing.name == "arguments" and name == "local_rank":
            return Value(spread=RANK)
        if "module" in thing.roles and not named:
            return NOTHING
        told = kept_as(thing, name)
        return told if told is not None else thing.attributes.get(KEPT, NOTHING)

    def _bound_to_class(self, value: Value, cls: Class) -> Value:
        """What a class gives away: its class methods know it."""
        things: set[Thing] = set()
        for thing in value.things:
            if isinstance(thing, Function) and _is_class_method(thing):
                thing = self._memory.setdefault((id(thing.node), (id(cls),)), replace(thing, owner=cls))
            things.add(thing)
        return value.but(things=frozenset(things))

    def _bound(self, value: Value, owner: Object, node: ast.AST, scope: Scope) -> Value:
        """Methods of a class, bound to an object; properties, evaluated."""
        things: set[Thing] = set()
        result = value.but(things=frozenset())
        for thing in value.things:
            if isinstance(thing, Function) and thing.owner is None and not isinstance(thing.node, ast.Lambda):
                decorators = {last_part(d) for d in thing.node.decorator_list}
                if decorators & {"property", "cached_property"}:
                    bound = replace(thing, owner=owner)
                    made = self.call_function(bound, None, [], {}, scope)
                    if "cached_property" in decorators:
                        owner.attributes[thing.node.name] = made
                    result = result | made
                    continue
                bound_owner: Thing | None = None if "staticmethod" in decorators else owner
                if "classmethod" in decorators:
                    bound_owner = owner.cls
                key = (id(thing.node), id(owner))
                things.add(self._memory.setdefault(key, replace(thing, owner=bound_owner)))  # type: ignore[arg-type]
            else:
                things.add(thing)
        return result | Value(frozenset(things))

    @cached_property
    def _quoted(self) -> frozenset[str]:
        """The texts of a project, keys of dicts among them."""
        nodes = (node for source in self.project.sources for node in walk(source.tree))
        return frozenset(n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))

    def parameters_in(self, value: Value) -> list[Parameters]:
        """The parameters that a value holds, in lists and dicts as well."""
        pending = [value]
        found: list[Parameters] = []
        seen: set[int] = set()
        while pending:
            for thing in pending.pop().things:
                if isinstance(thing, Parameters):
                    found.append(thing)
                elif isinstance(thing, (Items, Table, Stream)) and id(thing) not in seen:
                    seen.add(id(thing))
                    pending += self._contents(of(thing))
        return found


def _is_class_method(function: Function) -> bool:
    return not isinstance(function.node, ast.Lambda) and "classmethod" in map(last_part, function.node.decorator_list)


def _is_called(node: ast.AST, source: Source) -> bool:
    parent = source.parents.get(node)
    return isinstance(parent, ast.Call) and parent.func is node


def _is_cleared(gradient: ast.Attribute, source: Source) -> bool:
    """`p.grad.zero_()`, `p.grad is None`: what it is does not matter."""
    parent = source.parents[gradient]
    if isinstance(parent, ast.Attribute):
        return parent.attr in ("zero_", "detach_", "requires_grad_")
    return isinstance(parent, ast.Compare) and isinstance(parent.ops[0], (ast.Is, ast.IsNot))


def class_of(value: Value) -> Value:
    """`type(x)`, if the project defines it."""
    bare = [t.module if isinstance(t, Wrapped) else t for t in value.things]
    return Value(frozenset(t.cls for t in bare if isinstance(t, Object) and t.cls is not None))
