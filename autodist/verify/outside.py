"""Absolute paths outside the scratch copy: what a run writes there goes to a folder of its own, and is found again.

The first change in a folder makes a stand-in for it, filled with links to what is in the real one. From then on every
path below it leads to the stand-in; a link on the way to something that is written is replaced by a copy. The stand-ins
are shared by the ranks of a run through the file system alone. Absolute paths into the working folder lead to its copy.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SYSTEM = ("/dev", "/proc", "/sys")
"""No files of anybody."""
NAME = "name"
"""Beside each stand-in, a file with the path of the folder that it stands for."""
Leaf = Literal["copy", "drop", "keep"]
"""A link to a real file at the end of the path: its content is needed, is not needed, or the link is as good."""


def below(path: str, folder: str) -> bool:
    """The path is the folder or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


@dataclass(frozen=True)
class Outside:
    """Where paths lead during one run."""

    store: str
    """The folder of the stand-ins; it need not exist before the first of them."""
    home: str
    """The working folder."""
    root: str
    """Its copy."""
    kept: tuple[str, ...]
    """Folders that belong to the run: paths below them are left alone."""
    private: tuple[str, ...] = ()
    """What begins like this belongs to libraries, such as caches: it is kept apart as well, and not compared."""

    def own(self, path: str) -> bool:
        """What is written there may be written."""
        if any(below(path, folder) for folder in (self.store, *self.kept)):
            return True
        return any(below(path, folder) for folder in SYSTEM) and not below(path, self.home)  # `/dev/shm` holds files

    def place(self, path: str) -> str | None:
        """The absolute path where it may have to be led elsewhere, None where it stays."""
        full = os.path.abspath(path)
        if self.own(full):
            return None
        if below(full, self.home):
            return self.root + full[len(self.home) :]
        return full

    def stand_ins(self) -> dict[str, str]:
        """The folders that have a stand-in."""
        try:
            names = os.listdir(self.store)
        except OSError:
            return {}
        found = {}
        for name in names:
            if "." in name:
                continue  # another rank is making it, and renames it at the end
            try:
                with open(os.path.join(self.store, name, NAME), encoding="utf-8") as file:
                    found[file.read()] = os.path.join(self.store, name, "in")
            except OSError:
                continue
        return found

    def to_read(self, path: str) -> str:
        """Where a path leads that is not changed."""
        full = self.place(path)
        if full is None:
            return path
        if self.own(full):
            return full
        way = self._way(full, self.stand_ins())
        return path if way is None else way[-1]

    def to_change(self, path: str, leaf: Leaf = "copy") -> str:
        """Where a path leads that is about to be written, made or removed."""
        full = self.place(path)
        if full is None:
            return path
        if self.own(full):
            return full
        known = self.stand_ins()
        parent = os.path.dirname(full)
        if not any(below(full, folder) and full != folder for folder in known):
            if full == "/" or not os.path.isdir(parent) or not os.access(parent, os.W_OK):
                return path  # fails as it would without us
            self._stand_in(parent, known)
            known = self.stand_ins()
        way = self._steps(full, known)
        for each in way[:-1]:
            if os.path.islink(each):
                unlink_folder(each, os.path.realpath(each))
        if leaf != "keep" and os.path.islink(way[-1]):
            replace_link(way[-1], leaf == "copy")
        return way[-1]

    def original(self, path: str) -> str:
        """The path that a script means by a path below a stand-in."""
        if not below(path, self.store):
            return path
        name, _, rest = os.path.relpath(path, self.store).partition("/in")
        try:
            with open(os.path.join(self.store, name, NAME), encoding="utf-8") as file:
                folder = file.read()
        except OSError:
            return path
        return folder.rstrip("/") + rest if rest else folder

    def changed(self) -> Iterator[tuple[str, Path]]:
        """Files that were written, each under the path that the script means."""
        for folder, stand_in in self.stand_ins().items():
            for here, names, files in os.walk(stand_in):
                names[:] = [name for name in names if not os.path.islink(os.path.join(here, name))]
                for name in ["."] if is_sharded_checkpoint(files) else files:
                    path = os.path.normpath(os.path.join(here, name))
                    meant = os.path.normpath(os.path.join(folder, os.path.relpath(path, stand_in)))
                    if not os.path.islink(path) and not meant.startswith(self.private):
                        yield meant, Path(path)

    def _steps(self, full: str, known: dict[str, str]) -> list[str]:
        """Every step to a path from the innermost stand-in above it."""
        folder = max((each for each in known if below(full, each) and full != each), key=len)
        here, way = known[folder], []
        for part in os.path.relpath(full, folder).split("/"):
            here = os.path.join(here, part)
            way.append(here)
        return way

    def _way(self, full: str, known: dict[str, str]) -> list[str] | None:
        """The steps to a path that is no longer what it is on the disk; None where nothing has changed on the way."""
        if full in known:
            return [known[full]]
        if not any(below(full, folder) for folder in known):
            return None  # the usual case
        way = self._steps(full, known)
        if any(os.path.islink(each) and os.readlink(each) == self._behind(each, full, way) for each in way):
            return None
        return way

    @staticmethod
    def _behind(step: str, full: str, way: Sequence[str]) -> str:
        """What a step would be a link to, if it were one of ours."""
        beyond = len(way) - 1 - way.index(step)
        parts = full.split("/")
        return "/".join(parts[: len(parts) - beyond]) or "/"

    def _stand_in(self, folder: str, known: dict[str, str]) -> None:
        place = os.path.join(self.store, hashlib.blake2b(folder.encode(), digest_size=8).hexdigest())
        fresh = f"{place}.{os.getpid()}"
        os.makedirs(os.path.join(fresh, "in"))
        link_entries(folder, os.path.join(fresh, "in"), known)
        with open(os.path.join(fresh, NAME), "w", encoding="utf-8") as file:
            file.write(folder)
        try:
            os.rename(fresh, place)
        except OSError:
            shutil.rmtree(fresh, ignore_errors=True)  # another rank was faster


def is_sharded_checkpoint(names: Sequence[str]) -> bool:
    """Whether the files of a folder are those of one distributed checkpoint, which stands for one file."""
    return ".metadata" in names and any(name.endswith(".distcp") for name in names)


def link_entries(folder: str, target: str, known: dict[str, str] | None = None) -> None:
    """Links to everything in a folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            os.symlink((known or {}).get(entry.path, entry.path), os.path.join(target, entry.name))


def unlink_folder(link: str, target: str) -> None:
    """Replace the link to a folder by a folder of links to its entries."""
    fresh = f"{link}.{os.getpid()}.links"
    os.mkdir(fresh)
    link_entries(target, fresh)
    try:
        os.unlink(link)
        os.rename(fresh, link)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)  # another rank was faster


def replace_link(link: str, content: bool = True) -> None:
    """Turn a link into a copy of what it leads to; without the content, the link only goes."""
    target = os.path.realpath(link)
    if os.path.isdir(target):
        unlink_folder(link, target)
    elif not content:
        os.unlink(link)
    elif os.path.exists(target):
        copy = f"{link}.{os.getpid()}.copy"
        shutil.copy2(target, copy)
        os.replace(copy, link)
