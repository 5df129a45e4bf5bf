"""Proof that a converted script trains the same model: both programs are run, unmodified, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autodist.verify.command import INTERRUPTED, verify_command
    from autodist.verify.proof import verify
    from autodist.verify.verdict import Finding, Outcome, Verdict, WorldVerdict

__all__ = ["INTERRUPTED", "Finding", "Outcome", "Verdict", "WorldVerdict", "verify", "verify_command"]

_HOMES = {
    "verify": "proof",
    "verify_command": "command",
    "INTERRUPTED": "command",
    "Finding": "verdict",
    "Outcome": "verdict",
    "Verdict": "verdict",
    "WorldVerdict": "verdict",
}


def __getattr__(name: str) -> Any:
    """Names are imported when they are asked for: the probes load this package in the user's process."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
