"""Calls, of whatever is called."""

from __future__ import annotations

import ast

from autodist.interpreter.autograd_functions import CONTEXT, AutogradFunctions
from autodist.interpreter.methods import Methods
from autodist.interpreter.questions import in_order, last_part, pass_of
from autodist.interpreter.words import GROWS
from autodist.source import argument
from autodist.spread import LOCAL, SAME
from autodist.values import (
    NOTHING,
    Bound,
    Class,
    External,
    Function,
    Inside,
    Items,
    Object,
    Preset,
    Scope,
    Thing,
    Value,
    Wrapped,
    of,
    union,
)

FROM_SETTINGS = frozenset(["from_pretrained", "from_config"])
"""Methods of a model's class in a library that make one of its settings, and of what else `__init__` takes."""
ON_DEVICE = frozenset(
    "FloatTensor DoubleTensor HalfTensor LongTensor IntTensor ByteTensor BoolTensor Stream Event current_stream "
    "current_device synchronize".split()
)
DEFAULTS = ("torch.set_default_device", "torch.set_default_tensor_type")
NAMED_TUPLE = "collections.namedtuple"
TO_PICTURE = "torchvision.transforms.ToPILImage"
RESIZING = GROWS | frozenset("pop popleft remove clear".split())


def _that_take(things: frozenset[Thing], node: ast.Call) -> frozenset[Thing]:
    """Of several functions or classes that may stand in one place (``getattr(metrics, name)``, ``trainers[name]``),
    those that take such a call."""
    if len(things) < 2 or any(isinstance(each, ast.Starred) for each in node.args):
        return things
    fitting = frozenset(each for each in things if _takes(each, node))
    return fitting or things


def _takes(thing: Thing, node: ast.Call) -> bool:
    made = thing.functions("__init__") if isinstance(thing, Class) else []
    function = thing if isinstance(thing, Function) else made[0] if len(made) == 1 else None
    if function is None:
        return True
    spec = function.node.args
    bound = isinstance(thing, Class) or function.owner is not None
    before, known_by_name = (thing.args, thing.keywords) if isinstance(thing, (Class, Function)) else ([], {})
    names = [each.arg for each in (*spec.posonlyargs, *spec.args)][bound + len(before) :]
    if len(node.args) > len(names) and spec.vararg is None:
        return False
    given = {*(each.arg for each in node.keywords), *known_by_name}
    known = {*names, *(each.arg for each in spec.kwonlyargs)}
    if spec.kwarg is None and not given <= {*known, None}:
        return False
    needed = names[len(node.args) : len(names) - len(spec.defaults)]
    return None in given or given.issuperset(needed)


def _as_passes(called: frozenset[Thing], name: str, base: Value) -> frozenset[Thing]:
    """`model.forward(x)` is a pass through the model, as `model(x)` is, not a function of its own."""
    owners = {each.owner for each in called if isinstance(each, Function)} - {None}
    if not owners:
        return called
    modules = ((each, each.module if isinstance(each, Wrapped) else each) for each in base.things)
    passed = ((each, inner) for each, inner in modules if inner in owners and pass_of(inner) == name)
    run = {each: inner for each, inner in passed if isinstance(inner, Object) and "module" in inner.roles}
    return frozenset(each for each in called if getattr(each, "owner", None) not in run.values()) | run.keys()


def _is_loss(name: str, base: Value) -> bool:
    """Whether `criterion.forward` is what is called, which is `criterion` itself, a loss of a library."""
    losses = (isinstance(each, Object) and "loss" in each.roles and each.cls is None for each in base.things)
    return name == "forward" and bool(base.things) and all(losses)


def _room(function: Function, node: ast.Call) -> tuple[float, float]:
    """How many arguments a function takes at least and at most for one that is unpacked, beside those that are told."""
    spec = function.node.args
    names = [each.arg for each in (*spec.posonlyargs, *spec.args)][function.owner is not None :]
    needed = names[: len(names) - len(spec.defaults)]
    named = {each.arg for each in node.keywords}
    told = len(node.args) - 1
    least = 0 if None in named else len(needed) - told - len(named.intersection(needed))
    return least, float("inf") if spec.vararg is not None else len(names) - told - len(named.intersection(names))


class Calls(Methods, AutogradFunctions):
    """Call expressions."""

    def of_Call(self, node: ast.Call, scope: Scope) -> Value:
        self._tick()
        if isinstance(node.func, ast.Attribute) and _is_super(node.func.value):
            return self._super(node, node.func.attr, scope)
        base: Value | None = None
        if isinstance(node.func, ast.Attribute):
            base = self.eval(node.func.value, scope)
            if node.func.attr in RESIZING:
                self._note_refill(node.func.value, scope)
        if isinstance(node.func, ast.Attribute) and base is not None and _is_loss(node.func.attr, base):
            callee, base = self._noted(node.func, base, scope), None
        elif isinstance(node.func, ast.Attribute) and base is not None:
            callee = self._noted(node.func, self._attribute_of(node.func, base, scope), scope)
        else:
            callee = self.eval(node.func, scope)
        args, keywords = self._arguments(node, scope)
        if isinstance(node.func, ast.Call) and last_part(node.func.func) == "enable_grad" and len(args) == 1:
            return args[0]  # `torch.enable_grad()(closure)` is the closure
        by_default = _is_default(callee, args)
        if by_default:
            self.event("default_device", node, scope)
        if by_default or _comes_to_device(node, callee, args, keywords):
            self.event("placed", node, scope)
        called = _that_take(callee.things, node)
        if isinstance(node.func, ast.Attribute) and base is not None:
            called = _as_passes(called, node.func.attr, base)
        results = [
            self._call(thing, node, self._unpacked_for(thing, node, args), keywords, scope)
            for thing in in_order(called)
        ]
        if isinstance(node.func, ast.Attribute) and base is not None:
            method = self._as_dict(base, node) if node.func.attr == "_asdict" else None
            method = method or self._applied(node, node.func.attr, base, args, keywords, scope)
            if method is None:
                method = self._method(node, node.func.attr, base, args, keywords, scope)
            if method is not None:
                results.append(method)
        if not results:
            results.append(self._mixed([*([callee] if callee.spread is not SAME else []), *args, *keywords.values()]))
        result = union(results)
        self._push(node, callee, args, scope)
        self._written_out(node, callee, result, args, scope)
        return result

    def _unpacked_for(self, thing: Thing, node: ast.Call, args: list[Value]) -> list[Value]:
        """The arguments of one of the functions that a call may mean, where it unpacks one of several tuples: the one
        that has as many parts as the function takes, `trainer.loop(epochs, *loaders)`."""
        stars = [(at, each.value) for at, each in enumerate(node.args) if isinstance(each, ast.Starred)]
        if not isinstance(thing, Function) or len(stars) != 1 or len(args) != len(node.args):
            return args
        at, held = stars[0][0], self._lately(stars[0][1])
        least, most = _room(thing, node)
        fitting = [t for t in held.things if isinstance(t, Items) and least <= len(t.parts) <= most]
        sizes = {len(each.parts) for each in fitting if each.parts}
        if len(sizes) != 1 or len(fitting) == len(held.things):
            return args
        value = held.but(things=frozenset(fitting))
        return [*args[:at], *(self._part(value, index, 0) for index in range(sizes.pop())), *args[at + 1 :]]

    def _applied(
        self, node: ast.Call, name: str, base: Value, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value | None:
        """`Scale.apply(x)`, and what its passes tell each other; `Tagger.from_pretrained(path, config=config)`."""
        if name in FROM_SETTINGS:
            made = [t for t in in_order(base.things) if isinstance(t, Class) and _is_derived(t, name)]
            settings = [keywords.get("config", args[0] if args and name == "from_config" else NOTHING), *args[1:]]
            given = {key: value for key, value in keywords.items() if key != "config"}
            return union(self._instantiate(t, node, settings, given, scope) for t in made) if made else None
        for thing in base.things:
            if name == "apply" and isinstance(thing, Class):
                return self._apply_function(thing, node, args, keywords, scope)
            if name == "save_for_backward" and isinstance(thing, Object) and CONTEXT in thing.roles:
                return self._keep_for_backward(thing, node, args)
        return None

    def _push(self, node: ast.Call, callee: Value, args: list[Value], scope: Scope) -> None:
        """`heapq.heappush(worst, (loss, path))`: a list grows."""
        if len(node.args) > 1 and any(isinstance(t, External) and t.name in PUSHING for t in callee.things):
            self._grow(args[0], [(args[1], node.args[1])], scope, "append")

    def _written_out(self, node: ast.Call, callee: Value, result: Value, args: list[Value], scope: Scope) -> None:
        """`np.add(counts, hits, out=counts)`, `np.copyto(counts, counts + hits)`: what an array holds from here on."""
        target = argument(node, "out")
        if any(isinstance(t, External) and t.name == "numpy.copyto" for t in callee.things) and len(node.args) > 1:
            target, result = node.args[0], args[1]
        if target is None or not result.spread.is_local:
            return
        for names, name in self._holders(target, scope):
            if not names[name].things and names[name].spread is SAME:
                names[name] = names[name].but(spread=LOCAL, origins=result.origins)

    def _call(self, thing: Thing, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope) -> Value:
        if isinstance(thing, Wrapped):
            return self._module_call(thing, node, args, keywords, scope)
        if isinstance(thing, Bound):
            return self._called_by_name(thing, node, args, keywords, scope)
        if isinstance(thing, Function):
            return self.call_function(thing, node, args, keywords, scope)
        if isinstance(thing, Class):
            return self._instantiate(thing, node, args, keywords, scope)
        if isinstance(thing, Preset):
            self.presets.setdefault(node, {})[thing.node] = None
            return self._external(thing.name, node, [*thing.args, *args], {**thing.keywords, **keywords}, scope)
        if isinstance(thing, External):
            return self._external(thing.name, node, args, keywords, scope)
        if isinstance(thing, Object):
            if "module" in thing.roles or "loss" in thing.roles or "data_parallel" in thing.roles:
                return self._module_call(thing, node, args, keywords, scope)
            if thing.cls is not None and thing.cls.find("__call__"):
                return self.method(thing, "__call__", node, args, keywords, scope)
            if (
                thing.name == NAMED_TUPLE
                and (made := self._named_tuple(thing, node, args, keywords, scope)) is not None
            ):
                return made
            self._normalises(thing, node, args, scope)
            mixed = self._mixed([*args, *keywords.values()])
            if thing.name.startswith("torchmetrics."):
                self.event("measured", node, scope, mixed, of(thing))
            if thing.name == TO_PICTURE:
                return mixed | Value(frozenset([thing]))  # which is known by what makes it
            return mixed
        return self._mixed([*args, *keywords.values()]) if isinstance(thing, Inside) else NOTHING


PUSHING = frozenset(
    "heapq.heappush heapq.heappushpop heapq.heapreplace bisect.insort bisect.insort_left bisect.insort_right".split()
)


def _is_derived(cls: Class, name: str) -> bool:
    """Whether a class of the project has a method from the library that it derives from."""
    inherited = any(isinstance(base, External) for each in cls.line() for base in each.bases)
    return inherited and "module" in cls.roles and cls.find(name) is None


def _comes_to_device(node: ast.Call, callee: Value, args: list[Value], keywords: dict[str, Value]) -> bool:
    """Whether something is made on a device or moved to one, which is GPU 0 until a rank has chosen its own."""
    names = [each.name for each in callee.things if isinstance(each, External)]
    if any(name.startswith("torch.cuda.") and name.rpartition(".")[2] in ON_DEVICE for name in names):
        return True
    asked = keywords.get("device")
    if asked is not None and any(name.startswith("torch.") for name in names):
        return not _is_elsewhere(asked)
    if not isinstance(node.func, ast.Attribute) or names:
        return False
    if node.func.attr == "to":
        told = [asked] if asked is not None else args[:1]
        return any(not _is_elsewhere(each) for each in told)
    return node.func.attr == "cuda" or node.func.attr == "type" and any(map(_is_type_on_device, args))


def _is_default(callee: Value, args: list[Value]) -> bool:
    """`torch.set_default_device("cuda")`"""
    for each in callee.things:
        if isinstance(each, External) and each.name in DEFAULTS:
            return not any(_is_elsewhere(each) for each in args)
    return False


def _is_elsewhere(asked: Value) -> bool:
    """Whether `"cpu"`, a type, or nothing is asked for."""
    made = [each.argument("type", 0) for each in asked.objects("device")]
    if made and all(given is not None and given.const == "cpu" for given in made):
        return True
    types = [each.name for each in asked.things if isinstance(each, External)]
    known = asked.const in ("cpu", "meta", None) or isinstance(asked.const, str) and asked.const.startswith("torch.Fl")
    return known or any(name.startswith("torch.") and ".cuda." not in name for name in types)


def _is_type_on_device(asked: Value) -> bool:
    """`torch.cuda.FloatTensor`, or its name."""
    names = [each.name for each in asked.things if isinstance(each, External)]
    named = isinstance(asked.const, str) and asked.const.startswith("torch.cuda.")
    return named or any(name.startswith("torch.cuda.") for name in names)


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
