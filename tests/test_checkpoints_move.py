"""Checkpoints move freely between a script and its conversions, in all six directions, with the optimizer's state."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from conftest import ROOT, launched
from test_goldens import converted

from autodist.config import Strategy

CASE = ROOT / "fixtures" / "resume_checkpoint" / "before"
KINDS = ("original", "ddp", "fsdp")
EPOCHS = 2


def train(folder: Path, kind: str, epochs: int, still: bool = False) -> None:
    """Train up to ``epochs`` in ``folder``, from its last checkpoint on; a conversion on two ranks.

    ``still`` takes no optimizer steps, so that what was loaded is what is saved.
    """
    lines = [
        "import torch, train",
        "from argparse import Namespace",
        "torch.optim.SGD.step = lambda self: None" if still else "",
        "" if kind == "original" else "train.setup_distributed()",
        f"train.session(Namespace(bs=48, lr=0.05, seed=1, out='.', resume=True), {epochs})",
    ]
    (folder / "go.py").write_text("\n".join(lines))
    launched(folder, "go.py", None if kind == "original" else 2, PYTHONPATH=str(folder))


def script(folder: Path, kind: str) -> Path:
    """A folder with one version of the script."""
    folder.mkdir()
    if kind == "original":
        shutil.copy(CASE / "train.py", folder)
    else:
        for file in converted(CASE, "train.py", Strategy(kind)).files:
            (folder / file.source.path.name).write_bytes(file.source.encode(file.after))
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint of each version."""
    pytest.importorskip("torch")
    found = {}
    for kind in KINDS:
        folder = script(tmp_path_factory.mktemp(kind) / "run", kind)
        train(folder, kind, EPOCHS)
        found[kind] = folder / f"ckpt_{EPOCHS:03}.pt"
    return found


@pytest.mark.slow
def test_checkpoints_are_alike(written: dict[str, Path]) -> None:
    import torch

    shapes = {kind: shape(torch.load(path)) for kind, path in written.items()}
    assert shapes["original"] == shapes["ddp"] == shapes["fsdp"]


def shape(state: object) -> object:
    """Keys, types and sizes of a checkpoint."""
    import torch

    if isinstance(state, dict):
        return {key: shape(value) for key, value in state.items()}
    if isinstance(state, list):
        return [shape(value) for value in state]
    return (state.shape, state.dtype, type(state)) if torch.is_tensor(state) else type(state)


@pytest.mark.slow
@pytest.mark.parametrize(("writer", "reader"), [(w, r) for w in KINDS for r in KINDS if w != r])
def test_training_goes_on_from_any_checkpoint(
    writer: str, reader: str, written: dict[str, Path], tmp_path: Path
) -> None:
    """What is loaded, model and optimizer, is what the reader saves again; then it trains on."""
    import torch

    folder = script(tmp_path / "run", reader)
    shutil.copy(written[writer], folder)
    train(folder, reader, EPOCHS + 1, still=True)
    before, after = torch.load(written[writer]), torch.load(folder / f"ckpt_{EPOCHS + 1:03}.pt")
    assert shape(before) == shape(after)
    assert after["epoch"] == EPOCHS + 1
    for key, value in before["model"].items():
        assert torch.equal(value, after["model"][key]), key
    for number, values in before["optimizer"]["state"].items():
        momentum = values["momentum_buffer"]
        assert momentum.any() and torch.equal(momentum, after["optimizer"]["state"][number]["momentum_buffer"])
    train(folder, reader, EPOCHS + 2)
    trained = torch.load(folder / f"ckpt_{EPOCHS + 2:03}.pt")
    assert not any(torch.equal(value, trained["model"][key]) for key, value in after["model"].items())
