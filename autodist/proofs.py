"""Verdicts of earlier runs, kept by the contents that they depend on: nothing is run again that has not changed."""

from __future__ import annotations

import ast
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

from autodist.source import Source, walk

READ_WHOLE = 1 << 20
"""Larger files, and those in folders, are known by size and time."""
DOCUMENTS = (".md", ".rst")
"""What no training reads."""


def unless_known(
    sources: Iterable[Source], texts: Iterable[str], args: Iterable[str], options: Any, run: Callable[[TextIO], int]
) -> int:
    """The exit code of a verification that writes to a stream. One that was equal, and of which nothing has changed,
    is not run: what it said is said again.

    ``sources`` and ``texts`` are what runs, with ``args`` and ``options``. What they name counts too, and all that lies
    beside them: its names may be put together when it runs.
    """
    sources, args = [*sources], [*args]
    digest = sha256()
    found = (*_named(sources, args), *_beside(sources))
    for part in (*_versions(), *args, str(options), *(each.text for each in sources), *texts, *found):
        digest.update(f"{len(part)}:{part}".encode())
    path = _folder() / f"{digest.hexdigest()}.txt"
    if path.exists():
        day = datetime.fromtimestamp(path.stat().st_mtime).date()
        sys.stdout.write(f"{path.read_text(encoding='utf-8')}  not run again: nothing has changed since {day}\n")
        return 0
    said = StringIO()
    code = run(said)
    sys.stdout.write(said.getvalue())
    if code == 0:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(said.getvalue(), encoding="utf-8")
        except OSError as error:  # the next run costs what this one did
            print(f"warning: {path}: the verdict cannot be kept: {error.strerror}", file=sys.stderr)
    return code


def _folder() -> Path:
    own = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    return Path(os.environ.get(own) or Path.home() / ".cache") / "autodist" / "verified"


def _versions() -> Iterator[str]:
    """Of Python, autodist and torch; and when something was last installed."""
    yield sys.version
    for name in ("torch-autodist", "torch"):
        try:
            yield version(name)
        except PackageNotFoundError:
            yield ""
    for name in ("purelib", "platlib"):
        yield _state(Path(sysconfig.get_path(name)))


def _named(sources: Iterable[Source], args: Iterable[str]) -> Iterator[str]:
    """Files, folders and environment variables that a script or its arguments name, with what they hold."""
    names: dict[str, list[Path]] = {}
    for source in sources:
        for node in walk(source.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 256:
                names.setdefault(node.value, []).append(source.path.parent)
    for argument in args:
        names.setdefault(argument.rpartition("=")[2], [])
    for name, folders in sorted(names.items()):
        yield f"{name}={os.environ.get(name)}"
        for folder in dict.fromkeys([Path(), *folders]):
            if name.strip("./~") and "\0" not in name:
                yield from _contents(folder / os.path.expanduser(name))


def _beside(sources: Iterable[Source]) -> Iterator[str]:
    """The files in the working folder and in those of the scripts, but for the scripts themselves and documents."""
    known = {each.path.resolve() for each in sources}
    cache = _folder().resolve()
    for folder in sorted({Path.cwd(), *(each.parent for each in known)}):
        for inner, folders, files in os.walk(folder):
            hidden = (name for name in folders if name.startswith(".") or name == "__pycache__")
            folders[:] = sorted({*folders} - {*hidden} - {name for name in folders if Path(inner, name) == cache})
            for path in (Path(inner, name) for name in sorted(files) if not name.startswith(".")):
                if path not in known and path.suffix not in DOCUMENTS and path.exists():
                    yield f"{path} {_state(path)}"


def _contents(path: Path) -> Iterator[str]:
    try:
        if path.is_file():
            data = path.read_bytes() if path.stat().st_size <= READ_WHOLE else _state(path).encode()
            yield sha256(data).hexdigest()
        elif path.is_dir():
            yield from _files(path)
    except (OSError, ValueError):
        yield f"{path} cannot be read"


def _files(folder: Path) -> Iterator[str]:
    for inner, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for name in sorted(files):
            path = Path(inner, name)
            yield f"{path} {_state(path) if path.exists() else None}"


def _state(path: Path) -> str:
    state = path.stat()
    return f"{state.st_size} {state.st_mtime_ns}"
