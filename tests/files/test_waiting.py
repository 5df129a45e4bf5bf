"""Ranks wait for what rank 0 writes before they read it, once for each time it writes."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import json
import os
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path, columns=None):
        self.rows = {read}

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = torch.as_tensor(self.rows[index])
        return row[:2], row[2:]


def main():
    torch.manual_seed(0)
    table = torch.randn(64, 3).numpy()
    {written}
    train_set = Rows("train.rows")
    val_set = Rows(path="val.rows")
    loader = DataLoader(train_set, batch_size=8, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=8)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            print(sum(nn.functional.mse_loss(model(x), y).item() for x, y in val_loader))


main()
"""
BARRIER = "    dist.barrier()  # wait until rank 0 has written it\n    train_set = "


@pytest.mark.parametrize(
    ("read", "written", "waits"),
    [
        (
            "pd.read_csv(path).values",
            'pd.DataFrame(table).to_csv("train.rows"), pd.DataFrame(table).to_csv("val.rows")',
            1,
        ),
        ("np.load(path)", 'np.save("train.rows", table)\n    np.save("val.rows", table)', 1),
        ("np.load(path)", 'folder = os.getcwd()\n    np.save(folder + "/train.rows", table)', 1),
        ("json.load(open(path))", 'json.dump(table.tolist(), open(os.path.join(".", "train.rows"), "w"))', 1),
        ("np.load(path)", 'np.save("other.rows", table)', 0),
        ("np.load(path)", "pass", 0),
        ("pd.read_csv(path).values", 'np.save(f"{len(table)}.npy", table)', 0),
    ],
)
def test_what_a_data_set_reads(tmp_path: Path, read: str, written: str, waits: int) -> None:
    after, _ = conftest.converted(tmp_path, SCRIPT.format(read=read, written=written))
    assert after.count("rank 0 has written it") == waits
    assert (BARRIER in after) == bool(waits)


INSISTING = """\
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def load(model, folder, name):
    {first}
    path = os.path.join(folder, name)
    {test}
    model.load_state_dict(torch.load(path))


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
os.makedirs("out", exist_ok=True)
torch.save(model.state_dict(), "out/model.pt")
load(model, "out", "model.pt")
"""


@pytest.mark.parametrize(
    ("first", "test", "before"),
    [
        ("pass", "assert os.path.isfile(path)", "    dist.barrier()  # wait until rank 0 has written it\n    assert"),
        ("assert os.path.isdir(folder)", "assert os.path.isfile(path)", "it\n    assert os.path.isdir"),
        ("pass", "if not os.path.exists(path): raise FileNotFoundError(path)", "it\n    if not os.path.exists"),
        ("pass", "assert name", "it\n    model.module.load_state_dict"),
    ],
)
def test_a_function_that_insists_on_the_file(tmp_path: Path, first: str, test: str, before: str) -> None:
    """Another rank stopped where it looked for what rank 0 was still writing."""
    code, _ = conftest.converted(tmp_path, INSISTING.format(first=first, test=test))
    assert before in code


PICTURES = """\
import imageio
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def plot(epoch):
    name = "out/" + "epoch_{{:d}}".format(epoch) + ".png"
    imageio.imwrite(name, torch.zeros(8, 8, 3, dtype=torch.uint8).numpy())


def animate(epochs):
    imageio.mimsave("all.gif", [imageio.imread({read}) for epoch in range(epochs)])


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    plot(epoch)
animate(2)
"""


@pytest.mark.parametrize(
    ("read", "waits"),
    [
        ('f"out/epoch_{epoch}.png"', True),
        ('f"out/frame_{epoch}.png"', False),
        ('f"out/{epoch}.png"', False),
    ],
)
def test_pictures_whose_names_are_numbered(tmp_path: Path, read: str, waits: bool) -> None:
    text, _ = conftest.converted(tmp_path, PICTURES.format(read=read))
    assert ("dist.barrier()  # wait until rank 0 has written it\nanimate(2)" in text) is waits


CACHED = """\
import os
import pickle
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PATH = "cache.p"


def measure(rows):
    found = {"mean": rows.mean(0), "std": rows.std(0)}
    pickle.dump(found, open(PATH, "wb"))
    return found


def prepare(rows):
    return measure(rows)


torch.manual_seed(0)
rows = torch.randn(64, 2)
READ
rows = (rows - found["mean"]) / found["std"]
loader = DataLoader(TensorDataset(rows, torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
CHOSEN = """\
if not os.path.isfile(PATH):
    found = prepare(rows)
else:
    found = pickle.load(open(PATH, "rb"))\
"""


def test_a_cache_that_a_function_writes_where_it_is_missing(tmp_path: Path) -> None:
    """A rank that looks later would find what rank 0 is writing."""
    after, _ = conftest.converted(tmp_path, CACHED.replace("READ", CHOSEN))
    assert "with rank_zero_first():\n    if not os.path.isfile(PATH):\n" in after


def test_a_function_that_writes_whatever_is_there(tmp_path: Path) -> None:
    after, _ = conftest.converted(tmp_path, CACHED.replace("READ", "found = prepare(rows)"))
    assert "have looked" not in after


RUNS = """\
import datetime
import os
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def numbered(root):
    number = 0
    while True:
        path = os.path.join(root, str(number))
        if not os.path.exists(path):
            os.makedirs(path)
            break
        number += 1
    return path


def stamped(root):
    path = os.path.join(root, datetime.datetime.now().strftime("%H%M%S"))
    os.makedirs(path)
    return path


def resumed(path=None):
    if path is None:
        return stamped("runs")
    if not os.path.isdir(path):
        raise ValueError(path)
    return path


def main():
    place = {place}
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (x,) in DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()
    torch.save(model.state_dict(), os.path.join(place, "last.pt"))


main()
"""


@pytest.mark.parametrize("place", ['numbered("runs")', "resumed(*sys.argv[1:])"])
def test_new_folders_are_made_by_rank_0_alone(tmp_path: Path, place: str) -> None:
    """Who comes later does not find the first one's folder and leave it alone, but makes another."""
    text, _ = conftest.converted(tmp_path, RUNS.replace("{place}", place))
    assert "rank_zero_first" not in text
    name = "numbered" if "numbered" in place else "stamped"
    made = text[text.index(f"def {name}") :].partition("return path")[0]
    assert "if dist.get_rank() == 0:\n" in made.partition("os.makedirs(path)")[0]


NUMBERED = """\
import glob
import os
from pathlib import Path
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def free(path):
    path = Path(path)
    if not path.exists():
        return path
    return Path(f"{path}{max(int(name.rsplit('exp', 1)[1] or 1) for name in glob.glob(f'{path}*')) + 1}")


def train(place):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for (x,) in DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8, shuffle=True):
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        torch.save(model.state_dict(), os.path.join(place, f"epoch{epoch}.pt"))
    {after}


def main():
    {choose}
    {make}
    train(place)


main()
"""
READ = 'model.load_state_dict(torch.load(os.path.join(place, "epoch1.pt")))'
LOOP = 'n = 1\n    while os.path.exists(f"runs/exp{n}"):\n        n += 1\n    place = f"runs/exp{n}"'


@pytest.mark.parametrize(
    "choose, make, after, waits",
    [
        (LOOP, 'os.makedirs(os.path.join(place, "weights"))', READ, True),
        (LOOP, 'os.makedirs(os.path.join(place, "weights"))', "pass", False),  # rank 0 alone makes and writes it
        ('place = free("runs/exp")', "place.mkdir(parents=True, exist_ok=True)", "pass", True),
        ("place = f\"runs/exp{len(os.listdir('runs'))}\"", "os.makedirs(place)", READ, True),
        ('os.place = free("runs/exp")', "os.makedirs(place := str(os.place), exist_ok=True)", "pass", True),
        ('place = "runs/exp"', "os.makedirs(place, exist_ok=True)", READ, False),
    ],
)
def test_a_folder_under_the_first_free_name(tmp_path: Path, choose: str, make: str, after: str, waits: bool) -> None:
    """A rank that looks later than rank 0 would find the name taken, and make and read the next one."""
    script = NUMBERED.replace("{choose}", choose).replace("{make}", make).replace("{after}", after)
    text, _ = conftest.converted(tmp_path, script)
    before = text.partition(make)[0].splitlines()
    assert any("all ranks have looked for it" in line for line in before[-3:]) is waits


def test_what_rank_0_has_written_is_there_before_it_is_listed(tmp_path: Path) -> None:
    """Ranks that listed different files would wait for each other a different number of times."""
    after = (
        "for name in sorted(os.listdir(place)):\n        model.load_state_dict(torch.load(os.path.join(place, name)))"
    )
    named = after.replace("for name in sorted(os.listdir(place))", "names = os.listdir(place)\n    for name in names")
    for each, listed in ((after, "for name in sorted"), (named, "names = os.listdir")):
        script = NUMBERED.replace("{choose}", 'place = "runs"').replace("{make}", "os.makedirs(place, exist_ok=True)")
        text, _ = conftest.converted(tmp_path, script.replace("{after}", each))
        assert "dist.barrier()  # wait until rank 0 has written it" in text.partition(listed)[0].splitlines()[-2:][0]
        assert text.count("rank 0 has written it") == 1


READ_BACK = """\
import json
import os
import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train():
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).mean().backward()
        optimizer.step()


train()
"""
GROWN = """\
for k in range(3):
    {first}rows = pd.DataFrame({"k": [k]})
    if os.path.exists("sums.csv"):
        rows = pd.concat([pd.read_csv("sums.csv"), rows])
    rows.to_csv("sums.csv")
"""


@pytest.mark.parametrize(
    ("code", "again"),
    [
        (GROWN.replace("{first}", ""), True),
        (GROWN.replace("{first}", "train()\n    "), True),
        ('for k in range(3):\n    np.save("k.npy", np.ones(k))\n    print(np.load("k.npy").sum())\n', True),
        ('for k in range(3):\n    train()\n    np.save("k.npy", np.ones(k))\n    print(np.load("k.npy"))\n', False),
        ('np.save("k.npy", np.ones(1))\na = np.load("k.npy")\nnp.save("k.npy", np.ones(2))\nprint(a)\n', True),
        (
            'with open("k.json") as f:\n    k = json.load(f)\nwith open("k.json", "w") as f:\n    json.dump(k, f)\n',
            True,
        ),
        ('for k in range(3):\n    torch.save(k, "k.pt")\n    print(torch.load("k.pt"))\n', True),
        ('print(torch.load("a.pt"))\ntorch.save(1, "b.pt")\n', False),
        ('print(np.load("a.npy"))\nnp.savez("b.npz", a=1)\n', False),
        ('print(np.load("a.npy"))\nimport shutil\nshutil.copy("a.npy", "b.npy")\n', False),
        ('print(np.load("b.npy"))\nimport shutil\nshutil.copy("a.npy", "b.npy")\n', True),
    ],
)
def test_a_file_is_written_again_when_all_have_read_it(tmp_path: Path, code: str, again: bool) -> None:
    """A slower rank would read what is half written."""
    after, _ = conftest.converted(tmp_path, READ_BACK + code)
    read = after.find("dist.barrier()  # all ranks have read it\n")
    assert (read > 0) == again
    written = after[read:].partition("\n")[2].strip()
    assert not again or written.startswith("if dist.get_rank() == 0:")


SETTINGS = """\
import json
import pathlib

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

OUT = pathlib.Path("results")
OUT.mkdir(exist_ok=True)
{written}
settings = {read}
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
"""


@pytest.mark.parametrize(
    ("written", "read", "waits"),
    [
        ('json.dump({}, open(OUT / "s.json", "w"))', 'json.loads((OUT / "s.json").read_text())', True),
        ('(OUT / "s.json").write_text("{}")', 'json.loads((OUT / "s.json").read_bytes())', True),
        ('(OUT / "s.json").write_text("{}")', 'json.load((OUT / "s.json").open())', True),
        ("pass", 'json.loads((OUT / "s.json").read_text())', False),
    ],
)
def test_a_path_reads_what_rank_0_has_written(tmp_path: Path, written: str, read: str, waits: bool) -> None:
    after, _ = conftest.converted(tmp_path, SETTINGS.format(written=written, read=read))
    assert ("wait until rank 0 has written it" in after) == waits
