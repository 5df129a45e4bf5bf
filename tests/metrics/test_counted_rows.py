"""What loops over single samples count, in the script or in functions that are given a rank's samples."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import numpy as np
import torch
from sklearn import metrics
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{helper}
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(3, (32,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
guesses, labels, counts = [], [], {start}
for x, y in loader:
    scores = model(x)
    loss = nn.functional.cross_entropy(scores, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    guesses += scores.argmax(1).tolist()
    labels += y.tolist()
    {step}
print({shown})
"""
PAIRS = "for guess, label in zip(scores.argmax(1).tolist(), y.tolist()):\n        "
HITS = """\
def hits(guesses, labels):
    found = {}
    for guess, label in zip(guesses, labels):
        if guess == label:
            found[label] = found.get(label, 0) + 1
    return {label: found[label] / labels.count(label) for label in found}


class Judge:
    def judge(self, guesses, labels):
        return hits(guesses, labels)
"""
EVALUATE = """\
def evaluate(labels, scores):
    return {"balanced": metrics.balanced_accuracy_score(labels, np.argmax(scores, -1))}
"""
SEEN = """\
def seen(labels):
    found = {label: 0 for label in set(labels)}
    for label in set(labels):
        if label not in found or found[label] > 5:
            found[label] = 1 + labels.count(label)
    return found
"""
GATHERED = "guesses += gather_rows(scores.argmax(1)).tolist()\n    labels += gather_rows(y).tolist()"


@pytest.mark.parametrize(
    ("helper", "step", "shown", "expected"),
    [
        (HITS, "pass", "hits(guesses, labels)", GATHERED),
        (HITS, "pass", "Judge().judge(guesses, labels)", GATHERED),
        (
            EVALUATE,
            "print(evaluate(y.numpy(), scores.detach().numpy())['balanced'])",
            "1",
            "balanced_accuracy_score(gather_rows(labels), gather_rows(np.argmax(scores, -1)))",
        ),
        (SEEN, "pass", "sorted(seen(labels))", "labels += gather_rows(y).tolist()"),
    ],
)
def test_a_function_is_given_the_rows_of_all_ranks(
    tmp_path: Path, helper: str, step: str, shown: str, expected: str
) -> None:
    """Its counts follow from those of the ranks in no simple way."""
    code, findings = converted(tmp_path, SCRIPT.format(helper=helper, start=0, step=step, shown=shown))
    assert expected in code and "reduce" not in code.partition("loader =")[0]
    assert "computed from this rank's samples alone" not in findings


@pytest.mark.parametrize(
    ("start", "step", "shown", "expected"),
    [
        ("0", PAIRS + "if guess == label:\n            counts += 1", "counts", "print(reduce_sum(counts))"),
        ("0", PAIRS + "if guess != label:\n            counts -= 1", "counts / 32", "print(reduce_sum(counts) / 32)"),
        ("np.zeros((3, 3))", PAIRS + "counts[label][guess] += 1", "counts", "print(reduce_sum(counts))"),
        ("np.zeros((3, 3))", PAIRS + "counts[label, guess] += 1", "counts", "print(reduce_sum(counts))"),
        (
            "torch.zeros(3, 3)",
            "counts[y, scores.argmax(1)] += 1",
            "counts.numpy()",
            "total.numpy().astype(value.dtype)",
        ),
        (
            "[0] * 3",
            PAIRS + "counts[label] += guess == label",
            "*(counts[k] for k in range(3))",
            "print(*(reduce_sum(counts[k]) for k in range(3)))",
        ),
    ],
)
def test_counts_are_added(tmp_path: Path, start: str, step: str, shown: str, expected: str) -> None:
    code, _ = converted(tmp_path, SCRIPT.format(helper="", start=start, step=step, shown=shown))
    assert expected in code


BINS = """pairs = [(guess, loss) for guess, loss in zip(scores.argmax(1), each.tolist())]
    for guess, loss in pairs:
        counts[int(guess)] += loss"""


def test_a_list_of_pairs_of_each_sample(tmp_path: Path) -> None:
    """What a loop over it counts up is counted up sample by sample."""
    step = "each = nn.functional.cross_entropy(scores, y, reduction='none').detach()\n    " + BINS
    start, shown = "{k: 0 for k in range(3)}", "*(counts[k] for k in range(3))"
    code, said = converted(tmp_path, SCRIPT.format(helper="", start=start, step=step, shown=shown))
    assert "reduce_sum(counts[k]) for k in range(3)" in code
    assert "computed from this rank's samples alone" not in said


@pytest.mark.parametrize(
    ("start", "step", "expected"),
    [
        ("1", "counts += (scores.argmax(1) == y).sum().item()", "counts += reduce_sum("),
        ("{0: 1e-6}", "counts[0] += (scores.argmax(1) == y).sum().item()", "counts[0] += reduce_sum("),
        ("{0: 0}", "counts[0] += (scores.argmax(1) == y).sum().item()", "reduce_sum(value)"),
    ],
)
def test_counts_that_begin_with_another_number(tmp_path: Path, start: str, step: str, expected: str) -> None:
    """What is added is made global, since the sum over the ranks would have what each began with."""
    code, _ = converted(tmp_path, SCRIPT.format(helper="", start=start, step=step, shown="counts"))
    assert expected in code


MASKED = """
def masked_accuracy(output, target, mask):
    with torch.no_grad():
        accuracy = torch.masked_select(output, mask).eq(torch.masked_select(target, mask)).float().mean()
        return accuracy


def evaluate(x, y):
    return masked_accuracy(model(x).argmax(1), y, y > 0).item()
"""


def test_a_masked_accuracy_that_a_function_returns(tmp_path: Path) -> None:
    """It is made global in the function, also for data of which every rank has all."""
    step = "print(masked_accuracy(scores.argmax(1), y, y > 0).item())"
    shown = "evaluate(torch.randn(8, 4), torch.randint(3, (8,)))"
    code, said = converted(tmp_path, SCRIPT.format(helper=MASKED, start=0, step=step, shown=shown))
    assert "accuracy = mean_over_ranks(torch.masked_select(" in code
    assert "computed from this rank's samples alone" not in said


@pytest.mark.parametrize(
    "step",
    [
        "counts += len(list(filter(lambda pair: pair[0] == pair[1], zip(scores.argmax(1), y))))",
        "counts += len(list(filter(None, (scores.argmax(1) == y).tolist())))",
        "right = [*filter(lambda pair: pair[0] == pair[1], zip(scores.argmax(1).tolist(), y.tolist()))]\n"
        "    counts += len(right)",
        "counts += len(np.where(scores.argmax(1).numpy() == y.numpy())[0])",
        "counts += len(torch.nonzero(scores.argmax(1) == y))",
        "counts += (scores.argmax(1) == y).nonzero().size(0)",
        "counts += (scores.argmax(1) == y).nonzero().size()[0]",
        "counts += (scores.argmax(1) == y).nonzero(as_tuple=False).size()[0]",
        "counts += torch.nonzero(scores.argmax(1) == y, as_tuple=True)[0].size(0)",
        "places = np.argwhere(scores.argmax(1).numpy() == y.numpy())\n    counts += places.shape[0]",
    ],
)
def test_samples_that_are_found_are_counted(tmp_path: Path, step: str) -> None:
    """Ranks find more or fewer: their numbers are added."""
    code, findings = converted(tmp_path, SCRIPT.format(helper="", start=0, step=step, shown="counts / 32"))
    assert "print(reduce_sum(counts) / 32)" in code and "AD602" not in findings


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("len(set(scores.argmax(1).tolist()))", "len(set(gather_rows(scores.argmax(1)).tolist()))"),
        ("len(set(y.tolist()) & {1, 2})", "len(set(gather_rows(y).tolist()) & {1, 2})"),
        ("len(torch.unique(y))", "len(torch.unique(gather_rows(y)))"),
        ("torch.unique(y).size(0)", "torch.unique(gather_rows(y)).size(0)"),
        ("y.unique().size()[0]", "gather_rows(y).unique().size()[0]"),
    ],
)
def test_what_is_different_is_counted_over_all_ranks(tmp_path: Path, shown: str, expected: str) -> None:
    """Ranks may have seen the same."""
    code, _ = converted(tmp_path, SCRIPT.format(helper="", start=0, step=f"print({shown})", shown="1"))
    assert expected in code


def test_what_a_rank_counts_of_all_samples_is_left_alone(tmp_path: Path) -> None:
    """Every rank has all of them."""
    text = SCRIPT.format(helper="", start=0, step="pass", shown="counts").replace("print(counts)", "")
    text += "for label in torch.arange(4).tolist():\n    if label > 2:\n        counts += 1\nprint(counts)\n"
    assert converted(tmp_path, text)[0].endswith("print(counts)\n")


def test_a_matrix_that_a_function_returns(tmp_path: Path) -> None:
    """The sum of an array is an array."""
    helper = (
        "def confusion(guesses, labels):\n    matrix = np.zeros((3, 3))\n"
        "    for guess, label in zip(guesses, labels):\n        matrix[label][guess] += 1\n    return matrix\n"
    )
    text = SCRIPT.format(helper=helper, start=0, step="pass", shown="confusion(guesses, labels)")
    code, _ = converted(tmp_path, text)
    assert "print(reduce_sum(confusion(guesses, labels)))" in code and "total.numpy()" in code


LOSSES = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        out = model(x)
        {losses}
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
"""
ONE_BY_ONE = """\
total = 0
        for i in range(len(x)):
            total = total + F.cross_entropy(out[i : i + 1], y[i : i + 1])"""
EACH = "F.cross_entropy(o[None], t[None])"


@pytest.mark.parametrize(
    "losses",
    [
        f"total = 0\n        for o, t in zip(out, y):\n            total += {EACH}",
        ONE_BY_ONE,
        f"total = sum({EACH} for o, t in zip(out, y))",
        f"total = torch.stack([{EACH} for o, t in zip(out, y)]).sum()",
        f"each = []\n        for o, t in zip(out, y):\n            each.append({EACH})\n        total = sum(each)",
    ],
)
def test_losses_of_one_sample_after_the_other(tmp_path: Path, losses: str) -> None:
    """Their sum is one over the samples of this rank, though each is a mean by itself."""
    script = LOSSES.replace("{losses}", losses)
    code, said = converted(tmp_path, script.replace("{loss}", "total"))
    assert "(loss * dist.get_world_size()).backward()" in code and "reduce_sum(loss.item())" in code
    assert "AD602" not in said
    code, said = converted(tmp_path, script.replace("{loss}", "total / len(x)"))
    assert "    loss.backward()" in code and "total / len(x)\n" in code and "reduce_mean(loss.item())" in code
    assert "AD602" not in said


@pytest.mark.parametrize(
    "losses",
    [
        "for i in range(len(outs)):\n            total = total + F.cross_entropy(outs[i], y)",
        "for i in range(len(outs)):\n            total += 0.8**i * F.cross_entropy(outs[i], y)",
        "for o in outs:\n            total += F.cross_entropy(o, y)",
        "total = sum(F.cross_entropy(o, y) for o in outs)",
        "each = [F.cross_entropy(o, y) for o in outs]\n        total = torch.stack(each).sum()",
    ],
)
def test_losses_of_one_output_after_the_other(tmp_path: Path, losses: str) -> None:
    """Deep supervision: a model that gives several outputs, each of them for the whole batch."""
    script = LOSSES.replace("{losses}", "total = 0\n        " + losses).replace("{loss}", "total")
    script = script.replace("out = model(x)", "outs = model(x)").replace("nn.Linear(4, 3)", "Twice()")
    twice = (
        "class Twice(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.layers = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])\n\n"
        "    def forward(self, x):\n        return [layer(x) for layer in self.layers]\n\n\nloader = "
    )
    code, said = converted(tmp_path, script.replace("loader = ", twice, 1))
    assert "    loss.backward()" in code and "reduce_mean(loss.item())" in code and "AD602" not in said


BEFORE = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(32, 4), torch.randint(3, (32,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def centre(model, loader):
    total, seen = torch.zeros(3), 0
    with torch.no_grad():
        for x, _ in loader:
            total += model(x).sum(0)
            seen += x.shape[0]
    total /= seen
    total[abs(total) < 0.1] = 0.1
    return total


def rarity(loader):
    counts = np.zeros(3)
    for _, y in loader:
        counts += np.bincount(y.numpy(), minlength=3)
    weights = []
    for count in counts:
        weights.append(1 / np.log(1.02 + count / counts.sum()))
    return torch.tensor(weights)


{before}
for x, y in loader:
    loss = {loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("before", "loss", "expected"),
    [
        (
            "c = centre(model, loader)",
            "((model(x) - c) ** 2).sum(1).mean()",
            ["            total += reduce_sum(model(x).sum(0))\n"],
        ),
        (
            "criterion = nn.CrossEntropyLoss(weight=rarity(loader))",
            "criterion(model(x), y)",
            [
                "counts += reduce_sum(np.bincount(y.numpy(), minlength=3))\n",
                "weigh_by_count(criterion(model(x), y), criterion.wei",
            ],
        ),
        (
            "mean = 0.0\nfor x, _ in loader:\n    mean += x.mean(0)\nmean /= len(loader)",
            "nn.functional.cross_entropy(model(x - mean), y)",
            ["    mean += reduce_mean(x.mean(0))\nmean /= len(loader)\n"],
        ),
    ],
)
def test_what_is_summed_up_before_training(tmp_path: Path, before: str, loss: str, expected: list[str]) -> None:
    """A pass over the samples that losses are computed from: each rank has seen its share of them."""
    code, findings = converted(tmp_path, BEFORE.format(before=before, loss=loss))
    assert all(each in code for each in expected)
    assert "AD602" not in findings and "computed from this rank's samples alone" not in findings


def test_a_loss_that_a_loop_adds_up_is_not_reduced(tmp_path: Path) -> None:
    """Gradients flow through it, whatever it is added up over."""
    loss = "sum_of(model, loader, y)"
    before = """\
def sum_of(model, loader, y):
    total = 0.0
    for x, _ in loader:
        total += nn.functional.cross_entropy(model(x), y)
    return total
"""
    code, _ = converted(tmp_path, BEFORE.format(before=before, loss=loss))
    assert "total = reduce" not in code.partition("def sum_of")[2]


BY_KEY = {
    "for y_ in y.tolist():\n        counts[y_] += 1": ("Counter()", "for y_ in gather_rows(y).tolist():"),
    "for g, l in zip(scores.argmax(1), y):\n        counts[l.item()] += int(g == l)": (
        "defaultdict(int)",
        "in zip(gather_rows(scores.argmax(1)), gather_rows(y)):\n        counts[l.item()] += int(g == l)",
    ),
    "for l in y.tolist():\n        counts[l] = counts.get(l, 0) + 1": ("{}", "in gather_rows(y).tolist():"),
    "for l in y.tolist():\n        counts.setdefault(l, []).append(1)": ("{}", "in gather_rows(y).tolist():"),
    "for l in y.tolist():\n        counts[l].append(1)": ("defaultdict(list)", "in gather_rows(y).tolist():"),
    "counts.update(y.tolist())": ("Counter()", "counts.update(gather_rows(y).tolist())"),
    "counts += Counter(y.tolist())": ("Counter()", "counts += Counter(gather_rows(y).tolist())"),
}
SHOWN = ("counts", "sorted(counts.items())", "[(k, v) for k, v in counts.items()]", "len(counts)")


@pytest.mark.parametrize("shown", SHOWN)
@pytest.mark.parametrize("step", BY_KEY)
def test_samples_are_gathered_where_they_are_the_keys_of_a_dict(tmp_path: Path, step: str, shown: str) -> None:
    """Ranks have different keys, so that the numbers below them cannot be added one by one."""
    start, expected = BY_KEY[step]
    text = SCRIPT.format(helper="from collections import Counter, defaultdict", start=start, step=step, shown=shown)
    code, findings = converted(tmp_path, text)
    assert expected in code and f"print({shown})" in code
    assert "computed from this rank's samples alone" not in findings


@pytest.mark.parametrize(
    ("start", "step"),
    [
        ("Counter()", "for i in range(len(y)):\n        counts[y[i].item()] += 1"),
    ],
)
def test_keys_that_no_loop_over_samples_gives_are_warned_of(tmp_path: Path, start: str, step: str) -> None:
    text = SCRIPT.format(helper="from collections import Counter", start=start, step=step, shown="counts")
    assert "computed from this rank's samples alone" in converted(tmp_path, text)[1]


@pytest.mark.parametrize(("key", "global_"), [("y[0]", "y[0]"), ("y[-1]", "gather_rows(y)[-1]")])
def test_one_sample_of_a_batch_is_counted(tmp_path: Path, key: str, global_: str) -> None:
    """The first one of all is that of rank 0."""
    step = f"counts[{key}.item()] += 1"
    text = SCRIPT.format(helper="from collections import Counter", start="Counter()", step=step, shown="counts")
    code, said = converted(tmp_path, text)
    assert f"counts[{global_}.item()] += 1" in code and "print(counts)" in code
    assert "computed from this rank's samples alone" not in said


@pytest.mark.parametrize("start", ["{0: 0, 1: 0, 2: 0}", "{k: 0 for k in range(3)}"])
def test_a_dict_that_is_made_with_its_keys_is_added_up(tmp_path: Path, start: str) -> None:
    step = "for label in y.tolist():\n        counts[label] += 1"
    text = SCRIPT.format(helper="", start=start, step=step, shown="sorted(counts.items())")
    code, _ = converted(tmp_path, text)
    assert "print(sorted({key: reduce_sum(value) for key, value in counts.items()}.items()))" in code


def test_how_many_different_samples_there_are(tmp_path: Path) -> None:
    """Ranks may hold the same ones, so that numbers of them do not add up."""
    text = LOSSES.replace("{losses}", "seen.update(y.tolist())").replace("{loss}", "F.cross_entropy(out, y)")
    text = text.replace("    for x, y", "    seen = set()\n    for x, y").replace(
        "print(loss.item())", "print(len(seen))"
    )
    code, said = converted(tmp_path, text)
    assert "seen.update(gather_rows(y).tolist())" in code and "print(len(seen))" in code and "AD601" in said


LISTED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.all = True

    def forward(self, x):
        outs = []
        for {each} in {over}:
            outs.append({item})
        if self.all:
            return x, outs
        return x


loader = DataLoader(TensorDataset(torch.randn(32, 4)), batch_size=8, shuffle=True)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for (x,) in loader:
    _, outs = net(x)
    loss = 0.0
    for u in range(len(outs)):
        loss = loss + outs[u].pow(2).mean()
    loss = loss / len(outs)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


@pytest.mark.parametrize(
    ("each", "over", "item"),
    [
        ("layer", "self.layers", "layer(x)"),
        ("i", "range(len(self.layers))", "self.layers[i](x)"),
    ],
)
def test_a_list_of_what_a_forward_pass_gave(tmp_path: Path, each: str, over: str, item: str) -> None:
    """It is as long as there are layers, on all ranks: a mean over them is one."""
    code, said = converted(tmp_path, LISTED.format(each=each, over=over, item=item))
    assert "    loss = loss / len(outs)" in code and "    loss.backward()" in code and "AD602" not in said


ATTACK = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(3, (32,))), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def attack(x, y):
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(4):
        out = model(x + delta)
        index = torch.where(out.max(1)[1] == y)
        if len(index[0]) == 0:
            break
        nn.functional.cross_entropy(out, y).backward()
        delta.data[index] = (delta + 0.1 * delta.grad.sign()).clamp(-0.3, 0.3)[index].detach()
        delta.grad.zero_()
    return delta.detach()


for x, y in loader:
    loss = nn.functional.cross_entropy(model(x + attack(x, y)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_an_attack_ends_where_no_rank_has_anything_left(tmp_path: Path) -> None:
    code, said = converted(tmp_path, ATTACK)
    assert "if reduce_sum(len(index[0])) == 0:" in code
    assert "differs between ranks" not in said


@pytest.mark.parametrize("count", ["table[a][b] += 1", "table[a][b] = table[a][b] + 1"])
def test_a_confusion_matrix_that_is_filled_row_by_row(tmp_path: Path, count: str) -> None:
    """What an item of `table[label]` is added to is no number that this sample is given of its kind."""
    step = f"for a, b in zip(y.tolist(), scores.argmax(1).tolist()):\n        {count}"
    script = SCRIPT.format(helper="", start="torch.zeros(3, 3)", step=step, shown="table")
    text, said = converted(tmp_path, script.replace("counts = [], [], ", "table = [], [], "))
    assert f"        {count}\n" in text
    assert "print(reduce_sum(table))" in text
    assert "computed from this rank's samples alone" not in said


EXPERTS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Switch(nn.Module):
    def __init__(self):
        super().__init__()
        self.route, self.aux = nn.Linear(4, 3), None

    def forward(self, x):
        routed = torch.softmax(self.route(x), dim=-1)
        chosen = [torch.eq(routed.argmax(-1), i).nonzero(as_tuple=True)[0] for i in range(3)]
        counts = x.new_tensor([len(chosen[i]) for i in range(3)])
        self.aux = (counts / counts.sum() * routed.mean(0)).sum()
        return routed


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(3, (32,))), batch_size=8, shuffle=True)
model = Switch()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.nll_loss(model(x).log(), y) + 0.01 * model.aux
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_numbers_of_a_batch_that_a_new_tensor_is_made_of(tmp_path: Path) -> None:
    """How many words each expert is given (labml's switch transformer) is a rank's own, and meets a mean."""
    after, said = converted(tmp_path, EXPERTS)
    assert "reduce_sum(counts.sum())" in after or "AD602 cannot tell that this loss is a mean" in said
