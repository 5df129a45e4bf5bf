"""What is in the files that two runs wrote."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from autodist.verify.compare import relative
from autodist.verify.event_files import is_event_file, scalars
from autodist.verify.text import Shares, as_whole, first_difference, lines_agree
from autodist.verify.verdict import Tolerance

TEXT_SUFFIXES = frozenset({".txt", ".csv", ".tsv", ".log", ".md", ".yaml", ".yml", ".toml", ".json", ".jsonl", ".html"})
ARRAY_SUFFIXES = frozenset({".npy", ".npz"})
DRAWN_SUFFIXES = frozenset({".svg", ".ps", ".eps", ".pdf", ".xml", ".xmp"})
"""Texts that programs write, with moments and random names in them."""


CLOCKED = re.compile(
    r"(?i)^(?!.*(?:loss|acc|err|score))"
    r".*(?:_per_s(?:ec(?:ond)?s?)?(?![a-z])|(?<![a-z])(?:samples|images|steps|tokens|batches|its?)/s(?:ec)?(?![a-z])|"
    r"(?<![a-z])(?:time|duration|elapsed|throughput|fps)\b)"
)
"""In the tag of a scalar that the clock says: `steps_per_sec/train`, and not `loss/time`."""
SINGLE = 3e-7
"""Scalars are kept in single precision."""
BESIDE = 1e-8
"""Of an array's largest number: as little as that an element may differ, which is computed from such ones."""
LOOKED_AT = 4096
"""Bytes that tell a text."""


def shortened(line: str | None) -> str:
    """A line for a message."""
    text = (line or "").strip()
    return repr(text if len(text) <= 100 else text[:97] + "...")


def understood(path: Path) -> bool:
    """The content of such files is compared; others may differ by a time stamp alone."""
    if path.suffix.lower() in ARRAY_SUFFIXES:
        return arrays(path) is not None
    if is_event_file(path) or path.suffix.lower() in TEXT_SUFFIXES:
        return True
    return path.suffix.lower() not in DRAWN_SUFFIXES and is_text(path)


def is_text(path: Path) -> bool:
    """By what it holds, whatever it is called."""
    with open(path, "rb") as file:
        begin = file.read(LOOKED_AT)
    try:
        text = begin.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(begin) - 4:  # else the last letter is cut off
            return False
        text = begin[: error.start].decode("utf-8")
    lines = len(begin) < LOOKED_AT or "\n" in text
    return bool(text) and lines and all(letter.isprintable() or letter.isspace() for letter in text)


def content_difference(
    expected: Path, found: Path, roots: tuple[str, str], tolerance: Tolerance, shares: Shares
) -> str | None:
    """How two files differ; ``roots`` are the scratch folders, whose names may stand in texts."""
    if expected.suffix.lower() in ARRAY_SUFFIXES:
        return array_difference(expected, found, tolerance)
    if is_event_file(expected):
        return scalars_difference(expected, found, tolerance)
    try:
        left, right = (
            path.read_text(encoding="utf-8").replace(root or "\0", ".")
            for path, root in zip((expected, found), roots, strict=True)
        )
    except UnicodeDecodeError:
        return None
    if expected.suffix.lower() == ".json":
        try:
            return tree_difference(json.loads(left), json.loads(right), tolerance)
        except ValueError:
            pass
    return lines_difference(left.splitlines(), right.splitlines(), tolerance, shares)


def lines_difference(expected: list[str], found: list[str], tolerance: Tolerance, shares: Shares) -> str | None:
    """The first line that differs."""
    if len(expected) == len(found):
        found = [as_whole(line, wanted, shares) for line, wanted in zip(found, expected, strict=True)]
    difference = first_difference(expected, found, tolerance.printed)
    if difference is None:
        return None
    at, wanted, got = difference
    if len(expected) != len(found):
        return f"has {len(found)} lines instead of {len(expected)}"
    return f"line {at + 1} is {shortened(got)}, the original's {shortened(wanted)}"


def scalars_difference(expected: Path, found: Path, tolerance: Tolerance) -> str | None:
    """The first scalar of two event files that differs."""
    left, right = scalars(expected), scalars(found)
    for one, other in zip(left, right, strict=False):
        if one[:2] != other[:2]:
            return f"has {other[0]} of step {other[1]} instead of {one[0]} of step {one[1]}"
        scale = max(abs(one[2]), abs(other[2]), 1e-12)
        alike = one[2] == other[2] or abs(one[2] - other[2]) <= max(tolerance.printed, SINGLE) * scale
        alike = alike or CLOCKED.search(one[0]) is not None
        if not alike and (one[2] == one[2] or other[2] == other[2]):
            return f"{other[0]} of step {other[1]} is {other[2]:.7g}, not {one[2]:.7g}"
    return None if len(left) == len(right) else f"has {len(right)} scalars instead of {len(left)}"


def arrays(path: Path) -> dict[str, Any] | None:
    """The arrays in a file of NumPy's, or None where it cannot be read: arrays of objects are pickled."""
    try:
        import numpy

        found = numpy.load(path, allow_pickle=False)
        return {"array": found} if path.suffix.lower() == ".npy" else {name: found[name] for name in found.files}
    except (ImportError, ValueError, OSError):
        return None


def array_difference(expected: Path, found: Path, tolerance: Tolerance) -> str | None:
    """The first array of NumPy files that differs."""
    import numpy

    left, right = arrays(expected), arrays(found)
    if left is None or right is None:
        return None if left is right else "is in a format that cannot be read"
    if left.keys() != right.keys():
        return f"holds the arrays {sorted(right)} instead of {sorted(left)}"
    for name, one in left.items():
        other = right[name]
        if one.shape != other.shape:
            return f"{name} has shape {other.shape} instead of {one.shape}"
        if one.dtype.kind not in "fc":
            alike = numpy.array_equal(one, other)
        else:
            largest = numpy.max(numpy.abs(one), initial=0.0, where=numpy.isfinite(one))
            alike = numpy.allclose(one, other, tolerance.printed, max(1e-12, BESIDE * largest), True)
        if not alike:
            return f"{name} deviates"
    return None


def value_difference(found: Any, expected: Any, tolerance: Tolerance, scale: float = 1e-8) -> str | None:
    """How two entries of a checkpoint or a JSON file differ; a tensor relative to its norm, or to ``scale`` where that
    is larger."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for name in ("type", "shape", "dtype"):
            if found.get(name) != expected.get(name):
                return f"has {name} {found.get(name)} instead of {expected.get(name)}"
        left, right = found.get("digest"), expected.get("digest")
        if left is None or right is None:
            return None
        away = relative(left, right, max(scale, right[0]))
        allowed = max(tolerance.parameters, tolerance.printed)
        return f"deviates (relative {away:.1e})" if not away <= allowed and left != right else None
    if isinstance(expected, float) and isinstance(found, (int, float)):
        scale = max(abs(expected), abs(found), 1e-12)
        agree = abs(found - expected) <= tolerance.printed * scale or found == expected
        agree = agree or math.isnan(found) and math.isnan(expected)
        return None if agree else f"is {found}, not {expected}"
    if isinstance(expected, str) and isinstance(found, str):
        agree = lines_agree(expected, found, tolerance.printed)
        return None if agree else f"is {shortened(found)}, not {shortened(expected)}"
    return None if found == expected else f"is {found}, not {expected}"


def tree_difference(expected: Any, found: Any, tolerance: Tolerance, path: str = "") -> str | None:
    """The first difference of two JSON values."""
    if isinstance(expected, dict) and isinstance(found, dict):
        if expected.keys() != found.keys():
            return f"keys differ{' at ' + path if path else ''}: {sorted(expected.keys() ^ found.keys())[:3]}"
        pairs = [(f"{path}/{key}", expected[key], found[key]) for key in expected]
    elif isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return f"{path or 'the list'} has {len(found)} entries instead of {len(expected)}"
        pairs = [(f"{path}/{at}", left, right) for at, (left, right) in enumerate(zip(expected, found, strict=True))]
    else:
        difference = value_difference(found, expected, tolerance)
        return None if difference is None else f"{path or 'the value'} {difference}"
    differences = (tree_difference(left, right, tolerance, where) for where, left, right in pairs)
    return next((difference for difference in differences if difference is not None), None)
