"""A batch script for Slurm."""

from __future__ import annotations

from autodist.manifest import torchrun
from autodist.manifest.job import Job, comment, notes

SECONDS = 120
REQUEUE = f"""\
# Slurm sends SIGUSR1 here {SECONDS} s before the time limit, and the job goes back into the queue. By hand:
# scancel --batch --signal=USR1 JOB
trap 'scontrol requeue "$SLURM_JOB_ID"' USR1
"""
SAVE_AND_REQUEUE = f"""\
# Slurm sends SIGUSR1 here {SECONDS} s before the time limit: the ranks get it too, save after their step and end, and
# the job goes back into the queue. By hand: scancel --batch --signal=USR1 JOB
trap 'kill -USR1 $!; wait $!; scontrol requeue "$SLURM_JOB_ID"' USR1
"""
HANDLED = "--signals-to-handle SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"
"""Of torchrun: SIGUSR1 would end it otherwise."""


def text(job: Job) -> str:
    """One torchrun on each node, which starts a rank for each GPU."""
    again = job.goes_on
    gpus = f"{job.gpu.lower()}:{job.gpus}" if job.gpu else str(job.gpus)
    options = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        f"--gpus-per-node={gpus}",
        f"--cpus-per-task={job.gpus * job.cpus}",
        "--output=%x-%j.out",
    ]
    options += ["--open-mode=append", "--requeue", f"--signal=B:USR1@{SECONDS}"] if again else ["--no-requeue"]
    listens = f" \\\n    {HANDLED}" if again and job.facts.listens else ""
    rendezvous = '--rdzv-backend c10d --rdzv-endpoint "$head:$port" --rdzv-id "$SLURM_JOB_ID"' + listens
    return (
        "#!/bin/bash\n"
        + "".join(f"#SBATCH {option}\n" for option in options)
        + "#\n"
        + comment(notes(job))
        + "# Add --time, --partition and --account as your cluster wants them.\n\n"
        + ((SAVE_AND_REQUEUE if job.facts.listens else REQUEUE) if again else "")
        + 'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
        + "port=$((20000 + SLURM_JOB_ID % 10000))\n"
        + 'export SRUN_CPUS_PER_TASK="$SLURM_CPUS_PER_TASK"\n'
        + torchrun.path_line(job)
        + torchrun.start(job, rendezvous, "srun --kill-on-bad-exit=1 ")
        + (" &\nwait $!\n" if again else "\n")
    )
