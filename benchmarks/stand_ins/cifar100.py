"""CIFAR100 as torchvision keeps it."""

from __future__ import annotations

from pathlib import Path

from ._cifar import write_batches

NAME = "cifar-100-python"


def write(folder: Path) -> None:
    """``train``, ``test`` and ``meta``."""
    write_batches(folder, {"train": 256, "test": 64}, "fine_labels", 100, "meta")
