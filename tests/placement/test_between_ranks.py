"""What ranks have of their own, and what collectives make of it."""

from __future__ import annotations

import pytest
from test_programs import COUNT, HEAD, MEAN, lies

from autodist.placement import PerRank, Placement, Replicate, Shard

IMPORTS = "import os\nimport torch.distributed as dist\n"
MEAN_OF = """\
def mean(v):
    if not dist.is_initialized():
        return v
    t = v.clone()
    dist.all_reduce(t)
    return t
"""


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("result = F.cross_entropy(out, y)\ndist.all_reduce(result)", Replicate()),
        ("result = F.cross_entropy(out, y).clone()\ndist.all_reduce(result)\nresult = result + 0", Replicate()),
        ("result = torch.tensor(float(len(x)))\nif epoch:\n    dist.all_reduce(result)", Replicate()),
        ("def total(v):\n    dist.all_reduce(v)\nresult = (out.argmax(1) == y).sum()\ntotal(result)", Replicate()),
        (MEAN_OF + "result = mean(F.mse_loss(out, out))", Replicate()),
        ("result = torch.zeros(1)\ndist.scatter(result, None)", PerRank),
        ("result = dist.get_rank() + 1", PerRank),
        ("result = int(os.environ['LOCAL_RANK'])", PerRank),
        ("result = os.environ['HOME']", Replicate()),
        # on which device it is says nothing of it
        ("result = x.to(dist.get_rank())", Shard(0)),
        ("result = F.cross_entropy(out.cuda(dist.get_rank()), y)", MEAN),
        ("result = len(x.to(f'cuda:{dist.get_rank()}'))", COUNT),
    ],
)
def test_placed(lines: str, expected: Placement | type[PerRank]) -> None:
    found = lies(IMPORTS + "epoch = int(os.environ['EPOCH'])\n" + HEAD + lines)
    assert isinstance(found, PerRank) if expected is PerRank else found == expected
