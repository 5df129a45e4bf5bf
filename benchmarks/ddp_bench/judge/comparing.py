"""Compares what two runs left behind."""

from __future__ import annotations

import math
import pickle
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch

from .running import Run

RELATIVE, ABSOLUTE = 1e-6, 1e-8
SHARE = 1.5
"""No rank may do more than this times its equal share of the work."""
TEXTS = {".json", ".jsonl", ".csv", ".tsv", ".txt", ".log", ".md", ".yaml"}
TENSORS = {".pt", ".pth", ".ckpt", ".bin", ".tar"}
NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")


def differences(original: Run, candidate: Run, by_rows: bool = True) -> Iterator[str]:
    """All in which a run on several ranks differs from the original."""
    yield from _printed(original.printed[0], candidate.printed)
    names = sorted({*original.files, *candidate.files})
    for name in names:
        if name not in candidate.files:
            yield f"{name} is missing"
        elif name not in original.files:
            yield f"{name} is written, which the original does not"
        else:
            yield from _file(name, original.files[name], candidate.files[name])
    yield from _work(original, candidate, by_rows)


def _printed(expected: Sequence[str], printed: Sequence[Sequence[str]]) -> Iterator[str]:
    for rank, lines in enumerate(printed[1:], 1):
        if lines:
            yield f"rank {rank} prints, too: {lines[0][:80]!r}"
            break
    if len(expected) != len(printed[0]):
        yield f"{len(printed[0])} lines are printed instead of {len(expected)}"
    for left, right in zip(expected, printed[0], strict=False):
        if not texts_agree(left, right):
            yield f"prints {right[:100]!r} instead of {left[:100]!r}"
            break


def texts_agree(left: str, right: str) -> bool:
    """The same words, and numbers that agree up to the rounding of their last place."""
    if NUMBER.sub("#", left).split() != NUMBER.sub("#", right).split():
        return False
    return all(map(_numbers_agree, NUMBER.findall(left), NUMBER.findall(right)))


def _numbers_agree(left: str, right: str) -> bool:
    one, other = float(left), float(right)
    if left == right or math.isnan(one) and math.isnan(other):
        return True
    mantissa, _, exponent = left.lower().partition("e")
    if "." not in mantissa and not exponent:
        return False
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(one - other) <= max(1.01 * last, RELATIVE * abs(one))


class _Unpickler(pickle.Unpickler):
    """Reads whole models, too, whose classes only the project has: as empty classes of the same name."""

    unknown: ClassVar[dict[str, type]] = {}

    def find_class(self, module: str, name: str) -> Any:
        try:
            if module != "__main__":
                return super().find_class(module, name)
        except (ImportError, AttributeError):
            pass
        return self.unknown.setdefault(f"{module}.{name}", type(name, (), {}))


class _Pickles:
    """A stand-in for the module pickle, for torch.load."""

    Unpickler = _Unpickler
    load, loads, UnpicklingError = pickle.load, pickle.loads, pickle.UnpicklingError


def _file(name: str, left: Path, right: Path) -> Iterator[str]:
    if left.suffix in TENSORS:
        pair = []
        for path in (left, right):
            try:
                pair.append(torch.load(path, map_location="cpu", weights_only=False, pickle_module=_Pickles))
            except Exception as error:
                if path is right:
                    yield f"{name} cannot be read: {error}"[:200]
                elif left.read_bytes() != right.read_bytes():  # the project's own format
                    yield f"{name} has other bytes"
                return
        yield from list(values_differ(pair[0], pair[1], name))[:3]
    elif left.suffix in TEXTS:
        one, other = left.read_text().splitlines(), right.read_text().splitlines()
        if len(one) != len(other):
            yield f"{name} has {len(other)} lines instead of {len(one)}"
        elif wrong := next((pair for pair in zip(one, other, strict=True) if not texts_agree(*pair)), None):
            yield f"{name}: {wrong[1][:80]!r} instead of {wrong[0][:80]!r}"
    elif left.read_bytes() != right.read_bytes():
        yield f"{name} has other bytes"


def values_differ(left: Any, right: Any, where: str) -> Iterator[str]:
    """Where two values of a checkpoint differ: kinds, keys, shapes, types, numbers."""
    if torch.is_tensor(left) and torch.is_tensor(right):
        if left.shape != right.shape or left.dtype != right.dtype:
            yield f"{where} is {right.dtype} {tuple(right.shape)} instead of {left.dtype} {tuple(left.shape)}"
        elif left.is_floating_point() and not torch.allclose(right, left, RELATIVE, ABSOLUTE, equal_nan=True):
            yield f"{where} is off by {(left - right).abs().max().item():.1e}"
        elif not left.is_floating_point() and not torch.equal(left, right):
            yield f"{where} has other numbers"
    elif isinstance(left, Mapping) and isinstance(right, Mapping):
        if list(left) != list(right):
            odd = sorted(map(str, set(left) ^ set(right)))[:3]
            yield f"{where} has other keys: {', '.join(odd) or 'in another order'}"
        else:
            for key in left:
                yield from values_differ(left[key], right[key], f"{where}[{key!r}]")
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        if len(left) != len(right):
            yield f"{where} has {len(right)} entries instead of {len(left)}"
        for index, (one, other) in enumerate(zip(left, right, strict=False)):
            yield from values_differ(one, other, f"{where}[{index}]")
    elif isinstance(left, float) and isinstance(right, float):
        if not math.isclose(left, right, rel_tol=RELATIVE, abs_tol=ABSOLUTE) and not left != left != right:
            yield f"{where} is {right} instead of {left}"
    elif isinstance(left, torch.nn.Module) and isinstance(right, torch.nn.Module):
        yield from values_differ(left.state_dict(), right.state_dict(), where)
    elif type(left) is not type(right) or not hasattr(left, "__dict__") and left != right:
        yield f"{where} is {right!r} instead of {left!r}"[:200]
    elif hasattr(left, "__dict__") and not isinstance(left, type):
        yield from values_differ(vars(left), vars(right), where)


def _work(original: Run, candidate: Run, by_rows: bool) -> Iterator[str]:
    """Whether the ranks share the samples of the original among them."""
    whole, ranks = original.amounts[0], len(candidate.amounts)
    if len({*map(tuple, candidate.draws)}) > 1:
        yield "samplers draw differently on the ranks"
    if max(candidate.amounts) > SHARE * whole / ranks:
        parts = [round(each / whole, 2) for each in candidate.amounts]
        yield f"the work is not shared: ranks trained on {parts} of the samples"
    elif by_rows:
        together = sum(candidate.rows, Counter())
        left, extra = original.rows[0] - together, together - original.rows[0]
        if left or extra:
            yield f"{left.total()} samples were left out in training, {extra.total()} were seen too often"
