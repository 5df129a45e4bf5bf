"""What an evaluation that is shared out gives is what one process gives, whatever its loop leaves."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared_programs import MEAN_OF_BATCHES, converted_shared, script

from autodist.verify import verify
from autodist.verify.launch import Zygote

LISTS = """\
def evaluate(model, loader):
    model.eval()
    losses, scores, labels = [], [], []
    for x, y in loader:
        with torch.no_grad():
            out = model(x)
        losses.append(F.cross_entropy(out, y).item())
        scores.append(out.softmax(1))
        labels += y.tolist()
    guesses = torch.cat(scores).argmax(1).tolist()
    with open(f"guesses.txt", "w") as file:
        file.write(" ".join(map(str, guesses)))
    print(labels, guesses, torch.cat(scores)[:, 0].sort().values[:3])
    return sum(losses) / len(losses)
"""
COUNTS = """\
def evaluate(model, loader):
    model.eval()
    confusion = torch.zeros(3, 3)
    hits, per_class = [0] * 3, {name: 0 for name in "abc"}
    batches, worst, seen, total = 0, 0.0, 0, 0.0
    with torch.no_grad():
        for i, (x, y) in enumerate(loader):
            guess = model(x).argmax(1)
            confusion += torch.bincount(y * 3 + guess, minlength=9).view(3, 3)
            for a, b in zip(y.tolist(), guess.tolist()):
                hits[a] += a == b
                per_class["abc"[b]] += 1
            loss = F.cross_entropy(model(x), y).item()
            worst = max(worst, loss)
            total += loss * len(x)
            seen += len(x)
            batches += 1
    print(confusion, hits, per_class, batches, worst)
    return total / seen
"""
STATISTICS_OF_BATCHES = """\
@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    total, largest = 0.0, float("-inf")
    for x, y in loader:
        z = (x - x.mean(0)) / (x.std(0) + 1)
        out = model(z)
        total += F.cross_entropy(out, y).item() * (out.max() - out.min()).item()
        largest = max(largest, out.max().item())
    print(largest)
    return total / len(loader)
"""
IN_A_CLASS = """\
class Evaluation:
    def __init__(self, model):
        self.model = model

    @torch.no_grad()
    def run(self, loader):
        self.model.eval()
        self.right = 0
        losses = torch.zeros(1)
        for x, y in loader:
            out = self.model(x)
            if out.sum() > 0:
                self.right += (out.argmax(1) == y).sum().item()
            losses = losses + F.cross_entropy(out, y, reduction="sum")
        return losses.item() / len(loader.dataset)


def evaluate(model, loader):
    evaluation = Evaluation(model)
    loss = evaluation.run(loader)
    print(evaluation.right, loss)
    return loss
"""
IN_LISTS = """\
@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    losses = [F.cross_entropy(model(x), y).item() for x, y in loader]
    print(torch.cat([model(x).argmax(1) for x, _ in loader]), losses)
    return sum(F.cross_entropy(model(x), y) for x, y in loader).item() / len(losses)
"""
CASES = {
    "mean of batches": script(MEAN_OF_BATCHES),
    "fewer batches than ranks": script(MEAN_OF_BATCHES, samples=5),
    "batches that divide": script(MEAN_OF_BATCHES, samples=48),
    "the last batch is dropped": script(MEAN_OF_BATCHES, options=", drop_last=True"),
    "its own collation": script(
        MEAN_OF_BATCHES,
        options=", collate_fn=stacked, num_workers=1",
        imports="""

def stacked(samples):
    xs, ys = zip(*samples)
    return torch.stack(xs) / len(xs), torch.stack(ys)

""",
    ),
    "lists": script(LISTS),
    "lists, some ranks have none": script(LISTS, samples=7),
    "counts": script(COUNTS),
    "counts, some ranks have none": script(COUNTS, samples=7),
    "statistics of batches": script(STATISTICS_OF_BATCHES),
    "in a class": script(IN_A_CLASS),
    "in lists": script(IN_LISTS),
    "in lists, some ranks have none": script(IN_LISTS, samples=7),
}


@pytest.mark.parametrize("text", CASES.values(), ids=CASES)
def test_evaluations_that_are_shared_out_are_exact(text: str, tmp_path: Path, zygote: Zygote | None) -> None:
    after, said = converted_shared(tmp_path, text)
    assert {*said} == {"every rank would evaluate all of the data"}
    assert "in own_share(loader)" in after or "(own_share(loader))" in after
    assert "model.module(" in after
    (tmp_path / "after.py").write_text(after)
    for ranks in (2, 3):
        verdict = verify(
            tmp_path / "train.py", tmp_path / "after.py", [ranks], device="cpu", workdir=tmp_path, zygote=zygote
        )
        world = verdict.worlds[0]
        assert world.equal, (ranks, world.reason, world.findings)


def test_a_share_that_is_wrong_is_seen(tmp_path: Path, zygote: Zygote | None) -> None:
    after, _ = converted_shared(tmp_path, script(MEAN_OF_BATCHES))
    for right, wrong in (("[first:last]", "[first:last - 1]"), ("sum(others, first)", "first")):
        assert right in after
        (tmp_path / "after.py").write_text(after.replace(right, wrong))
        verdict = verify(
            tmp_path / "train.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote
        )
        assert not verdict.worlds[0].equal


def test_by_default_every_rank_evaluates_everything(tmp_path: Path) -> None:
    from conftest import converted

    after, said = converted(tmp_path, script(MEAN_OF_BATCHES))
    assert "own_share" not in after and "AD212" not in said
