"""Whatever has started a converted script, its ranks find each other and a device of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import SCRIPT, converted

from autodist import registry
from autodist.verify.launch import free_port

OURS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
SLURM = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "SLURM_TASKS_PER_NODE": "4(x2)"}
STEP = {"SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77", "SLURM_STEP_NODELIST": "gpu[03-04]"}
OPEN_MPI = {f"OMPI_COMM_WORLD_{name}": value for name, value in (("RANK", "1"), ("SIZE", "2"), ("LOCAL_RANK", "1"))}
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
ONE_HOST = {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
ALONE = "0 0 1 1 localhost 0"


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What a conversion defines to join its group."""
    text, _ = converted(
        tmp_path_factory.mktemp("launchers"), SCRIPT.replace("nn.Linear(4, 1)", "nn.Linear(4, 1).cuda()")
    )
    return text[text.index("def read_launcher") : text.index("\n\n\nsetup_distributed()")]


def told(functions: str, env: dict[str, str]) -> tuple[str | None, ...]:
    """What a process finds in its environment afterwards."""
    names: dict[str, Any] = {"os": SimpleNamespace(environ=env), "re": __import__("re")}
    exec(functions, names)
    names["read_launcher"]()
    return tuple(env.get(name) for name in OURS)


SRUN = {**SLURM, **STEP}
RANKS = {
    "plain python": ({}, ALONE),
    "plain python, an address left over": ({"MASTER_ADDR": "elsewhere"}, ALONE),
    "srun": (SRUN, "5 1 8 4 gpu03 20770"),
    "address given": ({**SRUN, "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "5 1 8 4 a 1"),
    "nodes without brackets": ({**SLURM, "SLURM_JOB_NODELIST": "a1,b2"}, "5 1 8 4 a1 29500"),
    "two kinds of nodes": ({**SLURM, "SLURM_JOB_NODELIST": "b[2,7-9],c1"}, "5 1 8 4 b2 29500"),
    "srun, one node": ({**SRUN, "SLURM_TASKS_PER_NODE": "8"}, "5 1 8 8 localhost 20770"),
    "srun with PMI": ({**SRUN, "PMI_RANK": "5", "PMI_SIZE": "8"}, "5 1 8 4 gpu03 20770"),
    "salloc, plain python": ({"SLURM_NTASKS": "8", "SLURM_JOB_NODELIST": "a"}, ALONE),
    "sbatch, plain python": ({**SLURM, "ENVIRONMENT": "BATCH", "SLURM_PROCID": "0"}, ALONE),
    "sbatch, srun": ({**SRUN, "ENVIRONMENT": "BATCH"}, "5 1 8 4 gpu03 20770"),
    "srun of one task": (
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "SLURM_TASKS_PER_NODE": "1"},
        ALONE,
    ),
    "Open MPI": ({**OPEN_MPI, **ONE_HOST}, "1 1 2 2 localhost 29500"),
    "Open MPI in Slurm": ({**OPEN_MPI, **ONE_HOST, **SRUN}, "1 1 2 2 localhost 20770"),
    "MPICH": (MPICH, "1 1 2 2 localhost 29500"),
    "MPICH, its proxies started by srun": ({**MPICH, **SRUN}, "1 1 2 2 localhost 20770"),
    "PMI, a host given": ({"PMI_RANK": "3", "PMI_SIZE": "4", "MASTER_ADDR": "h"}, "3 3 4 1 h 29500"),
}


@pytest.mark.parametrize(("env", "expected"), RANKS.values(), ids=RANKS)
def test_ranks_are_known(functions: str, env: dict[str, str], expected: str) -> None:
    assert told(functions, dict(env)) == tuple(expected.split())


def test_torchrun_is_believed_beside_any_other(functions: str) -> None:
    env = {
        "RANK": "2",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "h",
        "MASTER_PORT": "5",
        **SLURM,
        **OPEN_MPI,
    }
    assert told(functions, env) == ("2", "0", "4", None, "h", "5")


def test_one_process_on_each_machine_is_its_first(functions: str) -> None:
    assert told(functions, {"RANK": "2", "WORLD_SIZE": "4"})[:3] == ("2", "0", "4")


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, "set MASTER_ADDR to the host of rank 0"),
        ({"PMI_RANK": "3", "PMI_SIZE": "4"}, "set MASTER_ADDR to the host of rank 0"),
        ({"PMIX_RANK": "3"}, "start with torchrun, srun or mpirun"),
    ],
    ids=["several hosts", "PMI alone", "PMIx alone"],
)
def test_ranks_that_cannot_meet_stop_with_one_line(functions: str, env: dict[str, str], said: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        told(functions, dict(env))
    assert said in str(stopped.value) and "\n" not in str(stopped.value)


@pytest.mark.parametrize(("visible", "own"), [(4, 3), (1, 0)], ids=["all GPUs of the node", "one to each process"])
def test_device_is_one_that_the_process_sees(functions: str, visible: int, own: int) -> None:
    called: list[Any] = []
    cuda = SimpleNamespace(is_available=lambda: True, device_count=lambda: visible, set_device=called.append)
    torch = SimpleNamespace(cuda=cuda, device=lambda kind, index: (kind, index))
    dist = SimpleNamespace(
        init_process_group=lambda backend, device_id: called.append((backend, device_id)),
        destroy_process_group=None,
        get_rank=lambda: 0,
    )
    env = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "4"}
    exits = SimpleNamespace(register=lambda *args: None)
    names = {
        "os": SimpleNamespace(environ=env),
        "torch": torch,
        "dist": dist,
        "atexit": exits,
        "time": SimpleNamespace(sleep=None),
    }
    exec(functions, names)
    names["setup_distributed"]()  # type: ignore[operator]
    assert called == [("cuda", own), ("cpu:gloo,cuda:nccl", ("cuda", own))]


def test_script_that_names_no_device_stays_on_the_cpu(tmp_path: Path) -> None:
    text, _ = converted(tmp_path, SCRIPT)
    assert 'dist.init_process_group("gloo")\n' in text and "cuda" not in text


@pytest.mark.parametrize("style", ["srun", "mpirun"])
def test_ranks_of_other_launchers_train_together(style: str, tmp_path: Path) -> None:
    text, _ = converted(tmp_path, SCRIPT)
    (tmp_path / "train.py").write_text(text + "print('ranks', dist.get_world_size())\n")
    names = {
        "srun": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_TASKS_PER_NODE"),
        "mpirun": tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")),
    }[style]
    rest = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_port())}
    for name in OURS[:-1]:
        rest.pop(name, None)
    ranks = [
        subprocess.Popen(
            [sys.executable, "train.py"],
            cwd=tmp_path,
            env={**rest, **dict(zip(names, (str(rank), "2", str(rank), "2"), strict=True))},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        said = [each.communicate(timeout=200)[0] for each in ranks]
    finally:
        for each in ranks:
            each.kill()
    assert [each.returncode for each in ranks] == [0, 0]
    assert said == ["ranks 2\n", ""]


def test_script_with_its_own_group_reads_the_launcher_too(tmp_path: Path) -> None:
    text, _ = converted(tmp_path, dedent(registry.examples("AD103")[0].before))
    assert text.index("    read_launcher()\n") < text.index('int(os.environ["WORLD_SIZE"])')
