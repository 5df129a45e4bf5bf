"""Settings that decide over several branches of a script, which go together: what was made where `args.net` is "lstm"
is not there where it is another one."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import TypeAlias

from autodist.program import Operation, Program, Region, Value
from autodist.project import Project
from autodist.source import Source, walk
from autodist.trace.conditions import MIRRORED, OPPOSITE, Condition, can_meet, compared
from autodist.trace.things import Class, Function, Method, Object

Outcomes: TypeAlias = Mapping[Hashable, frozenset[Condition]]
"""What settings are surely like, by what tells them."""
BINDING = ("setattr", "delattr", "exec", "globals", "locals")
"""What binds names and attributes that are not spelled out."""
ONCE = ("module", "call", "branch", "with", "try")
"""The kinds of regions that do not run several times by themselves."""
REPEATING = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
PURE = ("operator.", "builtins.bool", "builtins.int", "builtins.float", "builtins.str")
"""The beginnings of the names of operations that give the same of the same numbers and texts."""
TRUTHS = ("object.", "getitem", *PURE)
"""Those of what is true or not for good: other lists and dicts may be filled later."""
ASKING = frozenset("object.get object.keys object.values object.items object.copy".split())
"""Methods that leave a dict of settings as it is."""
NO_VALUES = ("callback", "recursion", "yield", "operator.choice")
"""The names of operations that stand for what other code gives, each time anew."""


class Settings:
    """How tests of settings come out in branches. A setting is a value that is the same in the whole run: what is read
    once, attributes of that which nothing binds, and what is computed of such alone."""

    def __init__(self, project: Project, program: Program) -> None:
        self._sources, self._program = project.sources, program
        self._entered: tuple[int, Counter[ast.AST | None]] = (0, Counter())
        self._asked: tuple[int, set[Operation]] = (0, set())
        self._told_of: dict[Region, tuple[Value, tuple[int, int, int], list[tuple[Hashable, Condition]]]] = {}
        self._relied: set[Operation] = set()
        """The operations by which it was told what tests say."""
        self._by_node = False
        self._several = self.ways = 0
        """How often code was come to in another way than before, or an operation given more."""

    def of(self, regions: Iterable[Region]) -> Outcomes:
        """What settings are surely like where one is in all of some regions."""
        found: dict[Hashable, frozenset[Condition]] = {}
        branches = [region for region in regions if region.kind == "branch"]
        now = (self._several_calls(), len(self._changing()), self.ways) if branches else (0, 0, 0)
        for each in branches:
            for key, condition in self._of_branch(each, now):
                found[key] = found.get(key, frozenset()) | {condition}
        return found

    def of_operation(self, operation: Operation) -> Outcomes:
        """The same where an operation is run, whichever way leads there."""
        inner: list[Region] = []
        for each in operation.region.around():
            inner.append(each)
            if each.others:
                break
        return self.of(inner)

    def possible(self, value: Value, guards: Iterable[Region]) -> Value:
        """What a value may be between some guards, of what was made in other branches."""
        here = self.of(guards) if len(value.things) + len(value.operations) > 1 else {}
        if not here:
            return value

        def may_be(there: Outcomes) -> bool:
            return all(can_meet(here[key] | conditions) for key, conditions in there.items() if key in here)

        things = frozenset(each for each in value.things if may_be(self.of(getattr(each, "guards", ()))))
        made = frozenset(each for each in value.operations if may_be(self.of_operation(each)))
        found = replace(value, things=things, operations=made)
        return found if found and found != value else value

    # tests

    def _of_branch(self, region: Region, now: tuple[int, int, int]) -> list[tuple[Hashable, Condition]]:
        """What its test says, which is looked at again where what it goes by is not as it is ``now``."""
        before = self._told_of.get(region)
        if before is None or before[0] is not region.subject or before[1] != now:
            self._by_node = False
            before = region.subject, now, [*self._in_branch(region)]
            if not self._by_node:
                self._told_of[region] = before
        return before[2]

    def grow(self, operation: Operation) -> None:
        """Note that an operation is given more than before."""
        self.ways += operation in self._relied

    def _at(self, node: ast.expr) -> Value:
        """What an expression may be in any context so far, which may be more later."""
        self._by_node = True
        return self._program.at(node)

    def _in_branch(self, region: Region) -> Iterator[tuple[Hashable, Condition]]:
        branch = region.source.parents.get(region.node)
        if isinstance(branch, (ast.If, ast.IfExp)):
            body = branch.body if isinstance(branch, ast.If) else [branch.body]
            yield from self._told(branch.test, region.subject, region.node in body, region.source)

    def _told(
        self, test: ast.expr, subject: Value, holds: bool, source: Source
    ) -> Iterator[tuple[Hashable, Condition]]:
        """What a test, or a part of it, says of settings where it holds, or does not."""
        self._relied |= subject.operations
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            given = [each.inputs[0] for each in subject.operations if each.node is test]
            inner = given[0] if given else self._at(test.operand)
            yield from self._told(test.operand, inner, not holds, source)
        elif isinstance(test, ast.BoolOp):
            if isinstance(test.op, ast.And) is holds:
                for part in test.values:
                    made = frozenset(each for each in subject.operations if each.node is part)
                    yield from self._told(part, Value(made) if made else self._at(part), holds, source)
        elif (operation := subject.operation) is None:
            yield from self._asked_of(test, subject, holds, source)
        elif isinstance(node := operation.node, ast.Compare):
            yield from self._compared(node, operation.inputs, holds, operation.source)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield from self._told(node.operand, operation.inputs[0], not holds, operation.source)
        elif operation.name.startswith(TRUTHS) and (key := self._form(operation, frozenset())) is not None:
            yield key, Condition(holds)

    def _asked_of(
        self, test: ast.expr, subject: Value, holds: bool, source: Source
    ) -> Iterator[tuple[Hashable, Condition]]:
        """The same of a test of constants, which a name of a module stands for."""
        if isinstance(test, ast.Compare):
            yield from self._compared(test, [*map(self._at, (test.left, *test.comparators))], holds, source)
        elif (key := self._key(test, subject, source)) is not None:
            yield key, Condition(holds)

    def _compared(
        self, test: ast.Compare, both: Sequence[Value], holds: bool, source: Source
    ) -> Iterator[tuple[Hashable, Condition]]:
        """What a comparison says of a setting and a constant, or of two settings."""
        if len(test.ops) > 1 or len(both) != 2:
            return
        (left, right), op = both, type(test.ops[0])
        if isinstance(listed := test.comparators[0], (ast.List, ast.Set)):
            right = Value(constants=frozenset([(tuple, told)])) if (told := _constants(listed)) else right
        one, other = self._key(test.left, left, source), self._key(test.comparators[0], right, source)
        if one is not None and right.is_constant:
            yield one, compared(op, right.constant, holds)
        elif other is not None and left.is_constant and op in MIRRORED:
            yield other, compared(MIRRORED[op], left.constant, holds)
        elif one is not None and other is not None and op not in (ast.In, ast.NotIn):
            opposite = OPPOSITE.get(op)
            yield (opposite or op, one, other), Condition(holds is (opposite is None))

    # which values are settings

    def _key(self, node: ast.AST, value: Value, source: Source) -> Hashable:
        """What tells a setting from others; None for what is none."""
        if value.operation is not None:
            return self._form(value.operation, frozenset())
        if not isinstance(node, ast.Name) or not value or value.operations or value.things or self._is_opaque:
            return None
        once = self._bound[source, node.id] == self._at_top[source, node.id] == 1
        return (source, node.id) if once else None

    def _form(self, operation: Operation, above: frozenset[Operation]) -> Hashable:
        """The same for operations that give the same; None for what may give something else each time."""
        if operation in above or operation.is_tensor or operation.name in NO_VALUES:
            return None
        self._relied.add(operation)
        inner = above | {operation}
        if operation.name.startswith(PURE) and operation.name != "operator.contains":
            forms = [self._form_of(each, inner) for each in operation.operands]
            return (operation.name, *forms) if None not in forms else None
        if self._is_read(operation) and (form := self._form_of(operation.inputs[0], inner)) is not None:
            return operation.name, form, *(each.constant for each in operation.inputs[1:])
        return operation if self._is_once(operation) else None

    def _form_of(self, value: Value, above: frozenset[Operation]) -> Hashable:
        if value.is_constant:
            return type(value.constant), value.constant
        return self._form(value.operation, above) if value.operation is not None else None

    def _is_read(self, operation: Operation) -> bool:
        """Whether it reads an attribute, or an entry, that nothing binds, of what nothing else is asked of: its methods
        may."""
        node = operation.node
        if isinstance(node, ast.Subscript) and operation.name == "getitem":
            name = ast.dump(node.slice) if isinstance(node.slice, ast.Constant) else ""
        else:
            name = node.attr if isinstance(node, ast.Attribute) and operation.name == f"object.{node.attr}" else ""
        quiet = name and not self._is_opaque and name not in self._stored
        return bool(quiet) and operation.inputs[0].operations.isdisjoint(self._changing())

    def _changing(self) -> set[Operation]:
        """What gives objects that have been called so far, or a method of theirs, of which entries were set, or that a
        library was given of which nothing is known."""
        seen, found = self._asked
        for each in self._program.operations[seen:]:
            called = isinstance(each.node, ast.Call) and each.name.startswith("object.") and each.name not in ASKING
            if each.inputs and (called or each.name in ("setitem", "call")):
                found |= each.inputs[0].operations
            elif isinstance(each.node, ast.Call) and each.known is None and _is_of_library(each.name):
                found.update(*(value.operations for value in each.operands))
        self._asked = len(self._program.operations), found
        return found

    def _is_once(self, operation: Operation) -> bool:
        """Whether an operation runs at most once: in no loop, and in functions that are called from one place."""
        if self._is_repeated(operation.node, operation.source):
            return False
        return all(map(self._runs_once, operation.region.around()))

    def _runs_once(self, region: Region) -> bool:
        if region.others or region.kind not in ONCE:
            return False
        if region.function is None:
            return True
        called = region.node.func if isinstance(region.node, ast.Call) else None
        own = called is not None and any(map(_is_own, self._program.at(called).things))
        return own and self._calls_of(region.function) == 1 and not self._is_repeated(region.node, region.source)

    def _calls_of(self, function: ast.AST) -> int:
        """In how many ways a function has been entered so far."""
        self._several_calls()
        return self._entered[1][function]

    def _several_calls(self) -> int:
        """How many functions have been entered in several ways so far."""
        seen, calls = self._entered
        if seen != len(self._program.entered):
            for each in islice(self._program.entered, seen, None):
                calls[each.function] += each.function is not None
                self._several += calls[each.function] == 2
            self._entered = len(self._program.entered), calls
        return self._several

    def _is_repeated(self, node: ast.AST, source: Source) -> bool:
        for each in source.ancestors(node):
            if isinstance(each, REPEATING):
                return True
            if isinstance(each, FUNCTIONS):
                return False
        return False

    @cached_property
    def _bound(self) -> Counter[tuple[Source, str]]:
        """How often names are bound in each file, wherever."""
        return Counter((source, name) for source in self._sources for name in _bound_in(walk(source.tree)))

    @cached_property
    def _at_top(self) -> Counter[tuple[Source, str]]:
        plain = (
            (source, each) for source in self._sources for each in source.tree.body if isinstance(each, ast.Assign)
        )
        return Counter((source, name) for source, each in plain for name in _bound_in(walk(each)))

    @cached_property
    def _is_opaque(self) -> bool:
        """Whether attributes or names may be bound by others than assignments."""
        nodes = [each for source in self._sources for each in walk(source.tree)]
        own = {each.func for each in nodes if isinstance(each, ast.Call) and each.args and _is_self(each.args[0])}
        return any(isinstance(each, ast.Name) and each.id in BINDING and each not in own for each in nodes)

    @cached_property
    def _stored(self) -> frozenset[str]:
        """The attributes and keys that are bound anywhere, but for attributes of objects of the project in their
        methods."""
        nodes = [each for source in self._sources for each in walk(source.tree)]
        bound = [each for each in nodes if not isinstance(getattr(each, "ctx", ast.Load()), ast.Load)]
        names = {each.attr for each in bound if isinstance(each, ast.Attribute) and not _is_self(each.value)}
        keys = (each.slice for each in bound if isinstance(each, ast.Subscript))
        return frozenset({*names, *(ast.dump(each) for each in keys if isinstance(each, ast.Constant))})


def _constants(listed: ast.List | ast.Set) -> tuple[object, ...] | None:
    """The constants that are written down in a list."""
    told = tuple(each.value for each in listed.elts if isinstance(each, ast.Constant))
    return told if len(told) == len(listed.elts) else None


def _is_of_library(name: str) -> bool:
    """Whether an operation is a function of a library that Python does not bring along."""
    root, _, function = name.partition(".")
    return bool(function) and root not in {"object", "operator", "builtins", "function", *sys.stdlib_module_names}


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _is_own(called: object) -> bool:
    """Whether it is a function, or an object or a class, of the project."""
    if isinstance(called, Method):
        called = called.function
    return isinstance(called, (Function, Class)) or isinstance(called, Object) and called.cls is not None


def _bound_in(nodes: Iterable[ast.AST]) -> Iterable[str]:
    for each in nodes:
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            yield each.id
        elif isinstance(each, ast.arg):
            yield each.arg
        elif isinstance(each, (ast.Global, ast.Nonlocal)):
            yield from each.names
