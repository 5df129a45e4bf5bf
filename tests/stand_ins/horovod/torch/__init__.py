"""The part of `horovod.torch` that the fixtures use, on the ranks that torchrun's environment describes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

Average, Sum, Adasum = "average", "sum", "adasum"


class Compression:
    """Names only: numbers are sent as they are."""

    none, fp16 = "none", "fp16"


def init() -> None:
    """Join the other ranks; without an environment, a group of one."""
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="localhost", MASTER_PORT="0")
    dist.init_process_group("gloo")


def shutdown() -> None:
    dist.destroy_process_group()


def rank() -> int:
    return dist.get_rank()


def local_rank() -> int:
    return int(os.environ["LOCAL_RANK"])


def size() -> int:
    return dist.get_world_size()


def local_size() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def allreduce(tensor: Any, average: Any = None, name: Any = None, compression: Any = None, op: Any = None) -> Any:
    """A new tensor: the mean, or the sum where that is asked for."""
    total = tensor.detach().clone()
    dist.all_reduce(total)
    return total if op == Sum or average is False else total / size()


def allreduce_(tensor: Any, average: Any = None, name: Any = None, op: Any = None) -> Any:
    return tensor.copy_(allreduce(tensor, average, name, op=op))


def allgather(tensor: Any, name: Any = None) -> Any:
    """Rows of all ranks, of which there may be different numbers."""
    counts = torch.zeros(size(), dtype=torch.int64)
    counts[rank()] = len(tensor)
    dist.all_reduce(counts)
    parts = [torch.empty(int(count), *tensor.shape[1:], dtype=tensor.dtype) for count in counts]
    parts[rank()] = tensor.detach().contiguous()
    for number, part in enumerate(parts):
        dist.broadcast(part, number)
    return torch.cat(parts)


def allgather_object(obj: Any, name: Any = None) -> list[Any]:
    parts: list[Any] = [None] * size()
    dist.all_gather_object(parts, obj)
    return parts


def broadcast(tensor: Any, root_rank: int, name: Any = None) -> Any:
    copy = tensor.clone()
    dist.broadcast(copy, root_rank)
    return copy


def broadcast_object(obj: Any, root_rank: int = 0, name: Any = None) -> Any:
    box = [obj]
    dist.broadcast_object_list(box, root_rank)
    return box[0]


def broadcast_parameters(params: Any, root_rank: int) -> None:
    for _, tensor in params.items() if isinstance(params, dict) else params:
        if torch.is_tensor(tensor):
            dist.broadcast(tensor.data, root_rank)


def broadcast_optimizer_state(optimizer: Any, root_rank: int) -> None:
    optimizer.load_state_dict(broadcast_object(optimizer.state_dict(), root_rank))


class _Distributed:
    """Averages gradients before each step, unless that was done by hand."""

    _synchronized = False
    _skips = False

    def synchronize(self) -> None:
        for group in self.param_groups:  # type: ignore[attr-defined]
            for parameter in group["params"]:
                if not parameter.requires_grad:
                    continue
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                dist.all_reduce(parameter.grad)
                if self._op != Sum:  # type: ignore[attr-defined]
                    parameter.grad /= size()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        self._skips = True
        yield
        self._skips = False

    def step(self, closure: Any = None) -> Any:
        if not self._skips:
            self.synchronize()
        self._synchronized = False
        return super().step(closure)  # type: ignore[misc]

    step.hooked = True  # type: ignore[attr-defined]
    # torch's hooks are those of the optimizer inside, which steps with averaged gradients


def DistributedOptimizer(
    optimizer: Any,
    named_parameters: Any = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
) -> Any:
    """The same optimizer, of a class that averages gradients."""
    assert op != Adasum, "not in this stand-in"
    made: Any = type(type(optimizer).__name__, (_Distributed, type(optimizer)), {})
    result = made.__new__(made)
    result.__dict__.update(optimizer.__dict__)
    result._op = op
    return result
