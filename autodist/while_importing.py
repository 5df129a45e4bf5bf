"""What local modules print while they are imported, which is before the script can join its process group."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Event, Interpreter
from autodist.rule import Severity
from autodist.script import Concern, Setup, Site
from autodist.source import Source


def silenced(run: Interpreter, setup: Setup | None) -> Site | None:
    """The first import of the entry script that prints: from there on the other ranks have to be silent."""
    found = [where for event in _prints(run) if (where := place(_home(event), run)) is not None]
    joined = setup.before if setup is not None else None
    if setup is not None and setup.source is not run.project.entry:
        joined = place(setup.source, run)  # the module joins the group, and is silent from there on
    early = [where for where in found if joined is None or where.lineno < joined.lineno]
    return Site(run.project.entry, min(early, key=lambda where: where.lineno)) if early else None


def concerns(run: Interpreter) -> Iterator[Concern]:
    """What is printed by imports that stand in functions, of which it is not known when they run."""
    for event in _prints(run):
        if place(_home(event), run) is None and not event.calls:
            message = "prints while this module is imported, on every rank: move it into a function, or leave it out"
            yield Concern("AD905", event.source, event.node, message, Severity.WARNING)
            return


def _prints(run: Interpreter) -> Iterator[Event]:
    """What the code of a module prints, by itself or by a function that it calls."""
    for event in run.of("print"):
        if _home(event) is not run.project.entry:
            yield event


def _home(event: Event) -> Source:
    """The file whose own code something happens in, in the end: calls are followed up to it."""
    first = event.calls[0] if event.calls else None
    return event.source if first is None else first.source


def place(source: Source, run: Interpreter) -> ast.stmt | None:
    """The statement among the top ones of the entry script that imports a module, be it by another one."""
    entry = run.project.entry
    for _ in run.project.sources:
        node = run.imported_by.get(source)
        if node is None:
            return None
        source = next(each for each in run.project.sources if node in each.parents)
        if any(isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) for each in source.ancestors(node)):
            return None
        if source is entry:
            around = [node, *entry.ancestors(node)]
            return next(each for each in around if isinstance(each, ast.stmt) and each in entry.tree.body)
    return None
