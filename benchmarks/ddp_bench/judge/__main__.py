"""Judge one candidate, from the command line."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from . import EQUAL, Judge


def main() -> int:
    """Judge one candidate."""
    parser = argparse.ArgumentParser(description="Judge one candidate.")
    parser.add_argument("original", type=Path)
    parser.add_argument("candidate", type=Path)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--unordered", action="store_true", help="samples cannot be told apart by rows: compare how much is trained on"
    )
    parser.add_argument("command", nargs="+", help="how the project is started, after `--`")
    asked = parser.parse_args()
    sys.dont_write_bytecode = True
    scratch = Path(tempfile.mkdtemp())  # no TemporaryDirectory: forked ranks would remove it at their end
    try:
        judge = Judge(asked.original, asked.command, scratch, asked.seconds, not asked.unordered)
        found = judge.judge(asked.candidate, [int(ranks) for ranks in asked.ranks.split(",")])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(json.dumps(asdict(found), indent=1))
    return int(found.verdict != EQUAL)


if __name__ == "__main__":
    sys.exit(main())
