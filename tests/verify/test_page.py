"""The HTML report: one file, well formed, no network, with everything that was found."""

from __future__ import annotations

import math
import re
from html.parser import HTMLParser
from pathlib import Path

from autodist.verify.command import as_markdown, as_text
from autodist.verify.compare import TOLERANCES
from autodist.verify.page import page, write_page
from autodist.verify.verdict import Cause, Deviation, Finding, Outcome, Verdict, WorldVerdict

VOID = {"meta", "br", "line", "circle", "polyline"}


class Checker(HTMLParser):
    """Follows the open elements, and keeps names and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.addresses: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def verdict(outcome: Outcome = Outcome.DIFFERS) -> Verdict:
    deviations = [
        Deviation(step, 1e-16 * step, 1e-13, math.inf if step == 3 else 1e-9, 2.0 - step / 10, 2.0 - step / 10)
        for step in range(12)
    ]
    finding = Finding("several-writers", "best<1>.pt is written by ranks [0, 1]", "train.py:7", 3, "AD301", "write")
    world = WorldVerdict(
        2,
        "float64",
        outcome,
        "<b>not bold</b>",
        findings=(finding,) if outcome is Outcome.DIFFERS else (),
        notes=(Finding("padding", "2 samples are read twice", "train.py:5"),),
        cause=Cause("write-on-rank-zero", "AD301", "write on rank 0 alone", "train.py:7"),
        steps=12,
        tolerance=TOLERANCES["float64"],
        deviations=tuple(deviations),
        details={
            "samples": {"0/0": [[[0, 2], [4, "x&y"]], [[1, 3], [5]]]},
            "loaders": {0: "Data at train.py:4"},
            "writers": {"best<1>.pt": [0, 1]},
        },
        seconds={"total": 2.0},
    )
    return Verdict("/x/train.py", "/x/train_ddp.py", (world,))


def test_the_report_is_well_formed_and_complete(tmp_path: Path) -> None:
    path = tmp_path / "reports" / "report.html"
    write_page(verdict(), path)
    checker = Checker()
    checker.feed(path.read_text(encoding="utf-8"))
    assert checker.open == []
    assert checker.seen.count("svg") == 3, "losses, deviations, samples"
    for text in ("<b>not bold</b>", "write on rank 0 alone", "train.py:7", "2 samples are read twice", "1e-10"):
        assert text in checker.text, text
    assert "best<1>.pt" in checker.text and "rank 0, rank 1" in checker.text
    assert "Data at train.py:4, pass 0" in checker.text


def test_the_report_needs_no_network() -> None:
    text = page(verdict())
    checker = Checker()
    checker.feed(text)
    assert checker.addresses == [] and "script" not in checker.seen and "link" not in checker.seen
    assert not re.search(r"https?:|@import|url\(", text)


def test_the_margin_is_said() -> None:
    equal = verdict(Outcome.EQUAL).worlds[0]
    assert equal.margin("loss") is not None and round(equal.margin("gradient") or 0) == 10_000
    assert equal.margin("parameters") is None, "an infinite deviation has none"
    assert "10,000 times below" in page(verdict(Outcome.EQUAL))
    assert "gradient closest: 10,000 times below" in as_text(verdict(Outcome.EQUAL))


def test_a_comment_says_where_and_why() -> None:
    text = as_markdown(verdict())
    assert "| 2 (CPU, float64) | differs | 12 | 1.1e-15 (1e-09) | 1.0e-13 (1e-09) | inf (1e-07) |" in text
    assert "**2 ranks**: &lt;b>not bold" in text and "- likely cause: write-on-rank-zero" in text
    assert "- step 3 several-writers: best&lt;1>.pt is written by ranks [0, 1] (train.py:7)" in text
    assert "- padding: 2 samples are read twice" in text.partition("<summary>notes")[2]
