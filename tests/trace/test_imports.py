"""Names for modules and their members."""

from __future__ import annotations

import pytest

from autodist.edits import AddImport, apply
from autodist.imports import Importer
from autodist.source import Source

DIST = ("torch.distributed", "dist")


def module(text: str, name: str = DIST[0], alias: str = DIST[1]) -> tuple[str, str]:
    """The name of a module, and the text with the edits it needs."""
    source = Source.parse(text)
    local, edits = Importer(source).module(name, alias)
    return local, apply(source, edits)


def name(text: str, module: str = "torch.utils.data", name: str = "DataLoader") -> tuple[str, str]:
    """The name of a member, and the text with the edits it needs."""
    source = Source.parse(text)
    local, edits = Importer(source).name(module, name)
    return local, apply(source, edits)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import torch.distributed as dist\n", "dist"),
        ("from torch import distributed\n", "distributed"),
        ("from torch import nn, distributed as d\n", "d"),
        ("import torch.distributed\nimport torch.nn as nn\n", "torch.distributed"),
        ("import torch.distributed\nimport torch.distributed as dist\n", "dist"),
        ('"""Doc."""\nimport os\nos.environ["A"] = "1"\nimport torch.distributed as dist\n', "dist"),
        ("try:\n    import a\nexcept ImportError:\n    a = None\nimport torch.distributed as dist\n", "dist"),
        ("import torch.distributed as dist\ndef f():\n    import torch.distributed as dist\n", "dist"),
    ],
)
def test_a_module_that_is_imported_already(text: str, expected: str) -> None:
    """An import at the top gives the name, however it is written."""
    assert module(text) == (expected, text)


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n",
        "import torch.nn\n",
        "import torch\ndef f():\n    import torch.distributed as d\n",
        "import torch\nif a:\n    import torch.distributed as d\n",
        "import torch\nx = f()\nimport torch.distributed as d\n",
        "import torch\nimport torch.distributed as d\nfor d in x: pass\n",
        "import torch\nfrom . import distributed\n",
        "import torch\nself.dist = dict(dist=1)\n",
        "import torch\ndef f():\n    import torch.distributed as dist\n",
    ],
)
def test_a_module_that_is_not_usable_everywhere(text: str) -> None:
    """Imports inside functions, below the first code, or whose name means two things, do not count."""
    local, after = module(text)
    assert local == "dist"
    assert after.splitlines().count("import torch.distributed as dist") == 1


@pytest.mark.parametrize(
    "use",
    [
        "dist = 1",
        "def f(dist): pass",
        "def dist(): pass",
        "class dist: pass",
        "lambda dist: 0",
        "for dist in x: pass",
        "with x as dist: pass",
        "[dist for dist in x]",
        "(dist := 1)",
        "import dist",
        "from x import dist",
        "from x import *\nprint(dist)",
        "try:\n    pass\nexcept E as dist:\n    pass",
        "match x:\n    case [*dist]: pass",
        "match x:\n    case {**dist}: pass",
        "match x:\n    case dist: pass",
        "def f():\n    global dist\n    dist = 2",
    ],
)
def test_a_name_that_means_something_else(use: str) -> None:
    """Then the module is called by its path, which nobody can mistake."""
    local, after = module(f"import torch\n{use}\n")
    assert local == "torch.distributed"
    assert after == f"import torch\nimport torch.distributed\n{use}\n"


def test_all_good_names_are_taken() -> None:
    """There is always a name."""
    local, after = module("torch = dist = torch_dist = 1\n")
    assert local == "torch_dist_"
    assert after == "import torch.distributed as torch_dist_\n\ntorch = dist = torch_dist = 1\n"


def test_a_module_under_its_own_name() -> None:
    """``import os`` needs no alias."""
    assert module("import sys\n", "os", "os") == ("os", "import os\nimport sys\n")
    assert module("import os\n", "os", "os") == ("os", "import os\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from torch.utils.data import DataLoader\n", "DataLoader"),
        ("from torch.utils.data import Dataset, DataLoader as DL\n", "DL"),
        ("from torch.utils import data\n", "data.DataLoader"),
        ("import torch.utils.data as tud\n", "tud.DataLoader"),
        ("import torch.utils.data\n", "torch.utils.data.DataLoader"),
    ],
)
def test_a_member_that_is_imported_already(text: str, expected: str) -> None:
    """By itself, or through its module."""
    assert name(text) == (expected, text)


@pytest.mark.parametrize(
    ("text", "expected", "line"),
    [
        ("import torch\n", "DataLoader", "from torch.utils.data import DataLoader"),
        ("import torch\nclass DataLoader: pass\n", "torch.utils.data.DataLoader", "import torch.utils.data"),
        (
            "import torch.utils.data as data\ndata = 1\nDataLoader = torch = 2\n",
            "torch_DataLoader",
            "from torch.utils.data import DataLoader as torch_DataLoader",
        ),
    ],
)
def test_a_member_that_is_not(text: str, expected: str, line: str) -> None:
    """It gets an import, under a name that is free."""
    local, after = name(text)
    assert local == expected
    assert line in after.splitlines()


def test_a_member_under_an_alias() -> None:
    """The caller may ask for one; the member's own name is none."""
    source = Source.parse("import torch\n")
    importer = Importer(source)
    edit = AddImport(source.tree, "torch.nn.parallel", "DistributedDataParallel", "DDP")
    assert importer.name("torch.nn.parallel", "DistributedDataParallel", "DDP") == ("DDP", (edit,))
    assert importer.name("os", "path", "path") == ("path", (AddImport(source.tree, "os", "path"),))


def test_asking_twice_gives_equal_edits_and_no_name_for_two_things() -> None:
    """Rules ask on their own, and their edits merge."""
    source = Source.parse("import torch\n")
    importer = Importer(source)
    first = importer.module(*DIST)
    assert importer.module(*DIST) == first
    assert importer.name("other", "dist") == ("other.dist", (AddImport(source.tree, "other"),))
    assert importer.module("other", "other") == ("other", (AddImport(source.tree, "other"),))
    assert Importer(source).module(*DIST) == first
