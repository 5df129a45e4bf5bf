"""The benchmark of public repositories: its manifest, and what it prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.check_faults import FAULTS
from benchmarks.check_repositories import Found, Repository, Verdict, details, found_in, repositories, row

SCRIPT = next(each.text for each in FAULTS if each.kind == "unguarded save")
LINE = next(number for number, line in enumerate(SCRIPT.splitlines(), 1) if "torch.save" in line)
PLACE = f"AD301 train.py:{LINE}"


def test_all_findings_of_first_sight_were_read() -> None:
    known = [*repositories()]
    assert len(known) == 40 and len({each.name for each in known}) == 40
    assert all(verdict.why.endswith(".") for each in known for verdict in each.verdicts.values())


@pytest.mark.parametrize(
    ("verdicts", "told"), [({PLACE: Verdict(True, "All save.", True)}, "true"), ({}, "not read yet")]
)
def test_findings_are_counted(verdicts: dict[str, Verdict], told: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "broken.py").write_text("import torch\nclass a.b:\n", encoding="utf-8")
    repository = Repository("a/b", "c", 2026, ("train.py", "broken.py"), verdicts)
    found = found_in(repository, tmp_path)
    assert [*found.said] == [PLACE] and "does not parse" in found.failures[0]
    assert f"**{told}**" in "\n".join(details(repository, found))
    assert f"| {len(verdicts)} | {len(verdicts)} | 1 | {len(verdicts)} |" in row(repository, found)


def test_what_is_gone_stays_in_the_list() -> None:
    repository = Repository("a/b", "c", 2026, ("train.py",), {PLACE: Verdict(False, "Only rank 0.", True)})
    assert [*details(repository, Found())] == [f"- {PLACE}: **false** (not said any more). Only rank 0."]
