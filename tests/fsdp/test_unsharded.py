"""What meets a sharded model without being sharded: copies of it, files in memory, and parameters that come later."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

from autodist.config import Strategy

SCRIPT = """\
import io

import torch
from torch import nn
from torch.nn.utils import prune
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(2):
            setattr(self, f"layer{i}", nn.Linear(4, 4))
        self.register_parameter("scale", nn.Parameter(torch.ones(1)))

    def forward(self, x):
        for i in range(2):
            x = getattr(self, f"layer{i}")(x)
        return x.sum(1, keepdim=True) * self.scale


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("copy = Net()\ncopy.load_state_dict(model.state_dict())\n", "load_state_dict(whole_tensors("),
        ("copy = type(model)()\ncopy.load_state_dict(model.state_dict())\n", "load_state_dict(whole_tensors("),
        ("copy = model.__class__()\ncopy.load_state_dict(model.state_dict())\n", "load_state_dict(whole_tensors("),
        ("torch.save(model.state_dict(), io.BytesIO())\n", "keeps a state in memory"),
        ("setattr(model, 'gain', nn.Parameter(torch.ones(1)))\n", "puts another parameter into a sharded module"),
        ("model.register_parameter('gain', nn.Parameter(torch.ones(1)))\n", "puts another parameter into a sharded"),
        ("prune.l1_unstructured(model.layer0, 'weight', amount=0.3)\n", "puts another parameter into a sharded"),
    ],
)
def test_what_is_not_sharded(tmp_path: Path, after: str, expected: str) -> None:
    assert expected in "".join(converted(tmp_path, SCRIPT + after, Strategy.FSDP))


def test_files_in_memory_under_ddp(tmp_path: Path) -> None:
    """Every rank has its own, and reads it."""
    after = "kept = io.BytesIO()\ntorch.save(model.state_dict(), kept)\nkept.seek(0)\nstate = torch.load(kept)\n"
    code, _ = converted(tmp_path, SCRIPT + after)
    assert "\ntorch.save(model.module.state_dict(), kept)\n" in code and "barrier" not in code


def test_what_timm_makes_of_a_model(tmp_path: Path) -> None:
    """Its optimizers take what is sharded by then, and mean the model inside a wrapper, as its averages do."""
    text = SCRIPT.replace(
        "torch.optim.SGD(model.parameters(), lr=0.1)", "create_optimizer_v2(model, opt='sgd', lr=0.1)"
    )
    text = text.replace(
        "import io\n", "import io\nfrom timm.optim import create_optimizer_v2\nfrom timm.utils import ModelEmaV2\n"
    )
    code, _ = converted(tmp_path, text, Strategy.FSDP)
    assert code.index("fully_shard(model") < code.index("create_optimizer_v2(model, ")
    code, _ = converted(tmp_path, text + "average = ModelEmaV2(model)\n")
    assert "create_optimizer_v2(model.module, opt" in code and "ModelEmaV2(model.module)" in code


@pytest.mark.parametrize(
    ("data", "is_scalar"),
    [
        ("torch.tensor(2.0)", True),
        ("torch.tensor(-1.0)", True),
        ("torch.tensor(math.log(1 / 0.07))", True),
        ("torch.ones([]) * np.log(1 / 0.07)", True),
        ("torch.zeros(())", True),
        ("torch.full((), 0.5)", True),
        ("torch.tensor(0.07).log()", True),
        ("data=torch.tensor(1.0), requires_grad=True", True),
        ("torch.tensor(start)", True),
        ("torch.tensor([2.0])", False),
        ("torch.ones(1)", False),
        ("torch.ones([]) * torch.ones(3)", False),
        ("torch.full((1,), 0.5)", False),
    ],
)
def test_a_scalar_has_no_shares(tmp_path: Path, data: str, is_scalar: bool) -> None:
    script = SCRIPT.replace("import io\n", "import math\n").replace(
        "import torch\n", "import numpy as np\nimport torch\n", 1
    )
    script = script.replace("nn.Parameter(torch.ones(1))", f"nn.Parameter({data})").replace(
        "__init__(self)", "__init__(self, start=1.0)", 1
    )
    text = "".join(converted(tmp_path, script, Strategy.FSDP))
    assert ("is a scalar, of which there is no share" in text) == is_scalar
    assert "is a scalar" not in "".join(converted(tmp_path, script, Strategy.DDP))


NESTED = """\
import torch
from torch import nn, tensor
from torch.utils.data import DataLoader, TensorDataset


class Mix(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return self.fc(self.norm(x))


class Net(nn.Module):
    def __init__(self, depth=3):
        super().__init__()
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(nn.ModuleList([Mix(4), Mix(4)]))
        self.head = nn.Linear(4, 1)

    def forward(self, x):
        for first, second in self.layers:
            x = second(first(x)) + x
        return self.head(x)


def to_np(x):
    return x.detach().cpu().numpy()


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(to_np(model(tensor([[1.0, 2.0, 3.0, 4.0]]))))
"""


def test_blocks_in_lists_of_lists(tmp_path: Path) -> None:
    """A ModuleList has no forward that would gather its parameters."""
    text = "".join(converted(tmp_path, NESTED, Strategy.FSDP))
    assert "for block in chain(*model.layers):\n    fully_shard(block, mesh=mesh)\n" in text
    assert "from itertools import chain\n" in text


def test_lists_of_what_is_no_block_are_left_whole(tmp_path: Path) -> None:
    script = NESTED.replace("nn.ModuleList([Mix(4), Mix(4)])", "nn.ModuleList([nn.ModuleList([Mix(4)]), Mix(4)])")
    text = "".join(converted(tmp_path, script.replace("second(first(x))", "second(first[0](x))"), Strategy.FSDP))
    assert "for block in" not in text and "fully_shard(model" in text


def test_inserted_loops_take_no_name_of_the_script(tmp_path: Path) -> None:
    text = "".join(converted(tmp_path, NESTED, Strategy.FSDP))
    assert "for weight in model.state_dict().values():" in text and "for tensor in" not in text


def test_helpers_of_parameters_and_other_tensors(tmp_path: Path) -> None:
    """They are given whole tensors, where parameters alone are gathered inside."""
    both = NESTED + "for name, p in model.named_parameters():\n    print(name, to_np(p).mean())\n"
    text = "".join(converted(tmp_path, both, Strategy.FSDP))
    assert "to_np(p.full_tensor())" in text and "return x.detach().cpu().numpy()" in text
    alone = both.replace("print(to_np(model(tensor([[1.0, 2.0, 3.0, 4.0]]))))\n", "")
    text = "".join(converted(tmp_path, alone, Strategy.FSDP))
    assert "to_np(p)" in text and "return x.full_tensor().detach().cpu().numpy()" in text


def test_libraries_read_whole_parameters(tmp_path: Path) -> None:
    script = "import wandb\n" + NESTED + "for p in model.parameters():\n    h = wandb.Histogram(p.data.cpu())\n"
    assert "wandb.Histogram(p.data.full_tensor().cpu())" in "".join(converted(tmp_path, script, Strategy.FSDP))


def test_a_scalar_that_a_setting_asks_for(tmp_path: Path) -> None:
    """It may not be there: no reason to refuse."""
    scaled = "class Scaled(Mix):\n    def __init__(self, width):\n        super().__init__(width)\n"
    scaled += "        self.scale = nn.Parameter(torch.ones(()))\n\n\nclass Net("
    script = "import sys\n" + NESTED.replace("class Net(", scaled, 1)
    chosen = script.replace(
        "        for _ in range", "        kind = Scaled if len(sys.argv) > 1 else Mix\n        for _ in range"
    )
    text = "".join(converted(tmp_path, chosen.replace("[Mix(4), Mix(4)]", "[kind(4), kind(4)]"), Strategy.FSDP))
    assert "where a setting asks for it, is a scalar" in text and "fully_shard(model" in text
    text = "".join(converted(tmp_path, script.replace("[Mix(4), Mix(4)]", "[Scaled(4), Scaled(4)]"), Strategy.FSDP))
    assert "AD907" in text and "fully_shard(model" not in text


def test_parameters_of_a_model_that_a_function_is_given(tmp_path: Path) -> None:
    """Whatever else calls it: the function takes a model, and it is a parameter of that which is read."""
    export = "def export(net):\n    return net.layer0.weight.detach().cpu().numpy()\n\nexport(model)\n"
    assert (
        "return net.layer0.weight.full_tensor().detach().cpu().numpy()"
        in converted(
            tmp_path,
            SCRIPT.replace('setattr(self, f"layer{i}", nn.Linear(4, 4))', "self.layer0 = nn.Linear(4, 4)") + export,
            Strategy.FSDP,
        )[0]
    )


def test_what_is_gathered_for_one_statement_has_names_of_its_own(tmp_path: Path) -> None:
    layers = "self.layer0, self.layer1 = nn.Linear(4, 4), nn.Linear(4, 4)"
    script = SCRIPT.replace('setattr(self, f"layer{i}", nn.Linear(4, 4))', layers).replace(
        "import io", "import numpy as np"
    )
    text, _ = converted(
        tmp_path, script + 'np.savez("w.npz", a=model.layer0.weight, b=model.layer1.weight)\n', Strategy.FSDP
    )
    assert "whole_weight = model.layer0.weight.full_tensor()\n" in text
    assert "whole_layer1_weight = model.layer1.weight.full_tensor()\n" in text
    assert 'np.savez("w.npz", a=whole_weight, b=whole_layer1_weight)' in text


ALTERNATIVES = """
from torchsummary import summary


class Other(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.head(self.features(x))


model = Net() if torch.rand(1) > 0.5 else Other()
summary(model, (4,))
optimizer"""


def test_methods_that_a_library_may_call_of_one_of_two_models(tmp_path: Path) -> None:
    """What nobody calls need not be defined by both."""
    script = SCRIPT.replace("model = Net()\noptimizer", ALTERNATIVES.lstrip())
    text, said = converted(tmp_path, script, Strategy.FSDP)
    assert "AD907" not in said and "fully_shard(model" in text
    called = script.replace("loss = ", "model.features(x)\n    loss = ")
    assert "may be a model without features()" in converted(tmp_path, called, Strategy.FSDP)[1]


def test_the_wrapper_goes_in_what_is_run_ahead_of_a_statement(tmp_path: Path) -> None:
    script = SCRIPT.replace("model = Net()", "model = nn.DataParallel(Net())").replace(
        "import io", "import numpy as np"
    )
    written = 'np.save("p.npy", model.module(torch.ones(5, 4)).detach().numpy())\n'
    assert "output = model(torch.ones(5, 4))\n" in converted(tmp_path, script + written, Strategy.FSDP)[0]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (
            "fisher = {n: torch.zeros_like(p) for n, p in model.named_parameters()}\n"
            "for n, p in model.named_parameters():\n    fisher[n] += p.grad**2\n"
            "print(sum(f.sum().item() for f in fisher.values()))\n",
            "f.full_tensor().sum().item()",
        ),
        (
            "for p in model.parameters():\n    f = torch.zeros_like(p)\n    f += p.grad**2\n"
            "    print(f.mean().item())\n",
            "print(f.full_tensor().mean().item())",
        ),
    ],
)
def test_what_is_made_like_a_parameter(tmp_path: Path, after: str, expected: str) -> None:
    """It is sharded as the parameter is, and so is what is counted up in it."""
    assert expected in converted(tmp_path, SCRIPT + after, Strategy.FSDP)[0]
