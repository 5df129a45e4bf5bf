"""Parses a file losslessly, or nearly so: what the parser drops is put back."""

from __future__ import annotations

from difflib import SequenceMatcher
from io import StringIO

import libcst as cst

from autodist.errors import AutodistError
from autodist.source import Source


def parse(source: Source) -> cst.Module:
    """The lossless tree of ``source``. Raises AutodistError where the parser knows less syntax than Python."""
    try:
        return cst.parse_module(source.text)
    except cst.ParserSyntaxError as error:
        message = "cannot be edited because of this line: write it in a simpler way"
        raise AutodistError(message, source.path, error.raw_line) from None


def with_lost_spaces(text: str, original: str, parsed: str) -> str:
    """``text``, made from ``parsed``, with its unchanged lines as they were in ``original``.

    LibCST drops the space of ``except Error :`` and the form feed that starts a file.
    """
    if original == parsed:
        return text
    lines, old, new = (StringIO(part, newline="").readlines() for part in (original, parsed, text))
    if len(lines) == len(old):
        for start, begin, length in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            new[begin : begin + length] = lines[start : start + length]
    return "".join(new)
