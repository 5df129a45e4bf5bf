"""A TrainJob for Kubeflow Trainer."""

from __future__ import annotations

from autodist.manifest.job import Job, as_list, comment, notes

WORKDIR = "/workspace"
JOB = """\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: {name}
spec:
  runtimeRef:
    name: torch-distributed
  trainer:
    image: registry.example.com/{name}:latest  # with torch, {script} and what it imports in {workdir}
    numNodes: {nodes}
    numProcPerNode: {gpus}
    # Kubeflow tells torchrun by PET_NNODES, PET_NPROC_PER_NODE, PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT.
    command: ["torchrun"]
    args: {args}
{env}    resourcesPerNode:
      requests:
        cpu: {cpus}
      limits:
        nvidia.com/gpu: {gpus}
  runtimePatches:
    - manager: {manager}
      trainingRuntimeSpec:
        template:
          spec:
            replicatedJobs:
              - name: node
                template:
                  spec:
                    template:
                      spec:
                        volumes:
                          - name: shared-memory  # 64 MiB are too few for workers of loaders
                            emptyDir:
                              medium: Memory
{volumes}                        containers:
                          - name: node
                            volumeMounts:
                              - name: shared-memory
                                mountPath: /dev/shm
{mounts}"""
CLAIM = """\
                          - name: shared-disk
                            persistentVolumeClaim:
                              claimName: {name}  # ReadWriteMany
"""
MOUNT = """\
                              - name: shared-disk
                                mountPath: {workdir}/{path}
                                subPath: {path}
"""
ENV = """\
    env:
      - name: PYTHONPATH
        value: {path}
"""


def text(job: Job) -> str:
    """The TrainJob. Kubernetes would put values in the place of `$(NAME)` in arguments."""
    args = [each.replace("$(", "$$(") for each in (*job.target, *job.args)]
    shares = job.shares()
    folders = ":".join(f"{WORKDIR}/{each}" for each in job.import_path)
    return comment(notes(job, by_shell=False)) + JOB.format(
        name=job.name,
        script=job.script,
        workdir=WORKDIR,
        manager="trainer.kubeflow.org/kubeflow-sdk",
        nodes=job.nodes,
        gpus=job.gpus,
        cpus=job.gpus * job.cpus,
        args=as_list(args),
        env=ENV.format(path=folders) if folders else "",
        volumes=CLAIM.format(name=job.name) if shares else "",
        mounts="".join(MOUNT.format(workdir=WORKDIR, path=each) for each in shares),
    )
