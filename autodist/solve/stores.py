"""What loops bind, and put something into, as it is written down."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from autodist.source import Source, last_name, walk

CHANGING = frozenset(
    "append appendleft add insert extend extendleft update put push setdefault pop popleft remove clear discard sort "
    "reverse fill".split()
)
"""Methods that change lists, dicts, sets and arrays."""
EXTREMES = frozenset("max min maximum minimum fmax fmin".split())

FACTORIES = [[each] for each in ("int", "float", "list", "lambda: 0", "lambda: 0.0", "lambda: []")]
"""What a `defaultdict` may be given that makes zeros and empty lists."""


def owner_of(node: ast.AST, base: ast.expr) -> ast.expr:
    """Whose contents are changed: `meter` of `meter.count = 0`"""
    return base.value if node is base and isinstance(base, ast.Attribute) else base


def root_of(base: ast.expr) -> ast.expr:
    """The list or dict in which another one is: `kept` of `kept["scores"]`"""
    while isinstance(base, ast.Subscript):
        base = base.value
    return base


def changes(root: ast.AST) -> Iterator[tuple[ast.AST, ast.expr]]:
    """What some code puts something into, or binds an attribute of, and where."""
    for each in walk(root):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, (ast.Store, ast.Del)):
            yield each, each
        elif isinstance(each, ast.Subscript) and isinstance(each.ctx, (ast.Store, ast.Del)):
            yield each, root_of(each.value)
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in CHANGING:
            yield each, each.func.value


def bound_by(statement: ast.stmt, code: str) -> ast.expr | None:
    """What a statement binds a name to."""
    if isinstance(statement, ast.AnnAssign):
        return statement.value if spells(statement.target, code) else None
    if not isinstance(statement, ast.Assign):
        return None
    value = statement.value
    for target in statement.targets:
        if spells(target, code):
            return value if len(statement.targets) == 1 or isinstance(value, ast.Constant) else None
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for each, part in zip(target.elts, value.elts, strict=False):
                if spells(each, code):
                    return part
    return None


def only_adds(source: Source, root: ast.AST, code: str) -> bool:
    """Whether some code does nothing to a number, tensor, list or dict but add to it: `total += x`, `hits[a] += 1`,
    `losses.append(x)`, `total = total + x`, `worst = max(worst, x)`."""
    for node, base in changes(root):
        if spells(root_of(base), code):
            func = node.func if isinstance(node, ast.Call) else None
            grows = isinstance(func, ast.Attribute) and func.attr in ("append", "extend")
            if not grows and not _is_added(node, code, source):
                return False
    stored = (each for each in walk(root) if spells(each, code) and not isinstance(each.ctx, ast.Load))  # type: ignore[attr-defined]
    return all(_is_added(each, code, source) for each in stored)


def _is_added(node: ast.AST, code: str, source: Source) -> bool:
    """Whether what is stored there is added to what was there."""
    above = source.parents[node]
    if isinstance(above, ast.AugAssign):
        return isinstance(above.op, (ast.Add, ast.Sub))
    if not isinstance(above, ast.Assign) or not spells(node, code):
        return False
    match above.value:
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return spells(left, code) or spells(right, code)
        case ast.BinOp(left=left, op=ast.Sub()):
            return spells(left, code)
        case ast.Call(func=func, args=args, keywords=[]):
            return last_name(func) in EXTREMES and sum(spells(each, code) for each in args) == 1
    return False


def is_read(node: ast.AST, source: Source) -> bool:
    """Whether what a name or an attribute holds is read: also where it is changed, `total /= n`."""
    above = source.parents.get(node)
    changed = isinstance(above, ast.AugAssign) and above.target is node
    return changed or isinstance(getattr(node, "ctx", None), ast.Load)


def spells(node: ast.AST, code: str) -> bool:
    """Whether it is a name, or an attribute, as some code writes it."""
    if isinstance(node, ast.Name):
        return node.id == code
    return isinstance(node, ast.Attribute) and "." in code and ast.unparse(node) == code


def is_path(node: ast.AST) -> bool:
    """`total`, `self.total`"""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def begins_empty(node: ast.AST) -> bool:
    """Whether an expression gives a list without elements."""
    return isinstance(node, ast.List) and not node.elts or isinstance(node, ast.Call) and ast.unparse(node) == "list()"


def begins_with_zeros(node: ast.AST, gives_zero: Callable[[ast.expr], bool]) -> bool:
    """Whether an expression gives a list or dict of zeros and empty lists, or an empty dict: `{"loss": 0.0, "scores":
    []}`; ``gives_zero`` says it of what is no constant."""
    match node:
        case ast.Dict(values=values) | ast.List(elts=values):
            pass
        case ast.DictComp(value=part) | ast.ListComp(elt=part):
            values = [part]
        case ast.BinOp(left=ast.List(elts=values), op=ast.Mult()):
            pass
        case ast.Call(func=func, args=args, keywords=[]) if last_name(func) == "defaultdict":
            return [*map(ast.unparse, args)] in FACTORIES
        case ast.Call(func=func, args=[], keywords=[]):
            return last_name(func) in ("dict", "Counter", "OrderedDict")
        case _:
            return False
    return all(begins_empty(each) or is_zero(each) or gives_zero(each) for each in values)


def is_zero(node: ast.AST) -> bool:
    """Whether it is a literal zero."""
    return isinstance(node, ast.Constant) and node.value == 0 and node.value is not False
