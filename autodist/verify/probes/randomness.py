"""Random draws that do not depend on how a batch is divided.

Every call of a random function consumes exactly one number of its generator, which seeds a stream for that call. So
the generators of the original and of the ranks stay in step whatever shapes they draw, also through activation
checkpointing, which saves and restores the generator. On the ranks the shape of each draw is recorded. Where the
original draws for the whole batch what each rank drew for its part, it repeats the draws of the ranks and puts them
together.

A tensor that looks like a part of the batch gets other numbers on every rank, anything else the same. From one rank
alone nobody can tell whether a tensor of shape (64, 64) is a batch or a weight: where the original finds that ranks
took a weight for a batch it says so, and the verification begins again with that line of the script set right.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from autodist.verify.probes.order import lies_otherwise, order_of
from autodist.verify.probes.still import (
    RECURRENT_TRAINING,
    spread,
    still_in_place,
    still_on_input,
    still_recurrent,
)
from autodist.verify.probes.streams import key_seed
from autodist.verify.replay import RankDraws, batch_dimension, in_turns

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

Shape = list[int]

FACTORIES = ("rand", "randn")
LIKE = ("rand_like", "randn_like", "randint_like")
ON_INPUT = (
    "bernoulli",
    "multinomial",
    "poisson",
    "dropout",
    "alpha_dropout",
    "feature_dropout",
    "feature_alpha_dropout",
    "native_dropout",
    "rrelu",
)
FUNCTIONAL = (
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "alpha_dropout",
    "feature_alpha_dropout",
    "rrelu",
)
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
NOISE_ON_INPUT = (*ON_INPUT, *FUNCTIONAL, "scaled_dot_product_attention")
PERMUTATIONS = ("randperm", "numpy.random.permutation")
INTEGERS = (
    "randint",
    "randperm",
    "multinomial",
    "randint_like",
    *(f"numpy.random.{name}" for name in ("randint", "choice", "binomial", "multinomial", "poisson")),
)
RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
NUMPY_SIZED = {
    "normal": 2,
    "uniform": 2,
    "randint": 2,
    "beta": 2,
    "random": 0,
    "random_sample": 0,
    "standard_normal": 0,
    "choice": 1,
    "binomial": 2,
    "multinomial": 2,
    "poisson": 1,
    "exponential": 1,
    "gamma": 2,
    "laplace": 2,
}
"""With the position of the size that is asked for."""
NUMPY_UNPACKED = ("randn", "rand")


class Layout:
    """How the rows of the ranks lie in the batch of the original, along one dimension: they take turns.

    One sample may be several rows, as when time steps or image patches are folded into the dimension of the batch.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        batches: Sequence[int],
        stacked: bool = False,
        pieces: Sequence[Sequence[int]] = (),
    ) -> None:
        """``batches`` are the sizes of those at hand, the latest first, which may have been joined in that order;
        ``stacked`` where batches lie one after the other, as several views of it that are joined do; ``pieces`` are
        numbers of rows that each sample may have."""
        total, world = sum(sizes), len(sizes)
        of_loaders = [[len(range(rank, size, world)) for rank in range(world)] for size in reversed(batches)]
        of_all = [sum(shares) for shares in zip(*of_loaders, strict=True)]
        group = next((total // batch for batch in batches if total % batch == 0), 1)
        if total in batches or any(size % group for size in sizes):
            group = 1
        turns = [rank for _, rank in in_turns([size // group for size in sizes])]
        self.positions: list[list[int]] = [[] for _ in sizes]
        joined = next((p for p in pieces if total not in batches and dealt_out(p, len(sizes)) == list(sizes)), None)
        if joined is not None:
            starts = itertools.accumulate(joined, initial=0)
            for sample, (start, count) in enumerate(zip(starts, joined, strict=False)):
                self.positions[sample % len(sizes)] += range(start, start + count)
        elif len(batches) > 1 and sum(batches) == total and of_all == list(sizes):
            start = 0
            for size in reversed(batches):
                for rank in range(world):
                    self.positions[rank] += range(start + rank, start + size, world)
                start += size
        elif stacked:
            for at, rank in enumerate(turns * group):
                self.positions[rank].append(at)
        else:
            for at, rank in enumerate(turns):
                self.positions[rank] += range(at * group, (at + 1) * group)
        flat = [position for of_rank in self.positions for position in of_rank]
        self.in_order = flat == list(range(total))
        inverse = [0] * total
        for at, position in enumerate(flat):
            inverse[position] = at
        self.inverse = inverse

    def take(self, tensor: torch.Tensor, dimension: int, rank: int) -> torch.Tensor:
        """The rows of one rank."""
        index = torch.tensor(self.positions[rank], device=tensor.device)
        return tensor.index_select(dimension, index)

    def join(self, parts: Sequence[torch.Tensor], dimension: int) -> torch.Tensor:
        """The rows of all ranks where the original has them."""
        joined = torch.cat(list(parts), dimension)
        if self.in_order:
            return joined
        return joined.index_select(dimension, torch.tensor(self.inverse, device=joined.device))


def dealt_out(pieces: Sequence[int], world: int) -> list[int]:
    """How many rows each rank has of samples that are dealt out in turns."""
    return [sum(pieces[rank::world]) for rank in range(world)]


def draws_at_all(name: str, rest: Sequence[Any], named: dict[str, Any]) -> bool:
    """False for dropout and its kin outside training."""
    if "dropout" not in name and name != "rrelu":
        return True
    position, default = (2, False) if name == "rrelu" else (1, True)
    given = rest[position] if len(rest) > position else default
    return bool(named.get("training", named.get("train", given)))


@dataclass(frozen=True)
class Parts:
    """The draws of all ranks for one draw of the original."""

    shapes: list[Shape]
    dimension: int
    seeds: list[int]
    layout: Layout

    def take(self, tensor: torch.Tensor, rank: int) -> torch.Tensor:
        """The rows of one rank."""
        return self.layout.take(tensor, self.dimension, rank)

    def join(self, parts: Sequence[torch.Tensor], dimension: int | None = None) -> torch.Tensor:
        """The rows of all ranks where the original has them."""
        return self.layout.join(parts, self.dimension if dimension is None else dimension)


def draw_key(name: str, seed: int) -> str:
    """A draw as a key in JSON: the function and the seed of the call."""
    return f"{name} {seed & (2**64 - 1):x}"


def rank_seed(seed: int, rank: int) -> int:
    """The seed that one rank draws its part of the batch with; rank 0 keeps the common one."""
    return seed if rank == 0 else key_seed(seed, rank)


class RandomnessProbe:
    """Replaces the random functions that scripts and torch's own Python code call."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._busy = False
        self._drawn: dict[str, int] = {}
        """How often the script has drawn from the generators of the libraries."""
        self._counted_step = -1
        self._calls: Counter[str] = Counter()
        """How often each function was called in this step."""
        self._varying: list[int] | None = None
        """The dimensions of the draw at hand along which it is held still; None where it is free."""
        self._sorted_step = -1
        """The last step in which samples lay on the ranks in another order."""
        self._conversion_sites: dict[str, str] = {}
        """Where the conversion draws what the original draws, by function and line."""
        self._draw_seed = torch.Tensor.random_
        self._manual_seed = torch.manual_seed

    def install(self) -> None:
        """Patch torch, its functional module and NumPy's global functions."""
        for name in FACTORIES:
            self._patch(torch, name, self._factory)
        for name in LIKE:
            self._patch(torch, name, self._like)
        self._patch(torch, "randint", self._randint)
        self._patch(torch, "normal", self._normal)
        self._patch(torch, "randperm", self._randperm)
        for name in ON_INPUT:
            self._patch(torch, name, self._multinomial if name == "multinomial" else self._on_input)
        for name in FUNCTIONAL:
            self._patch(torch.nn.functional, name, self._on_input)
        self._patch(torch.nn.functional, "scaled_dot_product_attention", self._attention)
        for name in IN_PLACE:
            self._patch(torch.Tensor, name, self._in_place)
        for name in METHODS:
            self._patch(torch.Tensor, name, self._multinomial if name == "multinomial" else self._on_input)
        for name in RECURRENT:
            self._patch(torch._VF, name, self._recurrent)
        self._patch_seeding()
        if "numpy" in sys.modules:
            self._patch_numpy()

    def _patch(self, owner: Any, name: str, handler: Callable[..., Any]) -> None:
        plain = getattr(owner, name, None)
        if plain is None:
            return

        library = "numpy" if getattr(owner, "__name__", "") == "numpy.random" else "torch"
        full_name = f"numpy.random.{name}" if library == "numpy" else name

        @functools.wraps(plain)
        def drawn(*args: Any, **kwargs: Any) -> Any:
            context = self._context
            if self._busy or context.inside_sample or context.probing:
                return plain(*args, **kwargs)
            self._busy = True
            self._varying = self.held(full_name)
            if kwargs.get("generator") is None:
                self._begin_as_seeded(library)
                self._drawn[library] = self._drawn.get(library, 0) + 1
            try:
                return handler(name, plain, args, kwargs)
            finally:
                self._busy, self._varying = False, None

        setattr(owner, name, drawn)

    # draws that are held still

    def held(self, name: str) -> list[int] | None:
        """Along which dimensions a draw of the script's line at hand is held still. What activation checkpointing
        computes once more has the line of the backward pass: it is held where its function is."""
        held = self._context.plan.held
        found = held.get(f"{name} {self._context.trace.site()}") if held else None
        if found is None and held and in_backward():
            return next((each for draw, each in held.items() if draw.startswith(f"{name} ")), None)
        return found

    def note_single(self, name: str, seed: int) -> None:
        """A draw of one number, or of several whatever the batch."""
        self._own_seed(name, seed, ())
        self._parts(name, seed, ())

    def _ask_to_hold(self, name: str, varying: Sequence[int]) -> None:
        """Say that draws of this line cannot be put together, where the conversion draws in a line that is known."""
        if self._context.trace.called_from("torch.utils.data") or in_backward():
            return  # seeds of workers and samplers; what was asked in the forward pass
        here = f"{name} {self._context.trace.site()}"
        there, replay = self._conversion_sites.get(here), self._context.replay
        if there is not None and replay is not None and there not in replay.parted:
            self._context.trace.emit("note", topic="unaligned", message=here, site=there, varying=list(varying))

    # the stream of one call

    def _seed(self, generator: torch.Generator | None) -> int:
        if generator is not None and generator.device.type != "cpu":
            return int(
                self._draw_seed(torch.empty((), dtype=torch.int64, device=generator.device), generator=generator)
            )
        return int(self._draw_seed(torch.empty((), dtype=torch.int64), generator=generator))

    def _seeded(self, seed: int, generator: torch.Generator | None, call: Callable[[], Any]) -> Any:
        chosen = torch.default_generator if generator is None else generator
        kept = chosen.get_state()
        on_device = torch.cuda.get_rng_state() if generator is None and torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
        chosen.manual_seed(seed)
        if on_device is not None:
            torch.cuda.manual_seed(seed)
        try:
            return call()
        finally:
            chosen.set_state(kept)
            if on_device is not None:
                torch.cuda.set_rng_state(on_device)

    def _call_seed(self, name: str, shape: Sequence[int], generator: torch.Generator | None) -> int:
        """The seed of one call: the next number of its generator, or the position of the call where no loader is in
        use.

        Ranks may rightly seed their noise differently. Loaders bring all generators together again with every batch;
        in steps without one, noise that follows the batch is keyed to the step and the number of the call of its
        function instead: samplers of the original draw in the first step, those of the ranks do not.
        """
        if self._varying is not None:
            return key_seed("still", name, self._context.steps)
        seed = self._seed(generator)
        context = self._context
        if generator is not None or context.batch_rows or name in INTEGERS:
            return seed
        if context.steps != self._counted_step:
            self._counted_step, self._calls = context.steps, Counter()
        self._calls[name] += 1
        keyed = key_seed("noise", context.steps, name, self._calls[name])
        if context.distributed:
            return keyed if self._follows_batch(name, shape) else seed
        known = context.replay is not None and draw_key(name, keyed) in context.replay.draws
        return keyed if known else seed

    def _own_seed(self, name: str, seed: int, shape: Sequence[int], rows: torch.Tensor | None = None) -> int:
        """Note a draw of a rank for ``rows``, and give it numbers of its own where it draws for its part of the
        batch."""
        context = self._context
        if not context.distributed or self._varying is not None:
            return seed
        site = context.trace.site()
        distinct = self._follows_batch(name, shape) and f"{name} {site}" not in context.plan.shared_draws
        order = order_of(rows) if distinct and rows is not None else []
        context.trace.emit(
            "draw",
            seed=draw_key(name, seed),
            function=name,
            shape=list(shape),
            site=site,
            distinct=distinct,
            order=order,
        )
        return rank_seed(seed, context.plan.rank) if distinct else seed

    def _follows_batch(self, name: str, shape: Sequence[int]) -> bool:
        rows = self._context.rows()
        if not rows or not shape or name in PERMUTATIONS:
            return False
        if name in INTEGERS:
            several = name == "multinomial" and len(shape) == 1 and any(shape[0] % count == 0 for count in rows)
            return bool(self._context.batch_rows) and (shape[0] in rows or several)
        joined = {sum(each) for of_loader in self._context.pieces.values() for each in of_loader}
        if name in NOISE_ON_INPUT and shape[0] in joined:
            return True
        return any(count in shape[:2] or (name in NOISE_ON_INPUT and shape[0] % count == 0) for count in rows)

    def _parts(self, name: str, seed: int, whole: Sequence[int], rows: torch.Tensor | None = None) -> Parts | None:
        """What the ranks drew, where the original has to put it together for ``rows``. Says so where ranks misjudged
        their draw."""
        replay = self._context.replay
        if replay is None or self._varying is not None:
            return None
        whole = list(whole)
        candidates = replay.draws.get(draw_key(name, seed), [])
        self._note_sites(name, candidates)
        alike = [drawn for drawn in candidates if all(shape == whole for shape in drawn.shapes)]
        for drawn in alike:
            if drawn.distinct:
                self._context.trace.emit("note", topic="shared-draw", message=f"{name} {drawn.site}", site=drawn.site)
        if not candidates:
            self._ask_to_hold(name, [0] if self._follows_batch(name, whole) else [])
        if alike or not candidates:
            return None
        for drawn in candidates:
            dimension = batch_dimension(whole, drawn.shapes)
            if dimension is not None:
                seeds = [rank_seed(seed, rank) if drawn.distinct else seed for rank in range(len(drawn.shapes))]
                layout = self._layout(drawn.shapes, dimension, name in PERMUTATIONS)
                found = Parts(drawn.shapes, dimension, seeds, layout)
                if drawn.distinct and self._meets_others(found, rows, drawn.orders):
                    self._ask_to_hold(name, [dimension])
                return found
        self._context.trace.emit(
            "note",
            topic="draw",
            message=f"{name} draws {tuple(whole)}, the ranks draw {[tuple(shape) for shape in candidates[0].shapes]}",
            site=self._context.trace.site(),
        )
        self._ask_to_hold(name, varying_dimensions(whole, candidates[0].shapes))
        return None

    def _meets_others(self, found: Parts, rows: torch.Tensor | None, orders: Sequence[Sequence[float]]) -> bool:
        """Whether a draw, put together, meets other samples than on the ranks, which have sorted them."""
        otherwise = None
        if rows is not None:
            otherwise = lies_otherwise(rows, functools.partial(found.take, rows), orders, found.dimension)
        if otherwise:
            self._sorted_step = self._context.steps
        return otherwise is not False and self._sorted_step == self._context.steps

    def _note_sites(self, name: str, candidates: Sequence[RankDraws]) -> None:
        """Remember where the conversion draws this."""
        if candidates:
            here = f"{name} {self._context.trace.site()}"
            self._conversion_sites.setdefault(here, f"{name} {candidates[0].site}")

    def _layout(self, shapes: Sequence[Shape], dimension: int, stacked: bool = False) -> Layout:
        """What is permuted as a whole, several times the batch, has been joined, as views or as kinds of samples."""
        pieces = [each for of_loader in self._context.pieces.values() for each in of_loader]
        return Layout([shape[dimension] for shape in shapes], self._context.rows(), stacked, pieces)

    def _draw(
        self,
        name: str,
        generator: torch.Generator | None,
        shape: Shape,
        sized: Callable[[Shape], torch.Tensor],
        rows: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """A fresh tensor of ``shape``, put together from draws of other shapes where the ranks drew those; for
        ``rows``, if they are known."""
        seed = self._call_seed(name, shape, generator)
        own = self._own_seed(name, seed, shape, rows)
        found = self._parts(name, seed, shape, rows)
        if found is None:
            draw = functools.partial(spread, sized, varying=self._varying) if self._varying else sized
            result: torch.Tensor = self._seeded(own, generator, lambda: draw(shape))
            return result
        parts = [
            self._seeded(each, generator, functools.partial(sized, part))
            for each, part in zip(found.seeds, found.shapes, strict=True)
        ]
        joined = found.join([part.detach() for part in parts])
        return joined.requires_grad_(parts[0].requires_grad)

    # one handler for each kind of random function

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
        rest = {key: value for key, value in kwargs.items() if key not in ("size", "out")}
        bounds = [value for value in args if not isinstance(value, (tuple, list))]
        sizes = [value for value in (*args, kwargs.get("size")) if isinstance(value, (tuple, list))]
        shape = list(sizes[0])
        result = self._draw(name, kwargs.get("generator"), shape, lambda part: plain(*bounds, size=tuple(part), **rest))
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
        seed = self._call_seed(name, [count], generator)
        result: torch.Tensor = self._seeded(seed, generator, lambda: plain(*args, **kwargs))
        if self._varying:
            return result.copy_(torch.arange(count))
        self._own_seed(name, seed, result.shape)
        found = self._parts(name, seed, result.shape)
        if found is None:
            return result
        rest = {key: value for key, value in kwargs.items() if key not in ("out", "n")}
        parts = []
        for rank, (size,) in enumerate(found.shapes):
            within = self._seeded(seed, generator, functools.partial(plain, size, **rest))
            parts.append(torch.tensor(found.layout.positions[rank], device=within.device)[within])
        return found.join(parts)

    def _on_input(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Functions of a tensor, such as dropout: applied to the rows of each rank."""
        values, rest = (args[0], args[1:]) if args else (kwargs["input"], ())
        named = {key: value for key, value in kwargs.items() if key != "input"}
        if not draws_at_all(name, rest, named):
            return plain(*args, **kwargs)
        if self._varying:
            return still_on_input(name, values, rest, named)
        generator = kwargs.get("generator")
        seed = self._call_seed(name, values.shape, generator)
        own = self._own_seed(name, seed, values.shape, values)
        found = self._parts(name, seed, values.shape, values)
        if found is None:
            dense = values if values.is_contiguous() else values.contiguous()
            result = self._seeded(own, generator, lambda: plain(dense, *rest, **named))
            return values.copy_(result) if dense is not values and named.get("inplace", False) else result
        parts = [
            self._seeded(each, generator, functools.partial(plain, found.take(values, rank), *rest, **named))
            for rank, each in enumerate(found.seeds)
        ]
        if isinstance(parts[0], tuple):
            return tuple(found.join(column) for column in zip(*parts, strict=True))
        joined = found.join(parts)
        return values.copy_(joined) if named.get("inplace", False) else joined

    def _multinomial(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """From one distribution, as many numbers as are asked for: some of them for each sample of the batch."""
        values = args[0] if args else kwargs["input"]
        if values.dim() != 1:
            return self._on_input(name, plain, args, kwargs)
        rest = args[2:]
        named = {key: value for key, value in kwargs.items() if key not in ("input", "num_samples", "out")}
        count = int(args[1] if len(args) > 1 else kwargs["num_samples"])
        result = self._draw(name, kwargs.get("generator"), [count], lambda part: plain(values, part[0], *rest, **named))
        return stored(result, kwargs)

    def _in_place(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        target: torch.Tensor = args[0]
        rest = args[1:]
        generator = kwargs.get("generator")
        seed = self._call_seed(name, target.shape, generator)
        own = self._own_seed(name, seed, target.shape)
        found = self._parts(name, seed, target.shape)
        if self._varying:
            varying, named = self._varying, {key: value for key, value in kwargs.items() if key != "generator"}
            still = functools.partial(plain, **named)
            result: torch.Tensor = self._seeded(own, None, lambda: still_in_place(still, target, rest, varying))
            return result
        if found is None:
            if target.is_contiguous():
                return self._seeded(own, generator, lambda: plain(*args, **kwargs))
            fresh = torch.empty(target.shape, dtype=target.dtype, device=target.device)
            return target.copy_(self._seeded(own, generator, lambda: plain(fresh, *rest, **kwargs)))
        parts = []
        for rank, (each, shape) in enumerate(zip(found.seeds, found.shapes, strict=True)):
            fresh = torch.empty(shape, dtype=target.dtype, device=target.device)
            own_rest = [
                found.take(value, rank) if isinstance(value, torch.Tensor) and value.shape == target.shape else value
                for value in rest
            ]
            parts.append(self._seeded(each, generator, functools.partial(plain, fresh, *own_rest, **kwargs)))
        return target.copy_(found.join(parts))

    def _attention(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
        values = {**dict(zip(names, args, strict=False)), **kwargs}
        if not values.get("dropout_p", 0.0):
            return plain(*args, **kwargs)
        query = values["query"]
        if self._varying:
            return plain(**{**values, "dropout_p": 0.0})
        seed = self._call_seed(name, query.shape, None)
        own = self._own_seed(name, seed, query.shape, query)
        found = self._parts(name, seed, query.shape, query)
        if found is None:
            return self._seeded(own, None, lambda: plain(*args, **kwargs))

        def follows(value: Any) -> bool:
            return (
                isinstance(value, torch.Tensor)
                and value.dim() == query.dim()
                and value.shape[found.dimension] == query.shape[found.dimension]
            )

        parts = []
        for rank, each in enumerate(found.seeds):
            part = {key: found.take(value, rank) if follows(value) else value for key, value in values.items()}
            parts.append(self._seeded(each, None, functools.partial(plain, **part)))
        return found.join(parts)

    def _recurrent(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Recurrent layers draw their dropout in C++; the rows of each rank pass through the layer on their own."""
        packed = isinstance(args[1], torch.Tensor) and isinstance(args[2], (torch.Tensor, tuple))
        probability, training = (args[at] for at in RECURRENT_TRAINING[packed])
        if not (probability and training):
            return plain(*args, **kwargs)
        if self._varying:
            return still_recurrent(plain, packed, args, kwargs)
        values, hidden, batch_first = args[0], args[1], args[8]
        seed = self._call_seed(name, values.shape, None)
        if packed:
            self._note_packed(name, seed, values.shape)
        own = seed if packed else self._own_seed(name, seed, values.shape, values)
        found = None if packed else self._parts(name, seed, values.shape, values)
        batched = 0 if batch_first else 1
        if found is None or found.dimension != batched:  # it may run from sample to sample
            return self._seeded(own, None, lambda: plain(*args, **kwargs))
        several = isinstance(hidden, (tuple, list))
        outputs = []
        for rank, each in enumerate(found.seeds):
            states = [found.layout.take(state, 1, rank) for state in (hidden if several else [hidden])]
            part = [found.take(values, rank), type(hidden)(states) if several else states[0], *args[2:]]
            outputs.append(self._seeded(each, None, functools.partial(plain, *part, **kwargs)))
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
            self._note_sites(name, candidates)
            if not any(part == list(shape) for drawn in candidates for part in drawn.shapes):
                self._ask_to_hold(name, [0])

    # seeds the script sets itself, and NumPy

    def _patch_seeding(self) -> None:
        import random

        streams = self._context.streams
        owners: list[tuple[Any, str, str]] = [(torch, "manual_seed", "torch"), (torch.random, "manual_seed", "torch")]
        owners += [(torch, "seed", "torch"), (random, "seed", "python")]
        if "numpy" in sys.modules:
            owners.append((sys.modules["numpy"].random, "seed", "numpy"))
        for owner, name, library in owners:
            plain = getattr(owner, name)

            def seeded(*args: Any, _plain: Any = plain, _library: str = library, **kwargs: Any) -> Any:
                self._report_seed(_library, args, kwargs)
                streams.forget(_library)
                return _plain(*args, **kwargs)

            setattr(owner, name, functools.wraps(plain)(seeded))

    def _report_seed(self, library: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """The first seeds of a conversion may be those that its original lacks."""
        value = next(iter((*args, *kwargs.values())), None)
        if self._context.distributed and not self._context.steps and isinstance(value, int):
            self._context.trace.emit("seed", library=library, value=value, drawn=self._drawn.get(library, 0))

    def _begin_as_seeded(self, library: str) -> None:
        """Where the conversion sets its seed once something was drawn, while modules are imported, so does the
        original."""
        seed = self._context.replay.seeds.get(library) if self._context.replay is not None else None
        if seed is not None and seed[1] and seed[1] == self._drawn.get(library, 0):
            self._context.streams.start_from({library: seed[0]})

    def _patch_numpy(self) -> None:
        numpy_random: Any = sys.modules["numpy"].random
        for name, position in NUMPY_SIZED.items():
            self._patch(numpy_random, name, functools.partial(self._numpy, position))
        for name in NUMPY_UNPACKED:
            self._patch(numpy_random, name, functools.partial(self._numpy, None))
        self._patch(numpy_random, "permutation", self._numpy_permutation)
        plain = numpy_random.default_rng

        def default_rng(seed: Any = None) -> Any:
            """Without a seed each process has its own, as from the system, but the same in every run."""
            return plain(self._context.plan.rank if seed is None else seed)

        numpy_random.default_rng = functools.wraps(plain)(default_rng)
        state: Any = numpy_random.RandomState
        rank = self._context.plan.rank

        class AsState(type):
            def __instancecheck__(cls, instance: Any) -> bool:
                return isinstance(instance, state)

        class RandomState(state, metaclass=AsState):  # type: ignore[misc]
            """The same of the older kind, as libraries make it that search among hyperparameters."""

            def __init__(self, seed: Any = None) -> None:
                super().__init__(rank if seed is None else seed)

        numpy_random.RandomState = RandomState

    def _numpy(
        self,
        position: int | None,
        name: str,
        plain: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        numpy: Any = sys.modules["numpy"]
        full_name = f"numpy.random.{name}"
        held = self._varying is not None
        seed = self._numpy_seed(full_name)

        def drawn(of_rank: int, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
            return getattr(numpy.random.RandomState(of_rank & 0xFFFFFFFF), name)(*arguments, **named)

        result = drawn(seed, args, kwargs)
        shape = list(numpy.shape(result))
        if not shape:
            if self._context.batch_rows and not held:
                self.note_single(full_name, seed)
            return result
        if self._varying:
            if name == "choice" and not kwargs.get("replace", True):
                return numpy.sort(result, axis=None)
            return numpy.full_like(result, numpy.ravel(result)[0])
        own = self._own_seed(full_name, seed, shape)
        found = self._parts(full_name, seed, shape)
        if found is None:
            return result if own == seed else drawn(own, args, kwargs)
        parts = []
        for each, drawn_shape in zip(found.seeds, found.shapes, strict=True):
            of_rank = drawn_shape[:-1] if name == "multinomial" else drawn_shape  # its size counts the experiments
            if position is None:
                parts.append(drawn(each, of_rank, {}))
            elif len(args) > position:
                parts.append(drawn(each, [*args[:position], tuple(of_rank), *args[position + 1 :]], kwargs))
            else:
                parts.append(drawn(each, args, {**kwargs, "size": tuple(of_rank)}))
        return numpy.take(numpy.concatenate(parts, found.dimension), found.layout.inverse, found.dimension)

    def _numpy_seed(self, full_name: str) -> int:
        """What the next draw of NumPy comes from: one number of its stream."""
        if self._varying is not None:
            return key_seed("still", full_name, self._context.steps) & 0x7FFFFFFF
        return int(sys.modules["numpy"].random.mtrand._rand.randint(0, 2**31 - 1))

    def _numpy_permutation(
        self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """As of torch: `np.random.permutation(len(x))` becomes a permutation within the part of each rank."""
        numpy: Any = sys.modules["numpy"]
        full_name = f"numpy.random.{name}"
        count = args[0] if args else kwargs.get("x")
        if not isinstance(count, (int, numpy.integer)):
            return plain(*args, **kwargs)
        seed = self._numpy_seed(full_name)
        result = numpy.random.RandomState(seed).permutation(count)
        if self._varying:
            return numpy.arange(count)
        self._own_seed(full_name, seed, result.shape)
        found = self._parts(full_name, seed, result.shape)
        if found is None:
            return result
        within = [numpy.random.RandomState(seed).permutation(size) for (size,) in found.shapes]
        parts = [numpy.asarray(found.layout.positions[rank])[order] for rank, order in enumerate(within)]
        return numpy.take(numpy.concatenate(parts), found.layout.inverse)


def in_backward() -> bool:
    """Whether autograd runs, which computes once more what activation checkpointing has not kept."""
    return torch._C._current_graph_task_id() != -1


def varying_dimensions(whole: Sequence[int], parts: Sequence[Sequence[int]]) -> list[int]:
    """Along which dimensions a draw of the original differs from what some rank draws."""
    return [
        at for at, size in enumerate(whole) if any(len(part) != len(whole) or part[at] != size for part in parts)
    ] or [0]


def stored(result: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
    """The result, in the tensor that the caller gave for it."""
    out: torch.Tensor | None = kwargs.get("out")
    return result if out is None else out.resize_(result.shape).copy_(result)
