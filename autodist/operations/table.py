"""The table from names of operations to their classes, and the user's own lines of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from autodist.operations.classes import CLASSES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KINDS = ("sum", "mean", "max", "min", "none")
METHODS = "torch.Tensor"
LAYERS = "torch.nn"
OF_TENSORS = frozenset("torch torch.Tensor torch.autograd torch.linalg torch.nn.functional numpy numpy.linalg".split())
"""The modules whose functions and methods compute with tensors: layers and what is Python's own are elsewhere."""

ELSEWHERE = {
    "numpy.random.default_rng": ("numpy.random.Generator", "numpy.random"),
    "numpy.random.Generator": ("numpy.random",),
    "numpy.random.RandomState": ("numpy.random",),
    "random.Random": ("random",),
    METHODS: ("torch", "numpy.ndarray", "pandas.DataFrame"),
}
"""Where else the methods of generators, and of tensors and arrays, have a line: functions of the same names."""

APART = frozenset("same linear elementwise add multiply divide per_sample random_like".split())
"""The classes of what computes each sample apart."""


@dataclass(frozen=True)
class Operation:
    """One line of the table."""

    name: str
    cls: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def short(self) -> str:
        """The last part of its name."""
        return self.name.rpartition(".")[2]

    @property
    def module(self) -> str:
        """What is before it."""
        return self.name.rpartition(".")[0]

    @property
    def kind(self) -> str:
        """What a reduction makes of several numbers."""
        return str(self.parameters.get("kind", "none"))


class Table:
    """Operations by their dotted names."""

    def __init__(self, lines: Mapping[str, object]) -> None:
        self._operations = {name: _operation(name, line, lines) for name, line in lines.items()}
        self._found: dict[str, Operation | None] = {}

    def __iter__(self) -> Iterator[Operation]:
        return iter(self._operations.values())

    def layers(self, *classes: str) -> frozenset[str]:
        """The names of the layers and losses of torch.nn of some classes: `ReLU`."""
        assert CLASSES.keys() >= {*classes}, classes
        return frozenset(each.short for each in self if each.cls in classes and each.module == LAYERS)

    def find(self, name: str) -> Operation | None:
        """The operation of a dotted name. A tensor's method is the function of torch of that name, if it has no line of
        its own, and what ends with `_` does the same in place."""
        if name not in self._found:
            self._found[name] = self._find(name)
        return self._found[name]

    def _find(self, name: str) -> Operation | None:
        module, _, short = name.rpartition(".")
        tried = [name, *(f"{each}.{short}" for each in ELSEWHERE.get(module, ()))]
        if module.startswith("torch.distributions."):
            tried.append(f"torch.distributions.Distribution.{short}")
        if short.endswith("_") and not short.startswith("_"):
            tried += [each[:-1] for each in tried]
        return next((self._operations[each] for each in tried if each in self._operations), None)

    def named(self, *classes: str, kind: str | None = None, axis: int | None = None) -> frozenset[str]:
        """The last parts of the names of functions and methods of tensors of some classes, `sum` of `torch.sum`: all
        of them, those of a kind, or those that take their axis as an argument of that number."""
        assert CLASSES.keys() >= {*classes}, classes
        found = [each for each in self if each.cls in classes and each.module in OF_TENSORS]
        found = [each for each in found if kind in (None, each.kind) and axis in (None, each.parameters.get("axis"))]
        return frozenset(each.short for each in found)


def problem(name: str, line: object, lines: Mapping[str, object]) -> str | None:
    """What is wrong with a line of the table."""
    if _followed(line, lines) is None:
        return f"{name}: there is no operation {str(line)[3:]!r} that has a class"
    given: Mapping[str, Any] = line if isinstance(line, Mapping) else {"class": line}
    cls = given.get("class")
    if isinstance(cls, str) and cls.startswith("as "):
        return None
    if not isinstance(cls, str) or cls not in CLASSES:
        return f"{name}: {cls!r} is no class of operations; there are {', '.join(CLASSES)}"
    known_parameters = CLASSES[cls][1]
    for key, value in given.items():
        if key != "class" and type(value) is not known_parameters.get(key):
            expected = ", ".join(f"{each} ({kind.__name__})" for each, kind in known_parameters.items()) or "none"
            return f"{name}: {cls} has no parameter {key} = {value!r}; it has {expected}"
    if given.get("kind", "none") not in KINDS:
        return f"{name}: kind must be one of {', '.join(KINDS)}"
    return None


def _followed(line: object, lines: Mapping[str, object]) -> object:
    """The line that one stands for: `as torch.dropout`, or that of another name for it. None if there is none."""
    seen: set[str] = set()
    while isinstance(line, str) and line.startswith("as "):
        if line in seen:
            return None
        seen.add(line)
        line = lines.get(line[3:])
    return line


def _operation(name: str, line: object, lines: Mapping[str, object]) -> Operation:
    wrong = problem(name, line, lines)
    if wrong is not None:
        raise ValueError(wrong)
    line = _followed(line, lines)
    given: Mapping[str, Any] = line if isinstance(line, Mapping) else {"class": line}
    return Operation(name, given["class"], {key: value for key, value in given.items() if key != "class"})


@cache
def shipped() -> Mapping[str, object]:
    """The lines of the files beside this one: a section is a module, a key a name in it."""
    lines: dict[str, object] = {}
    folder = files("autodist.operations")
    for file in sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name):
        lines.update(read(file.read_text(encoding="utf-8")))
    return lines


def read(text: str) -> dict[str, object]:
    """The lines of a file by their dotted names. Each stands for itself, and few of their values differ: each value is
    parsed once, which takes a fifth of the time of parsing it all."""
    lines: dict[str, object] = {}
    module = ""
    for line in text.splitlines():
        name, equals, value = line.partition(" = ")
        if line.startswith("["):
            module = line.strip("[]").replace('"', "")
        elif equals and not line.startswith("#"):
            lines[f"{module}.{name}"] = _value(value)
    return lines


@cache
def _value(text: str) -> object:
    return tomllib.loads(f"value = {text}")["value"]


@cache
def _own() -> Table:
    return Table(shipped())


def load(extra: Mapping[str, object] | None = None) -> Table:
    """The shipped table, with the user's own lines, whose names are dotted: `"mylib.scale" = "elementwise"`."""
    return Table({**shipped(), **extra}) if extra else _own()
