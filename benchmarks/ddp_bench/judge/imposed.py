"""What a run is made to do, original and candidate alike, so that equal trainings give equal numbers."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import RandomSampler, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

FACTORIES = (
    *("tensor", "as_tensor", "from_numpy", "empty", "zeros", "ones", "full", "arange", "linspace", "rand", "randn"),
    *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"),
)


def _replace(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


def in_double() -> None:
    """Everything that would be float32 is float64, so that rounding does not hide or feign a difference."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)

    def doubled(function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dtype") is torch.float32:
                kwargs["dtype"] = torch.float64
            made = function(*(torch.float64 if arg is torch.float32 else arg for arg in args), **kwargs)
            return made.double() if made.dtype is torch.float32 else made

        return wrapper

    for name in FACTORIES:
        setattr(torch, name, doubled(getattr(torch, name)))
    for name in ("float", "to", "type"):
        setattr(torch.Tensor, name, torch.Tensor.double if name == "float" else _doubled_method(name))


def _doubled_method(name: str) -> Any:
    """`to` and `type` of a tensor, which make float64 of what would become float32."""
    method = getattr(torch.Tensor, name)

    def wrapper(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return method(self, *(torch.float64 if arg is torch.float32 else arg for arg in args), **kwargs)

    return wrapper


def one_order(draws: list[str]) -> None:
    """Samplers that draw take the same order in all runs: that of their n-th epoch, or of the n-th they were told of.

    Without it, RandomSampler and DistributedSampler draw different orders, and no conversion would be equal. A
    DistributedSampler that is told of no epoch stays in the first, as it does in truth. What the other samplers would
    have drawn from is noted in ``draws``: it must be the same on all ranks.
    """

    def generator(epoch: int) -> torch.Generator:
        return torch.Generator().manual_seed(1000 + epoch)

    def next_epoch(sampler: Any) -> torch.Generator:
        state = (sampler.generator or torch.default_generator).get_state()
        draws.append(hashlib.sha1(state.numpy().tobytes()).hexdigest()[:16])
        sampler.judged = getattr(sampler, "judged", -1) + 1
        return generator(sampler.judged)

    whole = RandomSampler.__iter__
    shares = DistributedSampler.__iter__

    def all_rows(self: Any) -> Iterator[int]:
        if self.replacement or self.num_samples != len(self.data_source):
            yield from whole(self)
        else:
            yield from torch.randperm(len(self.data_source), generator=next_epoch(self)).tolist()

    def weighted_rows(self: Any) -> Iterator[int]:
        drawn = torch.multinomial(self.weights, self.num_samples, self.replacement, generator=next_epoch(self))
        yield from drawn.tolist()

    def own_rows(self: Any) -> Iterator[int]:
        if not self.shuffle:
            yield from shares(self)
            return
        told = getattr(self, "judged_epochs", {})
        self.judged_epochs = told
        epoch = told.setdefault(self.epoch, len(told))
        rows = torch.randperm(len(self.dataset), generator=generator(epoch)).tolist()
        if not self.drop_last:
            rows = rows * math.ceil(self.total_size / max(len(rows), 1))
        yield from rows[self.rank : self.total_size : self.num_replicas]

    _replace(RandomSampler, "__iter__", all_rows)
    _replace(WeightedRandomSampler, "__iter__", weighted_rows)
    _replace(DistributedSampler, "__iter__", own_rows)


def _global_batch_norm(self: Any, values: torch.Tensor) -> torch.Tensor:
    """What SyncBatchNorm does on GPUs: torch has none for CPUs."""
    axes = [axis for axis in range(values.dim()) if axis != 1]
    shape = [1, -1] + [1] * (values.dim() - 2)
    if self.training or self.running_mean is None:
        sums = torch.cat(
            [values.sum(axes), (values * values).sum(axes), values.new_tensor([values.numel() / values.shape[1]])]
        )
        if dist.is_initialized():
            from torch.distributed.nn.functional import all_reduce

            sums = all_reduce(sums)  # type: ignore[no-untyped-call]
        size, count = values.shape[1], sums[-1].detach()
        mean = sums[:size] / count
        variance = sums[size : 2 * size] / count - mean * mean
        if self.training and self.running_mean is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean, rate)
                self.running_var.lerp_(variance * count / (count - 1), rate)
    else:
        mean, variance = self.running_mean, self.running_var
    result = (values - mean.view(shape)) / torch.sqrt(variance.view(shape) + self.eps)
    return result * self.weight.view(shape) + self.bias.view(shape) if self.affine else result


def global_batch_norm() -> None:
    """Let BatchNorm take the statistics of all ranks, as SyncBatchNorm does on GPUs."""
    _replace(_BatchNorm, "forward", _global_batch_norm)
    _replace(torch.nn.SyncBatchNorm, "forward", _global_batch_norm)
    # DistributedDataParallel refuses SyncBatchNorm on CPUs
    _replace(DistributedDataParallel, "_passing_sync_batchnorm_handle", lambda self, module: None)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in an argument of a model: alone, or in lists, mappings and objects of a project's classes."""
    if torch.is_tensor(value):
        yield value
    elif dataclasses.is_dataclass(value):
        yield from _tensors(vars(value))
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


class Seen:
    """What goes into models while they train: the calls of outermost modules that have parameters."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.amount = 0
        self.draws: list[str] = []
        self._depth = 0

    def watch(self) -> None:
        """Look at all modules from now on."""
        call = torch.nn.Module.__call__

        def watched(module: Any, *args: Any, **kwargs: Any) -> Any:
            has = next(module.parameters(), None) is not None
            if has and not self._depth and module.training and torch.is_grad_enabled():
                self._note([*_tensors(args), *_tensors(kwargs)])
            self._depth += has
            try:
                return call(module, *args, **kwargs)
            finally:
                self._depth -= has

        _replace(torch.nn.Module, "__call__", watched)

    def _note(self, tensors: Sequence[torch.Tensor]) -> None:
        self.amount += sum(tensor.numel() for tensor in tensors)
        if tensors and tensors[0].dim():
            for row in tensors[0].detach().contiguous():
                self.rows[hashlib.sha1(row.contiguous().numpy().tobytes()).hexdigest()[:16]] += 1
