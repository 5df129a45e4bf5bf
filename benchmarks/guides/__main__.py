"""Follow the guides of Accelerate and Fabric on public scripts, and hold the results against autodist's.

    python -m benchmarks.guides --root REPOSITORIES --data DATA [--python PYTHON] [--only TEXT]

Prints a table in Markdown: per script and tool *equal*, *silently wrong* (it ran to its end and trained something
else, or reports or saves something else), *fails* or *refused*. PYTHON needs torch, torchvision, accelerate and
lightning (``requirements.txt`` beside this file).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autodist.evaluate.attempt import Setting, attempt, run_both
from autodist.evaluate.entries import Entry, load
from autodist.evaluate.record import Status
from autodist.verify import Outcome, Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
MANIFEST = HERE.parent / "corpus" / "manifest.toml"
LAUNCHED = {"TORCHELASTIC_RUN_ID": "guide", "ACCELERATE_USE_CPU": "true"}
"""What torchrun sets for Fabric to see, and `accelerate launch --cpu` for Accelerate."""


@dataclass(frozen=True)
class Guide:
    """The steps of one tool's guide on one script."""

    tool: str
    script: str
    edits: tuple[tuple[str, str], ...]

    def followed(self, text: str) -> str:
        """The script after all steps. Raises ValueError where a step finds nothing to change."""
        for find, put in self.edits:
            text, count = re.subn(find, put, text)
            if not count:
                raise ValueError(f"{self.tool}, {self.script}: finds no {find!r}")
        return text


def guides() -> Iterator[Guide]:
    """All of them, from the table beside this file."""
    for table in tomllib.loads((HERE / "guides.toml").read_text(encoding="utf-8"))["guide"]:
        edits = tuple((edit["find"], edit["put"]) for edit in table["edits"])
        yield Guide(table["tool"], table["script"], edits)


def outcome(verdict: Verdict) -> str:
    """One word for the table, and the reason."""
    if verdict.outcome is Outcome.EQUAL:
        return "equal"
    world = verdict.worlds[0]
    reason = str(world.findings[0]) if world.findings else world.reason
    fails = any(finding.kind in ("crash", "hang") for finding in world.findings)
    return f"{'fails' if fails else 'silently wrong'}: {' '.join(reason.split())}"


def by_guide(guide: Guide, entry: Entry, setting: Setting) -> str:
    """What becomes of a script that somebody converts by a guide."""

    def write(folder: Path) -> Path:
        path = entry.folder(Path(setting.root)) / entry.script
        folder.mkdir(parents=True, exist_ok=True)
        target = folder / path.name
        target.write_text(guide.followed(path.read_text(encoding="utf-8")), encoding="utf-8")
        return target

    return outcome(run_both(entry, setting, write))


def by_autodist(entry: Entry, setting: Setting) -> str:
    """What becomes of it here."""
    record = attempt(entry, setting)
    return record.status.value if record.status is Status.EQUAL else f"{record.status.value}: {record.reason}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", required=True, type=Path, help="where the repositories lie")
    parser.add_argument("--data", required=True, help="the folder of the data sets")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default="", help="only scripts or tools with this in their name")
    options = parser.parse_args(arguments)
    entries = {entry.name: entry for entry in load(MANIFEST, options.root).scripts}
    setting = Setting(str(options.root.resolve()), "ddp", (2,), options.python, options.data)
    print("| script | tool | 2 ranks against the original |\n| --- | --- | --- |")
    seen: set[str] = set()
    for guide in guides():
        entry = entries[guide.script]
        if options.only not in f"{guide.script} {guide.tool}":
            continue
        if guide.script not in seen:
            seen.add(guide.script)
            print(f"| {guide.script} | autodist | {by_autodist(entry, setting)} |", flush=True)
        marked = replace(entry, env={**entry.env, **LAUNCHED})
        print(f"| | {guide.tool} | {by_guide(guide, marked, setting)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
