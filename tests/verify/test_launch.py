"""Processes of a run are told from others that have their numbers later on."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from autodist.verify.launch import ForkedProcess, OwnGroups, Zygote, group_lives

WAITS = [sys.executable, "-c", "import time; time.sleep(60)"]


@dataclass
class Ended:
    """A process that has come to its end, whose number another one may have by now."""

    pid: int

    def poll(self) -> int:
        return 0


def test_a_group_that_has_gone_is_not_signalled_again() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    gone.wait()
    process = Ended(gone.pid)
    groups = OwnGroups([process])
    assert groups.poll() == [0] and groups.left() == []
    with subprocess.Popen(WAITS, start_new_session=True) as stranger:
        process.pid = stranger.pid
        groups.kill()
        assert groups.left() == [] and stranger.poll() is None
        stranger.kill()


def test_what_a_process_has_started_is_ended() -> None:
    script = f"import subprocess; print(subprocess.Popen({WAITS!r}).pid)"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.DEVNULL, start_new_session=True)
    process.wait()
    groups = OwnGroups([process])
    assert groups.poll() == [0] and groups.left() == [0]
    groups.kill()
    for _ in range(100):
        if not group_lives(process.pid):
            return
        subprocess.run(["sleep", "0.05"], check=True)
    pytest.fail("it runs on")


def test_a_number_that_comes_around_is_that_of_a_new_process(zygote: Zygote | None) -> None:
    """A zygote that has forked tens of thousands of processes had taken a new one for ended."""
    if zygote is None:
        pytest.skip("no process is forked here")
    number = 1 << 30
    zygote._take({"ended": number, "code": -9})
    assert ForkedProcess(number, zygote).poll() == -9
    zygote._take({"started": number})
    assert zygote._started.pop() == number and ForkedProcess(number, zygote).poll() is None


def test_what_libraries_print_while_they_are_imported_is_no_answer(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("import os\n\nprint('imported', flush=True)\nos.system('echo echo by a shell')\n")
    with Zygote(["loud"], {"PYTHONPATH": str(tmp_path)}, tmp_path / "log") as started:
        started._until(lambda: started._ready)
    assert (tmp_path / "log").read_text().split("\n")[:2] == ["imported", "echo by a shell"]
