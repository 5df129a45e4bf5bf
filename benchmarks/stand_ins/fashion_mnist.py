"""FashionMNIST as torchvision keeps it."""

from __future__ import annotations

from pathlib import Path

from ._idx import write_digits

NAME = "FashionMNIST"


def write(folder: Path) -> None:
    """``raw/`` with four files."""
    write_digits(folder, 1000)
