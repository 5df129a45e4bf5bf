"""What is known of a training: measured by a run, here or elsewhere, or read from the source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from autodist.errors import AutodistError
from autodist.plan.speed import BACKWARD, Compute, Input, Model


@dataclass(frozen=True)
class Size:
    """A step with so many samples on one device."""

    samples: int
    seconds: float
    curve: tuple[tuple[int, int], ...] = ()
    """Bytes of gradients, and the most that is held besides them at that moment: while there are few gradients, these
    are the activations of all layers."""
    saved: int = 0
    """What checkpointing saves of that at its highest point."""
    updating: int = 0
    """The most that is held besides gradients while the optimizer is at work."""

    def peak(self, share: float, checkpointing: bool) -> float:
        """The most that gradients, of which a rank has a share, and activations take together."""
        highest = max(held for _, held in self.curve)
        left = max(0.0, 1 - self.saved / highest) if checkpointing and highest else 1.0
        return max(share * gradients + left * held for gradients, held in self.curve)

    def update(self, share: float, owned: float) -> float:
        """The same while the optimizer is at work, on the share of the state that a rank owns."""
        return share * self.curve[0][0] + owned * self.updating


@dataclass(frozen=True)
class Measured:
    """A training, in bytes and seconds; what is not known is missing."""

    device: str = ""
    """Where it was measured; empty for what was only read."""
    count: int = 0
    """Parameters."""
    parameters: int = 0
    gradients: int = 0
    state: int = 0
    """Of optimizers."""
    lasting: int = 0
    """Buffers, and parameters that are not trained."""
    units: int = 1
    """The pieces in which FSDP shards the model, and the bytes of the largest, and of what is in none."""
    largest: int = 0
    rest: int = 0
    backward: float = BACKWARD
    passes: int = 1
    """Forward passes of an optimizer step."""
    rate: float = 0.0
    """Samples per second of the loader alone; 0 where it is not known."""
    workers: int = 0
    cores: int = 0
    sizes: tuple[Size, ...] = ()
    """From the smallest batch on."""
    torch: str = ""

    @property
    def batch(self) -> int:
        """Samples of an optimizer step; 0 where they are not known."""
        return self.sizes[-1].samples if self.sizes else 0

    @property
    def model(self) -> Model:
        """What ranks send each other."""
        return Model(self.parameters, self.gradients, self.units)

    @property
    def compute(self) -> Compute | None:
        """How long steps of several sizes take."""
        timed = tuple((size.samples, size.seconds) for size in self.sizes if size.seconds > 0)
        return Compute(timed) if timed and self.batch else None

    def reading(self) -> Input | None:
        """How fast samples come."""
        return Input(self.rate, self.workers, max(1, self.cores)) if self.rate else None

    def over_sizes(self, what: Callable[[Size], float], samples: float) -> float | None:
        """Something that grows with the samples of a batch, at a size between or beyond those that were measured."""
        known = [(size.samples, what(size)) for size in self.sizes if size.curve]
        if not known:
            return None
        if len(known) == 1:
            return known[0][1]  # at most
        pairs = list(pairwise(known))
        (left, low), (right, high) = next((pair for pair in pairs if samples <= pair[1][0]), pairs[-1])
        return max(0.0, low + (high - low) * (samples - left) / (right - left))

    def timed(self, seconds: Sequence[float]) -> Measured:
        """With the times of steps at b, b/2, b/4 and so on, that were measured elsewhere."""
        if not self.batch:
            raise AutodistError("--step-seconds needs the samples of a step: add --batch")
        by_samples = {size.samples: replace(size, seconds=0.0) for size in self.sizes}
        for number, time in enumerate(seconds):
            samples = self.batch // 2**number
            if samples < 1:
                raise AutodistError(f"--step-seconds: a batch of {self.batch} cannot be halved {number} times")
            by_samples[samples] = replace(by_samples.get(samples, Size(samples, time)), seconds=time)
        return replace(self, sizes=tuple(by_samples[each] for each in sorted(by_samples)))


def joined(runs: Sequence[Mapping[str, Any]]) -> Measured:
    """What the runs at several sizes found together; the first is that of the whole batch."""
    own = {field.name for field in fields(Measured)} - {"sizes"}
    sizes = {
        run["samples"]: Size(
            run["samples"], run["seconds"], tuple((a, b) for a, b in run["curve"]), run["saved"], run["updating"]
        )
        for run in reversed(runs)
    }
    ordered = tuple(sizes[samples] for samples in sorted(sizes))
    return Measured(**{name: value for name, value in runs[0].items() if name in own}, sizes=ordered)


def save(measured: Measured, path: Path) -> None:
    """Keep it for a plan that is made elsewhere."""
    try:
        path.write_text(json.dumps(asdict(measured), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise AutodistError(f"the measurements cannot be written: {error.strerror}", path) from None


def read(path: Path) -> Measured:
    """What `save` kept. Raises AutodistError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        sizes = tuple(Size(**{**size, "curve": tuple((a, b) for a, b in size["curve"])}) for size in found.pop("sizes"))
        read = Measured(**found, sizes=sizes)
    except OSError as error:
        raise AutodistError(f"the measurements cannot be read: {error.strerror}", path) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise AutodistError("holds no measurements that `autodist plan --save` has written", path) from None
    numbers = [getattr(read, field.name) for field in fields(Measured) if field.type in ("int", "float")]
    ordered = [size.samples for size in read.sizes] == sorted({size.samples for size in read.sizes})
    if not ordered or not all(isinstance(each, (int, float)) and each >= 0 for each in numbers):
        raise AutodistError("holds no measurements that `autodist plan --save` has written", path)
    return read
