"""How many rows something has, as code that may stand beside it: `len(found)` for `(found - wanted).abs().mean()`."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from autodist.interpreter import Interpreter
from autodist.source import Source, last_name, operands
from autodist.tensors.facts import ELEMENTWISE, LOSSES
from autodist.tensors.picking import JOINING, STACKING, is_piece, picks
from autodist.values import NOTHING

KEEPING = ELEMENTWISE | LOSSES | frozenset("sum mean norm prod logsumexp amax amin softmax log_softmax".split())
"""What has as many rows as it is given, or as many numbers for each of them, where its result has rows at all."""
COLLECTING = frozenset("list tuple".split())
NUMBERING = frozenset("zip enumerate".split())
NAMES = ("joined", "rows", "joined_rows")


def number_of_rows(
    node: ast.expr, source: Source, run: Interpreter, is_plain: Callable[[ast.expr], bool]
) -> str | None:
    """The number of rows that something has of which ranks have more or fewer; nothing if no short code says it."""
    if isinstance(node, ast.Call) and last_name(node.func) in JOINING | STACKING and len(node.args) == 1:
        found = _put_together(node, source, run, is_plain)
        if found is not None:
            return found
    if isinstance(node, ast.BinOp):
        sides = [node.left, node.right]
    elif isinstance(node, ast.UnaryOp):
        sides = [node.operand]
    elif isinstance(node, ast.Call):
        sides = operands(node) if last_name(node.func) in KEEPING else []
    else:
        return f"len({source.code(node)})" if is_plain(node) else None
    uneven = [each for each in sides if _is_uneven(each, run)]
    codes = [number_of_rows(each, source, run, is_plain) for each in uneven]
    return min((each for each in codes if each is not None), key=len, default=None)


def _is_uneven(node: ast.expr, run: Interpreter) -> bool:
    value = run.values.get(node, NOTHING)
    return picks(value) is not None or is_piece(value)


def _put_together(call: ast.Call, source: Source, run: Interpreter, is_plain: Callable[[ast.expr], bool]) -> str | None:
    """`sum(len(t["boxes"]) for t in targets)` of `torch.cat([t["boxes"] for t in targets])`, `len(rows)` of
    `torch.stack(rows)`."""
    given = call.args[0]
    while isinstance(given, ast.Call) and last_name(given.func) in COLLECTING and len(given.args) == 1:
        given = given.args[0]
    if isinstance(given, (ast.Name, ast.Attribute)):
        code = source.code(given)
        return f"len({code})" if last_name(call.func) in STACKING else f"sum(map(len, {code}))"
    if not isinstance(given, (ast.ListComp, ast.GeneratorExp)) or len(given.generators) > 1 or given.generators[0].ifs:
        return None
    over = given.generators[0]
    numbered = isinstance(over.iter, ast.Call) and last_name(over.iter.func) in NUMBERING
    parts = over.iter.args if isinstance(over.iter, ast.Call) and numbered else [over.iter]
    each = number_of_rows(given.elt, source, run, is_plain)
    if each is None or last_name(call.func) in STACKING or not all(map(is_plain, parts)):
        return None
    return f"sum({each} for {source.code(over.target)} in {source.code(over.iter)})"


def free_name(source: Source) -> str:
    """What rows may be called that have no name yet."""
    return next((name for name in NAMES if not re.search(rf"\b{name}\b", source.text)), "rows_of_rank")
