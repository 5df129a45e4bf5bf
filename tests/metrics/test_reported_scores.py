"""Scores of libraries and lists of numbers that functions return: made global once, where they are reported."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import conftest
import pytest

SCRIPT = """\
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from sklearn.metrics import accuracy_score, balanced_accuracy_score, mean_squared_error


def ious(guesses, truth):
    both, either = np.zeros(3), np.zeros(3)
    for row in range(truth.shape[0]):
        for label in range(3):
            both[label] += np.sum(np.logical_and(guesses[row] == label, truth[row] == label))
            either[label] += np.sum(np.logical_or(guesses[row] == label, truth[row] == label))
    return both / either


def train(model, loader, optimizer):
    losses, guesses, truth = [], [], []
    for step, (x, y) in enumerate(loader):
        out = model(x).permute(0, 2, 1).contiguous()
        loss = nn.functional.cross_entropy(out.view(-1, 3), y.view(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        guess = out.max(dim=2)[1]
{step}
    return {returned}


loader = DataLoader(TensorDataset(torch.randn(64, 5, 6), torch.randint(0, 3, (64, 6))), batch_size=8, shuffle=True)
model = nn.Conv1d(5, 3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    {returned} = train(model, loader, optimizer)
{end}
"""


def converted(folder: Path, step: str = "pass", end: str = "pass", returned: str = "losses") -> tuple[str, str]:
    text = SCRIPT.format(step=indent(step, " " * 8), end=indent(end, " " * 4), returned=returned)
    return conftest.converted(folder, text)


@pytest.mark.parametrize("mean", ["np.mean(losses)", "sum(losses) / len(losses)"])
def test_a_returned_list_is_averaged_over_the_ranks_where_it_is_reported(tmp_path: Path, mean: str) -> None:
    after, said = converted(tmp_path, end=f"print(epoch, {mean})")
    assert "losses.append(loss.item())" in after
    assert f"reduce_mean({mean})" in after
    assert "warning" not in said


def test_beside_other_lists(tmp_path: Path) -> None:
    after, _ = converted(tmp_path, returned="losses, guesses", end="print(np.mean(losses))")
    assert "losses.append(loss.item())" in after
    assert "print(reduce_mean(np.mean(losses)))" in after


@pytest.mark.parametrize(
    "end", ["print(losses)", "np.save('losses.npy', losses)", "history.append(losses)\nprint(history)"]
)
def test_a_returned_list_that_is_shown_holds_what_all_ranks_have(tmp_path: Path, end: str) -> None:
    after, _ = converted(tmp_path, end=f"history = []\n{end}\nprint(np.mean(losses))")
    assert "losses.append(reduce_mean(loss.item()))" in after
    assert "reduce_mean(np.mean" not in after


def test_a_score_of_a_batch_that_is_a_mean(tmp_path: Path) -> None:
    step = "score = accuracy_score(y.view(-1).numpy(), guess.view(-1).numpy())\n"
    step += "guesses.append(score)\nprint(step, 100 * score)"
    after, said = converted(tmp_path, step, returned="losses, guesses", end="print(np.mean(guesses))")
    assert "accuracy_score(gather_rows(y).view(-1).numpy(), gather_rows(guess).view(-1).numpy())" in after
    assert "print(step, 100 * score)" in after and "warning" not in said


@pytest.mark.parametrize(
    "score",
    [
        "accuracy_score(y[:, 0].numpy(), guess[:, 0].numpy(), normalize=False)",
        "mean_squared_error(y[:, 0].numpy(), guess[:, 0].numpy(), squared=False)",
        "balanced_accuracy_score(y[:, 0].numpy(), guess[:, 0].numpy())",
    ],
)
def test_a_score_that_is_no_mean_is_taken_of_all_rows(tmp_path: Path, score: str) -> None:
    after, _ = converted(tmp_path, f"print({score})")
    assert "gather_rows(y[:, 0])" in after or "gather_rows(y)" in after
    assert "reduce_mean(" not in after.partition("print(")[2].splitlines()[0]


def test_arrays_that_several_lists_keep_are_gathered(tmp_path: Path) -> None:
    step = "y_np = y.cpu().numpy()\nguess_np = guess.detach().cpu().numpy()\n"
    step += "truth.append(y_np)\nguesses.append(guess_np)\n"
    step += "flat.append(y_np.reshape(-1))\nflat_guesses.append(guess_np.reshape(-1))"
    end = "print(balanced_accuracy_score(np.concatenate(flat), np.concatenate(flat_guesses)))\n"
    end += "print(np.mean(ious(np.concatenate(guesses, axis=0), np.concatenate(truth, axis=0))))\n"
    end += "flat, flat_guesses = [], []"
    text = SCRIPT.format(step=indent(step, " " * 8), end=indent(end, " " * 4), returned="guesses, truth")
    after, said = conftest.converted(tmp_path, text.replace("model = nn", "flat, flat_guesses = [], []\nmodel = nn"))
    assert "flat.append(gather_rows(y_np).reshape(-1))" in after
    assert "return reduce_sum(both) / reduce_sum(either)" in after
    assert "warning" not in said


def test_rows_that_are_computed_with_on_are_not_gathered_where_they_are_bound(tmp_path: Path) -> None:
    step = "y_np = y.cpu().numpy()\ntruth.append(y_np)\nprint((y_np == guess.numpy()).mean())"
    after, _ = converted(tmp_path, step, returned="truth", end="print(np.concatenate(truth))")
    assert "y_np = gather_rows" not in after
