"""Models that libraries make: what is known of them without looking inside."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project

SCRIPT = """\
import {library}
import torch
from torch.utils.data import DataLoader
from pictures import Pictures

{before}
model = {model}
loader = DataLoader(Pictures(), batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for batch in loader:
        {step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""
BACKBONE = """\
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = timm.create_model("{}", num_classes=0)
        self.head = torch.nn.Linear(512, 2)

    def forward(self, x):
        return self.head(self.body(x))

"""


def converted(folder: Path, library: str, model: str, step: str, before: str = "") -> tuple[str, str]:
    """The conversion and what is said of it."""
    path = folder / "train.py"
    path.write_text(SCRIPT.format(library=library, model=model, step=step, before=before))
    result = convert(Project.load(path), Config())
    return result.entry.after, "\n".join(f"{each.code} {each.message}" for each in result.diagnostics)


@pytest.mark.parametrize(
    ("library", "model", "normalises"),
    [
        ("timm", 'timm.create_model("resnet18")', True),
        ("timm", 'timm.create_model("timm/efficientnet_b0.ra_in1k", pretrained=True)', True),
        ("timm", 'timm.create_model("vit_tiny_patch16_224")', False),
        ("timm", 'timm.create_model("vit_small_resnet26d_224")', True),
        ("timm", "timm.create_model(name)", True),
        ("torchvision", "torchvision.models.vgg16()", False),
        ("torchvision", "torchvision.models.vgg16_bn()", True),
        ("torchvision", "torchvision.models.maxvit_t()", True),
        ("torchvision", 'torchvision.models.get_model("swin_t")', False),
        ("torchvision", "torchvision.models.__dict__[name]()", True),
        ("segmentation_models_pytorch", 'segmentation_models_pytorch.Unet("resnet34")', True),
        ("torch.hub", 'torch.hub.load("pytorch/vision", "resnet18")', True),
    ],
)
def test_batch_statistics_of_unseen_models_are_synchronised(
    tmp_path: Path, library: str, model: str, normalises: bool
) -> None:
    """In doubt, too: where nothing normalises over batches, nothing changes."""
    step = "loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])"
    after, _ = converted(tmp_path, library, model, step, "import sys\nname = sys.argv[1]")
    assert ("SyncBatchNorm" in after) == normalises


@pytest.mark.parametrize(("name", "normalises"), [("resnet18", True), ("deit_tiny_patch16_224", False)])
def test_backbones_are_known(tmp_path: Path, name: str, normalises: bool) -> None:
    """Inside of classes of the script."""
    step = "loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])"
    after, _ = converted(tmp_path, "timm", "Net()", step, BACKBONE.format(name))
    assert ("SyncBatchNorm" in after) == normalises


@pytest.mark.parametrize(
    ("model", "step", "count"),
    [
        (
            'AutoModelForMaskedLM.from_pretrained("b").cuda()',
            "loss = model(**batch).loss",
            '(batch["labels"] != -100).sum()',
        ),
        (
            "BertForTokenClassification(config)",
            "loss = model(batch[0], labels=batch[1]).loss",
            "(batch[1] != -100).sum()",
        ),
        ("GPT2LMHeadModel(config).cuda()", "loss = model(**batch).loss", '(batch["labels"][..., 1:] != -100).sum()'),
        ("T5ForConditionalGeneration(config)", "loss = model(**collated(batch)).loss", None),
        ("BertForPreTraining(config)", "loss = model(**batch).loss", None),
        ("GPT2LMHeadModel(config)", "loss = model(**batch)[0]", '(batch["labels"][..., 1:] != -100).sum()'),
    ],
)
def test_losses_over_words_are_weighed(tmp_path: Path, model: str, step: str, count: str | None) -> None:
    """The labels say which words count; where they cannot be named again, or the loss is two, that is said."""
    name = model.partition("(")[0].partition(".")[0]
    after, said = converted(tmp_path, "transformers", model, step, f"from transformers import {name}\nconfig = None")
    loss = step.removeprefix("loss = ")
    assert (f"loss = weigh_by_count({loss}, {count})" in after) == (count is not None)
    assert ("AD602" in said) == (count is None)


def test_one_label_for_each_sample(tmp_path: Path) -> None:
    """Nothing is left out."""
    before = "from transformers import BertForSequenceClassification as Bert, BertConfig"
    after, said = converted(tmp_path, "transformers", "Bert(BertConfig()).cuda()", "loss = model(**batch).loss", before)
    assert "weigh_by_count" not in after
    assert "AD602" not in said and "AD904" not in said


def test_modules_by_the_names_of_where_torch_keeps_them(tmp_path: Path) -> None:
    text = """\
import torch
from torch.nn.modules.linear import Linear
from torch.nn.modules.module import Module
from torch.optim.adam import Adam
from torch.utils.data import DataLoader, TensorDataset


class Net(Module):
    def __init__(self):
        super().__init__()
        self.layer = Linear(4, 1)

    def forward(self, x):
        return self.layer(x)


loader = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8, shuffle=True)
net = Net()
optimizer = Adam(net.parameters())
for (x,) in loader:
    loss = net(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    code, said = conftest.converted(tmp_path, text)
    assert "net = DDP(Net()" in code and "AD9" not in said


def test_modules_in_a_folder_src_beside_the_script(tmp_path: Path) -> None:
    """They stand on the path where the script runs, with `PYTHONPATH=src`."""
    (tmp_path / "src" / "parts").mkdir(parents=True)
    (tmp_path / "src" / "parts" / "__init__.py").write_text("")
    (tmp_path / "src" / "parts" / "net.py").write_text("from torch import nn\n\nclass Net(nn.Linear):\n    pass\n")
    path = tmp_path / "train.py"
    path.write_text("from parts.net import Net\n\nnet = Net(4, 1)\n")
    assert {source.path.name for source in Project.load(path).sources} == {"train.py", "net.py", "__init__.py"}


def test_an_example_in_the_repository_of_its_library(tmp_path: Path) -> None:
    package, script = tmp_path / "src" / "lightning", tmp_path / "examples" / "train.py"
    package.mkdir(parents=True)
    script.parent.mkdir()
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'lightning'\n")
    (package / "__init__.py").write_text("class Trainer:\n    def fit(self, model):\n        model.training_loop()\n")
    script.write_text("import lightning as L\n\nfrom model import Net\n\nL.Trainer(max_epochs=1).fit(Net())\n")
    assert Project.load(script).modules == {}
    result = convert(Project.load(script), Config())
    assert any(each.code == "AD903" and "set devices=N" in each.message for each in result.diagnostics)


@pytest.mark.parametrize("mark", ["pyproject.toml", "requirements.txt"])
@pytest.mark.parametrize("imported", ["from nets import *", "from parts.net import Net", "import nets"])
def test_modules_beside_the_folder_of_the_script(tmp_path: Path, mark: str, imported: str) -> None:
    """They stand on the path where the script runs, with `PYTHONPATH=.`; modules of Python come first."""
    for name in ("nets.py", "parts/net.py", "random.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("from torch import nn\n\nclass Net(nn.Linear):\n    pass\n")
    (tmp_path / mark).write_text("")
    (tmp_path / "tools").mkdir()
    path = tmp_path / "tools" / "train.py"
    path.write_text(f"import random\n{imported}\n")
    wanted = "net.py" if "parts" in imported else "nets.py"
    assert {source.path.name for source in Project.load(path).sources} == {"train.py", wanted}


DIFFERENTIATED = """\
import torch
from torch import nn
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
net = nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in loader:
    {step}
    loss = (net(x) - y).pow(2).sum() / net(x).size(0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "step",
    [
        "x = Variable(x, requires_grad=True)",
        "x = torch.tensor(x, requires_grad=True)",
        "x = x + torch.zeros(x.size(0), 4, requires_grad=True)",
        "x = torch.rand(x.size(0), 4, requires_grad=True)",
    ],
)
def test_samples_that_gradients_are_asked_for(tmp_path: Path, step: str) -> None:
    """They are a rank's own, and no parameter."""
    code, said = conftest.converted(tmp_path, DIFFERENTIATED.format(step=step))
    assert "    loss.backward()" in code and "AD60" not in said


BESIDE = """\
import itertools

import diffusers
import torch
from somelib import Backbone
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 1, 8, 8), torch.arange(64) % 10), batch_size=16, shuffle=True)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
backbone = {backbone}.to(device)
head = nn.Linear(16, 10).to(device)
{optimizer}
for images, labels in loader:
    loss = nn.functional.cross_entropy(head(backbone(images, labels).sample.flatten(1)), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "optimizer",
    [
        "optimizer = torch.optim.Adam(list(backbone.parameters()) + list(head.parameters()))",
        "optimizer = torch.optim.Adam([*head.parameters(), *backbone.parameters()])",
        "optimizer = torch.optim.Adam(itertools.chain(backbone.parameters(), head.parameters()))",
        "optimizer = torch.optim.Adam([{'params': backbone.parameters()}, {'params': head.parameters(), 'lr': 1e-3}])",
        "trained = [*head.parameters()]\ntrained += backbone.parameters()\noptimizer = torch.optim.Adam(trained)",
        "trained = [*head.parameters()]\ntrained.extend(backbone.parameters())\noptimizer = torch.optim.Adam(trained)",
    ],
)
def test_a_model_of_which_nothing_is_known_beside_another(tmp_path: Path, optimizer: str) -> None:
    """The head alone was wrapped, and each rank had a backbone of its own."""
    code, said = conftest.converted(tmp_path, BESIDE.format(backbone="Backbone(16)", optimizer=optimizer))
    assert "AD904" not in said
    assert "backbone = DDP(backbone" in code
    text = BESIDE.format(backbone="Backbone(16).build(2)", optimizer=optimizer)
    _, said = conftest.converted(tmp_path, text)
    assert "AD904 trains a model that cannot be followed: cannot see which class backbone is of" in said
    text = BESIDE.format(backbone="diffusers.UNet2DConditionModel()", optimizer=optimizer)
    code, said = conftest.converted(tmp_path, text)
    assert "AD904" not in said
    assert "backbone = DDP(diffusers.UNet2DConditionModel().to(device)" in code
