"""The keys in checkpoints of a script that trains in `nn.DataParallel`: those that its other programs know."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.config import Strategy
from autodist.verify.launch import Zygote

SCRIPT = """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=16, shuffle=True)
model = nn.DataParallel(nn.Linear(4, 1))
{resume}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
{save}
"""
PREFIXED = 'model.state_dict(prefix="module.")'

SAVES = {
    "state": ('torch.save(model.state_dict(), "m.pt")', f'save_gathered({PREFIXED}, "m.pt")'),
    "entry": ('torch.save({"model": model.state_dict()}, "m.pt")', f'save_gathered({{"model": {PREFIXED}}}, "m.pt")'),
    "copy": (
        'best = {k: v.cpu() for k, v in model.state_dict().items()}\ntorch.save(best, "m.pt")',
        f"for k, v in {PREFIXED}.items()",
    ),
    "prefix taken off": (
        'torch.save({k[7:]: v for k, v in model.state_dict().items()}, "m.pt")',
        f"k[7:]: v for k, v in {PREFIXED}.items()",
    ),
    "inside": ('torch.save(model.module.state_dict(), "m.pt")', 'save_gathered(model.state_dict(), "m.pt")'),
    "inside if there": (
        'torch.save(getattr(model, "module", model).state_dict(), "m.pt")',
        'getattr(model, "module", model).state_dict()',
    ),
    "inside if wrapped": (
        'raw = model.module if isinstance(model, nn.DataParallel) else model\ntorch.save(raw.state_dict(), "m.pt")',
        'save_gathered(raw, "m.pt")',
    ),
    "inside if it has": (
        'raw = model.module if hasattr(model, "module") else model\ntorch.save(raw.state_dict(), "m.pt")',
        'save_gathered(raw, "m.pt")',
    ),
    "both kinds": (
        'torch.save(model.state_dict(), "m.pt")\ntorch.save(model.module.state_dict(), "bare.pt")',
        'save_gathered(model.state_dict(), "bare.pt")',
    ),
}


@pytest.mark.parametrize(("save", "sharded"), SAVES.values(), ids=SAVES.keys())
def test_files_keep_their_keys(tmp_path: Path, save: str, sharded: str) -> None:
    """DistributedDataParallel gives those of DataParallel; shards have no wrapper, and are told the prefix."""
    script = SCRIPT.format(resume="", save=save)
    after, said = converted(tmp_path, script)
    for line in save.splitlines():
        assert line.replace("isinstance(model, nn.DataParallel)", "isinstance(model, (nn.DataParallel, DDP))") in after
    assert "AD9" not in said
    after, said = converted(tmp_path, script, Strategy.FSDP)
    assert sharded in after and "AD9" not in said


LOADS = {
    "ahead of the shards": (
        'if os.path.exists("m.pt"):\n    model.load_state_dict(torch.load("m.pt", map_location="cpu"))',
        'model.load_state_dict({key.removeprefix("module."): value for key, value in torch.load(',
    ),
    "an entry": (
        'state = torch.load("m.pt", map_location="cpu")\nmodel.load_state_dict(state["model"])',
        'model.load_state_dict({key.removeprefix("module."): value for key, value in state["model"].items()})',
    ),
    "inside": (
        'model.module.load_state_dict(torch.load("m.pt", map_location="cpu"))',
        'model.load_state_dict(torch.load("m.pt", map_location="cpu"))',
    ),
}


@pytest.mark.parametrize(("resume", "sharded"), LOADS.values(), ids=LOADS.keys())
def test_files_of_the_script_are_loaded(tmp_path: Path, resume: str, sharded: str) -> None:
    script = SCRIPT.format(resume=resume, save='torch.save(model.state_dict(), "m.pt")')
    assert resume.splitlines()[-1] in converted(tmp_path, script)[0]
    after, said = converted(tmp_path, script, Strategy.FSDP)
    assert sharded in after and "AD907" not in said


def test_shards_that_load_a_state_later(tmp_path: Path) -> None:
    script = SCRIPT.format(resume="", save='model.load_state_dict(torch.load("m.pt", map_location="cpu"))')
    after, _ = converted(tmp_path, script, Strategy.FSDP)
    assert 'model_shards({key.removeprefix("module."): value for key, value in torch.load(' in after


ASKED = "if {test}:\n    model = nn.DataParallel(model)"


GIVING = [
    "not isinstance(model, nn.DataParallel)",
    "not isinstance(model, torch.nn.DataParallel)",
    "not isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel))",
    "isinstance(model, nn.DataParallel) is False",
]


def asking(test: str, resume: str = "") -> str:
    """A script that wraps its model under a condition."""
    wrapped = "model = nn.Linear(4, 1)\n" + ASKED.format(test=test)
    script = SCRIPT.replace("model = nn.DataParallel(nn.Linear(4, 1))", wrapped)
    return script.format(resume=resume, save='torch.save(model.state_dict(), "m.pt")')


@pytest.mark.parametrize("test", GIVING)
def test_a_model_that_is_given_a_wrapper_keeps_its_keys(test: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = asking(test)
    code, said = converted(tmp_path, text)
    assert "    model = DDP(model, gradient_as_bucket_view=True)\n" in code and "keys of this wrapper" not in said
    assert differences(tmp_path, zygote, text) is None
    assert f'save_gathered({PREFIXED}, "m.pt")' in converted(tmp_path, text, Strategy.FSDP)[0]


@pytest.mark.parametrize("strategy", [Strategy.DDP, Strategy.FSDP])
def test_such_files_are_loaded(strategy: Strategy, tmp_path: Path) -> None:
    code, said = converted(tmp_path, asking(GIVING[0], LOADS["ahead of the shards"][0]), strategy)
    assert ("DDP(model" if strategy is Strategy.DDP else LOADS["ahead of the shards"][1]) in code
    assert "AD9" not in said


@pytest.mark.parametrize(
    "made",
    [
        "def parallel(model):\n    if not isinstance(model, nn.DataParallel):\n        model = nn.DataParallel(model)\n"
        "    return model\n\n\nmodel = parallel(nn.Linear(4, 1))",
        "class Held:\n    def __init__(self, model):\n        self.model = model\n"
        "        if not isinstance(self.model, nn.DataParallel):\n"
        "            self.model = nn.DataParallel(self.model)\n\n\nmodel = Held(nn.Linear(4, 1)).model",
    ],
)
def test_a_wrapper_given_by_functions_and_objects(made: str, tmp_path: Path, zygote: Zygote | None) -> None:
    script = SCRIPT.replace("model = nn.DataParallel(nn.Linear(4, 1))", made)
    text = script.format(resume="", save='torch.save(model.state_dict(), "m.pt")')
    assert "model, DDP):" in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize(
    "test", ["torch.cuda.device_count() > 1", "not isinstance(model, nn.Sequential)", "os.environ.get('PARALLEL')"]
)
def test_a_wrapper_that_the_machine_decides_on_goes(tmp_path: Path, test: str) -> None:
    code, said = converted(tmp_path, asking(test))
    assert "keys of this wrapper" not in said
    assert "module.state_dict()" in code
