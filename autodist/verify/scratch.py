"""The scratch copy of a working folder, in which one run reads and writes."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from autodist.verify.outside import Outside, is_sharded_checkpoint

SKIPPED = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules"}
)
LARGEST_COPY = 1 << 20
"""Larger files are linked."""
MOST_BYTES = 64 << 20
MOST_ENTRIES = 20_000
"""Beyond these totals the rest is linked."""
MOST_BESIDE = 1_000
"""Neighbours of the working folder that are linked."""
MOST_READ = 500
"""Modules of a folder that are read to see what a conversion does."""
WORD = re.compile(r"[^\W\d]\w*")


@dataclass
class Scratch:
    """One copy: what was in it at first, to know later what the run added."""

    root: Path
    outer: Path | None = None
    """Folders around ``root`` that stand for those above the working folder, below this one."""
    excluded: Path | None = None
    """The folder of the verification itself, which may lie in the working folder."""
    outside: Outside | None = None
    """What is written elsewhere."""
    on_other_nodes: list[Outside] = field(default_factory=list)
    """The same of nodes other than the first."""
    linked: list[Path] = field(default_factory=list)
    _initial: dict[str, tuple[int, int]] = field(default_factory=dict)
    _bytes: int = 0
    _entries: int = 0

    def fill(self, source: Path) -> None:
        """Copy code and small files; link large files and folders of data."""
        self.root.mkdir(parents=True, exist_ok=True)
        self._copy_folder(source, self.root)

    def surround(self, source: Path) -> None:
        """Link what stands beside the working folder and beside its parent, for scripts that reach for ``../data``."""
        here, there = self.root, source
        while here != self.outer and self.outer is not None and there != there.parent:
            here, there, below = here.parent, there.parent, there
            try:
                with os.scandir(there) as entries:
                    beside = sorted((each for each in entries if each.path != str(below)), key=lambda each: each.name)
            except OSError:
                return
            for entry in beside[:MOST_BESIDE]:
                link = os.path.join(here, entry.name)
                if entry.path != str(self.excluded) and not os.path.exists(link):
                    os.symlink(entry.path, link)

    def overlay(self, source: Path, target: Path, script: Path) -> None:
        """Put the Python files around a converted script in the place of the original's, and the script itself, which
        may be called otherwise. Of those that lie beside it by chance, as in a folder for temporary files, none."""
        for path in belonging(source, target, script):
            self._overlay(path, target / path.name, script)

    def _overlay(self, path: Path, goal: Path, script: Path) -> None:
        if path.is_dir():
            if path.name not in SKIPPED and (goal.is_dir() or (path / "__init__.py").exists()):
                goal.mkdir(exist_ok=True)
                for each in entries_of(path):
                    self._overlay(each, goal / each.name, script)
        elif path == script or path.suffix == ".py" and path.is_file():
            goal.unlink(missing_ok=True)
            shutil.copy2(path, goal)

    def seal(self) -> None:
        """Everything is in place; what changes from now on is the run's doing."""
        self._initial = self._state()

    def changed(self) -> dict[str, Path]:
        """Files that the run created or changed, by their path below the scratch folder or their absolute path."""
        disks = [*self.on_other_nodes[::-1], *filter(None, [self.outside])]  # the first node's comes last, and stays
        beyond = {name: path for disk in disks for name, path in disk.changed()}
        return beyond | {
            name: self.root / name for name, state in self._state().items() if self._initial.get(name) != state
        }

    def _state(self) -> dict[str, tuple[int, int]]:
        state: dict[str, tuple[int, int]] = {}
        for folder, names, files in os.walk(self.outer or self.root):
            names[:] = [
                name for name in names if name not in SKIPPED and not os.path.islink(os.path.join(folder, name))
            ]
            if is_sharded_checkpoint(files):
                found = [os.stat(os.path.join(folder, name)) for name in files]
                size, changed = sum(each.st_size for each in found), max(each.st_mtime_ns for each in found)
                state[os.path.relpath(folder, self.root)] = size, changed
                continue
            for name in files:
                path = os.path.join(folder, name)
                if os.path.islink(path) or name.endswith(".pyc"):
                    continue
                status = os.stat(path)
                state[os.path.relpath(path, self.root)] = (status.st_size, status.st_mtime_ns)
        return state

    def _copy_folder(self, source: Path, target: Path) -> None:
        with os.scandir(source) as entries:
            for entry in sorted(entries, key=lambda each: each.name):
                if entry.name in SKIPPED or Path(entry.path) == self.excluded:
                    continue
                self._copy_entry(entry, target / entry.name)

    def _copy_entry(self, entry: os.DirEntry[str], goal: Path) -> None:
        self._entries += 1
        path = Path(entry.path)
        try:
            if entry.is_dir():
                if self._entries > MOST_ENTRIES or entry.is_symlink() or (path / "pyvenv.cfg").exists():
                    self._link(path, goal)
                else:
                    goal.mkdir()
                    self._copy_folder(path, goal)
            elif entry.is_file():
                size = entry.stat().st_size
                if self._entries > MOST_ENTRIES or size > LARGEST_COPY or self._bytes + size > MOST_BYTES:
                    self._link(path, goal)
                else:
                    self._bytes += size
                    shutil.copy2(path, goal)
        except (PermissionError, FileNotFoundError):  # a folder for temporary files changes while it is read
            return

    def _link(self, path: Path, goal: Path) -> None:
        goal.symlink_to(path.resolve())
        self.linked.append(path)


def belonging(folder: Path, home: Path, script: Path) -> list[Path]:
    """What lies in the folder of a conversion and belongs to it: the script, what the original has as well, in its
    folder ``home``, and what is named in the code of something that belongs to it."""
    rest = entries_of(folder)
    found: list[Path] = []
    words: set[str] = set()
    while more := [
        path for path in rest if path in (script, *script.parents) or path.stem in words or twin(path, home)
    ]:
        found += more
        rest = [path for path in rest if path not in more]
        for path in more:
            modules = [path] if path.suffix == ".py" or path == script else python_files(path)
            words.update(*(WORD.findall(text) for text in map(text_of, itertools.islice(modules, MOST_READ))))
    return sorted(found)


def twin(path: Path, home: Path) -> bool:
    """Whether the original has a module or a folder that is called like this one."""
    return (path.suffix == ".py" or path.is_dir()) and (home / path.name).exists()


def entries_of(folder: Path) -> list[Path]:
    """What lies in a folder, in order; nothing where it has just gone."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def python_files(folder: Path) -> Iterator[Path]:
    """The modules in a folder and in those below it, in order, for as long as they are there."""
    for here, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if name not in SKIPPED)
        yield from (Path(here, name) for name in sorted(files) if name.endswith(".py"))


def text_of(path: Path) -> str:
    """The text of a file; empty where it has just gone, or cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
