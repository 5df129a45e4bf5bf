"""Sums of products, written as einsum writes them: a letter stands for an axis."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace

from autodist.placement.by_number import NONLINEAR, add, partials
from autodist.placement.call import Call, Operand
from autodist.placement.lattice import Partial, PerRank, Placement, Replicate, Shard, is_linear, multiple

PAIRED = "it combines each rank's samples with each other, and with none of the other ranks'"
WHOLE = "a replicated operand has all samples where another has a rank's"


def contraction(call: Call) -> Placement:
    """The samples stay apart where their letter is left, and are summed up where it is gone."""
    terms, left, extra = _read(call)
    result = _multiplied(call, terms, left, linear=True)
    if extra is None or isinstance(result, PerRank):
        return result
    return add(replace(call, operands=(Operand(result, (None,) * len(left)), extra)))


def pairwise(call: Call) -> Placement:
    """As a contraction, but not linear."""
    terms, left, _ = _read(call)
    return _multiplied(call, terms, left, linear=False)


def contracted(call: Call, given: Sequence[tuple[int | None, ...] | None]) -> tuple[int | None, ...] | None:
    """The sizes of a sum of products, as its letters tell them. A factor of which nothing is known is taken for a
    matrix, which leaves as many axes; None where that of the first is not known."""
    if given and given[0] is not None and None in given[1:]:
        return (*given[0][:-1], None)
    if None in given or len(given) != len(call.operands):
        return None
    operands = tuple(replace(each, sizes=sizes or ()) for each, sizes in zip(call.operands, given, strict=True))
    try:
        terms, left, _ = _read(replace(call, operands=operands))
    except ValueError:
        return None
    if any(len(letters) != each.axes for letters, each in terms):
        return None
    sized: dict[str, int | None] = {}
    for letters, each in terms:
        for letter, size in zip(letters, each.sizes, strict=True):
            sized[letter] = size if sized.get(letter, 1) == 1 else sized[letter]
    return tuple(sized.get(letter) for letter in left)


def _read(call: Call) -> tuple[list[tuple[str, Operand]], str, Operand | None]:
    """The letters of each operand's axes, those of the result, and the operand that is added."""
    written = call.text("equation")
    adds = call.number("adds")
    operands = [each for at, each in enumerate(call.operands) if at != adds]
    extra = call.operands[adds] if adds is not None and adds < len(call.operands) else None
    if written == "einsum":
        written = call.equation.replace(" ", "")
    if written == "matmul":
        one, other = (each.axes for each in operands)
        left, right = "...ij" if one > 1 else "j", "...jk" if other > 1 else "j"
        written = f"{left},{right}->..." + "i" * (one > 1) + "k" * (other > 1)
    inputs, arrow, output = written.partition("->")
    letters = [_spelled(each, operand.axes) for each, operand in zip(inputs.split(","), operands, strict=True)]
    longest = max(
        (len(each) - len(text.replace("...", "")) for each, text in zip(letters, inputs.split(","), strict=True))
    )
    if not arrow:
        output = "".join(sorted(each for each in {*inputs} - {","} if inputs.count(each) == 1))
    output = output.replace("...", string.ascii_uppercase[:longest][::-1])
    return list(zip(letters, operands, strict=True)), output, extra


def _spelled(letters: str, axes: int) -> str:
    """Letters with capital ones for `...`, of which the last axis is A."""
    return letters.replace("...", string.ascii_uppercase[: axes - len(letters.replace("...", ""))][::-1])


def _multiplied(call: Call, terms: list[tuple[str, Operand]], left: str, linear: bool) -> Placement:
    found = partials(replace(call, operands=tuple(each for _, each in terms)))
    sharded = {letters[each.shard] for letters, each in terms if each.shard is not None}
    if found:
        one = len(found) == 1 and not sharded and linear and is_linear(found[0])
        return multiple(found[0]) if one else call.apart(NONLINEAR)
    if not sharded:
        return Replicate()
    if len(sharded) > 1:
        return call.paired(PAIRED)
    (letter,) = sharded
    for letters, each in terms:
        at = letters.find(letter)
        if at >= 0 and each.shard != at and each.sizes[at] != 1:
            return call.apart(WHOLE)
    if letter in left:
        return Shard(left.index(letter))
    return Partial("sum") if linear else call.apart(PAIRED)
