"""What the doctor says of machines: of this one, and of some that lack something."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from conftest import Autodist

from autodist.doctor import State, checks, examine

GPUS = {
    "torch": "2.13.0+cu126",
    "cuda": "12.6",
    "devices": ["H100", "H100"],
    "distributed": True,
    "nccl": True,
    "gloo": True,
    "nccl_version": "2.29.7",
}


def found(monkeypatch: pytest.MonkeyPatch, probed: dict[str, Any], name: str, trying: bool = False) -> checks.Check:
    """A check of a machine of which torch says this."""
    monkeypatch.setattr(checks, "_probed", lambda: probed)
    if not trying:
        monkeypatch.setattr(checks, "_meeting", lambda probed: checks.Check("meeting", State.OK, ""))
    (check,) = [each for each in examine() if each.name == name]
    return check


@pytest.mark.parametrize(
    ("changed", "name", "state", "said"),
    [
        ({}, "cuda", State.OK, "2 of H100, CUDA 12.6"),
        ({}, "backends", State.OK, "gloo, nccl 2.29.7"),
        ({"devices": ["H100"]}, "cuda", State.OK, "One rank trains on it"),
        ({"devices": []}, "cuda", State.WARN, "its driver is missing, or older"),
        ({"nccl": False, "nccl_version": None}, "backends", State.FAIL, "this torch has none"),
        ({"distributed": False}, "backends", State.FAIL, "No rank can meet another"),
        ({"torch": "2.4.1"}, "torch", State.FAIL, "need 2.5 or later"),
        ({"torch": "2.5.1"}, "torch", State.WARN, "FSDP needs 2.6"),
        ({"torch": "2.8.0+cpu"}, "torch", State.WARN, "needs 2.9"),
        ({"error": "ImportError: libcudart.so"}, "torch", State.FAIL, "libcudart.so"),
    ],
)
def test_torch_and_gpus(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], name: str, state: State, said: str
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    check = found(monkeypatch, {"error": changed["error"]} if "error" in changed else GPUS | changed, name)
    assert check.state is state and said in f"{check.found} {check.advice}"


def test_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    names = {each.name: each for each in examine()}
    assert names["torch"].state is State.FAIL and "torch-autodist[verify]" in names["torch"].advice
    assert "two ranks, gloo" not in names and "port" in names


def test_hidden_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES=''" in found(monkeypatch, GPUS | {"devices": []}, "cuda").found


def test_ranks_that_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "SECONDS", 0.2)
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: str, **environment: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(sleeping, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    monkeypatch.setattr(checks, "_run", run)
    check = found(monkeypatch, GPUS | {"devices": []}, "two ranks, gloo", trying=True)
    assert check.state is State.FAIL and "GLOO_SOCKET_IFNAME" in check.advice
    assert all(process.poll() is not None for process in started), "nothing is left running"


def test_limits_and_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    Usage = namedtuple("Usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 26, 1 << 25, 1 << 25))
    monkeypatch.setattr(Path, "is_dir", lambda path: True)
    monkeypatch.setattr(checks, "_limit", lambda name: 1024)
    monkeypatch.setenv("RANK", "0")

    def unknown(name: str) -> str:
        raise socket.gaierror

    monkeypatch.setattr(socket, "gethostbyname", unknown)
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        monkeypatch.setattr(checks, "PORT", taken.getsockname()[1])
        monkeypatch.setattr(checks, "_probed", dict)
        said = {each.name: each for each in examine()}
    assert said["shared memory"].state is State.FAIL and "--shm-size" in said["shared memory"].advice
    assert said["open files"].found == "at most 1024" and "ulimit -n" in said["open files"].advice
    assert said["locked memory"].state is State.WARN and "taken" in said["port"].found
    assert said["environment"].found == "RANK=0" and "/etc/hosts" in said["host name"].advice


def test_this_machine(autodist: Autodist) -> None:
    pytest.importorskip("torch")
    result = autodist("doctor", "--output-format", "json")
    said = {each["name"]: each for each in json.loads(result.stdout)}
    assert said["torch"]["state"] in ("ok", "warn"), said
    assert any(name.startswith("two ranks") and each["state"] == "ok" for name, each in said.items()), said
    assert result.exit_code == ("fail" in {each["state"] for each in said.values()})


def test_lines_for_people() -> None:
    made = checks.report([checks.Check("a", State.OK, "x"), checks.Check("longer", State.FAIL, "y", "Do z.")], "text")
    assert "longer  y\n" in made and made.endswith(" Do z.\n")
