"""Generators that a data set keeps for itself: its samples are drawn from them in another order on several ranks."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

APART = (ModuleType, FunctionType, BuiltinFunctionType, type)
"""What a name may stand for that draws nothing by itself."""
DEPTH = 4
"""How many objects below a data set generators are looked for: that of a transform of `OneOf` in a list of them."""


def kept_by(dataset: Any) -> list[Any]:
    """The generators of Python, NumPy and torch that a data set, or what it is made of, holds, or that transforms
    hold which it calls by a global name."""
    seen: dict[int, Any] = {}
    found = [each for held in (dataset, *_named_by(dataset)) for each in _below(held, DEPTH, seen)]
    return list(dict.fromkeys(found))


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


def _named_by(dataset: Any) -> Iterator[Any]:
    """The objects that the methods of a data set name: `transform(image=x)`, `config.transform(image=x)`."""
    for method in ("__getitem__", "__iter__"):
        function = getattr(type(dataset), method, None)
        code = getattr(function, "__code__", None)
        for name in code.co_names if code is not None else ():
            value = function.__globals__.get(name)  # type: ignore[union-attr]
            if isinstance(value, ModuleType):
                inside = (vars(value).get(each) for each in code.co_names)  # type: ignore[union-attr]
                yield from (each for each in inside if not isinstance(each, APART))
            elif not isinstance(value, APART):
                yield value


def _below(value: Any, depth: int, seen: dict[int, Any]) -> Iterator[Any]:
    if _is_generator(value):
        yield value
        return
    if depth == 0 or id(value) in seen or isinstance(value, torch.Tensor | str | bytes | type):
        return
    seen[id(value)] = value
    if isinstance(value, list | tuple):
        for each in value if len(value) <= 16 else ():
            yield from _below(each, depth, seen)
    else:
        for each in list(getattr(value, "__dict__", {}).values()):
            yield from _below(each, depth - 1, seen)


def _is_generator(value: Any) -> bool:
    if isinstance(value, random.Random):
        return value is not random._inst
    numpy = sys.modules.get("numpy")
    kinds = (numpy.random.RandomState, numpy.random.Generator) if numpy is not None else ()
    if kinds and isinstance(value, kinds):
        return value is not numpy.random.mtrand._rand  # type: ignore[union-attr]
    return isinstance(value, torch.Generator) and value is not torch.default_generator
