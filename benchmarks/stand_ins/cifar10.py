"""CIFAR10 as torchvision keeps it: `links = { "data/cifar-10-batches-py" = "cifar-10-batches-py" }`."""

from __future__ import annotations

from pathlib import Path

from ._cifar import write_batches

NAME = "cifar-10-batches-py"
COUNTS = {**{f"data_batch_{number}": 52 for number in range(1, 6)}, "test_batch": 64}


def write(folder: Path) -> None:
    """``data_batch_1`` to ``data_batch_5``, ``test_batch`` and ``batches.meta``."""
    write_batches(folder, COUNTS, "labels", 10, "batches.meta")
