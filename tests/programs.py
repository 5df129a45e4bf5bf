"""What tests of the tracer share: a program from a few lines of a script."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

from autodist import catalog
from autodist.program import Operation, Program, Value
from autodist.project import Project
from autodist.trace import trace

CATALOG = catalog.load()


def traced(text: str, folder: Path | None = None, modules: Mapping[str, str] | None = None) -> Program:
    """The program of a script, and of the modules beside it."""
    for name, code in (modules or {}).items():
        assert folder is not None
        path = folder / (name.replace(".", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code)
    entry = (folder or Path()) / "train.py"
    return trace(Project.load(entry, stdin=text + "\nresult\n" * ("result" in text)), CATALOG)


def bound(program: Program, name: str) -> Value:
    """What a name may hold where it is read last, or bound."""
    found = [node for node in program.values if isinstance(node, ast.Name) and node.id == name]
    assert found, f"no {name}"
    return program.at(max(found, key=lambda node: (node.lineno, isinstance(node.ctx, ast.Load))))


def told(value: Value) -> set[object]:
    """The names of the operations that give a value, and its constants."""
    return {each.name for each in value.operations} | {each[1] for each in value.constants}


def named(program: Program, name: str) -> list[Operation]:
    """The operations of a name."""
    return [each for each in program.operations if each.name == name]
