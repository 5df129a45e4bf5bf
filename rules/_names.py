"""Names that inserted lines may not take."""

from __future__ import annotations

import ast

from autodist.source import Source, walk


def names_at(source: Source, statement: ast.stmt) -> set[str]:
    """The names that mean something in the scope of a statement."""
    scopes = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    scope = next((a for a in source.ancestors(statement) if isinstance(a, scopes)), source.tree)
    found: set[str] = set()
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        if isinstance(node, scopes):
            found |= _outer_names(node)
        else:
            pending += ast.iter_child_nodes(node)
    return found


def _outer_names(scope: ast.AST) -> set[str]:
    """The names that a function or class reads and does not bind."""
    names = [node for node in walk(scope) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    return {node.id for node in names} - bound - {node.arg for node in walk(scope) if isinstance(node, ast.arg)}
