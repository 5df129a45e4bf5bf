"""Parses a file losslessly, or nearly so: what the parser drops is put back."""

from __future__ import annotations

import ast
import re
from difflib import SequenceMatcher
from io import StringIO

import libcst as cst

from autodist.errors import AutodistError
from autodist.source import Source, walk

SPACES_AND_TABS = re.compile(r"[ \t]*")
SPACES_BEFORE_TAB = re.compile(r" {1,7}\t")


def parse(source: Source) -> cst.Module:
    """The lossless tree of ``source``. Raises AutodistError where the parser knows less syntax than Python."""
    for spelt in (_as_it_is, _evenly_indented, _without_tabs):
        text = spelt(source)
        try:
            return cst.parse_module(text)
        except cst.ParserSyntaxError as error:
            line = error.raw_line
    message = "cannot be edited because of this line: write it in a simpler way"
    raise AutodistError(message, source.path, line)


def _as_it_is(source: Source) -> str:
    return source.text


def _evenly_indented(source: Source) -> str:
    """The text without spaces that a tab makes up for, where a statement starts: for Python, who counts columns, a
    block may go by such lines or by those with the tab alone, for LibCST it may not."""
    lines = StringIO(source.text, newline="").readlines()
    for number in {node.lineno - 1 for node in walk(source.tree) if isinstance(node, ast.stmt)}:
        indent = SPACES_AND_TABS.match(lines[number])
        if indent is not None:
            lines[number] = SPACES_BEFORE_TAB.sub("\t", indent[0]) + lines[number][indent.end() :]
    return "".join(lines)


def _without_tabs(source: Source) -> str:
    """The text with spaces for the tabs that lines begin with, but for those inside of a string: where lines of one
    block are spelt in more ways than one."""
    strings = (node for node in walk(source.tree) if isinstance(node, (ast.Constant, ast.JoinedStr)))
    inside = {line for node in strings for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)}
    lines = StringIO(source.text, newline="").readlines()
    for number, line in enumerate(lines):
        indent = SPACES_AND_TABS.match(line)
        if indent is not None and number + 1 not in inside:
            lines[number] = indent[0].expandtabs(8) + line[indent.end() :]
    return "".join(lines)


def with_lost_spaces(text: str, original: str, parsed: str) -> str:
    """``text``, made from ``parsed``, with its unchanged lines as they were in ``original``.

    LibCST drops the space of ``except Error :`` and the form feed that starts a file, and is not given spaces that
    stand before tabs.
    """
    if original == parsed:
        return text
    lines, old, new = (StringIO(part, newline="").readlines() for part in (original, parsed, text))
    if len(lines) == len(old):
        for start, begin, length in SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks():
            new[begin : begin + length] = lines[start : start + length]
    return "".join(new)
