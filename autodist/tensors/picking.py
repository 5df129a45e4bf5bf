"""Samples that a condition picks: `out[labels >= 0]`. Ranks have different numbers of them, perhaps none."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from autodist.source import last_name, walk
from autodist.tensors.calls import number_of
from autodist.values import Object, Value

COMPARING = frozenset("ne eq lt le gt ge not_equal equal less greater less_equal greater_equal isclose isin".split())
TESTING = frozenset("isnan isfinite isinf logical_and logical_or logical_xor logical_not bool bernoulli".split())
PLACES = frozenset("nonzero argwhere flatnonzero where".split())
"""What tells the places at which a condition holds."""
SELECTING = frozenset(["masked_select"])
FORMS = frozenset(
    "squeeze unsqueeze flatten view view_as reshape reshape_as ravel to cpu cuda detach t clone data numpy expand "
    "expand_as contiguous byte permute transpose".split()
)
"""What a condition goes through without another meaning."""
CASTS = frozenset("long int float type".split())
"""What numbers go through that stay what they are."""
ORDERING = frozenset("arange range sort sorted argsort randperm permutation flip roll topk max min argmax".split())
"""What an order of samples is made by, or a place in each of them."""
SORTING = frozenset("sort sorted argsort argpartition".split())
JOINING = frozenset("cat concat concatenate vstack hstack".split())
STACKING = frozenset("stack tensor as_tensor array asarray FloatTensor LongTensor Tensor".split())
"""What makes a tensor of a list, of parts that lie one after the other, or of one row each."""
PADDING = {"pad_sequence": "", "pad_packed_sequence": "total_length", "to_padded_tensor": "output_size"}
"""What fills samples up to the longest of them, unless it is told a length, and as what."""
NAMED = ("mask", "valid", "keep")
"""Names of conditions that come out of a data set."""


def is_condition(node: ast.expr, lately: Callable[[ast.expr], Value], depth: int = 6) -> bool:
    """Whether an index chooses among samples by a condition: `labels >= 0`, `keep.nonzero()`, or a name of one."""
    if depth == 0:
        return False

    def inner(each: ast.expr) -> bool:
        return is_condition(each, lately, depth - 1)

    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Invert) or inner(node.operand)
    if isinstance(node, ast.BinOp):
        logical = isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Mult))
        return logical and (inner(node.left) or inner(node.right))
    if isinstance(node, ast.Subscript):
        return inner(node.value)
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return inner(node.elt)
    if isinstance(node, ast.Call):
        name = last_name(node.func)
        if name in JOINING | STACKING and node.args:  # `torch.stack([labels >= 0 for labels in lists])`
            listed = [each for t in lately(node.args[0]).things for each in getattr(t, "stores", ())]
            return inner(node.args[0]) or any(inner(each) for _, each in listed)
        if name in COMPARING | TESTING | PLACES:
            return True
        through = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return name in FORMS and any(inner(each) for each in (*through, *node.args[:1]))
    if isinstance(node, (ast.Name, ast.Attribute)):
        if isinstance(node, ast.Attribute) and node.attr in FORMS:
            return inner(node.value)
        made = [each for _, each in lately(node).made]
        return any(inner(each) for each in made) if made else any(mark in last_name(node) for mark in NAMED)
    return False


def ranks(node: ast.expr, lately: Callable[[ast.expr], Value]) -> bool:
    """Whether an index is a part of an order of the samples by what they are: `losses.argsort()[:k]`."""
    calls = set(_calls(node, lately, 6))
    return "topk" in calls or not calls.isdisjoint(SORTING) and _is_part(node, lately, 6)


def tells_places(index: ast.expr) -> bool:
    """Whether an index tells places of the first axis by numbers, which other samples have on each rank: `0`, `2:5`,
    `::2`."""
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    bounds = [first.lower, first.upper, first.step] if isinstance(first, ast.Slice) else [first]
    numbers = [number_of(each) for each in bounds if each is not None]
    return None not in numbers and any(numbers) or numbers == [0] and not isinstance(first, ast.Slice)


def _counts(node: ast.expr, lately: Callable[[ast.expr], Value], depth: int) -> bool:
    """Whether it is `torch.arange(n)`, in whatever form."""
    if isinstance(node, ast.Name) and depth:
        made = [each for _, each in lately(node).made if each is not node]
        return bool(made) and all(_counts(each, lately, depth - 1) for each in made)
    if not isinstance(node, ast.Call):
        return False
    if last_name(node.func) in ("arange", "range"):
        return True
    given = [node.func.value, *node.args] if isinstance(node.func, ast.Attribute) else node.args
    return last_name(node.func) in FORMS | {"tensor", "list"} and any(_counts(e, lately, depth - 1) for e in given)


def is_number_each(node: ast.expr, lately: Callable[[ast.expr], Value]) -> bool:
    """Whether there may be one number for each sample: `F.cross_entropy(out, y, reduction="none")`, `each.mean(1)`."""
    made = [each for _, each in lately(node).made] or [node]
    if any(isinstance(each, ast.Call) and last_name(each.func) in ("mean", "sum") for each in made):
        return True
    asked = [k.value for each in made if isinstance(each, ast.Call) for k in each.keywords if k.arg == "reduction"]
    objects = [t for each in made if isinstance(each, ast.Call) for t in lately(each.func).things]
    told = [thing.keywords.get("reduction") for thing in objects if isinstance(thing, Object)]
    named = any(isinstance(each, ast.Constant) and each.value == "none" for each in asked)
    return named or any(value is not None and value.const == "none" for value in told)


def _is_part(node: ast.expr, lately: Callable[[ast.expr], Value], depth: int) -> bool:
    made = [each for _, each in lately(node).made] if isinstance(node, (ast.Name, ast.Attribute)) and depth else []
    sliced = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)
    return sliced or any(_is_part(each, lately, depth - 1) for each in made)


def _calls(node: ast.expr, lately: Callable[[ast.expr], Value], depth: int) -> Iterator[str]:
    """The names of the functions that an index comes from."""
    for each in walk(node):
        if isinstance(each, ast.Call):
            yield last_name(each.func)
        if isinstance(each, (ast.Name, ast.Attribute)) and depth:
            for _, made in lately(each).made:
                yield from _calls(made, lately, depth - 1)
