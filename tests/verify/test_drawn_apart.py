"""Ranks whose dropout differs, beside batches that torch draws: each draws its own, or rank 0 draws for all."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data, target = torch.randn(64, 4), torch.randn(64, 1)


def batches(size):
    order = torch.randperm(len(data))
    for i in range(0, len(data), size):
        rows = order[i : i + size]
        yield data[rows], target[rows]


model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    {made}
    for step in range(4):
        {batch}
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
print(torch.randn(3).tolist())
"""
ROWS = "rows = {}\n        x, y = data[rows], target[rows]"
RANK = "[dist.get_rank() :: dist.get_world_size()]"


@pytest.mark.parametrize(
    ("made", "batch", "after"),
    [
        ("", ROWS.format("torch.randint(64, (8,))"), "torch.randint(64, (8 // dist.get_world_size(),))"),
        ("", ROWS.format("torch.randint(0, 64, size=[8])"), "torch.randint(0, 64, size=[8 // dist.get_world_size()])"),
        (
            "",
            ROWS.format("torch.randint(0, 64, (8, 1)).squeeze(1)"),
            f"drawn_by_rank_zero(torch.randint(0, 64, (8, 1))){RANK}.squeeze(1)",
        ),
        (
            "",
            ROWS.format("torch.multinomial(torch.ones(64), 8)"),
            f"drawn_by_rank_zero(torch.multinomial(torch.ones(64), 8)){RANK}",
        ),
        (
            "order = torch.randperm(64)",
            ROWS.format("order[8 * step : 8 * step + 8]"),
            "order = drawn_by_rank_zero(torch.randperm(64))",
        ),
        (
            "stream = batches(8)",
            "x, y = next(stream)",
            "order = drawn_by_rank_zero(torch.randperm(len(data)))",
        ),
        (
            "noisy = data + 0.1 * torch.randn(64, 4)\n"
            "    loader = iter(DataLoader(TensorDataset(noisy, target), batch_size=8, shuffle=True))",
            "x, y = next(loader)",
            "data + 0.1 * drawn_by_rank_zero(torch.randn(64, 4))",
        ),
    ],
)
def test_batches_drawn_beside_dropout(tmp_path: Path, zygote: Zygote, made: str, batch: str, after: str) -> None:
    before = SCRIPT.format(made=made, batch=batch)
    code, said = conftest.converted(tmp_path, before)
    assert after in code and "torch.initial_seed() + 1 + dist.get_rank()" in code and "warning" not in said
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


def test_ranks_that_draw_their_own_rows_alike(tmp_path: Path, zygote: Zygote) -> None:
    """Their shares of the batch are one and the same."""
    before = SCRIPT.format(made="", batch=ROWS.format("torch.randint(64, (8,))"))
    code, _ = conftest.converted(tmp_path, before)
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(
        code.replace("torch.initial_seed() + 1 + dist.get_rank()", "torch.initial_seed()")
    )
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert not verdict.worlds[0].equal and "same rows" in verdict.worlds[0].reason


def test_a_state_that_is_restored(tmp_path: Path, zygote: Zygote) -> None:
    """Ranks that restore one state of a generator are alike again: they would all draw the same samples."""
    kept = "\n        if step == 1:\n            state = torch.get_rng_state()"
    kept += "\n        if step == 2:\n            torch.set_rng_state(state)"
    before = SCRIPT.format(made="", batch=ROWS.format("torch.randint(64, (8,))") + kept)
    code, _ = conftest.converted(tmp_path, before)
    assert f"drawn_by_rank_zero(torch.randint(64, (8,))){RANK}" in code
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


LECTURE = """\
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
codes = torch.arange(400).mul(7).remainder(11)


def draw(count=8):
    starts = torch.randint(len(codes) - 6, (count,))
    x = torch.stack([codes[i : i + 6] for i in starts])
    return x, torch.stack([codes[i + 1 : i + 7] for i in starts])


x, y = draw()
print(x.shape)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Embedding(11, 8), nn.Dropout(0.2), nn.Linear(8, 11))

    def forward(self, idx, targets=None):
        logits = self.layers(idx)
        if targets is None:
            return logits, None
        B, T, C = logits.shape
        return logits, F.cross_entropy(logits.view(B * T, C), targets.view(B * T))

    def write(self, idx, length):
        for _ in range(length):
            logits, _ = self(idx)
            idx = torch.cat((idx, torch.multinomial(logits[:, -1].softmax(-1), 1)), 1)
        return idx[0].tolist()


def report(model):
    model.eval()
    losses = torch.tensor([model(*draw())[1].item() for _ in range(2)])
    model.train()
    return losses.mean()


model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
best = float("inf")
for step in range(8):
    x, y = draw()
    _, loss = model(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 4 == 3:
        now = report(model)
        print(step, now.item(), model.write(torch.zeros(1, 1, dtype=torch.long), 5))
        if now < best:
            best = now
            torch.save(model.state_dict(), "best.pt")
print(model.write(torch.zeros(1, 1, dtype=torch.long), 12))
"""


def test_a_lecture_that_looks_at_a_batch_first(tmp_path: Path, zygote: Zygote) -> None:
    """A step takes its rows of what the function draws, which evaluations call as well; text that is only shown is
    drawn by each rank for itself, and says nothing about the order of samples."""
    code, said = conftest.converted(tmp_path, LECTURE)
    assert "drawn_by_rank_zero(torch.randint(len(codes) - 6, (count,)))" in code and "AD702 masks" not in said
    assert "x, y = local_rows(draw())" in code and code.count("drawn_by_rank_zero(") == 2
    (tmp_path / "before.py").write_text(LECTURE)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


DECIDING = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data, target = torch.randn(64, 4), torch.randn(64, 1)
{loader}
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def evaluate():
    model.eval()
    with torch.no_grad():
        picked = torch.randint(64, (20,))
        value = nn.functional.mse_loss(model(data[picked]), target[picked]).item()
    model.train()
    return value


best, worse = float("inf"), 0
for epoch in range(12):
    {steps}
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    value = evaluate()
    print(epoch, value)
    {decision}
"""
STOPS = "worse = 0 if value < best else worse + 1\n    best = min(best, value)\n    if worse > 1:\n        break"
DRAWN = "for _ in range(4):\n        rows = torch.randint(64, (16,))\n        x, y = data[rows], target[rows]"


LOADER = "loader = DataLoader(TensorDataset(data, target), batch_size=16, shuffle=True)"


@pytest.mark.parametrize(("loader", "steps"), [(LOADER, "for x, y in loader:"), ("", DRAWN)])
def test_an_evaluation_on_some_samples_decides(tmp_path: Path, zygote: Zygote, loader: str, steps: str) -> None:
    """Ranks that each drew their own broke off in different epochs, which verify did not see beside a loader."""
    before = DECIDING.format(loader=loader, steps=steps, decision=STOPS)
    code, said = conftest.converted(tmp_path, before)
    assert "picked = drawn_by_rank_zero(torch.randint(64, (20,)))" in code and "warning" not in said
    (tmp_path / "before.py").write_text(before)
    for name, after in (("after.py", code), ("apart.py", code.replace("drawn_by_rank_zero(torch", "(torch"))):
        (tmp_path / name).write_text(after)
        verdict = verify(tmp_path / "before.py", tmp_path / name, [2], device="cpu", workdir=tmp_path, zygote=zygote)
        assert verdict.worlds[0].equal is (name == "after.py"), (verdict.worlds[0].reason, verdict.worlds[0].findings)


def test_an_evaluation_on_some_samples_is_only_shown(tmp_path: Path) -> None:
    """It is that of rank 0, as of one process."""
    code, said = conftest.converted(
        tmp_path, DECIDING.format(loader=LOADER, steps="for x, y in loader:", decision="pass")
    )
    assert "drawn_by_rank_zero" not in code and "AD702 data[picked]" not in said


def test_numpy_is_not_seeded_apart_where_it_decides(tmp_path: Path, zygote: Zygote) -> None:
    """Noise and the samples of a deciding evaluation come from one generator: it stays alike, which is warned of; and
    generators of other libraries, which nobody has seeded, are no reason to take ranks for apart."""
    noisy = "for x, y in loader:\n        x = x + torch.from_numpy(np.random.normal(0, 0.1, (x.shape[0], 4))).float()"
    before = DECIDING.format(loader=LOADER, steps=noisy, decision=STOPS).replace(", nn.Dropout(0.3)", "")
    before = before.replace("torch.randint(64, (20,))", "np.random.choice(64, 20)")
    before = "import numpy as np\n" + before.replace("torch.manual_seed(0)", "torch.manual_seed(0)\nnp.random.seed(0)")
    code, said = conftest.converted(tmp_path, before)
    assert "initial_seed() % 2**32" not in code and "all ranks draw alike" in said
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert [each.kind for each in verdict.worlds[0].findings] == ["noise-alike"]


SEEDED = """\
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        torch.manual_seed(index + 100)
        return torch.randn(4), torch.randn(1)


seed = random.randint(1, 10000)
print("Random Seed:", seed)
random.seed(seed)
torch.manual_seed(seed)
loader = DataLoader(Pictures(), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


def test_a_seed_that_is_drawn(tmp_path: Path, zygote: Zygote) -> None:
    """The original draws the same, and does not begin with what it is to draw; samples that are seeded are no seeds of
    the script."""
    code, _ = conftest.converted(tmp_path, SEEDED)
    (tmp_path / "before.py").write_text(SEEDED)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


FOR_SAMPLES = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
np.random.seed(0)
data, target = torch.randn(64, 4), torch.randn(64, 1)
loader = DataLoader(TensorDataset(data, target), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
for epoch in range(2):
    for x, y in loader:
        {drawn}
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
print(torch.randn(3).tolist())
"""


@pytest.mark.parametrize(
    "drawn",
    [
        "x, y = (each[torch.randint(0, len(x), (len(x),))] for each in (x, y))",
        "pick = torch.randint(high=len(x), size=(len(x), 3))\n        x, y = x[pick].mean(1), y[pick].mean(1)",
        "pick = np.random.choice(len(x), len(x))\n        x, y = x[pick], y[pick]",
        "pick = np.random.randint(0, len(x), len(x))\n        x, y = x[pick], y[pick]",
        "x = x * torch.distributions.Beta(2.0, 2.0).sample((len(x), 1))",
        "x = x + torch.distributions.Gamma(2.0, 2.0).sample((len(x), 4))",
        "x = x + torch.distributions.Categorical(torch.ones(3)).sample((len(x), 1))",
        "x = x * torch.from_numpy(np.random.dirichlet([1.0, 2.0], size=len(x)))[:, :1]",
    ],
)
def test_draws_for_the_samples_of_a_rank(tmp_path: Path, zygote: Zygote, drawn: str) -> None:
    """Rows that a step picks of its batch are those of its rank's share."""
    before = FOR_SAMPLES.format(drawn=drawn)
    code, _ = conftest.converted(tmp_path, before)
    (tmp_path / "before.py").write_text(before)
    (tmp_path / "after.py").write_text(code)
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


READ = """\
import torch
from torch import nn
{join}
torch.manual_seed(0)
data, target = torch.randn(64, 4), torch.randn(64, 1)
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
{apart}
state = torch.get_rng_state()
first = torch.randint(0, 64, ({size},))
{then}
for step in range(6):
    rows = torch.randint(0, 64, ({size},))
    loss = nn.functional.mse_loss(model(data[rows]), target[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{save}
"""
SAVE = "torch.save(state, 'state.pt')"


@pytest.mark.parametrize("then", ["", "torch.set_rng_state(state)", "torch.manual_seed(3{rank})"])
def test_a_state_that_is_read_once_ranks_are_apart(tmp_path: Path, zygote: Zygote, then: str) -> None:
    """The original goes on as rank 0 before it reads the state, not only when it draws."""
    plain = {"join": "", "apart": "", "size": "8", "save": SAVE, "then": then.format(rank="")}
    model = "nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))"
    ours = {
        "join": 'import torch.distributed as dist\n\ndist.init_process_group("gloo")',
        "apart": "torch.manual_seed(1 + dist.get_rank())",
        "size": "8 // dist.get_world_size()",
        "save": f"if dist.get_rank() == 0:\n    {SAVE}",
        "then": then.format(rank=" + dist.get_rank()"),
    }
    (tmp_path / "before.py").write_text(READ.format(model=model, **plain))
    (tmp_path / "after.py").write_text(READ.format(model=f"nn.parallel.DistributedDataParallel({model})", **ours))
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


LOOKED_AT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset{imported}


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x + torch.randn_like(x))

{join}
torch.manual_seed(0)
data = torch.randn(96, 4)
train = TensorDataset(data[:64])
loader = DataLoader(train, {loader})
model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    {epoch}
    model.train()
    for (x,) in loader:
        x = x[x[:, 0].argsort()]
        loss = nn.functional.mse_loss(model(x), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    shown = {called}(data[64:71])
"""


def test_an_evaluation_with_gradients_on(tmp_path: Path, zygote: Zygote) -> None:
    """Its noise is each rank's own, at the line whose draws in steps are held still."""
    before = {"imported": "", "join": "", "loader": "batch_size=8, shuffle=True", "model": "Noisy()"}
    after = {
        "imported": ", DistributedSampler\nimport torch.distributed as dist",
        "join": 'dist.init_process_group("gloo")',
        "loader": "batch_size=8 // dist.get_world_size(), sampler=DistributedSampler(train)",
        "model": "nn.parallel.DistributedDataParallel(Noisy())\ntorch.manual_seed(1 + dist.get_rank())",
    }
    (tmp_path / "before.py").write_text(LOOKED_AT.format(**before, epoch="pass", called="model"))
    (tmp_path / "after.py").write_text(
        LOOKED_AT.format(**after, epoch="loader.sampler.set_epoch(epoch)", called="model.module")
    )
    verdict = verify(tmp_path / "before.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, (verdict.worlds[0].reason, verdict.worlds[0].findings)


@pytest.mark.parametrize("workers", ["", ", num_workers=2"])
def test_samples_that_are_seeded_part_the_ranks(tmp_path: Path, zygote: Zygote, workers: str) -> None:
    """What is drawn after a sample that was seeded, and not by a worker, follows from it: no rank has another's."""
    head, _, body = SEEDED.partition("for x, y in loader:")
    before = f"{head}for epoch in range(2):\n    for x, y in loader:{body.replace(chr(10) + '    ', chr(10) + ' ' * 8)}"
    before = before.replace("shuffle=True", f"shuffle=True{workers}")
    code, _ = conftest.converted(tmp_path, before)
    apart = next(line for line in code.splitlines() if "+ dist.get_rank())" in line)
    (tmp_path / "before.py").write_text(before)
    for name, after in (("after.py", code), ("alike.py", code.replace(apart, ""))):
        (tmp_path / name).write_text(after)
        verdict = verify(tmp_path / "before.py", tmp_path / name, [2], device="cpu", workdir=tmp_path, zygote=zygote)
        (world,) = verdict.worlds
        assert [each.kind for each in world.findings] == ([] if name == "after.py" else ["noise-alike"]), world.reason
