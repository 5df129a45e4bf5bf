"""Runs a script in one precision: by default in float64, where equal programs agree to about 1e-15 and the smallest
fault stands out.

The default dtype does most of it. What a script pins to a smaller floating-point type (``.float()``,
``dtype=torch.float32``, ``torch.cfloat``, ``torch.FloatTensor``, NumPy arrays of float32) is widened here, in calls
from anywhere but torch's own scaler, optimizers and what reads files. Optimizers keep float32 where they ask for it,
and are widened where they go down to 16 bits, as Muon does to make a gradient orthogonal. Where 16 bits are asked for
is noted.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

NARROW = (torch.float32, torch.float16, torch.bfloat16)
HALF = (torch.float16, torch.bfloat16)
WIDE = {**dict.fromkeys(NARROW, torch.float64), torch.complex64: torch.complex128, torch.complex32: torch.complex128}
EXEMPT = ("torch.amp", "torch.cuda.amp", "torch.serialization", "torch.distributed.checkpoint", "torch._")
OPTIMIZERS = "torch.optim"
CASTS = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16}
WITH_DTYPE = (
    "to",
    "type",
    "new_tensor",
    "new_empty",
    "new_zeros",
    "new_ones",
    "new_full",
    "sum",
    "mean",
    "prod",
    "cumsum",
    "softmax",
    "log_softmax",
)
FACTORIES = (
    "tensor",
    "as_tensor",
    "asarray",
    "empty",
    "zeros",
    "ones",
    "full",
    "rand",
    "randn",
    "linspace",
    "arange",
    "eye",
    "logspace",
    "zeros_like",
    "ones_like",
    "full_like",
    "rand_like",
    "randn_like",
    "empty_like",
    "normal",
    "sum",
    "mean",
    "softmax",
    "from_numpy",
    "frombuffer",
)
FROM_DATA = ("tensor", "as_tensor", "asarray", "from_numpy", "frombuffer")
NORMS = ("norm", "vector_norm", "matrix_norm")
"""FSDP1 clips gradients by norms that it asks for in float32."""
LEGACY = ("FloatTensor", "HalfTensor", "BFloat16Tensor")


class PrecisionProbe:
    """Installed when the verification runs in float64."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._noted: set[str] = set()

    def install(self) -> None:
        """Set the default dtype and widen the rest; mixed precision is off in any case."""
        self._patch_autocast()
        if self._context.plan.device == "cuda":
            self._keep_full_precision()
        if self._context.plan.dtype != "float64":
            return
        torch.set_default_dtype(torch.float64)
        torch.set_default_dtype = lambda d, /: None
        torch.set_default_tensor_type = lambda t, /: None
        torch.Tensor.view = self._bits(torch.Tensor.view, torch.Tensor.to)  # type: ignore[method-assign]
        for name, dtype in CASTS.items():
            setattr(torch.Tensor, name, self._double(getattr(torch.Tensor, name), dtype))
        torch.Tensor.cfloat = lambda this: this.to(torch.complex128)  # type: ignore[attr-defined]
        for name in WITH_DTYPE:
            setattr(torch.Tensor, name, self._widened(getattr(torch.Tensor, name), False))
        for name in FACTORIES:
            setattr(torch, name, self._widened(getattr(torch, name), name in FROM_DATA))
        for name in NORMS:
            setattr(torch.linalg, name, self._widened(getattr(torch.linalg, name), False))
        for name in LEGACY:
            setattr(torch, name, torch.DoubleTensor)
            if hasattr(torch.cuda, name):
                setattr(torch.cuda, name, getattr(torch.cuda, "DoubleTensor"))  # noqa: B009
        torch.Tensor.type_as = self._type_as(torch.Tensor.type_as)  # type: ignore[method-assign]

    @staticmethod
    def _patch_autocast() -> None:
        """Rounding to half precision differs with the shape of a batch by more than many a fault."""
        autocast: Any = torch.amp.autocast_mode.autocast
        plain = autocast.__init__

        @functools.wraps(plain)
        def construct(this: Any, *args: Any, **kwargs: Any) -> None:
            plain(this, *args, **kwargs)
            this._enabled = False

        autocast.__init__ = construct

    @staticmethod
    def _keep_full_precision() -> None:
        """TensorFloat-32 keeps ten bits of a mantissa, and rounds otherwise in batches of another size."""
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.deterministic = True
        setattr(torch, "set_float32_matmul_precision", lambda precision: None)  # noqa: B010

    @staticmethod
    def _exempt(dtype: Any = None) -> bool:
        """Whether the code that asks for a type gets it: the second caller from here."""
        name = str(sys._getframe(2).f_globals.get("__name__", ""))
        return name.startswith(EXEMPT) or (name.startswith(OPTIMIZERS) and dtype not in HALF)

    def _note(self, dtype: Any) -> None:
        """Say where 16 bits are asked for."""
        if dtype not in HALF:
            return
        frame = sys._getframe(2)
        module, function = frame.f_globals.get("__name__", "?"), frame.f_code.co_name
        where = self._context.trace.site() if function == "<module>" else f"{module}.{function}"
        if where not in self._noted:
            self._noted.add(where)
            kind = str(dtype).removeprefix("torch.")
            message = (
                f"casts to {kind}: computed in float64 here, since 16 bits round otherwise in a batch of another size"
            )
            self._context.trace.emit("note", topic="half-precision", message=message, site=where)

    def _double(self, plain: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Any]:
        @functools.wraps(plain)
        def cast(this: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if self._exempt(dtype):
                return plain(this, *args, **kwargs)
            self._note(dtype)
            return this.double()

        return cast

    @staticmethod
    def _bits(plain: Callable[..., Any], narrowed: Callable[..., Any]) -> Callable[..., Any]:
        """The bits of a number that would be float32 are 32: optimizers that round at random look at them."""

        @functools.wraps(plain)
        def view(this: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            dtype = kwargs.get("dtype", args[0] if args else None)
            if dtype is torch.int32 and this.dtype is torch.float64:
                return plain(narrowed(this, torch.float32), dtype)
            if dtype is torch.float32 and this.dtype is torch.int32:
                return plain(this, dtype).double()
            return plain(this, *args, **kwargs)

        return view

    def _type_as(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def type_as(this: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return this.double() if other.dtype in NARROW and not self._exempt() else plain(this, other)

        return type_as

    def _widened(self, plain: Callable[..., Any], from_data: bool) -> Callable[..., Any]:
        @functools.wraps(plain)
        def widened(*args: Any, **kwargs: Any) -> Any:
            dtype = kwargs["dtype"] if "dtype" in kwargs else dtype_among(args)
            exempt = self._exempt(dtype)
            if not exempt:
                if dtype is not None:
                    self._note(dtype)
                    args = tuple(WIDE.get(value, value) if type(value) is torch.dtype else value for value in args)
                    if type(dtype) is torch.dtype and "dtype" in kwargs:
                        kwargs["dtype"] = WIDE.get(dtype, dtype)
                if args and isinstance(args[-1], str) and args[-1].endswith(LEGACY):
                    owner = "torch.cuda." if args[-1].startswith("torch.cuda.") else "torch."
                    args = (*args[:-1], f"{owner}DoubleTensor")
            result = plain(*args, **kwargs)
            if from_data and not exempt and result.dtype in NARROW:
                return result.double().requires_grad_(result.requires_grad)
            return result

        return widened


def dtype_among(args: Sequence[Any]) -> torch.dtype | None:
    """The type of numbers that a call asks for by position. Every sample of a data set passes here: in a plain loop."""
    for value in args:
        if type(value) is torch.dtype:
            return value
    return None
