"""The memory of a plan beside what torch gives out: ``python -m benchmarks.plan_memory`` (make plan-validation).

Small models are measured as `autodist plan --measure` does, in one process. Then they run for real on the CPU, in one
process and converted on two ranks, with the profiler of torch counting all memory that its allocator gives out.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autodist.plan.measure import measure
from autodist.plan.measured import joined
from autodist.plan.memory import need
from autodist.verify.launch import free_port, rank_environment
from autodist.verify.progress import NoProgress

SCRIPTS = Path(__file__).parent / "scaling" / "scripts"
BATCHES = {"convolutions": 32, "transformer": 16, "perceptron": 16}
RANKS = 2
RUNS = 3
"""The threads of gloo hold copies for longer or shorter, by chance: the least of so many runs counts. NCCL has none."""
STEPS = 4
SECONDS = 120
CASES = (
    ("one process", 1, "ddp", False),
    ("ddp", RANKS, "ddp", False),
    ("zero", RANKS, "zero", False),
    ("fsdp", RANKS, "fsdp", False),
    ("fsdp, checkpointing", RANKS, "fsdp", True),
)
PROFILED = """
import json, os, runpy, sys
from torch.profiler import profile, ProfilerActivity
sys.argv = sys.argv[1:]
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
    runpy.run_path(sys.argv[0], run_name="__main__")
name = "trace%s.json" % os.environ.get("RANK", "0")
prof.export_chrome_trace(name)
events = json.load(open(name))["traceEvents"]
print(max(each["args"]["Total Allocated"] for each in events if each.get("name") == "[memory]"), file=sys.stderr)
"""


def given_out(script: Path, ranks: int, batch: int) -> int:
    """The most that the allocator has given out at a time to one of the ranks, whichever has less."""
    arguments = [script.name, "--batch-size", str(batch), "--steps", str(STEPS)]
    port, processes = free_port(), []
    for rank in range(ranks):
        env = {**os.environ, "OMP_NUM_THREADS": "1", **(rank_environment(rank, ranks, port) if ranks > 1 else {})}
        command = [sys.executable, "-c", PROFILED, *arguments]
        processes.append(subprocess.Popen(command, cwd=script.parent, env=env, stderr=subprocess.PIPE, text=True))
    try:
        said = [process.communicate(timeout=SECONDS)[1].strip().splitlines() for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise SystemExit(f"{script}: {said}")
    return min(int(lines[-1]) for lines in said)


def converted(folder: Path, script: Path, strategy: str, checkpointing: bool) -> Path:
    """The script as autodist converts it."""
    target = folder / f"{script.stem}_{strategy}{'_checkpointing' if checkpointing else ''}.py"
    options = ["--activation-checkpointing"] if checkpointing else []
    command = [sys.executable, "-m", "autodist", "convert", str(script), "--strategy", strategy, "-o", str(target)]
    subprocess.run([*command, *options, "--quiet"], check=True)
    return target


def report() -> Iterator[str]:
    """Every case, and the errors."""
    errors = []
    with tempfile.TemporaryDirectory() as name:
        for model, batch in BATCHES.items():
            script = Path(shutil.copy(SCRIPTS / f"{model}.py", name))
            runs, _ = measure(script, ["--batch-size", str(batch)], NoProgress(), device="cpu")
            known = joined(runs)
            for case, ranks, strategy, checkpointing in CASES:
                planned = need(known, strategy, ranks, ranks, batch / ranks, checkpointing).total
                runs_as = script if ranks == 1 else converted(Path(name), script, strategy, checkpointing)
                real = min(given_out(runs_as, ranks, batch) for _ in range(RUNS if ranks > 1 else 1))
                errors.append(abs(planned - real) / real)
                figures = f"planned {planned / 2**20:7.1f} MiB, given out {real / 2**20:7.1f} MiB"
                yield f"{model:14} {case:22} {figures}  ({planned / real - 1:+.1%})"
    yield f"error of memory: median {statistics.median(errors):.1%}, worst {max(errors):.1%}"


def main() -> None:
    """Print it."""
    for line in report():
        print(line, flush=True)


if __name__ == "__main__":
    main()
