"""A process that has imported torch once and forks the ranks, so that each starts in milliseconds.

Importing torch and building an optimizer, which imports its compiler, costs seconds of CPU time in every process. It
talks JSON lines: requests on standard input, answers on standard output. When its input ends it dies, and all its
children with it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
from typing import Any, NoReturn

from autodist.verify.plan import ProcessPlan

PRELOADED = (
    "numpy",
    "torch",
    "torch._dynamo",
    "torch.distributed",
    "torch.nn.parallel",
    "torch.optim.lr_scheduler",
    "torch.utils.data.distributed",
)
POLL_SECONDS = 0.02
ANSWERS = 200
"""The descriptor for answers: what libraries print while they are imported is none."""


def answer(**fields: Any) -> None:
    """One line to the launching process."""
    os.write(ANSWERS, (json.dumps(fields) + "\n").encode())


def preload(names: tuple[str, ...]) -> None:
    """Import what the scripts will need; a module that is missing or broken is the script's own business."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            continue


def start(request: dict[str, Any]) -> int:
    """Fork one process of a run; in the child this does not return."""
    pid = os.fork()
    if pid:
        return pid
    become_child(request)


def become_child(request: dict[str, Any]) -> NoReturn:
    """Detach from the zygote and run the script."""
    try:
        from autodist.verify.bootstrap import Bootstrap, die_with_parent

        die_with_parent()
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for descriptor, path in ((1, request["stdout"]), (2, request["stderr"])):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(file, descriptor)
            os.close(file)
        os.close(ANSWERS)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.environ.clear()
        os.environ.update(request["env"])
        Bootstrap(ProcessPlan.from_json(request["plan"])).run()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(70)


def serve() -> None:
    """Answer requests until the launching process goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer(ready=True)
    waiting = b""
    children: set[int] = set()
    while True:
        readable, _, _ = select.select([0], [], [], POLL_SECONDS if children else None)
        if readable:
            block = os.read(0, 1 << 16)
            if not block:
                break
            waiting += block
            *lines, waiting = waiting.split(b"\n")
            for line in lines:
                pid = start(json.loads(line))
                children.add(pid)
                answer(started=pid)
        for pid in list(children):
            gone, status = os.waitpid(pid, os.WNOHANG)
            if gone:
                children.discard(pid)
                answer(ended=pid, code=os.waitstatus_to_exitcode(status))
    for pid in children:
        os.killpg(pid, signal.SIGKILL)


def main() -> None:
    """``python -m autodist.verify.zygote [MODULE...]``."""
    from autodist.verify.bootstrap import die_with_parent

    die_with_parent()
    os.dup2(1, ANSWERS)
    os.dup2(2, 1)
    preload(PRELOADED)
    from autodist.verify.probes.compilers import compile_nothing
    from autodist.verify.probes.redirect import kept_elsewhere

    compile_nothing()
    preload(tuple(sys.argv[1:]))
    kept_elsewhere()
    gc.collect()
    gc.freeze()  # the forked processes neither look through these objects nor copy their pages
    serve()


if __name__ == "__main__":
    main()
