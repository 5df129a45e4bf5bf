"""Packages with commands, registries, einops, pieces of tensors."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

LOOP = """\
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = {make}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
    torch.save(model.state_dict(), "model.pt")
"""
HEAD = """\
import argparse
import torch
from einops import rearrange
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

"""


def trained(classes: str, make: str) -> str:
    """A script that trains a model."""
    return HEAD + classes + "\n\n" + LOOP.format(make=make)


def module(forward: str, parts: str = "self.layer = nn.Linear(4, 1)") -> str:
    """A model with this forward pass."""
    return (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"{indent(parts, ' ' * 8)}\n\n    def forward(self, x):\n{indent(forward, ' ' * 8)}\n"
    )


def test_command_of_a_parser_is_followed(tmp_path: Path) -> None:
    step = LOOP.format(make="nn.Linear(4, 1)").replace("batch_size=8", "batch_size=args.batch_size")
    script = (
        f"{HEAD}def train(args):\n{indent(step, ' ' * 4)}\n\n"
        "def describe(args):\n    print(args.path)\n\n\n"
        "parser = argparse.ArgumentParser()\n"
        'commands = parser.add_subparsers(dest="command")\n'
        'training = commands.add_parser("train")\n'
        'group = training.add_argument_group("data")\n'
        'group.add_argument("--batch-size", type=int, default=8)\n'
        "training.set_defaults(func=train)\n"
        'other = commands.add_parser("describe")\n'
        "other.set_defaults(func=describe)\n"
        "args = parser.parse_args()\n"
        "args.func(args)\n"
    )
    after, said = conftest.converted(tmp_path, script)
    assert "model = DDP(nn.Linear(4, 1)" in after, said
    assert "args.batch_size // dist.get_world_size()" in after


def test_class_of_the_project_that_is_made_by_from_pretrained(tmp_path: Path) -> None:
    classes = (
        "from transformers import BertConfig, BertModel, BertPreTrainedModel\n\n\n"
        "class Tagger(BertPreTrainedModel):\n"
        "    def __init__(self, config, labels):\n"
        "        super().__init__(config)\n"
        "        self.layer = nn.Linear(labels, 1)\n\n"
        "    def forward(self, x):\n"
        "        return self.layer(x)\n\n\n"
        'CLASSES = {"bert": (BertConfig, Tagger)}\n'
        'config_class, model_class = CLASSES["bert"]\n'
    )
    make = 'model_class.from_pretrained("bert-base-uncased", config=config_class(), labels=4)'
    after, said = conftest.converted(tmp_path, trained(classes, make))
    assert f"model = DDP({make}" in after, said
    assert "model.module.state_dict()" in after


def test_model_that_may_also_be_a_pair_is_unwrapped_where_it_is_saved(tmp_path: Path) -> None:
    classes = (
        "def made(pair):\n"
        "    if pair:\n"
        "        return nn.Linear(4, 1), nn.Linear(1, 1)\n"
        "    return nn.Linear(4, 1)\n\n\n"
        "parser = argparse.ArgumentParser()\n"
        'parser.add_argument("--pair", action="store_true")\n'
        "args = parser.parse_args()\n"
    )
    after, said = conftest.converted(tmp_path, trained(classes, "made(args.pair)"))
    assert "model = DDP(made(args.pair)" in after, said
    assert "torch.save(model.module.state_dict()" in after


ATTENDING = """\
q, k = self.heads(x).chunk(2, dim=-1)
q, k = map(lambda t: rearrange(t, "b n (h d) -> b h n d", h=2), (q, k))
scores = torch.einsum("b h i d, b h j d -> b h i j", q, k).softmax(dim=-1)
out = rearrange(scores @ k, "b h n d -> b n (h d)")
"""
HEADS = "self.heads = nn.Linear(4, 8)\nself.layer = nn.Linear(4, 1)"


def test_attention_between_samples_is_refused(tmp_path: Path) -> None:
    forward = f'x = rearrange(x, "b d -> 1 b d")\n{ATTENDING}return self.layer(rearrange(out + x, "1 b d -> b d"))'
    after, said = conftest.converted(tmp_path, trained(module(forward, HEADS), "Net()"))
    assert "AD906 torch.einsum(" in said and "each meets the others of its batch" in said
    assert "DDP" not in after


def test_attention_within_samples_is_not(tmp_path: Path) -> None:
    forward = f'x = rearrange(x, "b d -> b 1 d")\n{ATTENDING}return self.layer(rearrange(out + x, "b 1 d -> b d"))'
    after, said = conftest.converted(tmp_path, trained(module(forward, HEADS), "Net()"))
    assert "model = DDP(Net()" in after, said
    assert "AD602" not in said


@pytest.mark.parametrize(
    "cut", ["torch.split(x, 2, dim=1)", "x.split(2, 1)", "x.chunk(2, dim=-1)", "torch.chunk(x.float(), 2, dim=1)"]
)
def test_pieces_along_another_axis_are_no_samples(tmp_path: Path, cut: str) -> None:
    forward = (
        f"blocks = list({cut})\n"
        "most = list(torch.zeros_like(x).split(2, 1))\n"
        "for i in range(2):\n"
        "    for j in range(2):\n"
        "        most[i] = torch.maximum(most[i], blocks[j])\n"
        "return self.layer(torch.cat(most, dim=1))"
    )
    after, said = conftest.converted(tmp_path, trained(module(forward), "Net()"))
    assert "model = DDP(Net()" in after, said
    assert "AD602" not in said


def test_parameter_that_is_bound_anew_keeps_nothing(tmp_path: Path) -> None:
    forward = "x = x - x.mean(1, keepdim=True)\nx /= x.std(1, keepdim=True)\nreturn self.layer(x)"
    after, said = conftest.converted(tmp_path, trained(module(forward), "Net()"))
    assert "model = DDP(Net()" in after
    assert "for later steps" not in said


def test_picture_that_a_transform_makes_is_written_once(tmp_path: Path) -> None:
    script = trained("from torchvision import transforms", "nn.Linear(4, 1)")
    script += 'turned = transforms.ToPILImage()\nturned(torch.rand(3, 8, 8)).resize((4, 4)).save("made.png")\n'
    after, said = conftest.converted(tmp_path, script)
    assert 'if dist.get_rank() == 0:\n    turned(torch.rand(3, 8, 8)).resize((4, 4)).save("made.png")' in after, said


def test_samples_of_a_distribution_are_as_many_as_a_rank_has(tmp_path: Path) -> None:
    script = trained(
        "prior = torch.distributions.Normal(torch.zeros(4), torch.ones(4))\nbatch_size = 8", "nn.Linear(4, 1)"
    )
    script = script.replace("batch_size=8", "batch_size=batch_size").replace(
        "model(x) - y", "model(x + prior.sample((batch_size,))) - y"
    )
    after, said = conftest.converted(tmp_path, script)
    assert "prior.sample((batch_size // dist.get_world_size(),))" in after, said


def test_module_in_a_folder_without_init(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "nets.py").write_text(f"from torch import nn\n\n\n{module('return self.layer(x)')}")
    classes = "import parts.nets\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--net')\n"
    make = "getattr(parts.nets, parser.parse_args().net)()"
    after, said = conftest.converted(tmp_path, trained(classes, make))
    assert f"model = DDP({make}" in after, said


def test_gradients_that_are_averaged_by_hand_are_not_waited_for(tmp_path: Path) -> None:
    methods = (
        "return self.layer(x)\n\n"
        "def slope(self, x):\n"
        "    return torch.autograd.grad(self(x).sum(), x, create_graph=True)[0]"
    )
    classes = module("return self.layer(x)") + indent(methods.partition("\n\n")[2], " " * 4) + "\n"
    script = trained(classes, "Net()").replace("(model(x) - y)", "(model.slope(x.requires_grad_(True)) - y)")
    after, said = conftest.converted(tmp_path, script)
    assert "average_gradients(optimizer)" in after, said
    assert "gradient penalty alone" not in said
