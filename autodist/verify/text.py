"""Text with numbers in it, compared as a reader would: words must be equal, numbers nearly so."""

from __future__ import annotations

import re
from collections.abc import Sequence

NUMBER = re.compile(r"(?<![A-Za-z_])[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)|\b(?:nan|inf)\b")
ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
COMPACT = (
    r"(?<!\d)(?:(?:19|20)\d\d)?(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])[-_T]"
    r"[0-2]\d[0-5]\d(?:[0-5]\d(?:[-_.]\d{6})?)?(?!\d)"
)
"""A moment as in names of runs: 1122_213535, 20261122-2135, 20261122-213535-004215."""
MOMENT = re.compile(
    rf"{COMPACT}|(?<!\d)(?:19|20)\d\d(?:([-_.])[0-3]?\d){{2}}(?:[-_. ][0-6]\d){{2,3}}(?:[-_.]\d{{6}})?(?!\d)|"
    r"(?<!\d)[0-3]?\d(?P<between>[-_.])[0-3]?\d(?P=between)(?:19|20)\d\d(?:[-_. ]{1,2}[0-6]\d){2,3}(?!\d)|"
    r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d|"
    r"\d{4}-\d\d-\d\d[T _]\d\d[:\-]\d\d([:\-]\d\d)?([.,]\d+)?|\b\d\d?:\d\d:\d\d([.,]\d+)?\b|\b\d{4}-\d\d-\d\d\b|"
    r"(?<=\b[Tt]ime: )[0-2]?\d:[0-5]?\d\b"
)
IDENTIFIER = re.compile(
    r"(?<![0-9a-zA-Z])(?<!\d\.)(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|"
    r"(?=[0-9]*[a-f])(?=[a-f]*[0-9])(?:[0-9a-f]{14}|[0-9a-f]{32}))(?![0-9a-zA-Z])"
)
"""What is made of the clock or at random: a UUID, a window of visdom. 7.5749750800951e-05 is none."""
DURATION = re.compile(
    r"(\d+(?:\.\d+)?)(\s*)(ms|µs|us|it/s|s/it|samples/s(?:ec)?|img/s|secs?|seconds?|mins?|minutes?|hours?|s|sec\.)\b"
)
BATCHNORM = re.compile(r"\b(?:Sync)?BatchNorm(?:[123]d)?\b")
"""What prints a model with layers that synchronise their statistics names them otherwise, as it must."""
WRAPPER = re.compile(r"\bDistributedDataParallel\b")
SHARDED = re.compile(r"\bFSDP(?=[A-Z]\w*\()")
"""The same for `DataParallel(` and for the classes that `fully_shard` makes."""
DEVICE = re.compile(r"\bcuda:\d\b")
"""A device by its number, which is each rank's own."""
HISTORY = re.compile(r", grad_fn=<\w+>|, requires_grad=True(?=\))")
"""What a printed tensor says of where it came from, as a number that ranks have reduced does not."""
PROCESS = re.compile(r"(?i)\b(pid|process (?:number|id))(\W{1,3})\d+\b")
"""What says by which number the system knows a process."""
BAR = re.compile(r"[\r\x1b]|\d+%\|")

SHAPE = re.compile(r"[\[(]\d+(?:, ?\d+)*,?[\])]")
Shares = frozenset[tuple[int, int]]
"""Rows of a whole batch, each with those of one rank's part of it."""


def as_whole(line: str, wanted: str, shares: Shares) -> str:
    """The line as if the shapes in it were those of whole batches, where that is all in which they differ."""
    if line == wanted or not shares:
        return line
    theirs = SHAPE.findall(wanted)
    if len(theirs) != len(SHAPE.findall(line)):
        return line
    waiting = iter(theirs)

    named = re.search("shape|size", line, re.IGNORECASE) is not None

    def replaced(found: re.Match[str]) -> str:
        whole = next(waiting)
        part, goal = (re.findall(r"\d+", text) for text in (found[0], whole))
        if len(part) != len(goal) or not (named or any(a == b for a, b in zip(goal, part, strict=True))):
            return found[0]
        alike = all(b == a or (int(a), int(b)) in shares for a, b in zip(goal, part, strict=True))
        return whole if alike else found[0]

    return SHAPE.sub(replaced, line)


def factor_between(found: str, wanted: str, world: int, tolerance: float) -> str | None:
    """Says so where the first number that differs is N times the other, or the N-th part of it."""
    left, right = NUMBER.findall(normal(wanted)), NUMBER.findall(normal(found))
    if len(left) != len(right) or world < 2:
        return None
    for a, b in zip(left, right, strict=True):
        if numbers_agree(a, b, tolerance):
            continue
        first, second = float(a), float(b)
        if second * world == first and first:
            return f"{b} is exactly 1/{world} of {a}"
        return f"{b} is exactly {world} times {a}" if first * world == second and first else None
    return None


def normal(line: str) -> str:
    """Without what differs between two right runs: moments, durations, addresses, identifiers, numbers of devices
    and processes, names of normalisation layers and wrappers, and the history of tensors."""
    line = PROCESS.sub(r"\1\2#", HISTORY.sub("", line))
    line = DEVICE.sub("cuda", SHARDED.sub("", WRAPPER.sub("DataParallel", line)))
    line = BATCHNORM.sub("BatchNorm", MOMENT.sub("#time", IDENTIFIER.sub("#id", ADDRESS.sub("#address", line))))
    return DURATION.sub(r"#\2\3", line).rstrip()


def last_place(text: str) -> float:
    """The value of one unit in the last printed place, 0 for integers."""
    mantissa, _, exponent = text.lower().partition("e")
    if "." not in mantissa and not exponent:
        return 0.0
    decimals = len(mantissa.partition(".")[2])
    return float(f"1e{int(exponent or 0) - decimals}")  # infinite for what only looks like a number, as in 5e4823


def numbers_agree(first: str, second: str, tolerance: float) -> bool:
    """Equal up to the tolerance, or by one in a last place that is small beside the number."""
    if first == second:
        return True
    left, right = float(first), float(second)
    if left != left or right != right:
        return left != left and right != right
    difference, scale = abs(left - right), max(abs(left), abs(right))
    if difference <= tolerance * scale:
        return True
    place = max(last_place(first), last_place(second))
    if place == 0.0:
        return False
    return difference <= 1.01 * place and (place <= 2e-4 * scale or scale <= 10 * tolerance)


def last_places(original: Sequence[str], converted: Sequence[str], tolerance: float) -> tuple[int, int]:
    """How many numbers of lines that agree are apart by one in their last place, and how many have such a place."""
    off = total = 0
    for one, other in zip(original, converted, strict=False):
        pairs = zip(NUMBER.findall(normal(one)), NUMBER.findall(normal(other)), strict=False)
        for left, right in pairs:
            if "." in left and "nan" not in left + right:
                total += 1
                scale = max(abs(float(left)), abs(float(right)))
                off += abs(float(left) - float(right)) > tolerance * scale
    return off, total


def lines_agree(first: str, second: str, tolerance: float) -> bool:
    """The same words, and numbers that agree."""
    first, second = normal(first), normal(second)
    if first == second:
        return True
    if NUMBER.sub("#", first).split() != NUMBER.sub("#", second).split():
        return False
    return all(
        numbers_agree(left, right, tolerance)
        for left, right in zip(NUMBER.findall(first), NUMBER.findall(second), strict=True)
    )


def first_difference(
    original: Sequence[str], converted: Sequence[str], tolerance: float
) -> tuple[int, str | None, str | None] | None:
    """The first line that differs, with what each side has there."""
    for at, (left, right) in enumerate(zip(original, converted, strict=False)):
        if not lines_agree(left, right, tolerance):
            return at, left, right
    if len(original) == len(converted):
        return None
    at = min(len(original), len(converted))
    return at, (original[at] if at < len(original) else None), (converted[at] if at < len(converted) else None)


def printed_lines(text: str) -> list[str]:
    """Lines that were printed, without blank ones and progress bars."""
    return [line for line in text.splitlines() if line.strip() and not BAR.search(line)]
