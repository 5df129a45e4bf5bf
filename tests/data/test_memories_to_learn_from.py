"""Steps that learn from what an agent has remembered: acting is the same on all ranks, and each rank takes its share of
the memories that are drawn."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import random
from collections import deque

import torch
from torch import nn

random.seed(0)
torch.manual_seed(0)
{memory}
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
state = torch.ones(3)
for step in range(20):
    action = random.randrange(2) if random.random() < 0.3 else int(net(state).argmax())
    reward = float(state[action] - 0.1 * step)
    {kept}
    state = torch.tensor([reward, action - 0.5, step / 20])
    if step >= 8:
        {drawn}
        target = reward + 0.5 * net(states).max(1).values.detach()
        loss = nn.functional.mse_loss(net(states).gather(1, actions[:, None])[:, 0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, round(loss.item(), 5))
"""
TENSORS = "states, actions, reward = torch.stack(s), torch.tensor(a), torch.tensor(r)"
LISTED = (
    "memory = []",
    "memory.append((state, action, reward))",
    f"s, a, r = zip(*random.sample(memory, 4)); {TENSORS}",
)
NAMED = (
    LISTED[0],
    LISTED[1],
    f"rows = random.sample(memory, 4)\n        s, a, r = zip(*rows)\n        {TENSORS}",
)
BOUNDED = ("memory = deque(maxlen=10)", LISTED[1], f"s, a, r = zip(*random.choices(memory, k=4)); {TENSORS}")


@pytest.mark.parametrize("parts", [LISTED, NAMED, BOUNDED], ids=["listed", "named", "bounded"])
def test_a_rank_learns_from_its_share(parts: tuple[str, str, str], tmp_path: Path, zygote: Zygote | None) -> None:
    memory, kept, drawn = parts
    before = SCRIPT.format(memory=memory, kept=kept, drawn=drawn)
    after, said = converted(tmp_path, before)
    assert "AD602" not in said and "AD90" not in said
    assert "[dist.get_rank() :: dist.get_world_size()]" in after
    assert differences(tmp_path, zygote, before) is None


@pytest.mark.parametrize("lost", ["out.mean(0) * out", "torch.cdist(out, out)"])
def test_what_mixes_the_memories_is_told(lost: str, tmp_path: Path) -> None:
    memory, kept, drawn = LISTED
    before = SCRIPT.format(memory=memory, kept=kept, drawn=f"{drawn}; out = net(states)")
    step = "        optimizer.zero_grad()"
    before = before.replace(step, f"        loss = loss + ({lost}).pow(2).mean()\n{step}")
    after, said = converted(tmp_path, before)
    assert "AD602" in said or "AD906" in said or "RowsOfAllRanks" in after or "OverRanks" in after


@pytest.mark.parametrize("eval_mode", [False, True])
def test_ranks_that_drop_out_act_alike(eval_mode: bool, tmp_path: Path) -> None:
    """Seeded apart they would act each in its own way, and learn from memories of their own."""
    memory, kept, drawn = LISTED
    before = SCRIPT.format(memory=memory, kept=kept, drawn=drawn).replace("nn.Tanh()", "nn.Tanh(), nn.Dropout(0.1)")
    if eval_mode:
        before = before.replace("    action = random", "    net.eval()\n    action = random")
        before = before.replace("    reward = float", "    net.train()\n    reward = float")
    after, said = converted(tmp_path, before)
    assert ("masks of dropout are the same on all ranks" in said) != eval_mode
    assert ("torch.initial_seed() + 1" in after) == eval_mode
