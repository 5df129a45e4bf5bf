"""A file of a script that distributes itself, and the edits that put a fault in it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

GUARD = re.compile(r"(self\.|args\.|ranks\.|self\.ranks\.)?(rank == 0|is_main)$|master_process$|is_main_process\(\)$")


@functools.cache
def parsed(text: str) -> tuple[ast.Module, Mapping[ast.AST, ast.AST], list[bytes]]:
    """The syntax of a text, what is around each node, and its lines. Each kind of fault asks for them anew."""
    tree = ast.parse(text)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    return tree, parents, text.encode().splitlines(keepends=True)


@dataclass
class File:
    """A file of a script, and the edits of one fault. Lines count from 1."""

    script: str
    name: str
    text: str
    edits: list[tuple[int, int, list[str]]] = field(default_factory=list)
    """From which line to before which is replaced by what."""

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax, which is only read: all files of this text have it."""
        return parsed(self.text)[0]

    @cached_property
    def parents(self) -> Mapping[ast.AST, ast.AST]:
        """What is around each node."""
        return parsed(self.text)[1]

    @property
    def whole(self) -> list[str]:
        """Its lines as they were."""
        return self.text.splitlines()

    def statements(self) -> list[ast.stmt]:
        """All statements, in the order of their lines."""
        found = [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt)]
        return sorted(found, key=lambda node: node.lineno)

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def function(self, node: ast.AST) -> ast.AST:
        """The function around a node, or the file."""
        return next((each for each in self.around(node) if isinstance(each, ast.FunctionDef)), self.tree)

    def code(self, node: ast.AST) -> str:
        """The text of a node."""
        first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
        lines = parsed(self.text)[2][first - 1 : last] if first else []
        if lines:  # columns count bytes, and the last line may be the first one
            lines[-1] = lines[-1][: node.end_col_offset]  # type: ignore[attr-defined]
            lines[0] = lines[0][node.col_offset :]  # type: ignore[attr-defined]
        return b"".join(lines).decode()

    def guard(self, node: ast.AST) -> str | None:
        """How the function around a node, or its class, asks for rank 0."""
        scopes = [self.function(node), *(each for each in self.around(node) if isinstance(each, ast.ClassDef))]
        for scope in scopes:
            for each in ast.walk(scope):
                if isinstance(each, ast.If) and GUARD.match(self.code(each.test)):
                    return self.code(each.test)
        return None

    def fault(self) -> File:
        """The same file, to make another fault in."""
        return File(self.script, self.name, self.text)

    # edits

    def delete(self, node: ast.stmt) -> File:
        """Without a statement, or `pass` where it stands alone."""
        parent = self.parents[node]
        alone = any(getattr(parent, block, None) == [node] for block in ("body", "orelse"))
        indent = " " * node.col_offset
        return self.replace_lines(node.lineno, (node.end_lineno or 0) + 1, [f"{indent}pass"] if alone else [])

    def replace_lines(self, first: int, behind: int, new: list[str]) -> File:
        """Other lines in place of some."""
        made = self.fault()
        made.edits = [*self.edits, (first, behind, new)]
        return made

    def before(self, node: ast.stmt, *lines: str) -> File:
        """Lines ahead of a statement, indented as it is."""
        return self.replace_lines(node.lineno, node.lineno, [" " * node.col_offset + line for line in lines])

    def rewritten(self, node: ast.stmt, *lines: str) -> File:
        """Lines in place of a statement, indented as it is."""
        new = [" " * node.col_offset + line for line in lines]
        return self.replace_lines(node.lineno, (node.end_lineno or 0) + 1, new)

    def under(self, node: ast.stmt, header: str) -> File:
        """A statement in a block of its own."""
        inside = self.whole[node.lineno - 1 : node.end_lineno]
        header = " " * node.col_offset + header
        return self.replace_lines(
            node.lineno, (node.end_lineno or 0) + 1, [header, *(f"    {each}" for each in inside)]
        )

    def swapped(self, line: int, before: str, after: str) -> File:
        """Something else in a line."""
        assert before in self.whole[line - 1], (self.script, line, before)
        return self.replace_lines(line, line + 1, [self.whole[line - 1].replace(before, after, 1)])

    def new_line(self, old: int) -> int:
        """Where a line of the file has come to."""
        return old + sum(len(new) - (behind - first) for first, behind, new in self.edits if behind <= old)

    @property
    def result(self) -> str:
        """The text with the edits."""
        lines = self.whole
        for first, behind, new in sorted(self.edits, reverse=True):
            lines[first - 1 : behind - 1] = new
        return "\n".join(lines) + "\n"

    @property
    def changed(self) -> range:
        """The lines that the first edit has made, or the one at which it took some away."""
        first, _, new = min(self.edits)
        return range(first, first + max(len(new), 1))
