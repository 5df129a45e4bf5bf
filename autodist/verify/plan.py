"""What one process of a run is told before it starts. Read inside the user's process: standard library only."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from autodist.verify.trace import PassKey

Role = Literal["original", "conversion", "peer"]
"""A peer is one rank of an original that is distributed itself."""
Dtype = Literal["float64", "float32"]
Place: TypeAlias = tuple[int, int, int, int]
"""Of an expression: its first line and column, and those where it ends."""
Device = Literal["cpu", "cuda"]
TEMPORARY = "/tmp"
"""How the folder of temporary files, another one in each run, is named to a person."""
OUTPUT_MARK = b"\x02autodist\x03\n"
"""Stands at the beginning and at the end of what a process prints."""


@dataclass(frozen=True)
class ProcessPlan:
    """One process: which script, as what, where, and under which steering."""

    role: Role
    rank: int
    world: int
    script: str
    args: tuple[str, ...]
    root: str
    """The scratch copy of the working folder; files written below it belong to the run."""
    outer: str
    """The folder around ``root`` that stands for those above the working folder: ``../data`` is found there."""
    cwd: str
    """Where the script starts, somewhere below ``root``."""
    records: str
    """Folder for the trace, the stacks and the captured output, outside ``root``."""
    dtype: Dtype = "float64"
    device: Device = "cpu"
    steps: int | None = None
    seed: int = 20240229
    replay: str | None = None
    """What the ranks read, for the original to read again; see ``replay.py``."""
    shared_draws: tuple[str, ...] = ()
    """Draws that look as if they followed the batch, and do not: all ranks draw the same numbers there."""
    held: dict[str, list[int]] = field(default_factory=dict)
    """Draws that are held still, by function and line, with the dimensions along which programs may lie otherwise."""
    apart: tuple[PassKey, ...] = ()
    """Evaluations that each rank makes of the same samples, and draws noise of its own for, as its generators are."""
    alone: tuple[str, ...] | None = None
    """Draws of single numbers that each rank makes for itself, as it does without the probes, and goes by its own
    clock; None where all ranks have the same ones."""
    shared_gpu: bool = False
    """Several ranks compute on one GPU, which NCCL refuses: they speak over gloo."""
    global_batchnorm: bool = False
    """The conversion asks for SyncBatchNorm somewhere, which torch has on accelerators only."""
    outside: str = ""
    """Takes what is written to absolute paths elsewhere; empty where paths are left alone."""
    home: str = ""
    """The working folder itself, to which absolute paths may lead."""
    private: tuple[str, ...] = ()
    """Beginnings of paths of caches and libraries: what is written there is not compared."""
    temporary: str = ""
    """The folder of temporary files."""
    env: dict[str, str] = field(default_factory=dict)
    node: tuple[str, ...] = ()
    """Where it runs, if this machine is divided into nodes: the network namespace, its host name, its hosts file."""
    bare: bool = False
    """Without probes, but for those that keep the user's files as they are: does it fail by itself?"""
    divided: int = 0
    """For a run that is measured, without other probes: by how much its batches are divided; 0 for all other runs."""
    preempt: int | None = None
    """The step in which the last rank gets SIGTERM."""
    first: tuple[int, tuple[tuple[int, int, int], ...]] = (0, ())
    """Of a run that goes on: the steps before, and for each loader how many whole passes and batches there were."""
    module: str | None = None
    """The name by which `python -m` starts the script, where it is not started by its path."""

    changed: dict[str, list[int]] = field(default_factory=dict)
    """The changed lines of the conversion's files, by path, after the number of the first mark in each."""
    map: str = ""
    """The file that all ranks share, with a byte for each mark."""

    observing: tuple[str, bool, bool, dict[str, list[Place]]] | None = None
    """For `observe`: the folder of the gradients of the whole run, whether it follows them, with weights moved, and by
    file which expressions are recorded."""

    @property
    def name(self) -> str:
        """The stem of every file this process leaves in ``records``."""
        names = {"original": "original", "peer": f"original{self.rank}", "conversion": f"rank{self.rank}"}
        return names[self.role]

    def record(self, suffix: str) -> Path:
        """A file of this process in ``records``, such as its trace."""
        return Path(self.records) / f"{self.name}.{suffix}"

    def to_json(self) -> str:
        """One line that ``from_json`` reads in the other process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ProcessPlan:
        """The plan that the launching process wrote."""
        fields = json.loads(text)
        fields["args"] = tuple(fields["args"])
        fields["shared_draws"] = tuple(fields["shared_draws"])
        fields["apart"] = tuple((loader, number) for loader, number in fields["apart"])
        fields["alone"] = None if fields["alone"] is None else tuple(fields["alone"])
        fields["first"] = (fields["first"][0], tuple(map(tuple, fields["first"][1])))
        if fields["observing"] is not None:
            *told, places = fields["observing"]
            fields["observing"] = (*told, {name: [tuple(each) for each in of] for name, of in places.items()})
        fields["private"], fields["node"] = tuple(fields["private"]), tuple(fields["node"])
        return cls(**fields)
