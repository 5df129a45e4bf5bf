"""Steps that take a whole graph, whose nodes depend on each other: ranks learn from shares of the nodes."""

from __future__ import annotations

from pathlib import Path

import conftest

GRAPH = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 4)
        EXTRA

    def forward(self, x, adj):
        x = F.dropout(F.relu(torch.spmm(adj, self.first(x))), 0.5, training=self.training)
        return torch.spmm(adj, self.second(x))


def load_data():
    table = np.load("features.npy")
    adj = torch.from_numpy(np.load("adj.npy"))
    features, labels = torch.FloatTensor(table), torch.LongTensor(np.load("labels.npy"))
    return adj, features, labels, torch.LongTensor(range(140)), torch.LongTensor(range(200, 500))


torch.manual_seed(1)
adj, features, labels, idx_train, idx_val = load_data()
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def train(epoch):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss = F.cross_entropy(output[idx_train], labels[idx_train])
    loss.backward()
    optimizer.step()
    model.eval()
    output = model(features, adj)
    print(epoch, loss.item(), F.cross_entropy(output[idx_val], labels[idx_val]).item())


for epoch in range(20):
    train(epoch)
"""


TRAINED = "F.cross_entropy(output[idx_train], labels[idx_train])"
OWN = "F.cross_entropy(output[idx_train[rows]], labels[idx_train[rows]]) * row_weight(len(idx_train))"


def test_a_rank_learns_from_its_share_of_the_nodes(tmp_path: Path) -> None:
    """The nodes whose numbers a step picks are shared out, of what the model gives for all of them."""
    after, _ = conftest.converted(tmp_path, GRAPH.replace("EXTRA", ""))
    assert f"loss = {OWN}" in after
    assert "output = model(features, adj)" in after


def test_dropout_drops_the_same_nodes_on_all_ranks(tmp_path: Path) -> None:
    """All ranks see the whole graph, so that masks are those of one process, and reports agree with it."""
    after, _ = conftest.converted(tmp_path, GRAPH.replace("EXTRA", ""))
    assert "torch.initial_seed()" not in after


def test_statistics_of_the_whole_graph_are_not_synchronised(tmp_path: Path) -> None:
    """Each rank normalises by all nodes; counted once for each rank, the unbiased variance would be another one."""
    norm = "self.norm = nn.BatchNorm1d(16)"
    code = GRAPH.replace("EXTRA", norm).replace("self.first(x))", "self.norm(self.first(x)))")
    assert "SyncBatchNorm" not in conftest.converted(tmp_path, code)[0]


def test_a_mask_of_nodes_is_turned_into_their_numbers(tmp_path: Path) -> None:
    """`data.train_mask` of a library may be a mask, whose share would fit no output."""
    code = GRAPH.replace("EXTRA", "").replace("idx_train", "data.train_mask").replace("data.train_mask,", "idx,")
    code = code.replace("optimizer = ", "data = graphs.load()\noptimizer = ").replace(
        "import numpy", "import graphs, numpy"
    )
    after, _ = conftest.converted(tmp_path, code)
    assert "output[picked(data.train_mask)[rows]], labels[picked(data.train_mask)[rows]]" in after
    assert "* row_weight(len(picked(data.train_mask)))" in after
    assert "index.nonzero().flatten() if index.dtype == torch.bool else index" in after


def test_numbers_computed_from_the_rows_are_no_share(tmp_path: Path) -> None:
    """A condition on the rows themselves says nothing of how many a rank has."""
    code = GRAPH.replace("EXTRA", "").replace(TRAINED, "F.cross_entropy(output[labels > 0], labels[labels > 0])")
    assert "row_weight" not in conftest.converted(tmp_path, code)[0]
