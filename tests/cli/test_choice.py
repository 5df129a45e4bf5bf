"""``--strategy auto``: parameters are counted by reading, and the choice says why."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Autodist

from autodist import catalog, registry
from autodist.choice import choose
from autodist.config import Config, Strategy
from autodist.footprint import footprint
from autodist.interpreter import Interpreter, Plan
from autodist.models import trained_models
from autodist.project import Project

BLOCKS = registry.examples("AD501")[0].before
GIB = 2**30


def chosen(folder: Path, text: str, **options: int) -> tuple[Strategy, str]:
    """What is chosen for a script."""
    (folder / "train.py").write_text(text)
    config, reason = choose(Project.load(folder / "train.py"), Config(Strategy.AUTO, **options))  # type: ignore[arg-type]
    return config.strategy, reason


def resnet(optimizer: str) -> str:
    """A script that trains a model whose size is a fact."""
    text = BLOCKS.replace("model = Net()", "model = torchvision.models.resnet152()")
    return text.replace("import torch\n", "import torch, torchvision\n", 1).replace("SGD(", f"{optimizer}(")


def test_what_fits_half_a_device_is_replicated(tmp_path: Path) -> None:
    strategy, reason = chosen(tmp_path, resnet("AdamW"), device_memory=16 * GIB)
    assert strategy is Strategy.DDP
    assert "60.2 million parameters of resnet152 take 0.90 GiB" in reason and "the state of AdamW" in reason


def test_what_does_not_is_sharded(tmp_path: Path) -> None:
    strategy, reason = chosen(tmp_path, resnet("AdamW"), device_memory=GIB)
    assert strategy is Strategy.FSDP and "more than half of a device of 1.00 GiB" in reason
    assert chosen(tmp_path, resnet("SGD"), device_memory=GIB)[0] is Strategy.DDP  # keeps no state


def test_activations_count_where_they_are_known(tmp_path: Path) -> None:
    options = {"device_memory": 2 * GIB, "activation_memory": 3 * GIB // 2}
    assert chosen(tmp_path, resnet("AdamW"), **options)[0] is Strategy.FSDP
    assert chosen(tmp_path, resnet("AdamW"), **{**options, "activation_memory": GIB})[0] is Strategy.DDP


@pytest.mark.parametrize(
    ("change", "size", "kind"),
    [
        ("model = model.half()", 0.45, "float16"),
        ("model.to(torch.bfloat16)", 0.45, "bfloat16"),
        ('model = model.to("cuda", dtype=torch.float16)', 0.45, "float16"),
        ("model.double()", 1.79, "float64"),
        ("model.float()", 0.90, "float32"),
        ('model.to("cpu")', 0.90, "float32"),
    ],
)
def test_numbers_take_what_their_type_does(change: str, size: float, kind: str, tmp_path: Path) -> None:
    text = resnet("AdamW").replace("resnet152()\n", f"resnet152()\n{change}\n", 1)
    _, reason = chosen(tmp_path, text, device_memory=16 * GIB)
    assert f"take {size:.2f} GiB in {kind} with" in reason


def test_the_default_type_counts(tmp_path: Path) -> None:
    text = resnet("AdamW").replace("model = ", "torch.set_default_dtype(torch.bfloat16)\nmodel = ", 1)
    assert "in bfloat16 with" in chosen(tmp_path, text, device_memory=16 * GIB)[1]


def test_what_cannot_be_counted_is_said(tmp_path: Path) -> None:
    text = BLOCKS.replace("range(6)", "range(int(input()))")
    strategy, reason = chosen(tmp_path, text, device_memory=GIB)
    assert strategy is Strategy.DDP and "cannot be counted" in reason and "of train.py" in reason


@pytest.mark.parametrize("case", ["meta_device_lm", "sharded_checkpoints", "batchnorm_cnn", "accumulation_micro_steps"])
def test_counts_are_those_of_torch(case: str) -> None:
    torch = pytest.importorskip("torch")
    project = Project.load(ROOT / "fixtures" / case / "before" / "train.py")
    run = Interpreter(project, catalog.load(), Plan()).run()
    (model,) = (model.object for model in trained_models(run))
    names: dict[str, Any] = {"__name__": "train"}
    kept = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef)
    constants = (ast.Constant, ast.Tuple, ast.BinOp)
    for node in project.entry.tree.body:
        if isinstance(node, kept) or isinstance(node, ast.Assign) and isinstance(node.value, constants):
            exec(compile(ast.Module([node], []), case, "exec"), names)
    with torch.device("meta"):
        made = eval(ast.unparse(model.node), names)
    assert footprint(run, [model]).parameters == sum(p.numel() for p in made.parameters() if p.requires_grad)


def test_the_memory_of_a_device_must_be_given(autodist: Autodist, script: Path) -> None:
    result = autodist("convert", script, "--strategy", "auto")
    assert result.exit_code == 2 and "--device-memory" in result.output
    result = autodist("convert", script, "--strategy", "auto", "--device-memory", "80GiB")
    assert result.exit_code == 0 and "strategy ddp: " in result.output
    assert Path("train_ddp.py").exists()
    assert autodist("convert", script, "--device-memory", "much").exit_code == 2
