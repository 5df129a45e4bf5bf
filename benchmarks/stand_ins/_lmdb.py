"""Folders of LMDB, without the file of locks: a training script only reads them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

lmdb = import_module("lmdb")


def write_lmdb(folder: Path, values: Mapping[str, bytes]) -> None:
    """Write ``data.mdb`` with these values by their keys, the same bytes each time."""
    with lmdb.open(str(folder), map_size=8 << 20, lock=False) as environment, environment.begin(write=True) as file:
        for key, value in values.items():
            file.put(key.encode(), value)
