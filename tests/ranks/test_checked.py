"""Scripts that distribute themselves: what check says of those that go wrong, and that it says nothing of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist import catalog
from autodist.project import Project
from autodist.ranks import concerns

SCRIPT = """\
import atexit
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split


def is_main():
    return not dist.is_initialized() or dist.get_rank() == 0


def reduced(value):
    if not dist.is_initialized():
        return value
    total = torch.as_tensor(value, dtype=torch.float64, device="cuda")
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


dist.init_process_group("nccl")
atexit.register(dist.destroy_process_group)
rank, world_size = dist.get_rank(), dist.get_world_size()
local_rank = int(os.getenv("LOCAL_RANK", "0"))
torch.cuda.set_device(local_rank)
torch.manual_seed(0)
data = TensorDataset(torch.randn(640, 4), torch.randint(3, (640,)))
train_set, val_set = random_split(data, [512, 128])
sampler = DistributedSampler(train_set)
loader = DataLoader(train_set, batch_size=8, sampler=sampler)
val_loader = DataLoader(val_set, batch_size=8, sampler=DistributedSampler(val_set, shuffle=False))
whole_loader = DataLoader(val_set, batch_size=8)
net = nn.Linear(4, 3).cuda()
model = DDP(net, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
best, bad = 1e9, 0


def validate(over):
    total, correct, count = 0.0, 0, 0
    model.eval()
    with torch.no_grad():
        for x, y in over:
            out = model(x.cuda())
            total += F.cross_entropy(out, y.cuda()).item() * len(x)
            correct += (out.argmax(1) == y.cuda()).sum().item()
            count += len(x)
    return total / count, correct / count


for epoch in range(3):
    sampler.set_epoch(epoch)
    model.train()
    for step, (x, y) in enumerate(loader):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
END, STEP = "    ", "        "


def said(text: str) -> list[tuple[str, int]]:
    """The codes of what is found, with their lines."""
    project = Project.load(Path("train.py"), stdin=text)
    return [(each.code, each.node.lineno) for each in concerns(project, catalog.load())]  # type: ignore[attr-defined]


def codes(text: str) -> set[str]:
    return {code for code, _ in said(text)}


def after_epoch(*lines: str) -> str:
    """The script, with lines at the end of each epoch."""
    return SCRIPT + "".join(f"{END}{line}\n" for line in lines)


RIGHT = {
    "reduced": [
        "val_loss, acc = validate(val_loader)",
        "val_loss = reduced(val_loss)",
        "if is_main():",
        "    print(val_loss)",
    ],
    "whole data by all": ["val_loss, acc = validate(whole_loader)", "if rank == 0:", "    print(val_loss, acc)"],
    "whole data, scheduler": ["scheduler.step(validate(whole_loader)[0])"],
    "said whose": ["val_loss, acc = validate(val_loader)", "print(f'[{rank}] {val_loss:.3f}')"],
    "gathered objects": [
        "found = [None] * world_size",
        "dist.all_gather_object(found, validate(val_loader)[0])",
        "if rank == 0:",
        "    print(sum(found) / world_size)",
    ],
    "gathered to rank 0": [
        "found = [None] * world_size if rank == 0 else None",
        "dist.gather_object(validate(val_loader)[0], found, dst=0)",
        "if rank == 0:",
        "    print(sum(found) / world_size)",
    ],
    "both branches": [
        "if rank == 0:",
        "    dist.broadcast(torch.ones(1).cuda(), 0)",
        "else:",
        "    dist.broadcast(torch.zeros(1).cuda(), 0)",
    ],
    "in turns": [
        "if rank > 0:",
        "    dist.barrier()",
        "torch.load('x.pt', map_location='cpu')",
        "if rank == 0:",
        "    dist.barrier()",
    ],
    "one after the other": [
        "for turn in range(world_size):",
        "    if turn == rank:",
        "        print('rank', rank)",
        "    dist.barrier()",
    ],
    "every few epochs": ["if epoch % 2 == 0:", "    dist.barrier()"],
    "stop by reduced": [
        "val_loss = reduced(validate(val_loader)[0])",
        "if val_loss < best:",
        "    best, bad = val_loss, 0",
        "else:",
        "    bad += 1",
        "if bad > 3:",
        "    break",
    ],
    "stop by a flag": [
        "stop = torch.zeros(1).cuda()",
        "if validate(val_loader)[0] < 0.1:",
        "    stop += 1",
        "dist.all_reduce(stop)",
        "if stop > 0:",
        "    break",
    ],
    "rank 0 stops": [
        "stop = [False]",
        "if rank == 0:",
        "    stop = [validate(whole_loader)[0] < 0.1]",
        "dist.broadcast_object_list(stop, src=0)",
        "if stop[0]:",
        "    break",
    ],
    "kept on rank 0": ["if rank == 0:", "    torch.save(model.module.state_dict(), 'm.pt')", "dist.barrier()"],
    "device of its own": [
        "map_location = {'cuda:0': f'cuda:{local_rank}'}",
        "torch.load('m.pt', map_location=map_location)",
    ],
    "shown while it trains": ["if rank == 0:", "    print('done', epoch)"],
    "evaluated unwrapped": [
        "if rank == 0:",
        "    with torch.no_grad():",
        "        print(model.module(torch.zeros(1, 4).cuda()).sum())",
        "dist.barrier()",
    ],
    "logged to a board": [
        "from torch.utils.tensorboard import SummaryWriter",
        "if rank == 0:",
        "    SummaryWriter().add_scalar('val', validate(whole_loader)[0], epoch)",
    ],
    "a group of its own": [
        "pair = dist.new_group([0, 1])",
        "if rank in (0, 1):",
        "    dist.all_reduce(torch.ones(1).cuda(), group=pair)",
    ],
    "sent": ["if rank == 0:", "    dist.send(torch.ones(1), 1)", "elif rank == 1:", "    dist.recv(torch.ones(1), 0)"],
    "fails on all": ["if torch.isnan(loss):", "    raise RuntimeError('loss is nan')"],
    "tensors in a list": [
        "sums = [torch.zeros(1).cuda(), torch.zeros(1).cuda()]",
        "for x, y in val_loader:",
        "    sums[0] += (model.module(x.cuda()).argmax(1) == y.cuda()).sum()",
        "    sums[1] += len(x)",
        "for each in sums:",
        "    dist.all_reduce(each)",
        "if rank == 0:",
        "    print(sums[0] / sums[1])",
    ],
    "waited for": ["work = dist.all_reduce(loss.detach(), async_op=True)", "work.wait()"],
    "as many rounds for all": ["for i in range(rank, 64, world_size):", "    dist.all_reduce(torch.ones(1).cuda())"],
    "as many of a list for all": [
        "names = sorted(os.listdir('parts'))",
        "for name in names[: len(names) // world_size * world_size][rank::world_size]:",
        "    dist.all_reduce(torch.load(name, map_location='cpu').cuda())",
    ],
    "types of all": [
        "kind = torch.float64 if world_size == 2 else torch.float32",
        "dist.all_reduce(torch.ones(1, dtype=kind, device='cuda'))",
    ],
    "moved to the GPU": ["total = torch.tensor(float(epoch))", "total = total.cuda()", "dist.all_reduce(total)"],
    "added to one on the GPU": ["total = torch.tensor(0.0)", "total = total + loss.detach()", "dist.all_reduce(total)"],
    "restored by all": ["optimizer.load_state_dict(torch.load('o.pt', map_location='cpu'))"],
    "best of rank 0 alone": [
        "if rank == 0:",
        "    best_net = nn.Linear(4, 3).cuda()",
        "    best_net.load_state_dict(torch.load('m.pt', map_location='cpu'))",
        "    print(validate(whole_loader))",
    ],
    "some not averaged": [
        "with model.no_sync():",
        "    F.cross_entropy(model(x), y).backward()",
        "F.cross_entropy(model(x), y).backward()",
    ],
    "written by all readers": ["torch.save(epoch, f'{rank}.pt')", "torch.load(f'{rank}.pt', map_location='cpu')"],
    "another file of that name": [
        "def keep(path):",
        "    if rank == 0:",
        "        torch.save(epoch, path)",
        "def go_on(path):",
        "    return torch.load(path, map_location='cpu')",
        "keep('a.pt')",
        "go_on('b.pt')",
    ],
    "bound where it is missing": [
        "head = None",
        "if head is None:",
        "    head = nn.Linear(4, 3)",
        "done = False",
        "if not done:",
        "    done = True",
        "    dist.barrier()",
        "else:",
        "    dist.barrier()",
    ],
    "only rank 0 has a writer": [
        "from torch.utils.tensorboard import SummaryWriter",
        "writer = SummaryWriter() if rank == 0 else None",
        "if writer is not None:",
        "    writer.add_scalar('val', validate(whole_loader)[0], epoch)",
    ],
    "scaled where it is shared": [
        "for over in (val_loader, whole_loader):",
        "    count = 0",
        "    for x, y in over:",
        "        count += len(x)",
        "    seen = count * world_size if isinstance(over.sampler, DistributedSampler) else count",
        "    if rank == 0:",
        "        print(seen)",
    ],
    "scaled by a branch": [
        "def report(over):",
        "    count = 0",
        "    for x, y in over:",
        "        count += len(x)",
        "    if over is val_loader:",
        "        count = count * world_size",
        "    if rank == 0:",
        "        print(count)",
        "report(val_loader)",
        "report(whole_loader)",
    ],
    "meters that are summed up": [
        "from collections import defaultdict",
        "class Meter:",
        "    def __init__(self):",
        "        self.total, self.count = 0.0, 0",
        "    def update(self, value, n):",
        "        self.total += value * n",
        "        self.count += n",
        "    def join(self):",
        "        if not dist.is_initialized():",
        "            return",
        "        both = torch.tensor([self.total, self.count], dtype=torch.float64, device='cuda')",
        "        dist.all_reduce(both)",
        "        both = both.tolist()",
        "        self.total, self.count = both[0], int(both[1])",
        "meters = defaultdict(Meter)",
        "for x, y in val_loader:",
        "    right = (model(x.cuda()).argmax(1) == y.cuda()).sum() / y.size(0)",
        "    meters['right'].update(right.item(), n=x.size(0))",
        "for each in meters.values():",
        "    each.join()",
        "lines = []",
        "for name, each in meters.items():",
        "    lines.append('{}: {:.3f}'.format(name, each.total / each.count))",
        "if rank == 0:",
        "    print(', '.join(lines))",
    ],
    "fails with a status": ["if torch.isnan(loss):", "    sys.exit(1)", "dist.barrier()"],
    "fails with a reason": ["if loss.item() > 1e6:", "    sys.exit('diverged')", "dist.barrier()"],
    "said before it fails": [
        "if not os.path.exists('parts'):",
        "    print('no parts in epoch', epoch)",
        "    raise FileNotFoundError('parts')",
        "if epoch > 1_000:",
        "    print('too many:', epoch)",
        "    exit(2)",
    ],
    "warned of by a print": ["if epoch > 5:", "    print('WARNING: that is late', epoch)"],
    "empty lines": ["print('\\n')", "print('', ' ')"],
    "asked before it is fetched": [
        "import urllib.request",
        "answer = input('fetch it? ')",
        "if answer.lower() == 'y':",
        "    urllib.request.urlretrieve('http://a/b', 'b')",
    ],
    "warned of": ["import logging", "logging.warning('tried %s times', validate(val_loader)[1])"],
    "drawn for each sample": [
        "import random",
        "from torch.utils.data import Dataset",
        "class Crops(Dataset):",
        "    def __len__(self):",
        "        return 64",
        "    def __getitem__(self, index):",
        "        return torch.zeros(1, 4) + random.randint(0, 9), random.choice([0, 1])",
        "crops = Crops()",
        "for x, y in DataLoader(crops, sampler=DistributedSampler(crops)):",
        "    F.cross_entropy(model(x.cuda()), y.cuda()).backward()",
    ],
    "seeded apart for noise": ["torch.manual_seed(epoch * world_size + rank)"],
}
WRONG = {
    "shown by rank 0": (
        ["val_loss, acc = validate(val_loader)", "if rank == 0:", "    print(f'{acc:.3f}')"],
        "AD610",
        -1,
    ),
    "shown by a helper": (
        ["def report(acc):", "    if is_main():", "        print('accuracy', acc)", "report(validate(val_loader)[1])"],
        "AD610",
        -2,
    ),
    "scaled by something else": (
        [
            "count = 0",
            "for x, y in val_loader:",
            "    count += len(x)",
            "shown = count * 100 if epoch else count",
            "if rank == 0:",
            "    print(shown)",
        ],
        "AD610",
        -1,
    ),
    "logged": (["import logging", "logging.info('loss %.3f', validate(val_loader)[0])"], "AD610", -1),
    "to a tracker": (
        ["import wandb", "if rank == 0:", "    wandb.log({'loss': validate(val_loader)[0]})"],
        "AD610",
        -1,
    ),
    "to the scheduler": (["scheduler.step(validate(val_loader)[0])"], "AD610", -1),
    "best of rank 0": (
        [
            "val_loss, acc = validate(val_loader)",
            "if rank == 0 and val_loss < best:",
            "    best = val_loss",
            "    torch.save(model.module.state_dict(), 'm.pt')",
        ],
        "AD610",
        -3,
    ),
    "barrier on rank 0": (
        ["if rank == 0:", "    torch.save(model.module.state_dict(), 'm.pt')", "    dist.barrier()"],
        "AD801",
        -1,
    ),
    "reduced on rank 0": (["if is_main():", "    print(reduced(loss.item()))"], "AD801", None),
    "left early": (["if rank != 0:", "    continue", "dist.barrier()"], "AD801", -1),
    "left for good": (["if not is_main():", "    sys.exit(0)", "print('saving')", "dist.barrier()"], "AD801", -1),
    "all but rank 0": (["if rank:", "    dist.barrier()"], "AD801", -1),
    "short circuit": (["rank == 0 and dist.barrier()"], "AD801", -1),
    "gathered on rank 0": (
        ["found = [None] * world_size", "if local_rank == 0:", "    dist.all_gather_object(found, rank)"],
        "AD801",
        -1,
    ),
    "trained on rank 0": (["if rank == 0:", "    F.cross_entropy(model(x), y).backward()"], "AD801", -1),
    "stop by own loss": (["val_loss, _ = validate(val_loader)", "if val_loss < 0.1:", "    break"], "AD802", -2),
    "stop by own patience": (
        ["val_loss, _ = validate(val_loader)", "bad = 0 if val_loss < best else bad + 1", "if bad >= 3:", "    break"],
        "AD802",
        -2,
    ),
    "ends well by own loss": (
        ["if validate(val_loader)[0] < 0.1:", "    sys.exit()", "dist.barrier()"],
        "AD802",
        -3,
    ),
    "said before it goes on": (
        ["if epoch > 1:", "    print('late:', epoch)", "    torch.manual_seed(epoch)"],
        "AD309",
        -2,
    ),
    "meters that are not summed up": (
        [
            "totals = {'right': 0.0, 'count': 0}",
            "for x, y in val_loader:",
            "    totals['right'] += (model(x.cuda()).argmax(1) == y.cuda()).sum().item()",
            "    totals['count'] += len(x)",
            "if rank == 0:",
            "    print('{:.3f}'.format(totals['right'] / totals['count']))",
        ],
        "AD610",
        -1,
    ),
    "save by own loss": (
        [
            "val_loss, _ = validate(val_loader)",
            "if val_loss < best:",
            "    best = val_loss",
            "    if rank == 0:",
            "        torch.save(net.state_dict(), 'm.pt')",
            "    dist.barrier()",
        ],
        "AD802",
        -5,
    ),
    "round the wrapper": (["F.cross_entropy(net(x), y).backward()", "optimizer.step()"], "AD413", -2),
    "printed by all": (["print('epoch', epoch)"], "AD309", -1),
    "downloaded by all": (["from torchvision import datasets", "datasets.CIFAR10('data', download=True)"], "AD310", -1),
    "fetched by all": (["import urllib.request", "urllib.request.urlretrieve('http://a/b', 'b')"], "AD310", -1),
    "keys of the wrapper": (
        [
            "if rank == 0:",
            "    torch.save({'model': model.state_dict()}, 'm.pt')",
            "dist.barrier()",
            "net.load_state_dict(torch.load('m.pt', map_location='cpu')['model'])",
        ],
        "AD414",
        -1,
    ),
    "rounds of a share": (
        ["for name in sorted(os.listdir('parts'))[rank::world_size]:", "    dist.all_reduce(torch.ones(1).cuda())"],
        "AD803",
        -2,
    ),
    "other order": (
        [
            "total = torch.ones(1).cuda()",
            "if rank == 0:",
            "    dist.all_reduce(total)",
            "    dist.broadcast(total, 0)",
            "else:",
            "    dist.broadcast(total, 0)",
            "    dist.all_reduce(total)",
        ],
        "AD804",
        -5,
    ),
    "other type": (
        ["dist.all_reduce(torch.ones(1, dtype=torch.float64 if rank == 0 else torch.float32, device='cuda'))"],
        "AD804",
        -1,
    ),
    "group of some": (["if rank < 2:", "    pair = dist.new_group([0, 1])"], "AD801", -1),
    "on the CPU": (["total = torch.zeros(2)", "total[0] += len(loader)", "dist.all_reduce(total)"], "AD107", -1),
    "restored by one": (
        ["if rank == 0:", "    optimizer.load_state_dict(torch.load('o.pt', map_location='cpu'))"],
        "AD312",
        -1,
    ),
    "read at once": (
        ["if rank == 0:", "    torch.save(epoch, 'e.pt')", "epoch = torch.load('e.pt', map_location='cpu')"],
        "AD313",
        -1,
    ),
    "counted whole": (
        [
            "hits = torch.zeros(1).cuda()",
            "with torch.no_grad():",
            "    for x, y in val_loader:",
            "        hits += (net(x.cuda()).argmax(1) == y.cuda()).sum()",
            "dist.all_reduce(hits)",
            "if rank == 0:",
            "    print(hits / len(val_set))",
        ],
        "AD611",
        -1,
    ),
    "shuffled twice": (["DataLoader(train_set, batch_size=8, shuffle=True, sampler=sampler)"], "AD209", -1),
    "first GPU": (["y = torch.zeros(1).to('cuda:0')"], "AD105", -1),
}


def test_own_gpu_by_the_environment() -> None:
    own = "os.environ['CUDA_VISIBLE_DEVICES'] = str(local_rank)\ntorch.cuda.set_device(0)"
    assert not said(SCRIPT.replace("torch.cuda.set_device(local_rank)", own))
    assert codes(SCRIPT.replace("set_device(local_rank)", "set_device(0)")) == {"AD105"}


@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str) -> None:
    assert not said(after_epoch(*RIGHT[name]))


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    lines, code, at = WRONG[name]
    text = after_epoch(*lines)
    found = said(text)
    line = text.count("\n") + 1 + at if at is not None else None
    assert code in codes(text)
    assert line is None or (code, line) in found, found


def test_which_number_is_whose() -> None:
    assert codes(SCRIPT.replace("set_device(local_rank)", "set_device(rank)")) == {"AD106"}
    sampler = "DistributedSampler(train_set, rank=local_rank, num_replicas=world_size)"
    assert codes(SCRIPT.replace("DistributedSampler(train_set)", sampler)) == {"AD210"}
    assert not codes(SCRIPT.replace("DistributedSampler(train_set)", sampler.replace("local_rank", "rank")))


def test_groups_are_left() -> None:
    assert codes(SCRIPT.replace("atexit.register(dist.destroy_process_group)\n", "")) == {"AD109"}
    gloo = SCRIPT.replace('"nccl"', '"gloo"').replace("atexit.register(dist.destroy_process_group)\n", "")
    assert not codes(gloo)


def test_seeds_come_first() -> None:
    unseeded = SCRIPT.replace("torch.manual_seed(0)\n", "")
    assert codes(unseeded) == {"AD706"}
    assert not codes(unseeded.replace("data = ", "import transformers\ntransformers.set_seed(0)\ndata = "))


def test_how_often_a_rate_is_scaled() -> None:
    once = SCRIPT.replace("lr=0.1", "lr=0.1 * world_size")
    assert not codes(once) and codes(once.replace("* world_size)", "* world_size * world_size)")) == {"AD417"}
    assert not codes(SCRIPT.replace("lr=0.1", "lr=0.1 * world_size / 8 * world_size / world_size"))


WRAPPED = "model = DDP(net, device_ids=[local_rank])\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
AVERAGING = """\
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad /= world_size
"""
HEAD = "head = nn.Linear(3, 3).cuda()\n"
BOTH = "[*model.parameters(), *head.parameters()]"
GROUPS = '[{"params": model.parameters()}, {"params": head.parameters()}]'


@pytest.mark.parametrize(
    ("made", "forward"),
    [
        ("model = net\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "model(x)"),
        (f"{HEAD}{WRAPPED.replace('model.parameters()', BOTH)}", "head(model(x))"),
        (f"{HEAD}{WRAPPED}other = torch.optim.SGD(head.parameters(), lr=0.1)\n", "head(model(x))"),
        (HEAD + WRAPPED.replace("model.parameters()", GROUPS), "head(model(x))"),
        (
            f"scale = torch.ones(3, device='cuda', requires_grad=True)\n"
            f"{WRAPPED.replace('model.parameters()', '[*model.parameters(), scale]')}",
            "model(x) * scale",
        ),
        (
            HEAD
            + "params = []\nfor each in (net, head):\n    params += each.parameters()\n"
            + WRAPPED.replace("model.parameters()", "params"),
            "head(model(x))",
        ),
    ],
)
def test_what_no_wrapper_averages(made: str, forward: str) -> None:
    """A model, a head or a tensor beside the wrapped model: each rank steps it by gradients of its own."""
    assert "AD419" in codes(SCRIPT.replace(WRAPPED, made).replace("model(x), y)", f"{forward}, y)"))


BARE = "model = net\n" + WRAPPED.splitlines()[1] + "\n"
BACKWARD = "        loss.backward()\n        "
TOGETHER = (
    BACKWARD + "buffer = torch.cat([p.grad.flatten() for p in model.parameters()])\n        dist.all_reduce(buffer)\n"
)
LISTED = BACKWARD + "found = [p.grad for p in model.parameters()]\n        dist.all_reduce_coalesced(found)\n"
TURNED = BACKWARD + "v = nn.utils.parameters_to_vector(model.parameters())\n        dist.all_reduce(v)\n"
STEPPED = BACKWARD + "for q in model.parameters():\n            t = q.data\n            dist.all_reduce(t)\n"
GIVEN = BACKWARD + "lib.averaged([*model.parameters()])\n"


@pytest.mark.parametrize(
    ("made", "forward", "step"),
    [
        (WRAPPED.replace("(model.", "(net."), "model(x)", ""),
        (f"{HEAD}pair = DDP(nn.Sequential(net, head))\nmodel = pair\n{WRAPPED.splitlines()[1]}\n", "pair(x)", ""),
        (
            HEAD + WRAPPED.replace("optimizer", "head = DDP(head)\noptimizer").replace("model.p", "head.p"),
            "head(x)",
            "",
        ),
        ("model = net\nif world_size > 1:\n    model = DDP(net)\n" + WRAPPED.splitlines()[1] + "\n", "model(x)", ""),
        (BARE, "model(x)", AVERAGING),
        (f"import lib\nmodel = lib.prepared(net)\n{WRAPPED.splitlines()[1]}\n", "model(x)", ""),
        *((BARE, "model(x)", step) for step in (TOGETHER, LISTED, TURNED, STEPPED)),
        ("import lib\n" + BARE, "model(x)", GIVEN),
        ("import lib\n" + BARE + "lib.attach(net)\n", "model(x)", ""),
        ("import lib\n" + BARE + "optimizer = lib.Distributed(optimizer)\n", "model(x)", ""),
        ("model = net\nnet.weight.register_hook(print)\n" + WRAPPED.splitlines()[1] + "\n", "model(x)", ""),
    ],
)
def test_what_is_averaged(made: str, forward: str, step: str) -> None:
    """By a wrapper that has it, under any name, by hand, or by what is not followed."""
    text = SCRIPT.replace(WRAPPED, made).replace("model(x), y)", f"{forward}, y)")
    assert "AD419" not in codes(text.replace("        loss.backward()\n", step) if step else text)


def test_data_that_all_ranks_have() -> None:
    """All ranks take the same steps, without being told to."""
    text = SCRIPT.replace("batch_size=8, sampler=sampler", "batch_size=8").replace(
        WRAPPED, WRAPPED.replace("DDP(net, device_ids=[local_rank])", "net")
    )
    assert "AD419" not in codes(text)
