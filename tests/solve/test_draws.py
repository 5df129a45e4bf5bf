"""Random draws of a program: from whose generator, and for the samples of which loader."""

from __future__ import annotations

import ast
from collections.abc import Iterable

import pytest
from programs import CATALOG, named, traced

from autodist.solve.draws import Draw, Draws
from autodist.solve.generators import Generators

SCRIPT = """\
import functools
import random
import numpy as np
import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

RNG = np.random.default_rng(3)


class Jitter:
    def __call__(self, x):
        return x * np.random.rand()


def cropped(x):
    return x[random.randrange(2) :]


def drawn(rng=np.random.default_rng(7)):
    return rng.normal()


@functools.cache
def made_once():
    return np.random.default_rng(9)


class Samples(Dataset):
    def __init__(self, transform=None):
        self.x, self.transform = torch.arange(64.0), transform
        self.rng = np.random.default_rng(5)

    def __len__(self):
        return 64

    @functools.cached_property
    def made_once(self):
        return np.random.default_rng(9)

    def __getitem__(self, i):
        x = self.x[i]
        return {read}


def collate(samples):
    return torch.stack(samples) + torch.rand(len(samples))


def seeded(worker):
    np.random.seed({seed})


def loader_of(data):
    return DataLoader(data, 8, num_workers={workers}, collate_fn={collate}, worker_init_fn=seeded)


model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train, test = loader_of({data}), loader_of(torchvision.datasets.FakeData(8, transform=lambda x: x + random.random()))
for epoch in range(2):
    for x in train:
        model(x + torch.rand(1)).mean().backward()
        optimizer.step()
    for x in test:
        print(model(x))
"""


def program_of(
    data: str = "Samples()", read: str = "x", collate: str = "None", seed: str = "0", workers: int = 0
) -> tuple[Draws, Generators, ast.AST]:
    program = traced(SCRIPT.format(data=data, read=read, collate=collate, seed=seed, workers=workers))
    (made,) = {each.node for each in program.operations if each.name == "torch.utils.data.DataLoader.__init__"}
    draws = Draws(program, CATALOG)
    return draws, Generators(program, draws), made


def libraries(found: Iterable[Draw]) -> set[str]:
    return {each.library for each in found}


@pytest.mark.parametrize(
    ("given", "drawn"),
    [
        ({"read": "x + np.random.rand()"}, {"numpy"}),
        ({"read": "cropped(x)"}, {"random"}),
        ({"read": "self.transform(x)", "data": "Samples(Jitter())"}, {"numpy"}),
        (
            {"read": "self.transform(x)", "data": "Samples(transforms.Compose([Jitter(), cropped]))"},
            {"numpy", "random"},
        ),
        ({"read": "self.transform(x)", "data": "Samples(transforms.RandomCrop(2))"}, {"torch"}),
        ({"read": "self.transform(x)", "data": "Samples(transforms.CenterCrop(2))"}, set()),
        ({"data": "torchvision.datasets.CIFAR10('data', transform=Jitter())"}, {"numpy"}),
        ({"data": "torchvision.datasets.FakeData(64, transform=transforms.Lambda(cropped))"}, {"random"}),
        ({"data": "torch.utils.data.Subset(Samples(), range(8))", "read": "x + torch.randn(1)"}, {"torch"}),
        ({"read": "x + torch.empty(1).normal_()"}, {"torch"}),
        ({"collate": "collate"}, {"torch"}),
        ({"read": "[np.random.seed(0), x + np.random.rand()][1]"}, set()),  # alike, whatever was drawn before
        ({"read": "x + self.rng.normal()"}, set()),  # from a generator of its own
        ({}, set()),
    ],
)
def test_what_is_drawn_for_samples(given: dict[str, str], drawn: set[str]) -> None:
    """Of the loader that trains: another one that the same call makes draws from `random`."""
    draws, _, made = program_of(**given)  # type: ignore[arg-type]
    assert libraries(draws.per_sample(made)) == drawn
    assert not draws.by_workers(made)


def test_workers_draw_for_themselves() -> None:
    draws, _, made = program_of(read="cropped(x)", workers=2)
    assert libraries(draws.by_workers(made)) == {"random"} and not draws.per_sample(made)


@pytest.mark.parametrize(("called", "read"), [("x", True), ("cropped(x)", False)])
def test_calls_that_are_made_for_samples_alone(called: str, read: bool) -> None:
    """Whatever a function or method is called: one that a step calls too draws for the batch."""
    text = SCRIPT.format(data="Samples()", read="cropped(x)", collate="None", seed="0", workers=0)
    program = traced(text.replace("model(x +", f"model({called} +"))
    draws = Draws(program, CATALOG)
    assert {draws.is_read(each.node) for each in named(program, "random.randrange")} == {read}
    assert not any(draws.is_read(each.node) for each in named(program, "torch.rand"))


@pytest.mark.parametrize(
    ("seed", "said"),
    [
        ("0", "0"),
        ("3 + worker", "3 + worker"),
        ("torch.initial_seed() % 2**32", None),
        ("torch.utils.data.get_worker_info().seed", None),
        ("3 + worker + torch.distributed.get_rank()", None),
        ("random.randint(0, 9)", None),
    ],
)
def test_numbers_that_seed_workers_alike(seed: str, said: str | None) -> None:
    _, generators, made = program_of(seed=seed, workers=2)
    assert [ast.unparse(each) for _, each in generators.seeds_of_workers([made])] == [said] * (said is not None)


NOISE = "x + self.rng.normal()"


@pytest.mark.parametrize(
    ("read", "more", "own", "kept", "left"),
    [
        (NOISE, "", 1, 1, 0),
        (NOISE, "train.dataset.rng.permutation(64)", 0, 0, 1),
        (NOISE, "for x in loader_of(Samples()): print(x)", 0, 0, 1),
        ("x + RNG.normal()", "", 1, 0, 1),
        ("x + RNG.normal()", "RNG.permutation(64)", 0, 0, 1),
        ("x + torch.rand(1, generator=torch.Generator().manual_seed(i))", "", 0, 0, 0),
        ("x + np.random.default_rng(i).normal()", "", 0, 0, 0),
        ("x", "RNG.permutation(64)", 0, 0, 0),
        ("x + self.made_once.normal()", "", 0, 0, 1),
        ("x + made_once().normal()", "", 0, 0, 1),
        ("x + drawn()", "", 1, 0, 1),
    ],
)
def test_generators_of_samples(read: str, more: str, own: int, kept: int, left: int) -> None:
    """Those from which nothing else is drawn, those that can begin anew once the data set is made, and the others."""
    program = traced(SCRIPT.format(data="Samples()", read=read, collate="None", seed="0", workers=0) + more + "\n")
    made = named(program, "torch.utils.data.DataLoader.__init__")[0].node
    generators = Generators(program, Draws(program, CATALOG))
    again, others = generators.kept([(made, False)], set())
    assert (len(generators.of_samples([made])), len(again), len(others)) == (own, kept, left)


@pytest.mark.parametrize(
    ("made", "own", "several", "kept", "left"),
    [
        ("np.random.default_rng(5)", 1, False, 1, 0),
        ("[np.random.default_rng(k) for k in range(4)]", 1, True, 0, 1),
        ("[np.random.default_rng(k) for k in (1, 7)]", 1, True, 0, 1),
        ("{k: np.random.default_rng(k) for k in range(4)}", 1, True, 0, 1),
        ("list(map(np.random.default_rng, range(4)))", 0, False, 0, 1),
        ("[np.random.default_rng(3) for _ in range(4)]", 1, False, 0, 1),
        ("np.random.default_rng(SPAWNED[0])", 0, False, 0, 1),
        ("np.random.default_rng(np.random.SeedSequence(5))", 0, False, 0, 1),
        ("np.random.default_rng(np.random.SeedSequence(5).spawn(2)[0])", 0, False, 0, 1),
        ("np.random.default_rng(seed=np.random.SeedSequence(5).spawn(2)[0])", 0, False, 0, 1),
        ("[np.random.default_rng(each) for each in SPAWNED]", 0, False, 0, 1),
        ("np.random.default_rng([5, 6])", 0, False, 0, 1),
        ("np.random.Generator(np.random.PCG64(5))", 0, False, 0, 1),
        ("random.Random('five')", 0, False, 0, 1),
    ],
)
def test_seeds_that_a_rank_is_added_to(made: str, own: int, several: bool, kept: int, left: int) -> None:
    """Numbers alone: where one call makes several generators, those of ranks must not overlap."""
    script = SCRIPT.format(data="Samples()", read="x + self.rng.normal()", collate="None", seed="0", workers=0)
    script = script.replace("np.random.default_rng(5)", made).replace(
        "RNG =", "SPAWNED = np.random.SeedSequence(5).spawn(2)\nRNG ="
    )
    program = traced(script.replace("self.rng.", "self.rng[0].") if made.startswith(("[", "{", "list")) else script)
    loader = named(program, "torch.utils.data.DataLoader.__init__")[0].node
    generators = Generators(program, Draws(program, CATALOG))
    again, others = generators.kept([(loader, False)], set())
    alone = generators.of_samples([loader])
    assert (len(alone), any(map(generators.are_several, alone)), len(again), len(others)) == (own, several, kept, left)
