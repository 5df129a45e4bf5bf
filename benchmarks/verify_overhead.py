"""What the probes cost: CPU time of an optimizer step under them, in units of the same step of the plain program.

    python -m benchmarks.verify_overhead [--rounds 3]

Each program runs for few and for many epochs; the difference leaves out start-up. Plain and probed runs alternate, and
the ratio of the medians is printed, since on a busy machine only ratios mean anything.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from autodist.verify import verify
from autodist.verify.launch import environment, free_port, rank_environment, start_process
from autodist.verify.plan import ProcessPlan, Role

LIMIT = 2.0
BUDGET_SECONDS = 30.0
SCRIPT = """
import sys
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

{setup}
torch.manual_seed(0)
data = TensorDataset(torch.randn(2048, 1, 28, 28), torch.randint(0, 10, (2048,)))
loader = DataLoader(data, batch_size={batch}, {sampling})
model = {wrap}(nn.Sequential({layers}))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(int(sys.argv[1])):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    print("epoch", epoch)
"""
SETUP = """
import torch.distributed as dist
from torch.utils.data import DistributedSampler
dist.init_process_group("gloo")
if dist.get_rank():
    sys.stdout = open("/dev/null", "w")
"""
LAYERS = {
    "perceptron": "nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10)",
    "convolutional": (
        "nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), "
        "nn.Flatten(), nn.Linear(4608, 64), nn.ReLU(), nn.Linear(64, 10)"
    ),
}
FEW, MANY = 1, 3


def script(folder: Path, name: str, distributed: bool) -> Path:
    """One of the programs, in one process or on ranks."""
    text = SCRIPT.format(
        setup=SETUP if distributed else "",
        batch="64 // dist.get_world_size()" if distributed else 64,
        sampling="sampler=DistributedSampler(data)" if distributed else "shuffle=True",
        wrap="nn.parallel.DistributedDataParallel" if distributed else "",
        layers=LAYERS[name],
    )
    path = folder / f"{name}_{'ranks' if distributed else 'one'}.py"
    path.write_text(text, encoding="utf-8")
    return path


def cpu_seconds() -> float:
    """CPU time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(path: Path, epochs: int, probed: bool, world: int) -> float:
    """CPU seconds of one run on ``world`` ranks, 0 for one process without a group."""
    before = cpu_seconds()
    port = free_port()
    processes = []
    records = Path(tempfile.mkdtemp(dir=path.parent))
    for rank in range(max(1, world)):
        env = {"AUTODIST_BENCHMARK": "1", **(rank_environment(rank, world, port) if world else {})}
        if probed:
            role: Role = "conversion" if world else "original"
            home = str(path.parent)
            plan = ProcessPlan(
                role=role,
                rank=rank,
                world=max(1, world),
                script=str(path),
                args=(str(epochs),),
                root=home,
                outer=home,
                cwd=home,
                records=str(records),
                dtype="float32",
                env=env,
            )
            processes.append(start_process(plan, env))
        else:
            processes.append(
                subprocess.Popen([sys.executable, path, str(epochs)], env=environment(env), stdout=subprocess.DEVNULL)
            )
    codes = [process.wait() for process in processes]
    if any(codes):
        raise RuntimeError(f"{path.name} ended with {codes}")
    return cpu_seconds() - before


def per_epoch(path: Path, probed: bool, world: int) -> float:
    """CPU seconds of an epoch, without start-up."""
    few = run(path, FEW, probed, world)
    return (run(path, MANY, probed, world) - few) / (MANY - FEW)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all programs and a whole verification."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="autodist-overhead-") as name:
        folder = Path(name)
        for program in LAYERS:
            for world in (0, 2):
                path = script(folder, program, world > 0)
                plain, probed = [], []
                for _ in range(options.rounds):
                    plain.append(per_epoch(path, False, world))
                    probed.append(per_epoch(path, True, world))
                ratio = statistics.median(probed) / statistics.median(plain)
                worst = max(worst, ratio)
                where = f"{world} ranks" if world else "one process"
                steps = 2048 / 64
                print(
                    f"{program:14} {where:12} plain {statistics.median(plain) / steps * 1e3:6.2f} ms a step, "
                    f"probed {statistics.median(probed) / steps * 1e3:6.2f} ms, ratio {ratio:.2f}",
                    flush=True,
                )
        before, started = cpu_seconds(), time.monotonic()
        one, ranks = script(folder, "convolutional", False), script(folder, "convolutional", True)
        os.environ.pop("AUTODIST_BENCHMARK", None)
        verdict = verify(one, ranks, [2], ["2"], workdir=folder)
        used, took = cpu_seconds() - before, time.monotonic() - started
    print(f"whole verification on 2 ranks: {verdict.outcome.value}, {used:.1f} s of CPU time, {took:.1f} s")
    return 0 if worst <= LIMIT and used <= BUDGET_SECONDS and verdict.equal else 1


if __name__ == "__main__":
    sys.exit(main())
