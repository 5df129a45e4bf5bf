"""Steps of optimizers by other names: scalers however they are spelt, and methods that are handed around."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.config import Strategy

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{imports}

x = torch.randn(48, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{made}
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        {steps}
"""
SCALED = "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"
OWN_CLASS = """
class Scaler(torch.amp.GradScaler):
    def step(self, optimizer, *args, **kwargs):
        self.unscale_(optimizer)
        return super().step(optimizer, *args, **kwargs)


scaler = Scaler("cuda", enabled=False)
"""
NATIVE = """
class NativeScaler:
    def __init__(self):
        self._scaler = torch.GradScaler()

    def __call__(self, loss, optimizer, parameters):
        self._scaler.scale(loss).backward()
        self._scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        self._scaler.step(optimizer)
        self._scaler.update()


scale = NativeScaler()
"""


def check(folder: Path, imports: str, made: str, steps: str) -> None:
    script = SCRIPT.format(imports=imports, made=made, steps=steps)
    for strategy, wrapped in ((Strategy.DDP, "model = DDP("), (Strategy.FSDP, "fully_shard(model")):
        text, said = converted(folder, script, strategy)
        assert wrapped in text
        assert "AD9" not in said


@pytest.mark.parametrize(
    ("imports", "made"),
    [
        ("", "scaler = torch.GradScaler()"),
        ("from torch import GradScaler", "scaler = GradScaler('cuda', enabled=False)"),
        ("", "scaler = torch.amp.GradScaler('cuda')"),
        ("", "scaler = torch.amp.grad_scaler.GradScaler('cuda')"),
        ("from torch.cuda import amp", "scaler = amp.GradScaler()"),
        ("", "scaler = torch.cpu.amp.GradScaler()"),
        ("from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler", "scaler = ShardedGradScaler()"),
        ("", "GradScaler = getattr(torch.amp, 'GradScaler', None)\nscaler = GradScaler('cuda')"),
        ("", OWN_CLASS),
        ("", "class Scaler(torch.GradScaler):\n    pass\n\n\nscaler = Scaler()"),
    ],
)
def test_every_spelling_of_a_scaler_steps(imports: str, made: str, tmp_path: Path) -> None:
    check(tmp_path, imports, made, SCALED)


@pytest.mark.parametrize(
    ("made", "steps"),
    [
        ("step = optimizer.step", "loss.backward(); step()"),
        ("", 'loss.backward(); getattr(optimizer, "step")()'),
        ("steps = [optimizer.step]", "loss.backward(); [step() for step in steps]"),
        ("calls = {'step': optimizer.step}", "loss.backward(); calls['step']()"),
        ("def run(loss, step):\n    loss.backward()\n    step()\n", "run(loss, optimizer.step)"),
        (
            "scaler = torch.GradScaler()\nstep, update = scaler.step, scaler.update",
            SCALED.replace("scaler.step", "step"),
        ),
        (
            "class State:\n    scaler = torch.GradScaler()\n\n\nstate = State()",
            SCALED.replace("scaler.", "state.scaler."),
        ),
        (NATIVE, "scale(loss, optimizer, model.parameters())"),
    ],
)
def test_a_step_is_one_by_whatever_name(made: str, steps: str, tmp_path: Path) -> None:
    check(tmp_path, "", made, steps)


def test_a_step_from_a_hook_of_gradients_is_refused_as_such(tmp_path: Path) -> None:
    made = """
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}


def hook(p):
    optimizers[p].step()
    optimizers[p].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(hook)
"""
    _, said = converted(tmp_path, SCRIPT.format(imports="", made=made, steps="loss.backward()"))
    assert "AD904 steps an optimizer from a hook" in said
