"""Models that a dict or a list holds, and that have no name of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 4)), batch_size=8, shuffle=True)
"""
STEPS = """\
optims = {k: torch.optim.Adam(m.parameters()) for k, m in models.items()}
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        for optim in optims.values():
            optim.zero_grad()
        nn.functional.mse_loss(models["B"](models["A"](x)), y).backward()
        for optim in optims.values():
            optim.step()
torch.save({k: m.state_dict() for k, m in models.items()}, "models.pt")
"""
MADE = 'models = {"A": nn.Linear(4, 4), "B": nn.Linear(4, 4)}\n'
OF_TWO = '{k: torch.optim.Adam(models[k].parameters()) for k in ("A", "B")}'
WRAPPED = "models = {name: DDP(model) for name, model in models.items()}\n"


@pytest.mark.parametrize(
    "moved",
    [
        "",
        "for m in models.values():\n    m.to(device)\n",
        "for name, m in models.items():\n    m.to(device)\n",
        "models = {k: m.to(device) for k, m in models.items()}\n",
    ],
)
def test_models_in_a_dict_are_wrapped_where_they_have_come_to_their_device(tmp_path: Path, moved: str) -> None:
    after, said = converted(tmp_path, HEAD + MADE + moved + STEPS)
    assert MADE + moved + WRAPPED in after and "AD9" not in said
    assert "torch.save({k: m.module.state_dict() for k, m in models.items()}" in after


def test_their_batch_statistics_are_synchronised(tmp_path: Path) -> None:
    after, _ = converted(
        tmp_path,
        HEAD
        + MADE.replace("nn.Linear(4, 4),", "nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to(device),")
        + STEPS,
    )
    assert (
        "    models = {name: nn.SyncBatchNorm.convert_sync_batchnorm(model) for name, model in models.items()}" in after
    )


def test_a_list_that_is_made_anew_is_wrapped_after_that(tmp_path: Path) -> None:
    made = "nets = [nn.Linear(4, 4), nn.Linear(4, 4)]\nnets = [n.to(device) for n in nets]\n"
    steps = STEPS.replace("models.items()", 'zip("AB", nets)').replace('models["B"]', "nets[1]")
    after, said = converted(tmp_path, HEAD + made + steps.replace('models["A"]', "nets[0]"))
    assert made + "nets = [DDP(model) for model in nets]\n" in after and "AD9" not in said


def test_in_a_dict_that_holds_one_that_does_not_train_the_others_are_wrapped(tmp_path: Path) -> None:
    steps = STEPS.replace("{k: torch.optim.Adam(m.parameters()) for k, m in models.items()}", OF_TWO)
    after, said = converted(tmp_path, HEAD + MADE.replace("}", ', "C": nn.Linear(4, 4)}') + steps)
    assert 'models["A"] = DDP(models["A"])\n' in after and 'models["B"] = DDP(models["B"])\n' in after
    assert 'models["C"] =' not in after and "AD9" not in said


def test_they_are_wrapped_below_the_loop_that_moves_them(tmp_path: Path) -> None:
    """On a GPU, gradients of a model that is moved once it is wrapped are not averaged."""
    steps = STEPS.replace("{k: torch.optim.Adam(m.parameters()) for k, m in models.items()}", OF_TWO)
    moved = "for m in models.values():\n    m.to(device)\n"
    after, _ = converted(tmp_path, HEAD + MADE.replace("}", ', "C": nn.Linear(4, 4)}') + moved + steps)
    assert moved + 'models["A"] = DDP(models["A"])\n' in after


HELD = """\
{made}
state.optimizer = torch.optim.SGD(state.net.parameters(), lr=0.1)
for x, y in loader:
    state.optimizer.zero_grad()
    nn.functional.mse_loss(state.net(x), y).backward()
    state.optimizer.step()
torch.save(state.net.state_dict(), "net.pt")
"""
STATE = (
    "from dataclasses import dataclass\n\n\n"
    "@dataclass{told}\nclass State:\n    net: nn.Module\n    optimizer: object = None\n\n\n"
)


@pytest.mark.parametrize(
    "made",
    [
        "from types import SimpleNamespace\nstate = SimpleNamespace(net=nn.Linear(4, 4).to(device), step=0)",
        STATE.format(told="") + "state = State(nn.Linear(4, 4))",
        "state = dict(net=nn.Linear(4, 4), step=0)",
        'state = {"net": nn.Linear(4, 4), "step": 0}',
        'state = {"net": nn.Linear(4, 4), "teacher": nn.Linear(4, 4).requires_grad_(False)}',
    ],
)
def test_what_holds_a_model_beside_other_things(tmp_path: Path, made: str) -> None:
    text = HEAD + HELD.format(made=made)
    keyed = "dict" in made.splitlines()[-1] or "{" in made
    if keyed:
        text = text.replace("state.net", 'state["net"]').replace("state.optimizer", 'state["optimizer"]')
    after, said = converted(tmp_path, text)
    net = 'state["net"]' if keyed else "state.net"
    assert (
        f"\n{net} = DDP({net}, gradient_as_bucket_view=True)\n" in after
        and f"torch.save({net}.module.state_dict()" in after
    )
    assert "AD9" not in said and "cannot see" not in said


def test_what_holds_a_model_for_good_is_refused(tmp_path: Path) -> None:
    """A frozen object takes no other model in its place."""
    made = STATE.format(told="(frozen=True)") + "state = State(nn.Linear(4, 4))"
    text = HEAD + HELD.format(made=made).replace("state.optimizer", "optimizer")
    assert "AD401 cannot see a place between where this model is made" in converted(tmp_path, text)[1]
