"""One parsed file: its text exactly as stored, its syntax tree, and where every node stands."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar, cast

from autodist import notebook
from autodist.deep import READING
from autodist.errors import AutodistError

BOM = b"\xef\xbb\xbf"

REPORTING = frozenset("print info debug warning add_scalar add_scalars set_description set_postfix write".split())
STEPS = frozenset("add_ sub_ subtract_".split())
"""What changes a tensor in place by what it is given."""

KEPT = 500
"""A list of so many nodes is kept of an expression or statement: those of an `if` of 1,000 branches hold each other."""

Node = TypeVar("Node", bound=ast.AST)
Answer = TypeVar("Answer")


def told_once(ask: Callable[[Node], Answer]) -> Callable[[Node], Answer]:
    """A question that the code alone answers, asked once of each node: an analysis comes by it in every round of a
    loop, from every call, and in each of its runs. The node keeps the answer, which is only read."""
    name = f"{ask.__module__}.{ask.__qualname__}"

    @wraps(ask)
    def answer(node: Node) -> Answer:
        known: dict[str, Any] = node.__dict__
        if name not in known:
            known[name] = ask(node)
        found: Answer = known[name]
        return found

    return answer


@told_once
def children(node: ast.AST) -> tuple[ast.AST, ...]:
    """The nodes right below a node."""
    return tuple(ast.iter_child_nodes(node))


def walk(node: ast.AST) -> Sequence[ast.AST]:
    """What `ast.walk` gives, looked up once for each node that is no huge statement: trees do not change."""
    known = node.__dict__.get("walked")
    if known is not None:
        return cast("Sequence[ast.AST]", known)
    found = [node]
    for each in found:  # which grows
        found += children(each)
    if len(found) <= KEPT or isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)):
        node.__dict__["walked"] = found
    return found


def all_of(node: ast.AST, *kinds: type[Node]) -> Sequence[Node]:
    """The nodes of some kinds in a tree, in the order of `ast.walk`: a file is asked for its calls again and again."""
    known: dict[Any, list[Any]] = node.__dict__.setdefault("by_kind", {})
    if kinds not in known:
        known[kinds] = [each for each in walk(node) if isinstance(each, kinds)]
    return known[kinds]


spelled: Callable[[ast.AST], str] = told_once(ast.unparse)
"""The code of a node, as `ast.unparse` writes it."""


@dataclass(frozen=True, eq=False)
class Source:
    """One file. Compared by identity, as the nodes of its tree are.

    ``text`` keeps the file's own line endings; ``tree`` is the standard library's syntax tree, because
    understanding a script needs no whitespace. The lossless tree that edits act on is made in `edits`, and only
    for files that change. Of a notebook, ``text`` is the script that its cells make.
    """

    path: Path
    module: str
    text: str
    encoding: str
    bom: bool
    tree: ast.Module
    left_out: tuple[notebook.LeftOut, ...] = ()
    """Commands of a notebook that are comments in ``text``."""

    @classmethod
    def read(cls, path: Path, module: str = "__main__") -> Source:
        """Read and parse ``path``. Raises AutodistError with file and line."""
        try:
            data = path.read_bytes()
        except IsADirectoryError:
            raise AutodistError("is a folder: name the training script in it", path) from None
        except FileNotFoundError:
            raise AutodistError("no such file", path) from None
        except OSError as error:
            raise AutodistError(f"cannot be read: {error.strerror}", path) from None
        if path.suffix != notebook.SUFFIX:
            return cls.parse(data, path, module)
        script = notebook.script(data, path)
        return replace(cls.parse(script.text, path, module), left_out=script.left_out)

    @property
    def is_notebook(self) -> bool:
        """Whether ``text`` was made from the cells of a notebook."""
        return self.path.suffix == notebook.SUFFIX

    @classmethod
    def parse(cls, data: bytes | str, path: Path = Path("<stdin>"), module: str = "__main__") -> Source:
        """Parse source text or the bytes of a file. Raises AutodistError with file and line."""
        READING.stage, READING.files, READING.path = "reading", READING.files + 1, path
        given = data if isinstance(data, str) else None
        if isinstance(data, str):
            data = data.encode()
        if b"\0" in data:
            raise AutodistError("is a binary file, not Python source", path)
        try:
            encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
            known = "utf-8" if encoding == "utf-8-sig" else encoding
            text = data.removeprefix(BOM).decode(known) if given is None else given
        except (SyntaxError, LookupError) as error:
            raise AutodistError(f"unknown encoding: {error}", path, 1) from None
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise AutodistError(f"is not valid {error.encoding}: declare its encoding in line 1", path, line) from None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except SyntaxError as error:
            hint = " (Python 2? convert it to Python 3 first)" if _looks_like_python_2(text) else ""
            raise AutodistError(f"does not parse: {error.msg}{hint}", path, error.lineno) from None
        except (RecursionError, MemoryError):
            raise AutodistError("is nested too deeply to parse", path) from None
        except ValueError as error:
            raise AutodistError(f"does not parse: {error}", path) from None
        return cls(path, module, text, encoding.removesuffix("-sig"), data.startswith(BOM), tree)

    def encode(self, text: str) -> bytes:
        """``text`` as bytes in the file's own encoding, with its byte order mark if it had one."""
        return (BOM if self.bom else b"") + text.encode(self.encoding)

    @cached_property
    def parents(self) -> Mapping[ast.AST, ast.AST]:
        """The parent of every node but the module."""
        return {child: node for node in walk(self.tree) for child in children(node)}

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around ``node``, innermost first."""
        parents = self.parents
        while node in parents:
            node = parents[node]
            yield node

    def conditions(self, node: ast.AST) -> Iterator[ast.expr]:
        """The tests that decide whether something is computed: those of branches, loops and comprehensions around it,
        and what stands before it in `found.any() and scores[found].mean()`."""
        inner = node
        for each in self.ancestors(node):
            if isinstance(each, (ast.If, ast.While, ast.IfExp)):
                yield each.test
            elif isinstance(each, (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)):
                yield from (test for generator in each.generators for test in generator.ifs)
            elif isinstance(each, ast.BoolOp) and inner in each.values:
                yield from each.values[: each.values.index(inner)]
            elif isinstance(each, ast.Match) and isinstance(inner, ast.match_case):
                yield from (each.subject, *([inner.guard] if inner.guard is not None else []))
            inner = each

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that is or contains ``node``."""
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost function around ``node``."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return next((each for each in self.ancestors(node) if isinstance(each, kinds)), None)

    def home(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.Module:
        """The innermost function around ``node``, or the module."""
        return self.function(node) or self.tree

    def stores(self, name: ast.Name) -> list[ast.Name]:
        """Where the function around a name, or the module, binds it, or what is defined in there does."""
        return self.stores_within(self.home(name), name.id)

    def stores_within(self, within: ast.AST, name: str) -> list[ast.Name]:
        """Where a function, a loop or the module binds a name, or what is defined in it does."""
        if within not in self._stores:
            bound = self._stores[within] = {}
            for each in walk(within):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    bound.setdefault(each.id, []).append(each)
        return self._stores[within].get(name, [])

    @cached_property
    def _stores(self) -> dict[ast.AST, dict[str, list[ast.Name]]]:
        return {}

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statement list that holds ``statement``. Raises LookupError where none does."""
        return self._places[statement][0]

    def before(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements of its block ahead of ``statement``. Raises LookupError where no block holds it."""
        block, place = self._places[statement]
        return block[:place]

    @cached_property
    def _places(self) -> dict[ast.stmt, tuple[list[ast.stmt], int]]:
        """The block of each statement, and its place there."""
        found: dict[ast.stmt, tuple[list[ast.stmt], int]] = {}
        fields = (value for node in walk(self.tree) for _, value in ast.iter_fields(node))
        for block in (value for value in fields if isinstance(value, list)):
            found.update((each, (block, at)) for at, each in enumerate(block) if isinstance(each, ast.stmt))
        return found

    def is_reported(self, node: ast.expr) -> bool:
        """Whether an expression is a part of what is printed or logged, as in `print("%.3f" % (total / count))`."""
        calls = (each for each in self.ancestors(node) if isinstance(each, ast.Call))
        return any(last_name(call.func) in REPORTING for call in calls)

    def is_bound_within(self, node: ast.expr, place: ast.AST) -> bool:
        """Whether it names what exists only inside the statement around ``place``: `n` in `lambda n: rand(n)`."""
        names = {each.id for each in walk(node) if isinstance(each, ast.Name)}
        for outer in takewhile(lambda each: not isinstance(each, ast.stmt), self.ancestors(place)):
            if isinstance(outer, ast.Lambda):
                bound = {each.arg for each in walk(outer.args) if isinstance(each, ast.arg)}
            elif isinstance(outer, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
                targets = (each for loop in outer.generators for each in walk(loop.target))
                bound = {each.id for each in targets if isinstance(each, ast.Name)}
            else:
                continue
            if names & bound:
                return True
        return False

    def line(self, number: int) -> str:
        """A line of the text, counted from 1, without its end."""
        return self._lines[number - 1].decode().rstrip("\r\n")

    @cached_property
    def _lines(self) -> list[bytes]:
        return [line.encode() for line in re.split(r"(?<=\n)|(?<=\r)(?!\n)", self.text)]

    def code(self, node: ast.expr | ast.stmt) -> str:
        """The source text of ``node``, without surrounding parentheses."""
        return self._between((node.lineno, node.col_offset), _end(node))

    def extended(self, node: ast.expr, endings: Mapping[ast.expr, str]) -> str:
        """The source text of ``node``, with a text after each of some expressions in it."""
        place, pieces = (node.lineno, node.col_offset), []
        for inner, ending in sorted(endings.items(), key=lambda pair: _end(pair[0])):
            pieces += [self._between(place, _end(inner)), ending]
            place = _end(inner)
        return "".join([*pieces, self._between(place, _end(node))])

    def replaced(self, node: ast.expr | ast.stmt, texts: Mapping[ast.expr, str]) -> str:
        """The source text of ``node``, with a text in place of each of some expressions in it."""
        place, pieces = (node.lineno, node.col_offset), []
        inside = [each for each in texts if any(each is part for part in walk(node))]
        for inner in sorted(inside, key=_end):
            pieces += [self._between(place, (inner.lineno, inner.col_offset)), texts[inner]]
            place = _end(inner)
        return "".join([*pieces, self._between(place, _end(node))])

    def _between(self, start: tuple[int, int], end: tuple[int, int]) -> str:
        """The text from one line and column to another."""
        first, last = start[0] - 1, end[0] - 1
        if first == last:
            return self._lines[first][start[1] : end[1]].decode()
        lines = [self._lines[first][start[1] :], *self._lines[first + 1 : last]]
        return b"".join([*lines, self._lines[last][: end[1]]]).decode().replace("\r\n", "\n")


def own_nodes(home: ast.FunctionDef | ast.AsyncFunctionDef | ast.Module) -> Iterator[ast.AST]:
    """What the body of a function or module is made of, without what the functions and classes in it are."""
    pending: deque[ast.AST] = deque(home.body)
    while pending:
        node = pending.popleft()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            pending.extend(children(node))


@told_once
def bound_each_time(loop: ast.For | ast.AsyncFor) -> set[str]:
    """The names that each round of a loop binds, before anything may end it."""
    return {each.id for node in (loop.target, *_ahead_of_ends(loop.body)) for each in _stored_names(node)}


def _ahead_of_ends(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The plain statements of a body that come before one that may go on elsewhere."""
    for statement in body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
            yield statement
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from _ahead_of_ends(statement.body)
        if any(isinstance(each, (ast.Break, ast.Continue, ast.Return, ast.Raise)) for each in walk(statement)):
            return


def _stored_names(node: ast.AST) -> Iterator[ast.Name]:
    return (each for each in all_of(node, ast.Name) if isinstance(each.ctx, ast.Store))


@told_once
def is_generator(function: ast.AST) -> bool:
    """Whether a function yields."""
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return False
    return any(isinstance(each, (ast.Yield, ast.YieldFrom)) for each in own_nodes(function))


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """The expression passed as an argument, if the call spells it out."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if position is not None and position < len(call.args) and not any(isinstance(a, ast.Starred) for a in call.args):
        return call.args[position]
    return None


def simple(node: ast.expr) -> bool:
    """Whether writing an expression twice costs nothing."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Subscript) and not isinstance(node.slice, (ast.Name, ast.Constant)):
            return False
        node = node.value
    return isinstance(node, (ast.Name, ast.Constant))


def shortened(code: str) -> str:
    """Code as a message quotes it: on one line of at most 60 characters."""
    line = " ".join(code.split())
    return line if len(line) <= 60 else line[:57] + "..."


def indices(node: ast.Subscript) -> list[ast.expr]:
    """What a tensor is indexed by, an index for each axis from the first: `i` and `:` of `x[i, :]`."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def first_index(node: ast.Subscript) -> ast.expr:
    """What indexes the first axis; the empty tuple of `x[()]` is itself."""
    return next(iter(indices(node)), node.slice)


@told_once
def operands(node: ast.expr) -> list[ast.expr]:
    """What an operation is applied to, the receiver of a method among it."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.Subscript):
        return [node.value, *indices(node)]
    if isinstance(node, ast.Call):
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        lists = [each.elts if isinstance(each, (ast.List, ast.Tuple)) else [each] for each in given]
        return [*receiver, *(each for parts in lists for each in parts)]
    return []


@told_once
def stepped_tensor(node: ast.AST) -> ast.expr | None:
    """The tensor that a statement changes by its own gradient: `w -= lr * w.grad`, `w.data.sub_(lr * w.grad.data)`."""
    given: list[ast.expr] = []
    target: ast.expr | None = None
    if isinstance(node, ast.AugAssign) and isinstance(node.op, (ast.Add, ast.Sub)):
        target, given = node.target, [node.value]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STEPS:
        target, given = node.func.value, [*node.args, *(keyword.value for keyword in node.keywords)]
    while isinstance(target, ast.Subscript) or isinstance(target, ast.Attribute) and target.attr == "data":
        target = target.value
    if not isinstance(target, (ast.Name, ast.Attribute)):
        return None
    own = f"{ast.unparse(target)}.grad"
    inside = (part for each in given for part in walk(each) if isinstance(part, ast.Attribute))
    return target if any(part.attr == "grad" and ast.unparse(part) == own for part in inside) else None


@told_once
def counted_of(node: ast.expr) -> ast.expr | None:
    """The tensor of `len(x)`, `x.size(0)`, `x.size()[0]` and `x.shape[0]`."""
    if isinstance(node, ast.Call) and last_name(node.func) == "len" and len(node.args) == 1:
        return node.args[0]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
        return node.func.value
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        return node.value.value
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Call) and not node.value.args:
        sizes = node.value.func
        return sizes.value if isinstance(sizes, ast.Attribute) and sizes.attr == "size" else None
    return None


def filled_in(call: ast.Call, presets: Collection[ast.Call]) -> ast.Call:
    """A call with the arguments that `partial` has given before to what it calls, if that is one."""
    if len(presets) != 1:
        return call
    (preset,) = presets
    own = {keyword.arg for keyword in call.keywords}
    before = [keyword for keyword in preset.keywords if keyword.arg is None or keyword.arg not in own]
    return ast.Call(call.func, [*preset.args[1:], *call.args], [*before, *call.keywords])


def is_index(node: ast.AST, source: Source) -> bool:
    """Whether it is all that something is indexed by: `idx_train` of `output[idx_train]`."""
    parent = source.parents.get(node)
    return isinstance(parent, ast.Subscript) and parent.slice is node


def is_mask(node: ast.AST, source: Source) -> bool:
    """Whether something is indexed by what its name calls a mask, `output[data.train_mask]`; numbers of rows are called
    so, too."""
    return is_index(node, source) and "mask" in last_name(node)


def last_name(node: ast.AST | None) -> str:
    """`size` of `size` and of `self.options.size`; of anything else, nothing."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _end(node: ast.expr | ast.stmt) -> tuple[int, int]:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return node.end_lineno, node.end_col_offset


def _looks_like_python_2(text: str) -> bool:
    return re.search(r"^\s*(print\s+[\"'\w]|exec\s+[\"'\w]|except\s+\w+\s*,|raise\s+\w+\s*,)", text, re.M) is not None
