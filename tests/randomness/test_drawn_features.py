"""Features that a step draws out of a batch made elsewhere, as nodes of a graph that all samples have."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import numpy as np
import torch
from torch import nn

inputs, targets = torch.randn(64, 3, 8), torch.randn(64, 8)


def batches(size):
    order, start = torch.randperm(len(inputs)), 0
    while start < len(inputs):
        chosen = order[start : start + size]
        yield inputs[chosen], targets[chosen]
        start += size


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes, self.layers = nn.Embedding(8, 4), nn.ModuleList()
        self.layers.append(nn.Linear(3, 1))

    def forward(self, x, chosen):
        nodes = self.nodes(chosen)
        near = torch.softmax(torch.mm(nodes, nodes.transpose(1, 0)), dim=1)
        x = torch.einsum("ncv,vw->ncw", x, near)
        return self.layers[0](x.transpose(1, 2)).squeeze(2)


def main():
    model = Graph()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches(8):
        order = np.random.permutation(8)
        for part in range(2):
            chosen = torch.tensor(order[part * 4 : (part + 1) * 4])
            out, wanted = model(x[:, :, chosen], chosen), y[:, chosen]
            loss = nn.functional.l1_loss(out, wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


for run in range(2):
    main()
"""


def test_nodes_of_a_graph(tmp_path: Path) -> None:
    """They are no samples: ranks share out the batches, and draw the same nodes."""
    after, said = conftest.converted(tmp_path, SCRIPT)
    assert "for x, y in map(local_rows, batches(8)):" in after
    assert "np.random.seed(torch.initial_seed() % 2**32)" in after
    assert "chosen = torch.tensor(order[part * 4 : (part + 1) * 4])\n" in after and "AD90" not in said


def test_a_model_that_is_made_for_each_of_several_runs(tmp_path: Path) -> None:
    """It is given its layers while it is made, and not during the training before."""
    after, said = conftest.converted(tmp_path, SCRIPT)
    assert "model = DDP(Graph()" in after and "AD404" not in said


@pytest.mark.parametrize("change", [("y[:, chosen]", "y[chosen]"), ("x[:, :, chosen]", "x[chosen]")])
def test_samples_that_are_drawn_out_of_a_batch(tmp_path: Path, change: tuple[str, str]) -> None:
    """What also picks along the first axis may pick samples."""
    after, said = conftest.converted(tmp_path, SCRIPT.replace(*change))
    assert "map(local_rows" not in after or "AD60" in said
