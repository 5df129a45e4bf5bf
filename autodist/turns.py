"""Data sets that read one sample after the other, whatever index they are asked for, or have no more than one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.rule import Severity
from autodist.script import Concern, Loader
from autodist.source import walk
from autodist.values import NOTHING, Class, Items, Object, Value

READING = frozenset("readline readlines read next __next__ pop popleft get recv".split())
"""What moves on by itself."""
DEPTH = 4


def concerns(loaders: list[Loader]) -> Iterator[Concern]:
    """A sampler that shares out indices shares out nothing of such data: every rank would read the same samples."""
    for loader in loaders:
        given = loader.object.argument("dataset", 0)
        if loader.sharded or loader.iterable or given is None:
            continue
        for dataset in _datasets(given):
            if dataset.cls is None:
                continue
            if (only := _only_one(dataset)) is not None:
                message = (
                    f"{dataset.cls.node.name} has one sample, which cannot be shared out: make what it consists of "
                    "(points, pixels) the samples"
                )
                yield Concern("AD902", dataset.cls.source, only, message, Severity.REFUSAL)
                return
            reads = _reading_in_turn(dataset.cls)
            if reads is None:
                continue
            message = (
                f"{dataset.cls.node.name} takes no notice of the index it is asked for, so that every rank would read "
                "the same samples in turn: read the sample of that index, or make it an IterableDataset"
            )
            yield Concern("AD902", dataset.cls.source, reads, message, Severity.REFUSAL)
            return


def _datasets(value: Value, depth: int = DEPTH) -> Iterator[Object]:
    """The data sets of the project in a value, also within `Subset` and the like."""
    for thing in value.things if depth else ():
        if isinstance(thing, Object) and thing.cls is not None:
            yield thing
        elif isinstance(thing, Object) and "dataset" in thing.roles:
            for arg in thing.args[:1]:
                yield from _datasets(arg, depth - 1)
        elif isinstance(thing, Items):
            for part in (*thing.parts, thing.element):
                yield from _datasets(part, depth - 1)


def _only_one(dataset: Object, depth: int = DEPTH) -> ast.AST | None:
    """The `__len__` that says 1, or says what that of the data set in it says: `return len(self.dataset)`."""
    for function in dataset.functions("__len__") if depth else ():
        returns = [each.value for each in walk(function.node) if isinstance(each, ast.Return)]
        match returns:
            case [ast.Constant(value=1)]:
                return function.node
            case [ast.Call(func=ast.Name(id="len"), args=[ast.Attribute(value=ast.Name(id="self"), attr=name)])]:
                held = [each for each in dataset.attributes.get(name, NOTHING).things if isinstance(each, Object)]
                if held and all(_only_one(each, depth - 1) is not None for each in held):
                    return function.node
    return None


def _reading_in_turn(cls: Class) -> ast.FunctionDef | None:
    """The `__getitem__` of a class that does not use its index but reads on from where it is, or that takes its sample
    by a number of its own, which goes on with each: `self.rows[self.current]`."""
    for node in (each.node for each in cls.functions("__getitem__")):
        if not isinstance(node, ast.FunctionDef) or len(node.args.args) != 2 or node.args.vararg is not None:
            continue
        inside = list(walk(node))
        reached = [each for function in _reached(cls, node) for each in walk(function)]
        if set(_moving(reached)) & set(_chosen_by(reached)):
            return node
        if any(isinstance(each, ast.Name) and each.id == node.args.args[1].arg for each in inside):
            continue
        called = {each.func for each in inside if isinstance(each, ast.Call)}
        names = {each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in called}
        counts = any(isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Attribute) for each in inside)
        if names & READING or counts:
            return node
    return None


def _reached(cls: Class, node: ast.FunctionDef) -> list[ast.AST]:
    """A method and those that it calls of its own object."""
    found: dict[ast.AST, None] = {node: None}
    for method in (queue := [node]):
        for each in walk(method):
            if not isinstance(each, ast.Call) or _own(each.func) is None:
                continue
            others = (function.node for function in cls.functions(_own(each.func) or ""))
            fresh = [other for other in others if isinstance(other, ast.FunctionDef) and other not in found]
            found |= dict.fromkeys(fresh)
            queue += fresh
    return list(found)


def _own(node: ast.AST) -> str | None:
    """`current` of `self.current`."""
    return node.attr if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self" else None


def _moving(inside: list[ast.AST]) -> Iterator[str]:
    """What goes on from where it was: `self.current += 1`, `self.current = (self.current + 1) % n`."""
    for each in inside:
        if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Attribute):
            yield each.target.attr
        elif isinstance(each, ast.Assign) and isinstance(each.value, ast.BinOp):
            before = {_own(part) for part in walk(each.value)}
            yield from (name for name in map(_own, each.targets) if name is not None and name in before)


def _chosen_by(inside: list[ast.AST]) -> Iterator[str]:
    """The numbers of its own by which something is taken."""
    for each in inside:
        if isinstance(each, ast.Subscript) and isinstance(each.ctx, ast.Load):
            yield from (name for name in map(_own, walk(each.slice)) if name is not None)
