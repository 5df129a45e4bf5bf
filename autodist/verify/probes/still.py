"""Random draws that are held still, in both programs alike.

What a batch is padded to, a shuffle of its rows or a loop over them may leave nothing by which the numbers that the
ranks drew could be put together for the original. Draws of such a line are held still: dropout lets everything
through, and noise is the same for all that could lie otherwise, from step to step another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Plain = Callable[..., Any]
RECURRENT_TRAINING = {True: (6, 7), False: (5, 6)}
"""Where the functions of recurrent layers take the share to drop and whether they train; True for packed sequences."""


def reduced(shape: Sequence[int], varying: Sequence[int]) -> list[int]:
    """``shape`` with one entry along what ``varying`` names, by which ranks differ from the original."""
    return [1 if dimension in varying else size for dimension, size in enumerate(shape)]


def spread(draw: Callable[[list[int]], torch.Tensor], shape: Sequence[int], *, varying: Sequence[int]) -> torch.Tensor:
    """A draw of ``shape`` that repeats along ``varying``."""
    drawn = draw(reduced(shape, varying))
    return drawn.detach().expand(list(shape)).clone().requires_grad_(drawn.requires_grad)


def still_on_input(name: str, values: torch.Tensor, rest: Sequence[Any], named: dict[str, Any]) -> Any:
    """What dropout and its kin let through of ``values`` on average, or the likeliest outcomes."""
    if name == "native_dropout":
        return values.clone(), torch.ones_like(values, dtype=torch.bool)
    if name == "bernoulli":
        given = next((each for each in (*rest, named.get("p")) if each is not None), values)
        return (torch.as_tensor(given, device=values.device) >= 0.5).to(values.dtype).expand(values.shape).clone()
    if name == "multinomial":
        count = rest[0] if rest else named["num_samples"]
        likeliest: torch.Tensor = values.argsort(dim=-1, descending=True)
        return likeliest[..., [at % values.shape[-1] for at in range(count)]]
    if name == "poisson":
        return values.round()
    if name == "rrelu":
        lower, upper = (*rest, 1 / 8, 1 / 3)[:2]
        slope = (named.get("lower", lower) + named.get("upper", upper)) / 2
        return torch.nn.functional.leaky_relu(values, slope, named.get("inplace", False))
    return values if named.get("inplace", False) else values.clone()


def still_recurrent(plain: Plain, packed: bool, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A recurrent layer that drops nothing."""
    given = list(args)
    given[RECURRENT_TRAINING[packed][0]] = 0.0
    return plain(*given, **kwargs)


def still_in_place(plain: Plain, target: torch.Tensor, rest: Sequence[Any], varying: Sequence[int]) -> torch.Tensor:
    """Fill ``target`` with noise that repeats along ``varying``."""

    def draw(shape: list[int]) -> torch.Tensor:
        whole = [value for value in rest if isinstance(value, torch.Tensor) and value.shape == target.shape]
        fresh = torch.empty(target.shape if whole else shape, dtype=target.dtype, device=target.device)
        return plain(fresh, *rest)  # type: ignore[no-any-return]

    return target.copy_(spread(draw, target.shape, varying=varying))
