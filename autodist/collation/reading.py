"""What the statements of a function make of the samples of a batch."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autodist.collation.expressions import Expressions
from autodist.collation.functions import called
from autodist.collation.kinds import ANY_OTHER, Fields, Key, Kind, Longest, Rows, Single, element_of, worst
from autodist.collation.syntax import (
    adds_axis,
    bound_in,
    goes_on,
    lengthened,
    names_in,
    nodes_of,
    outgrown,
    outgrows,
    place_of,
    taken_by,
)
from autodist.source import all_of, walk
from autodist.values import UNKNOWN, Function, Value


class Reading(Expressions):
    """One pass over the statements of a function, in their order."""

    def beside(self, function: Function, names: dict[str, Kind], depth: int) -> Reading:
        return Reading(function, names, depth)

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
                if self._choosing and isinstance(target, ast.Name) and outgrows(target.id, node.value):
                    self.names[target.id] = Longest()
                for each in walk(target):
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
        elif isinstance(node, ast.While) and self._pads(node.test) or goes_on(node) and self._pads(node.iter):
            for each in filter(None, map(lengthened, node.body)):
                self._fill(each)
        elif isinstance(node, ast.While):
            self.run(node.body)
        elif isinstance(node, ast.For) and (key := self._goes_by_key(node)) is not None:
            for inner in self._by_key(key, node.target, node.iter, node.body):
                inner.run(node.body)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            over = self.kind(node.iter)
            self._bind(node.target, element_of(over))
            self._held |= taken_by(node.target, node.iter)
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
                self._filled.add(place_of(target))
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
        inner = self.within(self.beside(function, {}, self._depth - 1), call)
        inner.given(given, told)
        for name, each, before in zip(inner.parameters(), call.args, given, strict=False):
            after = inner.names.get(name)
            if isinstance(before, Single) and isinstance(after, Single) and after.filled:
                self._fill(each)
            elif isinstance(before, Rows) and not before.uneven and after is Rows.PADDED and isinstance(each, ast.Name):
                self.names[each.id] = after

    def _padded(self, name: str) -> Kind:
        before = self.names[name]
        return before if isinstance(before, Rows) and before.uneven else Rows.PADDED

    def _order(self, target: ast.expr, descending: bool) -> None:
        """Remember whether what a target holds goes from the longest to the shortest."""
        for each in walk(target):
            if isinstance(each, ast.Name):
                (self._descending.add if descending else self._descending.discard)(each.id)

    def _looped(self, node: ast.For | ast.AsyncFor, over: Kind) -> None:
        """Lists that a loop over the samples fills."""
        if isinstance(over, Fields) and over.all:
            return self._looped_over_parts(node, over)
        counted = any(isinstance(self.kind(each), Rows) for each in all_of(node.iter, ast.Name))
        if not isinstance(over, Rows) and not counted:
            for statement in node.body:
                self._across(statement)
            if not self._sample.isdisjoint(names_in(node.iter)):
                self._gathered(node)
            return
        outside, self._sample = self._sample, bound_in(node)
        self._looped_samples(node, over)
        self._sample = outside

    def _gathered(self, node: ast.For | ast.AsyncFor) -> None:
        """Lists of what all samples have together, one after the other: `for word in text: words.append(word)`."""
        for call in walk(node):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "append":
                target = call.func.value
                if isinstance(target, ast.Name) and target.id not in self._sample:
                    self.names[target.id] = Rows.JOINED

    def _looped_samples(self, node: ast.For | ast.AsyncFor, over: Kind) -> None:
        skips = any(isinstance(each, (ast.Continue, ast.Break)) for each in walk(node))
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
                        self.names |= dict.fromkeys(outgrown(statement.test, inner), Longest())
            else:
                self._statement(statement)

    def _looped_over_parts(self, node: ast.For | ast.AsyncFor, over: Fields) -> None:
        """`for part in zip(*batch): parts.append(torch.stack(part))`"""
        made: dict[str, dict[Key, Kind]] = {}
        for key, kind in over.all.items():
            self._bind(node.target, kind)
            self.run(node.body)
            for call in nodes_of(node, ast.Call):
                grown = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "append" else None
                if isinstance(grown, ast.Name) and call.args:
                    parts = made.setdefault(grown.id, {})
                    parts[key] = worst([parts.get(key), self.kind(call.args[0])])
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
        if adds_axis(given):
            self._one_row.add(target.id)
        kind = Rows.PADDED if self._pads(given) and filled is Rows.EACH else filled
        self.names[target.id] = before if isinstance(before, Rows) and before.uneven else kind

    def _only_fills(self, node: ast.If) -> bool:
        """`if len(text) < longest: text.extend([PAD] * (longest - len(text)))`"""
        return self._pads(node.test)


def collated(collate: Value) -> Kind:
    """What a `collate_fn` of the project makes of a list of samples; the worst of those that a condition chooses of."""
    made = [Reading(function, {}).given([Rows.EACH]) for function in called(collate)]
    return made[0] if len(made) == 1 else worst(made)
