"""Lets a script that asks for a GPU without looking for one run on the CPU: both programs compute the same there."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
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
FAILING = frozenset(NOTHING_TO_DO) - {"empty_cache", "set_device"}
"""Those of them that fail where there is no GPU."""
KEYWORDS = ("device", "map_location")
PLAIN_DEVICE = torch.device
"""As it is before the probe stands in for it: it is asked for with every argument of whatever makes a tensor."""
MOST_SOURCES = 200
PROBES = os.path.dirname(__file__)
VISIBLE = "CUDA_VISIBLE_DEVICES"
"""A script that sets it counts its GPUs anew."""


def keep_device_contexts() -> None:
    """`with torch.device("meta"):` asks of each function that is called whether it makes tensors, and is told so of
    those that torch has when it asks first: of torch's own ones, before others take their place."""
    _device_constructors()


class DeviceProbe:
    """Installed when a verification runs on the CPU."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._told = False
        self._replaced: set[str] = set()
        """What the user's own code has called that fails without a GPU."""
        self._current: int | None = 0
        """The GPU that `cuda` stands for; None where that is not known any more."""
        self._visible = os.environ.get(VISIBLE)
        self._placed = False

    def install(self) -> None:
        """Nothing is found, and what is sent to a GPU or made there is on the CPU."""
        torch.cuda.is_available = lambda: False
        torch.cuda.device_count = lambda: 0
        torch.cuda.current_device = self._stand_in("torch.cuda.current_device", lambda: self._current or 0)
        torch.cuda.get_device_name = self._stand_in("torch.cuda.get_device_name", lambda *args, **kwargs: "CPU")
        if hasattr(torch, "accelerator"):
            torch.accelerator.is_available = lambda *args, **kwargs: False
        for name in NOTHING_TO_DO:
            setattr(torch.cuda, name, self._stand_in(f"torch.cuda.{name}", _idle()) if name in FAILING else _idle())
        torch.cuda.set_device = self._set_device
        for owner in (torch.Tensor, torch.nn.Module):
            owner.cuda = self._staying(owner.cuda)  # type: ignore[method-assign]
        for owner in (torch.Tensor, torch.nn.Module):
            owner.to = self._numbered(self._redirected(owner.to))  # type: ignore[method-assign]
        for name in METHODS:
            setattr(torch.Tensor, name, self._redirected(getattr(torch.Tensor, name)))
        for name in FACTORIES:
            setattr(torch, name, self._redirected(getattr(torch, name)))
        DeviceContext.__init__ = self._redirected(DeviceContext.__init__, "torch.device")  # type: ignore[method-assign]
        torch.Tensor.pin_memory = self._staying(torch.Tensor.pin_memory)  # type: ignore[method-assign]
        torch.Tensor.record_stream = _idle()  # type: ignore[method-assign]
        torch.Generator = self._on_cpu(torch.Generator)  # type: ignore[misc]
        torch.device = self._by_number(torch.device)  # type: ignore[misc]
        torch.cuda.device = self._within  # type: ignore[misc,assignment]
        self._install_types()
        self._install_streams()

    def _install_types(self) -> None:
        """`torch.cuda.FloatTensor` is `torch.FloatTensor`, called by either name or as itself."""
        for kind in TYPES:
            setattr(torch.cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
        for owner, name in ((torch.Tensor, "type"), (torch, "set_default_tensor_type")):
            setattr(owner, name, self._renamed(getattr(owner, name)))

    def _install_streams(self) -> None:
        """There is one order in which things happen, and it can be timed."""
        for name in ("current_stream", "default_stream"):
            setattr(torch.cuda, name, self._stand_in(f"torch.cuda.{name}", lambda *args, **kwargs: _Stream()))
        setattr(torch.cuda, "Stream", _Stream)  # noqa: B010
        setattr(torch.cuda, "stream", lambda *args, **kwargs: contextlib.nullcontext())  # noqa: B010
        setattr(torch.cuda, "Event", _Event)  # noqa: B010

    def _stand_in(self, name: str, instead: Callable[..., Any]) -> Callable[..., Any]:
        """What does something ``instead`` of failing for want of a GPU."""

        @functools.wraps(instead)
        def standing_in(*args: Any, **kwargs: Any) -> Any:
            self._tell(name)
            return instead(*args, **kwargs)

        return standing_in

    def _staying(self, move: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(move)
        def stay(value: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell(f".{move.__name__}()")
            self._place((*args, kwargs.get("device"), None)[0])
            return value

        return stay

    def _redirected(self, make: Callable[..., Any], called: str = "") -> Callable[..., Any]:
        called = called or make.__name__

        @functools.wraps(make)
        def redirect(*args: Any, **kwargs: Any) -> Any:
            if any(map(self._is_gpu, args)):
                self._tell(f"{called}('cuda')")
                for each in filter(self._is_gpu, args):
                    self._place(each)
                args = tuple("cpu" if self._is_gpu(each) else each for each in args)
            for name in KEYWORDS if kwargs else ():
                device = kwargs.get(name)
                if self._is_gpu(device) or type(device) is int:
                    self._tell(f"{called}({name}='cuda')")
                    kwargs[name] = "cpu"
                    if name == "device":  # what is loaded there is often brought elsewhere
                        self._place(device)
            return make(*args, **kwargs)

        return redirect

    def _numbered(self, move: Callable[..., Any]) -> Callable[..., Any]:
        """`model.to(0)`, of the first GPU."""

        @functools.wraps(move)
        def to(value: Any, *args: Any, **kwargs: Any) -> Any:
            if args and type(args[0]) is int:
                self._tell(f".to({args[0]})")
                self._place(args[0])
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
        if type(device) is PLAIN_DEVICE:
            found: bool = device.type == "cuda"
        else:
            found = isinstance(device, str) and (device == "cuda" or device.startswith("cuda:"))
        if found:
            self._tell()
        return found

    def _set_device(self, device: Any = None) -> None:
        if not isinstance(device, int) or device >= 0:
            self._tell("torch.cuda.set_device")
        self._current = index_of(device)

    def _within(self, device: Any = None) -> Any:
        """`with torch.cuda.device(1):`, whose end is not followed; a number below 0 changes nothing anyway."""
        if isinstance(device, int) and device < 0:
            return contextlib.nullcontext()
        self._tell("torch.cuda.device")
        self._current = None
        return contextlib.nullcontext()

    def _place(self, device: Any) -> None:
        """Note a rank that takes the GPU of another one, as all do that do not ask for their number."""
        plan = self._context.plan
        if self._placed or plan.role != "conversion" or plan.world < 2 or os.environ.get(VISIBLE) != self._visible:
            return
        named, own = index_of(device), int(plan.env.get("LOCAL_RANK", plan.rank))
        index = self._current if named is None else named
        if index is not None and index != own:
            self._placed = True
            if self._chooses(named is None):
                return
            message = f"rank {plan.rank} computes on GPU {index}, which is that of another rank"
            self._context.trace.emit("note", topic="gpu-of-others", message=message, site=self._context.trace.site())

    def _chooses(self, current: bool) -> bool:
        """Whether the script chooses its GPUs, or the ``current`` one, where there are some: not on the CPU."""
        script = Path(self._context.plan.script)
        sources = [script, *sorted(script.parent.rglob("*.py"))[:MOST_SOURCES]]
        text = "".join(path.read_text(encoding="utf-8", errors="replace") for path in sources if path.is_file())
        return VISIBLE in text or (current and ("set_device(" in text or "cuda.device(" in text))

    def _tell(self, name: str | None = None) -> None:
        """Once: the run says nothing about devices. And once for each ``name`` that the user's own code calls, which
        would fail here without this probe."""
        if not self._told:
            self._told = True
            message = "the script asks for a GPU, and was run on the CPU"
            self._context.trace.emit("note", topic="on-cpu", message=message, site="?")
        if name is not None and name not in self._replaced and self._is_called_by_user():
            self._replaced.add(name)
            self._context.trace.emit("note", topic="replaced", message=name, site=self._context.trace.site())

    def _is_called_by_user(self) -> bool:
        """Whether the user's own code calls what probes have put in place, and no library."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(PROBES):
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename.startswith(self._context.plan.root)


def index_of(device: Any) -> int | None:
    """The number of a GPU, None where it is whichever is current."""
    if isinstance(device, int):
        return int(device)
    if isinstance(device, str):
        _, _, number = device.partition(":")
        return int(number) if number.isdigit() else None
    index = getattr(device, "index", None)
    return index if isinstance(index, int) else None


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
