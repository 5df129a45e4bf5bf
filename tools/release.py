"""Whether this tree can be released: ``make release-check``. One line for each thing that must hold."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"(?:autodist@|rev: )v(\d+\.\d+\.\d+)")
"""A version that documents and examples tell people to use."""


class Unfit(Exception):
    """What keeps the tree from being released."""


def version(root: Path = ROOT) -> str:
    """The version that pyproject.toml has."""
    return str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def versions(root: Path = ROOT) -> str:
    """pyproject.toml, CHANGELOG.md, CITATION.cff and all documents name the same version."""
    wanted = version(root)
    changes = re.findall(r"(?ms)^## (\S+)\n(.*?)(?=^## |\Z)", (root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if not changes or changes[0][0] != wanted or not changes[0][1].strip():
        raise Unfit(f"CHANGELOG.md begins with {changes[0][0] if changes else 'nothing'}, not with {wanted}")
    cited = re.findall(r"(?m)^version: (\S+)$", (root / "CITATION.cff").read_text(encoding="utf-8"))
    if cited != [wanted]:
        raise Unfit(f"CITATION.cff has version {' '.join(cited) or 'nothing'}, not {wanted}")
    for path in (
        root / "README.md",
        *root.glob("docs/**/*.md"),
        *root.glob("examples/**/*"),
        *root.glob("skills/**/*"),
    ):
        for found in NAMED.findall(path.read_text(encoding="utf-8")) if path.is_file() else ():
            if found != wanted:
                raise Unfit(f"{path.relative_to(root)} names v{found}, not v{wanted}")
    return wanted


def untagged() -> str:
    """The version has not been released yet."""
    if ran("git", "tag", "--list", f"v{version()}"):
        raise Unfit(f"the tag v{version()} is there: choose the next version")
    return f"v{version()} is free"


def committed() -> str:
    """Nothing is left that is not committed."""
    if left := ran("git", "status", "--porcelain"):
        raise Unfit(f"{len(left.splitlines())} files are not committed, such as {left.split()[-1]}")
    return ran("git", "rev-parse", "--short", "HEAD").strip()


def built(folder: Path) -> str:
    """The source distribution and the wheel that is built from it."""
    ran(sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT))
    return ", ".join(path.name for path in sorted(folder.iterdir()))


def described(folder: Path) -> str:
    """The package index takes the description and the metadata of both."""
    ran(sys.executable, "-m", "twine", "check", "--strict", *map(str, folder.iterdir()))
    return "twine check --strict"


def contained(folder: Path) -> str:
    """The wheel holds what it should, and nothing else."""
    ran(sys.executable, "-m", "check_wheel_contents", *map(str, folder.glob("*.whl")))
    return "check-wheel-contents"


def installed(folder: Path) -> str:
    """The wheel, alone in a new environment, converts the example and brings no torch."""
    home = folder / "environment"
    venv.create(home, with_pip=True)
    python = home / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    ran(str(python), "-m", "pip", "install", "--quiet", str(next(folder.glob("*.whl"))))
    ran(str(python), "-I", "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is not None)")
    ran(str(python), "-I", "-m", "autodist", "convert", str(ROOT / "examples" / "train.py"), "--diff")
    return ran(str(python), "-I", "-m", "autodist", "--version").strip()


def ran(*command: str) -> str:
    """What a command prints. Raises Unfit with its last words."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unfit("\n      ".join((done.stdout + done.stderr).strip().splitlines()[-5:]) or f"{command[0]} fails")
    return done.stdout


def main() -> int:
    """Look at everything; 1 if anything does not hold."""
    status = 0
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        folder = Path(name)
        checks: dict[str, Callable[[], str]] = {
            "versions agree": versions,
            "version is new": untagged,
            "all is committed": committed,
            "both are built": lambda: built(folder),
            "metadata": lambda: described(folder),
            "contents": lambda: contained(folder),
            "installs": lambda: installed(folder),
        }
        for what, check in checks.items():
            try:
                print(f"ok    {what}: {check()}", flush=True)
            except Unfit as error:
                status = 1
                print(f"fail  {what}: {error}", flush=True)
    print("next: make test, make site, git tag, twine upload" if not status else "not yet", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
