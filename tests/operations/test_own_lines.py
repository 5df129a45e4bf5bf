"""A function with a line in [tool.autodist.operations] is converted as a function of torch with that line is."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Autodist

from autodist import catalog
from autodist.catalog import ANY_GENERATOR

FUNCTIONS = """
torch.cdist torch.cat torch.softmax torch.exp torch.mean torch.sum torch.cumsum torch.sort torch.where torch.bincount
torch.var torch.norm torch.zeros_like torch.full torch.arange torch.randn_like
torch.nn.functional.cross_entropy torch.nn.functional.mse_loss torch.nn.functional.l1_loss torch.nn.functional.normalize
torch.nn.functional.binary_cross_entropy_with_logits torch.nn.functional.nll_loss torch.nn.functional.batch_norm
torch.nn.functional.dropout torch.nn.functional.softplus
""".split()

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
import mylib
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)), torch.rand(64, 3)), batch_size=8)
weight = torch.tensor([1.0, 2.0, 3.0])
kept = torch.zeros(8, 3)
for epoch in range(3):
    total = 0.0
    for x, labels, targets in loader:
        optimizer.zero_grad()
        out = model(x)
        LOSS
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total)
"""
CASES = {
    "counts": "loss = F.cross_entropy(out, labels, ignore_index=1)",
    "classes": "loss = F.cross_entropy(out, labels, weight=weight)",
    "logits": "loss = F.nll_loss(F.log_softmax(out, 1), labels, weight)",
    "sums": "loss = F.mse_loss(out, targets, reduction='sum')",
    "each": "loss = F.l1_loss(out, targets, reduction='none').sum()",
    "dice": "p = out.sigmoid(); loss = 1 - 2 * torch.sum(p * targets) / (torch.sum(p) + torch.sum(targets))",
    "pairs": "loss = torch.mean(torch.cdist(out, out))",
    "normal": "z = F.normalize(out, dim=1); loss = F.cross_entropy(z @ z.t(), torch.arange(len(z)))",
    "behind": "loss = torch.sum(torch.cdist(torch.cat((out, targets)), targets)) / 8",
    "along": "loss = F.mse_loss(torch.softmax(out, 0), targets)",
    "ordered": "loss = torch.mean(torch.cumsum(torch.sort(out[:, 0])[0], 0))",
    "spread": "loss = F.mse_loss(out, targets) + torch.var(out)",
    "long": "loss = torch.norm(out)",
    "weights": "loss = torch.mean(F.softplus(out) * torch.bincount(labels, minlength=3))",
    "masked": "loss = torch.mean(torch.where(targets > 0.5, torch.exp(out), torch.zeros_like(out)))",
    "whole": "loss = F.binary_cross_entropy_with_logits(out, torch.full((8, 3), 0.5))",
    "noise": "loss = F.mse_loss(out + torch.randn_like(out), targets)",
    "dropped": "loss = F.mse_loss(F.dropout(out), targets)",
    "batch": "loss = F.mse_loss(F.batch_norm(out, None, None, training=True), targets)",
    "told": "loss = torch.mean(torch.exp(out)); torch.sum(out); print(torch.norm(out).item())",
    "kept": "loss = torch.mean(F.softplus(out)); kept = torch.cat((kept, out.detach()))[-8:]; print(torch.mean(kept))",
}


@pytest.mark.parametrize("case", CASES)
def test_an_own_function_is_converted_as_one_of_torch(autodist: Autodist, tmp_path: Path, case: str) -> None:
    own = theirs = CASES[case]
    lines = ["[tool.autodist.operations]"]
    for name in FUNCTIONS:
        short = name.rpartition(".")[2]
        called, ours = f"{name.replace('torch.nn.functional', 'F')}(", f"mylib.{short}("
        if called in own:
            own = own.replace(called, ours)
            lines.append(f'"mylib.{short}" = "as {name}"')

    def changes(loss: str) -> str:
        """What is changed below the helpers, which take numbers as well as tensors where a library gives either."""
        (tmp_path / "train.py").write_text(SCRIPT.replace("LOSS", loss))
        (tmp_path / "pyproject.toml").write_text("\n".join(lines))
        result = autodist("convert", "train.py", "--diff", "--quiet")
        assert result.exit_code == 0, result.stderr
        return "\n".join(line for line in result.stdout.partition("\n+model = ")[2].splitlines() if line[:1] in "+-")

    text = changes(own)
    for line in lines[1:]:
        ours, name = line.replace('"', "").replace("as ", "").split(" = ")
        text = text.replace(f"{ours}(", f"{name.replace('torch.nn.functional', 'F')}(")
    assert own != theirs and text == changes(theirs)


@pytest.mark.parametrize(
    ("line", "drawn"),
    [
        ("as torch.exp", frozenset()),
        ("per_sample", ANY_GENERATOR),  # it may augment each sample
        ("random_like", ANY_GENERATOR),
        ("as torch.nn.functional.dropout", ANY_GENERATOR),
    ],
)
def test_what_an_own_function_may_draw_from(line: str, drawn: frozenset[str]) -> None:
    assert catalog.load(own_operations={"mylib.vary": line}).draws("mylib.vary") == drawn
