"""A call of each operation of the table, made from what its class says, or written here in one line.

A trial has a function of tensors, their sizes (nine along every axis that may be shared out), and what is told of the
call. `ways` gives the placements in which its operands are tried.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from autodist.operations import Operation, load
from autodist.placement import Call, Operand, Partial, Placement, Replicate, Shard

SIZE = 9
SHARES = (2, 3, 4)
TABLE = load()
Function = Callable[..., Any]


@dataclass(frozen=True)
class Trial:
    """One call. ``kinds`` says what numbers the operands have, ``told`` what a transfer function is told."""

    operation: Operation
    function: Function
    sizes: tuple[tuple[int, ...], ...]
    told: dict[str, Any] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()

    def call(self, placements: tuple[Placement, ...], sizes: tuple[tuple[int, ...], ...]) -> Call:
        operands = []
        for placement, each in zip(placements, sizes, strict=True):
            shard = placement.axis if isinstance(placement, Shard) else None
            operands.append(Operand(placement, tuple(None if at == shard else size for at, size in enumerate(each))))
        return Call(self.operation.name, tuple(operands), **self.told)

    def ways(self) -> Iterator[tuple[Placement, ...]]:
        """All operands replicated, each axis of each alone, and the same axis of all."""
        yield (Replicate(),) * len(self.sizes)
        several = len(self.sizes) > 1
        for at, sizes in enumerate(self.sizes):
            for axis in range(len(sizes)):
                yield tuple(Shard(axis) if each == at else Replicate() for each in range(len(self.sizes)))
        for axis in range(max(map(len, self.sizes), default=0)) if several else ():
            if all(axis < len(each) for each in self.sizes[:2]):
                yield tuple(Shard(axis) if axis < len(each) else Replicate() for each in self.sizes)
                yield (Shard(axis), Shard(axis), *[Replicate()] * (len(self.sizes) - 2))
        if several and len(self.sizes[0]) > 1 and len(self.sizes[1]) > 0:
            yield (Shard(1), Shard(0), *[Replicate()] * (len(self.sizes) - 2))


def numbers(sizes: tuple[int, ...], kind: str) -> torch.Tensor:
    """Random numbers of some kind."""
    drawn = torch.rand(sizes, dtype=torch.float64) * 0.9 + 0.05
    if kind == "places":
        return torch.randint(2, sizes)
    if kind == "integers":
        return torch.randint(1, 9, sizes)
    if kind == "booleans":
        return drawn > 0.5
    if kind == "signs":
        return torch.where(drawn > 0.5, 1.0, -1.0).double()
    if kind == "gaps":
        return torch.where(drawn > 0.6, torch.nan, drawn)
    return {"above one": drawn + 1, "": drawn, "signed": drawn - 0.5, "complex": torch.complex(drawn, drawn.flip(0))}[
        kind
    ]


def resolved(name: str) -> Any:
    """What a dotted name stands for."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)


def callable_of(operation: Operation) -> Function:
    """The function, method or attribute that an operation names, for tensors."""
    found = resolved(operation.name)
    if operation.name.startswith("numpy."):

        def of_arrays(*args: Any, **options: Any) -> Any:
            return found(*[_array(each) for each in args], **options)

        return of_arrays
    if operation.name.startswith(("builtins.", "math.")):
        return lambda *args: found(*[each.tolist() if isinstance(each, torch.Tensor) else each for each in args])
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        return found().double()
    if not callable(found):
        return lambda x: getattr(x, operation.short)
    return found  # type: ignore[no-any-return]


def _array(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.numpy()
    return [_array(each) for each in value] if isinstance(value, list) else value


FILLERS: dict[str, tuple[Any, ...]] = {
    "topk": (2,),
    "kthvalue": (2,),
    "roll": (1,),
    "split": (2,),
    "chunk": (2,),
    "tensor_split": (2,),
    "quantile": (0.3,),
    "nanquantile": (0.3,),
    "norm": (2.0,),
    "vector_norm": (2.0,),
    "diff": (1,),
    "repeat_interleave": (2,),
    "repeat": (2,),
    "narrow": (0, 2),
    "select": (1,),
    "fft": (None,),
    "ifft": (None,),
    "rfft": (None,),
    "irfft": (None,),
    "normalize": (2.0,),
}
"""What a call is given beside tensors and axes."""
KINDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys("acosh arccosh".split(), ("above one",)),
    **dict.fromkeys("bitwise_and bitwise_or bitwise_xor bitwise_not and_ or_ xor invert".split(), ("integers",) * 2),
    **dict.fromkeys("gather take_along_dim take_along_axis".split(), ("", "places")),
    "scatter": ("", "places", ""),
    **dict.fromkeys("index_select".split(), ("", "places")),
    **dict.fromkeys("where masked_fill".split(), ("booleans", "", "")),
    **dict.fromkeys("prod cumprod".split(), ("above one",)),
    "masked_select": ("", "booleans"),
    **dict.fromkeys("nanmean nanmedian nansum nanquantile".split(), ("gaps",)),
    **dict.fromkeys("real imag conj resolve_conj angle view_as_real".split(), ("complex",)),
    **dict.fromkeys("relu gelu silu abs sign sgn signbit neg floor ceil fabs".split(), ("signed",)),
}


def _alone(operation: Operation) -> Iterator[Trial]:
    """A function of one, two or three tensors of equal sizes, or that are broadcast."""
    function = callable_of(operation)
    scalar = operation.name.startswith(("builtins.", "math."))
    kinds = KINDS.get(operation.short, ())
    for count in (1, 2, 3):
        shapes: tuple[tuple[int, ...], ...] = (() if scalar else (SIZE, SIZE),) * count
        try:
            made = [numbers(each, kind) for each, kind in zip(shapes, [*kinds, "", "", ""], strict=False)]
            function(*made)
        except (TypeError, RuntimeError, ValueError):
            continue
        yield Trial(operation, function, shapes, kinds=(*kinds, "", "", "")[:count])
        if count == 2 and not scalar:
            for other in ((SIZE,), (1, SIZE), (SIZE, 1)):
                yield Trial(operation, function, ((SIZE, SIZE), other), kinds=(*kinds, "", "")[:2])
        return


def _with_axis(operation: Operation, count: int = 1, listed: bool = False) -> Iterator[Trial]:
    """A function that is told an axis by position, and that is not, where it need not be."""
    function, fillers = callable_of(operation), FILLERS.get(operation.short, ())
    kinds = (*KINDS.get(operation.short, ()), "", "", "")[:count]
    position = operation.parameters.get("axis")
    shift = operation.name.startswith("torch.Tensor.")
    python = operation.name.startswith(("builtins.", "math."))

    def run(axis: int | None) -> Function:
        def called(*tensors: torch.Tensor) -> Any:
            args: list[Any] = [list(tensors)] if listed else [*tensors]
            args += fillers
            if axis is not None and isinstance(position, int):
                args.insert(position + shift, axis)
            return function(*args)

        return called

    shape = (SIZE,) if python else (SIZE, SIZE, SIZE)
    shapes: tuple[tuple[int, ...], ...] = (shape,) * count
    if operation.short == "index_select":
        shapes = (shape, (SIZE,))
    for axis in (0, 1, -1) if position is not None and not python else ():
        yield Trial(operation, run(axis), shapes, {"axis": axis}, kinds)
    try:
        run(None)(*[numbers(each, kind) for each, kind in zip(shapes, kinds, strict=True)])
    except (TypeError, RuntimeError, ValueError, IndexError):
        return
    yield Trial(operation, run(None), shapes, {}, kinds)


def _product(operation: Operation) -> Iterator[Trial]:
    function, equation = callable_of(operation), str(operation.parameters["equation"])
    if equation == "einsum":
        for written in (
            "bi,bj->bij",
            "bi,bj->ij",
            "bi,oi->bo",
            "bij,bjk->bik",
            "bi,bi->",
            "bi,ij",
            "bi->ib",
            "bi,cj->bcij",
        ):
            shapes = tuple((SIZE,) * len(each) for each in written.split("->")[0].split(","))
            yield Trial(operation, lambda *x, w=written: function(w, *x), shapes, {"equation": written})
        return
    if equation == "matmul":
        for one, other in ((1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (2, 3), (3, 3), (4, 3), (1, 3), (3, 1)):
            yield Trial(operation, function, ((SIZE,) * one, (SIZE,) * other))
        return
    terms = equation.split("->")[0].split(",")
    for dots in (0, 1) if "..." in equation else (0,):
        shapes = tuple((SIZE,) * (len(each.replace("...", "")) + dots * each.startswith("...")) for each in terms)
        adds = operation.parameters.get("adds")
        yield Trial(operation, function, shapes) if adds != 0 else Trial(operation, function, ((SIZE, SIZE), *shapes))
        if adds == 2:
            yield Trial(operation, function, (*shapes, (SIZE,)))


def _loss(operation: Operation) -> Iterator[Trial]:
    function = resolved(operation.name)
    targets = {
        **dict.fromkeys("binary_cross_entropy BCELoss".split(), ("", "")),
        **dict.fromkeys(
            "hinge_embedding_loss HingeEmbeddingLoss soft_margin_loss SoftMarginLoss".split(), ("", "signs")
        ),
    }
    count = 3 if operation.short.lower().startswith(("gaussian", "margin")) else 2
    kinds = targets.get(operation.short, ("",) * count)
    for reduction in ("mean", "sum", "none", *["batchmean"] * operation.short.startswith(("kl_", "KL"))):
        told = {"reduction": reduction}
        if operation.short[0].isupper():
            yield Trial(operation, function(reduction=reduction), ((SIZE, SIZE),) * count, told, kinds)
        else:
            called = lambda *x, r=reduction: function(*x, reduction=r)  # noqa: E731
            yield Trial(operation, called, ((SIZE, SIZE),) * count, told, kinds)


BUILDERS: dict[str, Callable[[Operation], Iterator[Trial]]] = {
    **dict.fromkeys(
        "same linear elementwise add multiply divide filter fill_like random_like container whole fact".split(), _alone
    ),
    **dict.fromkeys("sort select repeat_each length squeeze unsqueeze".split(), _with_axis),
    "reduction": _with_axis,
    "comparison": lambda each: _with_axis(each, 2),
    **dict.fromkeys(["scan", "index"], lambda each: _with_axis(each, len(KINDS.get(each.short, ("",))))),
    "gather": lambda each: _with_axis(each, len(KINDS[each.short])),
    "concatenate": lambda each: _with_axis(each, 2, listed=True),
    "stack": lambda each: _with_axis(each, 2, listed=True),
    "contraction": _product,
    "pairwise": _product,
    "loss": _loss,
}


def trials(operation: Operation) -> list[Trial]:
    """How an operation is tried."""
    from examples import EXAMPLES

    written = EXAMPLES.get(operation.name) or EXAMPLES.get(operation.short)
    if written is not None:
        return [replace(each, operation=operation) for each in written(operation)]
    builder = BUILDERS.get(operation.cls)
    return list(builder(operation)) if builder else []


__all__ = ["SHARES", "SIZE", "TABLE", "Partial", "Trial", "callable_of", "numbers", "resolved", "trials"]
