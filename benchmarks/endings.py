"""Do converted scripts end well? Runs one on 2 CPU ranks again and again, and counts exit codes.

    python -m benchmarks.endings [--runs 1000] [--jobs 4] [--forked] [--without-wait]

A thread of gloo says that an all-reduce is done and only then lets go of it, and with it of the Python context in which
`backward()` started it (torch.autograd.graph, "context"). Python objects need the GIL; where Python already ends, the
thread that asks for it is ended in the middle of a destructor, and C++ aborts (pytorch/pytorch#190489).
`destroy_process_group` does not wait for these threads: both still run after it, also where DDP is freed and collected
first. So what helps is time in which the main thread has let go of the GIL.

The script ends right after a collective, the worst case; more jobs than cores make the
machine as busy as it has to be for threads to come late. --forked forks ranks from a process that has imported torch: a
twentieth of the time, but the fault was never seen there. --without-wait takes out the line under test, to see what
happens without it. Exit code 1 where a run did not end with 0.
"""

from __future__ import annotations

import argparse
import collections
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project
from autodist.verify.launch import free_port, rank_environment

RANKS = 2
SECONDS = 120.0
SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    data = TensorDataset(torch.randn(64, 16), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), "model.pt")
    print(loss.item())


if __name__ == "__main__":
    main()
"""
WAIT = "atexit.register(time.sleep"


def conversion(folder: Path, wait: bool) -> Path:
    """The converted script, with or without the line that waits for gloo's threads."""
    path = folder / "train.py"
    path.write_text(SCRIPT, encoding="utf-8")
    text = convert(Project.load(path), Config()).entry.after
    assert WAIT in text
    lines = text.splitlines(keepends=True)
    path.write_text("".join(line for line in lines if wait or WAIT not in line), encoding="utf-8")
    return path


def forked(script: Path, env: dict[str, str], log: Path) -> int:
    """Run a rank in a fork of this process: the process id."""
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    os.environ.update(env)
    os.chdir(log.parent)
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    sys.argv = [str(script)]
    raise Ended(script)


class Ended(Exception):
    """Unwinds a forked rank to the top of the program, where it runs the script and ends as a program ends."""


def fresh(script: Path, env: dict[str, str], log: Path) -> int:
    """Run a rank in an interpreter of its own: the process id."""
    with open(log, "wb") as out:
        command = [sys.executable, str(script)]
        process = subprocess.Popen(
            command, cwd=log.parent, env={**os.environ, **env}, stdout=out, stderr=out, start_new_session=True
        )
    process.returncode = 0  # or the next Popen would take the exit code that count() waits for
    return process.pid


def count(script: Path, runs: int, jobs: int, start: Callable[[Path, dict[str, str], Path], int]) -> dict[str, int]:
    """Exit codes of all ranks, by how many ranks had them; a hang is called that."""
    codes: collections.Counter[str] = collections.Counter()
    live: dict[int, tuple[float, Path]] = {}
    begun = 0
    while begun < runs or live:
        while begun < runs and len(live) <= RANKS * (jobs - 1):
            folder = script.parent / str(begun)
            folder.mkdir()
            port = free_port()
            for rank in range(RANKS):
                log = folder / f"{rank}.log"
                env = {**rank_environment(rank, RANKS, port), "OMP_NUM_THREADS": "1"}
                live[start(script, env, log)] = (time.monotonic(), log)
            begun += 1
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            codes[str(os.waitstatus_to_exitcode(status))] += 1
            del live[pid]
            if sum(codes.values()) % (RANKS * 50) == 0:
                print(f"{sum(codes.values()) // RANKS} runs: {dict(codes)}", flush=True)
            continue
        for pid, (since, _) in list(live.items()):
            if time.monotonic() - since > SECONDS:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                codes["hang"] += 1
                del live[pid]
        time.sleep(0.01)
    return dict(codes)


def main() -> int:
    """Count, and say whether all ended with 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--forked", action="store_true", help="fork ranks from a process that has imported torch")
    parser.add_argument("--without-wait", action="store_true", help="without the line that waits for gloo's threads")
    args = parser.parse_args()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    folder = Path(tempfile.mkdtemp(prefix="endings-"))  # a forked rank that leaves this function must not delete it
    script = conversion(folder, not args.without_wait)
    if args.forked:
        import torch.distributed
        import torch.nn.parallel

        torch.optim.SGD([torch.zeros(1, requires_grad=True)])  # what ranks import is imported once
        torch.set_num_threads(1)
    codes = count(script, args.runs, args.jobs, forked if args.forked else fresh)
    shutil.rmtree(folder)
    print(f"exit codes of {args.runs} runs on {RANKS} ranks: {codes}")
    return int(codes != {"0": RANKS * args.runs})


if __name__ == "__main__":
    try:
        ended = main()
    except Ended as rank:
        runpy.run_path(str(rank.args[0]), run_name="__main__")
    else:
        sys.exit(ended)
