"""Which parts of a batch a `collate_fn` lays along the second axis, as recurrent layers want them by default.

`pad_sequence(texts)`, `torch.stack(texts, dim=1)`, `padded.transpose(0, 1)`, `torch.zeros(longest, len(batch))`,
`zip_longest(*texts)`: the first axis is time then, and the samples come after it.
"""

from __future__ import annotations

import ast

from autodist.spread import COLUMNS, ROWS, Spread
from autodist.tensors import operations
from autodist.tensors.collation import Key, Kind, Reading, Rows, sole
from autodist.values import Function, Value

ALL = None
"""Stands for the whole of what is returned."""

Laid = bool | dict[Key, bool]
"""Whether it lies along the second axis, for each field if there are some."""

FILLED = frozenset("zeros ones full empty".split())
TAKING_ONE = frozenset("Variable tensor as_tensor from_numpy array asarray Tensor FloatTensor LongTensor list".split())


def second_axis(collate: Value) -> frozenset[Key | None]:
    """The keys of the fields of a batch whose samples lie along the second axis; None for a batch that is one
    tensor."""
    function = sole(collate)
    if function is None:
        return frozenset()
    reading = _Axes(function)
    reading.given([Rows.EACH])
    found = [_keys(laid) for laid in reading.laid_returns]
    return frozenset.intersection(*found) if found else frozenset()


def _keys(laid: Laid) -> frozenset[Key | None]:
    if isinstance(laid, dict):
        return frozenset(key for key, second in laid.items() if second)
    return frozenset([ALL]) if laid else frozenset()


class _Axes(Reading):
    """One pass over the statements of a function that also knows along which axis the samples lie."""

    def __init__(self, function: Function, depth: int = 3) -> None:
        super().__init__(function, {}, depth)
        self.laid_returns: list[Laid] = []
        self._laid: dict[str, Laid] = {}
        self._counts: set[str] = set()

    def given(self, kinds: list[Kind]) -> Kind:
        self.read(self.function.node, kinds)
        return None

    def read(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, kinds: list[Kind]) -> None:
        """Follow what a function does with such arguments."""
        self._given(node, kinds)
        if isinstance(node, ast.Lambda):
            self.laid_returns.append(self.laid(node.body))

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Return) and node.value is not None:
            self.laid_returns.append(self.laid(node.value))
        elif isinstance(node, ast.Assign):
            laid, counts = self.laid(node.value), self._is_count(node.value)
            for target in node.targets:
                self._lay(target, node.value, laid)
                if isinstance(target, ast.Name):
                    (self._counts.add if counts else self._counts.discard)(target.id)
        super()._statement(node)

    def _lay(self, target: ast.expr, value: ast.expr, laid: Laid) -> None:
        if isinstance(target, ast.Name):
            self._laid[target.id] = laid
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, each in enumerate(target.elts):
                if isinstance(each, ast.Name):
                    self._laid[each.id] = laid.get(index, False) if isinstance(laid, dict) else False
        elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            key, before = target.slice, self._laid.get(target.value.id)
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                fields = before if isinstance(before, dict) else {}
                self._laid[target.value.id] = {**fields, key.value: laid is True}

    def laid(self, node: ast.expr) -> Laid:
        """Along which axis the samples lie in what an expression gives."""
        if isinstance(node, ast.Name):
            return self._laid.get(node.id, False)
        if isinstance(node, (ast.Tuple, ast.List)):
            return {index: self.laid(each) is True for index, each in enumerate(node.elts)}
        if isinstance(node, ast.Dict):
            keyed = zip(node.keys, node.values, strict=True)
            named = ((key.value, v) for key, v in keyed if isinstance(key, ast.Constant))
            return {key: self.laid(v) is True for key, v in named if isinstance(key, (int, str))}
        if isinstance(node, ast.Attribute):
            inner = self.laid(node.value)
            return not inner if node.attr == "T" and isinstance(self.kind(node.value), Rows) else inner
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            inner = self.laid(node.value)
            key = node.slice.value
            return inner.get(key, False) if isinstance(inner, dict) and isinstance(key, (int, str)) else False
        return self._laid_by_call(node) if isinstance(node, ast.Call) else False

    def _laid_by_call(self, node: ast.Call) -> Laid:
        method = isinstance(node.func, ast.Attribute)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        base = node.func.value if isinstance(node.func, ast.Attribute) else None
        ours = base is not None and isinstance(self.kind(base), Rows)
        first = node.args[0] if node.args else None
        if name in operations.TURNING:
            held = base if ours else first
            if held is None or not isinstance(self.kind(held), Rows):
                return False
            before = self.laid(held) is True
            turned = operations.operation(
                name, node, _spread(before) if ours else None, [] if ours else [_spread(before)]
            )
            return turned is COLUMNS
        if operations.puts_second(name, node) and isinstance(first, ast.expr):
            return isinstance(self.kind(first), Rows)
        if name == "zip_longest":
            return any(isinstance(each, ast.Starred) and isinstance(self.kind(each.value), Rows) for each in node.args)
        if name in FILLED:
            sizes = first.elts if isinstance(first, (ast.Tuple, ast.List)) else node.args
            return len(sizes) > 1 and not self._is_count(sizes[0]) and self._is_count(sizes[1])
        if name in TAKING_ONE and first is not None and not ours:
            return self.laid(first) is True
        named = self.fields_of(node)
        if named:
            return {key: self.laid(each) is True for key, each in named.items()}
        kinds = [self.kind(each) for each in node.args if not isinstance(each, ast.Starred)]
        local, called = self._local.get(name) if not method else None, self._called(node.func)
        if isinstance(local, (ast.FunctionDef, ast.Lambda)) and self._depth:
            inner = _Axes(self.function, self._depth - 1)
            inner.read(local, kinds)
        elif called is not None:
            inner = _Axes(called, self._depth - 1)
            inner.given(kinds)
        else:
            return self.laid(base) if base is not None else False
        return inner.laid_returns[0] if len(inner.laid_returns) == 1 else False

    def _is_count(self, node: ast.expr) -> bool:
        """`len(batch)`, also under another name: the number of samples."""
        if isinstance(node, ast.Name):
            return node.id in self._counts
        counted = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "len" and len(node.args) == 1
        return counted and isinstance(node, ast.Call) and isinstance(self.kind(node.args[0]), Rows)


def _spread(second: bool) -> Spread:
    return COLUMNS if second else ROWS
