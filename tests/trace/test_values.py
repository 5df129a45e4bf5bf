"""What names hold at the end of a few lines: constants, and results of operations by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import bound, told, traced

from autodist.program import closure, held

HEAD = (
    "import torch\nimport torch.nn.functional as F\nfrom torch import nn\nx = torch.randn(8, 4)\nflag = x.sum() > 0\n"
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        # constants
        ("result = 2 * 3 + 1", {7}),
        ("a, (b, *c) = 1, (2, 3, 4)\nresult = c[1]", {4}),
        ("result = f'{1}-{2}'", {"1-2"}),
        ("result = 'a' in {'a': 1}", {True}),
        ("result = [1, 2, 3][-1]", {3}),
        ("result = {'a': 1, **{'b': 2}}['b']", {2}),
        ("names = ['a']\nnames.append('b')\nresult = names[1]", {"b"}),
        ("for name, size in [('a', 1), ('b', 2)]:\n    pass\nresult = size", {2}),
        ("for size, (name, _) in [(1, (2, 3)), (4, (5, 6))]:\n    pass\nresult = name", {2, 5}),
        ("name = 'a' if flag else 'b'\nresult = 'x_' + name", {"x_a", "x_b"}),
        (
            "found = {}\nfor name in ('a', 'b'):\n    found['x_' + name] = 1\nfound['net'] = 2\nresult = found['net']",
            {2},
        ),
        ("found = {'a': 1, 'b': 2, 'c': 3}\nresult = found['a' if flag else 'b']", {1, 2}),
        ("result = dict(a=1).get('b', 5)", {None, 5} - {None}),
        (
            "kind = input()\nif kind in ['GRU', 'LSTM']:\n    result = getattr(nn, kind)(4, 2)(x)",
            {"torch.nn.GRU", "torch.nn.LSTM"},
        ),
        (
            "class A(nn.Module):\n    def begin(self):\n        return 1\nclass B(nn.Transformer):\n    pass\n"
            "result = (A() if flag else B()).begin()",
            {1},
        ),
        # operators and methods
        ("result = x + 1", {"operator.add"}),
        ("result = -x", {"operator.neg"}),
        ("result = x.view(2, -1)", {"torch.Tensor.view"}),
        ("result = x.view(2, -1).sum()", {"torch.Tensor.sum"}),
        ("result = F.relu(x)", {"torch.nn.functional.relu"}),
        ("x += 1\nresult = x", {"operator.add"}),
        ("x.add_(1)\nresult = x", {"torch.Tensor.add_"}),
        ("x[0] = 1\nresult = x", {"setitem"}),
        # branches
        ("result = 1 if flag else 2", {"operator.choice"}),
        ("if flag:\n    result = 1\nelse:\n    result = 2", {"operator.choice"}),
        ("result = 1\nif flag:\n    result = 2", {"operator.choice"}),
        ("if True:\n    result = 1\nelse:\n    result = 2", {1}),
        ("y = None\nif y is None:\n    y = 3\nresult = y", {3}),
        ("result = 1 if nn.Linear(4, 2) else 2", {1}),
        ("class A:\n    pass\nresult = 1 if A() else 2", {1}),
        # what a library says, or gives its objects
        ("import lib\nresult = 1 if lib.DEBUG else 2", {1, 2}),
        ("import lib\nresult = 1 if lib.DEBUG is None else 2", {1, 2}),
        ("result = 1 if torch.version.cuda else 2", {1, 2}),
        ("from lib import Stopping\ns = Stopping()\nresult = 1 if s.stop else 2", {1, 2}),
        ("from lib import Stopping\ns = Stopping()\nresult = 1 if s.best is None else 2", {1, 2}),
        ("from lib import Stopping\ns = Stopping()\nresult = 1 if not s.stop else 2", {1, 2}),
        ("from lib import Buffer\nresult = 1 if Buffer() else 2", {1, 2}),
        ("from lib import Buffer\nclass A(Buffer):\n    pass\nresult = 1 if A() else 2", {1, 2}),
        ("class A(list):\n    pass\nresult = 1 if A() else 2", {1, 2}),
        ("y = None if flag else 2\nif y is not None:\n    result = y\nelse:\n    result = 0", {0, 2}),
        ("try:\n    result = 1\nexcept ValueError:\n    result = 2", {1, 2}),
        ("match flag:\n    case True:\n        result = 1\n    case _:\n        result = 2", {1, 2}),
        # loops
        ("total = 0\nfor i in range(100):\n    total += x.sum()\nresult = total", {0, "operator.add"}),
        ("result = 0\nwhile flag:\n    result = 1\n    break", {0, 1}),
        ("for name in ('a', 'b'):\n    result = name", {"b"}),
        ("result = [n for n in ('a', 'b')][1]", {"b"}),
        ("result = next(iter([1, 1]))", {1}),
        ("for i, name in enumerate(['a', 'b']):\n    result = i", {1}),
        ("for a, b in zip(['a'], ['b']):\n    result = b", {"b"}),
        # functions
        ("def double(v, by=2):\n    return v * by\nresult = double(4)", {8}),
        ("def double(*values, **named):\n    return values[1] + named['c']\nresult = double(1, 2, c=3)", {5}),
        ("given = (1, 2)\ndef add(a, b):\n    return a + b\nresult = add(*given)", {3}),
        ("def outer():\n    n = 5\n    def inner():\n        return n\n    return inner\nresult = outer()()", {5}),
        ("result = (lambda a: a + 1)(1)", {2}),
        ("from functools import partial\nresult = partial(pow, 2)(3) and 1", {"builtins.pow", 1}),
        ("def count():\n    yield 1\n    yield 2\nfor result in count():\n    pass", {1, 2}),
        ("def down(n):\n    return 0 if n == 0 else down(n - 1)\nresult = down(x.sum())", {0, "recursion"}),
        ("def early(v):\n    if flag:\n        return 1\n    return 2\nresult = early(x)", {1, 2}),
        # classes
        ("class A:\n    def __init__(self, n):\n        self.n = n\nresult = A(3).n", {3}),
        ("class A:\n    n = 1\nclass B(A):\n    pass\nresult = B().n", {1}),
        ("class A:\n    def f(self):\n        return 1\nclass B(A):\n    def f(self):\n        return super().f() + 1\n"
         "result = B().f()", {2}),
        ("class A:\n    @property\n    def n(self):\n        return 4\nresult = A().n", {4}),
        ("class A:\n    @staticmethod\n    def f(n):\n        return n\n    @classmethod\n    def g(cls, n):\n"
         "        return cls.f(n)\nresult = A.g(6)", {6}),
        ("class A:\n    def __call__(self, n):\n        return n\nresult = A()(2)", {2}),
        ("class A:\n    def __add__(self, n):\n        return n\nresult = A() + 2", {2}),
        ("class A:\n    def __getitem__(self, n):\n        return n\nresult = A()[2]", {2}),
        ("from dataclasses import dataclass\n@dataclass\nclass A:\n    n: int = 3\nresult = A().n", {3}),
        ("class A:\n    pass\na = A()\nsetattr(a, 'n', 1)\nresult = getattr(a, 'n')", {1}),
        ("class A:\n    def __init__(self):\n        self.total = 0\n    def add(self, v):\n        self.total += v\n"
         "a = A()\nfor i in range(100):\n    a.add(x.sum())\nresult = a.total", {0, "operator.add"}),
        # modules of torch
        ("net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())\nresult = net(x)", {"torch.nn.ReLU"}),
        ("nets = nn.ModuleList([nn.Linear(4, 4)])\nfor net in nets:\n    result = net(x)", {"torch.nn.Linear"}),
        ("class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
         "        self.a = nn.Linear(4, 1)\n"
         "    def forward(self, v):\n        return self.a(v).squeeze(1)\nresult = nn.DataParallel(Net())(x)",
         {"torch.Tensor.squeeze"}),
        ("net = nn.Linear(4, 4).to('cpu').train()\nresult = net(x)", {"torch.nn.Linear"}),
        ("result = nn.MSELoss().cuda()(x, x)", {"torch.nn.MSELoss"}),
    ],
)  # fmt: skip
def test_what_a_name_holds(lines: str, expected: set[object]) -> None:
    assert told(bound(traced(HEAD + lines), "result")) == expected


def test_a_setting_of_a_module_decides_no_branch() -> None:
    """Somebody will change it: both branches are read."""
    program = traced("FAST = True\nif FAST:\n    result = 1\nelse:\n    result = 2\n")
    assert told(bound(program, "result")) == {1, 2}


def test_modules_of_the_project(tmp_path: Path) -> None:
    modules = {"parts.net": "def make(n):\n    return n + 1\n", "parts.__init__": "from .net import make\n"}
    program = traced(
        "import parts\nfrom parts.net import make as other\nresult = parts.make(1) + other(2)\n", tmp_path, modules
    )
    assert told(bound(program, "result")) == {5}


def test_lists_of_constants_are_compared() -> None:
    program = traced("def f(widths):\n    return widths == [1, 2], widths != []\n\na, b = f([1, 2])\nresult = a\na, b")
    assert bound(program, "a").constant is True and bound(program, "b").constant is True


def test_what_a_model_of_a_library_holds_comes_from_it() -> None:
    program = traced("import torchvision\nnet = torchvision.models.resnet18()\nfor part in net.children():\n    part\n")
    above = closure(bound(program, "part").operations, lambda op: (o for v in op.operands for o in held(v)))
    assert any(op.owner in bound(program, "net").things for op in above)


def test_a_function_is_given_its_object_first() -> None:
    text = "class A:\n    def f(self, x):\n        return x + n\n\nn = input()\na = A()\na.f(n)\n"
    program = traced(text)
    (region,) = {each for op in program.operations for each in op.region.around() if each.function is not None}
    assert region.inputs == (bound(program, "a"), bound(program, "n"))


@pytest.mark.parametrize(("called", "kinds"), [("torch.utils.checkpoint", 1), ("other.wrap", 2)])
def test_a_module_that_is_called(called: str, kinds: int) -> None:
    """It stops the script there, and gives nothing."""
    text = f"import other\nbody = nn.Linear(4, 1)\nif other.fails():\n    body = {called}(body)\nresult = body"
    found = bound(traced(HEAD + text), "result")
    assert len(found.things) + len(found.operations) == kinds
