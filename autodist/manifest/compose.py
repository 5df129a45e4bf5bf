"""Containers for docker compose, one for each node."""

from __future__ import annotations

import json

from autodist.manifest.job import PORT, RESTARTS, Job, as_list, comment, notes

FIRST = """\
x-node: &node
  image: registry.example.com/{name}:latest  # with torch and what the script imports
  working_dir: /workspace
  volumes:
    - .:/workspace  # the disk that all nodes share
  ipc: host
{env}
services:
"""
NODE = """\
  node{number}:
    <<: *node
    hostname: node{number}
    command: {command}
    deploy:
      resources:
        reservations:
          devices:
            - driver: nvidia
              device_ids: {devices}
              capabilities: [gpu]
"""


def text(job: Job) -> str:
    """All containers, on one machine. Compose would put variables in the place of `$NAME`."""
    rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"node0:{PORT}", "--rdzv-id", job.name]
    restarts = ["--max-restarts", str(RESTARTS)] if job.resumes else []
    options = ["--nnodes", str(job.nodes), "--nproc-per-node", str(job.gpus), *rendezvous, *restarts]
    command = as_list([each.replace("$", "$$") for each in ("torchrun", *options, *job.target, *job.args)])
    folders = ":".join(job.import_path)
    first = FIRST.format(name=job.name, env=f"  environment:\n    PYTHONPATH: {folders}\n" if folders else "")
    services = "".join(
        NODE.format(number=number, command=command, devices=json.dumps(_devices(number, job.gpus)))
        for number in range(job.nodes)
    )
    return comment(notes(job, by_shell=False)) + first + services


def _devices(node: int, gpus: int) -> list[str]:
    return [str(each) for each in range(node * gpus, (node + 1) * gpus)]
