"""Fields of the ground and the pressure that a well builds up in them over time, as neural operators learn it."""

from __future__ import annotations

from pathlib import Path

import torch

SAMPLES, HEIGHT, WIDTH, TIMES, CHANNELS = 12, 16, 24, 8, 12


def write(folder: Path) -> None:
    """``dP_train_a.pt`` (samples, height, width, times, channels), of which the rows below a depth of its own are 0 in
    the first channel and the last three are coordinates, and ``dP_train_u.pt`` without channels."""
    generator = torch.Generator().manual_seed(0)
    fields = torch.rand(SAMPLES, HEIGHT, WIDTH, TIMES, CHANNELS, generator=generator) + 0.1
    for number in range(SAMPLES):
        fields[number, 8 + number % 6 :, :, :, 0] = 0
    axes = torch.meshgrid(*(torch.linspace(0.1, 1, size) for size in (HEIGHT, WIDTH, TIMES)), indexing="ij")
    for channel, axis in zip((-2, -3, -1), axes, strict=True):
        fields[..., channel] = axis
    pressure = fields[..., 0] * torch.sin(3 * axes[1]) * axes[2] + 0.1
    torch.save(fields, folder / "dP_train_a.pt")
    torch.save(pressure, folder / "dP_train_u.pt")
