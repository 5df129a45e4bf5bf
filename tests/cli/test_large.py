"""Large scripts: runs are not repeated, and one that does not come to its end is refused with what it was spent on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autodist import catalog
from autodist.config import Config
from autodist.convert import convert
from autodist.interpreter import Interpreter, Plan, Runs, Unfinished, machine
from autodist.interpreter.machine import Interrupted
from autodist.project import Project
from autodist.source import told_once
from autodist.trace import machine as trace_machine

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Noise:
    def added(self, x):
        y = x + 0.1
        y = y * 2
        return y


noise = Noise()
data = [noise.added(torch.randn(64, 4)), noise.added(torch.ones(64, 1)), noise.added(torch.ones(3))]
loader = DataLoader(TensorDataset(data[0], data[1]), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def project(folder: Path) -> Project:
    """The script in a folder."""
    (folder / "train.py").write_text(SCRIPT)
    return Project.load(folder / "train.py")


def said(project: Project) -> str:
    """What is said of a script that is refused."""
    result = convert(project, Config())
    assert result.refused
    return "".join(each.message for each in result.diagnostics)


def test_it_is_said_what_a_script_too_large_was_spent_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_STEPS", 50)
    message = said(project(tmp_path))
    assert "Noise.added (train.py, line 7), which was entered 3 times" in message, message


def test_nothing_is_concluded_from_a_later_run_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tick = Interpreter._tick

    def end_early(run: Interpreter) -> None:
        tick(run)
        if run.plan.wraps and run.steps > 50:
            raise Interrupted

    assert not convert(project(tmp_path), Config()).refused
    monkeypatch.setattr(Interpreter, "_tick", end_early)
    assert "too large" in said(project(tmp_path))


def test_nothing_is_concluded_from_a_program_without_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_machine, "MOST_STEPS", 10)
    assert "too large" in said(project(tmp_path))


def test_the_run_of_one_plan_is_made_once(tmp_path: Path) -> None:
    runs = Runs(project(tmp_path), catalog.load())
    first = runs(Plan())
    assert runs(Plan()) is first and runs(Plan(sharded=frozenset())) is not first


def test_a_run_without_an_end_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MAX_STEPS", 10)
    with pytest.raises(Unfinished):
        Runs(project(tmp_path), catalog.load())(Plan())


def test_what_code_tells_is_asked_once_of_each_node() -> None:
    asked: list[ast.AST] = []

    @told_once
    def size(node: ast.AST) -> int:
        asked.append(node)
        return len([*ast.walk(node)])

    tree, other = ast.parse("a + b"), ast.parse("a")
    assert [size(tree), size(tree), size(other)] == [8, 8, 4] and asked == [tree, other]
    assert ast.dump(tree) == ast.dump(ast.parse("a + b"))
