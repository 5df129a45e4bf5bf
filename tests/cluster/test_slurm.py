"""What is printed for Slurm runs on Slurm: one controller, two nodes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import Autodist

from cluster.conftest import Slurm, until

pytestmark = pytest.mark.cluster
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")


def submitted(slurm: Slurm, autodist: Autodist, folder: Path) -> str:
    """The number of a job of the script in a folder."""
    done = autodist("manifest", "train_ddp.py", "--for", "slurm", "--nodes", "2", "--gpus", "1", "--cpus-per-gpu", "2")
    assert done.exit_code == 0, done.output
    (folder / "job.sh").write_text(done.stdout)
    return sent(slurm, folder, "job.sh")


def sent(slurm: Slurm, folder: Path, *command: str) -> str:
    """The number of a job."""
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    said = slurm.run("sbatch", "--parsable", *command, cwd=folder)
    assert said.returncode == 0, said.stderr
    return said.stdout.strip()


def completed(slurm: Slurm, job: str, folder: Path) -> str:
    """What a job prints, which comes to its end."""
    until(lambda: slurm.state(job) in ENDED, "the end of the job")
    printed = "".join(path.read_text() for path in folder.glob(f"*{job}.out"))
    assert slurm.state(job) == "COMPLETED", printed
    return printed


def test_batch_script_runs(slurm: Slurm, autodist: Autodist, train: Path) -> None:
    folder = train.parent
    printed = completed(slurm, submitted(slurm, autodist, folder), folder)
    assert printed.count("weight ") == 1, printed
    assert (folder / "last.pt").exists()


def test_script_without_torchrun(slurm: Slurm, train: Path) -> None:
    folder = train.parent
    job = sent(
        slurm, folder, "--nodes=2", "--ntasks-per-node=2", "--output=%j.out", "--wrap", "srun python train_ddp.py"
    )
    assert completed(slurm, job, folder).count("weight ") == 1


def test_job_goes_on_after_a_signal(slurm: Slurm, autodist: Autodist, train: Path) -> None:
    folder = train.parent
    (folder / "wait").touch()
    job = submitted(slurm, autodist, folder)
    until(lambda: (folder / "last.pt").exists() and len(list(folder.glob("started-*"))) > 0, "the first checkpoint")
    until(lambda: slurm.state(job) == "RUNNING", "the job")
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    until(lambda: slurm.state(job) == "PENDING", "the job in the queue")
    (folder / "wait").unlink()
    printed = completed(slurm, job, folder)
    starts = [int(line) for path in folder.glob("started-*") for line in path.read_text().split()]
    assert starts[0] == 0 and starts[-1] > 0 and printed.count("weight ") == 1, (starts, printed)
