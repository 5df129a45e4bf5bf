"""A training script and the local modules that it imports."""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from autodist.deep import deep
from autodist.errors import AutodistError
from autodist.project.chosen import MOST, NAMING, any_named, files, patterns, put_together, spelt, with_packages
from autodist.project.search_path import added_folders
from autodist.source import Source, all_of, walk

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".git")
"""What the top folder of a repository holds."""
SIGNS = ("requirements.txt", "environment.yml", "LICENSE", "README.md")
"""What it holds, as others may, where it has none of these."""
MOST_LEVELS = 4
LIBRARIES = frozenset(
    "torch torchvision torchaudio torch_geometric lightning pytorch_lightning lightning_fabric accelerate deepspeed "
    "transformers".split()
)
"""Known by what they publish: an example in the repository of one is read as anywhere else."""


@dataclass(frozen=True)
class ReadInPart:
    """An import by name that may mean more modules than are worth following: those are read that the script names."""

    source: Source
    call: ast.Call
    names: tuple[str, ...]
    of: int


@dataclass(frozen=True, eq=False)
class Project:
    """The entry script and, by dotted name, every local module that it reaches."""

    entry: Source
    modules: Mapping[str, Source]
    root: Path
    """The folder that absolute imports start from: that of the entry, or above its package."""
    module: str | None = None
    """The name by which `python -m` starts the entry, where it is not started by its path."""
    chosen: frozenset[str] = frozenset()
    """Modules that an import by a name of which nothing is known may mean."""
    read_in_part: tuple[ReadInPart, ...] = ()

    @property
    def sources(self) -> tuple[Source, ...]:
        """All files, the entry first."""
        return (self.entry, *self.modules.values())

    @property
    def base(self) -> Path:
        """The folder that holds all files: ``root``, or one further up where modules are imported from there."""
        tops = {os.path.abspath(self.root), *map(str, self.import_folders())}
        return Path(os.path.commonpath(tops)) if len(tops) > 1 else self.root

    @property
    def package(self) -> str:
        """The package that the entry's relative imports start from."""
        return _package(self.root, self.entry.path)

    def import_folders(self) -> Iterator[Path]:
        """The folders below which the modules lie by their names."""
        for name, source in self.modules.items():
            levels = name.count(".") + (source.path.name == "__init__.py")
            yield Path(os.path.abspath(source.path)).parents[levels]

    @classmethod
    @deep
    def load(
        cls,
        entry: Path,
        stdin: str | bytes | None = None,
        repository: Path | None = None,
        module: str | None = None,
        unsaved: Mapping[Path, str] | None = None,
    ) -> Project:
        """Read ``entry`` (or take its text from ``stdin``) and what it imports from its own folder.

        Packages of its ``repository`` are found too: the folder further up that looks like one, unless it is given.
        ``module`` is the name by which it is started (`python -m`), if that is known. ``unsaved`` are texts that an
        editor holds of files, by resolved path: they stand for what is on disk.

        Raises AutodistError for a file that cannot be read or parsed, or a local module that is missing.
        """
        unsaved = unsaved or {}
        stdin = unsaved.get(entry.resolve()) if stdin is None and unsaved else stdin
        source = Source.read(entry) if stdin is None else Source.parse(stdin, entry)
        module = module or module_of(entry, source.tree)
        root = entry.parent if module is None else _top(entry, module)
        roots = [root, *added_folders(source, starts(entry))]
        if (entry.parent / "src").is_dir():  # what is imported from there stands on the path when it is run
            roots.append(entry.parent / "src")
        if entry.name == "__main__.py":  # `python -m package`
            roots.append(entry.parent.parent)
        repository = repository or _repository(entry)
        return _Reading(entry, roots, repository, unsaved).project(source, module)


def _texts(source: Source) -> frozenset[str]:
    constants = (node.value for node in all_of(source.tree, ast.Constant))
    return frozenset(value for value in constants if isinstance(value, str))


class _Reading:
    """Goes from the entry to all modules that it reaches."""

    def __init__(self, entry: Path, roots: list[Path], repository: Path | None, unsaved: Mapping[Path, str]) -> None:
        self.entry, self.roots, self.repository, self.unsaved = entry, roots, repository, unsaved
        self.modules: dict[str, Source] = {}
        self.pending: list[tuple[Source, str]] = []
        self.read: list[tuple[Source, str]] = []
        self.chosen: set[str] = set()
        self.crowded: dict[tuple[ast.Call, str], Source] = {}
        """Imports by name that may mean too many modules."""
        self.in_part: dict[tuple[ast.Call, str], ReadInPart] = {}

    def project(self, source: Source, module: str | None) -> Project:
        """All that is reached from the entry's text."""
        self.pending.append((source, _package(self.roots[0], self.entry)))
        while self.pending:
            self._read(*self.pending.pop())
            if not self.pending:
                self._narrow()
        modules = dict(sorted(self.modules.items()))
        chosen, in_part = frozenset(self.chosen), tuple(self.in_part.values())
        return Project(source, modules, self.roots[0], module, chosen, in_part)

    def _read(self, importer: Source, package: str) -> None:
        self.read.append((importer, package))
        for name, line, required in _imported(importer, package):
            self._reach(importer, name, line, required)
        for pattern, call in patterns(importer):
            self._reach_all(importer, call, self._named(importer, call, pattern))
        for pattern, call in put_together(importer):
            self._choose(importer, call, self._named(importer, call, pattern))
        for name, call in any_named(importer, self.roots[1:]):
            self._choose(importer, call, [name])

    def _reach(self, importer: Source, name: str, line: int, required: bool = False) -> None:
        if name in self.modules:
            return
        found = next(filter(None, (_find(each, name) for each in self.roots)), None)
        if found is None and self.repository is not None and name.partition(".")[0] not in LIBRARIES:
            above = _above(self.entry, self.repository)
            found = next(filter(None, (_find_package(each, name) for each in above)), None)
        if found is not None and found.resolve() != self.entry.resolve():
            text = self.unsaved.get(found.resolve()) if self.unsaved else None
            read = _module(found, name, found.stat().st_mtime_ns) if text is None else Source.parse(text, found, name)
            self.modules[name] = read
            own = name if found.name == "__init__.py" else name.rpartition(".")[0]
            self.pending.append((self.modules[name], own))
            further = [each for each in added_folders(self.modules[name], starts(self.entry)) if each not in self.roots]
            if further:  # what could not be found before may lie there
                self.roots += further
                self.pending += self.read
        elif required and found is None and not _is_opaque(self.roots[0], name):
            raise AutodistError(f"imports local module {name}, which cannot be found", importer.path, line)

    def _reach_all(self, importer: Source, call: ast.Call, names: list[str]) -> None:
        for name in with_packages(names):
            self._reach(importer, name, call.lineno)

    def _choose(self, importer: Source, call: ast.Call, names: list[str]) -> None:
        self.chosen.update(names)
        self._reach_all(importer, call, names)

    def _named(self, importer: Source, call: ast.Call, pattern: str) -> list[str]:
        """The modules that an import by name may mean, in the first folder that has some, unless they are too many."""
        found = next(filter(None, (files(pattern, root) for root in self.roots)), [])
        if len(found) <= MOST:
            return found
        self.crowded[call, pattern] = importer
        return []

    def _narrow(self) -> None:
        """Where a name may mean too many modules, goes on with those that texts of the script name."""
        texts = frozenset().union(*(_texts(source) for source, _ in self.read))
        for (call, pattern), importer in self.crowded.items():
            if (call, pattern) not in self.in_part:
                many = next(filter(None, (files(pattern, root) for root in self.roots)), [])
                names = spelt(pattern, many, texts)
                if 0 < len(names) <= MOST:
                    self.in_part[call, pattern] = ReadInPart(importer, call, tuple(names), len(many))
                    self._choose(importer, call, names)


@lru_cache(maxsize=1000)
def _module(path: Path, name: str, modified: int) -> Source:
    """Read once what many files of one package import."""
    return Source.read(path, name)


def module_of(entry: Path, tree: ast.Module) -> str | None:
    """The name by which `python -m` starts a script that cannot be started by its path: it imports from its package."""
    place = Path(os.path.abspath(entry))
    folder = place.parent
    relative = any(isinstance(node, ast.ImportFrom) and node.level for node in walk(tree))
    while relative and (folder / "__init__.py").exists():
        folder = folder.parent
    if folder == place.parent:
        return None
    parts = place.relative_to(folder).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__main__" else parts)


def starts(entry: Path) -> list[Path]:
    """Where a script may be started: in its own folder, or in the current one, if that is further up."""
    current = Path.cwd() in Path(os.path.abspath(entry)).parents[1:]
    return [entry.parent, Path()] if current else [entry.parent]


def _top(entry: Path, module: str) -> Path:
    """The folder below which ``entry`` lies by its name."""
    levels = module.count(".") + (entry.stem == "__main__")
    return entry.parents[levels] if levels < len(entry.parents) else Path(*[os.pardir] * levels)


def located(module: str) -> Path:
    """The file that `python -m MODULE` starts in the current folder. Raises AutodistError."""
    wanted = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [Path(), *(Path(each) for each in wanted if each), *_package_folders(Path())]
    found = next(filter(None, (_find(folder, module) for folder in folders)), None)
    if found is None:
        where = f"neither {Path(*module.split('.'))}.py nor a package of that name is in {Path.cwd()}"
        raise AutodistError(f"no module {module}: {where}; name it as for `python -m`, in the folder where that works")
    if found.name != "__init__.py":
        return found
    if not found.with_name("__main__.py").is_file():
        raise AutodistError(f"{module} is a package without __main__.py: name the module in it that trains")
    return found.with_name("__main__.py")


def _repository(entry: Path) -> Path | None:
    """The top folder of the repository that the script lies in, if that is further up, or of its package."""
    folder, *above = Path(os.path.abspath(entry)).parents[: MOST_LEVELS + 1]
    for marks in (MARKS, SIGNS):
        for each in above:
            if any((each / name).exists() for name in marks):
                return each
    # `python -m tools.train` starts in the folder that holds the package of the script
    package = (folder / "__init__.py").exists()
    return next((each for each in above if not (each / "__init__.py").exists()), None) if package else None


def _above(entry: Path, repository: Path) -> list[Path]:
    """The folders above the script's, up to the repository: that first, since a script is mostly started there."""
    above = Path(os.path.abspath(entry)).parents[1:]
    between = [each for each in above if repository in each.parents]
    return [repository, *reversed(between)]


def _find_package(repository: Path, name: str) -> Path | None:
    """A module of a package that the repository holds and installs, or that stands on the path when it is run."""
    for root in _package_folders(repository):
        if (root / name.partition(".")[0] / "__init__.py").is_file():
            return _find(root, name)
    # a module beside the folder of the script, which is started with that on the path (`PYTHONPATH=.`)
    return _find(repository, name) if name.partition(".")[0] not in sys.stdlib_module_names else None


def _pyproject(repository: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


@lru_cache(maxsize=100)
def _package_folders(repository: Path) -> tuple[Path, ...]:
    """The folders that hold the packages of a repository: those that its pyproject.toml names, too."""
    tables = _pyproject(repository).get("tool", {})
    setuptools = tables.get("setuptools", {})
    packages = setuptools.get("packages", {})
    found = packages.get("find", {}).get("where", []) if isinstance(packages, dict) else []
    named = [setuptools.get("package-dir", {}).get(""), *found]
    named += [each.get("from") for each in tables.get("poetry", {}).get("packages", [])]
    below = (repository / each for each in named if isinstance(each, str))
    return tuple(dict.fromkeys([repository, repository / "src", *below]))


def console_script(project: Project) -> str | None:
    """The command by which an installed project starts the entry, where that starts nothing by itself."""
    repository = _repository(project.entry.path)
    if repository is None or any(
        isinstance(node, (ast.If, ast.Expr, ast.With, ast.For)) for node in project.entry.tree.body[1:]
    ):
        return None
    tables = _pyproject(repository)
    named = {
        **tables.get("project", {}).get("scripts", {}),
        **tables.get("tool", {}).get("poetry", {}).get("scripts", {}),
    }
    for name in ("setup.cfg", "setup.py"):
        if (repository / name).is_file():
            text = (repository / name).read_text(encoding="utf-8", errors="replace")
            named |= dict(re.findall(r"([\w.-]+)\s*=\s*([\w.]+:\w+)", text))
    for command, target in named.items():
        places = (_find(folder, str(target).partition(":")[0]) for folder in _package_folders(repository))
        if any(place is not None and place.resolve() == project.entry.path.resolve() for place in places):
            return str(command)
    return None


def _package(root: Path, entry: Path) -> str:
    return ".".join(Path(os.path.abspath(entry.parent)).relative_to(os.path.abspath(root)).parts)


def _find(root: Path, name: str) -> Path | None:
    base = root.joinpath(*name.split("."))
    if not base.name:  # `import_module(".net", __package__)` begins with the name of nothing
        return None
    for candidate in (base.with_name(base.name + ".py"), base / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _is_opaque(root: Path, name: str) -> bool:
    """Whether a local module is there without source: a folder, or compiled."""
    base = root.joinpath(*name.split("."))
    beside = [
        *base.parent.glob(base.name + ".*"),
        *base.parent.parent.glob(base.name + ".pyx"),
    ]  # built a folder deeper
    return base.exists() or any(each.suffix in (".so", ".pyd", ".pyi", ".pyx") for each in beside)


def _imported(source: Source, package: str) -> Iterator[tuple[str, int, bool]]:
    """Names of modules that may be local, with their line, and whether they must be (relative imports)."""
    by_name = any(f"{name}(" in source.text for name in NAMING)
    for node in walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                yield from ((".".join(parts[: i + 1]), node.lineno, False) for i in range(len(parts)))
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, package)
            parts = base.split(".") if base else []
            for i in range(len(parts)):
                yield ".".join(parts[: i + 1]), node.lineno, node.level > 0 and i == len(parts) - 1
            for alias in node.names:
                yield ".".join([*parts, alias.name]), node.lineno, False
        elif isinstance(node, ast.Constant) and by_name and isinstance(node.value, str):
            parts = node.value.split(".")
            if all(part.isidentifier() for part in parts):
                yield from ((".".join(parts[: i + 1]), node.lineno, False) for i in range(len(parts)))


def absolute(node: ast.ImportFrom, package: str) -> str:
    """The dotted name that ``from X import`` names, seen from ``package``."""
    if not node.level:
        return node.module or ""
    parts = package.split(".") if package else []
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])
