"""Where a script hides its BatchNorm, the conversion must still ask for statistics over all ranks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from conftest import converted

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project

SCRIPT = """\
import torch
import torch_geometric
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def block(size):
    layers = [nn.Linear(size, size)]
    layers.append(nn.BatchNorm1d(size))
    return layers


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {body}

    def forward(self, x):
        return self.body(x)


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("body", "normalises"),
    [
        ("self.body = nn.Sequential(*block(4), nn.Linear(4, 1))", True),
        ("self.body = nn.Sequential(*list(torchvision.models.resnet18().children())[:-1])", True),
        ("self.body = nn.Sequential(*(getattr(nn, name)(4) for name in ['BatchNorm1d']), nn.BatchNorm1d(4))", True),
        ("self.body = nn.Sequential(*list(torchvision.models.vgg11().children()))", False),
        ("self.body = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 1))", False),
        ("self.body = torch_geometric.nn.MLP([4, 8, 1])", True),
        ("self.body = torch_geometric.nn.GCN(4, 8, 2, norm='batch_norm')", True),
        ("self.body = torch_geometric.nn.GCN(4, 8, 2)", False),
    ],
)
def test_batch_norm_is_seen(body: str, normalises: bool) -> None:
    result = convert(Project.load(Path("train.py"), SCRIPT.format(body=body)), Config())
    assert ("convert_sync_batchnorm" in result.entry.after) == normalises


def test_settings_of_a_file_may_ask_for_it(tmp_path: Path) -> None:
    """`Net(**settings)`: a default decides nothing, where any argument may be given."""
    body = "self.body = nn.Sequential(*block(4)) if normed else nn.Linear(4, 1)"
    text = SCRIPT.replace("{body}", body).replace("def __init__(self)", "def __init__(self, normed=False)")
    text = text.replace("model = Net()", 'model = Net(**json.load(open("net.json")))').replace(
        "import", "import json\nimport", 1
    )
    (tmp_path / "train.py").write_text(text)
    result = convert(Project.load(tmp_path / "train.py"), Config())
    assert "convert_sync_batchnorm" in result.entry.after


TAKEN = """\
import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear({width}, 3)

    def forward(self, x):
        return self.head(self.backbone(x).flatten(1))


loader = DataLoader(TensorDataset(torch.randn(8, 3, 32, 32), torch.randint(3, (8,))), batch_size=4, shuffle=True)
net = torchvision.models.{name}()
{backbone}
model = Net(backbone)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("name", "backbone", "normalises"),
    [
        ("resnet18", "backbone = nn.Sequential(*list(net.children())[:-1])", True),
        ("resnet18", "layers = list(net.children())[:-1]\nbackbone = nn.Sequential(*layers)", True),
        ("resnet18", "backbone = nn.Sequential(net.conv1, net.bn1, net.layer1, nn.AdaptiveAvgPool2d(1))", True),
        ("vgg11", "backbone = nn.Sequential(*list(net.children())[:-1])", False),
        ("resnet18", "backbone = nn.Sequential(nn.Flatten(), nn.Linear(3072, net.fc.in_features))", False),
    ],
)
def test_layers_of_another_model(tmp_path: Path, name: str, backbone: str, normalises: bool) -> None:
    """Statistics of each rank's own samples, silently, where the layers of a model are put into a container."""
    code, _ = converted(tmp_path, TAKEN.format(name=name, backbone=backbone, width="512"))
    assert ("convert_sync_batchnorm" in code) == normalises


INSIDE = """\
class Pretrained(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = []
        for name, child in torchvision.models.resnet18().named_children():
            self.body.append(child)
        self.body = nn.Sequential(*self.body)


"""


def test_layers_taken_out_of_another_model(tmp_path: Path) -> None:
    text = SCRIPT.format(body="self.body = Pretrained().body").replace("class Net", INSIDE + "class Net")
    assert "convert_sync_batchnorm" in converted(tmp_path, text)[0]


@pytest.mark.parametrize(
    ("norm", "other", "refused"),
    [("BatchNorm1d", "nn.Linear(4, 4)", True), ("LayerNorm", "nn.BatchNorm1d(4)", False)],
)
def test_a_gradient_through_batch_statistics(tmp_path: Path, norm: str, other: str, refused: bool) -> None:
    """nn.SyncBatchNorm has no second derivative: a generator may have it, a critic under a penalty may not."""
    step = "nn.functional.mse_loss(model(x), y).backward()"
    lines = (
        "fake = generator(x)",
        "score = model(fake)",
        "(slope,) = torch.autograd.grad(score.sum(), fake, create_graph=True)",
        "(score.mean() + slope.norm()).backward()",
    )
    text = SCRIPT.format(body=f"self.body = nn.Sequential(nn.Linear(4, 4), nn.{norm}(4), nn.Linear(4, 1))")
    text = text.replace(step, "\n    ".join(lines))
    made = (
        f"generator = nn.Sequential(nn.Linear(4, 4), {other})\noptimizer = torch.optim.SGD([*generator.parameters(), *"
    )
    _, said = converted(tmp_path, text.replace("optimizer = torch.optim.SGD(", made).replace(", lr=0.1", "], lr=0.1"))
    assert ("no second derivative" in said) == refused


@pytest.mark.parametrize(
    ("chosen", "read", "kept"),
    [("", "self.kept", True), (" if isinstance(m, Head)", "self.kept", False), ("", "0", False)],
)
def test_layers_that_a_list_holds_too(tmp_path: Path, chosen: str, read: str, kept: bool) -> None:
    """Lists get the synchronised layers as well; in one of heads there are none, nor does it matter where nobody reads
    it."""
    head = "class Head(nn.Linear):\n    pass\n\n\nclass Net"
    body = f"self.body = nn.Sequential(*block(4), Head(4, 1))\n        self.kept = [m for m in self.body{chosen}]"
    text = SCRIPT.format(body=body).replace("class Net", head)
    text = text.replace("    def forward(", f"    def last(self):\n        return {read}\n\n    def forward(")
    after, _ = converted(tmp_path, text)
    assert ("model = synchronise_norms(" in after) == kept


def test_lists_hold_the_synchronised_layers(tmp_path: Path) -> None:
    """What a converted script defines for that puts the same layers into lists as into the modules."""
    body = "self.body = nn.Sequential(*block(4), nn.Linear(4, 1))\n        self.kept = [m for m in self.body]"
    text = SCRIPT.format(body=body).replace(
        "    def forward(", "    def last(self):\n        return self.kept\n\n    def forward("
    )
    after, _ = converted(tmp_path, text)
    definition = after[after.index("def synchronise_norms(") :].split("\n\n")[0]
    nn = pytest.importorskip("torch").nn
    scope: dict[str, Any] = {"nn": nn}
    exec(definition, scope)
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model.kept, model.sizes = [model[1], "norm"], (model[1], 2)
    model = scope["synchronise_norms"](model)
    assert isinstance(model[1], nn.SyncBatchNorm)
    assert model.kept == [model[1], "norm"] and model.sizes == (model[1], 2)


@pytest.mark.parametrize(("mode", "told"), [("model.train()", False), ("model.train(number > 4)", True)])
def test_data_that_all_ranks_pass_through(tmp_path: Path, mode: str, told: bool) -> None:
    """In training mode they count once for each rank; a model that is told its mode may be in the other one."""
    text = SCRIPT.format(body="self.body = nn.Sequential(*block(4), nn.Linear(4, 1))")
    text += f"for number in range(2):\n    {mode}\n    print(model(torch.ones(8, 4)).mean())\n"
    after, said = converted(tmp_path, text)
    assert ("share_rows(model, torch.ones(8, 4))" in after) != told and "AD602" not in said


PARTED = """\
self.body = nn.Sequential(*block(4))
        self.head = nn.Linear(4, 1)

    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.head(self.features(x))"""


@pytest.mark.parametrize(
    ("preview", "told"),
    [
        ("model.body(probe)", True),
        ("model.features(probe)", True),
        ("model.head(model.body(probe))", True),
        ("model.head(probe)", False),
    ],
)
def test_data_that_all_ranks_pass_through_a_part(tmp_path: Path, preview: str, told: bool) -> None:
    body, _, _ = SCRIPT.partition("\n    def forward")
    text = body.format(body=PARTED) + SCRIPT[SCRIPT.index("\n\nloader") :]
    text = text.replace("for x, y", "probe = torch.ones(5, 4)\nfor x, y") + f"    print({preview}.mean())\n"
    assert ("AD602 all ranks pass the same data" in converted(tmp_path, text)[1]) == told


PREVIEW = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

probe = torch.randn(8, 6)
loader = DataLoader(TensorDataset(torch.randn(32, 6), torch.randint(0, 2, (32,))), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    model.train()
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {first}
    with torch.no_grad():
        print(model(probe).std().item())
    model.eval()
"""


def test_a_preview_in_training_mode_beside_an_evaluation(tmp_path: Path) -> None:
    """It matters in which mode the model is at that time, not that it is in the other one somewhere."""
    assert "share_rows(model, probe).std()" in converted(tmp_path, PREVIEW.replace("{first}", "pass"))[0]
    assert "share_rows" not in converted(tmp_path, PREVIEW.replace("{first}", "model.eval()"))[0]
    other = PREVIEW.replace("{first}", "set_mode(model)").replace("    model.eval()\n", "")
    other = other.replace(
        "probe = ", "def set_mode(net):\n    list(map(lambda each: each.eval(), [net]))\n\n\nprobe = "
    )
    assert "share_rows" not in converted(tmp_path, other)[0], "it cannot be told"


PAIRED = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))

    def forward(self, x, y):
        return {result}


model = Net()
"""


@pytest.mark.parametrize(
    ("result", "given", "shared"),
    [
        ("self.body(x) + y[:, None]", "probe, torch.arange(8)", True),
        ("self.body(x) + y[:, None]", "probe, 0.5", False),  # a number
        ("self.body(x) + y[:, None]", "probe, y=torch.arange(8)", False),
        ("self.body(x - x.mean(0)) + y[:, None]", "probe, torch.arange(8)", False),  # what rows are depends on others
        ("(self.body(x), y)[0] if self.training else self.body(x), y", "probe, torch.arange(8)", False),  # a tuple
    ],
)
def test_a_preview_of_several_tensors(tmp_path: Path, result: str, given: str, shared: bool) -> None:
    """Each of them has the rows, as it has in training, and the answer is one tensor."""
    one = PREVIEW.replace("model(x)", "model(x, y)" + "[0]" * result.endswith(", y")).replace("    {first}\n", "")
    one = re.sub("model = .*\n", PAIRED.format(result=result), one).replace("model(probe)", f"model({given})")
    after, said = converted(tmp_path, one)
    assert (f"share_rows(model, {given})" in after) == shared == ("AD602" not in said), said


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("self.body = nn.Sequential(nn.Linear(4, 4), nn.InstanceNorm1d(4, track_running_stats=True))", True),
        ("self.body = nn.Sequential(nn.Linear(4, 4), nn.InstanceNorm1d(4, affine=True))", False),
    ],
)
def test_layers_that_keep_statistics_of_their_samples(tmp_path: Path, body: str, told: bool) -> None:
    """InstanceNorm has no counterpart that keeps those of all ranks."""
    _, said = converted(tmp_path, SCRIPT.format(body=body))
    assert ("InstanceNorm1d keeps running statistics" in said) == told


AVERAGE = """
average = Net()
for epoch in range(2):
    {mode}
    for x, _ in {loader}:
        average(x)
torch.save(average.state_dict(), "average.pt")
"""


@pytest.mark.parametrize(
    ("mode", "over", "told"),
    [
        ("average.train()", "loader", True),
        ("average.eval()", "loader", False),
        ("pass", "torch.randn(2, 9, 8, 4)", False),
    ],
)
def test_a_model_that_does_not_train(tmp_path: Path, mode: str, over: str, told: bool) -> None:
    """Statistics of averaged weights, as `bn_update(loader, swa_model)` computes them."""
    text = SCRIPT.format(body="self.body = nn.Sequential(*block(4))") + AVERAGE.format(mode=mode, loader=over)
    _, said = converted(tmp_path, text)
    assert ("average does not train" in said) == told


def test_a_copy_of_a_model(tmp_path: Path) -> None:
    """It is synchronised, since the model is by then."""
    text = SCRIPT.format(body="self.body = nn.Sequential(*block(4))")
    text += "import copy\naverage = copy.deepcopy(model)\nfor x, _ in loader:\n    average(x)\n"
    code, said = converted(tmp_path, text)
    assert "copy.deepcopy(model.module)" in code
    assert "does not train" not in said


@pytest.mark.parametrize(("last", "shared"), [("torch.save(model.state_dict(), 'model.pt')", True), ("pass", False)])
def test_a_preview_between_training_and_a_checkpoint(tmp_path: Path, last: str, shared: bool) -> None:
    """What is saved has counted it."""
    text = PREVIEW.replace("    with torch.no_grad():\n    ", "with torch.no_grad():\n").replace("    {first}\n", "")
    assert ("share_rows(model, probe)" in converted(tmp_path, text.replace("    model.eval()\n", last))[0]) == shared


BUFFER = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        places = {places}
        self.register_buffer("places", places)

    def forward(self, x):
        return self.layer(x + self.places[0])


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("places", "turned"),
    [
        ("torch.rand(5, 4).unsqueeze(0).transpose(0, 1)", True),
        ("0.5 * torch.rand(5, 4).unsqueeze(0).transpose(0, 1)", True),
        ("0.5 * torch.rand(5, 4).unsqueeze(1)", False),
    ],
)
def test_a_buffer_with_turned_axes(tmp_path: Path, places: str, turned: bool) -> None:
    code, _ = converted(tmp_path, BUFFER.format(places=places))
    assert ("memory_format=torch.contiguous_format" in code) == turned


CRITIC = """\
import torch
from torch import autograd, nn
from torch.utils.data import DataLoader, TensorDataset


def block(size, norm="batch"):
    layers = [nn.Linear(size, size)]
    if {test}:
        layers.append(nn.BatchNorm1d(size))
    return nn.Sequential(*layers)


class Critic(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.body = block(4, norm)

    def forward(self, x):
        return self.body(x).mean(1)


generator, critic = block(4), Critic({norm})
g_optimizer = torch.optim.Adam(generator.parameters())
d_optimizer = torch.optim.Adam(critic.parameters())
for (real,) in DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True):
    between = (real + generator(real)) / 2
    out = critic(between)
    slope = autograd.grad(out, between, grad_outputs=torch.ones_like(out), create_graph=True)[0]
    loss = out.mean() - critic(real).mean() + ((slope.norm(2, dim=1) - 1) ** 2).mean()
    d_optimizer.zero_grad()
    loss.backward()
    d_optimizer.step()
    g_optimizer.zero_grad()
    (-critic(generator(real)).mean()).backward()
    g_optimizer.step()
"""


@pytest.mark.parametrize(
    ("test", "norm", "refused"),
    [
        ("norm", "False", False),
        ("norm", "True", True),
        ("norm != []", "[]", False),
        ("norm != []", '"batch"', True),
        ('norm == "batch"', "None", False),
    ],
)
def test_a_critic_without_the_norm_that_its_blocks_speak_of(
    tmp_path: Path, test: str, norm: str, refused: bool
) -> None:
    code, said = converted(tmp_path, CRITIC.format(test=test, norm=norm))
    assert ("no second derivative" in said) == refused
    assert "convert_sync_batchnorm(generator)" in code or refused
    assert "convert_sync_batchnorm(critic)" not in code


RESCALED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randint(9, (64, 3)), torch.randn(64, 4)), batch_size=8)
model = nn.Sequential(nn.{layer}, nn.Flatten())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("layer", "warned"),
    [
        ("EmbeddingBag(9, 4, max_norm=1.0)", True),
        ("EmbeddingBag(9, 4, 1.0)", True),
        ("Embedding(9, 4, None, 2)", True),
        ("Embedding(9, 4, 0)", False),
        ("EmbeddingBag(9, 4, max_norm=None)", False),
    ],
)
def test_rows_that_a_rank_shortens(tmp_path: Path, layer: str, warned: bool) -> None:
    """In its own copy of the weights: the ranks' copies drifted apart, in silence."""
    assert ("max_norm" in converted(tmp_path, RESCALED.format(layer=layer))[1]) == warned
