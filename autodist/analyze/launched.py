"""Scripts that are launched on several processes already."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autodist.analyze.group import sometimes_joined
from autodist.interpreter import Interpreter
from autodist.rule import Severity
from autodist.script import Concern, Site
from autodist.source import Source, argument, operands, shortened, walk
from autodist.values import NOTHING, External

LAUNCHED = re.compile(r"WORLD_SIZE|LOCAL_RANK|--local[_-]rank|[\"']RANK[\"']|torchelastic|\bspawn\b")
"""What a script speaks of that asks how it has been started, or starts the processes itself."""

WAITING = re.compile(r"\bregister\(\s*(time\.)?sleep\b")


def seeds_by_rank(run: Interpreter) -> bool:
    """Whether a distributed script seeds its ranks apart, so that each draws batches of its own."""
    seeds = (each.node for each in run.of("seed") if isinstance(each.node, ast.Call))
    return is_distributed(run) and any(run.goes_by_rank(part) for each in seeds for part in operands(each))


def is_distributed(run: Interpreter) -> bool:
    """Whether the script joins a process group as it stands."""
    return bool(run.of("init_process_group"))


def ends_at_once(run: Interpreter) -> Iterator[Site]:
    """Where a script joins a group that may speak gloo, whose threads it leaves no time at its end."""
    if any(WAITING.search(source.text) for source in run.project.sources):
        return
    for event in run.of("init_process_group"):
        if not isinstance(event.node, ast.Call) or not _is_of_torch(event.node, run):
            continue  # `hvd.init()`
        backend = argument(event.node, "backend", 0)
        if not (isinstance(backend, ast.Constant) and backend.value in ("nccl", "mpi")):
            yield Site(event.source, event.source.statement(event.node))


def _is_of_torch(call: ast.Call, run: Interpreter) -> bool:
    things = run.values.get(call.func, NOTHING).things
    return any(isinstance(each, External) and each.name.startswith("torch.") for each in things)


def _switches(test: ast.expr, source: Source, home: Source) -> Iterator[tuple[Source, ast.expr]]:
    """Where a file binds what a condition asks: a variable of its own, or a setting, `config.train.distributed`, of
    which another file may keep the default."""
    kinds = ast.Attribute if source is not home else (ast.Name, ast.Attribute)
    for node in walk(source.tree) if isinstance(test, kinds) else ():
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
