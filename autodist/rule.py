"""What a rule is, and what it may say."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from inspect import cleandoc
from typing import TYPE_CHECKING

from autodist.config import AVAILABLE, Config
from autodist.config import REPLICATED as REPLICATED
from autodist.config import SHARDED as SHARDED
from autodist.config import Strategy as Strategy
from autodist.edits import Edit
from autodist.imports import Importer
from autodist.source import Source

if TYPE_CHECKING:
    from autodist.script import TrainingScript


class Applicability(str, Enum):
    """How far a fix can be trusted: applied, applied with a warning, or only shown."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    DISPLAY = "display"


class Severity(str, Enum):
    """What a diagnostic asks of the reader. Notes ask nothing; warnings and refusals need a person."""

    NOTE = "note"
    WARNING = "warning"
    REFUSAL = "refusal"


@dataclass(frozen=True)
class Fix:
    """Edits, each with its file, that land together or not at all."""

    edits: tuple[tuple[Source, Edit], ...]
    applicability: Applicability = Applicability.SAFE


@dataclass(frozen=True)
class Finding:
    """One reason to change the script, or to tell a person to. ``node`` says where in ``source``. What is only
    ``beside`` others is left out where nothing else changes the script."""

    source: Source
    node: ast.AST
    message: str
    fix: Fix | None = None
    severity: Severity = Severity.NOTE
    beside: bool = False


@dataclass(frozen=True)
class Diagnostic:
    """A finding with the code of the rule that made it. ``line`` and ``column`` (in bytes of UTF-8) count from 1, as
    the end does, which is the first place after it; of a block, its first line."""

    code: str
    rule: str
    source: Source
    line: int
    column: int
    message: str
    fix: Fix | None
    severity: Severity
    beside: bool = False
    end_line: int = 1
    end_column: int = 1


@dataclass(frozen=True)
class Example:
    """A documented, tested pair of scripts.

    ``after=None`` means that the rule must stay silent, ``after=before`` that it reports and changes nothing.
    """

    before: str
    after: str | None
    options: Mapping[str, object] = field(default_factory=dict)
    """Those of the conversion, by their names in `Config`."""


@dataclass(frozen=True)
class Context:
    """What a rule may ask for while it plans: the options, and names that are imported where they are missing."""

    config: Config
    _importers: dict[Source, Importer] = field(default_factory=dict)

    def imports(self, source: Source) -> Importer:
        """The importer of ``source``; asking twice gives equal edits, which merge."""
        return self._importers.setdefault(source, Importer(source))


Check = Callable[["TrainingScript", Context], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """A decision about training scripts: its code, and the function that makes it."""

    code: str
    strategies: frozenset[Strategy]
    check: Check
    of_ranks: bool = False
    """Whether it is about ranks that part in scripts which distribute themselves. These are converted no further:
    `convert` asks it only where it is selected."""
    on_request: bool = False
    """Whether it runs only where `--select` names it: what it says is true, and seldom matters."""

    @property
    def name(self) -> str:
        """The rule's name, as in ``save-on-rank-zero``."""
        return self.check.__name__.replace("_", "-")

    @property
    def docs(self) -> str:
        """What ``autodist rule CODE`` prints."""
        return cleandoc(self.check.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first line of the documentation."""
        return self.docs.partition("\n")[0]


def rule(code: str, *strategies: Strategy, of_ranks: bool = False, on_request: bool = False) -> Callable[[Check], Rule]:
    """Declare the decorated function as the rule ``code``, for ``strategies`` (all if none is named)."""
    return lambda check: Rule(code, frozenset(strategies or AVAILABLE), check, of_ranks, on_request)


def raised(script: TrainingScript, code: str) -> Iterator[Finding]:
    """What the analysis has to say under a code."""
    for each in script.concerns:
        if each.code == code:
            yield Finding(each.source, each.node, each.message, severity=each.severity)
