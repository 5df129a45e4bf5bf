"""Outputs of a model, in a dict or an object, that the loss of a step leaves out: DistributedDataParallel would wait
for the gradients of their layers."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from conftest import converted, differences

from autodist.config import Strategy
from autodist.verify.launch import Zygote

SCRIPT = """\
import sys
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

Pair = namedtuple("Pair", ["boxes", "logits"])
USE_AUX = False


class Named(NamedTuple):
    boxes: torch.Tensor
    logits: torch.Tensor


@dataclass
class Out:
    boxes: torch.Tensor
    logits: Optional[torch.Tensor] = None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.box = nn.Linear(8, 4)
        self.cls = nn.Linear(8, 3)

    def forward(self, x):
        h = self.body(x).relu()
{forward}

    def pack(self, h):
        return {"boxes": self.box(h), "logits": self.cls(h)}


{defined}


torch.manual_seed(0)
data = TensorDataset(torch.randn(24, 8), torch.randn(24, 4), torch.randint(0, 3, (24,)))
loader = DataLoader(data, batch_size=8)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x, boxes, labels) in enumerate(loader):
    out = model(x)
{loss}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
"""
DICT = 'return {"boxes": self.box(h), "logits": self.cls(h)}'
BUILT = 'out = {}\nout["boxes"] = self.box(h)\nout["logits"] = self.cls(h)\nreturn out'
FILLED = 'out = {"boxes": self.box(h)}\nout.update(logits=self.cls(h))\nreturn out'
IN_TRAINING = 'out = {"boxes": self.box(h)}\nif self.training:\n    out["logits"] = self.cls(h)\nreturn out'
BOX = 'loss = F.l1_loss(out["boxes"], boxes)'
CLS = 'F.cross_entropy(out["logits"], labels)'
OF_OBJECT = "loss = F.l1_loss(out.boxes, boxes)"
BOTH_OF_OBJECT = f"{OF_OBJECT} + F.cross_entropy(out.logits, labels)"
CRITERION = """\
class Criterion(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.weights = weights

    def forward(self, out, boxes, labels):
        losses = {"boxes": F.l1_loss(out["boxes"], boxes), "logits": F.cross_entropy(out["logits"], labels)}
        return sum(losses[key] * self.weights[key] for key in losses if key in self.weights)


criterion = Criterion({weights})"""
PICKED = 'losses = {"boxes": F.l1_loss, "logits": F.cross_entropy}\ntargets = {"boxes": boxes, "logits": labels}\n'
ONE = 'def criterion(out, boxes, labels):\n    return F.l1_loss(out["boxes"], boxes)'
BOTH = f"{ONE} + {CLS}"
SWITCHED = (
    f"def criterion(out, boxes, labels, aux=USE_AUX):\n    {BOX}\n    if aux:\n        loss += {CLS}\n    return loss"
)
CALLED = "loss = criterion(out, boxes, labels)"
GIVEN_APART = "loss = criterion(**out, target=boxes, labels=labels)"
LEFT_OUT = {
    "dict": (DICT, BOX, ""),
    "get": (DICT, 'loss = F.l1_loss(out.get("boxes"), boxes)', ""),
    "filled by key": (BUILT, BOX, ""),
    "filled by update": (FILLED, BOX, ""),
    "dict(...)": ("return dict(boxes=self.box(h), logits=self.cls(h))", BOX, ""),
    "of a method": ("return self.pack(h)", BOX, ""),
    "within another": ('return {"all": self.pack(h)}', 'loss = F.l1_loss(out["all"]["boxes"], boxes)', ""),
    "joined dicts": ('return {"boxes": self.box(h)} | {"logits": self.cls(h)}', BOX, ""),
    "last of a list": ("return [layer(h) for layer in (self.cls, self.box)]", "loss = F.l1_loss(out[-1], boxes)", ""),
    "namedtuple": ("return Pair(self.box(h), self.cls(h))", OF_OBJECT, ""),
    "NamedTuple": ("return Named(self.box(h), self.cls(h))", OF_OBJECT, ""),
    "index": ("return Pair(self.box(h), self.cls(h))", "loss = F.l1_loss(out[0], boxes)", ""),
    "constant": (DICT, f"{BOX}\nif USE_AUX:\n    loss = loss + {CLS}", ""),
    "argument": (DICT, f'{BOX}\nif "--aux" in sys.argv:\n    loss += {CLS}', ""),
    "expression": (DICT, f"{BOX} + ({CLS} if USE_AUX else 0)", ""),
    "some steps": (DICT, f"{BOX}\nif step > 1:\n    loss = loss + {CLS}", ""),
    "one or the other": (DICT, f"if step > 1:\n    {BOX}\nelse:\n    loss = {CLS}", ""),
    "first a condition": (DICT, f"loss = 0\nif USE_AUX:\n    loss = loss + {CLS}\n{BOX} + loss", ""),
    "in training alone": (IN_TRAINING, BOX, ""),
    "shown": (DICT, f'{BOX}\nprint(out["logits"].argmax(1).float().mean())', ""),
    "detached": (DICT, f'{BOX} + F.cross_entropy(out["logits"].detach(), labels)', ""),
    "taken out": (DICT, 'out.pop("logits")\nloss = sum(value.pow(2).mean() for value in out.values())', ""),
    "by name": (DICT, f"{PICKED}loss = sum(losses[k](out[k], targets[k]) for k in ('boxes',))", ""),
    "criterion": (DICT, CALLED, ONE),
    "criterion, switched": (DICT, CALLED, SWITCHED),
    "criterion, weighed": (DICT, CALLED, CRITERION.replace("{weights}", '{"boxes": 2.0}')),
    "**out": (DICT, GIVEN_APART, "def criterion(boxes, logits, target, labels):\n    return F.l1_loss(boxes, target)"),
    "**out, the rest": (
        DICT,
        GIVEN_APART,
        "def criterion(boxes, target, **rest):\n    return F.l1_loss(boxes, target)",
    ),
}
READ = {
    "dict": (DICT, f"{BOX} + {CLS}", ""),
    "filled by key": (BUILT, f"{BOX} + {CLS}", ""),
    "filled by update": (FILLED, f"{BOX}\nloss += {CLS}", ""),
    "of a method": ("return self.pack(h)", f"{BOX} + {CLS}", ""),
    "namedtuple": ("return Pair(self.box(h), self.cls(h))", BOTH_OF_OBJECT, ""),
    "dataclass": ("return Out(self.box(h), logits=self.cls(h))", BOTH_OF_OBJECT, ""),
    "namespace": ("return SimpleNamespace(boxes=self.box(h), logits=self.cls(h))", BOTH_OF_OBJECT, ""),
    "no layer of its own": ('return {"h": h, **self.pack(h)}', f"{BOX} + {CLS}", ""),
    "in training alone": (IN_TRAINING, f'{BOX}\nif "logits" in out:\n    loss = loss + {CLS}', ""),
    "each": (DICT, "loss = 0\nfor value in out.values():\n    loss = loss + value.pow(2).mean()", ""),
    "either way": (DICT, f"if step > 1:\n    {BOX} + {CLS}\nelse:\n    {BOX} + 2 * {CLS}", ""),
    "listed": (
        DICT,
        f"losses = []\nlosses.append(F.l1_loss(out['boxes'], boxes))\nlosses.append({CLS})\nloss = sum(losses)",
        "",
    ),
    "by name": (DICT, f"{PICKED}loss = sum(losses[k](out[k], targets[k]) for k in out)", ""),
    "criterion": (DICT, CALLED, BOTH),
    "criterion, weighed": (DICT, CALLED, CRITERION.replace("{weights}", '{"boxes": 2.0, "logits": 1.0}')),
    "lambda": (DICT, CALLED, f"criterion = lambda out, boxes, labels: F.l1_loss(out['boxes'], boxes) + {CLS}"),
}


def script(forward: str, loss: str, defined: str) -> str:
    text = SCRIPT.replace("{forward}", indent(forward, " " * 8)).replace("{loss}", indent(loss, " " * 4))
    return text.replace("{defined}", defined)


@pytest.mark.parametrize("case", LEFT_OUT)
def test_the_wrapper_looks_for_layers_of_outputs_that_a_loss_may_leave_out(
    case: str, tmp_path: Path, zygote: Zygote | None
) -> None:
    text = script(*LEFT_OUT[case])
    assert "find_unused_parameters=True" in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize("case", READ)
def test_it_need_not_where_a_loss_reads_them_all(case: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = script(*READ[case])
    code, _ = converted(tmp_path, text)
    assert "DDP(" in code and "find_unused_parameters" not in code
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize(
    "made", ["Out(self.box(h), logits=self.cls(h))", "SimpleNamespace(boxes=self.box(h), logits=self.cls(h))"]
)
def test_in_an_object_it_would_look_in_vain(made: str, tmp_path: Path, zygote: Zygote | None) -> None:
    """The ranks average the gradients that there are instead."""
    text = script(f"return {made}", OF_OBJECT, "")
    code, _ = converted(tmp_path, text)
    assert "DDP(" not in code
    assert differences(tmp_path, zygote, text) is None


BOTH_READ = f"{BOX} + {CLS}"
PAIR_READ = "loss = F.l1_loss(out[0], boxes) + F.cross_entropy(out[1], labels)"
BARE = {
    "in a dict": ('return {"boxes": self.box(h), "logits": self.cls(h), "scale": self.scale}', BOTH_READ),
    "by keyword": ("return dict(boxes=self.box(h), logits=self.cls(h), scale=self.scale)", BOTH_READ),
    "put in later": (f"{BUILT[:-10]}out['scale'] = self.scale\nreturn out", BOTH_READ),
    "in a tuple": ("return self.box(h), self.cls(h), self.scale", PAIR_READ),
    "in a list": ("return [self.box(h), self.cls(h), self.scale]", f"b, c, s = out\n{PAIR_READ}"),
    "of a layer": ('return {"boxes": self.box(h), "logits": self.cls(h), "codes": self.table.weight}', BOTH_READ),
}
COMPUTED = {
    "exp": ('return {"boxes": self.box(h), "logits": self.cls(h), "scale": self.scale.exp()}', BOTH_READ),
    "sigmoid": ("return self.box(h), self.cls(h), torch.sigmoid(self.scale)", PAIR_READ),
    "expanded": ("return self.box(h), self.cls(h), self.scale.expand(len(x), -1)", PAIR_READ),
}


def with_parameter(forward: str, loss: str) -> str:
    """A model with a parameter, and a table, that only its outputs give."""
    own = "self.table = nn.Embedding(4, 2)" if "table" in forward else "self.scale = nn.Parameter(torch.ones(1))"
    text = script(forward, loss, "")
    return text.replace("self.cls = nn.Linear(8, 3)\n", f"self.cls = nn.Linear(8, 3)\n        {own}\n")


@pytest.mark.parametrize("case", BARE)
def test_a_parameter_that_is_an_output_and_no_loss_reads(case: str, tmp_path: Path, zygote: Zygote | None) -> None:
    """The wrapper would wait for its gradient, whether it looks for unused parameters or not."""
    text = with_parameter(*BARE[case])
    code, said = converted(tmp_path, text)
    assert "DDP(" not in code and "it gives back parameters themselves" in said
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize("case", COMPUTED)
def test_what_is_computed_of_a_parameter_alone_and_no_loss_reads(
    case: str, tmp_path: Path, zygote: Zygote | None
) -> None:
    text = with_parameter(*COMPUTED[case])
    assert "find_unused_parameters=True" in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize(
    ("forward", "loss"),
    [
        (BARE["in a dict"][0], f'{BOTH_READ} * out["scale"].mean()'),
        (COMPUTED["exp"][0], f'{BOTH_READ} * out["scale"].mean()'),
        (BARE["in a tuple"][0], f"{PAIR_READ} * out[2].mean()"),
        (COMPUTED["sigmoid"][0], f"b, c, s = out\n{PAIR_READ} * s.mean()"),
        (COMPUTED["sigmoid"][0], f"b, c, s = model(x)\nout = b, c\n{PAIR_READ} * s.mean()"),
        (BARE["of a layer"][0], f'{BOTH_READ} + out["codes"].pow(2).mean()'),
        ('return {"boxes": self.box(h) * self.scale, "logits": self.cls(h), "scale": self.scale}', BOTH_READ),
    ],
)
def test_parameters_that_the_loss_reads(forward: str, loss: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = with_parameter(forward, loss)
    code, _ = converted(tmp_path, text)
    assert "DDP(" in code and "find_unused_parameters" not in code
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize("forward", [DICT, "return self.box(h), self.cls(h)", "return Named(self.box(h), self.cls(h))"])
def test_a_layer_that_the_loss_leaves_out_is_not_decayed(forward: str, tmp_path: Path, zygote: Zygote | None) -> None:
    """Gradients of zero instead of none would have AdamW shrink its weights."""
    loss = OF_OBJECT if "Named" in forward else BOX if "boxes" in forward else "loss = F.l1_loss(out[0], boxes)"
    text = script(forward, loss, "").replace("SGD(model.parameters(), lr=0.1)", "AdamW(model.parameters(), lr=0.1)")
    assert differences(tmp_path, zygote, text) is None


def test_shards_are_not_gathered_for_tensors_in_a_namespace(tmp_path: Path) -> None:
    made = "return SimpleNamespace(boxes=self.box(h), logits=self.cls(h))"
    _, said = converted(tmp_path, script(made, OF_OBJECT, ""), Strategy.FSDP)
    assert "AD907 gives back a SimpleNamespace, in which FSDP finds no tensors" in said


BY_NAME = (
    "def criterion(boxes, logits, target, labels):\n"
    "    return F.l1_loss(boxes, target) + F.cross_entropy(logits, labels)"
)
AS_DICTS = ["vars(out)", "out.__dict__", "dict(**vars(out))"]


@pytest.mark.parametrize(
    "made", ["Out(self.box(h), logits=self.cls(h))", "SimpleNamespace(boxes=self.box(h), logits=self.cls(h))"]
)
@pytest.mark.parametrize("given", AS_DICTS)
def test_fields_of_an_object_given_by_their_names(made: str, given: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = script(f"return {made}", f"loss = criterion(**{given}, target=boxes, labels=labels)", BY_NAME)
    assert "DDP(" in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None


@pytest.mark.parametrize(
    "loss",
    [
        "loss = criterion(**out._asdict(), target=boxes, labels=labels)",
        'held = out._asdict()\nloss = F.l1_loss(held["boxes"], boxes) + F.cross_entropy(held["logits"], labels)',
        "loss = sum(value.pow(2).mean() for value in out._asdict().values())",
    ],
)
def test_fields_of_a_named_tuple_by_their_names(loss: str, tmp_path: Path, zygote: Zygote | None) -> None:
    text = script("return Named(self.box(h), self.cls(h))", loss, BY_NAME)
    assert "DDP(" in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None


def test_fields_that_the_loss_leaves_out(tmp_path: Path, zygote: Zygote | None) -> None:
    some = "def criterion(boxes, target, **rest):\n    return F.l1_loss(boxes, target)"
    text = script("return Out(self.box(h), logits=self.cls(h))", "loss = criterion(**vars(out), target=boxes)", some)
    assert "DDP(" not in converted(tmp_path, text)[0]
    assert differences(tmp_path, zygote, text) is None
