"""How paths are spelled, as far as a program tells: two that are spelled alike are of one file."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterable
from itertools import islice, product

from autodist.program import Operation, Value
from autodist.trace.things import Heap, Method, Object

NUMBER = "*"
"""Stands for a number that is not known."""
JOINING = {"os.path.join": "/", "operator.truediv": "/", "joinpath": "/", "operator.add": "", "format": ""}
"""What puts paths together, and what it puts between their parts."""
SAME = re.compile(
    r".*\.(abspath|expanduser|normpath|realpath|fspath|str|resolve|absolute)|"
    r"(builtins|gzip|bz2|lzma|io|codecs|object|pathlib\.\w+)\.open"
)
"""What gives the path that it is given, or a file that is opened there."""
FIELDS = re.compile(r"{[^}]*}|%[-+ #0-9.]*[a-z]")
LOOKING = frozenset("exists isfile isdir is_file is_dir listdir scandir iterdir glob iglob rglob".split())
MOST = 32
"""So many spellings of one path are told apart."""
DEEPEST = 6


def spelled(value: Value) -> frozenset[str]:
    """How a path may be spelled. What is not told stands in it by what it is computed from, in angle brackets."""
    return _Spelling().of(value, DEEPEST)


class _Spelling:
    """The spellings of paths, those of what an operation gives each once."""

    def __init__(self) -> None:
        self._known: dict[tuple[Operation, int], frozenset[str]] = {}

    def of(self, value: Value, depth: int) -> frozenset[str]:
        found = {str(each) for kind, each in value.constants if kind in (str, int)}
        found |= {NUMBER for kind, _ in value.constants if kind not in (str, int, type(None))}
        for each in value.things if depth else ():
            if isinstance(each, Object) and each.cls is None and each.inputs:
                found |= self._joined(each.inputs if each.name.startswith("pathlib.") else each.inputs[:1], "/", depth)
            elif isinstance(each, Method) and isinstance(each.owner, Object):
                owner = self.of(Value(things=frozenset([each.owner])), depth - 1)
                found |= {f"<{each.function} of {one}>" for one in owner}
        for operation in value.operations if depth else ():
            found |= self._given_by(operation, depth)
        return frozenset(islice(sorted(found), MOST))

    def _given_by(self, operation: Operation, depth: int) -> frozenset[str]:
        key = operation, depth
        if key not in self._known:
            self._known[key] = frozenset(self._computed(operation, depth))
        return self._known[key]

    def _computed(self, operation: Operation, depth: int) -> Iterable[str]:
        owner = [Value(things=frozenset([operation.owner]))] if operation.owner else []
        inputs = (*owner, *operation.inputs)
        short = operation.name.rpartition(".")[2]
        between = JOINING.get(operation.name, JOINING.get(short))
        first = inputs[0].constant if inputs else None
        if isinstance(first, str) and short == "format" and not isinstance(operation.node, ast.JoinedStr):
            return [FIELDS.sub(NUMBER, first)]
        if between is not None:
            return self._joined(inputs, between, depth)
        if operation.name == "range.index":
            return [NUMBER]
        if SAME.fullmatch(operation.name) and inputs:
            return self.of(inputs[0], depth - 1)
        if operation.is_tensor:
            return []
        if not inputs:
            return [f"<{short} of line {getattr(operation.node, 'lineno', 0)}>"]
        return [f"<{short} of {each}>" for each in self._joined(inputs, ",", depth) or {""}]

    def _joined(self, parts: Iterable[Value], between: str, depth: int) -> set[str]:
        known = [self.of(each, depth - 1) for each in parts]
        together = product(*(sorted(each) or ["<>"] for each in known)) if any(known) else ()
        return {between.join(each) for each in islice(together, MOST)}


def made_of(value: Value) -> set[Operation]:
    """The operations that a path is computed from, by way of objects and lists that hold parts of it."""
    found, seen, pending = set[Operation](), set[object](), [value]
    while pending:
        each = pending.pop()
        for operation in each.operations - found:
            found.add(operation)
            pending += operation.operands
        for thing in each.things - seen:
            seen.add(thing)
            if isinstance(thing, Method):
                pending.append(Value(things=frozenset([thing.owner])))
            elif isinstance(thing, Heap):
                pending += [*thing.contents(), *(thing.inputs if isinstance(thing, Object) else ())]
    return found


def looks_for_files(operation: Operation) -> bool:
    """Whether an operation asks which files there are."""
    return operation.name.rpartition(".")[2] in LOOKING


def may_be_same(one: Iterable[str], other: Iterable[str]) -> bool:
    """Whether two paths may be of one file, by how they may be spelled: in folders of which one is not told, those of
    one name are."""
    return any(_may_be_same(posixpath.normpath(a), posixpath.normpath(b)) for a in one for b in other)


def _may_be_same(one: str, other: str) -> bool:
    told = [each for each in (one, other) if "<" not in each and NUMBER not in each]
    if one == other or len(told) == 2:
        return one == other and re.search("[A-Za-z]", one) is not None
    (folder, name), (beside, found) = map(posixpath.split, (one, other))
    alike = re.sub(r"\d+", NUMBER, name) == re.sub(r"\d+", NUMBER, found)
    named = re.search("[A-Za-z]", posixpath.splitext(name)[0]) is not None and "<>" not in name
    return alike and named and (folder == beside or "<" in folder + beside or NUMBER in folder + beside)
