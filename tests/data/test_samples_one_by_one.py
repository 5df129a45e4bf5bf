"""Steps that go over their samples one by one: each rank takes its share of the rounds, or it is told why it cannot."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from conftest import converted

from autodist.config import Strategy
from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import random

import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
data = [(torch.randn(random.randint(3, 7), 5), torch.randint(0, 3, (1,))) for _ in range(60)]
batch_size = 8
CACHE = []


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(5, 8)
        self.out = nn.Linear(8, 3)
        self.extra = nn.Linear(8, 8)
        self.state = self.begin()
        self.kept = []

    def begin(self):
        return torch.zeros(1, 1, 8), torch.zeros(1, 1, 8)

    def forward(self, sentence):
{forward}

    def score(self, sentence, label):
        total = torch.zeros(1)
        for row in self(sentence):
            total = total + row[label]
        return total


model = Tagger()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    random.shuffle(data)
    for start in range(0, len(data), batch_size):
        batch = data[start : start + batch_size]
        optimizer.zero_grad()
{body}
        optimizer.step()
        print(float(loss))
"""
LAST = "out, _ = self.lstm(sentence.unsqueeze(1))\nreturn self.out(self.extra(out[-1]))"
FRESH = """\
self.state = self.begin()
out, self.state = self.lstm(sentence.unsqueeze(1), self.state)
return self.out(self.extra(out[-1]))"""
KEPT = """\
out, state = self.lstm(sentence.unsqueeze(1), self.state)
self.state = tuple(each.detach() for each in state)
return self.out(self.extra(out[-1]))"""
BRANCH = """\
out = self.lstm(sentence.unsqueeze(1))[0][-1]
return self.out(self.extra(out) if len(sentence) > 6 else out)"""
DROPPED = "out, _ = self.lstm(sentence.unsqueeze(1))\nreturn self.out(nn.functional.dropout(out[-1]))"
SUM = "loss = 0.0\nfor x, y in batch:\n    loss += criterion(model(x), y)\n"
PENALTY = "0.01 * sum(p.pow(2).sum() for p in model.parameters())"

SHARED = {
    "sum": (LAST, SUM + "loss.backward()"),
    "divided": (LAST, SUM + "(loss / batch_size).backward()"),
    "in place": (LAST, SUM + "loss /= len(batch)\nloss.backward()"),
    "numbers": (
        LAST,
        SUM.replace("x, y in batch", "x, y in (data[i] for i in range(start, start + 4))") + "loss.backward()",
    ),
    "places": (
        LAST,
        "loss = 0.0\nfor i in range(len(batch)):\n    x, y = batch[i]\n    loss = loss + criterion(model(x), y)\n"
        "loss.backward()",
    ),
    "forward": (LAST, SUM.replace("criterion(model(", "criterion.forward(model.forward(") + "loss.backward()"),
    "comprehension": (LAST, "loss = sum(criterion(model(x), y) for x, y in batch[:4])\nloss.backward()"),
    "counted": (LAST, SUM.replace("0.0", "n = 0.0").replace("0.0", "0") + "    n += len(x)\n(loss / n).backward()"),
    "penalty behind": (LAST, SUM + f"loss = loss + {PENALTY}\nloss.backward()"),
    "penalty ahead": (LAST, SUM.replace("0.0", PENALTY) + "loss.backward()"),
    "each backward": (
        LAST,
        "loss = 0.0\nfor x, y in batch[:4]:\n    one = criterion(model(x), y) / 4\n    one.backward()\n"
        "    loss += one.item()",
    ),
    "state made anew": (FRESH, SUM + "loss.backward()"),
    "state made anew outside": (
        KEPT,
        SUM.replace("    loss", "    model.state = model.begin()\n    loss") + "loss.backward()",
    ),
    "other parts": (BRANCH, SUM + "loss.backward()"),
    "another method": (
        LAST,
        "loss = 0.0\nfor x, y in batch:\n    loss = loss + model.score(x, y)\nloss.backward()",
    ),
    "stacked": (
        LAST,
        "losses = []\nfor x, y in batch[:4]:\n    losses.append(criterion(model(x), y))\n"
        "loss = torch.stack(losses).mean()\nloss.backward()",
    ),
    "quotient of losses": (
        LAST,
        SUM.replace("0.0", "size = 0.0") + "    size += model(x).pow(2).mean()\nloss = loss / size\nloss.backward()",
    ),
    "begun with what is learnt": (
        LAST,
        SUM.replace("0.0", PENALTY).replace("loss +=", "loss = loss +") + "loss.backward()",
    ),
}
APART = {
    "state": (KEPT, SUM + "loss.backward()", "self.state holds what an earlier round has left"),
    "kept in a list": (
        "out, _ = self.lstm(sentence.unsqueeze(1))\nself.kept.append(out[-1].detach())\n"
        "return self.out(self.extra(out[-1] + self.kept[0]))",
        SUM + "loss.backward()",
        "self.kept holds what an earlier round has left",
    ),
    "kept outside": (
        "out, _ = self.lstm(sentence.unsqueeze(1))\nCACHE.append(out[-1].detach())\n"
        "return self.out(self.extra(out[-1] + sum(CACHE)))",
        SUM + "loss.backward()",
        "CACHE holds what an earlier round has left",
    ),
    "hidden": (
        LAST,
        "loss, h = 0.0, torch.zeros(1, 3)\nfor x, y in batch:\n    h = model(x) + 0.5 * h\n"
        "    loss += criterion(h, y)\nloss.backward()",
        "h holds what an earlier round has left",
    ),
    "the last alone": (
        LAST,
        "for x, y in batch:\n    loss = criterion(model(x), y)\nloss.backward()",
        "takes no sum or mean of their losses",
    ),
    "left early": (
        LAST,
        SUM + "    if loss > 9:\n        break\nloss.backward()",
        "the loop may end before its last sample",
    ),
    "dropout": (
        DROPPED.replace("dropout(out[-1])", "dropout(out[-1] + torch.rand(1))"),
        SUM.replace("loss = 0.0", "batch = [batch[i] for i in torch.randperm(len(batch))]\nloss = 0.0")
        + "loss.backward()",
        "from the generator that the order of the samples comes from",
    ),
    "chance": (
        LAST,
        SUM.replace("    loss", "    x = x * 2 if random.random() > 0.5 else x\n    loss") + "loss.backward()",
        "random.random() draws in each round",
    ),
    "the largest": (
        LAST,
        "losses = []\nfor x, y in batch:\n    losses.append(criterion(model(x), y))\nloss = torch.stack(losses).max()\n"
        "loss.backward()",
        "takes no sum or mean of their losses",
    ),
    "clipped each": (
        LAST,
        "for x, y in batch:\n    loss = criterion(model(x), y)\n    loss.backward()\n"
        "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "clips the gradients of one sample, or of all so far",
    ),
    "taken one by one": (
        LAST,
        "loss, queue = 0.0, list(batch)\nfor _ in range(4):\n    x, y = queue.pop()\n"
        "    loss += criterion(model(x), y)\nloss.backward()",
        "queue.pop() takes what comes next",
    ),
}


def script(forward: str, body: str) -> str:
    return SCRIPT.format(forward=indent(forward, " " * 8), body=indent(body, " " * 8))


@pytest.mark.parametrize("name", SHARED)
def test_each_rank_takes_its_share(tmp_path: Path, zygote: Zygote | None, name: str) -> None:
    (tmp_path / "converted").mkdir()
    after, said = converted(tmp_path, script(*SHARED[name]))
    assert "local_samples(" in after, said
    assert "AD602" not in said, said
    (tmp_path / "converted" / "train.py").write_text(after)
    verdict = verify(
        tmp_path / "train.py", tmp_path / "converted" / "train.py", [2], workdir=tmp_path, timeout=100, zygote=zygote
    )
    assert verdict.equal, verdict.findings


@pytest.mark.parametrize("name", APART)
def test_rounds_that_belong_together(tmp_path: Path, name: str) -> None:
    forward, body, reason = APART[name]
    assert reason in converted(tmp_path, script(forward, body))[1]


def test_uneven_shares_where_one_backward_pass_follows(tmp_path: Path) -> None:
    """Backward passes are counted by the wrapper, samples are not."""
    after, _ = converted(tmp_path, script(*SHARED["sum"]))
    assert "assert len(samples) >= dist.get_world_size()" in after
    after, _ = converted(tmp_path, script(*SHARED["each backward"]))
    assert "assert len(samples) % dist.get_world_size() == 0" in after


def test_gradients_of_several_rounds_of_a_loop(tmp_path: Path) -> None:
    text = script(LAST, "")
    head, tail = text.split("    for start in range")[0], "    print(epoch)\n"
    loop = """\
    for i, (x, y) in enumerate(data):
        criterion(model(x), y).backward()
        if (i + 1) % batch_size == 0:
            optimizer.step()
            optimizer.zero_grad()
"""
    assert "until a condition asks for a step" in converted(tmp_path, head + loop + tail)[1]


def test_models_are_no_samples(tmp_path: Path) -> None:
    text = script(
        LAST, "nets = [model]\nloss = sum(criterion(net(data[0][0]), data[0][1]) for net in nets)\nloss.backward()"
    )
    assert "local_samples" not in converted(tmp_path, text)[0]


def test_sharded_models_pass_together(tmp_path: Path) -> None:
    assert "all ranks take part in each forward pass" in converted(tmp_path, script(*SHARED["sum"]), Strategy.FSDP)[1]


LOADER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
criterion = nn.CrossEntropyLoss({options})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = criterion.forward(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("", "loss = criterion.forward(model(x), y)\n    optimizer.zero_grad()\n    loss.backward()"),
        ("reduction='sum'", "(loss * dist.get_world_size()).backward()"),
        ("weight=torch.ones(3)", "weigh_by_count(criterion.forward(model(x), y), criterion.weight[y].sum())"),
    ],
)
def test_the_forward_of_a_loss_is_the_loss(tmp_path: Path, options: str, wanted: str) -> None:
    after, said = converted(tmp_path, LOADER.format(options=options))
    assert wanted in after
    assert "AD602" not in said
