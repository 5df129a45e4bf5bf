"""What files hold that the script has written, in formats that only the script's own process can read."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import torch

LARGEST = 64 << 20
"""Bytes of a file that is read."""
DISTRIBUTED = (b"DistributedDataParallel", b"torch.distributed", b"FullyShardedDataParallel")
"""What is pickled under these names talks to the other ranks when it is read."""


def content_of(path: str) -> Any:
    """The object in a file of torch, of pickle or of NumPy, or of what is built on them. Raises what reading raises,
    ``ValueError`` for any other file."""
    if os.path.islink(path) or not 0 < os.path.getsize(path) <= LARGEST:
        raise ValueError("not read")
    with open(path, "rb") as file:
        raw = file.read()
    numpy: Any = sys.modules.get("numpy")
    if raw.startswith(b"\x1f\x8b"):
        raw = gzip.decompress(raw)
    if any(name in raw for name in DISTRIBUTED):
        raise ValueError("is distributed")
    readers: list[Callable[[], Any]] = []
    if raw.startswith((b"PK\x03\x04", b"\x80")):
        readers.append(lambda: torch.load(io.BytesIO(raw), map_location="cpu", weights_only=False))
    if raw.startswith(b"\x80"):
        readers.append(lambda: pickled(raw))
        if "joblib" in sys.modules:
            readers.append(lambda: sys.modules["joblib"].load(path))
    if raw.startswith((b"PK\x03\x04", b"\x93NUMPY")) and numpy is not None:
        readers.append(lambda: arrays(numpy.load(io.BytesIO(raw), allow_pickle=True)))
    tensors: Any = sys.modules.get("safetensors.torch")
    if path.endswith(".safetensors") and tensors is not None:
        readers.append(lambda: tensors.load(raw))
    return first_that_reads(readers)


def first_that_reads(readers: list[Callable[[], Any]]) -> Any:
    """What the first reader makes of the file that does not fail."""
    for read in readers:
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                return read()
        except Exception:
            continue
    raise ValueError("in no format that is known")


def pickled(raw: bytes) -> Any:
    """All objects of a file: a log may be one after the other."""
    file, found = io.BytesIO(raw), []
    while True:
        try:
            found.append(pickle.load(file))
        except EOFError:
            break
    return found[0] if len(found) == 1 else found


def arrays(found: Any) -> Any:
    """The arrays of NumPy's files, which are read as they are asked for."""
    return {name: found[name] for name in found.files} if hasattr(found, "files") else found
