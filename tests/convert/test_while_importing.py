"""What local modules print while they are imported is printed once."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, launched

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project

SCRIPT = """\
{top}import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    {inside}
    loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


if __name__ == "__main__":
    main()
"""
SILENCE = """\
if any(os.environ.get(name, "0") != "0" for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")):
    sys.stdout = open(os.devnull, "w")  # rank 0 prints for all, from here on
"""
PRINTING = "import platform\n\nprint(platform.machine())\n"


@pytest.mark.parametrize(
    ("files", "top", "expected"),
    [
        ({"check": PRINTING}, "import check\n", f"import sys\nimport time\n\n{SILENCE}import check\nimport torch"),
        (
            {"check": PRINTING},
            "import sys\nfrom check import platform\n",
            f"import sys\nimport time\n\n{SILENCE}from check import platform\nimport torch",
        ),
        (
            {"check": PRINTING},
            "import os as system\nimport check\nimport random\n",
            f"import os as system\nimport sys\n\n{SILENCE.replace('os.', 'system.')}import check\n",
        ),
        ({"check": PRINTING, "tools": "import check\n"}, "import tools\n", f"{SILENCE}import tools\n"),
        (
            {"check": "def show():\n    print(1)\n", "tools": "import check\n\ncheck.show()\n"},
            "import check\nimport tools\n",
            f"import check\n\n{SILENCE}import tools\n",
        ),
        (
            {"check": PRINTING},
            "try:\n    import check\nexcept ImportError:\n    check = None\n",
            f"{SILENCE}try:\n    import check\n",
        ),
    ],
)
def test_the_other_ranks_are_silent_from_there_on(
    tmp_path: Path, files: dict[str, str], top: str, expected: str
) -> None:
    """They can know their rank by then from torchrun alone."""
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    code, findings = converted(tmp_path, SCRIPT.format(top=top, inside="pass"))
    assert expected in code and code.count("devnull") == 1
    assert "AD905" not in findings


@pytest.mark.parametrize(
    "text", ["def show():\n    print(1)\n", 'if __name__ == "__main__":\n    print(1)\n', "import sys\nsize = 4\n"]
)
def test_modules_that_print_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "check.py").write_text(text)
    code, _ = converted(tmp_path, SCRIPT.format(top="import check\n", inside="pass"))
    assert "\nimport check\n" in code and SILENCE not in code


def test_an_import_in_a_function(tmp_path: Path) -> None:
    """Nobody knows when it runs."""
    (tmp_path / "check.py").write_text(PRINTING)
    code, findings = converted(tmp_path, SCRIPT.format(top="", inside="import check"))
    assert SILENCE not in code and "AD905" in findings


@pytest.mark.parametrize(
    ("line", "joins"),
    [
        ("import torchvision\n\nDATA = torchvision.datasets.MNIST('data', download=True)\n", True),
        ("import torchvision\n\nDATA = torchvision.datasets.MNIST('data')\n", False),
        ("import logging\n\nlogging.basicConfig(filename='train.log')\n", True),
        ("import logging\n\nlogging.basicConfig(level=logging.INFO)\n", False),
    ],
)
def test_a_module_that_needs_the_group_joins_it(tmp_path: Path, line: str, joins: bool) -> None:
    """What takes turns cannot do so before there is a group, and what an import in a function runs, nobody knows."""
    (tmp_path / "prepare.py").write_text(line)
    code, said = converted(tmp_path, SCRIPT.format(top="import prepare\n", inside="pass"))
    assert ("setup_distributed()" not in code) == joins and "AD905" not in said
    for top, inside in (("", "import prepare"), ("import torch\n\ntorch.manual_seed(0)\nimport prepare\n", "pass")):
        _, said = converted(tmp_path, SCRIPT.format(top=top, inside=inside))
        assert ("AD905 runs while this module is imported" in said) == joins


DATA = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
points = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(points, batch_size=8, shuffle=True, num_workers={workers}, multiprocessing_context="{context}")
"""
TRAIN = SCRIPT.replace("from torch.utils.data import DataLoader, TensorDataset\n", "from data import loader\n")
TRAIN = "".join(line for line in TRAIN.splitlines(keepends=True) if "DataLoader(" not in line)


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_that_import_the_script_again_are_no_ranks(tmp_path: Path, context: str) -> None:
    """They have the environment of their rank: joining the group, they would take its place."""
    (tmp_path / "data.py").write_text(DATA.format(workers=2, context=context))
    script = tmp_path / "train.py"
    script.write_text(TRAIN.format(top="", inside="pass"))
    result = convert(Project.load(script), Config(Strategy.DDP))
    for each in result.files:
        (tmp_path / each.source.path.name).write_text(each.after)
    assert "_inheriting" in (tmp_path / "data.py").read_text()
    assert float(launched(tmp_path, "train.py", nproc=2, fresh=True).split()[-1]) > 0


@pytest.mark.parametrize(
    ("workers", "guard"), [("0", True), ("2", False)], ids=["no workers", "no guard, so that they cannot be started"]
)
def test_no_worker_imports_the_script_again(tmp_path: Path, workers: str, guard: bool) -> None:
    (tmp_path / "data.py").write_text(DATA.format(workers=workers, context="spawn"))
    script = tmp_path / "train.py"
    text = TRAIN.format(top="", inside="pass")
    script.write_text(text if guard else text.replace('if __name__ == "__main__":\n    main()', "main()"))
    result = convert(Project.load(script), Config(Strategy.DDP))
    assert not any("_inheriting" in each.after for each in result.files)


STREAM = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class Points(IterableDataset):
    def __iter__(self):
        generator = torch.Generator().manual_seed(0)
        for _ in range(32):
            yield torch.randn(4, generator=generator), torch.randn(1, generator=generator)


def main():
    loader = DataLoader(Points(), batch_size=8, num_workers=1, multiprocessing_context="forkserver")
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())


if __name__ == "__main__":
    main()
"""


def test_a_stream_in_workers_that_have_no_group(tmp_path: Path) -> None:
    """They are told their rank's share when the stream is made."""
    (tmp_path / "train_ddp.py").write_text(converted(tmp_path, STREAM)[0])
    assert float(launched(tmp_path, "train_ddp.py", nproc=2).split()[-1]) > 0
