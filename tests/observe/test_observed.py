"""Each way of lying over ranks, measured in a script that knows none of ours."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Autodist

torch = pytest.importorskip("torch")

from autodist.errors import AutodistError  # noqa: E402
from autodist.observe.command import advice, as_json, as_page, as_text  # noqa: E402
from autodist.observe.found import Observation, observations  # noqa: E402
from autodist.observe.joins import Join  # noqa: E402
from autodist.observe.measured import Measured, measure  # noqa: E402
from autodist.observe.read import compared  # noqa: E402
from autodist.verify.launch import Zygote  # noqa: E402

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x, y = torch.randn(64, 6, 8), torch.randint(4, (64,))
train_loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
"""
SCRIPT = HEAD + """
val_loader = DataLoader(TensorDataset(x[:20], y[:20]), batch_size=20)


class Net(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.rnn = nn.LSTM(8, 8, batch_first=batch_first)
        self.norm, self.drop, self.out = nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 4)

    def forward(self, x):
        return self.out(self.drop(self.rnn(x)[0][:, -1]))


net, wrong, zero = Net(True), Net(False), nn.Linear(8, 1)
nn.init.zeros_(zero.weight)
nn.init.zeros_(zero.bias)
optimizer = torch.optim.SGD([*net.parameters(), *wrong.parameters(), *zero.parameters()], lr=0.1)
outputs, total = [], 0.0
for step, (bx, by) in enumerate(train_loader):
    optimizer.zero_grad()
    z = net(bx)
    loss = F.cross_entropy(z, by)
    loss.backward()
    optimizer.step()
    outputs.append(z.detach())
    total += loss.item() * len(by)
    unit = F.normalize(z, dim=1)
    print("mean", loss.item())
    print("total", total)
    print("sum", F.cross_entropy(z, by, reduction="sum"))
    print("correct %d of %d" % ((z.argmax(1) == by).sum(), len(by)))
    print("time", F.cross_entropy(wrong(bx), by))
    print("masked {:.3f}".format(F.cross_entropy(z, by, reduction="none")[by > 0].mean()))
    print("ignored", F.cross_entropy(z, by, ignore_index=2))
    print("weighted", F.cross_entropy(z, by, weight=torch.tensor([1.0, 2.0, 3.0, 4.0])))
    print("pairs", F.cross_entropy(unit @ unit.t(), torch.arange(len(unit))))
    print("largest", z.max().item())
    print("least", z.min().item())
    print("deviation", z.std(dim=0).mean())
    print("batch norm", net.norm(bx.mean(1)).pow(3).mean())
    print("root", F.mse_loss(z.sum(1), by.to(z.dtype)).sqrt())
    print("list", torch.cat(outputs).mean())
    print("head", zero(bx[:, 0]).mean())
    print("length", len(train_loader))
    print("nothing", 0 * loss)
    print("norm", net.out.weight.norm())
    if loss.item() > 100:
        break
    torch.save({"z": z, "loss": loss.item()}, "z.pt")
    with torch.no_grad():
        print("validation", sum(F.cross_entropy(net(vx), vy).item() for vx, vy in val_loader))
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote | None) -> Measured:
    """All runs of the script."""
    folder = tmp_path_factory.mktemp("observed")
    (folder / "train.py").write_text(SCRIPT)
    return measure(folder / "train.py", steps=3, zygote=zygote, workdir=folder)


@pytest.fixture(scope="module")
def found(measured: Measured) -> list[Observation]:
    """What they come to."""
    return observations(measured)


def at(found: list[Observation], words: str, kind: str = "shown") -> Observation:
    """The last value in the line of the script that has these words."""
    (line,) = (number for number, each in enumerate(SCRIPT.splitlines(), 1) if words in each)
    return [each for each in found if each.kind == kind and each.site == f"train.py:{line}"][-1]


ROWS = "the mean over the ranks, weighted by its number of samples"
LIES = {
    '"mean"': ROWS,
    '"total"': "the sum over the ranks",
    '"sum"': "the sum over the ranks",
    '"correct': "the sum over the ranks",
    '"time"': "nothing joins what the ranks have",
    '"masked': "weighted by what index counts",
    '"ignored"': "weighted by what nll_loss_forward counts",
    '"weighted"': "weighted by what nll_loss_forward counts",
    '"pairs"': "nothing joins what the ranks have: mm mixes the samples of the batch",
    '"largest"': "the maximum over the ranks",
    '"least"': "the minimum over the ranks",
    '"batch norm"': ROWS,
    '"deviation"': "std mixes the samples of the batch",
    '"root"': "sqrt mixes the samples of the batch",
    '"list"': ROWS,
    '"head"': ROWS,
    '"length"': "the same on all ranks",
    '"nothing"': "undecided: it is zero every time",
    '"norm"': "the same on all ranks",
    '"validation"': "the same on all ranks",
}


@pytest.mark.parametrize("words", LIES)
def test_how_it_lies(found: list[Observation], words: str) -> None:
    each = at(found, f"print({words}")
    assert LIES[words] in str(each)


def test_mixing_names_its_line(found: list[Observation]) -> None:
    time, line = at(found, '"time"'), SCRIPT.splitlines().index(
        "        return self.out(self.drop(self.rnn(x)[0][:, -1]))"
    )
    assert time.mixing is not None and time.mixing.site == f"train.py:{line + 1}"


def test_what_is_differentiated_compared_and_saved(found: list[Observation]) -> None:
    assert str(at(found, "loss.backward()", "differentiated")) == ROWS
    gradients = at(found, "optimizer.step()", "gradient")
    assert str(gradients) == ROWS and gradients.text == "6 gradients" and "DDP averages" in advice(gradients)
    assert str(at(found, "if loss.item() > 100", "compared")) == ROWS
    saved = [each for each in found if each.kind == "saved"]
    assert {each.text.rpartition("}")[2]: str(each) for each in saved} == {
        "['z']": "the shares joined along axis 0",
        "['loss']": ROWS,
    }


def test_reading_says_the_same(measured: Measured, found: list[Observation]) -> None:
    script = measured.workdir / "train.py"
    assert not [each for each in compared(script, measured.workdir, found) if each.read]
    loss = at(found, '"mean"')
    assert measured.steps == 3
    wrong = replace(loss, join=Join("sum"))
    (told,) = compared(script, measured.workdir, [wrong])
    assert told.read == "mean" and "a fault of autodist" in as_text(script, measured, [told])
    assert json.loads(as_json(script, measured, [told]))["values"][0]["read"] == "mean"
    assert compared(script, measured.workdir, [replace(loss, join=None, state="undecided")])[0].read == ""


def test_what_is_said(measured: Measured, found: list[Observation]) -> None:
    script = Path("train.py")
    text = as_text(script, measured, found)
    assert f"  loss  (differentiated)\n    is {ROWS}\n    on ranks: nothing: DDP averages" in text
    content = json.loads(as_json(script, measured, found))
    pairs = next(each for each in content["values"] if each["mixing"] and each["mixing"]["operation"] == "mm")
    assert (pairs["state"], pairs["join"]) == ("mixed", None)
    assert "<td>the sum over the ranks</td><td>all-reduce with sum</td>" in as_page(script, measured, found)


REFUSED = {
    "batches that are made by hand": (
        "net = nn.Linear(8, 4)\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "F.cross_entropy(net(x[:, 0]), y).backward()\noptimizer.step()\n",
        "trains on no batch of a DataLoader",
    ),
    "no training": ("print(len(train_loader))\n", "takes no optimizer step"),
    "a crash": ("raise RuntimeError('no data')\n", "fails: RuntimeError: no data (train.py:10)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_observed(name: str, tmp_path: Path, zygote: Zygote | None) -> None:
    script, message = REFUSED[name]
    (tmp_path / "train.py").write_text(HEAD + script)
    with pytest.raises(AutodistError, match=r"train\.py: ") as error:
        measure(tmp_path / "train.py", zygote=zygote, workdir=tmp_path)
    assert message in str(error.value)


def test_the_command(autodist: Autodist, tmp_path: Path) -> None:
    assert autodist("observe", "missing.py").exit_code == 2
    lines = [
        "import sys",
        "net = nn.Linear(8, int(sys.argv[1]))",
        "optimizer = torch.optim.SGD(net.parameters(), lr=0.1)",
        "for bx, by in train_loader:",
        "    loss = F.cross_entropy(net(bx[:, 0]), by)",
        "    loss.backward()",
        "    optimizer.step()",
        "    print(loss) if len(by) == 16 else None",
        "    print(loss) if len(by) < 6 else None",
    ]
    body = "\n".join(lines)
    (tmp_path / "train.py").write_text(HEAD + body)
    result = autodist("observe", "train.py", "--steps", "2", "--report", "o.html", "--output-format", "json", "--", "4")
    assert result.exit_code == 0, result.output
    values = {each["site"]: each for each in json.loads(result.stdout)["values"] if each["kind"] != "compared"}
    assert values["train.py:15"]["join"] == "mean"
    for line in (17, 18):
        shown = values[f"train.py:{line}"]
        assert (
            shown["state"] == "undecided" and "more or less often" in shown["says"]
        ), "one of the runs decides otherwise"
    assert Path("o.html").read_text().startswith("<!doctype html>")
    assert {each.name for each in tmp_path.iterdir()} == {"train.py", "o.html"}
