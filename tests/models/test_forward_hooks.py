"""Functions that run before and behind the passes of layers: what they change, and what they keep."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
kept = {{}}
means = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(4, 1))

    def forward(self, x):
        return self.head(self.body(x))


{hook}


model = Net()
model.{layer}.register_forward{kind}hook(hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y){more}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {last}
"""
BEHIND = "def hook(module, given, out):\n    return {}"
BEFORE = "def hook(module, given):\n    return {}"


def of(folder: Path, hook: str, layer: str = "body", more: str = "", last: str = "pass") -> tuple[str, str]:
    kind = "_pre_" if ", out" not in hook else "_"
    return converted(folder, SCRIPT.format(hook=hook, layer=layer, kind=kind, more=more, last=last))


@pytest.mark.parametrize("layer", ["body", "head", "head[0]"])
def test_a_statistic_that_a_hook_computes(tmp_path: Path, layer: str) -> None:
    """It is that of the whole batch, or a warning says that it is not."""
    code, said = of(tmp_path, BEHIND.format("out - out.mean(0)"), layer)
    assert "out - SumOverRanks.apply(out.mean(0)) / dist.get_world_size()" in code and "AD605" in said
    code, said = of(tmp_path, BEFORE.format("(given[0] - given[0].mean(0),)"), layer)
    if layer == "body":  # it is given the batch, to which no gradients flow back
        assert "given[0] - reduce_mean(given[0].mean(0))" in code and "AD601" in said
    else:
        assert "SumOverRanks.apply(given[0].mean(0)) / dist.get_world_size()" in code and "AD605" in said
    assert "AD602" in of(tmp_path, BEHIND.format("out - out.median(0)[0]"), layer)[1]


def test_a_hook_that_takes_each_sample_by_itself(tmp_path: Path) -> None:
    code, said = of(tmp_path, BEHIND.format("out / out.norm(dim=1, keepdim=True)"))
    assert "AD60" not in said and "SumOverRanks" not in code


def test_what_a_hook_keeps_for_the_loss(tmp_path: Path) -> None:
    hook = 'def hook(module, given, out):\n    kept["out"] = out'
    code, said = of(tmp_path, hook, more=' + kept["out"].pow(2).mean()')
    assert "AD60" not in said
    code, said = of(tmp_path, hook, more=' + kept["out"].mean(0).pow(2).sum()')
    assert "SumOverRanks.apply" in code and "AD605" in said


def test_what_a_hook_keeps_for_a_report(tmp_path: Path) -> None:
    hook = "def hook(module, given, out):\n    means.append(out.detach().mean().item())"
    code, _ = of(tmp_path, hook, last="print(sum(means) / len(means))")
    assert "reduce_mean(" in code.partition("optimizer.step()")[2] or "append(reduce_mean(" in code


@pytest.mark.parametrize("largest", ["max(x.abs().flatten().tolist())", "max(float(v) for v in x[:, 0])"])
def test_the_largest_of_a_list_is_that_of_the_batch(tmp_path: Path, largest: str) -> None:
    """Python's own `max` is a statistic of the batch, as `x.max()` is."""
    text = SCRIPT.format(hook="def hook(module, given):\n    pass", layer="body", kind="_pre_", more="", last="pass")
    code, said = converted(tmp_path, text.replace("model(x), y", f"model(x / {largest}), y"))
    assert "AD602" in said or f"reduce_max({largest})" in code
    code, said = converted(tmp_path, text.replace("self.body(x)", f"self.body(x / {largest})"))
    assert f"self.body(x / reduce_max({largest}))" in code
    code, said = converted(tmp_path, text.replace("model(x), y", "model(x / max(x.size(1), 2)), y"))
    assert "AD602" not in said and "reduce_max" not in code


def test_a_decomposition_of_all_samples(tmp_path: Path) -> None:
    text = SCRIPT.format(hook="def hook(module, given):\n    pass", layer="body", kind="_pre_", more="", last="pass")
    text = text.replace("self.body(x)", "self.body(x) @ torch.linalg.qr(torch.relu(self.body(x)))[1]")
    assert "AD906 torch.linalg.qr(torch.relu(self.body(x))) goes along the axis" in converted(tmp_path, text)[1]


GONE_THROUGH = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
means = {{}}


def watch(name):
    def keep(module, given, output):
        means[name] = output.mean().item()

    return keep


for number, layer in {layers}:
    layer.register_forward_hook(watch(number))
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
print(means)
"""


@pytest.mark.parametrize("layers", ["enumerate(model)", "zip('abc', list(model))", "enumerate([*model])"])
def test_hooks_of_layers_that_a_loop_goes_through(tmp_path: Path, layers: str) -> None:
    """The wrapper is no list of layers; their hooks keep means of a rank's own samples."""
    text, _ = converted(tmp_path, GONE_THROUGH.format(layers=layers))
    assert f"in {layers.replace('model', 'model.module')}:" in text
    assert "means[name] = reduce_mean(output.mean().item())" in text


FEATURES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
teacher = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).eval()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
features = {}


def grab(name):
    def keep(module, given, output):
        features[name] = output

    return keep


teacher[1].register_forward_hook(grab("teacher"))
model[1].register_forward_hook(grab("student"))
for x, y in loader:
    out = model(x)
    with torch.no_grad():
        teacher(x)
    loss = nn.functional.mse_loss(out, y) + nn.functional.mse_loss(features["student"], features["teacher"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_features_that_each_pass_replaces(tmp_path: Path) -> None:
    """No later step sees them, whatever key they are put under."""
    text, said = converted(tmp_path, FEATURES)
    assert "model.module[1].register_forward_hook" in text and "keeps" not in said and "gather" not in text
