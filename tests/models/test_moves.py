"""A model comes to its device before DistributedDataParallel takes hold of its parameters: moved after that, it goes on
without averaging gradients, and says nothing. It was seen on a GPU; on the CPU nothing moves."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)

    def forward(self, x):
        return self.fc(x)


"""
TAIL = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
SEVERAL = "if torch.cuda.device_count() > 1:\n    model = nn.DataParallel(model)\n"
FACTORY = """\
def build():
    model = Net()
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    return model


"""
PREPARED = """\
def prepare(model):
    if torch.cuda.device_count() > 1:
        model = nn.DataParallel(model)
    model = model.to(device)
    return model


model = prepare(Net())
"""
HELPER = """\
def bring(*nets):
    for net in nets:
        if torch.cuda.is_available():
            net.cuda()


"""


@pytest.mark.parametrize(
    ("made", "wrapped"),
    [
        (
            f"model = Net()\n{SEVERAL}model.to(device)\n",
            "model.to(device)\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
        (
            f"model = Net()\n{SEVERAL}model = model.to(device)\n",
            "model = DDP(model.to(device), gradient_as_bucket_view=True)\n",
        ),
        (
            f"model = Net()\n{SEVERAL}if torch.cuda.is_available():\n    model = model.cuda()\n",
            "    model = model.cuda()\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
        (
            f"model = Net()\n{SEVERAL}model.load_state_dict(dict(model.state_dict()))\nmodel.to(device)\n",
            "model.to(device)\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
        (f"{FACTORY}model = build().to(device)\n", "\nmodel = DDP(build().to(device), gradient_as_bucket_view=True)\n"),
        (
            f"{FACTORY}model = build()\nmodel = model.to(device)\n",
            "\nmodel = DDP(model.to(device), gradient_as_bucket_view=True)\n",
        ),
        (PREPARED, "\nmodel = DDP(prepare(Net()), gradient_as_bucket_view=True)\n"),
        (
            "model, other = Net(), Net()\nfor net in (model, other):\n    net.to(device)\n",
            "    net.to(device)\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
        (f"{HELPER}model = Net()\nbring(model)\n", "bring(model)\nmodel = DDP(model, gradient_as_bucket_view=True)\n"),
        (
            "net = Net()\nmodel = nn.Sequential(net)\nnet.to(device)\n",
            "net.to(device)\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
        (
            f"model = Net().to(device)\n{SEVERAL}",
            "model = Net().to(device)\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
        (
            f"model = Net()\nmodel.to(device)\n{SEVERAL}",
            "model.to(device)\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
    ],
)
def test_a_model_is_wrapped_where_it_has_come_to_its_device(tmp_path: Path, made: str, wrapped: str) -> None:
    after, said = converted(tmp_path, HEAD + made + TAIL)
    assert wrapped in after and after.count("DDP(") == 1 and "DataParallel(model)" not in after.replace("DDP(", "")
    assert "AD9" not in said


IN_ROUNDS = """\
def train(model, optimizer):
    model.to(device)
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    train(model, optimizer)
"""


@pytest.mark.parametrize(
    ("head", "move", "given", "wrapped"),
    [
        (
            "model, optimizer",
            "model.to(device)",
            "model, optimizer",
            "DDP(Net().to(device), gradient_as_bucket_view=True)",
        ),
        ("model, optimizer", "model.cuda()", "model, optimizer", "DDP(Net().cuda(), gradient_as_bucket_view=True)"),
        (
            "model, optimizer, where",
            "model.to(where)",
            "model, optimizer, device",
            "DDP(Net().to(device), gradient_as_bucket_view=True)",
        ),
        (
            "model, optimizer, where",
            "model.to(where)",
            "model, optimizer, where=device",
            "DDP(Net().to(device), gradient_as_bucket_view=True)",
        ),
        (
            "model, optimizer",
            'model.to(device="cuda")',
            "model, optimizer",
            'DDP(Net().to("cuda"), gradient_as_bucket_view=True)',
        ),
    ],
)
def test_one_that_is_moved_in_each_round_comes_to_its_device_where_it_is_wrapped(
    tmp_path: Path, head: str, move: str, given: str, wrapped: str
) -> None:
    """There is no place between its move and its first use that is run once."""
    rounds = IN_ROUNDS.replace("train(model, optimizer):", f"train({head}):").replace("model.to(device)", move)
    after, said = converted(tmp_path, HEAD + rounds.replace("    train(model, optimizer)", f"    train({given})"))
    assert f"model = {wrapped}\n" in after and "AD904" not in said


@pytest.mark.parametrize(
    "move",
    [
        'model.to("cuda:1" if len(loader) > 3 else "cpu")',
        "if len(loader) > 3:\n        model.to(device)",
        "place = torch.device(loader.device)\n    model.to(place)",
    ],
)
def test_one_that_is_moved_in_each_round_is_refused_where_nobody_knows_its_device_before(
    tmp_path: Path, move: str
) -> None:
    _, said = converted(tmp_path, HEAD + IN_ROUNDS.replace("model.to(device)", move))
    assert "AD904 is moved to its device after DistributedDataParallel has taken hold of its parameters" in said


@pytest.mark.parametrize(
    "made",
    [
        "model = Net().to(device)",
        "model = Net()\nmodel.fc = model.fc.to(device)",
    ],
)
def test_a_move_that_changes_nothing_does_no_harm(tmp_path: Path, made: str) -> None:
    after, said = converted(tmp_path, HEAD + IN_ROUNDS.replace("model = Net()", made))
    assert "DDP(" in after and "AD904" not in said


def test_types_and_the_cpu_are_no_devices_to_move_to(tmp_path: Path) -> None:
    end = 'torch.save(model.to("cpu").state_dict(), "m.pt")\n'
    after, said = converted(tmp_path, HEAD + "model = Net()\nmodel = model.to(torch.float32)\n" + TAIL + end)
    assert "DDP(" in after and "AD904" not in said


BETWEEN = """\
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
"""
SAVED = "{name: tensor.cpu() for name, tensor in model.module.state_dict().items()}"


@pytest.mark.parametrize(
    ("saves", "kept"),
    [
        (
            '    model.eval().cpu()\n    torch.save(model.state_dict(), "m.pt")\n    model.to(device).train()\n',
            f'    model.eval()\n    if dist.get_rank() == 0:\n        torch.save({SAVED}, "m.pt")\n',
        ),
        (
            '    torch.save(model.cpu().state_dict(), "m.pt")\n    model.to(device)\n',
            f'    if dist.get_rank() == 0:\n        torch.save({SAVED}, "m.pt")\n    model.to(device)\n',
        ),
        (
            '    model = model.to("cpu")\n    torch.save(model.state_dict(), "m.pt")\n    model = model.to(device)\n',
            f'        optimizer.step()\n    if dist.get_rank() == 0:\n        torch.save({SAVED}, "m.pt")\n',
        ),
        (
            '    cpu = torch.device("cpu")\n    model.to(cpu)\n    torch.save(model.state_dict(), "m.pt")\n'
            "    model.to(device)\n",
            f'    cpu = torch.device("cpu")\n    if dist.get_rank() == 0:\n        torch.save({SAVED}, "m.pt")\n',
        ),
    ],
)
def test_a_model_stays_on_its_device_between_steps(tmp_path: Path, saves: str, kept: str) -> None:
    after, said = converted(tmp_path, HEAD + BETWEEN + saves)
    assert kept in after and "AD411" in said
    assert not any(each in after for each in ("model.cpu()", 'model.to("cpu")', ".module.cpu()"))


def test_a_copy_of_what_is_saved_whole_goes_to_the_cpu(tmp_path: Path) -> None:
    saves = '    torch.save({"epoch": epoch, "model": model.cpu()}, "m.pt")\n    model.to(device)\n'
    after, said = converted(tmp_path, HEAD + BETWEEN + saves)
    assert '"model": copy.deepcopy(model.module).cpu()}' in after and "import copy" in after and "AD411" in said


PART = """\
body = Net()
model = nn.Sequential(body, nn.Linear(1, 1)).to(device)
"""


@pytest.mark.parametrize(
    ("saves", "kept"),
    [
        ('torch.save(body.cpu(), "m.pt")', 'torch.save(copy.deepcopy(body).cpu(), "m.pt")'),
        (
            'body.cpu()\n    torch.save(body.state_dict(), "m.pt")',
            'torch.save({name: tensor.cpu() for name, tensor in body.state_dict().items()}, "m.pt")',
        ),
    ],
)
@pytest.mark.parametrize("moved", ["body", "model"])
def test_so_does_a_part_of_a_model(tmp_path: Path, saves: str, kept: str, moved: str) -> None:
    """BERT-pytorch saves the encoder inside of the model that it trains: it lost its gradients, in silence."""
    script = BETWEEN.replace("model = Net().to(device)\n", PART) + f"    {saves}\n    {moved}.to(device)\n"
    after, said = converted(tmp_path, HEAD + script)
    assert kept in after and "AD411" in said and "    body.cpu()" not in after


def test_one_that_runs_on_the_cpu_between_steps_is_refused(tmp_path: Path) -> None:
    runs = "    print(model.cpu()(torch.ones(1, 4)))\n    model.to(device)\n"
    assert "AD904 runs on the CPU between training steps" in converted(tmp_path, HEAD + BETWEEN + runs)[1]


def test_after_training_a_model_may_go_to_the_cpu(tmp_path: Path) -> None:
    after, said = converted(tmp_path, HEAD + BETWEEN + 'torch.save(model.cpu().state_dict(), "m.pt")\n')
    assert "model.cpu().module.state_dict()" in after and "AD411" not in said


def test_a_device_that_is_the_cpu_in_one_branch_alone_is_none(tmp_path: Path) -> None:
    chosen = 'if torch.cuda.is_available():\n    place = torch.device("cuda")\nelse:\n    place = torch.device("cpu")\n'
    after, _ = converted(tmp_path, HEAD + f"{chosen}model = Net()\n{SEVERAL}model.to(place)\n" + TAIL)
    assert "model.to(place)\nmodel = DDP(model, gradient_as_bucket_view=True)\n" in after


def test_a_model_in_data_parallel_that_was_saved_on_the_cpu_is_wrapped_where_it_was(tmp_path: Path) -> None:
    """Its move back is none that it is wrapped after (the SQuAD baselines of CS224n)."""
    script = BETWEEN.replace("model = Net().to(device)", "model = nn.DataParallel(Net())\nmodel = model.to(device)")
    saves = '    torch.save(model.cpu().state_dict(), "m.pt")\n    model.to(device)\n'
    after, said = converted(tmp_path, HEAD + script + saves)
    assert "model = model.to(device)\nmodel = DDP(model, gradient_as_bucket_view=True)\n" in after
    assert "tensor.cpu() for name, tensor in model.state_dict().items()" in after and "AD904" not in said


BY_HAND = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=8, sampler=sampler)
model = nn.Linear(4, 1)
{wraps}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("wraps", "told"),
    [
        ("model = DDP(model)\nmodel.to(device)", "is moved to its device after"),
        ("model = DDP(model).cuda()", "is moved to its device after"),
        ("model = DDP(model.to(device))\nmodel.half()", "becomes another type after"),
        ("model = DDP(model.to(device))\nmodel.to(device)", None),
        ("model.to(device)\nmodel = DDP(model, device_ids=[device.index])", None),
        ("if dist.get_world_size() > 1:\n    model = DDP(model.to(device))\nelse:\n    model.cuda()", None),
        ("if dist.get_world_size() > 1:\n    model = DDP(model)\nelse:\n    model.cuda()", None),
    ],
)
def test_a_move_after_a_wrapper_that_a_person_wrote(tmp_path: Path, wraps: str, told: str | None) -> None:
    _, said = converted(tmp_path, BY_HAND.format(wraps=wraps))
    assert f"AD904 {told}" in said if told else "AD904" not in said


PARALLEL = """\
class Experiment:
    def __init__(self, model, name="model"):
        self.model = {kept}
        {moved}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self):
        for epoch in range(2):
            for x, y in loader:
                x, y = x.to(device), y.to(device)
                self.optimizer.zero_grad()
                nn.functional.mse_loss(self.model(x), y).backward()
                self.optimizer.step()


model = Net()
model = nn.DataParallel(model)
{made}.train()
"""


@pytest.mark.parametrize(
    ("kept", "moved", "made", "wrapped"),
    [
        (
            "model",
            "pass",
            "Experiment(model.to(device))",
            "model = DDP(model.to(device), gradient_as_bucket_view=True)\n",
        ),
        (
            "model.to(device)",
            "pass",
            "Experiment(model)",
            "model = DDP(model.to(device), gradient_as_bucket_view=True)\n",
        ),
        (
            "model",
            "self.model.cuda()",
            "Experiment(model)",
            "model = DDP(model.cuda(), gradient_as_bucket_view=True)\n",
        ),
        (
            "model",
            "pass",
            "model.to(device)\nExperiment(model)",
            "model.to(device)\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
        (
            "model",
            "pass",
            "net = model.to(device)\nExperiment(net)",
            "net = model.to(device)\nnet = DDP(net, gradient_as_bucket_view=True)\n",
        ),
        (
            "model",
            "pass",
            "net = model.to(device)\nprint(model)\nExperiment(net)",
            "net = model.to(device)\nmodel = net = DDP(model, gradient_as_bucket_view=True)\n",
        ),
    ],
)
def test_data_parallel_that_moves_later(tmp_path: Path, kept: str, moved: str, made: str, wrapped: str) -> None:
    """The name that the wrapper had was wrapped behind the move, and what trains was another, in silence."""
    after, said = converted(tmp_path, HEAD + PARALLEL.format(kept=kept, moved=moved, made=made))
    assert wrapped in after and after.count("DDP(") == 1
    assert "AD9" not in said and "AD401 is moved" not in said


WITHIN = """\
class Experiment:
    def __init__(self):
        model = Net()
        model = nn.DataParallel(model)
        self.model = model.cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def train(self):
        for x, y in loader:
            self.optimizer.zero_grad()
            nn.functional.mse_loss(self.model(x.cuda()), y.cuda()).backward()
            self.optimizer.step()


Experiment().train()
"""


def test_data_parallel_that_an_attribute_holds_once_it_has_moved(tmp_path: Path) -> None:
    after, _ = converted(tmp_path, HEAD + WITHIN)
    assert "self.model = model.cuda()\n        self.model = DDP(self.model, gradient_as_bucket_view=True)\n" in after


def test_a_move_to_a_device_that_is_told_later_is_refused(tmp_path: Path) -> None:
    made = "where = torch.device(device)\nExperiment(model.to(where))"
    _, said = converted(tmp_path, HEAD + PARALLEL.format(kept="model", moved="pass", made=made))
    assert "AD401 is moved to its device after it is wrapped" in said


PARTS = """\
def to_device(data, device):
    if isinstance(data, (list, tuple)):
        return [to_device(x, device) for x in data]
    return data.to(device, non_blocking=True)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Net(), Net()

    def step(self, x, y):
        return nn.functional.mse_loss(self.decoder(self.encoder(x)), y)


model = to_device(Pair(), device)
optimizer = torch.optim.SGD([*model.encoder.parameters(), *model.decoder.parameters()], lr=0.1)
for x, y in loader:
    x, y = to_device((x, y), device)
    optimizer.zero_grad()
    model.step(x, y).backward()
    optimizer.step()
"""


def test_parts_that_train_come_to_their_device_where_they_are_wrapped(tmp_path: Path) -> None:
    """The model itself is moved once it is made, and with it what it consists of (USAD)."""
    parts = PARTS.replace(
        "self.encoder, self.decoder = Net(), Net()", "self.encoder = Net()\n        self.decoder = Net()"
    )
    after, said = converted(tmp_path, HEAD + parts)
    assert "self.encoder = DDP(Net().to(device)" in after and "AD904" not in said
    assert "    if isinstance(data, (list, tuple)):\n        return [to_device(x, device) for x in data]\n" in after


def test_a_type_that_a_wrapped_model_becomes(tmp_path: Path) -> None:
    """`model.half()` below nn.DataParallel and `model.cuda()`: it is wrapped where it is of its type."""
    code, _ = converted(
        tmp_path,
        "import sys\n\nimport torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader, TensorDataset\n\n"
        "loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)\n"
        "model = nn.DataParallel(nn.Linear(4, 1))\n"
        "model.cuda()\n"
        "if 'half' in sys.argv:\n"
        "    model.half()\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in loader:\n"
        "    loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())\n"
        "    optimizer.zero_grad()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n",
    )
    assert "    model.half()\nmodel = DDP(model, gradient_as_bucket_view=True)\noptimizer" in code


@pytest.mark.parametrize(
    ("device", "on_cpu"),
    [
        ('torch.device(settings["device"] if torch.cuda.is_available() else "cpu")', False),
        ('settings["device"] if torch.cuda.is_available() else "cpu"', False),
        ('torch.device(settings.get("device", "cpu"))', False),
        ('torch.device("cpu")', True),
        ('torch.device("cpu") if settings else "cpu"', True),
    ],
)
def test_what_may_be_a_gpu_is_none_that_stays_on_the_cpu(tmp_path: Path, device: str, on_cpu: bool) -> None:
    """Of what a file says of a device nothing is known, and the other branch says `"cpu"`: a model that comes to it in
    the function that trains it comes there before it is wrapped."""
    settings = 'import json\nsettings = json.load(open("settings.json"))\n'
    head = HEAD.replace('device = torch.device("cuda" if torch.cuda.is_available() else "cpu")', f"device = {device}")
    steps = TAIL.partition("\n")[2].replace("\n", "\n    ").rstrip()
    code, said = converted(
        tmp_path, f"{settings}{head}def fit(model):\n    model.to(device)\n    {steps}\n\n\nmodel = Net()\nfit(model)\n"
    )
    assert "AD904" not in said
    assert ("DDP(Net().to(device)" in code or "model.to(device)\n    model = DDP(model" in code) or on_cpu
