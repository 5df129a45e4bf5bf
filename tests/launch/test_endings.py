"""Scripts that join and leave the process group themselves: gloo's threads have a moment before Python ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted, launched

from autodist.config import Strategy

SCRIPT = """\
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    {join}
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    model = DDP(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        {epoch}
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
"""
WAIT = "atexit.register(time.sleep, 0.1)"
JOIN, EPOCH = 'dist.init_process_group("gloo")', "loader.sampler.set_epoch(epoch)"


def script(join: str = JOIN, epoch: str = EPOCH) -> str:
    return SCRIPT.replace("{join}", join).replace("{epoch}", epoch)


@pytest.mark.parametrize(
    "join",
    [
        JOIN,
        "dist.init_process_group()",
        'dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        'dist.init_process_group(backend="cpu:gloo,cuda:nccl")',
        'backend = os.environ.get("BACKEND", "gloo")\n    dist.init_process_group(backend=backend)',
        'if not dist.is_initialized():\n        dist.init_process_group("gloo")',
    ],
)
def test_a_moment_where_something_is_mended(join: str, tmp_path: Path) -> None:
    code, said = converted(tmp_path, script(join, "pass"))
    assert code.count(WAIT) == 1 and said.count("may abort after its end") == 1
    assert code.index("init_process_group") < code.index(WAIT) < code.index("model = ")
    assert converted(tmp_path, code)[0] == code


@pytest.mark.parametrize("join", [JOIN, "dist.init_process_group()"])
def test_nothing_is_said_of_scripts_that_are_right(join: str, tmp_path: Path) -> None:
    code, said = converted(tmp_path, script(join))
    assert code == script(join) and not said


def test_no_moment_for_what_speaks_no_gloo(tmp_path: Path) -> None:
    assert WAIT not in converted(tmp_path, script('dist.init_process_group("nccl")', "pass"))[0]


def test_no_second_moment(tmp_path: Path) -> None:
    text = script(f"{JOIN}\n    {WAIT}", "pass").replace("import os\n", "import atexit\nimport os\nimport time\n")
    assert converted(tmp_path, text)[0].count("sleep") == 1


def test_spawned_ranks_have_one_too(tmp_path: Path) -> None:
    text = script('dist.init_process_group("gloo", rank=rank, world_size=2)').replace("def main():", "def main(rank):")
    text = text.replace(
        'if __name__ == "__main__":\n    main()', 'if __name__ == "__main__":\n    mp.spawn(main, nprocs=2)'
    )
    text = text.replace("from torch import nn\n", "import torch.multiprocessing as mp\nfrom torch import nn\n", 1)
    code, _ = converted(tmp_path, text)
    assert "mp.spawn" not in code and code.count(WAIT) == 1


def test_it_ends_with_0(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, script(JOIN, "pass"))
    (tmp_path / "ranks.py").write_text(code)
    launched(tmp_path, "ranks.py", 2, fresh=True)


def test_the_group_that_is_emitted_has_it(tmp_path: Path) -> None:
    plain = (
        script("pass")
        .replace("DDP(nn.Linear(4, 1))", "nn.Linear(4, 1)")
        .replace("    dist.destroy_process_group()\n", "")
    )
    plain = plain.replace("batch_size=8, sampler=DistributedSampler(data)", "batch_size=8, shuffle=True")
    code, said = converted(tmp_path, plain.replace(EPOCH, "pass"), Strategy.DDP)
    assert code.count("time.sleep, 0.1") == 1 and "may abort" not in said
