"""Models of a list, sharded in a loop over it."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from conftest import converted

from autodist.config import Strategy
from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
x = torch.randn(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
{made}
for epoch in range(2):
    for a, b in loader:
{steps}
        print(loss.item())
{saved}
"""
OPTIMIZERS = "opts = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]"
EACH = """\
for net, opt in zip(nets, opts):
    loss = nn.functional.mse_loss(net(a), b)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
TOGETHER = """\
loss = nn.functional.mse_loss(torch.stack([net(a) for net in nets]).mean(0), b)
opt.zero_grad()
loss.backward()
opt.step()
"""
BY_NAME = TOGETHER.replace("torch.stack([net(a) for net in nets]).mean(0)", 'nets["a"](a) + nets["b"](a)')
DICT = '{"a": nn.Linear(4, 1), "b": nn.Linear(4, 1)}'
ONE = "opt = torch.optim.SGD([p for net in nets for p in net.parameters()], lr=0.1)"
ONE_OF_DICT = "opt = torch.optim.SGD([*nets['a'].parameters(), *nets['b'].parameters()], lr=0.1)"
WHOLE = "opt = torch.optim.SGD(nets.parameters(), lr=0.1)"
LISTS = [
    (f"nets = [nn.Linear(4, 1), nn.Linear(4, 1)]\n{OPTIMIZERS}", EACH),
    (f"nets = [nn.Linear(4, 1) for _ in range(3)]\n{OPTIMIZERS}", EACH),
    (f"nets = [nn.Linear(4, 1), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))]\n{ONE}", TOGETHER),
    (f"nets = []\nfor i in range(3):\n    nets.append(nn.Linear(4, 1))\n{OPTIMIZERS}", EACH),
    (f"nets = nn.ModuleList([nn.Linear(4, 1) for _ in range(3)])\n{OPTIMIZERS}", EACH),
    (f"nets = nn.ModuleList([nn.Linear(4, 1) for _ in range(3)])\n{WHOLE}", TOGETHER),
    (f"nets = {DICT}\n{ONE_OF_DICT}", BY_NAME),
    (f"nets = nn.ModuleDict({DICT})\n{WHOLE}", BY_NAME),
]
LOOP = """\
for model in {over}:
    for tensor in model.state_dict().values():  # same initial weights on all ranks
        dist.broadcast(tensor, 0)
{mesh}    fully_shard(model, reshard_after_forward=True, mesh=mesh)
"""
WHERE_IT_IS = """\
    mesh = init_device_mesh(next(model.parameters()).device.type, (dist.get_world_size(),))  # where the model is
"""


def script(made: str, steps: str, saved: str = "") -> str:
    return SCRIPT.format(made=made, steps=indent(steps, " " * 8).rstrip(), saved=saved)


@pytest.mark.parametrize(("made", "steps"), LISTS)
def test_a_loop_shards_each_ahead_of_the_optimizers(made: str, steps: str, tmp_path: Path) -> None:
    text, said = converted(tmp_path, script(made, steps), Strategy.FSDP)
    assert "AD9" not in said
    over = "nets.values()" if '"a"' in made else "nets"
    assert text.count("fully_shard(") == 1
    assert f"# the script trains on the CPU\n{LOOP.format(over=over, mesh='')}" in text
    assert text.index("fully_shard(") < text.index("torch.optim.SGD")


@pytest.mark.parametrize(
    "filled",
    [
        "for net in nets:\n    nn.init.xavier_uniform_(net.weight)",
        'for i, net in enumerate(nets):\n    net.load_state_dict(torch.load(f"{i}.pt"))',
        "nets = [net.to(device) for net in nets]",
    ],
)
def test_they_are_sharded_once_they_are_filled_and_moved(filled: str, tmp_path: Path) -> None:
    made = f'device = torch.device("cpu")\nnets = [nn.Linear(4, 1) for _ in range(3)]\n{filled}\n{OPTIMIZERS}'
    text, said = converted(tmp_path, script(made, EACH), Strategy.FSDP)
    assert f"\n{LOOP.format(over='nets', mesh=WHERE_IT_IS)}opts = " in text and "AD9" not in said


@pytest.mark.parametrize("place", ["nets[-1]", "nets[i]"])
def test_one_that_has_an_optimizer_by_then_is_sharded_where_it_comes_into_the_list(place: str, tmp_path: Path) -> None:
    made = f"""\
nets, opts = [], []
for i in range(3):
    nets.append(nn.Linear(4, 1))
    opts.append(torch.optim.SGD({place}.parameters(), lr=0.1))"""
    text, said = converted(tmp_path, script(made, EACH), Strategy.FSDP)
    assert (
        f"    fully_shard({place}, reshard_after_forward=True, mesh=mesh)\n    opts.append(" in text
        and "AD9" not in said
    )


@pytest.mark.parametrize(
    "saved",
    [
        'for i, net in enumerate(nets):\n    torch.save(net.state_dict(), f"net{i}.pt")',
        'for i in range(len(nets)):\n    torch.save(nets[i].state_dict(), f"net{i}.pt")',
        'torch.save([net.state_dict() for net in nets], "nets.pt")',
        'state = {"nets": [net.state_dict() for net in nets], "opts": [opt.state_dict() for opt in opts]}\n'
        'torch.save(state, "nets.pt")',
    ],
)
def test_they_train_and_are_saved_as_before(saved: str, tmp_path: Path, zygote: Zygote | None) -> None:
    before = script(*LISTS[1], saved)
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(converted(tmp_path, before, Strategy.FSDP)[0])
    verdict = verify(
        tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote
    ).worlds[0]
    assert verdict.equal, (verdict.reason, verdict.findings)
