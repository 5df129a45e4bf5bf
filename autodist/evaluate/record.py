"""What became of one script."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any


class Status(str, Enum):
    """From best to worst."""

    EQUAL = "verified equal"
    STATIC = "converted, cannot run here"
    WARNED = "converted with named warnings"
    REFUSED = "refused with a reason"
    WRONG = "wrong or crashed"


@dataclass(frozen=True)
class Remark:
    """One diagnostic of the conversion."""

    code: str
    rule: str
    severity: str
    message: str
    path: str
    line: int


@dataclass(frozen=True)
class Comparison:
    """What ``verify`` concluded."""

    outcome: str
    reason: str
    findings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    steps: int = 0
    gradient: float = 0.0
    """The largest relative deviation of a gradient."""
    original_fails: bool = False
    unfinished: bool = False
    """Both programs agreed as far as they came in the time they had."""
    rounded: bool = False
    """They agreed until rounding had grown so far, from step to step, that nothing more can be said."""


@dataclass(frozen=True)
class Record:
    """One line of the results."""

    name: str
    status: Status
    reason: str
    digest: str = ""
    """Of everything that the outcome follows from; while it is the same, nothing needs to run again."""
    idioms: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()
    comparison: Comparison | None = None
    added: int = 0
    removed: int = 0
    files: int = 0
    """Files that the conversion changes."""
    seconds: float = 0.0
    expected: bool = True
    """Whether it is what the manifest expects: a conversion, or a refusal."""
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def warnings(self) -> tuple[Remark, ...]:
        """What a person must look at although the script was converted."""
        return tuple(remark for remark in self.remarks if remark.severity == "warning")

    def to_json(self) -> dict[str, Any]:
        """What ``from_json`` reads."""
        return {**asdict(self), "status": self.status.value}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Record:
        """The record that ``to_json`` wrote."""
        comparison = content["comparison"]
        if comparison is not None:
            comparison = Comparison(
                **{**comparison, "findings": tuple(comparison["findings"]), "notes": tuple(comparison["notes"])}
            )
        return cls(
            **{
                **content,
                "status": Status(content["status"]),
                "idioms": tuple(content["idioms"]),
                "remarks": tuple(Remark(**remark) for remark in content["remarks"]),
                "comparison": comparison,
            }
        )
