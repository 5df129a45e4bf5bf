"""Scripts that were refused, or converted with more or less than an expert would write."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

HEAD = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, default=0)
args = parser.parse_args()
rows = TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
loader = DataLoader(rows, batch_size=8, shuffle=True)
"""
STEPS = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("args.gpu, non_blocking=True", "non_blocking=True"),
        ("args.gpu, True", "non_blocking=True"),
        ("args.gpu, **options", "**options"),
        ("args.gpu", ""),
    ],
)
def test_only_the_device_goes_from_where_a_tensor_is_moved(tmp_path: Path, told: str, left: str) -> None:
    make = "options = {}\nmodel = nn.Linear(4, 2).cuda(args.gpu)\n"
    moved = STEPS.replace("model(x), y", f"model(x.cuda({told})), y.cuda({told})")
    code, _ = converted(tmp_path, HEAD + make + moved)
    assert f"x.cuda({left})), y.cuda({left})" in code and "nn.Linear(4, 2).cuda()" in code


INIT_NET = """\
gpu_ids = [args.gpu] if args.gpu >= 0 else []


def init_net(net, gpu_ids=()):
    if len(gpu_ids) > 0:
        net.to(gpu_ids[0])
        net = nn.DataParallel(net, gpu_ids)
    for each in net.modules():
        if isinstance(each, nn.Linear):
            nn.init.normal_(each.weight, 0.0, 0.02)
    return net


"""
AROUND = """\
    if len(gpu_ids) > 0:
        net.to(gpu_ids[0])
        net = nn.DataParallel(net, gpu_ids)
"""


@pytest.mark.parametrize("around", [AROUND, "    net = nn.DataParallel(net)\n"])
def test_a_model_is_wrapped_where_the_caller_goes_on_without_the_wrapper_of_a_helper(
    tmp_path: Path, around: str
) -> None:
    make = "model = nn.Linear(4, 2)\ninit_net(model, gpu_ids=gpu_ids)\n"
    code, said = converted(tmp_path, HEAD + INIT_NET.replace(AROUND, around) + make + STEPS)
    assert "init_net(model, gpu_ids=gpu_ids)\nmodel = DDP(model, gradient_as_bucket_view=True)\n" in code
    assert "nn.DataParallel(" not in code and "AD904" not in said
    assert ('        net.to("cuda")\n' in code) == (around == AROUND)


def test_a_model_is_wrapped_in_the_helper_whose_result_is_wanted(tmp_path: Path) -> None:
    make = "model = nn.Linear(4, 2)\nmodel = init_net(model, gpu_ids=gpu_ids)\n"
    code, _ = converted(tmp_path, HEAD + INIT_NET + make + STEPS)
    assert "    net = DDP(net, gradient_as_bucket_view=True)\n" in code and "model = DDP(" not in code


def test_a_function_that_trains_its_parameter_wraps_it_there(tmp_path: Path) -> None:
    steps = "".join(f"    {line}" for line in STEPS.splitlines(keepends=True))
    train = f"\n\ndef train(model):\n    model = nn.DataParallel(model)\n{steps}\n\ntrain(nn.Linear(4, 2))\n"
    code, _ = converted(tmp_path, HEAD + train)
    assert "def train(model):\n    model = DDP(model, gradient_as_bucket_view=True)\n" in code


def test_a_model_is_wrapped_where_each_caller_of_a_helper_goes_on_with_it(tmp_path: Path) -> None:
    make = "model = nn.Linear(4, 2)\ninit_net(model, gpu_ids)\nother = init_net(nn.Linear(4, 2), gpu_ids)\n"
    steps = STEPS.replace("model.parameters()", "[*model.parameters(), *other.parameters()]")
    steps = steps.replace("model(x), y", "model(x) + other(x), y")
    code, said = converted(tmp_path, HEAD + INIT_NET + make + steps)
    assert "init_net(model, gpu_ids)\nmodel = DDP(model)\nother = DDP(init_net(nn.Linear(4, 2), gpu_ids))\n" in code
    assert "AD904" not in said and "net = nn.DataParallel(" not in code


SAVING = """\
class Net(nn.Linear):
    def save(self, path):
        with open(path, "wb") as file:
            torch.save(self.state_dict(), file)


model = Net(4, 2)
model.save("first.pt")
"""


def test_what_saves_before_and_in_each_epoch_is_guarded_once(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, HEAD + SAVING + STEPS + '    model.save("last.pt")\n')
    assert code.count('        if dist.get_rank() == 0:\n            with open(path, "wb") as file:\n') == 1
    assert '\nmodel.module.save("first.pt")\n' in code and '\n    model.module.save("last.pt")\n' in code


def test_what_saves_before_the_training_only_is_guarded_as_a_whole(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, HEAD + SAVING + STEPS)
    assert 'if dist.get_rank() == 0:\n    model.module.save("first.pt")\n' in code
    assert '\n        with open(path, "wb") as file:\n' in code


SEQUENCES = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        last = self.lstm(x)[0][-1]
        return self.head(torch.softmax(last, 0))


x, y = torch.randn(5, 64, 4), torch.randint(2, (64,))
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_is_refused_of_sequences_is_what_mixes_their_columns(tmp_path: Path) -> None:
    said = converted(tmp_path, SEQUENCES)[1]
    assert "AD902" in said and "softmax(last, 0)" in said and "for time" not in said


ATTENTION = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.ahead = nn.Embedding(9, 8), nn.Sequential(nn.Linear(8, 16), nn.GLU(), nn.RReLU())

    def forward(self, x):
        x = self.ahead(self.words(x))
        scores = torch.bmm(x, x.transpose(1, 2))
        {mask}
        scores = torch.where(past.eq(0), torch.full_like(scores, -1e9), scores)
        return torch.bmm(scores.softmax(2), x)


loader = DataLoader(TensorDataset(torch.randint(9, (64, 5))), batch_size=8, shuffle=True)
model = Attention()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        loss = (model(x) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("mask", "pairs"),
    [
        ("past = torch.tril(torch.ones_like(scores[0])).unsqueeze(0).repeat(x.size(0), 1, 1)", False),
        ("past = torch.tril(torch.zeros_like(scores[-1]) + 1).unsqueeze(0).expand(len(x), -1, -1)", False),
        ("past = torch.tril(scores).transpose(0, 1).unsqueeze(0).repeat(x.size(0), 1, 1)", True),
    ],
)
def test_a_mask_in_the_shape_of_one_sample_pairs_none(tmp_path: Path, mask: str, pairs: bool) -> None:
    """`torch.ones_like(scores[0])`: all samples have the same shape (SASRec)."""
    after, said = converted(tmp_path, ATTENTION.format(mask=mask))
    assert ("AD906" in said or "RowsOfAllRanks" in after) == pairs


TOPICS = """\
import torch
from torch import nn

texts = torch.rand(64, 12)
model = nn.Sequential(nn.Linear(12, 8), {layer}, nn.Linear({width}, 12))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for indices in torch.split(torch.randperm(64), 8):
        rows = texts[indices]
        loss = (model(rows) - rows).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("layer", "width", "apart"),
    [("nn.RReLU()", 8, True), ("nn.GLU()", 4, True), ("nn.GLU(0)", 8, False)],
)
def test_layers_that_keep_rows_apart(tmp_path: Path, layer: str, width: int, apart: bool) -> None:
    """Their rows are shared out; RReLU draws a slope for each number, as dropout does."""
    _, said = converted(tmp_path, TOPICS.format(layer=layer, width=width))
    assert ("AD902" in said) == (not apart)
    assert "masks of dropout are the same on all ranks" not in said


@pytest.mark.parametrize(
    "taken",
    [
        "for p, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()))):\n        p.grad = g",
        "gradients = torch.autograd.grad(loss, parameters)\n    for p, g in zip(parameters, gradients):\n"
        "        p.grad = g.clamp(-1, 1)",
    ],
)
def test_gradients_that_the_script_puts_together(tmp_path: Path, taken: str) -> None:
    """It said that it cannot see that it trains."""
    text = f"""\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
parameters = list(model.parameters())
optimizer = torch.optim.SGD(parameters, lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    {taken}
    optimizer.step()
"""
    _, said = converted(tmp_path, text)
    assert "AD904 these gradients are put into `.grad` by the script" in said and "AD901" not in said


def test_lightnings_command_line_owns_the_training(tmp_path: Path) -> None:
    """It said that no loss.backward() is reached."""
    text = """\
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LightningCLI
from torch import nn


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch, index):
        return nn.functional.mse_loss(self.layer(batch[0]), batch[1])


cli = LightningCLI(Regression, run=False)
cli.trainer.fit(cli.model)
"""
    _, said = converted(tmp_path, text)
    assert "AD903 training is owned by lightning.pytorch.cli.LightningCLI: start it with `--trainer.devices N" in said


def test_what_the_heads_of_a_model_give_is_no_batch_made_elsewhere(tmp_path: Path) -> None:
    """x-transformers was refused: "hands out a rank's share of a batch, or all of a batch that is made elsewhere"."""
    text = """\
import torch
from torch import nn


class Heads(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.body = nn.Embedding(10, 8)
        self.several = heads > 1
        self.out = nn.Linear(8, 10)
        self.heads = nn.ModuleList([nn.Linear(8, 10) for _ in range(heads)]) if self.several else nn.Linear(8, 10)

    def forward(self, x):
        h = self.body(x)
        if self.several:
            logits = tuple(head(h) for head in self.heads)
        else:
            logits = self.heads(h)
        return self.out(h), logits


def cycle():
    while True:
        yield torch.randint(10, (16, 6))


model = Heads(int(input()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    tokens = next(cycle())
    loss = nn.functional.cross_entropy(model(tokens)[0].reshape(-1, 10), tokens.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    after, said = converted(tmp_path, text)
    assert "AD9" not in said
    assert "[dist.get_rank() :: dist.get_world_size()].contiguous()" in after


def test_drawn_samples_of_which_a_view_is_asked_lie_side_by_side(tmp_path: Path) -> None:
    """Every second row of a tensor cannot be seen as one axis: the conversion failed."""
    text = """\
import torch
from torch import nn

model = nn.Sequential(nn.Embedding(10, 8), nn.Flatten(), nn.Linear(48, 60))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    tokens = torch.randint(10, (16, 6))
    loss = nn.functional.cross_entropy(model(tokens).view(-1, 10), tokens.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    taken = "tokens = torch.randint(10, (16, 6))[dist.get_rank() :: dist.get_world_size()]"
    after, _ = converted(tmp_path, text)
    assert f"{taken}.contiguous()\n" in after
    after, _ = converted(tmp_path, text.replace("tokens.view(-1)", "tokens.flatten()"))
    assert f"{taken}\n" in after
