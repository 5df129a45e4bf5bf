"""Which sampler is told the epoch, and where."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm


def run(loader, train):
    bar = {over}
    for x, y in bar:
        loss = nn.functional.mse_loss(model(x), y)
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
train_loader = DataLoader(data, batch_size=8, shuffle=True)
test_loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    run(train_loader, True)
    run(test_loader, False)
"""


@pytest.mark.parametrize("over", ["loader", "tqdm(loader)", "tqdm(enumerate(loader))"])
def test_a_loop_that_evaluates_too(tmp_path: Path, over: str) -> None:
    """The loader that is not shared out has no sampler with epochs."""
    code, _ = converted(tmp_path, SCRIPT.format(over=over.replace("enumerate(loader)", "loader, total=4")))
    name = "bar" if over == "loader" else "loader"
    assert f"if isinstance({name}.sampler, DistributedSampler):\n        {name}.sampler.set_epoch" in code


PHASES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loaders = {phase: DataLoader(data, batch_size=8, shuffle=phase == "train") for phase in ["train", "val"]}
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for phase in ["train", "val"]:
        bar = tqdm(loaders[phase])
        for x, y in bar:
            loss = nn.functional.mse_loss(model(x), y)
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
"""


def test_a_bar_over_one_loader_after_the_other(tmp_path: Path) -> None:
    assert "loaders[phase].sampler.set_epoch(epoch)\n        for x, y in bar:" in converted(tmp_path, PHASES)[0]


def test_a_bar_that_takes_its_loader_s_name(tmp_path: Path) -> None:
    """`loader = tqdm(loader)`: the bar has no sampler, what it iterates over has."""
    text = PHASES.replace("bar = tqdm(loaders[phase])", "loader = loaders[phase]\n        loader = tqdm(loader)")
    code, _ = converted(tmp_path, text.replace("in bar", "in loader"))
    assert "loader.iterable.sampler.set_epoch(epoch)\n        for x, y in loader:" in code


def test_a_loader_that_may_have_a_sampler_of_its_own(tmp_path: Path) -> None:
    """What an option gives the loader knows of no epochs."""
    made = (
        "if len(data) > 40:\n    train_loader = DataLoader(data, batch_size=8, shuffle=True)\nelse:\n"
        "    train_loader = DataLoader(data, batch_size=8, sampler=SubsetRandomSampler(range(16)))\n"
    )
    text = SCRIPT.format(over="loader").replace("train_loader = DataLoader(data, batch_size=8, shuffle=True)\n", made)
    text = text.replace("import DataLoader,", "import DataLoader, SubsetRandomSampler,")
    code, _ = converted(tmp_path, text.replace("    run(test_loader, False)\n", ""))
    assert (
        "RankShare(" in code
        and "if isinstance(bar.sampler, DistributedSampler):\n        bar.sampler.set_epoch(" in code
    )


TWICE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(epoch, net, optimizer, loader):
    for x, y in loader:
        loss = nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
nets = nn.Linear(4, 1), nn.Linear(4, 1)
first, second = nets
optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in nets]
{before}
for epoch in range(2):
    {inside}
    train(epoch, first, optimizers[0], loader)
    train(epoch, second, optimizers[1], loader)
"""
MADE = "loader = DataLoader(data, batch_size=8, shuffle=True)"


@pytest.mark.parametrize(
    ("before", "inside", "number"),
    [(MADE, "pass", "loader.sampler.epoch + 1"), ("", MADE, "next(passes)")],
)
def test_two_passes_in_one_epoch(tmp_path: Path, before: str, inside: str, number: str) -> None:
    """Each has an order of its own, also where the loader and its sampler are made anew."""
    code, _ = converted(tmp_path, TWICE.format(before=before, inside=inside))
    assert f"    loader.sampler.set_epoch({number})\n    for x, y in loader:" in code


LOOKS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
for x, y in loader:
    print(x.dtype)
    break
x, y = next(iter(loader))
print(y.dtype)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_two_looks_at_the_data_show_different_samples(tmp_path: Path) -> None:
    """As each pass over a shuffled loader does; the first has the order of epoch 0."""
    code, _ = converted(tmp_path, LOOKS)
    following = "loader.sampler.set_epoch(loader.sampler.epoch + 1)\n"
    assert f"{following}x, y = next(iter(loader))" in code
    assert f"    {following}    for x, y in loader:" in code
    assert code.count("set_epoch(") == 2


OWN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Scaled:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for x, y in self.loader:
            yield 2 * x, y


def fit(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
fit(model, loader)
fit(model, Scaled(loader))
"""


def test_an_iterable_of_the_scripts_own(tmp_path: Path) -> None:
    """It stopped at `Scaled.sampler`."""
    code, _ = converted(tmp_path, OWN)
    asked = 'if isinstance(getattr(loader, "sampler", None), DistributedSampler):'
    assert f"{asked}\n            loader.sampler.set_epoch(loader.sampler.epoch + 1)" in code
    assert "        self.loader.sampler.set_epoch(self.loader.sampler.epoch + 1)" in code


def test_bars_of_notebooks(tmp_path: Path) -> None:
    text = SCRIPT.format(over="tqdm(loader)").replace("from tqdm import", "from tqdm.autonotebook import")
    code, _ = converted(tmp_path, text)
    assert "tqdm(loader, disable=dist.get_rank() != 0)" in code


REMADE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
weights = torch.ones(64)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def sampler_for(weights):
    return WeightedRandomSampler(weights, 32)


{begin}
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
EACH_EPOCH = "for epoch in range(3):\n    loader = DataLoader(data, batch_size=8, sampler={})"
BEFORE = "loader = DataLoader(data, batch_size=8, sampler={})\nfor epoch in range(3):"


@pytest.mark.parametrize("made", ["sampler_for(weights)", "WeightedRandomSampler(weights, 32)"])
def test_samplers_that_each_epoch_makes_anew(tmp_path: Path, made: str) -> None:
    """With one seed for all of them each epoch would draw the samples of the first."""
    again, _ = converted(tmp_path, REMADE.format(begin=EACH_EPOCH.format(made)))
    assert "manual_seed(torch.initial_seed() + next(passes))" in again and "passes = itertools.count()" in again
    once, _ = converted(tmp_path, REMADE.format(begin=BEFORE.format(made)))
    assert "generator=torch.Generator().manual_seed(torch.initial_seed())" in once and "passes" not in once


def test_steps_in_a_comprehension(tmp_path: Path) -> None:
    steps = REMADE.format(begin=BEFORE.format("None, shuffle=True"))
    steps = steps.replace("sampler=None, ", "").partition("    for x, y in loader")[0]
    steps += "    losses = [step(x, y) for x, y in loader]\n    print(sum(losses) / len(losses))\n"
    step = "def step(x, y):\n    optimizer.zero_grad()\n    loss = nn.functional.mse_loss(model(x), y)\n"
    step += "    loss.backward()\n    optimizer.step()\n    return loss.item()\n\n\nloader ="
    after, _ = converted(tmp_path, steps.replace("loader =", step, 1))
    assert "    loader.sampler.set_epoch(epoch)\n    losses = [" in after, after


def test_steps_that_map_takes(tmp_path: Path) -> None:
    step = "def step(batch):\n    x, y = batch\n    optimizer.zero_grad()\n"
    step += "    loss = nn.functional.mse_loss(model(x), y)\n    loss.backward()\n    optimizer.step()\n"
    step += "    return loss.item()\n\n\nloader ="
    steps = REMADE.format(begin=BEFORE.format("None, shuffle=True")).replace("sampler=None, ", "")
    steps = steps.partition("    for x, y in loader")[0].replace("loader =", step, 1)
    after, _ = converted(
        tmp_path, steps + "    losses = list(map(step, loader))\n    print(sum(losses) / len(losses))\n"
    )
    assert "    loader.sampler.set_epoch(epoch)\n    losses = list(map(step, loader))" in after, after


BESIDE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
importance = torch.zeros(1, 4)
for epoch in range(2):
    {first}for x, y in loader:
        {first}optimizer.zero_grad()
        {first}nn.functional.mse_loss(model(x), y).backward()
        {first}optimizer.step()
    {second}for x, y in loader:
        {second}model.zero_grad()
        {second}nn.functional.mse_loss(model(x), y).backward()
        {second}importance += model.weight.grad**2
        {second}optimizer.step()
"""


@pytest.mark.parametrize(
    ("first", "second", "number"),
    [
        ("", "", "loader.sampler.epoch + 1"),
        ("", "if epoch > 0:\n        ", "loader.sampler.epoch + 1"),
        ("if epoch % 2:\n        ", "else:\n        ", "epoch"),
    ],
)
def test_two_passes_in_an_epoch(tmp_path: Path, first: str, second: str, number: str) -> None:
    """Both had the order of their epoch, in silence; of two branches only one passes."""
    text = BESIDE.replace("{first}for", first + "for").replace("{second}for", second + "for")
    text = text.format(first="    " * bool(first), second="    " * bool(second))
    code, _ = converted(tmp_path, text)
    assert code.count(f"loader.sampler.set_epoch({number})\n") == 2


SEVERAL = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def step(x, y):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def run(loader):
    for x, y in loader:
        step(x, y)


def score(loader):
    for x, y in loader:
        return nn.functional.mse_loss(model(x), y).item()


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
"""
TRAINED = "    for x, y in loader:\n        step(x, y)\n"


@pytest.mark.parametrize(
    ("passes", "by_sampler", "by_epoch"),
    [
        (TRAINED + "    print(score(loader))\n", 2, 0),
        ("    print(score(loader))\n" + TRAINED, 2, 0),
        (TRAINED + "    if epoch % 2:\n        print(score(loader))\n", 2, 0),
        ("    for again in range(2):\n        run(loader)\n" + TRAINED, 2, 0),
        ("    while len(loader) > 9:\n        run(loader)\n" + TRAINED, 2, 0),
        ("    run(loader)\n    run(loader)\n    with torch.no_grad():\n        for x, y in loader:\n"
         "            print(model(x).mean().item())\n            break\n", 2, 0),
        (TRAINED + "    with torch.no_grad():\n        print(score(loader))\n", 0, 2),
        ("    if epoch % 2:\n        run(loader)\n    else:\n    " + TRAINED.replace("\n    ", "\n        "), 0, 2),
    ],
)  # fmt: skip
def test_one_scheme_for_all_passes_of_a_loader(tmp_path: Path, passes: str, by_sampler: int, by_epoch: int) -> None:
    """`set_epoch(epoch)` after a pass for a score led the sampler back to an order in which it had trained."""
    code, _ = converted(tmp_path, SEVERAL + passes)
    assert code.count("set_epoch(loader.sampler.epoch + 1)") == by_sampler, code
    assert code.count("set_epoch(epoch)") == by_epoch


@pytest.mark.parametrize(
    ("passes", "told"),
    [
        ("    for rate in (0.1, 0.2):\n    " + TRAINED.replace("\n    ", "\n        "), 1),
        ("    for rate in (0.1, 0.2):\n        numbered(loader, epoch)\n", 1),
        ("    for rate in (0.1, 0.2):\n        of_all(epoch)\n", 1),
        ("    for each in [loader, other]:\n        numbered(each, epoch)\n", 0),
        ("    for name in loaders:\n        for x, y in loaders[name]:\n            step(x, y)\n", 0),
        ("    for name in loaders:\n        of = loaders[name]\n        for x, y in of:\n            step(x, y)\n", 0),
    ],
)  # fmt: skip
def test_a_loop_inside_that_of_epochs(tmp_path: Path, passes: str, told: int) -> None:
    """Its rounds all had the order of their epoch, if they pass over one loader."""
    more = (
        "\n\ndef numbered(each, epoch):\n    for x, y in each:\n        step(x, y)\n\n\n"
        "def of_all(epoch):\n    for x, y in loader:\n        step(x, y)\n\n\n"
        "other = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)\n"
        "loaders = {'one': loader, 'other': other}\nfor epoch"
    )
    code, _ = converted(tmp_path, SEVERAL.replace("for epoch", more) + passes)
    assert code.count(".sampler.epoch + 1)") == told, code
    assert bool(told) != ("set_epoch(epoch)" in code)


def test_a_function_that_is_called_outside_of_the_loop_as_well(tmp_path: Path) -> None:
    """It read the number of a loop of the module, which had not begun where another loader was passed over first."""
    first = "def warm_up(first):\n    for number in range(2):\n        run(first)\n\n\nloader = "
    script = SEVERAL.replace("loader = ", first, 1) + "    run(loader)\n"
    other = "warm_up(DataLoader(loader.dataset, batch_size=4, shuffle=True))\nfor epoch"
    code, _ = converted(tmp_path, script.replace("for epoch", other))
    assert "    first.sampler.set_epoch(number)\n        run(first)" in code, code
    assert "    loader.sampler.set_epoch(epoch)\n    run(loader)" in code and code.count("set_epoch") == 2


COUNTED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
start = 2


def train_one_epoch(model, batches):
    for x, y in batches:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


class Trainer:
    def __init__(self):
        self.epoch, self.loader = start, loader

    def train(self):
        for x, y in self.loader:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

    def fit(self):
        while self.epoch < 4:
            self.train()
            self.epoch += 1

    def fit_to(self, end):
        for epoch in range(start, end):
            self.train()


def run():
    for epoch in range(start, 4):
        train_one_epoch(model, loader)


"""


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (
            "epoch = start\nwhile epoch < 4:\n    train_one_epoch(model, loader)\n    epoch += 1\n",
            "loader.sampler.set_epoch(epoch)",
        ),
        (
            "epoch = start\nwhile True:\n    epoch = epoch + 1\n    train_one_epoch(model, loader)\n"
            "    if epoch == 4:\n        break\n",
            "loader.sampler.set_epoch(epoch)",
        ),
        ("run()\n", "loader.sampler.set_epoch(epoch)"),
        ("Trainer().fit()\n", "self.loader.sampler.set_epoch(self.epoch)"),
        ("Trainer().fit_to(4)\n", "self.loader.sampler.set_epoch(epoch)"),
        (
            "state = {'epoch': start}\nwhile state['epoch'] < 4:\n    train_one_epoch(model, loader)\n"
            "    state['epoch'] += 1\n",
            "loader.sampler.set_epoch(state['epoch'])",
        ),
        (
            "step = 0\nwhile step < 40:\n    train_one_epoch(model, loader)\n    step += len(loader)\n",
            "batches.sampler.set_epoch(batches.sampler.epoch + 1)",
        ),
        ("for fold in range(2):\n    run()\n", "batches.sampler.set_epoch(batches.sampler.epoch + 1)"),
    ],
)
def test_a_resumed_run_goes_on_with_the_order_of_its_epoch(tmp_path: Path, loop: str, expected: str) -> None:
    """Counted by the sampler, the first epochs' orders would come again."""
    code = converted(tmp_path, COUNTED + loop)[0]
    assert [line.strip() for line in code.splitlines() if "set_epoch(" in line] == [expected]


ANEW_HEAD = """\
import functools
import itertools

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randint(3, (64,)))
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def make_loader():
    return DataLoader(data, batch_size=8, shuffle=True)


"""
MADE = "DataLoader(data, batch_size=8, shuffle=True)"
HELD = (
    "class Data:\n    held = None\n\n    METHOD(self):\n        if self.held is None:\n            self.held = MADE\n"
    "        return self.held\n\n\nd = Data()\n"
)
ANEW = {
    "function": ("", "make_loader()"),
    "method": (f"class Data:\n    def loader(self):\n        return {MADE}\n\n\nd = Data()\n", "d.loader()"),
    "property": (
        f"class Data:\n    @property\n    def loader(self):\n        return {MADE}\n\n\nd = Data()\n",
        "d.loader",
    ),
    "lambda": (f"get = lambda: {MADE}\n", "get()"),
    "by a name": (f"def get():\n    loader = {MADE}\n    print(len(loader))\n    return loader\n\n\n", "get()"),
    "of a function": ("def get(count):\n    return make_loader(), count\n\n\n", "get(3)[0]"),
    "in a dict": ("def get():\n    return {'train': make_loader()}\n\n\n", "get()['train']"),
    "progress": ("", "tqdm(make_loader())"),
    "first batches": ("", "itertools.islice(make_loader(), 5)"),
}


def anew(defined: str, loader: str) -> str:
    """A script that asks for a loader in each epoch."""
    return (
        f"{ANEW_HEAD}{defined}for epoch in range(3):\n    for x, y in {loader}:\n        optimizer.zero_grad()\n"
        "        nn.functional.cross_entropy(model(x), y).backward()\n        optimizer.step()\n"
    )


@pytest.mark.parametrize(("defined", "loader"), ANEW.values(), ids=ANEW)
def test_a_loader_that_a_function_makes_for_each_pass(tmp_path: Path, defined: str, loader: str) -> None:
    """All passes had the order of the first."""
    after, told = converted(tmp_path, anew(defined, loader))
    assert after.count("seed=torch.initial_seed() + next(passes)") == 1 and "set_epoch" not in after
    assert after.count("passes = itertools.count()") == 1 and "AD202" not in told


KEPT = {
    "attribute": (HELD.replace("METHOD", "def loader").replace("MADE", MADE), "d.loader()"),
    "attribute by a function": (HELD.replace("METHOD", "def loader").replace("MADE", "make_loader()"), "d.loader()"),
    "cache": (f"@functools.lru_cache\ndef get():\n    return {MADE}\n\n\n", "get()"),
    "property": (HELD.replace("METHOD", "@property\n    def loader").replace("MADE", MADE), "d.loader"),
    "table": (
        f"memo = {{}}\n\n\ndef get():\n    if 0 not in memo:\n        loader = {MADE}\n        memo[0] = loader\n"
        "    return memo[0]\n\n\n",
        "get()",
    ),
    "global": (
        f"kept = None\n\n\ndef get():\n    global kept\n    if kept is None:\n        kept = {MADE}\n"
        "    return kept\n\n\n",
        "get()",
    ),
}


@pytest.mark.parametrize(("defined", "loader"), KEPT.values(), ids=KEPT)
def test_a_loader_that_a_function_keeps(tmp_path: Path, defined: str, loader: str) -> None:
    """Its sampler is made once, so that its seed says nothing of the pass."""
    after, told = converted(tmp_path, anew(defined, loader))
    assert "next(passes)" not in after
    assert "the sampler cannot be told here" in told or ".sampler.set_epoch(epoch)" in after


def test_a_loader_that_is_made_in_place_and_by_a_name(tmp_path: Path) -> None:
    again = "loader = make_loader()\n" + anew("", "loader").removeprefix(ANEW_HEAD)
    after = converted(tmp_path, anew("", "make_loader()") + again)[0]
    in_place, _, named = after.partition("loader = make_loader()")
    assert "seed=torch.initial_seed() + next(passes)" in in_place and "set_epoch" not in in_place
    assert "loader.sampler.set_epoch(" in named


STEP = """\
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
PASS = f"    for x, y in loader:\n{STEP}"
FUNCTION = f"def train(loader, epoch):\n{PASS}\n\n"
CALL = "    train(loader, epoch)\n"
BY_SAMPLER = "loader.sampler.set_epoch(loader.sampler.epoch + 1)"
BY_EPOCH = "loader.sampler.set_epoch(epoch)"
LOOPS = {
    "from the warm-up on": (f"for epoch in range(warm):\n{PASS}for epoch in range(warm, epochs):\n{PASS}", BY_EPOCH),
    "from one": (
        f"for epoch in range(1, warm + 1):\n{PASS}for epoch in range(warm + 1, epochs + 1):\n{PASS}",
        BY_EPOCH,
    ),
    "by a function": (
        f"{FUNCTION}for epoch in range(warm):\n{CALL}for epoch in range(warm, epochs):\n{CALL}",
        BY_EPOCH,
    ),
    "by its bar": (
        f"{FUNCTION}for epoch in tqdm(range(warm)):\n{CALL}for epoch in tqdm(range(warm, epochs)):\n{CALL}",
        BY_EPOCH,
    ),
    "in two branches": (
        f"{FUNCTION}if epochs > 9:\n    for epoch in range(warm):\n    {CALL}else:\n"
        f"    for epoch in range(epochs):\n    {CALL}",
        BY_EPOCH,
    ),
    "from zero again": (f"for epoch in range(warm):\n{PASS}for epoch in range(epochs):\n{PASS}", BY_SAMPLER),
    "from elsewhere": (f"for epoch in range(warm):\n{PASS}for epoch in range(1, epochs):\n{PASS}", BY_SAMPLER),
    "by another name": (
        f"def train(loader):\n{PASS}\n\nfor epoch in range(warm):\n    train(loader)\n"
        "for number in range(warm, epochs):\n    train(loader)\n",
        BY_SAMPLER,
    ),
    "where the function has no number": (
        f"def train(loader):\n{PASS}\n\ndef main():\n    for epoch in range(warm):\n        train(loader)\n"
        "    for epoch in range(warm, epochs):\n        train(loader)\n\n\nmain()\n",
        BY_SAMPLER,
    ),
}


@pytest.mark.parametrize("case", LOOPS)
def test_two_loops_over_epochs(case: str, tmp_path: Path) -> None:
    """Where the second counts on, the number of the epoch is that of its order, also in a run that is resumed."""
    loops, told = LOOPS[case]
    text = (
        "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "from tqdm import tqdm\n\nwarm, epochs = 2, 4\n"
        "loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=16, shuffle=True)\n"
        "model = nn.Linear(4, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n\n\n" + loops
    )
    code, _ = converted(tmp_path, text)
    assert told in code and code.count(".set_epoch(") == code.count(told)


OF_DATA = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Noisy(Dataset):
    def __init__(self):
        self.x, self.epoch = torch.randn(32, 4), 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.x[index, :1] * self.epoch


data = Noisy()
model = nn.Linear(4, 1)
{before}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    {told}.set_epoch(epoch)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
BY_HAND = (
    "dist.init_process_group('gloo')\n"
    "loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))\n"
    "model = nn.parallel.DistributedDataParallel(model)"
)
BY_LOADER = "loader = DataLoader(data, batch_size=8, shuffle=True)"


@pytest.mark.parametrize("told", ["data", "loader.dataset"])
@pytest.mark.parametrize("before", [BY_LOADER, BY_HAND])
def test_a_data_set_that_is_told_the_epoch(tmp_path: Path, before: str, told: str) -> None:
    """Its sampler is not: every epoch would have the order of the first."""
    code, _ = converted(tmp_path, OF_DATA.format(before=before, told=told))
    assert "    loader.sampler.set_epoch(epoch)\n    for x, y in loader:" in code


def test_a_sampler_that_is_told_the_epoch(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, OF_DATA.format(before=BY_HAND, told="loader.sampler"))
    assert code.count("set_epoch(epoch)") == 1
