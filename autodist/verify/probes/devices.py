"""Lets a script that asks for a GPU without looking for one run on the CPU: both programs compute the same there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext


class DeviceProbe:
    """Installed when a verification runs on the CPU."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._told = False

    def install(self) -> None:
        """Nothing is found, and what is sent to a GPU stays where it is."""
        torch.cuda.is_available = lambda: False
        torch.cuda.device_count = lambda: 0
        torch.cuda.synchronize = lambda *args, **kwargs: None
        torch.cuda.set_device = lambda *args, **kwargs: None
        torch.cuda.empty_cache = lambda: None
        if hasattr(torch, "accelerator"):
            torch.accelerator.is_available = lambda *args, **kwargs: False
        for owner in (torch.Tensor, torch.nn.Module):
            owner.cuda = self._staying(owner.cuda)  # type: ignore[method-assign]
            owner.to = self._redirected(owner.to)  # type: ignore[method-assign]

    def _staying(self, move: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(move)
        def stay(value: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell()
            return value

        return stay

    def _redirected(self, move: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(move)
        def redirect(value: Any, *args: Any, **kwargs: Any) -> Any:
            if args and self._is_gpu(args[0]):
                args = ("cpu", *args[1:])
            if self._is_gpu(kwargs.get("device")):
                kwargs["device"] = "cpu"
            return move(value, *args, **kwargs)

        return redirect

    def _is_gpu(self, device: Any) -> bool:
        found = device == "cuda" or isinstance(device, str) and device.startswith("cuda:")
        found = found or isinstance(device, torch.device) and device.type == "cuda"
        if found:
            self._tell()
        return found

    def _tell(self) -> None:
        """Once: the run says nothing about devices."""
        if not self._told:
            self._told = True
            message = "the script asks for a GPU, and was run on the CPU"
            self._context.trace.emit("note", topic="on-cpu", message=message, site="?")
