"""Tables and graphs: samples along another axis, loaders side by side, models in containers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import converted

START = """
import collections
import attr
import torch
from attr import Factory, attrib, attrs
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 6), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
"""
LOOP = """
for epoch in range(2):
    for x, y in loader:
        train(net, x, y)
"""

NAMED_TUPLE = """
Net = collections.namedtuple("Net", {fields})


def build():
    encoder, decoder = nn.Linear(6, 4), nn.Linear(4, 1)
    return Net(encoder, decoder, {given})


def train(net, x, y):
    loss = F.mse_loss(net.decoder(net.encoder(x)), y)
    net.optimizer.zero_grad()
    loss.backward()
    net.optimizer.step()


net = build()
"""
PARAMETERS = "torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])"


@pytest.mark.parametrize("fields", ["['encoder', 'decoder', 'optimizer']", "'encoder decoder optimizer'"])
@pytest.mark.parametrize("given", [PARAMETERS, f"optimizer={PARAMETERS}"])
def test_models_in_a_named_tuple(tmp_path: Path, fields: str, given: str) -> None:
    """They are what the tuple was made of, whatever they are called there."""
    code, said = converted(tmp_path, START + NAMED_TUPLE.format(fields=fields, given=given) + LOOP)
    assert "AD904" not in said
    assert "encoder = DDP(encoder" in code and "decoder = DDP(decoder" in code


FIELDS = """
@attrs
class Params:
    size = attrib(default=8)
    rate = attrib(default=0.1)


@attrs
class Training:
    params = attrib({factory})
    net = attrib()
    optimizer = attrib()

    @net.default
    def default_net(self):
        net = nn.Linear(6, 1)
        return net

    @optimizer.default
    def default_optimizer(self):
        return torch.optim.RMSprop(self.net.parameters(), lr=self.params.rate)


def train(net, x, y):
    loss = F.mse_loss(net.net(x), y)
    net.optimizer.zero_grad()
    loss.backward()
    net.optimizer.step()


net = Training({given})
loader = DataLoader(train_set, batch_size=net.params.size)
"""


@pytest.mark.parametrize("factory", ["default=Factory(Params)", "factory=Params"])
@pytest.mark.parametrize("given", ["", "params=Params()", "attr.evolve(Params(), rate=0.2)"])
def test_fields_of_attrs(tmp_path: Path, factory: str, given: str) -> None:
    """What a class makes by default, from the fields above."""
    code, said = converted(tmp_path, START + FIELDS.format(factory=factory, given=given) + LOOP)
    assert "AD904" not in said and "AD401 cannot" not in said
    assert "net = DDP(nn.Linear(6, 1)" in code and "batch_size=net.params.size // dist.get_world_size()" in code


PAIRS = """
def pairs(rows):
    right = torch.arange(rows.shape[0])
    right = right + 1 - right % 2 * 2
    similar = F.cosine_similarity(rows.unsqueeze(1), rows.unsqueeze(0), dim=-1)
    return F.cross_entropy(similar - torch.eye(rows.shape[0]) * 1e12, right)


model = nn.Linear(6, 4)
optimizer = torch.optim.Adam(model.parameters())
for views, _ in DataLoader(TensorDataset(torch.randn(64, 2, 6), torch.randn(64)), batch_size=8):
    n = views.shape[0]
    {made}
    loss = pairs(out)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("made", "together"),
    [
        ("out = model(views.view(n * 2, -1))", True),
        ("out = model(views.reshape((2 * n, 6)))", True),
        ("out = model(views.flatten(0, 1))", True),
        ("out = model(torch.cat([views[:, 0], views[:, 1]]))", False),
        ("out = model(views.view(n, -1)[:, :6])", False),
    ],
)
def test_rows_of_one_sample_stay_together(tmp_path: Path, made: str, together: bool) -> None:
    """Where several are made of each, the rows of other ranks do not come between them: they are partners."""
    code, _ = converted(tmp_path, START + PAIRS.format(made=made))
    assert "RowsOfAllRanks.apply(" in code
    assert ("torch.cat(parts)" in code) is together
    assert ("torch.stack(parts, 1)" in code) is not together


CHOSEN = """
def create(size):
    return nn.Linear(size, 1)


def load(model, path):
    model.load_state_dict(torch.load(path))
    return model


def train(net, x, y):
    loss = F.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


net = create(6)
optimizer = torch.optim.Adam(net.parameters())
if train_set:
    net = load(net, "known.pt")
else:
"""


def test_a_model_that_is_loaded_instead_of_trained(tmp_path: Path) -> None:
    """It is wrapped where both ways come from."""
    loop = "\n".join(f"    {line}" for line in LOOP.splitlines())
    code, said = converted(tmp_path, START + CHOSEN + loop)
    assert "AD904" not in said
    assert "net = DDP(create(6)" in code and "model.module.load_state_dict(" in code


SECOND = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 8)
        self.linear = nn.Linear(8, 1)

    def forward(self, x):
        out, hidden = self.lstm({shaped})
        return self.linear(out)


inputs, wanted = torch.randn(16, 64, 1), torch.randn(16, 64, 1)
model = Net()
optimizer = torch.optim.Adam(model.parameters())
size = 8
for epoch in range(2):
    for b in range(inputs.shape[1] // size):
        x = inputs[:, b : b + size, :]
        y = wanted[:, b : b + size, :]
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("shaped", ["x", "x.view(x.shape[0], x.shape[1], 1)"])
def test_samples_cut_out_along_the_second_axis(tmp_path: Path, shaped: str) -> None:
    """Since the first one is time, as the layer says."""
    code, said = converted(tmp_path, START + SECOND.format(shaped=shaped))
    assert "AD902" not in said
    assert "model(x[:, rows].contiguous()), y[:, rows].contiguous()) * row_weight(x.size(1))" in code


def test_samples_folded_into_the_first_axis(tmp_path: Path) -> None:
    _, said = converted(tmp_path, START + SECOND.format(shaped="x.view(x.shape[1], x.shape[0], 1)"))
    assert "AD902" in said or "AD602" in said


SIDE_BY_SIDE = """
first = DataLoader(train_set, batch_size=8, shuffle={shuffle})
second = DataLoader(train_set, batch_size=8, shuffle={shuffle})


def make(data):
    return DataLoader(data, batch_size=8, shuffle=True)


class Both:
    def __init__(self, head, tail):
        self.head, self.tail, self.step = self.again(head), self.again(tail), 0

    def __next__(self):
        self.step += 1
        return next(self.head) if self.step % 2 else next(self.tail)

    @staticmethod
    def again(loader):
        while True:
            for data in loader:
                yield data


net = nn.Linear(6, 1)
optimizer = torch.optim.Adam(net.parameters())


def train(x, y):
    loss = F.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


{loop}
"""
ZIPPED = "for (x, y), (u, v) in zip({}):\n    train((x + u) / 2, (y + v) / 2)"
IN_TURN = "both = Both(first, second)\nfor step in range(8):\n    train(*next(both))"
INSTEAD = """
if torch.cuda.is_available():
    loader = DataLoader(train_set, batch_size=8, shuffle=True, pin_memory=True)
else:
    loader = DataLoader(train_set, batch_size=8, shuffle=True)
for x, y in loader:
    train(x, y)"""
FIRST = "torch.initial_seed()"
ONE_AFTER_THE_OTHER = "for x, y in first:\n    train(x, y)\nfor x, y in second:\n    train(x, y)"


@pytest.mark.parametrize(
    ("loop", "shuffle", "expected"),
    [
        (
            ZIPPED.format("first, second"),
            True,
            [f"DistributedSampler(train_set, seed={FIRST})", f"DistributedSampler(train_set, seed={FIRST} + 1)"],
        ),
        (
            IN_TURN,
            True,
            [f"DistributedSampler(train_set, seed={FIRST})", f"DistributedSampler(train_set, seed={FIRST} + 1)"],
        ),
        (
            ZIPPED.format("make(train_set), make(train_set)"),
            True,
            [f"DistributedSampler(data, seed={FIRST} + next(orders))"],
        ),
        (ZIPPED.format("first, second"), False, ["DistributedSampler(train_set, shuffle=False)"] * 2),
        (INSTEAD, True, [f"DistributedSampler(train_set, seed={FIRST})"] * 2),
        (ONE_AFTER_THE_OTHER, True, [f"DistributedSampler(train_set, seed={FIRST})"] * 2),
    ],
)
def test_loaders_side_by_side_have_orders_of_their_own(
    tmp_path: Path, loop: str, shuffle: bool, expected: list[str]
) -> None:
    """A sampler that shuffles by one seed would give both loaders the same samples, or pair them alike for ever."""
    code, said = converted(tmp_path, START + SIDE_BY_SIDE.format(shuffle=shuffle, loop=loop))
    assert re.findall(r"sampler=(DistributedSampler\(.*?\))(?=,? *\)?\n|, )", code) == expected
    assert "AD9" not in said


def test_samplers_side_by_side_draw_apart(tmp_path: Path) -> None:
    sampler = "sampler=torch.utils.data.RandomSampler(train_set)"
    script = SIDE_BY_SIDE.format(shuffle=True, loop=ZIPPED.format("first, second")).replace("shuffle=True", sampler)
    code, _ = converted(tmp_path, START + script)
    assert {*re.findall(r"generator=torch.Generator\(\).manual_seed\((.*)\)", code)} == {FIRST, f"{FIRST} + 1"}


@pytest.mark.parametrize(("axes", "known"), [("64, 6", True), ("64, 4, 6", False)])
def test_softmax_along_the_axis_that_torch_chooses(tmp_path: Path, axes: str, known: bool) -> None:
    """The second one of a matrix; the first one of three axes, of which ranks then take the second."""
    loop = f"""
inputs, wanted = torch.randn({axes}), torch.rand({axes})
net = nn.Linear(6, 6)
optimizer = torch.optim.Adam(net.parameters())
for step in range(8):
    loss = F.mse_loss(F.log_softmax(net(inputs)), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    code, said = converted(tmp_path, START + loop)
    assert "AD902" not in said and "AD602" not in said
    assert ("inputs[:, rows]" in code) is not known


@pytest.mark.parametrize(("wanted", "known"), [("64, 3", True), ("64, 3, 1", False)])
def test_a_matrix_turned_over_beside_a_number_for_each_row(tmp_path: Path, wanted: str, known: bool) -> None:
    loop = f"""
class Machine(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.ModuleList([nn.Linear(1, 4) for _ in range(3)])

    def forward(self, x, weights):
        parts = [(each(x[:, i, :]).t() * weights[:, i]).t() for i, each in enumerate(self.first)]
        return torch.cat(parts, 1).sum(1)


inputs, weights, targets = torch.randn(64, 3, 1), torch.rand({wanted}), torch.rand(64)
net = Machine()
optimizer = torch.optim.Adam(net.parameters())
for step in range(8):
    loss = F.mse_loss(net(inputs, weights), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    _, said = converted(tmp_path, START + loop)
    assert ("AD902" not in said) is known


STATISTIC = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 1)
        self.register_buffer("mean", torch.zeros(1))
        self.register_buffer("var", torch.ones(1))

    def forward(self, x):
        x = self.linear(x)
        return {normalised}


net = Net()
optimizer = torch.optim.Adam(net.parameters())


def train(net, x, y):
    loss = F.mse_loss(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("normalised", "across"),
    [
        ("F.batch_norm(input=x, running_mean=self.mean, running_var=self.var, training=self.training)", True),
        ("F.batch_norm(input=x, running_mean=self.mean, running_var=self.var, training=False)", False),
        ("F.softmax(input=x, dim=0)", True),
        ("F.softmax(input=x, dim=1)", False),
    ],
)
def test_what_is_normalised_by_keyword(tmp_path: Path, normalised: str, across: bool) -> None:
    """Over the samples of the batch, of which a rank has its share."""
    after, said = converted(tmp_path, START + STATISTIC.format(normalised=normalised) + LOOP)
    assert ("AD602 F.batch_norm(" in said or "RowsOfAllRanks" in after) is across


@pytest.mark.parametrize(
    ("imported", "expected"),
    [("from loguru import logger", 'logger.disable("")'), ("import logging as logger", "logger.disable()")],
)
def test_what_says_it_for_all(tmp_path: Path, imported: str, expected: str) -> None:
    """Each library by itself: loguru knows nothing of Python's own logging."""
    train = "\nnet = nn.Linear(6, 1)\n" + STATISTIC.partition("net = Net()\n")[2]
    logged = LOOP + "    logger.info(f'epoch {epoch}')\n"
    code, _ = converted(tmp_path, f"{imported}\n" + START + train + logged)
    found = [line.strip() for line in code.splitlines() if ".disable(" in line]
    assert found == [expected]


DRAWING = """
class Pieces(torch.utils.data.Dataset):
    def __init__(self, text):
        self.text = text

    def __len__(self):
        return 64

    def start(self, index):
        return {start}

    def __getitem__(self, index):
        start = self.start(index)
        return self.text[start : start + 6], self.text[start + 6 : start + 7]


loader = DataLoader({held}, batch_size=8)
net = nn.Linear(6, 1)
"""


@pytest.mark.parametrize(
    "held", ["Pieces(torch.randn(400))", "torch.utils.data.Subset(Pieces(torch.randn(400)), [1, 2])"]
)
@pytest.mark.parametrize(("start", "apart"), [("torch.randint(393, (1,)).item()", True), ("index", False)])
def test_samples_that_are_drawn(tmp_path: Path, held: str, start: str, apart: bool) -> None:
    """Whatever their index: ranks that draw alike would read the same ones."""
    train = STATISTIC.partition("net = Net()\n")[2]
    code, _ = converted(tmp_path, START + DRAWING.format(held=held, start=start) + train + LOOP)
    assert ("torch.manual_seed(torch.initial_seed() + 1 + dist.get_rank())" in code) is apart


CELLS = """
class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        return F.batch_norm(self.linear(x), None, None, training=True)


class Net(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.layers = layers
        self.head = nn.Linear(6, 1)
        for layer in range(layers):
            setattr(self, {name}, Cell())

    def cell(self, layer):
        return getattr(self, {name})

    def forward(self, x):
        for layer in range(self.layers):
            x = self.cell(layer)(x)
        return self.head(x)


net = Net()
"""


@pytest.mark.parametrize("name", ["f'cell_{layer}'", "'cell_{}'.format(layer)", "'cell_' + str(layer)"])
def test_layers_under_names_that_are_put_together(tmp_path: Path, name: str) -> None:
    """They are run, whatever they are called."""
    code = START + CELLS.replace("{name}", name) + STATISTIC.partition("net = Net()\n")[2] + LOOP
    _, said = converted(tmp_path, code)
    assert "AD602 F.batch_norm(self.linear(x), None, None, training=True): it normalises" in said
