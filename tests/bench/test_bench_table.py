"""The table of a benchmark: what is taken from ranks and runs, and how it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from autodist.bench import page
from autodist.bench.table import Measured, Outcome, Row, as_json, as_markdown, as_text, measured


def rank(seconds: list[float], rows: float, **more: Any) -> dict[str, Any]:
    steps = [{"seconds": each, "data": each / 10, "rows": rows} for each in seconds]
    return {"steps": steps, "evaluations": [], "communication": None, "memory": 1 << 30, **more}


def test_a_step_takes_as_long_as_on_its_slowest_rank() -> None:
    found = measured([rank([1.0, 3.0, 2.0], 4), rank([2.0, 1.0, 2.0], 4, memory=2 << 30, communication=0.5)])
    assert found is not None
    assert found.seconds == 2.0  # of 2, 3 and 2
    assert found.samples == 8 / 2.0
    assert found.compute == pytest.approx(found.seconds - found.data)
    assert (found.memory, found.communication, found.evaluation) == (2 << 30, 0.5, None)


def test_one_process_has_no_communication_and_no_steps_are_no_measurement() -> None:
    alone = measured([rank([1.0], 4, communication=0.0, evaluations=[3.0, 1.0, 2.0])])
    assert alone is not None and alone.communication is None and alone.evaluation == 2.0
    assert measured([rank([], 4)]) is None
    assert measured([]) is None


def outcome() -> Outcome:
    def run(samples: float) -> Measured:
        return Measured(samples, 8 / samples, 0.001, None, 1.5, 1 << 30)

    rows = [
        Row("as it is", 1, [run(100.0), run(110.0), run(90.0)]),
        Row("ddp", 2, [run(160.0), run(150.0), run(170.0)]),
        Row("fsdp", 2, problem="refused"),
    ]
    return Outcome("train.py", "cpu", "2.13.0", rows, ["a note"], 30, 5, 3)


def test_speed_up_and_efficiency_are_of_medians() -> None:
    found = outcome()
    assert [found.speedup(row) for row in found.rows] == [1.0, 1.6, None]
    assert "1.60" in as_text(found) and "80%" in as_text(found)
    assert "160 (150 to 170)" in as_text(found)


def test_markdown_has_as_many_cells_in_each_row() -> None:
    lines = [line for line in as_markdown(outcome()).splitlines() if line.startswith("|")]
    assert len(lines) == 5
    assert {line.count("|") for line in lines} == {12}
    assert "| fsdp | 2 | refused |" in as_markdown(outcome())


def test_json_holds_every_run() -> None:
    found = as_json(outcome())
    assert [len(row["runs"]) for row in found["rows"]] == [3, 3, 0]
    assert found["rows"][2]["problem"] == "refused"


def test_the_page_needs_no_network_and_draws_what_ran() -> None:
    text = page.page(outcome())
    assert "<svg" in text and "http" not in text.replace("http://www.w3.org", "")
    nothing = outcome()
    nothing.rows = nothing.rows[:1]
    assert "there is nothing to draw" in page.page(nothing)
