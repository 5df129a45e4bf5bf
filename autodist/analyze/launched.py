"""Scripts that are launched on several processes already."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autodist.interpreter import Interpreter
from autodist.models import is_main_guard
from autodist.rule import Severity
from autodist.script import Concern, Site
from autodist.source import Source, shortened
from autodist.spread import Spread

LAUNCHED = re.compile(r"WORLD_SIZE|LOCAL_RANK|--local[_-]rank|[\"']RANK[\"']|torchelastic|\bspawn\b")
"""What a script speaks of that asks how it has been started, or starts the processes itself."""


def seeds_by_rank(run: Interpreter) -> bool:
    """Whether a distributed script seeds its ranks apart, so that each draws batches of its own."""
    return is_distributed(run) and any(event.value.spread is Spread.RANK for event in run.of("seed"))


def is_distributed(run: Interpreter) -> bool:
    """Whether the script joins a process group as it stands."""
    return bool(run.of("init_process_group"))


def _conditions(run: Interpreter) -> Iterator[ast.If]:
    """The conditions around calls that join a group."""
    for event in run.of("init_process_group"):
        yield from (a for a in event.source.ancestors(event.node) if isinstance(a, ast.If))


def sometimes_joined(run: Interpreter) -> Site | None:
    """The innermost condition under which the script joins a process group."""
    if any("is_initialized" in ast.unparse(a.test) for a in _conditions(run)):
        return None  # it is joined in one way or another
    for event in run.of("init_process_group"):
        chain = [(event.node, event.source)]
        chain += [(call.node, call.source) for call in reversed(event.calls) if call.node is not None]
        for node, source in chain:
            found: ast.If | None = None
            for ancestor in source.ancestors(node):
                if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    break
                if isinstance(ancestor, ast.If) and not is_main_guard(ancestor):
                    found = ancestor
            if found is not None and not _joins_otherwise(found, source, run):
                return Site(source, found)
    return None


def _joins_otherwise(condition: ast.If, source: Source, run: Interpreter) -> bool:
    """Whether the script joins a group where a condition does not hold, too: in its other branch, or, where it returns,
    after it."""
    others = list(condition.orelse)
    if condition.body and isinstance(condition.body[-1], ast.Return):
        block = source.block(condition)
        others += block[block.index(condition) + 1 :]
    joining = {event.node for event in run.of("init_process_group")}
    return any(node in joining for each in others for node in ast.walk(each))


def _switches(test: ast.expr, source: Source, home: Source) -> Iterator[tuple[Source, ast.expr]]:
    """Where a file binds what a condition asks: a variable of its own, or a setting, `config.train.distributed`, of
    which another file may keep the default."""
    kinds = ast.Attribute if source is not home else (ast.Name, ast.Attribute)
    for node in ast.walk(source.tree) if isinstance(test, kinds) else ():
        if isinstance(node, kinds) and isinstance(node.ctx, ast.Store) and ast.unparse(node) == ast.unparse(test):
            yield source, node


def never_joined(run: Interpreter) -> Iterator[Concern]:
    """A script that is distributed as it stands, but for a switch of its own, `distributed = False`, or for an option
    of which what starts the processes knows nothing: `if args.world_size > 1:`."""
    site = sometimes_joined(run)
    if site is None or not isinstance(site.node, ast.If):
        return
    test = site.node.test
    stores = [store for source in run.project.sources for store in _switches(test, source, site.source)]
    bound = [(source, source.statement(store)) for source, store in stores]
    value = bound[0][1].value if len(bound) == 1 and isinstance(bound[0][1], ast.Assign) else None
    if isinstance(value, ast.Constant) and value.value in (False, 0, None):
        source, switch = bound[0]
        message = (
            f"{ast.unparse(test)} is {value.value} here, so that each process would train by itself: set it, and the "
            "script is distributed as it stands"
        )
        yield Concern("AD101", source, switch, message, Severity.WARNING)
    elif not any(LAUNCHED.search(source.text) for source in run.project.sources):
        message = (
            f"joins the other processes where {shortened(ast.unparse(test))} alone, which torchrun does not see to: "
            "started without that option, each process would train by itself"
        )
        yield Concern("AD101", site.source, site.node, message, Severity.WARNING)
