"""Scripts that do what the command line tells them, training or evaluating, and what they unpack first."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import argparse
import shutil
import tarfile
import zipfile

import fire
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{before}

class Trainer:
    def __init__(self, model, batches, optimizer, device):
        self.model, self.batches, self.optimizer, self.device = model, batches, optimizer, device

    def train(self, get_loss, data_parallel=True):
        model = self.model.to(self.device)
        if data_parallel:
            model = nn.DataParallel(model)
        for epoch in range(2):
            for batch in self.batches:
                self.optimizer.zero_grad()
                loss = get_loss(model, [each.to(self.device) for each in batch])
                loss.backward()
                self.optimizer.step()

    def evaluate(self, right, data_parallel=True):
        model = self.model.to(self.device)
        if data_parallel:
            model = nn.DataParallel(model)
        with torch.no_grad():
            return [right(model, [each.to(self.device) for each in batch]) for batch in self.batches]


def main(mode="train", batch_size=16):
    torch.manual_seed(3)
    data = TensorDataset(torch.randn(64, 6), torch.arange(64) % 3)
    model = nn.Linear(6, 3)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trainer = Trainer(model, DataLoader(data, batch_size=batch_size, shuffle=True), optimizer, device)
    if mode == "train":
        trainer.train(lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]))
    elif mode == "evaluate":
        found = trainer.evaluate(lambda model, batch: (model(batch[0]).argmax(1) == batch[1]).float())
        print(torch.cat(found).mean().item())


if __name__ == "__main__":
    {start}
"""
PARSED = """parser = argparse.ArgumentParser()
    parser.add_argument("--mode", default="train")
    main(parser.parse_args().mode)"""


@pytest.mark.parametrize("start", ["fire.Fire(main)", PARSED])
def test_what_another_option_would_run_is_converted_as_well(tmp_path: Path, start: str) -> None:
    """A default is what the command line may leave as it is, and not what the function is given."""
    after, _ = converted(tmp_path, SCRIPT.format(before="", start=start))
    assert "print(reduce_mean(torch.cat(found).mean().item()))" in after


def test_wrappers_go_from_each_function_that_has_one(tmp_path: Path) -> None:
    """Only the place where the model is wrapped has its condition taken by that; DataParallel in another function would
    want the model on the first device."""
    after, _ = converted(tmp_path, SCRIPT.format(before="", start=PARSED))
    assert "DataParallel(" not in after and "if data_parallel" not in after
    assert after.count("model = DDP(model") == 1


@pytest.mark.parametrize(
    ("unpacked", "alone"),
    [
        ("archive = zipfile.ZipFile('a.zip')\narchive.extractall('a')\narchive.close()", "archive.extractall('a')"),
        ("with zipfile.ZipFile('a.zip') as f:\n    f.extractall('a')", ""),
        ("with tarfile.open('a.tar') as f:\n    for name in f:\n        f.extract(name)", ""),
        ("shutil.unpack_archive('a.zip', 'a')", ""),
    ],
)
def test_archives_are_unpacked_once(tmp_path: Path, unpacked: str, alone: str) -> None:
    """Ranks would read what another one is just writing anew."""
    after, _ = converted(tmp_path, SCRIPT.format(before=unpacked, start="main()"))
    once = 'if rank == dist.get_rank() and os.environ["LOCAL_RANK"] == "0":'
    inside = "".join(f"        {line}\n" for line in (alone or unpacked).splitlines())
    assert f"    {once}\n{inside}    dist.barrier()\n" in after


def test_what_is_unpacked_if_it_is_missing(tmp_path: Path) -> None:
    """Who comes second finds it there."""
    unpacked = (
        "import os\nif not os.path.exists('a'):\n    with zipfile.ZipFile('a.zip') as f:\n        f.extractall('a')"
    )
    after, _ = converted(tmp_path, SCRIPT.format(before=unpacked, start="main()"))
    inside = "".join(f"\n    {line}" for line in unpacked.partition("\n")[2].splitlines())
    assert f"with rank_zero_first():{inside}\n" in after
