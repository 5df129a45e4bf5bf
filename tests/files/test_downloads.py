"""Files that each node fetches, unpacks or makes once: by rank 0 first, then by one rank of each other node, whose disk
may be its own or the one that all share; and no rank reads them before."""

from __future__ import annotations

import http.server
import io
import os
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import converted

HEAD = """\
import os
import pickle
import subprocess
import urllib.request
import zipfile

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SITE = os.environ.get("SITE", "http://localhost")
"""
BODY = """
data = TensorDataset(torch.as_tensor(x).float())
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    optimizer.zero_grad()
    (model(x) ** 2).mean().backward()
    optimizer.step()
"""
READS = 'x = np.load("x.npy")\n'
FIRST = "with rank_zero_first():\n"
ONCE = 'if rank == dist.get_rank() and os.environ["LOCAL_RANK"] == "0":\n'
FETCH = 'urllib.request.urlretrieve(SITE + "/x.npy", "x.npy")\n'
MAKE = "def build(path):\n    np.save(path, np.random.RandomState(0).rand(64, 4))\n\n\n"


def indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(f'if not os.path.exists("x.npy"):\n    {FETCH}', id="os.path.exists"),
        pytest.param(f'if len(os.listdir(".")) == 0:\n    {FETCH}', id="a folder that is empty"),
        pytest.param(f'if os.path.exists("x.npy"):\n    print("found")\nelse:\n    {FETCH}', id="else"),
        pytest.param(f'cached = os.path.isfile("x.npy")\nif not cached:\n    {FETCH}', id="looked for above"),
        pytest.param(f'try:\n    open("x.npy")\nexcept FileNotFoundError:\n    {FETCH}', id="not found"),
        pytest.param(f'try:\n    x = np.load("x.npy")\nexcept Exception:\n    {FETCH}', id="not loaded"),
        pytest.param('if not os.path.isfile("x.npy"):\n    build("x.npy")\n', id="made by a function"),
        pytest.param(
            'if not os.path.isfile("x.npy"):\n    np.random.rand(64, 4).tofile("x.npy")\n', id="made in place"
        ),
        pytest.param('if not os.path.exists("x.npy"):\n    os.system("wget " + SITE)\n', id="a command"),
    ],
)
def test_what_is_left_alone_where_it_is_in_place(tmp_path: Path, code: str) -> None:
    after, _ = converted(tmp_path, HEAD + MAKE + code + READS + BODY)
    assert FIRST + indented(code) in after.replace('np.load("x.npy", ', "np.load(")
    assert after.count(FIRST) == 1 and ONCE not in after


TIDIED = """\
def fetch(path):
    if os.path.exists(path):
        return
    urllib.request.urlretrieve(SITE + "/x.zip", "x.zip")
    zipfile.ZipFile("x.zip").extractall()
    os.remove("x.zip")


fetch("x.npy")
"""
READY = """\
def ready(root):
    return os.path.exists(os.path.join(root, "x.npy"))


if not ready("."):
    build("x.npy")
"""
LOADED = """\
def load(path):
    try:
        return np.load(path)
    except OSError:
        rows = np.random.RandomState(0).rand(64, 4)
        np.save(path, rows)
        return rows


x = load("x.npy")
"""
MAPPED = """\
if not os.path.exists("x.bin"):
    rows = np.memmap("x.bin", dtype=np.float32, mode="w+", shape=(64, 4))
    rows[:] = 1.0
    rows.flush()
x = np.memmap("x.bin", dtype=np.float32, mode="r", shape=(64, 4))
"""
TOKENS = """\
from datasets import load_dataset

texts = load_dataset("imdb", split="train")
tokens = texts.map(lambda row: {"n": len(row["text"])})
"""


@pytest.mark.parametrize(
    ("code", "first"),
    [
        (TIDIED, 'fetch("x.npy")\n'),
        (READY, 'if not ready("."):\n    build("x.npy")\n'),
        (LOADED, 'x = load("x.npy")\n'),
        (MAPPED, MAPPED[: MAPPED.index("x = ")]),
        (TOKENS, TOKENS[TOKENS.index("texts") :]),
    ],
    ids=[
        "a function returns",
        "a function looks for it",
        "a function finds nothing",
        "np.memmap",
        "a data set of Hugging Face",
    ],
)
def test_what_functions_and_libraries_keep_on_disk(tmp_path: Path, code: str, first: str) -> None:
    after, _ = converted(tmp_path, HEAD + MAKE + code + ("" if "x = " in code else READS) + BODY)
    assert FIRST + indented(first) in after
    assert after.count(FIRST) == 1 and ONCE not in after


UNZIPPED = 'with zipfile.ZipFile("x.zip") as archive:\n    archive.extractall()\n'
FETCHED = 'urllib.request.urlretrieve(SITE + "/x.zip", "x.zip")\n'


@pytest.mark.parametrize(
    ("code", "alone"),
    [
        (FETCH, FETCH),
        (FETCHED + UNZIPPED, FETCHED + UNZIPPED),
        ('build("x.npy")\n', 'build("x.npy")\n'),
        ('subprocess.run(["wget", "-q", SITE + "/x.npy"], check=True)\n',) * 2,
        (f"def fetch():\n{indented(FETCH)}    return SITE\n\n\nprint(fetch())\n", FETCH),
    ],
    ids=["fetched", "and unpacked", "made", "a command", "in a function that answers"],
)
def test_what_is_put_there_again(tmp_path: Path, code: str, alone: str) -> None:
    """By one rank of each node, whose disk may be its own; by one after the other, as it may not."""
    after, _ = converted(tmp_path, HEAD + MAKE + code + READS + BODY)
    depth = "    " if "def fetch" in code else ""
    turns = "for rank in range(dist.get_world_size()):  # one rank of each node, which may have a disk of its own\n"
    expected = f"{turns}    {ONCE}{indented(indented(alone))}    dist.barrier()\n"
    assert "".join(f"{depth}{line}\n" for line in expected.splitlines()) in after
    assert FIRST not in after


@pytest.mark.parametrize(
    ("code", "waits"),
    [
        ("path, _ = urllib.request.urlretrieve(SITE, 'x.npy')\nx = np.load(path)\n", True),
        ("got = urllib.request.urlretrieve(SITE, 'x.npy')\nx = np.load(got[0])\n", True),
        (
            "def fetch():\n    path = urllib.request.urlretrieve(SITE, 'x.npy')[0]\n    return path\n\n\n"
            "x = np.load(fetch())\n",
            True,
        ),
        (
            "from torchvision import datasets\n\nx = np.stack([im for im, _ in "
            "datasets.VOCSegmentation('data', download=True)])\n",
            True,
        ),
        ("from torchvision.datasets import MNIST\n\nx = MNIST('data', download=True).data.view(-1, 4)\n", False),
        (
            "if not os.path.exists('x.npy'):\n    path, _ = urllib.request.urlretrieve(SITE, 'x.npy')\n"
            "x = np.load('x.npy')\n",
            False,
        ),
    ],
)
def test_who_reads_waits_for_who_fetches_anew(tmp_path: Path, code: str, waits: bool) -> None:
    """What a call gives all ranks need, so that each fetches; where that writes files anew, the last one is waited
    for."""
    after = converted(tmp_path, HEAD + code + BODY)[0]
    waiting = "dist.barrier()  # wait until the last rank has written the files anew\n"
    assert "with rank_zero_first():" in after and (waiting in after) is waits


def test_ranks_do_not_wait_where_they_wait_already(tmp_path: Path) -> None:
    """What is fetched where it is missing, and unpacked whatever is there, in a function that answers."""
    missing = f"if not os.path.exists(path):\n    {FETCHED}"
    code = f"def fetch(path):\n{indented(missing + UNZIPPED)}    return path\n\n\n"
    after, _ = converted(tmp_path, HEAD + code + 'print(fetch("x.zip"))\n' + READS + BODY)
    assert f"    {FIRST}        if not os.path.exists(path):\n" in after
    assert indented(indented(indented(UNZIPPED))) in after and after.count(ONCE) == 1
    assert '\nprint(fetch("x.zip"))\n' in after


@pytest.mark.parametrize(
    "code",
    [
        'from torchvision import datasets\nrows = datasets.MNIST("data", download=False)\n',
        'from torchvision import datasets\nrows = datasets.MNIST("data")\n',
        'from torchvision import datasets\nrows = datasets.ImageFolder("data")\n',
        'net = torch.hub.load("hub", "tiny", source="local", pretrained=False)\n',
        'from datasets import load_dataset\nrows = load_dataset("csv", data_files="x.csv")\n',
        'from datasets import load_from_disk\nrows = load_from_disk("rows")\n',
        'from transformers import AutoTokenizer\ntokenizer = AutoTokenizer.from_pretrained("./tokenizer")\n',
        "from sklearn.datasets import load_iris\nrows = load_iris()\n",
        'def load_data(path):\n    return np.load(path)\n\n\nrows = load_data("x.npy")\n',
        'def download(path):\n    return pickle.load(open(path, "rb"))\n\n\nrows = download("x")\n',
    ],
)
def test_what_only_reads_is_read_at_once(tmp_path: Path, code: str) -> None:
    after, _ = converted(tmp_path, HEAD + code + READS + BODY)
    assert "barrier" not in after


def test_what_trains_is_not_waited_for(tmp_path: Path) -> None:
    """All ranks have to come to a step at once."""
    code = "".join(f"    {line}\n" if line else "\n" for line in BODY.splitlines())
    after, _ = converted(tmp_path, HEAD + READS + f'if not os.path.exists("last.pt"):\n    build("a.npy")\n{code}')
    assert FIRST not in after


class Site(http.server.ThreadingHTTPServer):
    """Serves what is asked for, slowly, and counts how often it was."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files, self.asked = files, Counter[str]()
        super().__init__(("127.0.0.1", 0), Answer)


class Answer(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        """Send it in two parts."""
        self.server.asked[self.path] += 1
        content = self.server.files[self.path.rpartition("/")[2]]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        for part in (content[: len(content) // 2], content[len(content) // 2 :]):
            self.wfile.write(part)
            self.wfile.flush()
            time.sleep(0.3)

    def log_message(self, *args: object) -> None:
        """Nobody wants to know."""


@pytest.fixture
def site() -> Iterator[Site]:
    import numpy as np

    array, archive = io.BytesIO(), io.BytesIO()
    np.save(array, np.random.rand(64, 4))
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("x.npy", array.getvalue())
    with Site({"x.npy": array.getvalue(), "x.zip": archive.getvalue()}) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def on_two_nodes(script: Path, site: Site, disks: list[Path]) -> None:
    """Run a script on four ranks, two on each of two nodes with these disks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(4):
        node = rank // 2
        told = {"RANK": rank, "LOCAL_RANK": rank % 2, "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": node}
        env = {**os.environ, **{name: str(value) for name, value in told.items()}, "OMP_NUM_THREADS": "1"}
        env |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        env |= {"SITE": f"http://127.0.0.1:{site.server_port}/{node}", "GLOO_SOCKET_IFNAME": "lo"}
        command = [sys.executable, str(script)]
        ranks.append(subprocess.Popen(command, cwd=disks[node], env=env, stderr=subprocess.PIPE, text=True))
    try:
        for each in ranks:
            _, errors = each.communicate(timeout=120)
            assert each.returncode == 0, errors
    finally:
        for each in ranks:
            each.kill()


@pytest.mark.parametrize("shared", [False, True], ids=["a disk for each node", "one disk"])
@pytest.mark.parametrize(
    ("code", "again"), [(f'if not os.path.exists("x.npy"):\n    {FETCH}', False), (FETCHED + UNZIPPED, True)]
)
def test_each_disk_is_filled_before_anybody_reads(
    tmp_path: Path, site: Site, code: str, again: bool, shared: bool
) -> None:
    pytest.importorskip("torch")
    after, _ = converted(tmp_path, HEAD + code + READS + BODY)
    script = tmp_path / "train_ddp.py"
    script.write_text(after)
    disks = [tmp_path / "disk0", tmp_path / ("disk0" if shared else "disk1")]
    for disk in disks:
        disk.mkdir(exist_ok=True)
    on_two_nodes(script, site, disks)
    name = "x.zip" if again else "x.npy"
    assert site.asked == {f"/0/{name}": 1} | ({} if shared and not again else {f"/1/{name}": 1})
