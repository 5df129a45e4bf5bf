"""The judge of DDP-Bench: does a project train on several ranks what the original trains in one process?

    python judge.py ORIGINAL CANDIDATE --ranks 2,4 [--unordered] [--seconds 60] -- train.py --epochs 2

One file, which needs the standard library and torch alone, and shares no code with `autodist verify`. It runs both in copies,
in float64 and on CPUs (gloo), with one order of samples for all samplers, and compares what a user sees: files, tensors in
checkpoints (keys, shapes, values), what rank 0 prints, and which samples the ranks trained on together. Prints JSON.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import atexit
import hashlib
import json
import math
import pickle
import re
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import RandomSampler
from torch.utils.data.distributed import DistributedSampler

EQUAL, REFUSED, WRONG, CRASH, HANG = "equal", "refused", "silently wrong", "crash", "hang"
VERDICTS = (EQUAL, REFUSED, WRONG, CRASH, HANG)
REFUSAL = "REFUSED"
"""A file in the candidate that says why there is no solution."""
WARNING = "WARNED"
"""A file in the candidate that says what in it a person has to look at: a difference is not silent then, but a refusal."""
RELATIVE, ABSOLUTE = 1e-6, 1e-8
GRACE = 5.0
"""Seconds that the other ranks have once one has failed."""
SHARE = 1.5
"""No rank may do more than this times its equal share of the work."""
TEXTS = {".json", ".jsonl", ".csv", ".tsv", ".txt", ".log", ".md", ".yaml"}
TENSORS = {".pt", ".pth", ".ckpt", ".bin", ".tar"}
FACTORIES = (
    *("tensor", "as_tensor", "from_numpy", "empty", "zeros", "ones", "full", "arange", "linspace", "rand", "randn"),
    *("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"),
)
NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")


@dataclass
class Run:
    """What one run of a project left behind."""

    folder: Path
    codes: list[int | None] = field(default_factory=list)
    printed: list[list[str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    rows: list[Counter[str]] = field(default_factory=list)
    amounts: list[int] = field(default_factory=list)
    files: dict[str, Path] = field(default_factory=dict)
    seconds: float = 0.0
    hung: bool = False

    @property
    def failed(self) -> bool:
        """Whether a rank did not come to its end."""
        return self.hung or any(self.codes)

    @property
    def failure(self) -> str:
        """The last line of the first rank that failed by itself."""
        for code, error in zip(self.codes, self.errors, strict=True):
            lines = [line for line in error.splitlines() if line.strip()]
            if code is not None and code > 0 and lines:
                return lines[-1][:300]
        return f"exit codes {self.codes}"


@dataclass(frozen=True)
class Judgement:
    """The verdict on one candidate, with its reasons for each number of ranks."""

    verdict: str
    reasons: tuple[str, ...] = ()
    seconds: float = 0.0


# --- running ---------------------------------------------------------------------------------------------------------


def run(project: Path, command: Sequence[str], ranks: int, seconds: float, scratch: Path) -> Run:
    """Run a project in a copy: in one process that knows of no ranks (``ranks`` = 0), or on some."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    work = folder / "work"
    shutil.copytree(project, work, ignore=shutil.ignore_patterns("__pycache__", ".git"))
    before = set(_files(work))
    found, begun, port = Run(folder), time.monotonic(), _free_port()
    pids = [_start(folder, command, rank, ranks, port) for rank in range(max(ranks, 1))]
    found.codes, found.hung = _wait(pids, begun + seconds)
    found.seconds = time.monotonic() - begun
    for rank in range(max(ranks, 1)):
        out = (folder / f"out{rank}").read_text(errors="replace")
        found.printed.append([line.split("\r")[-1].rstrip() for line in out.splitlines() if line.strip()])
        found.errors.append((folder / f"err{rank}").read_text(errors="replace"))
        seen = folder / f"seen{rank}.json"
        content = json.loads(seen.read_text()) if seen.exists() else {"rows": {}, "amount": 0}
        found.rows.append(Counter(content["rows"]))
        found.amounts.append(content["amount"])
    found.files = {name: work / name for name in _files(work) if name not in before}
    return found


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _start(folder: Path, command: Sequence[str], rank: int, ranks: int, port: int) -> int:
    """Fork a rank, which has torch imported already. Answers with its process id, that of its group."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{name}{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.chdir(folder / "work")
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)
        if ranks:
            os.environ.update(_environment(rank, ranks, port))
        code = _run_here(folder, command, rank, ranks)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    """What torchrun sets; two names more by which Fabric and Accelerate know that they are launched, on CPUs."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "judge",
        "ACCELERATE_USE_CPU": "true",
    }


def _run_here(folder: Path, command: Sequence[str], rank: int, ranks: int) -> int:
    seen = Seen()
    _in_double()
    _one_order()
    seen.watch()
    if ranks and any("SyncBatchNorm" in path.read_text(errors="replace") for path in Path().rglob("*.py")):
        _BatchNorm.forward = _global_batch_norm  # type: ignore[method-assign]
        torch.nn.SyncBatchNorm.forward = _global_batch_norm  # type: ignore[method-assign]
        # DistributedDataParallel refuses SyncBatchNorm on CPUs
        DistributedDataParallel._passing_sync_batchnorm_handle = lambda self, module: None  # type: ignore[method-assign]
    code = 0
    try:
        sys.path.insert(0, os.getcwd())
        if command[0] == "-m":
            sys.argv = list(command[1:])
            runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = list(command)
            sys.path[0] = str(Path(command[0]).resolve().parent)
            runpy.run_path(command[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    (folder / f"seen{rank}.json").write_text(json.dumps({"rows": seen.rows, "amount": seen.amount}))
    return code


def _wait(pids: Sequence[int], deadline: float) -> tuple[list[int | None], bool]:
    """The exit codes, and whether time ran out; kills all that is left, with what it started."""
    codes: dict[int, int] = {}
    timed_out = False
    while len(codes) < len(pids):
        for pid in pids:
            if pid not in codes and (found := os.waitpid(pid, os.WNOHANG))[0]:
                codes[pid] = os.waitstatus_to_exitcode(found[1])
                if codes[pid]:
                    deadline = min(deadline, time.monotonic() + GRACE)
        if time.monotonic() > deadline:
            timed_out = not any(codes.values())
            break
        time.sleep(0.02)
    for pid in pids:
        try:
            os.killpg(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        if pid not in codes:
            os.waitpid(pid, 0)
    return [codes.get(pid) for pid in pids], timed_out


# --- what a run is made to do, original and candidate alike ----------------------------------------------------------


def _in_double() -> None:
    """Everything that would be float32 is float64, so that rounding does not hide or feign a difference."""
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)

    def doubled(function: Any) -> Any:
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dtype") is torch.float32:
                kwargs["dtype"] = torch.float64
            made = function(*(torch.float64 if arg is torch.float32 else arg for arg in args), **kwargs)
            return made.double() if made.dtype is torch.float32 else made

        return wrapper

    for name in FACTORIES:
        setattr(torch, name, doubled(getattr(torch, name)))
    for name in ("float", "to", "type"):
        setattr(torch.Tensor, name, torch.Tensor.double if name == "float" else _doubled_method(name))


def _doubled_method(name: str) -> Any:
    """`to` and `type` of a tensor, which make float64 of what would become float32."""
    method = getattr(torch.Tensor, name)

    def wrapper(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("dtype") is torch.float32:
            kwargs["dtype"] = torch.float64
        return method(self, *(torch.float64 if arg is torch.float32 else arg for arg in args), **kwargs)

    return wrapper


def _one_order() -> None:
    """Samplers that shuffle take the same order in all runs: that of the n-th epoch which they were told of.

    Without it, RandomSampler and DistributedSampler draw different orders, and no conversion would be equal. A
    DistributedSampler that is told of no epoch stays in the first, as it does in truth.
    """

    def order(size: int, epoch: int) -> list[int]:
        return torch.randperm(size, generator=torch.Generator().manual_seed(1000 + epoch)).tolist()

    taken = RandomSampler.__iter__
    shares = DistributedSampler.__iter__

    def all_rows(self: Any) -> Iterator[int]:
        if self.replacement or self.num_samples != len(self.data_source):
            yield from taken(self)
            return
        self.judged = getattr(self, "judged", -1) + 1
        yield from order(len(self.data_source), self.judged)

    def own_rows(self: Any) -> Iterator[int]:
        if not self.shuffle:
            yield from shares(self)
            return
        told = getattr(self, "judged_epochs", {})
        self.judged_epochs = told
        rows = order(len(self.dataset), told.setdefault(self.epoch, len(told)))
        if self.drop_last:
            rows = rows[: self.total_size]
        else:
            rows = (rows * math.ceil(self.total_size / max(len(rows), 1)))[: self.total_size]
        yield from rows[self.rank : self.total_size : self.num_replicas]

    RandomSampler.__iter__ = all_rows  # type: ignore[method-assign]
    DistributedSampler.__iter__ = own_rows  # type: ignore[method-assign]


def _global_batch_norm(self: Any, values: torch.Tensor) -> torch.Tensor:
    """What SyncBatchNorm does on GPUs: torch has none for CPUs."""
    axes = [axis for axis in range(values.dim()) if axis != 1]
    shape = [1, -1] + [1] * (values.dim() - 2)
    if self.training or self.running_mean is None:
        sums = torch.cat([values.sum(axes), (values * values).sum(axes), values.new_tensor([values.numel() / values.shape[1]])])
        if dist.is_initialized():
            from torch.distributed.nn.functional import all_reduce

            sums = all_reduce(sums)
        size, count = values.shape[1], sums[-1].detach()
        mean = sums[:size] / count
        variance = sums[size : 2 * size] / count - mean * mean
        if self.training and self.running_mean is not None:
            with torch.no_grad():
                self.num_batches_tracked += 1
                rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean, rate)
                self.running_var.lerp_(variance * count / (count - 1), rate)
    else:
        mean, variance = self.running_mean, self.running_var
    result = (values - mean.view(shape)) / torch.sqrt(variance.view(shape) + self.eps)
    return result * self.weight.view(shape) + self.bias.view(shape) if self.affine else result


class Seen:
    """What goes into models while they train: the calls of outermost modules that have parameters."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.amount = 0
        self._depth = 0

    def watch(self) -> None:
        """Look at all modules from now on."""
        call = torch.nn.Module.__call__

        def watched(module: Any, *args: Any, **kwargs: Any) -> Any:
            has = next(module.parameters(), None) is not None
            if has and not self._depth and module.training and torch.is_grad_enabled():
                self._note([value for value in [*args, *kwargs.values()] if torch.is_tensor(value)])
            self._depth += has
            try:
                return call(module, *args, **kwargs)
            finally:
                self._depth -= has

        torch.nn.Module.__call__ = watched  # type: ignore[method-assign, assignment]

    def _note(self, tensors: Sequence[torch.Tensor]) -> None:
        self.amount += sum(tensor.numel() for tensor in tensors)
        if tensors and tensors[0].dim():
            for row in tensors[0].detach().contiguous():
                self.rows[hashlib.sha1(row.contiguous().numpy().tobytes()).hexdigest()[:16]] += 1


# --- comparing -------------------------------------------------------------------------------------------------------


def differences(original: Run, candidate: Run, by_rows: bool = True) -> Iterator[str]:
    """All in which a run on several ranks differs from the original."""
    yield from _printed(original.printed[0], candidate.printed)
    names = sorted({*original.files, *candidate.files})
    for name in names:
        if name not in candidate.files:
            yield f"{name} is missing"
        elif name not in original.files:
            yield f"{name} is written, which the original does not"
        else:
            yield from _file(name, original.files[name], candidate.files[name])
    yield from _work(original, candidate, by_rows)


def _printed(expected: Sequence[str], printed: Sequence[Sequence[str]]) -> Iterator[str]:
    for rank, lines in enumerate(printed[1:], 1):
        if lines:
            yield f"rank {rank} prints, too: {lines[0][:80]!r}"
            break
    if len(expected) != len(printed[0]):
        yield f"{len(printed[0])} lines are printed instead of {len(expected)}"
    for left, right in zip(expected, printed[0], strict=False):
        if not texts_agree(left, right):
            yield f"prints {right[:100]!r} instead of {left[:100]!r}"
            break


def texts_agree(left: str, right: str) -> bool:
    """The same words, and numbers that agree up to the rounding of their last place."""
    if NUMBER.sub("#", left).split() != NUMBER.sub("#", right).split():
        return False
    return all(map(_numbers_agree, NUMBER.findall(left), NUMBER.findall(right)))


def _numbers_agree(left: str, right: str) -> bool:
    one, other = float(left), float(right)
    if left == right or math.isnan(one) and math.isnan(other):
        return True
    mantissa, _, exponent = left.lower().partition("e")
    if "." not in mantissa and not exponent:
        return False
    last = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(one - other) <= max(1.01 * last, RELATIVE * abs(one))


class _Unpickler(pickle.Unpickler):
    """Reads whole models, too, whose classes only the project has: as empty classes of the same name."""

    unknown: ClassVar[dict[str, type]] = {}

    def find_class(self, module: str, name: str) -> Any:
        try:
            if module != "__main__":
                return super().find_class(module, name)
        except (ImportError, AttributeError):
            pass
        return self.unknown.setdefault(f"{module}.{name}", type(name, (), {}))


class _Pickles:
    """A stand-in for the module pickle, for torch.load."""

    Unpickler = _Unpickler
    load, loads, UnpicklingError = pickle.load, pickle.loads, pickle.UnpicklingError


def _file(name: str, left: Path, right: Path) -> Iterator[str]:
    if left.suffix in TENSORS:
        try:
            pair = [torch.load(path, map_location="cpu", weights_only=False, pickle_module=_Pickles) for path in (left, right)]
        except Exception as error:
            yield f"{name} cannot be read: {error}"[:200]
            return
        yield from list(values_differ(pair[0], pair[1], name))[:3]
    elif left.suffix in TEXTS:
        one, other = left.read_text().splitlines(), right.read_text().splitlines()
        if len(one) != len(other):
            yield f"{name} has {len(other)} lines instead of {len(one)}"
        elif wrong := next((pair for pair in zip(one, other, strict=True) if not texts_agree(*pair)), None):
            yield f"{name}: {wrong[1][:80]!r} instead of {wrong[0][:80]!r}"
    elif left.read_bytes() != right.read_bytes():
        yield f"{name} has other bytes"


def values_differ(left: Any, right: Any, where: str) -> Iterator[str]:
    """Where two values of a checkpoint differ: kinds, keys, shapes, types, numbers."""
    if torch.is_tensor(left) and torch.is_tensor(right):
        if left.shape != right.shape or left.dtype != right.dtype:
            yield f"{where} is {right.dtype} {tuple(right.shape)} instead of {left.dtype} {tuple(left.shape)}"
        elif left.is_floating_point() and not torch.allclose(right, left, RELATIVE, ABSOLUTE, equal_nan=True):
            yield f"{where} is off by {(left - right).abs().max().item():.1e}"
        elif not left.is_floating_point() and not torch.equal(left, right):
            yield f"{where} has other numbers"
    elif isinstance(left, Mapping) and isinstance(right, Mapping):
        if list(left) != list(right):
            odd = sorted(map(str, set(left) ^ set(right)))[:3]
            yield f"{where} has other keys: {', '.join(odd) or 'in another order'}"
        else:
            for key in left:
                yield from values_differ(left[key], right[key], f"{where}[{key!r}]")
    elif isinstance(left, list | tuple) and isinstance(right, list | tuple):
        if len(left) != len(right):
            yield f"{where} has {len(right)} entries instead of {len(left)}"
        for index, (one, other) in enumerate(zip(left, right, strict=False)):
            yield from values_differ(one, other, f"{where}[{index}]")
    elif isinstance(left, float) and isinstance(right, float):
        if not math.isclose(left, right, rel_tol=RELATIVE, abs_tol=ABSOLUTE) and not left != left != right:
            yield f"{where} is {right} instead of {left}"
    elif isinstance(left, torch.nn.Module) and isinstance(right, torch.nn.Module):
        yield from values_differ(left.state_dict(), right.state_dict(), where)
    elif type(left) is not type(right) or not hasattr(left, "__dict__") and left != right:
        yield f"{where} is {right!r} instead of {left!r}"[:200]
    elif hasattr(left, "__dict__") and not isinstance(left, type):
        yield from values_differ(vars(left), vars(right), where)


def _work(original: Run, candidate: Run, by_rows: bool) -> Iterator[str]:
    """Whether the ranks share the samples of the original among them."""
    whole, ranks = original.amounts[0], len(candidate.amounts)
    if max(candidate.amounts) > SHARE * whole / ranks:
        yield f"the work is not shared: ranks trained on {[round(each / whole, 2) for each in candidate.amounts]} of the samples"
    elif by_rows:
        together = sum(candidate.rows, Counter())
        left, extra = original.rows[0] - together, together - original.rows[0]
        if left or extra:
            yield f"{left.total()} samples were left out in training, {extra.total()} were seen too often"


# --- judging ---------------------------------------------------------------------------------------------------------


class Judge:
    """Holds the run of an original, to judge candidates by."""

    def __init__(self, project: Path, command: Sequence[str], scratch: Path, seconds: float, by_rows: bool) -> None:
        self._command, self._scratch, self._seconds, self._by_rows = command, scratch, seconds, by_rows
        self.original = run(project, command, 0, seconds, scratch)
        if self.original.failed:
            raise RuntimeError(f"the original does not run: {self.original.failure}")

    def judge(self, candidate: Path, worlds: Sequence[int] = (2, 4)) -> Judgement:
        """Run a candidate on each number of ranks; the first number that goes wrong ends it."""
        refusal = candidate / REFUSAL
        if refusal.exists():
            return Judgement(REFUSED, (refusal.read_text().strip()[:300],))
        begun = time.monotonic()
        for ranks in worlds:
            found = run(candidate, self._command, ranks, self._seconds, self._scratch)
            try:
                verdict, reasons = self._verdict(found)
            finally:
                shutil.rmtree(found.folder, ignore_errors=True)
            if verdict == WRONG and (warning := candidate / WARNING).exists():
                verdict, reasons = REFUSED, [f"warned: {warning.read_text().splitlines()[0][:300]}", *reasons]
            if verdict != EQUAL:
                spent = time.monotonic() - begun
                return Judgement(verdict, tuple(f"{ranks} ranks: {reason}" for reason in reasons), spent)
        return Judgement(EQUAL, (), time.monotonic() - begun)

    def _verdict(self, found: Run) -> tuple[str, list[str]]:
        if found.hung:
            return HANG, [f"not at its end after {self._seconds:.0f} s"]
        if found.failed:
            return CRASH, [found.failure]
        reasons = list(differences(self.original, found, self._by_rows))
        return (WRONG, reasons[:5]) if reasons else (EQUAL, [])


def main() -> int:
    """Judge one candidate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("original", type=Path)
    parser.add_argument("candidate", type=Path)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--unordered", action="store_true", help="samples cannot be told apart by rows: compare how much is trained on")
    parser.add_argument("command", nargs="+", help="how the project is started, after `--`")
    asked = parser.parse_args()
    sys.dont_write_bytecode = True
    scratch = Path(tempfile.mkdtemp())  # no TemporaryDirectory: forked ranks would remove it at their end
    try:
        judge = Judge(asked.original, asked.command, scratch, asked.seconds, not asked.unordered)
        found = judge.judge(asked.candidate, [int(ranks) for ranks in asked.ranks.split(",")])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(json.dumps(asdict(found), indent=1))
    return int(found.verdict != EQUAL)


if __name__ == "__main__":
    sys.exit(main())
