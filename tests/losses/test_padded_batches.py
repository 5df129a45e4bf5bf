"""Losses over batches that are filled up to the longest sample: those of one process where the padding is left out,
and told of where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences

from autodist.verify.launch import Zygote

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
rows = [(torch.randint(1, 20, (2 + i % 7,)), torch.randint(5, (2 + i % 7,))) for i in range(32)]


def collate(batch):
    longest = max(len(words) for words, _ in batch)
    ids, labels, mask = [], [], []
    for words, tags in batch:
        rest = longest - len(words)
        ids.append(words.tolist() + [0] * rest)
        labels.append(tags.tolist() + [-100] * rest)
        mask.append([1] * len(words) + [0] * rest)
    return {{"ids": torch.tensor(ids), "labels": torch.tensor(labels), "mask": torch.tensor(mask)}}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.q, self.k, self.v = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, ids, mask):
        h, (rows, words) = self.embed(ids), ids.shape
        q, k, v = (layer(h).view(rows, words, 2, 4).transpose(1, 2) for layer in (self.q, self.k, self.v))
        {attend}
        return self.head(h.transpose(1, 2).reshape(rows, words, 8))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate):
    logits = model(batch["ids"], batch["mask"])
    loss = F.cross_entropy(logits.view(-1, 5), batch["labels"].view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SCALED = "h = F.scaled_dot_product_attention(q, k, v{})"
BY_HAND = "att = q @ k.transpose(-2, -1) / 8**0.5\n        {}\n        h = F.softmax(att, dim=-1) @ v"


@pytest.mark.parametrize(
    "attend",
    [
        SCALED.format(", attn_mask=mask[:, None, None, :].bool()"),
        BY_HAND.format("att = att.masked_fill(mask[:, None, None, :] == 0, float('-inf'))"),
        BY_HAND.format("att = att + (1.0 - mask[:, None, None, :].float()) * torch.finfo(att.dtype).min"),
    ],
)
def test_masked_padding_changes_nothing(attend: str, tmp_path: Path, zygote: Zygote | None) -> None:
    """Ranks have different numbers of words, by which their means are weighed."""
    text = SCRIPT.format(attend=attend)
    after, said = converted(tmp_path, text)
    assert "AD602" not in said and "weigh_by_count(" in after
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize(
    ("attend", "told"),
    [
        (SCALED.format(""), "F.scaled_dot_product_attention(q, k, v) gives the padding its share: collate() pads"),
        (BY_HAND.format("pass"), "F.softmax(att, dim=-1) gives the padding its share: collate() pads"),
        (SCALED.format(", attn_mask=load_mask(mask)"), "cannot tell whether F.scaled_dot_product_attention("),
    ],
)
def test_padding_that_counts_is_told_of(attend: str, told: str, tmp_path: Path) -> None:
    """Also where the file speaks of masks, which are not used."""
    assert told in converted(tmp_path, SCRIPT.format(attend=attend))[1]


CHATS = """\
import torch
import torch.nn.functional as F
from chats import rows
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("gpt2")


def collate(batch):
    ids = pad_sequence([row["ids"] for row in batch], batch_first=True, padding_value=tokenizer.pad_token_id)
    labels = pad_sequence([row["labels"] for row in batch], batch_first=True, padding_value=-100)
    return {{"ids": ids, "labels": labels, "mask": (ids != tokenizer.pad_token_id).long()}}


model = AutoModelForCausalLM.from_pretrained("gpt2")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for batch in DataLoader(rows, batch_size=8, shuffle=True, collate_fn=collate):
    out = model(batch["ids"], attention_mask=batch["mask"])
    {loss}
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("loss", "weighed", "told"),
    [
        (
            "logits, labels = out.logits[..., :-1, :].contiguous(), batch['labels'][..., 1:].contiguous()\n"
            "    loss = F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))",
            True,
            False,
        ),
        (
            "each = batch['mask'].unsqueeze(-1)\n"
            "    loss = ((out.last_hidden_state * each).sum(1) / each.sum(1)).pow(2).mean()",
            False,
            False,
        ),
        ("loss = out.last_hidden_state.mean(1).pow(2).mean()", False, True),
    ],
)
def test_words_of_models_of_libraries(loss: str, weighed: bool, told: bool, tmp_path: Path) -> None:
    """What they make of each word has its padding, whatever mask they are given."""
    after, said = converted(tmp_path, CHATS.format(loss=loss))
    assert ("weigh_by_count(" in after, "AD602" in said) == (weighed, told)
