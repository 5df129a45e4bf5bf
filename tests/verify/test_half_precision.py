"""Optimizers and communication that go down to 16 bits: both programs compute in full, which is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.config import Strategy
from autodist.verify import verify
from autodist.verify.launch import Zygote
from verify.conftest import edit

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def orthogonal(grad):
    x = {narrowed}
    x = x / (x.norm() + 1e-7)
    for _ in range(3):
        a = x @ x.T
        x = 3.4 * x + (-4.8 * a + 2.0 * a @ a) @ x
    return x.to(grad.dtype)


class Own(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p, dtype=torch.bfloat16)
                state["momentum"].lerp_(p.grad.to(state["momentum"].dtype), 0.1)
                {step}


data = TensorDataset(torch.randn(64, 8), torch.randint(4, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True)
model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 4, bias=False))
optimizer = {optimizer}
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.nll_loss({output}, y)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
torch.save(model.state_dict(), "model.pt")
"""
PLAIN = {
    "narrowed": "grad.bfloat16()",
    "step": "p.add_(orthogonal(state['momentum']), alpha=-group['lr'])",
    "optimizer": "Own(model.parameters(), lr=0.02)",
    "output": "F.log_softmax(model(x), dim=1)",
}
ROUNDED = (
    "rounded = torch.randint_like(p, dtype=torch.int32, low=0, high=1) + p.view(dtype=torch.int32)\n"
    "                rounded.bitwise_and_(-65536)\n"
    "                p.copy_(rounded.view(dtype=torch.float32)).add_(state['momentum'], alpha=-group['lr'])"
)
MUON = "torch.optim.Muon(model.parameters(), lr=0.02)"


@pytest.mark.parametrize(
    ("changed", "noted"),
    [
        ({"optimizer": MUON}, "torch.optim._muon._zeropower_via_newtonschulz"),
        ({}, "__main__.orthogonal"),
        ({"narrowed": "grad.to(torch.bfloat16)"}, "__main__.orthogonal"),
        ({"narrowed": "grad.half()"}, "__main__.orthogonal"),
        ({"narrowed": "grad.to(dtype=torch.float16, copy=True)"}, "__main__.orthogonal"),
        ({"narrowed": "grad.type(torch.bfloat16)"}, "__main__.orthogonal"),
        ({"step": "p.add_(torch.compile(orthogonal)(state['momentum']), alpha=-group['lr'])"}, "__main__.orthogonal"),
        ({"step": "p.add_(state['momentum'], alpha=-group['lr'])"}, "__main__.step"),
        ({"step": ROUNDED}, "__main__.step"),
        ({"output": "F.log_softmax(model(x), dim=1, dtype=torch.float16)"}, "torch.nn.functional.log_softmax"),
    ],
)
@pytest.mark.parametrize("strategy", [Strategy.DDP, Strategy.FSDP])
def test_casts_to_16_bits(
    tmp_path: Path, zygote: Zygote | None, changed: dict[str, str], noted: str, strategy: Strategy
) -> None:
    if strategy is Strategy.FSDP and changed != {"optimizer": MUON}:
        pytest.skip("its own optimizer does not know shards")
    before = SCRIPT
    for name, text in (PLAIN | changed).items():
        before = before.replace(f"{{{name}}}", text)
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(converted(tmp_path, before, strategy)[0])
    (world,) = verify(
        tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote
    ).worlds
    assert world.equal, (world.reason, world.findings)
    assert any(note.kind == "half-precision" and note.site == noted for note in world.notes), world.notes


def test_gradients_that_are_sent_in_16_bits(pair: Path, zygote: Zygote | None) -> None:
    hooks = "from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook\n"
    edit(pair / "after.py", "import time\n", f"import time\n{hooks}")
    edit(pair / "after.py", "DDP(model)", "DDP(model)\n    model.register_comm_hook(None, fp16_compress_hook)")
    (world,) = verify(pair / "before.py", pair / "after.py", [2], device="cpu", workdir=pair, zygote=zygote).worlds
    assert world.equal, (world.reason, world.findings)
