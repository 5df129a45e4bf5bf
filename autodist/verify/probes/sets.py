"""Sets of parameters that are walked in the same order in every process.

Tensors are hashed by their address, which is another one in each process: ``set(model.parameters()) - frozen`` gives
an optimizer its parameters in any order. Here they count by the order in which modules have got them. The number stays
with the address, also of a parameter that is gone: no two that live have the same, and torch cannot swap a tensor that
a weak reference waits for, as ``fully_shard`` has it do.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook


def hash_by_order() -> None:
    """Give each parameter of a module its number as its hash."""
    numbers: dict[int, int] = {}
    plain: Any = torch.Tensor.__hash__

    def number(module: Any, name: str, parameter: Any) -> None:
        if parameter is not None:
            numbers.setdefault(id(parameter), len(numbers) + 1)

    def hashed(this: Any) -> int:
        found: int = numbers.get(id(this)) or plain(this)
        return found

    register_module_parameter_registration_hook(number)
    torch.nn.Parameter.__hash__ = hashed  # type: ignore[method-assign]
