"""For each code of a refusal, scripts that get it: what it says is true of them, at the line where it is so (`# here`).

Nothing is held against a loss, an optimizer or a loop of which it is only not known what it does.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.rule import Severity

PLAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
READ = "    for x, y in loader:\n"
LOADER = "loader = DataLoader(train_set, batch_size=8, shuffle=True)\n"
MODEL = "model = nn.Linear(4, 1)\n"
LOSS = "        loss = nn.functional.mse_loss(model(x), y)\n"
BACK = "        loss.backward()\n"
STEP = "        optimizer.step()\n"


def plain(*changes: tuple[str, str], last: str = "") -> str:
    """The plain script with some of its lines exchanged."""
    text = PLAIN
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text + last


def importing(module: str) -> tuple[str, str]:
    return "import torch\n", f"{module}\nimport torch\n"


SPAWNING = f"""\
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP
{"".join(PLAIN.splitlines(keepends=True)[:4])}

def worker(rank, count):
    dist.init_process_group("gloo", rank=rank, world_size=count)
{indent("".join(PLAIN.splitlines(keepends=True)[4:]), "    ").replace("nn.Linear(4, 1)", "DDP(nn.Linear(4, 1))")}

if __name__ == "__main__":
    workers = mp.spawn(worker, args=(2,), nprocs=2, join=False)  # here
    workers.join()
"""
HOROVOD = """\
import horovod.torch as hvd
hvd.init()
"""
STATISTIC = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 1), nn.Parameter(torch.ones(4))

    def forward(self, x):
        self.scale.data.copy_(x.std(0))  # here
        return self.layer(x * self.scale)


model = Net()
"""
OWN_ORDER = """\
class Shuffled(torch.utils.data.Sampler):
    def __iter__(self):
        return iter(np.random.default_rng().permutation(64).tolist())  # here

    def __len__(self):
        return 64


loader = DataLoader(train_set, batch_size=8, sampler=Shuffled())
"""
LONG = "def penalty(weight):\n    {}\n    return weight.norm()\n".format("; ".join(["pass"] * 2000))
PENALTIES = " + ".join(["penalty(model.weight)"] * 90)

CASES: list[tuple[str, str, str]] = [
    ("AD103", SPAWNING, "starts processes and goes on"),
    (
        "AD201",
        plain((LOADER, "loader = DataLoader(train_set)  # here\n")),
        "batches of one sample cannot be shared out",
    ),
    ("AD203", plain(importing("import numpy as np"), (LOADER, OWN_ORDER)), "a sampler that starts from a new seed"),
    (
        "AD401",
        plain(
            (f"{MODEL}optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", ""),
            (
                "for epoch in range(2):\n",
                "for epoch in range(2):\n    models = [nn.Linear(4, 1) for _ in range(2)]  # here\n"
                "    optimizer = torch.optim.SGD([p for m in models for p in m.parameters()], lr=0.1)\n",
            ),
            ("model(x)", "models[0](x) + models[1](x)"),
        ),
        "cannot see a place between where this model is made and its first step",
    ),
    (
        "AD409",
        plain(
            (MODEL, f"{MODEL}given = lambda x: (model, x)\n"),
            (f"{LOSS}", "        loss = nn.functional.mse_loss(nn.parallel.data_parallel(*given(x)), y)  # here\n"),
        ),
        "spreads the batch over the devices of one process",
    ),
    (
        "AD901",
        plain((BACK, ""), (STEP, ""), ("import torch\n", "import torch  # here\n")),
        "cannot see that it trains: no loss.backward() is reached",
    ),
    (
        "AD902",
        plain(importing("import mystery"), (READ, "    for x, y in mystery.batches(8):  # here\n")),
        "cannot see what mystery.batches(8) makes its batches of",
    ),
    ("AD902", plain((READ, "    for x, y in loaders:  # here\n")), "iterates over loaders, which is defined nowhere"),
    (
        "AD902",
        plain(
            importing("import queue"),
            (READ, "    for _ in range(8):\n        x, y = waiting.get()\n"),
            (MODEL, f"waiting = queue.Queue()\n{MODEL}"),
            (LOSS, LOSS.rstrip() + "  # here\n"),
        ),
        "cannot see of x, made by waiting.get(), which of its axes the samples lie along",
    ),
    (
        "AD902",
        plain(
            importing("import gymnasium"),
            (MODEL, f'env = gymnasium.make("CartPole-v1")\n{MODEL}'),
            (READ, "    for _ in range(8):\n        x, y, *_ = env.step(0)\n"),
            (BACK, "        loss.backward()  # here\n"),
        ),
        "draws on an environment, which is no data set",
    ),
    (
        "AD903",
        plain(
            importing("from accelerate import Accelerator"),
            (MODEL, f"accelerator = Accelerator()  # here\n{MODEL}"),
            (BACK, "        accelerator.backward(loss)\n"),
        ),
        "training is owned by accelerate.Accelerator",
    ),
    ("AD904", plain((STEP, ""), (BACK, "        loss.backward()  # here\n")), "cannot see that an optimizer steps"),
    (
        "AD904",
        plain(
            importing("from settings import choice"),
            ("torch.optim.SGD(model.parameters(), lr=0.1)", 'choice["type"](model.parameters())  # here'),
        ),
        'cannot see which optimizer is made by choice["type"]',
    ),
    (
        "AD904",
        plain((BACK, "        loss.backward(create_graph=True)  # here\n")),
        "gradients with a graph of their own (create_graph=True)",
    ),
    (
        "AD904",
        plain((MODEL, "model = nn.LazyLinear(1)\n"), (LOSS, LOSS.rstrip() + "  # here\n")),
        "lazy layers have no parameters before a first pass",
    ),
    (
        "AD904",
        plain((MODEL, f"{MODEL}model.weight.register_hook(lambda g: g.clamp(-1, 1))  # here\n")),
        "hooks a gradient of this rank's samples",
    ),
    (
        "AD904",
        plain(
            (
                LOSS,
                "        out = nn.parallel.replicate(model, [0])[0](x)  # here\n"
                "        loss = (out - y).pow(2).mean()\n",
            ),
        ),
        "torch.nn.parallel.replicate computes on several devices of this process",
    ),
    ("AD904", plain((MODEL, STATISTIC)), "sets parameters to a statistic of the samples"),
    (
        "AD905",
        plain(
            (LOSS, f"{LOSS.rstrip()} + {PENALTIES}\n"),
            ("import torch\n", "import torch  # here\n"),
            (MODEL, LONG + MODEL),
        ),
        "the script is too large to be followed to its end",
    ),
    (
        "AD906",
        plain(
            (
                LOSS,
                "        scores = nn.functional.dropout(model(x) @ model(y.expand(-1, 4)).T)  # here\n"
                "        loss = nn.functional.cross_entropy(scores, torch.arange(len(x)))\n",
            )
        ),
        "model(x) @ model(y.expand(-1, 4)).T lets each sample of a batch meet the others",
    ),
    (
        "AD908",
        HOROVOD
        + plain(
            (STEP, STEP + "        hvd.join()\n"),
            (
                "\nfor epoch",
                "optimizer = hvd.DistributedOptimizer(optimizer, op=hvd.Adasum)  # here\n\nfor epoch",
            ),
        ),
        "Adasum",
    ),
]
SCALAR = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.scale = nn.Parameter(torch.tensor(1.0))  # here

    def forward(self, x):
        return self.layer(x) * self.scale


model = Net()
"""
CALLED = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def __call__(self, x):
        return self.layer(x)


model = Net()  # here
"""
SHARING = """\
body = nn.Linear(4, 4)  # here
model, other = nn.Sequential(body, nn.Linear(4, 1)), nn.Sequential(body, nn.Linear(4, 1))
others = torch.optim.SGD(other.parameters(), lr=0.1)
"""
SHARDED: list[tuple[str, str]] = [
    (plain(last='torch.save(model, "model.pt")  # here\n'), "saves a model as an object"),
    (
        plain(last='torch.jit.trace(model, torch.randn(1, 4)).save("m.pt")  # here\n'),
        "makes a graph of a sharded model",
    ),
    (
        plain(last="print(nn.utils.parameters_to_vector(model.parameters()))  # here\n"),
        "makes one tensor of parameters",
    ),
    (plain((STEP, f"{STEP}        model.weight.data[:, 0].zero_()  # here\n")), "writes a part of a parameter"),
    (
        plain(importing("import copy"), (STEP, f"{STEP}        best = copy.deepcopy(model)  # here\n")),
        "copies a model after",
    ),
    (plain((MODEL, SCALAR)), "is a scalar, of which there is no share"),
    (plain((MODEL, CALLED)), "defines __call__, which runs past the hooks of FSDP"),
    (
        plain((MODEL, SHARING), ("model(x)", "model(x) + other(x)"), (STEP, f"{STEP}        others.step()\n")),
        "is a part of two models that train",
    ),
    (
        plain(
            (MODEL, "model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))\n"),
            (LOSS, "        loss = nn.functional.mse_loss(model[1](model[0](x)), y)  # here\n"),
        ),
        "calls a part of a sharded model on its own",
    ),
    (
        plain(("torch.optim.SGD(model.parameters(), lr=0.1)", "torch.optim.Rprop(model.parameters())  # here")),
        "Rprop cannot step on shards",
    ),
    (
        plain((MODEL, f"{MODEL}model.weight.register_hook(lambda g: 2 * g)  # here\n")),
        "hooks a gradient of a parameter that is sharded",
    ),
]


@pytest.mark.parametrize(("code", "text", "said"), CASES)
def test_what_a_refusal_says_is_true_of_the_line_it_names(code: str, text: str, said: str, tmp_path: Path) -> None:
    check(tmp_path, code, text, said, Strategy.DDP)


@pytest.mark.parametrize(("text", "said"), SHARDED)
def test_what_cannot_be_sharded_is_named(text: str, said: str, tmp_path: Path) -> None:
    check(tmp_path, "AD907", text, said, Strategy.FSDP)


def check(folder: Path, code: str, text: str, said: str, strategy: Strategy) -> None:
    path = folder / "train.py"
    path.write_text(text)
    result = convert(Project.load(path), Config(strategy))
    refusals = [each for each in result.diagnostics if each.severity is Severity.REFUSAL]
    line = next(number for number, each in enumerate(text.splitlines(), 1) if each.endswith("# here"))
    assert [each.code for each in refusals[:1]] == [code], refusals
    assert refusals[0].line == line and said in refusals[0].message, (refusals[0].line, line, refusals[0].message)
    assert result.entry.after == text  # nothing is written of what is refused
