"""What is installed in the user's process to watch and steer it. Imports the standard library and torch only."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch

from autodist.verify.plan import ProcessPlan
from autodist.verify.probes.held_batches import HeldBatches
from autodist.verify.probes.streams import RandomStreams
from autodist.verify.replay import Replay
from autodist.verify.trace import PassKey, TraceWriter


@dataclass
class ProbeContext:
    """What the probes of one process share."""

    plan: ProcessPlan
    trace: TraceWriter
    streams: RandomStreams
    replay: Replay | None = None
    inside_sample: bool = False
    """A dataset is computing one sample: draws are keyed by that sample and need no further care."""
    inside_worker: bool = False
    """It does so as a worker of a loader would: what it seeds is not the script's."""
    seeded_in_sample: set[str] = field(default_factory=set)
    """The libraries that a dataset has seeded for the sample at hand."""
    seeded_by_samples: set[str] = field(default_factory=set)
    """Those whose streams go on from the last sample of the rank, which is no other rank's: no worker seeded them."""
    batch_rows: dict[int, int] = field(default_factory=dict)
    """Samples in the last batch of each loader that is in use."""
    pieces: dict[int, list[list[int]]] = field(default_factory=dict)
    """For each part of the samples in the last batch of each loader, the rows that it has in each of them."""
    held: dict[PassKey, HeldBatches] = field(default_factory=dict)
    """Passes that have come to their end while the script keeps their batches."""
    forward_rows: list[int] = field(default_factory=list)
    """How many samples a training model was given last, where no loader made the batch; all numbers that may be it."""
    sliced_rows: list[int] = field(default_factory=list)
    """How many samples of a batch that every rank has read a rank gave its model."""
    indexed_rows: list[int] = field(default_factory=list)
    """How many samples numbers were drawn for since the last step: of a rank, its share."""
    single: tuple[weakref.ref[torch.Tensor], str] | None = None
    """The last draw of one number, and its line: it may be sent to all ranks."""
    optimizers: int = 0
    steps: int = 0
    collectives: int = 0
    """How often the script itself has talked to the other ranks."""
    loaders: int = 0
    wrapped: set[int] = field(default_factory=set)
    """Identities of parameters whose gradients a wrapper reduces."""
    evaluating: bool = False
    """A model that is in evaluation is at work."""
    apart: bool = False
    """An evaluation goes on for which every rank draws its own noise."""
    left_apart: bool = False
    """It has left its loader, and may go on with the batch that it had: `next(iter(loader))`."""
    _trained_on: set[PassKey] = field(default_factory=set)
    _thread: threading.local = field(default_factory=threading.local)

    @property
    def probing(self) -> bool:
        """A probe is at work in this thread; its own random draws and file accesses are not the script's."""
        return getattr(self._thread, "probing", False)

    @probing.setter
    def probing(self, value: bool) -> None:
        self._thread.probing = value

    def fetched(self, loader: int, count: int, pieces: list[list[int]] | None = None) -> None:
        """A loader has given a batch of ``count`` samples, made of ``pieces`` that may be joined."""
        self.left(loader)
        self.sliced_rows = []
        self.batch_rows[loader] = count
        self.pieces[loader] = pieces or []

    def indexed(self, count: int) -> None:
        """A batch is drawn by hand, as numbers of its samples, which the ranks deal out unless each draws its own: the
        first ones of a step. Data and labels are drawn ahead of the first optimizer."""
        if not self.optimizers or self.indexed_rows:
            return
        world = self.plan.world if self.distributed else 1
        self.indexed_rows = list(dict.fromkeys([count // world, count])) if count % world == 0 else [count]

    def left(self, loader: int) -> None:
        """A loader has given its last batch."""
        self.batch_rows.pop(loader, None)
        self.pieces.pop(loader, None)

    def rows(self) -> list[int]:
        """Sizes that a batch has at this moment, the latest first."""
        if self.batch_rows:
            return [*self.sliced_rows, *reversed(self.batch_rows.values())]
        held = [size for batches in self.held.values() if batches.alive for size in batches.sizes]
        return list(dict.fromkeys(held)) or list(dict.fromkeys((*self.indexed_rows, *self.forward_rows)))

    def given(self, values: Any) -> list[PassKey]:
        """Passes that have come to their end and have a batch among ``values``, each of them the first time."""
        fresh = [key for key, batches in self.held.items() if key not in self._trained_on and batches.has(values)]
        self._trained_on.update(fresh)
        return fresh

    def learning(self) -> bool:
        """Whether what happens may be a part of a step: also where a script evaluates with gradients on."""
        return torch.is_grad_enabled() and not self.evaluating

    def draws_apart(self) -> bool:
        """Whether what is drawn belongs to an evaluation for which every rank draws its own noise."""
        return self.apart and not (self.left_apart and self.learning())

    @property
    def distributed(self) -> bool:
        """One of several ranks, rather than an original in one process."""
        return self.plan.role != "original"
