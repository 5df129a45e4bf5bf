"""The options of a run: defaults from ``[tool.autodist]`` in pyproject.toml, then what the command line says."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from autodist import observations
from autodist.errors import AutodistError
from autodist.observations import Measured


class Strategy(str, Enum):
    """How the training is distributed."""

    DDP = "ddp"
    ZERO = "zero"
    FSDP = "fsdp"
    HSDP = "hsdp"
    AUTO = "auto"

    @property
    def shards(self) -> bool:
        """Whether each rank keeps only its share of the parameters."""
        return self in SHARDED


class BatchSize(str, Enum):
    """What the batch size in the script means: the batch of all ranks together, or that of each rank."""

    GLOBAL = "global"
    PER_RANK = "per-rank"


class Evaluation(str, Enum):
    """Whether every rank evaluates all of the data, or whole batches of its own; by itself where that is worth it."""

    AUTO = "auto"
    WHOLE = "whole"
    SHARED = "shared"


class MixedPrecision(str, Enum):
    """What sharded models compute in; parameters and gradients stay as the script has them."""

    BF16 = "bf16"
    FP16 = "fp16"


AVAILABLE = (Strategy.DDP, Strategy.FSDP, Strategy.ZERO, Strategy.HSDP)
CHOICES = (*AVAILABLE, Strategy.AUTO)
SWITCHES = (
    "activation-checkpointing",
    "cpu-offload",
    "reshard-after-forward",
    "defer-gradient-sync",
    "sharded-checkpoints",
    "async-checkpoints",
    "meta-device",
    "on-preempt",
)
REPLICATED = (Strategy.DDP, Strategy.ZERO)
SHARDED = (Strategy.FSDP, Strategy.HSDP)


@dataclass(frozen=True)
class Config:
    """What to convert to, and which rules to run. ``catalog`` holds the user's own facts about libraries, and
    ``operations`` the classes of functions of theirs."""

    strategy: Strategy = Strategy.DDP
    batch_size: BatchSize = BatchSize.GLOBAL
    evaluation: Evaluation = Evaluation.WHOLE
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    catalog: Mapping[str, Sequence[str]] = field(default_factory=dict)
    operations: Mapping[str, object] = field(default_factory=dict)
    observations: Path | None = None
    """The file of what was measured."""
    measured: tuple[Measured, ...] = ()
    """How values lie that reading does not know, as it was measured."""
    mixed_precision: MixedPrecision | None = None
    activation_checkpointing: bool = False
    cpu_offload: bool = False
    reshard_after_forward: bool = True
    defer_gradient_sync: bool = True
    shard_unit: str | None = None
    sharded_checkpoints: bool = False
    async_checkpoints: bool = False
    meta_device: bool = False
    on_preempt: bool = False
    device_memory: int | None = None
    activation_memory: int | None = None

    @property
    def sharding(self) -> tuple[str, ...]:
        """The options that only a sharded model has."""
        chosen = {
            "--mixed-precision": self.mixed_precision,
            "--activation-checkpointing": self.activation_checkpointing,
            "--cpu-offload": self.cpu_offload,
            "--no-reshard-after-forward": not self.reshard_after_forward,
            "--no-defer-gradient-sync": not self.defer_gradient_sync,
            "--shard-unit": self.shard_unit,
            "--sharded-checkpoints": self.sharded_checkpoints,
            "--async-checkpoints": self.async_checkpoints,
            "--meta-device": self.meta_device,
        }
        return tuple(name for name, value in chosen.items() if value)

    @property
    def folders(self) -> bool:
        """Whether a checkpoint is a folder that all ranks write."""
        return self.sharded_checkpoints or self.async_checkpoints

    def wants(self, code: str) -> bool:
        """Whether the rule ``code`` runs. A code may be cut short: ``AD3`` stands for all of AD3xx."""
        return (not self.select or code.startswith(self.select)) and not code.startswith(self.ignore)


def memory(text: str) -> int | None:
    """Bytes, from a size such as 80GiB or 24 GB; None if it is no size."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT])(i?)B?\s*", text, re.IGNORECASE)
    if found is None:
        return None
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** ("KMGT".index(found[2].upper()) + 1))


def load(folder: Path, options: Mapping[str, Any], observing: bool = False) -> Config:
    """The options of a run on a file in ``folder``. Those that are None or empty come from its pyproject.toml. What was
    measured is read, unless it is about to be measured again (``observing``)."""
    given = {key: value for key, value in options.items() if value or value is False}
    config = Config(**{**_defaults(folder.absolute()), **given})
    if config.observations is not None and not observing:
        config = replace(config, measured=observations.read(config.observations))
    if config.strategy is Strategy.AUTO and config.device_memory is None:
        raise AutodistError("--strategy auto needs --device-memory, the memory of one device, such as 80GiB")
    if config.meta_device and config.cpu_offload:
        raise AutodistError("--meta-device fills the shards on the devices: it does not go with --cpu-offload")
    for option in (each for each in config.sharding if each.endswith("-checkpoints")):
        if config.on_preempt:
            raise AutodistError(f"--on-preempt writes into a checkpoint that is a file: leave out {option}")
    if config.sharding and not config.strategy.shards and config.strategy is not Strategy.AUTO:
        raise AutodistError(f"{config.sharding[0]} needs --strategy fsdp or hsdp")
    return config


def _defaults(folder: Path) -> dict[str, Any]:
    for path in (parent / "pyproject.toml" for parent in (folder, *folder.parents)):
        try:
            data = path.read_bytes()
        except OSError:
            continue
        if b"tool.autodist" in data and (table := _table(path, data)) is not None:
            return {key.replace("-", "_"): _option(path, data, key, value) for key, value in table.items()}
    return {}


def _table(path: Path, data: bytes) -> dict[str, Any] | None:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        table = tomllib.loads(data.decode()).get("tool", {}).get("autodist")
    except ValueError as error:
        raise AutodistError(f"is not valid TOML: {error}", path) from None
    if not isinstance(table, dict | None):
        raise AutodistError("[tool.autodist] must be a table", path)
    return table


def _option(path: Path, data: bytes, key: str, value: object) -> Any:
    """The checked value of one option."""
    match key, value:
        case ("strategy", str()) if value in CHOICES:
            return Strategy(value)
        case ("strategy", _):
            expected = " or ".join(f'"{strategy.value}"' for strategy in CHOICES)
        case ("batch-size", "global" | "per-rank"):
            return BatchSize(value)
        case ("batch-size", _):
            expected = '"global" or "per-rank"'
        case ("evaluation", "auto" | "whole" | "shared"):
            return Evaluation(value)
        case ("evaluation", _):
            expected = '"auto", "whole" or "shared"'
        case ("mixed-precision", "bf16" | "fp16"):
            return MixedPrecision(value)
        case ("mixed-precision", _):
            expected = '"bf16" or "fp16"'
        case (key, bool()) if key in SWITCHES:
            return value
        case (key, _) if key in SWITCHES:
            expected = "true or false"
        case ("device-memory" | "activation-memory", str()) if memory(value) is not None:
            return memory(value)
        case ("device-memory" | "activation-memory", _):
            expected = 'a size, as in "80GiB"'
        case ("shard-unit", str()) if value.isidentifier():
            return value
        case ("shard-unit", _):
            expected = "the name of a class"
        case ("select" | "ignore", list()) if _names(value):
            return tuple(value)
        case ("select" | "ignore", _):
            expected = 'a list of rule codes, as in ["AD301"]'
        case ("observations", str()) if value:
            return path.parent / value
        case ("observations", _):
            expected = 'the name of a file, as in "observations.json"'
        case ("catalog", dict()) if all(_names(names) for names in value.values()):
            return value
        case ("catalog", _):
            expected = 'a table of roles, as in download = ["mylib.fetch"]'
        case ("operations", dict()):
            return _operations(path, data, value)
        case ("operations", _):
            expected = 'a table of classes, as in "mylib.rescale" = "elementwise"'
        case _:
            raise AutodistError(f"[tool.autodist] has no option {key!r}", path, _line(data, key))
    raise AutodistError(f"[tool.autodist] {key} must be {expected}", path, _line(data, key))


def _operations(path: Path, data: bytes, lines: Mapping[str, object]) -> Mapping[str, object]:
    """The user's own lines of the table of operations, each of which must be as the shipped ones are."""
    from autodist import operations  # the table takes time to read, and few projects add to it

    for name, line in lines.items():
        wrong = operations.problem(name, line, {**operations.shipped(), **lines})
        if wrong is None and "." not in name or isinstance(line, dict) and "class" not in line:
            wrong = f'a name is dotted and in quotes, as in "mylib.rescale" = "elementwise": {name}'
        if wrong is not None:
            raise AutodistError(
                f"[tool.autodist.operations] {wrong}", path, _line(data, f'"{name}"') or _line(data, name)
            )
    return lines


def _names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) and name for name in value)


def _line(data: bytes, key: str) -> int | None:
    lines = data.decode().splitlines()
    return next((number for number, line in enumerate(lines, 1) if line.lstrip().startswith(key)), None)
