"""A batch size that a model keeps for itself becomes a rank's share where the model shapes its state by it."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, hidden, batch_size):
        super().__init__()
        self.batch_size = batch_size
        self.hidden = hidden
        self.rnn = nn.GRU(4, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def start(self, size=None):
        {shaped}

    def forward(self, x):
        y, self.state = self.rnn(x, self.state)
        return self.out(y[:, -1])


parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
opt = parser.parse_args()
settings = {{"batch_size": opt.batch_size, "shuffle": True, "drop_last": True}}
loader = DataLoader(TensorDataset(torch.randn(64, 5, 4), torch.randn(64, 1)), {given})
model = Net(8, opt.batch_size)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    model.start()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
with torch.no_grad():
    model.start(64)
    print(model(torch.zeros(64, 5, 4)).mean())
"""
TOLD = """\
if size:
            batch_size = size
        else:
            batch_size = self.batch_size
        self.state = torch.zeros(1, batch_size, self.hidden)"""
OWN = "self.state = torch.zeros(1, self.batch_size, self.hidden)"


@pytest.mark.parametrize("given", ["**settings", "batch_size=opt.batch_size, shuffle=True"])
@pytest.mark.parametrize(
    ("shaped", "expected"),
    [
        (
            TOLD,
            "batch_size = self.batch_size // dist.get_world_size()\n        self.state = torch.zeros(1, batch_size, ",
        ),
        (OWN, "torch.zeros(1, self.batch_size // dist.get_world_size(), self.hidden)"),
    ],
)
def test_a_size_that_a_model_keeps(tmp_path: Path, given: str, shaped: str, expected: str) -> None:
    assert expected in converted(tmp_path, SCRIPT.format(shaped=shaped, given=given))[0]


GENERATOR = """\
import torch
from torch import nn

SIZE = 8


def batches():
    while True:
        first = torch.zeros((SIZE, 1))
        drawn = torch.randint(0, 9, (SIZE, 4))
        yield torch.cat((first, drawn), 1), torch.ones(SIZE, drawn.shape[1])


model = nn.Linear(5, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(4):
    x, mask = next(batches())
    loss = (model(x) * mask).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_batch_of_several_parts(tmp_path: Path) -> None:
    """What lies beside the part that is drawn is a rank's share of it, too."""
    code, _ = converted(tmp_path, GENERATOR)
    assert "torch.zeros((SIZE // dist.get_world_size(), 1))" in code
    assert "torch.ones(SIZE // dist.get_world_size(), drawn.shape[1])" in code
    assert "(SIZE, 4))[dist.get_rank() :: dist.get_world_size()]" in code


JOINED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

batch_size = 8
labelled = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(3, (64,))), batch_size, shuffle=True)
others = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x, y), (u,) in zip(labelled, others):
    out = model(torch.cat((x, u)))
    loss = nn.functional.cross_entropy(out[{first}], y) + out[{second}].pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("first", "second", "shares"),
    [
        (":batch_size", "batch_size:", 2),
        ("0:batch_size", "batch_size : 2 * batch_size", 3),
        (": len(x)", "len(x) :", 0),
        (":batch_size, :", "batch_size:, :", 2),
        (":, :batch_size", "len(x) :", 0),
    ],
)
def test_batches_that_are_joined_are_cut_where_a_rank_joined_them(
    tmp_path: Path, first: str, second: str, shares: int
) -> None:
    code, said = converted(tmp_path, JOINED.format(first=first, second=second))
    loop = code.partition("    out = ")[2]
    assert loop.count("batch_size // dist.get_world_size()") == shares and "AD602" not in said


NOISE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

size = 8


def noise(number, width=4):
    return torch.randn(number, width)


loader = DataLoader(TensorDataset(torch.randn(64, 2, 2), torch.randn(64, 1)), batch_size=size, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.resize(size, 4) + noise(size)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_size_that_a_function_draws_by(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, NOISE)
    assert "x.resize(size // dist.get_world_size(), 4) + noise(size // dist.get_world_size())" in code
    assert "torch.randn(number, width)" in code


MODEL = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

batch_size = 8


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        batch_size, size = x.data.size()
        return self.layer(x.view(batch_size, 1, size)).squeeze(1)


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=batch_size, shuffle=True)
model = Net()
print(model(torch.rand(batch_size, 4)).shape)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_size_that_is_read_off_a_tensor(tmp_path: Path) -> None:
    """It is a rank's own already, also where the model was tried before."""
    assert "x.view(batch_size, 1, size)" in converted(tmp_path, MODEL)[0]


SHARED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


{noise}


def train(config):
    loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=config["batch_size"], shuffle=True)
    judge = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())
    model = nn.Linear(3, 4)
    optimizer = torch.optim.SGD([*judge.parameters(), *model.parameters()], lr=0.1)
    real = torch.ones((config["batch_size"], 1))
    few = {called}(25)
    for epoch in range(2):
        for (x,) in loader:
            made = model({called}({given}))
            loss = nn.functional.binary_cross_entropy(judge(x) * judge(made), real)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model(few), "few.pt")


train({{"batch_size": 16}})
"""
DRAWN = "def noise({first}batch_size):\n    {in_}return torch.randn(batch_size, 3)"


@pytest.mark.parametrize("given", ['config["batch_size"]', 'batch_size=config["batch_size"]'])
@pytest.mark.parametrize(
    ("noise", "called"),
    [
        (DRAWN.format(first="", in_=""), "noise"),
        ("class Latent:\n    " + DRAWN.format(first="self, ", in_="    ") + "\n\n\nlatent = Latent()", "latent.noise"),
    ],
)
def test_a_function_that_is_told_several_sizes(tmp_path: Path, given: str, noise: str, called: str) -> None:
    """The batch size is divided where it is given, and 25 stays 25."""
    code, said = converted(tmp_path, SHARED.format(noise=noise, called=called, given=given))
    assert f"{called}({given} // dist.get_world_size())" in code and "(batch_size, 3)" in code
    assert 'torch.ones((config["batch_size"] // dist.get_world_size(), 1))' in code and "AD602" not in said


PARTS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

N, M = 8, 3
loader = DataLoader(TensorDataset(torch.randn(64, 3, 4)), batch_size=N, shuffle=True, drop_last=True)
model = nn.Linear(4, 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        {reshaped}
        out = model(x).view(N, M, 6)
        loss = torch.zeros(6, N * M).mean() + (out - out.mean(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("reshaped", "share"),
    [
        ("x = x.view(N * M, 4)", "x.view(N // dist.get_world_size() * M, 4)"),
        ("x = x.reshape((M * N, 4))", "x.reshape((M * (N // dist.get_world_size()), 4))"),
        ("x = torch.reshape(x, (N * M, 4))", "torch.reshape(x, (N // dist.get_world_size() * M, 4))"),
    ],
)
def test_several_rows_for_each_sample(tmp_path: Path, reshaped: str, share: str) -> None:
    """As the first size it counts rows, and elsewhere nothing of the batch."""
    code, _ = converted(tmp_path, PARTS.format(reshaped=reshaped))
    assert f"x = {share}" in code and "view(N // dist.get_world_size(), M, 6)" in code
    assert "torch.zeros(6, N * M)" in code


STYLE = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def gram(y):
    b, c, h, w = y.shape
    f = y.view(b, c, h * w)
    return f.bmm(f.transpose(1, 2)) / (c * h * w)


def prepare(picture, repeats=1):
    return picture.repeat(repeats, 1, 1, 1)


batch_size = 8
loader = DataLoader(TensorDataset(torch.randn(64, 3, 6, 6)), batch_size=batch_size, shuffle=True)
style, vgg, model = torch.randn(3, 6, 6), nn.Conv2d(3, 4, 3).requires_grad_(False), nn.Conv2d(3, 3, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{made}
for (x,) in loader:
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
OF_ALL = "F.mse_loss(gram(vgg(model(x))), target)"
SHARE = "batch_size // dist.get_world_size()"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("target = gram(vgg(style.repeat(batch_size, 1, 1, 1)))", f"style.repeat({SHARE}, 1, 1, 1)"),
        ("style = style[None].expand(batch_size, -1, -1, -1)\ntarget = gram(vgg(style))", f".expand({SHARE}, -1"),
        ("target = gram(vgg(prepare(style, batch_size)))", f"prepare(style, {SHARE})"),
        ("target = gram(vgg(torch.stack([style] * batch_size)))", f"torch.stack([style] * ({SHARE}))"),
        ("target = gram(vgg(style[None])).repeat(batch_size, 1, 1)", f".repeat({SHARE}, 1, 1)"),
    ],
)
def test_what_is_repeated_for_each_sample_ahead_of_training(tmp_path: Path, made: str, expected: str) -> None:
    code, _ = converted(tmp_path, STYLE.format(made=made, loss=OF_ALL))
    assert expected in code


@pytest.mark.parametrize(
    ("made", "loss"),
    [
        ("target = gram(vgg(prepare(style)))", OF_ALL),
        ("target = gram(vgg(prepare(style, batch_size)))", "F.mse_loss(gram(vgg(model(x))), target[: len(x)])"),
        ("print(prepare(style, batch_size).shape)\ntarget = gram(vgg(style[None]))", OF_ALL),
    ],
)
def test_what_is_cut_to_a_batch_or_looked_at_stays(tmp_path: Path, made: str, loss: str) -> None:
    code, _ = converted(tmp_path, STYLE.format(made=made, loss=loss))
    assert made in code


HIDDEN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 5, 4), torch.randn(64, 1))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRU(4, 8, batch_first=True), nn.Linear(8, 1)

    def begin(self, {parameter}):
        return torch.zeros(1, batch_size, 8)

    def forward(self, x, h):
        return self.out(self.cell(x, h)[0][:, 0])


batch_size = 8
loader = DataLoader(data, batch_size=batch_size, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x, model.begin({given})), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    print(model(data[0][0][None], model.begin()))
"""


@pytest.mark.parametrize(
    ("parameter", "given", "expected"),
    [
        ("batch_size=1", "batch_size", "begin(batch_size // dist.get_world_size())"),
        ("*, batch_size=1", "batch_size=batch_size", "begin(batch_size=batch_size // dist.get_world_size())"),
        ("batch_size=1", "x.size(0)", "begin(x.size(0))"),
    ],
)
def test_a_size_of_one_where_it_is_not_told(tmp_path: Path, parameter: str, given: str, expected: str) -> None:
    """A rank has its share where the size is told, and one sample elsewhere."""
    code, _ = converted(tmp_path, HIDDEN.format(parameter=parameter, given=given))
    assert expected in code and "return torch.zeros(1, batch_size, 8)" in code


ROW_NUMBERS = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

batch_size = 8
loader = DataLoader(
    TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=batch_size, shuffle=True, drop_last=True
)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
for x, y in loader:
    {within}
    out = model(x).log_softmax(1)
    loss = -out[{numbers}, y].mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ("torch.arange({})", ""),
        ("range({})", ""),
        ("list(range({}))", ""),
        ("np.arange({})", ""),
        ("torch.arange({})", "before"),
        ("torch.arange({}).to('cpu')", "within"),
        ("torch.arange({}).long()", ""),
    ],
)
def test_numbers_of_rows_beside_labels_are_a_ranks_own(tmp_path: Path, numbers: str, named: str) -> None:
    """All of the batch's numbers beside a rank's labels crashed."""
    parts = {"before": "", "within": "pass", "numbers": "rows" if named else numbers.format("batch_size")}
    if named:
        parts[named] = "rows = " + numbers.format("batch_size")
    code, said = converted(tmp_path, ROW_NUMBERS.format(**parts))
    assert numbers.format("batch_size // dist.get_world_size()") in code
    assert "RowsOfAllRanks" not in code and "AD60" not in said


def test_numbers_of_rows_that_a_function_is_given(tmp_path: Path) -> None:
    script = ROW_NUMBERS.format(before="", within="pass", numbers="torch.arange(batch_size)")
    script = script.replace("-out[torch.arange(batch_size), y].mean()", "picked(out, torch.arange(batch_size), y)")
    script = script.replace(
        "model =", "def picked(out, rows, labels):\n    return -out[rows, labels].mean()\n\nmodel ="
    )
    assert "torch.arange(batch_size // dist.get_world_size())" in converted(tmp_path, script)[0]


def test_numbers_of_rows_as_labels_are_those_of_all_ranks(tmp_path: Path) -> None:
    script = ROW_NUMBERS.format(before="", within="pass", numbers="torch.arange(batch_size)").replace(
        "-out[torch.arange(batch_size), y].mean()",
        "nn.functional.cross_entropy(out @ out.t(), torch.arange(batch_size))",
    )
    assert "torch.arange(batch_size))" in converted(tmp_path, script)[0]


def test_numbers_of_each_sample(tmp_path: Path) -> None:
    """What a rank's samples hold is divided by how many these are."""
    script = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

size = 8
loader = DataLoader(TensorDataset(torch.rand(64, 3, 2)), batch_size=size, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Flatten(), nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def between(real, fake):
    share = torch.rand(size, 1).expand(size, int(real.nelement() / size)).reshape(size, 3, 2)
    return share * real + (1 - share) * fake


for (x,) in loader:
    loss = (model(between(x, 1 - x)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
    text, said = converted(tmp_path, script)
    assert "int(real.nelement() / (size // dist.get_world_size()))" in text
    assert "rounded for each rank" not in said


AS_LONG = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=4, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x {made}), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "made",
    [
        "* torch.ones(1, 4)",
        "* torch.full((1, 4), 2.0)",
        "+ torch.zeros((1, 4))",
        "* torch.linspace(0, 1, 4).view(1, 4)",
        "* torch.ones(4)",
    ],
)
def test_a_row_that_is_as_long_as_a_batch_is_large(tmp_path: Path, made: str) -> None:
    """It was taken for the samples, and the script refused."""
    code, said = converted(tmp_path, AS_LONG.format(made=made))
    assert made in code and "AD906" not in said and "AD60" not in said


@pytest.mark.parametrize("made", ["* torch.ones(4, 4)", "* torch.ones(4, 1)", "+ torch.zeros((4, 4))"])
def test_a_table_that_has_a_row_for_each_sample(tmp_path: Path, made: str) -> None:
    code, said = converted(tmp_path, AS_LONG.format(made=made))
    assert made.replace("(4", "(4 // dist.get_world_size()", 1) in code and "AD906" not in said
