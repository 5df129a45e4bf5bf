"""Whole checkpoints of sharded models; folders of shards: read by other numbers of ranks, and turned into a file for
the original."""

from __future__ import annotations

import ast
import copy
import shutil
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path

import pytest
from conftest import ROOT, SCRIPT, launched
from conftest import converted as conversion
from test_goldens import converted

from autodist.config import Strategy

BEFORE = ROOT / "fixtures" / "sharded_checkpoints" / "before"
WHOLE = """
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
dcp_to_torch_save("out/last.pt", "last.pt")
torch.save(train.unpacked(torch.load("last.pt", weights_only=False)), "last.pt")
"""


def run(folder: Path, code: str, nproc: int | None = None) -> str:
    """Run code beside the script, on some ranks or in one process."""
    (folder / "go.py").write_text(f"import torch, train\n{code}\n")
    return launched(folder, "go.py", nproc, PYTHONPATH=str(folder))


@pytest.mark.slow
def test_a_folder_of_shards_is_read_by_other_ranks_and_by_the_original(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    sharded, original = tmp_path / "sharded", tmp_path / "original"
    for folder in (sharded, original):
        folder.mkdir()
    options = {"sharded_checkpoints": True}
    for file in converted(BEFORE, "train.py", Strategy.FSDP, options).files:
        (sharded / file.source.path.name).write_bytes(file.source.encode(file.after))
    shutil.copy(BEFORE / "train.py", original)

    run(sharded, "train.setup_distributed(); train.session(2, False)", 2)
    assert len(list((sharded / "out" / "last.pt").glob("*.distcp"))) == 2
    assert "resumed at 2" in run(sharded, "train.setup_distributed(); train.session(3, True)", 4)
    assert "resumed at 3" in run(sharded, "train.setup_distributed(); train.session(4, True)")

    run(sharded, WHOLE)
    (original / "out").mkdir()
    shutil.copy(sharded / "last.pt", original / "out")
    state = torch.load(sharded / "last.pt")
    moments = [value["exp_avg"] for value in state["optimizer"]["state"].values()]
    assert list(state["optimizer"]["state"]) == list(range(len(moments))) and all(each.any() for each in moments)
    code = "torch.optim.Adam.step = lambda self: None\ntrain.session(5, True)"
    assert "resumed at 4" in run(original, code)
    again = torch.load(original / "out" / "last.pt")
    assert again["scheduler"]["milestones"] == state["scheduler"]["milestones"] == {1: 1, 3: 1}
    for key, value in state["model"].items():
        assert torch.equal(value, again["model"][key])
    for number, value in enumerate(moments):
        assert torch.equal(value, again["optimizer"]["state"][number]["exp_avg"])


@pytest.mark.parametrize(
    "state",
    [
        Counter({1: 1, 30: 2}),  # the milestones of MultiStepLR
        OrderedDict(weight=[1.0], groups=({"lr": 0.1}, None)),
        defaultdict(dict, {0: {"step": 1}}),
    ],
)
def test_gathering_keeps_what_is_no_shard(state: dict[object, object], tmp_path: Path) -> None:
    names: dict[str, object] = {"copy": copy, "DTensor": type("DTensor", (), {})}
    code, _ = conversion(
        tmp_path,
        SCRIPT.replace("torch.save(model.state_dict()", 'torch.save({"model": model.state_dict()}'),
        Strategy.FSDP,
    )
    for node in ast.parse(code).body:
        if isinstance(node, ast.FunctionDef) and node.name == "gather_shards":
            exec(ast.unparse(node), names)
    gather_shards = names["gather_shards"]
    assert callable(gather_shards)
    found = gather_shards(state)
    assert found == state and type(found) is type(state)


KEPT = """
class Averages:
    def __init__(self, parameters):
        self.shadow = [p.clone().detach() for p in parameters]

    def load_state_dict(self, state):
        self.shadow = state["shadow"]

    def copy_to(self, parameters):
        for s, p in zip(self.shadow, parameters):
            p.data.copy_(s.data)


averages = Averages(model.parameters())
"""


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (
            KEPT + "loaded = torch.load('a.pt', 'cpu')\naverages.load_state_dict(loaded['ema'])\n"
            "averages.copy_to(model.parameters())\n",
            'self.shadow = shards_like(state["shadow"], self.shadow)',
        ),
        (
            "with torch.no_grad():\n    for name, p in model.named_parameters():\n"
            "        p.copy_(torch.load('a.pt', 'cpu')[name])\n",
            "p.copy_(cut_like(torch.load('a.pt', 'cpu')[name], p))",
        ),
        (
            "own = model.state_dict()\nfor name, value in torch.load('a.pt', 'cpu').items():\n"
            "    own[name].copy_(value)\n",
            "own[name].copy_(cut_like(value, own[name]))",
        ),
        (  # whole ones in place of whole ones
            "averages = {'a': torch.zeros(3)}\naverages['a'] = torch.load('a.pt', 'cpu')['a']\n",
            "averages['a'] = torch.load('a.pt', 'cpu')['a']",
        ),
    ],
)
def test_tensors_of_a_file_meet_shards(tmp_path: Path, code: str, expected: str) -> None:
    """What a script keeps beside a model, and parameters that it fills by hand: both crashed."""
    assert expected in conversion(tmp_path, SCRIPT + code, Strategy.FSDP)[0]
