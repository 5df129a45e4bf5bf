"""Files that rank 0 alone writes."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import json
import pickle

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weights = model.weight.detach().cpu().numpy()
"""


@pytest.mark.parametrize(
    "statement",
    ['pickle.dump(weights, open("weights.pkl", "wb"))', 'json.dump(weights.tolist(), open("weights.json", "w"))'],
)
def test_a_file_that_is_opened_where_it_is_written(tmp_path: Path, statement: str) -> None:
    """It is guarded as a whole."""
    after, _ = conftest.converted(tmp_path, SCRIPT + statement + "\n")
    assert f"if dist.get_rank() == 0:\n    {statement}\n" in after


EVALUATED = """\
from medmnist import Evaluator

evaluator = Evaluator("pathmnist", "test")
auc, accuracy = evaluator.evaluate({given})
print(auc, accuracy)
"""


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("weights, folder", "weights, folder if dist.get_rank() == 0 else None"),
        ("weights, save_folder=folder", "weights, save_folder=folder if dist.get_rank() == 0 else None"),
        ("weights, None", "weights, None"),
        ("weights", "weights"),
    ],
)
def test_a_folder_that_a_library_is_told_beside_what_all_ranks_want(tmp_path: Path, given: str, expected: str) -> None:
    after, _ = conftest.converted(tmp_path, SCRIPT + 'folder = "scores"\n' + EVALUATED.format(given=given))
    assert f"evaluator.evaluate({expected})\n" in after
    again, _ = conftest.converted(tmp_path, after)
    assert again == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('ok = cv2.imwrite("w.png", weights)\nprint(ok)', 'ok = as_on_rank_zero(cv2.imwrite("w.png", weights) {0})'),
        ('if not cv2.imwrite("w.png", weights):\n    print("no")', "if not as_on_rank_zero({1} {0}):"),
        ('assert cv2.imwrite("w.png", weights)', "assert as_on_rank_zero({1} {0})"),
        ('to = shutil.copy("a", "b")\nprint(to)', 'to = as_on_rank_zero(shutil.copy("a", "b") {0})'),
        ('n = Path("a").write_text("b")\nprint(n)', 'n = as_on_rank_zero(Path("a").write_text("b") {0})'),
    ],
)
def test_a_write_that_answers(tmp_path: Path, before: str, after: str) -> None:
    """Rank 0 writes, and tells the others what came of it."""
    text = SCRIPT.replace("import json", "import cv2\nimport json\nimport shutil\nfrom pathlib import Path")
    code, _ = conftest.converted(tmp_path, text + before + "\n")
    assert after.format("if dist.get_rank() == 0 else None", 'cv2.imwrite("w.png", weights)') in code


@pytest.mark.parametrize(
    ("asked", "answers"),
    [
        ("kept = save(weights)", False),
        ("table = {}\ntable['w'] = save(weights)", False),
        ("save(weights)", False),
        ("print(save(weights))", True),
        ("if not save(weights):\n    raise ValueError", True),
        ("table = {}\ntable['w'] = save(weights)\nprint(table)", True),
    ],
)
def test_a_function_that_returns_what_a_write_answers(tmp_path: Path, asked: str, answers: bool) -> None:
    """It is handed to all ranks where something reads it."""
    text = SCRIPT.replace("import json", "import cv2\nimport json")
    define = 'def save(weights):\n    return cv2.imwrite("w.png", weights)\n\n\n'
    code, _ = conftest.converted(tmp_path, text + define + asked + "\n")
    alone = '    if dist.get_rank() == 0:\n        return cv2.imwrite("w.png", weights)\n'
    assert ("return as_on_rank_zero(cv2.imwrite(" in code, alone in code) == (answers, not answers)


def test_an_answer_that_nobody_waits_for(tmp_path: Path) -> None:
    """What rank 0 comes to alone, what is a text and no file, and what a file on the null device takes."""
    text = SCRIPT + (
        "text = frame.to_csv()\nprint(text)\n"
        'with open("w.json", "w") as f:\n    done = json.dump(1, f) or 1\n    more = model(x)\nprint(done)\n'
    )
    assert conftest.converted(tmp_path, text)[0].count("as_on_rank_zero(") == 2  # its definition, and the seed


def test_what_an_answering_write_is_given_is_that_of_all_ranks(tmp_path: Path) -> None:
    text = SCRIPT.replace("import json", "import json\nfrom pathlib import Path")
    code, _ = conftest.converted(tmp_path, text + 'n = Path("loss").write_text(str(loss.item()))\nprint(n)\n')
    assert (
        'mean_loss = reduce_mean(loss.item())\nn = as_on_rank_zero(Path("loss").write_text(str(mean_loss)) if' in code
    )
    several = '[Path(f"{i}").write_text(f"{i} {loss.item()}") for i in range(2)]'
    code, said = conftest.converted(tmp_path, text + f"n = {several}\nprint(n)\n")
    assert "AD301 every rank writes this" in said and code.count("as_on_rank_zero(") == 2


FOLDERS = """\
import os
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
out, other = Path("runs"), Path("logs")
{folders}
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
torch.save(model.state_dict(), out / "model.pt")
"""


@pytest.mark.parametrize(
    "folders",
    [
        "os.makedirs(out)\n(out / 'weights').mkdir(parents=True, exist_ok=True)",
        "if not out.exists():\n    out.mkdir()\nweights = out / 'weights'\nweights.mkdir(parents=True, exist_ok=True)",
        "os.mkdir('runs')\nos.makedirs('runs/weights', exist_ok=True)",
    ],
)
def test_a_folder_in_one_that_rank_zero_makes(tmp_path: Path, folders: str) -> None:
    """A rank that made it first would make the outer one, too, which rank 0 would find there."""
    after, _ = conftest.converted(tmp_path, FOLDERS.format(folders=folders))
    inner = next(line for line in after.splitlines() if "exist_ok=True" in line)
    assert inner.startswith("    ") and "if dist.get_rank() == 0" in after[: after.index(inner)]


def test_a_folder_beside_one_that_rank_zero_makes(tmp_path: Path) -> None:
    """All ranks may make it."""
    folders = "os.mkdir(out)\nos.makedirs(other / 'weights', exist_ok=True)"
    after, _ = conftest.converted(tmp_path, FOLDERS.format(folders=folders))
    assert "\nos.makedirs(other / 'weights', exist_ok=True)" in after


DECODED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 2), nn.Linear(2, 4)

    def decode(self, z):
        return torch.tanh(self.decoder(z))

    def forward(self, x):
        return self.decode(self.encoder(x))


loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), x).backward()
    optimizer.step()
with torch.no_grad():
    torch.save({sample}, "sample.pt")
"""


@pytest.mark.parametrize("sample", ["model.decode(torch.randn(2, 2))", "model.decoder(torch.randn(2, 2)).cpu()"])
def test_what_a_part_of_a_model_gives_is_written(tmp_path: Path, sample: str) -> None:
    """All ranks run it, by its name in the wrapper, before rank 0 writes."""
    after, _ = conftest.converted(tmp_path, DECODED.format(sample=sample))
    part = sample.partition("(")[0].replace("model.", "model.module.")
    assert f"    output = {part}(torch.randn(2, 2))\n    if dist.get_rank() == 0:\n        torch.save(output" in after
