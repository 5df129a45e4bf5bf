"""Attention and layers that go along the axis of the samples, and those that only look as if they did."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(4, 8), nn.Linear(8, 3)
        {layer}

    def forward(self, x):
        b, n, d = x.shape
        e = self.embed(x)
{forward}
        return self.head(h.mean(1))


loader = DataLoader(TensorDataset(torch.randn(64, 5, 4), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def said_of(folder: Path, forward: str, layer: str = "pass") -> str:
    """What is said of a model's conversion."""
    return conftest.converted(folder, SCRIPT.format(layer=layer, forward=indent(forward, " " * 8)))[1]


@pytest.mark.parametrize(
    "forward",
    [
        "e = e.transpose(0, 1)\na = (e @ e.transpose(-2, -1)).softmax(-1)\nh = (a @ e).transpose(0, 1)",
        "e = e.permute(1, 0, 2)\na = torch.matmul(e, e.permute(0, 2, 1)).softmax(-1)\n"
        "h = torch.matmul(a, e).permute(1, 0, 2)",
        "q = e.transpose(0, 1)\nh = F.scaled_dot_product_attention(q, q, q).transpose(0, 1)",
        "q = e.mean(1).unsqueeze(0)\na = torch.bmm(q, q.transpose(1, 2)).softmax(-1)\n"
        "h = torch.bmm(a, q).squeeze(0).unsqueeze(1)",
        "q = e.view(b, n, 2, 4).permute(2, 1, 0, 3)\na = (q @ q.transpose(-2, -1)).softmax(-1)\n"
        "h = (a @ q).permute(2, 1, 0, 3).reshape(b, n, 8)",
    ],
)
def test_attention_from_sample_to_sample(tmp_path: Path, forward: str) -> None:
    assert "goes along the axis of the samples" in said_of(tmp_path, forward)


@pytest.mark.parametrize(
    ("layer", "forward"),
    [
        ("self.conv = nn.Conv1d(8, 8, 3, padding=1)", "h = self.conv(e.permute(1, 2, 0)).permute(2, 0, 1)"),
        ("self.conv = nn.Conv1d(5, 5, 3, padding=1)", "h = self.conv(e.transpose(0, 1)).transpose(0, 1)"),
    ],
)
def test_convolutions_along_the_samples(tmp_path: Path, layer: str, forward: str) -> None:
    assert "goes along the axis of the samples" in said_of(tmp_path, forward, layer)


@pytest.mark.parametrize(
    ("layer", "forward"),
    [
        ("self.mix = nn.Transformer(8, 2, 1, 1, 16)", "h = self.mix(e, e)"),
        ("self.mix = nn.TransformerEncoderLayer(8, 2, 16, 0.0, 'relu')", "h = self.mix(e)"),
        ("self.mix = nn.LSTM(8, 8, 1, True)", "h, _ = self.mix(e)"),
    ],
)
def test_options_by_position(tmp_path: Path, layer: str, forward: str) -> None:
    """`batch_first` is not among them."""
    assert "takes the axis of the samples for time, from one to the next" in said_of(tmp_path, forward, layer)


@pytest.mark.parametrize(
    ("layer", "forward"),
    [
        ("pass", "a = (e @ e.transpose(1, 2)).softmax(-1)\nh = a @ e"),
        ("pass", "h = F.scaled_dot_product_attention(e, e, e)"),
        (
            "pass",
            "q = e.view(b, n, 2, 4).permute(2, 0, 1, 3)\na = (q @ q.transpose(-2, -1)).softmax(-1)\n"
            "h = (a @ q).permute(1, 2, 0, 3).reshape(b, n, 8)",
        ),
        (
            "pass",
            "e = e.transpose(0, 1)\nq = e.reshape(n, b * 2, 4).transpose(0, 1)\n"
            "a = torch.bmm(q, q.transpose(1, 2)).softmax(-1)\n"
            "h = torch.bmm(a, q).transpose(0, 1).reshape(n, b, 8).transpose(0, 1)",
        ),
        ("self.mix = nn.Parameter(torch.randn(8, 8))", "h = (e.transpose(0, 1) @ self.mix).transpose(0, 1)"),
        ("self.mix = nn.LSTM(8, 8, 1, True, True)", "h, _ = self.mix(e)"),
        ("self.mix = nn.MultiheadAttention(8, 2)", "e = e.permute(1, 0, 2)\nh = self.mix(e, e, e)[0].permute(1, 0, 2)"),
        ("self.mix = nn.Conv1d(8, 8, 3, padding=1)", "h = self.mix(e.transpose(1, 2)).transpose(1, 2)"),
    ],
)
def test_each_sample_by_itself(tmp_path: Path, layer: str, forward: str) -> None:
    said = said_of(tmp_path, forward, layer)
    assert "AD906" not in said and "AD602" not in said
