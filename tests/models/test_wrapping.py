"""Where a model is wrapped: once it has all of its layers."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import converted

SCRIPT = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
{make}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
GROW = "model = nn.Sequential(nn.Linear(4, 4))\nmodel.add_module('last', nn.Linear(4, 1))"


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (GROW, f"{GROW}\nmodel = DDP(model, gradient_as_bucket_view=True)\n"),
        (f"{GROW}\nmodel = model.to('cpu')", f"{GROW}\nmodel = DDP(model.to('cpu'), gradient_as_bucket_view=True)\n"),
        (
            "model = nn.Sequential()\nfor size in (4, 1):\n    model.append(nn.Linear(4, size))",
            "model.append(nn.Linear(4, size))\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
        (
            "model = nn.Sequential(nn.Linear(4, 4))\nprint(model(torch.ones(1, 4)))\nmodel.append(nn.Linear(4, 1))",
            "model.append(nn.Linear(4, 1))\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
        (
            "model = nn.Linear(4, 1)\ntry:\n    model.load_state_dict(torch.load('best.pt'))\n"
            "except FileNotFoundError:\n    model = model.apply(print)",
            "    model = model.apply(print)\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
        (
            "model = nn.Linear(4, 1)\nif len(loader) > 9:\n    model, first = load(model)",
            "    model, first = load(model)\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
        (
            "model = nn.Linear(4, 1)\nif len(loader) > 9:\n    model = model.train()",
            "model = DDP(nn.Linear(4, 1), gradient_as_bucket_view=True)\n",
        ),
    ],
)
def test_a_model_is_wrapped_when_it_is_complete(tmp_path: Path, make: str, expected: str) -> None:
    load = "def load(model):\n    return model, 0\n\n\n"
    assert expected in converted(tmp_path, SCRIPT.format(make=load + make))[0]


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("", "    other = DDP(nn.Linear(4, 1))\nelse:\n    other = None\n"),
        (
            "    other.bias.requires_grad = False\n",
            "    other.bias.requires_grad = False\n    other = DDP(other)\nelse:\n    other = None\n",
        ),
    ],
)
def test_a_model_that_there_may_not_be(tmp_path: Path, then: str, expected: str) -> None:
    """It is wrapped where it is made."""
    make = f"model = nn.Linear(4, 1)\nif len(loader) > 3:\n    other = nn.Linear(4, 1)\n{then}else:\n    other = None"
    text = SCRIPT.format(make=make).replace("model.parameters()", "[*model.parameters(), *other.parameters()]")
    code, _ = converted(tmp_path, text.replace("loss = ", "loss = other(x).mean() + "))
    assert expected in code


@pytest.mark.parametrize(
    ("then", "expected"),
    [
        ("plot_regions(X=x.numpy(), y=2, clf=model)", "plot_regions(X=x.numpy(), y=2, clf=model.module)"),
        ("plot_regions(model, title='all')", "plot_regions(model.module, title='all')"),
        ("plot_regions(model, optimizer)", "plot_regions(model, optimizer)"),
        ("plot_regions(model, loader)", "plot_regions(model, loader)"),
        ("trainer = plot_regions(model)", "trainer = plot_regions(model)"),
    ],
)
def test_code_that_is_not_at_hand_looks_at_the_model_itself(tmp_path: Path, then: str, expected: str) -> None:
    """It may ask for what the wrapper has not, as `predict`; what may train it is given the wrapper, and warned of."""
    text = "from regions import plot_regions\n" + SCRIPT.format(make="model = nn.Linear(4, 1)")
    then = f"x = torch.ones(2, 4)\n{then}\n"
    code, findings = converted(tmp_path, text + then)
    assert expected in code
    assert ("is given model in its wrapper" in findings) == (".module" not in expected)


@pytest.mark.parametrize(
    "then",
    [
        "logging.info({model})",
        "logging.info('model: %s', {model})",
        "logger.info({model})",
        "print('{{}}'.format({model}))",
        "print('model:\\n%s' % {model})",
        "print('%d: %s' % (3, {model}))",
        "text = repr({model})",
        "print({model}.parameters)",
    ],
)
def test_the_layers_as_text_are_those_of_the_model(tmp_path: Path, then: str) -> None:
    """The wrapper would be written out with it."""
    text = "import logging\n\nlogger = logging.getLogger()\n" + SCRIPT.format(make="model = nn.Linear(4, 1)")
    code, _ = converted(tmp_path, f"{text}{then.format(model='model')}\n")
    assert code.endswith(f"{then.format(model='model.module')}\n")


def test_a_part_that_several_devices_of_one_process_shared(tmp_path: Path) -> None:
    """It is the model around it that is wrapped."""
    code, _ = converted(
        tmp_path,
        """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.encoder(x))


def made():
    model = Net()
    if torch.cuda.device_count() > 1:
        model.encoder = nn.DataParallel(model.encoder)
    return model, nn.MSELoss()


loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
model, criterion = made()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = criterion(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
""",
    )
    assert "model = DDP(model" in code and "DataParallel(model.encoder)" not in code


INITIALISE = """\
def init_weights(net):
    for module in net.modules():
        if isinstance(module, (nn.Linear, nn.BatchNorm1d)):
            nn.init.normal_(module.weight.data, 0.0, 0.02)


"""


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            "model = nn.Linear(4, 1)\ninit_weights(model)",
            "model = nn.Linear(4, 1)\ninit_weights(model)\nmodel = DDP(model",
        ),
        (
            "model = nn.Linear(4, 1)\nother = 3\ninit_weights(model)",
            "init_weights(model)\nmodel = DDP(model, gradient_as_bucket_view=True)\n",
        ),
    ],
)
def test_a_model_is_wrapped_when_it_is_initialised(tmp_path: Path, make: str, expected: str) -> None:
    """Layers of batch normalisation are of another class once they are synchronised, and would be left out."""
    assert expected in converted(tmp_path, SCRIPT.format(make=INITIALISE + make))[0]


COLLATED = """\
from torch.utils.data import default_collate


class Net(nn.Linear):
    longest = 4


model = Net(4, 1)
loader = DataLoader(loader.dataset, 8, True, collate_fn=lambda rows: cut(rows, model.longest))"""


def test_a_model_that_a_function_for_a_library_asks(tmp_path: Path) -> None:
    """It is called later, when the model is wrapped."""
    assert "cut(rows, model.module.longest)" in converted(tmp_path, SCRIPT.format(make=COLLATED))[0]


@pytest.mark.parametrize(
    ("test", "named"),
    [("device == 'cuda'", True), ("torch.cuda.is_available()", True), ("torch.cuda.device_count() > 1", False)],
)
def test_a_wrapper_on_one_gpu_names_its_keys(tmp_path: Path, test: str, named: bool) -> None:
    """Checkpoints that the script writes on a GPU have another prefix than those of the conversion."""
    make = f"device = 'cpu'\nmodel = nn.Linear(4, 1)\nif {test}:\n    model = nn.DataParallel(model)"
    _, said = converted(tmp_path, SCRIPT.format(make=make) + "torch.save(model.state_dict(), 'last.pt')\n")
    assert ("AD401 on a GPU the checkpoints" in said) == named


def test_a_condition_that_always_holds_is_none(tmp_path: Path) -> None:
    """The checkpoints have the keys of the wrapper, on whatever machine."""
    make = "model = nn.Linear(4, 1)\nif True:\n    model = nn.DataParallel(model)\n    print('on several')"
    after, _ = converted(tmp_path, SCRIPT.format(make=make) + 'torch.save(model.state_dict(), "m.pt")\n')
    assert (
        "    model = DDP(model, gradient_as_bucket_view=True)\n" in after and "torch.save(model.state_dict()" in after
    )


KNOWN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
cuda = torch.cuda.is_available()
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if cuda:
    model = nn.DataParallel(model, device_ids=[0]).cuda()
for x, y in loader:
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
{saved}
"""


@pytest.mark.parametrize(
    ("saved", "same_keys"),
    [
        ("torch.save(model.module.state_dict() if cuda else model.state_dict(), 'm.pt')", True),
        ("if cuda:\n    state = model.module.state_dict()\nelse:\n    state = model.state_dict()", True),
        ("torch.save(model.state_dict(), 'm.pt')", False),
    ],
)
def test_a_script_that_looks_into_its_wrapper_has_the_same_keys(tmp_path: Path, saved: str, same_keys: bool) -> None:
    assert ("keys of this wrapper" not in converted(tmp_path, KNOWN.format(saved=saved))[1]) == same_keys


METHODS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(4, 2), nn.Linear(2, 4)

    def forward(self, x):
        return self.decoder(self.encoder(x))

    def calc_loss(self, x):
        return nn.functional.mse_loss(self.decoder(torch.relu(self.encoder(x))), x)


loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for (x,) in loader:
    loss = net.calc_loss(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
net.eval()
print(net(torch.ones(1, 4)).detach())
"""


def test_a_model_that_trains_by_a_method_and_is_called_when_it_has_learned(tmp_path: Path) -> None:
    code, said = converted(tmp_path, METHODS)
    assert "AD904" not in said
    assert "average_gradients(optimizer)" in code or "DDP(net" in code


KEEPER = """\
import pickle

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Topics:
    def __init__(self, size):
        self.size = size
        self.model = nn.Linear(size, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)

    def fit(self, loader):
        for x, y in loader:
            self.optimizer.zero_grad()
            nn.functional.cross_entropy(self.model(x), y).backward()
            self.optimizer.step()
        with open("topics", "wb") as file:
            {save}


Topics(4).fit(DataLoader(TensorDataset(torch.randn(64, 4), torch.arange(64) % 3), batch_size=8, shuffle=True))
"""


@pytest.mark.parametrize(
    ("save", "warned"),
    [
        ("torch.save({'state': self.model.state_dict(), 'all': self.__dict__}, file)", True),
        ("torch.save(vars(self), file)", True),
        ("pickle.dump(self, file)", True),
        ("torch.save({'state': self.model.state_dict(), 'size': self.size}, file)", False),
    ],
)
def test_objects_that_are_saved_with_the_model_that_they_hold(tmp_path: Path, save: str, warned: bool) -> None:
    """The wrapper is among what they hold, and its keys begin with "module." (AVITM)."""
    _, said = converted(tmp_path, KEEPER.format(save=save))
    assert ("AD402 saves all that self holds, and with it self.model in its wrapper" in said) == warned


TRAINERS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Fitter:
    def __init__(self, model, optimizer, device):
        self.model = model.to(device)
        self.optimizer = optimizer
        self.device = device

    def loss(self, out, y):
        return nn.functional.mse_loss(out, y)

    def train(self, loader, epochs):
        for epoch in range(epochs):
            for x, y in loader:
                x, y = x.to(self.device), y.to(self.device)
                loss = self.loss(self.model(x), y)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


class Robust:
    def __init__(self, net, optimizer, device):
        self.net, self.optimizer, self.device = net.to(device), optimizer, device

    def train(self, loader, epochs):
        for epoch in range(epochs):
            for x, y in loader:
                loss = nn.functional.smooth_l1_loss(self.net(x.to(self.device)), y.to(self.device))
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()


class Steep(Fitter):
    def __init__(self, model, optimizer, device):
        self.model = model.to(device)
        self.optimizer, self.device = optimizer, device

    def loss(self, out, y):
        return 3 * nn.functional.l1_loss(out, y)


def main(kind):
    torch.manual_seed(0)
    settings = {"device": input()}
    device = torch.device(settings["device"] if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8, shuffle=True)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    CHOICE
    trainer.train(loader, 2)


if __name__ == "__main__":
    main(input())
"""
BY_IF = """\
if kind == "robust":
        trainer = Robust(model, optimizer, device)
    elif kind == "steep":
        trainer = Steep(model, optimizer, device)
    else:
        trainer = Fitter(model, optimizer, device)"""
BY_TABLE = 'trainer = {"robust": Robust, "steep": Steep, "plain": Fitter}[kind](model, optimizer, device)'
BY_VALUE = (
    "trainer = Robust(model, optimizer, device) if kind == 'robust' else Fitter(model=model, optimizer=optimizer, "
    "device=device)"
)


@pytest.mark.parametrize("choice", [BY_IF, BY_TABLE, BY_VALUE], ids=["if", "table", "value"])
def test_one_of_several_classes_keeps_the_model(tmp_path: Path, choice: str) -> None:
    """The last place before its first step is in one of them alone: it is wrapped where all of them are given it, and
    on its device by then."""
    code, said = converted(tmp_path, TRAINERS.replace("CHOICE", choice))
    assert "    model = DDP(nn.Linear(8, 1).to(device), gradient_as_bucket_view=True)\n" in code, said
    assert "AD904" not in said and code.count("DDP(") == 1


def test_one_class_wraps_the_model_that_it_keeps(tmp_path: Path) -> None:
    code, _ = converted(tmp_path, TRAINERS.replace("CHOICE", "trainer = Steep(model, optimizer, device)"))
    assert "self.model = DDP(model.to(device), gradient_as_bucket_view=True)\n" in code and code.count("DDP(") == 1
