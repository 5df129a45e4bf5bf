"""Evaluates one script in a process of its own: ``python -m autodist.evaluate.worker``, a job on standard input."""

from __future__ import annotations

import ctypes
import json
import signal
import sys
from pathlib import Path

from autodist.evaluate.attempt import Setting, attempt
from autodist.evaluate.entries import Entry
from autodist.evaluate.record import Record

PARENT_DEATH_SIGNAL = 1


def main() -> None:
    """Read the job, write the record to the file that the job names."""
    if sys.platform == "linux":  # whatever ends the evaluation ends its workers
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    job = json.load(sys.stdin)
    earlier = job["earlier"] and Record.from_json(job["earlier"])
    record = attempt(Entry.from_json(job["entry"]), Setting.from_json(job["setting"]), earlier)
    Path(job["answer"]).write_text(json.dumps(record.to_json()), encoding="utf-8")


if __name__ == "__main__":
    main()
