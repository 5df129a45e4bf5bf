"""``autodist manifest``: read the script, refuse what cannot work, print the text."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from autodist import catalog
from autodist.config import load
from autodist.deep import deep
from autodist.errors import AutodistError
from autodist.frameworks import owned
from autodist.interpreter import Interpreter, Plan, Runs, Unfinished
from autodist.launchers import launcher
from autodist.manifest import compose, kubeflow, skypilot, slurm, torchrun
from autodist.manifest.facts import Batch, facts, own_addresses
from autodist.manifest.job import Job, notes
from autodist.manifest.settings import Settings
from autodist.project import Project, added_folders, starts
from autodist.terminal import Terminal
from autodist.values import NOTHING, External

ENGINES: dict[str, Callable[[Job], str]] = {
    "slurm": slurm.text,
    "kubeflow": kubeflow.text,
    "skypilot": skypilot.text,
    "compose": compose.text,
    "torchrun": torchrun.text,
}


def manifest(script: Path, engine: str, nodes: int, gpus: int, gpu: str | None, cpus: int, args: Sequence[str]) -> int:
    """Print the manifest, and its notes on standard error. Returns the exit code."""
    terminal = Terminal()
    try:
        job = describe(script, nodes, gpus, gpu, cpus, args)
    except Exception as error:
        terminal.error(error, script)
        return 2
    sys.stdout.write(ENGINES[engine](job))
    for line in notes(job):
        terminal.say(line)
    return 0


@deep
def describe(script: Path, nodes: int, gpus: int, gpu: str | None, cpus: int, args: Sequence[str]) -> Job:
    """The job, if it can work. Raises AutodistError where it cannot."""
    project = Project.load(script)
    config = load(script.parent, {})
    run = _followed(project, catalog.load(config.catalog, config.operations))
    if (owner := owned(run, config.strategy)) is not None:
        raise AutodistError(owner.message, owner.source.path, getattr(owner.node, "lineno", None))
    if (reason := _unfit(run)) is not None:
        raise AutodistError(f"{reason}: convert it first, by `autodist convert {script}`", script)
    if nodes > 1 and (site := next(own_addresses(run), None)) is not None:
        message = "ranks of other nodes would look for rank 0 at this address of their own: leave it to torchrun"
        raise AutodistError(message, site.source.path, getattr(site.node, "lineno", None))
    known = facts(run, Settings(run, args))
    for batch in known.batches:
        if batch.size is not None and batch.size % (nodes * gpus):
            raise AutodistError(_odd(batch, nodes, gpus), batch.source.path, batch.line)
    paths = tuple(_import_path(project))
    return Job(script.as_posix(), tuple(args), nodes, gpus, gpu, cpus, known, project.module, paths)


def _followed(project: Project, facts: catalog.Catalog) -> Interpreter:
    try:
        return Runs(project, facts)(Plan())
    except Unfinished as end:
        return end.run


def _unfit(run: Interpreter) -> str | None:
    """Why torchrun cannot start a script, None where it can."""
    joins = run.of("init_process_group")
    if not joins:
        return "joins no process group, so that each rank would train by itself"
    if launcher(run) is not None:
        return "starts its ranks itself, or is told their numbers by an option, which torchrun does not"
    called = [run.values.get(each.node.func, NOTHING) for each in joins if isinstance(each.node, ast.Call)]
    names = [thing.name for value in called for thing in value.things if isinstance(thing, External)]
    if names and not any(name.startswith("torch.") for name in names):
        return f"joins its ranks by {names[0]}, which torchrun does not start"
    return None


def _odd(batch: Batch, nodes: int, gpus: int) -> str:
    assert batch.size is not None
    ranks = nodes * gpus
    below = batch.size // ranks * ranks
    sizes = f"{below} or {below + ranks}" if below else str(ranks)
    what = f"a batch size of {batch.size}" if batch.code == str(batch.size) else f"{batch.code} = {batch.size}"
    change = f"give {batch.flag} {sizes}" if batch.flag else f"make it {sizes}"
    return f"{what} does not divide by {nodes} x {gpus} = {ranks} ranks: {change}, or take other numbers"


def _import_path(project: Project) -> list[str]:
    """Folders of the script's modules that Python does not find by itself."""
    entry, wanted = project.entry.path, [str(each) for each in project.import_folders()]
    if project.module is not None:
        found, wanted = {os.getcwd()}, [os.path.abspath(project.root), *wanted]
    else:
        added = (each for source in project.sources for each in added_folders(source, starts(entry)))
        found = {os.path.abspath(each) for each in (entry.parent, *added)}
    return [os.path.relpath(each) for each in dict.fromkeys(wanted) if each not in found]
