"""The judge of DDP-Bench passes what experts wrote, and finds what is made wrong in it."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import ROOT, SECONDS

from benchmarks.ddp_bench.judge import CRASH, EQUAL, HANG, REFUSAL, REFUSED, WARNING, WRONG
from benchmarks.ddp_bench.judge.comparing import texts_agree, values_differ
from benchmarks.ddp_bench.tasks import Fault, Task, tasks

JUDGING = """
import json, sys, tempfile
from pathlib import Path
from benchmarks.ddp_bench.judge import Judge
project, command, by_rows, candidates = json.loads(sys.argv[1])
judge = Judge(Path(project), command, Path(tempfile.mkdtemp(dir=Path(candidates[0]).parent)), 10, by_rows)
print(json.dumps([(found.verdict, found.reasons) for found in (judge.judge(Path(each), [2]) for each in candidates)]))
"""
"""In a process of its own: ranks are forked, which one that has trained must not do."""
SOLVED = {task.name: task for task in tasks() if task.solution.is_dir()}
FIRST = "digits_cnn"


def candidate(task: Task, old: str = "", new: str = "") -> Path:
    """The solution of an expert, with an edit."""
    folder = Path(tempfile.mkdtemp(dir=_scratch()))
    shutil.copytree(task.project, folder, dirs_exist_ok=True)
    shutil.copytree(task.solution, folder, dirs_exist_ok=True)
    changed = [path for path in task.solution.rglob("*.py") if old in path.read_text()]
    assert changed, old
    if old:
        script = folder / changed[0].relative_to(task.solution)
        script.write_text(script.read_text().replace(old, new))
    return folder


@functools.cache
def _scratch() -> str:
    return tempfile.mkdtemp(prefix="ddp_bench_tests_")


@pytest.fixture(scope="module", autouse=True)
def _clean() -> Iterator[None]:
    yield
    shutil.rmtree(_scratch(), ignore_errors=True)


def verdicts(task: Task, candidates: list[Path]) -> list[tuple[str, list[str]]]:
    """What the judge says of some candidates, on 2 ranks."""
    asked = json.dumps([str(task.project), task.command, task.by_rows, [str(each) for each in candidates]])
    done = subprocess.run(
        [sys.executable, "-c", JUDGING, asked],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return [(verdict, reasons) for verdict, reasons in json.loads(done.stdout)]


FEW = 4
CASES = [
    pytest.param(FIRST, SOLVED[FIRST].faults[:FEW], id=FIRST),
    pytest.param(FIRST, SOLVED[FIRST].faults[FEW:], id=f"{FIRST} further", marks=pytest.mark.slow),
    *(pytest.param(name, SOLVED[name].faults, id=name, marks=pytest.mark.slow) for name in SOLVED if name != FIRST),
]


@pytest.mark.parametrize(("name", "edits"), CASES)
def test_right_ones_are_equal_and_wrong_ones_are_not(name: str, edits: tuple[Fault, ...]) -> None:
    task = SOLVED[name]
    assert edits
    edited = [candidate(task, fault.old, fault.new) for fault in edits]
    right, *wrong = verdicts(task, [candidate(task), *edited, task.project])
    assert right == (EQUAL, [])
    missed = [fault.what for fault, (verdict, _) in zip(edits, wrong, strict=False) if verdict != WRONG]
    assert not missed
    assert wrong[-1][0] == WRONG, "every rank does everything"


def test_crashes_hangs_and_refusals_are_told_apart() -> None:
    task = SOLVED[FIRST]
    start = "    rank, world = setup()\n"
    crashing = candidate(task, start, f"{start}    assert rank == 0, 'no data'\n")
    hanging = candidate(
        task, start, f"{start}    if rank: dist.barrier()\n    if not rank: __import__('time').sleep(99)\n"
    )
    alone = candidate(task)
    original = (task.project / "train.py").read_text()
    first_alone = "    if os.environ.get('RANK', '0') != '0': return\n    args = "
    (alone / "train.py").write_text(original.replace("    args = ", first_alone))
    refused, warned = candidate(task), candidate(task, "lr=args.lr)", "lr=1)")
    (refused / REFUSAL).write_text("cannot be done")
    (warned / WARNING).write_text("mind the learning rate")
    found = verdicts(task, [crashing, hanging, alone, refused, warned])
    assert [verdict for verdict, _ in found] == [CRASH, HANG, WRONG, REFUSED, REFUSED]
    assert "no data" in found[0][1][0]
    assert any("not shared" in reason for reason in found[2][1]), "rank 0 does all of the work"
    assert "mind the learning rate" in found[4][1][0]


@pytest.mark.parametrize(
    ("left", "right", "agree"),
    [
        ("loss 0.1234", "loss 0.1235", True),
        ("loss 0.1234", "loss 0.1236", False),
        ("epoch 3", "epoch 4", False),
        ("Accuracy: 11/100", "Accuracy: 12/100", False),
        ("loss nan", "loss nan", True),
        ("loss 1.0", "val 1.0", False),
        ("It 5.474e+01", "It 5.475e+01", True),
        ("It 5.474e+01", "It 5.574e+01", False),
        ("0.123456789012", "0.123456789512", True),
    ],
)
def test_printed_lines(left: str, right: str, agree: bool) -> None:
    assert texts_agree(left, right) is agree


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (torch.zeros(2), torch.zeros(3)),
        (torch.zeros(2), torch.zeros(2).double()),
        (torch.zeros(2), torch.full((2,), 1e-3)),
        (torch.arange(3), torch.arange(3) + 1),
        ([1, 2], [1]),
        (0.5, 0.51),
        (3, 4),
        (torch.nn.Linear(2, 2), torch.nn.Linear(2, 3)),
    ],
)
def test_values_of_checkpoints(left: object, right: object) -> None:
    assert not list(values_differ(left, left, "x"))
    assert list(values_differ(left, right, "x"))
