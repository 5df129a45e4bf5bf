"""Random numbers of a script: who draws what, what ranks must have in common, and what should differ between them.

`drawing.py` finds what draws, and from which generator; `dropping.py` the models that drop out, `orders.py` what
samplers and steps draw for the order of samples, `order_seeds.py` the seed that it follows, `own_noise.py` what is
drawn for a rank's own. `apart.py` says where ranks may go apart. What is drawn for the samples that loaders read, and
from generators of the script's own, the program graph tells (`solve/draws.py`, `solve/generators.py`).
"""

from autodist.randomness.apart import (
    acts_by_chance,
    diverge,
    draws_data,
    drops_alike,
    left_seeded,
    picked_apart,
    sees_all,
)
from autodist.randomness.drawing import (
    DRAWS,
    decided_by_noise,
    drawn,
    is_noise_of_evaluation,
    is_of_sampler,
    is_per_sample,
    libraries_of,
    reseeds,
    seeded,
    seeds_of,
)
from autodist.randomness.order_seeds import order_seeds
from autodist.randomness.orders import ordering, parted_orders, picks_of_all, unseeded_samplers, with_shared_order
from autodist.randomness.own_noise import (
    augmented_alike,
    batches_apart,
    drawn_alike,
    drawn_for_all,
    drawn_for_batches,
    generators_of_samples,
    kept_generators,
    noise,
    noise_of_own,
    seeds_workers,
)

__all__ = [
    "DRAWS",
    "acts_by_chance",
    "augmented_alike",
    "batches_apart",
    "decided_by_noise",
    "diverge",
    "drawn",
    "drawn_alike",
    "drawn_for_all",
    "drawn_for_batches",
    "draws_data",
    "drops_alike",
    "generators_of_samples",
    "is_noise_of_evaluation",
    "is_of_sampler",
    "is_per_sample",
    "kept_generators",
    "left_seeded",
    "libraries_of",
    "noise",
    "noise_of_own",
    "order_seeds",
    "ordering",
    "parted_orders",
    "picked_apart",
    "picks_of_all",
    "reseeds",
    "seeded",
    "seeds_of",
    "seeds_workers",
    "sees_all",
    "unseeded_samplers",
    "with_shared_order",
]
