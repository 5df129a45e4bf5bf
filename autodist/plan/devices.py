"""The devices that a plan may be made for, and the nodes they stand in: published figures, kept in devices.toml."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from autodist.errors import AutodistError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GIB = 2**30
NETWORK = 0.12
"""GB/s that NCCL reckons with for one Gbit/s (src/graph/topo.h: NET_BW, 12.0 for 100)."""
OWN = 'a file with its numbers (--device mine.toml: ["MINE"] and the keys of a device of docs/plan.md)'


@dataclass(frozen=True)
class Device:
    """One device, and the node it stands in."""

    name: str
    memory_gib: float
    links: int
    link: float
    per_node: int
    network: float
    low_latency: float
    source: str
    reported: str = ""

    @property
    def memory(self) -> int:
        """Bytes."""
        return int(self.memory_gib * GIB)

    @property
    def within(self) -> float:
        """Bytes per second that a device sends and receives within its node."""
        return self.links * self.link * 1e9

    @property
    def between(self) -> float:
        """Bytes per second that a node sends and receives; no more than its devices can pass on."""
        return min(self.within, self.network * NETWORK * 1e9)

    def nodes(self, ranks: int) -> int:
        """How many nodes so many devices fill."""
        return -(-ranks // self.per_node)

    def is_reported_as(self, name: str) -> bool:
        """Whether torch calls this device so."""
        return bool(name) and name in (self.name, self.reported)


def device(name: str) -> Device:
    """The device of that name, or the one that a file describes. Raises AutodistError."""
    if name.endswith(".toml"):
        path = Path(name)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise AutodistError(
                f"the device cannot be read: {getattr(error, 'strerror', None) or error}", path
            ) from None
        found = _devices(text, path)
        if len(found) != 1:
            raise AutodistError(f"describes {len(found)} devices: one is wanted", path)
        return found[0]
    wanted, known = _key(name), known_devices()
    for found in (
        [each for each in known if wanted in (_key(each.name), _key(each.reported))],
        [each for each in known if wanted == _key(each.name.partition(" ")[0])],
        alike := [each for each in known if wanted and _key(each.name).startswith(wanted)],
    ):
        if len(found) == 1:
            return found[0]
    names = ", ".join(each.name for each in alike or known)
    what = f"--device {name} may be one of several" if alike else f"--device {name} is not known"
    raise AutodistError(f"{what}: {names}; or {OWN}")


def known_devices() -> list[Device]:
    """All that come with autodist."""
    return _devices((files("autodist.plan") / "devices.toml").read_text(encoding="utf-8"), Path("devices.toml"))


def _devices(text: str, path: Path) -> list[Device]:
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise AutodistError(f"the device cannot be read: {error}", path) from None
    return [_device(name, table, path) for name, table in tables.items()]


def _device(name: str, table: Any, path: Path) -> Device:
    given = table if isinstance(table, dict) else {}
    wanted = {each.name: each.type for each in fields(Device) if each.name != "name"}
    missing = [key for key in wanted if key not in given and key not in ("reported", "source")]
    unknown = [key for key in given if key not in wanted]
    if missing or unknown:
        what = f"lacks {', '.join(missing)}" if missing else f"has {', '.join(unknown)}, which means nothing"
        raise AutodistError(f'["{name}"] {what}; a device has {", ".join(wanted)}', path)
    for key, kind in wanted.items():
        value = given.get(key, "")
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
        if not (isinstance(value, str) if kind == "str" else is_number and (kind != "int" or isinstance(value, int))):
            wish = {"str": "a text", "int": "a whole number above 0"}.get(str(kind), "a number above 0")
            raise AutodistError(f'["{name}"] {key} = {value!r}: {wish} is wanted', path)
    return Device(name=name, **{"source": f"{path}", **given})


def _key(name: str) -> str:
    return "".join(name.casefold().removeprefix("nvidia").split())
