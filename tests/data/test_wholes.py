"""Steps that train on all of the data: which may be dealt out row by row, and what mixes the rows."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.verify.launch import Zygote

SCRIPT = """
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

x, y, labels = torch.randn(30, 4), torch.randn(30, 1), torch.arange(30) % 3
adjacency, chosen = torch.rand(30, 30), torch.arange(0, 30, 2)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys, self.values = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        scores = torch.softmax(self.keys(x) @ x.transpose(-2, -1), -1)
        return scores @ self.values(x)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.out(self.rnn(x)[0])


class Rowwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = torch.relu(self.first(x)).view(x.size(0), 2, 4)
        h = torch.cat([h.mean(dim=1), h.max(dim=1)[0]], dim=1)
        return self.out(F.dropout(h, 0.1, self.training))


net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
attention, recurrent, rowwise = Attention(), Recurrent(), Rowwise()
classifier = nn.Linear(4, 3)
optimizer = torch.optim.SGD(MODEL.parameters(), lr=0.1)
criterion = nn.MSELoss()
for step in range(5):
    optimizer.zero_grad()
    LINE
    loss.backward()
    optimizer.step()
    print(loss.item())
"""

SHARED = [
    "loss = criterion(net(x), y)",
    "loss = criterion(net(x)[chosen], y[chosen])",
    "loss = ((net(x) - y) ** 2).mean()",
    "loss = ((net(x) - y) ** 2).sum() / len(x)",
    "loss = F.cross_entropy(classifier(x), labels)",
    "loss = -F.log_softmax(classifier(x), dim=1).gather(1, labels.unsqueeze(1)).mean()",
    "loss = criterion(rowwise(x), y) + 0.1 * rowwise.out.weight.norm()",
    "loss = (net(x) - y).abs().mean()",
    "mask = (y > 0).float(); loss = (((net(x) - y) ** 2) * mask).sum() / mask.sum()",
    "out, target = net(x).squeeze(1), y.squeeze(1); loss = criterion(out, target)",
    "loss = criterion(net(x[None]), y[None])",
    "loss = criterion(net(x[:, [0, 1, 2, 3]]), y[:, :1])",
    "loss = ((net(x) - y) ** 2).sum(); loss /= len(x)",
    "loss = criterion(net(F.pad(x[:, :3], (1, 0))), y)",
    "h = torch.zeros(size=(x.size(0), 4)); loss = criterion(net(h + x), y)",
    "loss = (nn.L1Loss() if step else nn.MSELoss())(net(x), y)",
    "h = torch.zeros(x.size(0), 4); h[:, 0] = x[:, 0]; out = net(h); loss = criterion(out, y)",
]
JOINED = [
    "loss = criterion(net(x).squeeze(1), y.squeeze(1))",
    "out = net(x); loss = ((out - out.mean()) ** 2).mean()",
    "out = net(x); loss = criterion(out / out.size(0), y)",
    "weights = (y > 0).float(); weights /= weights.mean(); loss = ((net(x) - y) ** 2 * weights).mean()",
    "out = net(x); out -= out.mean(0); loss = criterion(out, y)",
    "out = net(x); loss = ((out - y) ** 2).sum(); loss /= len(out)",
    "loss = torch.sqrt(criterion(net(x), y))",
    "loss = (net(x).mean(0) ** 2).mean()",
    "out = net(x); loss = (out * y).sum() / out.sum()",
    "loss = criterion(net(x), torch.randn(30, 1))",
    "loss = criterion(net(torch.cat([x, x])), torch.cat([y, y]))",
]
REFUSED = [
    "loss = criterion(adjacency @ net(x), y)",
    "loss = criterion(torch.mm(adjacency, net(x)), y)",
    "loss = criterion(attention(x), y)",
    "loss = criterion(recurrent(x), y)",
    "loss = criterion(net(x), y.squeeze(1))",
    "loss = ((net(x) - y.view(-1)) ** 2).mean()",
    "loss = criterion(net(torch.einsum('nm,mc->nc', adjacency, x)), y)",
    "out = net(x); loss = torch.einsum('ai,bi->ab', out, out).mean()",
    "loss = criterion(net(F.pad(x, (0, 0, 1, 0))), F.pad(y, (0, 0, 1, 0)))",
    "out = net(x); loss = criterion(out.softmax(0), y)",
    "loss = criterion(net(x).cumsum(0), y)",
    "loss = criterion(net(x).flip(0), y)",
    "loss = net(x).std()",
    "loss = criterion(torch.sort(net(x), 0)[0], y)",
    "loss = criterion(torch.roll(net(x), 1), y)",
    "loss = criterion(net(x)[1:], y[:-1])",
    "moved = torch.zeros_like(y); moved[1:] = net(x)[:-1]; loss = criterion(moved, y)",
]


def diagnose(line: str, folder: Path) -> set[str]:
    model = next(name for name in ("attention", "recurrent", "rowwise", "classifier", "net") if name in line)
    (folder / "train.py").write_text(SCRIPT.replace("LINE", line).replace("MODEL", model))
    result = convert(Project.load(folder / "train.py"), Config(Strategy.DDP))
    return {diagnostic.code for diagnostic in result.diagnostics}


@pytest.mark.parametrize("line", SHARED)
def test_rows_are_dealt_out(line: str, tmp_path: Path) -> None:
    codes = diagnose(line, tmp_path)
    assert "AD207" in codes and "AD902" not in codes


@pytest.mark.parametrize("line", JOINED)
def test_what_is_computed_of_all_rows_is_that_of_all_ranks(line: str, tmp_path: Path, zygote: Zygote) -> None:
    """Sums and means over a rank's rows are taken over all ranks, as those of the batches of a loader."""
    codes = diagnose(line, tmp_path)
    assert codes & {"AD205", "AD207"} and not codes & {"AD602", "AD902"}
    assert conftest.differences(tmp_path, zygote, SCRIPT.replace("LINE", line).replace("MODEL", "net")) is None


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("out = net(x); loss = torch.pdist(out).mean()", "AD902"),
        ("out = net(x); loss = (out.t() @ out).mean()", "AD603"),
        ("loss = criterion(np.vectorize(net)(x), y)", "AD904"),
    ],
)
def test_what_is_not_known_of_rows_is_told(line: str, code: str, tmp_path: Path) -> None:
    assert code in diagnose(line, tmp_path)


@pytest.mark.parametrize("line", REFUSED)
def test_mixed_rows_are_refused(line: str, tmp_path: Path) -> None:
    assert diagnose(line, tmp_path) == {"AD902"}


def test_rows_that_are_gone_through(tmp_path: Path) -> None:
    """Each is a sample of its own, and a rank goes through its share of them."""
    codes = diagnose("loss = sum(criterion(net(row), target) for row, target in zip(x, y))", tmp_path)
    assert "AD205" in codes and not codes & {"AD602", "AD902"}


def test_a_masked_mean_of_all_rows(tmp_path: Path) -> None:
    """It is weighed by what is not masked, and not by how many rows a rank has as well."""
    line = "mask = (y > 0).float(); loss = (((net(x) - y) ** 2) * mask).sum() / mask.sum()"
    (tmp_path / "train.py").write_text(SCRIPT.replace("LINE", line).replace("MODEL", "net"))
    code = convert(Project.load(tmp_path / "train.py"), Config(Strategy.DDP)).entry.after
    assert "/ mean_count(mask.sum())\n" in code and "row_weight" not in code


GRAPHS = """\
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(9, 4), nn.Linear(4, 2)

    def loss(self, batch):
        inputs = batch[:-1]
        labels = torch.cat(batch[-1])
        nodes, edges = inputs
        hidden = self.embed(torch.cat(nodes))
        hidden = hidden + torch.block_diag(*edges) @ hidden
        out = torch.stack([part.sum(0) for part in torch.split(hidden, 3)])
        return nn.functional.cross_entropy(self.out(out), labels)


def create():
    graphs = []
    for n in range(3, 30):
        label = torch.LongTensor([int(n % 2)])
        graphs.append((torch.LongTensor(np.arange(3)), torch.FloatTensor(np.eye(3)), label))
    return graphs


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self, dataset):
        np.random.shuffle(dataset)
        N = len(dataset)
        total = 0
        for i in range(0, N, 8):
            data_batch = list(zip(*dataset[i : i + 8]))
            loss = self.model.loss(data_batch)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total


trainer = Trainer(Net())
graphs = create()
for epoch in range(2):
    print(trainer.train(graphs))
"""


def test_samples_that_are_made_one_by_one_and_joined(tmp_path: Path) -> None:
    """What blocks of a matrix make of them is not known."""
    (tmp_path / "train.py").write_text(GRAPHS)
    (only,) = convert(Project.load(tmp_path / "train.py"), Config(Strategy.DDP)).diagnostics
    assert only.code == "AD902" and "torch.block_diag(*edges) @ hidden" in only.message


OF_ALL = """\
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(12, 4), torch.randn(12, 3)
{number}
net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(6):
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""


@pytest.mark.parametrize("number", ["n = x.shape[0]", "n, d = x.shape", "n = x.size()[0]", "n = x.shape[1]"])
@pytest.mark.parametrize("loss", ["(net(x) - y).pow(2).sum() / n", "(net(x) - y).pow(2).mean() / (2 * n)"])
def test_numbers_that_are_told_ahead(tmp_path: Path, zygote: Zygote | None, number: str, loss: str) -> None:
    text = OF_ALL.format(number=number, loss=loss)
    said = conftest.converted(tmp_path, text)[1]
    assert "AD602" not in said and "AD902" not in said
    assert conftest.differences(tmp_path, zygote, text) is None
