"""Under FSDP, what a script computes from parameters outside of its models is gathered, or refused by its cause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.result import Result

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.gain = nn.Parameter(torch.ones(8))
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(3)])

    def forward(self, x):
        x = self.stem(x) * self.gain
        for block in self.blocks:
            x = block(x)
        return x.sum(1, keepdim=True)

    def size(self):
        return self.gain.abs().sum()

    def energy(self, x):
        return self.stem(x).mean() + self.gain.norm()


train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = F.mse_loss(model(x), y)
    {}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

GATHERED = {
    "loss = loss + sum((p**2).sum() for p in model.parameters())": "(p**2).sum().full_tensor()",
    "loss += 0.1 * torch.norm(model.stem.weight, 1)": "torch.norm(model.stem.weight, 1).full_tensor()",
    "loss = (loss + sum(p.abs().sum() for p in list(model.parameters())[:2])) / 2": "p.abs().sum().full_tensor()",
    "loss = loss + model.gain.square().mean()": "model.gain.square().mean().full_tensor()",
    # what samples scale it by is the same on all ranks: the loss itself is taken over them
    "loss = (loss + model.gain.norm()) ** 2": "loss = (loss + model.gain.norm().full_tensor()) ** 2",
    "loss = torch.sqrt(loss + model.gain.norm())": "loss = SumOverRanks.apply(F.mse_loss(",
    "loss = loss + model.size()": "return self.gain.abs().sum().full_tensor()",
    "w = model.stem.weight; loss = loss + (w @ w.t()).norm()": "(w.full_tensor() @ w.full_tensor().t()).norm()",
    "loss = loss + model.stem.weight.norm(dim=1).sum()": "model.stem.weight.norm(dim=1).sum().full_tensor()",
    "print([p.grad.norm().item() for g in optimizer.param_groups for p in g['params']])": "p.grad.full_tensor().norm()",
    "print(sum(p.data.abs().max().item() for p in model.parameters()))": "p.data.full_tensor().abs().max().item()",
    "assert not torch.isnan(model.stem.weight.detach()).any()": "torch.isnan(model.stem.weight.full_tensor().detach())",
    "print((model.gain.data - 2 * model.gain.grad).abs().sum().item())": "model.gain.grad.full_tensor()).abs().sum()",
    "model.gain.grad /= model.gain.grad.norm()": "model.gain.grad /= model.gain.grad.full_tensor().norm()",
    # a matrix has the norm of its singular values, and rows that are cut or gone along are those of all ranks
    "loss = loss + torch.linalg.norm(model.stem.weight, 2)": "torch.linalg.norm(model.stem.weight.full_tensor(), 2)",
    "loss = loss + (model.gain[1:] - model.gain[:-1]).norm()": "model.gain.full_tensor()[1:] - model.gain.full",
    "loss = loss - F.softmax(model.gain, dim=0).log().sum()": "F.softmax(model.gain.full_tensor(), dim=0)",
    # beside what is kept of it a parameter has its gradients
    "old = model.gain.detach(); d = (model.gain - old) ** 2; loss = loss + d.sum()": "d.sum().full_tensor()",
    # whole tensors are cut where they meet shards
    "model.gain.grad.mul_(torch.ones(8).tril(0))": "mul_(cut_like(torch.ones(8).tril(0), model.gain.grad))",
    "for p in model.parameters(): p.grad += torch.randn(p.shape)": "p.grad += cut_like(torch.randn(p.shape), p.grad)",
    "m = torch.arange(8) > 2; model.gain.data.copy_(model.gain.data * m)": "(model.gain.data * cut_like(m, model.gain.",
    "w = model.stem.weight.data; u, s, v = torch.svd(w); w.copy_(u @ v.t())": "w.copy_(cut_like(u @ v.t(), w))",
    "print(model.state_dict()['stem.weight'].sum().item())": "whole_tensors(model.state_dict())['stem.weight'].sum()",
    "for v in model.state_dict().values(): print(v)": "for v in whole_tensors(model.state_dict()).values(): print(v)",
    'print(f"{model.stem.bias}")': '{nn.Parameter(model.stem.bias.full_tensor())}"',
}

REFUSED = {
    "import copy; old = copy.deepcopy(dict(model.named_parameters()))": "copies parameters of which each rank",
    "loss = loss * (1 + model.stem.weight.norm())": "scales a term",
    "loss = loss + F.linear(x, model.stem.weight).mean()": "scales a term",
    "loss = loss + nn.utils.parameters_to_vector(model.parameters()).norm()": "read outside the model",
    "loss = loss + model.energy(x)": "in a method that also runs layers",
    "state = model.state_dict(); print({k: v.mean().item() for k, v in state.items()})": "a tensor of a state dict",
    "for v in model.state_dict().values(): v *= 0.9; print(v)": "a tensor of a state dict",
}

WHOLE_ANYWAY = [
    "count = sum(p.numel() for p in model.parameters()); loss = loss / count",
    "with torch.no_grad(): model.stem.weight.div_(model.stem.weight.norm(dim=1, keepdim=True))",
    "frozen = [p for p in model.parameters() if p.requires_grad]",
    "for p in model.parameters(): p.grad += 0.01 * p.data",  # in place, and no other gradient
    "for p in model.parameters(): p.data -= 0.01 * p.data.sign()",
    "model.gain.grad.mul_(torch.tril(torch.ones_like(model.gain.grad)))",
    "model.gain.data.mul_(torch.ones(8).sum())",
    "model.gain.data.clamp_(max=torch.ones(8).sum().item())",
    "import copy; old = copy.deepcopy([p.data for p in model.parameters()])",
    "with torch.no_grad(): model.stem.weight.grad *= model.stem.weight.abs() > 0.1",
    "shapes = {k: tuple(v.shape) for k, v in model.state_dict().items()}",
]


def converted(statement: str, folder: Path, **options: Any) -> Result:
    """The script with this statement in its training step, converted to FSDP."""
    (folder / "train.py").write_text(SCRIPT.replace("{}", statement))
    return convert(Project.load(folder / "train.py"), Config(Strategy.FSDP, **options))


@pytest.mark.parametrize(("statement", "expected"), GATHERED.items())
def test_numbers_of_parameters_are_gathered(statement: str, expected: str, tmp_path: Path) -> None:
    result = converted(statement, tmp_path)
    assert not result.refused
    assert expected in result.files[0].after


@pytest.mark.parametrize(("statement", "reason"), REFUSED.items())
def test_a_term_that_shards_cannot_give_is_refused(statement: str, reason: str, tmp_path: Path) -> None:
    result = converted(statement, tmp_path)
    assert result.refused
    assert any(reason in each.message for each in result.diagnostics)


@pytest.mark.parametrize("statement", WHOLE_ANYWAY)
def test_what_shards_answer_for_stays(statement: str, tmp_path: Path) -> None:
    result = converted(statement, tmp_path)
    assert not result.refused
    assert statement in result.files[0].after


def test_parameters_have_to_be_shards_after_the_forward_pass(tmp_path: Path) -> None:
    result = converted("loss = loss + model.gain.norm()", tmp_path, reshard_after_forward=False)
    assert result.refused
    assert any("--no-reshard-after-forward" in each.message for each in result.diagnostics)


BEFORE = [
    "print(model.gain.norm().item(), model.stem.weight.tolist())",
    "print(nn.utils.parameters_to_vector(model.parameters()).norm())",
    "norm = model.gain.norm()",
    "model.gain.data.copy_(torch.randn(8))",
    "for name, p in model.named_parameters(): print(name, p.std().item())",
]


@pytest.mark.parametrize("statement", BEFORE)
def test_parameters_are_whole_until_their_model_is_sharded(statement: str, tmp_path: Path) -> None:
    text = SCRIPT.replace("    {}\n", "").replace("\noptimizer = ", f"\n{statement}\noptimizer = ")
    (tmp_path / "train.py").write_text(text)
    result = convert(Project.load(tmp_path / "train.py"), Config(Strategy.FSDP))
    code = result.files[0].after
    assert not result.refused
    assert code.index(statement) < code.index("fully_shard(model") and "full_tensor" not in code
