"""What a run has to say, as text, JSON, SARIF, annotations, Markdown or a diff. Each is a function to text."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from autodist.config import Strategy
from autodist.launch import Launch
from autodist.result import Result
from autodist.rule import Diagnostic, Severity


@dataclass(frozen=True)
class Run:
    """One script's result, the files that were written for it, and the commands that launch them."""

    strategy: Strategy
    result: Result
    outputs: tuple[Path, ...] = ()
    launches: tuple[Launch, ...] = ()

    @property
    def entry(self) -> Path:
        """The training script."""
        return self.result.entry.source.path

    @property
    def findings(self) -> tuple[Diagnostic, ...]:
        """The diagnostics that change something or need a person."""
        return tuple(each for each in self.result.diagnostics if each.fix or each.severity is not Severity.NOTE)


def tool_version() -> str:
    """The version of autodist."""
    return version("torch-autodist")


def shown(path: Path) -> str:
    """``path`` as a reader knows it: from the current folder if it is below that, with forward slashes."""
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.as_posix()


def counted(number: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
