"""How far `autodist plan` is from published tables: ``python -m benchmarks.plan_validation`` (make plan-validation).

Two numbers of `autodist/plan/speed.py` are fitted, to the tables that `scaling/models.toml` marks so; all other tables
are only predicted. A table gives the time of a step on its smallest number of GPUs, and the plan says how much of
the speed is left on more: efficiency, the throughput of one GPU beside that of one on the smallest number.
"""

from __future__ import annotations

import argparse
import csv
import functools
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autodist.plan.devices import GIB, Device, device
from autodist.plan.measured import Measured
from autodist.plan.memory import need
from autodist.plan.speed import PAID, RANGE, SCATTER, Model, straggling, traffic

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).parent / "scaling"
HARDWARE = {
    "DGX-1 V100 16GB": ("V100 16GB", 8, 400),
    "DGX-1 V100 32GB": ("V100 32GB", 8, 400),
    "DGX-2 V100": ("V100 32GB", 16, 800),
    "DGX-2H V100": ("V100 32GB", 16, 800),
    "DGX A100 40GB": ("A100 40GB", 8, 1600),
    "DGX A100 80GB": ("A100 80GB", 8, 1600),
    "Grand Teton H100 96GB": ("H100 80GB", 8, 3200),
    "H200 with 8 x NDR": ("H200 141GB", 8, 3200),
}
"""The device, how many stand in a node, and the Gbit/s of that."""
UNEXPLAINED = ((4, 3.0), (8, 3.9))
IMPOSSIBLE = 1.2
"""Nothing is a fifth faster on each of several GPUs than on one: the figure for one GPU is then of another setting."""
SCATTERS = [each / 200 for each in range(13)]
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Setting:
    """A model, a machine, a precision and a batch per GPU."""

    source: str
    hardware: str
    model: str
    precision: str
    batch: float


@dataclass(frozen=True)
class Row:
    """Throughput on so many GPUs."""

    gpus: int
    passes: int
    throughput: float


@dataclass(frozen=True)
class Point:
    """What a plan says of one row, and what was measured."""

    setting: Setting
    gpus: int
    base: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Of the efficiency, as a share of what was measured."""
        return abs(self.predicted - self.measured) / self.measured


@functools.cache
def models() -> dict[str, dict[str, Any]]:
    """What the ranks send each other, by the beginning of a model's name."""
    return tomllib.loads((FOLDER / "models.toml").read_text(encoding="utf-8"))


@functools.cache
def facts(name: str) -> dict[str, Any]:
    """Those of the model that a table names."""
    return max(
        ((key, value) for key, value in models().items() if name.startswith(key)), key=lambda each: len(each[0])
    )[1]


def tables() -> dict[Setting, list[Row]]:
    """All published rows, with the fewest GPUs first."""
    found: dict[Setting, list[Row]] = defaultdict(list)
    with (FOLDER / "throughput.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            names = (row["source"], row["hardware"], row["model"], row["precision"])
            rows = found[Setting(*names, float(row["batch"]))]
            rows.append(Row(int(row["gpus"]), int(row["accumulation"]), float(row["throughput"])))
    for rows in found.values():
        rows.sort(key=lambda row: row.gpus)
    return {setting: rows for setting, rows in found.items() if len({row.gpus for row in rows}) > 1}


@functools.cache
def hardware(name: str) -> Device:
    """The device of a table, in its node."""
    known, per_node, network = HARDWARE[name]
    return replace(device(known), per_node=per_node, network=network)


def seconds(setting: Setting, row: Row, scatter: float, share: float) -> Callable[[float], float]:
    """How long a step takes on so many GPUs, by how long one pass computes."""
    known = facts(setting.model)
    size = known.get("mixed_bytes", 4) if setting.precision == "mixed" else 4
    numbers = known["millions"] * 1e6
    sent = Model(numbers * known.get("parameter_bytes", size), numbers * size, known.get("units", 1))
    flows = traffic(known.get("strategy", "ddp"), sent, row.gpus, hardware(setting.hardware))
    late = straggling(row.gpus, row.passes, scatter)
    return lambda one: row.passes * one * (1 + late) + flows.paid(one, share)


def points(
    settings: Iterable[tuple[Setting, list[Row]]], scatter: float = SCATTER, share: float = PAID
) -> Iterator[Point]:
    """What the plan says of all rows but the first of each table, which it starts from."""
    for setting, rows in settings:
        first, *more = rows
        taken = setting.batch * first.passes * first.gpus / first.throughput
        one, on_first = taken / first.passes, seconds(setting, first, scatter, share)
        for _ in range(12):
            one *= taken / on_first(one)
        for row in more:
            time = seconds(setting, row, scatter, share)(one)
            alone = first.throughput / first.gpus
            predicted = setting.batch * row.passes / time / alone
            yield Point(setting, row.gpus, first.gpus, predicted, row.throughput / row.gpus / alone)


def split() -> tuple[list[tuple[Setting, list[Row]]], list[tuple[Setting, list[Row]]], list[Point]]:
    """The tables that numbers are fitted to, those that are only predicted, and rows that cannot be as they say."""
    fitted: list[tuple[Setting, list[Row]]] = []
    held: list[tuple[Setting, list[Row]]] = []
    impossible: list[Point] = []
    for setting, rows in tables().items():
        wrong = [point for point in points([(setting, rows)]) if point.measured > IMPOSSIBLE]
        impossible += wrong
        if not wrong:
            (fitted if facts(setting.model).get("fitted") else held).append((setting, rows))
    return fitted, held, impossible


def fit(settings: Sequence[tuple[Setting, list[Row]]]) -> tuple[float, float]:
    """The two numbers with the smallest mean error."""

    def mean(pair: tuple[float, float]) -> float:
        return statistics.mean(point.error for point in points(settings, *pair))

    return min(((scatter, share) for scatter in SCATTERS for share in SHARES), key=mean)


def sharding() -> Iterator[str]:
    """What a shard among more GPUs saves: activations and all else stay as they are."""
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    with (FOLDER / "memory.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["model"], row["precision"]][int(row["gpus"])] = float(row["gib"])
    for (model, precision), held in found.items():
        numbers = int(facts(model)["millions"] * 1e6)
        known = Measured(count=numbers, parameters=4 * numbers, gradients=4 * numbers, state=8 * numbers)
        few, many = min(held), max(held)
        totals = [need(known, "fsdp", ranks, 8, 0, False).total / GIB for ranks in (few, many)]
        planned, measured = totals[0] - totals[1], held[few] - held[many]
        where = f"fsdp over {many} GPUs rather than {few}, {model}, {precision}"
        yield f"memory that is saved by {where}: {planned:.1f} GiB planned, {measured:.1f} measured"


def unexplained() -> str:
    """A published pair without a model, a batch or the time of a step: what a ring would have to take for each."""
    shares = [(ranks / faster - 1) / (2 * (ranks - 1) / ranks) for ranks, faster in UNEXPLAINED]
    pairs = " and ".join(f"{faster} times on {ranks}" for ranks, faster in UNEXPLAINED)
    needed = " and ".join(f"{share:.2f}" for share in shares)
    return f"{pairs} V100, with nothing else published: all gradients once round take {needed} of what is computed"


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which this share of them lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(found: Sequence[Point]) -> tuple[float, float]:
    """Measured over predicted time: where nine of ten lie."""
    ratios = [point.predicted / point.measured for point in found]
    return quantile(ratios, 0.05), quantile(ratios, 0.95)


def summary(name: str, errors: Sequence[float]) -> str:
    """One line."""
    worst = f"worst {max(errors):6.1%}"
    return (
        f"{name:44} {len(errors):4}  median {statistics.median(errors):6.1%}  p90 {quantile(errors, 0.9):6.1%}  {worst}"
    )


def report(all_rows: bool) -> Iterator[str]:
    """The errors, against those of simpler laws."""
    fitted, held, impossible = split()
    scatter, share = fit(fitted)
    yield f"fitted to {len(fitted)} tables: scatter {scatter}, paid {share}; in use: {SCATTER}, {PAID}"
    yield f"error of efficiency{'':27} rows"
    inside, outside = list(points(fitted)), list(points(held))
    yield summary("tables fitted to", [point.error for point in inside])
    yield summary("tables held out", [point.error for point in outside])
    back = fit(held)
    yield summary(f"the other way round ({back[0]}, {back[1]})", [point.error for point in points(fitted, *back)])
    ring = [point.error for point in points(held, 0.0, 0.0)]
    yield summary("held out, nothing fitted (the ring alone)", ring)
    constant = statistics.median(point.measured for point in inside)
    guess = [abs(constant - point.measured) / point.measured for point in outside]
    yield summary(f"held out, always {constant:.2f}", guess)
    for several, name in ((False, "held out, one node"), (True, "held out, several nodes")):
        chosen = [p.error for p in outside if (p.gpus > hardware(p.setting.hardware).per_node) is several]
        yield summary(name, chosen)
    for which, rows in (("fitted", inside), ("held-out", outside), ("all", [*inside, *outside])):
        low, high = spread(rows)
        yield f"measured over predicted time, nine of ten {which} rows: {low:.2f} to {high:.2f}; in use: {RANGE}"
    yield f"left out, faster on each of several GPUs than on one: {len(impossible)} rows"
    for name in sorted({point.setting.model.partition("-seq")[0] for point in outside}):
        yield summary(f"  {name}", [p.error for p in outside if p.setting.model.partition("-seq")[0] == name])
    yield from sharding()
    yield unexplained()
    if all_rows:
        yield "hardware, model, precision, batch per GPU, GPUs: predicted and measured efficiency"
        for point in sorted(outside, key=lambda each: -each.error):
            where = (
                f"{point.setting.hardware}, {point.setting.model}, {point.setting.precision}, {point.setting.batch:g}"
            )
            of = f"{point.gpus} of {point.base}" if point.base > 1 else f"{point.gpus}"
            yield f"  {where}, {of}: {point.predicted:.3f} {point.measured:.3f} ({point.error:.1%})"


def main() -> None:
    """Print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", action="store_true", help="every held-out row, the worst first")
    for line in report(parser.parse_args().rows):
        print(line)


if __name__ == "__main__":
    main()
