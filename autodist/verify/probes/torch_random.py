"""Torch's random functions, as scripts and torch's own Python code call them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from autodist.verify.probes.draws import FUNCTIONAL, ON_INPUT, Draws, draw_key
from autodist.verify.probes.parts import Shape
from autodist.verify.probes.still import (
    RECURRENT_TRAINING,
    spread,
    still_in_place,
    still_on_input,
    still_recurrent,
)

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

FACTORIES = ("rand", "randn")
LIKE = ("rand_like", "randn_like", "randint_like")
IN_PLACE = (
    "normal_",
    "uniform_",
    "bernoulli_",
    "random_",
    "exponential_",
    "cauchy_",
    "geometric_",
    "log_normal_",
)
METHODS = ("bernoulli", "multinomial")
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")


class TorchRandomProbe:
    """Replaces them in torch, in its functional module and among the methods of tensors."""

    def __init__(self, context: ProbeContext, draws: Draws) -> None:
        self._context = context
        self._draws = draws

    def install(self) -> None:
        """Patch them all."""
        for name in FACTORIES:
            self._draws.patch(torch, name, self._factory)
        for name in LIKE:
            self._draws.patch(torch, name, self._like)
        self._draws.patch(torch, "randint", self._randint)
        self._draws.patch(torch, "normal", self._normal)
        self._draws.patch(torch, "randperm", self._randperm)
        for name in ON_INPUT:
            self._draws.patch(torch, name, self._multinomial if name == "multinomial" else self._on_input)
        for name in FUNCTIONAL:
            self._draws.patch(torch.nn.functional, name, self._on_input)
        self._draws.patch(torch.nn.functional, "scaled_dot_product_attention", self._attention)
        for name in IN_PLACE:
            self._draws.patch(torch.Tensor, name, self._in_place)
        for name in METHODS:
            self._draws.patch(torch.Tensor, name, self._multinomial if name == "multinomial" else self._on_input)
        for name in RECURRENT:
            self._draws.patch(torch._VF, name, self._recurrent)

    def _draw(
        self,
        name: str,
        generator: torch.Generator | None,
        shape: Shape,
        sized: Callable[[Shape], torch.Tensor],
        rows: torch.Tensor | None = None,
        below: Callable[[int, Shape], torch.Tensor] | None = None,
        bound: int | None = None,
    ) -> torch.Tensor:
        """A fresh tensor of ``shape``, put together from draws of other shapes where the ranks drew those; for
        ``rows``, if they are known. Numbers below ``bound`` may pick rows of the batch: each rank draws ``below`` the
        number of its own."""
        seed = self._draws.call_seed(name, shape, generator)
        own = self._draws.own_seed(name, seed, shape, rows, bound)
        found = self._draws.parts(name, seed, shape, rows)
        if found is None:
            draw = functools.partial(spread, sized, varying=self._draws.varying) if self._draws.varying else sized
            result: torch.Tensor = self._draws.seeded(own, generator, lambda: draw(shape))
            return result
        parts = []
        for rank, (each, part) in enumerate(zip(found.seeds, found.shapes, strict=True)):
            if below is not None and found.picks(bound):
                picked = self._draws.seeded(each, generator, functools.partial(below, part[found.dimension], part))
                parts.append(torch.tensor(found.layout.positions[rank], device=picked.device)[picked])
            else:
                parts.append(self._draws.seeded(each, generator, functools.partial(sized, part)))
        joined = found.join([part.detach() for part in parts])
        return joined.requires_grad_(parts[0].requires_grad)

    def _factory(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        rest = {key: value for key, value in kwargs.items() if key not in ("size", "out")}
        sizes = kwargs.get("size", args)
        shape = list(sizes[0]) if len(sizes) == 1 and not isinstance(sizes[0], int) else [int(size) for size in sizes]
        result = self._draw(name, kwargs.get("generator"), shape, lambda part: plain(tuple(part), **rest))
        return stored(result, kwargs)

    def _like(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        like = args[0] if args else kwargs["input"]
        rest = {key: value for key, value in kwargs.items() if key != "input"}
        return self._draw(
            name,
            kwargs.get("generator"),
            list(like.shape),
            lambda part: plain(like.new_empty(part), *args[1:], **rest),
            like,
        )

    def _randint(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        rest = {key: value for key, value in kwargs.items() if key not in ("low", "high", "size", "out")}
        bounds = [value for value in args if not isinstance(value, (tuple, list))]
        bounds += [kwargs[key] for key in ("low", "high") if key in kwargs]
        sizes = [value for value in (*args, kwargs.get("size")) if isinstance(value, (tuple, list))]
        low, high = bounds if len(bounds) == 2 else (0, bounds[0])

        def below(bound: Any, part: Shape) -> torch.Tensor:
            drawn: torch.Tensor = plain(low, bound, size=tuple(part), **rest)
            return drawn

        bound = int(high) if low == 0 else None
        within = functools.partial(below, high)
        result = self._draw(name, kwargs.get("generator"), list(sizes[0]), within, below=below, bound=bound)
        return stored(result, kwargs)

    def _normal(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        values = {**dict(zip(("mean", "std", "size"), args, strict=False)), **kwargs}
        mean, std, generator = values.get("mean", 0.0), values.get("std", 1.0), kwargs.get("generator")
        tensors = [value for value in (mean, std) if isinstance(value, torch.Tensor)]
        if not tensors:
            rest = {key: value for key, value in values.items() if key not in ("mean", "std", "size", "out")}
            shape = list(values["size"])
            result = self._draw(name, generator, shape, lambda part: plain(mean, std, tuple(part), **rest))
            return stored(result, kwargs)
        like = tensors[0] if len(tensors) == 1 else tensors[0] + tensors[1]
        noise = self._draw(
            name, generator, list(like.shape), lambda part: like.new_empty(part).normal_(generator=generator)
        )
        return stored((noise * std + mean).detach(), kwargs)

    def _randperm(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A permutation of a batch becomes a permutation within the part of each rank."""
        generator = kwargs.get("generator")
        count = int(args[0] if args else kwargs["n"])
        seed = self._draws.call_seed(name, [count], generator)
        result: torch.Tensor = self._draws.seeded(seed, generator, lambda: plain(*args, **kwargs))
        if self._draws.varying:
            return result.copy_(torch.arange(count))
        self._draws.own_seed(name, seed, result.shape)
        found = self._draws.parts(name, seed, result.shape)
        if found is None:
            return result
        rest = {key: value for key, value in kwargs.items() if key not in ("out", "n")}
        parts = []
        for rank, (size,) in enumerate(found.shapes):
            within = self._draws.seeded(seed, generator, functools.partial(plain, size, **rest))
            parts.append(torch.tensor(found.layout.positions[rank], device=within.device)[within])
        return found.join(parts)

    def _on_input(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Functions of a tensor, such as dropout: applied to the rows of each rank."""
        values, rest = (args[0], args[1:]) if args else (kwargs["input"], ())
        named = {key: value for key, value in kwargs.items() if key != "input"}
        if not draws_at_all(name, rest, named):
            return plain(*args, **kwargs)
        if self._draws.varying:
            return still_on_input(name, values, rest, named)
        generator = kwargs.get("generator")
        seed = self._draws.call_seed(name, values.shape, generator)
        own = self._draws.own_seed(name, seed, values.shape, values)
        found = self._draws.parts(name, seed, values.shape, values)
        if found is None:
            dense = values if values.is_contiguous() else values.contiguous()
            result = self._draws.seeded(own, generator, lambda: plain(dense, *rest, **named))
            return values.copy_(result) if dense is not values and named.get("inplace", False) else result
        parts = []
        for rank, each in enumerate(found.seeds):
            own_rest = [
                found.take(value, rank) if isinstance(value, torch.Tensor) and value.shape == values.shape else value
                for value in rest
            ]
            call = functools.partial(plain, found.take(values, rank), *own_rest, **named)
            parts.append(self._draws.seeded(each, generator, call))
        if isinstance(parts[0], tuple):
            return tuple(found.join(column) for column in zip(*parts, strict=True))
        joined = found.join(parts)
        return values.copy_(joined) if named.get("inplace", False) else joined

    def _multinomial(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """From one distribution, as many numbers as are asked for: some of them for each sample of the batch."""
        values = args[0] if args else kwargs["input"]
        count = int(args[1] if len(args) > 1 else kwargs["num_samples"])
        if values.dim() != 1 and (len(values) != 1 or count == 1):
            return self._on_input(name, plain, args, kwargs)
        self._note_distribution(values.reshape(-1))
        rest, single = args[2:], values.reshape(-1)  # `Categorical` gives a row of weights
        named = {key: value for key, value in kwargs.items() if key not in ("input", "num_samples", "out")}
        result = self._draw(name, kwargs.get("generator"), [count], lambda part: plain(single, part[0], *rest, **named))
        return stored(result if values.dim() == 1 else result.unsqueeze(0), kwargs)

    def _note_distribution(self, weights: torch.Tensor) -> None:
        """Ranks whose weights are others draw the same numbers for the most part: the weights are compared, too."""
        context = self._context
        if context.trace.called_from("torch.utils.data") or not context.learning():
            return
        context.probing = True
        try:
            with torch.no_grad():
                shares = weights.double() / weights.double().sum()
                places = torch.arange(len(shares), dtype=torch.float64, device=shares.device)
                moments = [shares @ shares, shares @ (places / len(shares)), shares @ places.cos()]
                content = [float(each) for each in moments]
        finally:
            context.probing = False
        context.trace.emit("distribution", outcomes=len(weights), content=content, site=context.trace.site())

    def _in_place(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        target: torch.Tensor = args[0]
        rest = args[1:]
        generator = kwargs.get("generator")
        seed = self._draws.call_seed(name, target.shape, generator)
        own = self._draws.own_seed(name, seed, target.shape)
        found = self._draws.parts(name, seed, target.shape)
        if self._draws.varying:
            varying, named = self._draws.varying, {key: value for key, value in kwargs.items() if key != "generator"}
            still = functools.partial(plain, **named)
            result: torch.Tensor = self._draws.seeded(own, None, lambda: still_in_place(still, target, rest, varying))
            return result
        if found is None:
            if target.is_contiguous():
                return self._draws.seeded(own, generator, lambda: plain(*args, **kwargs))
            fresh = torch.empty(target.shape, dtype=target.dtype, device=target.device)
            return target.copy_(self._draws.seeded(own, generator, lambda: plain(fresh, *rest, **kwargs)))
        parts = []
        for rank, (each, shape) in enumerate(zip(found.seeds, found.shapes, strict=True)):
            fresh = torch.empty(shape, dtype=target.dtype, device=target.device)
            own_rest = [
                found.take(value, rank) if isinstance(value, torch.Tensor) and value.shape == target.shape else value
                for value in rest
            ]
            parts.append(self._draws.seeded(each, generator, functools.partial(plain, fresh, *own_rest, **kwargs)))
        return target.copy_(found.join(parts))

    def _attention(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        values = {**dict(zip(names, args, strict=False)), **kwargs}
        if not values.get("dropout_p", 0.0):
            return plain(*args, **kwargs)
        query = values["query"]
        if self._draws.varying:
            return plain(**{**values, "dropout_p": 0.0})
        seed = self._draws.call_seed(name, query.shape, None)
        own = self._draws.own_seed(name, seed, query.shape, query)
        found = self._draws.parts(name, seed, query.shape, query)
        if found is None:
            return self._draws.seeded(own, None, lambda: plain(*args, **kwargs))

        def follows(value: Any) -> bool:
            return (
                isinstance(value, torch.Tensor)
                and value.dim() == query.dim()
                and value.shape[found.dimension] == query.shape[found.dimension]
            )

        parts = []
        for rank, each in enumerate(found.seeds):
            part = {key: found.take(value, rank) if follows(value) else value for key, value in values.items()}
            parts.append(self._draws.seeded(each, None, functools.partial(plain, **part)))
        return found.join(parts)

    def _recurrent(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Recurrent layers draw their dropout in C++; the rows of each rank pass through the layer on their own."""
        packed = isinstance(args[1], torch.Tensor) and isinstance(args[2], (torch.Tensor, tuple))
        probability, training = (args[at] for at in RECURRENT_TRAINING[packed])
        if not (probability and training):
            return plain(*args, **kwargs)
        if self._draws.varying:
            return still_recurrent(plain, packed, args, kwargs)
        values, hidden, batch_first = args[0], args[1], args[8]
        seed = self._draws.call_seed(name, values.shape, None)
        if packed:
            self._note_packed(name, seed, values.shape)
        own = seed if packed else self._draws.own_seed(name, seed, values.shape, values)
        found = None if packed else self._draws.parts(name, seed, values.shape, values)
        batched = 0 if batch_first else 1
        if found is None or found.dimension != batched:  # it may run from sample to sample
            return self._draws.seeded(own, None, lambda: plain(*args, **kwargs))
        several = isinstance(hidden, (tuple, list))
        outputs = []
        for rank, each in enumerate(found.seeds):
            states = [found.layout.take(state, 1, rank) for state in (hidden if several else [hidden])]
            part = [found.take(values, rank), type(hidden)(states) if several else states[0], *args[2:]]
            outputs.append(self._draws.seeded(each, None, functools.partial(plain, *part, **kwargs)))
        dimensions = [batched, 1, 1]
        return tuple(
            found.join(column, dimension)
            for column, dimension in zip(zip(*outputs, strict=True), dimensions, strict=False)
        )

    def _note_packed(self, name: str, seed: int, shape: Sequence[int]) -> None:
        """Steps of packed sequences lie by their length: which rank's they are cannot be told."""
        context = self._context
        if context.distributed:
            site = context.trace.site()
            context.trace.emit(
                "draw", seed=draw_key(name, seed), function=name, shape=list(shape), site=site, distinct=False
            )
        elif context.replay is not None:
            candidates = context.replay.draws.get(draw_key(name, seed), [])
            self._draws.note_sites(name, candidates)
            if not any(part == list(shape) for drawn in candidates for part in drawn.shapes):
                self._draws.ask_to_hold(name, [0])


def draws_at_all(name: str, rest: Sequence[Any], named: dict[str, Any]) -> bool:
    """False for dropout and its kin outside training."""
    if "dropout" not in name and name != "rrelu":
        return True
    position, default = (2, False) if name == "rrelu" else (1, True)
    given = rest[position] if len(rest) > position else default
    return bool(named.get("training", named.get("train", given)))


def stored(result: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
    """The result, in the tensor that the caller gave for it."""
    out: torch.Tensor | None = kwargs.get("out")
    return result if out is None else out.resize_(result.shape).copy_(result)
