"""The keys in checkpoints of a script that trains in `nn.DataParallel`: those that its other programs know."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.config import Strategy

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


@pytest.mark.parametrize(
    ("test", "certain"),
    [
        ("not isinstance(model, nn.DataParallel)", True),
        ("not isinstance(model, torch.nn.DataParallel)", True),
        ("not isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel))", True),
        ("torch.cuda.device_count() > 1", False),
        ("not isinstance(model, nn.Sequential)", False),
        ("os.environ.get('PARALLEL')", False),
    ],
)
def test_a_wrapper_that_the_script_asks_for_first(tmp_path: Path, test: str, certain: bool) -> None:
    """Where there is a wrapper on any machine, the keys of files change, and that is said."""
    wrapped = "model = nn.Linear(4, 1)\n" + ASKED.format(test=test)
    script = SCRIPT.replace("model = nn.DataParallel(nn.Linear(4, 1))", wrapped)
    script = script.format(resume="", save='torch.save(model.state_dict(), "m.pt")')
    _, said = converted(tmp_path, script)
    assert ("have the keys of this wrapper (module.…)" in said) is certain
