"""What the original replays: the samples the ranks read, and the shapes of the random numbers they drew.

The conversion runs first, as it is. Then the original reads, step by step, the union of what the ranks read. This
module is written by the launching process and read inside the user's process, so it needs the standard library only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from autodist.verify.trace import Draw, Pass, PassKey, RunTrace, Seed


@dataclass(frozen=True)
class RankDraws:
    """One call of a random function as all ranks made it."""

    shapes: list[list[int]]
    distinct: bool
    """The ranks drew different numbers."""
    site: str
    orders: list[list[float]]
    """For each rank, sums that tell in which order the samples lie that it drew for; empty where that is unknown."""
    bounds: list[int | None] = field(default_factory=list)
    """Of each rank, below which number it draws, where it may be one of the rows of its share."""
    seeds: list[int] = field(default_factory=list)
    """Of each rank's draw, where they draw numbers of samples from generators that are apart; else they follow from
    that of the original."""


@dataclass
class Replay:
    """The steering of the original."""

    world: int
    datasets: list[str] = field(default_factory=list)
    """The dataset class of each loader of the conversion, to find the loader that corresponds."""
    passes: dict[PassKey, list[list[Any]]] = field(default_factory=dict)
    seeds: dict[str, dict[int, list[Seed]]] = field(default_factory=dict)
    """What the conversion seeds ahead of its first step, by library and by how often it has drawn before: the original
    goes on with the same from there, as if it were seeded."""
    training: set[PassKey] = field(default_factory=set)
    """Passes that train; others are only replayed where their batches correspond one to one."""
    begun: set[PassKey] = field(default_factory=set)
    """Passes that every rank breaks off."""
    ends: dict[PassKey, dict[str, str]] = field(default_factory=dict)
    """The states of the first rank's generators when a pass had come to its end."""
    draws: dict[str, list[RankDraws]] = field(default_factory=dict)
    """For the seed of a draw what the ranks drew, as often as it occurred with different shapes."""
    own_rows: dict[int, RankDraws] = field(default_factory=dict)
    """Numbers of samples that each rank drew for itself, by how often the first one had drawn."""
    parted: set[tuple[str, bool]] = field(default_factory=set)
    """Functions with their lines, and whether they may be a part of a step, whose draws some rank did not make: their
    generators are apart."""
    forwards: dict[str, list[list[int]]] = field(default_factory=dict)
    """For each class of models the shapes of what the ranks gave it first in training."""

    def write(self, path: Path) -> None:
        """Store for the process of the original."""
        content = {
            "world": self.world,
            "datasets": self.datasets,
            "passes": [[*key, batches] for key, batches in self.passes.items()],
            "seeds": self.seeds,
            "training": sorted(self.training),
            "begun": sorted(self.begun),
            "ends": [[*key, left] for key, left in self.ends.items()],
            "draws": {seed: [asdict(drawn) for drawn in several] for seed, several in self.draws.items()},
            "own_rows": [[position, asdict(drawn)] for position, drawn in self.own_rows.items()],
            "parted": sorted(self.parted),
            "forwards": self.forwards,
        }
        path.write_text(json.dumps(content), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Replay:
        """The steering that ``write`` stored."""
        content = json.loads(path.read_text(encoding="utf-8"))
        passes = {(loader, number): batches for loader, number, batches in content["passes"]}
        training = {(loader, number) for loader, number in content["training"]}
        begun = {(loader, number) for loader, number in content["begun"]}
        ends = {(loader, number): left for loader, number, left in content["ends"]}
        draws = {seed: [RankDraws(**drawn) for drawn in several] for seed, several in content["draws"].items()}
        own_rows = {position: RankDraws(**drawn) for position, drawn in content["own_rows"]}
        seeds = {
            library: {int(drawn): [tuple(seed) for seed in several] for drawn, several in of.items()}
            for library, of in content["seeds"].items()
        }
        parted = {(draw, learning) for draw, learning in content["parted"]}
        forwards = content["forwards"]
        return cls(
            world=content["world"],
            datasets=content["datasets"],
            passes=passes,
            seeds=seeds,
            training=training,
            begun=begun,
            ends=ends,
            draws=draws,
            own_rows=own_rows,
            parted=parted,
            forwards=forwards,
        )


def replicated(passes: Sequence[Pass]) -> bool:
    """Every rank read the same batches in the same order."""
    return all(each.batches == passes[0].batches for each in passes)


def union(passes: Sequence[Pass]) -> list[list[Any]]:
    """Batch by batch what the ranks read together, in turns: a sampler deals its indices out one by one."""
    count = max(len(each.batches) for each in passes)
    batches = [[each.batches[at] if at < len(each.batches) else [] for each in passes] for at in range(count)]
    return [[parts[rank][row] for row, rank in in_turns([len(part) for part in parts])] for parts in batches]


def in_turns(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Row and rank of every row of a whole batch whose rows were dealt out to ranks that hold ``sizes`` of them."""
    return [(row, rank) for row in range(max(sizes, default=0)) for rank, size in enumerate(sizes) if row < size]


def batch_dimension(whole: Sequence[int], parts: Sequence[Sequence[int]]) -> int | None:
    """The dimension along which ``parts`` together make ``whole``."""
    if any(len(part) != len(whole) for part in parts):
        return None
    for dimension, size in enumerate(whole):
        rest = [*whole[:dimension], *whole[dimension + 1 :]]
        if sum(part[dimension] for part in parts) == size and all(
            [*part[:dimension], *part[dimension + 1 :]] == rest for part in parts
        ):
            return dimension
    return None


def hashable(sample: Any) -> Any:
    """Samples are indices, texts, or lists of them; sets need them hashable."""
    return tuple(hashable(each) for each in sample) if isinstance(sample, list) else sample


def build_replay(ranks: Sequence[RunTrace]) -> Replay:
    """Merge what the ranks read and drew.

    A pass that every rank reads in full is replayed as one of them. Evaluation is only steered where nothing was read
    twice: the original must be free to show that a padded evaluation prints other numbers.
    """
    replay = Replay(len(ranks), [loader.dataset for loader in ranks[0].loaders], seeds=ranks[0].seeds)
    for key, first in ranks[0].passes.items():
        found = [rank.passes[key] for rank in ranks if key in rank.passes]
        if len(found) < len(ranks):
            continue
        trains = any(each.trains for each in found)
        together = first.batches if replicated(found) else union(found)
        if not trains and all(each.part for each in found):
            together = [batch for each in found for batch in each.batches]
        samples = [hashable(sample) for batch in together for sample in batch]
        if trains or len(set(samples)) == len(samples):
            replay.passes[key] = together
        if trains:
            replay.training.add(key)
        elif not any(each.exhausted for each in found):
            replay.begun.add(key)
    replay.ends = {key: each.left for key, each in ranks[0].passes.items() if each.exhausted}
    replay.draws, replay.parted = merged_draws(ranks)
    replay.own_rows = own_rows(ranks)
    firsts = [first_forwards(rank) for rank in ranks]
    replay.forwards = {name: [shapes[name] for shapes in firsts] for name in set(firsts[0]).intersection(*firsts)}
    return replay


def first_forwards(run: RunTrace) -> dict[str, list[int]]:
    """The shape of what each class of models is given first in training."""
    calls = [forward for step in run.steps for forward in step.forwards]
    return {forward.module: list(forward.shape) for forward in reversed(calls)}


def merged_draws(ranks: Sequence[RunTrace]) -> tuple[dict[str, list[RankDraws]], set[tuple[str, bool]]]:
    """By seed, the draws that all ranks made; and which functions, by their lines, have made others."""
    by_seed: dict[str, list[list[Draw]]] = {}
    for rank in ranks:
        own: dict[str, list[Draw]] = {}
        for draw in rank.draws:
            own.setdefault(draw.seed, []).append(draw)
        for seed, several in own.items():
            by_seed.setdefault(seed, []).append(several)
    merged: dict[str, list[RankDraws]] = {}
    parted: set[tuple[str, bool]] = set()
    for seed, per_rank in by_seed.items():
        if len(per_rank) < len(ranks):
            parted.update((f"{draw.function} {draw.site}", draw.learning) for draw in per_rank[0])
            continue
        for together in zip(*per_rank, strict=False):
            shapes, orders = [draw.shape for draw in together], [draw.order for draw in together]
            bounds = [draw.bound for draw in together]
            drawn = RankDraws(shapes, together[-1].distinct, together[-1].site, orders, bounds)
            if drawn not in merged.setdefault(seed, []):
                merged[seed].append(drawn)
    return merged, parted


def own_rows(ranks: Sequence[RunTrace]) -> dict[int, RankDraws]:
    """Numbers of samples that each rank draws for itself from a generator that is seeded apart: ``randint(n,
    (batch_size // ranks,))``."""
    drawn = [rows_by_place(rank) for rank in ranks]
    found: dict[int, RankDraws] = {}
    for place, first in drawn[0].items():
        others = [of_rank.get(place, []) for of_rank in drawn[1:]]
        if any(len(each) != len(first) for each in others):
            continue  # who draws what together cannot be told
        for together in zip(first, *others, strict=True):
            seeds = [int(draw.seed.rpartition(" ")[2], 16) for draw in together]
            if len(set(seeds)) == len(seeds) > 1 and together[0].position is not None:
                shapes, orders = [draw.shape for draw in together], [draw.order for draw in together]
                bounds = [draw.bound for draw in together]
                found[together[0].position] = RankDraws(shapes, False, together[0].site, orders, bounds, seeds)
    return found


def rows_by_place(run: RunTrace) -> dict[str, list[Draw]]:
    """The rows of numbers that a rank draws, by line."""
    found: dict[str, list[Draw]] = {}
    for draw in run.draws:
        if draw.position is not None:
            found.setdefault(draw.site, []).append(draw)
    return found
