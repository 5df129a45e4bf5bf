"""Fit a line: small enough to be verified in a pull request."""

import argparse
import atexit
import os
import re
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def read_launcher():
    """Set RANK and so on as torchrun does, from what srun or mpirun says; plain `python` is a group of one."""
    env = os.environ
    if "RANK" in env:
        env.setdefault("LOCAL_RANK", "0")
        return
    if "OMPI_COMM_WORLD_RANK" in env:  # Open MPI
        names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
        rank, size, local_rank, local_size = (env[f"OMPI_COMM_WORLD_{name}"] for name in names)
    elif "MPI_LOCALRANKID" in env or "PMI_RANK" in env and "SLURM_PROCID" not in env:  # MPICH, Intel MPI
        rank, size = env["PMI_RANK"], env["PMI_SIZE"]
        local_rank, local_size = env.get("MPI_LOCALRANKID", rank), env.get("MPI_LOCALNRANKS", "1")
    elif "SLURM_PROCID" in env and ("SLURM_STEP_ID" in env or env.get("ENVIRONMENT") != "BATCH"):  # srun
        rank, size, local_rank = env["SLURM_PROCID"], env["SLURM_NTASKS"], env["SLURM_LOCALID"]
        local_size = re.split(r"\D", env.get("SLURM_TASKS_PER_NODE", size))[0]  # of "4(x2)" the 4
    elif "PMIX_RANK" in env:
        raise SystemExit("PMIX_RANK is set, the number of ranks is not: start with torchrun, srun or mpirun")
    else:
        rank, size, local_rank, local_size = "0", "1", "0", "1"
    env.update(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=local_rank, LOCAL_WORLD_SIZE=local_size)
    if size == "1":
        env.update(MASTER_ADDR="localhost", MASTER_PORT="0")
        return
    hosts = env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", ""))  # "node[03-04,07],gpu1"
    first_host = "localhost" if size == local_size else re.sub(r"\[(\d+).*|,.*", r"\1", hosts)
    if not env.setdefault("MASTER_ADDR", first_host):
        raise SystemExit(f"{size} ranks on several hosts have to meet: set MASTER_ADDR to the host of rank 0")
    job, step = int(env.get("SLURM_JOB_ID", 950)), int(env.get("SLURM_STEP_ID", 0))
    env.setdefault("MASTER_PORT", str(20000 + (10 * job + step) % 10000))  # 29500 outside of Slurm


def setup_distributed():
    """Join the process group of torchrun, srun or mpirun; plain `python` runs as a group of one."""
    read_launcher()
    dist.init_process_group("gloo")
    atexit.register(dist.destroy_process_group)
    atexit.register(time.sleep, 0.1)  # runs first: gloo's threads still hold the last tensors
    if dist.get_rank() != 0:
        sys.stdout = open(os.devnull, "w")  # rank 0 prints for all


def reduce_mean(value):
    """The mean of a number over all ranks."""
    mean = torch.tensor(value / dist.get_world_size(), dtype=torch.float64)
    dist.all_reduce(mean)
    return mean.item()


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
args = parser.parse_args()

setup_distributed()
torch.manual_seed(0)
inputs = torch.randn(256, 8)
train_set = TensorDataset(inputs, inputs.sum(1, keepdim=True))
assert 32 % dist.get_world_size() == 0, "batch size must be divisible by the number of ranks"
loader = DataLoader(
    train_set,
    batch_size=32 // dist.get_world_size(),
    sampler=DistributedSampler(train_set, seed=torch.initial_seed()),
)
model = DDP(nn.Linear(8, 1), gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(args.epochs):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {reduce_mean(loss.item()):.4f}")
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "model.pt")
