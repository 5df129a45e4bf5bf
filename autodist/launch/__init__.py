"""The commands that launch a converted script."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Launch:
    """A command, and what it is for."""

    label: str
    command: str


def commands(
    script: Path, module: str | None = None, import_path: Sequence[str] = (), installed: str | None = None
) -> tuple[Launch, ...]:
    """How to run ``script``: in one process, on one node, on several nodes.

    It is started by its name as ``module``, if it has one. ``import_path`` are the folders that its modules come from
    and that Python does not find by itself. ``installed`` is the command that starts it, if only that does.
    """
    if script.suffix == ".ipynb":
        return (Launch("all cells", f"jupyter execute {shlex.quote(str(script))}"),)
    target = shlex.quote(str(script)) if module is None else f"-m {module}"
    first = f"PYTHONPATH={shlex.quote(os.pathsep.join(import_path))} " if import_path else ""
    python = "python " if installed is None else ""
    if installed is not None:
        target = installed
    ranks = "torchrun" if installed is None else "torchrun --no-python"
    rendezvous = f"--rdzv-backend c10d --rdzv-endpoint HOST:29500 --rdzv-id {shlex.quote(script.stem)}"
    return (
        Launch("one process", f"{first}{python}{target}"),
        Launch("one node", f"{first}{ranks} --standalone --nproc-per-node 2 {target}"),
        Launch("two nodes, on each", f"{first}{ranks} --nnodes 2 --nproc-per-node 2 {rendezvous} {target}"),
    )
