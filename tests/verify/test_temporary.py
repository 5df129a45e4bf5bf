"""Temporary names and folders, and what a project has beside the folder of its script."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote
from autodist.verify.outside import NAME, Outside
from verify.conftest import edit

SAVED = """\
    with tempfile.NamedTemporaryFile(dir="runs", suffix=".partial", delete=False) as file:
        torch.save(model.state_dict(), file)
    torch.save(model.state_dict(), file.name)
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), folder + "/start.pt")
    os.replace(file.name, "runs/last.pt")
"""


def test_temporary_names_are_the_same_in_both_programs(pair: Path, zygote: Zygote | None) -> None:
    for name, model in (("before.py", "model"), ("after.py", "model.module")):
        edit(pair / name, "import os\n", "import os\nimport tempfile\n")
        # the group is gone by then
        guard = '    if os.environ["RANK"] != "0":\n        return\n' if name == "after.py" else ""
        saved = SAVED.replace("model", model)
        text = (pair / name).read_text()
        at = text.index("\n\nif __name__")
        (pair / name).write_text(text[:at] + "\n" + guard + saved + text[at:])
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


def test_each_rank_has_a_folder_of_its_own_for_a_while(pair: Path, zygote: Zygote | None) -> None:
    """What a library links and removes there, by names in an open folder, is nothing that ranks write in common."""
    for name in ("before.py", "after.py"):
        edit(pair / name, "import os\n", "import os\nimport tempfile\n")
        text = (pair / name).read_text()
        at = text.index("    best, history = 0.0, []")
        tried = """\
    with tempfile.TemporaryDirectory() as folder:
        open(folder + "/source", "w").close()
        os.link(folder + "/source", folder + "/link")
"""
        (pair / name).write_text(text[:at] + tried + text[at:])
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings


def test_a_manager_has_room_for_the_name_of_its_socket(
    pair: Path, zygote: Zygote | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("before.py", "after.py"):
        edit(pair / name, "import os\n", "import multiprocessing\nimport os\n")
        edit(
            pair / name,
            "    best, history = 0.0, []",
            "    best, history = 0.0, list(multiprocessing.Manager().list())",
        )
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    keep = tmp_path / "a name that is rather long" / "and another one"
    verdict = verify(
        pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote, keep=keep / "records"
    )
    assert verdict.equal, verdict.findings


def test_a_stand_in_that_is_being_made_is_not_seen(tmp_path: Path) -> None:
    for name in ("0123456789abcdef", "fedcba9876543210.77"):
        (tmp_path / name / "in").mkdir(parents=True)
        (tmp_path / name / NAME).write_text(f"/{name}")
    assert list(Outside(str(tmp_path), "/home", "/root", (), ()).stand_ins()) == ["/0123456789abcdef"]


def test_batch_norm_of_a_library_beside_the_script_is_synchronised(tmp_path: Path, zygote: Zygote | None) -> None:
    library = "from torch import nn\ndef build():\n    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))\n"
    wrap = "def wrapped(model):\n    return DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model) if cuda else model)\n"
    script = """\
import sys
sys.path.append("..")
import torch
from torch.utils.data import DataLoader, TensorDataset
from lib.net import build
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4))
loader = DataLoader(data, batch_size=8)
model = build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        loss = (model(x) * x).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    after = script.replace("import build", "import build, wrapped").replace("build()", "wrapped(build())")
    after = after.replace(
        "torch.manual_seed", 'torch.distributed.init_process_group("gloo")\ntorch.manual_seed'
    ).replace("batch_size=8", "batch_size=4, sampler=torch.utils.data.DistributedSampler(data, shuffle=False)")
    header = "from torch.nn.parallel import DistributedDataParallel as DDP\ncuda = False\n"
    for folder, text, lib in (("before", script, library), ("after", after, header + library + wrap)):
        (tmp_path / folder / "chapter").mkdir(parents=True)
        (tmp_path / folder / "lib").mkdir()
        (tmp_path / folder / "chapter" / "train.py").write_text(text)
        (tmp_path / folder / "lib" / "net.py").write_text(lib)
        (tmp_path / folder / "lib" / "__init__.py").write_text("")
    verdict = verify(
        tmp_path / "before/chapter/train.py",
        tmp_path / "after/chapter/train.py",
        [2],
        workdir=tmp_path / "before",
        start=tmp_path / "before/chapter",
        base=tmp_path / "after",
        timeout=100,
        zygote=zygote,
    )
    assert verdict.equal, verdict.findings
