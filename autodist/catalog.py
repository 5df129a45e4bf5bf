"""What third-party names do, read from ``rules/catalog/*.toml`` and the user's ``[tool.autodist.catalog]``."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

from autodist import operations
from autodist.observations import Measured

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NOTHING: frozenset[str] = frozenset()
DRAWING = ("random", "random_like")
"""The classes of operations that draw."""
RANDOM_ROLES = frozenset({"random_draw", "index_draw"})
ANY_GENERATOR = frozenset({"torch", "numpy", "random"})
"""What a library may draw from of which nothing is known."""
HOMES = (
    (re.compile(r"torch\.nn\.(?:modules\.(?:\w+\.)?|parameter\.)([A-Z]\w*)"), r"torch.nn.\1"),
    (re.compile(r"torch\.optim\.(?!lr_scheduler|swa_utils)[a-z_]\w*\.([A-Z]\w*)"), r"torch.optim.\1"),
)
"""The modules that classes are defined in, and where torch offers them."""


@cache
def public(name: str) -> str:
    """The name that a class of torch is known by: `torch.nn.Module` of `torch.nn.modules.module.Module`."""
    for pattern, short in HOMES if name.startswith("torch.") else ():
        if pattern.fullmatch(name):
            return pattern.sub(short, name)
    return name


class Catalog:
    """Roles by qualified name. A name listed exactly is not looked up among wildcards, of which the first counts."""

    def __init__(
        self,
        tables: Sequence[Mapping[str, Sequence[str]]],
        equivalents: Mapping[str, str] | None = None,
        blocks: Mapping[str, Sequence[str]] | None = None,
        parameters: Mapping[str, int] | None = None,
        without_batch_norm: Mapping[str, Sequence[str]] | None = None,
        with_batch_norm: Mapping[str, Sequence[str]] | None = None,
        losses: Mapping[str, Sequence[str]] | None = None,
        draws: Mapping[str, Sequence[str]] | None = None,
        own_operations: Mapping[str, object] | None = None,
    ) -> None:
        self.equivalents: Mapping[str, str] = equivalents or {}
        """What plain PyTorch says instead of a name of another distribution library."""
        self._blocks = blocks or {}
        self._parameters = parameters or {}
        self._without_batch_norm = without_batch_norm or {}
        self._with_batch_norm = with_batch_norm or {}
        self._losses = losses or {}
        self._draws = draws or {}
        self._own = own_operations or {}
        self.operations = operations.load(own_operations)
        """The table of operations, with the lines of `[tool.autodist.operations]`."""
        self.measured: Mapping[ast.AST, Measured] = {}
        """How values of the project at hand lie that a library makes, where that was measured."""
        self._known: dict[str, frozenset[str]] = {}
        self._drawn: dict[str, frozenset[str]] = {}
        """The answers so far."""
        self._roles: dict[str, frozenset[str]] = {}
        for table in tables:
            for role, names in table.items():
                for name in names:
                    self._roles[name] = self._roles.get(name, NOTHING) | {role}
        for name in self._own:
            known = self.operations.find(name)
            drawing = {"random_draw"} if known is not None and known.cls in DRAWING else NOTHING
            self._roles[name] = self._roles.get(name, NOTHING).union(self.roles(self._alike(name)), drawing)

    def _alike(self, name: str) -> str:
        """What a user's function is said to do as: `torch.exp` of "as torch.exp"."""
        line = self._own.get(name)
        return line[3:] if isinstance(line, str) and line.startswith("as ") else ""

    def roles(self, name: str) -> frozenset[str]:
        """What ``name`` does; empty if nothing is known of it."""
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = self._found(name)
        return found

    def _found(self, name: str) -> frozenset[str]:
        found = self._roles.get(name)
        if found is None:
            found = self._roles.get(name.rpartition(".")[0] + ".*")
        if found is None and name.partition(".")[0] in self._patterned:
            found = next((roles for pattern, roles in self._patterns.items() if fnmatchcase(name, pattern)), NOTHING)
        return found or NOTHING

    @cached_property
    def training_packages(self) -> frozenset[str]:
        """The packages that own the training of the scripts that import them."""
        owning = (name for name, roles in self._roles.items() if "framework" in roles)
        return frozenset(name.partition(".")[0] for name in owning)

    @cached_property
    def _patterns(self) -> Mapping[str, frozenset[str]]:
        return {name: roles for name, roles in self._roles.items() if "*" in name and not name.endswith(".*")}

    @cached_property
    def _patterned(self) -> frozenset[str]:
        """The libraries that patterns are about."""
        return frozenset(pattern.partition(".")[0] for pattern in self._patterns)

    def blocks(self, name: str, first: object = None) -> tuple[str, ...]:
        """The repeated blocks of the model that ``name`` makes, given its first argument where that is known."""
        return next((tuple(units) for pattern, units in self._blocks.items() if _matches(pattern, name, first)), ())

    def own_loss(self, name: str) -> str:
        """Over what the model that ``name`` makes takes its own loss, if that is no mean over samples."""
        made = name.removesuffix(".from_pretrained").removesuffix(".from_config")
        kinds = ((kind, pattern) for kind, patterns in self._losses.items() for pattern in patterns)
        return next((kind for kind, pattern in kinds if fnmatchcase(made, pattern)), "")

    def draws(self, name: str) -> frozenset[str]:
        """The libraries from whose generators it may draw what ``name`` calls or makes: all of them, where nothing is
        known of it."""
        found = self._drawn.get(name)
        if found is None:
            found = self._drawn[name] = self._draws_from(name)
        return found

    def _draws_from(self, name: str) -> frozenset[str]:
        drawing = not RANDOM_ROLES.isdisjoint(self.roles(name))
        if drawing:
            return ANY_GENERATOR if name in self._own else frozenset([name.partition(".")[0]])
        if alike := self._alike(name):
            return self.draws(alike)
        transforms = {"torch"} if "random_transform" in self.roles(name) else NOTHING
        found = next((drawn for pattern, drawn in self._draws.items() if fnmatchcase(name, pattern)), None)
        if found is not None or transforms:
            return NOTHING.union(transforms, found or ())
        root = name.partition(".")[0]
        return NOTHING if root in sys.stdlib_module_names or root == "builtins" else ANY_GENERATOR

    def parameters(self, name: str, first: object = None) -> int | None:
        """The number of parameters of such a model, where it is a fact."""
        found = self._parameters.get(name)
        matching = (count for pattern, count in self._parameters.items() if _matches(pattern, name, first))
        return found if found is not None else next(matching, None)

    def normalises(self, name: str, first: object = None) -> bool:
        """Whether the model that ``name`` makes, given its first argument, may normalise over batches."""
        if any(name.startswith(each + ".") for each in self._with_batch_norm):
            return any(name.rpartition(".")[2] in names for names in self._with_batch_norm.values())
        library = next((each for each in self._without_batch_norm if name.startswith(each + ".")), None)
        if library is None:
            return False
        leaf = name.rpartition(".")[2]
        made = re.split("[/:]", first)[-1] if isinstance(first, str) and leaf.islower() else leaf
        if library == "torchvision.models" and not leaf.islower() and leaf != "?":
            if "Weights" in name:
                return False
            made = leaf.lower()  # `models.ResNet(BasicBlock, [1, 1, 1, 1])`
        stem = any(mark in made for mark in ("_bn", "resnet", "_mci"))  # `vgg16_bn`, `vit_base_resnet50d_224`
        return stem or not made.startswith(tuple(self._without_batch_norm[library]))

    def knows(self, name: str) -> bool:
        """Whether ``name`` belongs to a library of which something is known, or to Python's own."""
        root = name.partition(".")[0]
        return root in self._libraries or root in sys.stdlib_module_names

    @cached_property
    def _libraries(self) -> frozenset[str]:
        return frozenset(name.partition(".")[0] for name in self._roles) | {"builtins"}

    def has(self, name: str, role: str) -> bool:
        """Whether ``name`` plays ``role``."""
        return role in self.roles(name)


def _matches(pattern: str, name: str, first: object) -> bool:
    """`library.make(argument*`, with wildcards, against a name and a first argument."""
    model, _, argument = pattern.partition("(")
    return fnmatchcase(name, model) and (not argument or isinstance(first, str) and fnmatchcase(first, argument))


@cache
def _shipped() -> tuple[Mapping[str, Any], ...]:
    folder = files("autodist.rules.catalog")
    entries = sorted((e for e in folder.iterdir() if e.name.endswith(".toml")), key=lambda e: e.name)
    return tuple(tomllib.loads(e.read_text(encoding="utf-8")) for e in entries)


def load(
    extra: Mapping[str, Sequence[str]] | None = None, own_operations: Mapping[str, object] | None = None
) -> Catalog:
    """The shipped facts, with the user's own added."""
    equivalents = {name: code for table in _shipped() for name, code in table.get("equivalents", {}).items()}
    blocks = {name: units for table in _shipped() for name, units in table.get("blocks", {}).items()}
    counts = {name: count for table in _shipped() for name, count in table.get("parameters", {}).items()}
    plain = {name: begun for table in _shipped() for name, begun in table.get("without_batch_norm", {}).items()}
    found = {name: those for table in _shipped() for name, those in table.get("with_batch_norm", {}).items()}
    losses = {kind: names for table in _shipped() for kind, names in table.get("losses", {}).items()}
    draws = {name: drawn for table in _shipped() for name, drawn in table.get("draws", {}).items()}
    roles = [*(table.get("roles", {}) for table in _shipped()), extra or {}]
    return Catalog(roles, equivalents, blocks, counts, plain, found, losses, draws, own_operations)
