"""What converted scripts define to know their rank, whatever has started them."""

from __future__ import annotations

from autodist.rule import Context
from autodist.script import TrainingScript
from autodist.source import Source

from ._preamble import Planned, defined, imported

READ_LAUNCHER = '''\
def read_launcher():
    """Set RANK and so on as torchrun does, from what srun or mpirun says; plain `python` is a group of one."""
    env = {os}.environ
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
        local_size = {re}.split(r"\\D", env.get("SLURM_TASKS_PER_NODE", size))[0]  # of "4(x2)" the 4
    elif "PMIX_RANK" in env:
        raise SystemExit("PMIX_RANK is set, the number of ranks is not: start with torchrun, srun or mpirun")
    else:
        rank, size, local_rank, local_size = "0", "1", "0", "1"
    env.update(RANK=rank, WORLD_SIZE=size, LOCAL_RANK=local_rank, LOCAL_WORLD_SIZE=local_size)
    if size == "1":
        env.update(MASTER_ADDR="localhost", MASTER_PORT="0")
        return
    hosts = env.get("SLURM_STEP_NODELIST", env.get("SLURM_JOB_NODELIST", ""))  # "node[03-04,07],gpu1"
    first_host = "localhost" if size == local_size else {re}.sub(r"\\[(\\d+).*|,.*", r"\\1", hosts)
    if not env.setdefault("MASTER_ADDR", first_host):
        raise SystemExit(f"{size} ranks on several hosts have to meet: set MASTER_ADDR to the host of rank 0")
    job, step = int(env.get("SLURM_JOB_ID", 950)), int(env.get("SLURM_STEP_ID", 0))
    env.setdefault("MASTER_PORT", str(20000 + (10 * job + step) % 10000))  # 29500 outside of Slurm


'''


def read_launcher(script: TrainingScript, context: Context, source: Source) -> Planned:
    """The definition of `read_launcher`, with the imports it needs."""
    os, os_import = imported(context, source, "os")
    re, re_import = imported(context, source, "re")
    code = READ_LAUNCHER.replace("{os}", os).replace("{re}", re)
    return (*os_import, *re_import, *defined(script, source, code))
