"""Writes that answer: of `ok = cv2.imwrite(path, image)` all ranks want to know what came of it, and one writes."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from autodist import regions
from autodist.files import temporary, writing
from autodist.interpreter import Interpreter
from autodist.script import Site
from autodist.source import Source, walk
from autodist.values import NOTHING

TELLING = frozenset("to_csv to_json".split())
"""What gives a text where it is told no file."""
REPEATED = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda)


def answers(
    run: Interpreter, prepared: frozenset[ast.AST], guards: Iterable[Site], opens: Iterable[Site]
) -> list[Site]:
    """The calls that write a file and whose result the script goes on with. What runs inside the statements
    ``prepared``, or behind ``guards``, is left out, and what writes to a file of ``opens``."""
    alone = prepared | {site.node for site in guards}
    quiet = {site.node for site in opens}
    writes = [event for event in run.events if event.kind in ("save", "write")]
    spared = {event.node for event in writes if event.on_one_rank or regions.within(event, alone)}
    found: dict[ast.expr, Site] = {}
    for event in writes:
        node, statement = event.node, event.source.statement(event.node)
        if not isinstance(node, ast.Call) or isinstance(statement, ast.Expr) or node in spared:
            continue
        held = {each.node for arg in node.args for each in run.values.get(arg, NOTHING).objects("file")}
        if not quiet.isdisjoint(held | {*walk(node)}) or writing.is_quiet_file(event.source, node, run):
            continue
        told = _tells_text(node) or any(True for _ in run.values.get(node, NOTHING).objects("export"))
        if not told and not temporary.is_private(event, run):
            found[node] = Site(event.source, node)
    return list(found.values())


def before(node: ast.expr, source: Source, answering: Collection[ast.AST]) -> ast.stmt | None:
    """The statement that a collective must come before, since an answering call that rank 0 makes alone is given it."""
    if answering and any(each in answering for each in (node, *source.ancestors(node))):
        return source.statement(node)
    return None


def is_repeated(node: ast.AST, source: Source) -> bool:
    """Whether an expression is computed several times, or later, where its statement is run once."""
    statement = source.statement(node)
    if isinstance(statement, ast.While):
        return True
    return any(isinstance(each, REPEATED) and statement in source.ancestors(each) for each in source.ancestors(node))


def _tells_text(node: ast.Call) -> bool:
    """`text = frame.to_csv()`"""
    return isinstance(node.func, ast.Attribute) and node.func.attr in TELLING and not node.args and not node.keywords
