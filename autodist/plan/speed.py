"""How long a step takes on N devices.

    T(N) = max(compute(b/N) * (1 + straggling) + communication that is paid for, input)

Communication is what NCCL itself reckons with to choose its algorithms (src/graph/tuning.cc): a ring or a tree, in one
of three protocols, whichever is the fastest. Its constants are published there, and none of them is fitted. Two numbers
are: how far the steps of devices scatter, and how much of the communication that runs beside the backward pass is paid
for all the same. `make plan-validation` fits them to one half of the published tables, and tries them on the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from autodist.plan.devices import Device

BASE = {"ring": (6.6, 14.0, 8.4), "tree": (6.8, 14.0, 8.4)}
"""Microseconds to start with, in the protocols LL, LL128 and Simple."""
LINK = {"ring": (0.6, 1.9, 3.4), "tree": (0.6, 1.25, 4.0)}
"""Microseconds of one hop within a node."""
NET = {"ring": (2.7, 4.0, 14.0), "tree": (5.0, 8.5, 14.0)}
"""Microseconds of one hop between nodes."""
POST = (1.0, 1.0, 3.0)
"""Microseconds to hand something to the network."""
BUCKET = 25 * 2**20
"""DistributedDataParallel reduces gradients in pieces of 25 MiB."""

SCATTER = 0.045
"""Fitted: the standard deviation of a step's time, as a share of it. A step lasts as long as the slowest rank's."""
PAID = 1.0
"""Fitted: the share of hidden communication that is paid for, as its kernels and the backward pass slow each other."""
RANGE = (0.93, 1.15)
"""Measured over predicted time of a step: nine of ten rows of all tables lie in it, the fitted and the held-out."""
BACKWARD = 2 / 3
"""The share of the backward pass in a step, where it was not measured."""


def all_reduce(size: float, ranks: int, nodes: int, device: Device) -> float:
    """Seconds until all ranks have the sum of ``size`` bytes."""
    if ranks < 2:
        return 0.0
    ring = _ring(size, ranks, nodes, device, 2)
    return min(ring, _tree(size, ranks, nodes, device))


def gather(size: float, ranks: int, nodes: int, device: Device) -> float:
    """Seconds until all ranks have the ``size`` bytes of which each has a share, or a share of their sums."""
    return _ring(size, ranks, nodes, device, 1) if ranks > 1 else 0.0


def _ring(size: float, ranks: int, nodes: int, device: Device, rounds: int) -> float:
    steps, between = rounds * (ranks - 1), rounds * (nodes - 1)
    bus = device.within if nodes == 1 else device.between
    buses = (min(bus / 2, device.low_latency * 1e9), 0.92 * bus, bus)
    times = []
    for protocol, speed in enumerate(buses):
        hop = max(LINK["ring"][protocol], POST[protocol] if nodes > 1 else 0.0)
        latency = BASE["ring"][protocol] + (steps - between) * hop + between * NET["ring"][protocol]
        times.append(latency * 1e-6 + size * steps / ranks / speed)
    return min(times)


def _tree(size: float, ranks: int, nodes: int, device: Device) -> float:
    bus = 0.92 * (device.within if nodes == 1 else device.between)
    buses = (min(bus / 3.8, device.low_latency * 1e9), bus * (7 / 9 if nodes == 1 else 120 / 128), bus)
    times = []
    for protocol, speed in enumerate(buses):
        hops = (ranks / nodes - 1) * LINK["tree"][protocol] + math.log2(nodes) * NET["tree"][protocol]
        times.append((BASE["tree"][protocol] + 2 * hops) * 1e-6 + 2 * size / speed)
    return min(times)


@dataclass(frozen=True)
class Model:
    """What ranks send each other of a model, in bytes."""

    parameters: float
    gradients: float
    units: int = 1
    """In how many pieces it is sharded."""


@dataclass(frozen=True)
class Traffic:
    """The communication of one step, in seconds."""

    total: float
    last: float = 0.0
    """What begins when there is nothing left to compute."""
    beside: float = 0.0
    """The share of the computation beside which the rest can run."""

    def exposed(self, compute: float) -> float:
        """What computing a step so long does not hide."""
        return min(self.total, max(self.last, self.total - self.beside * compute))

    def paid(self, compute: float, share: float = PAID) -> float:
        """What it adds to the step: what is exposed, and a share of what is hidden."""
        exposed = self.exposed(compute)
        return exposed + share * (self.total - exposed)


def traffic(strategy: str, model: Model, ranks: int, device: Device, backward: float = BACKWARD) -> Traffic:
    """What the ranks send each other in a step."""
    if ranks < 2:
        return Traffic(0.0)
    nodes = device.nodes(ranks)
    if strategy in ("ddp", "zero"):
        pieces = max(1, math.ceil(model.gradients / BUCKET))
        one = all_reduce(model.gradients / pieces, ranks, nodes, device)
        # with sharded optimizer state each rank sends round the parameters it has updated, when all is computed
        updated = gather(model.parameters, ranks, nodes, device) if strategy == "zero" else 0.0
        return Traffic(pieces * one + updated, one + updated, backward)
    group = min(ranks, device.per_node) if strategy == "hsdp" else ranks
    spanned = device.nodes(group)
    gathered = gather(model.parameters / model.units, group, spanned, device)
    scattered = gather(model.gradients / model.units, group, spanned, device)
    copies = ranks // group
    if (
        copies > 1
    ):  # the shards of each node are reduced over the nodes: each device of a node uses its part of the network
        scattered += all_reduce(model.gradients / model.units, copies, copies, device)
    total = model.units * (2 * gathered + scattered)
    return Traffic(total, gathered + scattered, 1.0)


@dataclass(frozen=True)
class Input:
    """How fast samples come."""

    rate: float
    """Samples per second of one process."""
    workers: int
    cores: int
    """Of one node."""

    def seconds(self, samples: float, ranks: int, per_node: int) -> float:
        """How long the ranks, each with its own loader, take to read the samples of a step."""
        local = min(ranks, per_node)
        together = self.rate * min(local, max(1.0, self.cores / max(1, self.workers)))
        return samples / (together * ranks / local)


@dataclass(frozen=True)
class Compute:
    """Seconds of a step at batches of several sizes on one device."""

    points: Sequence[tuple[float, float]]
    """Samples, and seconds: with the smallest batch first."""

    def at(self, samples: float) -> tuple[float, float, float]:
        """The least, the most likely and the most that a step with so many samples takes."""
        small, fast = self.points[0]
        if samples < small:
            least = fast * samples / small
            if len(self.points) == 1:
                return least, least, fast
            above, slower = self.points[1]
            straight = fast - (slower - fast) / (above - small) * (small - samples)
            return least, min(fast, max(least, straight)), fast
        for (left, low), (right, high) in pairwise(self.points):
            if samples <= right:
                found = low + (high - low) * (samples - left) / (right - left)
                return found, found, found
        large, slow = self.points[-1]
        return (slow * samples / large,) * 3

    @property
    def is_curve(self) -> bool:
        """Whether it was measured at more than one size."""
        return len(self.points) > 1


@dataclass(frozen=True)
class Step:
    """One step on N ranks, in seconds."""

    compute: float
    """With what the ranks wait for the slowest of them."""
    communication: float
    """What of it is paid for."""
    input: float
    """What of the time for loading samples makes it longer."""
    total: float
    low: float
    high: float

    @property
    def limit(self) -> str:
        """What makes a step as long as it is."""
        parts = {"compute": self.compute, "communication": self.communication, "input": self.input}
        return max(parts, key=lambda name: parts[name])


def straggling(ranks: int, passes: int = 1, scatter: float = SCATTER) -> float:
    """How much later than the mean the slowest of the ranks is, as a share of a step of so many passes."""
    return scatter * math.sqrt(2 * math.log(ranks) / passes) if ranks > 1 else 0.0


def step(
    compute: tuple[float, float, float], sent: Traffic, ranks: int, loading: float, beside: bool, passes: int = 1
) -> Step:
    """A step of which the parts are known. ``beside`` says that workers load while the device computes."""
    least, likely, most = compute
    share = 1 + straggling(ranks, passes)

    def total(seconds: float, paid: float) -> float:
        busy = seconds * share + paid
        return max(busy, loading) if beside else busy + loading

    paid = sent.paid(likely / passes)  # gradients are reduced in the last of the passes that accumulate them
    found = total(likely, paid)
    low, high = RANGE if ranks > 1 else (1.0, 1.0)
    fastest = min(total(least, sent.exposed(least / passes)), low * total(least, sent.paid(least / passes)))
    slowest = high * total(most, sent.paid(most / passes))
    waits = loading if not beside or loading >= found else 0.0
    return Step(likely * share, paid, waits, found, fastest, slowest)
