"""Right conversions that ``autodist verify`` must call equal: how often it does.

    python -m benchmarks.verify_false_alarms [--nproc 2,4] [--dtype float64] [--runs 10] [--jobs 2] [--results FILE]
                                             [--device cuda]

Takes the pairs of ``fixtures/faults/pairs``, and every golden of ``fixtures`` that expects to be equal. All of it takes
hours, so the results file counts each comparison as it ends, and what it has already, of the same verifier and scripts,
is not run again: call it again after an interruption, and it goes on. ``alarms.csv`` beside this file is its record,
that of a GPU ``alarms_gpu.csv``.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

import autodist
from autodist.errors import AutodistError
from autodist.verify import Outcome, verify
from autodist.verify.launch import Zygote
from autodist.verify.placement import Wanted
from autodist.verify.plan import Dtype
from benchmarks.verify_faults import FAULTS, Workers

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
PRESENTATION = ("__main__.py", "charts.py", "command.py", "explain.py", "page.py", "progress.py")
"""Modules of the verifier that have no part in a verdict."""
INDIVISIBLE = "the global batch size must be divisible by the number of ranks"
"""What a conversion says when it cannot run at a number of ranks; that is no verdict of ours."""
SHARED = "would have to share"
"""What verify says where this torch cannot train with two ranks on one GPU."""
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
    def names_gpu(self) -> bool:
        """Whether the original asks for a GPU; others compute on the CPU, whatever there is."""
        scripts = (path for path in self.before.parent.rglob("*.py") if path != self.after)
        return any("cuda" in path.read_text(encoding="utf-8") for path in scripts)

    @property
    def fingerprint(self) -> str:
        """Changes with the scripts."""
        return digest([*self.before.parent.rglob("*.py"), *self.after.parent.rglob("*.py")])


@dataclass(frozen=True)
class Comparison:
    """What one verification said."""

    outcome: str
    reason: str = ""
    gradient: float = 0.0

    @property
    def alarm(self) -> bool:
        """Anything but equal, unless the script itself does not run on so many ranks."""
        return self.outcome != Outcome.EQUAL.value and not self.left_out

    @property
    def left_out(self) -> bool:
        """Whether this number of ranks is none that the two can be compared on."""
        return (
            any(each in self.reason for each in (INDIVISIBLE, SHARED)) or STARTS_ITS_OWN.search(self.reason) is not None
        )


@dataclass(frozen=True)
class Tally:
    """One line of the record: how often a pair was compared, and how it went."""

    case: str
    nproc: int
    dtype: str
    verifier: str
    """Fingerprint of the verifier."""
    scripts: str
    """Fingerprint of the pair."""
    equal: int = 0
    alarms: int = 0
    left_out: int = 0
    gradient: float = 0.0
    """Largest relative deviation of a gradient where they were equal."""
    reason: str = ""
    """What the last alarm said."""
    device: str = "cpu"

    @property
    def key(self) -> tuple[str, int, str, str]:
        """What is compared, and on what."""
        return self.case, self.nproc, self.dtype, self.device

    @property
    def runs(self) -> int:
        """How often they were compared. One that does not run on so many ranks never will."""
        return self.equal + self.alarms if not self.left_out else sys.maxsize

    def with_(self, result: Comparison) -> Tally:
        """The tally after one more comparison."""
        if result.left_out:
            return replace(self, left_out=1)
        if result.alarm:
            return replace(self, alarms=self.alarms + 1, reason=" ".join(result.reason.split()))
        return replace(self, equal=self.equal + 1, gradient=max(self.gradient, float(f"{result.gradient:.1e}")))


class Record:
    """The tallies, and the file that keeps them: what it has of other scripts or another verifier counts no more."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._tallies: dict[tuple[str, int, str, str], Tally] = {}
        self._lock = Lock()
        if path is not None and path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file):
                    known = [each for each in fields(Tally) if each.name in row]
                    tally = Tally(**{each.name: KINDS[str(each.type)](row[each.name]) for each in known})
                    self._tallies[tally.key] = tally

    def tally(self, fresh: Tally) -> Tally:
        """What is known of a pair."""
        known = self._tallies.get(fresh.key, fresh)
        return known if (known.verifier, known.scripts) == (fresh.verifier, fresh.scripts) else fresh

    def add(self, tally: Tally) -> None:
        """Keep it, in the file too, which is never half written."""
        with self._lock:
            self._tallies[tally.key] = tally
            if self._path is None:
                return
            part = self._path.with_suffix(".part")
            with part.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(each.name for each in fields(Tally))
                writer.writerows(astuple(each) for _, each in sorted(self._tallies.items()))
            part.replace(self._path)


KINDS: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}


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


def compared(case: Case, nproc: int, dtype: Dtype, zygote: Zygote | None, device: Wanted = "cpu") -> Comparison:
    """Verify one pair once."""
    home = case.before.parent
    try:
        verdict = verify(
            case.before,
            case.after,
            [nproc],
            case.args,
            dtype=dtype,
            device=device,
            workdir=home,
            timeout=300,
            nnodes=case.nodes,
            zygote=zygote,
        )
    except AutodistError as error:
        return Comparison("refused", str(error))
    (world,) = verdict.worlds
    reason = "" if world.equal else " | ".join(map(str, (world.reason, *world.findings)))[:500]
    return Comparison(world.outcome.value, reason, world.largest("gradient"))


def fingerprint() -> str:
    """Changes with what decides about verdicts."""
    verifier = (Path(autodist.__file__).parent / "verify").rglob("*.py")
    return digest([path for path in verifier if path.name not in PRESENTATION])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing, print one line each and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases whose name contains one of these")
    parser.add_argument("--nproc", default="2,4", help="numbers of ranks")
    parser.add_argument("--dtype", default=",".join(DTYPES))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="how many to compare at a time")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--results", type=Path, help="go on where this file ends")
    options = parser.parse_args(arguments)
    chosen = [case for case in cases() if not options.names or any(name in case.name for name in options.names)]
    chosen = [case for case in chosen if options.device == "cpu" or case.names_gpu]
    code, record = fingerprint(), Record(options.results)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(STAND_INS), os.environ.get("PYTHONPATH", "")])
    wanted = [
        (case, Tally(case.name, int(nproc), dtype, code, case.fingerprint, device=options.device))
        for nproc in options.nproc.split(",")
        for dtype in options.dtype.split(",")
        for case in chosen
        if int(nproc) not in case.unequal
    ]
    started = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # as Ctrl-C does: nothing is left behind
    with ExitStack() as stack:
        workers = stack.enter_context(Workers(options.jobs))
        alone = {case.before.parent: Lock() for case in chosen}  # originals that are distributed name a port

        def once(case: Case, fresh: Tally) -> None:
            with alone[case.before.parent]:
                begun = time.monotonic()
                with workers.zygote() as zygote:
                    result = compared(case, fresh.nproc, fresh.dtype, zygote, options.device)  # type: ignore[arg-type]
            record.add(record.tally(fresh).with_(result))
            print(f"{time.monotonic() - begun:5.1f} s  {line(fresh, result)}", flush=True)

        for run in range(options.runs):
            missing = [(case, fresh) for case, fresh in wanted if record.tally(fresh).runs <= run]
            pool = stack.enter_context(workers.pool())
            for future in [pool.submit(once, case, fresh) for case, fresh in missing]:
                future.result()
    return summary([record.tally(fresh) for _, fresh in wanted], time.monotonic() - started)


def line(tally: Tally, result: Comparison) -> str:
    """One comparison, for the reader."""
    state = result.outcome if not result.alarm else f"{result.outcome}: {result.reason}"
    state = "does not run on so many ranks" if result.left_out else state
    return f"{tally.case:32} {tally.nproc} ranks {tally.dtype} gradient {result.gradient:.0e} {state}"


def summary(tallies: Sequence[Tally], seconds: float) -> int:
    """The totals. Returns the exit code."""
    alarms, equal = sum(each.alarms for each in tallies), sum(each.equal for each in tallies)
    ran = [each for each in tallies if not each.left_out]
    for dtype in DTYPES:
        own = [each for each in ran if each.dtype == dtype and each.equal]
        if own:
            worst = max(own, key=lambda each: each.gradient)
            print(f"{dtype}: largest gradient deviation of an equal pair {worst.gradient:.0e} ({worst.case})")
    runs = min((each.runs for each in ran), default=0)
    print(
        f"{alarms} false alarms in {equal + alarms} comparisons of {len({each.case for each in ran})} pairs, each at "
        f"least {runs} times, {len(tallies) - len(ran)} left out because the two do not run on so many ranks, "
        f"in {seconds:.0f} s"
    )
    return 1 if alarms or not equal else 0


if __name__ == "__main__":
    sys.exit(main())
