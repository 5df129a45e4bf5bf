"""Generators that a data set keeps for itself: its samples are drawn from them in another order on several ranks."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

DEPTH = 4
"""How far below a data set generators are looked for: that of a transform in a list of transforms."""


def kept_by(dataset: Any) -> list[Any]:
    """The generators of Python, NumPy and torch that a data set, or what it is made of, holds."""
    seen: dict[int, Any] = {}
    return list(dict.fromkeys(_below(dataset, DEPTH, seen)))


def reseed(generator: Any, seed: int) -> None:
    """Start it anew; like others of its kind, whatever they were started with."""
    if isinstance(generator, random.Random):
        generator.seed(seed)
    elif isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = type(generator.bit_generator)(seed).state
    else:
        generator.seed(seed & 0xFFFFFFFF)


def _below(value: Any, depth: int, seen: dict[int, Any]) -> Iterator[Any]:
    if _is_generator(value):
        yield value
        return
    if depth == 0 or id(value) in seen or isinstance(value, torch.Tensor | str | bytes | type):
        return
    seen[id(value)] = value
    if isinstance(value, list | tuple):
        held: Any = value if len(value) <= 16 else ()
    else:
        held = getattr(value, "__dict__", {}).values()
    for each in list(held):
        yield from _below(each, depth - 1, seen)


def _is_generator(value: Any) -> bool:
    if isinstance(value, random.Random):
        return value is not random._inst
    numpy = sys.modules.get("numpy")
    kinds = (numpy.random.RandomState, numpy.random.Generator) if numpy is not None else ()
    if kinds and isinstance(value, kinds):
        return value is not numpy.random.mtrand._rand  # type: ignore[union-attr]
    return isinstance(value, torch.Generator) and value is not torch.default_generator
