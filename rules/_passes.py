"""Counting the passes over loaders that are made anew."""

from __future__ import annotations

import ast

from autodist.rule import Context
from autodist.script import Epoch, Loader, TrainingScript
from autodist.source import Source

from ._preamble import Planned, defined, free_name, imported


def counting(script: TrainingScript, context: Context, source: Source) -> tuple[str, Planned]:
    """The name of a count of all passes: a loader that is made again and again, and its epochs, start from zero."""
    name = free_name(source, "passes", "all_passes")
    itertools, imports = imported(context, source, "itertools")
    code = f"{name} = {itertools}.count()  # passes so far: loaders made anew are shuffled anew\n\n\n"
    return name, (*imports, *defined(script, source, code))


def is_made_for(epoch: Epoch, loader: Loader) -> bool:
    """Whether a loader has no name and is made where a pass over it starts: `for batch in DataLoader(data, 8)`."""
    if epoch.loader is not None or epoch.source is not loader.source or loader.resized:
        return False
    start = epoch.statement.iter if isinstance(epoch.statement, (ast.For, ast.AsyncFor)) else epoch.statement
    return any(each is loader.node for each in ast.walk(start))


def ordering(script: TrainingScript, context: Context, source: Source) -> tuple[str, Planned]:
    """The name of a count of the loaders that one call makes, and that training steps read side by side."""
    name = free_name(source, "orders", "all_orders")
    itertools, imports = imported(context, source, "itertools")
    code = f"{name} = {itertools}.count()  # loaders that are read side by side have an order each\n\n\n"
    return name, (*imports, *defined(script, source, code))
