"""Models of which samples decide which parts run: a rank may have no gradient of a part that another rank has run, and
all of them average those that any has."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
"""
NET = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.low, self.high = nn.Linear(4, 1), nn.Linear(4, 1)
        {made}

    def {name}(self, row, kind):
        {body}


data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1), torch.randint(6, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y, kinds in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss({out}, y)
        loss.backward()
        optimizer.step()
    print(epoch, sum(p.sum().item() for p in model.parameters()))
"""
ROWS = "torch.stack([model.{name}(row, kind) for row, kind in zip(x, kinds)])"
BRANCH = "if {test}:\n            return self.high(row)\n        return self.low(row)"
ROUNDS = "out = self.low(row)\n        {loop}:\n            out = 0.5 * out + {part}\n        return out"
HEADS = "self.heads = nn.ModuleList([nn.Linear(4, 1) for _ in range(6)])"
NAMED = "self.heads = nn.ModuleDict({str(i): nn.Linear(4, 1) for i in range(6)})"
WEIGHTS = "self.first, self.other = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))"
OFFSET = """

    def offset(self, row):
        if row[0] > 0.8:
            return self.first
        return self.other"""
APART = "has_any"


def model_of(body: str, made: str = "pass", name: str = "score", out: str = ROWS) -> str:
    call = f"model.{name}" if name != "forward" else "model"
    return HEAD + NET.format(made=made, name=name, body=body, out=out.replace("model.{name}", call))


@pytest.mark.parametrize(
    ("body", "made"),
    [
        (BRANCH.format(test="row[0] > 0.8"), "pass"),
        (BRANCH.format(test="not row[0] <= 0.8"), "pass"),
        (BRANCH.format(test="0.8 < row[0]"), "pass"),
        (BRANCH.format(test="self.training and row[0].item() > 0.8"), "pass"),
        (BRANCH.format(test="kind == 5"), "pass"),
        ("return (self.high if row[0] > 0.8 else self.low)(row)", "pass"),
        ("return self.high(row) if row[0] > 0.8 else self.low(row)", "pass"),
        ("layer = self.high if row[0] > 0.8 else self.low\n        return layer(row)", "pass"),
        (ROUNDS.format(loop="for _ in range(int(kind) // 5)", part="self.high(row)"), "pass"),
        (ROUNDS.format(loop="while out > 0.8", part="0 * self.high(row)"), "pass"),
        ("return self.heads[int(kind)](row)", HEADS),
        ("return self.heads[kind.item()](row)", HEADS),
        ("return self.heads[str(int(kind))](row)", NAMED),
        ("return self.low(row) + (self.first if row[0] > 0.8 else self.other)", WEIGHTS),
        ("return self.low(row) + (self.first if row[0] > 0.8 else 2 * self.other)", WEIGHTS),
        ("return self.low(row) + self.offset(row)", WEIGHTS + OFFSET),
    ],
)
def test_each_rank_has_gradients_of_other_parts(tmp_path: Path, body: str, made: str) -> None:
    """Ranks averaged the gradient of one parameter with that of another, and waited for each other in the end."""
    assert APART in converted(tmp_path, model_of(body, made))[0]


@pytest.mark.parametrize(
    ("body", "made"),
    [
        ("return self.low(row) + self.high(row)", "pass"),
        (BRANCH.format(test="self.training"), "pass"),
        (ROUNDS.format(loop="for _ in range(2)", part="self.high(row)"), "pass"),
        (ROUNDS.format(loop="for _ in range(row.size(0))", part="self.high(row)"), "pass"),
        ("return sum(head(row) for head in self.heads)", HEADS),
        ("return self.heads[epoch](row)", HEADS),
        (BRANCH.format(test="epoch == 1"), "pass"),
        (BRANCH.format(test="not epoch < 1"), "pass"),
        ("return (self.high if epoch else self.low)(row) + self.low(row) + self.high(row)", "pass"),
        ("return sum(self.heads[i](row) for i in range(6)) + self.low(row) + self.high(row)", HEADS),
    ],
)
def test_all_ranks_have_gradients_of_all_parts(tmp_path: Path, body: str, made: str) -> None:
    """A second all-reduce in each step, of what nobody has to ask."""
    code = converted(tmp_path, model_of(body, made))[0]
    assert "average_gradients(optimizer)" in code and APART not in code


@pytest.mark.parametrize(
    "body", [BRANCH.format(test="row[0] > 0.8"), ROUNDS.format(loop="while out > 0.8", part="0 * self.high(row)")]
)
def test_called_as_a_whole_for_each_sample(tmp_path: Path, body: str) -> None:
    """The wrapper looks for unused parameters in the last of several forward passes alone."""
    assert APART in converted(tmp_path, model_of(body, name="forward"))[0]


FILTERED = """\
rest = []
        for each in row:
            if each[0] > 1.2:
                rest.append(each)"""


@pytest.mark.parametrize(
    ("some", "over"),
    [
        ("rest = [each for each in row if each[0] > 1.2]", "rest"),
        (FILTERED, "rest"),
        ("pass", "row if each[0] > 1.2"),
        ("rest = filter(lambda each: each[0] > 1.2, row)", "rest"),
    ],
)
def test_layers_for_some_of_the_samples(tmp_path: Path, some: str, over: str) -> None:
    """A rank may have none of them."""
    body = f"{some}\n        return self.low(row) + sum(self.high(each) for each in {over}) / 8"
    text, said = converted(tmp_path, model_of(body, out="model.{name}(x, kinds)"))[:2]
    assert APART in text and "has nothing with gradients to add" in " ".join(said.split())


@pytest.mark.parametrize(
    ("begin", "told"),
    [("torch.zeros(1)", True), ("0 * self.high(row[0])", False), ("start=0 * self.high(row[0])", False)],
)
def test_sums_for_some_of_the_samples_that_begin_with_something(tmp_path: Path, begin: str, told: bool) -> None:
    """Without a gradient, the ranks that have one wait for the others in the backward pass."""
    some = "(self.high(each) for each in row if each[0] > 1.2)"
    body = f"return self.low(row) + sum({some}, {begin}) / 8"
    said = converted(tmp_path, model_of(body, out="model.{name}(x, kinds)"))[1]
    assert ("has nothing with gradients to add" in " ".join(said.split())) == told


@pytest.mark.parametrize("loop", ["for _ in range(int(kind[0]) // 3)", "while out.mean() > 0.1"])
def test_rounds_that_samples_decide_over(tmp_path: Path, loop: str) -> None:
    """A layer that runs in no round leaves its rank without a gradient."""
    text = model_of(ROUNDS.format(loop=loop, part="0.01 * self.high(row)"), name="forward", out="model(x, kinds)")
    assert "DDP(Net(), find_unused_parameters=True, " in converted(tmp_path, text)[0]


LOOSE = """\
a, b = {made}
data = TensorDataset(torch.randn(64, 4), torch.randn(64))
loader = DataLoader(data, batch_size=8, shuffle=True)
{optimizer}
for epoch in range(2):
    for x, y in loader:
        {zero}
        out = torch.stack([{out} for row in x])
        loss = nn.functional.mse_loss(out, y)
        loss.backward()
        {step}
    print(epoch, (a - 2 * b).sum().item())
"""
PARAMETERS = "nn.Parameter(torch.zeros(4)), nn.Parameter(torch.zeros(4))"
LEAVES = "torch.zeros(4, requires_grad=True), torch.zeros(4, requires_grad=True)"
OPTIMIZER = ("optimizer = torch.optim.SGD([a, b], lr=0.1)", "optimizer.zero_grad()", "optimizer.step()")
EITHER = "row @ (a if row[0] > 0.8 else b)"
BY_HAND = """\
with torch.no_grad():
            for w in [a, b]:
                if w.grad is not None:
                    w -= 0.1 * w.grad
                    w.grad = None"""


@pytest.mark.parametrize(
    ("made", "steps"), [(PARAMETERS, OPTIMIZER), (LEAVES, OPTIMIZER), (LEAVES, ("", "pass", BY_HAND))]
)
def test_tensors_in_no_module(tmp_path: Path, made: str, steps: tuple[str, str, str]) -> None:
    """Samples may decide over these as well."""
    optimizer, zero, step = steps
    for out, apart in ((EITHER, True), ("row @ a + row @ b", False)):
        step = step if apart else step.replace("if w.grad is not None", "if True")
        text = HEAD + LOOSE.format(made=made, optimizer=optimizer, zero=zero, step=step, out=out)
        code, said = converted(tmp_path, text)
        assert "average_gradients" in code and (APART in code) == apart, said


@pytest.mark.parametrize(
    "text",
    [
        model_of(BRANCH.format(test="row[0] > 0.8")),
        model_of("return self.heads[int(kind)](row)", HEADS),
        HEAD + LOOSE.format(made=LEAVES, optimizer=OPTIMIZER[0], zero=OPTIMIZER[1], step=OPTIMIZER[2], out=EITHER),
    ],
)
def test_they_train_as_one_process_does(tmp_path: Path, zygote: Zygote | None, text: str) -> None:
    """On two ranks, by running both."""
    assert differences(tmp_path, zygote, text) is None
