"""What a verification concludes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from autodist.verify.coverage import Coverage, joined


class Outcome(str, Enum):
    """From best to worst."""

    EQUAL = "equal"
    EQUAL_UNTIL = "equal until a step"
    DIFFERS = "differs"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True)
class Finding:
    """One observation. ``kind`` is its stable name, ``rule`` the family of rules that explains or mends it."""

    kind: str
    message: str
    site: str | None = None
    step: int | None = None
    rule: str | None = None
    hint: str | None = None
    ratio: float | None = None
    """The conversion's quantity in units of the original's, where it is a plain multiple."""

    def __str__(self) -> str:
        where = "" if not self.site or self.site == "?" else f" ({self.site})"
        why = "" if self.rule is None else f" [{self.rule}: {self.hint}]"
        return f"{self.kind}: {self.message}{where}{why}"


@dataclass(frozen=True)
class Cause:
    """The mistake that most likely explains all findings together."""

    name: str
    rule: str
    """The family of rules that prevents it, such as ``AD2``."""
    hint: str
    site: str | None = None

    def __str__(self) -> str:
        where = "" if not self.site or self.site == "?" else f" ({self.site})"
        return f"{self.name} [{self.rule}]: {self.hint}{where}"


@dataclass(frozen=True)
class Deviation:
    """How far the conversion was from the original at one optimizer step, relative."""

    step: int
    loss: float
    gradient: float
    parameters: float
    original_loss: float
    converted_loss: float
    optimizer: int = 0


@dataclass(frozen=True)
class Tolerance:
    """What still counts as equal."""

    loss: float
    gradient: float
    parameters: float
    printed: float
    small_gradient: float
    """A tensor's gradient is measured against at least this share of all: some are zero but for rounding."""
    small_parameter: float
    """The same for its value: optimizers that normalise turn rounding into steps of full length."""
    growth: float
    """Rounding may grow from step to step to so much before programs are no longer called equal."""
    sensitivity: float
    """Parameters that are apart by rounding may put losses and gradients apart by so many times more."""


@dataclass(frozen=True)
class WorldVerdict:
    """The comparison at one number of ranks."""

    nproc: int
    dtype: str
    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()
    cause: Cause | None = None
    device: str = "CPU"
    """Where the processes computed."""
    step: int | None = None
    """The first step that differs."""
    steps: int = 0
    """Steps that were compared."""
    tolerance: Tolerance | None = None
    deviations: tuple[Deviation, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    """What reports draw: samples per rank, files per rank."""
    coverage: Coverage | None = None
    """What of the changed code its runs went through; None where none came to an end."""

    @property
    def equal(self) -> bool:
        return self.outcome is Outcome.EQUAL

    def margin(self, quantity: str) -> float | None:
        """How many times the largest deviation fits into what is tolerated; None where nothing deviates."""
        largest = self.largest(quantity)
        if self.tolerance is None or not largest or not math.isfinite(largest):
            return None
        return float(getattr(self.tolerance, quantity)) / largest

    def largest(self, quantity: str) -> float:
        """The largest deviation of ``loss``, ``gradient`` or ``parameters`` over all steps."""
        return max((float(getattr(each, quantity)) for each in self.deviations), default=0.0)


@dataclass(frozen=True)
class Verdict:
    """The comparisons at every number of ranks that was asked for."""

    before: str
    after: str
    worlds: tuple[WorldVerdict, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst of all comparisons; nothing compared is not comparable, never equal."""
        order = list(Outcome)
        return max((world.outcome for world in self.worlds), key=order.index, default=Outcome.NOT_COMPARABLE)

    @property
    def equal(self) -> bool:
        return self.outcome is Outcome.EQUAL

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Everything that speaks against equality."""
        return tuple(finding for world in self.worlds for finding in world.findings)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What a reader should know although it speaks not against equality."""
        return tuple(note for world in self.worlds for note in world.notes)

    @property
    def coverage(self) -> Coverage | None:
        """What of the changed code the runs went through that were found equal, at any number of ranks."""
        return joined(*(world.coverage for world in self.worlds if world.equal))

    @property
    def cause(self) -> Cause | None:
        """The likeliest mistake, from the first comparison that has one."""
        return next((world.cause for world in self.worlds if world.cause is not None), None)

    @property
    def exit_code(self) -> int:
        """0 only for equal."""
        return 0 if self.equal else 1
