"""Models that are given layers or parameters after they were made: a wrapper that is there by then does not know them,
so that their gradients are each rank's own, and waits for those whose place they take."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

NET = """\
import copy

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import AutoModelForCausalLM


class LoRA(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear
        self.a = nn.Parameter(torch.randn(linear.in_features, 2))
        self.b = nn.Parameter(torch.zeros(2, linear.out_features))

    def forward(self, x):
        return self.linear(x) + x @ self.a @ self.b


def adapt(model):
    for name, module in model.named_children():
        if isinstance(module, nn.Linear):
            setattr(model, name, LoRA(module))
        else:
            adapt(module)


def freeze(model):
    for p in model.body.parameters():
        p.requires_grad = False


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.fc = nn.Linear(8, 4)
        self.teacher = None

    def reset(self, classes):
        self.fc = nn.Linear(8, classes)

    def renew(self):
        self.teacher = copy.deepcopy(self.body)

    def forward(self, x):
        return self.fc(self.body(x))


def train(model):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()


data = TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""
LATER = [
    "model.fc = nn.Linear(8, 4).to(device)",
    "model.body[0] = nn.Linear(8, 8)",
    "model.fc.weight = nn.Parameter(torch.randn(4, 8))",
    "fc = model.fc\nfc.weight = nn.Parameter(torch.randn(4, 8))",
    "model.reset(4)",
    "adapt(model)",
    "nn.utils.weight_norm(model.fc)",
    "freeze(model)",
]


@pytest.mark.parametrize("later", LATER)
def test_is_wrapped_once_it_is_complete(tmp_path: Path, later: str) -> None:
    after, _ = converted(tmp_path, f"{NET}model = Net().to(device)\n{later}\ntrain(model)\n")
    assert f"model = Net().to(device)\n{later}\nmodel = DDP(model, gradient_as_bucket_view=True)\ntrain(model)" in after


@pytest.mark.parametrize(
    ("made", "later"),
    [
        ("AutoModelForCausalLM.from_pretrained('gpt2')", "model.resize_token_embeddings(100)"),
        ("torchvision.models.vgg16()", "model.classifier[6] = nn.Linear(4096, 4).to(device)"),
    ],
)
def test_of_libraries(tmp_path: Path, made: str, later: str) -> None:
    after, _ = converted(tmp_path, f"{NET}model = {made}.to(device)\n{later}\ntrain(model)\n")
    assert f"{later}\nmodel = DDP(model, gradient_as_bucket_view=True)\ntrain(model)" in after


def test_under_a_condition_and_for_each_fold(tmp_path: Path) -> None:
    fold = "    model = Net().to(device)\n    if fold:\n        model.fc = nn.Linear(8, 4)\n"
    after, said = converted(tmp_path, f"{NET}for fold in range(3):\n{fold}    train(model)\n")
    assert f"{fold}    model = DDP(model, gradient_as_bucket_view=True)\n    train(model)" in after
    assert "AD404" not in said


def test_below_its_wrapper(tmp_path: Path) -> None:
    """Nothing shows that place, so that gradients are averaged by hand."""
    trained = NET.replace("def train(model):\n", "def train(model):\n    model.fc = nn.Linear(8, 4)\n")
    for text in (
        f"{trained}model = Net().to(device)\ntrain(model)\n",
        f"{NET}model = nn.DataParallel(Net()).to(device)\nmodel.module.fc = nn.Linear(8, 4)\ntrain(model)\n",
    ):
        after, said = converted(tmp_path, text)
        assert "average_gradients(optimizer)" in after and "DDP" not in after
        assert "given further layers between the place where it is made and its first step" in said


def test_between_two_trainings(tmp_path: Path) -> None:
    text = f"{NET}model = Net().to(device)\ntrain(model)\nmodel.fc = nn.Linear(8, 4)\ntrain(model)\n"
    after, said = converted(tmp_path, text)
    assert "average_gradients(optimizer)" in after and "DDP" not in after
    assert "given further layers during training" in said


@pytest.mark.parametrize("last", ["model.fc = nn.Identity()", "model.fc = model.fc.to('cpu')"])
def test_once_all_is_learned(tmp_path: Path, last: str) -> None:
    """Features are taken of what was a classifier."""
    after, said = converted(
        tmp_path, f"{NET}model = Net().to(device)\ntrain(model)\n{last}\nprint(model(data[:][0]))\n"
    )
    assert "model = DDP(Net().to(device)" in after
    assert "AD404" not in said


def test_teachers_learn_nothing(tmp_path: Path) -> None:
    steps = """\
optimizer = torch.optim.SGD(model.body.parameters(), lr=0.1)
for epoch in range(2):
    model.renew()
    for x, y in loader:
        optimizer.zero_grad()
        with torch.no_grad():
            wanted = model.teacher(x)
        nn.functional.mse_loss(model(x), wanted @ torch.ones(8, 4)).backward()
        optimizer.step()
"""
    after, _ = converted(tmp_path, f"{NET}model = Net().to(device)\n{steps}")
    assert "model = DDP(Net().to(device)" in after
