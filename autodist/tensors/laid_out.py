"""Which parts of a batch a `collate_fn` lays along the second axis, as recurrent layers want them by default.

`pad_sequence(texts)`, `torch.stack(texts, dim=1)`, `padded.transpose(0, 1)`, `torch.zeros(longest, len(batch))`,
`zip_longest(*texts)`: the first axis is time then, and the samples come after it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from autodist.collation import ANY_OTHER, BEGINNING, Fields, Key, Kind, Reading, Rows, sole
from autodist.source import counted_of, indices, last_name
from autodist.spread import COLUMNS, COUNT, LOCAL, ROWS, SUM, Spread
from autodist.tensors import operations
from autodist.values import UNKNOWN, Function, Value

ALL = None
"""Stands for the whole of what is returned."""

Laid = bool | None | dict[Key, bool | None]
"""Whether it lies along the second axis, for each field if there are some; None where that cannot be read."""

FILLED = frozenset("zeros ones full empty".split())
MAKING = frozenset("tensor as_tensor from_numpy array asarray Tensor FloatTensor LongTensor stack".split())
"""What makes a tensor of lists."""
TAKING_ONE = MAKING | frozenset("Variable list".split())
ADDING_SECOND = {"unsqueeze": "1", "view": "-1, 1", "reshape": "-1, 1"}
"""What puts an axis behind the only one of a sample."""


@dataclass(frozen=True)
class Layout:
    """How the parts of a batch are laid out: the keys of those whose samples lie along the second axis, None for a
    batch that is one tensor, those that are numbers, and whether it can be read where the samples lie in all others."""

    second: frozenset[Key | None] = frozenset()
    numbers: Mapping[Key, Spread] = field(default_factory=dict)
    is_told: bool = True


def layout(collate: Value) -> Layout:
    """How a `collate_fn` lays out its batches."""
    function = sole(collate)
    if function is None:
        return Layout()
    reading = _Axes(function)
    reading.given([Rows.EACH])
    found = [_keys(laid) for laid in reading.laid_returns]
    second = frozenset.intersection(*found) if found else frozenset()
    untold = any(_is_untold(laid) for laid in reading.laid_returns)
    parted = any(keys != second for keys in found)
    return Layout(second, reading.numbered, not untold and not parted)


def _is_untold(laid: Laid) -> bool:
    """Whether something lies along an axis that is not known, or lies along the second one under some other key."""
    if not isinstance(laid, dict):
        return laid is None
    return None in laid.values() or laid.get(ANY_OTHER) is True


def _keys(laid: Laid) -> frozenset[Key | None]:
    if isinstance(laid, dict):
        return frozenset(key for key, second in laid.items() if second and key != ANY_OTHER)
    return frozenset([ALL]) if laid else frozenset()


class _Axes(Reading):
    """One pass over the statements of a function that also knows along which axis the samples lie."""

    def __init__(self, function: Function, depth: int = 3) -> None:
        super().__init__(function, {}, depth)
        self.laid_returns: list[Laid] = []
        self.numbered: dict[Key, Spread] = {}
        self._laid: dict[str, Laid] = {}
        self._numbers: dict[str, Spread] = {}
        self._counted: dict[str, Mapping[Key, Spread]] = {}
        self._turned: set[str] = set()
        """Lists with one entry for each part of the samples, `zip(*texts)`."""

    def given(self, kinds: list[Kind], named: Mapping[str, Kind] | None = None) -> Kind:
        super().given(kinds, named)
        if isinstance(self.function.node, ast.Lambda):
            self._returned(self.function.node.body)
        elif self.function.name == BEGINNING:
            own = f"{self._own()}."
            held = {name.removeprefix(own): name for name in self._laid if name.startswith(own)}
            self.laid_returns = [{key: _plain(self._laid[name]) for key, name in held.items()}]
            self.numbered = {key: self._numbers[name] for key, name in held.items() if name in self._numbers}
        return None

    def read(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, kinds: list[Kind]) -> None:
        """Follow what a function within the function does with such arguments."""
        self._given(node, kinds)
        if isinstance(node, ast.Lambda):
            self._returned(node.body)

    def _returned(self, node: ast.expr) -> None:
        self.laid_returns.append(self.laid(node))
        self.numbered |= self._numbers_in(node)

    def _numbers_in(self, node: ast.expr) -> Mapping[Key, Spread]:
        """Which fields of something are numbers."""
        if isinstance(node, ast.Name):
            return self._counted.get(node.id, {})
        told = {key: self.number(part) for key, part in self._parts(node).items()}
        inner = self._entered(self.spelled(node)) if not told and isinstance(node, ast.Call) else None
        return inner.numbered if inner is not None else {key: each for key, each in told.items() if each is not None}

    def _parts(self, node: ast.expr) -> Mapping[Key, ast.expr]:
        """The fields of what is returned, where they are written out."""
        if isinstance(node, (ast.Tuple, ast.List)):
            return dict(enumerate(node.elts))
        if isinstance(node, ast.Dict):
            keyed = zip(node.keys, node.values, strict=True)
            return {k.value: v for k, v in keyed if isinstance(k, ast.Constant) and isinstance(k.value, (int, str))}
        return self.fields_of(node) if isinstance(node, ast.Call) else {}

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Return) and node.value is not None:
            self._returned(node.value)
        elif isinstance(node, ast.Assign):
            laid, number, turned = self.laid(node.value), self.number(node.value), self._is_turned(node.value)
            for target in node.targets:
                self._lay(target, node.value, laid)
                name = ast.unparse(target)
                self._numbers.pop(name, None)
                self._turned.discard(name)
                self._counted[name] = self._numbers_in(node.value)
                if number is not None:
                    self._count(target, number)
                if turned:
                    self._turned.add(name)
        elif isinstance(node, ast.If):
            return self._either(node)
        super()._statement(node)
        return None

    def _count(self, target: ast.expr, number: Spread) -> None:
        self._numbers[ast.unparse(target)] = number
        key = self._field(target)
        if key is not None:
            name, named = key
            self._counted[name] = {**self._counted.get(name, {}), named: number}

    def _either(self, node: ast.If) -> None:
        """Both branches of a condition: where they lay a tensor out in two ways, it is not known in which."""
        before = {**self._laid}
        self.run(node.body)
        after, self._laid = self._laid, before
        self.run(node.orelse)
        for name, laid in after.items():
            if name in self._laid and self._laid[name] != laid and isinstance(self.names.get(name), Rows):
                laid = None
            self._laid[name] = laid

    def _lay(self, target: ast.expr, value: ast.expr, laid: Laid) -> None:
        if (
            isinstance(target, ast.Name)
            or isinstance(target, ast.Attribute)
            and ast.unparse(target.value) == self._own()
        ):
            self._laid[ast.unparse(target)] = laid
        elif isinstance(target, (ast.Tuple, ast.List)):
            parts = [laid.get(index, False) if isinstance(laid, dict) else False for index, _ in enumerate(target.elts)]
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value] * len(target.elts)
            for each, made, part in zip(target.elts, values, parts, strict=False):
                if not isinstance(each, (ast.Tuple, ast.List)):
                    self._lay(each, made, part)
        elif (named := self._field(target)) is not None:
            before = self._laid.get(named[0])
            self._laid[named[0]] = {**(before if isinstance(before, dict) else {}), named[1]: _plain(laid)}

    def _field(self, target: ast.expr) -> tuple[str, str] | None:
        """Of which name a statement binds which field: `batch["words"] = words`, `batch.words = words`."""
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            return target.value.id, target.attr
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            key = self.constant(target.slice)
            return (target.value.id, key) if isinstance(key, str) else None
        return None

    def _looped(self, node: ast.For | ast.AsyncFor, over: Kind) -> None:
        """Tensors that a loop fills sample by sample: `words[: len(text), i] = text`."""
        super()._looped(node, over)
        number = self._number_of_sample(node)
        for each in ast.walk(node):
            targets = each.targets if isinstance(each, ast.Assign) else []
            for target in targets:
                if not isinstance(target, ast.Subscript) or not isinstance(target.value, ast.Name) or number is None:
                    continue
                places = indices(target)
                at = [index for index, place in enumerate(places) if getattr(place, "id", "") == number]
                if at and at[0] < 2:
                    self._laid[target.value.id] = at[0] == 1
                    self.names[target.value.id] = self.names.get(target.value.id) or Rows.EACH

    def _number_of_sample(self, node: ast.For | ast.AsyncFor) -> str | None:
        """`i` of `for i, text in enumerate(texts)` and `for i in range(len(texts))`."""
        called = last_name(node.iter.func) if isinstance(node.iter, ast.Call) else ""
        given = node.iter.args if isinstance(node.iter, ast.Call) else []
        if called == "enumerate" and isinstance(node.target, ast.Tuple) and isinstance(node.target.elts[0], ast.Name):
            return node.target.elts[0].id if given and isinstance(self.kind(given[0]), Rows) else None
        if called == "range" and isinstance(node.target, ast.Name) and len(given) == 1:
            return node.target.id if self.number(given[0]) is COUNT else None
        return None

    def _across(self, statement: ast.stmt) -> None:
        super()._across(statement)
        call = statement.value if isinstance(statement, ast.Expr) else None
        held = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
        if isinstance(call, ast.Call) and isinstance(held, ast.Name) and call.args:
            if isinstance(self.names.get(held.id), Rows) and isinstance(self.kind(call.args[0]), Rows):
                self._laid[held.id] = True

    def laid(self, node: ast.expr) -> Laid:
        """Along which axis the samples lie in what an expression gives."""
        if isinstance(node, ast.Name):
            return self._laid.get(node.id, False)
        if isinstance(node, (ast.Tuple, ast.List, ast.Dict)):
            return {key: _plain(self.laid(each)) for key, each in self._parts(node).items()}
        if isinstance(node, ast.DictComp):
            return {key: _plain(each.laid(node.value)) for key, each in self.each_key(node) if isinstance(each, _Axes)}
        if isinstance(node, ast.Attribute):
            if ast.unparse(node) in self._laid:
                return self._laid[ast.unparse(node)]
            inner = self.laid(node.value)
            return not inner if node.attr == "T" and isinstance(self.kind(node.value), Rows) else inner
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            inner = self.laid(node.value)
            key = node.slice.value
            return inner.get(key, False) if isinstance(inner, dict) and isinstance(key, (int, str)) else False
        if isinstance(node, ast.IfExp):
            holds = self.constant(node.test)
            both = self.laid(node.body), self.laid(node.orelse)
            return both[not holds] if holds is not UNKNOWN else both[0] if both[0] == both[1] else None
        if isinstance(node, ast.Subscript):
            parts = indices(node)
            return self.laid(node.value) if all(isinstance(each, ast.Slice) for each in parts) else False
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self.goes_across(node) or self._laid_each(node)
        return self._laid_by_call(self.spelled(node)) if isinstance(node, ast.Call) else False

    def _laid_each(self, node: ast.ListComp | ast.GeneratorExp) -> Laid:
        """`[torch.stack(part, dim=1) for part in (texts, labels)]`"""
        over, target = node.generators[0].iter, node.generators[0].target
        several, before = self.kind(over), self.laid(over)
        if not isinstance(target, ast.Name) or not isinstance(several, Fields) and not self._is_turned(over):
            return False
        kinds: dict[Key | None, Kind] = {ALL: Rows.EACH}
        if isinstance(several, Fields):
            kinds = {ALL: several.rest} if several.rest is not None else dict(several.parts.items())
        found: dict[Key | None, bool | None] = {}
        for key, kind in kinds.items():
            self.names[target.id] = kind
            self._laid[target.id] = before.get(key, False) if isinstance(before, dict) and key is not None else False
            found[key] = _plain(self.laid(node.elt))
        if ALL in found:
            return None if found[ALL] is not False else False  # of how many parts, is not told
        return {key: second for key, second in found.items() if key is not None}

    def _laid_by_call(self, node: ast.Call) -> Laid:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        base = node.func.value if isinstance(node.func, ast.Attribute) else None
        ours = base is not None and isinstance(self.kind(base), Rows)
        first = node.args[0] if node.args else None
        if name in operations.TURNING:
            held = base if ours else first
            if held is None or not isinstance(self.kind(held), Rows):
                return False
            before = self.laid(held)
            if before is None:
                return None
            turned = operations.operation(
                name, node, _spread(before is True) if ours else None, [] if ours else [_spread(before is True)]
            )
            return turned is COLUMNS
        of_samples = isinstance(first, ast.expr) and isinstance(self.kind(first), Rows)
        if operations.puts_second(name, node):
            return of_samples
        if name in ("stack", "cat", "concat", "concatenate") and of_samples and first is not None:
            along = operations.axis(node, 1)
            if along not in (None, 0):  # counted from the end, or by a name
                return _adds_second(first) if along == 1 else None
        if name == "zip_longest":
            return any(isinstance(each, ast.Starred) and isinstance(self.kind(each.value), Rows) for each in node.args)
        if name in FILLED:
            sizes = first.elts if isinstance(first, (ast.Tuple, ast.List)) else node.args
            return len(sizes) > 1 and self.number(sizes[0]) is not COUNT and self.number(sizes[1]) is COUNT
        if name in MAKING and first is not None and self._is_turned(first):
            return True
        if name in TAKING_ONE and first is not None and not ours:
            return _plain(self.laid(first))
        named = self.fields_of(node)
        if named:
            return {key: _plain(self.laid(each)) for key, each in named.items()}
        inner = self._entered(node)
        if inner is None:
            return self.laid(base) if base is not None else False
        return inner.laid_returns[0] if len(inner.laid_returns) == 1 else False

    def _entered(self, node: ast.Call) -> _Axes | None:
        """The reading of what a call of a function of the project does."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        local, called = self._local.get(name), self._called(node.func)
        kinds = [self.kind(each) for each in node.args if not isinstance(each, ast.Starred)]
        if isinstance(local, (ast.FunctionDef, ast.Lambda)) and self._depth:
            inner = _Axes(self.function, self._depth - 1)
            inner.read(local, kinds)
        elif called is not None:
            inner = self.within(_Axes(called, self._depth - 1), node)
            inner.lay_parameters({at: self.laid(each) for at, each in enumerate(node.args)})
            inner.given(kinds, {each.arg: self.kind(each.value) for each in node.keywords if each.arg})
        else:
            return None
        return inner

    def lay_parameters(self, laid: Mapping[int, Laid]) -> None:
        """Tell how what a function is given by position is laid out."""
        names = self.parameters()
        self._laid |= {names[at]: each for at, each in laid.items() if at < len(names)}

    def _is_turned(self, node: ast.expr) -> bool:
        """`zip(*texts)`, also as a list of lists: one entry for each part of the samples."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            return ast.unparse(node) in self._turned
        if isinstance(node, ast.ListComp):
            inner = node.elt.args[0] if isinstance(node.elt, ast.Call) and node.elt.args else node.elt
            return ast.unparse(inner) == ast.unparse(node.generators[0].target) and self._is_turned(
                node.generators[0].iter
            )
        if not isinstance(node, ast.Call) or not node.args:
            return False
        name, last = last_name(node.func), node.args[-1]
        if name == "zip":
            return isinstance(last, ast.Starred) and isinstance(self.kind(last.value), Rows)
        return name in ("list", "tuple", "map") and self._is_turned(last)

    def number(self, node: ast.expr) -> Spread | None:
        """What kind of number of a rank's samples it is: `len(batch)`, `text.size(0)`, `lengths.sum().item()`."""
        if isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) in self._numbers:
            return self._numbers[ast.unparse(node)]
        sized = counted_of(node)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "len" and len(node.args) == 1:
            second = self.laid(node.args[0]) is True
            return COUNT if isinstance(self.kind(node.args[0]), Rows) and not second else None
        if isinstance(node, ast.Subscript) or isinstance(node, ast.Call) and last_name(node.func) == "size":
            asked = node.value if isinstance(node, ast.Subscript) else node.func
            at = node.slice if isinstance(node, ast.Subscript) else node.args[0] if node.args else None
            held = asked.value if isinstance(asked, ast.Attribute) and asked.attr in ("shape", "size") else sized
            if held is None or not isinstance(self.kind(held), Rows) or not isinstance(at, ast.Constant):
                return None
            return COUNT if at.value == (1 if self.laid(held) is True else 0) else LOCAL
        if isinstance(node, ast.Call) and last_name(node.func) in ("int", "item", "sum", "float", "long"):
            given = node.func.value if isinstance(node.func, ast.Attribute) and not node.args else None
            given = given or (node.args[0] if node.args else None)
            if given is None:
                return None
            if last_name(node.func) == "sum":
                compared = given.left if isinstance(given, ast.Compare) else given  # `(words != 0).sum()`
                return SUM if isinstance(self.kind(compared), Rows) and len(node.args) < 2 else None
            return self.number(given)
        return None


def _plain(laid: Laid) -> bool | None:
    return laid if laid is None else laid is True


def _adds_second(node: ast.expr) -> bool | None:
    """`[text.unsqueeze(1) for text in texts]`: whether each has an axis more, behind its own; None if not all is
    known."""
    made = node.elt if isinstance(node, (ast.ListComp, ast.GeneratorExp)) else None
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute):
        if ADDING_SECOND.get(made.func.attr) == ", ".join(map(ast.unparse, made.args)):
            return True
    if isinstance(made, ast.Subscript) and isinstance(made.slice, ast.Tuple):
        return True if [ast.unparse(each) for each in made.slice.elts] == [":", "None"] else None
    return None


def _spread(second: bool) -> Spread:
    return COLUMNS if second else ROWS
