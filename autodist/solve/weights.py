"""What a mean is divided by of which ranks have different numbers, as code that may stand beside it.

Words that are not ignored, weights of classes, samples that a condition picks, rows that a `collate_fn` joins. Where
the source says what the loss is divided by, the mean of a rank can be weighed by its share of it, and is exact.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from autodist.placement.arguments import is_set, option
from autodist.placement.lattice import Partial, PerRank, Replicate, Shard, is_even_number
from autodist.placement.opaque import OWN, leaves_labels_out, takes_first
from autodist.placement.placements import Placements
from autodist.placement.samples import COUNTING
from autodist.program import Operation, Program
from autodist.solve.demands import inside_forward
from autodist.source import Source, counted_of, last_name, operands
from autodist.trace.things import Object
from autodist.trace.things import Partial as Preset

CLASSIFYING = frozenset("cross_entropy nll_loss CrossEntropyLoss NLLLoss".split())
"""Losses that divide by the weights of the classes, and leave out those to ignore."""
ELEMENTWISE = frozenset(
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits "
    "MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss".split()
)
"""Losses that divide by the number of elements."""
POSITIONS = {"weight": 2, "ignore_index": 4}
"""Where functions take their options."""
FORMS = frozenset(
    "view reshape flatten ravel squeeze unsqueeze contiguous transpose permute t masked_select "
    "float double long int to cpu cuda detach argmax".split()
)
SUMS = frozenset("sum mean numel".split())
MOVES = frozenset("to cuda cpu".split())
UNTOLD = ""
"""Stands for an option of which no short code says what it is."""
LEFT_OUT = {
    "next_words": "({labels}[..., 1:] != -100).sum()",
    "words": "({labels} != -100).sum()",
    "pixels": "({labels} != 255).sum()",
}
"""What a model of a library divides its own loss by, of labels some of which are left out."""
NAMES = ("joined", "rows", "joined_rows")
JOINING = frozenset("cat concat concatenate vstack hstack".split())
STACKING = frozenset(["stack"])
COLLECTING = frozenset("list tuple".split())
NUMBERING = frozenset("zip enumerate".split())
KEEPING = frozenset("same linear elementwise add multiply divide loss sample_loss reduction scan random_like".split())
"""Classes of what has as many rows as it is given, or as many numbers for each of them."""


@dataclass(frozen=True)
class Divisor:
    """What a mean is divided by: ``code``, which calls ``rows`` of the loss by a ``name`` where these have none."""

    code: str
    rows: ast.expr | None = None
    name: str = ""


class Weights:
    """The divisors of means under a plan."""

    def __init__(self, program: Program, placements: Placements, learnt: frozenset[Operation]) -> None:
        self._program, self._placements, self._learnt = program, placements, learnt

    def of(self, node: ast.AST, means: Sequence[Operation]) -> Divisor | None:
        """What those of the means are divided by that come to one place, by what may be called there; None if no short
        code tells it."""
        source = means[0].source
        weights = {self._weight(each) for each in means}
        if any(each.startswith(OWN) for each in weights):
            return self._of_model(node, source, means, weights)
        if isinstance(node, ast.BinOp):
            return self._of_quotient(node, means)
        if not isinstance(node, ast.Call):
            return None
        names = {self._short(each) for each in means}
        if names <= CLASSIFYING or names <= ELEMENTWISE:
            return self._of_loss(node, means, names <= CLASSIFYING)
        over = averaged(node)
        if over is None or names != {"mean"}:
            return None
        return Divisor(f"{_bracketed(source, over)}.numel()") if is_plain(over) else self._of_rows(over, source)

    def _weight(self, mean: Operation) -> str:
        lying = self._placements.of.get(mean)
        return lying.weight if isinstance(lying, Partial) else ""

    def _short(self, operation: Operation) -> str:
        known = operation.known
        return known.short if known is not None else ""

    # quotients

    def _of_quotient(self, node: ast.BinOp, means: Sequence[Operation]) -> Divisor | None:
        """`total / count`, where no gradient flows to the count: `count if count > 0 else 1`."""
        below = [node.right.body, node.right.orelse] if isinstance(node.right, ast.IfExp) else [node.right]
        plain = all(is_plain(each, FORMS | SUMS) for each in below)
        counted = counted_of(node.right)
        flows = not self._learnt.isdisjoint(self._program.at(node.right).operations)
        told = counted is not None and is_plain(counted) or plain and not flows
        steady = told and not any(inside_forward(each.region, self._program) for each in means)
        return Divisor(means[0].source.code(node.right)) if steady else None

    # losses

    def _of_loss(self, node: ast.Call, means: Sequence[Operation], classifies: bool) -> Divisor | None:
        source, target = means[0].source, _target(node)
        if target is None:
            return None
        options = self._options(node, means) if classifies else {}
        others = self._others(node, means)
        uneven = not all(map(is_even_number, (self._weight(each).removeprefix(COUNTING) for each in means)))
        if not is_plain(target):
            return self._of_rows(target, source) if not options and not others else None
        if UNTOLD in options.values() or others and uneven or not options and not uneven:
            return None
        count = self._count(_bracketed(source, target), options, self._is_optional(node, means))
        if not others:
            return Divisor(count)
        kinds = [f"{{torch}}.nn.{each}" for each in sorted({self._short(each) for each in means})]
        one = f"is {kinds[0]}" if len(kinds) == 1 else f"in ({', '.join(kinds)})"
        count = f"({count})" if " if " in count else count
        code = _bracketed(source, target)
        return Divisor(f"{count} if type({source.code(_called(node))}) {one} else {code}.numel()")

    @staticmethod
    def _count(code: str, options: dict[str, str], is_optional: bool) -> str:
        """The weights of the classes that labels have, or the number of those that are not ignored."""
        weight, ignored = options.get("weight"), options.get("ignore_index")
        unweighted = f"({code} != {ignored}).sum()" if ignored is not None else f"{code}.numel()"
        if weight is None:
            return unweighted
        kept = f"{code}[{code} != {ignored}]" if ignored is not None else code
        count = f"{weight}[{kept}].sum()"
        return f"{count} if {weight} is not None else {unweighted}" if is_optional else count

    def _others(self, node: ast.Call, means: Sequence[Operation]) -> bool:
        """Whether the same call may be one of another loss, which has no such options: `criterion(out, y)`"""
        owners = {each.owner for each in means}
        things = self._program.at(_called(node)).things
        made = [each for each in things if isinstance(each, Object) and each not in owners]
        other = any(each.cls or each.name != means[0].name for each in made)
        return other or None not in owners and any(not isinstance(each, Object) for each in things)

    def _is_optional(self, node: ast.Call, means: Sequence[Operation]) -> bool:
        """Whether the weights of the classes may be None."""
        known = means[0].known
        told = [option(each, known, "weight") for each in means] if known is not None else []
        called = [each for each in self._program.at(_called(node)).things if isinstance(each, Object)]
        alike = [each for each in called if not each.cls and each.name.rpartition(".")[2] in CLASSIFYING]
        without = len(alike) > len(means) or any(not is_set(each) for each in told)
        return without or any((type(None), None) in each.constants for each in told if each is not None)

    def _options(self, node: ast.Call, means: Sequence[Operation]) -> dict[str, str]:
        """The code of what makes a loss a mean over other numbers than those of its samples."""
        known, source = means[0].known, means[0].source
        found: dict[str, str] = {}
        for name in POSITIONS:
            told = [option(each, known, name) for each in means] if known is not None else []
            if any(map(is_set, told)):
                made = any(each.owner is not None for each in means)
                found[name] = self._of_module(node, means, name) if made else self._of_call(node, source, name)
        if any(map(leaves_labels_out, {each.source for each in self._program.operations})):
            found.setdefault("ignore_index", "-100")
        return found

    def _of_module(self, node: ast.Call, means: Sequence[Operation], name: str) -> str:
        """`criterion.weight`; not of one that is made at once, `nn.NLLLoss(w)(output, y)`, or may be a sum."""
        called = _called(node)
        owners = [each for each in self._program.at(_called(node)).things if isinstance(each, Object)]
        reductions = [option_.constant for each in owners if (option_ := each.argument("reduction", 4)) is not None]
        told = isinstance(called, (ast.Name, ast.Attribute)) and all(each == "mean" for each in reductions)
        return f"{means[0].source.code(called)}.{name}" if told else UNTOLD

    def _of_call(self, node: ast.Call, source: Source, name: str) -> str:
        """What `cross_entropy` is given for one of its options, there or beforehand: `partial(F.cross_entropy,
        weight=w)`."""
        at, named = POSITIONS[name], (each.value for each in node.keywords if each.arg == name)
        given = next(chain(named, node.args[at : at + 1]), None)
        if given is not None:
            code = _bracketed(source, given) if name == "weight" else source.code(given)
            return code if is_plain(given, FORMS | SUMS) else UNTOLD
        unpacked = [each.value for each in node.keywords if each.arg is None]  # `**options`
        if unpacked:
            return f'{source.code(unpacked[0])}["{name}"]' if is_plain(unpacked[0]) else UNTOLD
        things = self._program.at(_called(node)).things
        preset = len(things) == 1 and all(isinstance(each, Preset) for each in things)
        named_ = isinstance(node.func, (ast.Name, ast.Attribute))
        return f'{source.code(node.func)}.keywords["{name}"]' if preset and named_ else UNTOLD

    # losses of models of libraries

    def _of_model(self, node: ast.AST, source: Source, means: Sequence[Operation], weights: set[str]) -> Divisor | None:
        """`model(**batch).loss`, of labels some of which are left out."""
        divisor = LEFT_OUT.get(next(iter(weights)).removeprefix(OWN)) if len(weights) == 1 else None
        reads = isinstance(node, (ast.Attribute, ast.Subscript)) or isinstance(source.parents.get(node), ast.Assign)
        named = unpacked(node, means[0]) if isinstance(node, ast.expr) and reads else node
        if divisor is None or not isinstance(named, (ast.Attribute, ast.Subscript, ast.Name)):
            return None
        given = {each for mean in means for each in mean.inputs[0].operations}
        made = {each.node for op in given for each in (op.inputs[0].operations if takes_first(op) else [op])}
        call = made.pop() if len(made) == 1 else None
        sources = {each.source for each in self._program.operations}
        if not isinstance(call, ast.Call) or OWN + "pixels" in weights and any(map(_leaves_others_out, sources)):
            return None
        labels = next((each.value for each in call.keywords if each.arg == "labels"), None)
        batch = next((each.value for each in call.keywords if each.arg is None), None)
        while isinstance(labels, ast.Call) and isinstance(labels.func, ast.Attribute) and labels.func.attr in MOVES:
            labels = labels.func.value  # wherever they are, there are as many
        if labels is not None and is_plain(labels):
            return Divisor(divisor.format(labels=source.code(labels)))
        if labels is None and isinstance(batch, ast.Name):
            return Divisor(divisor.format(labels=f'{batch.id}["labels"]'))
        return None

    # numbers of rows

    def _of_rows(self, rows: ast.expr, source: Source) -> Divisor:
        number = self._number_of_rows(rows, source)
        if number is not None:
            return Divisor(number)
        name = next((each for each in NAMES if not re.search(rf"\b{each}\b", source.text)), "rows_of_rank")
        return Divisor(f"{name}.numel()", rows, name)

    def _number_of_rows(self, node: ast.expr, source: Source) -> str | None:
        """`len(found)` for `(found - wanted).abs()`; nothing if no short code says it."""
        if isinstance(node, ast.Call) and last_name(node.func) in JOINING | STACKING and len(node.args) == 1:
            if (found := self._put_together(node, source)) is not None:
                return found
        if isinstance(node, ast.UnaryOp):
            sides = [node.operand]
        elif isinstance(node, ast.BinOp):
            sides = operands(node)
        elif isinstance(node, ast.Call):
            known = [each.known for each in self._program.at(node).operations]
            keeps = bool(known) and all(each is not None and each.cls in KEEPING for each in known)
            sides = operands(node) if keeps else []
        elif isinstance(node, ast.Subscript) and is_plain(node.slice) and self._marks(node.slice):
            return f"{_bracketed(source, node.slice)}.sum()"  # `errors[y > 0]`
        else:
            return f"len({source.code(node)})" if is_plain(node) else None
        codes = [self._number_of_rows(each, source) for each in sides if self._is_uneven(each)]
        return min((each for each in codes if each is not None), key=len, default=None)

    def _marks(self, node: ast.expr) -> bool:
        """Whether it is a mask."""
        made = self._program.at(node).operations
        known = [each.known for each in made]
        return bool(made) and all(each is not None and each.parameters.get("compares") for each in known)

    def _is_uneven(self, node: ast.expr) -> bool:
        """Whether ranks have different numbers of rows, or it is what one sample has of its own."""
        lying = self._placements.value(self._program.at(node))
        return (
            lying is not None
            and not isinstance(lying, (Replicate, Partial))
            and not (isinstance(lying, Shard) and is_even_number(lying.rows) or isinstance(lying, PerRank))
        )

    def _put_together(self, call: ast.Call, source: Source) -> str | None:
        """`sum(len(t["boxes"]) for t in targets)` of `torch.cat([t["boxes"] for t in targets])`, `len(rows)` of
        `torch.stack(rows)`."""
        given = call.args[0]
        while isinstance(given, ast.Call) and last_name(given.func) in COLLECTING and len(given.args) == 1:
            given = given.args[0]
        if isinstance(given, (ast.Name, ast.Attribute)):
            code = source.code(given)
            return f"len({code})" if last_name(call.func) in STACKING else f"sum(map(len, {code}))"
        listed = isinstance(given, (ast.ListComp, ast.GeneratorExp)) and len(given.generators) == 1
        if not listed or not isinstance(given, (ast.ListComp, ast.GeneratorExp)) or given.generators[0].ifs:
            return None
        over = given.generators[0]
        numbered = isinstance(over.iter, ast.Call) and last_name(over.iter.func) in NUMBERING
        parts = over.iter.args if isinstance(over.iter, ast.Call) and numbered else [over.iter]
        each = self._number_of_rows(given.elt, source)
        if each is None or last_name(call.func) in STACKING or not all(map(is_plain, parts)):
            return None
        return f"sum({each} for {source.code(over.target)} in {source.code(over.iter)})"


def unpacked(node: ast.expr, mean: Operation) -> ast.expr:
    """What is weighed: of names that a tuple is unpacked to, the one that stands for the mean."""
    place = mean.inputs[1].constant if len(mean.inputs) > 1 else None
    if not isinstance(node, (ast.Tuple, ast.List)) or type(place) is not int:
        return node
    named = [each for each in node.elts[place : place + 1] if isinstance(each, ast.Name)]
    return named[0] if named else node


def averaged(node: ast.expr) -> ast.expr | None:
    """What the mean of all of it is taken of: `x` of `x.mean()` and `torch.mean(x)`, but of no `x.mean(0)`"""
    if not isinstance(node, ast.Call) or last_name(node.func) != "mean" or node.keywords or len(node.args) > 1:
        return None
    if node.args:
        return None if isinstance(node.args[0], ast.Constant) else node.args[0]
    return node.func.value if isinstance(node.func, ast.Attribute) else None


def is_plain(node: ast.expr, forms: frozenset[str] = FORMS) -> bool:
    """Whether writing an expression twice says the same twice, and costs little: `y[:, 1:].reshape(-1)`."""
    if isinstance(node, ast.Call):
        return (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in forms
            and is_plain(node.func.value, forms)
            and all(is_plain(each, forms) for each in (*node.args, *(keyword.value for keyword in node.keywords)))
        )
    if isinstance(node, (ast.Name, ast.Constant)):
        return True
    plain = (ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.Compare)
    parts = (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
    return isinstance(node, plain) and all(is_plain(each, forms) for each in parts)


def _called(call: ast.Call) -> ast.expr:
    """What is called: `criterion` of `criterion.forward(out, y)`"""
    return call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "forward" else call.func


def _target(call: ast.Call) -> ast.expr | None:
    """What a loss compares with."""
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    named = next((keyword.value for keyword in call.keywords if keyword.arg == "target"), None)
    return named if named is not None else call.args[1] if len(call.args) > 1 else None


def _bracketed(source: Source, node: ast.expr) -> str:
    code = source.code(node)
    return f"({code})" if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) else code


def _leaves_others_out(source: Source) -> bool:
    """Whether a script sets which pixels a segmentation model leaves out, or has it tell one class alone, whose loss is
    a mean over all pixels."""
    return re.search(r"loss_ignore_index|num_labels\s*=\s*1\b", source.text) is not None
