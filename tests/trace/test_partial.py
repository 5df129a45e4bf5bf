"""What `functools.partial` was given before: arguments of losses, loaders and classes."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted
from programs import traced

SCRIPT = """\
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Tally:
    def __init__(self, name, fmt):
        self.name, self.fmt, self.total, self.count = name, fmt, 0.0, 0

    def update(self, value, n):
        self.total += value * n
        self.count += n


data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
make_loader = partial(DataLoader, num_workers=0)
loader = make_loader(data, batch_size=8, shuffle=True)
criterion = F.mse_loss
make_tally = partial(Tally, "loss")
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    tally = make_tally(":.4f")
    for x, y in loader:
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tally.update(loss.item(), len(x))
    print(epoch, tally.total / tally.count)
"""
LOADER = "make_loader = partial(DataLoader, num_workers=0)\nloader = make_loader(data, batch_size=8, shuffle=True)"


def loading(before: str, call: str) -> str:
    """The script with a loader that is made otherwise."""
    assert LOADER in SCRIPT
    return SCRIPT.replace(LOADER, f"make_loader = partial(DataLoader, {before})\nloader = make_loader({call})")


def test_classes_know_what_they_are_given(tmp_path: Path) -> None:
    text, said = converted(tmp_path, SCRIPT)
    assert "print(epoch, reduce_mean(tally.total / tally.count))" in text and "warning" not in said


def test_losses_know_how_they_are_reduced(tmp_path: Path) -> None:
    script = SCRIPT.replace("criterion = F.mse_loss", 'criterion = partial(F.mse_loss, reduction="sum")')
    assert "(loss * dist.get_world_size()).backward()" in converted(tmp_path, script)[0]
    each = script.replace('"sum"', '"none"').replace("criterion(model(x), y)", "criterion(model(x), y).mean()")
    assert "(loss * dist" not in converted(tmp_path, each)[0]


def test_functions_know_their_axis(tmp_path: Path) -> None:
    script = SCRIPT.replace("criterion = F.mse_loss", "total = partial(torch.sum, dim=1)").replace(
        "criterion(model(x), y)", "total((model(x) - y) ** 2).mean()"
    )
    text, said = converted(tmp_path, script)
    assert "loss.backward()" in text and "(loss * dist" not in text and "AD602" not in said


def test_loaders_are_told_anew(tmp_path: Path) -> None:
    text, _ = converted(tmp_path, loading("batch_size=8", "data, shuffle=True"))
    told = "sampler=DistributedSampler(data, seed=torch.initial_seed()), batch_size=8 // dist.get_world_size()"
    assert told in " ".join(text.split()) and "set_epoch(epoch)" in text
    text, _ = converted(tmp_path, loading("batch_size=8, shuffle=True, drop_last=True", "data"))
    assert "shuffle=False" in text
    assert "DistributedSampler(data, drop_last=True, seed=torch.initial_seed())" in " ".join(text.split())
    assert "set_epoch(epoch)" in text


@pytest.mark.parametrize(
    ("before", "call"),
    [
        ("batch_size=8, sampler=torch.utils.data.RandomSampler(data)", "data"),
        ("batch_size=8", "data, sampler=torch.utils.data.RandomSampler(data)"),
        ("batch_size=int(8)", "data"),
        ("dataset=data, batch_size=8", ""),
    ],
)
def test_what_cannot_be_told_anew(tmp_path: Path, before: str, call: str) -> None:
    said = converted(tmp_path, loading(before, call))[1]
    assert "what partial() was given in line" in said or "cannot see which data set" in said


WORDS = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Callback:
    def set_runner(self, runner):
        self.runner = runner

    def __getattr__(self, name):
        return getattr(self.runner, name)

    def __call__(self, event):
        method = getattr(self, event, None)
        if method:
            method()


class First(Callback):
    def begin_fit(self):
        self.runner.seen = 0


class Second(Callback):
    def begin_epoch(self):
        self.runner.seen += 1


class Third(Callback):
    def after_step(self):
        self.runner.seen += 1


class Recorder(Callback):
    def begin_fit(self):
        self.losses = []

    def after_batch(self):
        self.losses.append(self.loss.item())


class Runner:
    def __init__(self, *callbacks):
        self.callbacks = callbacks
        for callback in callbacks:
            callback.set_runner(self)

    def __call__(self, event):
        for callback in self.callbacks:
            callback(event)

    def fit(self, epochs, model, optimizer, loader):
        self("begin_fit")
        for epoch in range(epochs):
            self("begin_epoch")
            for x, y in loader:
                self("begin_batch")
                out = model(x)
                self("after_pred")
                self.loss = F.mse_loss(out, y)
                self("after_loss")
                self.loss.backward()
                self("after_backward")
                optimizer.step()
                optimizer.zero_grad()
                self("after_step")
                self("after_batch")


data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
model = nn.Linear(4, 1)
recorder = Recorder()
runner = Runner(First(), Second(), Third(), recorder)
runner.fit(2, model, torch.optim.SGD(model.parameters(), lr=0.1), DataLoader(data, batch_size=8, shuffle=True))
print(recorder.losses)
"""


def test_callbacks_by_words(tmp_path: Path) -> None:
    """Many events reach many callbacks by one call, and what these read of the runner is found there."""
    text, said = converted(tmp_path, WORDS)
    assert "self.losses.append(reduce_mean(self.loss.item()))" in text and "warning" not in said


def test_a_function_may_put_names_into_what_it_is_given_by_name() -> None:
    program = traced("""\
def named(**options):
    options["help"] = 1
    return options

first = named(size=2)
second = named(size=2)
""")
    assert program.complete
