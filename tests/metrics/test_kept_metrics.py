"""Numbers of a rank that lists and arrays keep until somebody looks at them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import matplotlib.pyplot as plt
import numpy as np
import torch
from pandas import DataFrame as save
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = {before}
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {step}
    history[-1] /= len(loader)
{after}
"""
SLOT = "history[epoch] += loss.item()"


@pytest.mark.parametrize(
    ("before", "step", "after", "expected"),
    [
        ("[]", "history.append([epoch, loss.item()])", "print(history)", "history.append([epoch, reduce_mean("),
        ("[]", "history.append({'loss': loss.item()})", "print(history)", "history.append({'loss': reduce_mean("),
        (
            "[]",
            "history.append({'epoch': epoch, 'loss': loss.item()})",
            "print(history)",
            "'loss': reduce_mean(loss.item())}",
        ),
        ("[]", "history.append((x, y))", "print(len(history))", "history.append((x, y))"),
        ("[0.0] * 2", SLOT, "print(history)", "print(reduce_mean(history))"),
        ("np.zeros(2)", SLOT, "print(history)", "print(reduce_mean(history))"),
        ("[0.0] * 2", SLOT, "plt.plot(history)", "plt.plot(reduce_mean(history))"),
        ("[0.0] * 2", SLOT, "_, axis = plt.subplots()\naxis.plot(history)", "axis.plot(reduce_mean(history))"),
    ],
)
def test_what_is_kept_is_reduced(tmp_path: Path, before: str, step: str, after: str, expected: str) -> None:
    """A list of numbers, or an array of NumPy, needs a function that takes one."""
    code, _ = converted(tmp_path, SCRIPT.format(before=before, step=step, after=after))
    assert expected in code
    assert ("array or list" in code) == ("reduce_mean(history)" in expected)


STEERED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
weight = 0.0
for x, y in loader:
    fit = nn.functional.mse_loss(model(x), y)
    size = model(x).abs().mean()
    loss = fit + weight * size
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    gap = (fit - size).detach()
    {step}
"""


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("weight = weight + 0.1 * gap.item()", "weight = weight + reduce_mean(0.1 * gap.item())"),
        ("weight = min(weight + 0.1 * gap.item(), 2.0)", "min(reduce_mean(weight + 0.1 * gap.item()), 2.0)"),
        ("weight = 0.9 * weight", None),
    ],
)
def test_a_number_that_weighs_the_next_loss(tmp_path: Path, step: str, expected: str | None) -> None:
    """Each rank would train with a weight of its own."""
    code, _ = converted(tmp_path, STEERED.format(step=step))
    assert expected in code if expected else "reduce_mean" not in code


GATHERED = SCRIPT.replace("history = {before}", "from sklearn.metrics import jaccard_score\nhistory = []")
GATHERED = GATHERED.replace("    history[-1] /= len(loader)\n", "")


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("history += y.data.cpu().numpy().tolist()", "history += gather_rows(y.data).cpu().numpy().tolist()"),
        ("y = torch.autograd.Variable(y); history += y.numpy().tolist()", "history += gather_rows(y).numpy().tolist()"),
        (
            "found = dict(); found['a'] = jaccard_score(y, model(x)); print(found['a'])",
            "jaccard_score(gather_rows(y), ",
        ),
    ],
)
def test_rows_are_gathered_where_they_are_taken(tmp_path: Path, step: str, expected: str) -> None:
    """Not where they are bound: the rank goes on with its own."""
    code, _ = converted(tmp_path, GATHERED.format(step=step.replace("; ", "\n        "), after="print(history)"))
    assert expected in code


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x[:2].mean().item()", "gather_rows(x)[:2].mean().item()"),
        ("(y[:2] > 0).sum().item()", "(gather_rows(y)[:2] > 0).sum().item()"),
        ("x[:2].clone().cpu().tolist()", "gather_rows(x)[:2].clone().cpu().tolist()"),
        ("x[:, :2].mean().item()", "reduce_mean(x[:, :2].mean().item())"),
    ],
)
def test_the_first_samples_of_a_batch(tmp_path: Path, value: str, expected: str) -> None:
    """They are not the first of each rank's share."""
    assert f"print({expected})" in converted(tmp_path, GATHERED.format(step=f"print({value})", after=""))[0]


CONFUSIONS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(48, 4), torch.randint(0, 3, (48,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    counts = torch.zeros(3, 3, dtype=torch.int64)
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counts += torch.bincount(y * 3 + out.argmax(1), minlength=9).view(3, 3)
    recall = counts.diag() / counts.sum(1)
    print(recall.tolist())
    print(counts)
"""


def test_a_matrix_that_is_read_twice_is_reduced_once(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, CONFUSIONS)
    assert "    total_counts = reduce_sum(counts)\n    recall = total_counts.diag() / total_counts.sum(1)" in code
    assert code.count("reduce_sum(counts") == 1


SCORES = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Log:
    def __init__(self):
        self.state = {"loss": 0.0, "steps": 0}

    def __call__(self, loss):
        self.add(loss)

    def add(self, loss):
        self.state["loss"] += loss.sum().item()
        self.state["steps"] += loss.size(0)

    def flush(self):
        print(self.state["loss"] / self.state["steps"])


class Criterion(nn.Module):
    def forward(self, out, target):
        loss = F.mse_loss(out, target)
        print("loss %.4f" % loss.item())
        return loss


def each(out, target):
    log_probability = F.log_softmax(out, dim=1)
    return F.kl_div(log_probability, F.softmax(target, dim=1), reduction="none").sum(-1)


def spread(pictures):
    return float(np.median(pictures.cpu().numpy()) + pictures.cpu().numpy().std())


def score(pictures, others):
    found = 0
    for picture, other in zip(pictures.cpu().numpy(), others.cpu().numpy()):
        found += np.log10(1 / np.square(picture - other).mean())
    return found / len(pictures)


train_loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 4)), batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 4)), batch_size=8)
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion, log = Criterion(), Log()
for epoch in range(2):
    for x, y in train_loader:
        out = model(x)
        loss = {loss}
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
        {report}
    with torch.no_grad():
        for x, y in test_loader:
            log(each(model(x), y))
    log.flush()
"""


@pytest.mark.parametrize(
    ("loss", "report", "expected"),
    [
        ("each(out, y)", "log(loss.detach())", "log(gather_rows(loss.detach()))"),  # which is told of whole data, too
        (
            "each(out, y)",
            "print(score(torch.clamp(out, 0, 1), y))",
            "print(reduce_mean(score(torch.clamp(out, 0, 1), y)))",
        ),
        ("each(out, y)", "print(spread(torch.clamp(out, 0, 1)))", "spread(gather_rows(torch.clamp(out, 0, 1)))"),
        (
            "each(out, y)",
            "found = spread(out); print(found); print(found)",
            "all_pictures = gather_rows(pictures)\n",
        ),
        ("criterion(out, y)", "pass", 'print("loss %.4f" % reduce_mean(loss.item()))'),
    ],
)
def test_rows_are_gathered_where_functions_are_given_them(
    tmp_path: Path, loss: str, report: str, expected: str
) -> None:
    """A score that is none of the sums of its samples is that of the whole batch; a forward pass may print as well."""
    script = SCORES.replace("{loss}", loss).replace("{report}", report)
    code, said = converted(tmp_path, script)
    assert expected in code
    assert "computed from this rank's samples alone" not in said


METRICS = """\
import json
import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
held_out, wanted = torch.randn(10, 4), torch.randn(10, 1)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = {"train": [], "test": []}
{before}
for epoch in range(2):
    sums, seen, train = {start}, 0, 0.0
    for step, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        train += loss.item() * len(x)
        seen += len(x)
        for k, v in {"loss": loss.item(), "size": model(x).abs().mean().item()}.items():
            {step}
    train /= len(loader.dataset)
    with torch.no_grad():
        test = nn.functional.mse_loss(model(held_out), wanted).item()
    {report}
{after}
"""


def metrics(
    tmp_path: Path, *, before: str = "", start: str = "{}", step: str = "pass", report: str = "pass", after: str = ""
) -> str:
    parts = {"before": before, "start": start, "step": step, "report": report, "after": after}
    text = METRICS
    for name, part in parts.items():
        indent = {"step": 12, "report": 4}.get(name, 0)
        text = text.replace("{" + name + "}", part.replace("\n", "\n" + " " * indent))
    code, said = converted(tmp_path, text)
    assert "computed from this rank's samples alone" not in said
    return code


@pytest.mark.parametrize(
    ("start", "step"),
    [
        ("{}", "sums[k] = sums.get(k, 0.0) + v * len(x)"),
        ("{}", "sums[k] = v * len(x) + sums.get(k, 0.0)"),
        ("{}", "sums[k] = sums[k] + v * len(x) if k in sums else v * len(x)"),
        ("{}", "if k in sums:\n    sums[k] += v * len(x)\nelse:\n    sums[k] = v * len(x)"),
        ("{}", "sums.setdefault(k, 0.0)\nsums[k] += v * len(x)"),
        ("{'loss': 0.0, 'size': 0.0}", "sums[k] = sums[k] + v * len(x)"),
        ("defaultdict(float)", "sums[k] += v * len(x)"),
    ],
)
@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("print({k: v / seen for k, v in sums.items()})", "print({k: reduce_mean(v / seen) for k, v in sums.items()})"),
        ("print(sums['loss'] / seen)", 'print(reduce_mean(sums["loss"] / seen))'),
        ("print(sums)", "print({key: reduce_sum(value) for key, value in sums.items()})"),
        (
            "for k in sums:\n    sums[k] /= seen\nprint(sums)",
            "print({key: reduce_mean(value) for key, value in sums.items()})",
        ),
    ],
)
def test_a_dict_of_sums_is_reduced_where_it_is_used(
    tmp_path: Path, start: str, step: str, report: str, expected: str
) -> None:
    """Reduced in each step, what is global already would be added up again."""
    code = metrics(tmp_path, start=start, step=step, report=report)
    assert expected in code.replace("'", '"')
    assert "reduce_sum(v * len(x))" not in code and "reduce_sum(sums" not in code


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        ("for k, v in zip(history, (train, test)):\n    print(k, float(v))", "(reduce_sum(train), test)"),
        ("for k, v in [('train', train), ('test', test)]:\n    print(k, v)", '[("train", reduce_sum(train)), '),
        ("for v in (train, test):\n    print(v)", "for v in (reduce_sum(train), test):"),
        ("row = [train, test]\nfor i, v in enumerate(row):\n    print(i, v)", "row = [reduce_sum(train), test]"),
        ("print(' '.join(map(str, (train, test))))", "map(str, (reduce_sum(train), test))"),
        ("print(dict(zip(history, (train, test))))", "zip(history, (reduce_sum(train), test))"),
        ("print(sum((train, test)))", "sum((reduce_sum(train), test))"),
        ("print(np.array([train, test]))", "np.array([reduce_sum(train), test])"),
        (
            "logs = {'n': epoch, 'a': 1, 'b': 2, 'train': train, 'test': test}\nprint([2 * v for v in logs.values()])",
            '"train": reduce_sum(train), "test": test}',
        ),
    ],
)
def test_a_sum_beside_what_is_global_already(tmp_path: Path, report: str, expected: str) -> None:
    """Each is made global where it is put in, not the variable that is now the one and now the other."""
    code = metrics(tmp_path, report=report).replace("'", '"')
    assert expected in code and code.count("reduce_sum(") == 2


@pytest.mark.parametrize(
    ("before", "step", "after", "expected"),
    [
        (
            "rows = []",
            "row = {'step': step, 'loss': loss.item()}\nrows.append(row)",
            "pd.DataFrame(rows).to_csv('log.csv')",
            "{'step': step, 'loss': reduce_mean(loss.item())}",
        ),
        (
            "rows = []",
            "row = [step, loss.item()]\nrows.append(row.copy())",
            "print(np.array(rows))",
            "print(reduce_mean(np.array(rows)))",
        ),
        (
            "rows = []",
            "row = {}\nrow.update(loss=loss.item())\nrows.append(row)",
            "print(rows)",
            "loss=reduce_mean(loss.item())",
        ),
        ("rows = []", "rows.append(round(loss.item(), 4))", "print(rows)", "round(reduce_mean(loss.item()), 4)"),
        ("rows = {}", "rows[step] = round(loss.item(), 4)", "print(rows)", "round(reduce_mean(loss.item()), 4)"),
        (
            "rows = {'a': []}",
            "rows['a'].append(math.exp(loss.item()))",
            "json.dump(rows, open('a', 'w'))",
            "exp(reduce_mean(loss.item()))",
        ),
        (
            "rows = np.zeros((4, 2))",
            "rows[step] = [loss.item(), 1.0]",
            "np.save('a.npy', rows)",
            "mean_rows = reduce_mean(rows)\n",
        ),
        (
            "rows = np.zeros((4, 2))",
            "rows[step, :] = loss.item(), loss.item()",
            "np.save('a.npy', rows)",
            "mean_rows = reduce_mean(rows)\n",
        ),
        (
            "@dataclass\nclass Log:\n    rows: list = field(default_factory=list)\n\n\nlog = Log()",
            "log.rows.append(loss.item())",
            "json.dump(log.rows, open('a', 'w'))",
            "log.rows.append(reduce_mean(loss.item()))",
        ),
        (
            "@dataclass\nclass Row:\n    step: int\n    loss: float\n\n\nrows = []",
            "rows.append(Row(step, loss.item()))",
            "print(rows[-1])",
            "Row(step, reduce_mean(loss.item()))",
        ),
        (
            "class Log:\n    def __init__(self):\n        self.rows = []\n\n    def add(self, **row):\n"
            "        self.rows.append(row)\n\n\nlog = Log()",
            "log.add(step=step, loss=loss.item())",
            "json.dump(log.rows, open('a', 'w'))",
            "log.add(step=step, loss=reduce_mean(loss.item()))",
        ),
    ],
)
def test_a_row_of_numbers_that_is_kept(tmp_path: Path, before: str, step: str, after: str, expected: str) -> None:
    assert expected in metrics(tmp_path, before=before, step=step, after=after)


OVERLAP = CONFUSIONS.replace("for epoch", "{meter}\n\n\nfor epoch").replace(
    "    counts = torch.", "    meter = Meter()  # "
)
OVERLAP = (
    OVERLAP[: OVERLAP.index("        counts +=")] + "        meter.update(out.argmax(1), y)\n    print(meter.iou())\n"
)
METER = """\
class Meter:
    def __init__(self):
        self.both, self.either = {start}, {start}

    def update(self, guess, y):
        for c in range(3):
            self.both[c] += ((guess == c) & (y == c)).sum(){item}
            self.either[c] += ((guess == c) | (y == c)).sum(){item}

    def iou(self):
        return {iou}"""


@pytest.mark.parametrize(
    ("start", "item", "iou", "expected"),
    [
        (
            "torch.zeros(3)",
            "",
            "(self.both / self.either.clamp(min=1)).tolist()",
            "(reduce_sum(self.both) / reduce_sum(self.either).clamp(min=1)).tolist()",
        ),
        (
            "np.zeros(3)",
            ".item()",
            "self.both / np.maximum(self.either, 1)",
            "reduce_sum(self.both) / np.maximum(reduce_sum(self.either), 1)",
        ),
        (
            "[0] * 3",
            ".item()",
            "[b / max(e, 1) for b, e in zip(self.both, self.either)]",
            "[reduce_sum(b) / max(reduce_sum(e), 1) for b, e in zip(self.both, self.either)]",
        ),
    ],
)
def test_a_meter_with_a_count_for_each_class(tmp_path: Path, start: str, item: str, iou: str, expected: str) -> None:
    meter = METER.format(start=start, item=item, iou=iou)
    code, _ = converted(tmp_path, "import numpy as np\n" + OVERLAP.replace("{meter}", meter))
    assert f"return {expected}" in code
    assert ("array or list" in code) == ("np." in start)


TALLY = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
names = ["a", "b", "c"]
for epoch in range(2):
    {before}
    for x, y in loader:
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        guess = out.argmax(1)
        {count}
    {report}
"""


@pytest.mark.parametrize(
    ("before", "count", "report", "expected"),
    [
        (
            "n = np.zeros((3, 3))",
            "for t, p in zip(y.numpy(), guess.numpy()): n[t][p] += 1",
            "print(n)",
            "print(reduce_sum(n))",
        ),
        ("n = torch.zeros(3, 3)", "for i in range(len(y)): n[y[i], guess[i]] += 1", "print(n)", "print(reduce_sum(n))"),
        ("n = np.zeros((3, 3))", "np.add.at(n, (y.numpy(), guess.numpy()), 1)", "print(n)", "print(reduce_sum(n))"),
        ("n = torch.zeros(3)", "n.index_add_(0, y, torch.ones(len(y)))", "print(n)", "print(reduce_sum(n))"),
        (
            "good = 0",
            "for t, p in zip(y, guess):\n            if t == p:\n                good += 1",
            "print(good)",
            "print(reduce_sum(good))",
        ),
        (
            "n = {name: 0 for name in names}",
            "for t in y: n[names[t]] += 1",
            "for k, v in n.items(): print(k, v)",
            "print(k, reduce_sum(v))",
        ),
    ],
)
def test_samples_that_are_counted_one_by_one(
    tmp_path: Path, before: str, count: str, report: str, expected: str
) -> None:
    """Each rank counts its own, and all together are those of the batch; a single sample is nothing to gather."""
    script = TALLY.replace("{before}", before).replace("{count}", count).replace("{report}", report)
    code, said = converted(tmp_path, script)
    assert expected in code and "gather_rows" not in code
    assert "computed from this rank's samples alone" not in said


TABLE = """\
import tabulate
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.value = self.total = 0

    def update(self, value):
        self.value = value
        self.total += value


def train():
    meters = {meters}
    total = 0.0
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        {updates}
    print("{{loss.value:.4f}} {{0}}".format(0, loss=meters[-1]))
    return {{"loss": total / len(loader)}}


for epoch in range(2):
    values = [epoch, train()["loss"]]
    table = tabulate.tabulate([values[:1] + [0.5] + values[1:]], ["epoch", "time", "loss"])
    print(table.split("\\n")[2] if epoch else table)
"""


def test_a_table_that_a_library_makes_of_numbers(tmp_path: Path) -> None:
    """What it is given is made global, whatever becomes of its text."""
    code, said = converted(tmp_path, TABLE.format(meters="[Meter()]", updates="pass"))
    assert 'return {"loss": reduce_mean(total / len(loader))}' in code and "rank's samples alone" not in said


def test_many_meters_are_all_followed(tmp_path: Path) -> None:
    """A method that is called from many places is entered at each of them."""
    many = 30
    updates = "\n        ".join(f"meters[{number}].update(loss.item())" for number in range(many))
    code, _ = converted(tmp_path, TABLE.format(meters=f"[{', '.join(['Meter()'] * many)}]", updates=updates))
    assert f"meters[{many - 1}].update(reduce_mean(loss.item()))" in code


FRESH = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Criterion(nn.Module):
    def forward(self, out, y):
        self.loss = nn.functional.mse_loss(out, y)
        return self.loss, out.size(0)


torch.manual_seed(0)
train = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
test = DataLoader(TensorDataset(torch.randn(16, 4), torch.randn(16, 1)), batch_size=8)
net, criterion = nn.Linear(4, 1), Criterion()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in train:
        loss, _ = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 2 == 0:
        losses = []
        for x, y in test:
            with torch.no_grad():
                loss, n = criterion(net(x), y)
            losses.append(loss * n)
        total = sum(losses) / 16
        print(epoch, total.item())
"""


def test_what_an_object_has_kept_just_now(tmp_path: Path) -> None:
    """It is of the data of this call, not of another one's: what evaluates has the whole data on each rank."""
    code, said = converted(tmp_path, FRESH)
    assert "    total = sum(losses) / 16\n        print(epoch, " in code and "gather_rows" not in code
    assert code.count("reduce_mean(") <= 2 and "alone" not in said  # of equal means


IN_PLACE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Meter:
    def __init__(self):
        self.last, self.total, self.count = torch.zeros(1), torch.zeros(1), 0

    def update(self, value):
        self.last.{keep}
        self.total.add_(self.last)
        self.count += 1

    def value(self):
        return self.total / self.count


torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
average = torch.zeros(1)
meter = Meter()
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.mul_(0.9).add_(loss.detach(), alpha=0.1)
    meter.update(loss)
print(average)
print(meter.value())
"""


@pytest.mark.parametrize("keep", ["copy_(value)", "fill_(value.item())"])
def test_tensors_that_are_added_to_in_place(tmp_path: Path, keep: str) -> None:
    """`total.add_(loss)` is `total = total + loss`, of a name or of a meter."""
    code, _ = converted(tmp_path, IN_PLACE.format(keep=keep))
    assert "print(reduce_mean(average))" in code and "print(reduce_mean(meter.value()))" in code


MEMORY = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.seen, self.cache = 1.0, {{}}

    def forward(self, x):
        count = x.shape[0]
        {step}


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
DIVIDED = "\n        return self.layer(x) / self.seen"


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("self.seen = self.seen + count" + DIVIDED, "self.seen = self.seen + count * dist.get_world_size()"),
        ("self.seen += count" + DIVIDED, "self.seen += count * dist.get_world_size()"),
        ("self.seen = self.seen + x.sum()" + DIVIDED, "self.seen = self.seen + reduce_sum(x.sum())"),
        (
            "self.seen = 0.9 * self.seen + x.sum()" + DIVIDED,
            "self.seen = 0.9 * self.seen + reduce_sum(x.sum())",
        ),
        (
            "self.cache[0] = torch.ones(1, 4).repeat(count, 1)\n        return self.layer(x + self.cache[0])",
            "self.cache[0] = torch.ones(1, 4).repeat(count, 1)",
        ),
    ],
)
def test_what_a_model_keeps_for_its_next_step(tmp_path: Path, step: str, expected: str) -> None:
    """What is added is reduced, and not once more what was there; a tensor with a row for each sample is a rank's."""
    code, _ = converted(tmp_path, MEMORY.format(step=step))
    assert expected + "\n" in code


DECAYING = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
smooth = 0
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y, reduction="sum")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    smooth = {smooth}
    print(smooth)
"""


@pytest.mark.parametrize("smooth", ["smooth * 0.9 + loss.item()", "0.9 * smooth + 0.1 * loss.item()"])
def test_a_decaying_sum_begins_with_nothing(tmp_path: Path, smooth: str) -> None:
    code, said = converted(tmp_path, DECAYING.format(smooth=smooth))
    assert "reduce_sum(loss.item())\n    print(smooth)" in code and "AD601 reports" not in said


LOSSES = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Meters:
    def __init__(self):
        self.totals = {{}}

    def update(self, **values):
        for name, value in values.items():
            value = value.item() if torch.is_tensor(value) else value
            self.totals[name] = self.totals.get(name, 0.0) + value

    def __str__(self):
        return str(self.totals)


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
meters = Meters()
for x, y in loader:
    out = model(x)
    losses = {{"error": nn.functional.mse_loss(out, y), "size": out.pow(2).mean()}}
    loss = sum(losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {reported}
print(meters)
"""


@pytest.mark.parametrize(
    ("reported", "global_"),
    [
        ("meters.update(**losses)", "self.totals.get(name, 0.0) + reduce_mean(value)"),
        ("print(losses)", "print({key: reduce_mean(value) for key, value in losses.items()})"),
    ],
)
def test_losses_in_a_dict_that_a_step_learns_from(tmp_path: Path, reported: str, global_: str) -> None:
    """They are made global where they are reported: where they are put into the dict, no gradient would flow on."""
    text, _ = converted(tmp_path, LOSSES.format(reported=reported))
    assert '{"error": nn.functional.mse_loss(out, y), "size": out.pow(2).mean()}' in text
    assert global_ in text, text


LOGGED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision.datasets import CIFAR10


class Log:
    def start(self, training):
        self.training, self.state = training, {"loss": 0.0, "right": 0, "seen": 0}

    def __call__(self, loss, right):
        if self.training:
            self._add(loss, right)
        else:
            self._add(loss, right)

    def _add(self, loss, right):
        self.state["loss"] += loss.sum().item()
        self.state["right"] += right.sum().item()
        self.state["seen"] += loss.size(0)

    def flush(self):
        print(self.state["loss"] / self.state["seen"], self.state["right"] / self.state["seen"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))

    def forward(self, x):
        return self.body(x)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
train_loader = DataLoader(CIFAR10("data", True), batch_size=8, shuffle=True)
test_loader = DataLoader(CIFAR10("data", False), batch_size=8)
model, log = Net().to(device), Log()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    log.start(True)
    for batch in train_loader:
        x, y = (part.to(device) for part in batch)
        output = model(x)
        loss = nn.functional.cross_entropy(output, y, reduction="none")
        optimizer.zero_grad()
        loss.mean().backward()
        optimizer.step()
        log(loss.cpu(), (output.argmax(1) == y).cpu())
    log.flush()
    log.start(False)
    with torch.no_grad():
        for batch in test_loader:
            x, y = (part.to(device) for part in batch)
            output = model(x)
            log(nn.functional.cross_entropy(output, y, reduction="none").cpu(), (output.argmax(1) == y).cpu())
    log.flush()
"""


def test_a_logger_of_both_phases_is_told_of_all_samples(tmp_path: Path) -> None:
    """Fields of a batch that a comprehension unpacks are rows, as a loss of each sample is."""
    code, said = converted(tmp_path, LOGGED)
    assert "log(gather_rows(loss).cpu(), gather_rows(output.argmax(1) == y).cpu())" in code
    assert "on its own" not in said and "alone" not in said
