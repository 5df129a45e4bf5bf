"""The blocks that the catalogue names exist in the libraries, where those are installed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from autodist import catalog

MOST = 3
"""Models of one name pattern that are looked at."""


def patterns(library: str) -> list[str]:
    """What the catalogue names of a library."""
    return [name for table in catalog._shipped() for name in table.get("blocks", {}) if name.startswith(library)]


def blocks(model: Any, units: Iterable[str]) -> list[Any]:
    """The blocks of a model, as the converted script finds them."""
    found: list[Any] = []
    for unit in units:
        value = eval(f"model.{unit.lstrip('*')}", {"model": model})
        found += value if unit.startswith("*") else [value]
    return found


def check(model: Any, units: tuple[str, ...]) -> None:
    """There are several blocks, and most parameters are in them."""
    inside = blocks(model, units)
    assert units and len(inside) > 1 and all(hasattr(block, "forward") for block in inside)
    held = sum(p.numel() for block in inside for p in block.parameters())
    outside = sum(
        p.numel() for name, p in model.named_parameters() if not name.startswith(("classifier", "head", "fc"))
    )
    assert held > 0.4 * outside, (held, outside)


@pytest.mark.parametrize("pattern", patterns("torchvision.models."))
def test_torchvision(pattern: str) -> None:
    torch, models = pytest.importorskip("torch"), pytest.importorskip("torchvision.models")
    wanted = pattern.removeprefix("torchvision.models.").rpartition(".")[2]
    module = models.segmentation if ".segmentation." in pattern else models
    for name in models.list_models(module=module, include=wanted)[:MOST]:
        try:
            with torch.device("meta"):
                model = module.__dict__[name](weights=None, **({"weights_backbone": None} if module != models else {}))
        except NotImplementedError:  # it reads values while it is made
            model = module.__dict__[name](weights=None)
        check(model, catalog.load().blocks(f"{pattern.rpartition('.')[0]}.{name}"))


@pytest.mark.parametrize("pattern", patterns("timm."))
def test_timm(pattern: str) -> None:
    torch, timm = pytest.importorskip("torch"), pytest.importorskip("timm")
    names = timm.list_models(pattern.partition("(")[2])[:MOST]
    assert names
    for name in names:
        with torch.device("meta"):
            model = timm.create_model(name)
        check(model, catalog.load().blocks("timm.create_model", name))


@pytest.mark.parametrize("pattern", [name for name in patterns("transformers.") if ".Auto" not in name])
def test_transformers(pattern: str) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    name = pattern.removeprefix("transformers.").rstrip("*")
    heads = ("SequenceClassification", "CausalLM", "ConditionalGeneration") if name.endswith("For") else ("",)
    for head in heads:
        cls = getattr(transformers, f"{name}{head}", None)
        if cls is not None:
            with torch.device("meta"):
                model = cls(cls.config_class())
            inside = blocks(model, catalog.load().blocks(f"transformers.{name}{head}"))
            assert len(inside) > 1 and len({type(block) for block in inside}) < 3


@pytest.mark.parametrize("pattern", patterns("transformers.Auto"))
def test_automatic_classes_find_the_same_blocks(pattern: str) -> None:
    units = catalog.load().blocks(pattern.partition("(")[0].replace("*", "CausalLM"), pattern.partition("(")[2])
    others = [
        catalog.load().blocks(name.rstrip("*") + "CausalLM")
        for name in patterns("transformers.")
        if ".Auto" not in name
    ]
    assert units in others


@pytest.mark.parametrize("library", ["torchvision.models", "timm"])
def test_no_batch_norm_is_missed(library: str) -> None:
    """What is said to normalise over batches may not, and is synchronised in vain; never the other way round."""
    torch, made = pytest.importorskip("torch"), pytest.importorskip(library)
    make = made.get_model if library == "torchvision.models" else made.create_model
    facts = catalog.load()
    names = made.list_models()[:: 1 if library == "torchvision.models" else 9]
    for name in names:
        try:
            with torch.device("meta"):
                model = make(name, weights=None) if library == "torchvision.models" else make(name)
        except Exception:
            continue  # cannot be made without memory, or without a download
        kind = torch.nn.modules.batchnorm._BatchNorm
        whole = facts.normalises(f"{library}.{make.__name__}", name)
        assert whole or not any(isinstance(layer, kind) for layer in model.modules()), name
        assert library == "timm" or facts.normalises(f"{library}.{name}") == whole
