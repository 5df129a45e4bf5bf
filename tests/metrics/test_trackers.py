"""Writers that only rank 0 has, in the shapes in which scripts hold and call them."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, launched

SCRIPT = """\
import logging
import matplotlib.pyplot as plt
import torch
from tensorboard_logger import Logger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm
from visdom import Visdom


class Tracker:
    def __init__(self, wanted=True):
        self.writer = SummaryWriter("runs") if wanted else None
        self.windows = {{}}

    def add(self, name, value):
        if self.writer is not None:
            self.writer.add_scalar(name, value)

    def __getattr__(self, name):
        return getattr(self.writer, name)


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tracker = Tracker()
logger = Logger("runs")
window = Visdom()
options = dict(leave=False, disable=False)
for x, y in tqdm(loader, **options):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{after}
"""
GUARD = "if dist.get_rank() == 0:\n"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("tracker.add_histogram('weight', model.weight)", f"{GUARD}    tracker.add_histogram("),
        ("shown = window.line(model.bias)", f"{GUARD}    shown = window.line("),
        ("picture = plt.imsave('a.png', x)", f"{GUARD}    picture = plt.imsave("),
        ("logger.log_value('a', 1.0)", f"{GUARD}    logger.log_value("),
        (
            "tracker.add('loss', loss.item())",
            "        mean_value = reduce_mean(value)\n        if self.writer is not None and dist.get_rank() == 0:\n",
        ),
        ("print('done')", "for x, y in tqdm(loader, **options):"),
    ],
)
def test_what_rank_0_alone_writes(tmp_path: Path, after: str, expected: str) -> None:
    """Other ranks have no writer to call, and no branch to come to for a collective."""
    assert expected in converted(tmp_path, SCRIPT.format(after=after))[0]


@pytest.mark.parametrize("kind", ["FileHandler", "handlers.RotatingFileHandler", "handlers.TimedRotatingFileHandler"])
def test_a_log_file_that_is_opened_first(tmp_path: Path, kind: str) -> None:
    opened = f"import logging.handlers\nhandler = logging.{kind}('log.txt')\n"
    text = SCRIPT.format(after="").replace("loader = ", f"{opened}loader = ", 1)
    code, _ = converted(tmp_path, text)
    assert code.index("\nsetup_distributed()") < code.index(f"logging.{kind}('log.txt' if dist.get_rank() == 0")


def test_what_is_computed_where_a_writer_is(tmp_path: Path) -> None:
    """Other ranks do not come there: models are called above, and what has no name above is warned of."""
    step = (
        "    if tracker.writer is not None:\n"
        "        error = (model(x) - y).abs().mean()\n"
        "        tracker.writer.add_scalar('error', error.item())"
    )
    code, said = converted(tmp_path, SCRIPT.format(after=step))
    assert "    output = model(x)\n    if tracker.writer is not None:\n        error = (output - y)" in code
    assert "reduce_mean" not in code
    assert "AD601 rank 0 reports error.item(), which covers only its own samples" in said


@pytest.mark.parametrize(
    ("step", "asked"),
    [
        (
            "    if tracker.writer and x.dim() == 2:\n        tracker.writer.add_scalar('a', loss.item())",
            "if on_any_rank(tracker.writer) and x.dim() == 2:\n        mean_loss = reduce_mean(loss.item())\n",
        ),
        (
            "    if x.dim() == 2 and tracker.writer is not None:\n        tracker.writer.add_scalar('a', loss.item())",
            "if x.dim() == 2 and as_on_rank_zero(tracker.writer is not None):\n        mean_loss = reduce_mean(",
        ),
        (
            "    if tracker.writer is None:\n        continue\n    tracker.writer.add_scalar('a', loss.item())",
            "if as_on_rank_zero(tracker.writer is None):\n        continue\n    mean_loss = reduce_mean(loss.item())",
        ),
        (
            "    if not tracker.writer:\n        break\n    tracker.writer.add_scalar('a', loss.item())",
            "if not on_any_rank(tracker.writer):\n        break\n    mean_loss = reduce_mean(loss.item())",
        ),
        (
            "    if tracker.writer:\n        if x.dim() == 2:\n            shown = model(x).abs().mean()\n"
            "            tracker.writer.add_scalar('shown', shown.item())",
            "if on_any_rank(tracker.writer):\n        if x.dim() == 2:\n            shown = model(x).abs().mean()\n",
        ),
    ],
)
def test_all_ranks_come_where_one_has_a_writer(tmp_path: Path, step: str, asked: str) -> None:
    """They would not come to what all compute together there: `if writer and step % 100 == 0`."""
    assert asked in converted(tmp_path, SCRIPT.format(after=step))[0]


def test_a_log_of_its_own_that_returns_early(tmp_path: Path) -> None:
    text = SCRIPT.format(after="log(tracker.writer, loss)")
    text = text.replace(
        "loader = ",
        "def log(writer, value):\n    if writer is None:\n        return\n"
        "    writer.add_scalar('loss', value.item())\n\n\nloader = ",
        1,
    )
    code, _ = converted(tmp_path, text)
    assert "    if as_on_rank_zero(writer is None):\n        return\n    mean_value = reduce_mean(value.item())" in code


def test_where_no_rank_waits_for_another(tmp_path: Path) -> None:
    step = "    if tracker.writer and x.dim() == 2:\n        tracker.writer.add_scalar('step', 1)"
    code, _ = converted(tmp_path, SCRIPT.format(after=step))
    assert "if tracker.writer and x.dim() == 2 and dist.get_rank() == 0:" in code


RUNS = """\
import aim
import mlflow
import neptune
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{made}
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{after}
"""
MEAN = "mean_loss = reduce_mean(loss.item())\n"


@pytest.mark.parametrize(
    ("made", "after", "expected"),
    [
        ("run = aim.Run()", "run.track(loss.item(), name='loss')", f"{MEAN}{GUARD}    run.track(mean_loss, name="),
        ("run = neptune.init_run()", "run['a'].append(loss.item())", f"{MEAN}{GUARD}    run['a'].append(mean_loss)"),
        ("run = neptune.init_run()", "run['a'] = loss.item()", f"{MEAN}{GUARD}    run['a'] = mean_loss"),
        ("mlflow.start_run()", "mlflow.log_metric('a', loss.item())", f"{MEAN}{GUARD}    mlflow.log_metric('a', mean"),
        (
            "",
            "with mlflow.start_run() as run:\n    mlflow.log_metric('a', 1)",
            f"with mlflow.start_run() if dist.get_rank() == 0 else contextlib.nullcontext() as run:\n    {GUARD}    ",
        ),
    ],
)
def test_runs_that_rank_0_alone_has(tmp_path: Path, made: str, after: str, expected: str) -> None:
    assert expected in converted(tmp_path, RUNS.format(made=made, after=after))[0]


ALONE = "mlflow.start_run() if dist.get_rank() == 0 else {}"
ENTERED = {
    "kept": ("run = mlflow.start_run()", "with run as active:\n    mlflow.log_metric('a', 1)"),
    "chosen": (
        "run = mlflow.start_run() if torch.__version__ else contextlib.nullcontext()",
        "with run:\n    mlflow.log_metric('a', 1)",
    ),
    "handed on": (
        "def start():\n    return mlflow.start_run()\n",
        "with start() as active:\n    mlflow.log_metric('a', 1)",
    ),
    "held by an object": (
        "class Tracked:\n    def __init__(self):\n        self.run = mlflow.start_run()\n\n\ntracked = Tracked()",
        "with tracked.run:\n    mlflow.log_metric('a', 1)",
    ),
    "on a stack": (
        "stack = contextlib.ExitStack()\nrun = stack.enter_context(mlflow.start_run())",
        "mlflow.log_metric('a', 1)\nstack.close()",
    ),
}
STAND_IN = """\
class Run:
    def __enter__(self):
        return self

    def __exit__(self, *of_exception):
        pass


def start_run():
    with open("runs.txt", "a") as file:
        file.write("run ")
    return Run()


def log_metric(name, value):
    with open("runs.txt", "a") as file:
        file.write(f"{name} {value} ")
"""


@pytest.mark.parametrize(("made", "after"), ENTERED.values(), ids=ENTERED)
def test_a_run_that_is_entered_elsewhere(tmp_path: Path, made: str, after: str) -> None:
    """The other ranks entered None."""
    script = RUNS.format(made=made, after=after).replace("import aim\n", "import contextlib\n")
    code, _ = converted(tmp_path, script.replace("import neptune\n", ""))
    assert ALONE.format("contextlib.nullcontext()") in code
    (tmp_path / "mlflow.py").write_text(STAND_IN)
    (tmp_path / "after.py").write_text(code)
    launched(tmp_path, "after.py", 2)
    assert (tmp_path / "runs.txt").read_text() == "run a 1 "


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("mlflow.start_run()", f"{GUARD}    mlflow.start_run()"),
        ("run = mlflow.start_run()", f"run = {ALONE.format('None')}"),
        ("runs = [mlflow.start_run()]", f"runs = [{ALONE.format('None')}]"),
    ],
)
def test_a_run_that_nothing_enters(tmp_path: Path, made: str, expected: str) -> None:
    assert expected in converted(tmp_path, RUNS.format(made=made, after="mlflow.log_metric('a', 1)"))[0]


def test_what_all_ranks_ask_of_a_writer(tmp_path: Path) -> None:
    """They need the folder that rank 0 has, but not where rank 0 alone writes a file there."""
    after = (
        'board = SummaryWriter()\nlogging.basicConfig(filename=board.log_dir + "/a.log")\n'
        'logging.info(f"saved below {board.log_dir}")\nboard.add_text("folder", board.log_dir)\n'
    )
    code, _ = converted(tmp_path, SCRIPT.format(after=after))
    assert 'filename=board.log_dir + "/a.log" if dist.get_rank() == 0 else os.devnull' in code
    assert 'f"saved below {as_on_rank_zero(board and board.log_dir)}"' in code
    assert 'board.add_text("folder", board.log_dir)' in code


def test_a_plot_that_all_ranks_look_up(tmp_path: Path) -> None:
    """They would take different branches if rank 0 alone knew that it is there."""
    after = (
        "plots = {}\nfor i in range(2):\n    if 'loss' not in plots:\n"
        "        plots['loss'] = window.line(Y=[loss.item()], X=[i])\n    else:\n"
        "        window.line(Y=[loss.item()], X=[i], win=plots['loss'], update='append')\n"
    )
    code, _ = converted(tmp_path, SCRIPT.format(after=after))
    made = "plots['loss'] = as_on_rank_zero(window.line(Y=mean_loss, X=[i]) if dist.get_rank() == 0 else None)"
    assert made in code or made.replace("mean_loss", "[mean_loss]") in code, code


SHOWN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

writer = SummaryWriter()
probe = torch.randn(16, 4)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if writer:
{shown}
"""


def test_a_preview_where_a_writer_is(tmp_path: Path) -> None:
    """Two rules rewrite the same call."""
    shown = "        shown = model(probe).detach()\n        writer.add_histogram('out', shown)"
    code, _ = converted(tmp_path, SHOWN.format(shown=shown))
    assert "    output = share_rows(model, probe)\n    if writer:\n        shown = output.detach()\n" in code


def test_a_preview_now_and_then_where_a_writer_is(tmp_path: Path) -> None:
    """Ahead of the condition it would be made each time, and counted by batch normalisation."""
    shown = (
        "        if epoch % 5 == 0:\n            shown = model(probe).detach()\n"
        "            writer.add_histogram('out', shown)"
    )
    code, _ = converted(tmp_path, SHOWN.format(shown=shown))
    assert "if on_any_rank(writer):\n        if epoch % 5 == 0:\n            shown = share_rows(model, probe)" in code
