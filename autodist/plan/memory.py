"""What one rank holds, by strategy.

    replicated (ddp)      parameters + gradients + buckets of them + optimizer state + activations
    zero                  the same with 1/N of the optimizer state
    sharded (fsdp, hsdp)  1/N, or one part per device of a node, of parameters, gradients and optimizer state; the
                          pieces of the model that are in use, whole, and their gradients; activations

Gradients and activations are not added up, since the ones grow while the others are freed: their sum at its highest
moment is measured. Activations are those of the rank's share of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from autodist.plan.devices import GIB, Device
from autodist.plan.measured import Measured, Size

STRATEGIES = ("ddp", "zero", "fsdp", "hsdp")
ERROR = 0.10
"""How far a plan may be off: `make plan-validation` compares it with what is given out."""
RESERVED = 1.5 * GIB
"""What CUDA, its libraries and NCCL take for themselves: some hundred MiB each, and more with more ranks."""


FITS = ("yes", "unknown", "tight", "doubtful")
"""Answers to whether it fits, the best first; `no` is not among them."""


@dataclass(frozen=True)
class Need:
    """Bytes on one rank."""

    held: float
    """Parameters, optimizer state and buffers; where activations are not known, all that is known."""
    training: float | None
    """Gradients, activations, and what is made whole of shards, at their highest; None where they are not known."""

    @property
    def total(self) -> float:
        """All of it, as far as it is known."""
        return self.held + (self.training or 0.0)

    def fits(self, device: Device) -> str:
        """`yes`, `tight` where an error of the plan would decide, `no`; where activations are not known, `unknown`, or
        `doubtful` if less than half of the device is left for them."""
        if self.total + RESERVED > device.memory:
            return "no"
        if self.training is None:
            return "unknown" if self.total <= device.memory / 2 else "doubtful"
        return "yes" if self.total * (1 + ERROR) + RESERVED <= device.memory else "tight"


def need(known: Measured, strategy: str, ranks: int, per_node: int, samples: float, checkpointing: bool) -> Need:
    """What a rank with so many samples of each step holds."""
    sharded, whole, gradients = 1, 0.0, 0.0
    if ranks > 1 and strategy in ("ddp", "zero"):
        gradients = known.gradients  # the buckets in which they are reduced
    elif ranks > 1:
        sharded = ranks if strategy == "fsdp" else min(ranks, per_node)
        whole = known.rest + 2 * known.largest  # the unit at work and the next one, which is gathered meanwhile
        gradients = known.rest + known.largest
    owned = ranks if strategy == "zero" else sharded
    held = known.parameters / sharded + known.state / owned + known.lasting

    def training(size: Size) -> float:
        computing = whole + gradients + size.peak(1 / sharded, checkpointing)
        updating = gradients * (sharded == 1) + size.update(1 / sharded, 1 / owned)
        return max(computing, updating)

    found = known.over_sizes(training, samples)
    certain = whole + gradients + known.gradients / sharded
    return Need(held + certain, None) if found is None else Need(held, found)
