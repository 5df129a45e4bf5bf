"""How often a project is interpreted: what is planned on the program graph needs no run of its own."""

from __future__ import annotations

from pathlib import Path

import conftest
import pytest

from autodist.config import Strategy
from autodist.interpreter import Interpreter

PRINTED = "        total = loss.item()\n    print(total)\n"
STOPPED = "        total = loss.item()\n    if total < 0.01:\n        break\n"
WEIGHED = "nn.functional.cross_entropy(model(x), y.long()[:, 0], ignore_index=0)"


def runs(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, strategy: Strategy = Strategy.DDP) -> int:
    """How many runs of the interpreter a conversion takes."""
    run, found = Interpreter.run, list[Interpreter]()

    def counted(self: Interpreter) -> Interpreter:
        found.append(self)
        return run(self)

    monkeypatch.setattr(Interpreter, "run", counted)
    after, _ = conftest.converted(folder, text, strategy)
    assert ("DistributedDataParallel" if strategy is Strategy.DDP else "fully_shard") in after
    return len(found)


@pytest.mark.parametrize(("behind", "reduced"), [("", False), (PRINTED, True), (STOPPED, True)])
def test_what_is_reported_takes_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: str, reduced: bool
) -> None:
    """One run as the script is, and one with its wrappers, whatever is reduced for prints and tests."""
    step = "        nn.functional.mse_loss(model(x), y).backward()\n        optimizer.step()\n"
    text = conftest.SCRIPT.replace(step, f"        loss = nn.functional.mse_loss(model(x), y)\n{step}{behind}")
    assert step in text and (text != conftest.SCRIPT)
    assert runs(tmp_path, text, monkeypatch) == 2
    assert ("reduce_mean(" in conftest.converted(tmp_path, text)[0]) is reduced


DICE = "(1 - 2 * (model(x) * y).sum() / (model(x).sum() + y.sum()))"
PAIRED = "(model(x) @ y.t()).logsumexp(1).mean()"


@pytest.mark.parametrize(
    ("loss", "written"), [(WEIGHED, "weigh_by_count("), (DICE, "SumOverRanks"), (PAIRED, "RowsOfAllRanks")]
)
def test_nor_does_what_losses_are_computed_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: str, written: str
) -> None:
    """Means that are weighed, sums that are joined and rows that are gathered had each asked for one more."""
    text = conftest.SCRIPT.replace("nn.Linear(4, 1)", "nn.Linear(4, 3)" if loss is WEIGHED else "nn.Linear(4, 1)")
    text = text.replace("nn.functional.mse_loss(model(x), y)", loss)
    assert runs(tmp_path, text, monkeypatch) == 2
    assert written in conftest.converted(tmp_path, text)[0]


TESTED = """\
with torch.no_grad():
    for x, y in DataLoader(data, batch_size=8):
        print(nn.functional.mse_loss(model(x), y).item())
"""
OF_LIBRARY = "model.module if hasattr(model, 'module') else model"


@pytest.mark.parametrize("behind", ["", TESTED, f"torch.save(({OF_LIBRARY}).state_dict(), 'net.pt')\n"])
def test_parts_of_models_take_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: str) -> None:
    """Nothing wraps these, and whether an evaluation has all data, or a rank its share, changes placements only."""
    assert runs(tmp_path, conftest.SCRIPT + behind, monkeypatch, Strategy.FSDP) == 1


POINTS = conftest.SCRIPT.replace(
    "        nn.functional.mse_loss(model(x), y).backward()\n",
    """\
        at = torch.rand(8, 4, requires_grad=True)
        slope = torch.autograd.grad(model(at).sum(), at, create_graph=True)[0]
        (nn.functional.mse_loss(model(x), y) + slope.pow(2).mean()).backward()
""",
)


def test_nor_do_points_that_a_loss_is_derived_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "requires_grad" in POINTS and runs(tmp_path, POINTS, monkeypatch) == 2
