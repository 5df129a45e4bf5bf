"""Runs one unmodified script under the probes. This is the user's process: standard library and torch only.

The process never returns to its caller. It leaves by ``os._exit`` once the trace is complete, because the teardown of
gloo groups hangs or aborts for right scripts too.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import importlib.util
import io
import itertools
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
import types
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from autodist.verify.confinement import confine
from autodist.verify.nodes import enter
from autodist.verify.outside import Outside
from autodist.verify.plan import OUTPUT_MARK, ProcessPlan
from autodist.verify.probes import ProbeContext
from autodist.verify.probes.batchnorm import BatchNormProbe
from autodist.verify.probes.clock import ClockProbe
from autodist.verify.probes.compilers import compile_nothing, export_still
from autodist.verify.probes.data import DataProbe
from autodist.verify.probes.devices import DeviceProbe, keep_device_contexts
from autodist.verify.probes.digest import Digester
from autodist.verify.probes.draws import Draws
from autodist.verify.probes.exercise import unheard
from autodist.verify.probes.files import FilesProbe
from autodist.verify.probes.group import GroupProbe
from autodist.verify.probes.launcher import LauncherProbe
from autodist.verify.probes.logs import LogProbe
from autodist.verify.probes.measuring import MeasuringProbe
from autodist.verify.probes.moves import MoveProbe
from autodist.verify.probes.numpy_random import NumpyRandomProbe
from autodist.verify.probes.observing import Observing, ObservingProbe
from autodist.verify.probes.precision import PrecisionProbe
from autodist.verify.probes.python_random import PythonRandomProbe
from autodist.verify.probes.ran import RanProbe
from autodist.verify.probes.redirect import RedirectProbe
from autodist.verify.probes.seeding import SeedingProbe
from autodist.verify.probes.sets import hash_by_order
from autodist.verify.probes.sharded import ShardedCheckpointProbe
from autodist.verify.probes.streams import RandomStreams
from autodist.verify.probes.torch_random import TorchRandomProbe
from autodist.verify.probes.training import TrainingProbe
from autodist.verify.replay import Replay
from autodist.verify.trace import TraceWriter

PARENT_DEATH_SIGNAL = 1
ADDED_PATH = "AUTODIST_ADDED_PATH"
"""Names the folder that the launching process added to the import path, where that was necessary."""
START_FOLDER = os.getcwd()


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)


def keep_handler(ours: signal.Signals) -> None:
    """A script that listens to the signal by which the ranks are asked where they stand is not told of it."""
    listen = signal.signal

    def listened(number: int, handler: Any) -> Any:
        return signal.SIG_DFL if number == ours else listen(number, handler)

    vars(signal)["signal"] = listened


def leave_libraries_be() -> None:
    """What torch would take apart in itself at the end of the process, a fifth of a short run's time, goes with it."""
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False


class Bootstrap:
    """One script in one process."""

    def __init__(self, plan: ProcessPlan) -> None:
        self._plan = plan
        self._stacks = open(plan.record("stacks"), "w", encoding="utf-8")  # noqa: SIM115 - open until the process ends
        self._trace = TraceWriter(plan.record("trace"), plan.root, plan.outer)
        self._files: FilesProbe | None = None
        self._sharded: ShardedCheckpointProbe | None = None
        self._training: TrainingProbe | None = None
        self._ran: RanProbe | ObservingProbe = RanProbe(plan)
        self._outside = outside_of(plan)
        self._stopped = False
        self._leaving = False

    def run(self) -> None:
        """Install the probes, run the script, leave."""
        plan = self._plan
        faulthandler.enable(self._stacks)
        faulthandler.register(signal.SIGUSR1, file=self._stacks, all_threads=True)
        keep_handler(signal.SIGUSR1)
        os.environ.update(plan.env)
        if plan.node:
            enter(*plan.node)
        os.chdir(plan.cwd)
        self._open_output()
        self._install()
        leave_libraries_be()
        code = 0
        error: BaseException | None = None
        try:
            self._execute()
        except SystemExit as ending:
            code = self._exit_code(ending)
            error = ending if code else None
        except BaseException as failure:
            traceback.print_exc()
            code, error = 1, failure
        self._leave(code, error)

    def _open_output(self) -> None:
        mark_output()
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
        sys.stdout = open(1, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        errors = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        sys.stderr = errors
        sys.__dict__.update(__stdout__=sys.stdout, __stderr__=sys.stderr)

    def _install(self) -> None:
        import torch

        plan = self._plan
        torch.set_num_threads(1)
        if plan.bare:
            self._trace.emit("start", role=plan.role, rank=plan.rank, world=plan.world, torch=torch.__version__)
            self._lead_elsewhere(ProbeContext(plan, self._trace, RandomStreams(plan.seed), None))
            if plan.divided:
                MeasuringProbe(plan.record("measured"), plan.divided, self._stop_after_steps).install()
            return
        compile_nothing()
        export_still()
        streams = RandomStreams(plan.seed)
        replay = Replay.read(Path(plan.replay)) if plan.replay else None
        context = ProbeContext(plan, self._trace, streams, replay)
        digester = Digester()
        self._trace.emit("start", role=plan.role, rank=plan.rank, world=plan.world, torch=torch.__version__)
        # an unseeded script starts differently on every rank, as in real life; the original starts as rank 0 does
        streams.reseed("start", plan.rank)
        seeds = replay.seeds.items() if replay is not None else ()
        streams.start_from({library: by_draws[0][-1][2] for library, by_draws in seeds if 0 in by_draws})
        keep_device_contexts()
        if plan.device == "cpu":
            DeviceProbe(context).install()
        draws = Draws(context)
        TorchRandomProbe(context, draws).install()
        SeedingProbe(context, draws).install()
        NumpyRandomProbe(context, draws).install()
        PythonRandomProbe(context, draws).install()
        PrecisionProbe(context).install()
        hash_by_order()
        DataProbe(context).install()
        self._training = TrainingProbe(context, digester, self._stop_after_steps)
        self._training.install()
        if plan.observing is not None:
            self._ran = ObservingProbe(context, Observing(*plan.observing), str(plan.record("seen")))
        self._ran.install()
        BatchNormProbe(context).install()
        MoveProbe(context).install()
        GroupProbe(context).install()
        LauncherProbe(context).install()
        self._files = FilesProbe(context, digester, self._outside)
        self._lead_elsewhere(context)
        self._files.install()
        self._sharded = ShardedCheckpointProbe(context, self._files)
        self._sharded.install()
        ClockProbe(context).install()
        LogProbe(context).install()

    def _lead_elsewhere(self, context: ProbeContext) -> None:
        """The user's files stay as they are."""
        plan = self._plan
        if self._outside is None:
            return
        tempfile.tempdir = None
        tempfile.__dict__["_name_sequence"] = temporary_names(plan.rank)
        os.environ["TMPDIR"] = plan.temporary
        RedirectProbe(context, self._outside).install()
        if plan.device == "cpu":
            confine([*self._outside.kept, self._outside.store, "/dev", "/proc"])

    def _execute(self) -> None:
        """As ``python script.py args`` or ``python -m`` does: the script is the real ``__main__``."""
        plan = self._plan
        sys.argv = [plan.script, *plan.args]
        forget_import_path()
        wanted = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        script = Path(plan.script)
        levels = plan.module.count(".") + (script.stem == "__main__") if plan.module else 0
        sys.path[0:0] = [str(script.parents[levels]), *(os.path.abspath(path) for path in wanted if path)]
        main = types.ModuleType("__main__")
        main.__dict__.update(__file__=plan.script, __builtins__=__builtins__)
        sys.modules["__main__"] = main
        if plan.module:
            spec = importlib.util.find_spec(plan.module + ".__main__" * (script.stem == "__main__"))
            main.__dict__.update(__spec__=spec, __package__=spec.parent if spec else None)
        exec(self._ran.compiled(Path(plan.script).read_bytes(), plan.script), main.__dict__)

    @staticmethod
    def _exit_code(ending: SystemExit) -> int:
        if ending.code is None:
            return 0
        if isinstance(ending.code, int):
            return ending.code
        print(ending.code, file=sys.stderr)
        return 1

    def _stop_after_steps(self) -> None:
        self._stopped = True
        self._leave(0, None)

    def _leave(self, code: int, error: BaseException | None) -> None:
        if self._leaving:  # the exercise takes an optimizer step as well
            return
        self._leaving = True
        if not self._stopped and error is None:
            atexit._run_exitfuncs()
        logging.shutdown()
        flush_open_files()
        mark_output()
        if isinstance(self._ran, ObservingProbe):
            self._ran.end()
        if code == 0 and self._training is not None:
            self._training.end()
            self._trace.emit("exercise", unheard=unheard(self._trace, Path(self._plan.root)))
        if self._sharded is not None:
            self._sharded.settle()
        if self._files is not None:
            self._files.stop()
        self._trace.emit(
            "end",
            code=code,
            error=type(error).__name__ if error is not None else None,
            message=str(error)[:2000] if error is not None else "",
            site=self._site_of(error),
            traceback="".join(traceback.format_exception(error))[-6000:] if error is not None else "",
            stopped=self._stopped,
            time=time.monotonic(),
        )
        self._trace.flush()
        self._plan.record("ended").touch()
        if code == 0:
            self._wait_for_others()
        os._exit(code)

    def _site_of(self, error: BaseException | None) -> str:
        if error is None:
            return ""
        lines = [
            frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(self._plan.root)
        ]
        if not lines:
            return "?"
        return f"{os.path.relpath(lines[-1].filename, self._plan.root)}:{lines[-1].lineno}"

    def _wait_for_others(self) -> None:
        """A rank that left would break the connections of those that still need it, and hide who waits for whom."""
        if self._plan.role == "original":
            return
        others = [replace(self._plan, rank=rank).record("ended") for rank in range(self._plan.world)]
        while not all(path.exists() for path in others):
            time.sleep(0.01)


def forget_import_path() -> None:
    """The script finds what it would find without us: neither the folder we were started in nor our own."""
    if sys.path and sys.path[0] in ("", START_FOLDER):
        del sys.path[0]
    added = os.environ.pop(ADDED_PATH, "")
    if added in sys.path:
        sys.path.remove(added)
    rest = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != added]
    os.environ["PYTHONPATH"] = os.pathsep.join(rest)
    if not rest:
        del os.environ["PYTHONPATH"]


def outside_of(plan: ProcessPlan) -> Outside | None:
    """Where absolute paths lead in this process, None where they are left alone."""
    if not plan.outside:
        return None
    kept = (plan.outer, plan.records, plan.temporary)
    return Outside(plan.outside, plan.home, plan.root, kept, plan.private)


def temporary_names(rank: int) -> Iterator[str]:
    """The parts of temporary names that would be random: they are known as such, and as short."""
    return map("_ad{:05d}".format, itertools.count(rank * 1000))


def mark_output() -> None:
    """Show, before the script and after it, that what it prints is kept."""
    os.write(1, OUTPUT_MARK)


def flush_open_files() -> None:
    """Write out what the script left in the buffers of files it never closed."""
    for each in gc.get_objects():
        if issubclass(type(each), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            try:
                if not each.closed:
                    each.flush()
            except (OSError, ValueError):
                continue


def main() -> None:
    """``python -m autodist.verify.bootstrap PLAN``: one process that was not forked."""
    die_with_parent()
    Bootstrap(ProcessPlan.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))).run()


if __name__ == "__main__":
    main()
