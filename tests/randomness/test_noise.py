"""Where ranks begin to draw noise of their own, and where they must not."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.verify import verify
from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)


def train(model, optimizer):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


model = nn.Linear(4, 1)
train(model, torch.optim.SGD(model.parameters(), lr=0.1))
{again}
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{seed}
for x, y in loader:
    loss = nn.functional.mse_loss(model(x + torch.randn(x.shape)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("again", "seed"), [("", ""), ("torch.manual_seed(1)", ""), ("", "torch.manual_seed(1)")])
def test_a_second_training_that_draws_noise(tmp_path: Path, again: str, seed: str) -> None:
    """The first one needs none, and the model of the second must begin alike on all ranks."""
    code, _ = converted(tmp_path, SCRIPT.format(again=again, seed=seed))
    assert code.count("torch.initial_seed() + 1 + dist.get_rank()") == 1
    assert code.index("optimizer = torch") < code.index("torch.initial_seed() + 1") < code.index("x + torch.randn")


@pytest.mark.parametrize(
    "drawn",
    [
        "torch.distributions.Normal(x, 1.0).rsample()",
        "x + torch.distributions.Normal(0.0, 1.0).sample((len(x), 1))",
        "x + prior.sample([x.shape[0], 1])",
    ],
)
def test_samples_of_a_distribution(tmp_path: Path, drawn: str) -> None:
    """The latent variables of a neural process, the noise of a GAN: those of one batch differ, and so do those of two
    ranks."""
    text = SCRIPT.format(again="", seed="").replace("x + torch.randn(x.shape)", drawn)
    prior = "prior = torch.distributions.Normal(0.0, 1.0)\n"
    code, said = converted(tmp_path, text.replace("loader = ", f"{prior}loader = ", 1))
    assert code.count("torch.initial_seed() + 1 + dist.get_rank()") == 1
    assert "AD602" not in said


def test_a_data_set_that_draws_for_itself(tmp_path: Path) -> None:
    """Numbers of NumPy are the same on all ranks, though the script seeds nothing."""
    text = SCRIPT.format(again="", seed="").replace("torch.manual_seed(1)\n", "import numpy as np\n")
    code, _ = converted(tmp_path, text.replace("loader = ", "first = np.random.randint(32)\nloader = "))
    assert "np.random.seed(torch.initial_seed() % 2**32)" in code


FOLDS = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for fold in range(2):
    for parameter in model.parameters():
        nn.init.uniform_(parameter)
    train(model, optimizer)
"""


def test_parameters_that_are_drawn_anew(tmp_path: Path) -> None:
    """They must be the same on all ranks, whatever noise there is."""
    text = SCRIPT.format(again="", seed="").replace("model(x), y", "model(x + torch.randn(x.shape)), y")
    head, tail = text[: text.index("train(model, torch")], FOLDS
    assert "torch.initial_seed() + 1" not in converted(tmp_path, head + tail)[0]
    assert "torch.initial_seed()" in converted(tmp_path, head + tail.replace("nn.init.uniform_", "print"))[0]


@pytest.mark.parametrize(
    ("noise", "alike"),
    [
        ("torch.randn(p.shape)", True),
        ("0.1 * torch.randn(p.grad.size())", True),
        ("torch.empty(p.data.shape).normal_(0.0, 0.1)", True),
        ("torch.randn_like(p)", True),
        ("torch.zeros(p.shape)", False),
    ],
)
def test_noise_of_parameters(tmp_path: Path, noise: str, alike: bool) -> None:
    """It is the same on all ranks, or their parameters drift apart. Then noise of samples is drawn for those of all
    ranks, and dropout is alike, which is said."""
    added = f"    for p in model.parameters():\n        p.grad.add_({noise})\n    optimizer.step()\n"
    script = SCRIPT.format(again="", seed="").rpartition("    optimizer.step()\n")[0] + added
    code, said = converted(tmp_path, script)
    assert ("torch.initial_seed() + 1 + dist.get_rank()" not in code) is alike
    assert ("for the samples of all, of which each has its own" in said) is alike
    code, said = converted(tmp_path, script.replace("x + torch.randn(x.shape)", "nn.functional.dropout(x, 0.1)"))
    assert ("torch.initial_seed() + 1 + dist.get_rank()" not in code) is alike
    assert ("masks of dropout and noise are the same" in said) is alike


def test_a_training_for_each_fold(tmp_path: Path) -> None:
    """A new model comes from rank 0 when it is wrapped, so that ranks may have gone apart; what is split may not."""
    head = (
        SCRIPT.format(again="", seed="")
        .partition("model = nn.Linear(4, 1)\ntrain(")[0]
        .replace("model(x), y", "model(x + torch.randn(x.shape)), y")
    )
    training = "    model = nn.Linear(4, 1)\n    train(model, torch.optim.SGD(model.parameters(), lr=0.1))\n"
    folds = "for fold in range(2):\n" + training
    code, _ = converted(tmp_path, head + folds)
    apart = "torch.manual_seed(torch.initial_seed() + 1 + dist.get_rank())  # dropout and noise differ by rank\n"
    assert f"    if dist.get_rank() > 0:\n        {apart}    for x, y in loader" in code  # rank 0 would repeat itself
    parts = "    parts = torch.utils.data.random_split(loader.dataset, [16, 16])\n"
    split = folds.replace("range(2):\n", "range(2):\n" + parts)
    seeded = split.replace("range(2):\n", "range(2):\n    torch.manual_seed(fold)\n")
    assert "torch.initial_seed()" in converted(tmp_path, head + seeded)[0]


SAMPLER = """\
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


class Shuffled(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        order = list(range(len(self.data)))
        random.shuffle(order)
        return iter(order)

    def __len__(self):
        return len(self.data)


def collate(samples):
    return torch.utils.data.default_collate(samples)


random.seed(0)
torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8, sampler=Shuffled(data), collate_fn=collate)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
FLIP = "        x = torch.stack([-row if random.random() < 0.5 else row for row in x])\n"


@pytest.mark.parametrize(
    ("old", "new", "once"),
    [
        ("", "", False),
        ("        loss = ", FLIP + "        loss = ", True),
        ("    return torch.utils", "    random.shuffle(samples)\n    return torch.utils", True),
        ("nn.Linear(4, 1)", "nn.Sequential(nn.Dropout(0.1), nn.Linear(4, 1))", False),
        ("        loss = ", "        x = x + torch.randn_like(x)\n        loss = ", False),
    ],
)
def test_an_order_drawn_from_what_ranks_draw_from(tmp_path: Path, old: str, new: str, once: bool) -> None:
    """Ranks draw as many numbers as their own samples ask for; then one of them has to draw the order for all."""
    code, _ = converted(tmp_path, SAMPLER.replace(old, new, 1))
    assert ("dist.broadcast_object_list(drawn)" in code) == once
    assert "class RankShare" in code


@pytest.mark.parametrize("drops", [True, False])
def test_an_order_drawn_from_what_dropout_draws_from(tmp_path: Path, drops: bool) -> None:
    """Ranks drop out other numbers each, and torch's generators are apart from then on."""
    script = SAMPLER.replace("        random.shuffle(order)\n", "        order = torch.randperm(len(order)).tolist()\n")
    model = "nn.Sequential(nn.Dropout(0.1), nn.Linear(4, 1))" if drops else "nn.Linear(4, 1)"
    code, _ = converted(tmp_path, script.replace("nn.Linear(4, 1)", model))
    assert ("dist.broadcast_object_list(drawn)" in code) == drops


def test_an_order_without_end(tmp_path: Path) -> None:
    """It cannot be sent around as a whole."""
    endless = "        while True:\n            yield random.randrange(len(self.data))\n"
    script = SAMPLER.replace("        return iter(order)\n", endless).replace(
        "        loss = ", FLIP + "        loss = "
    )
    code, said = converted(tmp_path, script)
    assert "broadcast_object_list" not in code
    assert "give it a generator of its own" in said


REPEATED = """\
def indices(n):
    order = random.sample(range(n), n)
    at = 0
    while True:
        yield order[at]
        at += 1
        if at == n:
            random.seed()
            order = random.sample(range(n), n)
            at = 0


"""


@pytest.mark.parametrize("flips", [False, True])
def test_an_order_without_end_that_a_function_yields(tmp_path: Path, flips: bool) -> None:
    """What it takes anew from the system at the end of an epoch is left out: the ranks draw on, alike."""
    script = SAMPLER.replace("class Shuffled", REPEATED + "class Shuffled")
    script = script.replace("        return iter(order)\n", "        return iter(indices(len(self.data)))\n")
    code, said = converted(tmp_path, script.replace("        loss = ", FLIP + "        loss = ") if flips else script)
    assert "broadcast_object_list" not in code and "random.seed()" not in code
    assert ("give it a generator of its own" in said) == flips


def test_an_order_without_end_that_is_yielded_from_another(tmp_path: Path) -> None:
    endless = "        while True:\n            yield from random.sample(range(len(self.data)), len(self.data))\n"
    script = SAMPLER.replace("        return iter(order)\n", endless).replace(
        "        loss = ", FLIP + "        loss = "
    )
    code, said = converted(tmp_path, script)
    assert "broadcast_object_list" not in code
    assert "give it a generator of its own" in said


def test_a_sampler_that_begins_anew_outside_of_a_loop(tmp_path: Path) -> None:
    """Its seed is left out, and is none that the script sets."""
    script = SAMPLER.replace(
        "        random.shuffle(order)\n", "        random.seed()\n        random.shuffle(order)\n"
    )
    script = script.replace("random.seed(0)\n", "", 1).replace("model = ", "batches = iter(loader)\nmodel = ", 1)
    script = script.replace("    for x, y in loader:", "    for step in range(2):\n        x, y = next(batches)")
    code, said = converted(tmp_path, script)
    assert "random.seed()\n" not in code and "random.seed(as_on_rank_zero(torch.Generator().seed()))" in code, said


def test_orders_of_two_samplers_are_alike(tmp_path: Path) -> None:
    """Neither makes the other one's draws those of a rank's own samples."""
    two = "other = DataLoader(data, batch_size=4, sampler=Shuffled(data))\nmodel = "
    script = SAMPLER.replace("model = ", two, 1).replace(
        "for x, y in loader:", "for (x, y), (v, _) in zip(loader, other):"
    )
    script = script.replace("mse_loss(model(x), y)", "mse_loss(model(x), y) + model(v).pow(2).mean()")
    code, _ = converted(tmp_path, script)
    assert code.count("RankShare(Shuffled(data))") == 2 and "broadcast_object_list" not in code


@pytest.mark.parametrize("place", ["torch.utils.data", "torch.utils.data.sampler"])
def test_an_order_that_a_sampler_of_torch_draws(tmp_path: Path, place: str) -> None:
    """It needs a generator of its own, by either of its names, once ranks draw noise of their own."""
    code, _ = converted(
        tmp_path,
        f"from {place} import SubsetRandomSampler\n"
        + SCRIPT.format(again="", seed="").replace("shuffle=True", "sampler=SubsetRandomSampler(list(range(32)))"),
    )
    assert "torch.initial_seed() + 1 + dist.get_rank()" in code and "generator=torch.Generator()" in code


@pytest.mark.parametrize(
    ("draw", "apart"),
    [
        ("order = [np.random.permutation(4) for _ in range(x.shape[0])]", True),
        ("order = [np.random.permutation(4) for _ in x]", True),
        ("order = []\n    for _ in range(len(x)):\n        order.append(np.random.permutation(4))", True),
        ("order = [np.random.permutation(4)] * len(x)", False),
    ],
)
def test_what_numpy_draws_for_each_sample(tmp_path: Path, draw: str, apart: bool) -> None:
    """Ranks draw for samples of their own; what one draw decides for the whole batch they have in common."""
    text = SCRIPT.format(again="", seed="").replace("import torch\n", "import numpy as np\nimport torch\n", 1)
    step = f"{draw}\n    loss = nn.functional.mse_loss(model(x.gather(1, torch.as_tensor(np.stack(order)))), y)"
    text = text.replace("loss = nn.functional.mse_loss(model(x + torch.randn(x.shape)), y)", step)
    code, _ = converted(tmp_path, text)
    assert ("np.random.seed(torch.initial_seed() % 2**32)" in code) == apart


MADE = """\
import numpy as np
import torch
from torch import nn

np.random.seed(0)
model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.5), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    x = np.random.{drawn}.astype(np.float32)
    loss = model(torch.from_numpy(x)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("drawn", ["randn(100, 2)", "normal(size=(100, 2))", "rand(100, 2)"])
def test_batches_that_all_ranks_draw_are_no_noise(tmp_path: Path, drawn: str) -> None:
    """Each rank takes its share of what all draw alike; dropout masks, drawn from torch, may differ."""
    code, _ = converted(tmp_path, MADE.format(drawn=drawn))
    assert f"np.random.{drawn}[dist.get_rank() :: dist.get_world_size()]" in code
    assert "dropout and noise differ by rank" in code and "np.random.seed(torch" not in code


SPLIT = """\
import numpy as np
import pandas as pd
import sklearn.datasets
import torch
from sklearn.cluster import KMeans
from sklearn.model_selection import KFold, train_test_split
from sklearn.utils import shuffle
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = np.loadtxt("rows.csv", delimiter=",").astype("float32")
table = pd.read_csv("rows.csv")
{split}
loader = DataLoader(TensorDataset(torch.from_numpy(rows)), batch_size=8)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    loss = nn.functional.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("split", "seeded"),
    [
        ("rows, rest = train_test_split(rows, test_size=0.2)", True),
        ("rows, rest = train_test_split(rows, test_size=0.2, random_state=None)", True),
        ("rows, rest = train_test_split(rows, test_size=0.2, random_state=1)", False),
        ("rows, rest = train_test_split(rows, test_size=0.2, shuffle=False)", False),
        ("rows = rows[next(iter(KFold(n_splits=2, shuffle=True).split(rows)))[0]]", True),
        ("rows = rows[next(iter(KFold(n_splits=2).split(rows)))[0]]", False),
        ("rows = shuffle(rows)", True),
        ("rows = sklearn.datasets.make_blobs(64, 4)[0].astype('float32')", True),
        ("rows = KMeans(8).fit(rows).cluster_centers_", True),
        ("rows = table.sample(frac=1).values", True),
        ("rows = table.sample(n=8, random_state=2).values", False),
    ],
)
def test_what_libraries_draw_from_the_generator_of_numpy(tmp_path: Path, split: str, seeded: bool) -> None:
    """Ranks would train on other rows, and test on rows that others train on."""
    code, _ = converted(tmp_path, SPLIT.format(split=split))
    assert ("np.random.seed(as_on_rank_zero(torch.Generator().seed()) % 2**32)" in code) == seeded


CUT = """\
import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(64, 8), torch.randn(64, 4)
model = nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    order = torch.randperm(len(x))
    for i in range(0, len(x), 8):
        rows = order[i : i + 8]
        a, b = x[rows], y[rows]
        loss = nn.functional.mse_loss(model({given}), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("given", "alike"),
    [
        ("a + torch.randn_like(a)", True),
        ("a + torch.randn(a.shape)", True),
        ("a + torch.randn(8)", False),
        ("a", False),
    ],
)
def test_noise_beside_batches_that_all_ranks_draw_is_named(tmp_path: Path, given: str, alike: bool) -> None:
    """The order comes from the generator that noise comes from, so that the ranks' cannot go apart."""
    _, said = converted(tmp_path, CUT.format(given=given))
    assert ("AD702" in said and "all ranks draw alike" in said) == alike


AUGMENTED = """\
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)


def jitter(x):
    return x + {draw}


class Noise:
    def __call__(self, x):
        return jitter(x)


class Data(Dataset):
    def __init__(self, transform):
        self.x, self.y, self.transform = torch.randn(32, 4), torch.randn(32, 1), transform

    def __len__(self):
        return 32

    def __getitem__(self, i):
        return self.transform(self.x[i]), self.y[i]


loader = DataLoader(Subset(Data(Noise()), range(16)), batch_size=8, shuffle=True{options})
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
APART = "torch.manual_seed(torch.initial_seed() + 1 + dist.get_rank())"


@pytest.mark.parametrize(
    ("draw", "options", "seeds"),
    [
        ("random.random()", "", "random.seed(torch.initial_seed())\n"),
        ("float(np.random.normal())", "", "np.random.seed(torch.initial_seed() % 2**32)\n"),
        ("0.1 * torch.randn(4)", "", ""),
        ("random.random()", ", num_workers=2", ""),  # workers follow the generator of torch
    ],
)
def test_what_is_drawn_while_a_sample_is_read(tmp_path: Path, draw: str, options: str, seeds: str) -> None:
    """Ranks would augment their samples alike."""
    code, said = converted(tmp_path, AUGMENTED.format(draw=draw, options=options))
    assert f"{APART}  # dropout and noise differ by rank\n{seeds}for epoch" in code and "AD702 every rank" in said


@pytest.mark.parametrize("draw", ["0.1", "torch.randn(4, generator=own)", "np.random.default_rng(3).normal()"])
def test_nothing_that_ranks_would_draw_alike(tmp_path: Path, draw: str) -> None:
    assert APART not in converted(tmp_path, AUGMENTED.format(draw=draw, options=""))[0]


def test_each_process_has_a_seed_of_its_own(tmp_path: Path) -> None:
    """Where the script seeds nothing, Python does so apart on each rank."""
    text = AUGMENTED.format(draw="random.random()", options="").replace("random.seed(0)\n", "", 1)
    assert APART not in converted(tmp_path, text)[0]


def test_a_step_that_seeds_for_itself(tmp_path: Path) -> None:
    step = "        torch.manual_seed(epoch)\n        x = x + torch.randn_like(x)\n        loss ="
    text = AUGMENTED.format(draw="0.1", options="").replace("        loss =", step)
    assert (
        "AD702 all ranks draw alike: for the samples of all, of which each has its own" in converted(tmp_path, text)[1]
    )


def test_masks_beside_batches_that_all_ranks_draw(tmp_path: Path) -> None:
    """Where the order is drawn from the generator of the masks, rank 0 draws it for all."""
    text = AUGMENTED.format(draw="0.1", options="").replace(
        "nn.Linear(4, 1)", "nn.Sequential(nn.Dropout(), nn.Linear(4, 1))"
    )
    head = text.partition("for epoch")[0] + "a, b = torch.randn(32, 4), torch.randn(32, 1)\nfor epoch in range(2):\n"
    step = "        loss = nn.functional.mse_loss(model(a[i : i + 8]), b[i : i + 8])\n"
    step += "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n"
    code, said = converted(tmp_path, f"{head}    for i in range(0, 32, 8):\n{step}")
    assert APART in code and "masks of dropout" not in said
    step = step.replace("i : i + 8", "order[i : i + 8]")
    code, said = converted(tmp_path, f"{head}    order = torch.randperm(32)\n    for i in range(0, 32, 8):\n{step}")
    assert APART in code and "order = drawn_by_rank_zero(torch.randperm(32))" in code and "masks of" not in said


FROZEN = """\
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(4, 2), nn.Linear(2, 4)

    def forward(self, x, code_only=False):
        code = self.down(x)
        code = code + torch.randn_like(code)
        if {test}:
            return code
        return self.up(code)


loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
model = Coder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in loader:
        out, code = model(x), model(x, code_only=True)
        loss = nn.functional.mse_loss(out, x) + code.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("test", "apart"), [("code_only", True), ("code_only or torch.rand(1) < 0.5", False)])
def test_what_a_call_asks_for_is_no_chance(tmp_path: Path, test: str, apart: bool) -> None:
    """Gradients that ranks average by hand must be there on all ranks: which parts run may not be drawn by each. What
    one of several passes leaves out, another has used: the wrapper has all gradients."""
    code, _ = converted(tmp_path, FROZEN.format(test=test))
    assert ("average_gradients(optimizer)" in code, "DDP(Coder(), gradient_as_bucket_view=True)" in code) == (
        not apart,
        apart,
    )
    assert ("torch.initial_seed() + 1 + dist.get_rank()" in code) is apart


SLICED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 1)])
        for layer in self.layers:
            layer.weight.data.normal_(0, 0.01)

    def forward(self, x):
        for layer in self.layers:
            x = layer(nn.functional.dropout(x, 0.1, self.training))
        return x


torch.manual_seed(0)
data, target = torch.randn(32, 4), torch.randn(32, 1)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    {order}
    for i in range(0, 32, 8):
        loss = nn.functional.mse_loss(model({x}), {y})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("order", "index", "after"),
    [
        ("model.train()", "i : i + 8", "model.train()"),  # weights that a loop fills are drawn before ranks go apart
        ("order = torch.randperm(32)", "order[i : i + 8]", "order = drawn_by_rank_zero(torch.randperm(32))"),
        (
            "order = torch.empty(32).uniform_().argsort()",
            "order[i : i + 8]",
            "order = drawn_by_rank_zero(torch.empty(32).uniform_()).argsort()",
        ),
    ],
)
def test_batches_in_order_beside_weights_that_a_loop_fills(tmp_path: Path, order: str, index: str, after: str) -> None:
    script = SLICED.format(order=order, x=f"data[{index}]", y=f"target[{index}]")
    code, said = converted(tmp_path, script)
    assert "torch.initial_seed() + 1 + dist.get_rank()" in code and after in code
    assert "masks of dropout are the same" not in said


ROUNDS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)
        nn.init.kaiming_normal_(self.fc.weight)

    def forward(self, x):
        return self.fc({dropped})


class Experiment:
    def __init__(self):
        self.model = Net()

    def train(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        for epoch in range(3):
            for x, y in loader:
                loss = nn.functional.mse_loss(self.model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            self.model.eval()
            if sum(float((self.model(x) - y).abs().sum()) for x, y in DataLoader(data, batch_size=8)) < 0.1:
                break
            self.model.train()


torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
for round in range(2):
    Experiment().train()
"""


@pytest.mark.parametrize(
    ("dropped", "noisy"),
    [
        ("nn.functional.dropout(x, 0.1, self.training)", False),
        ("nn.functional.dropout(x, 0.1)", True),  # evaluations drop out as well, and say when to stop
        ("nn.functional.dropout(x, 0.1, self.training) * torch.rand(1)", True),
        ("x * torch.rand(x.shape)", True),
    ],
)
def test_a_new_model_for_each_round(tmp_path: Path, dropped: str, noisy: bool) -> None:
    """What is drawn while a model is made that is trained comes from rank 0, and so does what is decided by that which
    evaluations draw, and one number for a whole batch."""
    code, said = converted(tmp_path, ROUNDS.format(dropped=dropped))
    assert "torch.initial_seed() + 1 + dist.get_rank()" in code and "the same on all ranks" not in said
    assert ("if as_on_rank_zero(sum(" in code) is noisy
    assert ("* drawn_by_rank_zero(torch.rand(1))" in code) is ("torch.rand(1)" in dropped)


def of_batch(step: str, dropout: bool = True) -> str:
    """A script whose ranks go apart, for the sake of dropout, and whose steps begin with something."""
    script = SCRIPT.format(again="", seed="").partition("\n\ndef train")[0]
    drops = "nn.Dropout(0.5)" if dropout else "nn.ReLU()"
    script += f"\nmodel = nn.Sequential(nn.Linear(4, 8), {drops}, nn.Linear(8, 1))\n"
    script += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x, y in loader:\n"
    return script + "".join(f"    {line}\n" for line in [*step.splitlines(), *LEARNING])


LEARNING = [
    "loss = nn.functional.mse_loss(model(x), y)",
    "optimizer.zero_grad()",
    "loss.backward()",
    "optimizer.step()",
]
MIXED = "p = torch.distributions.Beta(0.4, 0.4).sample()\nx = p * x + (1 - p) * x.flip(1)"


@pytest.mark.parametrize(
    ("step", "drawn"),
    [
        ("if torch.rand(1).item() < 0.5:\n    continue", "drawn_by_rank_zero(torch.rand(1)).item() < 0.5"),
        ("if torch.rand(1) < 0.5:\n    continue", "if drawn_by_rank_zero(torch.rand(1)) < 0.5"),
        ("x = x + torch.rand(4)", "x + drawn_by_rank_zero(torch.rand(4))"),
        ("n = int(torch.randint(1, 5, (1,)))\nx[:, n:] = 0", "int(drawn_by_rank_zero(torch.randint(1, 5, (1,))))"),
        ("x = x * torch.empty(1).uniform_(0.5, 1)", "drawn_by_rank_zero(torch.empty(1).uniform_(0.5, 1))"),
        ("for _ in range(torch.randint(3, ()).item()):\n    model(x)", "range(drawn_by_rank_zero("),
        (MIXED, "drawn_by_rank_zero(torch.distributions.Beta(0.4, 0.4).sample())"),
        (MIXED.replace("sample()", "sample().item()"), "(torch.distributions.Beta(0.4, 0.4).sample()).item()"),
    ],
)
def test_what_is_drawn_once_for_a_batch(tmp_path: Path, step: str, drawn: str) -> None:
    """Ranks drew a number, a decision or a length each, once dropout differed by rank."""
    code, said = converted(tmp_path, of_batch(step))
    assert drawn in code, said
    assert "dropout and noise differ by rank" in code
    assert "drawn_by_rank_zero" not in converted(tmp_path, of_batch(step, dropout=False))[0]


@pytest.mark.parametrize(
    "step",
    [
        "x = x + torch.rand(len(x), 4)",
        "x = x + torch.randn_like(x)",
        "x = torch.stack([row * torch.rand(1) for row in x])",
        "x = x + torch.randn(x.shape[0], 1)",
        MIXED.replace("sample()", "sample((len(x), 1))"),
    ],
)
def test_what_is_drawn_for_samples_is_drawn_by_each_rank(tmp_path: Path, step: str) -> None:
    code, _ = converted(tmp_path, of_batch(step))
    assert "drawn_by_rank_zero" not in code
    assert "dropout and noise differ by rank" in code


def test_how_often_a_step_is_taken_is_drawn_once(tmp_path: Path) -> None:
    """The number is bound ahead of the loop that goes by it, in which the ranks would have waited for one another."""
    text = of_batch("k = torch.randint(1, 4, (1,)).item()\nfor _ in range(k):")
    head, loop, steps = text.partition("    for _ in range(k):\n")
    code, said = converted(tmp_path, head + loop + steps.replace("    ", "        "))
    assert "k = drawn_by_rank_zero(torch.randint(1, 4, (1,))).item()" in code, said


def test_rows_that_go_through_several_steps_of_their_batch(tmp_path: Path) -> None:
    """They were gathered at the end of an inner step, and met a rank's own in the next one: crash."""
    text = of_batch("for _ in range(3):", dropout=False)
    head, loop, steps = text.partition("    for _ in range(3):\n")
    inner = "        x = x + model(x)\n" + steps.replace("    ", "        ") + "        x = x.detach()\n"
    code, said = converted(tmp_path, head + loop + inner)
    assert "gather_rows" not in code and "for later steps" not in said, said


TRAININGS = """\
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))


def epoch_of(model, optimizer):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def detector():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        epoch_of(model, optimizer)


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
{between}
for epoch in range(2):
    epoch_of(model, optimizer)
"""
MODEL = "model = network()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
FIRST = "if '--detector' in sys.argv:\n    detector()\n"


@pytest.mark.parametrize(
    ("between", "times"),
    [
        (FIRST + MODEL, 2),
        (MODEL + FIRST, 2),
        ("try:\n    sys.argv.index('--detector')\nexcept ValueError:\n    detector()\n" + MODEL, 2),
        ("detector()\n" + MODEL, 2),
        (MODEL + "detector()\n", 1),  # the ranks have gone apart already
        (FIRST + "target = nn.Linear(4, 1).requires_grad_(False)\n" + MODEL, 1),  # which each rank must have alike
        (FIRST + "y = torch.randn(64, 1)\n" + MODEL, 1),
        (FIRST + MODEL + "nn.init.normal_(model[0].weight)\n", 1),
    ],
)
def test_a_training_ahead_of_the_main_one(tmp_path: Path, between: str, times: int) -> None:
    """The ranks went apart only ahead of one of two, though only one of them may run."""
    code, _ = converted(tmp_path, TRAININGS.format(between=between))
    assert code.count("torch.initial_seed() + 1 + dist.get_rank()") == times
    main = code.rpartition("for epoch in range(2):\n")[0]
    assert ("differ by rank" in main.splitlines()[-1]) is (between != MODEL + "detector()\n")


@pytest.mark.parametrize("between", [FIRST + MODEL, MODEL + FIRST])
@pytest.mark.parametrize("args", [(), ("--detector",)])
def test_both_trainings_draw_apart(tmp_path: Path, zygote: Zygote | None, between: str, args: tuple[str, ...]) -> None:
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(TRAININGS.format(between=between))
    after.write_text(converted(tmp_path, before.read_text())[0])
    verdict = verify(before, after, [2], args=args, device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.worlds[0].equal, verdict.worlds[0].findings
