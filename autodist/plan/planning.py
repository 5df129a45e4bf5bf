"""From what is known of a training to what N devices make of it: what fits, how fast it is, and which to take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from autodist.plan.devices import Device
from autodist.plan.measured import Measured
from autodist.plan.memory import FITS, STRATEGIES, Need, need
from autodist.plan.speed import Step, Traffic, step, straggling, traffic

WORTH = 0.75
"""Each of several devices has to do so much of what one alone does: below it the same training costs a third more."""


@dataclass(frozen=True)
class Option:
    """One way to train on N devices."""

    strategy: str
    checkpointing: bool
    need: Need
    fits: str
    sent: Traffic
    step: Step | None = None
    """None where it is not known how long the device computes."""

    @property
    def name(self) -> str:
        """As a person says it."""
        return f"{self.strategy} with activation checkpointing" if self.checkpointing else self.strategy


@dataclass(frozen=True)
class Row:
    """So many devices."""

    ranks: int
    samples: float
    """Of each rank in an optimizer step; 0 where they are not known."""
    options: tuple[Option, ...]
    problem: str = ""
    """Why the converted script does not run on so many."""
    speedup: tuple[float, float, float] | None = None
    """How many times as fast as one device, with its least and its most; of the best option."""

    @property
    def best(self) -> Option | None:
        """The fastest option that fits; of those that are alike, or of unknown speed, the simplest."""
        for verdict in FITS:
            fitting = [option for option in self.options if option.fits == verdict]
            if fitting and not self.problem:
                return min(fitting, key=_cost)
        return None

    @property
    def efficiency(self) -> float | None:
        """What each device does of what one alone does."""
        return None if self.speedup is None else self.speedup[1] / self.ranks

    @property
    def pays_from(self) -> float | None:
        """Seconds that a rank has to compute in each step, at the least, for its devices to be worth it."""
        room = 1 - WORTH * (1 + straggling(self.ranks))
        return None if self.best is None or self.ranks == 1 else WORTH * self.best.sent.paid(0.0) / room


@dataclass(frozen=True)
class Outcome:
    """The whole plan."""

    known: Measured
    device: Device
    rows: tuple[Row, ...]
    timed: bool
    """Whether the steps were timed on this device."""
    one: float | None = None
    """Seconds of a step on one device, which may not have the memory for it."""
    unknown: tuple[str, ...] = field(default=())
    """What is not known, and how to find out."""

    @property
    def chosen(self) -> Row | None:
        """The most devices that are worth it; the fewest that hold the training, where no speed is known."""
        verdicts = [row.best.fits for row in self.rows if row.best is not None]
        verdict = min(verdicts, key=FITS.index, default="")
        able = [row for row in self.rows if row.best is not None and row.best.fits == verdict]
        worth = [row for row in able if row.efficiency is not None and row.efficiency >= WORTH]
        if any(row.efficiency is not None for row in able):
            return max(worth, key=lambda row: row.ranks) if worth else min(able, key=lambda row: row.ranks)
        return min(able, key=lambda row: row.ranks, default=None)


def plan(known: Measured, device: Device, counts: Sequence[int], *, per_rank: bool, timed: bool) -> Outcome:
    """Everything that can be said. ``per_rank`` keeps the batch of the script on each rank."""
    compute = known.compute if timed else None
    one = None
    if compute is not None:
        one = _step(
            known, device, Option("ddp", False, Need(0, 0), "yes", Traffic(0.0)), 1, known.batch, per_rank
        ).total
    rows = tuple(_row(known, device, ranks, per_rank, timed, one) for ranks in counts)
    return Outcome(known, device, rows, timed, one, tuple(_unknown(known, device, timed, per_rank)))


def _row(known: Measured, device: Device, ranks: int, per_rank: bool, timed: bool, one: float | None) -> Row:
    problem = ""
    if not per_rank and known.batch and known.batch % ranks:
        problem = f"a batch of {known.batch} does not divide by {ranks}: the converted script refuses to run"
    samples = float(known.batch) if per_rank else known.batch / ranks
    options = []
    for strategy in STRATEGIES if ranks > 1 else STRATEGIES[:1]:
        if strategy == "hsdp" and (ranks <= device.per_node or ranks % device.per_node):
            continue  # within one node it is fsdp, and it needs whole nodes
        for checkpointing in (False, True):
            taken = need(known, strategy, ranks, device.per_node, samples, checkpointing)
            sent = traffic(strategy, known.model, ranks, device, known.backward)
            name = strategy if ranks > 1 else "one device"
            option = Option(name, checkpointing, taken, taken.fits(device), sent)
            if timed and known.compute is not None:
                took = _step(known, device, option, ranks, samples, per_rank)
                option = Option(name, checkpointing, taken, option.fits, sent, took)
            options.append(option)
    row = Row(ranks, samples, tuple(options), problem)
    if one is None or row.best is None or row.best.step is None:
        return row
    work, took = ranks if per_rank else 1, row.best.step
    speedup = (work * one / took.high, work * one / took.total, work * one / took.low)
    return Row(ranks, samples, tuple(options), problem, speedup)


def _step(known: Measured, device: Device, option: Option, ranks: int, samples: float, per_rank: bool) -> Step:
    assert known.compute is not None
    # each pass over a block is computed once more; the rest of a step is its backward pass and the optimizer
    more = 1 + (1 - known.backward) * option.checkpointing
    least, likely, most = (more * seconds for seconds in known.compute.at(samples))
    reading = known.reading()
    read = known.batch * (ranks if per_rank else 1)
    loading = reading.seconds(read, ranks, device.per_node) if reading is not None else 0.0
    return step((least, likely, most), option.sent, ranks, loading, beside=known.workers > 0, passes=known.passes)


def _cost(option: Option) -> tuple[float, bool, int]:
    """The less the better: the time of a step; where that is not known, what is held if it is much, and plainness."""
    doubtful = option.need.total if option.fits == "doubtful" else 0.0
    plain = STRATEGIES.index(option.strategy) if option.strategy in STRATEGIES else 0
    return (doubtful if option.step is None else round(option.step.total, 6), option.checkpointing, plain)


def _unknown(known: Measured, device: Device, timed: bool, per_rank: bool) -> list[str]:
    found = []
    measured = sum(bool(size.curve) for size in known.sizes)
    if not measured:
        found.append("activations: the memory above is the least that is needed; --measure -- ARGS measures them")
    elif measured == 1 and not per_rank:
        found.append(
            "activations of smaller batches: those of the whole batch are taken, which is the most they can be"
        )
    if known.sizes and not known.batch:
        found.append("the samples of a step, and so its speed on a share of them; --batch says how many there are")
    elif not timed:
        where = f"was timed on {known.device}, not on {device.name}" if known.compute else "was not timed"
        found.append(
            f"speed: a step {where}; run --measure --save FILE there and give the file to --measurements, or say how "
            "long a step takes there with --step-seconds"
        )
    elif known.compute is not None and not known.compute.is_curve and not per_rank:
        found.append(
            "compute at smaller batches: the time of a step at one size only is known, and taken to shrink with the "
            "batch; the range holds what it is at worst (--step-seconds b,b/2,b/4,b/8)"
        )
    if timed and not known.rate:
        found.append("input: how fast the loader reads is not known, and taken to be fast enough; --measure times it")
    if timed and known.rate:
        found.append(f"input on the nodes in question: the loader was timed on a machine with {known.cores} cores")
    return found
