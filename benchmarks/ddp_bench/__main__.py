"""Run DDP-Bench and print its tables in Markdown.

python -m benchmarks.ddp_bench [--runners autodist,identity] [--tasks NAME,NAME] [--results FILE]
python -m benchmarks.ddp_bench --agent "COMMAND" [--with-autodist]     a coding agent, told the task on standard input
python -m benchmarks.ddp_bench --harbor FOLDER                         write all tasks in the format of Harbor
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

from benchmarks.ddp_bench.harbor import export
from benchmarks.ddp_bench.judge import VERDICTS, Judge, Judgement
from benchmarks.ddp_bench.runners import NEEDS, RUNNERS, Runner, agent
from benchmarks.ddp_bench.tasks import Task, tasks

Results = dict[str, dict[str, Judgement]]
"""By task and runner."""


def judged(task: Task, runners: Mapping[str, Runner], seconds: float) -> dict[str, Judgement]:
    """What each runner makes of a task. The original runs once."""
    scratch = Path(tempfile.mkdtemp(prefix="ddp_bench_"))
    try:
        judge = Judge(task.project, task.command, scratch, seconds, task.by_rows)
        found = {}
        for name, runner in runners.items():
            folder = scratch / f"candidate_{name}"
            shutil.copytree(task.project, folder, ignore=shutil.ignore_patterns("__pycache__"))
            begun = time.monotonic()
            if runner(task, folder):
                verdict = judge.judge(folder)
                found[name] = verdict
                spent = time.monotonic() - begun
                said = "; ".join(verdict.reasons[:2])
                print(f"{task.name}, {name}: {verdict.verdict} ({spent:.1f} s) {said}", file=sys.stderr, flush=True)
        return found
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def scores(results: Results, runners: Sequence[str]) -> str:
    """How often each runner came to which verdict."""
    lines = [f"| runner | tasks | {' | '.join(VERDICTS)} | seconds |", f"|---|{'---|' * (len(VERDICTS) + 2)}"]
    for runner in runners:
        found = [verdicts[runner] for verdicts in results.values() if runner in verdicts]
        counts = Counter(each.verdict for each in found)
        cells = " | ".join(str(counts[verdict]) for verdict in VERDICTS)
        lines.append(f"| {runner} | {len(found)} | {cells} | {sum(each.seconds for each in found):.0f} |")
    return "\n".join(lines)


def by_task(results: Results, runners: Sequence[str]) -> str:
    """Each verdict, task by task."""
    lines = [f"| task | {' | '.join(runners)} |", f"|---|{'---|' * len(runners)}"]
    for task, verdicts in results.items():
        cells = (verdicts[runner].verdict if runner in verdicts else "-" for runner in runners)
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runners", default=",".join(RUNNERS))
    parser.add_argument("--tasks", default="")
    parser.add_argument("--seconds", type=float, default=60, help="how long one run may take")
    parser.add_argument("--results", type=Path, help="a JSON file for all verdicts with their reasons")
    parser.add_argument("--agent", help="the command of a coding agent, instead of the runners")
    parser.add_argument("--with-autodist", action="store_true", help="tell the agent that autodist is there")
    parser.add_argument("--harbor", type=Path, help="write the tasks into this folder, and run nothing")
    asked = parser.parse_args()
    sys.dont_write_bytecode = True
    names = tuple(filter(None, asked.tasks.split(",")))
    unknown = {*names} - {task.name for task in tasks()} or {*asked.runners.split(",")} - {*RUNNERS}
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    if asked.agent and not shutil.which(shlex.split(asked.agent)[0]):
        parser.error(f"there is no command {asked.agent.split()[0]}")
    if asked.harbor:
        print(f"{export(tasks(names), asked.harbor)} tasks are in {asked.harbor}")
        return 0
    if asked.agent:
        runners = {"agent": agent(asked.agent, asked.with_autodist)}
    else:
        runners = {name: RUNNERS[name] for name in asked.runners.split(",")}
        for name in [name for name in runners if name in NEEDS and find_spec(NEEDS[name]) is None]:
            print(f"{name} is left out: {NEEDS[name]} is not installed", file=sys.stderr)
            del runners[name]
    results = {task.name: judged(task, runners, asked.seconds) for task in tasks(names)}
    if asked.results:
        plain = {task: {name: asdict(each) for name, each in found.items()} for task, found in results.items()}
        asked.results.write_text(json.dumps(plain, indent=1))
    print(f"{scores(results, [*runners])}\n\n{by_task(results, [*runners])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
