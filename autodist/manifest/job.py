"""A job to be started: the script, its arguments, where it runs, and what is known of it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autodist.manifest.facts import Facts, Folder, Resume

RESTARTS = 3
PORT = 29500


@dataclass(frozen=True)
class Job:
    """What every engine is told. ``gpu`` is the kind of GPU, if one was named."""

    script: str
    args: tuple[str, ...]
    nodes: int
    gpus: int
    gpu: str | None
    cpus: int
    """For each GPU."""
    facts: Facts
    module: str | None = None
    """The name by which it is started, if it is part of a package."""
    import_path: tuple[str, ...] = ()

    @property
    def target(self) -> tuple[str, ...]:
        """What torchrun starts."""
        return ("-m", self.module) if self.module is not None else (self.script,)

    @property
    def name(self) -> str:
        """The script's, as Kubernetes allows it."""
        stem = self.script.rpartition("/")[2].rpartition(".")[0]
        return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")[:40] or "train"

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.nodes * self.gpus

    @property
    def resumes(self) -> bool:
        """Whether the same command, given again, goes on where the script was."""
        return self.facts.resume.itself

    @property
    def checkpoint(self) -> str | None:
        """The checkpoint that an option asks for, where the script writes it and the first start cannot find it yet."""
        resume = self.facts.resume
        return resume.path if resume.words and resume.written else None

    @property
    def goes_on(self) -> bool:
        """Whether a shell can start the script again, so that it goes on where it was."""
        return self.resumes or self.checkpoint is not None

    def shares(self) -> list[str]:
        """Relative folders below the working folder that are written to, and whose name is known."""
        places = (each.path for each in self.facts.folders if each.known and each.shared)
        return [path for path in places if path != "." and not path.startswith(("/", "..", "~"))]


def notes(job: Job, by_shell: bool = True) -> Iterator[str]:
    """What a person must know: disks, batch sizes that cannot be read, and why nothing is started again. ``by_shell``
    if a shell script looks for the checkpoint first."""
    yield f"{job.script} on {job.nodes} node{'s' * (job.nodes > 1)} with {job.gpus} GPU{'s' * (job.gpus > 1)} each."
    yield from disks(job)
    for batch in job.facts.batches:
        if batch.size is None:
            yield f"{batch.code} (line {batch.line}) must divide by {job.ranks}: its value is not in the script's text."
    resume = job.facts.resume
    if job.checkpoint is not None and not by_shell:
        yield f"The first start finds no {job.checkpoint}: leave {resume.option} out there, and give it later."
    elif job.goes_on:
        yield "Started again, the script goes on from its last checkpoint."
    else:
        yield f"Not started again after a failure: it would begin anew{_why(resume)}."


def _why(resume: Resume) -> str:
    if resume.condition is not None:
        what = f"{resume.option} is not given" if resume.option else f"`{resume.condition}` does not hold"
        return f", as {what}"
    if resume.path is not None:
        return f" from {resume.path}, which it does not write itself"
    if resume.words:
        return f" from what {resume.option} names, for all that can be read"
    return ", as it loads no checkpoint of a training"


def disks(job: Job) -> Iterator[str]:
    """Which folders the nodes must share."""
    shared = [each for each in job.facts.folders if each.shared]
    others = [each for each in job.facts.folders if not each.shared]
    yield "On a disk that all nodes share, at one path: the working folder, with the script and its modules"
    for each in shared:
        if each.path != ".":
            yield f"  {_shown(each)}: written" + ", read by all ranks" * ("read" in each.uses)
    if others:
        yield "On every node, or on that disk:"
    for each in others:
        how = "read by all ranks" if each.uses == {"read"} else "made or downloaded once for each node"
        yield f"  {_shown(each)}: {how}"


def _shown(folder: Folder) -> str:
    last = folder.path.rpartition("/")[2]
    return folder.path + "/" * (folder.known and (last == "." or "." not in last))


def comment(lines: Iterator[str] | Sequence[str]) -> str:
    """As a comment of a shell script or of YAML."""
    return "".join(f"# {line}\n" for line in lines)


def quoted(args: Sequence[str]) -> str:
    """Arguments for a shell, each on the line where it begins."""
    return " ".join(_ansi(each) if "\n" in each else shlex.quote(each) for each in args)


def _ansi(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"$'{escaped}'"


def as_list(words: Sequence[str]) -> str:
    """A list of texts in YAML."""
    return json.dumps(list(words), ensure_ascii=False)
