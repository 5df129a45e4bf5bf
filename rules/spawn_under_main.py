from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

SPAWNED = """\
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def work(rank, size):
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    mp.spawn(work, args=(2,), nprocs=2)
"""
WRONG = SPAWNED.replace('if __name__ == "__main__":\n    ', "")

EXAMPLES = [
    Example(before=WRONG, after=WRONG),
    Example(before=SPAWNED, after=None),
]


@rule("AD108", of_ranks=True)
def spawn_under_main(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Report processes that are started while the script is imported.

    Of a script that distributes itself: `mp.spawn` starts Python anew, which imports the script first. Without `if
    __name__ == "__main__":` each process would start processes, and Python ends with a RuntimeError.
    """
    yield from raised(script, "AD108")
