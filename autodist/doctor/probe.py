"""What only torch can say of a machine. Runs in a process of its own: `python probe.py`, or `python probe.py ranks`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist


def found() -> dict[str, object]:
    """Versions, devices and backends."""
    here = torch.cuda.is_available()
    nccl: Any = torch.cuda.nccl
    count = torch.cuda.device_count() if here else 0
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "devices": [torch.cuda.get_device_name(number) for number in range(count)],
        "distributed": dist.is_available(),
        "nccl": dist.is_available() and dist.is_nccl_available(),
        "gloo": dist.is_available() and dist.is_gloo_available(),
        "nccl_version": ".".join(map(str, nccl.version())) if here and dist.is_nccl_available() else None,
    }


def joined(backend: str) -> float:
    """The sum that two ranks make of their numbers: 3, if they find each other."""
    number = torch.tensor([float(os.environ["RANK"]) + 1])
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        number = number.cuda()
    dist.init_process_group(backend)
    dist.all_reduce(number)
    return float(number)


if __name__ == "__main__":
    print(json.dumps(joined(sys.argv[1]) if len(sys.argv) > 1 else found()), flush=True)
    os._exit(0)  # gloo's threads need not end in order
