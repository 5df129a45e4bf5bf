"""Rows put together of what each sample has a number of its own of: boxes of images, words of sentences. Ranks have
different numbers of them, so that the mean of their means is not the mean over all."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, differences
from test_losses_over_boxes import JOINED, script

from autodist.config import Strategy
from autodist.verify.launch import Zygote

ERRORS = '(o[: len(t["boxes"])] - t["boxes"]).abs().sum(-1)'
EACH = 'for o, t in zip(outputs["boxes"], targets)'
MEANS = {
    "two names": JOINED + "    return F.l1_loss(found, wanted)",
    "a method": JOINED + "    return (found - wanted).abs().mean()",
    "weighted by area": JOINED
    + "    area = wanted.prod(-1)\n    return (area * (found - wanted).abs().sum(-1)).mean()",
    "over their number": JOINED + "    return (found - wanted).abs().sum() / len(found)",
    "over their shape": JOINED + "    each = (found - wanted).abs().sum(-1)\n    return each.sum() / each.shape[0]",
    "over numel": JOINED + "    return (found - wanted).abs().sum() / max(wanted.numel(), 1)",
    "of another mean": JOINED + "    return F.mse_loss(found, wanted).sqrt()",
    "two losses": JOINED
    + '    labels = torch.cat([t["labels"] for t in targets])\n'
    + "    return F.cross_entropy(found[:, :3], labels) + 5 * F.l1_loss(found, wanted)",
    "a dict of losses": JOINED
    + '    losses = {"box": F.l1_loss(found, wanted), "size": outputs["boxes"].pow(2).mean()}\n'
    + "    return sum(losses.values())",
    "unnamed": f"    return F.smooth_l1_loss(torch.cat([o[: len(t['boxes'])] {EACH}]), "
    + "torch.cat([t['boxes'] for t in targets]))",
    "vstack": f"    return torch.vstack([o[: len(t['boxes'])] - t['boxes'] {EACH}]).pow(2).mean()",
    "hstack of a tuple": f"    return torch.hstack(tuple({ERRORS} {EACH})).mean()",
    "append": f"    rows = []\n    {EACH}:\n        rows.append({ERRORS})\n    return torch.cat(rows).mean()",
    "extend": f"    rows = []\n    {EACH}:\n        rows.extend({ERRORS})\n    return torch.stack(rows).mean()",
    "list +": f"    rows = []\n    {EACH}:\n        rows = rows + list({ERRORS})\n    return torch.stack(rows).mean()",
    "list +=": f"    rows = []\n    {EACH}:\n        rows += list({ERRORS})\n    return torch.stack(rows).mean()",
    "sum of lists": '    labels = torch.tensor(sum([t["labels"].tolist() for t in targets], []))\n'
    + f"    return F.cross_entropy(torch.cat([o[: len(t['labels']), :3] {EACH}]), labels)",
    "one by one": f"    rows = []\n    {EACH}:\n        for i, box in enumerate(t['boxes']):\n"
    + "            rows.append(F.l1_loss(o[i], box))\n    return torch.stack(rows).mean()",
    "numbered": f"    rows = []\n    {EACH}:\n        for i in range(len(t['boxes'])):\n"
    + "            rows.append(F.l1_loss(o[i], t['boxes'][i]))\n    return torch.stack(rows).mean()",
    "nested": f"    return torch.stack([(o[i] - b).abs().sum() {EACH} for i, b in enumerate(t['boxes'])]).mean()",
    "numbers of rows": '    image = torch.cat([torch.full_like(t["labels"], i) for i, t in enumerate(targets)])\n'
    + '    query = torch.cat([torch.arange(len(t["labels"])) for t in targets])\n'
    + '    return F.l1_loss(outputs["boxes"][image, query], torch.cat([t["boxes"] for t in targets]))',
    "some images": f"    kept = [(o, t) {EACH} if len(t['boxes']) > 1]\n"
    + "    found = torch.cat([o[: len(t['boxes'])] for o, t in kept])\n"
    + "    return F.l1_loss(found, torch.cat([t['boxes'] for _, t in kept]))",
    "moved": "    targets = [{k: v.to('cpu') for k, v in t.items()} for t in targets]\n"
    + JOINED
    + "    return F.l1_loss(found, wanted)",
}


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_over_them_is_that_of_all_ranks(name: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = script(MEANS[name])
    code, said = converted(tmp_path, text)
    assert "AD602" not in said and "AD9" not in said
    assert any(
        each in code for each in ("weigh_by_count(", "mean_count(", "SumOverRanks", "reduce_sum(wanted.numel())")
    )
    assert differences(tmp_path, zygote, text) is None


FUNCTIONS = {
    "errors": (
        "return errors(outputs, targets).mean()",
        f"def errors(outputs, targets):\n    return torch.cat([{ERRORS} {EACH}])\n",
    ),
    "nearest": (
        "pairs = match(outputs, targets)\n"
        "    found = torch.cat([outputs['boxes'][n, i] for n, i in enumerate(pairs)])\n"
        "    return F.l1_loss(found, torch.cat([t['boxes'] for t in targets]))",
        "@torch.no_grad()\ndef match(outputs, targets):\n"
        f"    return [torch.cdist(o, t['boxes']).argmin(0) {EACH}]\n",
    ),
    "a module": (
        "return CRITERION(outputs, targets)",
        "class Criterion(nn.Module):\n    l1 = nn.L1Loss()\n\n"
        "    def forward(self, outputs, targets):\n"
        f"        found = torch.cat([o[: len(t['boxes'])] {EACH}])\n"
        "        return self.l1(found, torch.cat([t['boxes'] for t in targets]))\n\n\nCRITERION = Criterion()\n",
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_modules_that_join_them(name: str, tmp_path: Path, zygote: Zygote | None) -> None:
    loss, function = FUNCTIONS[name]
    text = script(f"    {loss}").replace("def criterion", f"{function}\n\ndef criterion")
    assert "AD602" not in converted(tmp_path, text)[1]
    assert differences(tmp_path, zygote, text) is None


EVEN = {
    "mean of each image": f"    return torch.stack([F.l1_loss(o[: len(t['boxes'])], t['boxes']) {EACH}]).mean()",
    "one row each": f"    return torch.cat([{ERRORS}.mean().view(1) {EACH}]).mean()",
    "an axis each": f"    return torch.cat([{ERRORS}.mean().unsqueeze(0) {EACH}]).mean()",
    "summed": f"    total = 0.0\n    {EACH}:\n        total = total + {ERRORS}.mean()\n    return total / len(targets)",
    "added in place": f"    total = 0\n    {EACH}:\n        total += {ERRORS}.mean()\n    return total / len(targets)",
    "a list of means": f"    losses = [{ERRORS}.mean() {EACH}]\n    return sum(losses) / len(losses)",
    "rows of outputs": '    return torch.cat([o[None] for o in outputs["boxes"]]).pow(2).mean()',
}


@pytest.mark.parametrize("name", EVEN)
def test_one_number_of_each_sample_is_not_weighed(name: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = script(EVEN[name])
    code, said = converted(tmp_path, text)
    assert "AD602" not in said and "weigh_by_count(" not in code
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize(
    "loss",
    [
        "errors.topk(4)[0].mean()",
        "torch.topk(errors, 4).values.mean()",
        "errors.sort(descending=True)[0][: len(errors) // 2].mean()",
        "hardest(errors)",
        "errors.median()",
        "errors.std()",
    ],
)
def test_the_hardest_of_all_are_said_to_be_those_of_a_rank(loss: str, tmp_path: Path) -> None:
    """Rows of which ranks have different numbers are not gathered as if they had the same."""
    function = "def hardest(each):\n    return each.sort(descending=True)[0][: int(0.5 * len(each))].mean()\n\n\n"
    text = script(f"    errors = torch.cat([{ERRORS} {EACH}])\n    return {loss}")
    code, said = converted(tmp_path, text.replace("def criterion", f"{function}def criterion"))
    assert "AD602" in said
    assert "RowsOfAllRanks" not in code


@pytest.mark.parametrize(
    ("collate", "unpacked"),
    [
        ("return batch", "images, targets = torch.stack([b[0] for b in batch]), [b[1] for b in batch]"),
        ("return batch", "images, targets = zip(*batch)\n        images = torch.stack(images)"),
        ("return tuple(zip(*batch))", "images, targets = torch.stack(batch[0]), batch[1]"),
    ],
)
def test_batches_that_are_lists(collate: str, unpacked: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = script(MEANS["two names"]).replace("    images, targets = zip(*batch)\n", "")
    text = text.replace("return torch.stack(images), list(targets)", collate)
    text = text.replace("for images, targets in loader:", f"for batch in loader:\n        {unpacked}")
    assert "weigh_by_count(" in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize("loss", [MEANS["two names"], MEANS["append"], MEANS["over their number"]])
def test_ranks_without_any(loss: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = script(loss).replace("torch.randint(1, 5, (32,))", "torch.arange(32) % 2").replace("shuffle=True, ", "")
    assert differences(tmp_path, zygote, text.replace("batch_size=8", "batch_size=2")) is None


def test_with_parameters_in_shares(tmp_path: Path) -> None:
    code, said = converted(tmp_path, script(MEANS["two names"]), Strategy.FSDP)
    assert "weigh_by_count(F.l1_loss(found, wanted), wanted.numel())" in code
    assert "AD602" not in said


SENTENCES = """\
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
words, tags, lengths = torch.randn(64, 6, 4), torch.randint(0, 3, (64, 6)), torch.randint(1, 7, (64,))
loader = DataLoader(TensorDataset(words, tags, lengths), batch_size=8, shuffle=True)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y, n in loader:
        out = model(x)
{loss}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""


@pytest.mark.parametrize(
    "loss",
    [
        "        flat = torch.cat([out[i, :k] for i, k in enumerate(n)])\n"
        "        loss = F.cross_entropy(flat, torch.cat([y[i, :k] for i, k in enumerate(n)]))",
        "        flat = torch.cat([o[:k] for o, k in zip(out, n.tolist())])\n"
        "        loss = F.cross_entropy(flat, torch.cat([t[:k] for t, k in zip(y, n.tolist())]))",
        "        flat, labels = [], []\n        for i in range(x.size(0)):\n            k = n[i].item()\n"
        "            flat.append(out[i, :k])\n            labels.append(y[i, :k])\n"
        "        loss = F.cross_entropy(torch.cat(flat), torch.cat(labels))",
        "        losses = []\n        for i in range(len(x)):\n            for k in range(int(n[i])):\n"
        "                losses.append(F.cross_entropy(out[i, k], y[i, k]))\n"
        "        loss = torch.stack(losses).mean()",
    ],
)
def test_sentences_cut_to_their_own_lengths(loss: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = SENTENCES.replace("{loss}", loss)
    code, said = converted(tmp_path, text)
    assert "weigh_by_count(" in code and "AD602" not in said
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize(
    "loss",
    [
        "        loss = F.cross_entropy(torch.cat([o for o in out]), torch.cat([t for t in y]))",
        "        loss = F.cross_entropy(torch.cat([out[i, :3] for i in range(len(n))]), y[:, :3].flatten())",
        "        loss = F.cross_entropy(torch.cat([out, model(x + 1)]).flatten(0, 1), torch.cat([y, y]).flatten())",
    ],
)
def test_as_many_of_each_are_not_weighed(loss: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = SENTENCES.replace("{loss}", loss)
    assert "weigh_by_count(" not in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None
