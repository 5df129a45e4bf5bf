"""What a variable may hold, as far as reading the source tells."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from autodist.source import Source, argument
from autodist.spread import SAME, Spread, join

Path_ = tuple[int, ...]


class Unknown:
    """No constant is known; compares equal to nothing else."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


@dataclass(frozen=True)
class External:
    """A module, class, function or attribute of a library, by qualified name."""

    name: str


@dataclass(frozen=True)
class Preset(External):
    """A function or class of a library with some of its arguments: ``partial(F.mse_loss, reduction="sum")``."""

    node: ast.Call
    args: list[Value] = field(default_factory=list, compare=False)
    keywords: dict[str, Value] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, eq=False)
class Viewer:
    """What else holds the numbers of a name: another name, by what it was ``made``, or an entry of a dict or a list."""

    holder: Any
    """Names, entries or places, with what they hold."""
    key: Any
    made: ast.expr | None = None
    container: Items | Table | None = None


@dataclass(eq=False)
class Scope:
    """Names and what they hold; ``parent`` is the scope around it."""

    source: Source
    parent: Scope | None = None
    names: dict[str, Value] = field(default_factory=dict)
    outer: set[str] = field(default_factory=set)
    is_class: bool = False
    shared: dict[str, tuple[ast.expr, Scope]] = field(default_factory=dict)
    """What names share their numbers with, `row = counts[0]`, what a call gives; and the scope that it is in."""
    viewers: dict[str, dict[tuple[int, Any], Viewer]] = field(default_factory=dict)
    """What has come to share the numbers of a name: `flat = counts.view(-1)`, `report = {"counts": counts}`."""

    @property
    def top(self) -> Scope:
        """The module's scope."""
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    def find(self, name: str) -> Scope | None:
        """The scope that holds ``name``, seen from here. Methods do not see the names of their class."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names and (scope is self or not scope.is_class):
                return scope
            scope = scope.parent
        return None


@dataclass(eq=False)
class LocalModule:
    """A file of the project."""

    source: Source
    scope: Scope


@dataclass(eq=False)
class Function:
    """A function or lambda of the project, with the object it is bound to."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    source: Source
    scope: Scope
    owner: Thing | None = None
    defined_in: Class | None = None
    args: list[Value] = field(default_factory=list)
    """What it is given before the arguments of a call: `partial(summarise, resolution)`."""
    keywords: dict[str, Value] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Its name in the source."""
        return "<lambda>" if isinstance(self.node, ast.Lambda) else self.node.name

    @property
    def defaults(self) -> dict[str, ast.expr]:
        """What its parameters are where a call does not give them."""
        spec = self.node.args
        names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        found = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
        named = zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
        return found | {keyword.arg: default for keyword, default in named if default is not None}

    @property
    def parameters(self) -> list[str]:
        """What a call may give it, those by their place first. The object that a method is bound to is none of them."""
        spec = self.node.args
        placed = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        known = (self.owner is not None) + len(self.args)
        return [*placed[known:], *(each.arg for each in spec.kwonlyargs)]

    def given(self, call: ast.Call, name: str) -> ast.expr | None:
        """What a call gives a parameter, if it spells it out."""
        named = name in {each.arg for each in self.node.args.kwonlyargs}
        return argument(call, name, None if named or name not in self.parameters else self.parameters.index(name))


@dataclass(eq=False)
class Class:
    """A class of the project. ``roles`` are those of the library classes that it derives from."""

    node: ast.ClassDef
    source: Source
    scope: Scope
    bases: tuple[Thing, ...]
    roles: frozenset[str]
    whole: Class | None = None
    """The class itself, where this is one that knows some of its arguments: ``partial(Meter, "loss")``."""
    args: list[Value] = field(default_factory=list)
    keywords: dict[str, Value] = field(default_factory=dict)

    def find(self, name: str, skip: Class | None = None) -> tuple[Class, Value] | None:
        """The class in its line that defines ``name``; with ``skip``, only those that come after it."""
        line = list(self.line())
        if skip is not None:
            line = line[line.index(skip) + 1 :] if skip in line else line
        return next(((each, each.scope.names[name]) for each in line if name in each.scope.names), None)

    @property
    def is_dict(self) -> bool:
        """Whether it derives from Python's own dict."""
        return any(isinstance(b, External) and b.name == "builtins.dict" for each in self.line() for b in each.bases)

    def functions(self, name: str) -> list[Function]:
        """The functions that ``name`` stands for in it, as a rule its method of that name."""
        found = self.find(name)
        return found[1].functions if found is not None else []

    def line(self) -> Iterator[Class]:
        """The class and those of the project that it derives from."""
        yield self
        for base in self.bases:
            if isinstance(base, Class):
                yield from base.line()


@dataclass(eq=False)
class Object:
    """What a call made: an instance of a class of the project (``cls``), or of a library (``name``)."""

    name: str
    roles: frozenset[str]
    node: ast.Call
    source: Source
    path: Path_
    cls: Class | None = None
    args: list[Value] = field(default_factory=list)
    keywords: dict[str, Value] = field(default_factory=dict)
    attributes: dict[str, Value] = field(default_factory=dict)
    inflows: list[tuple[Source, ast.expr]] = field(default_factory=list)

    @property
    def is_writer(self) -> bool:
        """Whether its class derives from a writer that other ranks do without: whatever its methods are called, they
        write."""
        return self.cls is not None and any(name.endswith(("SummaryWriter", "Visdom")) for name in self.library_classes)

    @property
    def library_classes(self) -> list[str]:
        """The class of a library that it is of, or those that its class derives from."""
        bases = [base for each in self.cls.line() for base in each.bases] if self.cls is not None else []
        return [each.name for each in bases if isinstance(each, External)] if self.cls is not None else [self.name]

    @property
    def key(self) -> tuple[int, Path_]:
        """What tells it from other objects in every run of the analysis."""
        return id(self.node), self.path

    @property
    def kind(self) -> str:
        """What kind of layer of torch it is, `Linear`; a table made of one that is given is one, too."""
        made = self.name.removesuffix(".from_pretrained") if self.name.startswith("torch.nn.") else self.name
        return made.rpartition(".")[2]

    def argument(self, name: str, position: int | None = None) -> Value | None:
        """The value of an argument, by name or position."""
        if name in self.keywords:
            return self.keywords[name]
        return self.args[position] if position is not None and position < len(self.args) else None

    @property
    def layers(self) -> dict[str, Value]:
        """The layers of a dict of modules of torch, by the names that it was made with."""
        tables = [t for value in self.args for t in value.things if isinstance(t, Table)]
        entries = tables[0].entries if self.name == "torch.nn.ModuleDict" and len(tables) == 1 else {}
        return {key: value for key, value in entries.items() if isinstance(key, str)}

    def functions(self, name: str) -> list[Function]:
        """The functions that ``name`` stands for in its class, none where that is not of the project."""
        return self.cls.functions(name) if self.cls is not None else []

    def looks_up(self, name: str) -> bool:
        """Whether a class of the project finds what ``name`` stands for when the script runs, by `__getattr__`."""
        if self.cls is None or self.roles or name in self.attributes or self.cls.find(name):
            return False
        return self.cls.find("__getattr__") is not None


@dataclass(eq=False)
class Items:
    """A list, tuple or set. ``parts`` while positions are known, ``element`` for what is anywhere in it."""

    node: ast.AST
    parts: list[Value]
    element: Value
    stores: dict[tuple[Source, ast.expr], None] = field(default_factory=dict)
    """The expressions that put something into it, see `stored`."""

    @property
    def is_told(self) -> bool:
        """Whether it is written out what is in it, as what a model gives several of: `return [main, auxiliary]`."""
        return bool(self.parts) and self.element.spread is SAME and not self.element.things


@dataclass(eq=False)
class Table:
    """A dict. ``entries`` by constant key, ``element`` for values under unknown keys."""

    node: ast.AST
    entries: dict[Any, Value]
    element: Value
    stores: dict[tuple[Source, ast.expr], None] = field(default_factory=dict)

    def put(self, key: Any, value: Value) -> None:
        """Have an entry hold ``value``. Where a loop makes the dict for each model, `{"params": net.parameters()}`, it
        stands for all of them, and holds the parameters of each."""
        before = self.entries[key].things if key in self.entries else ()
        others = frozenset(t for t in before if isinstance(t, Parameters))
        self.entries[key] = value.but(things=value.things | others) if others else value


@dataclass(eq=False)
class Stream:
    """An iterator; ``over`` are the loaders that it draws from."""

    element: Value
    over: Value


@dataclass(frozen=True)
class Parameters:
    """The parameters of a module, or some of them; ``named`` if each comes with its name, ``one`` if it is one of them
    and no list, ``cut`` if no gradients flow there: to gradients themselves, or to data without their graph, ``part``
    if it is a part of that one, as a row."""

    module: Thing
    named: bool = False
    cut: bool = False
    one: bool = False
    part: bool = False


@dataclass(frozen=True)
class Inside:
    """What is found in a module, and nothing more is known of: a part of it, a tensor or a setting."""

    module: Thing


@dataclass(frozen=True)
class OptimizerState:
    """What an optimizer keeps for the parameters of a module: all of it, that of one parameter (``depth`` 1), or one
    entry of that (0)."""

    module: Thing
    depth: int = 2


@dataclass(frozen=True)
class Index:
    """The running number of a loop."""

    loop: ast.AST


@dataclass(frozen=True)
class Draw:
    """What the script makes its batches of: indices drawn at random, noise, or a slice of the data."""

    node: ast.expr
    source: Source
    path: Path_
    size: ast.expr | None = None
    """How many samples it takes."""
    noise: bool = False
    """Whether it is the samples themselves that are drawn."""
    permutes: bool = False
    """Whether it is an order of all the samples, which is then cut into batches."""
    evaluates: bool = False
    """Whether it is noise in an evaluation, outside of what trains."""
    whole: bool = False
    """Whether it is a tensor that holds all the rows a step trains on, or their number."""
    columns: bool = False
    """Whether the samples of that tensor lie along its second axis."""
    count: bool = False
    """Whether it is their number, which shapes another tensor."""
    batch: bool = False
    """Whether it is a batch that a step is given, made elsewhere."""
    stream: bool = False
    """Whether it is an iterable of such batches."""
    nested: bool = False
    """Whether these batches are tuples of tensors."""
    turn: bool = False
    """Whether a loop of a step goes over it, one sample after the other."""
    even: bool = False
    """Whether all ranks must have as many of these."""
    derived: bool = False
    """Whether a loss is derived by it, so that a rank has its rows of it as one tensor: `grad(model(x), x)`."""
    once: bool = False
    """Whether indices or numbers are drawn outside of all loops, so that what they make is data like any other."""


@dataclass(frozen=True)
class Bound:
    """A method of an object of a library that is handed around: `step = optimizer.step`."""

    owner: Object
    name: str


@dataclass(frozen=True)
class Wrapped:
    """A module in DistributedDataParallel or DataParallel."""

    module: Thing
    kind: str


Thing = (
    External
    | LocalModule
    | Function
    | Class
    | Object
    | Items
    | Table
    | Stream
    | Parameters
    | Inside
    | OptimizerState
    | Index
    | Draw
    | Bound
    | Wrapped
)


@dataclass(frozen=True)
class Value:
    """What an expression may evaluate to.

    ``origins`` are the loaders and draws that its samples come from, ``optional`` if it may be None. ``weights`` are
    modules outside of which it comes of their parameters, so that gradients flow to these past any forward pass. A
    constant is ``firm`` if it is bound by a call or a loop over literals, so that a branch on it is decided; a module's
    settings are not.
    """

    things: frozenset[Thing] = frozenset()
    spread: Spread = SAME
    origins: frozenset[Object | Draw] = frozenset()
    const: Any = UNKNOWN
    firm: bool = False
    weights: frozenset[Thing] = frozenset()
    optional: bool = False

    def __or__(self, other: Value) -> Value:
        if self is other or other is NOTHING:
            return self
        if self is NOTHING:
            return other
        if self.const is other.const and self.__dict__ == other.__dict__:
            return self  # the most frequent case, in a tenth of the time
        if self.things >= other.things and self.origins >= other.origins:
            if (
                self.spread is other.spread
                and self.const is other.const
                and self.firm == other.firm
                and self.weights >= other.weights
                and self.optional >= other.optional
            ):
                return self
        same = type(self.const) is type(other.const) and self.const == other.const
        return self.but(
            things=self.things | other.things,
            spread=join(self.spread, other.spread),
            origins=self.origins | other.origins,
            const=self.const if same else UNKNOWN,
            firm=self.firm and other.firm,
            weights=self.weights | other.weights,
            optional=self.optional or other.optional,
        )

    def but(self, **changes: Any) -> Value:
        """A copy with some fields changed."""
        copy = object.__new__(Value)
        copy.__dict__.update(self.__dict__, **changes)  # as `replace` does, in a tenth of the time
        return copy

    def computed(self, spread: Spread) -> Value:
        """What a computation with that spread keeps of this value."""
        if spread is SAME and not (self.origins or self.weights):
            return PLAIN
        return NOTHING.but(spread=spread, origins=self.origins, weights=self.weights)

    def without(self, *kinds: type) -> Value:
        """This value, of whose origins those of some kinds have been settled."""
        kept = frozenset(each for each in self.origins if not isinstance(each, kinds))
        return self.but(origins=kept) if kept != self.origins else self

    def objects(self, role: str) -> Iterator[Object]:
        """The objects among its things that play ``role``."""
        return (each for each in self.things if isinstance(each, Object) and role in each.roles)

    @property
    def functions(self) -> list[Function]:
        """The functions of the project that it may be."""
        return [each for each in self.things if isinstance(each, Function)]


NOTHING = Value()
PLAIN = Value()
"""What is computed from what all ranks have, and of which nothing else is known."""


def drawn_from(value: Value) -> Iterator[Object]:
    """The loaders that iterating over a value draws from."""
    for thing in value.things:
        if isinstance(thing, Stream):
            yield from drawn_from(thing.over)
        elif isinstance(thing, Object) and "loader" in thing.roles:
            yield thing
        elif isinstance(thing, Object) and thing.roles & {"progress", "reader"}:
            yield from drawn_from(thing.argument("iterable", 0) or NOTHING)


def is_clock(origin: object) -> bool:
    """Whether it is a call that answers each process differently: the time, a random name, a process's number."""
    return isinstance(origin, Object) and "clock" in origin.roles


def stored(source: Source, expressions: Iterable[ast.expr]) -> dict[tuple[Source, ast.expr], None]:
    """What a list or a dict of the script holds by these expressions. A dict is a set that keeps the order."""
    return {(source, expression): None for expression in expressions}


def drawn_by_evaluation(values: Iterable[Value]) -> frozenset[Draw]:
    """What evaluations have drawn, each rank for itself, that goes into some of the ``values``."""
    return frozenset(each for value in values for each in value.origins if isinstance(each, Draw) and each.evaluates)


def union(values: Iterable[Value]) -> Value:
    """What one of several values may be."""
    result = NOTHING
    for value in values:
        result = value if result is NOTHING else result | value
    return result


def constant(value: Any, firm: bool = False) -> Value:
    """A literal."""
    return NOTHING.but(const=value, firm=firm, optional=value is None)


def of(thing: Thing) -> Value:
    """The value that is just ``thing``."""
    return _external(thing.name) if type(thing) is External else NOTHING.but(things=frozenset([thing]))


@cache
def _external(name: str) -> Value:
    """The value that is something of a library: one for each name, as scripts come by the same ones again and again."""
    return NOTHING.but(things=frozenset([External(name)]))
