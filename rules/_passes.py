"""Passes over loaders: counted where those are made anew, and the samplers that were made for them."""

from __future__ import annotations

import ast

from autodist.rule import Context
from autodist.script import Epoch, Loader, TrainingScript
from autodist.source import Source, all_of, argument, last_name, walk
from autodist.values import NOTHING, Object

from ._preamble import Planned, defined, free_name, given_sampler, imported, simple


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
    for each in walk(node) if depth else ():
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
    inside = [*walk(function)]
    returned = [each.value for each in inside if isinstance(each, ast.Return) and each.value is not None]
    kept = any(isinstance(each, ast.Attribute | ast.Subscript) and not _is_of_call(each) for each in returned)
    if kept or any(isinstance(each, ast.Global) for each in inside):
        return []
    names = {each.id for value in returned for each in walk(value) if isinstance(each, ast.Name)}
    named = (each for each in inside if isinstance(each, ast.Assign))
    return [*returned, *(each.value for each in named if any(last_name(target) in names for target in each.targets))]


def _is_of_call(node: ast.expr) -> bool:
    """`loaders()[0]`, and not `self.loaders[0]`"""
    return any(isinstance(each, ast.Call) for each in walk(node))


def ordering(script: TrainingScript, context: Context, source: Source) -> tuple[str, Planned]:
    """The name of a count of the loaders that one call makes, and that training steps read side by side."""
    name = free_name(source, "orders", "all_orders")
    itertools, imports = imported(context, source, "itertools")
    code = f"{name} = {itertools}.count()  # loaders that are read side by side have an order each\n\n\n"
    return name, (*imports, *defined(script, source, code))


def idle_sampler(script: TrainingScript, loader: Loader) -> tuple[ast.expr, Object] | None:
    """The distributed sampler of a loader's data that the script has made, and given to no loader."""
    source, call = loader.source, loader.node
    dataset = argument(call, "dataset", 0)
    data = script.values.get(dataset, NOTHING).things if dataset is not None else frozenset()
    given = [given_sampler(script, each.node) for each in script.loaders]
    busy = {thing for each in given if each is not None for thing in script.values.get(each, NOTHING).things}
    home = source.function(call)
    for each in all_of(source.tree, ast.Assign):
        known = home is None and each.lineno > call.lineno or source.function(each) not in (home, None)
        if known or len(each.targets) != 1 or not simple(each.targets[0]):
            continue
        for sampler in script.values.get(each.value, NOTHING).objects("distributed_sampler"):
            shares = sampler.argument("dataset", 0)
            if sampler not in busy and shares is not None and shares.things & data:
                return each.targets[0], sampler
    return None
