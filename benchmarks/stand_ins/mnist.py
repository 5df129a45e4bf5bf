"""MNIST as torchvision keeps it: `links = { "data/MNIST" = "MNIST" }`."""

from __future__ import annotations

from pathlib import Path

from ._idx import write_digits

NAME = "MNIST"


def write(folder: Path) -> None:
    """``raw/`` with four files."""
    write_digits(folder, 0)
