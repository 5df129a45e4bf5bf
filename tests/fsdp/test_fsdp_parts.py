"""Parts of a sharded model that are called on their own, and methods that gather parameters inside of others."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.config import Strategy

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Coder(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(a, b), nn.Tanh())

    def forward(self, x):
        return self.net(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Coder(4, 2)
        self.decoder = nn.Linear(2, 4)

    def encode(self, x, scale=1.0):
        return self.encoder(x) * scale

    def forward(self, x):
        return self.decoder(self.encoder(x))


loader = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CODES = "with torch.no_grad():\n    codes = model.encoder(torch.ones(1, 4))\n"


def sharded(folder: Path, text: str) -> tuple[str, str]:
    """The conversion of a script to FSDP, and what is said of it."""
    return converted(folder, text, Strategy.FSDP)


def test_a_part_that_is_called_on_its_own_is_a_unit(tmp_path: Path) -> None:
    """It gathers its parameters itself: calling it was refused."""
    text, said = sharded(tmp_path, SCRIPT + CODES)
    assert (
        "for block in (model.encoder,):\n    fully_shard(block, mesh=mesh)\nfully_shard(model" in text
        and "AD907" not in said
    )
    assert "fully_shard(block" not in sharded(tmp_path, SCRIPT)[0]


def test_parts_come_after_the_blocks_in_them(tmp_path: Path) -> None:
    layers = SCRIPT.replace("nn.Sequential(nn.Linear(a, b), nn.Tanh())", "nn.Sequential(Block(a), Block(a))")
    block = "class Block(nn.Module):\n    def __init__(self, a):\n        super().__init__()\n"
    block += "        self.fc, self.norm = nn.Linear(a, a), nn.LayerNorm(a)\n\n"
    block += "    def forward(self, x):\n        return self.norm(self.fc(x))\n\n\nclass Coder("
    script = layers.replace("class Coder(", block, 1).replace("nn.Linear(2, 4)", "nn.Linear(4, 4)")
    assert "for block in (*model.encoder.net, model.encoder):" in sharded(tmp_path, script + CODES)[0]


def test_a_part_that_runs_before_the_model(tmp_path: Path) -> None:
    """torch takes it for the root, and stops at the model."""
    early = SCRIPT.replace("for (x,) in loader:\n", f"{CODES}for (x,) in loader:\n")
    assert "calls a part of a sharded model on its own" in sharded(tmp_path, early)[1]
    blocks = early.replace("nn.Linear(2, 4)", "Coder(2, 4)")
    assert "calls a part of a sharded model before the model itself" in sharded(tmp_path, blocks)[1]
    parts = early.replace("model(x)", "model.decoder(model.encoder(x))")  # the model itself never runs
    assert "for block in (model.encoder, model.decoder):" in sharded(tmp_path, parts)[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.decoder(self.encoder(x))", "self.decoder(self.encoder.net(x))"),  # not as a whole
        ("self.decoder = nn.Linear(2, 4)", "self.decoder = nn.Sequential(self.encoder.net, nn.Linear(2, 4))"),
    ],
)
def test_parts_that_gather_not_all_that_they_need(tmp_path: Path, old: str, new: str) -> None:
    assert "calls a part of a sharded model on its own" in sharded(tmp_path, SCRIPT.replace(old, new) + CODES)[1]


def test_blocks_whose_layers_another_module_calls(tmp_path: Path) -> None:
    """`block.fc(x)` meets shards where the block is a unit, which crashed."""
    script = SCRIPT.replace("self.decoder = nn.Linear(2, 4)", "self.decoder = Coder(2, 4)")
    assert "for block in (model.encoder, model.decoder):" in sharded(tmp_path, script)[0]
    past = script.replace("self.decoder(self.encoder(x))", "self.decoder.net(self.encoder(x))")
    assert "fully_shard(block" not in sharded(tmp_path, past)[0]


@pytest.mark.parametrize(
    ("forward", "expected"),
    [
        ("self.decoder(self.encode(x))", "self.decoder(type(self).encode(self, x))"),
        ("self.decoder(self.encode(x, scale=2.0))", "self.decoder(type(self).encode(self, x, scale=2.0))"),
        ("self.decoder(self.encode(*[x]))", "self.decoder(type(self).encode(self, *[x]))"),
        ("self.encode(x) @ torch.ones(2, 4)", "self.encode(x) @ torch.ones(2, 4)"),  # nothing is left to run
    ],
)
def test_methods_that_gather_parameters_inside_of_others(tmp_path: Path, forward: str, expected: str) -> None:
    """They would share them out again before the forward pass has done with them, which crashed."""
    script = SCRIPT.replace("self.decoder(self.encoder(x))", forward) + "codes = model.encode(torch.ones(1, 4))\n"
    text = sharded(tmp_path, script)[0]
    assert 'register_fsdp_forward_method(model, "encode")' in text and f"return {expected}\n" in text
    assert "type(self)" not in sharded(tmp_path, script.partition("codes =")[0])[0]


BESIDE = "old = Net()\nold_optimizer = torch.optim.SGD(old.parameters(), lr=0.1)\n"
AVERAGE = "def average(a, b):\n    if a is None:\n        return b\n    return 0.9 * a + 0.1 * b\n\n\n"
PAIRS = "for p, q in zip(old.parameters(), model.parameters()):\n    "


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (PAIRS + "p.data = 0.9 * p.data + 0.1 * q.data\n", "p.data[...] = 0.9 * p.data + 0.1 * q.data\n"),
        (PAIRS + "a, b = p.data, q.data\n    p.data = average(a, b)\n", "p.data[...] = average(a, b)\n"),
        (PAIRS + "new = p.data.clone()\n    p.data = new\n", "p.data[...] = new\n"),
        (
            "for p in model.parameters():\n    p.data = torch.from_numpy(p.data.cpu().numpy() * 2)\n",
            "p.data[...] = cut_like(torch.from_numpy(p.data.full_tensor().cpu().numpy() * 2), p.data)\n",
        ),
    ],
)
def test_new_storage_of_a_parameter(tmp_path: Path, change: str, expected: str) -> None:
    """FSDP keeps the old one: the new numbers are put there. It was refused."""
    text, said = sharded(tmp_path, SCRIPT.replace("loader =", AVERAGE + BESIDE + "loader =", 1) + change)
    assert expected in text and "AD907" not in said


@pytest.mark.parametrize(
    "change",
    [
        PAIRS + "p.data = q.data\n",  # which both have from then on
        PAIRS + "kept.append(p.data)\n    p.data = 2 * p.data\n",
        PAIRS + "a = p.data\n    p.data = 2 * p.data\n    print((a - p.data).norm().item())\n",
        PAIRS + "new = 2 * p.data\n    p.data = new\n    kept.append(new)\n",
        "kept = [p.data for p in model.parameters()]\nfor p in model.parameters():\n    p.data = 2 * p.data\n",
    ],
)
def test_storage_that_something_else_holds_too(tmp_path: Path, change: str) -> None:
    script = SCRIPT.replace("loader =", BESIDE + "kept = []\nloader =", 1) + change
    assert "replaces the storage of parameters" in sharded(tmp_path, script)[1]


LATE = SCRIPT.replace("import torch\n", "import copy\n\nimport torch\n", 1).replace(
    "for (x,) in loader:\n", "scheduler = None\nema = copy.deepcopy(model).eval()\nfor (x,) in loader:\n"
)


def test_copies_below_the_optimizer(tmp_path: Path) -> None:
    """Shards cannot be copied: the copy is made ahead of them, and sharded where it was made. It was refused."""
    text, said = sharded(tmp_path, LATE)
    assert "model = Net()\nunsharded = copy.deepcopy(model)\n" in text and "AD907" not in said
    assert "ema = unsharded.eval()\n" in text and "fully_shard(ema, reshard_after_forward=True, mesh=mesh)" in text
    assert text.count("copy.deepcopy") == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scheduler = None\n", "model(torch.ones(2, 4))\n"),
        ("scheduler = None\n", "model.load_state_dict(torch.load('start.pt'))\n"),
        ("    optimizer.step()\n", "    optimizer.step()\n    best = copy.deepcopy(model)\n"),
    ],
)
def test_copies_of_other_weights(tmp_path: Path, old: str, new: str) -> None:
    """The weights ahead of sharding are not those that are copied."""
    assert "AD907 copies a model after its optimizer" in sharded(tmp_path, LATE.replace(old, new))[1]


AVERAGED = """
class Averaged(nn.Module):
    def __init__(self, model, decay=0.9):
        super().__init__()
        self.online = [model]
        self.module = copy.deepcopy(model).eval()
        self.decay = decay
        self.register_buffer("steps", torch.tensor(0))


"""
INSIDE = LATE.replace("copy.deepcopy(model).eval()", "Averaged(model)").replace("loader =", f"{AVERAGED}loader =", 1)


def test_copies_that_an_object_makes_below_the_optimizer(tmp_path: Path) -> None:
    """The object is made ahead of sharding, and shards its copy itself. It was refused."""
    text, said = sharded(tmp_path, INSIDE + "ema.load_state_dict(torch.load('ema.pt', 'cpu'))\n")
    assert "model = Net()\nunsharded = Averaged(model)\n" in text and "\nema = unsharded\n" in text
    assert "fully_shard(self.module, reshard_after_forward=True, mesh=mesh)" in text and "AD907" not in said
    assert "ema.load_state_dict(model_shards(torch.load('ema.pt', 'cpu'), ema))" in text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("scheduler = None\n", "model(torch.ones(2, 4))\n"),
        ("Averaged(model)", "Averaged(model, scheduler)"),  # which is made between
        ("self.decay = decay", "self.shadow = [p.clone() for p in model.parameters()]"),
        ("self.decay = decay", "self.head = nn.Linear(4, 4)"),  # which draws its weights then
        ("self.decay = decay", "print(decay)"),
    ],
)
def test_objects_that_are_made_at_their_own_time(tmp_path: Path, old: str, new: str) -> None:
    assert "AD907 copies a model after its optimizer" in sharded(tmp_path, INSIDE.replace(old, new))[1]


SWAPPED = """
class EMA:
    def __init__(self, model):
        self.model, self.backup = model, {}
        self.shadow = {name: p.data.clone() for name, p in model.named_parameters()}

    def apply_shadow(self):
        for name, p in self.model.named_parameters():
            self.backup[name] = p.data
            p.data = self.shadow[name]

    def restore(self):
        for name, p in self.model.named_parameters():
            p.data = self.backup[name]
        self.backup = {}


"""
SWAPS = (
    SCRIPT.replace("loader =", f"{SWAPPED}loader =", 1).replace("for (x,)", "ema = EMA(model)\nfor (x,)", 1)
    + "ema.apply_shadow()\nprint(model(torch.ones(1, 4)).sum().item())\nema.restore()\n"
)
ATTACK = SWAPS.replace(
    "= p.data\n            p.data = self.shadow[name]", "= p.data.clone()\n            p.data.add_(p.grad)"
)


def test_weights_that_are_put_aside_and_come_back(tmp_path: Path) -> None:
    """As they are by averages, and by attacks on embeddings (FGM). Both were refused."""
    text, said = sharded(tmp_path, SWAPS)
    assert "self.backup[name] = p.data.clone()\n" in text and "p.data[...] = self.shadow[name]\n" in text
    assert "p.data[...] = self.backup[name]\n" in text and "AD907" not in said
    text, said = sharded(tmp_path, ATTACK)
    assert "p.data[...] = self.backup[name]\n" in text and "AD907" not in said


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ema.restore()", "optimizer.step()\nema.restore()"),  # which writes into the average
        ("        self.backup = {}\n\n", "\n"),  # where later steps write into what is kept
        (
            "            self.backup[name] = p.data\n",
            "            self.backup[name] = p.data\n            print(name)\n",
        ),
    ],
)
def test_weights_that_are_changed_by_another_name(tmp_path: Path, old: str, new: str) -> None:
    script = SWAPS.replace(old, new) + "for epoch in range(2):\n    optimizer.step()\n"
    assert "replaces the storage of parameters" in sharded(tmp_path, script)[1]


AROUND = SCRIPT.replace("optimizer =", "head = nn.Linear(4, 4)\nboth = nn.ModuleList([model, head])\noptimizer =", 1)
AROUND = AROUND.replace("SGD(model.parameters()", "SGD([*model.parameters(), *head.parameters()]").replace(
    "model(x), x", "head(model(x)), x"
)
NORMS = "print(sum(p.grad.norm().item() for p in both.parameters()))\n"


def test_parameters_of_a_module_around_sharded_ones(tmp_path: Path) -> None:
    """Norms of them were those of one rank's shares, in silence."""
    text, said = sharded(tmp_path, AROUND + NORMS)
    assert "p.grad.full_tensor().norm().item() for p in both.parameters()" in text and "AD907" not in said
    text, said = sharded(tmp_path, INSIDE + "print(max(p.max().item() for p in ema.parameters()))\n")
    assert "p.full_tensor().max().item() for p in ema.parameters()" in text and "AD907" not in said


def test_parameters_of_a_module_around_a_sharded_one_and_others(tmp_path: Path) -> None:
    script = AROUND.replace("[model, head]", "[model, nn.Linear(2, 2)]")
    assert "AD907 reads parameters of a module around a sharded one" in sharded(tmp_path, script + NORMS)[1]
    assert "AD907" not in sharded(tmp_path, script)[1]
    whole = "for p in both.parameters():\n    p.data = torch.ones(3)[:2].sum() * p.data\n"
    assert "p.data[...]" in sharded(tmp_path, AROUND + whole)[0]


LISTED = SCRIPT.replace("SGD(model.parameters(), lr=0.1)", "SGD(params, lr=0.1)")


@pytest.mark.parametrize(
    "made",
    [
        "model = Net()\nparams = [p for p in model.parameters() if p.requires_grad]\nmodel = model.to('cpu')\n",
        "model = Net()\nparams = []\nfor p in model.parameters():\n    params.append(p)\nmodel = model.to('cpu')\n",
        "params = []\nif len(sys.argv) > 5:\n    print(0)\nelse:\n    model = Net().to('cpu')\n"
        "    params += list(model.parameters())\n",
    ],
)
def test_parameters_that_are_listed_before_the_optimizer(tmp_path: Path, made: str) -> None:
    """The model was sharded behind that, and its list of parameters that it has no more was trained, in silence."""
    script = LISTED.replace("model = Net()\n", made).replace("import torch\n", "import sys\n\nimport torch\n", 1)
    lines = sharded(tmp_path, script)[0].split("\n")
    shard = next(at for at, line in enumerate(lines) if line.strip().startswith("fully_shard(model, "))
    assert shard < next(at for at, line in enumerate(lines) if "model.parameters()" in line)


def test_parameters_that_are_counted_before_the_optimizer(tmp_path: Path) -> None:
    made = "model = Net()\nprint(len([p for p in model.parameters()]))\nmodel = model.to('cpu')\n"
    text = sharded(tmp_path, SCRIPT.replace("model = Net()\n", made))[0]
    assert text.index("model = model.to('cpu')") < text.index("fully_shard(model, ")
