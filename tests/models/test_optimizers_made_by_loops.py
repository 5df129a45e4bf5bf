"""Parameters that come together in lists and loops: each model that one of them is of trains."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

a, b, c = nn.Linear(8, 4), nn.Linear(8, 4), nn.Linear(8, 4)
{made}
loader = DataLoader(TensorDataset(torch.randn(32, 8), torch.randn(32, 4)), batch_size=8, shuffle=True)
for x, y in loader:
    loss = nn.functional.mse_loss(a(x), b(x) + c(x) + y)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()
"""
ONE = "\noptimizers = [torch.optim.SGD(params, lr=0.1)]"
ADDED = "optimizer = torch.optim.SGD(a.parameters(), lr=0.1)\n{}\noptimizers = [optimizer]"


@pytest.mark.parametrize(
    "made",
    [
        "params = list(a.parameters())\nparams += list(b.parameters())\nparams.extend(c.parameters())" + ONE,
        "params = list(a.parameters())\nfor net in [b, c]:\n    params += net.parameters()" + ONE,
        "params = sorted(a.parameters(), key=len)\nparams += [*b.parameters(), *c.parameters()]" + ONE,
        "params = tuple(a.parameters())\nparams += tuple(b.parameters())\nparams += tuple(c.parameters())" + ONE,
        "params = {'all': list(a.parameters())}\nparams['all'] += [*b.parameters(), *c.parameters()]\n"
        "params = params['all']" + ONE,
        "def add(params, net):\n    params += list(net.parameters())\n\n\n"
        "params = list(a.parameters())\nadd(params, b)\nadd(params, c)" + ONE,
        "params = []\nfor net in (a, b, c):\n    params.append({'params': net.parameters()})" + ONE,
        "params = [dict(params=a.parameters())]\nfor net in (b, c):\n    params += [dict(params=net.parameters())]"
        + ONE,
        ADDED.format("for net in (b, c):\n    optimizer.add_param_group({'params': net.parameters()})"),
        ADDED.format("for net in (b, c):\n    optimizer.param_groups[0]['params'].extend(net.parameters())"),
        ADDED.format(
            "for net in (b, c):\n    for p in net.parameters():\n        optimizer.param_groups[0]['params'].append(p)"
        ),
        ADDED.format(
            "params = optimizer.param_groups[0]['params']\nfor net in (b, c):\n    params.extend(net.parameters())"
        ),
        ADDED.format("more = [*b.parameters(), *c.parameters()]\noptimizer.param_groups[0]['params'] += more"),
        ADDED.format(
            "group = optimizer.param_groups[0]\nfor net in (b, c):\n    group['params'] += [*net.parameters()]"
        ),
        ADDED.format(
            "for net in (b, c):\n    for group in optimizer.param_groups:\n        group['params'] += net.parameters()"
        ),
        ADDED.format(
            "first = optimizer.param_groups[0]\nfor net in (b, c):\n"
            "    optimizer.param_groups.append({**first, 'params': list(net.parameters())})"
        ),
        ADDED.format("optimizer.param_groups[0]['params'] = [p for net in (a, b, c) for p in net.parameters()]"),
        "optimizers = []\nfor net in (a, b, c):\n    optimizers.append(torch.optim.SGD(net.parameters(), lr=0.1))",
        "optimizers = []\nfor i, net in enumerate([a, b, c]):\n"
        "    optimizers += [torch.optim.SGD(net.parameters(), lr=0.1)]",
        "optimizers = []\nfor params in [list(a.parameters()), list(b.parameters()) + list(c.parameters())]:\n"
        "    optimizers.append(torch.optim.SGD(params, lr=0.1))",
        "rows = []\nfor net in (a, b, c):\n    rows.append({'net': net, 'by': torch.optim.SGD(net.parameters())})\n"
        "optimizers = [row['by'] for row in rows]",
        "class Box:\n    pass\n\n\nbox = Box()\nfor name, net in zip('abc', (a, b, c)):\n"
        "    setattr(box, name, torch.optim.SGD(net.parameters(), lr=0.1))\noptimizers = [box.a, box.b, box.c]",
    ],
)
def test_all_models_train(tmp_path: Path, made: str) -> None:
    code, _ = converted(tmp_path, SCRIPT.format(made=made))
    assert all(f"\n{name} = DDP({name})\n" in code for name in "abc")


def test_a_part_of_a_model_comes_into_a_list(tmp_path: Path) -> None:
    """VSE++: a text encoder, and the last layer of an image encoder."""
    made = (
        "b = nn.Sequential()\nb.body = nn.Linear(8, 8)\nb.head = nn.Linear(8, 4)\n"
        "params = list(a.parameters())\nparams += list(b.head.parameters())\nparams += list(c.parameters())"
    )
    code, _ = converted(tmp_path, SCRIPT.format(made=made + ONE))
    assert code.count("DDP(") >= 3
