"""torchrun over two nodes with host names of their own, by what is printed for it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from conftest import Autodist

from autodist.verify.nodes import Nodes
from cluster.conftest import SECONDS, environment, until

pytestmark = pytest.mark.cluster


class Torchrun:
    """The agents of the two nodes."""

    def __init__(self, nodes: Nodes, folder: Path) -> None:
        self._nodes, self._folder = nodes, folder
        self._env = environment(folder)

    def start(self, node: int, command: list[str]) -> subprocess.Popen[bytes]:
        """One of them."""
        with open(self._folder / f"node{node}.out", "ab") as log:
            command = self._nodes.command(node, command)
            return subprocess.Popen(
                command, cwd=self._folder, env=self._env, stdout=log, stderr=log, start_new_session=True
            )

    def said(self) -> str:
        """What both printed."""
        return "".join(path.read_text() for path in sorted(self._folder.glob("node*.out")))

    def succeed(self, *agents: subprocess.Popen[bytes]) -> None:
        """Wait for their end."""
        until(lambda: all(agent.poll() is not None for agent in agents), f"the end of {self._folder}")
        assert [agent.poll() for agent in agents] == [0, 0], self.said()
        assert self.said().count("weight ") == 1, self.said()


@pytest.fixture
def torchrun(nodes: Nodes, train: Path) -> Torchrun:
    """For the script in its folder."""
    return Torchrun(nodes, train.parent)


@pytest.fixture
def job(autodist: Autodist, train: Path) -> list[str]:
    """The script that is run on each node."""
    done = autodist("manifest", "train_ddp.py", "--for", "torchrun", "--nodes", "2")
    assert done.exit_code == 0, done.output
    (train.parent / "job.sh").write_text(done.stdout)
    return ["bash", "job.sh", "node0"]


def test_meet_by_c10d_though_one_is_late(torchrun: Torchrun, job: list[str]) -> None:
    late = torchrun.start(1, ["sh", "-c", 'sleep 5; exec "$@"', "sh", *job])
    torchrun.succeed(torchrun.start(0, job), late)


def test_first_node_is_late(torchrun: Torchrun, job: list[str]) -> None:
    first = torchrun.start(0, ["sh", "-c", 'sleep 5; exec "$@"', "sh", *job])
    torchrun.succeed(first, torchrun.start(1, job))


def test_meet_by_a_static_address(torchrun: Torchrun) -> None:
    options = "--nnodes 2 --nproc-per-node 2 --master-addr node0 --master-port 29511".split()
    agents = [torchrun.start(node, ["torchrun", *options, "--node-rank", str(node), "train_ddp.py"]) for node in (0, 1)]
    torchrun.succeed(*agents)


def test_node_that_dies_comes_back(torchrun: Torchrun, job: list[str], nodes: Nodes, train: Path) -> None:
    folder = train.parent
    (folder / "wait").touch()
    first, second = (torchrun.start(node, job) for node in (0, 1))
    until(lambda: (folder / "last.pt").exists(), "the first checkpoint")
    time.sleep(1)
    nodes.kill(1)
    second.wait(SECONDS)
    (folder / "wait").unlink()
    torchrun.succeed(first, torchrun.start(1, job))
    starts = (folder / "started-node0").read_text().split()
    assert len(starts) == 2 and starts[0] == "0" and int(starts[1]) > 0, torchrun.said()
