"""A model that is moved to its device after DistributedDataParallel has taken hold of its parameters trains without
averaged gradients, and without a word. On the CPU nothing moves, so that only the order tells."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch import nn

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

LATE = (
    "the model is moved to its device after it is wrapped: on a GPU, where that gives it other parameters than those "
    "that DistributedDataParallel holds, its gradients are not averaged"
)
BETWEEN = (
    "the model was brought to the CPU after it had been wrapped, and trains on: on a GPU it comes back with other "
    "parameters than those that DistributedDataParallel holds, and its gradients are not averaged"
)


class MoveProbe:
    """Installed on the ranks of a conversion."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._placed: WeakSet[nn.Module] = WeakSet()
        self._waiting: WeakSet[nn.Module] = WeakSet()
        """Wrappers around models that were never moved, until they are used."""
        self._wrappers: WeakSet[nn.Module] = WeakSet()
        self._left: WeakSet[nn.Module] = WeakSet()
        """Those around models that were brought to the CPU."""

    def install(self) -> None:
        """Watch moves, wrappers and first uses."""
        if not self._context.distributed or self._context.plan.device != "cpu":
            return
        module: Any = nn.Module
        module.to, module.cuda = self._watched(module.to), self._watched(module.cuda, always=True)
        module.cpu = self._leaving(module.cpu)
        wrapper: Any = nn.parallel.DistributedDataParallel
        plain, plain_forward = wrapper.__init__, wrapper.forward

        @functools.wraps(plain)
        def construct(this: Any, inner: nn.Module, *args: Any, **kwargs: Any) -> None:
            plain(this, inner, *args, **kwargs)
            self._wrappers.add(this)
            if self._placed.isdisjoint(inner.modules()):
                self._waiting.add(this)

        @functools.wraps(plain_forward)
        def forward(this: Any, *args: Any, **kwargs: Any) -> Any:
            self._waiting.discard(this)
            if this in self._left and this.training and torch.is_grad_enabled():
                self._left.discard(this)
                self._say(BETWEEN)
            return plain_forward(this, *args, **kwargs)

        wrapper.__init__, wrapper.forward = construct, forward

    def _watched(self, plain: Any, always: bool = False) -> Any:
        @functools.wraps(plain)
        def move(this: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if always or _names_device(*args, **kwargs):
                within = set(this.modules())
                held = {each for each in self._waiting if not within.isdisjoint(each.modules())}
                if held:
                    self._waiting -= held
                    self._say(LATE)
                self._placed |= within
            return plain(this, *args, **kwargs)

        return move

    def _leaving(self, plain: Any) -> Any:
        @functools.wraps(plain)
        def leave(this: nn.Module) -> Any:
            within = set(this.modules())
            self._left |= {each for each in self._wrappers if not within.isdisjoint(each.modules())}
            return plain(this)

        return leave

    def _say(self, message: str) -> None:
        site = self._context.trace.site()
        self._context.trace.emit("note", topic="moved-after-wrapping", message=message, site=site)


def _names_device(*args: Any, **kwargs: Any) -> bool:
    """Whether `to()` is told of a device other than the CPU by name; where there is no GPU, one that is asked for is
    the CPU as well, as an object."""
    given = kwargs.get("device", args[0] if args else None)
    return isinstance(given, (int, torch.device)) or isinstance(given, str) and given != "meta"
