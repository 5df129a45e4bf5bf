"""``python -m autodist.verify BEFORE AFTER --nproc 2 -- ARGS``."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from autodist.verify.command import verify_command


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    result = argparse.ArgumentParser(prog="python -m autodist.verify", description=__doc__)
    result.add_argument("before", type=Path, help="the original script")
    result.add_argument("after", type=Path, help="the converted script")
    result.add_argument("--nproc", default="2", help="numbers of ranks, such as 2,4")
    result.add_argument("--nnodes", type=int, default=1, help="nodes that the ranks simulate")
    result.add_argument("--steps", type=int, help="end both programs after so many optimizer steps")
    result.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    result.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    result.add_argument("--timeout", type=float, default=600.0, help="seconds for each run")
    result.add_argument("--workdir", type=Path, help="the folder that is copied and in which the scripts start")
    result.add_argument("--keep", type=Path, help="keep traces, output and scratch copies in this folder")
    result.add_argument("--output-format", choices=("text", "json"), default="text")
    result.add_argument("--report", type=Path, help="write an HTML report")
    result.add_argument("--require-coverage", action="store_true", help="exit with 1 if something changed never ran")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and run; what follows ``--`` goes to the scripts."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    at = given.index("--") if "--" in given else len(given)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = parser().parse_args(given[:at])
    return verify_command(
        options.before,
        options.after,
        given[at + 1 :],
        nproc=[int(count) for count in options.nproc.split(",")],
        nnodes=options.nnodes,
        steps=options.steps,
        dtype=options.dtype,
        device=options.device,
        timeout=options.timeout,
        workdir=options.workdir,
        keep=options.keep,
        output_format=options.output_format,
        report=options.report,
        require_coverage=options.require_coverage,
    )


if __name__ == "__main__":
    sys.exit(main())
