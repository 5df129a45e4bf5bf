"""Modules that change the tensor they are given: FSDP gives a block a view of it, which torch keeps from that."""

from __future__ import annotations

import ast

from autodist.interpreter import Interpreter
from autodist.values import NOTHING, Items, Object, Value

POSITIONS = {
    **dict.fromkeys(("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid"), 0),
    **dict.fromkeys(("LeakyReLU", "ELU", "CELU", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"), 1),
    **dict.fromkeys(("Threshold", "RReLU", "Hardtanh"), 2),
}
"""Layers of torch that have an argument `inplace`, and its position."""
KEEPING = frozenset(["requires_grad_", "detach_"])


def changes_input(module: Object, run: Interpreter, depth: int = 5) -> bool:
    """Whether the forward pass of a module begins by changing its input in place: `nn.ReLU(True)` comes first."""
    if not depth:
        return False
    if module.cls is None:
        name = module.name.removeprefix("torch.nn.")
        if name == "Sequential":
            first = _first(module)
            return first is not None and changes_input(first, run, depth - 1)
        value = module.argument("inplace", POSITIONS[name]) if name in POSITIONS else None
        return value is not None and value.const is True
    nodes = [each.node for each in module.functions("forward")]
    return any(isinstance(node, ast.FunctionDef) and _changes(node, module, run, depth) for node in nodes)


def _first(sequential: Object) -> Object | None:
    """What a Sequential runs first."""
    for value in sequential.args[:1]:
        values: list[Value] = [value, *(each for t in value.things if isinstance(t, Items) for each in t.parts[:1])]
        held = [t for each in values for t in each.things if isinstance(t, Object) and "module" in t.roles]
        return held[0] if held else None
    return None


def _changes(forward: ast.FunctionDef, module: Object, run: Interpreter, depth: int) -> bool:
    given = {each.arg for each in forward.args.args[1:]}
    for statement in forward.body:
        for node in ast.walk(statement):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in given:
                return True
            if isinstance(node, ast.Call) and _call_changes(node, given, module, run, depth):
                return True
        if isinstance(statement, ast.Assign):
            given -= {n.id for target in statement.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return False


def _call_changes(call: ast.Call, given: set[str], module: Object, run: Interpreter, depth: int) -> bool:
    """`x.relu_()`, `F.relu(x, inplace=True)`, `self.block(x)`"""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    in_place = name.endswith("_") and not name.endswith("__") and name not in KEEPING
    if in_place and isinstance(owner, ast.Name) and owner.id in given:
        return True
    if not call.args or not isinstance(call.args[0], ast.Name) or call.args[0].id not in given:
        return False
    told = next((k.value for k in call.keywords if k.arg == "inplace"), None)
    if in_place or isinstance(told, ast.Constant) and told.value is True:
        return True
    if not isinstance(owner, ast.Name) or owner.id != "self":
        return False
    held = module.attributes.get(name, NOTHING).things
    return any(isinstance(t, Object) and "module" in t.roles and changes_input(t, run, depth - 1) for t in held)
