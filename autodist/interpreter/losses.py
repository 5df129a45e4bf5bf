"""Losses and means over a rank's samples."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autodist import collation
from autodist.interpreter.contents import Contents
from autodist.interpreter.questions import last_part
from autodist.source import argument, walk
from autodist.spread import LOCAL, MEAN, ROWS, SAME, SUM, Spread
from autodist.tensors import facts, picking
from autodist.tensors.calls import number_of
from autodist.values import NOTHING, SETTLED, Object, Scope, Trimmed, Value, constant, union

CONNECTIONIST = frozenset(["CTCLoss", "ctc_loss"])
"""Losses that are told how long samples are, and divide each by how long its own labels are."""
OWN_LENGTHS = frozenset([LOCAL, MEAN, SUM, Spread.MOST, Spread.LEAST])
"""How a number relates to those of other ranks that is computed from a rank's own samples, be they as many or not."""
MEANS = frozenset("mean nanmean var std".split())
PACKING = frozenset("masked_select pack_padded_sequence".split())
"""What leaves padding out."""
NUMBERS = frozenset("numel nelement".split())
COUNTING_UP = frozenset("arange range linspace".split())
ALONG_AXES = (
    MEANS | PACKING | frozenset("pad sum nansum max amax min amin argmax argmin logsumexp prod any all".split())
)
BY_CLASS = frozenset(["cross_entropy", "CrossEntropyLoss", "nll_loss", "NLLLoss"])
"""Losses that give a number for each label, and none along the axis of the classes."""


def _axes_by_label(scores: Value = NOTHING, labels: Value = NOTHING) -> int:
    """How many axes the losses of a batch have: those of the scores without the one of the classes, or of the labels,
    as of one picture each; one, if neither is known."""
    if scores.axes is not None and scores.axes > 1:
        return scores.axes - 1
    return labels.axes or max(labels.least, scores.least - 1, 1)


def _is_output(value: Value) -> bool:
    """Whether a model has computed it from what is the same on all ranks."""
    return value.spread is SAME and bool(value.models) and not value.things


def name_of_loss(node: ast.Call, module: Value) -> str:
    """`CTCLoss`, `ctc_loss`"""
    made = [thing.name.rpartition(".")[2] for thing in module.things if isinstance(thing, Object)]
    return made[0] if made else last_part(node.func)


class Losses(Contents):
    """What losses are of."""

    def _mean(self, result: Value, node: ast.Call) -> Value:
        """`each[keep].mean()`, of which ranks have different numbers."""
        uneven = result.spread is MEAN and self.uneven(result) is not None
        return self._evened(result, node) if uneven and node in self.plan.weighed else result

    def _loss(self, options: Mapping[str, Value], call: ast.Call, values: Sequence[Value], _: Any) -> Value:
        """The spread of a loss of torch, by its reduction."""
        mixed = self._mixed(values)
        if mixed.spread not in (ROWS, Spread.COLUMNS):
            return mixed
        reduction = options.get("reduction", constant("mean")).const
        if options.get("size_average", NOTHING).const is False or reduction == "sum":
            return mixed.computed(SUM)
        if options.get("reduce", NOTHING).const is False or reduction == "none":
            by_class = self.plan.wholes is None and name_of_loss(call, NOTHING) in BY_CLASS
            return mixed.computed(ROWS).but(axes=_axes_by_label(*values[:2]) if by_class else None)
        return mixed.computed(MEAN)

    @staticmethod
    def _likelihood(value: Value, args: Sequence[Value], keywords: Mapping[str, Value]) -> Value:
        """How likely the tags of a batch are, as a layer of a library (a CRF) says of all sentences together."""
        reduction = keywords.get("reduction", args[3] if len(args) > 3 else constant("sum")).const
        masked = "mask" in keywords or len(args) > 2  # so that no padding counts
        found = value.computed({"sum": SUM, "mean": MEAN, "none": ROWS}.get(str(reduction), LOCAL))
        return collation.marked(found, SETTLED) if masked else found

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
        """A loss of torch; noted, if it is a mean over as many numbers as a rank happens to have, or compares what a
        model gives for all samples of a batch with a rank's share of the labels."""
        sides = [*args[:2], *(keywords[name] for name in ("input", "target") if name in keywords)]
        shared, whole = [each for each in sides if each.spread is ROWS], [each for each in sides if _is_output(each)]
        if self.plan.draws and not self._no_grad and shared and whole:
            self.event("unshared_output", node, scope, union(whole))
        loss = collation.marked(loss, SETTLED)
        given = [v for t in module.things if isinstance(t, Object) for v in t.args[:1]] if module.things else args[2:3]
        options = (*given, *(keywords[name] for name in ("weight", "pos_weight") if name in keywords))
        if any(option.spread in (MEAN, SUM, LOCAL) for option in options):
            return loss.but(spread=LOCAL) if loss.spread.is_local else loss  # weighed by what a rank's samples are
        if loss.spread is not MEAN or keywords.get("reduction", constant("mean")).const in ("sum", "none"):
            return loss
        if name_of_loss(node, module) in CONNECTIONIST and picking.picks(loss) is None:
            return loss  # of each sample by its own length
        target = next((v for v in (keywords.get("target"), *args[1::-1]) if v is not None), NOTHING)
        chosen = next((v for v in (*args[:2], *keywords.values()) if picking.picks(v) is not None), target)
        if not {"ignore_index"} & {*keywords, *(k for t in module.things if isinstance(t, Object) for k in t.keywords)}:
            self._note_trimmed(target, scope)
        if not self._no_grad and node not in self.plan.weighed and self.uneven(chosen, target=True):
            self.event("uneven_loss", node, scope, chosen)
        return self._evened(loss, node).without(Trimmed)

    def _note_trimmed(self, value: Value, scope: Scope) -> None:
        """Note by which numbers samples were cut to a length of which a mean is taken: each rank has its own."""
        cuts = [each for each in value.origins if isinstance(each, Trimmed) and not each.padded]
        for cut in cuts if not self._no_grad and self.plan.wholes is None else ():
            assert isinstance(cut.node, ast.expr)
            self.event("statistic", cut.node, Scope(cut.source, scope), self._lately(cut.node))

    def past_lengths(self, node: ast.Call, base: Value | None, result: Value, scope: Scope) -> Value:
        """What a call makes of samples that are as long as a rank's own tell. A mean along time divides by that."""
        name = last_part(node.func)
        if name in facts.FACTORIES or name == "pad":
            told = [each for each in self._own_sizes(node, name) if self._lately(each).spread in OWN_LENGTHS]
            cuts = [cut for each in told for cut in self.cut_at(each, scope)]
            result = result.but(origins=result.origins | frozenset(cuts)) if cuts else result
        if name in NUMBERS and base is not None and picking.is_padded(base):
            return result.computed(LOCAL)
        if name in COUNTING_UP and picking.is_padded(result):
            return result.but(spread=SAME)  # `torch.arange(padded.shape[1])`, one number for each step of time
        if name not in ALONG_AXES or not any(isinstance(each, Trimmed) for each in result.origins):
            return result
        if name == "pad":  # to a fixed length, `F.pad(padded, (0, 512 - padded.shape[1]))`
            sizes = argument(node, "pad", 1) or node
            counts = any(picking.is_padded(self._lately(each)) for each in walk(sizes) if isinstance(each, ast.expr))
            return result.without(Trimmed) if counts else result
        if name not in PACKING and not self._goes_along_time(node, base):
            return result
        if name in MEANS and result.models:
            self._note_trimmed(result, scope)
        return result.without(Trimmed)

    def _own_sizes(self, node: ast.Call, name: str) -> Iterator[ast.expr]:
        """The sizes that a call is told, but for that of the first axis: `torch.zeros(len(rows), longest)`."""
        given = [each.elts if isinstance(each, (ast.Tuple, ast.List)) else [each] for each in node.args]
        sizes = [each for several in given for each in several]
        if sizes and self._lately(sizes[0]).spread is LOCAL:  # `torch.zeros(longest - len(row), 4)`, put to each row
            yield sizes[0]
        yield from (each for size in sizes[name != "pad" :] for each in walk(size) if isinstance(each, ast.expr))

    def _goes_along_time(self, node: ast.Call, base: Value | None) -> bool:
        """Whether a reduction goes along the axis behind that of the samples, as far as that can be told."""
        bound = base is not None and not base.things
        given = argument(node, "dim", 0 if bound else 1) or argument(node, "axis")
        if given is None or isinstance(given, ast.Constant) and given.value is None:
            return True
        reduced = node.func.value if bound and isinstance(node.func, ast.Attribute) else node.args[0]
        value = self._lately(reduced)
        told = [number_of(each) for each in (given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given])]
        axes = [each + (value.axes or 0) if each is not None and each < 0 else each for each in told]
        return bool({None, 0 if value.spread is Spread.COLUMNS else 1} & set(axes))
