"""What the probes cost: CPU time of an optimizer step under them, in units of the same step of the plain program.

    python -m benchmarks.verify_overhead [--rounds 3]

Each process measures its own CPU time, threads included, of its fastest epoch after the first: other work on the
machine evicts caches and only ever adds. Plain and probed runs alternate, and the median of the rounds' ratios counts.
Then the whole verification of the README's example is measured in CPU seconds.
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

from autodist.verify.launch import environment, free_port, rank_environment, start_process
from autodist.verify.marks import lines_of, marked
from autodist.verify.plan import ProcessPlan, Role

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 2.0
BUDGET_SECONDS = 30.0
SCRIPT = """
import os
import resource
import sys
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

{setup}
torch.manual_seed(0)
data = TensorDataset(torch.randn({samples}, 1, 28, 28), torch.randint(0, 10, ({samples},)))
loader = DataLoader(data, batch_size={batch}, {sampling})
model = {wrap}(nn.Sequential({layers}))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
epochs = []
for epoch in range(1 + int(sys.argv[1])):
    begun = resource.getrusage(resource.RUSAGE_SELF)
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    print("epoch", epoch)
    ended = resource.getrusage(resource.RUSAGE_SELF)
    epochs.append(ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime)
with open(sys.argv[2] + os.environ.get("RANK", "0"), "w") as file:
    file.write(str(min(epochs[1:])))
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
EPOCHS = {"perceptron": 16, "convolutional": 2}
SAMPLES, BATCH = 1024, 64


def script(folder: Path, name: str, distributed: bool) -> Path:
    """One of the programs, in one process or on ranks."""
    text = SCRIPT.format(
        setup=SETUP if distributed else "",
        samples=SAMPLES,
        batch=f"{BATCH} // dist.get_world_size()" if distributed else BATCH,
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
    """CPU milliseconds of one optimizer step, over all ranks; ``world`` is 0 for one process without a group. On ranks
    every line of the script has a mark, as if all of it had changed."""
    port, home = free_port(), str(path.parent)
    records = Path(tempfile.mkdtemp(dir=path.parent))
    args = (str(epochs), str(records / "used"))
    processes = []
    text = path.read_text(encoding="utf-8")
    lines = range(1, len(lines_of(text)) + 1) if world else ()
    (records / "ran").write_bytes(bytes(len(marked(text, lines)[1])))
    for rank in range(max(1, world)):
        env = rank_environment(rank, world, port) if world else {}
        if probed:
            role: Role = "conversion" if world else "original"
            plan = ProcessPlan(
                role=role,
                rank=rank,
                world=max(1, world),
                script=str(path),
                args=args,
                root=home,
                outer=home,
                cwd=home,
                records=str(records),
                dtype="float32",
                env=env,
                changed={str(path): [0, *lines]} if lines else {},
                map=str(records / "ran"),
            )
            processes.append(start_process(plan, env))
        else:
            command = [sys.executable, str(path), *args]
            processes.append(subprocess.Popen(command, env=environment(env), stdout=subprocess.DEVNULL))
    codes = [process.wait() for process in processes]
    if any(codes):
        raise RuntimeError(f"{path.name} ended with {codes}")
    used = sum(float((records / f"used{rank}").read_text()) for rank in range(max(1, world)))
    return used / (SAMPLES / BATCH) * 1e3


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
                    plain.append(run(path, EPOCHS[program], False, world))
                    probed.append(run(path, EPOCHS[program], True, world))
                ratio = statistics.median(b / a for a, b in zip(plain, probed, strict=True))
                worst = max(worst, ratio)
                where = f"{world} ranks" if world else "one process"
                print(
                    f"{program:14} {where:12} plain {statistics.median(plain):6.2f} ms of CPU time a step, "
                    f"probed {statistics.median(probed):6.2f} ms, ratio {ratio:.2f}",
                    flush=True,
                )
    before, started = cpu_seconds(), time.monotonic()
    command = [sys.executable, "-m", "autodist", "verify", "train.py", "--strategy", "ddp", "--nproc", "2"]
    example = ROOT / "examples"
    done = subprocess.run(command, cwd=example, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    used, took = cpu_seconds() - before, time.monotonic() - started
    print(f"the README's example: exit code {done.returncode}, {used:.1f} s of CPU time, {took:.1f} s by the clock")
    return 0 if worst <= LIMIT and used <= BUDGET_SECONDS and done.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
