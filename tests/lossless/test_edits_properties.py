"""What must hold for any edits of any program, on generated programs and on those of the standard library.

The oracle makes the same edits to the plain syntax tree, which needs no care for text: the new text must parse to that.
"""

from __future__ import annotations

import ast
import copy
import io
import random
import sysconfig
import tokenize
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TypeGuard, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autodist.edits import (
    AddImport,
    Append,
    Edit,
    EditConflict,
    Guard,
    InsertAfter,
    InsertBefore,
    Prepend,
    RemoveArgument,
    RemoveStatement,
    ReplaceExpr,
    ReplaceStatement,
    SetArgument,
    WrapExpr,
    apply,
)
from autodist.errors import AutodistError
from autodist.lossless.prelude import opening
from autodist.source import Source

LIBRARY = Path(sysconfig.get_paths()["stdlib"])

CODES = ("added()", "if added:\n    added(1)", 'added = """two\nlines"""', "for added in range(3):\n    pass", "x += 1")
EXPRESSIONS = ("new", "new + 1", "new or 1", "lambda: new", "new if 1 else 2", 'f("new")', "not new", "-new", "new, 1")
TEMPLATES = (
    "wrap({})",
    "{} // n",
    "{}.item()",
    "not {}",
    "{} or n",
    "f(n, {}, k='1')",
    "-{}",
    "{} if n else 0",
    "n**{}",
)
TESTS = ("rank == 0", "main or not spread", "main")

_EditT = TypeVar("_EditT", bound=Edit)
_Code = InsertBefore | InsertAfter | Prepend | Append | ReplaceStatement


# Random edits


class Edits:
    """Draws random edits of one program."""

    def __init__(self, source: Source, rng: random.Random, gentle: bool = False) -> None:
        self.source = source
        self.rng = rng
        self.gentle = gentle
        tree = source.tree
        values = {id(node) for node in ast.walk(tree) if isinstance(node, ast.expr) and self._is_value(node)}
        openings = {id(statement) for node in ast.walk(tree) for statement in opening(node)}
        inside = {id(child) for node in ast.walk(tree) if id(node) in openings for child in ast.walk(node)}
        self.nodes = [node for node in ast.walk(tree) if id(node) not in inside]
        self._values = values

    def _is_value(self, node: ast.expr) -> bool:
        parent = self.source.parents[node]
        if isinstance(node, ast.Starred | ast.Slice | ast.FormattedValue) or isinstance(parent, ast.pattern):
            return False
        if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load) or isinstance(parent, ast.JoinedStr):
            return False
        if isinstance(node, ast.Tuple) and isinstance(parent, ast.Subscript):
            return False
        return not (isinstance(node, ast.JoinedStr) and isinstance(parent, ast.FormattedValue))

    def draw(self, count: int) -> list[Edit]:
        """Up to ``count`` edits that can be made together."""
        chosen = [edit for _ in range(count) if (edit := self._edit(self.rng.choice(self.nodes))) is not None]
        while True:
            try:
                apply(self.source, chosen)
                return chosen
            except EditConflict as conflict:
                chosen.remove(conflict.second)

    def _edit(self, node: ast.AST) -> Edit | None:
        pick = self.rng.choice
        choices: list[Edit] = []
        if isinstance(node, ast.stmt):
            choices += [kind(node, pick(CODES)) for kind in (InsertBefore, InsertAfter)]
            choices += [Guard(node, pick(TESTS))] * 3
            choices += [] if self.gentle else [ReplaceStatement(node, pick(CODES)), RemoveStatement(node)]
        if isinstance(getattr(node, "body", None), list):
            choices += [kind(node, pick(CODES)) for kind in (Prepend, Append)]
        if id(node) in self._values:
            choices += [WrapExpr(node, pick(TEMPLATES))]
            choices += [] if self.gentle else [ReplaceExpr(node, pick(EXPRESSIONS))]
        if isinstance(node, ast.Call):
            names = [keyword.arg for keyword in node.keywords if keyword.arg]
            choices += [SetArgument(node, "brand_new", pick(EXPRESSIONS))]
            if names and not self.gentle:
                choices += [SetArgument(node, pick(names), pick(EXPRESSIONS)), RemoveArgument(node, pick(names))]
        return pick(choices) if choices else None


# The same edits of the plain tree


class Oracle(ast.NodeTransformer):
    """Makes edits to a copy of a tree."""

    def __init__(self, tree: ast.Module, edits: Sequence[Edit]) -> None:
        copies: dict[int, ast.AST] = {}
        self.tree: ast.Module = copy.deepcopy(tree, copies)
        self._edits: dict[int, list[Edit]] = defaultdict(list)
        for edit in dict.fromkeys(edits):
            self._edits[id(copies[id(edit.anchor)])].append(edit)

    def edited(self) -> ast.Module:
        """The edited tree."""
        result = self.visit(self.tree)
        assert isinstance(result, ast.Module)
        return result

    def visit(self, node: ast.AST) -> ast.AST | list[ast.stmt]:
        """The node with the edits in it made, then those of its own."""
        top = len(opening(node))
        self.generic_visit(node)
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[top:top] = self._code(node, Prepend)
            body += self._code(node, Append)
            body += [] if body or isinstance(node, ast.Module) else [ast.Pass()]
        if isinstance(node, ast.expr):
            return self._expression(node)
        return self._statement(node) if isinstance(node, ast.stmt) else node

    def _of(self, node: ast.AST, kind: type[_EditT]) -> list[_EditT]:
        return [edit for edit in self._edits.get(id(node), ()) if isinstance(edit, kind)]

    def _code(self, node: ast.AST, kind: type[_Code]) -> list[ast.stmt]:
        return [statement for edit in self._of(node, kind) for statement in ast.parse(edit.code).body]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        statements: list[ast.stmt] = [] if self._of(node, RemoveStatement) else [node]
        if self._of(node, ReplaceStatement):
            statements = self._code(node, ReplaceStatement)
        for edit in self._of(node, Guard):
            statements = [ast.If(_value(edit.test), statements, [])]
        return [*self._code(node, InsertBefore), *statements, *self._code(node, InsertAfter)]

    def _expression(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Call):
            for removed in self._of(node, RemoveArgument):
                node.keywords = [keyword for keyword in node.keywords if keyword.arg != removed.name]
            for argument in self._of(node, SetArgument):
                _set_keyword(node, argument.name, _value(argument.value))
        result: ast.expr = node
        for replacement in self._of(node, ReplaceExpr):
            result = _value(replacement.code)
        for wrapping in self._of(node, WrapExpr):
            result = _Filling(result).visit(_value(wrapping.template.format("hole")))
        return result


class _Filling(ast.NodeTransformer):
    def __init__(self, value: ast.expr) -> None:
        self._value = value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The value, in the hole."""
        return self._value if node.id == "hole" else node


def _value(code: str) -> ast.expr:
    return ast.parse(code, mode="eval").body


def _set_keyword(call: ast.Call, name: str, value: ast.expr) -> None:
    for keyword in call.keywords:
        if keyword.arg == name:
            keyword.value = value
            return
    end = next((index for index, keyword in enumerate(call.keywords) if keyword.arg is None), len(call.keywords))
    call.keywords.insert(end, ast.keyword(name, value))


class _Normal(ast.NodeTransformer):
    """Writes trees that mean the same in the same way, since guards may be merged and folded."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Drop blocks that do nothing, and take guarded blocks apart."""
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                block = [part for statement in block for part in _taken_apart(statement)]
                idle = field != "body" and all(isinstance(statement, ast.Pass) for statement in block)
                setattr(node, field, [] if idle else block)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
        """Flatten ``(a or b) or c``."""
        self.generic_visit(node)
        parts = [[value] if not _is_same_operation(value, node) else value.values for value in node.values]
        node.values = [value for part in parts for value in part]
        return node


def _is_same_operation(value: ast.expr, node: ast.BoolOp) -> TypeGuard[ast.BoolOp]:
    return isinstance(value, ast.BoolOp) and type(value.op) is type(node.op)


def _taken_apart(statement: ast.stmt) -> list[ast.stmt]:
    """Each statement of a plain ``if`` under conditions of its own."""
    if not isinstance(statement, ast.If) or statement.orelse:
        return [statement]
    outer = _conditions(statement.test)
    parts: list[ast.stmt] = []
    for inner in statement.body:
        nested = isinstance(inner, ast.If) and not inner.orelse
        conditions = [*outer, *(_conditions(inner.test) if isinstance(inner, ast.If) and nested else [])]
        test = conditions[0] if len(conditions) == 1 else ast.BoolOp(ast.And(), conditions)
        parts.append(ast.If(test, inner.body if isinstance(inner, ast.If) and nested else [inner], []))
    return parts


def _conditions(test: ast.expr) -> list[ast.expr]:
    return list(test.values) if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def normal(tree: ast.AST) -> str:
    """A text that is equal for trees that mean the same."""
    return ast.dump(_Normal().visit(copy.deepcopy(tree)))


# What must hold


def comments(text: str) -> Counter[str]:
    """The comments of a program."""
    tokens = tokenize.generate_tokens(io.StringIO(text, newline="").readline)
    return Counter(token.string.strip() for token in tokens if token.type == tokenize.COMMENT)


def untouched(source: Source, edits: Sequence[Edit]) -> list[str]:
    """The text of each statement of the module that no edit is about."""
    lines = io.StringIO(source.text, newline="").readlines()
    touched = {id(node) for edit in edits for node in (edit.anchor, *source.ancestors(edit.anchor))}
    shared = Counter(line for statement in source.tree.body for line in {statement.lineno, statement.end_lineno})
    return [
        "".join(lines[statement.lineno - 1 : statement.end_lineno]).rstrip()
        for statement in source.tree.body
        if id(statement) not in touched and shared[statement.lineno] == shared[statement.end_lineno] == 1
    ]


def check(source: Source, edits: Sequence[Edit], gentle: bool) -> None:
    """All that must hold for one set of edits of one program."""
    text = apply(source, edits)
    assert text == apply(source, list(edits))
    assert normal(ast.parse(text)) == normal(Oracle(source.tree, edits).edited())
    end = 0
    for part in untouched(source, edits):
        end = text.index(part, end) + len(part)
    if gentle:
        assert not comments(source.text) - comments(text)


def random_checks(source: Source, seed: int, count: int) -> None:
    """Check a few sets of random edits of one program."""
    rng = random.Random(seed)
    for gentle in (True, False):
        if source.tree.body:
            check(source, Edits(source, rng, gentle).draw(count), gentle)


# Generated programs, as awkward as people write them

SMALL = (
    "x = 1",
    "x: int = f(a, *b, k=1, **c)",
    "a, b = b, a",
    "print(f'{a!r:>{w}} {b=} {{}}' \"c\" f\"{d['k']:.3f}\")",
    'print("%d" % (a + b), (yield), sep="")',
    "del a, x[1:2, ::3], (b, c)",
    "return(a or b and c and not d)",
    "assert a < b <= c, [i for i in(j) if(i)if i in x]",
    "lambda a, /, b=1, *c, d=2, **e: (yield)",
    "x = (y := f(i for i in j)) if a else {**b, 'k': {1, 2}}",
    "x[a, b].c[...] += -a ** -b // (c @ d) # not; the; end",
    "import os",
    "global g",
    "raise E from(e)",
    "pass",
)
LONG = (
    ["call(", "    a,  # first", "    *b,", "", "    k=2  # last", ")"],
    ["call(a,", "     k=2,  # why", "     **c)"],
    ['x = """one', "  # two", '    three"""'],
    ["x = 1 + \\", "    2"],
    ["x = (a +  # why", "  b", "    ) * 2"],
    ["with open(a) as f, \\", "     open(b): f.read()"],
    ["@decorated(", "    a", ")", "async def f(a: int = 1, *, b=(2)) -> None: await a"],
    ["match a:", "    case [1, {'k': v}] if v: x(v)", "    case _:", "        pass"],
    ["try: a()", "except(A, B): b()", "except C as c : c()  # spaced", "else:", "    d()", "finally: e()"],
    ["if a: x(1)", "elif b: y(2); z(3)", "else: pass"],
    ["if a: x(1); y(2)  # both"],
    ["for i, (j, k) in a, b: pass"],
)
HEADS = (
    "if a or b:  # if",
    "for i in x:",
    "while a:",
    "with a as b, c:",
    "def f(a):",
    "class A(B, k=1):",
    "async def f():",
)
BETWEEN: tuple[list[str], ...] = ([], [], [], [""], ["# about what follows"], ["", "# far", "", "# near"], ["", ""])
Lines = list[str]


def indented(lines: Lines) -> Lines:
    """Lines of a block; the text of strings moves, too, which is as good."""
    return ["    " + line if line else line for line in lines]


def concatenated(parts: Sequence[Lines]) -> Lines:
    """Lines after lines."""
    return [line for part in parts for line in part]


small = st.lists(st.sampled_from(SMALL), min_size=1, max_size=3).map(lambda parts: ["; ".join(parts)])
simple = st.one_of(small, st.sampled_from(LONG))


def compound(block: st.SearchStrategy[Lines]) -> st.SearchStrategy[Lines]:
    """Statements that hold blocks."""
    head = st.builds(lambda head, body: [head, *indented(body)], st.sampled_from(HEADS), block)
    chain = st.builds(
        lambda parts: [line for start, body in parts for line in (start, *indented(body))],
        st.tuples(
            st.tuples(st.just("if a:"), block),
            st.tuples(st.just("elif b or c:"), block),
            st.tuples(st.sampled_from(["elif (d):", "else:  # else"]), block),
        ),
    )
    documented = block.map(lambda body: ["def f():", '    """Doc."""', *indented(body), "    # the end"])
    return st.lists(
        st.builds(lambda gap, lines: [*gap, *lines], st.sampled_from(BETWEEN), head | chain | documented | simple),
        min_size=1,
        max_size=4,
    ).map(concatenated)


blocks = st.recursive(st.lists(simple, min_size=1, max_size=3).map(concatenated), compound, max_leaves=6)
tops = st.sampled_from(
    ([], ["#!/usr/bin/env python", "# licence", ""], ['"""Doc."""', ""], ["import torch"], ["# é \u2028"])
)


@st.composite
def programs(draw: st.DrawFn) -> Source:
    """A program with its own indentation and line ends."""
    lines = [*draw(tops), *draw(blocks)]
    unit, newline = draw(st.sampled_from(["    ", "\t", " "])), draw(st.sampled_from(["\n", "\r\n"]))
    text = newline.join(_reindented(line, unit) for line in lines)
    return Source.parse(text + draw(st.sampled_from([newline, "", newline + "# end"])))


def _reindented(line: str, unit: str) -> str:
    depth = (len(line) - len(line.lstrip(" "))) // 4
    return unit * depth + line[depth * 4 :]


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 1000))
def test_any_edits_of_any_program(source: Source, seed: int) -> None:
    """Edits of awkward programs do what they say, and nothing else."""
    random_checks(source, seed, count=8)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 1000))
def test_line_ends_and_the_order_of_edits(source: Source, seed: int) -> None:
    """New lines end as the others do, and edits of different code can be named in any order."""
    rng = random.Random(seed)
    edits = list({edit.anchor: edit for edit in Edits(source, rng).draw(8)}.values())
    text = apply(source, edits)
    rng.shuffle(edits)
    assert apply(source, edits) == text
    if "\r\n" in source.text:
        assert text.count("\n") == text.count("\r\n")


@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(programs())
def test_an_import_is_one_more_line(source: Source) -> None:
    """A new import adds its line, perhaps a blank one, and changes nothing else."""
    text = apply(source, [AddImport(source.tree, "torch.distributed", None, "dist")])
    kept = [line for line in text.splitlines() if line != "import torch.distributed as dist"]
    assert [line for line in kept if line.strip()] == [line for line in source.text.splitlines() if line.strip()]


@given(programs())
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_no_edits_change_nothing(source: Source) -> None:
    """Without edits the text is the same; an edit that says what is already there leaves it so."""
    assert apply(source, []) == source.text
    argument = [
        SetArgument(call, keyword.arg, source.code(keyword.value))
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if keyword.arg is not None and not isinstance(source.parents[call], ast.FormattedValue)
    ]
    assert apply(source, argument) == source.text


def library_files(count: int, seed: int) -> list[Path]:
    """Some files of the standard library and its tests, not too large."""
    files = sorted(path for folder in (LIBRARY, LIBRARY / "test", LIBRARY / "asyncio") for path in folder.glob("*.py"))
    return random.Random(seed).sample([path for path in files if 200 < path.stat().st_size < 40_000], count)


@pytest.mark.parametrize("path", library_files(12, seed=1), ids=lambda path: path.name)
def test_any_edits_of_real_programs(path: Path) -> None:
    """Edits of real programs do what they say, and nothing else."""
    try:
        source = Source.read(path)
    except AutodistError:
        pytest.skip("not a program")
    random_checks(source, seed=1, count=12)


if __name__ == "__main__":  # python tests/lossless/test_edits_properties.py COUNT SEED: try many more programs
    import sys
    import traceback

    for path in library_files(int(sys.argv[1]), int(sys.argv[2])):
        try:
            random_checks(Source.read(path), int(sys.argv[2]), count=int(sys.argv[3]))
        except AutodistError as error:
            print("SKIP", error)
        except Exception:
            print("FAIL", path)
            traceback.print_exc(limit=-3)
