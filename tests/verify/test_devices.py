"""A script that asks for a GPU without looking for one is verified on the CPU all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project
from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import pickle

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.cuda.set_device(0)
print(torch.cuda.get_device_name(0))
data = TensorDataset(torch.randn(32, 8), torch.randint(0, 3, (32,)))
loader = DataLoader(data, batch_size=8, shuffle=True, pin_memory=True)
model = nn.DataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)), device_ids=[0]).cuda()
head = nn.Linear(3, 3, device="cuda")
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
stream = torch.cuda.Stream()
generator = torch.Generator(device="cuda")
start.record()
for x, y in loader:
    with torch.cuda.stream(stream):
        x = x.cuda(non_blocking=True).type(torch.cuda.FloatTensor)
        y = y.to(torch.device("cuda", 0)).type("torch.cuda.LongTensor")
    torch.cuda.current_stream().wait_stream(stream)
    loss = F.cross_entropy(head(model(x)), y.to(0)) + 0 * torch.ones(3, device=x.device).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
end.record()
torch.cuda.synchronize()
assert start.elapsed_time(end) > 0 and isinstance(generator, torch.Generator)
torch.save(model.state_dict(), "model.pt")
first = torch.device(0)
assert isinstance(first, torch.device) and first == pickle.loads(pickle.dumps(first))
assert torch.zeros(2, device=first).to(torch.device("cuda", 0)).to(0).to(device=0).device.type == "cpu"
assert nn.Linear(2, 2, device=0).to(first).weight.device == torch.hann_window(3, device=0).device
torch.Generator(0)


@torch.jit.script
def there(x: torch.Tensor, device: torch.device) -> torch.Tensor:
    return x.to(device)


there(torch.zeros(2), torch.device("cpu"))
with torch.device("cuda"):
    model.load_state_dict(torch.load("model.pt", map_location="cuda:0"))
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_what_is_sent_to_a_gpu_or_made_there_is_on_the_cpu(tmp_path: Path, zygote: Zygote | None, dtype: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    after = tmp_path / "train_ddp.py"
    after.write_text(convert(Project.load(tmp_path / "train.py"), Config()).entry.after)
    verdict = verify(tmp_path / "train.py", after, [2], workdir=tmp_path, timeout=100, dtype=dtype, zygote=zygote)  # type: ignore[arg-type]
    assert verdict.equal, verdict.findings
    assert verdict.worlds[0].steps == 4
    notes = [note.message for note in verdict.notes if note.kind == "on-cpu"]
    assert len(notes) == 1 and "whether tensors meet on one device is not tested" in notes[0]
    for name in (
        ".cuda()",
        "torch.cuda.get_device_name",
        "torch.cuda.synchronize",
        "load(map_location='cuda')",
        ".to(0)",
    ):
        assert name in notes[0]
    assert "memory_allocated" not in notes[0] and "empty_cache" not in notes[0]


IN_CONTEXT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
with torch.device("meta"):
    assert torch.arange(3).is_meta and torch.zeros(3).is_meta and nn.Linear(8, 3).weight.is_meta
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader(TensorDataset(torch.randn(32, 8), torch.randint(0, 3, (32,))), batch_size=8, shuffle=True):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


def test_a_context_says_where_tensors_are_made(tmp_path: Path, zygote: Zygote | None) -> None:
    """As transformers makes a model on the meta device, before it reads its weights."""
    before, after = tmp_path / "train.py", tmp_path / "train_ddp.py"
    before.write_text(IN_CONTEXT)
    after.write_text(convert(Project.load(before), Config()).entry.after)
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("placed", "right"),
    [
        ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", True),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = os.environ['LOCAL_RANK']", True),
        ("if torch.cuda.is_available(): torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", True),
        ("", False),
    ],
)
def test_each_rank_has_its_own_gpu(tmp_path: Path, zygote: Zygote | None, placed: str, right: bool) -> None:
    """Nothing else shows it where there is none."""
    text = """\
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

{setup}
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
{loader}
model = nn.Linear(4, 1).cuda()
{wrapped}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.cuda()), y.to("cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    loader = "loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))"
    wrapped = "model = nn.parallel.DistributedDataParallel(model)"
    before, after = tmp_path / "train.py", tmp_path / "train_ddp.py"
    plain = "loader = DataLoader(data, batch_size=8, shuffle=True)"
    before.write_text(text.format(setup="", loader=plain, wrapped=""))
    setup = f"dist.init_process_group('gloo')\n{placed}"
    after.write_text(text.format(setup=setup, loader=loader, wrapped=wrapped))
    verdict = verify(before, after, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    assert verdict.equal == right, verdict.findings
    assert right or [finding.kind for finding in verdict.findings] == ["gpu-of-others"]


ON_CPU = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

{setup}
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
{loader}
model = nn.Linear(4, 1)
{wrapped}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{context}
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.cuda.empty_cache()
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize(
    ("before", "after", "needed"),
    [
        ("with torch.cuda.device(-1):", "with torch.cuda.device(torch.cuda.current_device()):", "current_device"),
        ("with torch.cuda.device(-1):", "with torch.cuda.device(-1):", None),
        ("if True:", "if torch.cuda.memory_allocated() == 0:", None),
        ("if True:", "if torch.cuda.get_device_name():", "get_device_name"),
        ("if True:", "torch.cuda.synchronize()\nif True:", "synchronize"),
        ("if True:", "if torch.ones(1).cuda().sum():", ".cuda()"),
        ("if torch.cuda.current_device() == 0:", "if torch.cuda.current_device() == 0:", None),
    ],
)
def test_a_conversion_that_needs_a_gpu_where_the_original_does_not(
    tmp_path: Path, zygote: Zygote | None, before: str, after: str, needed: str | None
) -> None:
    """By itself it would fail here."""
    plain = "loader = DataLoader(data, batch_size=8, shuffle=True)"
    loader = "loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))"
    wrapped = "model = nn.parallel.DistributedDataParallel(model)"
    scripts = tmp_path / "train.py", tmp_path / "train_ddp.py"
    scripts[0].write_text(ON_CPU.format(setup="", loader=plain, wrapped="", context=before))
    setup = "dist.init_process_group('gloo')"
    scripts[1].write_text(ON_CPU.format(setup=setup, loader=loader, wrapped=wrapped, context=after))
    verdict = verify(*scripts, [2], workdir=tmp_path, timeout=100, zygote=zygote)
    found = [finding for finding in verdict.findings if finding.kind == "gpu-needed"]
    assert verdict.equal == (needed is None) == (not found), verdict.findings
    assert needed is None or needed in found[0].message
