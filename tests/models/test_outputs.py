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


FINE_TUNED = """\
import random
import sys

import torch
import transformers
from torch.utils.data import DataLoader, TensorDataset

fp16 = "--fp16" in sys.argv
if fp16:
    from apex import amp

torch.manual_seed(0)
random.seed(0)
model = transformers.GPT2LMHeadModel(config=transformers.GPT2Config(n_embd=16, n_head=2, n_layer=1, vocab_size=30))
optimizer = torch.optim.AdamW(model.parameters())
tokens = [random.randint(0, 29) for _ in range(400)]
samples = [tokens[i : i + 8] for i in range(0, 392, 8)]
loader = DataLoader(TensorDataset(torch.tensor(samples)), batch_size=8)
for epoch in range(2):
    {batches}
        {outputs}
        if fp16:
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
        else:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())
"""
LOADED = "for (x,) in loader:"
BY_HAND = "for i in range(len(samples) // 8):\n        x = torch.tensor(samples[i * 8 : (i + 1) * 8])"


@pytest.mark.parametrize("batches", [LOADED, BY_HAND])
@pytest.mark.parametrize(
    "outputs",
    [
        "outputs = model(input_ids=x, labels=x); loss, logits = outputs[:2]",
        "outputs = model.forward(input_ids=x, labels=x); loss, logits = outputs[:2]",
        "loss, logits = model(input_ids=x, labels=x)[:2]",
        "loss, logits = model(input_ids=x, labels=x, return_dict=False)",
        "loss, logits, *_ = model(input_ids=x, labels=x)",
        "loss = model(input_ids=x, labels=x).loss",
    ],
)
def test_models_of_transformers(tmp_path: Path, batches: str, outputs: str) -> None:
    """The loss comes first; batches that a script cuts itself are shared out to them as to others."""
    text = FINE_TUNED.replace("{batches}", batches).replace("{outputs}", outputs)
    after, said = conftest.converted(tmp_path, text)
    assert "DDP(" in after and "print(reduce_mean(loss.item()))" in after, said
    assert "AD604" in said and "what its labels do not leave out" not in said
    assert ("DistributedSampler" in after) == (batches == LOADED)
