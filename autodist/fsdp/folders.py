"""What does not work where a checkpoint is a folder that all ranks write."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.interpreter import Interpreter
from autodist.rule import Severity
from autodist.script import Concern, Shards
from autodist.values import NOTHING, External, Object

MOVING = frozenset("os.replace os.rename os.remove os.unlink shutil.copyfile shutil.copy shutil.copy2".split())


def folder_concerns(run: Interpreter, found: Shards, option: str) -> Iterator[Concern]:
    """What does not work where a checkpoint is a folder, as an option asks for."""
    first = min((e.order for e in run.of("save")), default=len(run.events))
    for event in run.of("write"):
        if isinstance(event.node, ast.Call) and event.order > first:
            names = {t.name for t in run.values.get(event.node.func, NOTHING).things if isinstance(t, External)}
            if names & MOVING or isinstance(event.node.func, ast.Attribute) and event.node.func.attr == "unlink":
                message = f"takes files, and a distributed checkpoint is a folder: leave {option} away"
                yield Concern("AD907", event.source, event.node, message, Severity.REFUSAL)
                return
    for site in (*found.saves, *found.files):
        assert isinstance(site.node, ast.Call)
        place = site.node.args[1:2] if site in found.saves else site.node.args[:1]
        opened = {t for node in place for t in run.values.get(node, NOTHING).things if isinstance(t, Object)}
        if any("file" in thing.roles or thing.name.endswith("BytesIO") for thing in opened):
            message = "passes an open file: a distributed checkpoint is a folder; pass its path"
            yield Concern("AD907", site.source, site.node, message, Severity.REFUSAL)
            return


def async_concerns(run: Interpreter, found: Shards) -> Iterator[Concern]:
    """What reads a checkpoint has to wait for what writes it, in one file that the script can import."""
    others = {site.source: site for site in (*found.saves, *found.files) if site.source is not run.project.entry}
    if found.saves and len(others) > 1:
        first, second, *_ = sorted(others, key=lambda source: source.path)
        message = (
            f"checkpoints are written or read here and in {first.path.name}, so that one file does not know what the "
            "other still writes: put both into one file, or take --sharded-checkpoints"
        )
        yield Concern("AD907", second, others[second].node, message, Severity.REFUSAL)
