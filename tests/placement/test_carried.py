"""State that a step hands on to the next is what all samples make it, or a person is told."""

from __future__ import annotations

import textwrap
from pathlib import Path

import conftest
import pytest

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("state", torch.zeros(3))
        self.register_buffer("rows", torch.zeros(64, 3))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))
        self.latest = None

    def keep(self, new):
        with torch.no_grad():
            {keep}

    def forward(self, x):
        out = self.layer(x - self.state.mean())
        {forward}
        return out + self.rows.mean()


train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 3), torch.arange(64))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
state, rows, seen, smooth, samples = torch.zeros(3), torch.zeros(64, 3), 0, 0.0, {}
for epoch in range(2):
    for batch in loader:
        x, y, index = batch
        out = model(x)
        loss = F.mse_loss(out + state + rows.mean(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {step}
print(smooth)
"""

GATHERED = {
    ("forward", "index = batch[2]; rows = self.rows; rows[index] = out.detach()"): {
        "pass": "rows[gather_rows(index)] = gather_rows(out.detach())"
    },
    ("forward", "self.keep(out.detach())"): {
        "self.state.mul_(0.9).add_(new.sum(0), alpha=0.1)": "add_(reduce_sum(new.sum(0)), alpha=0.1)",
        "self.state.copy_(0.9 * self.state + 0.1 * new.mean(0))": "copy_(reduce_mean(0.9 * self.state",
        "self.state = 0.9 * self.state + 0.1 * new.mean(dim=0)": "self.state + reduce_mean(0.1 * new.mean(dim=0))",
        "self.state += new.sum(0)": "self.state += reduce_sum(new.sum(0))",
        "n = len(new); p = int(self.place); self.rows[p : p + n] = new; self.place[0] = (p + n) % 64": (
            "self.rows[p : p + n] = gather_rows(new)"
        ),
        "self.rows = torch.cat([new, self.rows])[:64]": "self.rows = torch.cat([gather_rows(new), self.rows])[:64]",
    },
    ("forward", "self.rows[: len(out)] = out.detach()"): {
        "pass": "self.rows[: len(out) * dist.get_world_size()] = gather_rows(out.detach())"
    },
    ("forward", "n = out.shape[0]; self.rows.data[0:n, :] = out.data"): {
        "pass": "self.rows.data[0:n * dist.get_world_size(), :] = gather_rows(out.data)"
    },
    ("forward", "self.rows = torch.cat([out.detach(), self.rows[: -len(out)]])"): {
        "pass": "torch.cat([gather_rows(out.detach()), self.rows[: -len(out) * dist.get_world_size()]])"
    },
    ("forward", "self.rows = torch.cat([self.rows[len(out) :], out.detach()])"): {
        "pass": "torch.cat([self.rows[len(out) * dist.get_world_size() :], gather_rows(out.detach())])"
    },
    ("step", "state = 0.9 * state + 0.1 * out.detach().mean(0)"): {
        "pass": "state = 0.9 * state + reduce_mean(0.1 * out.detach().mean(0))"
    },
    ("step", "rows[index] = out.detach()"): {"pass": "rows[gather_rows(index)] = gather_rows(out.detach())"},
    ("step", "rows.index_copy_(0, index, out.detach())"): {
        "pass": "rows.index_copy_(0, gather_rows(index), gather_rows(out.detach()))"
    },
}

TOLD = [
    ("forward", "self.state = 0.9 * self.state.detach() + 0.1 * out.std(0); out = out * self.state"),
    ("forward", "self.state = 0.9 * self.state.detach() + 0.1 * out.mean(0); out = out * self.state"),
    (
        "forward",
        "total = torch.zeros(3); total += out.mean(0); "
        "self.state = 0.9 * self.state.detach() + 0.1 * total; out = out * self.state",
    ),
    (
        "forward",
        "parts = []; parts.append(out); total = torch.cat(parts).mean(0); "
        "self.state = 0.9 * self.state.detach() + 0.1 * total; out = out * self.state",
    ),
    ("forward", "self.state.detach_(); self.state = 0.9 * self.state + 0.1 * out.mean(0); out = out - self.state"),
    ("forward", "self.state = self.state.data * 0.9 + out.mean(0) * 0.1; out = out - self.state"),
]

SILENT = [
    ("forward", "self.latest = out"),
    ("forward", "for _ in range(2): out = F.relu(out)"),
    ("step", "smooth = 0.9 * smooth + 0.1 * seen"),
    ("step", "seen += 1"),
    ("step", "x = x.abs(); x = x + 1"),
    ("step", 'samples["x"] = x; print(samples["x"].shape)'),
    ("step", "batch.x = out + batch.x"),
]


def converted(folder: Path, **lines: str) -> tuple[str, list[str]]:
    """The conversion, and what a person is told."""
    text = SCRIPT
    for name in ("keep", "forward", "step"):
        indent = " " * (12 if name == "keep" else 8)
        text = text.replace(f"{{{name}}}", lines.get(name, "pass").replace("; ", "\n" + indent))
    (folder / "train.py").write_text(textwrap.dedent(text))
    result = convert(Project.load(folder / "train.py"), Config(Strategy.DDP))
    return result.entry.after, [each.message for each in result.diagnostics if "later steps" in each.message]


@pytest.mark.parametrize(
    ("place", "line", "keep", "expected"),
    [(*where, keep, expected) for where, cases in GATHERED.items() for keep, expected in cases.items()],
)
def test_gathered(tmp_path: Path, place: str, line: str, keep: str, expected: str) -> None:
    """Sums, means and rows of this rank's samples are made those of all before they are kept."""
    after, told = converted(tmp_path, **{place: line, "keep": keep})
    assert expected in after, after[after.index("class Net") :]
    assert not told


@pytest.mark.parametrize(
    ("place", "line", "expected"),
    [
        ("forward", "self.state = 0.9 * self.state + 0.1 * out.detach().std(0)", "gather_rows(out.detach()).std(0)"),
        ("step", "state = 0.9 * state + 0.1 * out.detach().std(0)", "gather_rows(out.detach()).std(0)"),
    ],
)
def test_spread_of_all_rows(tmp_path: Path, place: str, line: str, expected: str) -> None:
    """No sum or mean of the ranks' own says it: it is computed from the rows of all ranks."""
    text, told = converted(tmp_path, **{place: line})
    assert expected in text and not told


@pytest.mark.parametrize(("place", "line"), TOLD)
def test_told(tmp_path: Path, place: str, line: str) -> None:
    """What cannot be put together from the shares is named."""
    _, told = converted(tmp_path, **{place: line})
    assert told


@pytest.mark.parametrize(("place", "line"), SILENT)
def test_silent(tmp_path: Path, place: str, line: str) -> None:
    """What is made anew, or has nothing to do with training, stays."""
    after, told = converted(tmp_path, **{place: line})
    assert not told
    assert line.split("; ")[0] in after


def test_parameters_changed_inside_forward(tmp_path: Path) -> None:
    """Under FSDP they are gathered for the moment: what is written is lost."""
    line = "self.layer.weight.data.mul_(0.9)"
    (tmp_path / "train.py").write_text(
        SCRIPT.replace("{keep}", "pass").replace("{forward}", line).replace("{step}", "")
    )
    result = convert(Project.load(tmp_path / "train.py"), Config(Strategy.FSDP))
    assert any("inside a forward pass" in each.message for each in result.diagnostics)


HELPER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def assigned(boxes):
    target = torch.zeros(4)
    for box in boxes:
        place = int(box * 4)
        target[place] = box
    return target


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.rand(32, 3)), batch_size=8, shuffle=True)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, boxes in loader:
    loss = nn.functional.mse_loss(model(x), torch.stack([assigned(each) for each in boxes]))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_a_step_makes_for_itself_is_no_memory() -> None:
    result = convert(Project.load(Path("train.py"), HELPER), Config())
    assert "gather_rows" not in result.entry.after


POOL = """\
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ImagePool:
    def __init__(self, size):
        self.size, self.images = size, []

    def query(self, images):
        chosen = []
        for image in images:
            image = image.unsqueeze(0)
            if len(self.images) < self.size:
                self.images.append(image)
                chosen.append(image)
            elif random.random() > 0.5:
                k = random.randrange(self.size)
                old = self.images[k].clone()
                self.images[k] = image
                chosen.append({chosen})
            else:
                chosen.append(image)
        return torch.cat(chosen)


loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pool = ImagePool(50)
for (x,) in loader:
    loss = model(pool.query(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("chosen", "told"), [("old", True), ("self.images[k].clone()", True), ("image", False)])
def test_a_pool_of_samples_of_earlier_steps(tmp_path: Path, chosen: str, told: bool) -> None:
    """That of CycleGAN holds so many images of each rank, and draws from them; one that is not trained on may."""
    (tmp_path / "train.py").write_text(POOL.format(chosen=chosen))
    said = [d.message for d in convert(Project.load(tmp_path / "train.py"), Config(Strategy.DDP)).diagnostics]
    assert any(message.startswith("self.images keeps image for later steps") for message in said) == told


@pytest.mark.parametrize(
    ("taken", "kept"),
    [
        ("self.images[k]", "self.images[k] = image"),
        ("random.choice(self.images)", "self.images[k] = image"),
        ("self.images.pop(k)", "self.images.append(image)"),
        ("self.images.pop(0).clone()", "self.images += [image]"),
    ],
)
def test_how_samples_are_taken_from_a_pool(tmp_path: Path, taken: str, kept: str) -> None:
    text = POOL.format(chosen="old").replace("self.images[k].clone()", taken).replace("self.images[k] = image", kept)
    after, said = conftest.converted(tmp_path, text)
    assert "keeps image for later steps" in said and "gather_rows" not in after


@pytest.mark.parametrize("how", ["type_as(x)", "to(x)", "to(x.device)"])
def test_the_type_of_a_batch_says_nothing_of_its_samples(tmp_path: Path, how: str) -> None:
    path = tmp_path / "train.py"
    times = f"self.times = torch.tensor([0.0, 1.0]).{how}\n        self.times = self.times.{how}"
    path.write_text(SCRIPT.replace("{keep}", "pass").replace("{forward}", times).replace("{step}", ""))
    findings = convert(Project.load(path), Config(Strategy.DDP)).diagnostics
    assert not [each for each in findings if "for later steps" in each.message]


@pytest.mark.parametrize("test", ["self.training", "self.follows and self.training", "self.training and self.follows"])
def test_what_training_alone_keeps_is_not_kept_in_evaluation(tmp_path: Path, test: str) -> None:
    keep = "self.state.mul_(0.9).add_(new.sum(0), alpha=0.1)"
    forward = f"if {test}: self.keep(out.detach())"
    text = SCRIPT.replace("{keep}", keep).replace("{forward}", forward).replace("{step}", "pass")
    text = text.replace("        self.latest = None", "        self.latest, self.follows = None, len(rows_of()) > 2")
    text += "model.eval()\nwith torch.no_grad():\n    for batch in DataLoader(train_set, batch_size=8):\n"
    text += "        print(model(batch[0]).mean())\n"
    after, said = conftest.converted(tmp_path, text)
    assert "add_(reduce_sum(new.sum(0)), alpha=0.1)" in after
    assert "from this rank's samples alone" not in said


LAYERS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])

    def forward(self, x):
        residual = x
        for i in range(3):
            x = {layer}
        x += residual
        return torch.relu(x)


loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_an_input_that_layers_have_replaced(tmp_path: Path) -> None:
    """What is added to in place is what the last layer made, which no later step sees."""
    (tmp_path / "train.py").write_text(LAYERS.format(layer="self.layers[i](x)"))
    said = [d.message for d in convert(Project.load(tmp_path / "train.py"), Config(Strategy.DDP)).diagnostics]
    assert not any("for later steps" in message for message in said), said


CENTRED = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Centre(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean.detach() + 0.1 * x.mean(0)
        return x - self.mean


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.centre, self.last = nn.Linear(8, 8), Centre(), nn.Linear(8, 3)

    def begin(self, x):
        return self.centre(x)

    def forward(self, x):
        return self.last({path})


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("path", "model", "data"),
    [
        ("self.first(self.centre(x))", "Net()", True),
        ("self.first(self.begin(x))", "Net()", True),
        ("self.begin(self.first(x))", "Net()", False),
        ("self.centre(self.first(x))", "Net()", False),
        ("x", "nn.Sequential(nn.Linear(8, 8), Centre(), nn.Linear(8, 3))", False),
    ],
)
def test_what_a_layer_keeps_of_samples_and_of_other_layers(tmp_path: Path, path: str, model: str, data: bool) -> None:
    """Through what is kept of layers, gradients flow to the layers before."""
    (tmp_path / "train.py").write_text(CENTRED.format(path=path, model=model))
    result = convert(Project.load(tmp_path / "train.py"), Config(Strategy.DDP))
    assert not [each for each in result.diagnostics if "later steps" in each.message]
    assert ("0.9 * self.mean.detach() + reduce_mean(0.1 * x.mean(0))" in result.entry.after) is data
    joined = "SumOverRanks.apply(0.9 * self.mean.detach() + 0.1 * x.mean(0)) / dist.get_world_size()"
    assert (joined in result.entry.after) is not data
