"""Steps that train on all of their points, and derive what a model gives by them: physics-informed networks."""

from __future__ import annotations

from pathlib import Path

import pytest

from autodist.config import Config, Strategy
from autodist.convert import convert
from autodist.project import Project
from autodist.result import Result

SCRIPT = """
import numpy as np
import torch
from torch import nn

X = np.random.rand(31, 2)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class PINN:
    def __init__(self, X, u):
        self.x = torch.tensor(X[:, 0:1], requires_grad=True).float().to(device)
        self.t = torch.tensor(X[:, 1:2], requires_grad=True).float().to(device)
        self.u = torch.tensor(u).float().to(device)
        self.nu = nn.Parameter(torch.tensor([0.1], requires_grad=True))
        self.dnn = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).to(device)
        self.dnn.register_parameter("nu", self.nu)
        self.optimizer = torch.optim.LBFGS(self.dnn.parameters(), max_iter=4)

    def net_u(self, x, t):
        return self.dnn(torch.cat([x, t], dim=1))

    def net_f(self, x, t):
        u = self.net_u(x, t)
        u_t = torch.autograd.grad(OUTPUTS, create_graph=True)[0]
        u_x = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)[0]
        return u_t + u * u_x

    def closure(self):
        self.optimizer.zero_grad()
        u, f = self.net_u(self.x, self.t), self.net_f(self.x, self.t)
        loss = torch.mean((self.u - u) ** 2) + self.nu * torch.mean(f ** 2)
        loss.backward()
        return loss

    def train(self):
        self.optimizer.step(self.closure)


PINN(X, X[:, 0:1]).train()
"""

PLAIN = """
import torch
from torch import nn

x = torch.linspace(0, 1, 30).view(-1, 1).requires_grad_(True)
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
for i in range(30):
    optimizer.zero_grad()
    y = model(x)
    dx = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]
    loss = torch.mean((dx + y) ** 2)
    loss.backward()
    optimizer.step()
"""


def converted(text: str, folder: Path) -> Result:
    (folder / "train.py").write_text(text)
    return convert(Project.load(folder / "train.py"), Config(Strategy.DDP))


def lines(result: Result) -> list[str]:
    text = result.entry.after
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize(
    "outputs", ["u, t, grad_outputs=torch.ones_like(u)", "u.sum(), t", "outputs=u.sum(), inputs=t"]
)
def test_points_that_methods_are_given_are_dealt_out(outputs: str, tmp_path: Path) -> None:
    code = lines(converted(SCRIPT.replace("OUTPUTS", outputs), tmp_path))
    assert "u, f = self.net_u(self.x[rows], self.t[rows]), self.net_f(self.x[rows], self.t[rows])" in code


def test_a_model_is_wrapped_once_it_has_its_last_parameter(tmp_path: Path) -> None:
    code = lines(converted(SCRIPT.replace("OUTPUTS", "u.sum(), t"), tmp_path))
    at = code.index('self.dnn.register_parameter("nu", self.nu)')
    assert code[at + 1] == "self.dnn = DDP(self.dnn, gradient_as_bucket_view=True)"


def test_the_derivative_of_a_mean_is_one_of_as_many_rows(tmp_path: Path) -> None:
    code = lines(converted(SCRIPT.replace("OUTPUTS", "u.mean(), t"), tmp_path))
    assert "u_t = torch.autograd.grad(u.mean() / dist.get_world_size(), t, create_graph=True)[0]" in code
    assert any("must divide by the number of ranks" in line for line in code)


def test_a_model_is_given_the_rows_that_it_is_derived_by(tmp_path: Path) -> None:
    code = lines(converted(PLAIN, tmp_path))
    assert code.index("own_x = x[rows]") < code.index("for i in range(30):") < code.index("y = model(own_x)")
    assert "dx = torch.autograd.grad(y, own_x, torch.ones_like(y), create_graph=True)[0]" in code


def test_rows_that_a_step_makes_are_cut_in_it(tmp_path: Path) -> None:
    made = "x = torch.linspace(0, 1, 30).view(-1, 1).requires_grad_(True)\n"
    inside = PLAIN.replace(made, "").replace("    y = model(x)", f"    {made}    y = model(x)")
    code = lines(converted(inside, tmp_path))
    assert code.index(made.strip()) < code.index("own_x = x[rows]") < code.index("y = model(own_x)")


def test_a_tensor_that_an_optimizer_trains_is_no_data(tmp_path: Path) -> None:
    trained = PLAIN.replace(
        "x = torch.linspace(0, 1, 30).view(-1, 1).requires_grad_(True)", "x = torch.rand(30, 1, requires_grad=True)"
    )
    result = converted(trained.replace("Adam(model.parameters())", "Adam([*model.parameters(), x])"), tmp_path)
    assert "x[rows]" not in result.entry.after
