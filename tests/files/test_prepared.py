"""What scripts put on disk before they train: rank 0 does it, first or alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import os
import pickle
import shutil
import urllib.request

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def prepare(path):
{prepare}


{call}
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ALONE = "if dist.get_rank() == 0:\n    prepare('data')\ndist.barrier()\n"
FIRST = "with rank_zero_first():\n    prepare('data')\n"
AGAIN = (
    '    if rank == dist.get_rank() and os.environ["LOCAL_RANK"] == "0":\n'
    "        prepare('data')\n"
    "    dist.barrier()\n"
)
ANEW = """\
    if os.path.exists(path):
        message = "archived"
        shutil.make_archive(path, "zip", path)
        shutil.rmtree(path)
    os.makedirs(path)"""
ONCE = """\
    if not os.path.exists(path):
        urllib.request.urlretrieve("http://localhost/data", path)"""
READ = """\
    if os.path.exists(path):
        return pickle.load(open(path, "rb"))
    words = {word: number for number, word in enumerate(set(open("words.txt").read().split()))}
    with open(path, "wb") as file:
        pickle.dump(words, file)
    return words"""
FOUND = """\
    if os.path.exists(path):
        words = pickle.load(open(path, "rb"))
        names = [each for each in set(words)]
    else:
        words = {word: number for number, word in enumerate(set(open("words.txt").read().split()))}
        with open(path, "wb") as file:
            pickle.dump(words, file)
        names = []
    return words, names"""


@pytest.mark.parametrize(
    ("prepare", "call", "expected"),
    [
        pytest.param(ANEW, "prepare('data')", ALONE, id="made anew"),
        pytest.param(ONCE, "prepare('data')", FIRST, id="spared where it is"),
        pytest.param(READ, "words = prepare('data')", "enumerate(set(open(", id="words that others read"),
        pytest.param(FOUND, "words, _ = prepare('data')", "in sorted(set(words), key=str)]", id="words that are read"),
    ],
)
def test_what_is_put_on_disk(tmp_path: Path, prepare: str, call: str, expected: str) -> None:
    assert expected in converted(tmp_path, SCRIPT.format(prepare=prepare, call=call))[0]


HALTED = """\
    if os.path.exists(path):
        overwrite = input("overwrite? ") == "y"
        if overwrite:
            shutil.rmtree(path)
            os.makedirs(path)
        else:
            raise SystemExit
    else:
        os.makedirs(path)
    with open(os.path.join(path, "settings.txt"), "w") as file:
        file.write(path)
    overwrite = False
    return overwrite"""


def test_what_a_rank_that_comes_second_would_remove(tmp_path: Path) -> None:
    """It finds what rank 0 has just made, which it must not take for what was there before."""
    after, _ = converted(tmp_path, SCRIPT.format(prepare=HALTED, call="overwrite = prepare('data')"))
    assert "rank_zero_first" not in after
    assert after.count("dist.barrier()  # wait until all ranks have looked for it\n") == 2
    assert "            if dist.get_rank() == 0:\n                shutil.rmtree(path)\n" in after


@pytest.mark.parametrize(
    "prepare",
    [
        "if os.path.exists(path):\n    sys.exit('it is there')\nos.makedirs(path)",
        "if os.path.isdir(path):\n    raise ValueError(path)\nos.makedirs(path, exist_ok=True)",
        "if not os.path.exists(path):\n    os.makedirs(path)\nelse:\n    quit()",
    ],
)
def test_a_script_that_ends_where_it_finds_something(tmp_path: Path, prepare: str) -> None:
    """No rank may look only when rank 0 has made it."""
    after, _ = converted(tmp_path, SCRIPT.format(prepare="    pass", call=f"path = 'data'\n{prepare}"))
    assert "dist.barrier()  # wait until all ranks have looked for it\n" in after
    assert (
        after.index("if ") < after.index("# wait until all ranks have looked for it") < after.index("os.makedirs(path")
    )


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (
            "    with zipfile.ZipFile(path) as archive:\n        archive.extractall()",
            AGAIN,
        ),
        (
            "    if not os.path.exists('data'):\n        with zipfile.ZipFile(path) as archive:\n"
            "            archive.extractall('data')",
            FIRST,
        ),
        ("    found = names.str.extractall(path)\n    print(found)", None),
    ],
    ids=["always", "where-missing", "no-archive"],
)
def test_an_archive_is_extracted_once(tmp_path: Path, prepare: str, expected: str | None) -> None:
    """Ranks would write the same files at the same time, while others read them."""
    text = SCRIPT.format(prepare=prepare, call="prepare('data')").replace(
        "import shutil", "import shutil\nimport zipfile"
    )
    code, _ = converted(tmp_path, text)
    assert (expected in code) if expected is not None else "barrier" not in code
