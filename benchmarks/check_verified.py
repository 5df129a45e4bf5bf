"""Which of the faults that `verify` finds by running does `check` find by reading? And which do other linters?

The faults are those of fixtures/faults, and those that are seeded for check (check_faults.py). A fault is found if
something is said of the script with it that is not said of the script without, at whatever line::

    python -m benchmarks.check_verified [--peers FOLDER]

``--peers`` is a folder with the programs `ruff` and `torchfix`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from autodist.config import Config
from autodist.convert import faults
from autodist.errors import AutodistError
from autodist.project import Project
from benchmarks.seeded_faults import seeded, texts
from benchmarks.verify_faults import read_faults

CODE = re.compile(r"\b(TOR\d+|[A-Z]{1,4}\d{3,4})\b")
Linter = Callable[[Path], Counter[str]]
"""How often it says which code of a script."""


def check(script: Path) -> Counter[str]:
    """What `autodist check` says."""
    try:
        return Counter(each.code for each in faults(Project.load(script), Config()))
    except AutodistError:
        return Counter()


def linter(*words: str) -> Linter:
    """What another program says of the folder of a script."""

    def said(script: Path) -> Counter[str]:
        result = subprocess.run([*words, str(script.parent)], capture_output=True, text=True, check=False)
        return Counter(CODE.findall(result.stdout))

    return said


def pairs() -> Iterator[tuple[str, str, Mapping[str, str], Mapping[str, str]]]:
    """Each fault: where it is from, its kind, the files of the right script, and those with the fault."""
    for each in read_faults():
        with each.scripts() as (_, after):
            wrong = after.read_text(encoding="utf-8")
        with replace(each, replace=()).scripts() as (_, after):
            right = after.read_text(encoding="utf-8")
        yield "verify", each.cause, {"train.py": right}, {"train.py": wrong}
    for fault in seeded():
        yield "check", fault.kind, texts(fault.script), fault.files


def main(words: Sequence[str] | None = None) -> int:
    """Print how many each linter finds."""
    parser = argparse.ArgumentParser(description="faults that are found by reading")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--of", choices=["verify", "check"], help="only these faults")
    given = parser.parse_args(words)
    linters: dict[str, Linter] = {"autodist check": check}
    if given.peers is not None:
        linters["ruff"] = linter(
            str(given.peers / "ruff"), "check", "--isolated", "--no-cache", "--select", "ALL", "-q"
        )
        linters["TorchFix"] = linter(str(given.peers / "torchfix"), "--select", "ALL")
    found: dict[str, Counter[tuple[str, str]]] = {name: Counter() for name in linters}
    kinds = Counter[tuple[str, str]]()
    known: dict[object, Counter[str]] = {}
    """What is said of the right scripts."""
    for origin, kind, right, wrong in pairs():
        if given.of in (None, origin):
            kinds[origin, kind] += 1
            for name, said in linters.items():
                key = name, *sorted(right.items())
                if key not in known:
                    known[key] = _said(said, right)
                found[name][origin, kind] += bool(_said(said, wrong) - known[key])
    for origin in dict.fromkeys(each for each, _ in kinds):
        print(f"\n| fault ({origin}) | number | {' | '.join(linters)} |\n|---|---|{'---|' * len(linters)}")
        for key, number in kinds.items():
            if key[0] == origin:
                print(f"| {key[1]} | {number} | {' | '.join(str(found[name][key]) for name in linters)} |")
        total = sum(number for key, number in kinds.items() if key[0] == origin)
        sums = (sum(n for key, n in found[name].items() if key[0] == origin) for name in linters)
        print(f"| all | {total} | {' | '.join(map(str, sums))} |")
    return 0


def _said(said: Linter, files: Mapping[str, str]) -> Counter[str]:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        return said(Path(folder).resolve() / next(iter(files)))


if __name__ == "__main__":
    sys.exit(main())
