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


def spelled(value: Value, depth: int = DEEPEST) -> frozenset[str]:
    """How a path may be spelled. What is not told stands in it by what it is computed from, in angle brackets."""
    found = {str(each) for kind, each in value.constants if kind in (str, int)}
    found |= {NUMBER for kind, _ in value.constants if kind not in (str, int, type(None))}
    for each in value.things if depth else ():
        if isinstance(each, Object) and each.cls is None and each.inputs:
            found |= _joined(each.inputs if each.name.startswith("pathlib.") else each.inputs[:1], "/", depth)
        elif isinstance(each, Method) and isinstance(each.owner, Object):
            found |= {
                f"<{each.function} of {one}>" for one in spelled(Value(things=frozenset([each.owner])), depth - 1)
            }
    for operation in value.operations if depth else ():
        found.update(_computed(operation, depth))
    return frozenset(islice(sorted(found), MOST))


def _computed(operation: Operation, depth: int) -> Iterable[str]:
    inputs = (Value(things=frozenset([operation.owner])), *operation.inputs) if operation.owner else operation.inputs
    between = JOINING.get(operation.name, JOINING.get(operation.name.rpartition(".")[2]))
    first = inputs[0].constant if inputs else None
    if isinstance(first, str) and operation.name.endswith(".format") and not isinstance(operation.node, ast.JoinedStr):
        return [FIELDS.sub(NUMBER, first)]
    if between is not None:
        return _joined(inputs, between, depth)
    if operation.name == "range.index":
        return [NUMBER]
    if SAME.fullmatch(operation.name) and inputs:
        return spelled(inputs[0], depth - 1)
    place = "" if inputs else f"{getattr(operation.node, 'lineno', 0)}"
    return [f"<{operation.name.rpartition('.')[2]} of {each or place}>" for each in _joined(inputs, ",", depth)]


def _joined(parts: Iterable[Value], between: str, depth: int) -> set[str]:
    known = [spelled(each, depth - 1) or {"<>"} for each in parts]
    return {between.join(each) for each in islice(product(*map(sorted, known)), MOST)}


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
