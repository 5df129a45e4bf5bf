"""Runs a script as one rank and counts its collectives: ``torchrun counting.py result.json script.py``."""

from __future__ import annotations

import json
import os
import pickle
import runpy
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils.data._utils import fetch

COLLECTIVES = (
    "all_reduce broadcast all_gather all_gather_into_tensor reduce gather scatter reduce_scatter reduce_scatter_tensor "
    "all_to_all all_to_all_single barrier"
).split()
OBJECTS = "all_gather_object broadcast_object_list gather_object scatter_object_list".split()
COALESCED = "_broadcast_coalesced"
counted: Counter[str] = Counter()


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument: itself, or a list of them."""
    if torch.is_tensor(value):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors(each)


def size(value: Any) -> int:
    return sum(each.numel() * each.element_size() for each in tensors(value))


def count(collectives: int, bytes_: int) -> None:
    counted["collectives"] += collectives
    counted["bytes"] += bytes_


def counting(function: Callable[..., Any], measured: Callable[..., int]) -> Callable[..., Any]:
    """A collective that is counted once; those that it is made of are not."""

    def called(*args: Any, **kwargs: Any) -> Any:
        within = counted["within"]
        if not within:
            count(1, measured(*args, *kwargs.values()))
        counted["within"] += 1
        try:
            return function(*args, **kwargs)
        finally:
            counted["within"] -= 1

    return called


def install() -> None:
    """Count what goes through torch.distributed, DistributedDataParallel, loaders and optimizers."""
    for name in COLLECTIVES:
        setattr(dist, name, counting(getattr(dist, name), lambda *args: size(args)))
    for name in OBJECTS:
        objects = counting(getattr(dist, name), lambda *args: sum(len(pickle.dumps(a)) for a in args if a is not None))
        setattr(dist, name, objects)
    made, coalesced = DistributedDataParallel.__init__, vars(dist)[COALESCED]

    def initialised(self: Any, *args: Any, **kwargs: Any) -> None:
        counted["within"] += 1  # ahead of the training
        made(self, *args, **kwargs)
        counted["within"] -= 1
        self.register_comm_hook(None, reduced)

    def reduced(state: Any, bucket: Any) -> Any:
        count(1, size(bucket.buffer()))
        return default_hooks.allreduce_hook(state, bucket)

    reduced.__annotations__.clear()  # which DistributedDataParallel would compare as they are written

    def broadcast(group: Any, given: Any, *args: Any) -> Any:
        if not counted["within"]:
            count(1, size(given))
        return coalesced(group, given, *args)

    def fetched(original: Callable[..., Any]) -> Callable[..., Any]:
        def read(self: Any, index: Any) -> Any:
            counted["samples"] += len(index) if isinstance(index, (list, tuple)) else 1
            return original(self, index)

        return read

    DistributedDataParallel.__init__ = initialised  # type: ignore[method-assign]
    setattr(dist, COALESCED, broadcast)
    for kind in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        kind.fetch = fetched(kind.fetch)  # type: ignore[method-assign]
    register_optimizer_step_post_hook(stepped)


def stepped(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    counted["steps"] += 1


def main() -> None:
    """Run the script, and write what rank 0 has counted."""
    result, script = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    sys.path.insert(0, str(Path(script).parent))
    install()
    runpy.run_path(script, run_name="__main__")
    if os.environ["RANK"] == "0":
        del counted["within"]
        Path(result).write_text(json.dumps(counted))


if __name__ == "__main__":
    main()
