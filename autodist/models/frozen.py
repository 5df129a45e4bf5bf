"""Models that a setting of the script may freeze as a whole: DistributedDataParallel refuses them."""

from __future__ import annotations

import ast

from autodist.interpreter import Interpreter
from autodist.models.parts import optimized_by, parts
from autodist.source import all_of, told_once, walk
from autodist.values import Object


def may_be_frozen(module: Object, run: Interpreter) -> bool:
    """Whether a model has an optimizer only where a setting asks for it, `Adam(encoder.parameters()) if tune else
    None`, in a script that freezes parameters."""
    members = parts(module)
    stepped = {thing for event in run.of("step") for thing in event.value.objects("optimizer")}
    optimizers = [each for each in stepped if any(model in members for model in optimized_by(each))]
    if not optimizers or not all(_is_optional(each, module) for each in optimizers):
        return False
    return any(map(_any_frozen, (source.tree for source in run.project.sources)))


def _is_optional(optimizer: Object, module: Object) -> bool:
    """Whether a branch makes an optimizer that was not taken for its model, and the other one makes none."""
    source, inner = optimizer.source, optimizer.node
    made: ast.AST = inner
    for outer in source.ancestors(inner):
        if isinstance(outer, ast.IfExp) and made is not outer.test:
            other = outer.orelse if made is outer.body else outer.body
            if isinstance(other, ast.Constant) and other.value is None:
                return True
        if isinstance(outer, ast.If) and made in (*outer.body, *outer.orelse):
            other_branch = outer.orelse if made in outer.body else outer.body
            name = _bound(source.statement(inner))
            binds = any(_bound(each) == name for part in other_branch for each in walk(part))
            if name is not None and not binds and module.node not in walk(outer):
                return True
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return False
        made = outer
    return False


def _bound(statement: ast.AST) -> str | None:
    """What an assignment binds."""
    return ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) else None


@told_once
def _any_frozen(tree: ast.Module) -> bool:
    return any(map(_freezes, all_of(tree, ast.Call, ast.Assign)))


def _freezes(node: ast.AST) -> bool:
    """`p.requires_grad = tune`, `model.requires_grad_(False)`"""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
        given = next(iter((*node.args, *(each.value for each in node.keywords))), None)
        return given is not None and not (isinstance(given, ast.Constant) and given.value is True)
    if not isinstance(node, ast.Assign) or isinstance(node.value, ast.Constant) and node.value.value is True:
        return False
    return any(isinstance(each, ast.Attribute) and each.attr == "requires_grad" for each in node.targets)
