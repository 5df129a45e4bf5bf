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


def commands(script: Path) -> tuple[Launch, ...]:
    """How to run ``script``: in one process, on one node, on several nodes."""
    path = shlex.quote(str(script))
    rendezvous = f"--rdzv-backend c10d --rdzv-endpoint HOST:29500 --rdzv-id {shlex.quote(script.stem)}"
    return (
        Launch("one process", f"python {path}"),
        Launch("one node", f"torchrun --standalone --nproc-per-node 2 {path}"),
        Launch("two nodes, on each", f"torchrun --nnodes 2 --nproc-per-node 2 {rendezvous} {path}"),
    )
