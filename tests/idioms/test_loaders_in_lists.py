"""Models by setting, loaders in lists, labels of batches."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

HEAD = """\
import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="small")
parser.add_argument("--cuda", action="store_true")
args = parser.parse_args()
"""
DATA = "loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)\n"
LOOP = """\
for epoch in range(2):
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""
OPTIMIZER = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"


def test_model_of_each_condition_is_wrapped_in_it(tmp_path: Path) -> None:
    branches = (
        'if args.data == "small":\n    model = nn.Linear(4, 1)\n' + indent(OPTIMIZER, "    ")
        + 'if args.data == "large":\n    model = nn.Linear(4, 1, bias=False)\n' + indent(OPTIMIZER, "    ")
    )  # fmt: skip
    code, _ = conftest.converted(tmp_path, HEAD + DATA + branches + LOOP)
    assert "    model = DDP(nn.Linear(4, 1))\n" in code
    assert "    model = DDP(nn.Linear(4, 1, bias=False))\n" in code


@pytest.mark.parametrize("moved", ["model = model.cuda()", "model = nn.DataParallel(model.cuda())"])
def test_model_of_conditions_that_is_moved_later_is_wrapped_once(tmp_path: Path, moved: str) -> None:
    branches = (
        'if args.data == "small":\n    model = nn.Linear(4, 1)\n'
        'if args.data == "large":\n    model = nn.Linear(4, 1, bias=False)\n'
        f"if args.cuda:\n    {moved}\n"
    )
    code, _ = conftest.converted(tmp_path, HEAD + DATA + branches + OPTIMIZER + LOOP)
    assert code.count("DDP(") == 1
    assert "\nmodel = DDP(model, gradient_as_bucket_view=True)\n" in code


def test_loaders_appended_to_a_list_are_told_apart(tmp_path: Path) -> None:
    make = (
        "def get(train=True, val=True):\n    found = []\n"
        "    rows = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))\n"
        "    if train:\n        found.append(DataLoader(rows, batch_size=8, shuffle=True))\n"
        "    if val:\n        found.append(DataLoader(rows, batch_size=8))\n"
        "    return found[0] if len(found) == 1 else found\n\n\n"
        "loader, test_loader = get()\nmodel = nn.Linear(4, 1)\n"
    )
    check = (
        "    total = 0\n    with torch.no_grad():\n        for x, y in test_loader:\n"
        "            total += F.mse_loss(model(x), y)\n    print(total / len(test_loader))\n"
    )
    code, said = conftest.converted(tmp_path, HEAD + make + OPTIMIZER + LOOP + check)
    assert code.count("DistributedSampler(") == 1
    assert "    print(total / len(test_loader))\n" in code
    assert "warning" not in said


@pytest.mark.parametrize(
    ("labels", "seen"),
    [
        ("torch.arange(4).repeat_interleave(n)", True),
        ("torch.repeat_interleave(torch.arange(4), n)", True),
        ("torch.tensor([0] * n + [1] * n + [2] * n + [3] * n)", True),
        ("torch.tensor([0] * n + [1] * (2 * n) + [3] * n)", False),  # which are not as many of each
        ("torch.zeros(4 * n).long(); y[n : 2 * n] = 1; y[2 * n :] = 2", False),
    ],
)
def test_labels_of_several_batches_are_as_many_as_samples(tmp_path: Path, labels: str, seen: bool) -> None:
    loop = (
        "model = nn.Linear(4, 4)\n" + OPTIMIZER + "for epoch in range(2):\n    hits, seen = 0, 0\n"
        "    for x, _ in loader:\n        n = x.size(0)\n"
        "        out = model(torch.cat([x, x.flip(1), -x, -x.flip(1)]))\n"
        f"        y = {labels}\n        loss = F.cross_entropy(out, y)\n        optimizer.zero_grad()\n"
        "        loss.backward()\n        optimizer.step()\n"
        "        hits += out.argmax(1).eq(y).sum().item()\n        seen += y.size(0)\n    print(hits / seen)\n"
    )
    code, said = conftest.converted(tmp_path, HEAD + DATA + loop)
    assert (
        ("print(reduce_mean(hits / seen))" in code) == seen == ("computed from this rank's samples alone" not in said)
    )


TESTS = {
    "isinstance(model, nn.DataParallel)": "isinstance(model, (nn.DataParallel, DDP))",
    "isinstance(model, (nn.DataParallel,))": "isinstance(model, (nn.DataParallel, DDP))",
    "type(model) is nn.DataParallel": "type(model) in (nn.DataParallel, DDP)",
    "type(model) == nn.DataParallel": "type(model) in (nn.DataParallel, DDP)",
    "type(model) in [nn.DataParallel]": "type(model) in [nn.DataParallel, DDP]",
    "model.__class__ is nn.DataParallel": "model.__class__ in (nn.DataParallel, DDP)",
    'model.__class__.__name__ == "DataParallel"': (
        'model.__class__.__name__ in ("DataParallel", "DistributedDataParallel")'
    ),
    'type(model).__name__ in ("DataParallel",)': 'type(model).__name__ in ("DataParallel", "DistributedDataParallel")',
    'not type(model).__name__ != "DataParallel"': (
        'not type(model).__name__ not in ("DataParallel", "DistributedDataParallel")'
    ),
}


@pytest.mark.parametrize("test", TESTS)
def test_questions_for_the_wrapper_hold_for_that_in_its_place(tmp_path: Path, test: str) -> None:
    save = (
        f"def snapshot(model):\n    if {test}:\n        model = model.module\n"
        '    torch.save(model.state_dict(), "model.pt")\n\n\n'
    )
    make = "model = nn.DataParallel(nn.Linear(4, 1))\n"
    code, _ = conftest.converted(tmp_path, HEAD + save + DATA + make + OPTIMIZER + LOOP + "    snapshot(model)\n")
    assert f"    if {TESTS[test]}:\n" in code
    again, _ = conftest.converted(tmp_path, code)
    assert again == code


def test_question_stays_where_the_script_wraps_nothing(tmp_path: Path) -> None:
    save = (
        "def snapshot(model):\n    if isinstance(model, nn.DataParallel):\n        model = model.module\n"
        '    torch.save(model.state_dict(), "model.pt")\n\n\n'
    )
    make = "model = nn.Linear(4, 1)\n"
    code, _ = conftest.converted(tmp_path, HEAD + save + DATA + make + OPTIMIZER + LOOP + "    snapshot(model)\n")
    assert "    if isinstance(model, nn.DataParallel):\n" in code
    assert 'getattr(model, "module", model).state_dict()' in code


def test_noise_is_shared_out_beside_a_loader_of_the_evaluation(tmp_path: Path) -> None:
    script = (
        'parser.add_argument("--size", type=int, default=8)\nargs = parser.parse_args()\n'
        "test_loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=args.size)\n"
        "model = nn.Linear(4, 1)\n" + OPTIMIZER + "for step in range(4):\n    z = torch.randn(args.size, 4)\n"
        "    loss = model(z).pow(2).mean()\n    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
        "with torch.no_grad():\n    for x, y in test_loader:\n        print(F.mse_loss(model(x), y).item())\n"
    )
    code, said = conftest.converted(tmp_path, HEAD + script)
    assert "z = torch.randn(args.size, 4)[dist.get_rank() :: dist.get_world_size()]" in code
    assert "refusal" not in said


TRIPLETS = """\
class Triplets(nn.Module):
    def __init__(self):
        super().__init__()
        self.ranking = nn.MarginRankingLoss(0.3)

    def forward(self, out, y):
        distances = torch.cdist(out, out)
        same = y[:, None] == y[None, :]
        far = (distances * same).max(1)[0]
        near = (distances + 1e6 * same).min(1)[0]
        return self.ranking(near, far, torch.ones_like(near)), (near > far).float().mean()


"""


def test_criterion_that_gives_a_loss_and_a_score_compares_all_samples(tmp_path: Path) -> None:
    loop = LOOP.replace(
        "loss = F.mse_loss(model(x), y)", "out = model(x)\n        loss, score = judge(out, y.round()[:, 0])"
    )
    make = "model = nn.Linear(4, 3)\njudge = Triplets()\n"
    code, _ = conftest.converted(tmp_path, HEAD + TRIPLETS + DATA + make + OPTIMIZER + loop)
    assert "judge(RowsOfAllRanks.apply(out), RowsOfAllRanks.apply(y.round()[:, 0]))" in code


def test_labels_that_meet_gathered_samples_are_gathered_before_they_are_taken_apart(tmp_path: Path) -> None:
    data = (
        "rows = TensorDataset(torch.randn(32, 3, 4), torch.randn(32, 5, 4), torch.randint(0, 3, (32, 5)))\n"
        "loader = DataLoader(rows, batch_size=8, shuffle=True)\nmodel = nn.Linear(4, 6)\n"
    )
    loop = LOOP.replace("for x, y in", "for s, q, y in").replace(
        "loss = F.mse_loss(model(x), y)",
        "known = model(s.view(-1, 4)).view(len(s), 3, 6)\n        asked = model(q.view(-1, 4)).view(len(q), 5, 6)\n"
        "        logits = -torch.cdist(asked, known)\n"
        "        loss = F.cross_entropy(logits.view(-1, 3), y.view(-1))",
    )
    code, _ = conftest.converted(tmp_path, HEAD + data + OPTIMIZER + loop)
    assert "RowsOfAllRanks.apply(y.view(-1))" not in code
    if "RowsOfAllRanks" in code:
        assert "RowsOfAllRanks.apply(y).view(-1)" in code


KEEPING = """\
class Averaged(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model
        self.weights = [p.detach().clone() for p in model.parameters()]

    def update(self):
        for weight, p in zip(self.weights, self.model.parameters()):
            weight.mul_(0.9).add_(p.detach(), alpha=0.1)


"""


@pytest.mark.parametrize("kept", ["self.model = model", "self.model, self.decay = model, 0.9"])
def test_model_that_another_one_keeps_is_wrapped_after_that(tmp_path: Path, kept: str) -> None:
    make = "model = nn.Linear(4, 1)\naveraged = Averaged(model)\n"
    save = 'torch.save(averaged.state_dict(), "averaged.pt")\n'
    loop = LOOP.replace("        optimizer.step()\n", "        optimizer.step()\n        averaged.update()\n")
    code, _ = conftest.converted(
        tmp_path, HEAD + KEEPING.replace("self.model = model", kept) + DATA + make + OPTIMIZER + loop + save
    )
    assert "averaged = Averaged(model)\nmodel = DDP(model, gradient_as_bucket_view=True)\n" in code


def test_labels_by_arg_max_count_those_that_a_condition_leaves(tmp_path: Path) -> None:
    data = (
        "rows = TensorDataset(torch.randn(32, 4), torch.rand(32, 5, 3))\n"
        "loader = DataLoader(rows, batch_size=8, shuffle=True)\nmodel = nn.Linear(4, 15)\n"
    )
    loop = LOOP.replace(
        "loss = F.mse_loss(model(x), y)",
        "out, some = model(x).view(-1, 5, 3), y[..., 0] > 0.5\n"
        "        loss = F.cross_entropy(out[some], y[some].argmax(-1))",
    )
    code, said = conftest.converted(tmp_path, HEAD + data + OPTIMIZER + loop)
    assert "y[some].argmax(-1).numel()" in code
    assert "warning" not in said


EPISODES = """\
def collate(samples):
    rows = torch.stack([row for row, _ in samples])
    rows = {grouped}
    return rows.flatten(0, -2), torch.stack([label for _, label in samples])


"""


@pytest.mark.parametrize(
    ("grouped", "told"),
    [
        ("rows.reshape((ways, shots, *rows.shape[1:]))", True),
        ("rows.view(2, 4, -1)", True),
        ("rows.reshape(-1, 2, 2)", False),
        ("rows.view(len(rows), 2, 2)", False),
        ("torch.stack([row.view(2, 2) for row, _ in samples])", False),
    ],
)
def test_batches_that_are_laid_out_by_number_are_refused(tmp_path: Path, grouped: str, told: bool) -> None:
    data = (
        "ways, shots = 2, 4\nrows = TensorDataset(torch.randn(32, 4), torch.rand(32, 1))\n"
        "loader = DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate)\nmodel = nn.Linear(4, 1)\n"
    )
    _, said = conftest.converted(tmp_path, HEAD + EPISODES.format(grouped=grouped) + data + OPTIMIZER + LOOP)
    assert ("out by number" in said) == told, said


METERS = """\
class Trainer:
    def __init__(self):
        self.model = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x, y):
        self.loss_first = nn.functional.mse_loss(self.model(x), y)
        self.loss_other = self.model(x).abs().mean()
        self.optimizer.zero_grad()
        (self.loss_first + self.loss_other).backward()
        self.optimizer.step()


trainer = Trainer()
for epoch in range(2):
    for x, y in loader:
        trainer.step(x, y)
    for name in names:
        print(name, getattr(trainer, {asked}).item())
"""


@pytest.mark.parametrize("asked", ["name", '"loss_" + name', 'f"loss_{name}"'])
def test_numbers_that_are_asked_for_by_name_are_those_of_all_ranks(tmp_path: Path, asked: str) -> None:
    data = DATA + "names = open('names.txt').read().split()\n"
    code, _ = conftest.converted(tmp_path, HEAD + data + METERS.replace("{asked}", asked))
    assert "reduce_mean(" in code.split("for name in names")[1], code
