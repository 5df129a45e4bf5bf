"""What expressions make of the samples of a batch."""

from __future__ import annotations

import ast
from abc import abstractmethod
from copy import copy

from autodist.collation.keyed import Keyed
from autodist.collation.kinds import ANY_OTHER, Fields, Key, Kind, Longest, Rows, Single, element_of, worst
from autodist.collation.syntax import adds_axis, place_of, sorts, written_key
from autodist.source import walk
from autodist.values import Function

COLLECTING = frozenset("list tuple sorted reversed array asarray enumerate tqdm Variable".split())
STACKING = frozenset(
    "stack vstack tensor as_tensor array asarray from_numpy Tensor FloatTensor LongTensor IntTensor BoolTensor "
    "DoubleTensor default_collate _utils.collate.default_collate default_convert".split()
)
JOINING = frozenset("cat concat concatenate hstack chain from_iterable".split())
PADDING = frozenset("pad_sequence pad_packed_sequence".split())
FILLED = frozenset("zeros ones full empty new_zeros new_ones new_full new_empty new_tensor arange".split())
SIZED = frozenset("new Tensor FloatTensor LongTensor IntTensor BoolTensor ByteTensor DoubleTensor".split())
"""What makes a tensor of sizes where it is given several: `torch.FloatTensor(len(batch), longest)`."""
MEASURING = frozenset("len size".split())


class Expressions(Keyed):
    """What an expression makes of the samples."""

    @abstractmethod
    def beside(self, function: Function, names: dict[str, Kind], depth: int) -> Expressions:
        """A reading of another function, or of a part of this one, with names of its own."""

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
            keyed = [(written_key(k), v) for k, v in zip(node.keys, node.values, strict=True)]
            unpacked = [self.kind(v) for k, v in zip(node.keys, node.values, strict=True) if k is None]
            others = [kind for kind in unpacked if isinstance(kind, Fields)]
            parts = {key: part for each in others for key, part in each.parts.items()}
            told = {key: self.kind(v) for key, v in keyed if key is not None}
            return Fields({**parts, **told}, worst(each.rest for each in others))
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
            return worst([self.kind(node.body), self.kind(node.orelse)])
        return None

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> Kind:
        over = self.kind(node.generators[0].iter) or self._numbered(node)
        if isinstance(over, Fields):
            return self._of_each(over, node.generators[0].target, node.elt) if len(node.generators) == 1 else over
        if not isinstance(over, Rows):
            return self.kind(node.elt) if self.goes_across(node) else None
        inner = self.beside(self.function, {**self.names}, self._depth)
        inner._filled = self._filled
        for at, generator in enumerate(node.generators):
            inner._bind(generator.target, element_of(over if at == 0 else inner.kind(generator.iter)))
        if len(node.generators) > 1:
            return Rows.JOINED
        if node.generators[0].ifs:
            return Rows.FEWER
        return Rows.PADDED if inner._pads(node.elt) and not over.uneven else Rows.EACH if over is Rows.STACKED else over

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
        inner = [each for each in walk(node.elt) if isinstance(each, (ast.ListComp, ast.GeneratorExp))]
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
        taken = (each for each in walk(node.elt) if isinstance(each, ast.Subscript))
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
            rows = worst(given)
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
            return Rows.PADDED if not isinstance(first, Rows) or not first.uneven else first
        if name in FILLED or name in SIZED and len(node.args) > 1:
            sizes = [*node.args, *(k.value for k in node.keywords if k.arg in ("size", "shape"))]
            return Rows.PADDED if any(self._is_longest(each) for each in sizes) else None
        if name in JOINING and given:
            return self._joined(node, first)
        if name in STACKING and isinstance(first, Fields) and not first.parts:
            return first.rest  # `torch.tensor(list(zip(*texts)))`
        if name in STACKING:
            return Rows.STACKED if first is Rows.EACH else first
        if name in COLLECTING:
            return first
        if local is not None and not isinstance(local, ast.Attribute):
            inner = self.beside(self.function, {**self.names}, self._depth - 1)
            return inner._given(local, given) if self._depth else None
        named = self.fields_of(node)
        if named:
            return Fields({key: self.kind(each) for key, each in named.items()})
        called, told = self._called(node.func), {k.arg: self.kind(k.value) for k in node.keywords if k.arg}
        if called is not None and any(isinstance(kind, (Rows, Longest)) for kind in (*given, *told.values())):
            return self.within(self.beside(called, {}, self._depth - 1), node).given(given, told)
        return method  # `.to(device)`, `.float()`, `.t()`

    def _joined(self, node: ast.Call, first: Kind) -> Kind:
        """`torch.cat` of one row for each sample, or of what is in the samples."""
        axes = [*node.args[1:], *(k.value for k in node.keywords if k.arg in ("dim", "axis"))]
        if any(not (isinstance(axis, ast.Constant) and axis.value == 0) for axis in axes):
            return first
        given = node.args[0]
        one_row = isinstance(given, (ast.ListComp, ast.GeneratorExp)) and adds_axis(given.elt)
        if one_row or isinstance(given, ast.Name) and given.id in self._one_row:
            return Rows.STACKED if first is Rows.EACH else first
        return Rows.JOINED if isinstance(first, Rows) and first is not Rows.FEWER else first

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
            return turned and sorts(node.value) or self._descends(node.slice) or self._descends(node.value)
        if not isinstance(node, ast.Call):
            return False
        if sorts(node):
            if node.args and isinstance(node.args[0], ast.UnaryOp):  # `np.argsort(-lengths)`
                return isinstance(node.args[0].op, ast.USub)
            told = {each.arg: each.value for each in node.keywords}
            if any(self.constant(told[name]) is True for name in ("reverse", "descending") if name in told):
                return True
            body = getattr(told.get("key"), "body", None)  # `key=lambda sample: -len(sample)`
            return isinstance(body, ast.UnaryOp) and isinstance(body.op, ast.USub)
        return bool(node.args) and self._descends(node.args[0])

    def _pads(self, node: ast.expr) -> bool:
        """Whether an expression makes something as long as the longest."""
        parts = [each for each in walk(node) if isinstance(each, ast.expr)]
        return any(self._is_longest(each) or self._is_filled(each) for each in parts)

    def _is_filled(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Subscript, ast.Attribute)):
            return bool(self._filled) and place_of(node) in self._filled
        kind = self.names.get(node.id) if isinstance(node, ast.Name) else None
        return isinstance(kind, Single) and kind.filled

    def _is_longest(self, node: ast.expr) -> bool:
        if isinstance(node, (ast.Tuple, ast.List)):
            return any(self._is_longest(each) for each in node.elts)
        kind = self.kind(node) if isinstance(node, (ast.Name, ast.BinOp, ast.Call, ast.Subscript)) else None
        return isinstance(kind, Longest) or isinstance(kind, Single) and kind.longest
