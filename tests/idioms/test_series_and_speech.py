"""Series and speech: padding, packed sequences, loops through a batch by its size, models called by `forward`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import differences

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.result import Result
from autodist.verify.launch import Zygote

START = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4, 6), torch.randn(64, 4, 6))
batch_size = 8
loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)
model = nn.Linear(6, 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""
STEP = """
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def converted(tmp_path: Path, script: str, strategy: Strategy = Strategy.DDP) -> Result:
    """A script, converted."""
    path = tmp_path / "train.py"
    path.write_text(script)
    return convert(Project.load(path), Config(strategy=strategy))


def warnings(result: Result) -> list[str]:
    """What is warned of, or refused."""
    return [d.message for d in result.diagnostics if d.severity.value in ("warning", "refusal")]


FORWARD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.out.forward(torch.relu(self.layer.forward(x)))


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model.forward(x), y)
"""


def test_forward_is_called_by_name(tmp_path: Path) -> None:
    """DistributedDataParallel has a `forward` of its own, which synchronises gradients as a call does."""
    after = converted(tmp_path, FORWARD + STEP).entry.after
    assert "model = DDP(Net()" in after and "average_gradients" not in after
    assert "model(x)" in converted(tmp_path, FORWARD + STEP, Strategy.FSDP).entry.after, "its hooks run in calls"


def test_model_within_a_trainer_is_called_by_forward(tmp_path: Path) -> None:
    """A class that keeps the model and an optimizer around another one: gradients were averaged nowhere."""
    body, _, loop = FORWARD.partition("loader =")
    trainer = """
class Around(torch.optim.Optimizer):
    def __init__(self, optimizer):
        self.optimizer, self.param_groups = optimizer, optimizer.param_groups

    def step(self, closure=None):
        return self.optimizer.step(closure)


class Trainer:
    def __init__(self, model):
        self.model = model

    def fit(self, loader):
        self.optimizer = Around(torch.optim.SGD(self.model.parameters(), lr=0.1))
        for x, y in loader:
            loss = nn.functional.mse_loss(self.model.forward(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


"""
    made = "loader =" + loop.partition("model =")[0] + "Trainer(Net()).fit(loader)\n"
    after = converted(tmp_path, body + trainer + made).entry.after
    assert "self.model = DDP(model" in after and "dist.broadcast(" not in after


def test_model_is_a_script_module(tmp_path: Path) -> None:
    """Lists that TorchScript is told the type of are lists."""
    script = """
from typing import List

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.jit.ScriptModule):
    def __init__(self):
        super().__init__()
        self.cell, self.score, self.out = nn.LSTMCell(4, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    @torch.jit.script_method
    def forward(self, x):
        h, c = torch.zeros(x.size(0), 8), torch.zeros(x.size(0), 8)
        states = torch.jit.annotate(List[torch.Tensor], [])
        for step in range(3):
            h, c = self.cell(x[:, step, :], (h, c))
            states += [h]
        states = torch.stack(states).permute(1, 0, 2)
        weights = torch.softmax(self.score(states), dim=1)
        return self.out(torch.sum(weights * states, dim=1))


loader = DataLoader(TensorDataset(torch.randn(64, 3, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
"""
    result = converted(tmp_path, script + STEP)
    assert "model = DDP(Net()" in result.entry.after and not warnings(result)


@pytest.mark.parametrize(
    ("parameters", "given", "shared"),
    [("*args, **kwargs", "*args, **kwargs", True), ("*args, **kwargs", "*args", False)],
)
def test_loader_class_hands_on_what_it_is_given(tmp_path: Path, parameters: str, given: str, shared: bool) -> None:
    """Where it is called stands what there is to share out."""
    script = START.replace(
        "train_set =",
        f"""
class Graphs(DataLoader):
    def __init__(self, {parameters}):
        super().__init__({given})


train_set =""",
        1,
    ).replace("loader = DataLoader(", "loader = Graphs(")
    loop = "for epoch in range(2):\n    for x, y in loader:\n        loss = nn.functional.mse_loss(model(x), y)"
    result = converted(tmp_path, script + loop + STEP)
    assert ("sampler=DistributedSampler(train_set, seed=" in result.entry.after) is shared
    assert bool(warnings(result)) is not shared


BATCHES = """
import torch
from torch import nn


def batches(x, y):
    for i in range(0, 64, 8):
        yield x[i : i + 8], y[i : i + 8]


x, y = torch.randn(64, 3, 4), torch.randn(64, 3)
model = nn.Linear(4, 1)
inner = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = inner
for epoch in range(2):
    for inputs, targets in batches(x, y):
        loss = nn.functional.mse_loss(model(inputs).view(-1), targets.view(-1))
"""


def test_rows_lie_side_by_side_for_view(tmp_path: Path) -> None:
    """Every N-th row of a tensor of several axes does not, and `view` refuses."""
    after = converted(tmp_path, BATCHES + STEP).entry.after
    assert 'if hasattr(rows, "contiguous"):' in after and "return rows.contiguous()" in after
    plain = BATCHES.replace("(inputs).view(-1)", "(inputs).squeeze(2)").replace("targets.view(-1)", "targets")
    assert "contiguous" not in converted(tmp_path, plain + STEP).entry.after


def test_optimizer_around_another_one(tmp_path: Path) -> None:
    """It was said to change a tensor."""
    around = BATCHES.replace(
        "import torch\n", "import sys\n\nimport torch\nfrom apex.optimizers import FP16_Optimizer\n", 1
    )
    around = around.replace("optimizer = inner", 'optimizer = FP16_Optimizer(inner) if "--half" in sys.argv else inner')
    assert not warnings(converted(tmp_path, around + STEP))


PER_SAMPLE = """
for epoch in range(2):
    for x, y in loader:
        pred = model(x)
        loss = 0
        for i in range(batch_size):
            loss += torch.norm({pred} - {y}) / torch.norm({y})
"""


@pytest.mark.parametrize("at", ["[i]", "[i, ...]", "[i, :, :]"])
def test_loop_through_a_batch_by_its_size(tmp_path: Path, at: str) -> None:
    """It takes a rank's samples, and the loss is their sum."""
    result = converted(tmp_path, START + PER_SAMPLE.format(pred=f"pred{at}", y=f"y{at}") + STEP)
    assert "for i in range(batch_size // dist.get_world_size()):" in result.entry.after
    assert "(loss * dist.get_world_size()).backward()" in result.entry.after and not warnings(result)


HITS = "pred[i].argmax() == target[i].argmax()"


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize(
    "count",
    [
        f"for i in range(batch_size):\n            if {HITS}:\n                hits += 1",
        "for i in range(0, batch_size):\n            if pred[i].sum() > target[i].sum():\n                hits += 1",
        f"hits += sum({HITS} for i in range(batch_size))",
        f"hits += len([1 for i in range(batch_size) if {HITS}])",
        f"guesses = [{HITS} for i in range(batch_size)]\n        hits += sum(guesses)",
    ],
)
def test_loop_through_a_drawn_batch_by_its_size(tmp_path: Path, size: int, count: str) -> None:
    """It went on through as many samples as all ranks have."""
    script = START.replace("batch_size = 8", f"batch_size = {size}") + f"""
xs, ys = torch.randn(64, 4), torch.randn(64, 4)
for epoch in range(2):
    hits = 0
    order = torch.randperm(64)
    for start in range(0, 64, batch_size):
        index = order[start : start + batch_size]
        given, target = xs[index], ys[index]
        pred = model(given)
        loss = nn.functional.mse_loss(pred, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {count}
    print(hits / 64)
"""
    result = converted(tmp_path, script)
    assert re.search(r"for i in range\((0, )?batch_size // dist.get_world_size\(\)\)", result.entry.after)
    assert "reduce_sum(hits)" in result.entry.after and not warnings(result)


def test_loop_through_shared_and_whole_batches_is_refused(tmp_path: Path) -> None:
    """One number would be right for one of them only."""
    script = START + """
test_loader = DataLoader(train_set, batch_size=batch_size)


def relative(pred, y):
    loss = 0
    for i in range(batch_size):
        loss += torch.norm(pred[i] - y[i])
    return loss


for epoch in range(2):
    for x, y in loader:
        loss = relative(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        print(sum(relative(model(x), y).item() for x, y in test_loader))
"""
    assert any("range(batch_size) goes through whole batches" in each for each in warnings(converted(tmp_path, script)))


PADDED = """
import torch
from torch import nn
from torch.utils.data import DataLoader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.out = nn.Embedding(10, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)

    def forward(self, x, mask):
        h = self.embed(x)
{body}


def collate(batch):
    longest = int(max([len(batch[i][0]) for i in range(len(batch))]))
    x, mask = torch.zeros(len(batch), longest).long(), torch.zeros(len(batch), longest)
    for i in range(len(batch)):
        x[i, : len(batch[i][0])] = batch[i][0]
        mask[i, : len(batch[i][0])] = 1
    return x, mask, torch.stack([each[1] for each in batch])


data = [(torch.randint(1, 10, (3 + i % 5,)), torch.tensor(i % 2)) for i in range(64)]
loader = DataLoader(data, batch_size=8, shuffle=True, collate_fn=collate)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, mask, y in loader:
        loss = nn.functional.cross_entropy(model(x, mask), y)
"""


@pytest.mark.parametrize(
    ("body", "warned"),
    [
        (
            "        h = self.norm(h.permute(0, 2, 1)).permute(0, 2, 1) * mask.unsqueeze(2)\n"
            "        return self.out(h.max(dim=1)[0])",
            True,
        ),
        ("        h = (h * mask.unsqueeze(2)).max(dim=1)[0]\n        return self.out(self.norm(h))", False),
    ],
)
def test_batch_statistics_over_padding(tmp_path: Path, body: str, warned: bool) -> None:
    """Ranks fill up to other lengths; what was pooled before has no positions any more."""
    said = warnings(converted(tmp_path, PADDED.format(body=body) + STEP))
    assert any("batch statistics" in each for each in said) is warned, said


@pytest.mark.parametrize(
    "body",
    [
        "place = slice(i * batch_size, i * batch_size + len(y), 1)\n        truth[place] = y[:, 0, 0].numpy()",
        "place = np.arange(i * batch_size, i * batch_size + len(y))\n        truth[place] = y[:, 0, 0].numpy()",
        "truth[i * batch_size : (i + 1) * batch_size] = y[:, 0, 0].numpy()",
        "truth[i * 8 : i * 8 + y.size(0)] += y[:, 0, 0].numpy()",
    ],
)
def test_places_that_are_counted_by_a_slice(tmp_path: Path, zygote: Zygote | None, body: str) -> None:
    """Gathered rows do not fit into the place of a rank's own, but into that of all."""
    script = START.replace("import torch\n", "import numpy as np\nimport torch\n", 1) + f"""
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    truth = np.zeros(64)
    for i, (x, y) in enumerate(loader):
        {body}
    print(truth.argmax(), truth[-1])
"""
    assert differences(tmp_path, zygote, script) is None


def test_last_field_of_a_batch(tmp_path: Path) -> None:
    """`batch[-1]` is a field, as `batch[1]` is, and no last row."""
    script = START + """
for epoch in range(2):
    kept = []
    for batch in loader:
        target = batch[-1]
        loss = nn.functional.mse_loss(model(batch[0]), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        kept.extend(target.tolist())
    print(kept)
"""
    result = converted(tmp_path, script)
    assert "kept.extend(gather_rows(target).tolist())" in result.entry.after and not warnings(result)


@pytest.mark.parametrize(
    ("reads", "unused"),
    [("self.bert(x)[0].mean(1)", True), ("self.bert(x).last_hidden_state[:, 0]", True), ("self.bert(x)[1]", False)],
)
def test_pooling_layer_of_an_encoder(tmp_path: Path, reads: str, unused: bool) -> None:
    """It gets no gradient where the words' states are read, for which DistributedDataParallel would wait."""
    script = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertModel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = BertModel.from_pretrained("bert")
        self.out = nn.Linear(32, 2)

    def forward(self, x):
        return self.out({reads})


loader = DataLoader(TensorDataset(torch.ones(64, 4), torch.ones(64)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.long()), y.long())
"""
    after = converted(tmp_path, script + STEP).entry.after
    assert ("find_unused_parameters=True" in after) is unused


@pytest.mark.parametrize(
    "packed",
    [
        "nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)",
        "nn.utils.rnn.pack_padded_sequence(input=x, lengths=lengths, batch_first=True, enforce_sorted=False)",
    ],
)
def test_packed_by_name(tmp_path: Path, packed: str) -> None:
    """What is given by name is of a rank's samples, too: whether to step was for each rank to say."""
    script = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, x, lengths):
        packed = {packed}
        states, _ = nn.utils.rnn.pad_packed_sequence(sequence=self.rnn(packed)[0], batch_first=True, total_length=6)
        guess = self.out(states)
        return nn.functional.binary_cross_entropy_with_logits(guess, torch.ones_like(guess))


loader = DataLoader(TensorDataset(torch.randn(64, 6, 4), torch.full((64,), 6)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, lengths in loader:
        loss = model(x, lengths)
        optimizer.zero_grad()
        if loss > 0.15:
            loss.backward()
            optimizer.step()
"""
    after = converted(tmp_path, script).entry.after
    assert "if reduce_mean(loss) > 0.15:" in after and "RowsOfAllRanks" not in after  # all are six words long


def test_joined_by_name(tmp_path: Path) -> None:
    """`torch.cat(tensors=[x, x])`"""
    loop = """
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(torch.cat(tensors=[x, y], dim=2))[..., :6], y)
"""
    script = START.replace("nn.Linear(6, 6)", "nn.Linear(12, 6)") + loop + STEP + "    print(loss.item())\n"
    assert "print(reduce_mean(loss.item()))" in converted(tmp_path, script).entry.after
