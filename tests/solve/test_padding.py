"""Batches that are filled up to the longest sample: where losses come to depend on how far, and where they do not."""

from __future__ import annotations

import pytest
from programs import CATALOG, bound, traced

from autodist.analyze.padding import WHAT_TO_DO
from autodist.placement import padded
from autodist.placement.filled import _written
from autodist.placement.padded import BACKWARDS, COUNTED, LAST, LENGTH, REACHES, SHARE, STATE, STATISTIC, UNTOLD
from autodist.solve.losses import Losses
from autodist.solve.padding import lost_at, padding
from autodist.solve.sources import sources

HEAD = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

rows = [(torch.randint(1, 20, (3 + i % 5,)), torch.randint(5, (3 + i % 5,))) for i in range(64)]


def collate(batch):
    x, y = zip(*batch)
    lengths = torch.tensor([len(each) for each in x])
    return pad_sequence(x, batch_first=True), pad_sequence(y, batch_first=True, padding_value=-100), lengths


loader = DataLoader(rows, batch_size=8, collate_fn=collate)
embed, table = nn.Embedding(20, 8), nn.Embedding(20, 8, padding_idx=0)
net, head, norm = nn.Linear(8, 8), nn.Linear(8, 5), nn.LayerNorm(8)
lstm, both = nn.LSTM(8, 8, batch_first=True), nn.LSTM(8, 4, batch_first=True, bidirectional=True)
gru, cell = nn.GRU(8, 8, batch_first=True), nn.GRUCell(8, 8)
conv, causal = nn.Conv1d(8, 8, 3, padding=1), nn.Conv1d(8, 8, 3)
ring, ctc = nn.Conv1d(8, 8, 3, padding=1, padding_mode="circular"), nn.CTCLoss()
bn, attention = nn.BatchNorm1d(8), nn.MultiheadAttention(8, 2, batch_first=True)
encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, batch_first=True), 2)
decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, batch_first=True), 2)
places = nn.Embedding(64, 8)
seen = torch.tril(torch.ones(64, 64))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
TAGS = "\nloss = F.cross_entropy(head(h).transpose(1, 2), y, ignore_index=-100)"
CLASS = "\nloss = F.cross_entropy(head(h), y[:, 0])"
SCORES = "h = embed(x)\nq, k, v = net(h), net(h), net(h)\nscores = q @ k.transpose(1, 2) / 8**0.5\n"
ATTEND = "\nh = scores.softmax(-1) @ v"


def reasons(step: str, head: str = HEAD) -> list[str]:
    """Why the loss of a step depends on the padding of its batch."""
    lines = "\n".join("    " + line for line in (step + "\nopt.zero_grad()\nloss.backward()\nopt.step()").splitlines())
    program = traced(f"{head}\nfor x, y, n in loader:\n{lines}\n")
    losses = Losses(program, sources(program, CATALOG).plan, CATALOG)
    found = padding(program, losses.placements)
    assert found, "nothing is filled up"
    return [reason for _, reason in lost_at(program, found, losses.ends, CATALOG)]


EACH_WORD = {
    "layers of each word": "h = norm(embed(x) + net(F.gelu(embed(x))))",
    "a layer that looks back": "h, _ = lstm(embed(x))",
    "packed words": "p = pack_padded_sequence(embed(x), n, batch_first=True)\n"
    "h, _ = pad_packed_sequence(both(p)[0], batch_first=True)",
    "places": "h = embed(x) + places(torch.arange(x.size(1)))",
    "a loop": "s, out = torch.zeros(len(x), 8), []\nfor t in range(x.size(1)):\n    s = cell(embed(x[:, t]), s)\n"
    "    out.append(s)\nh = torch.stack(out, 1)",
    "zeros beside a convolution": "h = conv(table(x).transpose(1, 2)).transpose(1, 2)",
    "a convolution that looks back": "h = causal(F.pad(embed(x).transpose(1, 2), (2, 0))).transpose(1, 2)",
    "a mask of the encoder": "h = encoder(embed(x), src_key_padding_mask=x == 0)",
    "lengths": "h = encoder(embed(x), src_key_padding_mask=torch.arange(x.size(1)) >= n[:, None])",
    "a causal encoder": "m = nn.Transformer.generate_square_subsequent_mask(x.size(1))\nh = encoder(embed(x), m)",
    "a causal decoder": "m = torch.triu(torch.ones(x.size(1), x.size(1)), 1).bool()\n"
    "h = decoder(embed(x), embed(x), tgt_mask=m, memory_key_padding_mask=x.eq(0))",
    "a mask of attention": "h = embed(x)\nh, _ = attention(h, h, h, key_padding_mask=~(x != 0))",
    "tril": SCORES + "m = seen[: x.size(1), : x.size(1)]\nscores = scores.masked_fill(m == 0, float('-inf'))" + ATTEND,
    "a mask that is added": SCORES + "scores = scores + (1.0 - (x != 0).float())[:, None] * -1e4" + ATTEND,
    "a mask of both": SCORES
    + "m = (x != 0)[:, None] * (x != 0)[:, :, None]\nscores = scores.masked_fill(~m, -1e9)"
    + ATTEND,
    "the least number": SCORES
    + "scores = scores.masked_fill((x == 0)[:, None], torch.finfo(scores.dtype).min)"
    + ATTEND,
    "is_causal": "h = embed(x)\nh = F.scaled_dot_product_attention(h, h, h, is_causal=True)",
    "attn_mask": "h = embed(x)\nh = F.scaled_dot_product_attention(h, h, h, attn_mask=(x != 0)[:, None])",
    "pad by name": "h = causal(F.pad(input=embed(x).transpose(1, 2), pad=(2, 0))).transpose(1, 2)",
    "attention by name": "h = embed(x)\nh = F.scaled_dot_product_attention(query=h, key=h, value=h, is_causal=True)",
    "an encoder by name": "h = encoder(src=embed(x), src_key_padding_mask=x == 0)",
    "a decoder by name": "m = nn.Transformer.generate_square_subsequent_mask(x.size(1))\n"
    "h = decoder(tgt=embed(x), memory=embed(x), tgt_mask=m, memory_key_padding_mask=x.eq(0))",
    "behind what is first": "h, _ = lstm(torch.cat((embed(x[:, :1]), embed(x)), 1))\nh = h[:, 1:]",
    "beside each other": "h = nn.Linear(16, 8)(torch.cat([embed(x), table(x)], -1))",
    "a linear layer by name": "h = F.linear(input=embed(x), weight=net.weight)",
}


@pytest.mark.parametrize("name", EACH_WORD)
def test_no_word_comes_to_depend_on_the_padding(name: str) -> None:
    assert not reasons(EACH_WORD[name] + TAGS)


EACH_SAMPLE = {
    "a masked mean": "m = (x != 0).unsqueeze(-1)\nh = (net(embed(x)) * m).sum(1) / m.sum(1)",
    "a sum over zeros": "h = table(x).sum(1) / n[:, None]",
    "the largest of those that count": "h = net(embed(x)).masked_fill((x == 0)[..., None], -1e9).max(1).values",
    "a masked softmax": "s = head(embed(x))[..., 0].masked_fill(x == 0, float('-inf'))\n"
    "h = (s.softmax(1)[..., None] * embed(x)).sum(1)",
    "the first": "h = encoder(embed(x), src_key_padding_mask=x == 0)[:, 0]",
    "the last by its length": "h = lstm(embed(x))[0][torch.arange(len(x)), n - 1]",
    "the state of packed words": "p = pack_padded_sequence(embed(x), n, batch_first=True)\nh = gru(p)[1][0]",
}


@pytest.mark.parametrize("name", EACH_SAMPLE)
def test_no_sample_comes_to_depend_on_its_padding(name: str) -> None:
    assert not reasons(EACH_SAMPLE[name] + CLASS)


DEPENDING = {
    "layers that go backwards": ("h, _ = both(embed(x))" + TAGS, BACKWARDS),
    "an encoder": ("h = encoder(embed(x))" + TAGS, SHARE),
    "a decoder's memory": (
        "m = nn.Transformer.generate_square_subsequent_mask(x.size(1))\nh = decoder(embed(x), embed(x), m)" + TAGS,
        SHARE,
    ),
    "attention": ("h = embed(x)\nh, _ = attention(h, h, h)" + TAGS, SHARE),
    "words behind words": ("h, _ = lstm(torch.cat([embed(x), embed(x)], 1))\nh = h[:, x.size(1) :]" + TAGS, UNTOLD),
    "what comes behind words": ("h, _ = lstm(torch.cat([embed(x), embed(x[:, :1])], 1))\nh = h[:, 1:]" + TAGS, UNTOLD),
    "an encoder by name": ("h = encoder(src=embed(x))" + TAGS, SHARE),
    "a decoder's memory by name": (
        "m = nn.Transformer.generate_square_subsequent_mask(x.size(1))\n"
        "h = decoder(tgt=embed(x), memory=embed(x), tgt_mask=m)" + TAGS,
        SHARE,
    ),
    "a softmax by name": (SCORES + "h = torch.softmax(input=scores, dim=-1) @ v" + TAGS, SHARE),
    "a sum by name": ("h = torch.sum(input=embed(x), dim=1)" + CLASS, COUNTED),
    "a layer that goes backwards by name": ("h, _ = both(input=embed(x))" + TAGS, BACKWARDS),
    "a mask of scores that are not the least": (
        SCORES + "scores = scores.masked_fill((x == 0)[:, None], 0.0)" + ATTEND + TAGS,
        SHARE,
    ),
    "tril that looks ahead": (
        SCORES + "m = torch.tril(torch.ones(x.size(1), x.size(1)), 2)\nscores = scores.masked_fill(m == 0, -1e9)"
        f"{ATTEND}{TAGS}",
        UNTOLD,
    ),
    "a mask of words that attend, not of those attended to": (
        SCORES + "scores = scores.masked_fill((x == 0)[:, :, None], float('-inf'))" + ATTEND + TAGS,
        UNTOLD,
    ),
    "attn_mask of words that attend": (
        "h = embed(x)\nh = F.scaled_dot_product_attention(h, h, h, attn_mask=(x != 0)[:, :, None])" + TAGS,
        UNTOLD,
    ),
    "a softmax over those that attend": (
        SCORES + "h = scores.masked_fill((x == 0)[:, None], -1e9).softmax(1) @ v" + TAGS,
        UNTOLD,
    ),
    "what those attend to that are attended to": (
        SCORES + "h = scores.masked_fill((x == 0)[:, None], -1e9).softmax(-1).transpose(1, 2) @ v" + TAGS,
        UNTOLD,
    ),
    "scores": (SCORES + ATTEND + TAGS, SHARE),
    "a mask the wrong way round": (
        "h = embed(x)\nh = F.scaled_dot_product_attention(h, h, h, attn_mask=(x == 0)[:, None])" + TAGS,
        UNTOLD,
    ),
    "convolutions": ("h = conv(conv(table(x).transpose(1, 2))).transpose(1, 2)" + TAGS, REACHES),
    "a convolution that is not padded with zeros": (
        "h = ring(table(x).transpose(1, 2)).transpose(1, 2)" + TAGS,
        REACHES,
    ),
    "as many frames as the longest has": (
        "frames = torch.full((len(x),), x.size(1))\n"
        "loss = ctc(head(embed(x)).log_softmax(-1).transpose(0, 1), y, frames, n)",
        LENGTH,
    ),
    "batch statistics": ("h = bn(embed(x).transpose(1, 2)).transpose(1, 2)" + TAGS, STATISTIC),
    "the mean": ("h = embed(x).mean(1)" + CLASS, COUNTED),
    "the largest": ("h = net(embed(x)).max(1)[0]" + CLASS, COUNTED),
    "a sum that a mask does not reach": (
        "h = net(embed(x) * (x != 0)[..., None]).sum(1) / n[:, None]" + CLASS,
        COUNTED,
    ),
    "a mean of masked words": ("h = table(x).sum(1) / x.size(1)" + CLASS, LENGTH),
    "a softmax over words": ("h = (head(embed(x))[..., :1].softmax(1) * embed(x)).sum(1)" + CLASS, SHARE),
    "the state behind": ("h = gru(embed(x))[1][0]" + CLASS, STATE),
    "the last place": ("h = lstm(embed(x))[0][:, -1]" + CLASS, LAST),
    "what a loop ends with": (
        "h = torch.zeros(len(x), 8)\nfor t in range(x.size(1)):\n    h = cell(embed(x[:, t]), h)" + CLASS,
        STATE,
    ),
    "a number of each word": ("h = embed(x)[torch.arange(len(x)), head(embed(x))[..., 0].argmax(1)]" + CLASS, COUNTED),
    "words in a row": ("h = bn(embed(x).reshape(x.size(0) * x.size(1), 8)).view(*x.shape, 8)" + TAGS, STATISTIC),
    "a loop that goes backwards": (
        "s, out = torch.zeros(len(x), 8), []\nfor t in reversed(range(x.size(1))):\n    s = cell(embed(x[:, t]), s)\n"
        "    out.append(s)\nh = torch.stack(out[::-1], 1)" + TAGS,
        UNTOLD,
    ),
    "words turned round": ("h, _ = lstm(embed(x).flip(1))" + TAGS, UNTOLD),
    "words by number": ("h = lstm(embed(x)[:, torch.arange(x.size(1) - 1, -1, -1)])[0]" + TAGS, LENGTH),
    "labels without their last": (
        "h = embed(x)\nloss = F.cross_entropy(head(h)[:, :-1].transpose(1, 2), y[:, :-1], ignore_index=-100)",
        COUNTED,
    ),
    "labels that count": ("loss = F.cross_entropy(head(embed(x)).transpose(1, 2), y.clamp(min=0))", COUNTED),
    "a loss of all places": ("loss = F.mse_loss(head(embed(x))[..., 0], y.float())", COUNTED),
}


@pytest.mark.parametrize("name", DEPENDING)
def test_what_makes_a_loss_depend_on_the_padding(name: str) -> None:
    step, reason = DEPENDING[name]
    assert reasons(step)[:1] == [reason]


LOSSES = {
    "words that are shifted behind an ellipsis": "h = head(embed(x))[..., :-1, :].contiguous()\n"
    "loss = F.cross_entropy(h.view(-1, h.size(-1)), y[..., 1:].contiguous().view(-1))",
    "frames": "loss = ctc(head(embed(x)).log_softmax(-1).transpose(0, 1), y, n, n)",
    "words that are shifted": "loss = F.cross_entropy(head(embed(x))[:, :-1].reshape(-1, 5), y[:, 1:].reshape(-1))",
    "a loss of each word": "m = y != -100\neach = F.cross_entropy(head(embed(x)).transpose(1, 2), y.clamp(0), "
    "reduction='none')\nloss = (each * m).sum() / m.sum()",
    "zeros where labels are left out": "each = F.cross_entropy(head(embed(x)).transpose(1, 2), y, reduction='none')\n"
    "loss = each.sum() / n.sum()",
    "words that a mask picks": "m = y != -100\nloss = F.cross_entropy(head(embed(x))[m], y[m])",
    "words of a row": "m = y.view(-1).ne(-100)\nloss = F.cross_entropy(head(embed(x)).view(-1, 5)[m], y.view(-1)[m])",
    "torch.where": "each = (head(embed(x))[..., 0] - y).abs()\n"
    "loss = torch.where(y == -100, 0.0, each).sum() / n.sum()",
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_that_leave_padding_out(name: str) -> None:
    assert not reasons(LOSSES[name])


BATCHES = {
    "filled rows": "    x = torch.zeros(len(batch), longest).long()\n    y = torch.full((len(batch), longest), -100)\n"
    "    for i, (a, b) in enumerate(batch):\n        x[i, : len(a)], y[i, : len(b)] = a, b\n    return x, y, lengths\n",
    "stacked rows": "    x = torch.stack([F.pad(a, (0, longest - len(a))) for a, _ in batch])\n"
    "    y = torch.stack([F.pad(b, (0, longest - len(b)), value=-100) for _, b in batch])\n    return x, y, lengths\n",
    "lists": "    x = torch.tensor([a.tolist() + [0] * (longest - len(a)) for a, _ in batch])\n"
    "    y = torch.tensor([b.tolist() + [-100] * (longest - len(b)) for _, b in batch])\n    return x, y, lengths\n",
}


@pytest.mark.parametrize("name", BATCHES)
def test_ways_to_fill_samples_up(name: str) -> None:
    """Whichever way a `collate_fn` takes: what it fills up with is known."""
    begin = HEAD.index("    x, y = zip(*batch)")
    text = "    longest = max(len(a) for a, _ in batch)\n    lengths = torch.tensor([len(a) for a, _ in batch])\n"
    head = HEAD[:begin] + text + BATCHES[name] + HEAD[HEAD.index("\n\nloader =") :]
    masked = "h = encoder(embed(x), src_key_padding_mask=x == 0)" + TAGS
    assert not reasons(masked, head)
    assert reasons(masked.replace("x == 0", "x == 1"), head) == [UNTOLD]
    assert reasons(masked.replace("=-100", "=0"), head) == [COUNTED]


def test_every_reason_says_what_to_do() -> None:
    told = {value for name, value in vars(padded).items() if name.isupper() and isinstance(value, str)}
    assert told - WHAT_TO_DO.keys() <= {UNTOLD, padded.MERGED}


FROM_END = [
    "places(torch.arange(n - 1, -1, -1))",
    "places(torch.arange(end=-1, start=n - 1, step=-1))",
    "places(n - torch.arange(n))",
    "places(torch.arange(n).flip(0))",
    "places.weight[-n:]",
    "places.weight[64 - n :]",
    "torch.linspace(0, 1, n)[:, None]",
    "(torch.arange(n) / n)[:, None]",
]
FROM_START = [
    "places(torch.arange(n))",
    "places(torch.arange(start=0, end=n))",
    "places(torch.arange(1, n + 1))",
    "places.weight[:n]",
    "places.weight[n - n : n]",
    "torch.linspace(0, 1, 64)[:n, None]",
]


@pytest.mark.parametrize("made", FROM_END)
def test_places_that_are_counted_from_the_end(made: str) -> None:
    """They are others for a rank whose longest sample is shorter; they were silent."""
    assert reasons(f"n = x.size(1)\nh = embed(x) + {made}{TAGS}") == [LENGTH]


@pytest.mark.parametrize("made", FROM_START)
def test_places_that_are_counted_from_the_start(made: str) -> None:
    assert not reasons(f"n = x.size(1)\nh = embed(x) + {made}{TAGS}")


def test_how_a_number_is_written_that_is_read_from_lists_in_lists() -> None:
    """Each list holds the last one twice: what is in them is not spelled out."""
    lists = "names = [0]\n" + "".join("names = [names, names]\n" for _ in range(16))
    program = traced(f"import vocabulary\n{lists}number = vocabulary.number(names)\n")
    assert len(str(_written(bound(program, "number")))) < 1000
