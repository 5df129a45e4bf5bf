"""Batch normalisation over the global batch on CPU, where torch has no SyncBatchNorm.

A conversion guards ``convert_sync_batchnorm`` with a question for an accelerator, and rightly so. On CPU this probe
answers that one question with yes, and gives SyncBatchNorm a forward that all-reduces its statistics differentiably.
"""

from __future__ import annotations

import ast
import functools
import linecache
import sys
from collections.abc import Collection
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext


CONVERTING = "convert_sync_batchnorm"
_all_reduce = dist.all_reduce
"""Torch's own, before the script's collectives are watched."""


class SumOverRanks(torch.autograd.Function):
    """The sum over ranks; its gradient is the sum over ranks again."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        total = value.clone()
        _all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.clone()
        _all_reduce(total)
        return total


def normalise_over_ranks(layer: Any, value: torch.Tensor) -> torch.Tensor:
    """What a BatchNorm layer computes when the batches of all ranks are one batch."""
    batch_statistics = layer.training or layer.running_mean is None
    if not (batch_statistics and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        average = layer.momentum if layer.momentum is not None else 0.0
        if layer.training and layer.track_running_stats and layer.num_batches_tracked is not None:
            layer.num_batches_tracked.add_(1)
            if layer.momentum is None:
                average = 1.0 / float(layer.num_batches_tracked)
        return nn.functional.batch_norm(
            value,
            layer.running_mean if not layer.training or layer.track_running_stats else None,
            layer.running_var if not layer.training or layer.track_running_stats else None,
            layer.weight,
            layer.bias,
            batch_statistics,
            average,
            layer.eps,
        )
    dimensions = [0, *range(2, value.dim())]
    shape = [1, -1] + [1] * (value.dim() - 2)
    total: Any = SumOverRanks.apply
    count = total(torch.tensor(float(value.numel() / value.size(1)), dtype=value.dtype, device=value.device))
    mean = total(value.sum(dimensions)) / count
    centred = value - mean.view(shape)
    variance = total((centred * centred).sum(dimensions)) / count
    if layer.training and layer.track_running_stats:
        with torch.no_grad():
            layer.num_batches_tracked.add_(1)
            factor = layer.momentum if layer.momentum is not None else 1.0 / float(layer.num_batches_tracked)
            layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), factor)
            unbiased = (variance * count / (count - 1)).to(layer.running_var.dtype)
            layer.running_var.lerp_(unbiased, factor)
    normalised: torch.Tensor = centred * torch.rsqrt(variance + layer.eps).view(shape)
    if layer.weight is None:
        return normalised
    scaled: torch.Tensor = normalised * layer.weight.view(shape) + layer.bias.view(shape)
    return scaled


class BatchNormProbe:
    """Installed on the ranks of a conversion that runs on CPU."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._guards: dict[tuple[str, int], bool] = {}
        self._converted = False

    def install(self) -> None:
        """Make SyncBatchNorm work on CPU, and reachable where the script converts its layers."""
        if not self._context.distributed or self._context.plan.device == "cuda":
            return
        setattr(nn.SyncBatchNorm, "forward", normalise_over_ranks)  # noqa: B010
        wrapper: Any = nn.parallel.DistributedDataParallel
        wrapper._passing_sync_batchnorm_handle = lambda *_: None
        if not self._context.plan.global_batchnorm:
            return
        self._patch_conversion()
        self._patch_question()
        self._patch_fallback(wrapper)

    def _patch_conversion(self) -> None:
        plain: Any = nn.SyncBatchNorm.convert_sync_batchnorm

        def convert(module: Any, process_group: Any = None) -> Any:
            self._converted = True
            return plain(module, process_group)

        setattr(nn.SyncBatchNorm, "convert_sync_batchnorm", staticmethod(convert))  # noqa: B010

    def _patch_question(self) -> None:
        """Answer yes to ``if torch.cuda.is_available():``, or whether a parameter ``is_cuda``, where only SyncBatchNorm
        hangs on it."""
        plain, placed = torch.cuda.is_available, vars(torch._C.TensorBase)["is_cuda"]

        def asked(frame: FrameType) -> bool:
            name = frame.f_code.co_filename
            return name.startswith(self._context.plan.root) and self._guards_conversion(name, frame.f_lineno)

        @functools.wraps(plain)
        def is_available() -> bool:
            return asked(sys._getframe(1)) or plain()

        def is_cuda(parameter: nn.Parameter) -> bool:
            return asked(sys._getframe(1)) or bool(placed.__get__(parameter))

        torch.cuda.is_available = is_available
        setattr(nn.Parameter, "is_cuda", property(is_cuda))  # noqa: B010

    def _guards_conversion(self, path: str, line: int) -> bool:
        key = (path, line)
        if key not in self._guards:
            self._guards[key] = guards_conversion("".join(linecache.getlines(path)), line)
        return self._guards[key]

    def _patch_fallback(self, wrapper: Any) -> None:
        """Where the guard is of another kind, every BatchNorm layer of a wrapped model is synchronised."""
        plain = wrapper.__init__

        @functools.wraps(plain)
        def construct(this: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            layers: list[Any] = [each for each in module.modules() if isinstance(each, _BatchNorm)]
            if layers and not self._converted:
                self._context.trace.emit(
                    "note",
                    topic="batchnorm",
                    message="BatchNorm statistics span the global batch, as SyncBatchNorm's do on accelerators",
                    site=self._context.trace.site(),
                )
                for layer in layers:
                    layer.forward = functools.partial(normalise_over_ranks, layer)
            plain(this, module, *args, **kwargs)

        wrapper.__init__ = construct


def guards_conversion(source: str, line: int) -> bool:
    """The ``if`` at ``line`` does nothing but convert BatchNorm layers, also by a function that does."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return False
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    converting = {each.name for each in functions if CONVERTING in ast.unparse(each)}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and node.test.lineno <= line <= (node.test.end_lineno or node.test.lineno):
            return all(converts(statement, converting) for statement in node.body)
        if isinstance(node, ast.IfExp) and node.lineno <= line <= (node.end_lineno or node.lineno):
            return CONVERTING in ast.unparse(node.body)
    return False


def converts(statement: ast.stmt, functions: Collection[str]) -> bool:
    """Whether it converts the layers of a model, `model = synchronise_norms(model)` by one of these ``functions``."""
    if CONVERTING in ast.unparse(statement):
        return True
    if not isinstance(statement, ast.Assign) or not isinstance(call := statement.value, ast.Call):
        return False
    named = isinstance(call.func, ast.Name) and call.func.id in functions
    return named and [ast.unparse(each) for each in call.args] == [ast.unparse(each) for each in statement.targets]
