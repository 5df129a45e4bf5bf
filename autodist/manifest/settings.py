"""What the arguments of a run make of a script's expressions, as far as the text tells."""

from __future__ import annotations

import argparse
import ast
import operator
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from autodist.interpreter import Interpreter
from autodist.source import Source, last_name, walk
from autodist.values import NOTHING, UNKNOWN

DEEPEST = 8
"""Names that a value is followed through."""
ANY = "*"
"""Stands for a part of a path that is not known."""
TYPES: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}
ACTIONS = frozenset(["store", "store_true", "store_false", "store_const", "append", "count"])
OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
JOINS = frozenset(["join", "Path", "PurePath", "joinpath"])
AS_IT_IS = frozenset(["str", "int", "float", "abspath", "realpath", "expanduser", "resolve", "fspath", "normpath"])
_Definition = ast.FunctionDef | ast.AsyncFunctionDef


class _Options(argparse.ArgumentParser):
    """The script's own options. What is wrong with the arguments is the script's to say."""

    def error(self, message: str) -> NoReturn:
        raise argparse.ArgumentError(None, message)


class Settings:
    """The values of a script that is started with ``args``."""

    def __init__(self, run: Interpreter, args: Sequence[str]) -> None:
        self._run, self._args = run, list(args)
        self.flags: dict[str, str] = {}
        """How an option is spelled on the command line, by its name in the script."""
        self._parser = self._declared()

    def given(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The words of the command line that set an option, and the others."""
        with_it, rest = self._parsed(self._args)
        for start in range(len(self._args)):
            for length in (1, 2):
                others = self._args[:start] + self._args[start + length :]
                without, left = self._parsed(others)
                changed = {key for key in with_it if with_it[key] != without.get(key)}
                if changed == {name} and left == rest:
                    return tuple(self._args[start : start + length]), tuple(others)
        return (), tuple(self._args)

    @property
    def options(self) -> dict[str, Any]:
        """What the options of argparse and click are in this run, by name."""
        return self._parsed(self._args)[0]

    def _declared(self) -> argparse.ArgumentParser:
        parser = _Options(add_help=False, conflict_handler="resolve")
        for source in self._run.project.sources:
            for node in walk(source.tree):
                if isinstance(node, ast.Call) and last_name(node.func) in ("add_argument", "option"):
                    self._declare(parser, node)
        return parser

    def _parsed(self, args: list[str]) -> tuple[dict[str, Any], list[str]]:
        try:
            known, rest = self._parser.parse_known_args(args)
        except (argparse.ArgumentError, ValueError, TypeError):
            return {}, []
        return vars(known), rest

    def _declare(self, parser: argparse.ArgumentParser, call: ast.Call) -> None:
        flags = [node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        told = {each.arg: each.value for each in call.keywords if each.arg}
        by_click = last_name(call.func) == "option"
        if not flags or by_click and not flags[0].startswith("-"):
            return
        default = _literal(told["default"]) if "default" in told else None
        kwargs: dict[str, Any] = {"default": default}
        action = _literal(told["action"]) if "action" in told else "store"
        if by_click and any("/" in flag for flag in flags):  # `--resume/--no-resume`
            action = argparse.BooleanOptionalAction
        elif by_click and "is_flag" in told:
            action, kwargs["default"] = "store_true", bool(default) if default is not UNKNOWN else default
        if action == "store":
            name = last_name(told["type"]) if "type" in told else type(default).__name__ if by_click else None
            kwargs["type"] = TYPES.get(name or "str", str)
            kwargs |= {key: _literal(told[key]) for key in ("nargs", "const") if key in told}
            if not flags[0].startswith("-"):
                kwargs.setdefault("nargs", "?")
        elif "action" in told and last_name(told["action"]) == "BooleanOptionalAction":
            action = argparse.BooleanOptionalAction
        elif action is not argparse.BooleanOptionalAction and action not in ACTIONS:
            return
        elif action in ("store_true", "store_false") and default is None:
            kwargs["default"] = action == "store_false"
        names = [flag.partition("/")[0] for flag in flags if flag.startswith("-")] or flags[:1]
        if "dest" in told and names[0].startswith("-"):
            kwargs["dest"] = _literal(told["dest"])
        try:
            made = parser.add_argument(*names, action=action, **kwargs)
        except (TypeError, ValueError):
            return
        self.flags[made.dest] = next((flag for flag in names if flag.startswith("--")), names[0])

    def value(self, node: ast.expr, source: Source, depth: int = DEEPEST) -> Any:
        """What an expression is, UNKNOWN where that cannot be told. Of a path unknown parts are `*`."""
        if depth == 0:
            return UNKNOWN
        match node:
            case ast.Constant(value=value):
                return value
            case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod(), right=right):
                words = iter(right.elts if isinstance(right, ast.Tuple) else [right])
                filled = ((self._text(each, source, depth) if (each := next(words, None)) else ANY) for _ in text)
                return re.sub(r"%[-+ #0-9.]*[a-zA-Z]", lambda _: next(filled), text)
            case ast.BinOp(left=left, op=op, right=right):
                return self._computed(op, self.value(left, source, depth - 1), self.value(right, source, depth - 1))
            case ast.Call(func=ast.Attribute(attr="format", value=ast.Constant(value=str(text)))):
                return re.sub(r"\{[^{}]*\}", ANY, text)
            case ast.JoinedStr(values=parts):
                return "".join(self._text(part, source, depth) for part in parts)
            case ast.Call(func=function, args=args) if last_name(function) in JOINS and args:
                return os.path.join(*(self._text(each, source, depth) for each in args))
            case ast.Call(func=function, args=[inner]) if last_name(function) in AS_IT_IS:
                return self._cast(last_name(function), self.value(inner, source, depth - 1))
            case ast.Name() | ast.Attribute():
                return self._named(node, source, depth)
            case ast.Subscript(slice=ast.Constant(value=str(key))) if not self._is_given(key):
                trees = (each.tree for each in self._run.project.sources)
                return self._alike((value, source) for tree in trees for value in _entries(tree, key))
        return self._run.values.get(node, NOTHING).const

    def _is_given(self, name: str) -> bool:
        """Whether an argument speaks of a setting, in a way that the script alone knows."""
        return any(name in arg.replace("-", "_") for arg in self._args)

    def _alike(self, found: Iterable[tuple[ast.expr, Source]], depth: int = 2) -> Any:
        values = [self.value(each, place, depth - 1) for each, place in found]
        return values[0] if values and all(each == values[0] for each in values) else UNKNOWN

    def several(self, node: ast.expr, source: Source) -> list[Any]:
        """What an expression is, all of it where a parameter is given several values."""
        value = self.value(node, source)
        if value is not UNKNOWN or not isinstance(node, ast.Name):
            return [value]
        return [self.value(each, place) for each, place in self.behind(node, node.id, source)] or [value]

    def _named(self, node: ast.Name | ast.Attribute, source: Source, depth: int) -> Any:
        name = node.id if isinstance(node, ast.Name) else node.attr
        known = self._run.values.get(node, NOTHING).const
        if known is not UNKNOWN and known is not None:
            return known
        if isinstance(node, ast.Attribute) and name in self.options and ast.unparse(node.value) != "self":
            return self.options[name]
        found = list(self.behind(node, name, source))
        return self._alike(found, depth) if found else self.options.get(name, UNKNOWN)

    def behind(self, node: ast.Name | ast.Attribute, name: str, source: Source) -> Iterator[tuple[ast.expr, Source]]:
        """The expressions that a name, a parameter or an attribute of an object stands for."""
        if isinstance(node, ast.Attribute):
            for each in self._run.project.sources:
                yield from ((value, each) for value in _assigned(each.tree, name, ast.Attribute))
                for holder in walk(each.tree) if not self._is_given(name) else ():  # `class Config: batch: int = 8`
                    if isinstance(holder, ast.ClassDef):
                        yield from ((value, each) for value in _assigned(holder, name, ast.Name))
            return
        function = next((each for each in source.ancestors(node) if isinstance(each, _Definition)), None)
        if function is not None and (local := list(_assigned(function, name, ast.Name))):
            yield from ((value, source) for value in local)
            return
        spec = function.args if function is not None else ast.arguments([], [], None, [], [], None, [])
        names = [each.arg for each in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
        if function is not None and name in names:
            yield from self._passed(function, name, names, source)
            return
        yield from ((value, source) for value in _assigned(source.tree, name, ast.Name))

    def _passed(
        self, function: _Definition, name: str, names: list[str], source: Source
    ) -> Iterator[tuple[ast.expr, Source]]:
        """What calls of a function give it, or else its default."""
        called, index = function.name, names.index(name)
        if names[:1] == ["self"]:
            holder = source.parents[function]
            called = holder.name if isinstance(holder, ast.ClassDef) and called == "__init__" else called
            index -= 1
        some = False
        for place in self._run.project.sources:
            for call in walk(place.tree):
                if isinstance(call, ast.Call) and last_name(call.func) == called:
                    named = next((each.value for each in call.keywords if each.arg == name), None)
                    if named is not None or index < len(call.args):
                        some = True
                        yield named or call.args[index], place
        positional = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
        defaults = dict(zip(positional[::-1], function.args.defaults[::-1], strict=False))
        if not some and name in defaults:
            yield defaults[name], source

    def _text(self, node: ast.expr, source: Source, depth: int) -> str:
        inner = node.value if isinstance(node, ast.FormattedValue) else node
        value = self.value(inner, source, depth - 1)
        return ANY if value is UNKNOWN or value is None else str(value)

    def _computed(self, op: ast.operator, left: Any, right: Any) -> Any:
        if isinstance(op, ast.Div) and (isinstance(left, str) or isinstance(right, str)):
            return os.path.join(*(ANY if each is UNKNOWN else str(each) for each in (left, right)))
        if isinstance(op, ast.Add) and (isinstance(left, str) or isinstance(right, str)):
            left, right = (ANY if each is UNKNOWN else each for each in (left, right))
        if UNKNOWN in (left, right) or type(op) not in OPERATORS:
            return UNKNOWN
        try:
            return OPERATORS[type(op)](left, right)
        except (TypeError, ValueError, ZeroDivisionError):
            return UNKNOWN

    @staticmethod
    def _cast(name: str, value: Any) -> Any:
        try:
            return TYPES[name](value) if name in TYPES and value is not UNKNOWN else value
        except (TypeError, ValueError):
            return UNKNOWN


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return UNKNOWN


def _assigned(scope: ast.AST, name: str, kind: type[ast.Name] | type[ast.Attribute]) -> Iterator[ast.expr]:
    """What is assigned to a name in a function or module, but for functions inside it; or to an attribute anywhere."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop(0)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(each, kind) and last_name(each) == name for each in targets):
                yield node.value
        if kind is ast.Attribute or not isinstance(node, (*_Definition.__args__, ast.Lambda, ast.ClassDef)):
            pending += ast.iter_child_nodes(node)


def _entries(tree: ast.Module, key: str) -> Iterator[ast.expr]:
    """What dicts hold by a key, where they are spelled out."""
    for node in walk(tree):
        if isinstance(node, ast.Dict):
            for name, value in zip(node.keys, node.values, strict=True):
                if isinstance(name, ast.Constant) and name.value == key:
                    yield value
        elif isinstance(node, ast.Call) and last_name(node.func) == "dict":
            yield from (each.value for each in node.keywords if each.arg == key)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            name = node.targets[0].slice
            if isinstance(name, ast.Constant) and name.value == key:
                yield node.value
