"""Evaluations that stay as they are on every rank, and the reason that is given."""

from __future__ import annotations

from pathlib import Path

import pytest
from shared_programs import MEAN_OF_BATCHES, converted_shared, script

from autodist.config import Strategy

LOOP = """\
{before}
def evaluate(model, loader):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for i, (x, y) in enumerate({over}):
            loss = F.cross_entropy(model(x), y)
            total += loss.item()
            {inside}
    {after}
    return total / len(loader)
"""


def loop(inside: str = "pass", after: str = "pass", before: str = "", over: str = "loader") -> str:
    return LOOP.format(inside=inside, after=after, before=before, over=over)


CASES = {
    "prints a batch": (loop('print("batch", loss.item())'), "print("),
    "ends early": (loop("if loss > 9: break"), "may end before"),
    "goes by the number of a batch": (loop("if i % 2: total += 1"), "number of a batch"),
    "the last loss is read": (loop(after='print("last", loss)'), "loss"),
    "an average that decays": (
        loop("run = 0.9 * run + loss.item()", 'print("run", run)', "").replace("total = 0.0", "total, run = 0.0, 0.0"),
        "run",
    ),
    "what the batch before was": (
        loop("total = total + abs(loss.item() - last); last = loss.item()").replace(
            "total = 0.0", "total, last = 0.0, 0.0"
        ),
        "batches before have left",
    ),
    "noise": (loop("total += F.mse_loss(x, x + torch.randn_like(x)).item()"), "draws anew"),
    "begins with more than nothing": (loop().replace("total = 0.0", "total = 1.0"), "total"),
    "goes on from one to the next": (
        loop("sums.append(loss.item())", "print(sums)", "sums = []\n"),
        "sums holds more than what the loop puts in",
    ),
    "holds something before": (
        loop("sums.append(loss.item())", "print(sums)").replace(
            "total = 0.0", "total, sums = 0.0, []\n    sums.append(1)"
        ),
        "sums holds more than what the loop puts in",
    ),
    "an object elsewhere": (
        loop("kept.last = loss", before="class Kept: pass\nkept = Kept()\n"),
        "kept.last",
    ),
    "a tensor elsewhere": (
        loop(
            "table += out_of(x)",
            "print(table_of_all)",
            "table_of_all = torch.zeros(4)\ndef out_of(x): return x.sum(0)\n",
        ).replace("total = 0.0", "total, table = 0.0, table_of_all"),
        "table",
    ),
    "side by side": (loop(over="zip(loader, range(9))"), "one loader alone"),
    "gradients": (loop().replace("torch.no_grad()", "torch.enable_grad()"), "no_grad"),
    "in training mode": (loop().replace("model.eval()", "model.train()"), "training mode"),
    "the model is changed": (loop("model[0].bias.data.mul_(0.5)"), "changes what was there"),
    "an unknown library looks on": (loop("watch.seen(loss)", before="import watch\n"), "not known"),
}

STARTS = "total, kept, part = 0.0, [], torch.zeros(3)"
"""What a loop may fill, besides what it adds up."""
MORE = {
    "put in front": (loop("kept.insert(0, loss.item())", "print(kept)"), "not only added to"),
    "laid in front": (loop("kept = [loss.item()] + kept", "print(kept)"), "kept"),
    "some taken off": (loop("kept.append(loss.item()); kept.sort()", "print(kept)"), "not only added to"),
    "read in the loop that fills it": (
        loop("kept.append(loss.item()); total += kept[0]", "print(kept)"),
        "read in the loop that fills it",
    ),
    "set back at times": (loop("if loss > 1: total = 0.0"), "not only added to"),
    "a part set back": (loop("part[y[0]] += 1; part[0] = 0", "print(part)"), "not only added to"),
    "a product": (loop("total *= 0.5"), "not only added to"),
    "the other way round": (loop("total = loss.item() - total"), "not only added to"),
    "counted by a function of NumPy": (
        loop("np.add.at(table, y.numpy(), 1)", "print(table)", "import numpy as np\ntable = np.zeros(3)\n"),
        "changes what it is given",
    ),
    "written by `out`": (loop("torch.add(part, 1, out=part)", "print(part)"), "changes what it is given"),
    "added to in a function": (
        loop("add(part, x)", "print(part)", "def add(whole, x):\n    whole += x.sum(0)[:3]\n"),
        "whole is changed in each round",
    ),
    "filled in a function": (
        loop("keep(kept, loss)", "print(kept)", "def keep(into, loss):\n    into.append(loss.item())\n"),
        "into is changed in each round",
    ),
    "the best batch": (
        loop("best_x = x if loss < 1 else best_x", "print(best_x)").replace("total = 0.0", "total, best_x = 0.0, 0"),
        "best_x",
    ),
    "read by a loop over it": (loop(after="for x in x[:2]: print(x)"), "x"),
    "a global that a function binds": (
        loop("count()", "print(counted)", "counted = 0\ndef count():\n    global counted\n    counted += 1\n"),
        "global",
    ),
    "a hook": (
        loop(before="seen = []\nmodel[0].register_forward_hook(lambda m, i, o: seen.append(o))\n"),
        "hook",
    ),
    "a library is given the model": (
        loop("total += torch.func.functional_call(model, {}, (x,)).sum().item()"),
        "wrapper",
    ),
    "a global": (
        loop("total += loss.item()").replace(
            "def evaluate(model, loader):\n", "def evaluate(model, loader):\n    global total\n", 1
        ),
        "is a variable of the module",
    ),
    "adaptive": (loop("optimizer.param_groups[0]['lr'] = loss.item()"), "optimizer.param_groups"),
    "filled by another name": (
        loop("keep(loss.item())", "print(kept)").replace(
            "total = 0.0", "total, kept = 0.0, []\n    keep = kept.append"
        ),
        "changes what was there",
    ),
    "filled in a function that computes nothing": (
        loop("keep(kept, loss.item())", "print(kept)", "def keep(into, value):\n    into.append(value)\n"),
        "into is changed in each round",
    ),
    "steps of a schedule": (
        loop("schedule.step()", before="schedule = torch.optim.lr_scheduler.StepLR(optimizer, 5)\n"),
        "schedule.step()",
    ),
}


@pytest.mark.parametrize(("evaluate", "reason"), MORE.values(), ids=MORE)
def test_what_a_loop_changes_otherwise(evaluate: str, reason: str, tmp_path: Path) -> None:
    text = script(evaluate if "total, " in evaluate else evaluate.replace("total = 0.0", STARTS))
    after, said = converted_shared(tmp_path, text)
    assert "own_share" not in after
    assert len(said) == 1 and reason in said[0]


@pytest.mark.parametrize(("evaluate", "reason"), CASES.values(), ids=CASES)
def test_a_reason_is_given(evaluate: str, reason: str, tmp_path: Path) -> None:
    after, said = converted_shared(tmp_path, script(evaluate))
    assert "own_share" not in after
    assert len(said) == 1 and "every rank evaluates all of the data here" in said[0]
    assert reason in said[0]


LOADERS = {
    "by a generator of its own": (", shuffle=True, generator=torch.Generator()", "a generator that others may draw"),
    "a sampler by a generator of its own": (
        ", sampler=torch.utils.data.RandomSampler(range(9), generator=torch.Generator())",
        "ranks may draw from differently",
    ),
    "a sampler of the script": (", sampler=Own()", "a sampler that is not known"),
    "single samples": (", batch_size=None", "single samples"),
}


@pytest.mark.parametrize(("options", "reason"), LOADERS.values(), ids=LOADERS)
def test_loaders_whose_order_ranks_may_not_share(options: str, reason: str, tmp_path: Path) -> None:
    own = "class Own(torch.utils.data.Sampler):\n    def __iter__(self):\n        return iter(range(9))\n"
    text = script(MEAN_OF_BATCHES, options=options, imports=own)
    after, said = converted_shared(tmp_path, text.replace("batch_size=8, batch_size=None", "batch_size=None"))
    assert "own_share" not in after
    assert len(said) == 1 and reason in said[0]


METERED = """
{before}
def evaluate(model, loader):
    meter = Meter()
    model.eval()
    total = 0.0
    with torch.no_grad():
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            total += loss.item()
            meter.update(loss.item(), len(x))
    print({shown})
    return total / len(loader)
"""
KEEPING = """
class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.sum = self.n = self.val = 0

    def update(self, val, n):
        {body}

    {more}
"""
ADDED = "self.sum += val * n; self.n += n"
LAST = f"{ADDED}; self.val = val"
OBJECTS = {
    "a sum of numbers by the count so far": ("self.n += n; self.sum += val * self.n", "meter.sum", {}),
    "divided by the count so far": ("self.n += 1; self.sum += val / self.n", "meter.sum", {}),
    "an average that decays": ("self.sum = 0.9 * self.sum + 0.1 * val", "meter.sum", {}),
    "the last value is read": (LAST, "meter.val", {}),
    "the last value is read by its name": (LAST, "'{m.val}'.format(m=meter)", {}),
    "the last value is shown": (LAST, "f'{meter}'", {"more": "def __str__(self): return str(self.val)"}),
    "the last value is looked up": (LAST, "meter.__dict__['val']", {}),
    "computed at times": (f"{ADDED}\n        if n > 5: self.val = self.sum / self.n", "meter.val", {}),
    "by what was added before": ("if self.n > 3: self.sum += val\n        self.n += n", "meter.sum", {}),
    "never reset": (ADDED, "meter.sum", {"before": "meter = Meter()\n", "instead": ""}),
    "begins with one": (ADDED, "meter.sum", {"more": "def begin(self): self.sum = 1"}),
    "added to before": (ADDED, "meter.sum", {"instead": "meter = Meter(); meter.update(1.0, 2)"}),
    "kept elsewhere": (f"{ADDED}; kept.append(self)", "meter.sum", {"before": "kept = []\n"}),
    "one of two": (ADDED, "meter.sum", {"instead": "meter = Meter() if loader.batch_size > 2 else best_meter"}),
}


@pytest.mark.parametrize(("body", "shown", "more"), OBJECTS.values(), ids=OBJECTS)
def test_what_objects_keep_otherwise(body: str, shown: str, more: dict[str, str], tmp_path: Path) -> None:
    evaluate = METERED.format(before=more.get("before", ""), shown=shown)
    evaluate = evaluate.replace("meter = Meter()\n    model", more.get("instead", "meter = Meter()") + "\n    model")
    helpers = KEEPING.format(body=body, more=more.get("more", "")) + "\nbest_meter = Meter()\n"
    after, said = converted_shared(tmp_path, script(evaluate, helpers=helpers))
    assert "own_share" not in after
    assert len(said) == 1 and "every rank evaluates all of the data here" in said[0]


def test_a_loader_that_trains_is_no_evaluation(tmp_path: Path) -> None:
    text = script(MEAN_OF_BATCHES).replace("score = evaluate", "evaluate(model, train_loader)\n    score = evaluate")
    after, said = converted_shared(tmp_path, text)
    assert "own_share" not in after
    assert "a loader that trains comes there, too" in said[0]


def test_random_samples_are_drawn_alike(tmp_path: Path) -> None:
    imports = (
        "from torch.utils.data import Dataset\n\nclass Noisy(Dataset):\n    def __len__(self):\n        return 37\n\n"
    )
    imports += "    def __getitem__(self, i):\n        return torch.randn(4), i % 3\n"
    text = script(MEAN_OF_BATCHES, imports=imports).replace("DataLoader(data(37, 1)", "DataLoader(Noisy()")
    after, said = converted_shared(tmp_path, text)
    assert "own_share" not in after
    assert "draws anew" in said[0]


def test_sharded_models_are_evaluated_by_all_ranks_together(tmp_path: Path) -> None:
    after, said = converted_shared(tmp_path, script(MEAN_OF_BATCHES), Strategy.FSDP)
    assert "own_share" not in after
    assert "forward pass of a sharded model" in said[0]
