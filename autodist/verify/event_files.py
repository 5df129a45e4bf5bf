"""Scalars in the event files of TensorBoard, as far as their format is needed: it is one message after the other."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

Scalar = tuple[str, int, float]
"""Its tag, its step and its value."""
STEP, SUMMARY, VALUE, TAG, SIMPLE = 2, 5, 1, 1, 2
"""Numbers of the fields of an event, its summary, and the values in it."""
HEADER, FOOTER = 12, 4
"""Bytes around a message: its length and checksums."""


def is_event_file(path: Path) -> bool:
    """By its name."""
    return "tfevents" in path.name


def scalars(path: Path) -> list[Scalar]:
    """All scalars of a file in the order in which they were added."""
    data, at, found = path.read_bytes(), 0, []
    while at + HEADER <= len(data):
        length = int.from_bytes(data[at : at + 8], "little")
        found += list(scalars_of(data[at + HEADER : at + HEADER + length]))
        at += HEADER + length + FOOTER
    return found


def scalars_of(event: bytes) -> Iterator[Scalar]:
    """The scalars of one event."""
    step, summaries = 0, []
    for number, value in fields(event):
        if number == STEP and isinstance(value, int):
            step = value
        elif number == SUMMARY and isinstance(value, bytes):
            summaries.append(value)
    for summary in summaries:
        for number, entry in fields(summary):
            parts = dict(fields(entry)) if number == VALUE and isinstance(entry, bytes) else {}
            tag, scalar = parts.get(TAG), parts.get(SIMPLE)
            if isinstance(tag, bytes) and isinstance(scalar, bytes) and len(scalar) == 4:
                yield tag.decode("utf-8", "replace"), step, float(struct.unpack("<f", scalar)[0])


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The numbered fields of a message of protocol buffers: numbers, and bytes for everything else."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = varint(message, at)
        else:
            length = 8 if kind == 1 else 4
        yield key >> 3, message[at : at + length]
        at += length


def varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins at a position, and where it ends; numbers of a message that is cut short end with it."""
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return value, at
