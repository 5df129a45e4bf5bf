"""What an evaluation that is shared out gives is what one process gives, whatever its loop leaves."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import launched
from shared_programs import MEAN_OF_BATCHES, METER, converted_shared, script

from autodist.config import Config, Evaluation, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.verify import verify
from autodist.verify.launch import Zygote

LISTS = """\
def evaluate(model, loader):
    model.eval()
    losses, scores, labels = [], [], []
    for x, y in loader:
        with torch.no_grad():
            out = model(x)
        losses.append(F.cross_entropy(out, y).item())
        scores.append(out.softmax(1))
        labels += y.tolist()
    guesses = torch.cat(scores).argmax(1).tolist()
    with open(f"guesses.txt", "w") as file:
        file.write(" ".join(map(str, guesses)))
    print(labels, guesses, torch.cat(scores)[:, 0].sort().values[:3])
    return sum(losses) / len(losses)
"""
COUNTS = """\
def evaluate(model, loader):
    model.eval()
    confusion = torch.zeros(3, 3)
    hits, per_class = [0] * 3, {name: 0 for name in "abc"}
    batches, worst, seen, total = 0, 0.0, 0, 0.0
    with torch.no_grad():
        for i, (x, y) in enumerate(loader):
            guess = model(x).argmax(1)
            confusion += torch.bincount(y * 3 + guess, minlength=9).view(3, 3)
            for a, b in zip(y.tolist(), guess.tolist()):
                hits[a] += a == b
                per_class["abc"[b]] += 1
            loss = F.cross_entropy(model(x), y).item()
            worst = max(worst, loss)
            total += loss * len(x)
            seen += len(x)
            batches += 1
    print(confusion, hits, per_class, batches, worst)
    return total / seen
"""
DIVIDED_BEHIND = """\
def evaluate(model, loader):
    model.eval()
    total, correct, matrix = 0, 0, torch.zeros(3, 3)
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            total += F.cross_entropy(out, y, reduction="sum").item()
            guess = out.argmax(dim=1, keepdim=True)
            correct += guess.eq(y.view_as(guess)).sum().item()
            matrix += torch.bincount(y * 3 + out.argmax(1), minlength=9).view(3, 3)
    total /= len(loader.dataset)
    matrix /= matrix.sum()
    correct *= 100.0
    correct /= len(loader.dataset)
    print(correct, matrix)
    return total
"""
STATISTICS_OF_BATCHES = """\
@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    total, largest = 0.0, float("-inf")
    for x, y in loader:
        z = (x - x.mean(0)) / (x.std(0) + 1)
        out = model(z)
        total += F.cross_entropy(out, y).item() * (out.max() - out.min()).item()
        largest = max(largest, out.max().item())
    print(largest)
    return total / len(loader)
"""
IN_A_CLASS = """\
class Evaluation:
    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def run(self, loader):
        self.model.eval()
        self.right = 0
        losses = torch.zeros(1)
        for x, y in loader:
            out = self.model(x)
            if out.sum() > 0:
                self.right += (out.argmax(1) == y).sum().item()
            losses = losses + F.cross_entropy(out, y, reduction="sum")
        return losses.item() / len(loader.dataset)


def evaluate(model, loader):
    evaluation = Evaluation(model)
    loss = evaluation.run(loader)
    print(evaluation.right, loss)
    return loss
"""
DIVIDED_IN_A_CLASS = IN_A_CLASS.replace(
    "        return losses.item()", "        self.right /= 10\n        return losses.item()"
)
IN_LISTS = """\
@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    losses = [F.cross_entropy(model(x), y).item() for x, y in loader]
    print(torch.cat([model(x).argmax(1) for x, _ in loader]), losses)
    return sum(F.cross_entropy(model(x), y) for x, y in loader).item() / len(losses)
"""
METERS = """\
def evaluate(model, loader):
    losses, top1 = AverageMeter(), AverageMeter()
    hits = {"right": AverageMeter()}
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            losses.update(F.cross_entropy(out, y).item(), x.size(0))
            top1.update((out.argmax(1) == y).float().mean().item() * 100, x.size(0))
            hits["right"].update((out.argmax(1) == y).sum().item())
    print(f"{losses.avg} {top1.avg:.3f}", "{m.sum:.1f} {m.avg:.3f}".format(m=hits["right"]))
    return losses.avg
"""
RESET = """\
losses = AverageMeter()

def evaluate(model, loader):
    losses.reset()
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            losses.update(F.cross_entropy(model(x), y).item(), x.size(0))
    return losses.avg
"""
KEPT_IN_AN_OBJECT = """\
class Scores:
    def __init__(self):
        self.scores, self.labels, self.best = [], [], 0.0
        self.matrix = torch.zeros(3, 3)

    def add(self, out, y):
        self.scores.append(out.softmax(1))
        self.labels += y.tolist()
        self.matrix += torch.bincount(y * 3 + out.argmax(1), minlength=9).view(3, 3)
        self.best = max(self.best, out.max().item())

    @property
    def accuracy(self):
        return self.matrix.trace() / self.matrix.sum()


def evaluate(model, loader):
    scores = Scores()
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            scores.add(out, y)
            total += F.cross_entropy(out, y).item()
    print(scores.accuracy, scores.best, torch.cat(scores.scores).sum(0), scores.labels)
    return total / len(loader)
"""
DICTS = """\
def evaluate(model, loader):
    model.eval()
    kept, sums, found = {"scores": [], "seen": 0}, defaultdict(float), {}
    rows, outputs = [], []
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            kept["scores"].append(out.softmax(1))
            kept["seen"] += len(y)
            sums["loss"] += F.cross_entropy(out, y).item()
            sums[f"first {y[0].item()}"] += 1
            for score, label in zip(out, y):
                rows.append((score.max().item(), int(label)))
            outputs.append({"loss": F.cross_entropy(out, y), "right": (out.argmax(1) == y).float().mean()})
    print(torch.cat(kept["scores"])[:, 0], kept["seen"], sorted(sums.items()), rows)
    print(torch.stack([each["right"] for each in outputs]).mean())
    return sums["loss"] / len(loader)
"""
LAID_INTO_ARRAYS = """
import numpy as np

class Masked(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        self.samples = data(n, seed)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        x, y = self.samples[i]
        mask = np.zeros(4, dtype=np.float32)
        for value in (-1, 0, 1):
            mask[(x > value).numpy()] = value
        return x + torch.from_numpy(mask), y
"""
CASES = {
    "samples are laid into arrays": script(MEAN_OF_BATCHES, imports=LAID_INTO_ARRAYS).replace(
        "DataLoader(data(", "DataLoader(Masked("
    ),
    "meters": script(METERS, helpers=METER),
    "meters, some ranks have none": script(METERS, samples=7, helpers=METER),
    "a meter that is reset": script(RESET, helpers=METER),
    "kept in an object": script(KEPT_IN_AN_OBJECT),
    "kept in an object, some ranks have none": script(KEPT_IN_AN_OBJECT, samples=7),
    "dicts": script(DICTS, imports="from collections import defaultdict"),
    "dicts, some ranks have none": script(DICTS, samples=7, imports="from collections import defaultdict"),
    "shuffled": script(MEAN_OF_BATCHES, options=", shuffle=True"),
    "shuffled, the last batch is dropped": script(MEAN_OF_BATCHES, options=", shuffle=True, drop_last=True"),
    "samples that are drawn": script(
        MEAN_OF_BATCHES, options=", sampler=torch.utils.data.SubsetRandomSampler(range(30)), num_workers=1"
    ),
    "workers that stay": script(MEAN_OF_BATCHES, options=", num_workers=1, persistent_workers=True"),
    "statistics of batches in training": script(MEAN_OF_BATCHES).replace("nn.ReLU()", "nn.BatchNorm1d(8), nn.ReLU()"),
    "mean of batches": script(MEAN_OF_BATCHES),
    "fewer batches than ranks": script(MEAN_OF_BATCHES, samples=5),
    "batches that divide": script(MEAN_OF_BATCHES, samples=48),
    "the last batch is dropped": script(MEAN_OF_BATCHES, options=", drop_last=True"),
    "its own collation": script(
        MEAN_OF_BATCHES,
        options=", collate_fn=stacked, num_workers=1",
        imports="""

def stacked(samples):
    xs, ys = zip(*samples)
    return torch.stack(xs) / len(xs), torch.stack(ys)

""",
    ),
    "lists": script(LISTS),
    "lists, some ranks have none": script(LISTS, samples=7),
    "counts": script(COUNTS),
    "counts, some ranks have none": script(COUNTS, samples=7),
    "divided behind the loop": script(DIVIDED_BEHIND),
    "divided behind the loop, some ranks have none": script(DIVIDED_BEHIND, samples=7),
    "divided in a class": script(DIVIDED_IN_A_CLASS),
    "statistics of batches": script(STATISTICS_OF_BATCHES),
    "in a class": script(IN_A_CLASS),
    "in lists": script(IN_LISTS),
    "in lists, some ranks have none": script(IN_LISTS, samples=7),
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_evaluations_that_are_shared_out_are_exact(text: str, tmp_path: Path, zygote: Zygote | None) -> None:
    after, said = converted_shared(tmp_path, text)
    assert {*said} == {"every rank would evaluate all of the data"}
    assert "in own_share(loader)" in after or "(own_share(loader))" in after
    assert "model.module(" in after
    (tmp_path / "after.py").write_text(after)
    for ranks in (2, 3):
        verdict = verify(
            tmp_path / "train.py", tmp_path / "after.py", [ranks], device="cpu", workdir=tmp_path, zygote=zygote
        )
        world = verdict.worlds[0]
        assert world.equal, (ranks, world.reason, world.findings)


def converted_as(folder: Path, text: str, evaluation: Evaluation) -> str:
    (folder / "train.py").write_text(text)
    return convert(Project.load(folder / "train.py"), Config(Strategy.DDP, evaluation=evaluation)).entry.after


def test_a_share_that_is_wrong_is_seen(tmp_path: Path, zygote: Zygote | None) -> None:
    after, _ = converted_shared(tmp_path, script(MEAN_OF_BATCHES))
    for right, wrong in (("[first:last]", "[first : last - 1]"), ("sum(others, first)", "first")):
        assert right in after
        (tmp_path / "after.py").write_text(after.replace(right, wrong))
        verdict = verify(
            tmp_path / "train.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote
        )
        assert not verdict.worlds[0].equal


def test_what_is_on_gpus_comes_to_those_of_each_rank() -> None:
    """As the ranks of two GPUs would have it, of which none is here."""

    @dataclass(frozen=True)
    class Tensor:
        device: str

        @property
        def is_cuda(self) -> bool:
            return self.device.startswith("cuda")

        def cpu(self) -> Tensor:
            return Tensor("cpu")

        def cuda(self) -> Tensor:
            return Tensor("cuda:0")

    class Group:
        def get_world_size(self) -> int:
            return 2

        def all_gather_object(self, parts: list[object], own: object) -> None:
            assert "cuda" not in repr(own)
            parts[:] = [own, own]

    written = importlib.import_module("autodist.rules._collectives").TENSORS_FROM_ALL_RANKS
    names: dict[str, Any] = {"dist": Group(), "is_tensor": lambda value: isinstance(value, Tensor)}
    exec(written.replace("{d}", "dist").replace("{torch}.is_tensor", "is_tensor"), names)
    own = ([Tensor("cuda:1"), (3, Tensor("cpu"))], {"a": [Tensor("cuda:1")]}, 4.0, "text")
    here = ([Tensor("cuda:0"), (3, Tensor("cpu"))], {"a": [Tensor("cuda:0")]}, 4.0, "text")
    assert names["from_all_ranks"](own) == [here, here]


def test_a_conversion_is_the_same_each_time(tmp_path: Path) -> None:
    texts = {
        converted_as(tmp_path, CASES["meters"] + "#" * number, Evaluation.SHARED).rstrip("#") for number in range(3)
    }
    assert len(texts) == 1


def test_all_ranks_evaluate_by_the_statistics_of_rank_0(tmp_path: Path) -> None:
    """On a CPU no BatchNorm is synchronised, and DistributedDataParallel has sent none where its module is called."""
    text = script(MEAN_OF_BATCHES).replace("nn.ReLU()", "nn.BatchNorm1d(8), nn.ReLU()")
    after, _ = converted_shared(tmp_path, text)
    assert "    same_buffers(model)\n    for x, y in own_share(loader):" in after
    whole = converted_as(tmp_path, text, Evaluation.WHOLE)
    told = "import json\njson.dump(float(best), open(f'best{dist.get_rank()}.json', 'w'))\n"
    found = []
    for name, code in (("shared", after), ("whole", whole)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "after.py").write_text(f"{code}{told}")
        launched(tmp_path / name, "after.py", 2)
        found += [json.loads((tmp_path / name / f"best{rank}.json").read_text()) for rank in range(2)]
    assert found == pytest.approx([found[-1]] * 4, abs=1e-6)


PICTURES = """
from PIL import Image
from torch.utils.data import Dataset

class Pictures(Dataset):
    def __len__(self):
        return len(names)

    def __getitem__(self, i):
        return torch.tensor(Image.open(names[i]).getdata()[:4]) / 255, i % 3

names = sorted(__import__("os").listdir("pictures"))
"""
SIZES = {
    "few samples": (script(MEAN_OF_BATCHES), False),
    "many samples": (script(MEAN_OF_BATCHES, samples=10_000), True),
    "pictures": (
        script(MEAN_OF_BATCHES, imports=PICTURES).replace("DataLoader(data(37, 1)", "DataLoader(Pictures()"),
        True,
    ),
    "stored by a library": (
        script(MEAN_OF_BATCHES, imports="from torchvision.datasets import CIFAR10").replace(
            "DataLoader(data(37, 1)", 'DataLoader(CIFAR10("data", train=False)'
        ),
        True,
    ),
    "pictures of a library, transformed": (
        script(MEAN_OF_BATCHES, imports="from torchvision import datasets, transforms").replace(
            "DataLoader(data(37, 1)", 'DataLoader(datasets.MNIST("data", train=False, transform=transforms.ToTensor())'
        ),
        True,
    ),
    "a table": (
        script(MEAN_OF_BATCHES, imports="import pandas as pd").replace(
            "x = torch.randn(n, 4, generator=g)", 'x = torch.tensor(pd.read_csv("table.csv").values)'
        ),
        False,
    ),
}


@pytest.mark.parametrize(("text", "shares"), SIZES.values(), ids=SIZES)
def test_by_default_evaluations_are_shared_out_that_are_worth_it(text: str, shares: bool, tmp_path: Path) -> None:
    after = converted_as(tmp_path, text, Evaluation.AUTO)
    assert ("in own_share(loader)" in after) is shares
    assert "own_share" not in converted_as(tmp_path, text, Evaluation.WHOLE)
