"""Names, imports and modules."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Mapping

from autodist.program import EMPTY, UNKNOWN, Value, constant, joined
from autodist.project import absolute
from autodist.project.chosen import imported
from autodist.trace.machine import Machine
from autodist.trace.things import External, Frame, LocalModule, is_anew

BUILTINS = frozenset(dir(builtins))


def thing(found: object) -> Value:
    """The value that is just this thing."""
    return Value(things=frozenset([found]))


class Names(Machine):
    """What names stand for."""

    def of_Name(self, node: ast.Name, frame: Frame) -> Value:
        found = frame.find(node.id)
        if found is not None:
            if found.home is not frame.home:
                value = self.elsewhere(found, node.id)
            else:
                value = self.current(found.names.get(node.id, EMPTY))
            return self.possible(value)
        if node.id == "__name__":
            module = frame.module
            names = [each.name for each in self.modules.values() if each.frame is module]
            return constant("__main__" if module is self.main.frame else names[0] if names else "?")
        if node.id == "__file__":
            return self.record("module.__file__", node, frame)
        if node.id in BUILTINS:
            return thing(External("builtins." + node.id))
        for module in frame.module.names.get("*", EMPTY).things:  # `from library import *`
            if isinstance(module, External):
                return thing(External(f"{module.name}.{node.id}"))
        return self.record("name", node, frame)

    def bind_name(self, name: str, value: Value, frame: Frame) -> None:
        """Bind a name in this frame, or in the one that `global` or `nonlocal` names."""
        target = frame.elsewhere.get(name)
        if target is not None:
            self.bind_elsewhere(target, name, value)
            return
        if name in frame.read_by_others and is_anew(value, frame.names.get(name, EMPTY)):
            frame.versions[name] = frame.version_of(name) + 1
        frame.names[name] = value

    def elsewhere(self, home: Frame, name: str) -> Value:
        """What a name of another function, of a class or a module stands for."""
        self.read(home, name)
        home.read_by_others.add(name)
        return self.current(home.names.get(name, EMPTY)).left_by(self.carriers(home, name))

    def bind_elsewhere(self, target: Frame, name: str, value: Value) -> None:
        """Bind a name of another function, a class or a module, which may still hold what it did: this code may be
        called whenever."""
        if self.guards == self.context.guards:
            self.context.writes.add((target, name))
        before = held = target.names.get(name, EMPTY)
        for loop in self.bound_in_round((target, name)):
            before = before.not_left_by(loop)
        if is_anew(value, before):
            self.rebind(target, name, target.guards)
        target.names[name] = before | value
        target.versions[name] = target.version_of(name) + (target.names[name] != held)

    def do_Global(self, node: ast.Global, frame: Frame) -> None:
        frame.elsewhere.update(dict.fromkeys(node.names, frame.module))

    def do_Nonlocal(self, node: ast.Nonlocal, frame: Frame) -> None:
        for name in node.names:
            outer = frame.parent.find(name) if frame.parent is not None else None
            if outer is not None:
                frame.elsewhere[name] = outer

    def do_Import(self, node: ast.Import, frame: Frame) -> None:
        for alias in node.names:
            found = self._module(alias.name)
            if alias.asname is None and "." in alias.name:
                top = alias.name.partition(".")[0]
                found = self._module(top)
            self.bind_name(alias.asname or alias.name.partition(".")[0], found, frame)

    def do_ImportFrom(self, node: ast.ImportFrom, frame: Frame) -> None:
        name = absolute(node, self._package(frame))
        module = self.import_module(name)
        for alias in node.names:
            if alias.name == "*":
                self._import_all(name, module, frame)
                continue
            whole = f"{name}.{alias.name}" if name else alias.name  # `from . import net`, outside of any package
            inner = self.import_module(whole)
            if module is not None and alias.name in module.frame.names:
                found = module.frame.names[alias.name]
            elif inner is not None:
                found = thing(inner)
            else:
                found = thing(External(whole))
            self.bind_name(alias.asname or alias.name, found, frame)

    def _import_all(self, name: str, module: LocalModule | None, frame: Frame) -> None:
        if module is None:
            starred = frame.module.names.get("*", EMPTY)
            frame.module.names["*"] = starred | thing(External(name))
            return
        for each, value in list(module.frame.names.items()):
            if each == "*" or not each.startswith("_"):
                self.bind_name(each, value, frame)

    def _package(self, frame: Frame) -> str:
        """The package that relative imports of a file start from."""
        module = frame.module
        name = next((each.name for each in self.modules.values() if each.frame is module), "")
        if module is self.main.frame:
            return self.project.package
        return name if module.source.path.name == "__init__.py" else name.rpartition(".")[0]

    def _module(self, name: str) -> Value:
        module = self.import_module(name)
        return thing(module) if module is not None else thing(External(name))

    def import_module(self, name: str) -> LocalModule | None:
        """A module of the project, run when it is imported first."""
        parts = name.split(".")
        for count in range(1, len(parts)):
            self._run_module(".".join(parts[:count]))
        return self._run_module(name)

    def standard_import_module(
        self, node: ast.AST, frame: Frame, inputs: list[Value], keywords: Mapping[str, Value]
    ) -> Value:
        """`importlib.import_module(args.model)`"""
        told = inputs[0].constant if inputs else UNKNOWN
        modules = self.project.modules, self.project.chosen
        found = imported(node, told, frame.source, *modules) if isinstance(node, ast.Call) else []
        return joined(self._module(each) for each in found) or self.record(
            "importlib.import_module", node, frame, inputs, keywords
        )

    builtin___import__ = standard_import_module

    def _run_module(self, name: str) -> LocalModule | None:
        if name in self.modules:
            return self.modules[name]
        source = self.project.modules.get(name)
        if source is None:
            inside = any(each.startswith(name + ".") for each in self.project.modules)
            if inside:  # a package without `__init__.py`
                self.modules[name] = LocalModule(name, Frame(self.project.entry))
                return self.modules[name]
            return None
        module = self.modules[name] = LocalModule(name, Frame(source))
        with self.within("module", source.tree, module.frame):
            around, self.guards = self.guards, ()
            self.block(source.tree.body, module.frame)
            self.guards = around
        return module
