"""The tasks of DDP-Bench are complete, and are written in the format of Harbor."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from benchmarks.ddp_bench.harbor import export
from benchmarks.ddp_bench.runners import agent
from benchmarks.ddp_bench.tasks import HERE, Task, tasks

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TASKS = tasks()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_task_is_complete(task: Task) -> None:
    assert task.name == task.folder.name
    assert task.about and task.hard
    module = task.command[1].replace(".", "/") if task.command[0] == "-m" else task.command[0].removesuffix(".py")
    assert any((task.project / name).is_file() for name in (f"{module}.py", f"{module}/__main__.py"))
    for path in task.folder.rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"))
    assert " ".join(task.command) in task.instruction()
    assert "autodist" in task.instruction(with_tools=True) and "autodist" not in task.instruction()
    for path in task.solution.rglob("*.py"):
        assert (task.project / path.relative_to(task.solution)).is_file()


def test_guides_are_of_tasks() -> None:
    names = {task.name for task in TASKS}
    assert {path.name for tool in (HERE / "guides").iterdir() for path in tool.iterdir()} <= names


def test_harbor_has_what_it_asks_for(tmp_path: Path) -> None:
    assert export(TASKS, tmp_path) == len(TASKS)
    for task in TASKS:
        place = tmp_path / task.name
        content = tomllib.loads((place / "task.toml").read_text(encoding="utf-8"))
        assert content["task"]["name"] == f"ddp-bench/{task.name}"
        assert {"verifier", "agent", "environment", "metadata"} <= content.keys()
        for name in ("instruction.md", "environment/Dockerfile", "tests/test.sh", "tests/judge/__main__.py"):
            assert (place / name).is_file(), name
        assert (place / "solution" / "solve.sh").is_file() is task.solution.is_dir()
        assert "original" not in (place / "environment" / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize("with_tools", [False, True])
def test_agents_are_told_the_task_in_its_folder(tmp_path: Path, with_tools: bool) -> None:
    assert agent("tee told.txt", with_tools)(TASKS[0], tmp_path)
    assert (tmp_path / "told.txt").read_text(encoding="utf-8") == TASKS[0].instruction(with_tools)
