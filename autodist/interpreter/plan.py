"""What the analysis has decided so far."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from autodist.values import Path_


@dataclass(frozen=True)
class Plan:
    """What the analysis has decided so far, and the next run of the interpreter takes for granted.

    ``sharded`` and ``draws`` are the keys of loaders and draws that yield this rank's samples (None: all of them),
    ``wraps`` the statements after which a model is wrapped, with the expression that names it, or the expression that
    makes it where it has no name, ``reduced`` the expressions whose value is made global, ``divided`` those that become
    a rank's share of the batch size (None: not known yet), ``dropped`` the wrappers that go, ``modules`` the calls of
    unknown libraries that turned out to make a module, ``wholes`` the names of tensors of which a rank takes its rows,
    ``columns`` those of which it takes columns, ``counts`` names of the number of all rows that shape other tensors.
    """

    sharded: frozenset[tuple[int, Path_]] | None = None
    draws: frozenset[int] | None = None
    wraps: Mapping[ast.stmt | ast.expr, tuple[ast.expr, ...]] = field(default_factory=dict)
    reduced: frozenset[ast.AST] = frozenset()
    divided: frozenset[ast.expr] | None = None
    dropped: frozenset[ast.AST] = frozenset()
    modules: frozenset[int] = frozenset()
    inputs: frozenset[int] = frozenset()
    """Calls that make tensors with `requires_grad=True` which nothing trains: they are data."""
    wholes: frozenset[ast.expr] = frozenset()
    columns: frozenset[ast.expr] = frozenset()
    counts: frozenset[ast.expr] = frozenset()
    batches: frozenset[ast.expr] = frozenset()
    """Expressions for a batch that a step is given, or for an iterable of them: a rank takes its rows there."""
    turns: frozenset[ast.expr] = frozenset()
    """What loops go over of whose rounds, one for each sample of a step, a rank takes its share."""
    even: bool = False
    """All ranks have as many of these rounds."""
    weighed: frozenset[ast.AST] = frozenset()
    """Losses that are weighed by what each rank divides by."""
    joined: frozenset[ast.AST] = frozenset()
    """Sums and means over a batch that losses are computed from, which are taken over all ranks."""
    terms: frozenset[ast.expr] = frozenset()
    """Sums that losses add to means, which are taken as often as there are ranks."""
    gathered: frozenset[ast.expr] = frozenset()
    """Rows, and numbers of rows, that are those of all ranks, since losses compare them with each other."""
    beside: frozenset[ast.expr] = frozenset()
    """Samples that are joined to a rank's share of a batch, of which it takes its share, too."""
    untaken: frozenset[ast.expr] = frozenset()
    """What would mix the samples of a batch in branches that training does not take."""
    held: frozenset[tuple[int, Path_]] = frozenset()
    """Loaders that are read ahead of training, for tensors that all ranks hold as a whole."""
    bare: bool = False
    """Models are distributed without a wrapper: `model.module` becomes the model itself."""

    @cached_property
    def followed(self) -> tuple[object, ...]:
        """What of it a run of the interpreter goes by: the rest tells how values lie."""
        return self.draws or frozenset(), self.wraps, self.dropped, self.modules, self.inputs, self.held

    @cached_property
    def taken(self) -> frozenset[ast.expr]:
        """Where a rank takes its share of data that it has in full, or of their number."""
        return self.wholes | self.columns | self.counts

    def shares(self, draw: ast.expr) -> bool:
        """Whether ranks take their share of what is drawn there."""
        return self.draws is not None and id(draw) in self.draws
