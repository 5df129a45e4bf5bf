"""Distributed scripts of which manifests are made, and what these give to torchrun."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Autodist

SCRIPT = """\
import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", "-b", type=int, default=64)
parser.add_argument("--resume", default="")
parser.add_argument("--name", default="run")
args = parser.parse_args()
dist.init_process_group("gloo")
data = TensorDataset(torch.randn(128, 4), torch.randn(128, 1))
assert args.batch_size % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
loader = DataLoader(data, batch_size=args.batch_size // dist.get_world_size(), sampler=DistributedSampler(data))
model = DDP(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
# resume
for epoch in range(first, 3):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        os.makedirs("out", exist_ok=True)
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, "out/last.pt")
dist.destroy_process_group()
"""

LOADS = """\
    checkpoint = torch.load(PATH)
    model.module.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    first = checkpoint["epoch"] + 1
"""


def loading(condition: str, path: str = '"out/last.pt"') -> str:
    """What goes on from a checkpoint, under a condition."""
    return f"if {condition}:\n" + LOADS.replace("PATH", path)


ITSELF = loading('os.path.exists("out/last.pt")')
BY_OPTION = loading("args.resume", "args.resume")


def script(folder: Path, resume: str = "", text: str = SCRIPT) -> Path:
    """A script in a folder, which resumes in a way."""
    path = folder / "train_ddp.py"
    path.write_text(text.replace("# resume\n", resume))
    return path


def printed(autodist: Autodist, engine: str, *args: str, gpus: str = "8") -> str:
    """The manifest of ``train_ddp.py`` on two nodes."""
    done = autodist("manifest", "train_ddp.py", "--for", engine, "--nodes", "2", "--gpus", gpus, "--", *args)
    assert done.exit_code == 0, done.output
    return str(done.stdout)


def yaml(text: str) -> Any:
    """What YAML says."""
    return pytest.importorskip("yaml").safe_load(text)


def told(text: str, folder: Path, **environment: str) -> list[str]:
    """What a shell script gives torchrun, of which it starts a stand-in."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for name, body in {
        "torchrun": 'for each in "$@"; do printf "%s\\0" "$each"; done >told',
        "srun": 'shift; exec "$@"',
        "scontrol": "echo node0; echo node1",
    }.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    (folder / "job.sh").write_text(text)
    env = {"PATH": f"{tools}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[0-1]", **environment}
    subprocess.run(["bash", "-n", "job.sh"], cwd=folder, check=True)
    subprocess.run(["bash", "job.sh", "node0"], cwd=folder, env=env, check=True, timeout=20)
    return (folder / "told").read_bytes().decode().split("\0")[:-1]
