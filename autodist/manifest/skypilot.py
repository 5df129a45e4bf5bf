"""A task for SkyPilot."""

from __future__ import annotations

from textwrap import indent

from autodist.manifest import torchrun
from autodist.manifest.job import PORT, RESTARTS, Job, comment, notes

GPU = "H100"
TASK = """\
name: {name}
num_nodes: {nodes}
resources:
  accelerators: {gpu}:{gpus}
{recovery}workdir: .
{mounts}setup: pip install -r requirements.txt
run: |
{run}"""
RECOVERY = f"""\
  job_recovery:  # of `sky jobs launch`
    max_restarts_on_errors: {RESTARTS}
"""
MOUNT = """\
  ~/sky_workdir/{path}:
    name: {name}-{label}
    mode: MOUNT
"""


def text(job: Job) -> str:
    """The task: each node runs the same commands. Folders that are written to become buckets."""
    rendezvous = f'--rdzv-backend c10d --rdzv-endpoint "$head:{PORT}" --rdzv-id "$SKYPILOT_TASK_ID"'
    head = 'head=$(echo "$SKYPILOT_NODE_IPS" | head -n 1)\n'
    run = head + torchrun.path_line(job) + torchrun.start(job, rendezvous) + "\n"
    mounts = "".join(
        MOUNT.format(path=each, name=job.name, label=each.lower().replace("_", "-")) for each in job.shares()
    )
    return comment(notes(job)) + TASK.format(
        name=job.name,
        nodes=job.nodes,
        gpu=job.gpu or GPU,
        gpus=job.gpus,
        recovery=RECOVERY if job.goes_on else "",
        mounts=f"file_mounts:\n{mounts}" if mounts else "",
        run=indent(run, "  "),
    )
