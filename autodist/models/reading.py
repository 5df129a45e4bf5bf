"""What a class says of its parts: which it makes, which it reads, and which settings it asks for."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypeGuard

from autodist.interpreter import Interpreter
from autodist.source import Source, all_of, last_name, walk
from autodist.values import NOTHING, Class, Object, Value

NO_PARAMETERS = (
    *("Dropout", "Identity", "Flatten", "Unflatten", "MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool"),
    *("Upsample", "PixelShuffle", "ZeroPad", "ReflectionPad", "ReplicationPad", "ConstantPad", "ReLU", "LeakyReLU"),
    *("Softmax", "LogSoftmax", "Sigmoid", "Tanh", "GELU", "SiLU", "ELU"),
)
LAYERS = frozenset(["module", "batch_norm"])
UNLEARNT = frozenset("detach argmin argmax long int bool item tolist numpy size".split())


def forbids_gradients(context: ast.expr) -> bool:
    return isinstance(context, ast.Call) and last_name(context.func) in ("no_grad", "inference_mode")


def is_set_later(source: Source, name: str) -> bool:
    """Whether an attribute is bound elsewhere than where its object is made: `model.task = 1`."""
    if name not in source.text:
        return False
    stores = (n for n in all_of(source.tree, ast.Attribute) if isinstance(n.ctx, ast.Store))
    return any(n.attr == name and getattr(source.function(n), "name", "") != "__init__" for n in stores)


def binds(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def bound_to(name: str, home: ast.AST) -> Iterator[ast.expr]:
    """What a function assigns to a name, by itself or in a row of names."""
    for each in (node for node in walk(home) if isinstance(node, (ast.Assign, ast.AugAssign))):
        for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
            if isinstance(target, ast.Name) and target.id == name:
                yield each.value
            elif isinstance(target, ast.Tuple) and isinstance(each.value, ast.Tuple):
                pairs = zip(target.elts, each.value.elts, strict=False)
                yield from (value for one, value in pairs if isinstance(one, ast.Name) and one.id == name)


def settings_of(forward: ast.FunctionDef) -> list[str]:
    """The tests of a forward pass that ask nothing but the module."""
    tests = (atom for n in walk(forward) if isinstance(n, (ast.If, ast.IfExp)) for atom in _atoms(n.test))
    return sorted({ast.unparse(test) for test in tests if _asks_module(test)})


def _atoms(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp):
        for value in test.values:
            yield from _atoms(value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _atoms(test.operand)
    else:
        yield test


def _asks_module(test: ast.expr) -> bool:
    names = [n.id for n in all_of(test, ast.Name)]
    return set(names) == {"self"} and not any(isinstance(n, ast.Call) for n in walk(test))


def choices_of(setting: str, module: Object) -> tuple[bool, ...]:
    """What a setting may be."""
    test = ast.parse(setting, mode="eval").body
    if setting == "self.training":
        return (True,)
    asked = test.left if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot)) else test
    if is_own(asked):
        value = module.attributes.get(asked.attr, NOTHING)
        if asked is test and isinstance(value.const, bool):
            return (value.const,)
        if always_made(asked.attr, module):
            return (not (isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.Is)),)
    if isinstance(test, ast.Compare) and (known := _known(test, module)) is not None:
        return (known,)
    return (False, True)


def _known(test: ast.Compare, module: Object) -> bool | None:
    """Whether `self.kind == "lda"` holds, where the script makes the module of one kind."""
    asked, other = test.left, test.comparators[0]
    if len(test.ops) > 1 or not isinstance(test.ops[0], (ast.Eq, ast.NotEq)) or not isinstance(other, ast.Constant):
        return None
    value = module.attributes.get(asked.attr, NOTHING) if is_own(asked) else NOTHING
    if type(value.const) is not type(other.value) or value.things or not value.firm:
        return None
    return (value.const == other.value) == isinstance(test.ops[0], ast.Eq)


def is_own(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """`self.name`"""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def always_made(name: str, module: Object) -> bool:
    """Whether `__init__` gives a module this part with parameters in any case: makes it, or is given it."""
    value = module.attributes.get(name, NOTHING)
    things = [t for t in value.things if isinstance(t, Object) and t.roles & {*LAYERS, "parameter"}]
    if not things or _is_without_parameters(value) or module.cls is None:
        return False
    node = next((each.node for each in module.functions("__init__")), None)
    for statement in getattr(node, "body", ()):
        for bound in _given_to(name, statement) if isinstance(statement, ast.Assign) else ():
            given = isinstance(bound, ast.Name) and value.const is not None and not value.optional
            return isinstance(bound, ast.Call) or given and set(things) == set(value.things)
    return False


def _given_to(name: str, statement: ast.Assign) -> Iterator[ast.expr]:
    """What an attribute of an object is bound to, also beside others: `self.a, self.b = Linear(4, 8), Linear(8, 1)`."""
    for target in statement.targets:
        targets, values = [target], [statement.value]
        if isinstance(target, ast.Tuple) and isinstance(statement.value, ast.Tuple):
            targets, values = target.elts, statement.value.elts
        yield from (value for each, value in zip(targets, values, strict=False) if is_own(each) and each.attr == name)


def methods_of(cls: Class) -> dict[str, ast.FunctionDef]:
    """The methods of a class, those that it derives included. What has `__call__` alone has that for `forward`."""
    line = reversed(list(cls.line()))
    found = {each.name: each for one in line for each in one.node.body if isinstance(each, ast.FunctionDef)}
    return {"forward": found["__call__"]} | found if "__call__" in found else found


def reads_of(name: str, methods: dict[str, ast.FunctionDef]) -> frozenset[str]:
    """What a method reads of its object, by itself or through the methods that it calls."""
    found: set[str] = set()
    pending = [name]
    while pending:
        read = {n.attr for n in walk(methods[pending.pop()]) if is_own(n)} - found
        found |= read
        pending += [each for each in read if each in methods]
    return frozenset(found)


def has_no_gradient(node: ast.AST) -> bool:
    """`codes.detach()`, `distances.argmin(1)`, `self.codes.weight.data`"""
    if isinstance(node, ast.Call):
        return last_name(node.func) in UNLEARNT
    return isinstance(node, ast.Compare) or isinstance(node, ast.Attribute) and node.attr in ("data", "shape")


def _is_without_parameters(value: Value) -> bool:
    layers = [thing for thing in value.things if isinstance(thing, Object)]
    return all(each.cls is None and each.kind.startswith(NO_PARAMETERS) for each in layers)


def has_parameters(layer: Object) -> bool:
    """Whether it is a loose parameter, or a module that may have some."""
    if "parameter" in layer.roles:
        return True
    return (
        bool(layer.roles & LAYERS)
        and "loss" not in layer.roles
        and not _is_without_parameters(Value(frozenset([layer])))
    )


def own_parameters(module: Object) -> set[str]:
    """The attributes that hold loose parameters."""
    held = module.attributes.items()
    return {name for name, value in held if name.isidentifier() and any(True for _ in value.objects("parameter"))}


def own_parts(module: Object) -> set[str]:
    """The attributes that hold modules with parameters."""
    return {
        name
        for name, value in module.attributes.items()
        if name.isidentifier()
        and not _is_without_parameters(value)
        and any(isinstance(t, Object) and t.roles & LAYERS and "loss" not in t.roles for t in value.things)
    }


def while_made(methods: dict[str, ast.FunctionDef]) -> list[ast.FunctionDef]:
    """`__init__`, and the methods that nothing but it calls."""
    begins = ({"__init__"} | reads_of("__init__", methods)) & methods.keys()
    for _ in range(len(begins)):
        others = [methods[name] for name in methods.keys() - begins]
        begins -= {n.attr for method in others for n in walk(method) if is_own(n)}
    return [methods[name] for name in begins]


def called_parts(block: Iterable[ast.AST], names: set[str], run: Interpreter) -> set[str]:
    """The parts of a module that a block calls, by attribute or as the variable of a loop over them."""
    found = set()
    for statement in block:
        for node in walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
                found |= {node.attr} & names
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                things = run.values.get(node.func, Value()).things
                if any(isinstance(t, Object) and t.roles & LAYERS and "loss" not in t.roles for t in things):
                    found.add(node.func.id)
    return found


def is_settled(test: ast.expr, module: Object) -> bool:
    """Conditions that are the same in every training step: settings of the module, `self.training`, None tests."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot)):
        return True
    names = list(all_of(test, ast.Name))
    calls = list(all_of(test, ast.Call))
    return not calls and all(n.id == "self" for n in names)
