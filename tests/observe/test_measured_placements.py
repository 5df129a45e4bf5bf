"""What was measured decides where reading does not know, never by chance, and never in silence."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Autodist

torch = pytest.importorskip("torch")

from autodist import catalog, observations  # noqa: E402
from autodist.config import Config  # noqa: E402
from autodist.convert import convert  # noqa: E402
from autodist.errors import AutodistError  # noqa: E402
from autodist.observations import Measured  # noqa: E402
from autodist.observe.found import ROWS, Occurrences  # noqa: E402
from autodist.observe.joins import Values  # noqa: E402
from autodist.observe.sites import _judged, observed  # noqa: E402
from autodist.placement.measured import anchor  # noqa: E402
from autodist.project import Project  # noqa: E402
from autodist.rule import Severity  # noqa: E402
from autodist.verify import verify  # noqa: E402
from autodist.verify.launch import Zygote  # noqa: E402

LIBRARY = """
import torch
import torch.nn.functional as F

class Gate(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Parameter(torch.zeros(()))
    def forward(self, x): return x + self.gate * x.mean(0)

def attend(x): return torch.tanh(x) * 2
def mix(x): return x - x.mean(0)
def mix_dead(x): return torch.cat([x[:, :1] - x[:, :1].mean(), x[:, 1:]], 1)
def each(z, y): return F.cross_entropy(z, y, reduction="none")
def mean(z, y): return F.cross_entropy(z, y)
def total(z, y): return F.cross_entropy(z, y, reduction="sum")
def weighted(z, y): return F.cross_entropy(z, y, weight=torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=z.dtype))
def ignoring(z, y): return F.cross_entropy(z, y, ignore_index=9)
def hardest(z, y): return F.cross_entropy(z, y, reduction="none").topk(len(z) // 2 or 1).values.mean()
def both(z, y): return F.cross_entropy(z, y), (z.argmax(1) == y).double().mean()
def ten(z): return 10.5
def sorts(z): return z[z[:, 0].argsort()]
"""
HEAD = """
import os
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.insert(0, os.environ["LIBRARIES"])
import mystery

torch.manual_seed(0)
x, y = torch.randn(48, 8), torch.randint(4, (48,))
train_loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
"""
LOOP = """
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for bx, by in train_loader:
    optimizer.zero_grad()
    loss = net(bx, by)
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
NET = """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x, y):
        h = self.first(x)
        {body}

"""
MANY = HEAD + """
net, zero, gate = nn.Linear(8, 4), nn.Linear(8, 4), mystery.Gate()
nn.init.zeros_(zero.weight)
optimizer = torch.optim.SGD([*net.parameters(), *gate.parameters()], lr=0.1)
for bx, by in train_loader:
    optimizer.zero_grad()
    z = net(bx)
    dead = torch.relu(torch.cat([z[:, :1] - 1e6, z[:, 1:] + 1e6], 1))
    loss = mystery.each(z, by).mean()
    loss.backward()
    optimizer.step()
    print(mystery.attend(z).mean(), mystery.mix(z).pow(2).mean(), mystery.mix_dead(dead).sum())
    print(mystery.mix(torch.softmax(zero(bx), 1) + 1).sum(), mystery.mean(zero(bx) - zero(bx), by))
    print(mystery.ten(z), mystery.total(z, by), mystery.weighted(z, by), mystery.both(z, by), gate(z).mean())
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A library whose code is not followed."""
    folder = tmp_path_factory.mktemp("libraries")
    (folder / "mystery.py").write_text(LIBRARY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LIBRARIES", str(folder))
        yield folder


def measured(folder: Path, script: str, zygote: Zygote | None) -> tuple[Project, list[Measured]]:
    """A project, and what runs of it tell."""
    (folder / "train.py").write_text(script)
    project = Project.load(folder / "train.py")
    return project, observed(project, catalog.load(), zygote=zygote, workdir=folder)


@pytest.fixture(scope="module")
def many(library: Path, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote | None) -> dict[str, Measured]:
    """What is kept of a script with many sites, by expression."""
    return {each.expression: each for each in measured(tmp_path_factory.mktemp("many"), MANY, zygote)[1]}


LIES = {
    "mystery.each(z, by)": "the ranks' rows joined along axis 0",
    "mystery.attend(z)": "the ranks' rows joined along axis 0",
    "mystery.mix(z)": "mixes their samples",
    "mystery.total(z, by)": "the sum over the ranks",
    "mystery.weighted(z, by)": "weighted by what nll_loss_forward counts",
    "mystery.both(z, by)": "the mean over the ranks, weighted by their numbers of samples",
}


@pytest.mark.parametrize("expression", LIES)
def test_what_is_told(many: dict[str, Measured], expression: str) -> None:
    assert LIES[expression] in str(many[expression])


def test_a_weight_that_begins_at_zero_is_moved(many: dict[str, Measured]) -> None:
    """`gate(z)` leaves samples apart at first, and mixes them as soon as it has learnt."""
    assert many["gate(z)"].lies == "mixed"


NOT_TOLD = {
    "a unit that is dead": "mystery.mix_dead(dead)",
    "a head that is zero in all runs": "mystery.mix(torch.softmax(zero(bx), 1) + 1)",
    "a loss that is the same everywhere": "mystery.mean(zero(bx) - zero(bx), by)",
    "a number that never differs": "mystery.ten(z)",
}


@pytest.mark.parametrize("why", NOT_TOLD)
def test_what_is_the_same_by_chance_tells_nothing(many: dict[str, Measured], why: str) -> None:
    assert NOT_TOLD[why] not in many


def judged(*occurrences: tuple[Any, ...], rounds: tuple[int, ...] = (0, 1)) -> object:
    """What is concluded from a whole value and those of shares of 7, 5 and 3 samples, each time."""
    values = [Values(whole, shares, {ROWS: (7.0, 5.0, 3.0)}) for whole, shares in _told(occurrences)]
    return _judged(Occurrences(values, [(15, 7, 5, 3)] * len(values), [*rounds]))


def _told(occurrences: tuple[tuple[Any, ...], ...]) -> Iterator[Any]:
    for whole, *shares in occurrences:
        yield whole, tuple(shares)


def rows(value: Any, axis: int = 0) -> tuple[Any, ...]:
    """A value, and its shares."""
    return value, *value.split([7, 5, 3], axis)


def test_numbers_that_never_differ() -> None:
    table, same = torch.randn(15, 3, dtype=torch.float64), torch.ones(15, 1, dtype=torch.float64)
    assert judged(rows(table), rows(table + 1)) == ("rows", 0, 2, "")
    assert judged(rows(table.t(), 1), rows(table.t() + 1, 1)) == ("rows", 1, 2, "")
    assert judged(rows(torch.cat([table, same], 1)), rows(torch.cat([table, same], 1))) is None
    assert judged(rows(same.flatten()), rows(same.flatten())) is None
    assert judged((0.5, 0.5, 0.5, 0.5), (0.7, 0.7, 0.7, 0.7)) is None
    assert judged(rows(table / 0), rows(table / 0)) is None


def test_one_occurrence_tells_nothing() -> None:
    table = torch.randn(15, 3)
    assert judged(rows(table), rounds=(0,)) is None
    assert (
        judged(rows(table), rows(table), (1.0, 1.0, 1.0, 1.0), rounds=(0, 0, 1)) is None
    ), "the second round tells not"


def test_other_numbers_of_rows_are_not_rows_of_samples() -> None:
    values = torch.randn(30)
    parts = values, *values.split([14, 10, 6])
    assert judged(parts, parts) is None, "two for each sample"


MEANS = {
    "a sum in a model": "return mystery.total(self.out(h), y)",
    "weights of classes in a model": "return mystery.weighted(self.out(h), y)",
    "the hardest samples": "return mystery.hardest(self.out(h), y)",
    "a loss for each sample": "return mystery.each(self.out(mystery.attend(h)), y).sum()",
    "a loss and a number": "return mystery.both(self.out(h), y)[0]",
}


@pytest.mark.parametrize("name", MEANS)
def test_conversions_are_equal(name: str, library: Path, tmp_path: Path, zygote: Zygote | None) -> None:
    project, kept = measured(tmp_path, HEAD + NET.format(body=MEANS[name]) + LOOP, zygote)
    result = convert(project, Config(measured=tuple(kept)))
    assert not {each.code for each in result.diagnostics if each.severity is Severity.WARNING} - {"AD612"}
    (tmp_path / "after.py").write_text(result.entry.after)
    verdict = verify(tmp_path / "train.py", tmp_path / "after.py", [2], device="cpu", workdir=tmp_path, zygote=zygote)
    assert verdict.equal, verdict.worlds[0].reason


def test_what_mixes_is_said(library: Path, tmp_path: Path, zygote: Zygote | None) -> None:
    """Reading takes what libraries compute in a model to leave samples apart, and says nothing of it."""
    body = NET.format(body="return F.cross_entropy(self.out(mystery.sorts(h)), y)")
    project, kept = measured(tmp_path, HEAD + body + LOOP, zygote)
    assert not [each for each in convert(project, Config()).diagnostics if each.severity is Severity.WARNING]
    (told,) = [e for e in convert(project, Config(measured=tuple(kept))).diagnostics if e.severity is Severity.WARNING]
    assert (
        told.code == "AD602" and "mystery.sorts(h) mixes the samples of a batch, as measured (sort at" in told.message
    )


def test_labels_that_do_not_occur_are_not_forgotten(library: Path, tmp_path: Path, zygote: Zygote | None) -> None:
    """No label is left out in the steps that are measured: the loss passes for a mean, and a warning stays."""
    project, kept = measured(tmp_path, HEAD + NET.format(body="return mystery.ignoring(self.out(h), y)") + LOOP, zygote)
    (one,) = (each for each in kept if each.operation == "mystery.ignoring")
    assert (one.lies, one.weight) == ("mean", "")
    before = [e.code for e in convert(project, Config()).diagnostics if e.severity is Severity.WARNING]
    after = [e for e in convert(project, Config(measured=tuple(kept))).diagnostics if e.severity is Severity.WARNING]
    assert before == ["AD602"] and [e.code for e in after] == ["AD612"]
    assert "what it does on other samples is not known" in after[0].message


def test_what_is_exact_without_stays(library: Path, tmp_path: Path, zygote: Zygote | None) -> None:
    """Outside of a model the rows of all ranks are gathered, whatever a function does with them."""
    loop = LOOP.replace("net = Net()", "net = nn.Linear(8, 4)").replace("net(bx, by)", "mystery.ignoring(net(bx), by)")
    project, kept = measured(tmp_path, HEAD + loop, zygote)
    plain, told = convert(project, Config()), convert(project, Config(measured=tuple(kept)))
    assert "mystery.ignoring(RowsOfAllRanks.apply(net(bx))" in plain.entry.after
    assert told.entry.after == plain.entry.after and told.diagnostics == plain.diagnostics


UNREAD = HEAD + NET.format(body="return mystery.ignoring(self.out(h), y)") + LOOP


def test_kept_observations(library: Path, autodist: Autodist, warm: None) -> None:
    Path("train.py").write_text(UNREAD)
    first = autodist("convert", "train.py", "--observe", "--observations", "kept.json", "--diff")
    assert "AD612 mystery.ignoring(self.out(h), y) is " in first.output
    assert "reduce_mean" in first.output and first.exit_code == 1
    kept = Path("kept.json").read_text()
    again = autodist("convert", "train.py", "--observations", "kept.json", "--diff")
    assert again.output == first.output[first.output.index("--- a/train.py") :]
    Path("pyproject.toml").write_text('[tool.autodist]\nobservations = "kept.json"\n')
    assert autodist("convert", "train.py", "--diff").output == again.output, "as a hook does"
    Path("train.py").write_text(UNREAD.replace("import mystery", "import mystery, math"))
    assert "AD612" in autodist("convert", "train.py", "--diff").output, "another line has changed"
    Path("train.py").write_text(UNREAD.replace("import mystery\n", "import misery as mystery\n"))
    assert "AD612" not in autodist("convert", "train.py", "--diff").output, "the same text, and another library"
    Path("train.py").write_text(UNREAD.replace("out(h), y)", "out(h) * 1, y)"))
    stale = autodist("convert", "train.py", "--diff").output
    said = "kept.json: changed since it was measured, and ignored: train.py:"
    assert said in stale and "AD612" not in stale and "AD602" in stale
    assert Path("kept.json").read_text() == kept
    for text in ("no json", "{}", '{"version": 1, "observations": [{"lies": "by chance"}]}'):
        Path("kept.json").write_text(text)
        wrong = autodist("convert", "train.py", "--diff")
        assert wrong.exit_code == 2 and "kept.json: holds no observations" in wrong.output


def test_other_operands_are_not_measured(library: Path, tmp_path: Path, zygote: Zygote | None) -> None:
    project, kept = measured(tmp_path, UNREAD, zygote)
    other = [replace(each, given=("sharded along axis 1; sharded along axis 0",)) for each in kept]
    assert "AD612" in {each.code for each in convert(project, Config(measured=tuple(kept))).diagnostics}
    assert "AD612" not in {each.code for each in convert(project, Config(measured=tuple(other))).diagnostics}


LOSSES = HEAD + NET.format(body="return self.out(h)") + LOOP.replace("net(bx, by)", "F.cross_entropy(net(bx, by), by)")


@pytest.mark.parametrize(
    ("lies", "weight", "fault"), [("sum", "", True), ("mean", "labels", True), ("mean", "", False)]
)
def test_reading_that_differs_is_a_fault(lies: str, weight: str, fault: bool, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(LOSSES)
    project = Project.load(tmp_path / "train.py")
    calls = (each for each in project.entry.parents if isinstance(each, ast.Call))
    (loss,) = (each.func.value for each in calls if getattr(each.func, "attr", "") == "backward")  # type: ignore[attr-defined]
    digest, place = anchor(project.entry, loss)
    told = Measured("train.py", loss.lineno, "loss", digest, place, "", lies, weight=weight, occurrences=6, steps=3)
    found = [e for e in convert(project, Config(measured=(told,))).diagnostics if e.code == "AD602"]
    assert len(found) == fault
    for each in found:
        assert each.message.startswith(f"loss is measured to be {told}, and reading takes it for `mean`: a fault of")
        assert each.severity is Severity.WARNING


def test_all_is_compared(library: Path, tmp_path: Path, zygote: Zygote | None) -> None:
    """Where reading and measuring say the same, nothing is kept, and nothing said."""
    (tmp_path / "train.py").write_text(LOSSES)
    project = Project.load(tmp_path / "train.py")
    assert not observed(project, catalog.load(), everything=True, zygote=zygote, workdir=tmp_path)


def test_verify_tries_what_is_measured(library: Path, autodist: Autodist, warm: None) -> None:
    """Reading prints a mean of sums, since it does not know what `each` gives: measured, the sum is printed."""
    Path("train.py").write_text(
        HEAD
        + NET.format(body="return mystery.each(self.out(h), y)")
        + LOOP.replace("net(bx, by)", "net(bx, by).sum() / 16")
    )
    result = autodist("convert", "train.py", "--verify", "--output", "out.py")
    assert result.exit_code == 0, result.output
    assert "DIFFERS on 2 ranks" in result.output and "EQUAL on 2 ranks" in result.output
    assert "as it is read, then as it was measured: the last one is equal" in result.output
    assert "reduce_sum(loss.item())" in Path("out.py").read_text()


def test_verify_says_what_was_tried(library: Path, autodist: Autodist, warm: None) -> None:
    Path("train.py").write_text(HEAD + NET.format(body="return F.cross_entropy(self.out(mystery.sorts(h)), y)") + LOOP)
    result = autodist("convert", "train.py", "--verify", "--output", "out.py")
    assert result.exit_code == 1 and not Path("out.py").exists()
    assert "mystery.sorts(h) mixes the samples of a batch, as measured" in result.output
    assert "tried: as it is read" in result.output


def test_what_cannot_be_measured(library: Path, autodist: Autodist, warm: None) -> None:
    Path("train.py").write_text(UNREAD.replace("print(loss.item())", "raise RuntimeError('no')"))
    result = autodist("convert", "--observe", "train.py")
    assert result.exit_code == 2 and "fails: RuntimeError: no" in result.output
    with pytest.raises(AutodistError, match="cannot be read"):
        observations.read(Path("missing.json"))
    assert "LIBRARIES" in os.environ
