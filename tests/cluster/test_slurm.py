"""What is printed for Slurm runs on Slurm: one controller, two nodes."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Autodist

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


def test_job_is_saved_inside_an_epoch(slurm: Slurm, autodist: Autodist, train: Path) -> None:
    folder = train.parent
    slow = train.with_name("train.py").read_text().replace('while os.path.exists("wait") and epoch == 1', "if False")
    slow = slow.replace("        optimizer.step()\n", "        optimizer.step()\n        STEP\n")
    slow = slow.replace("STEP", 'time.sleep(0.5 * os.path.exists("wait"))').replace(
        "range(first, 4)", "range(first, 9)"
    )
    (folder / "train.py").write_text(slow)
    assert autodist("convert", "train.py", "--on-preempt", "--force").exit_code == 0
    (folder / "wait").touch()
    job = submitted(slurm, autodist, folder)
    until(lambda: (folder / "last.pt").exists(), "the first checkpoint")
    slurm.run("scancel", "--batch", "--signal=USR1", job)
    until(lambda: slurm.state(job) == "PENDING", "the job in the queue")
    place = torch.load(folder / "last.pt", weights_only=False)["interrupted"]
    assert place["samples"] % 8 == 0 and 0 < place["samples"] <= 32
    (folder / "wait").unlink()
    assert completed(slurm, job, folder).count("weight ") == 1


def test_commands_of_the_page(slurm: Slurm, autodist: Autodist, tmp_path: Path) -> None:
    """Those of docs/cluster.md, on one GPU a node."""
    shutil.copytree(
        ROOT / "examples", tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("train_ddp*", "data")
    )
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8").partition("### Slurm")[2].partition("###")[0]
    page = page.replace("--gpus 8", "--gpus 1").replace("--epochs 90", "--epochs 2")
    page = page.replace("--ntasks-per-node 8 --gpus-per-node 8", "--ntasks-per-node 1 --gpus-per-node 1")
    lines = [shlex.split(line) for line in page.splitlines() if line.startswith("    ")]
    assert autodist("convert", "train.py").exit_code == 0
    first, send, _, direct = lines
    (tmp_path / "train.sbatch").write_text(autodist(*first[1:-2]).stdout)
    assert completed(slurm, sent(slurm, tmp_path, *send[1:]), tmp_path).count("best accuracy") == 1
    said = slurm.run(*direct, cwd=tmp_path)
    assert said.returncode == 0 and said.stdout.count("best accuracy") == 1, said
