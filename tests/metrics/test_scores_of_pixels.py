"""Losses and scores of pictures whose every pixel has a label: masked means, intersections over unions."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 3, 8, 8), torch.randint(4, (64, 8, 8)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Conv2d(3, 4, 3, padding=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{functions}
for epoch in range(2):
    scores = []
    for x, y in loader:
        out = model(x)
        mask = (y != 0).float()
        loss = {loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {score}
    print(np.mean(scores))
"""
MASKED = '(F.cross_entropy(out, y, reduction="none") * mask).sum() / mask.sum()'
IOU = """
def iou_score(output, target):
    if torch.is_tensor(output):
        output = torch.sigmoid(output).data.cpu().numpy()
    if torch.is_tensor(target):
        target = target.data.cpu().numpy()
    both = (output > 0.5) & (target > 0.5)
    either = (output > 0.5) | (target > 0.5)
    return (both.sum() + 1e-5) / (either.sum() + 1e-5)
"""


@pytest.mark.parametrize(
    ("functions", "loss", "score", "expected"),
    [
        ("", MASKED, "scores.append(loss.item())", "mean_count(mask.sum())"),
        (
            "criterion = nn.CrossEntropyLoss(reduction='none')",
            MASKED.replace("F.cross_entropy", "criterion").replace(', reduction="none"', ""),
            "scores.append(loss.item())",
            "mean_count(mask.sum())",
        ),
        (IOU, "F.cross_entropy(out, y)", "scores.append(iou_score(out[:, 0], y))", "reduce_sum(both.sum()) + 1e-5"),
    ],
)
def test_scores_of_pixels(tmp_path: Path, functions: str, loss: str, score: str, expected: str) -> None:
    """Losses have as many axes as the labels, so that masks weigh them one by one; a ratio of counts is computed from
    the rows of all ranks."""
    code, said = converted(tmp_path, SCRIPT.format(functions=functions, loss=loss, score=score))
    assert expected in code, said
    assert "AD906" not in said and "samples alone" not in said


TAGGED = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sentences = [[(3 * i + j) % 20 for j in range(3 + i % 5)] for i in range(64)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.fc = nn.Linear(8, 4)

    def forward(self, words):
        hidden = self.embedding(words)
        return F.log_softmax(self.fc(hidden.view(-1, hidden.shape[2])), dim=1)


def loss_fn(outputs, labels):
    labels = labels.view(-1)
    mask = (labels >= 0).float()
    labels = labels % outputs.shape[1]
    number = int(torch.sum(mask))
    return -torch.sum(outputs[{rows}, labels] * mask) / number


def batches(size):
    for start in range(0, len(sentences), size):
        part = sentences[start : start + size]
        longest = max(len(each) for each in part)
        words, labels = np.zeros((len(part), longest)), -np.ones((len(part), longest))
        for number, each in enumerate(part):
            words[number][: len(each)] = each
            labels[number][: len(each)] = [word % 4 for word in each]
        yield torch.LongTensor(words), torch.LongTensor(labels)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for epoch in range(2):
    given = batches(8)
    for step in range(8):
        x, y = next(given)
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("rows", ["range(outputs.shape[0])", "torch.arange(len(outputs))"])
def test_masked_means_of_batches_made_by_hand(tmp_path: Path, rows: str) -> None:
    """One number is taken of each row, by its label; the mean over what is not masked is weighed."""
    code, said = converted(tmp_path, TAGGED.replace("{rows}", rows))
    assert "x, y = local_rows(next(given))" in code and "* mask) / mean_count(number)" in code, said
    assert 'if hasattr(rows, "contiguous"):' in code  # `labels.view(-1)`
    assert "AD902" not in said and "AD602" not in said


def test_rows_by_other_numbers(tmp_path: Path) -> None:
    """Rows that are picked by numbers of any kind may be those of other samples."""
    said = converted(tmp_path, TAGGED.replace("{rows}", "labels.argsort()"))[1]
    assert "AD902" in said
