"""Files and folders that the script writes, what it saves, and protection of the user's own files.

Large inputs are linked into the scratch folder rather than copied. A link is broken just before anything is written
through it, so that the user's file stays as it is.
"""

from __future__ import annotations

import errno
import functools
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from autodist.verify.outside import Outside, replace_link
from autodist.verify.plan import TEMPORARY
from autodist.verify.probes.digest import Digester
from autodist.verify.probes.written import content_of

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

FOLDER_EVENTS = {
    "os.mkdir": "mkdir",
    "os.remove": "remove",
    "os.rmdir": "remove",
    "os.rename": "rename",
    "os.link": "link",
    "os.symlink": "link",
    "shutil.rmtree": "remove",
}
BESIDE = {"os.mkdir": 2, "os.remove": 1, "os.rmdir": 1, "os.symlink": 2, "os.rename": 2, "os.link": 2}
"""Where an event says what open folder its first path begins in; -1 is none."""
OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CODE = (".py", ".pyc", ".so")
NOT_OURS = ("/dev/", "/proc/", "/sys/")
DELAYS = 2
DELAY_SECONDS = 0.25
"""Rank 0 is slow with its first folders and with what it writes before training: who does not wait stumbles here."""
LARGEST_SAVE = 100_000
"""Entries of one saved object that are looked at."""


class FilesProbe:
    """Listens to the interpreter's audit events, and patches the functions of torch that write in C++."""

    def __init__(self, context: ProbeContext, digester: Digester, outside: Outside | None = None) -> None:
        self._context = context
        self._outside = outside
        self._digester = digester
        self._active = False
        self._written: dict[str, str] = {}
        """Files that this process has opened to write, with the line of the last time."""
        self.moved: dict[str, str] = {}
        """Folders that a checkpoint was written into, and where a probe has seen them go."""
        self._begun = time.time()
        slow = context.plan.role == "conversion" and context.plan.rank == 0 and context.plan.world > 1
        self._delays = {"mkdir": DELAYS, "early": DELAYS} if slow else {}

    def install(self) -> None:
        """Start listening; audit hooks cannot be removed, ``stop`` silences this one."""
        self._active = True
        sys.addaudithook(self._audit)
        plain = torch.save

        @functools.wraps(plain)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if self._outside is not None and isinstance(f, (str, os.PathLike)):
                f = self._outside.to_change(os.fspath(f), "drop")
            if not self._is_passing(f, sys._getframe(1).f_code.co_filename):
                self.record_save(obj, f)
            return plain(obj, f, *args, **kwargs)

        torch.save = save
        script: Any = torch.jit._script
        owners: tuple[Any, ...] = (torch.export, script.ScriptModule, script.RecursiveScriptModule)
        for owner in owners:
            owner.save = self._announced(owner.save)

    def _announced(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """A function that writes its first argument to the path that is its second."""

        @functools.wraps(plain)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if isinstance(f, (str, os.PathLike)) and not self._context.probing:
                f = os.fspath(f) if self._outside is None else self._outside.to_change(os.fspath(f), "drop")
                self._audit("open", (f, "w", 0))
            return plain(obj, f, *args, **kwargs)

        return save

    def stop(self) -> None:
        """What happens from now on is not the script's doing."""
        self._active = False
        self._context.probing = True
        for path, site in self._written.items():
            try:
                with torch.no_grad():
                    content = describe(content_of(path), self._digester, self._context.plan.root)
            except Exception:
                continue  # it is gone, or in a format that is not known
            self._context.trace.emit("content", path=self._shown(path), site=site, content=content)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._active and self._context.probing and event == "os.rename":
            before, after = (os.path.abspath(each) for each in _led(event, arguments))
            self.moved[before] = after
        if not self._active or self._context.probing or event not in ("open", *FOLDER_EVENTS):
            return
        path = arguments[0]
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        reads = event == "open" and not self._writes(arguments[1], arguments[2])
        if (reads and self._context.plan.role != "conversion") or (event == "open" and os.path.isdir(path)):
            return  # a temporary file without a name is opened by that of its folder
        self._context.probing = True
        try:
            action = "open" if event == "open" else FOLDER_EVENTS[event]
            if reads:
                self._record_read(os.fsdecode(path))
                return
            paths = _led(event, arguments)
            if action == "link":  # the file is the one that appears
                action, paths = "open", paths[1:]
            self._record(action, *paths)
        finally:
            self._context.probing = False

    @staticmethod
    def _writes(mode: Any, flags: Any) -> bool:
        if isinstance(mode, str):
            return any(letter in mode for letter in "wax+")
        return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))

    def _record(self, action: str, path: str, renamed: str | None = None) -> None:
        full, plan = os.path.abspath(path), self._context.plan
        if full.startswith(plan.records) or "__pycache__" in full:
            return
        run = (plan.outer, plan.outside, plan.temporary)  # they may lie in `/dev/shm`
        if full.startswith(NOT_OURS) and not full.startswith(tuple(folder for folder in run if folder)):
            return
        if action == "mkdir":
            if os.path.isdir(full):
                return
            self._refuse(full)
            action = "mkdir" if tolerates_existing() else "mkdir-new"
        self._refuse(full)
        self._break_links(full)
        if self._outside is not None and self._is_private(full):
            return
        kind = "mkdir" if action.startswith("mkdir") else "early" if self._context.steps == 0 else "late"
        if self._delays.get(kind, 0):
            self._delays[kind] -= 1
            time.sleep(DELAY_SECONDS)
        site = self._context.trace.site()
        if action == "open":
            self._written[full] = site
        self._emit("write", action, full, site)
        if action == "rename" and renamed is not None:
            self._record("open", renamed)

    def _emit(self, kind: str, action: str, full: str, site: str) -> None:
        context = self._context
        context.trace.emit(
            kind, action=action, path=self._shown(full), site=site, step=context.steps, talked=context.collectives
        )

    def _record_read(self, path: str) -> None:
        """A rank reads what another one may have written in this run: files that were there before are older."""
        full, plan = os.path.abspath(path), self._context.plan
        if not full.startswith(plan.outer + os.sep) or full.endswith(CODE):
            return
        try:
            fresh = os.stat(full).st_mtime > self._begun
        except OSError:
            return
        if fresh and full not in self._written:
            self._emit("read", "read", full, self._context.trace.site())

    def _shown(self, full: str) -> str:
        plan = self._context.plan
        if full.startswith(plan.outer + os.sep):
            return os.path.relpath(full, plan.root)
        if plan.temporary and full.startswith(plan.temporary + os.sep):
            return os.path.join(TEMPORARY, os.path.relpath(full, plan.temporary))
        return full if self._outside is None else self._outside.original(full)

    def _is_private(self, full: str) -> bool:
        """Temporary files and caches: what becomes of them is not the script's result."""
        outside, temporary = self._outside, self._context.plan.temporary
        return outside is not None and (
            full.startswith(temporary + os.sep) or outside.original(full).startswith(outside.private)
        )

    def _refuse(self, full: str) -> None:
        """Hold back a change that was not led elsewhere, because it does not come from a function that is replaced."""
        parent = os.path.dirname(full)
        if self._outside is not None and not self._outside.own(full) and os.access(parent, os.W_OK):
            message = "autodist verify keeps the files of the user as they are, and cannot lead this call elsewhere"
            raise PermissionError(errno.EACCES, message, full)

    def _break_links(self, full: str) -> None:
        """Turn every link on the way to ``full``, in the scratch folders, into a copy of its own."""
        root = self._context.plan.outer
        if not full.startswith(root + os.sep):
            return
        way = root
        for part in os.path.relpath(full, root).split(os.sep):
            way = os.path.join(way, part)
            if not os.path.islink(way):
                continue
            target = os.path.realpath(way)
            if target.startswith(root + os.sep):
                return
            replace_link(way)

    def _is_passing(self, f: Any, caller: str) -> bool:
        """A library turns tensors into bytes, to send them to other ranks for instance."""
        named = isinstance(f, (str, os.PathLike)) or hasattr(f, "name")
        return not named and not caller.startswith((self._context.plan.root, OURS))

    def record_save(self, obj: Any, f: Any, site: str | None = None, step: int | None = None) -> None:
        """Write down what is saved where: now, or by a line of the script at an earlier step."""
        context = self._context
        path = f if isinstance(f, (str, os.PathLike)) else getattr(f, "name", None)
        if context.probing:
            return
        if self._outside is not None and isinstance(f, (str, os.PathLike)):
            path = f = self._outside.to_read(os.fspath(f))
        context.probing = True
        try:
            shown = "?" if not isinstance(path, (str, os.PathLike)) else self._shown(os.path.abspath(os.fspath(path)))
            if isinstance(f, (str, os.PathLike)):
                self._record("open", os.fspath(f))
            with torch.no_grad():
                content = describe(obj, self._digester, context.plan.root)
            site, step = site or context.trace.site(), context.steps if step is None else step
            context.trace.emit("save", path=shown, site=site, step=step, content=content)
        finally:
            context.probing = False


def _led(event: str, arguments: tuple[Any, ...]) -> list[str]:
    """The paths of an event, in the open folders that they begin in: `os.unlink("x", dir_fd=3)` of `shutil.rmtree`."""
    two = event in ("os.rename", "os.link", "os.symlink")
    paths = [os.fsdecode(each) for each in arguments[: 2 if two else 1]]
    folders = arguments[BESIDE[event] :] if event in BESIDE else ()
    if event == "os.symlink":
        folders = (-1, *folders)  # its first path is what the link says
    return [
        os.path.join(os.path.realpath(f"/proc/self/fd/{folder}"), path) if folder not in (-1, None) else path
        for path, folder in zip(paths, (*folders, -1, -1), strict=False)
    ]


def tolerates_existing() -> bool:
    """The folder is being made by a function that was told ``exist_ok=True``."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in ("makedirs", "mkdir") and frame.f_locals.get("exist_ok"):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def describe(obj: Any, digester: Digester, root: str) -> dict[str, Any]:
    """A saved object as paths of keys with digests of tensors, numbers, texts and type names."""
    described: dict[str, Any] = {}

    def walk(value: Any, path: str) -> None:
        if len(described) >= LARGEST_SAVE:
            return
        if isinstance(value, torch.nn.Module):
            described[path + "/class"] = type(value).__qualname__
            walk(value.state_dict(), path)
        elif isinstance(value, torch.Tensor):
            kind = type(value).__name__ if type(value) not in (torch.Tensor, torch.nn.Parameter) else "Tensor"
            digest = digester.all([value])[0] if value.numel() else None
            described[path] = {"type": kind, "shape": list(value.shape), "dtype": str(value.dtype), "digest": digest}
        elif isinstance(value, dict):
            for key, each in value.items():
                walk(each, f"{path}/{key}")
        elif isinstance(value, (list, tuple)):
            for at, each in enumerate(value):
                walk(each, f"{path}/{at}")
        elif isinstance(value, str):
            described[path] = value.replace(root, ".")
        elif isinstance(value, (int, float, bool)) or value is None:
            described[path] = value
        elif hasattr(value, "item") and getattr(value, "size", 2) == 1:
            walk(value.item(), path)
        elif type(value).__name__ == "ndarray" and value.dtype.kind in "biufc" and value.size:
            digest = digester.all([torch.as_tensor(value.astype("c16" if value.dtype.kind == "c" else "f8"))])[0]
            kind, dtype = type(value).__name__, str(value.dtype)
            described[path] = {"type": kind, "shape": list(value.shape), "dtype": dtype, "digest": digest}
        elif hasattr(value, "to_dict") and hasattr(value, "dtypes"):  # a table of pandas
            walk(value.to_dict("list") if value.ndim > 1 else value.tolist(), path)
        elif type(value).__name__ in ("ndarray", "deque"):
            walk(list(value), path)
        else:
            described[path] = {"type": type(value).__qualname__}

    walk(obj, "")
    return described
