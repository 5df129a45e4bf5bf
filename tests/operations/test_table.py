"""The table of operations: its lines, what follows from them, and the lines of users."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest
import torch
from conftest import ROOT, Autodist

from autodist.operations import CLASSES, Operation, Table, load, shipped
from autodist.operations.table import read

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = load()


def test_every_class_is_used_and_every_line_is_found() -> None:
    assert {each.cls for each in TABLE} == CLASSES.keys()
    assert len(list(TABLE)) == len(shipped()) > 500
    assert all(TABLE.find(each.name) == each for each in TABLE)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("torch.exp", Operation("torch.exp", "elementwise")),
        ("torch.Tensor.exp", Operation("torch.exp", "elementwise")),
        ("torch.Tensor.exp_", Operation("torch.exp", "elementwise")),
        ("torch.exp_", Operation("torch.exp", "elementwise")),
        ("torch.Tensor.unsqueeze_", Operation("torch.unsqueeze", "unsqueeze", {"axis": 1})),
        ("torch.Tensor.permute", Operation("torch.Tensor.permute", "permute", {"axis": 0})),
        ("torch.Tensor.__len__", Operation("torch.Tensor.__len__", "length", {"default": 0})),
        ("numpy.sum", Operation("numpy.sum", "reduction", {"kind": "sum", "axis": 1})),
        ("torch.nn.functional.relu", Operation("torch.nn.functional.relu", "elementwise", {"scales": True})),
        ("numpy.exp_", Operation("numpy.exp", "elementwise")),
        ("mylib.exp", None),
        ("torch.Tensor.untold", None),
    ],
)
def test_finds_methods_aliases_and_what_is_done_in_place(name: str, found: Operation | None) -> None:
    assert TABLE.find(name) == found


def test_names_by_class() -> None:
    assert {"cumsum", "softmax"} <= TABLE.named("scan")
    assert {"sum", "nansum"} <= TABLE.named("reduction", kind="sum") < TABLE.named("reduction")
    assert {"norm", "diff", "roll"} <= TABLE.named("reduction", "scan", "sort", axis=2)
    assert not {"Softmax", "sorted"} & TABLE.named(
        "scan", "sort"
    ), "layers and Python's own are no functions of tensors"


@pytest.mark.parametrize(
    "operation", [each for each in TABLE if each.module.startswith("torch.nn")], ids=lambda e: e.name
)
@pytest.mark.parametrize("name", ["reduction", "training", "batch_first"])
def test_arguments_are_where_the_table_says(operation: Operation, name: str) -> None:
    if name not in operation.parameters or operation.short in ("RNN", "LSTM", "GRU"):  # which take `*args`
        return
    library = torch.nn if operation.module == "torch.nn" else torch.nn.functional
    assert list(inspect.signature(getattr(library, operation.short)).parameters)[operation.parameters[name]] == name


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("elementwize", "mylib.f: 'elementwize' is no class of operations; there are same, linear, elementwise"),
        (3, "mylib.f: 3 is no class of operations"),
        ({"kind": "sum"}, "mylib.f: None is no class of operations"),
        ({"class": "reduction", "kind": "total"}, "mylib.f: kind must be one of sum, mean, max, min, none"),
        ({"class": "reduction", "axes": 1}, "mylib.f: reduction has no parameter axes = 1; it has axis (int)"),
        ({"class": "reduction", "axis": "1"}, "mylib.f: reduction has no parameter axis = '1'"),
        ({"class": "length", "all": 1}, "mylib.f: length has no parameter all = 1"),
        ({"class": "same", "axis": 1}, "mylib.f: same has no parameter axis = 1; it has of (int)"),
        ("as torch.untold", "mylib.f: there is no operation 'torch.untold' that has a class"),
        ("as mylib.f", "mylib.f: there is no operation 'mylib.f' that has a class"),
    ],
)
def test_says_what_is_wrong_with_a_line(line: object, message: str) -> None:
    with pytest.raises(ValueError) as error:
        load({"mylib.f": line})
    assert message in str(error.value)


def test_users_add_lines_and_change_them() -> None:
    own = load({"mylib.scale": "as torch.exp", "torch.exp": "same", "mylib.drop": "as torch.nn.functional.dropout"})
    assert own.find("mylib.drop") == Operation("mylib.drop", "random_like")
    assert own.find("mylib.scale") == Operation("mylib.scale", "same")
    assert own.find("torch.Tensor.exp") == Operation("torch.exp", "same")
    assert isinstance(own, Table) and load() is load({})


SCRIPT = """\
import mylib
import torch
from torch.utils.data import DataLoader, TensorDataset

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8)
for x, y in loader:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(mylib.rescale(model(x)), y)
    loss.backward()
    optimizer.step()
"""
"""A function of a library that may mix the samples of a batch: it is given those of all ranks, to be safe."""


@pytest.mark.parametrize(
    ("settings", "gathered"),
    [
        ("", True),
        ('"mylib.rescale" = "elementwise"', False),
        ('"mylib.rescale" = { class = "per_sample", mixes = 1 }', False),
        ('"mylib.rescale" = "as torch.exp"', False),
        ('"mylib.rescale" = "whole"', True),
        ('"mylib.other" = "elementwise"', True),
    ],
)
def test_a_line_in_pyproject_settles_what_reading_cannot_tell(
    autodist: Autodist, tmp_path: Path, settings: str, gathered: bool
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "pyproject.toml").write_text(f"[tool.autodist.operations]\n{settings}\n")
    result = autodist("convert", "train.py", "--diff")
    assert ("RowsOfAllRanks" in result.stdout) == gathered, result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[tool.autodist]\noperations = ["mylib.f"]\n', ":2: [tool.autodist] operations must be a table of classes"),
        (
            '[tool.autodist.operations]\n"mylib.f" = "linaer"\n',
            ":2: [tool.autodist.operations] mylib.f: 'linaer' is no class",
        ),
        (
            '[tool.autodist.operations]\n\nmylib.f = "linear"\n',
            ":3: [tool.autodist.operations] a name is dotted and in quotes",
        ),
        ('[tool.autodist.operations]\nf = "linear"\n', ":2: [tool.autodist.operations] a name is dotted and in quotes"),
    ],
)
def test_mistakes_in_pyproject_give_one_line(autodist: Autodist, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "pyproject.toml").write_text(text)
    result = autodist("convert", "train.py")
    assert result.exit_code == 2 and message in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr


def test_files_are_read_as_toml() -> None:
    """The files are read line by line, which is quicker: they say the same to a parser of TOML."""
    for file in (ROOT / "autodist/operations").glob("*.toml"):
        text = file.read_text()
        sections = tomllib.loads(text).items()
        assert read(text) == {f"{module}.{name}": line for module, names in sections for name, line in names.items()}
