"""Scripts put together at random from common idioms: is each conversion equal to its original, or refused?

    python -m benchmarks.combinations [--first 0] [--count 100] [--nproc 2] [--strategy ddp] [--keep FOLDER]
    python -m benchmarks.combinations --show 17

Rules that hold for each idiom alone can fail for two together. A number stands for one script, now and later, as long
as the parts stay the same. A conversion that differs and was not announced is wrong, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.result import Result
from autodist.rule import Severity
from autodist.verify import Outcome, verify
from autodist.verify.launch import Zygote
from benchmarks.combinations.compose import script
from benchmarks.verify_faults import shared_zygote


@dataclass(frozen=True)
class Tried:
    """What became of one script."""

    number: int
    outcome: str
    reason: str

    @property
    def wrong(self) -> bool:
        return self.outcome == "wrong"


def tried(number: int, strategy: str, nproc: int, folder: Path, zygote: Zygote | None) -> Tried:
    """Convert the script with this number in ``folder``, and compare."""
    before, after = folder / "before", folder / "after"
    before.mkdir(parents=True, exist_ok=True)
    after.mkdir(exist_ok=True)
    (before / "train.py").write_text(script(number), encoding="utf-8")
    result = convert(Project.load(before / "train.py"), Config(strategy=Strategy(strategy)))
    if result.refused:
        return Tried(number, "refused", _said(result, Severity.REFUSAL))
    (after / "train.py").write_text(result.entry.after, encoding="utf-8")
    verdict = verify(before / "train.py", after / "train.py", [nproc], workdir=before, timeout=120, zygote=zygote)
    (world,) = verdict.worlds
    if world.outcome is Outcome.EQUAL:
        return Tried(number, "equal", "")
    warned = _said(result, Severity.WARNING)
    reason = " | ".join(map(str, (world.reason, *world.findings)))
    if warned:
        return Tried(number, "warned", f"{warned} | {reason}")
    return Tried(number, "wrong", f"{world.outcome.value}: {reason}")


def _said(result: Result, severity: Severity) -> str:
    return "; ".join(f"{d.code} line {d.line}: {d.message}" for d in result.diagnostics if d.severity is severity)


def main(arguments: Sequence[str] | None = None) -> int:
    """One line for each script that is not equal, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--keep", type=Path, help="keep the scripts and conversions in this folder")
    parser.add_argument("--show", type=int, help="print one script, and do nothing else")
    options = parser.parse_args(arguments)
    if options.show is not None:
        print(script(options.show), end="")
        return 0
    counts: Counter[str] = Counter()
    with shared_zygote() as zygote, tempfile.TemporaryDirectory(prefix="autodist-combinations-") as scratch:
        for number in range(options.first, options.first + options.count):
            folder = (options.keep or Path(scratch)) / str(number)
            one = tried(number, options.strategy, options.nproc, folder, zygote)
            counts[one.outcome] += 1
            if one.reason:
                print(f"{number}: {one.outcome}: {one.reason[:600]}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
