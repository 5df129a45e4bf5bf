"""Parts of a model without gradients, which DistributedDataParallel would wait for."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, size, first, extra=None):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.body = nn.Linear(size, size)
        self.scale = nn.Parameter(torch.ones(size))
        self.first = first
        self.extra = extra
        {made}

    def forward(self, x):
        {forward}


layers = [Block(4, number == 0) for number in range(2)]
model = nn.Sequential(*layers, nn.Linear(4, 1))
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ALL = "return self.scale * self.body(self.norm(x))"


@pytest.mark.parametrize(
    ("made", "forward", "unused"),
    [
        ("", ALL, False),
        ("", "return self.body(self.norm(x))", True),  # a parameter that nobody reads
        ("nn.init.ones_(self.scale)", "return self.body(self.norm(x))", True),
        ("", "out = self.norm(x); return self.scale * self.body(out if self.first else x)", True),
        (
            "",
            "out = self.norm(x); return self.scale * self.body(out) if self.first else self.scale * self.norm(x)",
            True,
        ),
        ("", "x = self.norm(x) if self.first else self.norm(2 * x); return self.scale * self.body(x)", False),
        ("self.skip = None if first else nn.Linear(4, 4)", f"x = x if self.first else self.skip(x); {ALL}", False),
        ("self.skip = nn.Linear(4, 4)", f"x = x if self.first else self.skip(x); {ALL}", True),
        ("self.skip = nn.Linear(4, 4)", f"x = self.skip(x) if self.training else x; {ALL}", False),
        ("self.spare = nn.Linear(4, 4); [nn.init.zeros_(m.bias) for m in self.modules() if m is not self]", ALL, True),
        ("self.spare = nn.Linear(4, 4)", f"x = [m for m in self.children()][-1](x); {ALL}", False),
        ("self.out = nn.Linear(4, 4)", f"x = x @ self.out.weight; {ALL}", True),
        ("self.out = nn.Linear(4, 4, bias=False)", f"x = x @ self.out.weight; {ALL}", False),
        ("self.out = nn.Linear(4, 4)", f"x = self.out(x) @ self.out.weight; {ALL}", False),
        ("self.bn = nn.BatchNorm1d(4)", f"x = self.bn(x) if not self.first and self.wide == True else x; {ALL}", True),
        ("self.bn = nn.BatchNorm1d(4)", f"x = self.bn(x); {ALL}", False),
        ("self.rnn = nn.GRU(4, 4)", f"_, state = self.rnn(x.unsqueeze(0)); {ALL}", True),  # which nobody reads
        ("self.aux = nn.Linear(4, 2)", f"aux = self.aux(x); {ALL}", True),
        ("self.aux = nn.Linear(4, 4)", f"aux = self.aux(x); x = x + aux; {ALL}", False),
        ("self.aux = nn.Linear(4, 4)", f"self.kept = self.aux(x); {ALL}", True),
        ("self.aux = nn.Linear(4, 4)", f"self.kept = self.aux(x); x = self.kept; {ALL}", False),
        (  # only copied from while the module is made
            "self.old = nn.Linear(4, 4); self.copy()",
            f"{ALL}; ; def copy(self):; self.body.weight.data = self.old.weight.data",
            True,
        ),
        ("self.old = nn.Linear(4, 4); self.body.weight = self.old.weight; self.old.bias = None", ALL, False),
        ("self.gain = 2.0", f"x = x * self.gain if self.first else x; {ALL}", False),
        (
            "part = nn.Linear(4, 4); self.part = part",
            f"x = self.part(x) if self.first and self.part is not None else x; {ALL}",
            True,
        ),
        ("part = nn.Linear(4, 4); self.part = part", f"x = self.part(x) if self.part is not None else x; {ALL}", False),
        (
            "self.one = nn.TransformerEncoderLayer(size, 2); self.stack = nn.TransformerEncoder(self.one, 2)",
            "return self.scale * self.stack(self.body(self.norm(x)))",
            True,
        ),
    ],
)
def test_parts_that_settings_leave_out(tmp_path: Path, made: str, forward: str, unused: bool) -> None:
    code, _ = converted(
        tmp_path,
        SCRIPT.format(
            made=made.replace("; ", "\n        ") or "pass",
            forward=forward.replace("; ; ", "\n\n    ").replace("; ", "\n        "),
        ),
    )
    assert ("find_unused_parameters=True" in code) == unused


@pytest.mark.parametrize(("hidden", "unused"), [("False", False), ("input() == 'y'", True), ("True", True)])
def test_an_early_return_that_a_caller_asks_for(tmp_path: Path, hidden: str, unused: bool) -> None:
    """`inner(x, hidden=True)` leaves the last layer of a part alone."""
    text = SCRIPT.format(made="pass", forward=ALL).replace(
        "def forward(self, x):", f"def forward(self, x, hidden={hidden}):"
    )
    text = text.replace(
        "        return self.scale", "        if hidden:\n            return self.norm(x)\n        return self.scale"
    )
    assert ("find_unused_parameters=True" in converted(tmp_path, text)[0]) == unused


SKIPS = """\
skip = 0
        for step, out in zip(self.steps, self.skips):
            x = step(x)
            skip = skip + out(x)
            {}
        return self.scale * self.body(self.norm({}))"""
LISTS = ("steps", "skips", "ends")
MADE = "\n        ".join(f"self.{name} = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])" for name in LISTS)


@pytest.mark.parametrize(
    ("after", "shown", "unused"),
    [
        ("pass", "skip", False),
        ("x = x + out(x)", "skip", False),  # in another place in the same turn
        ("x = self.ends[len(self.ends) - 1](x)", "skip + x", True),  # none but the last is run
    ],
)
def test_what_the_last_turn_of_a_loop_computes(tmp_path: Path, after: str, shown: str, unused: bool) -> None:
    """The last layer of a list has no gradient where only another turn would read what it computes."""
    made = MADE if "ends" in after else MADE.rpartition("\n")[0]
    code, _ = converted(tmp_path, SCRIPT.format(made=made, forward=SKIPS.format(after, shown)))
    assert ("find_unused_parameters=True" in code) == unused


@pytest.mark.parametrize(("shown", "unused"), [("skip", True), ("skip + x", False)])
def test_the_last_residual_layer(tmp_path: Path, shown: str, unused: bool) -> None:
    """As in WaveNet, in a method that forward calls."""
    forward = "return self.scale * self.body(self.norm(self.stack(x)))\n\n    def stack(self, x):\n        " + (
        "skip = 0\n        for i in range(3):\n            residual = x\n            x = self.steps[i](x).tanh()\n"
        "            skip = skip + self.skips[i](x)\n            x = self.ends[i](x) + residual\n"
        f"        return {shown}"
    )
    code, _ = converted(tmp_path, SCRIPT.format(made=MADE, forward=forward))
    assert ("find_unused_parameters=True" in code) == unused


@pytest.mark.parametrize(("call", "unused"), [("x", True), ("self.smooth(x)", False)])
def test_a_part_of_a_method_that_nobody_calls(tmp_path: Path, call: str, unused: bool) -> None:
    made = "self.bn = nn.BatchNorm1d(4)\n        self.start()\n\n    def start(self):\n        "
    made += "[m.eval() for m in self.modules()]\n\n    def smooth(self, x):\n        return self.bn(x)"
    code, _ = converted(tmp_path, SCRIPT.format(made=made, forward=f"x = {call}; {ALL}".replace("; ", "\n        ")))
    assert ("find_unused_parameters=True" in code) == unused


TWO_OUTPUTS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)
        self.other = nn.Linear(4, 1)

    def forward(self, x, targets=None):
        h = self.body(x)
        logits = self.head(h)
        loss = None
        if targets is not None:
            loss = nn.functional.cross_entropy(logits, targets)
        {handed}


model = Net()
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,))), batch_size=8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    _, loss = model(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("handed", "unused"),
    [
        ("loss = loss + 0 * self.other(h).sum()\n        return logits, loss", False),
        ("return self.other(h), loss", True),
        ("score = h\n        for _ in (0, 1):\n            score = self.other(h)\n        return score, loss", True),
        ("score = self.other(h)\n        return score, loss", True),
        ("score = self.other(h)\n        print(score)\n        return score, loss", True),
    ],
)
def test_an_output_that_is_left_out(tmp_path: Path, handed: str, unused: bool) -> None:
    """It is missed where nothing else is computed from it, as a loss is from the logits."""
    code, _ = converted(tmp_path, TWO_OUTPUTS.replace("{handed}", handed))
    assert ("find_unused_parameters=True" in code) == unused


HEADS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 4)
        self.heads = {heads}

    def forward(self, x):
        return {out}


loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("heads", "out", "unused"),
    [
        ("nn.ModuleList(nn.Linear(4, 1) for _ in range(2))", "self.heads[0](self.body(x))", True),
        ("nn.ModuleList([nn.Linear(4, 1), nn.Linear(4, 1)])", "self.heads[-1](self.body(x))", True),
        ("nn.ModuleDict({'a': nn.Linear(4, 1), 'b': nn.Linear(4, 1)})", "self.heads['a'](self.body(x))", True),
        ("nn.ModuleList([nn.Linear(8, 4), nn.Linear(4, 1)])", "self.heads[1](self.heads[0](x) + self.body(x))", False),
        ("nn.ModuleList([nn.Linear(4, 1)])", "self.heads[0](self.body(x))", False),
    ],
)
def test_a_layer_of_a_list_that_no_pass_runs(tmp_path: Path, heads: str, out: str, unused: bool) -> None:
    code, _ = converted(tmp_path, HEADS.format(heads=heads, out=out))
    assert ("find_unused_parameters=True" in code) == unused


@pytest.mark.parametrize(("out", "unused"), [("outs[0]", True), ("outs[0] + outs[-1]", False), ("sum(outs)", False)])
def test_layers_of_a_list_whose_output_nobody_reads(tmp_path: Path, out: str, unused: bool) -> None:
    text = HEADS.format(heads="nn.ModuleList(nn.Linear(4, 1) for _ in range(2))", out="OUT")
    lines = f"outs = [head(self.body(x)) for head in self.heads]\n        return {out}"
    code, _ = converted(tmp_path, text.replace("return OUT", lines))
    assert ("find_unused_parameters=True" in code) == unused


@pytest.mark.parametrize(("example", "refused"), [("", True), ("model(torch.randn(1, 4))\n", False)])
def test_layers_that_learn_their_sizes_by_the_first_step(tmp_path: Path, example: str, refused: bool) -> None:
    """They have no parameters when the model is wrapped, unless an example was passed through it before."""
    text = SCRIPT.format(made="pass", forward=ALL).replace("nn.Linear(4, 1))", f"nn.LazyLinear(1))\n{example}")
    code, said = converted(tmp_path, text)
    assert ("AD904 lazy layers have no parameters" in said) == refused == ("DDP(" not in code)


CLONES = """\
def clones(module, number):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(number)])


"""


@pytest.mark.parametrize(("read", "unused"), [("(0, 2)", True), ("(0, 1, 2)", False)])
def test_layers_that_a_function_clones(tmp_path: Path, read: str, unused: bool) -> None:
    """As in the annotated transformer: a layer for the query that nobody asks."""
    body = "".join(f"x = self.convs[{number}](x); " for number in (read.strip("()").split(", ")))
    text = SCRIPT.format(made="self.convs = clones(nn.Linear(size, size), 3)", forward=f"{body}{ALL}")
    text = text.replace("import torch\n", "import copy\n\nimport torch\n", 1).replace(
        "class Block", f"{CLONES}class Block"
    )
    assert ("find_unused_parameters=True" in converted(tmp_path, text)[0]) == unused


DERIVED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 2)
        self.head = nn.Linear(2, 1)

    def encode(self, x):
        return self.encoder(x)

    def forward(self, x):
        return self.head(self.encode(x))


class Net(Base):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 2)

    def encode(self, x):
        return {encoded}


loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("encoded", "unused"), [("self.first(x)", True), ("self.first(x) + super().encode(x)", False)])
def test_layers_of_a_base_class_that_what_is_derived_leaves(tmp_path: Path, encoded: str, unused: bool) -> None:
    """The ranks waited for the gradients of layers that only an overridden method calls."""
    code, _ = converted(tmp_path, DERIVED.format(encoded=encoded))
    assert ("find_unused_parameters=True" in code) == unused


@pytest.mark.parametrize(
    ("kind", "unused"), [("'wide'", False), ("'narrow'", False), ("'none'", True), ("input()", True)]
)
def test_kinds_that_the_script_makes(tmp_path: Path, kind: str, unused: bool) -> None:
    """DistributedDataParallel takes parameters that a model returns (ProdLDA) for unused ones, and dies of their
    gradients: it is not asked to look where the kind is known."""
    forward = """\
if self.first == "wide":
            x = self.part(x)
        elif self.first == "narrow":
            x = self.part(x) / 2
        return self.scale * self.body(self.norm(x))"""
    text = SCRIPT.format(made="self.part = nn.Linear(size, size)", forward=forward)
    text = text.replace("[Block(4, number == 0) for number in range(2)]", f"[Block(4, {kind})]")
    assert ("find_unused_parameters=True" in converted(tmp_path, text)[0]) == unused


GIVEN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.near = nn.Linear(4, 4)
        self.far = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.ones([]))

    def forward(self, x, far):
        h = {h}
        return h, {scale}


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 4)), batch_size=8, shuffle=True)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, (x, y) in enumerate(loader):
    h, scale = model(x, step % 2 == 0)
    loss = nn.functional.mse_loss(h * scale, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("h", "scale", "wrapper"),
    [
        ("self.far(self.near(x))", "self.scale", "DDP(Net(), gradient_as_bucket_view=True)"),
        ("self.far(x) if far else self.near(x)", "self.scale.exp()", "DDP(Net(), find_unused_parameters=True"),
        ("self.far(x) if far else self.near(x)", "self.scale", "average_gradients(optimizer)"),
    ],
)
def test_a_parameter_that_a_forward_pass_gives(tmp_path: Path, h: str, scale: str, wrapper: str) -> None:
    """The wrapper takes it for unused, and is then told of its gradient: "marked as ready twice"."""
    code, said = converted(tmp_path, GIVEN.format(h=h, scale=scale))
    assert wrapper in code, said


TAKEN_APART = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision import models


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        resnet = models.resnet18()
        {made}
        self.head = nn.Linear(512, 3)

    def forward(self, x):
        {forward}
        return self.head(x.flatten(1))


model = Encoder()
data = TensorDataset(torch.randn(32, 3, 32, 32), torch.randint(3, (32,)))
optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8, shuffle=True):
    model.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
"""
BODY = "self.body = nn.Sequential(*list(resnet.children())[:-1])"
STEM = "self.stem = nn.Sequential(*list(resnet.children())[:1])"
QUIET = "with torch.no_grad(): x = self.body(x)"


@pytest.mark.parametrize(
    ("made", "forward", "unused"),
    [
        (BODY, QUIET, True),
        ('self.body = nn.Sequential(*[m for n, m in resnet.named_children() if n != "fc"])', QUIET, True),
        (f"{BODY}; {STEM}", f"s = self.stem(x).mean()\n        {QUIET}\n        x = x + s", True),
        (BODY, "x = self.body(x)", False),
        (f"{BODY}; {STEM}", "x = self.body(x) + self.stem(x)", False),
        ("self.body = nn.ModuleList(list(resnet.children())[:-1])", "for each in self.body: x = each(x)", False),
    ],
)
def test_layers_that_are_taken_out_of_a_model_of_a_library(
    tmp_path: Path, made: str, forward: str, unused: bool
) -> None:
    after, _ = converted(tmp_path, TAKEN_APART.format(made=made, forward=forward))
    assert ("find_unused_parameters=True" in after) == unused and "DDP(" in after
