"""What a forward pass hands out in an object, or keeps: losses of models that compute their own."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers.modeling_outputs import CausalLMOutput, ModelOutput

Pair = namedtuple("Pair", ["loss", "logits"])


class Named(NamedTuple):
    loss: torch.Tensor
    logits: torch.Tensor


@dataclass
class Own(ModelOutput):
    loss: torch.Tensor = None
    logits: torch.Tensor = None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 20)
        self.kept = CausalLMOutput()
        self.last_loss = None

    def forward(self, tokens, targets=None):
        logits = self.head(self.embed(tokens))
        loss = F.cross_entropy(logits.view(-1, 20), targets.view(-1))
        {hand_out}


loader = DataLoader(TensorDataset(torch.randint(0, 20, (64, 5)), torch.randint(0, 20, (64, 5))), batch_size=8)
model = Net()
raw_model = model
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(2):
    for x, y in loader:
        out = model(x, y)
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
"""


@pytest.mark.parametrize(
    ("hand_out", "loss"),
    [
        ("return CausalLMOutput(loss=loss, logits=logits)", "out.loss"),
        ("return CausalLMOutput(loss=loss, logits=logits)", 'out["loss"]'),
        ("return CausalLMOutput(loss=loss, logits=logits)", "out[0]"),
        ("return Pair(loss, logits)", "out.loss"),
        ("return Named(loss=loss, logits=logits)", "out.loss"),
        ("return Own(loss=loss, logits=logits)", "out.loss"),
        ("return SimpleNamespace(loss=loss, logits=logits)", "out.loss"),
        ('return {"loss": loss, "logits": logits}', 'out["loss"]'),
        ('self.kept["loss"] = loss; return self.kept', "out.loss"),
        ('self.kept.__setitem__("loss", loss); return self.kept', "out.loss"),
        ("self.last_loss = loss; return logits", "model.last_loss"),
        ("self.last_loss = loss; return logits", "raw_model.last_loss"),
    ],
)
def test_losses_of_models(tmp_path: Path, hand_out: str, loss: str) -> None:
    """Gradients flow through the model, and what is printed is a mean over the samples."""
    after, said = conftest.converted(tmp_path, SCRIPT.replace("{hand_out}", hand_out).replace("{loss}", loss))
    assert "DDP(" in after and "print(reduce_mean(loss.item()))" in after
    assert "AD602" not in said
    reached = loss.replace("model.", "model.module.") if "last_loss" in loss else loss
    assert f"loss = {reached}\n" in after


ROTATED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def beside(freqs, x):
    shape = [size if axis in (1, x.ndim - 1) else 1 for axis, size in enumerate(x.shape)]
    return freqs.view(shape)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.head = nn.Linear(8, 20)
        self.register_buffer("cos", torch.rand(5, 4))
        self.register_buffer("sin", torch.rand(5, 4))

    def forward(self, tokens):
        q = self.embed(tokens)
        real, imaginary = q.float().reshape(q.shape[:-1] + (-1, 2)).unbind(-1)
        cos, sin = beside(self.cos, real), beside(self.sin, real)
        turned = torch.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], dim=-1)
        return self.head(turned.flatten(2))


loader = DataLoader(TensorDataset(torch.randint(0, 20, (64, 5)), torch.randint(0, 20, (64, 5))), batch_size=8)
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for x, y in loader:
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_rotary_embeddings(tmp_path: Path) -> None:
    """Frequencies that are laid beside a batch, by a list of its sizes, are no statistic of it."""
    after, said = conftest.converted(tmp_path, ROTATED)
    assert "DDP(" in after and "AD602" not in said
