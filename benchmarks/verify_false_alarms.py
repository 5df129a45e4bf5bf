"""Right conversions that ``autodist verify`` must call equal: how often it does.

    python -m benchmarks.verify_false_alarms [--nproc 2,4] [--dtype float64,float32] [--runs 10] [--results FILE] [NAME]

Takes the pairs of ``fixtures/faults/pairs``, and every golden of ``fixtures`` that expects to be equal. All of it takes
hours, so each comparison is appended to the results file as it ends, and what stands there already, from the same code
and scripts, is not run again: call it again after an interruption, and it goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import autodist
from autodist.verify import Outcome, verify
from autodist.verify.launch import Zygote
from autodist.verify.plan import Dtype
from benchmarks.verify_faults import FAULTS, shared_zygote

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = FAULTS.parent
STAND_INS = FIXTURES.parent / "tests" / "stand_ins"
"""Libraries that some originals need, in small."""
IN_SMALL = frozenset(path.name for path in STAND_INS.iterdir())
STRATEGIES = ("ddp", "fsdp", "zero", "hsdp")
DTYPES: tuple[Dtype, ...] = ("float64", "float32")
PRESENTATION = ("__main__.py", "charts.py", "command.py", "page.py", "progress.py")
"""Modules of the verifier that have no part in a verdict."""
INDIVISIBLE = "the batch must divide by the number of ranks"
"""What a conversion says when it cannot run at a number of ranks; that is no verdict of ours."""
STARTS_ITS_OWN = re.compile(r"the original starts \d+ processes: compare on as many")
"""What verify says of an original that is distributed already, over a number of processes of its own."""


@dataclass(frozen=True)
class Case:
    """One original and its right conversion."""

    name: str
    before: Path
    after: Path
    args: tuple[str, ...] = ()
    nodes: int = 1
    unequal: frozenset[int] = frozenset()
    """Numbers of ranks at which the conversion is known to differ, rightly."""

    @property
    def fingerprint(self) -> str:
        """Changes with the scripts."""
        return digest([*self.before.parent.rglob("*.py"), *self.after.parent.rglob("*.py")])


@dataclass(frozen=True)
class Comparison:
    """One line of the results."""

    code: str
    """Fingerprint of the verifier."""
    scripts: str
    """Fingerprint of the pair."""
    case: str
    nproc: int
    dtype: str
    run: int
    outcome: str
    reason: str = ""
    loss: float = 0.0
    gradient: float = 0.0

    @property
    def alarm(self) -> bool:
        """Anything but equal, unless the script itself does not run on so many ranks."""
        return self.outcome != Outcome.EQUAL.value and not self.left_out

    @property
    def left_out(self) -> bool:
        """Whether this number of ranks is none that the two can be compared on."""
        return INDIVISIBLE in self.reason or STARTS_ITS_OWN.search(self.reason) is not None

    @property
    def key(self) -> tuple[str, str, str, int, str, int]:
        """What this is the result of."""
        return self.code, self.scripts, self.case, self.nproc, self.dtype, self.run


def digest(paths: Sequence[Path]) -> str:
    """A fingerprint of some files."""
    whole = hashlib.blake2b(digest_size=6)
    for path in sorted(paths):
        whole.update(path.read_bytes())
    return whole.hexdigest()


def cases() -> Iterator[Case]:
    """All of them."""
    for pair in sorted((FAULTS / "pairs").iterdir()):
        yield Case(pair.name, pair / "before.py", pair / "after.py")
    for path in sorted(FIXTURES.glob("*/fixture.toml")):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        for strategy in STRATEGIES:
            fixture = {**table, **table.get(strategy, {})}
            before, after = (path.parent / folder / fixture["entry"] for folder in ("before", strategy))
            there = all(find_spec(name) is not None for name in fixture.get("needs", ()) if name not in IN_SMALL)
            if fixture["expect"] == "equal" and fixture.get("run", True) and after.exists() and there:
                name = path.parent.name if strategy == "ddp" else f"{path.parent.name} {strategy}"
                args, unequal = tuple(map(str, fixture.get("args", ()))), frozenset(fixture.get("unequal", ()))
                yield Case(name, before, after, args, int(fixture.get("nnodes", 1)), unequal)


def compared(case: Case, nproc: int, dtype: Dtype, run: int, code: str, zygote: Zygote | None) -> Comparison:
    """Verify one pair once."""
    home = case.before.parent
    verdict = verify(
        case.before,
        case.after,
        [nproc],
        case.args,
        dtype=dtype,
        workdir=home,
        timeout=300,
        nnodes=case.nodes,
        zygote=zygote,
    )
    (world,) = verdict.worlds
    reason = "" if world.equal else " | ".join(map(str, (world.reason, *world.findings)))[:500]
    largest = (world.largest("loss"), world.largest("gradient"))
    return Comparison(code, case.fingerprint, case.name, nproc, dtype, run, world.outcome.value, reason, *largest)


def known(path: Path | None) -> dict[tuple[str, str, str, int, str, int], Comparison]:
    """What an earlier call has left."""
    if path is None or not path.exists():
        return {}
    lines = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    results = [Comparison(**json.loads(line)) for line in lines]
    return {result.key: result for result in results}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, print one line each and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases whose name contains one of these")
    parser.add_argument("--nproc", default="2,4", help="numbers of ranks")
    parser.add_argument("--dtype", default=",".join(DTYPES))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--results", type=Path, help="go on where this file ends")
    options = parser.parse_args(arguments)
    chosen = [case for case in cases() if not options.names or any(name in case.name for name in options.names)]
    verifier = (Path(autodist.__file__).parent / "verify").rglob("*.py")
    code = digest([path for path in verifier if path.name not in PRESENTATION])
    done = known(options.results)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(STAND_INS), os.environ.get("PYTHONPATH", "")])
    results: list[Comparison] = []
    started = time.monotonic()
    with shared_zygote() as zygote:
        for run in range(options.runs):
            for nproc in map(int, options.nproc.split(",")):
                for dtype in options.dtype.split(","):
                    for case in (each for each in chosen if nproc not in each.unequal):
                        result = done.get((code, case.fingerprint, case.name, nproc, dtype, run))
                        if result is None:
                            result = compared(case, nproc, dtype, run, code, zygote)
                            append(result, options.results)
                        results.append(result)
    return summary(results, time.monotonic() - started)


def append(result: Comparison, path: Path | None) -> None:
    """Say it, and keep it."""
    state = result.outcome if not result.alarm else f"{result.outcome}: {result.reason}"
    state = "does not run on so many ranks" if result.left_out else state
    print(f"{result.case:32} {result.nproc} ranks {result.dtype} gradient {result.gradient:.0e} {state}", flush=True)
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")


def summary(results: Sequence[Comparison], seconds: float) -> int:
    """The totals. Returns the exit code."""
    ran = [result for result in results if not result.left_out]
    alarms = [result for result in ran if result.alarm]
    for dtype in DTYPES:
        own = [result for result in ran if result.dtype == dtype and not result.alarm]
        if own:
            worst = max(own, key=lambda result: result.gradient)
            print(f"{dtype}: largest gradient deviation of an equal pair {worst.gradient:.0e} ({worst.case})")
    print(
        f"{len(alarms)} false alarms in {len(ran)} comparisons of {len({result.case for result in ran})} pairs, "
        f"{len(results) - len(ran)} left out because the two do not run on so many ranks, in {seconds:.0f} s"
    )
    return 1 if alarms or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
