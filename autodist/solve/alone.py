"""What rank 0 runs alone, where no rank can communicate: what comes into it is made global ahead of it."""

from __future__ import annotations

import ast

from autodist.program import Operation, Program
from autodist.source import Source, walk


class Alone:
    """The statements that rank 0 runs alone."""

    def __init__(self, statements: frozenset[ast.AST] = frozenset()) -> None:
        self._statements = statements
        self.run_alone: dict[Program, set[ast.AST]] = {}
        """The functions of a program that rank 0 alone runs, once they are found."""

    def __bool__(self) -> bool:
        return bool(self._statements)

    def around(self, node: ast.AST, source: Source) -> ast.AST | None:
        """The outermost such statement that a node stands in, if any."""
        found = [each for each in (node, *source.ancestors(node)) if each in self._statements] if self else []
        return found[-1] if found else None

    def calls(self, operation: Operation) -> bool:
        """Whether an operation is part of a function that such a statement calls."""
        regions = (each for each in operation.region.around() if each.kind == "call")
        return any(self.around(each.node, each.source) for each in regions)

    def functions(self, operation: Operation) -> list[ast.AST]:
        """The functions that such a statement calls, of which an operation is part."""
        found: list[ast.AST] = []
        for region in operation.region.around():
            if region.function is not None:
                found.append(region.function)
                if self.around(region.node, region.source) is not None:
                    return found
        return []

    def binds(self, node: ast.expr, source: Source) -> bool:
        """Whether an expression in such a statement needs a name that is bound in there: `l` of
        `file.write(", ".join(str(l) for l in losses))`"""
        statement = self.around(node, source)
        if statement is None:
            return False
        names = [each for each in walk(statement) if isinstance(each, ast.Name)]
        bound = {each.id for each in names if isinstance(each.ctx, ast.Store)}
        return any(isinstance(each, ast.Name) and each.id in bound for each in walk(node))
