"""Scripts rewritten without changing what they do: the converter must come to the same outcome for each.

    python -m benchmarks.mutations                                                                 the fixtures
    python -m benchmarks.mutations benchmarks/corpus/manifest.toml [--tag NAME] --root FOLDER      public scripts

Each entry script has its variables renamed, its functions reordered, put into a class, and moved
to a file of their own. An outcome is whether it is converted, what is warned of, and which rules change something.
Nothing is run.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from autodist.config import Config
from autodist.convert import convert
from autodist.errors import AutodistError
from autodist.evaluate.entries import Entries, load
from autodist.project import Project

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
REFLECTION = frozenset({"globals", "locals", "vars", "exec", "eval"})
PARTS = "moved_parts"
Files = dict[str, str]
"""New files beside the script, by module name; the script itself under the empty name."""
Mutation = Callable[[ast.Module], Files | None]


def renamed(tree: ast.Module) -> Files | None:
    """Every variable and function of the script under another name."""
    ours = _own_names(tree)
    if not ours:
        return None

    class Rename(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            node.id = ours.get(node.id, node.id)
            return node

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
            node.name = ours.get(node.name, node.name)
            return self.generic_visit(node)

        def visit_Global(self, node: ast.Global) -> ast.AST:
            node.names = [ours.get(name, name) for name in node.names]
            return node

        def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            names = [each.name for each in methods]
            self.generic_visit(node)
            for method, name in zip(methods, names, strict=True):
                method.name = name
            return node

    return {"": ast.unparse(Rename().visit(tree))}


def _own_names(tree: ast.Module) -> dict[str, str]:
    """New names for what the script binds, but for what is named in other ways too."""
    bound: set[str] = set()
    taken: set[str] = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id in REFLECTION:
                return {}
            if isinstance(node.ctx, ast.Store):
                bound.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            taken |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.arg):
            taken.add(node.arg)
        elif isinstance(node, ast.keyword):
            taken.add(node.arg or "")
        elif isinstance(node, ast.ExceptHandler):
            taken.add(node.name or "")
        elif isinstance(node, ast.ClassDef):
            taken |= {name for each in node.body for name in _class_level(each)}
            taken.add(node.name)
        elif isinstance(node, ast.Nonlocal):
            taken.update(node.names)
    bound |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return {name: f"renamed_{name.strip('_')}" for name in bound - taken if not name.startswith("_")}


def _class_level(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement) if isinstance(statement, (ast.Assign, ast.AnnAssign)) else ():
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def reordered(tree: ast.Module) -> Files | None:
    """Neighbouring functions in the opposite order, where nothing in their heads needs the other order."""
    body: list[ast.stmt] = []
    run: list[ast.FunctionDef] = []
    changed = False
    for statement in [*tree.body, ast.Pass()]:
        if isinstance(statement, ast.FunctionDef) and not statement.decorator_list and not _defaults(statement):
            run.append(statement)
            continue
        changed |= len(run) > 1
        body += [*reversed(run), statement]
        run = []
    return {"": ast.unparse(ast.Module(body[:-1], []))} if changed else None


def _defaults(function: ast.FunctionDef) -> list[ast.expr]:
    given = [*function.args.defaults, *(default for default in function.args.kw_defaults if default is not None)]
    return [default for default in given if not isinstance(default, ast.Constant)]


def nested(tree: ast.Module) -> Files | None:
    """The functions of the script as static methods of a class."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list}
    names = functions.keys() - _rebound(tree) - _given_names(tree)
    if not names:
        return None

    class Qualify(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            if node.id in names:
                return ast.Attribute(ast.Name("Functions", ast.Load()), node.id, node.ctx)
            return node

    first = next(index for index, node in enumerate(tree.body) if isinstance(node, ast.FunctionDef))
    moved = [functions[name] for name in functions if name in names]
    if any(_defaults(function) for function in moved):
        return None
    tree = Qualify().visit(tree)
    for function in moved:
        function.decorator_list = [ast.Name("staticmethod", ast.Load())]
    holder = ast.parse("class Functions:\n    pass").body[0]
    assert isinstance(holder, ast.ClassDef)
    holder.body = list(moved)
    rest = [node for node in tree.body if node not in moved]
    body = [*rest[:first], holder, *rest[first:]]
    return {"": ast.unparse(ast.fix_missing_locations(ast.Module(body, [])))}


def _rebound(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _given_names(tree: ast.Module) -> set[str]:
    return {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def split(tree: ast.Module) -> Files | None:
    """Functions and classes that need nothing but imports and each other, in a module of their own."""
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    if any(isinstance(node, ast.ImportFrom) and (node.level or node.module == "__future__") for node in imports):
        return None
    given = {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
    given |= set(dir(builtins))
    movable = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    while True:
        fixed = {name for name, node in movable.items() if _free_names(node) - given - movable.keys()}
        if not fixed:
            break
        movable = {name: node for name, node in movable.items() if name not in fixed}
    if not movable or movable.keys() & _rebound(tree):
        return None
    moved = list(movable.values())
    last = max(index for index, node in enumerate(tree.body) if node in imports) if imports else -1
    names = ast.ImportFrom(PARTS, [ast.alias(name) for name in movable], 0)
    rest = [names if node is moved[0] else node for node in tree.body if node is moved[0] or node not in moved]
    if tree.body.index(moved[0]) < last:
        return None
    parts = ast.Module([*imports, *moved], [])
    return {"": ast.unparse(ast.fix_missing_locations(ast.Module(rest, []))), PARTS: ast.unparse(parts)}


def _free_names(node: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """The names that a definition uses and does not bind itself, roughly: a name that it binds anywhere is its own."""
    bound: set[str] = set()
    used: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Global):
            used |= set(each.names) | {"<global>"}
        elif isinstance(each, ast.Name):
            (used if isinstance(each.ctx, ast.Load) else bound).add(each.id)
        elif isinstance(each, ast.arg):
            bound.add(each.arg)
        elif isinstance(each, (ast.ExceptHandler, ast.FunctionDef, ast.ClassDef)):
            bound.add(each.name or "")
        elif isinstance(each, (ast.Import, ast.ImportFrom)):
            bound |= {(alias.asname or alias.name).partition(".")[0] for alias in each.names}
    return used - bound


MUTATIONS: dict[str, Mutation] = {"renamed": renamed, "reordered": reordered, "nested": nested, "split": split}


def outcome(entry: Path) -> tuple[str, ...]:
    """What the conversion of a script comes to, as far as it does not depend on names and places."""
    try:
        result = convert(Project.load(entry), Config())
    except AutodistError as error:
        return ("error", type(error).__name__)
    diagnostics = result.diagnostics
    refusals = sorted({each.code for each in diagnostics if each.severity.value == "refusal"})
    if refusals:
        return ("refused", *refusals)
    warned = {f"warning {each.code}" for each in diagnostics if each.severity.value == "warning"}
    return ("converted", *sorted(warned), *sorted({each.code for each in diagnostics if each.fix is not None}))


def mutants(entry: Path) -> Iterator[tuple[str, Files]]:
    """The mutations that a script allows."""
    for name, mutate in MUTATIONS.items():
        try:
            files = mutate(ast.parse(entry.read_bytes()))
        except (SyntaxError, ValueError, RecursionError):
            return
        if files is not None:
            yield name, files


def differences(entry: Path, top: Path) -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Each mutation of ``entry``, with the outcome before and after. ``top`` is the folder that holds its project."""
    expected = outcome(entry)
    if expected[0] == "error":
        return
    for name, files in mutants(entry):
        with tempfile.TemporaryDirectory(prefix="autodist-mutation-") as folder:
            copy = Path(folder) / top.name
            shutil.copytree(top, copy, ignore=_all_but_code)
            target = copy / entry.relative_to(top)
            for module, text in files.items():
                (target.with_name(f"{module}.py") if module else target).write_text(text + "\n", encoding="utf-8")
            yield name, expected, outcome(target)


def _all_but_code(folder: str, names: list[str]) -> list[str]:
    kept = (".py", ".cfg", ".toml")
    return [name for name in names if not Path(folder, name).is_dir() and not name.endswith(kept)]


def fixtures() -> Iterator[tuple[str, Path, Path]]:
    """Name, entry script and folder of every fixture."""
    for path in sorted(FIXTURES.glob("*/fixture.toml")):
        before = path.parent / "before"
        yield path.parent.name, before / tomllib.loads(path.read_text(encoding="utf-8"))["entry"], before


def corpus(entries: Entries) -> Iterator[tuple[str, Path, Path]]:
    """The same of every Python script that a manifest names and that is there."""
    for entry in entries.scripts:
        folder = entry.folder(entries.root)
        script = folder / entry.script
        if script.suffix == ".py" and script.is_file():
            yield entry.name, script, folder


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every difference and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", nargs="?", type=Path)
    parser.add_argument("--root", type=Path, help="where a manifest's repositories lie")
    parser.add_argument(
        "--tag", action="append", default=[], help="only a manifest's scripts with this tag; repeatable"
    )
    parser.add_argument("--only", help="scripts with this in their name")
    options = parser.parse_args(arguments)
    if options.tag and not options.manifest:
        parser.error("--tag picks scripts of a manifest: name it, too")
    try:
        entries = load(options.manifest, options.root, options.tag) if options.manifest else None
    except AutodistError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    scripts = fixtures() if entries is None else corpus(entries)
    counts = {name: [0, 0] for name in MUTATIONS}
    for name, entry, top in scripts:
        if options.only and options.only not in name:
            continue
        for mutation, expected, found in differences(entry, top):
            counts[mutation][0] += 1
            if expected != found:
                counts[mutation][1] += 1
                print(f"{name}, {mutation}: {' '.join(expected)} -> {' '.join(found)}", flush=True)
    for mutation, (total, differing) in counts.items():
        print(f"{mutation:10} {total - differing:4} of {total} scripts come to the same outcome")
    return 1 if any(differing for _, differing in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
