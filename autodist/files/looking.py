"""Code that goes by the files that are there."""

from __future__ import annotations

import ast
from typing import NamedTuple

from autodist.interpreter import TESTING_FILES, Event, Interpreter
from autodist.regions import TOGETHER
from autodist.source import Source, all_of, last_name, walk

READING = ("load", "open", "read", "File", "stat")
MOST_BETWEEN = 4


def ends_search(test: ast.If) -> bool:
    """Whether a loop is left where a file is missing: `if not os.path.exists(path): break`"""
    if not tests_files(test.test) or finds(test.test):
        return False
    return any(isinstance(n, (ast.Break, ast.Return)) for each in test.body for n in walk(each))


def stands_where_missing(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement runs only where a test finds a file missing, within its function."""
    inner: ast.AST = statement
    for ancestor in source.ancestors(statement):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        if isinstance(ancestor, ast.If) and tests_files(ancestor.test):
            if finds(ancestor.test) != (inner in ancestor.body):
                return True
        if isinstance(ancestor, ast.Try) and isinstance(inner, ast.ExceptHandler) and _misses_file(inner, ancestor):
            return True
        inner = ancestor
    return False


def finds(test: ast.expr) -> bool:
    """Whether a test holds where files are there: `os.path.exists(path)`."""
    return not any(isinstance(n, (ast.Not, ast.Compare)) for n in walk(test))


def is_left_out(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement runs only where a file is not there yet: after an early return, too."""
    if stands_where_missing(source, statement):
        return True
    home = source.function(statement)
    before = (each for each in home.body if each.lineno < statement.lineno) if home is not None else ()
    return any(
        isinstance(each, ast.If)
        and tests_files(each.test)
        and finds(each.test)
        and isinstance(each.body[-1], ast.Return)
        for each in before
    )


class Met(NamedTuple):
    """Where a run comes by."""

    looks: frozenset[ast.AST]
    """The calls in which files are looked for."""
    trains: frozenset[ast.AST]
    """What trains, or has something in it that does."""

    @classmethod
    def of(cls, run: Interpreter) -> Met:
        """The places of a run."""
        looks = (place for event in run.of("exists") for place in places(event))
        training = (place for event in run.events if event.kind in TOGETHER for place in places(event))
        trains = {each for node, source in training for each in (node, *source.ancestors(node))}
        return cls(frozenset(node for node, _ in looks), frozenset(trains))


def places(event: Event) -> list[tuple[ast.AST, Source]]:
    """Where an event happens, and the calls that lead there."""
    calls = [(call.node, call.source) for call in event.calls if call.node is not None]
    return [*calls, (event.node, event.source)]


def _asks(test: ast.expr, met: Met) -> bool:
    """Whether a condition goes by the files that are there: `if not is_complete(root):` as well."""
    return tests_files(test) or not met.looks.isdisjoint(walk(test))


def file_test(source: Source, statement: ast.stmt, met: Met) -> ast.stmt:
    """The `if not os.path.exists(...)` around a statement, the `try` that has found no file, or itself."""
    found = statement
    inner: ast.AST = statement
    for ancestor in source.ancestors(statement):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            break
        if ancestor in met.trains:
            break  # all ranks have to come there at once
        if _goes_by_files(ancestor, inner, source, met):
            assert isinstance(ancestor, ast.stmt)
            found = ancestor
        inner = ancestor
    return found


def _goes_by_files(node: ast.AST, inner: ast.AST, source: Source, met: Met) -> bool:
    if isinstance(node, ast.If):
        return _asks(node.test, met) or _answer(source, node, met) is not None
    return isinstance(node, ast.Try) and isinstance(inner, ast.ExceptHandler) and _misses_file(inner, node)


def _misses_file(handler: ast.ExceptHandler, attempt: ast.Try) -> bool:
    """Whether a file is missing that was to be read: `except FileNotFoundError:`, whatever is caught where one is."""
    calls = (n for each in attempt.body for n in all_of(each, ast.Call))
    names = [last_name(call.func) or "" for call in calls]
    reads = any(name.startswith(READING) for name in names)
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return reads or any(each is not None and last_name(each) == "FileNotFoundError" for each in kinds)


def _answer(source: Source, test: ast.If, met: Met) -> ast.stmt | None:
    """Where a file was looked for, right above a condition that goes by what was found: `cached = path.exists()`"""
    asked = {n.id for n in all_of(test.test, ast.Name)}
    block = source.block(test)
    for each in block[max(0, block.index(test) - MOST_BETWEEN) : block.index(test)]:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id in asked:
            if _asks(each.value, met):
                return each
    return None


def with_answer(source: Source, statement: ast.stmt, met: Met) -> list[ast.stmt]:
    """A statement, from where the file was looked for by which it goes."""
    first = _answer(source, statement, met) if isinstance(statement, ast.If) else None
    block = source.block(statement)
    return block[block.index(first or statement) : block.index(statement) + 1]


def tests_files(test: ast.expr) -> bool:
    """Whether a condition asks for files."""
    return any(isinstance(n, ast.Call) and last_name(n.func) in TESTING_FILES for n in walk(test))
