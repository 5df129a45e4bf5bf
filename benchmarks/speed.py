"""How fast autodist is beside other tools, in one run: ``make bench``, and of `convert` alone, ``make bench-convert``.

Only ratios mean anything, because machines differ and are noisy: each round runs every tool once, one after the other,
and the median of the rounds' ratios counts. Costs are user CPU seconds of whole processes, start-up included.
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
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.scripts import SWEEPS, script

ROOT = Path(__file__).parent.parent
AUTODIST = [sys.executable, "-m", "autodist"]
REPOSITORIES = {
    ("pytorch-cifar100/train.py", "ddp"): 4.0,
    ("pytorch-cifar100/train.py", "fsdp"): 6.0,
    ("Pytorch-UNet/train.py", "ddp"): 2.0,
    ("Time-Series-Library/run.py", "ddp"): 20.0,
    ("ProteinMPNN/training/training.py", "ddp"): 10.0,
    ("pytorch-image-models/train.py", "ddp"): 10.0,
}
"""Training scripts of public repositories, each with a strategy, and the seconds that their conversion may take."""
MOST = 600
"""Seconds after which a command is given up."""


@dataclass(frozen=True)
class Options:
    """What a comparison needs: folders, and how often it runs."""

    peers: Path | None
    checkouts: Path | None
    rounds: int


def cpu(command: Sequence[str], folder: Path) -> float:
    """User CPU seconds that a command takes, with all processes that it starts; no end of them where it is given up."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=MOST, env={"PYTHONPATH": str(ROOT)}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1) or "Traceback" in done.stderr:
        raise RuntimeError(f"{' '.join(command[:6])}: {done.stderr}")
    return after.ru_utime - before.ru_utime


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


def codemod(*files: str) -> list[str]:
    """What libcst costs at the least for these files."""
    return [sys.executable, "-m", "libcst.tool", "codemod", "-x", "benchmarks.noop.NoOp", "-j1", *files]


def converting(options: Options, folder: Path) -> Iterator[bool]:
    """`convert` of a 300-line script."""
    (folder / "train.py").write_text(script(300))
    commands = {
        "convert": [*AUTODIST, "convert", "train.py", "--force", "--quiet"],
        "codemod": codemod("train.py"),
    }
    if options.peers is not None:
        commands["torchfix"] = [str(options.peers / "torchfix"), "--select", "ALL", "train.py"]
    costs = rounds(commands, folder, options.rounds)
    print(", ".join(f"{name} {statistics.median(cost):.3f} s" for name, cost in costs.items()))
    yield say("convert, 300 lines / no-op libcst codemod", ratio(costs, "convert", "codemod"), 1.3)
    if options.peers is not None:
        yield say("convert, 300 lines / TorchFix", ratio(costs, "convert", "torchfix"), 0.5)


def sweeping(options: Options, folder: Path) -> Iterator[bool]:
    """`convert` of scripts that grow in one way each, beside the codemod of the same file."""
    for what, (make, sizes) in SWEEPS.items():
        commands: dict[str, list[str]] = {}
        for size in sizes:
            name = f"{what.replace(' ', '_')}_{size}.py"
            (folder / name).write_text(make(size))
            commands[str(size)] = [*AUTODIST, "convert", name, "--force", "--quiet"]
            commands[f"codemod of {size}"] = codemod(name)
        costs = rounds(commands, folder, max(1, options.rounds // 3))
        names = [*map(str, sizes)]
        for name in names:
            cost, beside = statistics.median(costs[name]), ratio(costs, name, f"codemod of {name}")
            print(f"{name} {what}: {cost:.2f} s, {beside:.2f} of the codemod")
        for short, long in pairwise(names):
            yield say(f"convert, {long} {what} / {short}", ratio(costs, long, short), 2.1)


def repositories(options: Options, folder: Path) -> Iterator[bool]:
    """`convert` of public repositories, of those that lie in the folder of checkouts."""
    for (script_, strategy), limit in REPOSITORIES.items():
        path = options.checkouts / script_ if options.checkouts is not None else None
        if path is None or not path.exists():
            print(f"{script_}: not there (--checkouts names the folder of checkouts)")
            continue
        convert = [*AUTODIST, "convert", str(path), "--strategy", strategy, "--diff", "--quiet"]
        copy = folder / f"{path.parent.name}_{path.name}"  # the codemod writes
        copy.write_bytes(path.read_bytes())
        costs = rounds({"convert": convert, "codemod": codemod(copy.name)}, folder, max(1, options.rounds // 3))
        print(f"{script_}: {ratio(costs, 'convert', 'codemod'):.1f} of the codemod of the script alone")
        yield say(f"convert --strategy {strategy} {script_}, seconds", statistics.median(costs["convert"]), limit)


def hooking(options: Options, folder: Path) -> Iterator[bool]:
    """The hooks over 1,000 files that train nothing."""
    assert options.peers is not None, "--peers is wanted"
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
        "pyupgrade": [str(options.peers / "pyupgrade"), "--py310-plus", *names],
    }
    costs = rounds(commands, folder, max(1, options.rounds // 3))
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
    parts: dict[str, Callable[[Options, Path], Iterator[bool]]] = {
        "converting": converting,
        "sweeping": sweeping,
        "repositories": repositories,
        "hooking": hooking,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *parts], help="by default all")
    parser.add_argument("--peers", type=Path, help="folder of the commands torchfix and pyupgrade")
    parser.add_argument("--checkouts", type=Path, help="folder of checkouts of public repositories")
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    peers, checkouts = (each.absolute() if each is not None else None for each in (given.peers, given.checkouts))
    options = Options(peers, checkouts, given.rounds)
    good = True
    for name in given.parts or parts:
        with scratch() as folder:
            good &= all([*parts[name](options, folder)])
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
