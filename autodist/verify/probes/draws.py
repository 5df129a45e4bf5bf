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
import math
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from autodist.verify.probes.order import lies_otherwise, order_of
from autodist.verify.probes.parts import Layout, Parts, Shape, rank_seed
from autodist.verify.probes.streams import key_seed
from autodist.verify.replay import RankDraws, batch_dimension
from autodist.verify.trace import OWN, Seed

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

PERMUTATIONS = ("randperm", "numpy.random.permutation")
INTEGERS = (
    "randint",
    "randperm",
    "multinomial",
    "randint_like",
    *(f"numpy.random.{name}" for name in ("randint", "choice", "binomial", "multinomial", "poisson")),
)
ON_INPUT = (
    "bernoulli",
    "multinomial",
    "poisson",
    "binomial",
    "_standard_gamma",
    "_sample_dirichlet",
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
NOISE_ON_INPUT = frozenset((*ON_INPUT, *FUNCTIONAL, "scaled_dot_product_attention"))
"""Functions that draw for a tensor that they are given."""


class Draws:
    """What the probes of torch, of NumPy and of Python's own functions ask at every draw."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self.busy = False
        self.count: Counter[str] = Counter()
        """How often the script has drawn from the generators of the libraries."""
        self._own: dict[str, tuple[int, Seed | None]] = {}
        """Where it last set a seed, and which."""
        self._places: dict[str, int] = {}
        """Where it was when it read a state, ahead of its first step."""
        self._reads: Counter[tuple[str, int]] = Counter()
        """How often it has read the state of each place."""
        self._begun: Counter[tuple[str, int]] = Counter()
        """How often it has drawn from there."""
        self._counted_step = -1
        self._calls: Counter[str] = Counter()
        """How often each function was called in this step."""
        self.varying: list[int] | None = None
        """The dimensions of the draw at hand along which it is held still; None where it is free."""
        self._sorted_step = -1
        """The last step in which samples lay on the ranks in another order."""
        self._conversion_sites: dict[str, str] = {}
        """Where the conversion draws what the original draws, by function and line."""
        self._draw_seed = torch.Tensor.random_
        self._source = ""

    def patch(self, owner: Any, name: str, handler: Callable[..., Any]) -> None:
        """Put ``handler`` in place of a random function of the script's, unless the owner has none of this name."""
        plain = getattr(owner, name, None)
        if plain is None:
            return

        library = "numpy" if getattr(owner, "__name__", "") == "numpy.random" else "torch"
        full_name = f"numpy.random.{name}" if library == "numpy" else name

        @functools.wraps(plain)
        def drawn(*args: Any, **kwargs: Any) -> Any:
            context = self._context
            if self.busy or context.inside_sample or context.probing:
                return plain(*args, **kwargs)
            self.busy = True
            self.varying = self.held(full_name)
            self._source = library
            if kwargs.get("generator") is None:
                self._drawing(library)
            else:
                self._source = OWN
            try:
                result = handler(name, plain, args, kwargs)
                if isinstance(result, torch.Tensor) and result.numel() == 1:
                    context.single = weakref.ref(result), context.trace.site()
                return result
            finally:
                self.busy, self.varying = False, None

        setattr(owner, name, drawn)

    def seeding(self, library: str, seed: int | None) -> tuple[int, Seed | None]:
        """The script sets a seed."""
        at = library, self.count[library]
        known = None if seed is None else (self._reads[at], self._begun[at], seed)
        self._own[library] = self.count[library], known
        return self._own[library]

    def reading(self, library: str) -> None:
        """The script is about to read the state of a generator."""
        at = library, self.count[library]
        self._begin_as_seeded(library, self._reads[at])
        if not self._context.steps:
            self._places[self._digest(library)] = self.count[library]
            self._reads[at] += 1

    def restored(self, library: str) -> None:
        """The script has set the state of a generator. It is where it was when it read that state."""
        self.count[library] = self._places.get(self._digest(library), self.count[library] + 1)

    def _digest(self, library: str) -> str:
        return f"{library} {self._context.streams.fingerprints().get(library)}"

    def _drawing(self, library: str) -> None:
        self._begin_as_seeded(library)
        if not self._context.steps:
            self._begun[library, self.count[library]] += 1
        self.count[library] += 1

    def _begin_as_seeded(self, library: str, reads: float = math.inf) -> None:
        """Where the conversion sets a seed once something was drawn, while modules are imported, or so that its ranks
        go apart, so does the original; after a seed of its own where the conversion has set that one before."""
        replay, count = self._context.replay, self.count[library]
        seeds = replay.seeds.get(library, {}).get(count) if replay is not None and count else None
        if not seeds:
            return
        begun = self._begun[library, count]
        known = [seed for seed in seeds if seed[0] <= reads and seed[1] <= begun]
        where, own = self._own.get(library, (-1, None))
        if where == count:
            known = known[known.index(own) + 1 :] if own in known else []
        if known:
            self._context.streams.go_on_from({library: known[-1][2]})

    def held(self, name: str) -> list[int] | None:
        """Along which dimensions a draw of the script's line at hand is held still. What activation checkpointing
        computes once more has the line of the backward pass: it is held where its function is."""
        held = self._context.plan.held
        found = held.get(f"{name} {self._context.trace.site()}") if held else None
        if found is None and held and in_backward():
            return next((each for draw, each in held.items() if draw.startswith(f"{name} ")), None)
        return found

    def single_seed(self, name: str, seed: int) -> int:
        """Note a draw of one number, or of several whatever the batch, and what it is to be drawn with."""
        own = self.own_seed(name, seed, ())
        self.parts(name, seed, ())
        return own

    def ask_to_hold(self, name: str, varying: Sequence[int]) -> None:
        """Say that draws of this line cannot be put together, where the conversion draws in a line that is known."""
        if self._context.trace.called_from("torch.utils.data") or in_backward():
            return  # seeds of workers and samplers; what was asked in the forward pass
        here = f"{name} {self._context.trace.site()}"
        there, replay = self._conversion_sites.get(here), self._context.replay
        if there is not None and replay is not None and (there, self._context.learning()) not in replay.parted:
            self._context.trace.emit("note", topic="unaligned", message=here, site=there, varying=list(varying))

    def _seed(self, generator: torch.Generator | None) -> int:
        if generator is not None and generator.device.type != "cpu":
            return int(
                self._draw_seed(torch.empty((), dtype=torch.int64, device=generator.device), generator=generator)
            )
        return int(self._draw_seed(torch.empty((), dtype=torch.int64), generator=generator))

    def seeded(self, seed: int, generator: torch.Generator | None, call: Callable[[], Any]) -> Any:
        """What ``call`` draws from a generator that begins with ``seed``, and is afterwards as it was."""
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

    def call_seed(self, name: str, shape: Sequence[int], generator: torch.Generator | None) -> int:
        """The seed of one call: the next number of its generator, or the position of the call where no loader is in
        use.

        Ranks may rightly seed their noise differently. Loaders bring all generators together again with every batch;
        in steps without one, noise that follows the batch is keyed to the step and the number of the call of its
        function instead: samplers of the original draw in the first step, those of the ranks do not.
        """
        if self.varying is not None:
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

    def own_seed(
        self,
        name: str,
        seed: int,
        shape: Sequence[int],
        rows: torch.Tensor | None = None,
        bound: int | None = None,
    ) -> int:
        """Note a draw of a rank for ``rows``, or of numbers below ``bound``, and give it numbers of its own where it
        draws for its part of the batch."""
        context = self._context
        if self.varying is None and name in INTEGERS and len(shape) == 1 and shape[0] > 1:
            context.indexed(shape[0])
        if not context.distributed or self.varying is not None:
            return seed
        if not shape and context.trace.called_from("torch.utils.data"):
            return seed  # for the workers of a loader that is begun
        site = context.trace.site()
        shared = shared_key(name, site, context.learning()) in context.plan.shared_draws
        distinct = self._follows_batch(name, shape) and not shared
        # a sampler draws as many numbers at a time as a batch may have, and they are the same on all ranks
        distinct = distinct and not (name in INTEGERS and context.trace.called_from("torch.utils.data"))
        order = order_of(rows) if distinct and rows is not None else []
        context.trace.emit(
            "draw",
            seed=draw_key(name, seed),
            function=name,
            shape=list(shape),
            site=site,
            distinct=distinct,
            order=order,
            source=self._source,
            position=self._position(name, shape),
            bound=bound,
            learning=context.learning(),
            state=self._state() if distinct and not context.batch_rows and torch.is_grad_enabled() else None,
        )
        alone = context.plan.alone is not None and f"{name} {site}" in context.plan.alone
        return rank_seed(seed, context.plan.rank) if distinct or alone or context.draws_apart() else seed

    def _position(self, name: str, shape: Sequence[int]) -> int | None:
        """How many draws of torch this is, where it may be one of the numbers of samples."""
        return self.count["torch"] if name == "randint" and len(shape) == 1 and self._source != OWN else None

    def _state(self) -> str | None:
        """Of the generator that the draw at hand is made from."""
        self._context.probing = True
        try:
            return OWN if self._source == OWN else self._context.streams.of_script().get(self._source)
        finally:
            self._context.probing = False

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

    def parts(self, name: str, seed: int, whole: Sequence[int], rows: torch.Tensor | None = None) -> Parts | None:
        """What the ranks drew, where the original has to put it together for ``rows``. Says so where ranks misjudged
        their draw."""
        replay = self._context.replay
        if replay is None or self.varying is not None:
            return None
        whole = list(whole)
        position = self._position(name, whole)
        own = replay.own_rows.get(position) if position is not None else None
        if own is not None and batch_dimension(whole, own.shapes) == 0:
            return Parts(own.shapes, 0, own.seeds, self._layout(own.shapes, 0), own.bounds)
        candidates = replay.draws.get(draw_key(name, seed), [])
        self.note_sites(name, candidates)
        alike = [drawn for drawn in candidates if all(shape == whole for shape in drawn.shapes)]
        for drawn in alike:
            if drawn.distinct:
                message = shared_key(name, drawn.site, self._context.learning())
                self._context.trace.emit("note", topic="shared-draw", message=message, site=drawn.site)
        if not candidates:
            self.ask_to_hold(name, [0] if self._follows_batch(name, whole) else [])
        if alike or not candidates:
            return None
        for drawn in candidates:
            dimension = batch_dimension(whole, drawn.shapes)
            if dimension is not None:
                seeds = [rank_seed(seed, rank) if drawn.distinct else seed for rank in range(len(drawn.shapes))]
                layout = self._layout(drawn.shapes, dimension, name in PERMUTATIONS)
                found = Parts(drawn.shapes, dimension, seeds, layout, drawn.bounds)
                if drawn.distinct and self._meets_others(found, rows, drawn.orders):
                    self.ask_to_hold(name, [dimension])
                return found
        self._context.trace.emit(
            "note",
            topic="draw",
            message=f"{name} draws {tuple(whole)}, the ranks draw {[tuple(shape) for shape in candidates[0].shapes]}",
            site=self._context.trace.site(),
        )
        self.ask_to_hold(name, varying_dimensions(whole, candidates[0].shapes))
        return None

    def _meets_others(self, found: Parts, rows: torch.Tensor | None, orders: Sequence[Sequence[float]]) -> bool:
        """Whether a draw, put together, meets other samples than on the ranks, which have sorted them."""
        otherwise = None
        if rows is not None:
            otherwise = lies_otherwise(rows, functools.partial(found.take, rows), orders, found.dimension)
        if otherwise:
            self._sorted_step = self._context.steps
        return otherwise is not False and self._sorted_step == self._context.steps

    def note_sites(self, name: str, candidates: Sequence[RankDraws]) -> None:
        """Remember where the conversion draws this."""
        if candidates:
            here = f"{name} {self._context.trace.site()}"
            self._conversion_sites.setdefault(here, f"{name} {candidates[0].site}")

    def _layout(self, shapes: Sequence[Shape], dimension: int, stacked: bool = False) -> Layout:
        """What is permuted as a whole, several times the batch, has been joined, as views or as kinds of samples."""
        pieces = [each for of_loader in self._context.pieces.values() for each in of_loader]
        return Layout([shape[dimension] for shape in shapes], self._context.rows(), stacked, pieces)


def draw_key(name: str, seed: int) -> str:
    """A draw as a key in JSON: the function and the seed of the call."""
    return f"{name} {seed & (2**64 - 1):x}"


def shared_key(name: str, site: str, learning: bool) -> str:
    """What tells a draw that is the same on all ranks from others: all of them evaluate what one process does, by the
    lines of the model that draw noise for a rank's own samples in training."""
    return f"{name} {site}" if learning else f"{name} {site} in evaluation"


def in_backward() -> bool:
    """Whether autograd runs, which computes once more what activation checkpointing has not kept."""
    return torch._C._current_graph_task_id() != -1


def varying_dimensions(whole: Sequence[int], parts: Sequence[Sequence[int]]) -> list[int]:
    """Along which dimensions a draw of the original differs from what some rank draws."""
    return [
        at for at, size in enumerate(whole) if any(len(part) != len(whole) or part[at] != size for part in parts)
    ] or [0]
