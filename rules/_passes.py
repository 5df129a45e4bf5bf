"""Counting the passes over loaders that are made anew."""

from __future__ import annotations

import ast

from autodist.rule import Context
from autodist.script import Epoch, Loader, TrainingScript
from autodist.source import Source, last_name

from ._preamble import Planned, defined, free_name, imported


def counting(script: TrainingScript, context: Context, source: Source) -> tuple[str, Planned]:
    """The name of a count of all passes: a loader that is made again and again, and its epochs, start from zero."""
    name = free_name(source, "passes", "all_passes")
    itertools, imports = imported(context, source, "itertools")
    code = f"{name} = {itertools}.count()  # passes so far: loaders made anew are shuffled anew\n\n\n"
    return name, (*imports, *defined(script, source, code))


def is_made_for(epoch: Epoch, loader: Loader, script: TrainingScript) -> bool:
    """Whether a loader is made where a pass over it starts, and is kept by no name: `for batch in DataLoader(data, 8)`,
    `for batch in make_loader()`, or by a property, `for batch in self.loader`."""
    if loader.resized:
        return False
    start = epoch.statement.iter if isinstance(epoch.statement, (ast.For, ast.AsyncFor)) else epoch.statement
    made = loader.source.function(loader.node)
    decorators = [each.id for each in made.decorator_list if isinstance(each, ast.Name)] if made else []
    if made is not None and decorators == ["property"]:
        named = epoch.loader is not None and epoch.loader.endswith(f".{made.name}")
        return named and any(_makes(value, loader, script) for value in _handed_out(made))
    return _makes(start, loader, script)


def _makes(node: ast.AST, loader: Loader, script: TrainingScript, depth: int = 4) -> bool:
    """Whether evaluating something makes the loader each time: not what keeps it for the next time."""
    for each in ast.walk(node) if depth else ():
        if each is loader.node:
            return True
        called = script.values[each.func].functions if isinstance(each, ast.Call) and each.func in script.values else ()
        plain = [function.node for function in called if not getattr(function.node, "decorator_list", None)]
        if any(_makes(value, loader, script, depth - 1) for function in plain for value in _handed_out(function)):
            return True
    return False


def _handed_out(function: ast.AST) -> list[ast.expr]:
    """What a function returns, in place or by a name, if it keeps nothing of it for the next call."""
    if isinstance(function, ast.Lambda):
        return [function.body]
    inside = [*ast.walk(function)]
    returned = [each.value for each in inside if isinstance(each, ast.Return) and each.value is not None]
    kept = any(isinstance(each, ast.Attribute | ast.Subscript) and not _is_of_call(each) for each in returned)
    if kept or any(isinstance(each, ast.Global) for each in inside):
        return []
    names = {each.id for value in returned for each in ast.walk(value) if isinstance(each, ast.Name)}
    named = (each for each in inside if isinstance(each, ast.Assign))
    return [*returned, *(each.value for each in named if any(last_name(target) in names for target in each.targets))]


def _is_of_call(node: ast.expr) -> bool:
    """`loaders()[0]`, and not `self.loaders[0]`"""
    return any(isinstance(each, ast.Call) for each in ast.walk(node))


def ordering(script: TrainingScript, context: Context, source: Source) -> tuple[str, Planned]:
    """The name of a count of the loaders that one call makes, and that training steps read side by side."""
    name = free_name(source, "orders", "all_orders")
    itertools, imports = imported(context, source, "itertools")
    code = f"{name} = {itertools}.count()  # loaders that are read side by side have an order each\n\n\n"
    return name, (*imports, *defined(script, source, code))
