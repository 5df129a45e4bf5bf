"""What a conversion yields, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass

from autodist.rule import Diagnostic, Severity
from autodist.source import Source

TRAINS_NOTHING = "AD901"


@dataclass(frozen=True)
class Converted:
    """One file of the project, before and after."""

    source: Source
    before: str
    after: str

    @property
    def changed(self) -> bool:
        """Whether the file must be written."""
        return self.before != self.after


@dataclass(frozen=True)
class Result:
    """Every file of the project, the entry first, and what the rules say. A refusal changes no file."""

    files: tuple[Converted, ...]
    diagnostics: tuple[Diagnostic, ...]

    @property
    def entry(self) -> Converted:
        """The training script."""
        return self.files[0]

    @property
    def changed(self) -> tuple[Converted, ...]:
        """The files that differ from what they were."""
        return tuple(file for file in self.files if file.changed)

    @property
    def trains_nothing(self) -> bool:
        """Whether there is nothing to distribute."""
        return any(diagnostic.code == TRAINS_NOTHING for diagnostic in self.diagnostics)

    @property
    def refused(self) -> bool:
        """Whether the script cannot be converted."""
        return any(diagnostic.severity is Severity.REFUSAL for diagnostic in self.diagnostics)

    @property
    def needs_person(self) -> bool:
        """Whether something is left that a person must look at."""
        return any(diagnostic.severity is not Severity.NOTE for diagnostic in self.diagnostics)
