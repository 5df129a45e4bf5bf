"""A conversion as a notebook: it writes the script, and starts it on two ranks."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from conftest import SCRIPT, Autodist
from test_notebook import notebook

IMPORTS, _, TRAINING = SCRIPT.partition("data = ")
TRAINING = f"data = {TRAINING}print('done')\n"


def cells(path: Path) -> list[str]:
    """The code of a notebook's cells."""
    return ["".join(cell["source"]) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]


def made(autodist: Autodist, *code: str) -> tuple[int, str, list[str]]:
    """Exit code, what is said and the cells of the notebook that a notebook becomes."""
    Path("train.ipynb").write_bytes(notebook(*code))
    result = autodist("convert", "train.ipynb", "--output", "train_ddp.ipynb", "--force")
    return result.exit_code, result.output, cells(Path("train_ddp.ipynb"))


def test_a_cell_writes_the_script_and_the_last_one_starts_it(autodist: Autodist, script: Path) -> None:
    result = autodist("convert", "train.py", "--output", "train_ddp.ipynb")
    assert result.exit_code == 0 and "jupyter execute train_ddp.ipynb" in result.stderr
    first, last = cells(script.with_name("train_ddp.ipynb"))
    assert last == "!torchrun --standalone --nproc-per-node 2 train_ddp.py"
    head, _, text = first.partition("\n")
    assert head == "%%writefile train_ddp.py"
    autodist("convert", "train.py")
    assert f"{text}\n" == script.with_name("train_ddp.py").read_text()


@pytest.mark.parametrize(
    ("code", "before", "after", "status"),
    [
        (["!pip install timm", IMPORTS, TRAINING], ["!pip install timm"], [], 0),
        (["!pip install timm\n%cd work", IMPORTS, TRAINING], ["!pip install timm\n%cd work"], [], 0),
        (["!wget a.zip \\\n  b.zip", "!unzip a.zip", IMPORTS + TRAINING], ["!wget a.zip b.zip\n!unzip a.zip"], [], 0),
        (["%%writefile net.py\nx = 1", IMPORTS, TRAINING], ["%%writefile net.py\nx = 1"], [], 0),
        (["%%bash\nmkdir a\ncd a", "!ls", IMPORTS, TRAINING], ["%%bash\nmkdir a\ncd a", "!ls"], [], 0),
        ([IMPORTS, "%env A=1", TRAINING, "!zip out.zip model.pt"], ["%env A=1"], ["!zip out.zip model.pt"], 0),
        (["%matplotlib inline", IMPORTS, TRAINING, "model?"], [], [], 0),
        ([IMPORTS, "url = 'a.zip'\n!wget {url}", TRAINING], [], [], 1),
        ([IMPORTS, "name = 'a'\n!echo $name", TRAINING], [], [], 1),
        ([IMPORTS, "if True:\n    !mkdir data", TRAINING], [], [], 1),
        (["%run other.py", IMPORTS, TRAINING], [], [], 1),
    ],
)
def test_commands_run_where_they_stood(
    autodist: Autodist, code: list[str], before: list[str], after: list[str], status: int
) -> None:
    code_of_exit, said, found = made(autodist, *code)
    at = next(number for number, cell in enumerate(found) if cell.startswith("%%writefile train_ddp.py"))
    assert (found[:at], found[at + 2 :], code_of_exit) == (before, after, status), said
    assert ("belongs to the notebook: run it once" in said) == bool(status)


def test_local_modules_that_change_are_written_too(autodist: Autodist, script: Path) -> None:
    loader = "DataLoader(data, batch_size=8, shuffle=True)"
    script.write_text(
        SCRIPT.replace(loader, "loading.loader(data)").replace("import torch\n", "import torch\n\nimport loading\n", 1)
    )
    script.with_name("loading.py").write_text(
        f"from torch.utils.data import DataLoader\n\n\ndef loader(data):\n    return {loader}\n"
    )
    assert autodist("convert", "train.py", "--output", "train_ddp.ipynb").exit_code == 0
    found = cells(script.with_name("train_ddp.ipynb"))
    assert found[0] == "!mkdir -p train_ddp" and found[-1].endswith(" train_ddp/train.py")
    assert [cell.partition("\n")[0] for cell in found[1:-1]] == [
        "%%writefile train_ddp/train.py",
        "%%writefile train_ddp/loading.py",
    ]
    assert autodist("convert", "train.py", "--output", "else/where.ipynb").exit_code == 2


def test_a_kernel_is_kept(autodist: Autodist, tmp_path: Path) -> None:
    content = json.loads(notebook(IMPORTS, TRAINING))
    content["metadata"] = {"kernelspec": {"name": "conda", "language": "python"}, "accelerator": "GPU"}
    (tmp_path / "train.ipynb").write_text(json.dumps(content))
    autodist("convert", "train.ipynb", "--output", "train_ddp.ipynb")
    assert json.loads((tmp_path / "train_ddp.ipynb").read_text())["metadata"] == content["metadata"]


def test_what_cannot_be_written(autodist: Autodist, script: Path) -> None:
    script.write_bytes(b"# coding: latin-1\n# \xe9\n" + SCRIPT.encode())
    result = autodist("convert", "train.py", "--output", "a.ipynb")
    assert result.exit_code == 2 and "a notebook writes UTF-8" in result.stderr and not Path("a.ipynb").exists()


@pytest.mark.parametrize("start", ["torchrun --nproc-per-node 2", "python -m torch.distributed.run --standalone"])
def test_a_notebook_that_starts_a_script_is_that_script(autodist: Autodist, tmp_path: Path, start: str) -> None:
    written = f"%%writefile train.py\n{SCRIPT}"
    (tmp_path / "a.ipynb").write_bytes(
        notebook("!pip install timm", written, f"!{start} train.py --lr 1", "print('end')")
    )
    found = autodist("check", "a.ipynb").stdout
    assert "a.ipynb:14:1: AD301 every rank would write this" in found and "belongs to the notebook" not in found
    (tmp_path / "a.ipynb").write_bytes(notebook(written, "!python train.py", IMPORTS, TRAINING))
    assert "belongs to the notebook" in autodist("check", "a.ipynb").stdout, "training in cells, beside another script"


@pytest.mark.usefixtures("warm")
def test_it_is_verified_as_a_script_is(autodist: Autodist) -> None:
    made(autodist, "!echo pip install timm", IMPORTS, TRAINING)
    result = autodist("verify", "train.ipynb", "train_ddp.ipynb", "--device", "cpu")
    assert result.exit_code == 0 and result.stdout.startswith("EQUAL on 2 ranks"), result.output


def test_it_runs(autodist: Autodist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    pytest.importorskip("torch")
    torchrun = tmp_path / "bin" / "torchrun"  # of this interpreter, whatever else is installed
    torchrun.parent.mkdir()
    torchrun.write_text(f'#!/bin/sh\nexec {sys.executable} -m torch.distributed.run "$@"\n')
    torchrun.chmod(0o755)
    monkeypatch.setenv("PATH", f"{torchrun.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made(autodist, "!echo pip install timm", IMPORTS, TRAINING, "!ls model.pt")
    content = nbformat.read(tmp_path / "train_ddp.ipynb", as_version=4)
    nbformat.validate(content)
    nbclient.NotebookClient(content, timeout=100, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = ["".join(each.get("text", "") for each in cell.outputs) for cell in content.cells]
    assert printed[2].count("done") == 1 and printed[3].strip() == "model.pt", printed
