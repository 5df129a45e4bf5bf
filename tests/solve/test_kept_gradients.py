"""Gradients that are read after a later backward pass has run, which may not be views of the buckets then."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from conftest import converted, differences
from programs import CATALOG

from autodist.project import Project
from autodist.solve.kept_gradients import keeps_gradients
from autodist.trace import trace
from autodist.verify.launch import Zygote

SCRIPT = """\
import collections
import functools
import operator
import queue
import types

import torch
from torch import nn
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, TensorDataset

train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(train_set, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{ahead}
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
{body}
        optimizer.step()
"""
KEPT = {
    "list": """\
old = None
---
if old is not None:
    print(sum((a * p.grad).sum() for a, p in zip(old, model.parameters())).item())
old = [p.grad for p in model.parameters()]
""",
    "append": """\
history = []
---
history.append(model[0].weight.grad)
if len(history) > 1:
    print((history[-1] - history[-2]).norm().item())
""",
    "detach": """\
old = None
---
g = model[0].weight.grad.detach()
if old is not None:
    print((g * old).sum().item())
old = g
""",
    "flat": """\
old = None
---
g = model[0].weight.grad.view(-1)
if old is not None:
    print((g * old).sum().item())
old = g
""",
    "cpu": """\
old = None
---
g = model[0].weight.grad.cpu()
if old is not None:
    print((g * old).sum().item())
old = g
""",
    "attr": """\
if hasattr(model, 'old'):
    print((model[0].weight.grad * model.old).sum().item())
model.old = model[0].weight.grad
""",
    "getattr": """\
old = None
---
g = getattr(model[0].weight, 'grad')
if old is not None:
    print((g * old).sum().item())
old = g
""",
    "second": """\
g = model[0].weight.grad
optimizer.zero_grad()
(model(x) ** 2).mean().backward()
print((g * model[0].weight.grad).sum().item())
""",
    "cond": """\
old = torch.zeros(8, 4)
---
print((old * model[0].weight.grad).sum().item())
if i % 2 == 0:
    old = model[0].weight.grad
""",
    "detached in place": """\
for p in model.parameters():
    p.grad.detach_()
""",
    "func": """\
def grads(m):
    return [p.grad for p in m.parameters()]
old = None
---
g = grads(model)
if old is not None:
    print(sum((a * b).sum() for a, b in zip(g, old)).item())
old = g
""",
    "gen": """\
def grads(m):
    for p in m.parameters():
        yield p.grad
old = None
---
g = list(grads(model))
if old is not None:
    print(sum((a * b).sum() for a, b in zip(g, old)).item())
old = g
""",
    "tuple": """\
old = None, 0
---
g = (model[0].weight.grad, i)
if old[0] is not None:
    print((g[0] * old[0]).sum().item())
old = g
""",
    "inplace": """\
old = None
---
if old is not None:
    print(old.norm().item())
old = model[0].weight.grad.mul_(0.5)
""",
    "class": """\
class Keep:
    def __init__(self):
        self.old = None
    def see(self, g):
        if self.old is not None:
            print((self.old * g).sum().item())
        self.old = g
keep = Keep()
---
keep.see(model[0].weight.grad)
""",
    "set": """\
for p in model.parameters():
    p.grad = p.grad * 0.5
""",
    "state": """\
for p in model.parameters():
    optimizer.state[p]['previous'] = p.grad
""",
    "part": """\
show = None
---
if show is not None:
    print(show().item())
show = functools.partial(torch.sum, model[0].weight.grad)
""",
    "if_before": """\
old = torch.zeros(8, 4)
---
g = model[0].weight.grad
if i % 2 == 0:
    old = g
print((old * g).sum().item())
""",
    "swap": """\
old = new = None
---
old, new = new, model[0].weight.grad
if old is not None:
    print((old * new).sum().item())
""",
    "global": """\
old = None
def see(g):
    global old
    if old is not None:
        print((old * g).sum().item())
    old = g
---
see(model[0].weight.grad)
""",
    "closure": """\
def seeing():
    old = None
    def see(g):
        nonlocal old
        if old is not None:
            print((old * g).sum().item())
        old = g
    return see
see = seeing()
---
see(model[0].weight.grad)
""",
    "starmap": """\
olds = [torch.zeros(8, 4)]
---
print((olds[-1] * model[0].weight.grad).sum().item())
olds += [model[0].weight.grad]
""",
    "dead": """\
def unused(p):
    return p.grad
---
pass
""",
    "twobackward": """\
grads = [p.grad for p in model.parameters()]
model.zero_grad()
nn.functional.l1_loss(model(x), y).backward()
for p, g in zip(model.parameters(), grads):
    p.grad.add_(g)
""",
    "func_late": """\
def dot(g, p):
    print((g * p.grad).sum().item())
---
g = model[0].weight.grad
dot(g, model[0].weight)
optimizer.zero_grad()
nn.functional.l1_loss(model(x), y).backward()
dot(g, model[0].weight)
""",
    "ops": """\
old = None
---
g = operator.attrgetter('grad')(model[0].weight)
if old is not None:
    print((old * g).sum().item())
old = g
""",
    "setattr2": """\
for p in model.parameters():
    setattr(p, 'grad', p.grad * 2)
""",
    "try": """\
try:
    print(old.norm().item())
except NameError:
    pass
old = model[0].weight.grad
""",
    "ema": """\
ema = None
---
g = model[0].weight.grad
ema = g if ema is None else ema.mul_(0.9).add_(g, alpha=0.1)
print(ema.norm().item())
""",
    "ema2": """\
ema = None
---
g = model[0].weight.grad
if ema is None:
    ema = g
else:
    ema.mul_(0.9).add_(g, alpha=0.1)
print(ema.norm().item())
""",
    "decay": """\
for p in model.parameters():
    p.grad.add_(p, alpha=0.1)
""",
    "decay_aug": """\
for p in model.parameters():
    p.grad += 0.1 * p
""",
    "decay_weight": "model[0].weight.grad.add_(model[0].weight)",
    "decay_item": "model[0].weight.grad[0] = model[0].weight[0]",
    "setattr": """\
for p in model.parameters():
    setattr(p, 'old', p.grad)
""",
    "object setattr": "object.__setattr__(model[0].weight, 'old', model[0].weight.grad)",
    "setitem": """\
olds = {}
---
operator.setitem(olds, 'weight', model[0].weight.grad)
""",
    "rows": """\
old = torch.zeros(8, 4)
---
print(sum((a * b).sum() for a, b in zip(old, model[0].weight.grad)).item())
old = model[0].weight.grad.unbind(0)
""",
    "halves": """\
old = torch.zeros(8, 4).split(4)
---
print(old[0].norm().item())
old = model[0].weight.grad.split(4)
""",
    "expanded": """\
old = torch.zeros(8, 4)
---
print(old.norm().item())
old = torch.broadcast_to(model[0].weight.grad, (8, 4))
""",
    "largest": """\
old = torch.zeros(8, 4)
---
print(old.norm().item())
old = max((p.grad for p in model.parameters()), key=torch.norm)
""",
    "shared memory": """\
old = torch.zeros(8, 4)
---
print(old.norm().item())
old.set_(model[0].weight.grad)
""",
    "lambda called back": """\
old = [torch.zeros(8, 4)]
---
print(old[0].norm().item())
old = tree_map(lambda p: p.grad, [*model.parameters()])
""",
    "function called back": """\
old = [torch.zeros(8, 4)]
def grad_of(p):
    return p.grad
---
print(old[0].norm().item())
old = tree_map(grad_of, [*model.parameters()])
""",
    "global behind a function": """\
old = torch.zeros(8, 4)
def keep():
    global old
    old = model[0].weight.grad
---
print(old.norm().item())
keep()
""",
}
WITHIN_A_STEP = {
    "none": "pass",
    "norm": """\
total = torch.norm(torch.stack([p.grad.norm() for p in model.parameters()]))
print(total.item())
""",
    "clip": "nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
    "clamp": """\
for p in model.parameters():
    p.grad.data.clamp_(-1, 1)
""",
    "mul": """\
for p in model.parameters():
    if p.grad is not None:
        p.grad.mul_(0.5)
        p.grad.add_(p.detach(), alpha=0.1)
""",
    "aug": """\
for p in model.parameters():
    p.grad /= 2
""",
    "clone": """\
old = None
---
g = [p.grad.clone() for p in model.parameters()]
if old is not None:
    print(sum((a * b).sum() for a, b in zip(g, old)).item())
old = g
""",
    "name": """\
for p in model.parameters():
    g = p.grad
    g.mul_(0.5)
""",
    "gradlist": """\
grads = [p.grad for p in model.parameters() if p.grad is not None]
total = torch.stack([g.norm() for g in grads]).norm()
for g in grads:
    g.mul_(1 / (1 + total))
""",
    "setnone": """\
for p in model.parameters():
    p.grad.mul_(2)
optimizer.step()
for p in model.parameters():
    p.grad = None
""",
    "flatcopy": """\
old = None
---
g = torch.cat([p.grad.view(-1) for p in model.parameters()])
if old is not None:
    print((g * old).sum().item())
old = g
""",
    "func": """\
def norm(m):
    total = 0
    for p in m.parameters():
        g = p.grad
        if g is not None:
            total = total + g.norm() ** 2
    return total ** 0.5
---
print(norm(model).item())
""",
    "print": "print(model[0].weight.grad)",
    "rows": """\
old = torch.zeros(8)
---
print(old.norm().item())
old = torch.stack([row.norm() for row in model[0].weight.grad.unbind(0)])
""",
    "largest": "print(max(p.grad.norm().item() for p in model.parameters()))",
    "called back": """\
norms = tree_map(lambda p: p.grad.norm(), [*model.parameters()])
print(sum(norms).item())
""",
    "hist": """\
for n, p in model.named_parameters():
    print(n, p.grad.abs().mean().item(), p.grad.shape)
""",
    "sgd": """\
with torch.no_grad():
    for p in model.parameters():
        p -= 0.1 * p.grad
""",
    "foreach": """\
grads = [p.grad for p in model.parameters()]
torch._foreach_mul_(grads, 0.5)
""",
    "autograd": "g, = torch.autograd.grad((x.requires_grad_() ** 2).sum(), x)",
    "nan": """\
bad = any(torch.isnan(p.grad).any() for p in model.parameters() if p.grad is not None)
if bad:
    optimizer.zero_grad()
""",
    "ema": """\
ema = torch.zeros(8, 4)
---
ema = 0.9 * ema + 0.1 * model[0].weight.grad
print(ema.norm().item())
""",
    "scaler": """\
scaler = torch.amp.GradScaler(enabled=False)
---
scaler.unscale_(optimizer)
print(nn.utils.get_total_norm([p.grad for p in model.parameters()]).item())
""",
    "log": """\
stats = {n: p.grad.norm().item() for n, p in model.named_parameters()}
print('grad', stats)
""",
    "decay_data": """\
for p in model.parameters():
    p.grad.add_(p.data, alpha=0.1)
""",
    "decay_quiet": """\
with torch.no_grad():
    for p in model.parameters():
        p.grad.add_(p, alpha=0.1)
""",
    "noise": """\
for p in model.parameters():
    p.grad.add_(torch.zeros_like(p.grad))
""",
    "clip_by_hand": """\
total = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
for p in model.parameters():
    p.grad.mul_((1.0 / (total + 1e-6)).clamp(max=1.0))
""",
}


def script(text: str) -> str:
    ahead, _, body = text.rpartition("---\n")
    return SCRIPT.format(ahead=ahead, body=indent(body, " " * 8))


def keeps(folder: Path, text: str) -> bool:
    (folder / "train.py").write_text(script(text))
    project = Project.load(folder / "train.py")
    return keeps_gradients(trace(project, CATALOG), project.sources)


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_kept(text: str, tmp_path: Path) -> None:
    assert keeps(tmp_path, text)


@pytest.mark.parametrize("text", WITHIN_A_STEP.values(), ids=WITHIN_A_STEP)
def test_read_within_a_step(text: str, tmp_path: Path) -> None:
    assert not keeps(tmp_path, text)


BUCKETS = "gradient_as_bucket_view=True"


@pytest.mark.parametrize("kept", ["list", "cpu", "second", "ema"])
def test_is_the_gradient_of_its_own_step(kept: str, tmp_path: Path, zygote: Zygote) -> None:
    text = script(KEPT[kept])
    assert BUCKETS not in converted(tmp_path, text)[0]
    assert not differences(tmp_path, zygote, text)


@pytest.mark.parametrize("read", ["mul", "clip", "gradlist", "setnone", "foreach"])
def test_views_train_alike(read: str, tmp_path: Path, zygote: Zygote) -> None:
    text = script(WITHIN_A_STEP[read])
    assert BUCKETS in converted(tmp_path, text)[0]
    assert not differences(tmp_path, zygote, text)


MODELS = {
    "tied": "a, b = nn.Linear(4, 4), nn.Linear(4, 4)\nb.weight = a.weight\n",
    "with one body": "body = nn.Linear(4, 4)\na, b = nn.Sequential(body, nn.ReLU()), nn.Sequential(body, nn.Tanh())\n",
}


@pytest.mark.parametrize("made", MODELS.values(), ids=MODELS)
def test_a_parameter_of_two_models_has_one_bucket(made: str, tmp_path: Path, zygote: Zygote) -> None:
    text = SCRIPT[: SCRIPT.index("model =")] + made
    text += "optimizer = torch.optim.SGD(list({*a.parameters(), *b.parameters()}), lr=0.1)\n"
    text += "for x, y in loader:\n    loss = (a(b(x)) - y).square().mean()\n    optimizer.zero_grad()\n"
    text += "    loss.backward()\n    optimizer.step()\n"
    assert BUCKETS not in converted(tmp_path, text)[0]
    assert not differences(tmp_path, zygote, text)
