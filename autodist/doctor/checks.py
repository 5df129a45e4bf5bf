"""The checks: each a function of what was found to what is wrong, why it matters and what to do."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from click import style

PROBE = Path(__file__).with_name("probe.py")
SECONDS = 60.0
PORT = 29500
"""Where torchrun meets unless it is told otherwise."""
GIB = 1 << 30
TOLD_BY_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


class State(str, Enum):
    """Whether something works, may fail, or fails."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. ``advice`` says what fails without it, and what to do."""

    name: str
    state: State
    found: str
    advice: str = ""


def examine() -> Iterator[Check]:
    """Look at everything, the cheap things first."""
    yield _python()
    probed = _probed()
    yield _torch(probed)
    if probed:
        yield from _devices(probed)
        yield _backends(probed)
        yield _meeting(probed)
    for look in (_port, _host, _launcher, _leftovers, _shared_memory, _open_files, _locked_memory, _threads):
        if (check := look()) is not None:
            yield check


def report(checks: list[Check], output_format: str) -> str:
    """All checks, as lines or as JSON."""
    if output_format == "json":
        return json.dumps([asdict(check) | {"state": check.state.value} for check in checks], indent=2) + "\n"
    colours = {State.OK: "green", State.WARN: "yellow", State.FAIL: "red"}
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        state = style(f"{check.state.value:4}", fg=colours[check.state], bold=check.state is not State.OK)
        lines.append(f"{state}  {check.name:{width}}  {check.found}")
        if check.advice:
            lines.append(f"{'':{width + 8}}{check.advice}")
    return "\n".join(lines) + "\n"


def _python() -> Check:
    return Check("python", State.OK, f"{sys.version.split()[0]} in {sys.executable}")


def _run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROBE), *arguments]
    env = {key: value for key, value in os.environ.items() if key not in TOLD_BY_LAUNCHERS} | environment
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def _probed() -> dict[str, Any]:
    """What torch says of itself; nothing where it is not installed, the error where it cannot be imported."""
    if find_spec("torch") is None:
        return {}
    with _run() as process:
        try:
            out, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return {"error": f"takes more than {SECONDS:.0f} s to import"}
    try:
        return dict(json.loads(out.splitlines()[-1]))
    except (ValueError, IndexError):
        return {"error": (errors.strip().splitlines() or ["ends without a word"])[-1]}


def _torch(probed: dict[str, Any]) -> Check:
    if not probed:
        advice = "Scripts are converted without it, and neither run nor verified: pip install 'torch-autodist[verify]'."
        return Check("torch", State.FAIL, "not installed", advice)
    if "error" in probed:
        return Check("torch", State.FAIL, str(probed["error"]), "It cannot be imported here: install it again.")
    version = tuple(map(int, re.findall(r"\d+", probed["torch"])[:2]))
    if version < (2, 5):
        return Check("torch", State.FAIL, probed["torch"], "Converted scripts need 2.5 or later.")
    if version < (2, 6):
        return Check("torch", State.WARN, probed["torch"], "FSDP needs 2.6, and on CPU, as where it is verified, 2.9.")
    if version < (2, 9):
        return Check("torch", State.WARN, probed["torch"], "FSDP on CPU, and so its verification here, needs 2.9.")
    return Check("torch", State.OK, probed["torch"])


def _devices(probed: dict[str, Any]) -> Iterator[Check]:
    if "error" in probed:
        return
    devices, built = probed["devices"], probed["cuda"]
    if devices:
        names = ", ".join(dict.fromkeys(devices))
        advice = "One rank trains on it; verify puts several there where torch can." if len(devices) == 1 else ""
        yield Check("cuda", State.OK, f"{len(devices)} of {names}, CUDA {built}", advice)
    elif built is None:
        seen = shutil.which("nvidia-smi") is not None
        advice = "There is a driver, and this torch is built for the CPU: install one for CUDA." if seen else ""
        yield Check("cuda", State.WARN if seen else State.OK, "no GPU is used: torch is built for the CPU", advice)
    elif "CUDA_VISIBLE_DEVICES" in os.environ:
        shown = os.environ["CUDA_VISIBLE_DEVICES"]
        yield Check(
            "cuda", State.WARN, f"no GPU, with CUDA_VISIBLE_DEVICES={shown!r}", "Take that away to see them all."
        )
    else:
        advice = (
            "Training runs on the CPU. With a GPU here, its driver is missing, or older than this CUDA: nvidia-smi."
        )
        yield Check("cuda", State.WARN, f"no GPU is found, torch is built for CUDA {built}", advice)


def _backends(probed: dict[str, Any]) -> Check:
    if not probed.get("distributed"):
        return Check("backends", State.FAIL, "torch.distributed is not in this torch", "No rank can meet another.")
    have = [name for name in ("gloo", "nccl") if probed[name]]
    if probed["nccl_version"]:
        have[-1] += f" {probed['nccl_version']}"
    if probed["devices"] and not probed["nccl"]:
        return Check("backends", State.FAIL, ", ".join(have) or "none", "GPUs reduce over NCCL: this torch has none.")
    return Check("backends", State.OK if have else State.FAIL, ", ".join(have) or "none")


def _meeting(probed: dict[str, Any]) -> Check:
    """Whether two ranks on this machine really find each other, over the backend that training would take."""
    backend = "nccl" if len(probed.get("devices", ())) > 1 and probed["nccl"] else "gloo"
    name = f"two ranks, {backend}"
    if not probed.get(backend):
        return Check(name, State.FAIL, "not tried", "Mend what stands above first.")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    told = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1"}
    ranks = [_run(backend, RANK=str(rank), LOCAL_RANK=str(rank), **told) for rank in range(2)]
    try:
        said = [rank.communicate(timeout=SECONDS) for rank in ranks]
    except subprocess.TimeoutExpired:
        interface = (
            "GLOO_SOCKET_IFNAME=lo" if backend == "gloo" else "NCCL_DEBUG=INFO, which says more, or NCCL_P2P_DISABLE=1"
        )
        return Check(
            name, State.FAIL, f"did not meet in {SECONDS:.0f} s", f"Every training would hang. Try {interface}."
        )
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    wrong = [errors.strip().splitlines() or ["no answer"] for out, errors in said if out.strip() != "3.0"]
    if wrong:
        return Check(name, State.FAIL, wrong[0][-1], "Every training would end like this.")
    return Check(name, State.OK, "met and added their numbers")


def _port() -> Check:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind(("", PORT))
        except OSError:
            advice = "Another training meets there: start with torchrun --standalone, or another --master-port."
            return Check("port", State.WARN, f"{PORT} is taken", advice)
    return Check("port", State.OK, f"{PORT} is free")


def _host() -> Check:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        advice = (
            f"Gloo and several nodes look for it: add it to /etc/hosts (127.0.0.1 {name}), or set GLOO_SOCKET_IFNAME."
        )
        return Check("host name", State.WARN, f"{name} has no address", advice)
    return Check("host name", State.OK, f"{name} is {address}")


def _launcher() -> Check:
    launchers = [name for name in ("torchrun", "srun", "mpirun") if shutil.which(name)]
    if "torchrun" in launchers:
        return Check("launchers", State.OK, ", ".join(launchers))
    found = ", ".join(["torchrun is not on PATH", *(f"{name} is" for name in launchers)])
    return Check("launchers", State.WARN, found, "python -m torch.distributed.run does the same.")


def _leftovers() -> Check | None:
    left = [f"{name}={os.environ[name]}" for name in TOLD_BY_LAUNCHERS if name in os.environ]
    if not left:
        return None
    advice = "Launchers set these. Outside of one, a script waits for ranks that nobody starts: unset them."
    return Check("environment", State.WARN, " ".join(left), advice)


def _shared_memory() -> Check | None:
    folder = Path("/dev/shm")
    if not folder.is_dir():
        return None
    free = shutil.disk_usage(folder).free
    found = f"{free / GIB:.1f} GiB free in {folder}"
    if free >= GIB:
        return Check("shared memory", State.OK, found)
    advice = (
        "Loaders with workers, and NCCL, end with a bus error when it is full: docker run --shm-size=8g or --ipc=host."
    )
    return Check("shared memory", State.FAIL if free < GIB >> 4 else State.WARN, found, advice)


def _limit(name: str) -> int | None:
    """A limit of this process; None where there is none, or no limits."""
    try:
        import resource
    except ImportError:
        return None
    soft = resource.getrlimit(getattr(resource, name))[0]
    return None if soft == resource.RLIM_INFINITY else soft


def _open_files() -> Check:
    limit = _limit("RLIMIT_NOFILE")
    if limit is None or limit >= 4096:
        return Check("open files", State.OK, f"{limit or 'no limit'}")
    advice = "Workers of loaders hand on tensors as open files (`too many open files`): ulimit -n 65536."
    return Check("open files", State.WARN, f"at most {limit}", advice)


def _locked_memory() -> Check | None:
    limit = _limit("RLIMIT_MEMLOCK")
    if limit is None or not Path("/dev/infiniband").is_dir():
        return None
    advice = "InfiniBand registers memory, and NCCL fails without: ulimit -l unlimited."
    return Check("locked memory", State.WARN, f"at most {limit >> 10} KiB", advice)


def _threads() -> Check:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS")
    return Check("cores", State.OK, f"{cores}, OMP_NUM_THREADS {threads or 'is not set: torchrun gives each rank 1'}")
