"""What a `collate_fn` makes of a list of samples: tensors with one row for each of them, or not.

A rank collates its own samples. Where it joins what is in them (`torch.cat` of sentences), pads it to the longest
(`pad_sequence`) or leaves some out, the number of rows or of positions is the rank's own, and means over them weigh
the ranks unevenly. Read from the source: such functions are short, and say plainly what they do.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeGuard, TypeVar

from autodist.source import last_name
from autodist.values import NOTHING, PACKED, SETTLED, UNKNOWN, Class, Function, Object, Part, Value

Key = int | str


class Rows(Enum):
    """How many rows a tensor, or entries a list, has for the samples of a batch."""

    EACH = "one for each sample"
    JOINED = "as many as the samples have together"
    PADDED = "one for each sample, each as long as the longest"
    FEWER = "some samples are left out"

    @property
    def uneven(self) -> bool:
        """Whether a mean over all of it divides by a number that each rank has of its own."""
        return self is not Rows.EACH


@dataclass(frozen=True)
class Longest:
    """A length that depends on the samples: `max(len(text) for text in texts)`."""


@dataclass(frozen=True)
class Single:
    """One sample, or a part of one; ``longest`` if no other is longer, ``filled`` if it is as long as the longest."""

    longest: bool = False
    filled: bool = False


@dataclass(frozen=True)
class Fields:
    """Several of them: a tuple, list or dict; ``rest`` is what is under keys that are not told."""

    parts: dict[Key, Kind]
    rest: Kind = None

    def at(self, key: Key) -> Kind:
        """What is under a key."""
        return self.parts.get(key, self.rest)

    @property
    def all(self) -> dict[Key, Kind]:
        """What is under each key, and under any other."""
        return {**self.parts, ANY_OTHER: self.rest} if self.rest is not None else self.parts


Kind = Rows | Longest | Single | Fields | None
"""None: nothing is known, or it has nothing to do with the samples."""

Callable_ = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Attribute

COLLECTING = frozenset("list tuple sorted reversed array asarray enumerate tqdm Variable".split())
STACKING = frozenset(
    "stack vstack tensor as_tensor array asarray from_numpy Tensor FloatTensor LongTensor IntTensor BoolTensor "
    "DoubleTensor default_collate _utils.collate.default_collate default_convert".split()
)
JOINING = frozenset("cat concat concatenate hstack chain from_iterable".split())
PADDING = frozenset("pad_sequence pad_packed_sequence".split())
FILLED = frozenset("zeros ones full empty new_zeros new_ones new_full new_empty new_tensor arange".split())
BEGINNING = "__init__"
SIZED = frozenset("new Tensor FloatTensor LongTensor IntTensor BoolTensor ByteTensor DoubleTensor".split())
"""What makes a tensor of sizes where it is given several: `torch.FloatTensor(len(batch), longest)`."""
SORTING = frozenset("sort sorted argsort".split())
MEASURING = frozenset("len size".split())
KEYS = 8
"""How many keys that a function names are looked at one by one."""
ANY_OTHER = "any other key"
"""Stands for all keys that a function names nowhere."""
ADDING_AN_AXIS = frozenset("unsqueeze expand_dims view reshape".split())


def collated(collate: Value) -> Kind:
    """What a `collate_fn` of the project makes of a list of samples; the worst of those that a condition chooses of."""
    made = [Reading(function, {}).given([Rows.EACH]) for function in called(collate)]
    return made[0] if len(made) == 1 else _worst(made)


def sole(collate: Value) -> Function | None:
    """The one function that a call of a value runs, if it is one."""
    functions = list(called(collate))
    return functions[0] if len(functions) == 1 else None


def called(value: Value) -> Iterator[Function]:
    """What a call of a value runs: a function, a method of an object, what makes an object of a class."""
    for thing in value.things:
        if isinstance(thing, Function):
            yield thing
        elif isinstance(thing, Object) and thing.cls is not None:
            yield from (replace(method, owner=thing) for method in _methods(thing.cls, "__call__"))
        elif isinstance(thing, Class):
            yield from _methods(thing, BEGINNING)


def _methods(cls: Class, name: str) -> Iterator[Function]:
    found = cls.find(name)
    yield from (each for each in (found[1].things if found is not None else ()) if isinstance(each, Function))


def fields(value: Value) -> dict[Object, list[Key]]:
    """The loaders whose own functions made a value's samples, or of which words were packed, and which parts of their
    batches it comes from."""
    packed = {o.loader for o in value.origins if isinstance(o, Part) and o.key == PACKED}
    loaders = [each for each in _loaders(value) if each in packed or collate_fn(each) is not None or of_graphs(each)]
    return {loader: [o.key for o in value.origins if isinstance(o, Part) and o.loader is loader] for loader in loaders}


def _loaders(value: Value) -> list[Object]:
    return [o for o in value.origins if isinstance(o, Object) and "loader" in o.roles]


def is_packed(value: Value) -> bool:
    """Whether it is what `pack_padded_sequence` makes."""
    return any(isinstance(origin, Part) and origin.key == PACKED for origin in value.origins)


def collate_fn(loader: Object) -> Value | None:
    """What a loader is told to make batches by."""
    found = loader.argument("collate_fn", 6)
    return found if found is not None and found.things else None


def names(value: Value) -> str:
    """What the functions that made a value's samples are called, for a message."""
    known = dict.fromkeys(map(named, fields(value)))
    return " and ".join(filter(None, known)) or (
        "pack_padded_sequence()" if is_packed(value) else "the loader of graphs"
    )


def named(loader: Object) -> str:
    """What the function is called by which a loader makes its batches."""
    found = dict.fromkeys(map(_name, called(collate_fn(loader) or NOTHING)))
    return " and ".join("collate_fn" if name == "<lambda>" else f"{name}()" for name in found)


def _name(function: Function) -> str:
    cls = function.defined_in
    return cls.node.name if cls is not None and function.name in (BEGINNING, "__call__") else function.name


OF_NODES = frozenset("x pos edge_index edge_attr edge_weight batch".split())
"""What a batch of graphs has for each of their nodes or edges."""


def of_graphs(loader: Object) -> bool:
    """Whether a batch is one graph of several, with the nodes of all of them."""
    return loader.name.startswith(("torch_geometric.", "dgl."))


def picked(value: Value, key: object) -> Value:
    """One field of a batch."""
    if not isinstance(key, (int, str)) or isinstance(key, bool):
        return value
    chosen = {Part(loader, key) for loader, keys in fields(value).items() if not keys}
    return value.but(origins=value.origins | chosen) if chosen else value


def marked(value: Value, key: Key) -> Value:
    """A loss that has been looked at (SETTLED), or words of which the paddings are gone (PACKED)."""
    marks = {Part(loader, key) for loader in (_loaders(value) if key == PACKED else fields(value))}
    return value.but(origins=value.origins | marks) if marks else value


def has_padding(value: Value, made: Callable[[Object], Kind]) -> bool:
    """Whether something of what a value is computed from is filled up to the longest sample."""
    parts = fields(value).items()
    return any(unevenness(made(loader), key) is Rows.PADDED for loader, keys in parts for key in (keys or (None,)))


def uneven(value: Value, made: Callable[[Object], Kind], target: bool = False) -> Rows | None:
    """What makes a value, or a loss with this target, longer on one rank than on another; ``made`` tells what a
    loader's batches are."""
    found: list[Rows | None] = []
    for loader, keys in fields(value).items():
        if PACKED in keys and target:
            found.append(Rows.JOINED)
        elif SETTLED not in keys:
            keys = [key for key in keys if key != PACKED]
            found += [unevenness(made(loader), key) for key in (keys or (None,))]
    if None in found and Rows.FEWER not in found and Rows.JOINED not in found:
        return None  # what goes with one number for each sample is padded and does not count as often
    return next((each for each in (Rows.FEWER, Rows.JOINED, Rows.PADDED) if each in found), None)


def unevenness(kind: Kind, key: Key | None) -> Rows | None:
    """What makes a part of a batch, or with no key what a loss is taken of, longer on one rank than on another."""
    if isinstance(kind, Fields) and key is not None:
        kind = kind.at(key + len(kind.parts) if isinstance(key, int) and key < 0 else key)
    if isinstance(kind, Fields):
        named = [k for k in kind.parts if isinstance(k, str) and ("label" in k or "target" in k)]
        kind = _worst([kind.parts[k] for k in named] or [*kind.parts.values(), kind.rest])
    if isinstance(kind, Single) and kind.filled:
        return Rows.PADDED  # `words.extend(text + [PAD] * (longest - len(text)))`, which is folded afterwards
    return kind if isinstance(kind, Rows) and kind.uneven else None


def _worst(kinds: Iterable[Kind]) -> Kind:
    """What is worst of some: where one of them is uneven, the whole may be."""
    found = [kind for kind in kinds if isinstance(kind, (Rows, Fields)) or isinstance(kind, Single) and kind.filled]
    if found and all(isinstance(kind, Fields) for kind in found):
        fields = [kind for kind in found if isinstance(kind, Fields)]
        keys = dict.fromkeys(key for each in fields for key in each.parts)
        return Fields({key: _worst(each.at(key) for each in fields) for key in keys}, _worst(e.rest for e in fields))
    rows = [unevenness(kind, None) or Rows.EACH for kind in found]
    return next((each for each in (Rows.FEWER, Rows.JOINED, Rows.PADDED, Rows.EACH) if each in rows), None)


class Reading:
    """One pass over the statements of a function, in their order."""

    def __init__(self, function: Function, names: dict[str, Kind], depth: int = 3) -> None:
        self.function = function
        self.names = names
        self.returned: list[Kind] = []
        self.constants = _settings(function)
        """What parameters stand for that are told once and for all."""
        self._depth = depth
        self._choosing = 0
        self._one_row: set[str] = set()
        self._held: dict[str, str] = {}
        """What a loop takes one after the other, and what it takes them of."""
        self._sample: set[str] = set()
        """What a loop over the samples takes, and what it makes of each of them."""
        self._filled: set[str] = set()
        """The keys of samples under which they have what was filled up to the longest."""
        self._descending: set[str] = set()
        """What holds the samples, or something of each, from the longest to the shortest."""
        self._local: dict[str, Callable_] = {}
        """Functions that are defined within the function, and other names of those of libraries."""

    def given(self, kinds: list[Kind], named: Mapping[str, Kind] | None = None) -> Kind:
        """What the function returns for its arguments, those by position and those by name; of a class, what the
        object that it makes has under which names."""
        self.names |= {**dict(zip(self.parameters(), kinds, strict=False)), **(named or {})}
        kind = self._given(self.function.node, [])
        return self.made() if self.function.name == BEGINNING else kind

    def made(self) -> Fields:
        """What the object has that the function begins."""
        own = f"{self._own()}."
        return Fields({name.removeprefix(own): kind for name, kind in self.names.items() if name.startswith(own)})

    def parameters(self) -> list[str]:
        """What a call gives the function by position, without the object of a method and what `partial` has given."""
        return _parameters(self.function.node)[(self._own() is not None) + len(self.function.args) :]

    def _own(self) -> str | None:
        """What a method calls its object."""
        static = any(last_name(each) == "staticmethod" for each in getattr(self.function.node, "decorator_list", ()))
        names = _parameters(self.function.node)
        return names[0] if self.function.defined_in is not None and not static and names else None

    def _given(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, kinds: list[Kind]) -> Kind:
        self.names |= dict(zip(_parameters(node), kinds, strict=False))
        if isinstance(node, ast.Lambda):
            return self.kind(node.body)
        self.run(node.body)
        return _worst(self.returned)

    def constant(self, node: ast.expr) -> object:
        """What a name, a setting of the object or a literal stands for, UNKNOWN if it may be anything."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            inner = self.constant(node.operand)
            if isinstance(node.op, ast.Not):
                return inner if inner is UNKNOWN else not inner
            return -inner if isinstance(inner, int) else UNKNOWN
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            return self._compared(node.left, node.ops[0], node.comparators[0])
        if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
            held = [self.constant(each) for each in node.elts]
            return UNKNOWN if UNKNOWN in held else tuple(held)
        if isinstance(node, ast.Name):
            if node.id in self.constants:
                return self.constants[node.id]
            scope = self.function.scope.find(node.id) if node.id not in self.names else None
            return scope.names[node.id].const if scope is not None else UNKNOWN
        owner = self.function.owner
        if isinstance(node, ast.Attribute) and isinstance(owner, Object) and ast.unparse(node.value) == self._own():
            return owner.attributes.get(node.attr, NOTHING).const
        return UNKNOWN

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> object:
        """Whether a comparison of the name of a field holds: `key == "label"`, `key in ("words", "tags")`."""
        one, other = self.constant(left), self.constant(right)
        if not isinstance(one, str) or not isinstance(other, (str, tuple)):
            return UNKNOWN
        if isinstance(op, (ast.Eq, ast.NotEq)):
            return (one == other) is isinstance(op, ast.Eq)
        return (one in other) is isinstance(op, ast.In) if isinstance(op, (ast.In, ast.NotIn)) else UNKNOWN

    def spelled(self, call: ast.Call) -> ast.Call:
        """A call with what is known of its arguments written out: `torch.stack(texts, 1)` for `(texts, axis)`."""

        def told(node: ast.expr) -> ast.expr:
            value = self.constant(node) if isinstance(node, (ast.Name, ast.Attribute)) else UNKNOWN
            return ast.Constant(value) if isinstance(value, (int, bool)) else node

        keywords = [ast.keyword(each.arg, told(each.value)) for each in call.keywords]
        return ast.Call(call.func, [told(each) for each in call.args], keywords)

    def run(self, body: Iterable[ast.stmt]) -> bool:
        """Follow what names stand for; whether the function goes on after that."""
        for statement in body:
            if isinstance(statement, ast.If) and (holds := self.constant(statement.test)) is not UNKNOWN:
                if not self.run(statement.body if holds else statement.orelse):
                    return False
                continue
            self._statement(statement)
            if isinstance(statement, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
                return False
        return True

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Return):
            self.returned.append(self.kind(node.value) if node.value is not None else None)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self._local[node.name] = node
        elif isinstance(node, ast.Assign):
            kind, descending = self.kind(node.value), self._descends(node.value)
            for target in node.targets:
                self._bind(target, kind)
                self._order(target, descending)
                if self._choosing and isinstance(target, ast.Name) and _outgrows(target.id, node.value):
                    self.names[target.id] = Longest()
                for each in ast.walk(target):
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                        self.constants[each.id] = UNKNOWN
                if isinstance(target, ast.Name):
                    self._local.pop(target.id, None)
                    if isinstance(node.value, (ast.Lambda, ast.Attribute)):
                        self._local[target.id] = node.value
            if isinstance(node.targets[0], ast.Subscript) and self._lengthens(node.value):
                self._fill(node.targets[0])  # `texts[i] = texts[i] + [PAD] * (longest - len(texts[i]))`
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._bind(node.target, self.kind(node.value))
        elif isinstance(node, ast.AugAssign) and self._lengthens(node.value):
            self._fill(node.target)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            if isinstance(self.kind(node.value), (Single, Rows)) and self._choosing:
                self.names[node.target.id] = Rows.JOINED
        elif isinstance(node, ast.While) and self._pads(node.test) or _goes_on(node) and self._pads(node.iter):
            for each in filter(None, map(_lengthened, node.body)):
                self._fill(each)
        elif isinstance(node, ast.While):
            self.run(node.body)
        elif isinstance(node, ast.For) and (key := self._goes_by_key(node)) is not None:
            for inner in self._by_key(key, node.target, node.iter, node.body):
                inner.run(node.body)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            over = self.kind(node.iter)
            self._bind(node.target, _element(over))
            self._held |= _taken(node.target, node.iter)
            self._choosing += 1
            self._looped(node, over)
            self._choosing -= 1
        elif isinstance(node, ast.If):
            self.run(node.body)
            self.run(node.orelse)
        elif isinstance(node, (ast.With, ast.AsyncWith, ast.Try)):
            self.run(node.body)
        elif isinstance(node, ast.Expr):
            self._effect(node.value, Rows.EACH)
            if isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
                if node.value.func.attr == "sort":
                    self._order(node.value.func.value, self._descends(node.value))

    def _lengthens(self, node: ast.expr) -> bool:
        """`[PAD] * (longest - len(text))`, and such a list behind another one."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._lengthens(node.left) or self._lengthens(node.right)
        makes = (
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) or isinstance(node, (ast.Call, ast.ListComp))
        )
        return makes and self._pads(node)

    def _fill(self, target: ast.expr) -> None:
        """Remember what is now as long as the longest: `text`, `texts[i]`, `sample["text"]`."""
        if isinstance(target, (ast.Subscript, ast.Attribute)):
            root = target.value
            if isinstance(root, ast.Name) and isinstance(self.names.get(root.id), Rows):
                self.names[root.id] = self._padded(root.id)  # `texts[i]`
            else:  # `sample["text"]`, `batch[i]["text"]`
                self._filled.add(_place(target))
        elif isinstance(target, ast.Name):
            self.names[target.id] = Single(filled=True)
            holder = self._held.get(target.id)
            if holder is not None and isinstance(self.names.get(holder), Rows):
                self.names[holder] = self._padded(holder)

    def _filled_by(self, call: ast.Call) -> None:
        """Remember what a function of the project fills up of what it is given."""
        function = self._called(call.func)
        if function is None:
            return
        given = [self.kind(each) for each in call.args]
        told = {k.arg: self.kind(k.value) for k in call.keywords if k.arg}
        if any(isinstance(each, ast.Starred) for each in call.args) or not any([*given, *told.values()]):
            return
        inner = self.within(Reading(function, {}, self._depth - 1), call)
        inner.given(given, told)
        for name, each, before in zip(inner.parameters(), call.args, given, strict=False):
            after = inner.names.get(name)
            if isinstance(before, Single) and isinstance(after, Single) and after.filled:
                self._fill(each)
            elif before is Rows.EACH and after is Rows.PADDED and isinstance(each, ast.Name):
                self.names[each.id] = after

    def _padded(self, name: str) -> Kind:
        before = self.names[name]
        return before if isinstance(before, Rows) and before.uneven else Rows.PADDED

    def _order(self, target: ast.expr, descending: bool) -> None:
        """Remember whether what a target holds goes from the longest to the shortest."""
        for each in ast.walk(target):
            if isinstance(each, ast.Name):
                (self._descending.add if descending else self._descending.discard)(each.id)

    def _descends(self, node: ast.expr) -> bool:
        """Whether something is made from the longest sample to the shortest: `sorted(batch, key=len, reverse=True)`,
        `torch.sort(lengths, descending=True)`, and what is taken of each in that order."""
        if isinstance(node, ast.Name):
            return node.id in self._descending
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self._descends(node.generators[0].iter)
        if isinstance(node, ast.Starred):
            return self._descends(node.value)
        if isinstance(node, ast.Subscript):  # `lengths[order]`, `np.argsort(lengths)[::-1]`
            turned = isinstance(node.slice, ast.Slice) and ast.unparse(node.slice) == "::-1"
            return turned and _sorts(node.value) or self._descends(node.slice) or self._descends(node.value)
        if not isinstance(node, ast.Call):
            return False
        if _sorts(node):
            if node.args and isinstance(node.args[0], ast.UnaryOp):  # `np.argsort(-lengths)`
                return isinstance(node.args[0].op, ast.USub)
            told = {each.arg: each.value for each in node.keywords}
            if any(self.constant(told[name]) is True for name in ("reverse", "descending") if name in told):
                return True
            body = getattr(told.get("key"), "body", None)  # `key=lambda sample: -len(sample)`
            return isinstance(body, ast.UnaryOp) and isinstance(body.op, ast.USub)
        return bool(node.args) and self._descends(node.args[0])

    def _looped(self, node: ast.For | ast.AsyncFor, over: Kind) -> None:
        """Lists that a loop over the samples fills."""
        if isinstance(over, Fields) and over.all:
            return self._looped_over_parts(node, over)
        counted = any(isinstance(self.kind(each), Rows) for each in ast.walk(node.iter) if isinstance(each, ast.Name))
        if not isinstance(over, Rows) and not counted:
            for statement in node.body:
                self._across(statement)
            if not self._sample.isdisjoint(_mentioned(node.iter)):
                self._gathered(node)
            return
        outside, self._sample = self._sample, _derived(node)
        self._looped_samples(node, over)
        self._sample = outside

    def _gathered(self, node: ast.For | ast.AsyncFor) -> None:
        """Lists of what all samples have together, one after the other: `for word in text: words.append(word)`."""
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
                target = call.func.value
                if isinstance(target, ast.Name) and target.id not in self._sample:
                    self.names[target.id] = Rows.JOINED

    def _looped_samples(self, node: ast.For | ast.AsyncFor, over: Kind) -> None:
        skips = any(isinstance(each, (ast.Continue, ast.Break)) for each in ast.walk(node))
        filled = Rows.FEWER if skips else over if isinstance(over, Rows) else Rows.EACH
        for statement in node.body:
            if isinstance(statement, ast.Expr):
                self._effect(statement.value, filled)
            elif isinstance(statement, ast.If) and not statement.orelse and not self._only_fills(statement):
                for inner in statement.body:
                    if isinstance(inner, ast.Expr):
                        self._effect(inner.value, Rows.FEWER)
                    else:
                        self._statement(inner)
                        self.names |= dict.fromkeys(_outgrown(statement.test, inner), Longest())
            else:
                self._statement(statement)

    def _looped_over_parts(self, node: ast.For | ast.AsyncFor, over: Fields) -> None:
        """`for part in zip(*batch): parts.append(torch.stack(part))`"""
        made: dict[str, dict[Key, Kind]] = {}
        for key, kind in over.all.items():
            self._bind(node.target, kind)
            self.run(node.body)
            for call in _within(node, ast.Call):
                grown = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "append" else None
                if isinstance(grown, ast.Name) and call.args:
                    parts = made.setdefault(grown.id, {})
                    parts[key] = _worst([parts.get(key), self.kind(call.args[0])])
        for name, parts in made.items():
            rest = parts.pop(ANY_OTHER, None)
            self.names[name] = Fields(parts, rest)

    def _across(self, statement: ast.stmt) -> None:
        """`rows.append([text[t] for text in texts])` in a loop over something else than samples."""
        call = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
            kind = self.kind(call.args[0]) if call.args else None
            if isinstance(call.func.value, ast.Name) and isinstance(kind, Rows):
                self.names[call.func.value.id] = kind

    def _effect(self, node: ast.expr, filled: Rows) -> None:
        """`texts.append(text)`, `words.extend(text)`, `fill(text, longest)`."""
        if isinstance(node, ast.Call):
            self._filled_by(node)
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
            return
        target = node.func.value
        if node.func.attr == "extend" and self._lengthens(node.args[0]):
            return self._fill(target)
        if node.func.attr not in ("append", "extend") or not self._choosing:
            return
        given = node.args[0]
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):  # `batch[key].append(text)`
            kind = Rows.JOINED if node.func.attr == "extend" else Rows.PADDED if self._pads(given) else filled
            self._set(target.value.id, target.slice, kind)
        if not isinstance(target, ast.Name):
            return
        before = self.names.get(target.id)
        if node.func.attr == "extend":
            self.names[target.id] = Rows.JOINED
            return
        if _adds_axis(given):
            self._one_row.add(target.id)
        kind = Rows.PADDED if self._pads(given) and filled is Rows.EACH else filled
        self.names[target.id] = before if isinstance(before, Rows) and before.uneven else kind

    def _bind(self, target: ast.expr, kind: Kind) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = kind
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            if target.value.id == self._own():
                self.names[ast.unparse(target)] = kind
            else:
                self._set(target.value.id, ast.Constant(target.attr), kind)
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            self._set(target.value.id, target.slice, kind)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, each in enumerate(target.elts):
                part = kind.at(index) if isinstance(kind, Fields) else kind
                self._bind(each.value if isinstance(each, ast.Starred) else each, part)

    def _set(self, name: str, key: ast.expr, kind: Kind) -> None:
        """`batch["words"] = words`."""
        held, told = self.names.get(name), self.constant(key)
        before = held if isinstance(held, Fields) else Fields({})
        if told == ANY_OTHER:
            self.names[name] = replace(before, rest=kind)
        elif isinstance(told, str):
            self.names[name] = replace(before, parts={**before.parts, told: kind})

    def _goes_by_key(self, node: ast.For) -> str | None:
        """What a loop calls the keys of a batch by which it goes: `for key in batch[0]: batch[key] = ...`."""
        name = _first(node.target)
        kept = [each.targets[0] for each in _within(node, ast.Assign)]
        grown = (each.func.value for each in _within(node, ast.Call) if isinstance(each.func, ast.Attribute))
        kept += [each for each in grown if isinstance(each, ast.Subscript)]
        keys = [each.slice for each in kept if isinstance(each, ast.Subscript)]
        by_key = any(isinstance(each, ast.Name) and each.id == name for each in keys)
        return name if by_key and name is not None and self._holds_keys(node.iter) else None

    def _holds_keys(self, over: ast.expr) -> bool:
        """Whether a loop takes the keys of something, and no samples nor their numbers."""
        if isinstance(over, ast.Call) and last_name(over.func) in ("enumerate", "range"):
            return False
        if isinstance(over, ast.Call) and last_name(over.func) == "zip":
            return len(over.args) > 1 and not isinstance(self.kind(over.args[0]), Rows)
        return not isinstance(self.kind(over), Rows)

    def _by_key(self, name: str, target: ast.expr, over: ast.expr, code: list[ast.stmt]) -> Iterator[Reading]:
        """This reading, for each key by that ``name``: those that are written out, and any other."""
        if isinstance(over, ast.Call) and last_name(over.func) == "zip":  # `zip(KEYS, zip(*batch))`
            taken, over = [self.kind(each) for each in over.args[1:]], over.args[0]
        else:
            taken = [self.kind(over)]
        listed = self.constant(over)
        told = {each: None for each in listed if isinstance(each, str)} if isinstance(listed, tuple) else {}
        if not told:
            parts = [key for kind in taken if isinstance(kind, Fields) for key in kind.parts if isinstance(key, str)]
            told = {**dict.fromkeys(parts), **dict.fromkeys([*self._compared_to(code)][:KEYS]), ANY_OTHER: None}
        names = target.elts[1:] if isinstance(target, (ast.Tuple, ast.List)) else []
        before = self.constants.get(name, UNKNOWN)
        for key in told:
            self.constants[name] = key
            self.names.pop(name, None)
            for each, kind in zip(names, taken, strict=False):
                self._bind(each, kind.at(key) if isinstance(kind, Fields) else kind)
            yield self
        self.constants[name] = before

    def _compared_to(self, code: list[ast.stmt]) -> Iterator[str]:
        """The words that a function compares something to, or those that it calls."""
        called = (self._called(each.func) for statement in code for each in _within(statement, ast.Call))
        for node in (self.function.node, *(each.node for each in called if each is not None)):
            for compared in _within(node, ast.Compare):
                for each in (*_within(compared.left, ast.Constant), *_within(compared.comparators[0], ast.Constant)):
                    if isinstance(each.value, str):
                        yield each.value

    def each_key(self, node: ast.DictComp) -> Iterator[tuple[str, Reading]]:
        """How the value is read under each key of `{key: torch.stack([d[key] for d in batch]) for key in batch[0]}`."""
        generator = node.generators[0]
        name = _first(generator.target)
        if len(node.generators) > 1 or name is None or ast.unparse(node.key) != name:
            return
        if not self._holds_keys(generator.iter):
            return
        inner = copy(self)
        inner.names, inner.constants = {**self.names}, {**self.constants}
        value: list[ast.stmt] = [ast.Expr(node.value)]
        for each in inner._by_key(name, generator.target, generator.iter, value):
            if not any(each.constant(test) is False for test in generator.ifs):
                yield str(each.constants[name]), each

    def _keyed(self, node: ast.DictComp) -> Kind:
        made: dict[Key, Kind] = {key: each.kind(node.value) for key, each in self.each_key(node)}
        rest = made.pop(ANY_OTHER, None)
        return Fields(made, rest) if made or rest is not None else None

    def kind(self, node: ast.expr) -> Kind:
        """What an expression has to do with the samples."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        if isinstance(node, (ast.Tuple, ast.List)):
            kinds: list[Kind] = []
            for each in node.elts:
                held = self.kind(each.value) if isinstance(each, ast.Starred) else None
                if isinstance(each, ast.Starred) and not isinstance(held, Fields):
                    return None
                kinds += held.parts.values() if isinstance(held, Fields) else [self.kind(each)]
            return Fields(dict(enumerate(kinds)))
        if isinstance(node, ast.Dict):
            keyed = [(_key(k), v) for k, v in zip(node.keys, node.values, strict=True)]
            unpacked = [self.kind(v) for k, v in zip(node.keys, node.values, strict=True) if k is None]
            others = [kind for kind in unpacked if isinstance(kind, Fields)]
            parts = {key: part for each in others for key, part in each.parts.items()}
            told = {key: self.kind(v) for key, v in keyed if key is not None}
            return Fields({**parts, **told}, _worst(each.rest for each in others))
        if isinstance(node, ast.DictComp):
            return self._keyed(node)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            return self._comprehension(node)
        if isinstance(node, ast.Subscript):
            return self._subscript(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == self._own() and ast.unparse(node) in self.names:
                return self.names[ast.unparse(node)]
            inner = self.kind(node.value)
            if isinstance(inner, Fields) and node.attr in inner.parts:
                return inner.parts[node.attr]
            return inner if isinstance(inner, Single) or node.attr in ("T", "data") else None
        if isinstance(node, ast.BinOp):
            kinds = [self.kind(node.left), self.kind(node.right)]
            return next((k for wanted in (Longest, Rows, Single) for k in kinds if isinstance(k, wanted)), None)
        if isinstance(node, ast.IfExp):
            holds = self.constant(node.test)
            if isinstance(holds, bool):
                return self.kind(node.body if holds else node.orelse)
            return _worst([self.kind(node.body), self.kind(node.orelse)])
        return None

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Kind:
        over = self.kind(node.generators[0].iter) or self._numbered(node)
        if isinstance(over, Fields):
            return self._of_each(over, node.generators[0].target, node.elt) if len(node.generators) == 1 else over
        if not isinstance(over, Rows):
            return self.kind(node.elt) if self.goes_across(node) else None
        inner = Reading(self.function, {**self.names}, self._depth)
        inner._filled = self._filled
        for at, generator in enumerate(node.generators):
            inner._bind(generator.target, _element(over if at == 0 else inner.kind(generator.iter)))
        if len(node.generators) > 1:
            return Rows.JOINED
        if node.generators[0].ifs:
            return Rows.FEWER
        return Rows.PADDED if inner._pads(node.elt) and over is Rows.EACH else over

    def _of_each(self, over: Fields, target: ast.expr, made: ast.expr) -> Fields:
        """What is made of each part of a batch: `[torch.stack(part) for part in zip(*batch)]`."""
        inner = copy(self)
        inner.names = {**self.names}
        found: dict[Key, Kind] = {}
        for key, kind in over.all.items():
            inner._bind(target, kind)
            found[key] = inner.kind(made) or kind
        rest = found.pop(ANY_OTHER, None)
        return Fields(found, rest)

    def goes_across(self, node: ast.expr) -> bool:
        """`[[text[t] for text in texts] for t in range(longest)]`: lists of one number of each sample."""
        if not isinstance(node, (ast.ListComp, ast.GeneratorExp)) or len(node.generators) > 1:
            return False
        over = node.generators[0].iter
        if isinstance(self.kind(over), (Rows, Fields)) or self._numbered(node) is not None:
            return False
        inner = [each for each in ast.walk(node.elt) if isinstance(each, (ast.ListComp, ast.GeneratorExp))]
        return len(inner) == 1 and isinstance(self.kind(inner[0]), Rows) and isinstance(self.kind(node.elt), Rows)

    def _numbered(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Kind:
        """What a comprehension takes one after the other by number: `[len(batch[i][0]) for i in range(len(batch))]`."""
        over, target = node.generators[0].iter, node.generators[0].target
        if (
            not isinstance(over, ast.Call)
            or getattr(over.func, "id", "") != "range"
            or not isinstance(target, ast.Name)
        ):
            return None
        taken = (each for each in ast.walk(node.elt) if isinstance(each, ast.Subscript))
        kinds = (self.kind(each.value) for each in taken if getattr(each.slice, "id", "") == target.id)
        return next((kind for kind in kinds if isinstance(kind, Rows)), None)

    def _subscript(self, node: ast.Subscript) -> Kind:
        inner = self.kind(node.value)
        if isinstance(inner, Fields):
            key = self.constant(node.slice)
            if key == ANY_OTHER:
                return inner.rest
            return inner.at(key) if isinstance(key, (int, str)) else None
        if isinstance(inner, Rows) and isinstance(node.slice, ast.Constant):
            return Single(longest=node.slice.value == 0 and self._descends(node.value))
        return inner

    def _call(self, node: ast.Call) -> Kind:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        local = self._local.get(name) if isinstance(node.func, ast.Name) else None
        if isinstance(local, ast.Attribute):
            name = local.attr  # `f = torch.LongTensor`
        given = [self.kind(each.value if isinstance(each, ast.Starred) else each) for each in node.args]
        first = given[0] if given else None
        method = self.kind(node.func.value) if isinstance(node.func, ast.Attribute) else None
        if name == "zip":
            rows = _worst(given)
            if isinstance(rows, Rows) and isinstance(node.args[0], ast.Starred):  # one for each part of the samples
                return Fields({}, rows)
            return rows if isinstance(rows, Rows) else None
        if name == "zip_longest":  # one list for each place, of what all samples have there
            return Rows.PADDED if isinstance(first, Rows) else None
        if name == "filter":
            return Rows.FEWER if isinstance(given[-1], Rows) else None
        if name == "map":
            if isinstance(given[-1], Fields):  # `map(torch.stack, zip(*batch))`
                part: ast.expr = ast.Name("part", ast.Load())
                made, function = ast.Call(node.args[0], [part], []), node.args[0]
                if isinstance(function, ast.Lambda) and function.args.args:
                    return self._of_each(given[-1], ast.Name(function.args.args[0].arg), function.body)
                return self._of_each(given[-1], part, made)
            return given[-1] if isinstance(given[-1], Rows) else None
        if name in ("max", "amax"):
            of_samples = [k for k in (*given, method) if isinstance(k, (Rows, Longest))]
            several = len(node.args) < 2 or any(isinstance(k, Longest) for k in of_samples)
            return Longest() if of_samples and several else None
        if name in ("min", "int", "len", "item") and any(isinstance(k, Longest) for k in (*given, method)):
            return Longest()
        measured = first if name == "len" else method
        if name in MEASURING and isinstance(measured, Single) and measured.longest:
            return Longest()
        if name == "len":
            return None
        if name == "sort" and method is None:
            return Fields({0: first, 1: first})  # `lengths, order = torch.sort(lengths)`
        if name in PADDING:
            return Rows.PADDED if not isinstance(first, Rows) or first is Rows.EACH else first
        if name in FILLED or name in SIZED and len(node.args) > 1:
            sizes = [*node.args, *(k.value for k in node.keywords if k.arg in ("size", "shape"))]
            return Rows.PADDED if any(self._is_longest(each) for each in sizes) else None
        if name in JOINING and given:
            return self._joined(node, first)
        if name in STACKING and isinstance(first, Fields) and not first.parts:
            return first.rest  # `torch.tensor(list(zip(*texts)))`
        if name in COLLECTING or name in STACKING:
            return first
        if local is not None and not isinstance(local, ast.Attribute):
            inner = Reading(self.function, {**self.names}, self._depth - 1)
            return inner._given(local, given) if self._depth else None
        named = self.fields_of(node)
        if named:
            return Fields({key: self.kind(each) for key, each in named.items()})
        called, told = self._called(node.func), {k.arg: self.kind(k.value) for k in node.keywords if k.arg}
        if called is not None and any(isinstance(kind, (Rows, Longest)) for kind in (*given, *told.values())):
            return self.within(Reading(called, {}, self._depth - 1), node).given(given, told)
        return method  # `.to(device)`, `.float()`, `.t()`

    def within(self, inner: Reading_, call: ast.Call) -> Reading_:
        """The reading of a function that a call runs, with the constants that this gives it."""
        if any(isinstance(each, ast.Starred) for each in call.args):
            return inner
        told = [*zip(inner.parameters(), call.args, strict=False), *((k.arg, k.value) for k in call.keywords if k.arg)]
        inner.constants |= {name: self.constant(each) for name, each in told if name is not None}
        return inner

    def fields_of(self, call: ast.Call) -> dict[Key, ast.expr]:
        """What an object is made of that has its fields by names, and by numbers if it is a tuple as well:
        `Batch(texts, labels)`."""
        scope = self.function.scope.find(call.func.id) if isinstance(call.func, ast.Name) else None
        made = scope.names[call.func.id].things if scope is not None and isinstance(call.func, ast.Name) else ()
        thing = next(iter(made)) if len(made) == 1 else None
        names, is_tuple = declared(thing)
        if not names and not call.args and self._holds_by_name(call):
            return {each.arg: each.value for each in call.keywords if each.arg is not None}
        if not names or any(isinstance(each, ast.Starred) for each in call.args):
            return {}
        given: dict[Key, ast.expr] = dict(zip(names, call.args, strict=False))
        given |= {each.arg: each.value for each in call.keywords if each.arg in names}
        numbered: dict[Key, ast.expr] = {at: given[name] for at, name in enumerate(names) if name in given}
        return {**numbered, **given} if is_tuple else given

    def _holds_by_name(self, call: ast.Call) -> bool:
        """`dict(texts=texts)`, `SimpleNamespace(texts=texts)`: what code of a library keeps under its own name."""
        name = last_name(call.func)
        return bool(call.keywords) and self._called(call.func) is None and (name == "dict" or name[:1].isupper())

    def _called(self, node: ast.expr) -> Function | None:
        """The function of the project that a call runs."""
        found: Value | None = None
        if isinstance(node, ast.Name):
            scope = self.function.scope.find(node.id)
            found = scope.names[node.id] if scope is not None else None
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            cls, owner = self.function.defined_in, self.function.owner
            bound = _methods(cls, node.attr) if cls is not None else ()
            found = Value(frozenset(replace(each, owner=owner) for each in bound))
        functions = list(called(found)) if found is not None and self._depth else []
        return functions[0] if len(functions) == 1 else None

    def _joined(self, node: ast.Call, first: Kind) -> Kind:
        """`torch.cat` of one row for each sample, or of what is in the samples."""
        axes = [*node.args[1:], *(k.value for k in node.keywords if k.arg in ("dim", "axis"))]
        if any(not (isinstance(axis, ast.Constant) and axis.value == 0) for axis in axes):
            return first
        given = node.args[0]
        if isinstance(given, (ast.ListComp, ast.GeneratorExp)) and _adds_axis(given.elt):
            return first
        if isinstance(given, ast.Name) and given.id in self._one_row:
            return first
        return Rows.JOINED if isinstance(first, Rows) and first is not Rows.FEWER else first

    def _only_fills(self, node: ast.If) -> bool:
        """`if len(text) < longest: text.extend([PAD] * (longest - len(text)))`"""
        return self._pads(node.test)

    def _pads(self, node: ast.expr) -> bool:
        """Whether an expression makes something as long as the longest."""
        parts = [each for each in ast.walk(node) if isinstance(each, ast.expr)]
        return any(self._is_longest(each) or self._is_filled(each) for each in parts)

    def _is_filled(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Subscript, ast.Attribute)):
            return bool(self._filled) and _place(node) in self._filled
        kind = self.names.get(node.id) if isinstance(node, ast.Name) else None
        return isinstance(kind, Single) and kind.filled

    def _is_longest(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Tuple, ast.List)):
            return any(self._is_longest(each) for each in node.elts)
        kind = self.kind(node) if isinstance(node, (ast.Name, ast.BinOp, ast.Call, ast.Subscript)) else None
        return isinstance(kind, Longest) or isinstance(kind, Single) and kind.longest


Reading_ = TypeVar("Reading_", bound=Reading)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> list[str]:
    return [each.arg for each in (*node.args.posonlyargs, *node.args.args)]


def _settings(function: Function) -> dict[str, object]:
    """What parameters of a function are that it is told beforehand, by `partial` or a default."""
    spec = function.node.args
    named = [*spec.posonlyargs, *spec.args]
    defaults = [*zip(named[len(named) - len(spec.defaults) :], spec.defaults, strict=True)]
    defaults += [(each, told) for each, told in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if told is not None]
    found: dict[str, object] = {
        each.arg: told.value for each, told in defaults if isinstance(told, ast.Constant) and told.value is not None
    }
    return found | {name: value.const for name, value in function.keywords.items()}


def declared(thing: object) -> tuple[list[str], bool]:
    """The names of the fields that a class declares, as a named tuple or a dataclass does, and whether it is a
    tuple."""
    if isinstance(thing, Object) and thing.name == "collections.namedtuple":
        listed = thing.node.args[1] if len(thing.node.args) > 1 else None
        if isinstance(listed, ast.Constant) and isinstance(listed.value, str):
            return listed.value.replace(",", " ").split(), True
        named = listed.elts if isinstance(listed, (ast.List, ast.Tuple)) else []
        return [each.value for each in named if isinstance(each, ast.Constant) and isinstance(each.value, str)], True
    if not isinstance(thing, Class):
        return [], False
    is_tuple = any(last_name(each) == "NamedTuple" for each in thing.node.bases)
    decorators = (each.func if isinstance(each, ast.Call) else each for each in thing.node.decorator_list)
    if not is_tuple and not any(last_name(each) == "dataclass" for each in decorators):
        return [], False
    annotated = (each.target for each in thing.node.body if isinstance(each, ast.AnnAssign))
    return [each.id for each in annotated if isinstance(each, ast.Name)], is_tuple


def _sorts(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) in SORTING


def _outgrows(name: str, value: ast.expr) -> bool:
    """`longest = max(longest, len(text))`"""
    called = last_name(value.func) if isinstance(value, ast.Call) else ""
    given = value.args if isinstance(value, ast.Call) and called in ("max", "maximum") else []
    return any(isinstance(each, ast.Name) and each.id == name for each in given)


def _outgrown(test: ast.expr, statement: ast.stmt) -> list[str]:
    """The name that becomes the longest yet, `if len(text) > longest: longest = len(text)`."""
    if not isinstance(test, ast.Compare) or len(test.ops) > 1 or not isinstance(statement, ast.Assign):
        return []
    larger, smaller = test.left, test.comparators[0]
    if isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        larger, smaller = smaller, larger
    elif not isinstance(test.ops[0], (ast.Gt, ast.GtE)):
        return []
    alike = ast.unparse(statement.value) == ast.unparse(larger)
    targets = [each.id for each in statement.targets if isinstance(each, ast.Name)]
    return [each for each in targets if alike and each == ast.unparse(smaller)]


def _derived(loop: ast.For | ast.AsyncFor) -> set[str]:
    """What a loop takes one after the other, and what its body binds anew for each."""
    within = (each for top in (loop.target, *loop.body) for each in ast.walk(top))
    return {each.id for each in within if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}


def _mentioned(node: ast.expr) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _goes_on(node: ast.stmt) -> TypeGuard[ast.For]:
    """Whether a loop is run once for each place that is missing: `for _ in range(longest - len(text))`, `for _ in
    range(len(text), longest)`."""
    if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call) or last_name(node.iter.func) != "range":
        return False
    first = node.iter.args[0]
    if len(node.iter.args) > 1:
        return not isinstance(first, ast.Constant)
    return isinstance(first, ast.BinOp) and isinstance(first.op, ast.Sub) and not isinstance(first.right, ast.Constant)


def _lengthened(node: ast.stmt) -> ast.expr | None:
    """What a statement makes longer: `text.append(PAD)`, `text += [PAD]`, `text = text + [PAD]`."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        return node.value.func.value if node.value.func.attr in ("append", "extend", "insert") else None
    if isinstance(node, ast.Assign):
        return node.targets[0]
    return node.target if isinstance(node, ast.AugAssign) else None


def _taken(target: ast.expr, over: ast.expr) -> dict[str, str]:
    """The names of a loop, each with that of what it is taken of: `for text, label in zip(texts, labels)`."""
    if isinstance(target, ast.Name) and isinstance(over, ast.Name):
        return {target.id: over.id}
    if not isinstance(over, ast.Call) or not isinstance(target, (ast.Tuple, ast.List)):
        return {}
    name = last_name(over.func)
    if name == "zip":
        pairs = zip(target.elts, over.args, strict=False)
    elif name == "enumerate" and len(target.elts) == 2:
        pairs = zip(target.elts[1:], over.args, strict=False)
    else:
        return {}
    return {key: value for inner in (_taken(*pair) for pair in pairs) for key, value in inner.items()}


def _place(node: ast.Subscript | ast.Attribute) -> str:
    """What a part of a sample is called, whatever the sample is."""
    return ast.unparse(node.slice) if isinstance(node, ast.Subscript) else node.attr


def _element(kind: Kind) -> Kind:
    return Single() if isinstance(kind, Rows) else None


def _key(node: ast.expr | None) -> Key | None:
    """The key of a field, where it is written out."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, (int, str)) else None


Node = TypeVar("Node", bound=ast.AST)


def _within(node: ast.AST, kind: type[Node]) -> Iterator[Node]:
    return (each for each in ast.walk(node) if isinstance(each, kind))


def _first(target: ast.expr) -> str | None:
    """The name that a loop gives to the first of what it takes."""
    first = target.elts[0] if isinstance(target, (ast.Tuple, ast.List)) and target.elts else target
    return first.id if isinstance(first, ast.Name) else None


def _adds_axis(node: ast.expr) -> bool:
    """`x.unsqueeze(0)`, `x[None]`, `x.view(1, -1)`."""
    if isinstance(node, ast.Subscript):
        first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
        return isinstance(first, ast.Constant) and first.value is None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ADDING_AN_AXIS or _adds_axis(node.func.value)
    return False
