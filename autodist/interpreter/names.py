"""What names stand for: variables, imports, and what nothing binds."""

from __future__ import annotations

import ast
import builtins

from autodist.catalog import public
from autodist.interpreter.machine import Machine
from autodist.project import absolute
from autodist.values import NOTHING, External, LocalModule, Scope, Value, constant, of


class Names(Machine):
    """Names and imports."""

    def do_Global(self, node: ast.Global, scope: Scope) -> None:
        scope.outer.update(node.names)

    def do_Nonlocal(self, node: ast.Nonlocal, scope: Scope) -> None:
        scope.outer.update(node.names)

    def do_Import(self, node: ast.Import, scope: Scope) -> None:
        for alias in node.names:
            if alias.asname:
                scope.names[alias.asname] = self._module(alias.name, node)
            else:
                root = alias.name.partition(".")[0]
                self._module(alias.name, node)
                scope.names[root] = self._module(root, node)

    def do_ImportFrom(self, node: ast.ImportFrom, scope: Scope) -> None:
        own = scope.source.module if scope.source.module != "__main__" else self._entry_package()
        is_package = scope.source.path.name == "__init__.py"
        base = absolute(node, own if is_package or scope.source.module == "__main__" else own.rpartition(".")[0])
        for alias in node.names:
            if alias.name == "*":
                scope.names.update(self._star(base, node))
                if base not in self.project.modules and self.catalog.knows(base):
                    self._starred.setdefault(scope.top, []).append(base)
                continue
            scope.names[alias.asname or alias.name] = self._member(base, alias.name, node, scope)

    def _entry_package(self) -> str:
        return self.project.package

    def _star(self, base: str, node: ast.stmt) -> dict[str, Value]:
        module = self._module(base, node)
        for thing in module.things:
            if isinstance(thing, LocalModule):
                return {k: v for k, v in thing.scope.names.items() if not k.startswith("_")}
        return {}

    def _member(self, base: str, name: str, node: ast.stmt, scope: Scope) -> Value:
        local = self.project.modules.get(f"{base}.{name}" if base else name)
        if base in self.project.modules:
            for thing in self._module(base, node).things:
                if isinstance(thing, LocalModule) and name in thing.scope.names:
                    return thing.scope.names[name]
        if local is not None:
            return self._module(f"{base}.{name}" if base else name, node)
        if base in self.project.modules:
            return NOTHING
        return of(External(public(f"{base}.{name}")))

    def _module(self, name: str, node: ast.AST) -> Value:
        if name not in self.project.modules:
            return of(External(name))
        package = name.rpartition(".")[0]
        if name not in self._modules and package in self.project.modules:
            self._module(package, node)  # its __init__.py runs first, and may import this module
        if name not in self._modules:
            module = LocalModule(self.project.modules[name], Scope(self.project.modules[name]))
            self._modules[name] = module
            self.imported_by[module.source] = node
            self._loading.add(name)
            outer = self._loops, self._calls, self._branches, self._outcomes
            self._loops, self._calls, self._branches, self._outcomes = [], [], (), {}
            self.block(module.source.tree.body, module.scope)
            self._loops, self._calls, self._branches, self._outcomes = outer
            self._loading.discard(name)
        return of(self._modules[name])

    def of_Name(self, node: ast.Name, scope: Scope) -> Value:
        if node.id == "__name__":
            return constant(scope.source.module, firm=True)
        home = scope.find(node.id)
        if home is None:
            return of(External(self._unbound(node.id, scope)))
        if self._loops:
            self.loops_of.setdefault(node, set()).add(self._loops[-1].node)
        return home.names[node.id]

    def _unbound(self, name: str, scope: Scope) -> str:
        """What a name stands for that nothing binds: one of Python's own, or of a library: `from tqdm import *`."""
        if not hasattr(builtins, name):
            for library in reversed(self._starred.get(scope.top, [])):
                if self.catalog.roles(f"{library}.{name}"):
                    return f"{library}.{name}"
        return f"builtins.{name}"
