"""What a training script is made of, in the field's words. Rules read this, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from autodist.project import Project
from autodist.rule import Severity
from autodist.source import Source
from autodist.spread import Spread
from autodist.values import Draw, Object, Path_, Value


@dataclass(frozen=True)
class Site:
    """A node of the script, and the file that it stands in."""

    source: Source
    node: ast.AST

    @property
    def statement(self) -> ast.stmt:
        """The statement that holds it."""
        return self.source.statement(self.node)


@dataclass(frozen=True)
class Wrapping:
    """Where a trained model becomes distributed: after ``statement``, under the name ``target``.

    ``inside`` is the expression to wrap where the statement binds the model and nothing else has to happen to it.
    """

    source: Source
    statement: ast.stmt
    target: ast.expr
    inside: ast.expr | None
    each: bool = False
    """Whether the target is a list of such models."""


@dataclass(frozen=True)
class Built:
    """Where a model is made: the expressions that do it, calls that move it to a device before it is sharded, and
    statements that then fill it with random numbers."""

    makers: tuple[Site, ...]
    moves: tuple[Site, ...]
    draws: tuple[Site, ...]


@dataclass(frozen=True)
class Model:
    """A module that an optimizer trains. ``bypassed`` if gradients flow past its ``forward``, or in a pattern that
    DistributedDataParallel does not synchronise; then gradients are averaged explicitly. ``data_parallel`` wrappers are
    replaced, and so are those that another library's FSDP put around it, ``fully_sharded``; those that only several
    devices would get are ``dropped``. ``alternatives`` are other modules that the same place may hold. ``units`` name,
    as attributes of the model, the parts that FSDP shards by themselves (with a ``*`` if it is a list of them),
    ``methods`` those that run its layers besides `forward`; ``sharded`` if the script itself does so;
    ``prefixed`` are states taken from a wrapper, whose keys begin with `module.`;
    ``moved_later`` are calls that move it after it is wrapped, which a distributed wrapper does not survive;
    ``built`` says where it is made, if it is made on rank 0 alone."""

    object: Object
    wrapping: Wrapping | None
    wrapped: bool
    bypassed: str | None
    batch_norm: bool
    sometimes_unused: bool
    data_parallel: tuple[Site, ...]
    dropped: tuple[Site, ...] = ()
    fully_sharded: tuple[Site, ...] = ()
    alternatives: tuple[Object, ...] = ()
    units: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    sharded: bool = False
    prefixed: tuple[Site, ...] = ()
    moved_later: tuple[Site, ...] = ()
    built: Built | None = None


@dataclass(frozen=True)
class Unordered:
    """Where a set of what may be strings is put in order, whether a list is made of it there, and whether the other
    ranks wait meanwhile, so that rank 0 cannot tell them its order."""

    site: Site
    listed: bool
    waiting: bool


@dataclass(frozen=True)
class Epoch:
    """A loop over a training loader: the statement that starts it, the loader there (None if no expression names it,
    or if each pass has a new one, so that the sampler cannot count), and the epoch's number."""

    source: Source
    statement: ast.stmt
    loader: str | None
    number: str | None


@dataclass(frozen=True)
class Loader:
    """A loader whose samples reach an optimizer. ``mixed`` if the same call also makes loaders that evaluate;
    ``switch`` is then the expression that tells them apart. ``reshuffles`` if it has a
    `DistributedSampler`, which wants to know the epoch."""

    object: Object
    source: Source
    node: ast.Call
    epochs: tuple[Epoch, ...]
    sharded: bool
    mixed: bool
    switch: str | None
    iterable: bool
    reshuffles: bool
    keys: frozenset[tuple[int, Path_]] = frozenset()
    """Of all loaders that the call makes on the ways to an optimizer."""
    drawn_apart: frozenset[str] = frozenset()
    """Libraries whose generators its sampler draws the order from, and each rank other things as its samples ask."""
    endless: bool = False
    """Its sampler goes on for as long as it is asked."""
    unseeded_samplers: tuple[Object, ...] = ()
    """Torch's samplers that it has been given and that draw from the global generator, where they are made once."""
