"""What a verification promises besides the verdict: isolation, honesty, speed, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autodist.errors import AutodistError
from autodist.verify import Outcome, verify, verify_command
from autodist.verify.conclude import in_a_probe
from autodist.verify.launch import Zygote
from autodist.verify.trace import End
from verify.conftest import ROOT, edit

HEADER = "import torch\n"


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file with its content."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_working_folder_stays_as_it_is(pair: Path, zygote: Zygote | None) -> None:
    (pair / "history.json").write_text("[]")
    (pair / "big.bin").write_bytes(b"0" * (2 << 20))
    for name in ("before.py", "after.py"):
        edit(
            pair / name,
            "    best, history = 0.0, []",
            '    open("big.bin", "ab").write(b"1")\n    best, history = 0.0, []',
        )
    edit(pair / "after.py", '    open("big.bin"', '    if dist.get_rank() == 0:\n        open("big.bin"')
    before = files_below(pair)
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    assert files_below(pair) == before


def test_arguments_and_steps(pair: Path, zygote: Zygote | None) -> None:
    verdict = verify(
        pair / "before.py",
        pair / "after.py",
        [2],
        ["--batch-size", "12", "--lr", "0.01"],
        steps=5,
        workdir=pair,
        timeout=100,
        zygote=zygote,
    )
    assert verdict.equal, verdict.findings
    assert verdict.worlds[0].steps == 5
    assert any(note.kind == "stopped" for note in verdict.notes)


def test_a_conversion_may_lie_in_a_folder_of_its_own(pair: Path, zygote: Zygote | None) -> None:
    for name in ("before", "after"):
        folder = pair / name
        folder.mkdir()
        edit(pair / f"{name}.py", "import argparse\n", "import argparse\nfrom settings import NAME\n")
        (pair / f"{name}.py").rename(folder / "train.py")
        (folder / "settings.py").write_text(f"NAME = {name!r}\n")
    edit(
        pair / "after" / "train.py",
        "    setup_distributed()\n    torch",
        '    assert NAME == "after"\n    setup_distributed()\n    torch',
    )
    verdict = verify(pair / "before" / "train.py", pair / "after" / "train.py", [2], timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


def test_without_optimizer_steps_nothing_is_equal(tmp_path: Path, zygote: Zygote | None) -> None:
    for name in ("before.py", "after.py"):
        (tmp_path / name).write_text(HEADER + "print(torch.ones(2).sum().item())\n")
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], workdir=tmp_path, zygote=zygote)
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert "no optimizer step" in verdict.worlds[0].reason
    assert verdict.exit_code == 1


def test_an_original_that_fails_is_said_to_fail(pair: Path, zygote: Zygote | None) -> None:
    edit(pair / "before.py", "    best, history = 0.0, []", '    raise RuntimeError("no data")')
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert "no data" in verdict.worlds[0].reason


SAME = "    best, history = 0.0, []"


def test_programs_that_fail_alike_are_said_to(pair: Path, zygote: Zygote | None) -> None:
    for script in ("before.py", "after.py"):
        edit(pair / script, SAME, '    raise ValueError("no such file: data.csv")')
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert "both programs fail in the same way: ValueError: no such file" in verdict.worlds[0].reason
    assert {finding.kind for finding in verdict.findings} == {"original-crash", "crash"}


@pytest.mark.parametrize("scripts", [("before.py", "after.py"), ("before.py",)])
@pytest.mark.parametrize("line", ["assert torch.ones(1).half().dtype == torch.float16", "torch.zeros_like(model).x"])
def test_what_fails_under_the_probes_alone_is_a_fault_of_verify(
    pair: Path, zygote: Zygote | None, scripts: tuple[str, ...], line: str
) -> None:
    """What fails without them as well is the script's."""
    for script in scripts:
        edit(pair / script, SAME, f"    {line}\n{SAME}")
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    ours = "a fault of verify, and of neither script" in verdict.worlds[0].reason
    assert ours is line.startswith("assert"), verdict.worlds[0].reason


def test_a_crash_names_the_rank_and_the_line(pair: Path, zygote: Zygote | None) -> None:
    edit(
        pair / "after.py",
        "        scheduler.step(val_loss)",
        '        assert dist.get_rank() != 1 or epoch < 1, "bad rank"',
    )
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    crash = next(finding for finding in verdict.findings if finding.kind == "crash")
    assert verdict.outcome is Outcome.DIFFERS
    assert "rank 1 fails: AssertionError: bad rank" in crash.message
    line = 1 + (pair / "after.py").read_text().splitlines().index(
        '        assert dist.get_rank() != 1 or epoch < 1, "bad rank"'
    )
    assert crash.site == f"after.py:{line}"


def test_a_hang_is_explained_within_seconds(pair: Path, zygote: Zygote | None) -> None:
    edit(pair / "after.py", "    dist.destroy_process_group()", "    if dist.get_rank() == 0:\n        dist.barrier()")
    started = time.monotonic()
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert time.monotonic() - started < 30
    hang = next(finding for finding in verdict.findings if finding.kind == "hang")
    assert "rank 0 waits in barrier at after.py:" in hang.message
    assert "rank 1 has finished" in hang.message
    assert verdict.cause is not None and verdict.cause.name == "collective-on-all-ranks"


def test_what_takes_too_long_is_not_called_different(pair: Path, zygote: Zygote | None) -> None:
    edit(
        pair / "after.py",
        "        history.append",
        "        while epoch == 1:\n            pass\n        history.append",
    )
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=6, zygote=zygote)
    assert verdict.outcome is Outcome.NOT_COMPARABLE
    assert "still running after 6 s" in verdict.worlds[0].reason


def test_without_fork(pair: Path) -> None:
    verdict = verify(pair / "before.py", pair / "after.py", [2], steps=3, workdir=pair, timeout=100, fork=False)
    assert verdict.equal, verdict.findings


def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify_command(tmp_path / "none.py", tmp_path / "none.py") == 2
    assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "a.py").write_text("")
    with pytest.raises(AutodistError):
        verify(tmp_path / "a.py", tmp_path / "a.py", [0])


def test_json_output(pair: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = verify_command(pair / "before.py", pair / "after.py", steps=2, workdir=pair, output_format="json")
    content = json.loads(capsys.readouterr().out)
    assert code == 0
    assert content["outcome"] == "equal"
    assert content["worlds"][0]["steps"] == 2


def processes_named(text: str) -> list[int]:
    """Running processes whose command line or working folder mentions ``text``."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace") + str((entry / "cwd").resolve())
            except OSError:
                continue
            if text in line:
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_the_command_is_ended(pair: Path, end: signal.Signals) -> None:
    edit(
        pair / "after.py",
        "        history.append",
        "        while True:\n            time.sleep(0.1)\n        history.append",
    )
    keep = pair / "kept"
    command = [sys.executable, "-m", "autodist.verify", "before.py", "after.py", "--keep", str(keep)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        cwd=pair,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # a test run in the background of a shell ignores SIGINT, and would hand that on
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    ) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any(keep.rglob("rank1.trace")):
            time.sleep(0.1)
        time.sleep(1.0)
        assert len(processes_named(str(keep))) >= 2
        process.send_signal(end)
        process.wait(timeout=20)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and processes_named(str(keep)):
        time.sleep(0.1)
    assert not processes_named(str(keep))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_interruption_ends_the_conversion_of_all_files(pair: Path) -> None:
    text = (pair / "before.py").read_text().replace("        start = time.time()", "        time.sleep(60)")
    assert text != (pair / "before.py").read_text()
    for name in ("before.py", "after.py"):
        (pair / name).unlink()
    for name in ("one.py", "two.py"):
        (pair / name).write_text(text)
    command = [sys.executable, "-m", "autodist", "convert", "--in-place", "--verify", "one.py", "two.py"]
    folder = pair / "tmp"
    folder.mkdir()
    with subprocess.Popen(
        command,
        cwd=pair,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL) and None,
    ) as process:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline and not any(folder.rglob("rank1.trace")):
            time.sleep(0.1)
        assert any(folder.rglob("rank1.trace"))
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[0].decode()
    assert process.returncode == 130, said
    assert said.count("interrupted") == 1 and "two.py" not in said
    assert not processes_named(str(folder)) and not list(folder.glob("autodist-*"))
    assert all((pair / name).read_text() == text for name in ("one.py", "two.py"))


SILENCED = {
    "data": (
        "loader_iteration = torch.utils.data.dataloader._SingleProcessDataLoaderIter\n"
        "loader_iteration._next_data = loader_iteration._next_data.__wrapped__\n",
        "probes of the original were put out of action: nothing is known about data",
    ),
    "losses": (
        "torch.autograd.backward = torch.autograd.backward.__wrapped__\n",
        "probes of the original were put out of action: nothing is known about training",
    ),
    "steps": (
        "import sys\noptimizers = sys.modules['torch.optim.optimizer']\n"
        "optimizers._global_optimizer_pre_hooks.clear()\noptimizers._global_optimizer_post_hooks.clear()\n",
        "no optimizer step was seen",
    ),
    "saves": (
        "torch.save = torch.save.__wrapped__\n",
        "probes of the original were put out of action: nothing is known about files",
    ),
    "files": (
        "import gc\n[each.stop() for each in gc.get_objects() if type(each).__name__ == 'FilesProbe']\n",
        "probes of the original were put out of action: nothing is known about files",
    ),
    "printed": (
        "import os\nos.dup2(os.open(os.devnull, os.O_WRONLY), 1)\n",
        "standard output of the original was redirected",
    ),
    "loaders": (
        "class Fast(torch.utils.data.DataLoader):\n"
        "    def __iter__(self):\n"
        "        return map(self.collate_fn, ([self.dataset[i] for i in batch] for batch in self.batch_sampler))\n\n\n"
        "torch.utils.data.DataLoader = Fast\n",
        "makes data loaders, and none was seen to give a batch",
    ),
}


@pytest.mark.parametrize("silence", SILENCED)
def test_a_probe_that_hears_nothing_makes_nothing_equal(silence: str, pair: Path, zygote: Zygote | None) -> None:
    line, reason = SILENCED[silence]
    for name in ("before.py", "after.py"):
        edit(pair / name, "import torch\n", f"import torch\n{line}")
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.outcome is Outcome.NOT_COMPARABLE, verdict.worlds[0].reason
    assert reason in verdict.worlds[0].reason
    assert verdict.exit_code == 1


@pytest.mark.skipif(sys.platform != "linux", reason="sleep")
def test_processes_that_outlive_the_script_are_found_and_ended(pair: Path, zygote: Zygote | None) -> None:
    marker = "987.125"
    edit(
        pair / "after.py",
        "    best, history",
        f'    __import__("subprocess").Popen(["sleep", "{marker}"])\n    best, history',
    )
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    left = next(finding for finding in verdict.findings if finding.kind == "processes-left")
    assert "rank 0, 1" in left.message
    assert not processes_named(marker)


def test_a_loader_that_a_library_makes_anew_is_the_same_loader(
    pair: Path, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote | None
) -> None:
    """As `accelerator.prepare(loader)` does: samples, batches and passes are compared with the original's loader."""
    library = tmp_path_factory.mktemp("library")
    (library / "prepares.py").write_text(
        "from torch.utils.data import DataLoader\n"
        "def prepare(loader):\n"
        "    return DataLoader(loader.dataset, loader.batch_size, sampler=loader.sampler)\n"
    )
    old = "    val_loader = DataLoader(val_set"
    new = f"    import sys; sys.path.append({str(library)!r}); from prepares import prepare\n"
    edit(pair / "after.py", old, f"{new}    train_loader = prepare(train_loader)\n{old}")
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    edit(pair / "after.py", "args.batch_size // dist.get_world_size()", "args.batch_size")
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert "batch-not-divided" in {finding.kind for finding in verdict.findings}


EXPORTS = """
import torch
from torch import nn
{imports}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Linear(4, 1))
{wrapped}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(16, 4))
{apart}
for (x,) in torch.utils.data.DataLoader(data, {loader}):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
model.eval()
traced = torch.jit.trace({inner}, torch.ones(2, 4))
scripted = torch.jit.script({inner})
exported = torch.export.export({inner}, (torch.ones(2, 4),))
{guard}
    traced.save("traced.pt")
    torch.jit.save(traced, "traced_too.pt")
    scripted.save("scripted.pt")
    torch.export.save(exported, "exported.pt2")
"""
WRITTEN = {"traced.pt", "traced_too.pt", "scripted.pt", "exported.pt2"}


@pytest.mark.parametrize("guarded", [True, False])
def test_exported_models(pair: Path, zygote: Zygote | None, guarded: bool) -> None:
    """A trace is taken, a compiled model's tensors are compared, and each file has one writer."""
    plain = {"imports": "", "apart": "", "wrapped": "", "loader": "batch_size=8", "inner": "model", "guard": "if True:"}
    parallel = {
        "imports": 'import torch.distributed as dist\ndist.init_process_group("gloo")',
        "wrapped": "model = nn.parallel.DistributedDataParallel(model)",
        "apart": "torch.manual_seed(dist.get_rank())",
        "loader": "batch_size=4, sampler=torch.utils.data.DistributedSampler(data, shuffle=False)",
        "inner": "model.module",
        "guard": "if dist.get_rank() == 0:" if guarded else "if True:",
    }
    (pair / "before.py").write_text(EXPORTS.format(**plain))
    (pair / "after.py").write_text(EXPORTS.format(**parallel))
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal == guarded, verdict.findings
    twice = {finding.message.split()[0] for finding in verdict.findings if finding.kind == "several-writers"}
    assert twice == (set() if guarded else WRITTEN), verdict.findings


NOISY = """
import numpy as np
import torch
from torch import nn
{imports}
data = torch.randn(32, 4, generator=torch.Generator().manual_seed(3))
{seeds}
model = nn.Linear(17, 1)
{wrapped}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), {loader})
for (x,) in loader:
    negatives = torch.multinomial(torch.tensor([0.1, 0.2, 0.7]), {size} * 3, replacement=True).view(-1, 3).to(x)
    codes = np.random.multinomial(1, [0.1] * 10, size=[{size}])
    scale = np.random.exponential(1.0, ({size}, 1))
    optimizer.zero_grad()
    model(torch.cat([x, negatives, torch.from_numpy(codes * scale).to(x)], 1)).square().mean().backward()
    optimizer.step()
"""


SEEDS_APART = "torch.manual_seed(dist.get_rank())\nnp.random.seed(dist.get_rank())"


def test_unseeded_noise(pair: Path, zygote: Zygote | None) -> None:
    """A conversion seeds what its original does not; generators of a script's own draw nothing from what is seeded."""
    plain = {"imports": "", "seeds": "", "wrapped": "", "loader": "batch_size=8", "size": "8"}
    parallel = {
        "imports": 'import torch.distributed as dist\ndist.init_process_group("gloo")',
        "seeds": "torch.manual_seed(0)\nnp.random.seed(0)",
        "wrapped": "model = nn.parallel.DistributedDataParallel(model)\n" + SEEDS_APART,
        "loader": "batch_size=4, sampler=torch.utils.data.DistributedSampler(data, shuffle=False)",
        "size": "4",
    }
    (pair / "before.py").write_text(NOISY.format(**plain))
    (pair / "after.py").write_text(NOISY.format(**parallel))
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


@pytest.mark.parametrize(
    ("frames", "ours"),
    [
        ([("train.py", "main()"), ("{probes}data.py", "keys = identity(item)")], True),
        ([("train.py", "main()"), ("{probes}precision.py", "result = plain(*args, **kwargs)")], False),
        ([("train.py", "main()"), ("{probes}data.py", "item = plain(index)"), ("data.py", "raise KeyError")], False),
        ([("{verify}bootstrap.py", "code = compile(text)")], False),
        ([], False),
    ],
)
def test_errors_of_our_own_are_not_the_scripts(frames: list[tuple[str, str]], ours: bool) -> None:
    places = {"probes": "/site/autodist/verify/probes/", "verify": "/site/autodist/verify/"}
    lines = [f'  File "{file.format(**places)}", line 3, in f\n    {line}\n' for file, line in frames]
    text = "".join(["Traceback (most recent call last):\n", *lines, "KeyError: 1\n"])
    assert ("a fault of verify" in in_a_probe(End(1, "KeyError", "1", "train.py:1", text))) is ours
