"""Which scripts to evaluate: those that a manifest names, or those found in a folder."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from autodist.errors import AutodistError
from autodist.project import Project
from autodist.sniff import may_train

SKIPPED = frozenset({"__pycache__", "build", "dist", "docs", "node_modules", "site-packages", "test", "tests"})
TIMEOUT = 300.0
EXPECTED = ("convert", "refuse")


@dataclass(frozen=True)
class Entry:
    """One training script and how to run it so that it ends soon."""

    repository: str
    """The folder below the root that holds it, or with ``/`` in a manifest ``owner/name``."""
    script: str
    """The entry script, below the repository."""
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    workdir: str = "."
    """The folder below the repository where the script starts. By default the script's own."""
    links: dict[str, str] = field(default_factory=dict)
    """Data: a path below the working folder (or beside it), and what below the data folder it links to."""
    mend: dict[str, str] = field(default_factory=dict)
    """What a copy of the repository says for what no longer runs: ``{ "loss.data[0]" = "loss.item()" }``."""
    timeout: float = TIMEOUT
    steps: int | None = None
    """Both programs end after so many optimizer steps: for scripts without an option to train less."""
    skip_run: str | None = None
    """Why the script cannot run on an ordinary machine without GPUs; it is converted and checked all the same."""
    commit: str | None = None
    expect: str = "convert"
    tags: tuple[str, ...] = ()
    """What it was measured with, or what it is about: ``--tag`` picks by it."""

    @property
    def name(self) -> str:
        """How reports call it."""
        return f"{self.repository}/{self.script}" if self.repository else self.script

    def folder(self, root: Path) -> Path:
        """The repository's folder: ``owner/name``, ``owner+name`` or ``name`` below ``root``."""
        owner, _, name = self.repository.rpartition("/")
        candidates = [self.repository, f"{owner}+{name}", name] if owner else [self.repository]
        return next((root / each for each in candidates if each and (root / each).is_dir()), root / candidates[0])

    def to_json(self) -> dict[str, Any]:
        """What ``from_json`` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Entry:
        """The entry that ``to_json`` wrote."""
        return cls(**{**content, **{key: tuple(content[key]) for key in ("args", "tags")}})


@dataclass(frozen=True)
class Entries:
    """The scripts of one evaluation, and the folder that holds their repositories."""

    root: Path
    scripts: tuple[Entry, ...]


def load(path: Path, root: Path | None, tags: Sequence[str] = ()) -> Entries:
    """The entries of a manifest, all or those with one of the tags, or a folder's scripts. Raises AutodistError."""
    if path.is_dir():
        if tags:
            raise AutodistError("is a folder, whose scripts have no tags: name a manifest, or take --only", path)
        return Entries(path.resolve(), tuple(found(path.resolve())))
    if path.suffix != ".toml":
        raise AutodistError("name a folder of projects, or a manifest.toml", path)
    scripts = _tagged(path, _read(path), tags)
    root = path.parent if root is None else root
    if not root.is_dir():
        raise AutodistError("no such folder: --root names where the repositories lie", root)
    return Entries(root.resolve(), scripts)


def _read(path: Path) -> tuple[Entry, ...]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("script")
    except OSError as error:
        raise AutodistError(f"cannot be read: {error.strerror}", path) from None
    except ValueError as error:
        raise AutodistError(f"is not valid TOML: {error}", path) from None
    if not isinstance(tables, list) or not tables or not all(isinstance(table, dict) for table in tables):
        raise AutodistError("holds no [[script]] tables", path)
    return tuple(_entry(path, number, table) for number, table in enumerate(tables, 1))


def _tagged(path: Path, scripts: tuple[Entry, ...], tags: Sequence[str]) -> tuple[Entry, ...]:
    """Those with one of the tags; all where none is asked for."""
    known = {tag for entry in scripts for tag in entry.tags}
    unknown = next((tag for tag in tags if tag not in known), None)
    if unknown is not None:
        there = f"there are {', '.join(sorted(known))}" if known else "no script has any"
        raise AutodistError(f"no tag {unknown!r}, {there}", path)
    return tuple(entry for entry in scripts if not tags or not set(tags).isdisjoint(entry.tags))


def _entry(path: Path, number: int, table: dict[str, Any]) -> Entry:
    """The checked entry of one table."""
    known = {each.name.replace("_", "-"): each.name for each in fields(Entry)}
    for key in table:
        if key not in known:
            raise AutodistError(f"script {number}: no option {key!r}, there are {', '.join(sorted(known))}", path)
    values = {known[key]: value for key, value in table.items()}
    if not isinstance(values.get("script"), str) or not isinstance(values.setdefault("repository", ""), str):
        raise AutodistError(f"script {number}: `repository` and `script` must be texts", path)
    for key in ("args", "tags"):
        items = values.get(key, [])
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise AutodistError(f"script {number}: `{key}` must be a list of texts", path)
        values[key] = tuple(items)
    for key in ("env", "links", "mend"):
        table = values.setdefault(key, {})
        if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
            raise AutodistError(f"script {number}: `{key}` must be a table of texts", path)
    if values.get("expect", "convert") not in EXPECTED:
        raise AutodistError(f"script {number}: `expect` must be one of {', '.join(EXPECTED)}", path)
    values.setdefault("workdir", Path(values["script"]).parent.as_posix())
    return Entry(**values)


def found(root: Path) -> Iterator[Entry]:
    """Scripts below ``root`` that train something and that no other of them imports."""
    candidates = {path.resolve(): path for path in _python_files(root)}
    projects: dict[Path, Project | None] = {}
    for path in candidates:
        try:
            projects[path] = Project.load(path)
        except AutodistError:
            projects[path] = None  # said when it is evaluated
    imported = {
        module.path.resolve() for project in projects.values() if project for module in project.modules.values()
    }
    for resolved, path in candidates.items():
        project = projects[resolved]
        if resolved in imported or (project is not None and not _starts_training(project)):
            continue
        inside = path.relative_to(root)
        repository = inside.parts[0] if len(inside.parts) > 1 else ""
        script = inside.relative_to(repository)
        yield Entry(repository, script.as_posix(), workdir=script.parent.as_posix())


def _python_files(root: Path) -> Iterator[Path]:
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in SKIPPED and not name.startswith("."))
        for name in sorted(files):
            path = Path(folder, name)
            if name.endswith(".py") and not name.startswith("test_") and _may_train(path):
                yield path


def _may_train(path: Path) -> bool:
    try:
        return may_train(path.read_bytes())
    except OSError:
        return False


def _starts_training(project: Project) -> bool:
    """Whether the script does something when it is run, and something that it reaches computes gradients."""
    acts = any(isinstance(node, (ast.For, ast.While, ast.If, ast.With, ast.Expr)) for node in _code(project))
    return acts and any("backward(" in source.text for source in project.sources)


def _code(project: Project) -> Iterator[ast.stmt]:
    for node in project.entry.tree.body:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield node
