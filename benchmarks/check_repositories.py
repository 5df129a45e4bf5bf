"""What does `autodist check` say of public repositories that distribute themselves? ``make check-repositories``

check_repositories.toml names the repositories with their commits, the scripts of each that are started on several
ranks, and what a person has said of each finding. Checkouts are taken from a folder (``--checkouts``, as owner/name or
owner+name), or cloned. A finding of which nobody has said whether it is true is told at the end, and so is one that
was there at first sight and is gone. check_repositories.md has the results.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty
from typing import Any

from autodist.config import Config
from autodist.convert import InternalError, faults
from autodist.errors import AutodistError
from autodist.project import Project
from autodist.result import TRAINS_NOTHING

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MANIFEST = Path(__file__).with_suffix(".toml")
LONGEST = 60
"""Seconds of work after which a script is given up."""
SAID = re.compile(r"(?P<code>AD\d{3}) (?P<file>\S+):(?P<line>\d+) (?P<true>true|false): (?P<why>.+)")


@dataclass(frozen=True)
class Verdict:
    """What a person has said of a finding."""

    true: bool
    why: str
    first: bool
    """Whether it was found at first sight, before anything was mended."""


@dataclass(frozen=True)
class Repository:
    """A repository at a commit, and the scripts of it that are started."""

    name: str
    commit: str
    year: int
    scripts: tuple[str, ...]
    verdicts: dict[str, Verdict]


@dataclass
class Found:
    """What check says of a repository."""

    said: dict[str, str] = field(default_factory=dict)
    """The messages, by code and place."""
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0


def repositories(manifest: Path = MANIFEST) -> Iterator[Repository]:
    """Those of a manifest."""
    for each in tomllib.loads(manifest.read_text(encoding="utf-8"))["repository"]:
        verdicts = {}
        for key in ("first", "later"):
            for line in each.get(key, ()):
                told = SAID.fullmatch(line)
                assert told is not None, line
                place = f"{told['code']} {told['file']}:{told['line']}"
                verdicts[place] = Verdict(told["true"] == "true", told["why"], key == "first")
        yield Repository(each["name"], each["commit"], each["year"], tuple(each["scripts"]), verdicts)


def checkout(repository: Repository, folder: Path) -> Path:
    """Its files at its commit, cloned where the folder does not have them."""
    known = [folder / repository.name, folder / repository.name.replace("/", "+")]
    for path in known:
        if path.is_dir():
            return path
    path = known[1]
    path.mkdir(parents=True)
    url = f"https://github.com/{repository.name}"
    for words in (["init", "--quiet"], ["fetch", "--quiet", "--depth", "1", url, repository.commit]):
        subprocess.run(["git", "-C", str(path), *words], check=True)
    subprocess.run(["git", "-C", str(path), "checkout", "--quiet", "FETCH_HEAD"], check=True)
    return path


def _check(script: Path, root: Path, results: Any) -> None:
    """Check one script, in a process of its own."""
    started = time.process_time()
    said, failure = {}, ""
    try:
        told = faults(Project.load(script), Config())
        if not any(each.code == TRAINS_NOTHING for each in told):
            for each in told:
                said[f"{each.code} {each.source.path.relative_to(root)}:{each.line}"] = each.message
    except InternalError as error:
        failure = f"crash: {error}"
    except AutodistError as error:
        failure = f"not read: {error}"
    results.put((said, failure.replace(f"{root}/", ""), time.process_time() - started))


def found_in(repository: Repository, root: Path) -> Found:
    """What check says of its scripts, each place once."""
    found = Found()
    for script in repository.scripts:
        results: Any = multiprocessing.Queue()
        process = multiprocessing.Process(target=_check, args=(root / script, root, results))
        process.start()
        if process.pid is not None:
            resource.prlimit(process.pid, resource.RLIMIT_CPU, (LONGEST, LONGEST))
        answer = None
        while answer is None and (process.is_alive() or not results.empty()):
            with suppress(Empty):
                answer = results.get(timeout=0.2)
        said, failure, seconds = answer or ({}, f"given up after {LONGEST} s", float(LONGEST))
        process.join()
        found.said |= said
        found.failures += [f"{script}: {failure}"] if failure else []
        found.seconds += seconds
    return found


def row(repository: Repository, found: Found) -> str:
    """A line of the table."""
    first = [each.true for each in repository.verdicts.values() if each.first]
    now = [verdict.true for place, verdict in repository.verdicts.items() if place in found.said]
    counts = f"{len(first)} | {sum(first)} | {len(found.said)} | {sum(now)}"
    name = f"[{repository.name}](https://github.com/{repository.name}/tree/{repository.commit})"
    return f"| {name} | {repository.year} | {len(repository.scripts)} | {counts} | {found.seconds:.1f} |"


def details(repository: Repository, found: Found) -> Iterator[str]:
    """A line for each finding, of first sight or of now."""
    for place, verdict in repository.verdicts.items():
        mended = "" if place in found.said else " (not said any more)"
        sight = "" if verdict.first else " (found since)"
        yield f"- {place}: **{'true' if verdict.true else 'false'}**{mended}{sight}. {verdict.why}"
    for place, message in found.said.items():
        if place not in repository.verdicts:
            yield f"- {place}: **not read yet**. {message}"
    for failure in found.failures:
        yield f"- {failure}"


def main(words: Sequence[str] | None = None) -> int:
    """Print the table and each finding. Returns the exit code."""
    parser = argparse.ArgumentParser(description="autodist check of public repositories")
    parser.add_argument("names", nargs="*", help="repositories of the manifest; all, if none is named")
    parser.add_argument("--manifest", type=Path, default=MANIFEST)
    parser.add_argument("--checkouts", type=Path, default=Path("build/checkouts"), help="a folder of checkouts")
    given = parser.parse_args(words)
    rows, texts = [], []
    true = total = failed = 0
    for repository in repositories(given.manifest):
        if given.names and repository.name not in given.names:
            continue
        found = found_in(repository, checkout(repository, given.checkouts.resolve()))
        rows.append(row(repository, found))
        texts += [f"\n### {repository.name}\n", *details(repository, found)]
        total += len(found.said)
        true += sum(verdict.true for place, verdict in repository.verdicts.items() if place in found.said)
        failed += len(found.failures)
        print(rows[-1], file=sys.stderr, flush=True)
    print("| repository | year | scripts | first sight: findings | true | now: findings | true | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    print("\n".join([*rows, *texts]))
    share = true / total if total else 1.0
    print(f"\n{true} of {total} findings are true ({share:.0%}); {failed} scripts not read", file=sys.stderr)
    return not (share >= 0.9 and not failed)


if __name__ == "__main__":
    sys.exit(main())
