"""The trace: what one process did, one JSON event a line, in the order it happened.

Events hold numbers and text only, never tensors: a parameter is kept as its norm and three projections on fixed random
directions, which is enough to tell two tensors apart and to say how far apart they are. So traces stay small over
thousands of steps, survive a crash up to the last line, and are compared without importing torch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

Digest = list[float]
"""Norm and three projections of one tensor."""
OWN = "a generator"
"""Source of a draw that is made from a generator of the script's own, which is alike on all ranks where its draws can
be put together."""
PassKey = tuple[int, int]
"""Which loader, and the how-manieth iteration over it."""

Seed = tuple[int, int, int]
"""How often the state of the generator was read and drawn from in that place before, and the seed that is set there."""


class TraceWriter:
    """Appends events to the trace of this process."""

    def __init__(self, path: Path, root: str, outer: str | None = None) -> None:
        self._file: IO[str] = open(path, "w", encoding="utf-8")  # noqa: SIM115
        self._encode = json.JSONEncoder(default=str, check_circular=False).encode
        self._root = root
        self._outer = outer or root
        self.diverted: list[str] | None = None
        """Where the kinds of events go instead of the file, while the probes are tried."""

    def emit(self, kind: str, **fields: Any) -> None:
        """Write one event; what JSON does not know is written as text."""
        if self.diverted is not None:
            self.diverted.append(kind)
        else:
            self._file.write(self._encode({"kind": kind, **fields}) + "\n")

    def flush(self) -> None:
        """Make every event so far survive the death of this process."""
        self._file.flush()

    def site(self) -> str:
        """The innermost line of the user's own code, as ``train.py:42``."""
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(self._root):
                return f"{name[len(self._root) :].lstrip('/')}:{frame.f_lineno}"
            if name.startswith(self._outer):
                return f"{os.path.relpath(name, self._root)}:{frame.f_lineno}"
            frame = frame.f_back  # type: ignore[assignment]
        return "?"

    def sites(self) -> list[str]:
        """The lines of the user's own code that are at work, the innermost first."""
        found, frame = [], sys._getframe(1)
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(self._root):
                found.append(f"{name[len(self._root) :].lstrip('/')}:{frame.f_lineno}")
            frame = frame.f_back  # type: ignore[assignment]
        return found

    def called_from(self, package: str) -> bool:
        """Whether the user's code has called ``package``, which came to call this."""
        frame = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith((self._root, self._outer)):
            if frame.f_globals.get("__name__", "").startswith(package):
                return True
            frame = frame.f_back  # type: ignore[assignment]
        return False

    def in_library(self, skip: tuple[str, ...]) -> bool:
        """Whether a library's code runs now, rather than the user's; frames of the modules ``skip`` do not count."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_globals.get("__name__", "").partition(".")[0] not in skip:
                return not frame.f_code.co_filename.startswith((self._root, self._outer))
            frame = frame.f_back  # type: ignore[assignment]
        return False


@dataclass
class Loader:
    """One DataLoader, in order of creation."""

    number: int
    dataset: str
    samples: int | None
    batch_size: int | None
    sampler: str
    shuffled: bool
    drop_last: bool
    length: int | None
    site: str


@dataclass
class Call:
    """A call of an outermost module with gradients on."""

    learned: bool = False
    """A backward pass came to it."""


@dataclass
class Pass:
    """One iteration over a loader."""

    loader: int
    number: int
    site: str
    batches: list[list[Any]] = field(default_factory=list)
    """The samples that were read, batch by batch."""
    natural: list[list[Any]] = field(default_factory=list)
    """What the original would have read without steering."""
    steered: bool = False
    trains: bool = False
    viewed: bool = False
    """Whether it went through a model before another loader was asked for the batch of a step."""
    evaluated: bool = False
    """A model that is in evaluation saw a batch of it. What it has left when it is broken off trains nothing."""
    calls: list[Call] = field(default_factory=list)
    """What models made of its batches with gradients on."""
    exhausted: bool = False
    left: dict[str, str] = field(default_factory=dict)
    """The states of the script's own generators when it had come to its end."""
    stream: str | None = None
    """The state of the global generators, where the sampler draws from them."""
    noise: dict[str, str] | None = None
    """The states of the generators, from which steps draw their noise, and samples theirs."""
    sources: set[str] = field(default_factory=set)
    """Those that are drawn from for each rank's own samples."""
    drawn_from: set[str] = field(default_factory=set)
    """The libraries that are drawn from while it goes on, for whatever."""
    singles: dict[str, dict[str, str]] = field(default_factory=dict)
    """By library the lines that draw one number for a whole batch, and its functions, unless one rank's is sent."""
    part: bool = False
    """Its batches are listed: whole ones, those of a rank behind those of the rank before."""

    @property
    def key(self) -> PassKey:
        return self.loader, self.number

    @property
    def samples(self) -> list[Any]:
        """Everything read, in order."""
        return [sample for batch in self.batches for sample in batch]

    @property
    def natural_samples(self) -> list[Any]:
        """Everything the original reads on its own, in order."""
        return [sample for batch in self.natural for sample in batch]


@dataclass
class Group:
    """The parameters of one optimizer group before and after a step."""

    settings: dict[str, float]
    gradients: list[Digest | None]
    parameters: list[Digest | None]


@dataclass
class Forward:
    """The first tensor that an outermost module call was given, and that is not all the same number."""

    module: str
    shape: list[int]
    digest: Digest | None
    call: Call | None = None
    """What became of it; None where its output has no gradients."""

    @property
    def learned(self) -> bool:
        """Something is learned from it, as far as is known."""
        return self.call is None or self.call.learned


@dataclass
class Step:
    """One call of ``optimizer.step()`` with everything that led to it."""

    optimizer: int
    site: str
    groups: list[Group]
    losses: list[float]
    backward_sites: list[str]
    batches: list[tuple[int, int, int]]
    forwards: list[Forward]
    wrapped_calls: list[bool]
    """Calls through a wrapper, each with whether it reduces gradients; ``no_sync`` does not."""
    initial: list[list[Digest | None]] | None
    """Parameters before the first step of this optimizer."""
    unwrapped: int
    """Trained parameters that no wrapper reduces."""


@dataclass
class Write:
    """A change to the file system."""

    action: str
    path: str
    site: str
    step: int
    talked: int = 0
    """How often the ranks had talked to each other before: what happened earlier on all of them has happened."""


@dataclass
class Save:
    """What ``torch.save`` was given, flattened."""

    path: str
    site: str
    step: int
    content: dict[str, Any]


@dataclass
class Draw:
    """One call of a random function whose shape may follow the batch."""

    seed: str
    function: str
    shape: list[int]
    site: str
    distinct: bool
    """This rank drew its own numbers, taking the tensor for a part of the batch."""
    source: str = ""
    """The library that draws, or that a generator of the script's own does."""
    state: str | None = None
    """Of the library's generator, where no loader is in use and the draw may be a part of a step."""
    order: list[float] = field(default_factory=list)
    """Sums that tell in which order the samples lie that it drew for, where these are known."""
    learning: bool = True
    """Gradients were on, and no model in evaluation was at work: it may be a part of a step."""
    position: int | None = None
    """How many draws of its library's this is, of a row of numbers that may be those of samples."""
    bound: int | None = None
    """Below which number it draws, where that is a number of rows."""


@dataclass
class End:
    """How the script ended; absent when the process was killed."""

    code: int
    error: str | None
    message: str
    site: str
    traceback: str
    stopped: bool = False
    """Ended by us after the requested number of steps."""
    time: float = 0.0


@dataclass
class RunTrace:
    """Everything one process did."""

    name: str
    started: dict[str, Any] = field(default_factory=dict)
    loaders: list[Loader] = field(default_factory=list)
    passes: dict[PassKey, Pass] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    reads: list[Write] = field(default_factory=list)
    """Of files that the run has written, or may have."""
    saves: list[Save] = field(default_factory=list)
    contents: dict[str, Save] = field(default_factory=dict)
    """What files held at the end that the script has written otherwise."""
    draws: list[Draw] = field(default_factory=list)
    seeds: dict[str, dict[int, list[Seed]]] = field(default_factory=dict)
    """By library the seeds that the script set itself ahead of its first step, by how often it had drawn before."""
    wraps: list[dict[str, Any]] = field(default_factory=list)
    weights: list[tuple[int, str, str]] = field(default_factory=list)
    """Of samplers that draw by them: how many, what is in them, and where they are given."""
    distributions: list[dict[str, Any]] = field(default_factory=list)
    """Of what is drawn from one row of weights: the number of outcomes, moments of their weights, and the line."""
    logs: list[str] = field(default_factory=list)
    """Messages that the script logs to the terminal."""
    notes: list[dict[str, Any]] = field(default_factory=list)
    noise: dict[str, str] = field(default_factory=dict)
    """What steps draw for a rank's own samples where no loader is in use, by line, with the state it is drawn from."""
    collectives: list[tuple[str, str]] = field(default_factory=list)
    """Name and line of each collective that the script calls itself."""
    unheard: list[str] | None = None
    """Probes that missed what was done before them at the end of the run; None where they were not tried."""
    end: End | None = None


def events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a trace; a last line cut short by a kill is dropped."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def read_trace(path: Path) -> RunTrace:
    """Put the events of one process back together."""
    run = RunTrace(path.stem)
    if not path.exists():
        return run
    losses: list[float] = []
    backward_sites: list[str] = []
    batches: list[tuple[int, int, int]] = []
    forwards: list[Forward] = []
    wrapped_calls: list[bool] = []
    recent: dict[PassKey, Pass] = {}
    computed: set[PassKey] = set()
    evaluated: set[PassKey] = set()
    latest: PassKey | None = None
    drawn: dict[str, str] = {}
    calls: dict[int, Call] = {}
    fresh: dict[PassKey, Pass] = {}
    looked_at = False
    for event in events(path):
        kind = event.pop("kind")
        if kind == "start":
            run.started = event
        elif kind == "loader":
            loader = Loader(**event)
            earlier = [at for at, each in enumerate(run.loaders) if each.number == loader.number]
            at = earlier[0] if earlier else len(run.loaders)
            run.loaders[at : at + 1] = [loader]
        elif kind == "length":
            run.loaders[event["loader"]].length = event["length"]
        elif kind == "pass":
            entry = Pass(**event)
            run.passes[entry.key] = entry
        elif kind == "batch":
            entry = run.passes[event["loader"], event["number"]]
            batches.append((*entry.key, len(entry.batches)))
            entry.batches.append(event["samples"])
            entry.natural.append(event.get("natural", event["samples"]))
            entry.steered = entry.steered or event.get("steered", False)
            for other in recent.values():
                other.viewed = other.viewed or other.key in computed and other.loader != entry.loader
            if entry.trains or not entry.evaluated:
                recent[entry.key] = entry
            latest = entry.key
            fresh = {entry.key: entry} if looked_at else {**fresh, entry.key: entry}
            looked_at = False
        elif kind == "sampler-draws":
            run.passes[event["loader"], event["number"]].stream = event["stream"]
        elif kind == "pass-noise":
            entry = run.passes[event["loader"], event["number"]]
            entry.noise = {**(entry.noise or {}), **event["noise"]}
        elif kind == "exhausted":
            entry = run.passes[event["loader"], event["number"]]
            entry.exhausted, entry.left = True, event["left"]
            recent.pop(entry.key, None)
        elif kind == "trained-on":
            entry = run.passes[event["loader"], event["number"]]
            entry.trains, entry.noise = True, None  # its steps draw their noise when it has come to its end
        elif kind == "backward":
            losses.append(event["loss"])
            backward_sites.append(event["site"])
            for entry in recent.values():
                entry.trains = True
        elif kind == "evaluation" and latest is not None:
            recent.pop(latest, None)
            run.passes[latest].evaluated = True
            evaluated.add(latest)
        elif kind == "abandoned":
            if (event["loader"], event["number"]) in evaluated:  # with a batch that was read, and looked at no more
                recent.pop((event["loader"], event["number"]), None)
        elif kind == "forward":
            forwards.append(Forward(**event))
            computed |= recent.keys()
            if not recent and latest is not None and not run.passes[latest].exhausted:
                recent[latest] = run.passes[latest]  # a teacher has seen the batch before
        elif kind == "call":
            call = calls[event["number"]] = Call()
            looked_at = True
            for entry in fresh.values():
                entry.calls.append(call)
            if forwards and forwards[-1].call is None:
                forwards[-1].call = call
        elif kind == "learned":
            calls[event["number"]].learned = True
        elif kind == "wrapped-call":
            wrapped_calls.append(event["reduces"])
        elif kind == "step":
            groups = [Group(**group) for group in event["groups"]]
            run.steps.append(
                Step(
                    event["optimizer"],
                    event["site"],
                    groups,
                    losses,
                    backward_sites,
                    batches,
                    forwards,
                    wrapped_calls,
                    event.get("initial"),
                    event.get("unwrapped", 0),
                )
            )
            run.noise |= {site: state for site, state in drawn.items() if site not in run.noise}
            drawn = {}
            losses, backward_sites, batches, forwards, wrapped_calls, recent = [], [], [], [], [], {}
            computed = set()
        elif kind == "write":
            run.writes.append(Write(**event))
            follow_rename(run)
        elif kind == "read":
            run.reads.append(Write(**event))
        elif kind == "save":
            run.saves.append(Save(**event))
        elif kind == "content":
            run.contents[event["path"]] = Save(step=0, **event)
        elif kind == "sample-noise":
            run.passes[event["loader"], event["number"]].sources.update(f"samples by {x}" for x in event["libraries"])
        elif kind == "draw":
            draw = Draw(**event)
            run.draws.append(draw)
            library = "numpy" if draw.function.startswith("numpy") else "python"
            library = library if draw.function.startswith(("numpy", "random.")) else "torch"
            if latest is not None and not run.passes[latest].exhausted and draw.source != OWN:
                run.passes[latest].drawn_from.add(library)
            if draw.distinct and draw.state is not None:
                drawn[draw.site] = draw.state
            elif draw.distinct and latest is not None:
                run.passes[latest].sources.add(draw.source)
            elif draw.shape in ([], [1]) and latest is not None:
                run.passes[latest].singles.setdefault(library, {}).setdefault(draw.site, draw.function)
        elif kind == "distribution":
            run.distributions.append(event)
        elif kind == "weights":
            run.weights.append((event["count"], event["content"], event["site"]))
        elif kind == "seed":
            seeds = run.seeds.setdefault(event["library"], {})
            if event["drawn"] or not seeds:  # the first seed may be what draws the next one
                seeds.setdefault(event["drawn"], []).append(tuple(event["seed"]))
        elif kind == "wrap":
            run.wraps.append(event)
        elif kind == "note":
            run.notes.append(event)
        elif kind == "log":
            run.logs.append(event["message"])
        elif kind == "collective":
            run.collectives.append((event["name"], event["site"]))
            for sites in run.passes[latest].singles.values() if latest is not None else ():
                for site in event["lines"]:
                    sites.pop(site, None)
        elif kind == "exercise":
            run.unheard = event["unheard"]
        elif kind == "end":
            run.end = End(**event)
    forget_looks(run)
    forget_previews(run)
    return run


def follow_rename(run: RunTrace) -> None:
    """What was saved beside its place, and has been put there, was saved there."""
    before, last = run.writes[-2:] if len(run.writes) > 1 else (None, run.writes[-1])
    if before is None or (before.action, last.action) != ("rename", "open"):
        return
    if run.saves and run.saves[-1].path == before.path:
        run.saves[-1].path = last.path


def forget_looks(run: RunTrace) -> None:
    """A pass of whose batches models make something, and nothing is learned from any of it, is an evaluation that has
    gradients on."""
    for entry in run.passes.values():
        if entry.calls and not any(call.learned for call in entry.calls):
            entry.trains = False


def forget_previews(run: RunTrace) -> None:
    """A batch that is looked at before training starts, or between steps, trains nothing, although a step follows."""
    trained = [entry for entry in run.passes.values() if entry.trains]
    if len(run.steps) < 2 or not any(len(entry.batches) > 1 for entry in trained):
        return
    for entry in trained:
        others = [other for other in trained if other.loader == entry.loader and other is not entry]
        single = all(len(each.batches) == 1 and not each.exhausted for each in (entry, *others))
        if single and (not others or all(each.viewed for each in (entry, *others))):
            entry.trains = False
