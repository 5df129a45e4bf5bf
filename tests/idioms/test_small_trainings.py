"""Small trainings from end to end: files that rank 0 writes, modes of a model, noise, names that loops bind."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

HEAD = """\
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

"""
DATA = """\
batch_size = 8
train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
test_set = TensorDataset(torch.randn(9, 4), torch.randn(9, 1))
loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)
test_loader = DataLoader(test_set, batch_size=batch_size)
"""
MODEL = """\
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAINING = """\
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("size", "waits"),
    [("os.path.getsize(path)", True), ("path.stat().st_size", True), ("len(path.name)", False)],
)
def test_the_size_of_a_file_is_read_once_rank_0_has_written_it(tmp_path: Path, size: str, waits: bool) -> None:
    """yakhyo/unet-pytorch: rank 1 asked for the size of a checkpoint that was not there yet."""
    save = f"path = Path('model.pt')\ntorch.save(model.state_dict(), path)\nprint({size})\n"
    after, _ = conftest.converted(tmp_path, f"from pathlib import Path\n{HEAD}{DATA}{MODEL}{TRAINING}{save}")
    assert (f"dist.barrier()  # wait until rank 0 has written it\nprint({size})" in after) is waits


def test_the_default_of_getattr_is_the_model_inside_too(tmp_path: Path) -> None:
    """anthonyli358/pytorch-nanogpt: `getattr(model, "_orig_mod", model)` of a model that is not compiled gave the
    wrapper, and its keys went into the checkpoint."""
    save = """\
def save(model):
    raw = getattr(model, "_orig_mod", model)
    torch.save({"model": raw.state_dict()}, "model.pt")


"""
    after, _ = conftest.converted(tmp_path, f"{HEAD}{save}{DATA}{MODEL}{TRAINING}save(model)\n")
    assert 'raw = getattr(model.module, "_orig_mod", model.module)\n' in after
    assert '"model": raw.state_dict()}' in after


@pytest.mark.parametrize(
    ("layers", "known"), [("layers.append(make(name))", False), ("layers.append(nn.ReLU())", True)]
)
def test_layers_that_settings_name_may_normalise(tmp_path: Path, layers: str, known: bool) -> None:
    """SUNGBEOMCHOI/pytorch-VAE-MNIST: BatchNorm came out of a table of all of `torch.nn`, and nothing did
    synchronise it."""
    build = f"""\
import json

table = dict(torch.nn.__dict__)


def make(name):
    return table[name](4)


def build(names):
    layers = []
    for name in names:
        {layers}
    return nn.Sequential(*layers)


"""
    model = MODEL.replace("nn.Linear(4, 1)", "build(json.load(open('net.json')))")
    after, _ = conftest.converted(tmp_path, f"{HEAD}{build}{DATA}{model}{TRAINING}")
    assert ("convert_sync_batchnorm" in after) is not known


@pytest.mark.parametrize("end", ["break", "pass"])
@pytest.mark.parametrize("loop", ["x, y in test_loader", "i, (x, y) in enumerate(test_loader)"])
def test_a_loop_over_a_loader_leaves_what_it_binds(tmp_path: Path, end: str, loop: str) -> None:
    """Jackson-Kang/Pytorch-VAE-tutorial: the last batch of the test set was taken for one of the training set, too."""
    shown = f"""\
with torch.no_grad():
    for {loop}:
        guess = model(x)
        {end}
rows = x.view(batch_size, 2, 2)
print(rows[0], guess)
"""
    after, said = conftest.converted(tmp_path, f"{HEAD}{DATA}{MODEL}{TRAINING}{shown}")
    assert "rows = x.view(batch_size, 2, 2)\nprint(rows[0], guess)\n" in after
    assert "this rank" not in said


def test_what_a_loop_may_leave_alone_is_still_both(tmp_path: Path) -> None:
    """The last batch of the training set, or one of the test set, of which all ranks have all samples."""
    shown = """\
with torch.no_grad():
    for a, b in test_loader:
        if a.sum() > 100:
            continue
        x = a
print(x)
"""
    after, said = conftest.converted(tmp_path, f"{HEAD}{DATA}{MODEL}{TRAINING}{shown}")
    assert "reports x" in said and "gather_rows" not in after


def test_a_name_that_each_step_binds_anew_is_not_that_of_a_fixed_noise(tmp_path: Path) -> None:
    """proceduralia/pytorch-GAN-timeseries: half as many deltas as rows of the fixed noise that they were joined to."""
    draws = """\
def sample(number):
    return torch.randn(number, 1) + 0.5


fixed = torch.randn(batch_size, 3)
deltas = sample(batch_size)
fixed = torch.cat((fixed, deltas), dim=1)
"""
    training = TRAINING.replace(
        "        loss = nn.functional.mse_loss(model(x), y)\n",
        "        deltas = sample(x.size(0))\n        loss = nn.functional.mse_loss(model(x * deltas), y)\n",
    )
    after, _ = conftest.converted(
        tmp_path, f"{HEAD}{DATA}{MODEL}{draws}{training}torch.save(model(fixed), 'fixed.pt')\n"
    )
    assert "deltas = sample(batch_size)\nfixed = torch.cat" in after
    carried = training.replace("        deltas = sample(x.size(0))\n", "")
    after, _ = conftest.converted(tmp_path, f"{HEAD}{DATA}{MODEL}{draws}{carried}")
    assert "deltas = sample(batch_size // dist.get_world_size())" in after


FLAGS = {
    "both branches": "if optimizer is None:\n        train = False\n    else:\n        train = True",
    "one branch": "train = False\n    if optimizer is not None:\n        train = True",
    "an expression": "train = True if optimizer else False",
    "a comparison": "train = optimizer is not None",
}


@pytest.mark.parametrize("flag", FLAGS.values(), ids=FLAGS)
def test_a_flag_tells_whether_a_call_trains(tmp_path: Path, flag: str) -> None:
    """yutayamazaki/Deep-Metric-Learning-PyTorch: where a variable told one pass from the other, the samples of the
    validation were dealt out, and one of them counted twice."""
    run = f"""\
def run(model, loader, optimizer=None):
    {flag}
    total = 0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total / len(loader)


"""
    epochs = "for epoch in range(2):\n    print(run(model, loader, optimizer), run(model, test_loader))\n"
    after, _ = conftest.converted(tmp_path, f"{HEAD}{run}{DATA}{MODEL}{epochs}")
    assert "test_loader = DataLoader(test_set, batch_size=batch_size)\n" in after
    assert "print(reduce_mean(run(model, loader, optimizer)), run(model, test_loader))" in after


NORMALISED = """\
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


def test_a_model_is_looked_through_before_it_is_wrapped(tmp_path: Path) -> None:
    """yakhyo/unet-pytorch: torchsummary runs a model in training mode, on rows which SyncBatchNorm counted once for
    each rank."""
    shown = "print(summary(model, (4,)))\n"
    text = f"from torchsummary import summary\n{HEAD}{DATA}{NORMALISED}{shown}{TRAINING}"
    after, _ = conftest.converted(tmp_path, text)
    assert f"{shown}if next(model.parameters()).is_cuda:  # BatchNorm" in after


def test_also_where_several_models_are_trained_one_after_the_other(tmp_path: Path) -> None:
    """gratus907/Pytorch-Cifar10"""
    indented = "".join(f"    {line}\n" for line in f"{NORMALISED}summary(model, (4,))\n{TRAINING}".splitlines())
    text = f"from torchsummary import summary\n{HEAD}{DATA}for width in (1, 2):\n{indented}"
    after, _ = conftest.converted(tmp_path, text)
    assert "    summary(model, (4,))\n    if next(model.parameters()).is_cuda:  # BatchNorm" in after


def test_a_method_of_the_scripts_own_that_is_called_train_sets_no_mode(tmp_path: Path) -> None:
    """ysbsb/dcgan-pytorch-cifar10: of `gan.train(loader)`, a loop over the loader, nothing was said of the pictures
    that all ranks make in training mode."""
    gan = """\
class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.fixed = torch.randn(8, 4)

    def train(self, loader):
        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(self.net(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            with torch.no_grad():
                shown = self.net(self.fixed)
            torch.save(shown, f"{epoch}.pt")
        torch.save(self.net.state_dict(), "net.pt")


"""
    after, _ = conftest.converted(tmp_path, f"{HEAD}{gan}{DATA}Gan().train(loader)\n")
    assert "shown = share_rows(self.net, self.fixed)" in after


@pytest.mark.parametrize(
    ("fill", "shape", "random", "warned"),
    [
        ("xavier_normal_(h)", "2, x.size(0), 8", True, True),
        ("kaiming_uniform_(h)", "2, x.size(0), 8", True, True),
        ("kaiming_uniform_(h)", "x.size(0), 8", True, False),
        ("normal_(h)", "2, x.size(0), 8", True, False),
        ("zeros_(h)", "2, x.size(0), 8", False, False),
        ("xavier_normal_(h)", "2, 1, 8", False, False),
    ],
)
def test_noise_whose_size_goes_by_the_number_of_samples(
    tmp_path: Path, fill: str, shape: str, random: bool, warned: bool
) -> None:
    """FernandoLpz/Text-Classification-LSTMs-PyTorch: states are filled as layers are, by Xavier's rule."""
    net = f"""\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 1)

    def forward(self, x):
        h = torch.zeros({shape})
        nn.init.{fill}
        return self.fc(h + x.repeat(1, 2)).mean(0)


"""
    model = MODEL.replace("nn.Linear(4, 1)", "Net()")
    after, said = conftest.converted(tmp_path, f"{HEAD}{net}{DATA}{model}{TRAINING}")
    assert ("dropout and noise differ by rank" in after) is random
    assert ("draws noise whose size goes by the shape" in said) is warned


@pytest.mark.parametrize(
    ("meanwhile", "named"),
    [("out = model(fixed)", True), ("out = out + 1", False), ("shown = model(fixed)", False)],
)
def test_rows_of_a_rank_or_of_all(tmp_path: Path, meanwhile: str, named: bool) -> None:
    """ysbsb/dcgan-pytorch-cifar10: pictures of a fixed noise, which all ranks have as a whole, bear the name of those
    of a training step; gathered, each was there once for each rank."""
    training = TRAINING.replace("model(x), y)", "out, y)").replace(
        "        loss =", "        out = model(x)\n        loss ="
    )
    training += f"        if x.size(1) > 3:\n            with torch.no_grad():\n                {meanwhile}\n"
    text = f"{HEAD}{DATA}{MODEL}fixed = torch.randn(8, 4)\n{training}    torch.save(out * 2, 'out.pt')\n"
    after, said = conftest.converted(tmp_path, text)
    assert ("gather_rows(out" in after) is not named
    assert ("computed from this rank's samples alone" in said) is named


@pytest.mark.parametrize(
    ("labels", "agreed"),
    [
        ("sorted(list(names), key=len)", "sorted(as_on_rank_zero(list(names)), key=len)"),
        ("sorted(names, key=len)", "as_on_rank_zero(sorted(names, key=len))"),
        ("sorted(names, key=str)", "sorted(names, key=str)"),
        ("sorted(list(names), reverse=True)", "sorted(list(names), reverse=True)"),
    ],
)
def test_sorting_leaves_ties(tmp_path: Path, labels: str, agreed: str) -> None:
    """shakibyzn/NER-BiLSTM-PyTorch: labels of one length, `I-PER` and `I-LOC`, had other numbers on each rank."""
    text = f"{HEAD}names = set(open('labels.txt').read().split())\nlabels = {labels}\n{DATA}{MODEL}{TRAINING}"
    after, _ = conftest.converted(tmp_path, text)
    assert f"labels = {agreed}\n" in after


@pytest.mark.parametrize(("loss", "waits"), [("(out - y).pow(2).mean()", True), ("self.other(x).mean()", False)])
def test_outputs_that_the_loss_is_computed_from_are_used(tmp_path: Path, loss: str, waits: bool) -> None:
    """anthonyli358/pytorch-nanogpt: `return logits, loss`, and `return logits, None` where there are no targets."""
    net = f"""\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)
        self.other = nn.Linear(4, 1)

    def forward(self, x, y=None):
        out = self.fc(x)
        if y is not None:
            out = out + self.other(x)
            loss = {loss}
            return out, loss
        return out + self.other(x), None


"""
    model = MODEL.replace("nn.Linear(4, 1)", "Net()")
    training = TRAINING.replace("loss = nn.functional.mse_loss(model(x), y)", "_, loss = model(x, y)")
    after, _ = conftest.converted(tmp_path, f"{HEAD}{net}{DATA}{model}{training}")
    assert ("find_unused_parameters" not in after) is waits
