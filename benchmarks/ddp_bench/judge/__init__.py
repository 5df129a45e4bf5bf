"""The judge of DDP-Bench: does a project train on several ranks what the original trains in one process?

    python -m judge ORIGINAL CANDIDATE --ranks 2,4 [--unordered] [--seconds 60] -- train.py --epochs 2

A package that needs the standard library and torch alone, and no other folder; it shares no code with `autodist
verify`. It runs both in copies, in float64 and on CPUs (gloo), with one order of samples for all samplers, and compares
what a user sees: files, tensors in checkpoints (keys, shapes, values), what rank 0 prints, and which samples the ranks
trained on together. Prints JSON.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .comparing import differences
from .running import Run, run

EQUAL, REFUSED, WRONG, CRASH, HANG = "equal", "refused", "silently wrong", "crash", "hang"
VERDICTS = (EQUAL, REFUSED, WRONG, CRASH, HANG)
REFUSAL = "REFUSED"
"""A file in the candidate that says why there is no solution."""
WARNING = "WARNED"
"""A file in the candidate that says what in it a person has to look at: a difference is not silent then."""


@dataclass(frozen=True)
class Judgement:
    """The verdict on one candidate, with its reasons for each number of ranks."""

    verdict: str
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0


class Judge:
    """Holds the run of an original, to judge candidates by."""

    def __init__(self, project: Path, command: Sequence[str], scratch: Path, seconds: float, by_rows: bool) -> None:
        self._command, self._scratch, self._seconds, self._by_rows = command, scratch, seconds, by_rows
        self.original = run(project, command, 0, seconds, scratch)
        if self.original.failed:
            raise RuntimeError(f"the original does not run: {self.original.failure}")

    def judge(self, candidate: Path, worlds: Sequence[int] = (2, 4)) -> Judgement:
        """Run a candidate on each number of ranks; the first number that goes wrong ends it."""
        refusal = candidate / REFUSAL
        if refusal.exists():
            return Judgement(REFUSED, (refusal.read_text().strip()[:300],))
        begun = time.monotonic()
        for ranks in worlds:
            found = run(candidate, self._command, ranks, self._seconds, self._scratch)
            try:
                verdict, reasons = self._verdict(found)
            finally:
                shutil.rmtree(found.folder, ignore_errors=True)
            if verdict == WRONG and (warning := candidate / WARNING).exists():
                verdict, reasons = REFUSED, [f"warned: {warning.read_text().splitlines()[0][:300]}", *reasons]
            if verdict != EQUAL:
                spent = time.monotonic() - begun
                return Judgement(verdict, tuple(f"{ranks} ranks: {reason}" for reason in reasons), spent)
        return Judgement(EQUAL, (), time.monotonic() - begun)

    def _verdict(self, found: Run) -> tuple[str, list[str]]:
        if found.hung:
            return HANG, [f"not at its end after {self._seconds:.0f} s"]
        if found.failed:
            return CRASH, [found.failure]
        reasons = list(differences(self.original, found, self._by_rows))
        return (WRONG, reasons[:5]) if reasons else (EQUAL, [])
