"""Losses and means over a rank's samples."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from autodist.interpreter.contents import Contents
from autodist.interpreter.questions import last_part
from autodist.spread import LOCAL, MEAN, ROWS, SAME, SUM, Spread
from autodist.values import NOTHING, Object, Scope, Value, constant, union

BY_CLASS = frozenset(["cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss"])
"""Losses that give a number for each label, and none along the axis of the classes."""


def _axes_by_label(scores: Value = NOTHING, labels: Value = NOTHING) -> int:
    """How many axes the losses of a batch have: those of the scores without the one of the classes, or of the labels,
    as of one picture each; one, if neither is known."""
    if scores.axes is not None and scores.axes > 1:
        return scores.axes - 1
    return labels.axes or 1


def _is_output(value: Value) -> bool:
    """Whether a model has computed it from what is the same on all ranks."""
    return value.spread is SAME and bool(value.models) and not value.things


def name_of_loss(node: ast.Call, module: Value) -> str:
    """`CTCLoss`, `ctc_loss`"""
    made = [thing.name.rpartition(".")[2] for thing in module.things if isinstance(thing, Object)]
    return made[0] if made else last_part(node.func)


class Losses(Contents):
    """What losses are of."""

    def _loss(self, options: Mapping[str, Value], call: ast.Call, values: Sequence[Value], _: Any) -> Value:
        """The spread of a loss of torch, by its reduction."""
        mixed = self._mixed(values)
        if mixed.spread not in (ROWS, Spread.COLUMNS):
            return mixed
        reduction = options.get("reduction", constant("mean")).const
        if options.get("size_average", NOTHING).const is False or reduction == "sum":
            return mixed.computed(SUM)
        if options.get("reduce", NOTHING).const is False or reduction == "none":
            by_class = name_of_loss(call, NOTHING) in BY_CLASS
            return mixed.computed(ROWS).but(axes=_axes_by_label(*values[:2]) if by_class else None)
        return mixed.computed(MEAN)

    @staticmethod
    def _likelihood(value: Value, args: Sequence[Value], keywords: Mapping[str, Value]) -> Value:
        """How likely the tags of a batch are, as a layer of a library (a CRF) says of all sentences together."""
        reduction = keywords.get("reduction", args[3] if len(args) > 3 else constant("sum")).const
        return value.computed({"sum": SUM, "mean": MEAN, "none": ROWS}.get(str(reduction), LOCAL))

    def call_loss_function(
        self, name: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        if self._no_grad == 0:
            self.event("loss_function", node, scope)
        compared = 3 if name.endswith(("triplet_margin_loss", "distance_loss", "ranking_loss", "embedding_loss")) else 2
        given = [*args[:compared], *(keywords[k] for k in ("input", "target") if k in keywords)]
        return self._compared(self._loss(keywords, node, given, keywords), node, args, keywords, scope)

    def _compared(
        self,
        loss: Value,
        node: ast.Call,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
        module: Value = NOTHING,
    ) -> Value:
        """A loss of torch; noted, if it compares what a model gives for all samples of a batch with a rank's share of
        the labels."""
        sides = [*args[:2], *(keywords[name] for name in ("input", "target") if name in keywords)]
        shared, whole = [each for each in sides if each.spread is ROWS], [each for each in sides if _is_output(each)]
        if self.plan.draws and not self._no_grad and shared and whole:
            self.event("unshared_output", node, scope, union(whole))
        given = [v for t in module.things if isinstance(t, Object) for v in t.args[:1]] if module.things else args[2:3]
        options = (*given, *(keywords[name] for name in ("weight", "pos_weight") if name in keywords))
        if any(option.spread in (MEAN, SUM, LOCAL) for option in options):
            return loss.but(spread=LOCAL) if loss.spread.is_local else loss  # weighed by what a rank's samples are
        return loss
