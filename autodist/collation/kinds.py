"""How many rows what is made of the samples of a batch has."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

Key = int | str
ANY_OTHER = "any other key"
"""Stands for all keys that a function names nowhere."""


class Rows(Enum):
    """How many rows a tensor, or entries a list, has for the samples of a batch."""

    EACH = "one for each sample"
    STACKED = "one for each sample, in a tensor"
    JOINED = "as many as the samples have together"
    PADDED = "one for each sample, each as long as the longest"
    FEWER = "some samples are left out"

    @property
    def uneven(self) -> bool:
        """Whether a mean over all of it divides by a number that each rank has of its own."""
        return self not in (Rows.EACH, Rows.STACKED)


@dataclass(frozen=True)
class Longest:
    """A length that depends on the samples: `max(len(text) for text in texts)`."""


@dataclass(frozen=True)
class Single:
    """One sample, or a part of one; ``longest`` if no other is longer, ``filled`` if it is as long as the longest."""

    longest: bool = False
    filled: bool = False


@dataclass(frozen=True)
class Fields:
    """Several of them: a tuple, list or dict; ``rest`` is what is under keys that are not told."""

    parts: dict[Key, Kind]
    rest: Kind = None

    def at(self, key: Key) -> Kind:
        """What is under a key."""
        return self.parts.get(key, self.rest)

    @property
    def all(self) -> dict[Key, Kind]:
        """What is under each key, and under any other."""
        return {**self.parts, ANY_OTHER: self.rest} if self.rest is not None else self.parts


Kind = Rows | Longest | Single | Fields | None
"""None: nothing is known, or it has nothing to do with the samples."""


def unevenness(kind: Kind, key: Key | None) -> Rows | None:
    """What makes a part of a batch, or with no key what a loss is taken of, longer on one rank than on another."""
    if isinstance(kind, Fields) and key is not None:
        kind = kind.at(key + len(kind.parts) if isinstance(key, int) and key < 0 else key)
    if isinstance(kind, Fields):
        named = [k for k in kind.parts if isinstance(k, str) and ("label" in k or "target" in k)]
        kind = worst([kind.parts[k] for k in named] or [*kind.parts.values(), kind.rest])
    if isinstance(kind, Single) and kind.filled:
        return Rows.PADDED  # `words.extend(text + [PAD] * (longest - len(text)))`, which is folded afterwards
    return kind if isinstance(kind, Rows) and kind.uneven else None


def worst(kinds: Iterable[Kind]) -> Kind:
    """What is worst of some: where one of them is uneven, the whole may be."""
    found = [kind for kind in kinds if isinstance(kind, (Rows, Fields)) or isinstance(kind, Single) and kind.filled]
    if found and all(isinstance(kind, Fields) for kind in found):
        fields = [kind for kind in found if isinstance(kind, Fields)]
        keys = dict.fromkeys(key for each in fields for key in each.parts)
        return Fields({key: worst(each.at(key) for each in fields) for key in keys}, worst(e.rest for e in fields))
    rows = [unevenness(kind, None) or (kind if isinstance(kind, Rows) else Rows.EACH) for kind in found]
    order = (Rows.FEWER, Rows.JOINED, Rows.PADDED, Rows.EACH, Rows.STACKED)
    return next((each for each in order if each in rows), None)


def element_of(kind: Kind) -> Kind:
    return Single() if isinstance(kind, Rows) else None
