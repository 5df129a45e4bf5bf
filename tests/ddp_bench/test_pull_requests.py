"""What people made of public scripts is judged as it is, on CPUs, beside what autodist makes of the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from conftest import ROOT, SECONDS

ORIGINAL = """
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True, num_workers=2)
model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
begun = time.time()
for epoch in range(2):
    for inputs, targets in loader:
        loss = torch.nn.functional.mse_loss(model(inputs.to("cuda:0")), targets.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"{time.time() - begun:.6f} s")
torch.save(model.state_dict(), "model.pt")
"""
HUMAN = """
import os
import time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group(backend="nccl")
torch.manual_seed(0)
x = torch.randn(64, 4)
sampler = DistributedSampler(dataset := TensorDataset(x, x.sum(1, keepdim=True)))
batch_size = 8
loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler, num_workers=2)
model = DistributedDataParallel(torch.nn.Linear(4, 1).to(rank), device_ids=[rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
begun = time.time()
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, targets in loader:
        loss = torch.nn.functional.mse_loss(model(inputs.to(rank)), targets.cuda(rank))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"rank {rank}: {time.time() - begun:.6f} s")
if rank == 0:
    torch.save(model.module.state_dict(), "model.pt")
dist.destroy_process_group()
"""
MANIFEST = """
[[pull_request]]
name = "one"
repository = "owner/one"
licence = "Apache-2.0"
before = "HEAD^"
after = "HEAD"
original = ["train.py"]
human = ["train.py"]
divided = "batch_size = 8"
"""


def test_everything_and_the_training_alone(tmp_path: Path) -> None:
    repository = tmp_path / "owner+one"
    repository.mkdir()
    git = ["git", "-C", str(repository), "-c", "user.name=one", "-c", "user.email=one@example.org"]
    subprocess.run([*git, "init", "--quiet"], check=True)
    for text in (ORIGINAL, HUMAN):
        (repository / "train.py").write_text(text)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "--quiet", "--message", "train"], check=True)
    (tmp_path / "manifest.toml").write_text(MANIFEST)
    options = ["--manifest", "manifest.toml", "--checkouts", ".", "--results", "results.json"]
    command = [sys.executable, "-m", "benchmarks.ddp_bench.pull_requests", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, env=env)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    verdicts = {(each["who"], each["look"]): each["verdict"] for each in results}
    assert verdicts == {
        ("a person", "everything"): "silently wrong",  # every rank prints, and the batch is that of each rank
        ("a person", "training"): "silently wrong",
        ("a person, batch divided", "everything"): "silently wrong",
        ("a person, batch divided", "training"): "equal",
        ("autodist", "everything"): "equal",
        ("autodist", "training"): "equal",
    }
    assert "| [one](https://github.com/owner/one) HEAD | autodist | equal | equal |" in done.stdout
    assert not [*repository.glob("*.pt")]
