"""The random number streams of the process, and how they are keyed to samples and batches.

Two programs that divide a batch differently draw different amounts of random numbers, so their global generators drift
apart although both are right. Steps therefore draw from a stream that is keyed to the batch they train on, samples from
one that is keyed to the sample, and the script's own stream (samplers, splits, initialisation) is put aside meanwhile.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
from typing import Any

import torch

BLOCK = 624
"""Numbers that a Mersenne Twister makes at once. All three libraries have one, and tell the position in its block."""


def key_seed(*key: object) -> int:
    """A seed that depends on the key alone, not on the process or its hash seed."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=7).digest(), "big")


def position_of_numpy(state: Any) -> int:
    """Where a NumPy ``RandomState`` stands in its block, read where it lies: its whole state takes 20 µs to copy."""
    bits = state._bit_generator
    if type(bits).__name__ == "MT19937":
        return ctypes.c_int.from_address(bits.ctypes.state_address + 4 * BLOCK).value
    return int(state.get_state(legacy=False)["state"].get("pos", 0))


class RandomStreams:
    """The state of torch's, Python's and NumPy's global generators."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._aside: dict[str, Any] | None = None
        self.settled = False
        """The script's own stream is put aside as a whole: taking it up and putting it aside again changes nothing."""
        self._counts = False
        self._spent: dict[str, int] = {}

    @staticmethod
    def _numpy() -> Any:
        numpy = sys.modules.get("numpy")
        return getattr(numpy, "random", None)

    def reseed(self, *key: object, counts: bool = True) -> None:
        """Start the stream that belongs to ``key``, the same in every process. ``counts`` unless without the probes a
        worker would draw it."""
        self._count()
        self._counts = counts
        seed = key_seed(self._seed, *key)
        torch.default_generator.manual_seed(seed)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.manual_seed_all(seed)
        random.Random.seed(random._inst, seed)
        numpy_random = self._numpy()
        if numpy_random is not None:
            numpy_random.mtrand._rand.seed(seed & 0xFFFFFFFF)

    def start_from(self, seeds: dict[str, int]) -> None:
        """Begin as a script that seeds these libraries first thing."""
        if "torch" in seeds:
            torch.default_generator.manual_seed(seeds["torch"])
        if "python" in seeds:
            random.Random.seed(random._inst, seeds["python"])
        numpy_random = self._numpy()
        if "numpy" in seeds and numpy_random is not None:
            numpy_random.mtrand._rand.seed(seeds["numpy"] & 0xFFFFFFFF)

    def go_on_from(self, seeds: dict[str, int]) -> None:
        """The script's own stream goes on as if it seeded these libraries at this moment."""
        if self._aside is None:
            self.start_from(seeds)
            return
        keyed = self.exchange(self._aside)
        self.start_from(seeds)
        self._aside = self.exchange(keyed)

    def put_aside(self) -> None:
        """Keep the script's own stream; what follows draws from keyed streams."""
        self._aside = self._states()
        self.settled = True
        self._counts = False

    def _count(self) -> None:
        """Add what was drawn since the last keyed stream began."""
        if not self._counts:
            return
        for library, position in self.positions().items():
            self._spent[library] = self._spent.get(library, 0) + position % BLOCK

    def positions(self) -> dict[str, int]:
        """Where each library stands in its block: it moves with what is drawn."""
        found = {
            "torch": int.from_bytes(torch.default_generator.get_state()[16:24].numpy().tobytes(), sys.byteorder),
            "python": random.Random.getstate(random._inst)[1][-1],
        }
        numpy_random = self._numpy()
        if numpy_random is not None:
            found["numpy"] = position_of_numpy(numpy_random.mtrand._rand)
        return found

    def _states(self) -> dict[str, Any]:
        numpy_random = self._numpy()
        return {
            "torch": torch.default_generator.get_state(),
            "python": random.Random.getstate(random._inst),
            "numpy": numpy_random.mtrand._rand.get_state(legacy=False) if numpy_random is not None else None,
        }

    def _restore(self, states: dict[str, Any]) -> None:
        if states.get("torch") is not None:
            torch.default_generator.set_state(states["torch"])
        if states.get("python") is not None:
            random.Random.setstate(random._inst, states["python"])
        numpy_random = self._numpy()
        if states.get("numpy") is not None and numpy_random is not None:
            numpy_random.mtrand._rand.set_state(states["numpy"])

    def spent(self, library: str) -> int:
        """How much was drawn from keyed streams, up to multiples of a block: the same where ranks drew alike."""
        return self._spent.get(library, 0)

    def branch(self, parted: bool) -> dict[str, Any]:
        """A stream that goes its own way from here, for one number of the script's own stream of each library.

        ``parted`` where it depends on how much was drawn from keyed streams, as the script's own one would without the
        probes: ranks that have drawn different amounts are then apart.
        """
        numpy_random = self._numpy()
        seeds = {
            "torch": int(torch.empty((), dtype=torch.int64).random_()),
            "python": random.getrandbits(60),
            "numpy": int(numpy_random.mtrand._rand.randint(0, 2**31 - 1)) if numpy_random is not None else 0,
        }
        if parted:
            seeds = {
                library: key_seed(seed, self.spent(library)) & 0xFFFFFFFF if self.spent(library) else seed
                for library, seed in seeds.items()
            }
        trunk = self._states()
        self.start_from(seeds)
        branch = self._states()
        self._restore(trunk)
        return branch

    def exchange(self, states: dict[str, Any]) -> dict[str, Any]:
        """Draw from ``states`` from now on. Returns where the streams were."""
        left = self._states()
        self._restore(states)
        return left

    def of_script(self) -> dict[str, str]:
        """The same, whether or not its streams are put aside at this moment."""
        if self._aside is None or None in self._aside.values():
            return self.fingerprints()
        left = self.exchange(self._aside)
        try:
            return self.fingerprints()
        finally:
            self._restore(left)

    def fingerprints(self) -> dict[str, str]:
        """What the script's own streams will give next, in short, for each library."""
        states = {
            "torch": torch.default_generator.get_state().numpy().tobytes(),
            "python": str(
                hash(random.Random.getstate(random._inst)[1])
            ).encode(),  # of integers: the same in every process
        }
        numpy_random = self._numpy()
        if numpy_random is not None:
            state = numpy_random.mtrand._rand.get_state(legacy=False)["state"]
            states["numpy"] = state["key"].tobytes() + str(state["pos"]).encode()
        return {library: hashlib.blake2b(state, digest_size=8).hexdigest() for library, state in states.items()}

    def take_up(self) -> None:
        """Go on with the script's own stream where it was put aside."""
        if self._aside is None:
            return
        self._count()
        self._counts = False
        kept, self._aside, self.settled = self._aside, None, False
        self._restore(kept)

    def forget(self, library: str) -> None:
        """The script seeds ``library`` itself: that is its own stream from now on."""
        self._spent.pop(library, None)
        if self._aside is not None:
            self._aside[library] = None
            self.settled = False
