"""Comments that silence rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.rule import Diagnostic, Severity
from autodist.source import Source
from autodist.suppress import kept

CALL = """\
import torch

torch.save(
    model,
    "a.pt",
){same}
torch.save(other, "b.pt")
"""


def lines_kept(text: str, code: str = "AD301") -> list[int]:
    """The lines on which a diagnostic is still heard."""
    source = Source.parse(text, Path("train.py"))
    numbers = range(1, len(text.splitlines()) + 1)
    found = [Diagnostic(code, "name", source, line, 1, "why", None, Severity.NOTE) for line in numbers]
    return [diagnostic.line for diagnostic in kept(found, [source])]


@pytest.mark.parametrize(
    ("comment", "silent"),
    [
        ("  # autodist: ignore[AD301]", True),
        ("  #autodist:ignore[ AD2, AD3 ]  because", True),
        ("  # autodist: ignore", True),
        ("  # noqa  # autodist: ignore[AD301]", True),
        ("  # autodist: ignore[AD302]", False),
        ("  # autodist: ignored", False),
        ("  # autodist ignore", False),
    ],
)
def test_comment_speaks_for_its_statement(comment: str, silent: bool) -> None:
    assert lines_kept(CALL.format(same=comment)) == ([1, 2, 7] if silent else [1, 2, 3, 4, 5, 6, 7])


def test_comment_on_its_own_line_speaks_for_the_next() -> None:
    assert lines_kept("x = 1\n# autodist: ignore\ny = 2\nz = 3\n") == [1, 2, 4]


def test_comment_on_a_block_speaks_for_its_header() -> None:
    assert lines_kept("if x:  # autodist: ignore\n    y = 2\n") == [2]


def test_text_in_a_string_is_no_comment() -> None:
    assert lines_kept('x = "# autodist: skip-file"\n') == [1]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_skip_file_and_line_endings(newline: str) -> None:
    assert lines_kept(newline.join(["x = 1", "y = 2  # autodist: skip-file", ""])) == []
    assert lines_kept(newline.join(["x = 1", "y = 2  # autodist: ignore", "z = 3", ""])) == [1, 3]
