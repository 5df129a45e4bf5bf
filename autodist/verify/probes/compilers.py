"""TorchScript is off while a script runs: what it compiles would draw numbers and run layers unheard.

A trace is taken of a model as it is, for a file: that works as ever.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def compile_nothing() -> None:
    """`torch.jit.script` returns what it is given. Not by `PYTORCH_JIT`, which takes away the classes of a trace."""
    torch.jit._state.disable()


def export_still() -> None:
    """`torch.jit.trace` and what uses it, such as `SummaryWriter.add_graph`, make a graph all the same, and what
    `torch.jit.script` was given can be saved."""
    for name in ("trace", "trace_module"):
        setattr(torch.jit, name, _enabled(getattr(torch.jit, name)))
    script = torch.jit.script

    @functools.wraps(script)
    def scripted(obj: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(obj, torch.nn.Module) and not hasattr(obj, "save"):
            vars(obj)["save"] = functools.partial(save_scripted, obj)
        return script(obj, *args, **kwargs)

    torch.jit.script = scripted


def save_scripted(module: torch.nn.Module, path: Any, *_: Any, **__: Any) -> None:
    """Save the tensors in the place of the compiled module: they can be compared, and the probes do not compile."""
    torch.save(module.state_dict(), path)


def _enabled(traced: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(traced)
    def trace(*args: Any, **kwargs: Any) -> Any:
        torch.jit._state.enable()
        try:
            return traced(*args, **kwargs)
        finally:
            torch.jit._state.disable()

    return trace
