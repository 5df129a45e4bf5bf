"""Marks in the code of changed files: which of its changed statements ran, and which ways its decisions went.

A mark is one store into a map of bytes that all ranks of a run share, which the death of a process does not undo. It
stands before a statement, or at the beginning of each way of a decision. Both the launching process and the ranks
number them, in the order of the text. Read inside the user's process: standard library only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MAP = "__autodist_ran__"
"""The name, among Python's built-in ones, of the map of bytes."""
LAUNCH, DEVICE = "launch", "device"
"""What a decision may ask for that is settled before a run begins: how it was started, and on which device."""
ABOUT_DEVICE = re.compile(r"cuda|gpu|nccl|mps\b|xpu|device", re.IGNORECASE)
ABOUT_LAUNCH = re.compile(
    r"is_initialized\(\)|is_torchelastic_launched\(\)|dist\w*\.is_available\(\)|['\"](\w+_)?(RANK|WORLD_SIZE)['\"]|"
    r"['\"](OMPI|PMI|PMIX|MPI|SLURM)_\w+['\"]|'_inheriting'|"
    r"^[\w.]*\b(is_|use_)?(ddp|fsdp|dist|distributed)$|"
    r"^([\w.]*\bworld(_?size)?|[\w.]*get_world_size\(\))( (==|!=|>|<=|>=|<) [012])?$"
)
OWN_RANK = re.compile(r"['\"]RANK['\"][^=!<>]*[=!]= ['\"]?0|get_rank\(\)")
"""Asks which rank it is, which goes both ways on several."""
NO_QUESTION = re.compile(r"\b(__name__|TYPE_CHECKING|__debug__)\b|\b(isinstance|is_tensor|hasattr|callable)\(")
"""Always goes the same way, or by the type of what it is given, which callers do not change."""
SILENT = (ast.Pass, ast.Global, ast.Nonlocal, ast.Raise)
"""Does nothing; or ends a run, which then cannot have been equal."""
LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
Block = list[ast.stmt]


@dataclass(frozen=True)
class Site:
    """A statement with changed lines, or one way of a decision."""

    lines: tuple[int, ...]
    """The changed lines of the statement; of a way, the line of its decision."""
    inside: int = -1
    """The number of the innermost way that it lies in and that is settled before a run begins."""
    way: str = ""
    """What a decision comes to: true, false, entered or ended. Empty for a statement."""
    test: str = ""
    settled: str = ""
    """By what a decision is settled before a run begins: `LAUNCH`, `DEVICE`, or nothing."""
    counts: bool = True
    """A way of a decision that has changed; one that has not only tells why what lies in it never ran."""


def marked(data: str | bytes, changed: Iterable[int], first: int = 0) -> tuple[ast.Module, list[Site]]:
    """The module with marks, the first of which has number ``first``, and what they stand for.

    ``changed`` are numbers of lines, from 1. Raises SyntaxError.
    """
    text = data.decode(errors="replace") if isinstance(data, bytes) else data
    code = {number for number, line in enumerate(lines_of(text), 1) if line.strip() and line.lstrip()[0] != "#"}
    tree = ast.parse(data)
    marker = _Marker(frozenset(changed) & code, first)
    tree.body = marker.block(tree.body, -1, documented=True)
    return ast.fix_missing_locations(tree), marker.sites


def lines_of(text: str) -> list[str]:
    """The lines as Python counts them: a form feed ends none."""
    return re.split(r"\r\n|\r|\n", text)


def settled_by(test: ast.expr) -> str:
    """By what a decision is settled before a run begins: all that it asks for must be of one kind."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return settled_by(test.operand)
    if isinstance(test, ast.BoolOp):
        kinds = {settled_by(each) for each in test.values}
        return kinds.pop() if len(kinds) == 1 else ""
    text = ast.unparse(test)
    if ABOUT_LAUNCH.search(text) and not OWN_RANK.search(text):
        return LAUNCH
    return DEVICE if ABOUT_DEVICE.search(text) else ""


class _Marker:
    """Goes through one module and counts."""

    def __init__(self, changed: frozenset[int], first: int) -> None:
        self._changed, self._first = changed, first
        self.sites: list[Site] = []

    def block(self, statements: Sequence[ast.stmt], inside: int, documented: bool = False) -> Block:
        """The statements with marks before those that have changed, and what lies in them."""
        result: Block = []
        for position, each in enumerate(statements):
            own = self._own_lines(each)
            lines = () if documented and not position and _is_text(each) else tuple(sorted(own & self._changed))
            if lines and not _is_silent(each):
                result.append(self._mark(Site(lines, inside), each))
            result.append(each)
            after = self._enter(each, inside, bool(lines))
            in_expressions = _Expressions(self, inside)
            for name, value in ast.iter_fields(each):
                if name not in BLOCKS:
                    setattr(each, name, in_expressions.inner(value))
            inside = after
        return result

    def _enter(self, each: ast.stmt, inside: int, changed: bool) -> int:
        """Mark what lies in a statement. Returns what the statements after it lie in."""
        if isinstance(each, (ast.If, ast.While)):
            return self._decision(each, inside, changed)
        if isinstance(each, (ast.For, ast.AsyncFor)) and changed:
            each.body = [self._way(each, "entered", inside), *self.block(each.body, inside)]
            each.orelse = [self._way(each, "ended", inside), *self.block(each.orelse, inside)]
            return inside
        scope = isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        for name in ("body", "orelse", "finalbody"):
            if inner := getattr(each, name, None):
                setattr(each, name, self.block(inner, inside, documented=scope))
        for part in (*getattr(each, "handlers", ()), *getattr(each, "cases", ())):
            start = part.lineno if isinstance(part, ast.ExceptHandler) else part.pattern.lineno
            lines = tuple(sorted({*range(start, max(start + 1, _first_line(part.body[0])))} & self._changed))
            head = [self._mark(Site(lines, inside), part.body[0])] if lines else []
            part.body = [*head, *self.block(part.body, inside)]
        return inside

    def _decision(self, each: ast.If | ast.While, inside: int, changed: bool) -> int:
        settled = settled_by(each.test)
        asks = not isinstance(each.test, ast.Constant) and not NO_QUESTION.search(ast.unparse(each.test))
        if not (asks and (changed or settled)):
            each.body, each.orelse = self.block(each.body, inside), self.block(each.orelse, inside)
            return inside
        counts = changed and not _only_raises(each.body)
        head = self._way(each, "true", inside, settled, counts)
        taken = self._last() if settled else inside
        each.body = [head, *self.block(each.body, taken)]
        way = "ended" if isinstance(each, ast.While) else "false"
        head = self._way(each, way, inside, settled, changed and not (each.orelse and _only_raises(each.orelse)))
        other = self._last() if settled else inside
        each.orelse = [head, *self.block(each.orelse, other)]
        if isinstance(each, ast.If) and isinstance(each.body[-1], LEAVES):
            return other
        return taken if isinstance(each, ast.If) and isinstance(each.orelse[-1], LEAVES) else inside

    def expression(self, each: ast.IfExp, inside: int) -> None:
        """Mark both ways of a conditional expression that has changed."""
        span = {*range(each.lineno, (each.end_lineno or each.lineno) + 1)}
        asks = not isinstance(each.test, ast.Constant) and not NO_QUESTION.search(ast.unparse(each.test))
        if not asks or not span & self._changed:
            return
        settled = settled_by(each.test)
        for name, way in (("body", "true"), ("orelse", "false")):
            value = getattr(each, name)
            self.sites.append(Site((each.lineno,), inside, way, ast.unparse(each.test), settled))
            stored = ast.Attribute(ast.Name(MAP, ast.Load()), "__setitem__", ast.Load())
            call = ast.Call(stored, [ast.Constant(self._last()), ast.Constant(1)], [])
            setattr(each, name, ast.copy_location(ast.BoolOp(ast.Or(), [call, value]), value))

    def _last(self) -> int:
        return self._first + len(self.sites) - 1

    def _way(self, each: ast.stmt, way: str, inside: int, settled: str = "", counts: bool = True) -> ast.stmt:
        asked: ast.expr = each.test if isinstance(each, (ast.If, ast.While)) else each.iter  # type: ignore[attr-defined]
        return self._mark(Site((each.lineno,), inside, way, ast.unparse(asked), settled, counts), each)

    def _mark(self, site: Site, before: ast.stmt) -> ast.stmt:
        self.sites.append(site)
        place = ast.Subscript(ast.Name(MAP, ast.Load()), ast.Constant(self._last()), ast.Store())
        return ast.copy_location(ast.Assign([place], ast.Constant(1)), before)

    def _own_lines(self, each: ast.stmt) -> set[int]:
        """The lines of a statement without those of the statements in it, and without bare `try:` and `else:`."""
        if isinstance(each, ast.Try) or type(each).__name__ == "TryStar":
            return set()
        start, end = _first_line(each), each.end_lineno or each.lineno
        inner = getattr(each, "body", None) or getattr(each, "cases", None)
        if isinstance(inner, list):
            first = inner[0]
            end = max(
                start, each.lineno, (_first_line(first) if isinstance(first, ast.stmt) else first.pattern.lineno) - 1
            )
        return {*range(start, end + 1)}


class _Expressions(ast.NodeTransformer):
    """Finds conditional expressions, the outer ones first."""

    def __init__(self, marker: _Marker, inside: int) -> None:
        self._marker, self._inside = marker, inside

    def inner(self, value: object) -> object:
        """The same value, or list of them, with marks."""
        if isinstance(value, list):
            return [self.inner(each) for each in value]
        return self.visit(value) if isinstance(value, ast.AST) else value

    def visit_IfExp(self, node: ast.IfExp) -> ast.IfExp:
        """Before what lies in it, of which no more than the text is looked at."""
        self._marker.expression(node, self._inside)
        self.generic_visit(node)
        return node


def _first_line(each: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(each, "decorator_list", [])
    return min([each.lineno, *(one.lineno for one in decorators)])


def _is_text(each: ast.stmt) -> bool:
    return isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)


def _is_silent(each: ast.stmt) -> bool:
    future = isinstance(each, ast.ImportFrom) and each.module == "__future__"
    return isinstance(each, SILENT) or _is_text(each) or future


def _only_raises(statements: Sequence[ast.stmt]) -> bool:
    return all(isinstance(each, ast.Raise) for each in statements)
