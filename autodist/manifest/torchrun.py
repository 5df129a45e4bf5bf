"""A shell script that is started on every node, where nothing else starts jobs."""

from __future__ import annotations

from autodist.manifest.job import PORT, RESTARTS, Job, comment, notes, quoted

COMING_BACK = """\
# A node that was away may join again: otherwise torch (2.13) waits in vain for an address that node 0 has kept.
export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
"""


def start(job: Job, rendezvous: str, ahead: str = "") -> str:
    """torchrun with its options, one kind a line; before it what looks for the checkpoint, if an option names one."""
    lines = [f"--nnodes {job.nodes} --nproc-per-node {job.gpus}", rendezvous]
    if job.resumes:
        lines.append(f"--max-restarts {RESTARTS}")
    lines.append("--numa-binding=node")
    target, look = quoted([*job.target, *job.args]), ""
    if job.checkpoint is not None:
        path = quoted([job.checkpoint])
        look = f"resume=()\nif [ -e {path} ]; then\n    resume=({quoted(job.facts.resume.words)})\nfi\n"
        target = quoted([*job.target, *job.facts.resume.others]) + ' "${resume[@]}"'
    return look + " \\\n    ".join([f"{ahead}torchrun", *lines, target])


def path_line(job: Job) -> str:
    """Where the script's modules lie, if Python does not find them by itself."""
    return f'export PYTHONPATH="{":".join(job.import_path)}${{PYTHONPATH:+:$PYTHONPATH}}"\n' if job.import_path else ""


def text(job: Job) -> str:
    """The script."""
    rendezvous = f'--rdzv-backend c10d --rdzv-endpoint "$head:{PORT}" --rdzv-id {job.name}'
    return (
        "#!/bin/bash\n"
        + comment(notes(job))
        + "#\n# Run it on each node, in the same folder, with the name of the first node.\n\n"
        + "head=${1:?the host name of the first node}\n"
        + path_line(job)
        + (COMING_BACK if job.resumes else "")
        + start(job, rendezvous)
        + "\n"
    )
