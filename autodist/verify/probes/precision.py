"""Runs a script in one precision: by default in float64, where equal programs agree to about 1e-15 and the smallest
fault stands out.

The default dtype does most of it. What a script pins to a smaller floating-point type (``.float()``,
``dtype=torch.float32``, ``torch.cfloat``, ``torch.FloatTensor``, NumPy arrays of float32) is widened here, in calls
from anywhere but torch's own scaler and optimizers.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

NARROW = (torch.float32, torch.float16, torch.bfloat16)
WIDE = {**dict.fromkeys(NARROW, torch.float64), torch.complex64: torch.complex128, torch.complex32: torch.complex128}
EXEMPT = ("torch.amp", "torch.cuda.amp", "torch.optim", "torch.serialization", "torch._")
CASTS = ("float", "half", "bfloat16")
WITH_DTYPE = ("to", "type", "new_tensor", "new_empty", "new_zeros", "new_ones", "new_full", "sum", "mean", "softmax")
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
        for name in CASTS:
            setattr(torch.Tensor, name, self._double(getattr(torch.Tensor, name)))
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
    def _exempt() -> bool:
        return str(sys._getframe(2).f_globals.get("__name__", "")).startswith(EXEMPT)

    def _double(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def cast(this: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            return plain(this, *args, **kwargs) if self._exempt() else this.double()

        return cast

    def _type_as(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def type_as(this: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            return this.double() if other.dtype in NARROW and not self._exempt() else plain(this, other)

        return type_as

    def _widened(self, plain: Callable[..., Any], from_data: bool) -> Callable[..., Any]:
        @functools.wraps(plain)
        def widened(*args: Any, **kwargs: Any) -> Any:
            exempt = self._exempt()
            if not exempt:
                if any(value is dtype for value in args for dtype in WIDE):
                    args = tuple(WIDE.get(value, value) if isinstance(value, torch.dtype) else value for value in args)
                if any(kwargs.get("dtype") is dtype for dtype in WIDE):
                    kwargs["dtype"] = WIDE[kwargs["dtype"]]
                if args and isinstance(args[-1], str) and args[-1].endswith(LEGACY):
                    owner = "torch.cuda." if args[-1].startswith("torch.cuda.") else "torch."
                    args = (*args[:-1], f"{owner}DoubleTensor")
            result = plain(*args, **kwargs)
            if from_data and not exempt and result.dtype in NARROW:
                return result.double().requires_grad_(result.requires_grad)
            return result

        return widened
