"""What is sharded, in which units and where: models as people build them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.config import Strategy

TRAINING = """
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

HEAD = """\
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.fc(x)

"""

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(3)])
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.blocks(x))

"""

SCRIPT = HEAD + NET + TRAINING


def sharded(folder: Path, text: str) -> tuple[str, str]:
    """The conversion of a script to FSDP, and what is said of it."""
    return converted(folder, text, Strategy.FSDP)


def test_like_blocks_are_units(tmp_path: Path) -> None:
    assert "for block in model.blocks:\n    fully_shard(block, mesh=mesh)\n" in sharded(tmp_path, SCRIPT)[0]


BACKBONES = """
class Backbone(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.Sequential(*[Block() for _ in range(depth)])

    def forward(self, x):
        return self.layers(x)


class Flat(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x)


def small():
    return Backbone(2)


def large():
    return Backbone(4)


kinds = {"small": small, "large": large}


class Net(nn.Module):
    def __init__(self, name="small"):
        super().__init__()
        self.encoder = kinds[name]()
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.encoder(x))

"""


def test_blocks_of_whatever_encoder_is_chosen(tmp_path: Path) -> None:
    """Each once, and only what all of them have."""
    script = HEAD + BACKBONES + TRAINING.replace("Net()", "Net(sys.argv[1])")
    assert "for block in model.encoder.layers:\n" in sharded(tmp_path, script)[0]
    text = sharded(tmp_path, script.replace("return Backbone(4)", "return Flat()"))[0]
    assert "for block in" not in text and "fully_shard(model" in text


@pytest.mark.parametrize(
    ("forward", "is_unit"),
    [
        ("return self.fc(x) + x", True),
        ("out = self.fc(x)\n        out += x\n        return F.relu(out, inplace=True)", True),
        ("x = self.fc(x)\n        x += 1\n        return x", True),
        ("x += self.fc(x)\n        return x", False),
        ("return x + self.fc(F.relu(x, inplace=True))", False),
        ("return x + self.fc(x.relu_())", False),
        ("return x + self.fc(torch.relu_(x))", False),
        ("return x + self.body(x)", False),
    ],
)
def test_blocks_that_change_their_input_are_no_units(tmp_path: Path, forward: str, is_unit: bool) -> None:
    """FSDP gives a block a view of its input, which torch does not let it change."""
    script = SCRIPT.replace("return x + self.fc(x)", forward, 1)
    script = script.replace("self.fc = nn.Linear(4, 4)\n", "self.fc = nn.Linear(4, 4)\n        #", 1)
    script = script.replace("#", "self.body = nn.Sequential(nn.ReLU(True), nn.Linear(4, 4))", 1)
    text = sharded(tmp_path, script)[0]
    assert ("for block in model.blocks:" in text) == is_unit and "fully_shard(model" in text


def test_layers_tried_out_in_a_constructor(tmp_path: Path) -> None:
    """They are whole there: it says nothing of where the model is first used."""
    script = SCRIPT.replace(
        "self.head = nn.Linear(4, 1)",
        "width = self.blocks(torch.zeros(1, 4)).shape[1]\n        self.head = nn.Linear(width, 1)\n"
        "        print(self.count(), self.head.weight.norm().item())",
    ).replace(
        "    def forward(self, x):\n        return self.head",
        "    def count(self):\n        return sum(p.numel() for p in self.parameters())\n\n"
        "    def forward(self, x):\n        return self.head",
    )
    text, said = sharded(tmp_path, script)
    assert "fully_shard(model" in text and "AD907" not in said and ".full_tensor()" not in text.split("class Net")[1]


@pytest.mark.parametrize(
    ("made", "is_found"),
    [
        ("self.a, self.b = Block(), Block()\n        self.layers = [self.a, self.b]", True),
        ("self.layers = [Block(), Block()]\n        self.body = nn.Sequential(*self.layers)", True),
        ("self.layers = [Block(), Block()]\n        self.body = nn.ModuleList(self.layers)", True),
        ("self.layers = [Block()]\n        self.add_module(f'l{1}', self.layers[0])", True),
        ("self.layers = [Block(), Block()]", False),
    ],
)
def test_layers_in_a_plain_list(tmp_path: Path, made: str, is_found: bool) -> None:
    script = SCRIPT.replace("self.blocks = nn.Sequential(*[Block() for _ in range(3)])", made)
    script = script.replace(
        "        return self.head(self.blocks(x))",
        "        for layer in self.layers:\n            x = layer(x)\n        return self.head(x)",
    )
    text, said = sharded(tmp_path, script)
    assert ("fully_shard(model" in text) == is_found == ("a plain list" not in said)


@pytest.mark.parametrize(
    "change",
    ["self.fc.weight.data[:, -1].zero_()", "self.fc.weight.data *= 0.5", "self.fc.weight.data.mul_(0.5)"],
)
def test_parameters_changed_in_forward(tmp_path: Path, change: str) -> None:
    """They are gathered for as long as it lasts: what is written there is lost."""
    script = SCRIPT.replace("        return x + self.fc(x)", f"        {change}\n        return x + self.fc(x)")
    assert "changes parameters inside a forward pass" in sharded(tmp_path, script)[1]


@pytest.mark.parametrize("saved", ['{"net": model, "epoch": 1}', "[model, 1]", "model"])
def test_models_saved_as_objects(tmp_path: Path, saved: str) -> None:
    said = sharded(tmp_path, SCRIPT + f'torch.save({saved}, "model.pt")\n')[1]
    assert "saves a model as an object" in said


@pytest.mark.parametrize(
    "method",
    [
        "    def groups(self):\n        first, second = self.blocks[0].fc.parameters(), self.head.parameters()\n"
        "        return [{'params': first}, {'params': second}]\n",
        "    def groups(self):\n        for part in [self.blocks, self.head]:\n"
        "            for p in part.parameters():\n                yield p\n",
    ],
)
def test_methods_that_list_parameters_are_no_forward_passes(tmp_path: Path, method: str) -> None:
    """Whole parameters would be handed to the optimizer."""
    script = SCRIPT.replace(
        "    def forward(self, x):\n        return self.head",
        f"{method}\n    def forward(self, x):\n        return self.head",
    )
    text = sharded(tmp_path, script.replace("SGD(model.parameters()", "SGD(model.groups()"))[0]
    assert "fully_shard(model" in text and "register_fsdp_forward_method" not in text


def test_methods_that_a_library_may_call(tmp_path: Path) -> None:
    method = "    def predict(self, x):\n        return self.forward(torch.tensor(x))[:, 0] > 0\n\n"
    script = SCRIPT.replace(
        "    def forward(self, x):\n        return self.head",
        method + "    def forward(self, x):\n        return self.head",
    )
    assert "register_fsdp_forward_method" not in sharded(tmp_path, script)[0]
    script = (
        "from mlxtend.plotting import plot_decision_regions\n" + script + "plot_decision_regions(X=1, y=2, clf=model)\n"
    )
    assert 'register_fsdp_forward_method(model, "predict")' in sharded(tmp_path, script)[0]


@pytest.mark.parametrize(
    ("held", "step"),
    [
        (
            "params, averages = list(model.state_dict().values()), list(average.state_dict().values())\n",
            "for p, a in zip(params, averages):\n            a.mul_(0.9).add_(p * 0.1)",
        ),
        (
            "",
            "for p, a in zip(model.parameters(), average.parameters()):\n"
            "            a.data.mul_(0.9).add_(p.data * 0.1)",
        ),
        (
            "",
            "state = model.state_dict()\n        for name, a in average.state_dict().items():\n"
            "            a.copy_(0.9 * a + 0.1 * state[name])",
        ),
    ],
)
def test_a_second_model_that_follows_the_first(tmp_path: Path, held: str, step: str) -> None:
    """It is computed from shards of the first, and is sharded alike."""
    script = SCRIPT.replace("model = Net()\n", "model = Net()\naverage = Net()\n").replace(
        "for x, y", f"{held}for x, y", 1
    )
    text = sharded(
        tmp_path,
        script.replace("    optimizer.step()\n", f"    optimizer.step()\n    with torch.no_grad():\n        {step}\n"),
    )[0]
    assert "fully_shard(model, " in text and "fully_shard(average, " in text
    alone = sharded(tmp_path, script.replace(held, "") + "print(average(torch.ones(1, 4)))\n")[0]
    assert "fully_shard(average" not in alone


@pytest.mark.parametrize(
    "step",
    [
        "for p, a in zip(model.parameters(), average.parameters()):\n            a.data.mul_(0.9).add_(p.data * 0.1)",
        "for p, a in zip(model.state_dict().values(), average.state_dict().values()):\n            a.lerp_(p, 0.1)",
        "",
    ],
)
def test_a_follower_that_is_made_once_the_first_is_sharded(tmp_path: Path, step: str) -> None:
    """It is sharded where it is made, and takes the shards of the first as they are."""
    made = "average = Net()\naverage.load_state_dict(model.state_dict())\n"
    script = SCRIPT.replace("for x, y", f"{made}for x, y", 1)
    step = f"    optimizer.step()\n    with torch.no_grad():\n        {step}\n" if step else "    optimizer.step()\n"
    text = sharded(tmp_path, script.replace("    optimizer.step()\n", step))[0]
    lines = text.split("\n")
    if "with torch.no_grad()" in step:
        shard = next(at for at, line in enumerate(lines) if line.startswith("fully_shard(average, "))
        assert lines.index("average = Net()") < shard < lines.index("average.load_state_dict(model.state_dict())")
    else:
        assert "fully_shard(average" not in text


def test_layers_that_methods_ask_for_once_they_are_synchronised(tmp_path: Path) -> None:
    method = (
        "    def norms(self):\n        for m in self.modules():\n            if isinstance(m, nn.BatchNorm1d):\n"
        "                yield from m.parameters()\n\n"
    )
    script = SCRIPT.replace(
        "    def forward(self, x):\n        return self.head",
        method + "    def forward(self, x):\n        return self.head",
    )
    script = script.replace(
        "self.head = nn.Linear(4, 1)", "self.head = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))"
    )
    text = sharded(tmp_path, script.replace("SGD(model.parameters()", "SGD(model.norms()"))[0]
    assert "isinstance(m, (nn.BatchNorm1d, nn.SyncBatchNorm))" in text


@pytest.mark.parametrize("called", ["model.forward(x)", "model.__call__(x)"])
def test_passes_that_are_called_by_their_name(tmp_path: Path, called: str) -> None:
    text, _ = sharded(tmp_path, SCRIPT.replace("model(x), y", f"{called}, y"))
    assert ("model(x), y" in text) is ("forward" in called)
    assert "model.forward(" not in text


def test_passes_inside_a_loss_of_the_model(tmp_path: Path) -> None:
    loss = "\n    def loss(self, x, y):\n        return F.mse_loss(self.forward(x), y)\n"
    training = TRAINING.replace("nn.functional.mse_loss(model(x), y)", "model.loss(x, y)")
    text, _ = sharded(tmp_path, HEAD + NET + loss + training)
    assert "F.mse_loss(self.forward(x), y)" in text and 'register_fsdp_forward_method(model, "loss")' in text


COUNTED = """
trained = filter(lambda p: p.requires_grad, model.parameters())
print(sum(p.numel() for p in trained))
model.apply(initialise)
"""


@pytest.mark.parametrize(("taken", "is_after"), [("model.parameters()", True), ("trained", False)])
def test_initialised_after_its_parameters_were_counted(tmp_path: Path, taken: str, is_after: bool) -> None:
    made = (
        "def initialise(layer):\n    if isinstance(layer, nn.Linear):\n        layer.weight.data.normal_(0.0, 0.02)\n\n"
    )
    training = TRAINING.replace("model = Net()\n", "model = Net()" + COUNTED).replace(
        "model.parameters(), lr", f"{taken}, lr"
    )
    text, _ = sharded(tmp_path, HEAD + NET + made + training)
    assert (text.index("fully_shard(model") > text.index("model.apply(initialise)")) is is_after


WRAPPED = SCRIPT.replace("model = Net()", "model = nn.DataParallel(Net())")


def test_keys_of_a_wrapper_stay_in_checkpoints(tmp_path: Path) -> None:
    saved = 'torch.save({"model": model.state_dict()}, "model.pt")\n'
    text, said = sharded(tmp_path, WRAPPED + saved)
    assert 'save_gathered({"model": model.state_dict(prefix="module.")}, "model.pt")' in text
    assert "AD907" not in said
    text, said = sharded(tmp_path, WRAPPED + "model.load_state_dict(torch.load('model.pt'))\n")
    assert 'model_shards({key.removeprefix("module."): value for key, value in torch.load(' in text
    assert "AD9" not in said


AVERAGE = """
class Average:
    def __init__(self, model):
        self.model = model
        {kept}

    def update(self):
        {updated}

"""


@pytest.mark.parametrize(
    ("kept", "updated"),
    [
        (
            "self.shadow = {k: v.clone() for k, v in model.state_dict().items()}",
            "[self.shadow[k].mul_(0.9).add_(0.1 * v) for k, v in self.model.state_dict().items()]",
        ),
        (
            "self.shadow = [p.clone().detach() for p in model.parameters()]",
            "[s.sub_(0.1 * (s - p.data)) for s, p in zip(self.shadow, self.model.parameters())]",
        ),
        (
            "self.shadow = {}\n        for k, p in model.named_parameters():\n            self.shadow[k] = p.clone()",
            "[self.shadow[k].mul_(0.9).add_(0.1 * p.data) for k, p in self.model.named_parameters()]",
        ),
    ],
)
def test_averages_are_kept_of_shards(tmp_path: Path, kept: str, updated: str) -> None:
    """Whole tensors and shards are never added up: an average that is kept is made once its model is sharded."""
    made = AVERAGE.format(kept=kept, updated=updated)
    training = (
        TRAINING.replace("model = Net()\n", "model = Net()\naverage = Average(model)\n") + "    average.update()\n"
    )
    text, _ = sharded(tmp_path, HEAD + NET + made + training + "    average.update()\n")
    assert text.index("fully_shard(model") < text.index("Average(model)")


@pytest.mark.parametrize(
    ("told", "expected"),
    [("True", "AD907 its gradients are sparse"), ("len(sys.argv) > 1", "AD907 where a setting asks"), ("False", "")],
)
def test_sparse_gradients(tmp_path: Path, told: str, expected: str) -> None:
    net = NET.replace("self.blocks(x)", "self.blocks(x + self.table(x.long().abs().clamp(max=3)[:, 0]))").replace(
        "self.head =", f"self.table = nn.Embedding(4, 4, sparse={told})\n        self.head ="
    )
    _, said = sharded(tmp_path, HEAD + net + TRAINING)
    assert expected in said and ("sparse" in said) is bool(expected)


def test_models_that_are_called_by_themselves(tmp_path: Path) -> None:
    called = NET + "    def __call__(self, x):\n        return self.forward(x)\n"
    _, said = sharded(tmp_path, HEAD + called + TRAINING)
    assert "defines __call__" in said


@pytest.mark.parametrize(
    ("tie", "is_unit"),
    [
        ("", True),
        ("self.blocks[1].fc.weight = self.blocks[0].fc.weight", False),
        ("self.head.weight = self.blocks[0].fc.weight", False),
        ("self.head.weight = self.foot.weight", True),
    ],
)
def test_blocks_that_share_parameters_with_others_are_no_units(tmp_path: Path, tie: str, is_unit: bool) -> None:
    """One parameter belongs to one group of shards."""
    head = "self.head = nn.Linear(4, 1)\n"
    made = f"{head}        self.foot = nn.Linear(4, 1)\n        {tie}\n"
    text = sharded(tmp_path, SCRIPT.replace(head, made))[0]
    assert ("for block in model.blocks:" in text) is is_unit and "fully_shard(model" in text


def test_blocks_whose_forward_is_called_by_its_name(tmp_path: Path) -> None:
    one_by_one = "for block in self.blocks:\n            x = block.forward(x)\n        return self.head.forward(x)"
    text = sharded(tmp_path, SCRIPT.replace("return self.head(self.blocks(x))", one_by_one))[0]
    assert "x = block(x)\n        return self.head.forward(x)" in text


LOADED_OR_TRAINED = """
def resume(model, path):
    model.load_state_dict(torch.load(path))
    return model


if len(sys.argv) > 1:
    model = resume(model, sys.argv[1])
else:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_models_that_are_loaded_or_else_trained(tmp_path: Path) -> None:
    """Where one branch binds the model once more and the other trains it, it is sharded ahead of both."""
    script = HEAD + NET + TRAINING[: TRAINING.index("optimizer")] + LOADED_OR_TRAINED
    text, _ = sharded(tmp_path, script)
    assert text.index("fully_shard(model") < text.index("if len(sys.argv) > 1")
    assert "model.load_state_dict(model_shards(torch.load(path, map_location=" in text


READ_WHERE_MADE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.range = nn.Parameter(torch.ones(4), requires_grad=False)
        self.fc = nn.Linear(4, 1)
        nn.init.uniform_(self.fc.weight, b=self.range.sum().item())

    def forward(self, x):
        return self.fc(x * self.range)

"""


def test_parameters_are_whole_while_their_model_is_made(tmp_path: Path) -> None:
    text, _ = sharded(tmp_path, HEAD + READ_WHERE_MADE + TRAINING)
    assert "fully_shard(model" in text and "full_tensor" not in text


@pytest.mark.parametrize(
    ("result", "refused"),
    [
        ("torch.distributions.Normal(y, 1.0)", "gives back a Normal"),
        ("(torch.distributions.Normal(y, 1.0), y)", "gives back a Normal"),
        ("Answer(y)", "gives back a Answer"),
        ('{"y": Answer(y)}', "gives back a Answer"),
        ("Pair(y, y)", ""),
        ('{"y": y}', ""),
        ("(y, [y])", ""),
    ],
)
def test_objects_that_models_give_back(tmp_path: Path, result: str, refused: str) -> None:
    """FSDP comes to the backward pass by the tensors that it finds in what a forward pass gives back."""
    classes = "class Answer:\n    def __init__(self, y):\n        self.y = y\n\n"
    classes += "class Pair(NamedTuple):\n    y: torch.Tensor\n    z: torch.Tensor\n\n"
    net = NET.replace("return self.head(self.blocks(x))", f"y = self.head(self.blocks(x))\n        return {result}")
    training = TRAINING.replace("nn.functional.mse_loss(model(x), y)", "score(model(x), y)")
    head = HEAD.replace("import sys\n", "import sys\nfrom typing import NamedTuple\n")
    script = head + classes + net + "def score(out, y):\n    return measure(out, y).mean()\n" + training
    assert refused in sharded(tmp_path, script)[1]
    assert ("AD907" in sharded(tmp_path, script)[1]) is bool(refused)


CHOSEN = """
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = self._make_layer(2), nn.Linear(4, 1)

    def _make_layer(self, count):
        layers = [Block() for _ in range(count)]
        return nn.Sequential(*layers, Block()) if self.training else layers[0](torch.ones(1, 4))

    def forward(self, x):
        return self.head(self.body(x))


kinds = {"deep": Deep, "flat": Net}


def made(name, follows=False):
    model = kinds[name]()
    if follows:
        for parameter in model.parameters():
            parameter.detach_()
    return model


def training(name, epochs):
    model, teacher = made(name), made(name, True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
for name in sys.argv[1:]:
    training(name, 2)
"""


def test_methods_that_make_the_layers_of_one_of_two_models(tmp_path: Path) -> None:
    """A constructor's own methods need not be those of the other model."""
    text, said = sharded(tmp_path, HEAD + NET + CHOSEN)
    assert "AD907" not in said and "fully_shard(model" in text


@pytest.mark.parametrize(
    ("made", "compiled"),
    [
        ("model = Net()\n", False),
        ("model = torch.compile(Net())\n", True),
        ("model = Net()\nmodel.head = torch.compile(model.head)\n", True),
    ],
)
def test_keys_of_compiled_models_stay_in_checkpoints(tmp_path: Path, made: str, compiled: bool) -> None:
    """`get_model_state_dict` takes the prefix of `torch.compile` away, which the script's own files have."""
    script = SCRIPT.replace("model = Net()\n", made) + 'torch.save(model.state_dict(), "model.pt")\n'
    text, _ = sharded(tmp_path, script)
    assert ("save_gathered(model.state_dict(), " in text) is compiled
    assert ("get_model_state_dict(" in text) is not compiled


@pytest.mark.parametrize("called", ["self.transformer.h", 'self.transformer["h"]'])
def test_blocks_in_a_dict_of_modules(tmp_path: Path, called: str) -> None:
    """Those of minGPT and its descendants; what is tied beside them leaves them units."""
    made = "self.transformer = nn.ModuleDict(dict(wte=nn.Linear(4, 4), h=nn.ModuleList([Block(), Block()])))"
    made += "\n        self.foot = nn.Linear(4, 4)\n        self.transformer.wte.weight = self.foot.weight"
    net = SCRIPT.replace("self.blocks = nn.Sequential(*[Block() for _ in range(3)])", made)
    net = net.replace(
        "return self.head(self.blocks(x))",
        f"for block in {called}:\n            x = block(x)\n        return self.head(x) + self.foot(x).mean()",
    )
    text, said = sharded(tmp_path, net)
    assert (
        "for block in model.transformer.h:\n    fully_shard(block, mesh=mesh)\n" in text
        and "no repeated blocks" not in said
    )
