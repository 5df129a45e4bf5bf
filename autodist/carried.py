"""What statements write into something that was there before."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.source import Source, told_once, walk

KEEPING = frozenset(["requires_grad_", "detach_", "share_memory_", "squeeze_", "t_", "coalesce_"])
"""What changes no number, though its name ends like what does."""
DISPLAYS = ast.Tuple | ast.List
Written = tuple[ast.Name | ast.Attribute, tuple[ast.expr, ...]]


@told_once
def written(statement: ast.stmt) -> Written | None:
    """What a statement changes rather than makes anew, and the values that go into it: `bank[index] = features`,
    `centre = 0.9 * centre + 0.1 * mean`, `self.count.mul_(0.9).add_(hits)`."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Subscript):
            if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
                return None  # a field of a dict
            root = _root(target.value)
            value = statement.value
            parts = value.elts if isinstance(value, DISPLAYS) else [value]
            return (root, tuple(parts)) if root is not None else None
        if isinstance(target, (ast.Name, ast.Attribute)):
            root = _root(target) or target
            fills_kept = root is not target and isinstance(root, ast.Attribute)  # `self.centre.data = mean`
            if fills_kept or _reads(statement.value, target) or _reads(statement.value, root):
                return root, (statement.value,)
    if isinstance(statement, ast.AugAssign):
        target = statement.target
        root = _root(target.value if isinstance(target, ast.Subscript) else target)
        return (root, (statement.value,)) if root is not None else None
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return _in_place(statement.value)
    return None


def is_counted_at_once(start: ast.expr, source: Source) -> bool:
    """Whether an attribute begins with these numbers that is counted up as a whole elsewhere: `self.sums = [a + b for
    a, b in zip(self.sums, args)]`."""
    around = source.parents.get(start)
    if not isinstance(around, ast.Assign) or not isinstance(around.targets[0], ast.Attribute):
        return False
    name = ast.unparse(around.targets[0])
    home = next((each for each in source.ancestors(around) if isinstance(each, ast.ClassDef)), None)
    for each in walk(home) if home is not None else ():
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.ListComp) and len(each.value.generators) == 1:
            over = each.value.generators[0].iter
            zipped = isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "zip"
            if zipped and name == ast.unparse(each.targets[0]) and name in map(ast.unparse, over.args):  # type: ignore[attr-defined]
                return True
    return False


def _in_place(call: ast.Call) -> Written | None:
    """`x.mul_(a).add_(b)`"""
    given: list[ast.expr] = []
    inner: ast.expr = call
    while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr.endswith("_"):
        if inner.func.attr.endswith("__") or inner.func.attr.startswith("_"):
            return None
        given += [*inner.args, *(keyword.value for keyword in inner.keywords)]
        inner = inner.func.value
    root = _root(inner.value if isinstance(inner, ast.Subscript) else inner) if inner is not call else None
    changes = given or isinstance(call.func, ast.Attribute) and call.func.attr not in KEEPING
    return (root, tuple(given)) if root is not None and changes else None


def _root(node: ast.expr) -> ast.Name | ast.Attribute | None:
    """The name or attribute that holds a tensor: `self.codes` of `self.codes.data`."""
    while isinstance(node, ast.Attribute) and node.attr == "data" and ast.unparse(node.value) != "self":
        node = node.value
    return node if isinstance(node, (ast.Name, ast.Attribute)) else None


def _reads(node: ast.expr, target: ast.Name | ast.Attribute) -> bool:
    wanted = ast.unparse(target)
    return any(
        isinstance(each, (ast.Name, ast.Attribute)) and ast.unparse(each) == wanted
        for each in walk(node)
        if isinstance(each, type(target))
    )


def buffers(definitions: Iterator[ast.ClassDef]) -> frozenset[str]:
    """The names that classes give to `register_buffer`."""
    calls = (each for definition in definitions for each in walk(definition) if isinstance(each, ast.Call))
    return frozenset(
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "register_buffer"
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    )
