"""Sets of parameters that are walked in the same order in every process.

Tensors are hashed by their address, which is another one in each process: ``set(model.parameters()) - frozen`` gives
an optimizer its parameters in any order. Here they count by the order in which modules have got them.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook


def hash_by_order() -> None:
    """Give each parameter of a module its number as its hash."""
    numbers: dict[int, int] = {}
    count = 0
    plain: Any = torch.Tensor.__hash__

    def number(module: Any, name: str, parameter: Any) -> None:
        nonlocal count
        if parameter is not None and id(parameter) not in numbers:
            count += 1
            numbers[id(parameter)] = count
            weakref.finalize(parameter, numbers.pop, id(parameter), None).atexit = False

    def hashed(this: Any) -> int:
        found: int = numbers.get(id(this)) or plain(this)
        return found

    register_module_parameter_registration_hook(number)
    torch.nn.Parameter.__hash__ = hashed  # type: ignore[method-assign]
