"""Losses that are means over other numbers than those of the samples: each rank divides by what its own samples have.

Words that are not ignored, weights of classes, samples that a condition picks, rows that a `collate_fn` joins. Where
the source says what the loss is divided by, the mean of a rank can be weighed by its share of it, and is exact.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from autodist.collation import Rows
from autodist.interpreter import MOVES, Event, Interpreter
from autodist.losses.rows_joined import free_name, number_of_rows
from autodist.origins import learnt_from
from autodist.regions import stands_in
from autodist.script import Site, Weighed
from autodist.source import Source, counted_of, last_name, walk
from autodist.spread import COUNT, MEAN, SAME, SUM
from autodist.tensors import operations
from autodist.tensors.picking import picks, takes_first
from autodist.values import NOTHING, Evened, External, Object, Preset, Table, Thing

CLASSIFYING = frozenset("cross_entropy nll_loss CrossEntropyLoss NLLLoss NLLLoss2d".split())
"""Losses that divide by the weights of the classes, and leave out those to ignore."""
ELEMENTWISE = frozenset(
    "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits "
    "MSELoss L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss".split()
)
"""Losses that divide by the number of elements."""
FUNCTION = {"weight": 2, "ignore_index": 4, "reduction": 6}
MODULE = {"weight": 0, "ignore_index": 2, "reduction": 4}
"""Where `cross_entropy` and `CrossEntropyLoss` take their options by position."""
FORMS = frozenset(
    "view reshape flatten ravel squeeze unsqueeze contiguous transpose permute t masked_select "
    "float double long int to cpu cuda detach argmax".split()
)
OPTIONS = frozenset(["weight", "ignore_index"])
"""What makes a loss a mean over other numbers than those of the samples."""
UNTOLD = ""
LEFT_OUT = {
    "next_words": "({labels}[..., 1:] != -100).sum()",
    "words": "({labels} != -100).sum()",
    "pixels": "({labels} != 255).sum()",
}
"""What a model of a library divides its own loss by, of labels some of which are left out."""
SUMS = frozenset("sum mean numel".split())


@dataclass(frozen=True)
class Loss:
    """A mean: a loss of torch, with the code of its options other than None, `x.mean()`, or a sum that is divided.
    The weights of its classes are ``optional`` if they may be None. Where it is one of several losses of which some
    have no such options, those that do are of the classes that ``among`` names."""

    event: Event
    name: str
    options: dict[str, str]
    optional: bool = False
    among: tuple[str, ...] = ()

    @property
    def weighted_by(self) -> str | None:
        """The option that makes it a weighted mean."""
        return next((name for name in ("weight", "ignore_index") if name in self.options), None)


def losses(run: Interpreter) -> Iterator[Loss]:
    """What takes a mean over this rank's samples."""
    for event in run.of("mean_loss"):
        if not isinstance(event.node, ast.Call):
            if isinstance(event.node, ast.BinOp) and event.detail.models and not event.source.is_reported(event.node):
                yield Loss(event, "/", {})  # a loss, and no number of an earlier loop
            continue
        modules = list(event.detail.objects("loss"))
        if len(modules) > 1:
            continue
        functions = [each for each in _alternatives(event.node, run) if isinstance(each, External)]
        names = {each.name.rpartition(".")[2] for each in functions}
        called = names.pop() if len(names) == 1 else last_name(event.node.func)
        name = (modules[0].name if modules else "").rpartition(".")[2] or called
        options: dict[str, str] = {}
        optional = False
        among: tuple[str, ...] = ()
        if modules:
            made = _alternatives(event.node, run)
            alike = [each for each in made if isinstance(each, Object) and _takes_classes(each, modules)]
            among = tuple(sorted({each.kind for each in alike})) if len(alike) < len(made) else ()
            weights = [each.argument("weight", MODULE["weight"]) for each in alike]
            optional = any(each is None or each.optional or each.const is None for each in weights)
            options = _of_modules(event, alike) if name in CLASSIFYING else {}
        elif name in CLASSIFYING:
            node = _option(event.node, "weight")
            optional = node is not None and run.values.get(node, NOTHING).optional
            options = _of_call(event.source, event.node, run) | _of_partial(event, run)
        if name in CLASSIFYING and any(map(_leaves_labels_out, run.project.sources)):
            options.setdefault("ignore_index", "-100")
        yield Loss(event, name, options, optional, among)


def _takes_classes(module: Object, meant: list[Object]) -> bool:
    """Whether a module is a loss of torch that divides by weights of classes, and no class of the project."""
    return module.kind in CLASSIFYING and (module.cls is None or module in meant)


def _alternatives(call: ast.Call, run: Interpreter) -> list[Thing]:
    """What a call may call, one of several: `criterion(out, y)`, behind `criterion = FocalLoss()` in a branch."""
    return list(run.values.get(call.func, NOTHING).things)


@cache
def _leaves_labels_out(source: Source) -> bool:
    """Whether labels may be -100, which losses leave out when they are not told what to: the script writes it, other
    than as an index, asks a loss for it (`criterion.ignore_index`), or has collators of transformers make the labels.
    """
    nodes = list(walk(source.tree))
    indices = {id(each) for node in nodes if isinstance(node, ast.Subscript) for each in walk(node.slice)}
    negative = (each for each in nodes if isinstance(each, ast.UnaryOp) and id(each) not in indices)
    named = (each for each in nodes if isinstance(each, (ast.Name, ast.Attribute)))
    told = any(
        last_name(each).startswith("DataCollatorFor") or isinstance(each, ast.Attribute) and each.attr == "ignore_index"
        for each in named
    )
    return told or any(ast.unparse(each) == "-100" for each in negative)


def _of_modules(event: Event, modules: list[Object]) -> dict[str, str]:
    """The options that a loss is made with, or one of several."""
    assert isinstance(event.node, ast.Call)
    called = event.node.func
    if isinstance(called, ast.Attribute) and called.attr == "forward":
        called = called.value
    named = isinstance(called, (ast.Name, ast.Attribute))  # not made at once, `nn.NLLLoss(w)(output, y)`
    owner = event.source.code(called)
    given = ((name, module.argument(name, MODULE[name])) for module in modules for name in ("weight", "ignore_index"))
    made = {name for name, value in given if value is not None and value.const is not None}
    means = {value.const for each in modules if (value := each.argument("reduction", MODULE["reduction"])) is not None}
    told = named and means <= {"mean"}  # of several, one may be a sum
    return {name: f"{owner}.{name}" if told else UNTOLD for name in sorted(made)}


def _of_call(source: Source, call: ast.Call, run: Interpreter) -> dict[str, str]:
    found = {}
    for name in ("weight", "ignore_index"):
        node = _option(call, name)
        if node is not None and run.values.get(node, NOTHING).const is not None:
            code = _bracketed(source, node) if name == "weight" else source.code(node)
            found[name] = code if _is_plain(node, FORMS | SUMS) else UNTOLD
    for unpacked in (each.value for each in call.keywords if each.arg is None):  # `**options`
        held = [each.entries for each in run.values.get(unpacked, NOTHING).things if isinstance(each, Table)]
        told = {name for each in held for name, value in each.items() if value.const is not None} & OPTIONS
        plain = _is_plain(unpacked) and all(name in each for each in held for name in told)
        found |= {name: f'{source.code(unpacked)}["{name}"]' if plain else UNTOLD for name in sorted(told)}
    return found


def _of_partial(event: Event, run: Interpreter) -> dict[str, str]:
    """The options that a loss is given beforehand: `criterion = partial(F.cross_entropy, weight=w)`."""
    assert isinstance(event.node, ast.Call)
    made = _alternatives(event.node, run)
    given = [each for each in made if isinstance(each, Preset)]
    names = {n for each in given for n, value in each.keywords.items() if value.const is not None} & OPTIONS
    plain = isinstance(event.node.func, (ast.Name, ast.Attribute)) and len(made) == 1
    owner = event.source.code(event.node.func)
    return {name: f'{owner}.keywords["{name}"]' if plain else UNTOLD for name in sorted(names)}


def _option(call: ast.Call, name: str) -> ast.expr | None:
    """What `cross_entropy` is given for one of its options."""
    at = FUNCTION[name]
    return next((k.value for k in call.keywords if k.arg == name), call.args[at] if len(call.args) > at else None)


def _target(call: ast.Call) -> ast.expr | None:
    """What a loss compares with."""
    if any(isinstance(each, ast.Starred) for each in call.args):
        return None
    named = next((keyword.value for keyword in call.keywords if keyword.arg == "target"), None)
    return named if named is not None else call.args[1] if len(call.args) > 1 else None


def weighed(run: Interpreter, guards: list[Site]) -> Iterator[Weighed]:
    """The means whose divisor the source tells, and what it is. What some ranks may not compute, or not as often, is
    left as it is: weighing takes all of them."""
    guarded = frozenset(site.node for site in guards)
    alone = {event.node for event in run.of("mean_loss") if event.on_one_rank or parts_ranks(event, guarded, run)}
    seen: set[ast.AST] = set()
    for event in run.of("own_loss"):
        divisor = _own_divisor(event, run)
        if event.node in seen or divisor is None or event.on_one_rank or parts_ranks(event, guarded, run):
            continue
        seen.add(event.node)
        assert isinstance(event.node, ast.expr)
        yield Weighed(event.source, event.node, divisor)
    for loss in losses(run):
        event, node = loss.event, loss.event.node
        if node in alone or not event.grad:
            continue
        count = _divided(loss, run)
        if node in seen or count is None:
            continue
        seen.add(node)
        yield count


def _own_divisor(event: Event, run: Interpreter) -> str | None:
    """What the loss of a model of a library is divided by, as code, if that can be told."""
    node = event.node
    if not isinstance(node, (ast.Attribute, ast.Subscript)) or isinstance(getattr(node, "slice", None), ast.Slice):
        return None
    made = node.value
    if isinstance(made, ast.Name):
        sites = [each for where, each in run.values.get(made, NOTHING).made if where is event.source]
        made = sites[0] if len(sites) == 1 else made
    kinds = {run.catalog.own_loss(each.name) for each in event.value.things if isinstance(each, Object)}
    divisor = LEFT_OUT.get(next(iter(kinds))) if len(kinds) == 1 else None
    if not isinstance(made, ast.Call) or divisor is None:
        return None
    if kinds == {"pixels"} and any(map(_leaves_others_out, run.project.sources)):
        return None
    labels = next((k.value for k in made.keywords if k.arg == "labels"), None)
    batch = next((k.value for k in made.keywords if k.arg is None), None)
    while isinstance(labels, ast.Call) and isinstance(labels.func, ast.Attribute) and labels.func.attr in MOVES:
        labels = labels.func.value  # wherever they are, there are as many
    if labels is not None and _is_plain(labels):
        return divisor.format(labels=event.source.code(labels))
    if labels is None and isinstance(batch, ast.Name):
        return divisor.format(labels=f'{batch.id}["labels"]')
    return None


def _leaves_others_out(source: Source) -> bool:
    """Whether a script sets which pixels a segmentation model leaves out, or has it tell one class alone, whose loss is
    a mean over all pixels."""
    return re.search(r"loss_ignore_index|num_labels\s*=\s*1\b", source.text) is not None


def parts_ranks(event: Event, guarded: frozenset[ast.AST], run: Interpreter) -> bool:
    """Whether ranks may not come here alike: rank 0 alone, by a test of their own samples, or once for each of the
    longest's words."""
    places = [(event.source, event.node), *((call.source, call.node) for call in event.calls if call.node is not None)]
    if any(stands_in(source, node, guarded) for source, node in places):
        return True
    deciding = [loop.through.iter for loop in event.loops if loop.through is not None]
    deciding += [each for source, node in places for each in source.conditions(node)]
    return any(_differs(each, run) for each in deciding)


def _differs(node: ast.expr, run: Interpreter) -> bool:
    """Whether ranks see other values, or lengths of their own, in any part of an expression."""
    if isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
        return False  # `targets is not None`
    if (
        isinstance(node, ast.Subscript)
        and last_name(node.value) == "shape"
        or last_name(getattr(node, "func", None)) == "size"
    ):
        parts: list[ast.expr] = []  # what matters is how long an axis is, which the value says
    else:
        parts = [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)]
    if any(_differs(each, run) for each in parts):
        return True
    value = run.values.get(node, NOTHING)
    if any(isinstance(thing, Object) and "loader" in thing.roles for thing in value.things):
        return False
    return value.spread.is_local and value.spread is not COUNT or run.uneven(value) is not None


def _divided(loss: Loss, run: Interpreter) -> Weighed | None:
    """A mean with what it is divided by; nothing if that is its number of samples anyway, or cannot be told."""
    source, node = loss.event.source, loss.event.node
    assert isinstance(node, ast.expr)
    count = _count(loss, run)
    if count is not None:
        return Weighed(source, node, count)
    rows = _joined_rows(loss, run)
    if rows is None:
        return None
    number = number_of_rows(rows, source, run, _is_plain)
    if number is not None:
        return Weighed(source, node, number)
    name = free_name(source)
    return Weighed(source, node, f"{name}.numel()", rows, name)


def _joined_rows(loss: Loss, run: Interpreter) -> ast.expr | None:
    """What a mean is over of which samples have more or fewer, where that is told by no name."""
    node, picked = loss.event.node, picks(loss.event.value)
    if not isinstance(node, ast.Call) or picked is None or not picked.joined or loss.options or loss.among:
        return None
    if loss.name == "mean":
        return _averaged(loss.event) if node in learnt_from(run) else None
    return _target(node) if loss.name in CLASSIFYING | ELEMENTWISE else None


def _count(loss: Loss, run: Interpreter) -> str | None:
    """What a mean is divided by, as code, if that is told by what stands there."""
    source, node, why = loss.event.source, loss.event.node, run.uneven(loss.event.value, target=True)
    if takes_first(loss.event.value):
        return None
    if isinstance(node, ast.BinOp):
        divisors = [node.right.body, node.right.orelse] if isinstance(node.right, ast.IfExp) else [node.right]
        plain = all(_is_plain(each, FORMS | SUMS) for each in divisors)  # `count if count > 0 else 1`
        counted = counted_of(node.right)  # no gradient flows to a number of rows
        told = counted is not None and _is_plain(counted) or plain and not loss.event.value.models
        steady = told and not loss.event.inside_forward
        return source.code(node.right) if steady and _is_learnt(node, run) else None
    assert isinstance(node, ast.Call)
    if loss.name == "mean":
        over = _averaged(loss.event)
        if over is None or why not in (Rows.JOINED, Rows.FEWER) or node not in learnt_from(run):
            return None
        return f"{_bracketed(source, over)}.numel()" if _is_plain(over) else None
    target = _target(node)
    if loss.name not in CLASSIFYING | ELEMENTWISE or target is None or not _is_plain(target):
        return None
    code = _bracketed(source, target)
    weight, ignored = loss.options.get("weight"), loss.options.get("ignore_index")
    if UNTOLD in (weight, ignored) or loss.among and why is not None:
        return None
    if why is Rows.PADDED and ignored is None:
        return None  # what is filled up counts
    unweighted = f"({code} != {ignored}).sum()" if ignored is not None else f"{code}.numel()"
    if weight is not None:
        kept = f"{code}[{code} != {ignored}]" if ignored is not None else code
        count = f"{weight}[{kept}].sum()"
        if loss.optional:
            count = f"{count} if {weight} is not None else {unweighted}"
    elif ignored is None and why is None:
        return None
    else:
        count = unweighted
    if not loss.among:
        return count
    kinds = [f"{{torch}}.nn.{each}" for each in loss.among]
    one = f"is {kinds[0]}" if len(kinds) == 1 else f"in ({', '.join(kinds)})"
    count = f"({count})" if loss.optional and weight is not None else count
    return f"{count} if type({source.code(node.func)}) {one} else {code}.numel()"


def _is_learnt(node: ast.BinOp, run: Interpreter) -> bool:
    """Whether losses are computed from it, or it is one: `(total / words).backward()`."""
    calls = (event.node for event in run.of("backward") if isinstance(event.node, ast.Call))
    return node in learnt_from(run) or any(node is getattr(call.func, "value", None) for call in calls)


def _averaged(event: Event) -> ast.expr | None:
    """`x` of `x.mean()` and `torch.mean(x)`, but of no `x.mean(0)`"""
    assert isinstance(event.node, ast.Call)
    return None if event.node.args and event.detail.const is True else operations.averaged(event.node)


def _bracketed(source: Source, node: ast.expr) -> str:
    code = source.code(node)
    return f"({code})" if isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Compare)) else code


def _is_plain(node: ast.expr, forms: frozenset[str] = FORMS) -> bool:
    """Whether writing an expression twice says the same twice, and costs little: `y[:, 1:].reshape(-1)`."""
    if isinstance(node, ast.Call):
        return (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in forms
            and _is_plain(node.func.value, forms)
            and all(_is_plain(each, forms) for each in (*node.args, *(keyword.value for keyword in node.keywords)))
        )
    if isinstance(node, (ast.Name, ast.Constant)):
        return True
    plain = (ast.Attribute, ast.Subscript, ast.Slice, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.Compare)
    parts = (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr))
    return isinstance(node, plain) and all(_is_plain(each, forms) for each in parts)


def settles(run: Interpreter) -> frozenset[ast.AST]:
    """Those of the weighed means that losses are sums of, `run` being the analysis with all of them. One that goes on
    through something else, as `torch.exp(-mean)` of a focal loss does, is not made exact by weighing it."""
    found: set[ast.AST] = set()
    for event in run.of("backward"):
        if event.value.spread in (MEAN, SUM, COUNT, SAME):
            found |= {each.node for each in event.value.origins if isinstance(each, Evened)}
    return frozenset(found)


def left_over(run: Interpreter) -> Iterator[tuple[Source, ast.AST, str]]:
    """The weighted means that stay as they are, each at what makes it one, with the option that does."""
    for loss in losses(run):
        if loss.event.grad and loss.weighted_by is not None and loss.event.node not in run.plan.weighed:
            yield loss.event.source, loss.event.node, loss.weighted_by
