"""NumPy's global random functions."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from autodist.verify.probes.draws import Draws
from autodist.verify.probes.streams import key_seed

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

SIZED = {
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
    "gumbel": 2,
    "logistic": 2,
    "lognormal": 2,
    "triangular": 3,
    "dirichlet": 1,
    "geometric": 1,
    "standard_exponential": 0,
    "standard_gamma": 1,
}
"""With the position of the size that is asked for."""
UNPACKED = ("randn", "rand")
OF_SEVERAL = ("multinomial", "dirichlet")
"""Each draw is a row of numbers, which the size does not count."""


class NumpyRandomProbe:
    """Replaces them where the script, or what it imports, has loaded NumPy."""

    def __init__(self, context: ProbeContext, draws: Draws) -> None:
        self._context = context
        self._draws = draws

    def install(self) -> None:
        """Patch the functions and what makes generators."""
        if "numpy" not in sys.modules:
            return
        numpy_random: Any = sys.modules["numpy"].random
        for name, position in SIZED.items():
            self._draws.patch(numpy_random, name, functools.partial(self._sized, position))
        for name in UNPACKED:
            self._draws.patch(numpy_random, name, functools.partial(self._sized, None))
        self._draws.patch(numpy_random, "permutation", self._permutation)
        plain = numpy_random.default_rng

        def default_rng(seed: Any = None) -> Any:
            """Without a seed each process has its own, as from the system, but the same in every run."""
            return plain(self._context.plan.rank if seed is None else seed)

        numpy_random.default_rng = functools.wraps(plain)(default_rng)
        sequence: Any = numpy_random.SeedSequence

        def seed_sequence(entropy: Any = None, **kwargs: Any) -> Any:
            """The same of what the system is asked for."""
            return sequence(self._context.plan.rank if entropy is None else entropy, **kwargs)

        numpy_random.SeedSequence = functools.wraps(sequence)(seed_sequence)
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

    def _sized(
        self,
        position: int | None,
        name: str,
        plain: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        numpy: Any = sys.modules["numpy"]
        full_name = f"numpy.random.{name}"
        held = self._draws.varying is not None
        seed = self._seed(full_name)

        def drawn(of_rank: int, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
            return getattr(numpy.random.RandomState(of_rank & 0xFFFFFFFF), name)(*arguments, **named)

        result = drawn(seed, args, kwargs)
        shape = list(numpy.shape(result))
        if not shape:
            if self._context.batch_rows and not held:
                own = self._draws.single_seed(full_name, seed)
                return result if own == seed else drawn(own, args, kwargs)
            return result
        if self._draws.varying:
            if name == "choice" and not kwargs.get("replace", True):
                return numpy.sort(result, axis=None)
            return numpy.full_like(result, numpy.ravel(result)[0])
        bound = bound_of(name, args)
        own = self._draws.own_seed(full_name, seed, shape, bound=bound)
        found = self._draws.parts(full_name, seed, shape)
        if found is None:
            return result if own == seed else drawn(own, args, kwargs)
        parts = []
        for rank, (each, drawn_shape) in enumerate(zip(found.seeds, found.shapes, strict=True)):
            of_rank = drawn_shape[:-1] if name in OF_SEVERAL else drawn_shape
            given = list(args)
            if found.picks(bound):
                given[at_bound(name, args)] = drawn_shape[found.dimension]
            if position is None:
                part = drawn(each, of_rank, {})
            elif len(args) > position:
                part = drawn(each, [*given[:position], tuple(of_rank), *given[position + 1 :]], kwargs)
            else:
                part = drawn(each, given, {**kwargs, "size": tuple(of_rank)})
            parts.append(numpy.asarray(found.layout.positions[rank])[part] if found.picks(bound) else part)
        return numpy.take(numpy.concatenate(parts, found.dimension), found.layout.inverse, found.dimension)

    def _seed(self, full_name: str) -> int:
        """What the next draw of NumPy comes from: one number of its stream."""
        if self._draws.varying is not None:
            return key_seed("still", full_name, self._context.steps) & 0x7FFFFFFF
        return int(sys.modules["numpy"].random.mtrand._rand.randint(0, 2**31 - 1))

    def _permutation(self, name: str, plain: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """As of torch: `np.random.permutation(len(x))` becomes a permutation within the part of each rank."""
        numpy: Any = sys.modules["numpy"]
        full_name = f"numpy.random.{name}"
        count = args[0] if args else kwargs.get("x")
        if not isinstance(count, (int, numpy.integer)):
            return plain(*args, **kwargs)
        seed = self._seed(full_name)
        result = numpy.random.RandomState(seed).permutation(count)
        if self._draws.varying:
            return numpy.arange(count)
        self._draws.own_seed(full_name, seed, result.shape)
        found = self._draws.parts(full_name, seed, result.shape)
        if found is None:
            return result
        within = [numpy.random.RandomState(seed).permutation(size) for (size,) in found.shapes]
        parts = [numpy.asarray(found.layout.positions[rank])[order] for rank, order in enumerate(within)]
        return numpy.take(numpy.concatenate(parts), found.layout.inverse)


def at_bound(name: str, args: Sequence[Any]) -> int:
    """Where the number is given below which NumPy draws: `randint(n, size=k)`, `randint(0, n, k)`, `choice(n, k)`."""
    return 1 if name == "randint" and len(args) > 1 and args[1] is not None else 0


def bound_of(name: str, args: Sequence[Any]) -> int | None:
    """Below which number it draws, from zero on, where that may be a number of rows."""
    if name not in ("randint", "choice") or not args or at_bound(name, args) and args[0] != 0:
        return None
    bound = args[at_bound(name, args)]
    return int(bound) if isinstance(bound, (int, sys.modules["numpy"].integer)) else None
