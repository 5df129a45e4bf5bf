"""Right conversions that ``autodist verify`` must call equal: how often it does.

    python -m benchmarks.verify_false_alarms [--nproc 2,3,4] [--dtype float64,float32] [--runs 10] [NAME...]

Takes the pairs of ``fixtures/faults/pairs``, and every ``fixtures/<case>`` that has a golden and expects to be equal.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autodist.verify import verify
from benchmarks.verify_faults import FAULTS, shared_zygote

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = FAULTS.parent


@dataclass(frozen=True)
class Case:
    """One original and its right conversion."""

    name: str
    before: Path
    after: Path
    args: tuple[str, ...] = ()
    nproc: tuple[int, ...] = (2, 4)


def cases() -> Iterator[Case]:
    """All of them."""
    for pair in sorted((FAULTS / "pairs").iterdir()):
        yield Case(pair.name, pair / "before.py", pair / "after.py")
    for path in sorted(FIXTURES.glob("*/fixture.toml")):
        fixture = tomllib.loads(path.read_text(encoding="utf-8"))
        before, after = (path.parent / folder / fixture["entry"] for folder in ("before", "ddp"))
        if fixture.get("expect") == "equal" and after.exists():
            yield Case(path.parent.name, before, after, tuple(fixture.get("args", ())), tuple(fixture["nproc"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all cases, print one line each and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases whose name contains one of these")
    parser.add_argument("--nproc", help="numbers of ranks, by default those of each fixture")
    parser.add_argument("--dtype", default="float64,float32")
    parser.add_argument("--runs", type=int, default=1)
    options = parser.parse_args(arguments)
    nproc = [int(count) for count in options.nproc.split(",")] if options.nproc else None
    chosen = [case for case in cases() if not options.names or any(name in case.name for name in options.names)]
    runs = alarms = 0
    started = time.monotonic()
    with shared_zygote() as zygote:
        for case in chosen:
            for dtype in options.dtype.split(","):
                for _ in range(options.runs):
                    verdict = verify(
                        case.before,
                        case.after,
                        nproc or case.nproc,
                        case.args,
                        dtype=dtype,
                        workdir=case.before.parent,
                        timeout=300,
                        zygote=zygote,
                    )
                    runs += len(verdict.worlds)
                    false = [world for world in verdict.worlds if not world.equal]
                    alarms += len(false)
                    largest = max((world.largest("gradient") for world in verdict.worlds), default=0.0)
                    state = "equal" if not false else f"{false[0].nproc} ranks: {false[0].reason[:150]}"
                    print(f"{case.name:32} {dtype} gradient {largest:.0e} {state}", flush=True)
    print(f"{alarms} false alarms in {runs} comparisons, in {time.monotonic() - started:.0f} s")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
