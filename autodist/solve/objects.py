"""What the rounds of an evaluation add up in objects: sums and counts in attributes, and what is computed of them.

An object that keeps a sum as its rounds go on is memory like a name of the loop: `losses.sum` is made global behind it
as `total` is. What a method computes of such attributes alone, `self.avg = self.sum / self.count`, is computed anew
behind that. Any other attribute that a round binds is that of its last batch, which nobody may read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from autodist.placement import Partial
from autodist.placement.arguments import gives_zeros
from autodist.program import Operation
from autodist.solve.rounds import Left, Rounds
from autodist.solve.stores import begins_empty, bound_by, changes, is_path, is_read, is_zero, only_adds, owner_of
from autodist.source import Source, all_of, walk
from autodist.trace.things import Class, Function, Heap, Object, Sequence

SHOWING = ("__str__", "__repr__", "__format__", "__iter__", "__getitem__", "__float__")
"""Methods by which objects are read without that one of their attributes is named."""
FOLLOWING = (ast.Attribute, ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context)
"""What an attribute is made of that follows from others alone."""


@dataclass(frozen=True)
class Cell:
    """An attribute of an object that rounds change."""

    thing: Object
    name: str


class Objects(Rounds):
    """The rounds of a loop over an evaluation, and the objects that they change."""

    @cached_property
    def _changed(self) -> dict[Cell, list[tuple[ast.AST, ast.expr, ast.AST, Source]]]:
        """The attributes that functions of the rounds change, of objects that were there before: where, as it is
        spelled there, and in which function."""
        found: dict[Cell, list[tuple[ast.AST, ast.expr, ast.AST, Source]]] = {}
        for function, source in self._code.items():
            for node, base in changes(function):
                for cell in self._cells_of(node, base):
                    found.setdefault(cell, []).append((node, base, function, source))
        return dict(sorted(found.items(), key=lambda each: _place(each[0])))

    def _cells_of(self, node: ast.AST, base: ast.expr) -> list[Cell]:
        """The attributes of objects of the script that a statement changes, if it changes nothing else."""
        if not isinstance(base, ast.Attribute) or self._is_own(owner_of(node, base)):
            return []
        owners = self._program.at(base.value)
        things = [each for each in owners.things if isinstance(each, Object) and each.cls is not None]
        modules = any("module" in each.roles or {*each.library_names} - {"builtins.object"} for each in things)
        if owners.operations or len(things) < len(owners.things) or modules:
            return []
        return [Cell(each, base.attr) for each in things]

    def _judge_objects(self) -> None:
        """What is made global of objects, or why that cannot be."""
        joined = {cell: self._joined_by(cell) for cell in self._changed}
        needed = {cell for cell in joined if self._is_read(cell)}
        following: dict[Cell, tuple[ast.Assign, str]] = {}
        for cell in [*needed]:
            found = self._follows(cell, joined) if joined[cell] is None else None
            if found is not None:
                following[cell] = found
                names = {each.attr for each in all_of(found[0].value, ast.Attribute)}
                needed |= {each for each in joined if each.thing is cell.thing and each.name in names}
        behind: list[Left] = []
        for cell in (each for each in joined if each in needed):
            node, base, _, source = self._changed[cell][0]
            path, how = self._path_of(cell.thing), joined[cell]
            shown = f"{path or ast.unparse(base).rpartition('.')[0]}.{cell.name}"
            if path is None:
                self._shared.say(node, f"{shown} is changed in each round", source)
            elif cell in following:
                statement, own = following[cell]
                behind.append(Left(shown, "anew", value=_renamed(statement.value, own, path)))
            elif how is None:
                self._shared.say(node, f"{shown}, which is read behind the loop, is not only added to", source)
            elif not self._begins(cell, path, how):
                self._shared.say(node, f"{shown} goes on from one evaluation to the next", source)
            else:
                tensors = any(op.is_tensor for op in self._added(cell)) or how == "list"
                self._shared.left.append(Left(shown, how, tensors))
        self._shared.left += behind

    # how attributes lie

    def _added(self, cell: Cell) -> set[Operation]:
        """What gives the attribute anew in each round."""
        found: set[Operation] = set()
        for node, _, _, source in self._changed[cell]:
            statement = source.statement(node)
            if isinstance(statement, ast.AugAssign):
                found |= {op for op in self._inside if op.node is statement}
            elif isinstance(statement, ast.Assign):
                found |= self._program.at(statement.value).operations & self._inside
        return found

    def _joined_by(self, cell: Cell) -> str | None:
        """What joins the ranks' values of an attribute that is only added to."""
        stores = self._changed[cell]
        if not all(only_adds(source, function, ast.unparse(base)) for _, base, function, source in stores):
            return None
        held = {each for _, base, _, _ in stores for each in self._program.at(base).things if isinstance(each, Heap)}
        operations = self._added(cell)
        if held:
            lists = all(isinstance(each, Sequence) and each.kind == "list" for each in held)
            parts = [part for each in held for part in each.contents()]
            return "list" if lists and not operations and all(map(self._is_of_rounds, parts)) else None
        lying = self._placements.joint(operations) if operations else Partial("sum")
        if isinstance(lying, Partial) and not lying.exponent and lying.reduce != "mean":
            return lying.reduce
        return None

    def _follows(self, cell: Cell, joined: dict[Cell, str | None]) -> tuple[ast.Assign, str] | None:
        """The statement that computes an attribute of sums and settings of the same object alone, behind these."""
        (node, base, function, source), *others = self._changed[cell]
        statement = source.statement(node)
        own = base.value.id if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name) else None
        if others or own is None or not isinstance(statement, ast.Assign) or len(statement.targets) > 1:
            return None
        if statement not in getattr(function, "body", ()) or statement.targets[0] is not base:
            return None
        if not all(isinstance(each, FOLLOWING) for each in walk(statement.value)):
            return None
        if any(each.id != own for each in all_of(statement.value, ast.Name)):
            return None
        for each in all_of(statement.value, ast.Attribute):
            part = Cell(cell.thing, each.attr)
            if not isinstance(each.value, ast.Name) or part == cell or part in joined and joined[part] is None:
                return None
            places = [(where, store) for store, _, where, _ in self._changed.get(part, ())]
            if any(where is not function or store.lineno > statement.lineno for where, store in places):  # type: ignore[attr-defined]
                return None
        return statement, own

    # where objects are named, begin and are read

    def _path_of(self, thing: Object) -> str | None:
        """What the loop calls an object."""
        for each in walk(self._loop):
            entry = isinstance(each, ast.Subscript) and is_path(each.value) and isinstance(each.slice, ast.Constant)
            if (entry or is_path(each)) and isinstance(each.ctx, ast.Load):  # type: ignore[attr-defined]
                value = self._program.at(each)
                if value.things == {thing} and not value.operations and not self._is_bound_inside(each):
                    return ast.unparse(each)
        return None

    def _is_bound_inside(self, path: ast.AST) -> bool:
        root = next(each.id for each in walk(path) if isinstance(each, ast.Name))
        return any(each.id == root and isinstance(each.ctx, ast.Store) for each in all_of(self._loop, ast.Name))

    def _begins(self, cell: Cell, path: str, how: str) -> bool:
        """Whether an attribute is zero, or an empty list, each time that the loop is come to: it is bound so, or its
        object is made or reset, right ahead of that."""
        cls = cell.thing.cls
        if (begun := self._begun(f"{path}.{cell.name}")) is not None:
            return self._is_nothing(begun, how)
        begun = self._begun_at(path)
        if begun is not None and cls is not None:
            classes = [each for each in cls.line() if isinstance(each, Class)]
            named = isinstance(begun, ast.Call) and self._program.at(begun).things == {cell.thing}
            return named and self._is_nothing_in([each.node for each in classes], cell.name, how)
        before = self._mentioned(path)
        call = before.value if isinstance(before, ast.Expr) else None
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and cls is not None:
            found = cls.find(call.func.attr) if ast.unparse(call.func.value) == path else None
            functions = [each.node for each in found[1].things if isinstance(each, Function)] if found else []
            return len(functions) == 1 and self._is_nothing_in(functions, cell.name, how, surely=True)
        return False

    def _begun_at(self, path: str) -> ast.expr | None:
        """What a name, or an entry of a dict, is bound to right ahead of the loop: `meters["loss"]`"""
        node = ast.parse(path, mode="eval").body
        if not isinstance(node, ast.Subscript):
            return self._begun(path)
        begun = self._begun(ast.unparse(node.value))
        entries = zip(begun.keys, begun.values, strict=True) if isinstance(begun, ast.Dict) else ()
        return next((value for key, value in entries if key and ast.dump(key) == ast.dump(node.slice)), None)

    def _is_nothing_in(self, roots: Iterable[ast.AST], name: str, how: str, surely: bool = False) -> bool:
        """Whether all that functions bind to an attribute beside those of the rounds is zero, or empty."""
        bound: list[bool] = []
        for root in roots:
            for statement in all_of(root, ast.Assign, ast.AnnAssign):
                for target in [each for each in walk(statement) if isinstance(each, (ast.Attribute, ast.Name))]:
                    stored = isinstance(target.ctx, ast.Store) and name in (
                        getattr(target, "attr", ""),
                        getattr(target, "id", ""),
                    )
                    if not stored or any(statement in walk(function) for function in self._code):
                        continue
                    if surely and statement not in getattr(root, "body", ()):
                        continue
                    value = bound_by(statement, ast.unparse(target))
                    bound.append(value is not None and self._is_nothing(value, how))
        return bool(bound) and all(bound)

    def _is_nothing(self, node: ast.expr, how: str) -> bool:
        made = self._program.at(node).operations
        if how == "list":
            return begins_empty(node)
        return how != "sum" or is_zero(node) or bool(made) and all(map(gives_zeros, made))

    @cached_property
    def _code_of_rounds(self) -> set[ast.AST]:
        """The code of the rounds."""
        return {node for root in (*self._code, self._loop) for node in walk(root)}

    def _is_read(self, cell: Cell) -> bool:
        """Whether code outside of the rounds reads an attribute, or may do so by its name or as text."""
        by_name = re.compile(rf"\{{\w*\.{re.escape(cell.name)}\b")
        for source in dict.fromkeys(each.source for each in self._program.operations):
            for each in walk(source.tree):
                if isinstance(each, ast.Constant) and isinstance(each.value, str) and by_name.search(each.value):
                    return True
                if each in self._code_of_rounds or not is_read(each, source):
                    continue
                if isinstance(each, ast.Attribute) and each.attr in (cell.name, "__dict__"):
                    if cell.thing in self._program.at(each.value).things:
                        return True
                if cell.thing in self._program.at(each).things and self._is_handed_on(each, cell.thing, source):
                    return True
        return False

    def _is_handed_on(self, node: ast.AST, thing: Object, source: Source) -> bool:
        """Whether something that is not known is given an object, or shows it."""
        shown = thing.cls is not None and any(thing.cls.find(name) for name in SHOWING)
        above = source.parents[node]
        name = above.arg if isinstance(above, ast.keyword) else None
        above = source.parents[above] if isinstance(above, ast.keyword) else above
        if isinstance(above, ast.Call) and node is not above.func:
            func = above.func
            if isinstance(func, ast.Attribute) and func.attr == "format" and isinstance(func.value, ast.Constant):
                return name is None or re.search(rf"\{{{name}\s*[:!}}]", str(func.value.value)) is not None
            known = [getattr(each, "function", each) for each in self._program.at(func).things]
            return not known or not all(isinstance(each, (Function, Class)) for each in known)
        if isinstance(above, (ast.List, ast.Tuple, ast.Dict, ast.Starred)):
            return shown
        return not isinstance(above, (ast.Attribute, ast.Assign, ast.AnnAssign, ast.Return, ast.comprehension, ast.For))


def _place(cell: Cell) -> tuple[int, int]:
    """Where an object is made; in one place its attributes stay in their order."""
    return getattr(cell.thing.node, "lineno", 0), getattr(cell.thing.node, "col_offset", 0)


def _renamed(value: ast.expr, own: str, path: str) -> str:
    """The code of an expression with another name for an object: `losses.sum / losses.count`"""

    class Renaming(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.parse(path, mode="eval").body if node.id == own else node

    return ast.unparse(Renaming().visit(ast.parse(ast.unparse(value), mode="eval").body))
