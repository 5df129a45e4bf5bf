"""Judge what people made of public scripts for one GPU, and what autodist makes of the same, in a table in Markdown.

python -m benchmarks.ddp_bench.pull_requests [--names nanoGPT] [--checkouts FOLDER] [--results FILE]

pull_requests.toml names repositories and commits. A repository is taken from the folder of checkouts (as owner+name),
or cloned into it by git; nothing of it is part of this project, and its licence holds. Data and libraries are stood in
for, GPUs by CPUs (`modules/`). The judge looks twice: at everything, and at the training alone, which is samples and
what the optimizer has trained.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ddp_bench.judge import REFUSAL, WARNING, Judge, Judgement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent
SECONDS = 120


@dataclass(frozen=True)
class PullRequest:
    """A script for one GPU, and what a person made of it."""

    name: str
    repository: str
    licence: str
    before: str
    after: str
    original: tuple[str, ...]
    human: tuple[str, ...]
    folder: str = "."
    divided: str = ""
    """A line of the human version with a number that is meant for all ranks together, for a second look."""
    tokens: tuple[str, ...] = ()
    """Files of tokens (uint16, little-endian) that the script reads."""


def pull_requests(manifest: Path) -> Iterator[PullRequest]:
    """Those of the manifest."""
    for each in tomllib.loads(manifest.read_text(encoding="utf-8"))["pull_request"]:
        values: dict[str, Any] = {key: tuple(it) if isinstance(it, list) else it for key, it in each.items()}
        yield PullRequest(**values)


def checkout(repository: str, folder: Path) -> Path:
    """Its git repository, cloned where the folder does not have it."""
    path = folder / repository.replace("/", "+")
    if not path.is_dir():
        subprocess.run(["git", "clone", "--quiet", f"https://github.com/{repository}", str(path)], check=True)
    return path


def project(asked: PullRequest, commit: str, checkouts: Path, folder: Path) -> Path:
    """The files of a commit, with what stands in for libraries and data."""
    where = f"{commit}:{asked.folder}" if asked.folder != "." else commit
    command = ["git", "-C", str(checkout(asked.repository, checkouts)), "archive", where]
    packed = subprocess.run(command, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(folder, filter="data")
    shutil.copytree(HERE / "modules", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in asked.tokens:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"".join((7 * i * i % 97).to_bytes(2, "little") for i in range(500)))
    return folder


def told(folder: Path, words: tuple[str, ...], alone: bool, divided: str = "") -> None:
    """Say what `start.py` has to start."""
    (folder / "start.json").write_text(json.dumps({"words": words, "alone": alone, "divided": divided}))


def converted(script: str, folder: Path) -> None:
    """What autodist makes of a script, in its place; 1 and 2 are noted as for the tasks."""
    command = [sys.executable, "-m", "autodist", "convert", script, "--strategy", "ddp", "--in-place", "--quiet"]
    before = (folder / script).read_bytes()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        name = REFUSAL if (folder / script).read_bytes() == before else WARNING
        (folder / name).write_text(done.stderr.strip() or "autodist says nothing")


def judged(asked: PullRequest, checkouts: Path, scratch: Path) -> Iterator[tuple[str, str, Judgement]]:
    """Who made what, which look it is, and the verdict."""
    original = project(asked, asked.before, checkouts, scratch / "original")
    human = project(asked, asked.after, checkouts, scratch / "human")
    own = project(asked, asked.before, checkouts, scratch / "autodist")
    converted(asked.original[0], own)
    candidates = [("a person", human, asked.human, "")]
    if asked.divided:
        candidates.append(("a person, batch divided", human, asked.human, asked.divided))
    candidates.append(("autodist", own, asked.original, ""))
    for look in ("everything", "training"):
        told(original, asked.original, look == "training")
        judge = Judge(original, ["start.py"], scratch, SECONDS, True)
        for who, folder, words, divided in candidates:
            told(folder, words, look == "training", divided)
            yield who, look, judge.judge(folder)


def main(words: Sequence[str] | None = None) -> int:
    """Judge those that were asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--names", default="", help="names of the manifest, separated by commas; all by default")
    parser.add_argument("--manifest", type=Path, default=HERE / "pull_requests.toml")
    parser.add_argument("--checkouts", type=Path, default=Path("build/checkouts"), help="a folder of checkouts")
    parser.add_argument("--results", type=Path, help="a JSON file for all verdicts with their reasons")
    given = parser.parse_args(words)
    known = [*pull_requests(given.manifest)]
    wanted = {*filter(None, given.names.split(","))}
    if unknown := wanted - {each.name for each in known}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    sys.dont_write_bytecode = True
    rows, found = [], []
    for asked in known:
        if wanted and asked.name not in wanted:
            continue
        scratch = Path(tempfile.mkdtemp(prefix="ddp_bench_"))
        verdicts: dict[str, dict[str, Judgement]] = {}
        try:
            for who, look, verdict in judged(asked, given.checkouts.resolve(), scratch):
                verdicts.setdefault(who, {})[look] = verdict
                found.append({"name": asked.name, "who": who, "look": look, **vars(verdict)})
                said = "; ".join(verdict.reasons)
                print(f"{asked.name}, {who}, {look}: {verdict.verdict} {said}", file=sys.stderr, flush=True)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        for who, looks in verdicts.items():
            cells = " | ".join(looks[look].verdict for look in ("everything", "training"))
            rows.append(f"| [{asked.name}](https://github.com/{asked.repository}) {asked.after} | {who} | {cells} |")
    print("| project | who | everything | the training alone |\n|---|---|---|---|")
    print("\n".join(rows))
    if given.results:
        given.results.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
