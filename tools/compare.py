"""What a change does to everything that tests convert: ``python -m pytest -p tools.compare`` keeps it,
``python -m tools.compare COMMIT`` converts it by that commit and by the working tree, and prints where they differ."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from autodist import convert
from autodist.analyze import analyze
from autodist.config import Config
from autodist.errors import AutodistError
from autodist.project import Project
from autodist.script import TrainingScript

ROOT = Path(__file__).parent.parent
KEPT = ROOT / ".pytest_cache" / "converted"
MOST_LINES = 12
"""Lines that are shown of each project of which the conversions differ."""


@dataclass(frozen=True)
class Kept:
    """A project that a test has converted. ``entry`` and the ``files``, with their texts, are named from their common
    folder."""

    test: str
    entry: str
    module: str
    files: Mapping[str, str]
    config: Config

    @classmethod
    def of(cls, project: Project, config: Config) -> Kept:
        """A project, as it is given to the analysis."""
        texts = {os.path.abspath(each.path): each.text for each in project.sources}
        base = os.path.commonpath([os.path.dirname(each) for each in texts])
        files = {os.path.relpath(path, base): text for path, text in texts.items()}
        entry = os.path.relpath(os.path.abspath(project.entry.path), base)
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        return cls(test, entry, project.entry.module, files, config)

    @property
    def name(self) -> str:
        """What it is kept under: what is converted alike in several tests, once."""
        return hashlib.sha1(repr((self.entry, sorted(self.files.items()), self.config)).encode()).hexdigest()

    def converted(self) -> list[str]:
        """The lines of what its conversion says and writes."""
        with TemporaryDirectory() as folder:
            for name, text in self.files.items():
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            try:
                project = Project.load(Path(folder, self.entry), repository=Path(folder), module=self.module)
                result = convert.convert(project, self.config)
            except AutodistError as error:
                return str(error).replace(folder, "").splitlines()
            said = [f"{each.source.path.name}:{each.line}: {each.code} {each.message}" for each in result.diagnostics]
            return [*said, *(line for file in result.files for line in file.after.splitlines())]


def keep(kept: Kept, folder: Path = KEPT) -> None:
    """Write down a project, unless it is there."""
    path = folder / kept.name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        being_written = path.with_suffix(f".{os.getpid()}")
        being_written.write_bytes(pickle.dumps(kept))
        being_written.replace(path)


def pytest_configure(config: pytest.Config) -> None:
    """Have all that tests convert in their own process kept."""

    def kept(project: Project, config: Config) -> TrainingScript:
        keep(Kept.of(project, config))
        return analyze(project, config)

    patch = pytest.MonkeyPatch()
    patch.setattr(convert, "analyze", kept)
    config.add_cleanup(patch.undo)


def _converted(path: Path) -> tuple[str, list[str]]:
    kept: Kept = pickle.loads(path.read_bytes())
    return path.name, kept.converted()


def conversions(folder: Path) -> dict[str, list[str]]:
    """What the state that runs makes of the projects that are kept in a folder."""
    with ProcessPoolExecutor() as pool:
        return dict(pool.map(_converted, sorted(each for each in folder.glob("*") if not each.suffix), chunksize=8))


def by(state: Path) -> dict[str, list[str]]:
    """What another state of the repository makes of what is kept here."""
    command = [sys.executable, "-m", "tools.compare", "--convert", str(KEPT)]
    environment = {**os.environ, "PYTHONPATH": str(state), "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=state, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    made: dict[str, list[str]] = json.loads(done.stdout)
    return made


def differences(before: Mapping[str, list[str]], after: Mapping[str, list[str]]) -> Iterator[tuple[str, list[str]]]:
    """The projects of which two states make something else, and the lines of it."""
    for name, lines in before.items():
        if lines != after[name]:
            yield name, [
                each
                for each in unified_diff(lines, after[name], lineterm="", n=0)
                if each[:2] not in ("--", "++", "@@")
            ]


def main(commit: str) -> int:
    """Print them. 1 where there are some, 2 where nothing is kept."""
    if not KEPT.is_dir():
        print("nothing is kept: run `python -m pytest -p tools.compare` first", file=sys.stderr)
        return 2
    with TemporaryDirectory() as folder:
        state = Path(folder, "state")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(state), commit], cwd=ROOT, check=True)
        try:
            (state / "autodist" / "rules").symlink_to(state / "rules")
            (state / "tools" / "compare.py").write_bytes(Path(__file__).read_bytes())
            before, after = by(state), by(ROOT)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(state)], cwd=ROOT, check=True)
    found = list(differences(before, after))
    for name, lines in found:
        kept: Kept = pickle.loads((KEPT / name).read_bytes())
        print(f"{kept.test}\n  " + "\n  ".join(each[:200] for each in lines[:MOST_LINES]))
    print(f"{len(found)} of {len(before)} conversions differ")
    return int(bool(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--convert"]:
        print(json.dumps(conversions(Path(sys.argv[2]))))
    else:
        sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "HEAD"))
