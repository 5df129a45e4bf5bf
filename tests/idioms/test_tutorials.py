"""What tutorials and course notebooks write: what is asked of a loss, of sizes, of scores and of a model."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{before}
data = TensorDataset(torch.randn(48, 4, 6), torch.randint(0, 3, (48,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
val_loader = DataLoader(data, batch_size=8)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    scores = []
    for x, y in loader:
        out = model(x)
{step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{after}
"""
NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.Linear(6, 5)
        self.lstm = nn.LSTM(5, 7, batch_first=True)
        self.last = nn.Linear(7, 3)

    def forward(self, x):
        seen = torch.stack([self.rows(x[:, t]) for t in range(x.size(1))], dim=0){turned}
        hidden, _ = self.lstm(seen)
        return self.last(hidden[:, -1])
"""
PLAIN = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(24, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def forward(self, x):
        return self.body(x)
"""
LOSS = "loss = F.cross_entropy(out, y)"


def script(step: str = LOSS, before: str = PLAIN, after: str = "") -> str:
    indented = "\n".join(f"        {line}" for line in step.splitlines())
    return SCRIPT.format(before=before, step=indented, after=after)


@pytest.mark.parametrize("turned", [".transpose_(0, 1)", "\n        seen.transpose_(0, 1)", ".swapaxes_(0, 1)"])
def test_axes_that_are_exchanged_in_place(tmp_path: Path, turned: str) -> None:
    _, said = converted(tmp_path, script(before=NET.replace("{turned}", turned)))
    assert "AD602" not in said


@pytest.mark.parametrize(
    ("loss", "gathered"), [("F.cross_entropy", False), ("nn.functional.nll_loss", False), ("mylib.criterion", True)]
)
def test_a_loss_function_by_another_name(tmp_path: Path, loss: str, gathered: bool) -> None:
    """`loss_func = F.cross_entropy` was not known by the name of the variable."""
    before = f"import mylib\n\n{PLAIN}\n\nloss_func = {loss}\n"
    step = "loss = loss_func(out, y)"
    code, said = converted(tmp_path, script(step, before=before))
    assert "AD602" not in said and ("RowsOfAllRanks" in code) == gathered


@pytest.mark.parametrize(
    ("size", "means"), [("views.shape[1]", True), ("views.size(1)", True), ("views.shape[-2]", True)]
)
def test_sizes_of_samples_that_lie_along_the_second_axis(tmp_path: Path, size: str, means: bool) -> None:
    """A sum over the samples of a rank was taken for one over any other axis, and multiplied by the number of ranks."""
    step = (
        "views = torch.stack([out, 2 * out])\n"
        'terms = torch.einsum("tbd,sbd->ts", views, views)\n'
        f"loss = terms.sum() / ((terms.numel() - terms.diagonal().numel()) * {size})"
    )
    code, said = converted(tmp_path, script(step))
    assert "loss * dist.get_world_size()" not in code and "SumOverRanks" not in code
    assert "AD602" not in said and ("RowsOfAllRanks" in code) != means


def test_modules_are_modules(tmp_path: Path) -> None:
    """The branch for plain functions, which sets no mode, is not one that a module takes."""
    before = PLAIN + (
        "\n\ndef evaluate(net, loader):\n"
        "    hits = 0\n"
        "    for x, y in loader:\n"
        "        with torch.no_grad():\n"
        "            if isinstance(net, torch.nn.Module):\n"
        "                net.eval()\n"
        "                hits += (net(x).argmax(1) == y).sum().item()\n"
        "                net.train()\n"
        "            elif 'training' in net.__code__.co_varnames:\n"
        "                hits += (net(x, training=False).argmax(1) == y).sum().item()\n"
        "            else:\n"
        "                hits += (net(x).argmax(1) == y).sum().item()\n"
        "    return hits\n"
    )
    code, said = converted(tmp_path, script(before=before, after="    print(evaluate(model, val_loader))"))
    assert "AD602" not in said and "share_rows" not in code


def test_sizes_of_arrays_count_samples(tmp_path: Path) -> None:
    before = PLAIN + (
        "\n\ndef frequencies(loader):\n"
        "    counts, total = 0, 0\n"
        "    for _, y in loader:\n"
        "        labels = y.numpy().flatten()\n"
        "        counts += np.bincount(labels, minlength=3)\n"
        "        total += labels.size\n"
        "    return 1 / np.log(1.02 + counts / total)\n"
    )
    code, said = converted(tmp_path, script(before=before, after="    print(frequencies(loader))"))
    assert "1 / np.log(reduce_mean(1.02 + counts / total))" in code and "AD602" not in said
    assert "return mean.numpy()" in code  # of an array


def test_counts_by_label_over_shared_and_whole_loaders(tmp_path: Path) -> None:
    """The last label's count alone was made global."""
    before = PLAIN + (
        "\n\ndef confusion(net, loader):\n"
        "    counts = np.zeros([3, 3])\n"
        "    for x, y in loader:\n"
        "        guesses = net(x).argmax(1)\n"
        "        for i in range(len(y)):\n"
        "            label, guess = y[i].item(), guesses[i].item()\n"
        "            counts[label, guess] += 1.0\n"
        "    return counts\n"
    )
    after = "print(confusion(model, loader))\nprint(confusion(model, val_loader))"
    code, _ = converted(tmp_path, script(before=before, after=after))
    assert "print(reduce_sum(confusion(model, loader)))\nprint(confusion(model, val_loader))" in code


@pytest.mark.parametrize("shown", ["sum(scores) / len(scores)", "np.mean(scores)"])
def test_scores_that_are_no_means(tmp_path: Path, shown: str) -> None:
    """A mean of the ranks' F1 scores was printed for that of the batch."""
    step = f'{LOSS}\nscores.append(f1_score(y.numpy(), out.argmax(1).numpy(), average="macro"))'
    code, _ = converted(tmp_path, script(step, after=f"    print({shown})"))
    assert "f1_score(gather_rows(y).numpy(), " in code and "reduce_mean" not in code


def test_what_a_model_has_is_asked_of_itself(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, script(after="print(dir(model))"))
    assert "print(dir(model.module))" in code


CHOSEN = """\
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = {small}

    def forward(self, x):
        return self.encoder(x)


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.DataParallel(nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3)))

    def forward(self, x):
        return self.encoder(x)


parser = argparse.ArgumentParser()
parser.add_argument("--model", default="small")
model = Small() if parser.parse_args().model == "small" else Large()
loader = DataLoader(TensorDataset(torch.randn(48, 6), torch.randint(0, 3, (48,))), batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("small", "count"), [("nn.DataParallel(nn.Linear(6, 3))", 2), ("nn.Linear(6, 3)", 1)])
def test_models_that_bring_wrappers_of_their_own(tmp_path: Path, small: str, count: int) -> None:
    """That of the second was left as it was, with the devices of all ranks."""
    code, _ = converted(tmp_path, CHOSEN.replace("{small}", small))
    assert "model = DDP(model" in code and code.count("nn.DataParallel(") == count
    assert code.count('device_ids=[int(os.environ["LOCAL_RANK"])])') == count


@pytest.mark.parametrize(
    "trial",
    [
        "model(torch.rand(2, 4, 6))",
        "print(model(torch.rand(2, 4, 6)).shape)",
        "with torch.no_grad():\n    model(torch.rand(2, 4, 6))",
        "shown = model(torch.rand(2, 4, 6))\nprint(shown.shape)",
    ],
)
def test_a_model_is_tried_out_before_it_is_wrapped(tmp_path: Path, trial: str) -> None:
    """Batch statistics over all ranks count the rows of a trial once for each rank, and running_var was another."""
    text = script().replace("model = Net()\n", f"model = Net()\n{trial}\n")
    code, _ = converted(tmp_path, text)
    assert code.index("torch.rand(2, 4, 6)") < code.index("model = DDP(model")


@pytest.mark.parametrize(
    "right",
    [
        'map(itemgetter("right"), scores)',
        'map(lambda each: each["right"], scores)',
        'right for _, right in map(itemgetter("loss", "right"), scores)',
    ],
)
def test_what_dicts_have_under_a_key(tmp_path: Path, right: str) -> None:
    """`itemgetter` reads no other entries: made global where it is put, the loss would have no gradients."""
    step = 'loss = F.cross_entropy(out, y)\nrecord = {"loss": loss, "right": (out.argmax(1) == y).sum().item()}'
    step += "\nscores.append(record)"
    after = f'    print(sum({right}), sum(each["loss"].item() for each in scores))'
    text = script(step, f"from operator import itemgetter\n{PLAIN}", after).replace("loss.back", 'record["loss"].back')
    text, said = converted(tmp_path, text)
    assert f"print(reduce_sum(sum({right})), reduce_mean(" in text, text
    assert "warning" not in said and "this rank's samples alone" not in said


def test_variables_that_are_looked_up_by_their_names(tmp_path: Path) -> None:
    """Those that the script says, where they are bound: not the loss that a step learns from."""
    before = f"""\
{PLAIN}

def show(variables):
    for column in ("epoch", "accuracy"):
        print(column, variables.get(column))
"""
    after = "    accuracy = (out.argmax(1) == y).float().mean().item()\n    show(locals())"
    text, _ = converted(tmp_path, script(before=before, after=after))
    assert "accuracy = reduce_mean((out.argmax(1) == y).float().mean().item())" in text, text
    assert "print(column, variables.get(column))" in text and text.count("reduce_mean(") == 2


@pytest.mark.parametrize("divided", ["loss /= count", "loss = loss / count"])
def test_a_sum_over_its_own_number(tmp_path: Path, divided: str) -> None:
    """As SSD's, also in place: the number is that of all ranks."""
    step = 'picked = y > 0\nloss = F.cross_entropy(out[picked], y[picked], reduction="sum")\ncount = picked.sum()\n'
    text, said = converted(tmp_path, script(step + divided))
    assert "mean_count(" in text or "reduce_sum(picked.sum())" in text, text
    assert "cannot tell" not in said


def test_means_of_some_samples_below_a_root(tmp_path: Path) -> None:
    """As in the losses of depths: each is that of all ranks, which have different numbers of them."""
    step = "d = (out.sum(1) - y)[y > 0]\nloss = torch.sqrt((d ** 2).mean() - 0.85 * d.mean() ** 2)"
    text, said = converted(tmp_path, script(step))
    assert "SumOverRanks.apply(weigh_by_count((d ** 2).mean(), (d ** 2).numel()))" in text, (text, said)


@pytest.mark.parametrize("layer", ["GRU", "RNN", "LSTM"])
def test_the_last_state_of_a_recurrent_layer(tmp_path: Path, layer: str) -> None:
    """It has all samples, and not one of them."""
    state = "(state, _)" if layer == "LSTM" else "state"
    net = f"""\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.{layer}(6, 5, batch_first=True)
        self.mean = nn.Linear(5, 3)

    def forward(self, x):
        _, {state} = self.rnn(x)
        return self.mean(state[-1])
"""
    step = 'loss = (F.cross_entropy(out, y, reduction="sum") - 0.5 * torch.sum(1 - out.pow(2))) / x.size(0)'
    text, said = converted(tmp_path, script(step, net))
    assert "cannot tell" not in said and "loss.backward()" in text, said


@pytest.mark.parametrize("bound", ["alpha = min(alpha, 1)", "alpha *= 0.99", "pass"])
def test_progress_that_is_counted_in_samples(tmp_path: Path, bound: str) -> None:
    """A part that a model is given grows by the samples of all ranks, as progressive growing has it."""
    step = f"loss = F.cross_entropy(out * (1 - alpha), y)\nalpha += len(x) / (2 * len(data))\n{bound}"
    text, _ = converted(tmp_path, script(step, f"{PLAIN}alpha = 0.0\n"))
    assert "alpha += len(x) / (2 * len(data)) * dist.get_world_size()" in text, text
