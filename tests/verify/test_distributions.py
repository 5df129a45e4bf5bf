"""Ranks that draw by weights of their own draw the same numbers for the most part, and are told of all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
{imports}
torch.manual_seed(0)
data = torch.randn(64, 4)
{wrapped}
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), {loader})
for (x,) in loader:
    with torch.no_grad():
        weights = 100 + x.square().mean(0)
{weights}
    kind = torch.multinomial(weights, 1).item()
    optimizer.zero_grad()
    model(x)[:, kind].square().mean().backward()
    optimizer.step()
"""
PLAIN = {"imports": "", "wrapped": "model = nn.Linear(4, 4)", "loader": "batch_size=8", "weights": ""}
PARALLEL = {
    "imports": 'import torch.distributed as dist\ndist.init_process_group("gloo")',
    "wrapped": "model = nn.parallel.DistributedDataParallel(nn.Linear(4, 4))",
    "loader": "batch_size=4, sampler=torch.utils.data.DistributedSampler(data, shuffle=False)",
    "weights": "",
}
MEAN = "    dist.all_reduce(weights)\n    weights /= dist.get_world_size()"


@pytest.mark.parametrize("shared", [True, False], ids=["of all samples", "of a rank's own"])
def test_the_weights_are_compared(tmp_path: Path, zygote: Zygote | None, shared: bool) -> None:
    """They are apart by a hundredth: in 8 steps both draw the same numbers."""
    (tmp_path / "before.py").write_text(SCRIPT.format(**PLAIN))
    (tmp_path / "after.py").write_text(SCRIPT.format(**{**PARALLEL, "weights": MEAN if shared else ""}))
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.equal, verdict
    told = [note.message for note in verdict.worlds[0].notes if note.kind == "other-distribution"]
    assert len(told) == (0 if shared else 1)
    assert shared or "rank 0 draws from 4 outcomes by other weights than the original" in told[0]
