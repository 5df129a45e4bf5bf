"""Leads what the script writes to absolute paths into the folder of the run; see ``outside.py``.

Python's own functions are replaced, wherever a module has kept one of them under a name of its own. What is written
by other means, such as a C++ library or another program, is not led elsewhere but refused: ``confinement.py``.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import shutil
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from autodist.verify.outside import Leaf, Outside

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

try:
    import sqlite3
except ImportError:  # Python can be built without
    sqlite3 = None  # type: ignore[assignment]

READ = ("stat", "lstat", "access", "listdir", "scandir", "readlink", "chdir")
CHANGED: dict[str, Leaf] = {
    "mkdir": "keep",
    "mkfifo": "keep",
    "remove": "keep",
    "unlink": "keep",
    "rmdir": "copy",
    "truncate": "copy",
    "utime": "copy",
    "chmod": "copy",
}
MOVED = ("rename", "replace")
LINKED = ("link", "symlink")
WRITES = os.O_WRONLY | os.O_RDWR


@functools.cache
def kept_elsewhere() -> list[tuple[Any, str, str]]:
    """Modules that keep one of the functions under a name of their own. Asked for before processes are forked."""
    names = {id(getattr(os, name)): name for name in (*READ, *CHANGED, *MOVED, *LINKED, "open") if hasattr(os, name)}
    names |= {id(open): "builtins.open", id(shutil.rmtree): "rmtree"}
    if sqlite3 is not None:
        names[id(sqlite3.connect)] = "sqlite3.connect"
    found = []
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "posix") not in ("posix", "nt", "_io"):
            for key, value in list(getattr(module, "__dict__", {}).items()):
                if id(value) in names:
                    found.append((module, key, names[id(value)]))
    return found


class Entry:
    """What ``os.scandir`` tells about a file, with the path that the script means."""

    def __init__(self, folder: str, name: str) -> None:
        self.name = name
        self.path = os.path.join(folder, name)

    def __fspath__(self) -> str:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """As of ``os.stat``."""
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        """The number of the file."""
        return self.stat(follow_symlinks=False).st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """A folder, or a link to one."""
        return self._is(stat.S_ISDIR, follow_symlinks)

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """A file, or a link to one."""
        return self._is(stat.S_ISREG, follow_symlinks)

    def is_symlink(self) -> bool:
        """A link."""
        return self._is(stat.S_ISLNK, False)

    def _is(self, kind: Callable[[int], bool], follow_symlinks: bool) -> bool:
        try:
            return kind(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except OSError:
            return False


class Entries:
    """The iterator that ``os.scandir`` returns."""

    def __init__(self, folder: str, names: list[str]) -> None:
        self._entries = iter([Entry(folder, name) for name in names])

    def __iter__(self) -> Iterator[Entry]:
        return self

    def __next__(self) -> Entry:
        return next(self._entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def close(self) -> None:
        """Nothing is open."""


class RedirectProbe:
    """Installed before the probe of files, which sees where the paths lead."""

    def __init__(self, context: ProbeContext, outside: Outside) -> None:
        self._context = context
        self._outside = outside
        self._local = threading.local()

    def install(self) -> None:
        """Replace Python's functions, and those of torch that open files in C++."""
        elsewhere = kept_elsewhere()
        replaced: dict[str, Any] = {"rmtree": self._changing(shutil.rmtree, "copy"), "open": self._os_open(os.open)}
        replaced["builtins.open"] = self._open(builtins.open)
        for name in READ:
            replaced[name] = self._reading(getattr(os, name))
        for name, leaf in CHANGED.items():
            if hasattr(os, name):
                replaced[name] = self._changing(getattr(os, name), leaf)
        for name in MOVED:
            replaced[name] = self._moving(getattr(os, name), lambda path: self._outside.to_change(path, "keep"))
        replaced["link"] = self._moving(os.link, self._outside.to_read)
        replaced["symlink"] = self._moving(os.symlink, lambda path: path)
        replaced["scandir"] = self._scanning(os.listdir, os.scandir)
        replaced["mkdir"] = self._making(os.mkdir)
        if sqlite3 is not None:
            replaced["sqlite3.connect"] = self._changing(sqlite3.connect, "copy")
        for abilities in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
            abilities |= {value for name, value in replaced.items() if getattr(os, name, None) in abilities}
        for module, key, name in elsewhere:
            setattr(module, key, replaced[name])
        builtins.open = io.open = replaced["builtins.open"]
        accessor = getattr(sys.modules.get("pathlib"), "_NormalAccessor", None)  # before Python 3.11
        for name, value in [*replaced.items(), ("open", replaced["builtins.open"])] if accessor is not None else []:
            if hasattr(accessor, name):
                setattr(accessor, name, staticmethod(value))
        torch.load = self._reading(torch.load)
        torch.jit.load = self._reading(torch.jit.load)
        torch.jit.save = self._second(torch.jit.save)

    def _led(self, path: Any, lead: Callable[[str], str], dir_fd: int | None = None) -> Any:
        """The path where it leads, in the type that it has; the same object where that is where it is."""
        if (
            getattr(self._local, "busy", False)
            or isinstance(path, int)
            or not isinstance(path, (str, bytes, os.PathLike))
        ):
            return path
        probing = self._context.probing
        self._local.busy = self._context.probing = True  # what is done to find the place is not the script's doing
        try:
            given = os.fspath(path)
            text = os.fsdecode(given)
            if dir_fd is not None and not os.path.isabs(text):
                text = os.path.join(os.path.realpath(f"/proc/self/fd/{dir_fd}"), text)
                found = lead(text)
                return path if found == text else found
            found = lead(text)
            if found == text:
                return path
            return os.fsencode(found) if isinstance(given, bytes) else found
        finally:
            self._local.busy, self._context.probing = False, probing

    def _reading(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def reading(*args: Any, **kwargs: Any) -> Any:
            if not args:
                return plain(**kwargs)
            return plain(self._led(args[0], self._outside.to_read, kwargs.get("dir_fd")), *args[1:], **kwargs)

        return reading

    def _scanning(self, listed: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def scanning(path: Any = ".") -> Any:
            led = self._led(path, self._outside.to_read)
            return (
                plain(path) if led is path else Entries(os.fsdecode(path), [os.fsdecode(each) for each in listed(led)])
            )

        return scanning

    def _changing(self, plain: Callable[..., Any], leaf: Leaf) -> Callable[..., Any]:
        @functools.wraps(plain)
        def changing(path: Any, *args: Any, **kwargs: Any) -> Any:
            led = self._led(path, lambda text: self._outside.to_change(text, leaf), kwargs.get("dir_fd"))
            return plain(led, *args, **kwargs)

        return changing

    def _making(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A folder that is there already needs no place of its own."""

        def lead(text: str) -> str:
            there = self._outside.to_read(text)
            return there if os.path.lexists(there) else self._outside.to_change(text, "keep")

        @functools.wraps(plain)
        def making(path: Any, *args: Any, **kwargs: Any) -> Any:
            return plain(self._led(path, lead, kwargs.get("dir_fd")), *args, **kwargs)

        return making

    def _moving(self, plain: Callable[..., Any], source: Callable[[str], str]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def moving(src: Any, dst: Any, *args: Any, **kwargs: Any) -> Any:
            first = self._led(src, source, kwargs.get("src_dir_fd"))
            second = self._led(dst, lambda text: self._outside.to_change(text, "keep"), kwargs.get("dst_dir_fd"))
            return plain(first, second, *args, **kwargs)

        return moving

    def _second(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def saving(what: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
            return plain(what, self._led(path, self._outside.to_change), *args, **kwargs)

        return saving

    def _open(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def opening(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            lead: Callable[[str], str] = self._outside.to_read
            if isinstance(mode, str) and any(letter in mode for letter in "wax+"):
                leaf: Leaf = "drop" if "w" in mode else "keep" if "x" in mode else "copy"
                lead = functools.partial(self._outside.to_change, leaf=leaf)
            return plain(self._led(file, lead), mode, *args, **kwargs)

        return opening

    def _os_open(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def opening(path: Any, flags: int, *args: Any, **kwargs: Any) -> Any:
            lead: Callable[[str], str] = self._outside.to_read
            if flags & WRITES:
                leaf: Leaf = "drop" if flags & os.O_TRUNC else "keep" if flags & os.O_EXCL else "copy"
                lead = functools.partial(self._outside.to_change, leaf=leaf)
            return plain(self._led(path, lead, kwargs.get("dir_fd")), flags, *args, **kwargs)

        return opening
