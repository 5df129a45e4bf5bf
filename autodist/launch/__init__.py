"""The commands that launch a converted script."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Launch:
    """A command, and what it is for."""

    label: str
    command: str


def commands(script: Path, import_path: Path | None = None) -> tuple[Launch, ...]:
    """How to run ``script``: in one process, on one node, on several nodes. Modules come from ``import_path`` first."""
    path = shlex.quote(str(script))
    first = f"PYTHONPATH={shlex.quote(str(import_path))} " if import_path is not None else ""
    rendezvous = f"--rdzv-backend c10d --rdzv-endpoint HOST:29500 --rdzv-id {shlex.quote(script.stem)}"
    return (
        Launch("one process", f"{first}python {path}"),
        Launch("one node", f"{first}torchrun --standalone --nproc-per-node 2 {path}"),
        Launch("two nodes, on each", f"{first}torchrun --nnodes 2 --nproc-per-node 2 {rendezvous} {path}"),
    )
