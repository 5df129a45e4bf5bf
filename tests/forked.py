"""Scripts in forks of a process that has imported torch, which takes seconds: they start in milliseconds.

A script finds what one finds that Python has just started for, and ends at the top of a program, so that Python does at
its end what it always does. The process takes a JSON line for each launch, and answers with one when it is over.

As users start them, in new interpreters, scripts run where tests say `launched(..., fresh=True)`: test_while_importing,
test_devices, test_without_group, test_orders_follow_seeds, test_endings; test_proof and test_evaluate run the command
as it is.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any


class Forks:
    """The process, for those who launch."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            text=True,
        )

    def run(self, folder: Path, script: str, ranks: list[dict[str, str]], seconds: float) -> tuple[list[int], str, str]:
        """Exit codes and output of a script in ``folder``, in one process for each of these environments. As by
        torchrun, all end where one of them fails; and when time is up."""
        out, errors = folder / ".stdout", folder / ".stderr"
        launch = {
            "cwd": str(folder),
            "script": script,
            "ranks": ranks,
            "seconds": seconds,
            "files": [str(out), str(errors)],
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(launch) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that scripts are forked from has ended"
        codes: list[int] = json.loads(answer)
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in (out, errors)]
        out.unlink()
        errors.unlink()
        return codes, texts[0], texts[1]


def serve() -> tuple[dict[str, Any], dict[str, str]] | None:
    """Answer until nobody asks any more. In a fork this returns at once: the launch, and its environment."""
    for line in sys.stdin:
        launch = json.loads(line)
        for path in launch["files"]:
            Path(path).write_text("", encoding="utf-8")
        pids: list[int] = []
        for environment in launch["ranks"]:
            pid = os.fork()
            if not pid:
                return launch, environment
            pids.append(pid)
        print(json.dumps(ended(pids, launch["seconds"])), flush=True)
    return None


def ended(pids: list[int], seconds: float) -> list[int]:
    """The exit codes of forks that have come to their end, or been brought to it with all that they have started."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    while len(codes) < len(pids):
        for pid in set(pids) - set(codes):
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                codes[pid] = os.waitstatus_to_exitcode(status)
        if any(codes.values()) or time.monotonic() > deadline:
            for pid in set(pids) - set(codes):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    for pid in pids:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    return [codes[pid] for pid in pids]


def become(launch: dict[str, Any], environment: dict[str, str]) -> types.CodeType:
    """Be a process that Python was started in for a script: the code of the script, whose module is the main one."""
    os.setsid()
    places = [os.open(path, os.O_WRONLY | os.O_APPEND) for path in launch["files"]]
    for descriptor, place in enumerate([os.open(os.devnull, os.O_RDONLY), *places]):
        os.dup2(place, descriptor)
        os.close(place)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    sys.__dict__.update(__stdin__=sys.stdin, __stdout__=sys.stdout, __stderr__=sys.stderr)
    os.chdir(launch["cwd"])
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    os.environ.clear()
    os.environ.update(environment)
    if "torch" in sys.modules:  # each process begins its draws elsewhere; those of `random` Python sees to
        sys.modules["torch"].default_generator.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    script = os.path.abspath(launch["script"])
    wanted = [os.path.abspath(path) for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[: 1 + len(given)] = [os.path.dirname(script), *wanted]
    sys.argv = [launch["script"]]
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=script, __builtins__=__builtins__)
    sys.modules["__main__"] = main
    return compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)


if __name__ == "__main__":
    from autodist.verify.zygote import PRELOADED, preload

    preload(PRELOADED)
    gc.collect()
    gc.freeze()
    started = serve()
    if started is not None:
        server = sys.modules["__main__"]  # it lives on while the script runs
        code = become(*started)
        exec(code, sys.modules["__main__"].__dict__)
