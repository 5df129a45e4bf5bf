"""Why a step has no batch: the reason is the author's, and names what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.analyze import analyze
from autodist.config import Config
from autodist.project import Project

START = "import torch\nfrom torch import nn\n"
CASES = [
    (
        "image = torch.rand(1, 3, 8, 8).clone().requires_grad_(True)\n"
        "optimizer = torch.optim.Adam([image], lr=0.1)\n"
        "for step in range(9):\n"
        "    loss = (image ** 2).mean()\n"
        "    optimizer.zero_grad()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n",
        "optimises image, and no model",
    ),
    (
        "x, y = torch.randn(9, 3), torch.randn(9, 2)\n"
        "model = nn.Linear(3, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "loss = nn.functional.mse_loss(model(x), y)\n"
        "loss.backward()\n"
        "optimizer.step()\n",
        "takes a single step, outside of any loop",
    ),
    (
        "data, labels = torch.load('train.pt')\n"
        "model = nn.Linear(3, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for i in range(9):\n"
        "    x, y = data[[i]], labels[[i]]\n"
        "    loss = nn.functional.mse_loss(model(x), y)\n"
        "    optimizer.zero_grad()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n",
        "data[[i]] has one sample, which cannot be shared out",
    ),
    (
        "from torch_geometric.nn import GATConv\n"
        "graph = torch.load('graph.pt')\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv = GATConv(3, 2)\n"
        "    def forward(self, x, edges):\n"
        "        return self.conv(x, edges)\n"
        "model = Net()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for epoch in range(9):\n"
        "    out = model(graph.x, graph.edge_index)\n"
        "    loss = nn.functional.cross_entropy(out, graph.y)\n"
        "    optimizer.zero_grad()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n",
        "a whole graph, whose nodes depend on each other (GATConv)",
    ),
    (
        "import readings\n"
        "x, y = readings.all()\n"
        "model = nn.Linear(3, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for epoch in range(9):\n"
        "    loss = nn.functional.mse_loss(model(x), y)\n"
        "    optimizer.zero_grad()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n",
        "cannot see of x, made by readings.all(), which of its axes the samples lie along",
    ),
]


@pytest.mark.parametrize(("script", "reason"), CASES, ids=[reason.split(",")[0] for _, reason in CASES])
def test_the_reason_is_told(tmp_path: Path, script: str, reason: str) -> None:
    entry = tmp_path / "train.py"
    entry.write_text(START + script)
    concerns = analyze(Project.load(entry), Config()).concerns
    assert [c.code for c in concerns] == ["AD902"]
    assert reason in concerns[0].message
