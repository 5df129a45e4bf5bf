"""Evaluates scripts one after another, each in a process group that ends with it, and keeps what was found."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from autodist.evaluate.attempt import Setting
from autodist.evaluate.entries import Entry
from autodist.evaluate.record import Record, Status

CONVERTING = 120.0
"""Seconds for what is done besides running the script."""
RUNS = 3
"""How often the time limit of one run fits into the limit of a whole evaluation."""


class Results:
    """A file of JSON lines; of several lines for one script the last one counts."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, Record]:
        """What is known from an earlier evaluation. A line that was cut short is left out."""
        records: dict[str, Record] = {}
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        for line in lines:
            try:
                record = Record.from_json(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
            records[record.name] = record
        return records

    def add(self, record: Record) -> None:
        """Keep one record, at once."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        cut = self.path.exists() and not self.path.read_bytes().endswith(b"\n") and self.path.stat().st_size
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("\n" if cut else "") + json.dumps(record.to_json()) + "\n")


def evaluate(entries: Sequence[Entry], setting: Setting, results: Results, fresh: bool, jobs: int) -> Iterator[Record]:
    """The records of all scripts, as they come."""
    earlier = {} if fresh else results.read()
    running: set[subprocess.Popen[bytes]] = set()
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        futures = [pool.submit(evaluated, entry, setting, earlier.get(entry.name), running) for entry in entries]
        try:
            for future in as_completed(futures):
                record = future.result()
                results.add(record)
                yield record
        finally:
            for future in futures:
                future.cancel()
            for process in list(running):
                _end(process)


def evaluated(entry: Entry, setting: Setting, earlier: Record | None, running: set[subprocess.Popen[bytes]]) -> Record:
    """One script in its own process group, which is gone afterwards."""
    limit = CONVERTING + RUNS * entry.timeout * len(setting.nproc)
    with tempfile.TemporaryDirectory(prefix="autodist-evaluate-") as folder:
        answer, log = Path(folder, "answer.json"), Path(folder, "log")
        job = {
            "entry": entry.to_json(),
            "setting": setting.to_json(),
            "earlier": earlier and earlier.to_json(),
            "answer": str(answer),
        }
        with log.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "autodist.evaluate.worker"],
                stdin=subprocess.PIPE,
                stdout=errors,
                stderr=errors,
                env={**os.environ, "TMPDIR": folder, "PYTHONHASHSEED": "0"},
                start_new_session=True,
            )
        running.add(process)
        try:
            process.communicate(json.dumps(job).encode(), timeout=limit)
        except subprocess.TimeoutExpired:
            return Record(entry.name, Status.WRONG, f"hangs: the evaluation took longer than {limit:g} s")
        finally:
            _end(process)
            running.discard(process)
        if not answer.exists():
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            return Record(entry.name, Status.WRONG, "crashes: " + (lines[-1] if lines else "no message"))
        return Record.from_json(json.loads(answer.read_text(encoding="utf-8")))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all it started: its group, and the groups of verification, which die with their parent."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
