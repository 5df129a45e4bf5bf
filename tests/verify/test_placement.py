"""Which device the ranks get, what is refused, and how several ranks share one GPU. None of it needs a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autodist.errors import AutodistError
from autodist.verify import launch
from autodist.verify.command import verify_command
from autodist.verify.launch import free_port, rank_environment, start_process, watch
from autodist.verify.placement import Placement, Wanted, gpu_count, placed, sharing_refusal
from autodist.verify.plan import ProcessPlan

torch = pytest.importorskip("torch")
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def works() -> None:
    return None


def refuses() -> str:
    return "this torch cannot do that"


def not_asked() -> None:
    raise AssertionError("nothing is to be shared")


@pytest.mark.parametrize(
    ("wanted", "ranks", "gpus", "sharing", "expected"),
    [
        ("cpu", 2, 8, not_asked, ("cpu", 0, False)),
        ("auto", 2, 0, not_asked, ("cpu", 0, False)),
        ("auto", 2, 2, not_asked, ("cuda", 2, False)),
        ("cuda", 4, 8, not_asked, ("cuda", 4, False)),
        ("auto", 2, 1, works, ("cuda", 1, True)),
        ("cuda", 4, 2, works, ("cuda", 2, True)),
        ("auto", 2, 1, refuses, ("cpu", 0, False)),
    ],
)
def test_placement(
    wanted: Wanted, ranks: int, gpus: int, sharing: Callable[[], str | None], expected: tuple[str, int, bool]
) -> None:
    found = placed(wanted, ranks, gpus, sharing)
    assert (found.device, found.gpus, found.shared) == expected
    assert (found.note is not None) is (sharing is not not_asked), "what is not as usual is said"


@pytest.mark.parametrize(("ranks", "gpus"), [(2, 0), (2, 1), (4, 3)])
def test_a_wish_that_cannot_be_met_is_an_error(ranks: int, gpus: int) -> None:
    with pytest.raises(AutodistError, match="--device c"):
        placed("cuda", ranks, gpus, refuses)


def test_placements_are_said() -> None:
    assert str(Placement("cpu")) == "CPU"
    assert str(Placement("cuda", gpus=4)) == "4 GPUs, NCCL"
    assert str(Placement("cuda", gpus=1, shared=True)) == "1 GPU, shared over gloo"


def test_ranks_beyond_the_gpus_are_another_node() -> None:
    found = [rank_environment(rank, 3, 1, local=2) for rank in range(3)]
    assert [each["LOCAL_RANK"] for each in found] == ["0", "1", "0"]
    assert [each["GROUP_RANK"] for each in found] == ["0", "0", "1"]
    assert [each["LOCAL_WORLD_SIZE"] for each in found] == ["2", "2", "1"]
    assert rank_environment(1, 2, 1)["LOCAL_RANK"] == "1"


def test_sharing_is_tried_rather_than_believed() -> None:
    assert sharing_refusal("cpu") is None
    assert "do not get through" in (sharing_refusal("cpu", seconds=0.01) or "")


@without_gpu
def test_without_a_gpu_nothing_is_shared() -> None:
    assert gpu_count() == 0
    assert "this torch cannot do that" in (sharing_refusal("cuda") or "")


@without_gpu
def test_cuda_without_a_gpu_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    assert verify_command(tmp_path / "a.py", tmp_path / "b.py", device="cuda") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "torch finds no GPU" in said


NCCL = """
import torch
import torch.distributed as dist

dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
dist.barrier(device_ids=[0])
print(dist.get_backend(), dist.get_backend(dist.new_group([0, 1], backend="nccl")), flush=True)
"""


def test_ranks_that_share_a_gpu_speak_gloo(tmp_path: Path) -> None:
    root, records = tmp_path / "root", tmp_path / "records"
    root.mkdir()
    records.mkdir()
    (root / "train.py").write_text(NCCL)
    port = free_port()
    plans = [
        ProcessPlan(
            role="conversion",
            rank=rank,
            world=2,
            script=str(root / "train.py"),
            args=(),
            root=str(root),
            outer=str(root),
            cwd=str(root),
            records=str(records),
            shared_gpu=True,
            env=rank_environment(rank, 2, port, local=1),
        )
        for rank in range(2)
    ]
    result = watch([start_process(plan, plan.env) for plan in plans], plans, 60.0, lambda: None)
    errors = [plan.record("stderr").read_text() for plan in plans]
    assert result.codes == [0, 0], errors
    assert ["gloo gloo" in plan.record("stdout").read_text() for plan in plans] == [True, True]


def test_another_python_finds_this_package_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed beside other packages, as by pipx, while the scripts run with the Python of another environment."""
    installed = Path(launch.__file__).resolve().parents[2]
    monkeypatch.setattr(launch, "site_folders", lambda: {str(installed)})
    assert launch.ADDED_PATH not in launch.environment({})
    env = launch.environment({}, "python-of-another-environment")
    assert os.listdir(env[launch.ADDED_PATH]) == ["autodist"]
    command = [sys.executable, "-S", "-c", "import autodist; print(autodist.__file__)"]
    found = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert found.startswith(env[launch.ADDED_PATH])
