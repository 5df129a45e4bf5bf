"""Wrong conversions that ``autodist verify`` must reject: how many it does, and how often it names the mistake.

    python -m benchmarks.verify_faults [--nproc 2] [--dtype float64] [--device cuda] [--jobs 2] [NAME...]

Each fault of ``fixtures/faults/faults.toml`` is a right conversion with one mistake, made by replacing text.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from autodist.verify import Outcome, Verdict, verify
from autodist.verify.launch import Zygote
from autodist.verify.placement import Wanted
from autodist.verify.plan import Dtype

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FAULTS = Path(__file__).resolve().parent.parent / "fixtures" / "faults"
OF_FIXTURE = {"before.py": "before", "after.py": "ddp"}
NAMED_SHARE = 0.9


@dataclass(frozen=True)
class Fault:
    """One mistake in one conversion."""

    name: str
    pair: str
    cause: str
    replace: tuple[tuple[str, str], ...]
    before: tuple[tuple[str, str], ...]

    @contextmanager
    def scripts(self) -> Iterator[tuple[Path, Path]]:
        """The original and the wrong conversion, in a folder of their own."""
        with tempfile.TemporaryDirectory(prefix="autodist-fault-") as folder:
            paths = []
            for name, edits in (("before.py", self.before), ("after.py", (*self.before, *self.replace))):
                text = script_of(self.pair, name).read_text(encoding="utf-8")
                for old, new in edits:
                    if old not in text:
                        raise ValueError(f"fault {self.name!r}: {name} of {self.pair} has no {old!r}")
                    text = text.replace(old, new)
                paths.append(Path(folder) / name)
                paths[-1].write_text(text, encoding="utf-8")
            yield paths[0], paths[1]


def script_of(pair: str, name: str) -> Path:
    """One of the scripts of a pair, or of a fixture that serves as one."""
    path = FAULTS / "pairs" / pair / name
    return path if path.exists() else FAULTS.parent / pair / OF_FIXTURE[name] / "train.py"


def read_faults() -> list[Fault]:
    """The table of faults."""
    table: dict[str, list[dict[str, Any]]] = tomllib.loads((FAULTS / "faults.toml").read_text(encoding="utf-8"))

    def edits(entry: dict[str, Any], key: str) -> tuple[tuple[str, str], ...]:
        return tuple((old, new) for old, new in entry.get(key, []))

    return [
        Fault(entry["name"], entry["pair"], entry["cause"], edits(entry, "replace"), edits(entry, "before"))
        for entry in table["fault"]
    ]


@contextmanager
def shared_zygote() -> Iterator[Zygote | None]:
    """One process with torch for all verifications, where the system can fork."""
    if sys.platform != "linux":
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="autodist-benchmark-"))
    try:
        with Zygote([], {}, folder / "zygote.log") as zygote:
            yield zygote
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Workers:
    """So many verifications at a time, each with a process of its own to fork from."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._stack = ExitStack()
        self._idle: SimpleQueue[Zygote | None] = SimpleQueue()

    def __enter__(self) -> Workers:
        for _ in range(self._jobs):
            self._idle.put(self._stack.enter_context(shared_zygote()))
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    @contextmanager
    def zygote(self) -> Iterator[Zygote | None]:
        """One that is idle, as long as it is used."""
        zygote = self._idle.get()
        try:
            yield zygote
        finally:
            self._idle.put(zygote)

    @contextmanager
    def pool(self) -> Iterator[ThreadPoolExecutor]:
        """Threads; whoever ends it waits for no more than is under way."""
        with ThreadPoolExecutor(self._jobs) as threads:
            try:
                yield threads
            finally:
                threads.shutdown(cancel_futures=True)


def check(
    fault: Fault, zygote: Zygote | None, nproc: int = 2, dtype: Dtype = "float64", device: Wanted = "cpu"
) -> Verdict:
    """Verify one wrong conversion."""
    with fault.scripts() as (before, after):
        home = before.parent
        return verify(before, after, [nproc], dtype=dtype, device=device, workdir=home, timeout=60, zygote=zygote)


def detected(verdict: Verdict) -> bool:
    """Rejected for a reason, rather than for want of a comparison."""
    return verdict.outcome in (Outcome.DIFFERS, Outcome.EQUAL_UNTIL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all faults, print one line each and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="faults whose name contains one of these")
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="how many to verify at a time")
    options = parser.parse_args(arguments)
    faults = [f for f in read_faults() if not options.names or any(name in f.name for name in options.names)]
    found = named = 0
    started = time.monotonic()
    with ExitStack() as stack:
        workers = stack.enter_context(Workers(options.jobs))

        def once(fault: Fault) -> tuple[Verdict, float]:
            with workers.zygote() as zygote:
                begun = time.monotonic()
                verdict = check(fault, zygote, options.nproc, options.dtype, options.device)
                return verdict, time.monotonic() - begun

        pool = stack.enter_context(workers.pool())
        for fault, (verdict, seconds) in zip(faults, pool.map(once, faults), strict=True):
            cause = verdict.cause.name if verdict.cause is not None else "-"
            found += detected(verdict)
            named += detected(verdict) and cause == fault.cause
            mark = "ok   " if detected(verdict) and cause == fault.cause else "cause" if detected(verdict) else "MISS "
            wanted = "" if cause == fault.cause else f" (wanted {fault.cause})"
            print(f"{mark} {seconds:5.1f} s  {fault.name:48} {verdict.outcome.value:20} {cause}{wanted}", flush=True)
            if options.names:
                print("\n".join(f"        {finding}" for finding in (*verdict.findings, *verdict.notes)))
    print(
        f"{found} of {len(faults)} wrong conversions detected, {named} with the right cause, "
        f"in {time.monotonic() - started:.0f} s"
    )
    return 0 if found == len(faults) and named >= NAMED_SHARE * len(faults) else 1


if __name__ == "__main__":
    sys.exit(main())
