"""Batches that a generator cuts out of one stream of tokens, and attention over them."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

SCRIPT = """\
import numpy as np
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn


def batches_of(data, batch_size, length):
    examples = np.arange((data.shape[0] - 1) // length)
    np.random.shuffle(examples)
    counter = 0
    while True:
        if counter + batch_size > len(examples):
            np.random.shuffle(examples)
            counter = 0
        chosen = examples[counter : counter + batch_size] * length
        samples = torch.tensor(np.array([data[at : at + length + 1] for at in chosen]))
        counter += batch_size
        yield samples[:, :length], samples[:, 1 : length + 1]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.key, self.query, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        batch, length, width = {sizes}
        k = self.key(x)
        q = self.query(x)
        return F.softmax(q @ k.transpose(-2, -1) * width**-0.5, dim=-1) @ self.value(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.head = nn.Linear(8, 20)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = {block}
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, 20), targets.reshape(-1))


def main():
    np.random.seed(0)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    batches = batches_of(np.random.randint(0, 20, 800), 8, 6)
    for step in range(12):
        x, y = next(batches)
        _, loss = model(x, y)
        optimizer.zero_grad()
        {step}
        print(loss.item())


main()
"""
PLAIN = "loss.backward(); optimizer.step()"
SCALED = "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"
CHECKPOINTED = "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"


@pytest.mark.parametrize(
    ("sizes", "block", "step"),
    [
        ("x.shape", "block(x)", PLAIN),
        ("x.size()", "block(x)", SCALED),
        ("x.shape", CHECKPOINTED, PLAIN),
        ("x.shape", CHECKPOINTED.replace("block,", "lambda h, block=block: block(h),"), SCALED),
        ("x.shape", CHECKPOINTED.replace("block,", "block.forward,"), "(loss / 2).backward(); optimizer.step()"),
        ("x.shape", CHECKPOINTED.replace("block,", "lambda h: block(h),"), "(2 * loss).backward(); optimizer.step()"),
    ],
)
def test_ranks_take_their_rows(tmp_path: Path, sizes: str, block: str, step: str) -> None:
    """A product of tensors whose sizes are three is one for each sample."""
    text = SCRIPT
    for name, code in {"{sizes}": sizes, "{block}": block, "{step}": step}.items():
        text = text.replace(name, code)
    after, said = conftest.converted(tmp_path, text)
    assert "x, y = local_rows(next(batches))" in after, said
    assert "print(reduce_mean(loss.item()))" in after and "AD6" not in said.replace("AD601", "")


def test_axes_that_the_data_tell(tmp_path: Path) -> None:
    """Rows of a list of rows, of which each is embedded: three axes, without a word of them."""
    text = SCRIPT.replace("batch, length, width = {sizes}", "width = 8").replace("{block}", "block(x)")
    after, said = conftest.converted(tmp_path, text.replace("{step}", PLAIN))
    assert "x, y = local_rows(next(batches))" in after and "AD6" not in said.replace("AD601", "")
