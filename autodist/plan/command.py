"""``autodist plan``: the command line around a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from autodist.config import load
from autodist.errors import AutodistError
from autodist.plan import measured, report
from autodist.plan.devices import device
from autodist.plan.measured import Measured, Size
from autodist.plan.page import write_page
from autodist.plan.planning import plan
from autodist.project import Project
from autodist.source import Source
from autodist.terminal import Terminal
from autodist.verify.command import INTERRUPTED, check_report
from autodist.verify.progress import progress_for_terminal

DONE, BAD_INPUT = 0, 2


def plan_command(
    script: Path,
    args: Sequence[str],
    *,
    gpus: Sequence[int],
    device_name: str,
    measure: bool,
    measurements: Path | None = None,
    save: Path | None = None,
    step_seconds: Sequence[float] = (),
    batch: int | None = None,
    per_rank: bool = False,
    workdir: Path | None = None,
    timeout: float = 600.0,
    output_format: str = "text",
    report_path: Path | None = None,
) -> int:
    """Plan, say it, and return the exit code: 0 done, 2 bad input."""
    terminal = Terminal()
    try:
        target = device(device_name)
        if report_path is not None:
            check_report(report_path)
        known = _known(script, args, measure, measurements, workdir, timeout, terminal)
        if save is not None:
            measured.save(known, save)
        if batch is not None:
            known = _with_batch(known, batch)
        if step_seconds:
            known = known.timed(step_seconds)
        timed = bool(step_seconds) or known.compute is not None and target.is_reported_as(known.device)
        outcome = plan(known, target, sorted(gpus), per_rank=per_rank, timed=timed)
        if report_path is not None:
            write_page(outcome, script.name, report_path)
    except AutodistError as error:
        terminal.error(error)
        return BAD_INPUT
    except OSError as error:
        terminal.error(AutodistError(f"the report cannot be written: {error.strerror}", report_path))
        return BAD_INPUT
    except KeyboardInterrupt:
        terminal.say("interrupted, all processes of the measurement are gone")
        return INTERRUPTED
    terminal.show(report.as_json(outcome) if output_format == "json" else report.as_text(outcome, script.name))
    return DONE


def _known(
    script: Path,
    args: Sequence[str],
    measure: bool,
    measurements: Path | None,
    workdir: Path | None,
    timeout: float,
    terminal: Terminal,
) -> Measured:
    """What is known of the training."""
    if measurements is not None:
        return measured.read(measurements)
    if not measure:
        from autodist.plan import reading

        with terminal.progress():
            return reading.read(Project.load(script), load(script.parent, {}))
    Source.read(script)  # so that bad input is said before anything is started
    if find_spec("torch") is None:
        raise AutodistError("--measure runs the script and needs torch: pip install 'torch-autodist[verify]'")
    from autodist.plan.measure import measure as run

    progress = progress_for_terminal()
    try:
        runs, gaps = run(script, args, progress, workdir=workdir, timeout=timeout)
    finally:
        progress.close()
    for gap in gaps:
        terminal.say(f"{script.name}: {gap}")
    return measured.joined(runs)


def _with_batch(known: Measured, batch: int) -> Measured:
    """With the samples of a step, where no run has told them."""
    if known.batch and known.batch != batch:
        raise AutodistError(f"--batch {batch}: the script was measured with {known.batch} samples in each step")
    sizes = known.sizes or (Size(batch, 0.0),)
    return replace(known, sizes=(*sizes[:-1], replace(sizes[-1], samples=batch)))
