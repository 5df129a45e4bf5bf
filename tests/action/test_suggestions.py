"""Suggestions of a diff: taken all together they make what the diff makes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suggestions import Suggestion, ranges, suggestions

from autodist.report.diff import diff
from autodist.result import Converted, Result
from autodist.source import Source

LINES = st.lists(
    st.sampled_from(["x = 1", "", "-- y", "++ y", "@@ -1 +1 @@", "--- a/x", "`" * 4, "\f", "ü = '大'"]), max_size=9
)


def made(before: list[str], after: list[str], end: str = "\n") -> list[Suggestion]:
    """The suggestions of a change."""
    texts = [end.join([*lines, ""]) for lines in (before, after)]
    source = Source.parse("", Path("my train.py"))
    return list(suggestions(diff(Result((Converted(source, *texts),), ()))))


def taken(lines: list[str], found: list[Suggestion]) -> list[str]:
    """A file's lines once all suggestions are taken."""
    lines = [*lines]
    for each in sorted(found, key=lambda each: -each.first):
        lines[each.first - 1 : each.last] = each.lines
    return lines


@given(LINES.filter(bool), LINES)
def test_all_of_them_make_the_change(before: list[str], after: list[str]) -> None:
    found = made(before, after)
    assert taken(before, found) == after
    assert all(one.last < other.first for one, other in pairwise(found)), "none meets another"
    assert all(each.path == "my train.py" for each in found)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_endings(end: str) -> None:
    assert taken(["a", "b", "c"], made(["a", "b", "c"], ["a", "x", "c", "d"], end)) == ["a", "x", "c", "d"]


def test_a_file_without_a_last_newline() -> None:
    source = Source.parse("", Path("a.py"))
    (found,) = suggestions(diff(Result((Converted(source, "a\nb", "a\nc"),), ())))
    assert (found.first, found.last, found.lines) == (2, 2, ("c",))


def test_fences_are_longer_than_those_inside() -> None:
    assert Suggestion("a.py", 1, 1, ('"""```', "````")).block == '`````suggestion\n"""```\n````\n`````'
    assert Suggestion("a.py", 1, 1, ()).block == "```suggestion\n```"


@pytest.mark.parametrize(
    ("patch", "found"),
    [
        ("@@ -0,0 +1,3 @@\n+a", [range(1, 4)]),
        ("@@ -1 +1 @@\n-a\n+b\n@@ -9,2 +9,4 @@ def f(): # @@ -1,1 +90,1 @@", [range(1, 2), range(9, 13)]),
        ("", []),
    ],
)
def test_lines_that_a_patch_shows(patch: str, found: list[range]) -> None:
    assert ranges(patch) == found


def test_a_suggestion_over_two_hunks_does_not_fit() -> None:
    shown = {"a.py": [range(1, 4), range(4, 9)]}
    assert Suggestion("a.py", 1, 3, ()).fits(shown) and Suggestion("a.py", 4, 8, ()).fits(shown)
    assert not Suggestion("a.py", 3, 4, ()).fits(shown) and not Suggestion("b.py", 1, 1, ()).fits(shown)
