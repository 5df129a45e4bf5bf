"""Writes tasks in the format of Harbor: task.toml, instruction.md, environment/, tests/ and solution/."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.ddp_bench.tasks import HERE, Task

TASK = """\
schema_version = "1.1"

[task]
name = "ddp-bench/{name}"
description = {about}
keywords = ["pytorch", "distributed", "ddp"]

[metadata]
category = "machine-learning"
difficulty_explanation = {hard}

[verifier]
timeout_sec = 600.0

[agent]
timeout_sec = 1800.0

[environment]
build_timeout_sec = 1200.0
cpus = 4
memory_mb = 8192
storage_mb = 10240
"""
DOCKERFILE = """\
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends git && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir torch==2.13.0 numpy
ENV OMP_NUM_THREADS=1
WORKDIR /app
COPY project/ /app/
"""
TEST = """\
#!/bin/bash
# The judge runs the original in one process and /app on 2 and 4 ranks. Equal is 1, refused 0.25, all else 0.
mkdir -p /logs/verifier
cd /tests
python -m judge /tests/original /app {options}-- {command} > /logs/verifier/judgement.json
verdict=$(python -c "import json; print(json.load(open('/logs/verifier/judgement.json'))['verdict'])" || echo none)
case "$verdict" in equal) reward=1 ;; refused) reward=0.25 ;; *) reward=0 ;; esac
echo "$reward" > /logs/verifier/reward.txt
cat /logs/verifier/judgement.json
"""
SOLVE = """\
#!/bin/bash
cp -r /solution/files/. /app/
"""


def export(chosen: Sequence[Task], folder: Path) -> int:
    """Write a folder for each task; answers how many there are."""
    for task in chosen:
        place = folder / task.name
        about, hard = json.dumps(task.about), json.dumps(task.hard)
        _write(place / "task.toml", TASK.format(name=task.name, about=about, hard=hard))
        _write(place / "instruction.md", task.instruction())
        _write(place / "environment" / "Dockerfile", DOCKERFILE)
        _copy(task.project, place / "environment" / "project")
        options = "" if task.by_rows else "--unordered "
        _write(place / "tests" / "test.sh", TEST.format(options=options, command=" ".join(task.command)))
        _copy(HERE / "judge", place / "tests" / "judge")
        _copy(task.project, place / "tests" / "original")
        if task.solution.is_dir():
            _copy(task.solution, place / "solution" / "files")
            _write(place / "solution" / "solve.sh", SOLVE)
    return len(chosen)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755 if path.suffix == ".sh" else 0o644)


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
