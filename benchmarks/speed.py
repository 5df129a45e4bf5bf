"""How fast autodist is beside other tools, in one run: ``make bench``.

Only ratios mean anything, because machines differ and are noisy: each round runs every tool once, one after the other,
and the median of the rounds' ratios counts. Costs are CPU seconds of whole processes, start-up included.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from benchmarks.scripts import script

ROOT = Path(__file__).parent.parent
AUTODIST = [sys.executable, "-m", "autodist"]
LENGTHS = (1250, 2500, 5000, 10_000)


def cpu(command: Sequence[str], folder: Path) -> float:
    """CPU seconds that a command takes, with all processes that it starts."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:
        raise RuntimeError(f"{' '.join(command[:6])}: {done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def rounds(commands: Mapping[str, Sequence[str]], folder: Path, number: int) -> dict[str, list[float]]:
    """The costs of all commands in each of ``number`` rounds, after one that warms up."""
    costs: dict[str, list[float]] = {name: [] for name in commands}
    for round_ in range(number + 1):
        for name, command in commands.items():
            cost = cpu(command, folder)
            if round_:
                costs[name].append(cost)
    return costs


def ratio(costs: Mapping[str, list[float]], name: str, other: str) -> float:
    """How much ``name`` costs in units of ``other``."""
    return statistics.median(a / b for a, b in zip(costs[name], costs[other], strict=True))


def say(what: str, value: float, limit: float) -> bool:
    """Print one line of the result. Returns whether the limit holds."""
    print(f"{what:62} {value:6.2f}  limit {limit:.2f}  {'ok' if value <= limit else 'TOO SLOW'}", flush=True)
    return value <= limit


def converting(peers: Path, folder: Path, number: int) -> Iterator[bool]:
    """`convert` of a 300-line script."""
    (folder / "train.py").write_text(script(300))
    commands = {
        "convert": [*AUTODIST, "convert", "train.py", "--force", "--quiet"],
        "codemod": [sys.executable, "-m", "libcst.tool", "codemod", "-x", "benchmarks.noop.NoOp", "-j1", "train.py"],
        "torchfix": [str(peers / "torchfix"), "--select", "ALL", "train.py"],
    }
    costs = rounds(commands, folder, number)
    print(", ".join(f"{name} {statistics.median(cost):.3f} s" for name, cost in costs.items()))
    yield say("convert, 300 lines / no-op libcst codemod", ratio(costs, "convert", "codemod"), 1.8)
    yield say("convert, 300 lines / TorchFix", ratio(costs, "convert", "torchfix"), 0.75)


def growing(peers: Path, folder: Path, number: int) -> Iterator[bool]:
    """`convert` of ever longer scripts."""
    for lines in LENGTHS:
        (folder / f"train{lines}.py").write_text(script(lines))
    commands = {str(n): [*AUTODIST, "convert", f"train{n}.py", "--force", "--quiet"] for n in LENGTHS}
    costs = rounds(commands, folder, max(1, number // 3))
    print(", ".join(f"{name} lines {statistics.median(cost):.2f} s" for name, cost in costs.items()))
    for short, long in pairwise(LENGTHS):
        yield say(f"convert, {long} lines / {short} lines", ratio(costs, str(long), str(short)), 2.2)


def hooking(peers: Path, folder: Path, number: int) -> Iterator[bool]:
    """The hooks over 1,000 files that train nothing."""
    paths = [
        path for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")) if "site-packages" not in path.parts
    ]
    chosen = [path for path in paths if path.stat().st_size < 40_000 and "lib2to3" not in path.parts][:1000]
    names = [f"{number}.py" for number in range(len(chosen))]
    for name, path in zip(names, chosen, strict=True):
        (folder / name).write_bytes(path.read_bytes())
    commands = {
        "autodist check": [*AUTODIST, "check", *names],
        "autodist convert": [*AUTODIST, "convert", "--check", "--if-training", *names],
        "pyupgrade": [str(peers / "pyupgrade"), "--py310-plus", *names],
    }
    costs = rounds(commands, folder, max(1, number // 3))
    print(", ".join(f"{name} {statistics.median(cost):.3f} s" for name, cost in costs.items()))
    for name in ("autodist check", "autodist convert"):
        yield say(f"{name}, {len(names)} files / pyupgrade", ratio(costs, name, "pyupgrade"), 2.0)


@contextmanager
def scratch() -> Iterator[Path]:
    """An empty folder."""
    with tempfile.TemporaryDirectory(prefix="autodist-bench-") as folder:
        yield Path(folder)


def main() -> int:
    """Run all, or those named. Returns 0 if every limit holds."""
    parts: dict[str, Callable[[Path, Path, int], Iterator[bool]]] = {
        "converting": converting,
        "growing": growing,
        "hooking": hooking,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *parts], help="by default all")
    parser.add_argument("--peers", type=Path, required=True, help="folder of the commands torchfix and pyupgrade")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    good = True
    for name in options.parts or parts:
        with scratch() as folder:
            good &= all([*parts[name](options.peers.absolute(), folder, options.rounds)])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
