"""Converted scripts beside an expert's: ``python -m benchmarks.expert`` (``make expert``).

Each script in ``scripts/`` has a version distributed by hand beside it, ``*_expert.py``. Both run on CPU ranks over
gloo; counted are the collectives of rank 0 and their bytes, and the samples that it reads, for each optimizer step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
COUNTS = ("collectives", "bytes", "samples")


def counts(script: Path, ranks: int, folder: Path) -> dict[str, float]:
    """What a script does in each step, and how many steps it takes."""
    result = folder / f"{script.stem}.json"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    command += [str(HERE / "counting.py"), str(result), str(script)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found: dict[str, float] = json.loads(result.read_text())
    return {"steps": found["steps"]} | {each: found.get(each, 0) / found["steps"] for each in COUNTS}


def main() -> int:
    """Convert, run and print all; 1 if a conversion does more of anything than the expert's script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="scripts, all if none is named")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    print(
        f"{'script':22} {'steps':>11} {'collectives':>15} {'bytes':>19} {'samples':>13}   a step: converted, expert's"
    )
    worse = False
    for expert in sorted((HERE / "scripts").glob("*_expert.py")):
        name = expert.stem.removesuffix("_expert")
        if options.names and name not in options.names:
            continue
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            after = folder / f"{name}.py"
            command = [sys.executable, "-m", "autodist", "convert", str(HERE / "scripts" / f"{name}.py")]
            subprocess.run([*command, "-o", str(after)], capture_output=True)  # 1 where it warns
            ours, theirs = counts(after, options.ranks, folder), counts(expert, options.ranks, folder)
        more = [each for each in COUNTS if ours[each] > theirs[each]]
        worse = worse or bool(more)
        pairs = [f"{ours[each]:.0f}, {theirs[each]:.0f}" for each in ("steps", "bytes")]
        pairs[1:1] = [f"{ours['collectives']:.2f}, {theirs['collectives']:.2f}"]
        pairs += [f"{ours['samples']:.1f}, {theirs['samples']:.1f}"]
        told = f"more {' and '.join(more)} than the expert's" if more else ""
        print(f"{name:22} {pairs[0]:>11} {pairs[1]:>15} {pairs[2]:>19} {pairs[3]:>13}   {told}", flush=True)
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
