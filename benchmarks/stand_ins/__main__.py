"""``python -m benchmarks.stand_ins DATA [NAME ...]``: write all stand-ins, or those named, below the folder DATA."""

from __future__ import annotations

import argparse
import pkgutil
import shutil
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks import stand_ins


def names() -> list[str]:
    """Every data set there is a stand-in for, a module each, whose libraries are installed here: some need h5py."""
    found = (module.name for module in pkgutil.iter_modules(stand_ins.__path__))
    return sorted(name for name in found if not name.startswith("_") and _can_be_imported(name))


def _can_be_imported(name: str) -> bool:
    try:
        import_module(f"{stand_ins.__name__}.{name}")
    except ModuleNotFoundError:
        return False
    return True


def main(argv: Sequence[str] | None = None) -> None:
    """Write them; a folder that is there already is left alone."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stand_ins", description=__doc__)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names()))
    args = parser.parse_args(argv)
    for name in args.names or names():
        if name not in names():
            parser.error(f"no stand-in {name!r}, there are {', '.join(names())}")
        module = import_module(f"{stand_ins.__name__}.{name}")
        folder = args.data / getattr(module, "NAME", name)
        if folder.exists():
            continue
        partial = args.data / f".{name}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        module.write(partial)
        partial.rename(folder)
        print(folder)


if __name__ == "__main__":
    main()
