"""The options of ``--strategy fsdp``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import Autodist, launched

from autodist import registry
from autodist.config import Config, MixedPrecision, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.result import Result

BLOCKS = registry.examples("AD501")[0].before
ON_GPUS = BLOCKS.replace("model = Net()", "model = Net().cuda()").replace(
    "(model(x), y)", "(model(x.cuda()), y.cuda())"
)


def converted(folder: Path, text: str = BLOCKS, strategy: Strategy = Strategy.FSDP, **options: Any) -> Result:
    """The conversion of a script to a strategy that shards."""
    (folder / "train.py").write_text(text)
    return convert(Project.load(folder / "train.py"), Config(strategy, **options))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({}, "    fully_shard(block, mesh=mesh)\n"),
        ({"reshard_after_forward": False}, "    fully_shard(block, reshard_after_forward=False, mesh=mesh)\n"),
        ({"cpu_offload": True}, '    options["offload_policy"] = CPUOffloadPolicy()\n'),
        ({"cpu_offload": True}, "fully_shard(model, reshard_after_forward=True, **options)\n"),
        ({"mixed_precision": MixedPrecision.BF16}, "MixedPrecisionPolicy(param_dtype=torch.bfloat16"),
        ({"meta_device": True}, "model = built_on_rank_zero(Net)\nwhole = [*model.parameters(), *model.buffers()]\n"),
        ({"meta_device": True}, "fill_from_rank_zero(model, whole)\ndel whole\n"),
        ({"activation_checkpointing": True}, "check_fn=lambda module: module in blocks)\n"),
        ({"shard_unit": "Linear"}, 'if type(m).__name__ == "Linear"]:\n'),
    ],
)
def test_options_change_how_the_model_is_sharded(options: dict[str, Any], line: str, tmp_path: Path) -> None:
    text = ON_GPUS if options.get("cpu_offload") else BLOCKS
    assert line in converted(tmp_path, text, **options).entry.after


def test_on_a_cpu_there_is_nothing_to_offload(tmp_path: Path) -> None:
    assert "offload" not in converted(tmp_path, cpu_offload=True).entry.after


@pytest.mark.parametrize(
    ("made", "blocks"),
    [
        ("torchvision.models.resnet50()", "(*model.layer1, *model.layer2, *model.layer3, *model.layer4)"),
        ("timm.create_model('vit_tiny_patch16_224', num_classes=2)", "model.blocks"),
        ("transformers.AutoModelForCausalLM.from_pretrained('gpt2')", "model.transformer.h"),
    ],
)
def test_blocks_of_library_models_are_known(made: str, blocks: str, tmp_path: Path) -> None:
    text = BLOCKS.replace("model = Net()", f"model = {made}").replace("import torch\n", "import timm, torch\n", 1)
    text = text.replace("from torch import nn\n", "from torch import nn\nimport torchvision, transformers\n", 1)
    assert f"for unit in {blocks}:" in converted(tmp_path, text).entry.after.replace("for block in", "for unit in")


def test_hsdp_shards_within_a_node(tmp_path: Path) -> None:
    after = converted(tmp_path, strategy=Strategy.HSDP).entry.after
    assert "    fully_shard(block, mesh=mesh)\nfully_shard(model, reshard_after_forward=True, mesh=mesh)\n" in after
    assert 'os.environ.get("LOCAL_WORLD_SIZE", 1)' in after


def test_names_of_the_script_are_left_alone(tmp_path: Path) -> None:
    text = ON_GPUS.replace("model = Net()", "mesh = options = 1\nmodel = Net()") + "print(mesh, options)\n"
    after = converted(tmp_path, text, Strategy.HSDP, cpu_offload=True).entry.after
    assert "mesh=device_mesh, **sharding)\n" in after


def test_half_precision_without_a_scaler_needs_a_person(tmp_path: Path) -> None:
    assert converted(tmp_path, mixed_precision=MixedPrecision.FP16).needs_person
    assert not converted(tmp_path, mixed_precision=MixedPrecision.BF16).needs_person


def test_parameters_that_an_optimizer_takes_from_a_list_are_collected_after_sharding(tmp_path: Path) -> None:
    listed = "parameters = [p for p in model.parameters() if p.requires_grad]\n"
    text = BLOCKS.replace(
        "optimizer = torch.optim.SGD(model.parameters()", f"{listed}optimizer = torch.optim.SGD(parameters"
    )
    after = converted(tmp_path, text).entry.after
    assert after.index("fully_shard(model") < after.index(listed)


def test_what_initialises_a_model_stays_before_it_is_sharded(tmp_path: Path) -> None:
    line = "model.apply(lambda m: None)\n"
    after = converted(tmp_path, BLOCKS.replace("optimizer =", f"{line}optimizer =")).entry.after
    assert after.index(line) < after.index("fully_shard(model")


def test_options_of_fsdp_need_it(autodist: Autodist, script: Path) -> None:
    result = autodist("convert", script, "--cpu-offload")
    assert result.exit_code == 2
    assert "needs --strategy fsdp" in result.output
    assert autodist("convert", script, "--strategy", "fsdp", "--cpu-offload").exit_code == 0


NORMALISING = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        return torch.relu(self.norm(self.layer(x)))


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(32, 8), torch.randn(32, 8)), batch_size=8, shuffle=True)
model = nn.Sequential(*[Block() for _ in range(3)])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x).float(), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
print(f"{loss.item():.3f}", torch.isfinite(model(x)).all().item())
torch.save(model.state_dict(), "model.pt")
"""


@pytest.mark.parametrize(
    ("strategy", "options"),
    [
        (Strategy.FSDP, {"mixed_precision": MixedPrecision.BF16, "activation_checkpointing": True}),
        (Strategy.FSDP, {"mixed_precision": MixedPrecision.FP16, "cpu_offload": True}),
        (Strategy.HSDP, {"mixed_precision": MixedPrecision.BF16, "reshard_after_forward": False}),
        (Strategy.HSDP, {"cpu_offload": True}),
    ],
    ids=str,
)
def test_models_that_normalise_run_with_the_options(
    tmp_path: Path, strategy: Strategy, options: dict[str, Any]
) -> None:
    """BatchNorm in half precision has no running statistics to go with: it stays in float32, as under autocast."""
    torch = pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(converted(tmp_path, NORMALISING, strategy, **options).entry.after)
    assert launched(tmp_path, "train.py", 2).split()[-1] == "True"
    state = torch.load(tmp_path / "model.pt")
    assert {value.dtype for key, value in state.items() if "num" not in key} == {torch.float32}
