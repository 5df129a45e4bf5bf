"""Tell from the bytes of a file, before anything is parsed or imported, that it trains nothing."""

from __future__ import annotations

TRAINING = (b"backward", b"ptim", b"DataLoader", b"torch.distributed")


def may_train(data: bytes) -> bool:
    """Whether a file may hold training: it speaks of torch, and of gradients, an optimizer, a loader or ranks."""
    return b"torch" in data and any(word in data for word in TRAINING)
