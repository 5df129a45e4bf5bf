"""Notebooks: their cells become a script, and what only a notebook understands is named."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from conftest import SCRIPT, Autodist

from autodist.errors import AutodistError
from autodist.notebook import script


def notebook(*cells: str, version: int = 4) -> bytes:
    """A notebook of code cells, with a text cell in front."""
    code = [{"cell_type": "code", "metadata": {}, "source": cell.splitlines(keepends=True)} for cell in cells]
    content: dict[str, object] = {"cells": [{"cell_type": "markdown", "source": ["# Training\n"]}, *code]}
    if version == 3:
        code = [{"cell_type": "code", "input": cell} for cell in cells]
        content = {"worksheets": [{"cells": code}]}
    return json.dumps({"metadata": {}, "nbformat": version, **content}).encode()


@pytest.mark.parametrize("version", [3, 4])
def test_cells_become_a_script(version: int) -> None:
    made = script(notebook("x = 1", "y = [\n    x,\n]\n", version=version), Path("a.ipynb"))
    assert (made.text, made.left_out) == ("x = 1\n\ny = [\n    x,\n]\n", ())


@pytest.mark.parametrize(
    ("cell", "text", "commands"),
    [
        ("%matplotlib inline\nimport os", "# %matplotlib inline\nimport os\n", ["%matplotlib inline"]),
        ("% matplotlib inline\nimport os", "# %matplotlib inline\nimport os\n", ["%matplotlib inline"]),
        ("!pip install \\\n  torch", "# !pip install torch\n", ["!pip install torch"]),
        ("%%time\nx = 1", "# %%time\nx = 1\n", ["%%time"]),
        ("%%bash\nls\nfor x", "# %%bash\n# ls\n# for x\n", ["%%bash"]),
        ("%time x = f()", "x = f()\n", []),
        ("if a:\n    !mkdir data", "if a:\n    pass  # !mkdir data\n", ["!mkdir data"]),
        ("model?", "# model?\n", ["model?"]),
        ("x = (a\n  %b)", "x = (a\n  %b)\n", []),
        ('s = """\n!no\n%no\n"""', 's = """\n!no\n%no\n"""\n', []),
    ],
)
def test_commands_are_taken_out(cell: str, text: str, commands: list[str]) -> None:
    made = script(notebook(cell), Path("a.ipynb"))
    assert (made.text, [each.command for each in made.left_out]) == (text, commands)
    ast.parse(made.text)
    for each in made.left_out:
        assert each.command.splitlines()[0] in made.text.splitlines()[each.line - 1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "not a Jupyter notebook"),
        (b"[]", "not a Jupyter notebook"),
        (b'{"cells": [{}]}', "not a Jupyter notebook"),
        (notebook("files = !ls"), "cell 1: `files = !ls` needs a notebook"),
        (b'{"cells": [], "metadata": {"kernelspec": {"language": "R"}}}', "in R, not in Python"),
    ],
)
def test_bad_notebooks_are_one_clear_line(data: bytes, message: str) -> None:
    with pytest.raises(AutodistError, match=message):
        script(data, Path("a.ipynb"))


def test_a_notebook_is_converted_to_a_script(autodist: Autodist, tmp_path: Path) -> None:
    imports, _, training = SCRIPT.partition("data = ")
    cells = ("!pip install torch", f"%matplotlib inline\n{imports}", f"data = {training}", "print(model)")
    (tmp_path / "train.ipynb").write_bytes(notebook(*cells))
    result = autodist("convert", "train.ipynb", "-v")
    made = (tmp_path / "train_ddp.py").read_text()
    assert "DistributedSampler(data, seed=torch.initial_seed())" in made
    assert "# %matplotlib inline" in made, result.output
    assert result.exit_code == 1 and "`!pip install torch` belongs to the notebook" in result.output
    assert "`%matplotlib inline` belongs to the notebook, and is left out" in result.output


def test_the_module_of_a_notebooks_name_stays(autodist: Autodist, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("from torch import nn\n\n\ndef build():\n    return nn.Linear(4, 1)\n")
    training = SCRIPT.replace("model = nn.Linear(4, 1)", "model = net.build()")
    assert "net.build()" in training
    (tmp_path / "net.ipynb").write_bytes(notebook(f"import net\n{training}"))
    result = autodist("convert", "net.ipynb", "--output", "out/")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"net.py", "net_notebook.py"}, result.output
    assert "DDP(" in (tmp_path / "out" / "net_notebook.py").read_text()


def test_a_notebook_is_not_rewritten(autodist: Autodist, tmp_path: Path) -> None:
    (tmp_path / "train.ipynb").write_bytes(notebook(SCRIPT))
    result = autodist("convert", "train.ipynb", "--in-place")
    assert result.exit_code == 2 and "a notebook" in result.stderr and result.stderr.count("error:") == 1
