"""Two nodes on one machine, Slurm on them, and a script that is converted for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import converted_file

from autodist.verify.nodes import Nodes, refusal

SECONDS = 120.0
TRAIN = """\
import os
import socket
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
if os.path.exists("last.pt"):
    checkpoint = torch.load("last.pt")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    first = checkpoint["epoch"] + 1
with open(f"started-{socket.gethostname()}", "a") as file:
    file.write(f"{first}\\\\n")
for epoch in range(first, 4):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, "last.pt")
    while os.path.exists("wait") and epoch == 1:
        time.sleep(0.1)
print("weight", model.weight.sum().item())
"""
SLURM = """\
ClusterName=test
SlurmctldHost=node0
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
GresTypes=gpu
KillWait=3
ReturnToService=2
NodeName=node0 NodeAddr={first} CPUs=16 RealMemory=1000 Gres=gpu:8
NodeName=node1 NodeAddr={second} CPUs=16 RealMemory=1000 Gres=gpu:8
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Two of them."""
    reason = refusal()
    if reason is not None:
        pytest.skip(reason)
    with Nodes(2) as made:
        yield made


def environment(folder: Path) -> dict[str, str]:
    """What programs on nodes find: `torchrun`, and `python` as the tests are run by."""
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    # there is no GPU to bind to, which torchrun takes for an error
    kept = 'for each; do [[ $each == --numa-binding=* ]] || kept+=("$each"); done'
    torchrun = f'{kept}\nexec {sys.executable} -m torch.distributed.run "${{kept[@]}}"'
    for name, body in {"torchrun": torchrun, "python": f'exec {sys.executable} "$@"'}.items():
        (tools / name).write_text(f"#!/bin/bash\n{body}\n")
        (tools / name).chmod(0o755)
    left = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "MASTER", "PYTEST"))}
    return {**left, "PATH": f"{tools}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}


@pytest.fixture
def train(tmp_path: Path) -> Path:
    """A small script, converted."""
    (tmp_path / "train.py").write_text(TRAIN.replace("\\\\n", "\\n"))
    after, said = converted_file(tmp_path / "train.py")
    assert "init_process_group" in after, said
    path = tmp_path / "train_ddp.py"
    path.write_text(after)
    return path


def until(condition: Callable[[], object], what: str, seconds: float = SECONDS) -> None:
    """Wait for something."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come in {seconds:.0f} s"
        time.sleep(0.1)


class Slurm:
    """slurmctld and two slurmd, each on its node."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self._nodes, self._folder = nodes, folder
        self._started: list[subprocess.Popen[bytes]] = []
        (folder / "state").mkdir()
        (folder / "munge.key").write_bytes(os.urandom(1024))
        (folder / "munge.key").chmod(0o600)
        text = SLURM.format(folder=folder, first=nodes.addresses[0], second=nodes.addresses[1])
        (folder / "slurm.conf").write_text(text)
        for number in range(8):
            (folder / f"gpu{number}").touch()
        (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-7]\n")
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # it has to be named, and is not used
        self.env = {**environment(folder), "SLURM_CONF": str(folder / "slurm.conf")}
        files = {"socket": "munge.socket", "key-file": "munge.key", "pid-file": "munge.pid"}
        files |= {"log-file": "munge.log", "seed-file": "munge.seed"}
        self._start(0, ["munged", "--foreground", "--force", *(f"--{key}={folder / to}" for key, to in files.items())])
        until((folder / "munge.socket").exists, "munged")
        self._start(0, ["slurmctld", "-D", "-i"])
        for node, name in enumerate(nodes.names):
            (folder / f"spool-{name}").mkdir()
            self._start(node, ["slurmd", "-D", "-N", name])
        until(
            lambda: self.run("sinfo", "--noheader", "-o", "%T %D").stdout.strip() == "idle 2",
            f"Slurm, whose logs lie in {folder},",
            20,
        )

    def _start(self, node: int, command: list[str]) -> None:
        log = open(self._folder / f"{command[0]}-{node}.out", "wb")  # noqa: SIM115 - its child holds it
        self._started.append(
            subprocess.Popen(
                self._nodes.command(node, command), env=self.env, stdout=log, stderr=log, start_new_session=True
            )
        )
        log.close()

    def run(self, *command: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """One of Slurm's commands, on the first node."""
        return subprocess.run(
            self._nodes.command(0, command),
            env=self.env,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def state(self, job: str) -> str:
        """How a job stands."""
        shown = self.run("scontrol", "show", "job", job, "--oneliner").stdout
        return shown.partition("JobState=")[2].partition(" ")[0]

    def close(self) -> None:
        """End all of it."""
        self.run("scancel", "--state=RUNNING", "--state=PENDING", "--user=root")
        for process in self._started[::-1]:
            process.terminate()
        for process in self._started:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture(scope="session")
def slurm(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """A real one."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} (of munge, slurmctld, slurmd and slurm-client) is not installed")
    made = Slurm(nodes, tmp_path_factory.mktemp("slurm"))
    try:
        yield made
    finally:
        made.close()
