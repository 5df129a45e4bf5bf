"""Lets a script that asks for a GPU without looking for one run on the CPU: both programs compute the same there."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._device import DeviceContext, _device_constructors

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

FACTORIES = (
    "tensor as_tensor asarray scalar_tensor empty zeros ones full eye arange range linspace logspace rand randn "
    "randint randperm normal empty_like zeros_like ones_like full_like rand_like randn_like randint_like tril_indices "
    "triu_indices hann_window hamming_window bartlett_window blackman_window kaiser_window sparse_coo_tensor "
    "sparse_csr_tensor empty_strided load"
).split()
METHODS = "new_tensor new_empty new_zeros new_ones new_full".split()
TYPES = "Float Double Half BFloat16 Byte Char Short Int Long Bool".split()
NOTHING_TO_DO = (
    "synchronize set_device empty_cache init ipc_collect reset_peak_memory_stats reset_max_memory_allocated "
    "set_per_process_memory_fraction"
).split()
KEYWORDS = ("device", "map_location")


def keep_device_contexts() -> None:
    """`with torch.device("meta"):` asks of each function that is called whether it makes tensors, and is told so of
    those that torch has when it asks first: of torch's own ones, before others take their place."""
    _device_constructors()


class DeviceProbe:
    """Installed when a verification runs on the CPU."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._told = False

    def install(self) -> None:
        """Nothing is found, and what is sent to a GPU or made there is on the CPU."""
        torch.cuda.is_available = lambda: False
        torch.cuda.device_count = lambda: 0
        torch.cuda.current_device = lambda: 0
        torch.cuda.get_device_name = lambda *args, **kwargs: "CPU"
        if hasattr(torch, "accelerator"):
            torch.accelerator.is_available = lambda *args, **kwargs: False
        for name in NOTHING_TO_DO:
            setattr(torch.cuda, name, _idle())
        for owner in (torch.Tensor, torch.nn.Module):
            owner.cuda = self._staying(owner.cuda)  # type: ignore[method-assign]
        for owner in (torch.Tensor, torch.nn.Module):
            owner.to = self._numbered(self._redirected(owner.to))  # type: ignore[method-assign]
        for name in METHODS:
            setattr(torch.Tensor, name, self._redirected(getattr(torch.Tensor, name)))
        for name in FACTORIES:
            setattr(torch, name, self._redirected(getattr(torch, name)))
        DeviceContext.__init__ = self._redirected(DeviceContext.__init__)  # type: ignore[method-assign]
        torch.Tensor.pin_memory = self._staying(torch.Tensor.pin_memory)  # type: ignore[method-assign]
        torch.Tensor.record_stream = _idle()  # type: ignore[method-assign]
        torch.Generator = self._on_cpu(torch.Generator)  # type: ignore[misc]
        torch.device = self._by_number(torch.device)  # type: ignore[misc]
        self._install_types()
        self._install_streams()

    def _install_types(self) -> None:
        """`torch.cuda.FloatTensor` is `torch.FloatTensor`, called by either name or as itself."""
        for kind in TYPES:
            setattr(torch.cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
        for owner, name in ((torch.Tensor, "type"), (torch, "set_default_tensor_type")):
            setattr(owner, name, self._renamed(getattr(owner, name)))

    @staticmethod
    def _install_streams() -> None:
        """There is one order in which things happen, and it can be timed."""
        for name in ("current_stream", "default_stream"):
            setattr(torch.cuda, name, lambda *args, **kwargs: _Stream())
        setattr(torch.cuda, "Stream", _Stream)  # noqa: B010
        for name in ("stream", "device"):
            setattr(torch.cuda, name, lambda *args, **kwargs: contextlib.nullcontext())
        setattr(torch.cuda, "Event", _Event)  # noqa: B010

    def _staying(self, move: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(move)
        def stay(value: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell()
            return value

        return stay

    def _redirected(self, make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def redirect(*args: Any, **kwargs: Any) -> Any:
            if any(map(self._is_gpu, args)):
                args = tuple("cpu" if self._is_gpu(each) else each for each in args)
            for name in KEYWORDS:
                if self._is_gpu(kwargs.get(name)) or type(kwargs.get(name)) is int:
                    kwargs[name] = "cpu"
            return make(*args, **kwargs)

        return redirect

    def _numbered(self, move: Callable[..., Any]) -> Callable[..., Any]:
        """`model.to(0)`, of the first GPU."""

        @functools.wraps(move)
        def to(value: Any, *args: Any, **kwargs: Any) -> Any:
            if args and type(args[0]) is int:
                self._tell()
                args = ("cpu", *args[1:])
            return move(value, *args, **kwargs)

        return to

    def _on_cpu(self, plain: type[torch.Generator]) -> type[torch.Generator]:
        class Kind(type):
            def __instancecheck__(cls, value: object) -> bool:
                return isinstance(value, plain)

            def __call__(cls, device: Any = "cpu") -> torch.Generator:
                return plain("cpu" if type(device) is int or this._is_gpu(device) else device)

        this = self
        return Kind("Generator", (), {})  # type: ignore[return-value]

    def _by_number(self, plain: type[torch.device]) -> type[torch.device]:
        """`torch.device(0)`, which torch refuses where there is no GPU at all."""

        class Kind(type):
            def __instancecheck__(cls, value: object) -> bool:
                return isinstance(value, plain)

            def __call__(cls, *args: Any, **kwargs: Any) -> torch.device:
                if args and type(args[0]) is int:
                    this._tell()
                    args = ("cpu",)
                return plain(*args, **kwargs)

        this = self
        return Kind("device", (), {"__module__": "torch", "__doc__": plain.__doc__})  # type: ignore[return-value]

    def _renamed(self, cast: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(cast)
        def rename(*args: Any, **kwargs: Any) -> Any:
            if args and isinstance(args[-1], str) and args[-1].startswith("torch.cuda."):
                self._tell()
                args = (*args[:-1], args[-1].replace("torch.cuda.", "torch."))
            return cast(*args, **kwargs)

        return rename

    def _is_gpu(self, device: Any) -> bool:
        found = isinstance(device, str) and (device == "cuda" or device.startswith("cuda:"))
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


def _idle() -> Callable[..., None]:
    """A function of its own, as torch's compiler wants it, for what has nothing to do on the CPU."""
    return lambda *args, **kwargs: None


class _Stream:
    """Whatever is asked of it has been done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what torch's does."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return _idle()


class _Event(_Stream):
    def record(self, stream: Any = None) -> None:
        self._seconds = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        """Milliseconds, as torch tells them."""
        return (end._seconds - self._seconds) * 1000
