"""Where converted files go, and writing them: all or none, each in one step."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autodist import notebook
from autodist.config import Strategy
from autodist.errors import AutodistError
from autodist.launch import commands
from autodist.project import Project
from autodist.relocation import relocated
from autodist.result import Converted, Result
from autodist.source import Source

MODE = 0o644


@dataclass(frozen=True)
class Output:
    """One file to write."""

    source: Source
    path: Path
    data: bytes


def in_place(result: Result) -> tuple[Output, ...]:
    """Each file that changed, where it is. A link stays a link: what it points to is written."""
    if result.entry.source.is_notebook:
        raise AutodistError("a notebook becomes a script: it cannot be rewritten in place", result.entry.source.path)
    return tuple(_output(file, file.source.path.resolve()) for file in result.changed)


def beside(result: Result, project: Project, strategy: Strategy) -> tuple[Output, ...]:
    """``train_ddp.py`` beside ``train.py``, or a folder ``train_ddp/`` where local modules change too.

    That of a script that `python -m` starts is beside its package: it is started in there by the same name.
    """
    entry = result.entry.source.path
    stem = entry.stem if entry.stem != "__main__" else Path(os.path.abspath(entry)).parent.name
    name = f"{stem}_{strategy.value}"
    if result.changed == (result.entry,) and entry.stem != "__main__":
        return (_output(result.entry, entry.with_name(f"{name}{_suffix(result.entry.source)}")),)
    return _folder(result, project, entry.with_name(name) if project.module is None else project.root / name)


def at(result: Result, project: Project, target: str) -> tuple[Output, ...]:
    """What ``--output TARGET`` writes: a file for one script, a folder for a script with local modules."""
    path = Path(target)
    if path.suffix == notebook.SUFFIX:
        return (_in_notebook(result, project, path),)
    is_folder = path.is_dir() or target.endswith(("/", os.sep))
    if is_folder or (path.suffix != ".py" and len(result.files) > 1):
        return _folder(result, project, path)
    if others := [file.source.path.name for file in result.changed if file is not result.entry]:
        raise AutodistError(f"--output must name a folder, because {', '.join(others)} changes too", path)
    elsewhere = os.path.abspath(path.parent) != os.path.abspath(project.entry.path.parent)
    if elsewhere and project.module is not None and project.modules:
        raise AutodistError("--output must name a folder, because the script imports from its package", path)
    return (_output(result.entry, path),)


def _in_notebook(result: Result, project: Project, path: Path) -> Output:
    """A notebook that writes the script, and the local modules that change, and starts it on two ranks."""
    entry = result.entry.source
    if project.module is not None:
        raise AutodistError(f"--output must name a folder: {project.module} is started by its name", path)
    if project.modules and os.path.abspath(path.parent) != os.path.abspath(entry.path.parent):
        raise AutodistError("the notebook must lie beside the modules that the script imports", path)
    script = Path(f"{path.stem}.py")
    outputs = [_output(result.entry, script)]
    if result.changed != (result.entry,):
        outputs = [*_folder(result, project, Path(path.stem))]
        script = outputs[0].path
    end = max((statement.end_lineno or 0 for statement in entry.tree.body), default=0)
    like = entry.path.read_bytes() if entry.is_notebook else b""
    if other := next((each for each in outputs if each.source.encoding.lower() not in ("utf-8", "ascii")), None):
        raise AutodistError(
            f"is in {other.source.encoding}: a notebook writes UTF-8, convert it to that", other.source.path
        )
    texts = {each.path.as_posix(): each.data.decode().removeprefix("\ufeff") for each in outputs}
    text = notebook.made_of(texts, commands(script)[1].command, like, entry.left_out, end)
    return Output(entry, path, text.encode())


def _folder(result: Result, project: Project, folder: Path) -> tuple[Output, ...]:
    """Every file of the project, with the layout it has in its own folder; they import each other."""
    top = os.path.abspath(project.base)
    outputs = []
    for file in result.files:
        place = Path(os.path.relpath(os.path.abspath(file.source.path), top)).with_name(
            notebook.script_name(file.source.path)
        )
        text = relocated(project, file.source, file.after) if project.modules else file.after
        outputs.append(Output(file.source, folder / place, file.source.encode(text)))
    return tuple(outputs)


def _suffix(source: Source) -> str:
    return ".py" if source.is_notebook else source.path.suffix


def _output(file: Converted, path: Path) -> Output:
    return Output(file.source, path, file.source.encode(file.after))


def check(outputs: Iterable[Output], overwrite: bool) -> None:
    """Raise AutodistError where a file is in the way."""
    for output in outputs:
        if output.path.is_dir():
            raise AutodistError("is a folder: cannot write a file there", output.path)
        if output.path.exists():
            if not overwrite:
                raise AutodistError("already exists: --force overwrites it", output.path)
            if not output.path.stat().st_mode & 0o222 or not os.access(output.path, os.W_OK):
                raise AutodistError("is read-only: nothing was written", output.path)


def write(outputs: Iterable[Output]) -> None:
    """Write every file or, where one cannot be made, none. Raises AutodistError."""
    temporary: dict[Path, Path] = {}
    try:
        for output in outputs:
            with _explained(output.path):
                output.path.parent.mkdir(parents=True, exist_ok=True)
                temporary[output.path] = _temporary(output)
        for path, written in temporary.items():
            with _explained(path):
                os.replace(written, path)
    finally:
        for written in temporary.values():
            written.unlink(missing_ok=True)


def write_documents(documents: Mapping[Path, str]) -> None:
    """Write texts to files of these names. Raises AutodistError."""
    for path, text in documents.items():
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def _temporary(output: Output) -> Path:
    """The content in a file of its own beside the target, with the mode of the file it was made from."""
    try:
        mode = stat.S_IMODE(output.source.path.stat().st_mode)
    except OSError:  # standard input has no mode
        mode = MODE
    descriptor, name = tempfile.mkstemp(prefix=f".{output.path.name}.", dir=output.path.parent)
    path = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(output.data)
        path.chmod(mode)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AutodistError(f"cannot be written: {error.strerror}", path) from None
