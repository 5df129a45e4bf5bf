"""Numbers that a model's forward pass draws once for its batch: layers left out, words that a teacher gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, launched

from autodist.config import Strategy

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self, p=0.5):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)])
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(4, 1)
        self.p = p

    def forward(self, x):
        x = self.drop(x)
{body}
        return self.head(x)


train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    model.train()
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        print(nn.functional.mse_loss(model(train_set.tensors[0]), train_set.tensors[1]).item())
"""
LEFT_OUT = """\
        for layer in self.layers:
            if self.training and torch.rand(1) < self.p:
                continue
            x = x + layer(x)"""


def result(folder: Path, body: str, strategy: Strategy = Strategy.DDP) -> str:
    return converted(folder, SCRIPT.format(body=body), strategy)[0]


@pytest.mark.parametrize(
    ("drawn", "common"),
    [
        ("torch.rand(1)", "drawn_by_rank_zero(torch.rand(1)) < self.p"),
        ("torch.rand(1).item()", "drawn_by_rank_zero(torch.rand(1)).item() < self.p"),
        ("torch.rand(1, device=x.device)", "drawn_by_rank_zero(torch.rand(1, device=x.device)) < self.p"),
        (
            "torch.distributions.Uniform(0.0, 1.0).sample()",
            "drawn_by_rank_zero(torch.distributions.Uniform(0.0, 1.0).sample())",
        ),
        ("torch.empty(1).uniform_()", "drawn_by_rank_zero(torch.empty(1).uniform_()) < self.p"),
    ],
)
def test_layers_are_left_out_on_all_ranks(tmp_path: Path, drawn: str, common: str) -> None:
    """Each rank left out others, once masks of dropout differed by rank."""
    code = result(tmp_path, LEFT_OUT.replace("torch.rand(1)", drawn))
    assert common in code and "dropout and noise differ by rank" in code


@pytest.mark.parametrize(
    "body",
    [
        "        for i in range(len(x)):\n            x = x + i * (torch.rand(1) < self.p)",
        "        for t in range(x.shape[1]):\n            x = x * (torch.rand(1) < self.p)",
        "        width = x.size(1)\n        for t in range(width):\n            x = x * (torch.rand(1) < self.p)",
        "        t = 0\n        while t < x.size(1):\n            x, t = x * (torch.rand(1) < self.p), t + 1",
        "        x = torch.stack([row * torch.rand(1) for row in x])",
        "        x = x + torch.randn(4)",
        "        x = x + torch.randn_like(x)",
    ],
)
def test_what_is_drawn_for_samples_words_and_weights_is_not(tmp_path: Path, body: str) -> None:
    """Ranks may pad to different lengths, so that some would wait for others."""
    assert "drawn_by_rank_zero" not in result(tmp_path, body)


def test_sharded_layers_are_left_out_together(tmp_path: Path) -> None:
    """Ranks with different gradients cannot add up their shares: they aborted, or would have waited for ever."""
    pytest.importorskip("torch")
    (tmp_path / "train_fsdp.py").write_text(result(tmp_path, LEFT_OUT, Strategy.FSDP))
    assert len(launched(tmp_path, "train_fsdp.py", 2).splitlines()) == 2
