"""The tasks, and what is said to whoever solves them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
INSTRUCTION = """\
The project in this folder trains on one device:

    python {command}

{about}

Change it so that it trains on several ranks by `torchrun --nproc_per_node N {command}`, with DistributedDataParallel
or what else you find right. On 2 and on 4 ranks (CPUs, gloo) it has to be the same training:

- Each step takes the same samples as before, divided among the ranks: the batch size of the script is that of all ranks
  together. No sample is seen twice or left out, and each rank does its share of the work.
- After training, the same files exist, with the same names, keys, shapes and numbers (compared in float64, up to
  rounding), written by one rank.
- Rank 0 prints the same lines with the same numbers, for the whole batch and the whole validation set; the others print
  nothing to standard output.
- Where a loader or one of torch's samplers draws, the judge gives both versions one order; tell a DistributedSampler of
  its epoch.
- BatchNorm takes the statistics of the whole batch: use SyncBatchNorm, which the judge lets run on CPUs.
- It may need torchrun from now on; file names and the command stay as they are.

If there is no right way, write the reason into a file named REFUSED, and change nothing. If you hand in what somebody
has to look at first, write what and where into a file named WARNED. A wrong result without one is worse than a refusal.
"""
TOOLS = """
`autodist` is installed: `autodist convert`, `autodist verify` and `autodist mcp`. Its result is a proposal; you answer
for what you hand in.
"""


@dataclass(frozen=True)
class Fault:
    """An edit that spoils a solution: the judge has to find it."""

    what: str
    old: str
    new: str


@dataclass(frozen=True)
class Task:
    """One project with the command that trains it."""

    name: str
    about: str
    command: tuple[str, ...]
    by_rows: bool
    """Whether samples can be told apart by what goes into the model; only their amount is compared otherwise."""
    hard: str
    folder: Path
    faults: tuple[Fault, ...] = ()
    """Where there is a solution, what would be wrong in it."""

    @property
    def project(self) -> Path:
        """The original."""
        return self.folder / "project"

    @property
    def solution(self) -> Path:
        """The files that an expert changed; there is one for some of the tasks."""
        return self.folder / "solution"

    def instruction(self, with_tools: bool = False) -> str:
        """What is asked."""
        text = INSTRUCTION.format(command=" ".join(self.command), about=self.about)
        return text + TOOLS if with_tools else text


def tasks(names: tuple[str, ...] = ()) -> list[Task]:
    """All tasks, or those of these names."""
    found = []
    for path in sorted((HERE / "tasks").glob("*/task.toml")):
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        task = Task(
            content["name"],
            content["about"],
            tuple(content["command"]),
            content["samples"] == "rows",
            content["hard"],
            path.parent,
            tuple(Fault(**fault) for fault in content.get("faults", ())),
        )
        if not names or task.name in names:
            found.append(task)
    return found
