"""Applies edits to one file: the lossless tree is made, its touched parts are rebuilt, and the result is checked."""

from __future__ import annotations

import ast
import warnings
from collections import defaultdict
from collections.abc import Sequence

import libcst as cst

from autodist.edits import (
    AddImport,
    Append,
    BrokenResult,
    Edit,
    EditConflict,
    Enclose,
    Guard,
    Hoist,
    InsertAfter,
    InsertBefore,
    Prepend,
    Recompose,
    RemoveArgument,
    RemoveStatement,
    ReplaceExpr,
    ReplaceStatement,
    SetArgument,
    Unwrap,
    WrapExpr,
)
from autodist.errors import AutodistError
from autodist.lossless import prelude
from autodist.lossless.arguments import change_arguments, one_per_line
from autodist.lossless.blocks import Block, BlockEdits, ImportEdits, Layout, StatementEdits
from autodist.lossless.conflicts import settle
from autodist.lossless.expressions import CannotQuote, fill, fill_all, fit, quotable, quoted_as, with_hole, with_holes
from autodist.lossless.locate import Locator
from autodist.lossless.parsing import parse, with_lost_spaces
from autodist.lossless.trees import Rebuilder, changed, code_of
from autodist.source import Source

LINE = 120
"""Longer lines are not made where a call can be broken."""


def rewrite(source: Source, edits: Sequence[Edit]) -> str:
    """The text of ``source`` with ``edits`` made."""
    edits = settle(source, edits)
    try:
        text = _rewritten(source, edits)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except cst.ParserSyntaxError as error:
        raise BrokenResult(f"{source.path}: the code of an edit does not parse: {error}") from error
    except (SyntaxError, ValueError) as error:
        raise BrokenResult(f"{source.path}: the edited text does not parse: {error}") from error
    except RecursionError:
        raise AutodistError("is nested too deeply to edit", source.path) from None
    return text


def _rewritten(source: Source, edits: Sequence[Edit]) -> str:
    module = parse(source)
    rewriter = _Rewriter(source, module, edits)
    text: str = rewriter.rebuild(module).code
    restored = with_lost_spaces(text, source.text, module.code)
    if restored != text and _is_python(restored):  # not where tabs would stand among spaces
        text = restored
    if rewriter.missed:
        raise BrokenResult(f"{source.path}: {len(rewriter.missed)} nodes with edits were not found")
    return text


def _is_python(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


class _Rewriter(Rebuilder):
    """Rebuilds the nodes above the anchors, and no others."""

    def __init__(self, source: Source, module: cst.Module, edits: Sequence[Edit]) -> None:
        super().__init__()
        self._source = source
        self._module = module
        self._locator = Locator(source, module)
        self._layout = Layout(module)
        self._touched: set[cst.CSTNode] = set()
        self.missed: set[cst.CSTNode] = set()
        """The nodes with edits, and those above them, that were not come by yet."""
        self._expressions: dict[cst.CSTNode, list[Edit]] = defaultdict(list)
        self._kept: dict[cst.CSTNode, cst.BaseExpression | None] = {}
        """Expressions that outlive what they stand in, as they are when they have been rebuilt."""
        self._hoists: dict[Hoist, tuple[list[str], int]] = {}
        """Where the lines go that bind hoisted expressions."""
        imports = []
        for edit in edits:
            if isinstance(edit, AddImport):
                imports.append(edit)
            elif isinstance(edit, ReplaceExpr | Recompose | Hoist | WrapExpr | SetArgument | RemoveArgument):
                self._register_expression(edit)
            elif isinstance(edit, Prepend | Append):
                self._register_block(edit)
            else:
                self._register_statement(edit)
        self._register_imports(imports)
        self.missed |= self._touched

    def _find(self, edit: Edit, anchor: ast.AST) -> cst.CSTNode:
        try:
            twin = self._locator.find(anchor)
        except LookupError as error:
            raise EditConflict(edit, edit, str(error)) from None
        self._touched.update(self._locator.path(anchor))
        return twin

    def _register_expression(self, edit: Edit) -> None:
        twin = self._find(edit, edit.anchor)
        if not isinstance(twin, cst.BaseExpression) or self._locator.is_virtual(edit.anchor):
            raise EditConflict(edit, edit, f"a {type(edit.anchor).__name__} cannot be replaced here")
        self._expressions[twin].append(edit)
        for part in edit.parts if isinstance(edit, Recompose) else ():
            self._kept[self._find(edit, part)] = None
        if isinstance(edit, Hoist):
            statement = self._find(edit, self._source.statement(edit.anchor))
            prepared = self._layout.statements.setdefault(statement, StatementEdits()).prepared
            self._hoists[edit] = prepared, len(prepared)
            prepared.append(edit.code)

    def _register_statement(self, edit: Edit) -> None:
        top = prelude.opening(self._source.parents[edit.anchor])
        if isinstance(edit, InsertBefore | InsertAfter) and any(statement is edit.anchor for statement in top):
            self._register_opening(edit, edit.code, top[-1])
            return
        edits = self._layout.statements.setdefault(self._find(edit, edit.anchor), StatementEdits())
        match edit:
            case InsertBefore(code=code, prepares=prepares):
                (edits.prepared if prepares else edits.before).append(code)
            case InsertAfter(code=code):
                edits.after.append(code)
            case Guard(test=test):
                edits.guard = test
            case Enclose(template=template):
                edits.around = template
            case ReplaceStatement(code=code):
                edits.replacement = code
            case RemoveStatement(with_comment=with_comment):
                edits.replacement = ""
                edits.forgets = with_comment
            case Unwrap():
                edits.unwrap = True

    def _register_opening(self, edit: Edit, code: str, last: ast.stmt) -> None:
        """Nothing comes before ``last``, a docstring or an import from ``__future__``, or between it and the like."""
        statement = self._find(edit, last)
        self._layout.statements.setdefault(statement, StatementEdits()).opening.append(code)

    def _register_block(self, edit: Prepend | Append) -> None:
        twin = self._find(edit, edit.anchor)
        top = prelude.opening(edit.anchor)
        if isinstance(edit, Prepend) and top:
            self._register_opening(edit, edit.code, top[-1])
            return
        block = twin if isinstance(twin, cst.Module) else twin.body  # type: ignore[attr-defined]
        block_edits = self._layout.blocks.setdefault(block, BlockEdits())
        (block_edits.first if isinstance(edit, Prepend) else block_edits.last).append(edit.code)

    def _register_imports(self, edits: Sequence[AddImport]) -> None:
        """Sort the imports that end up in one place."""
        missing = [edit for edit in edits if not prelude.is_present(self._source.tree, edit)]
        for same in prelude.statements(missing):
            edit = same[0]
            where = prelude.place(self._source.tree, edit)
            code = prelude.import_code(*same)
            if where.statement is None:
                module = self._find(edit, edit.anchor)
                self._layout.blocks.setdefault(module, BlockEdits()).imports.append(code)
                continue
            self._find(edit, where.statement)
            line = self._locator.line(where.statement)
            imports = self._layout.imports.setdefault(line, ImportEdits())
            (imports.above if where.before else imports.below).append(code)
            imports.apart = imports.apart or where.apart
            imports.gap = imports.gap or where.gap

    def enters(self, node: cst.CSTNode) -> bool:
        """Pass by code that nothing is done to."""
        self.missed.discard(node)
        return node in self._touched or not isinstance(
            node, cst.BaseExpression | cst.BaseStatement | cst.BaseSmallStatement
        )

    def leave(self, old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode | Sequence[cst.CSTNode] | None:
        """Make the edits that ``old`` is the anchor of, or the block of the anchors of."""
        result = self._left(old, new)
        if old in self._kept and isinstance(result, cst.BaseExpression):
            self._kept[old] = result
        return result

    def _left(self, old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode | Sequence[cst.CSTNode] | None:
        edits = self._expressions.get(old)
        if edits is not None and isinstance(new, cst.BaseExpression):
            return self._expression(old, new, edits)
        if isinstance(old, Block) and isinstance(new, Block):
            return self._layout.lay_out(old, new)
        if isinstance(old, cst.If) and isinstance(new, cst.If):
            return self._if(old, new)
        if isinstance(old, cst.FormattedStringExpression) and isinstance(new, cst.FormattedStringExpression):
            return _printed_as_before(old, new)
        return new

    def _if(self, original: cst.If, updated: cst.If) -> cst.If:
        branch = updated.orelse
        edited = original.orelse in self._layout.statements
        if edited and isinstance(original.orelse, cst.If) and isinstance(branch, cst.If):
            updated = changed(updated, orelse=self._layout.lay_out_elif(original.orelse, branch))
        return self._layout.fold(updated)

    def _expression(
        self, original: cst.CSTNode, updated: cst.BaseExpression, edits: Sequence[Edit]
    ) -> cst.BaseExpression:
        """Make the edits of one expression: its arguments, then what stands instead of it, then what goes around."""
        arguments = [edit for edit in edits if isinstance(edit, SetArgument | RemoveArgument)]
        if arguments and isinstance(updated, cst.Call):
            updated = change_arguments(updated, arguments, lambda edit: self._inserted(edit, edit.value))
            updated = self._broken(original, updated, arguments[0].anchor)
        for edit in edits:
            if isinstance(edit, ReplaceExpr):
                updated = quoted_as(original, self._inserted(edit, edit.code))
            elif isinstance(edit, Hoist):
                prepared, at = self._hoists[edit]
                if (code := code_of(updated)) != code_of(original):
                    prepared[at] = f"{edit.name} = {code}\n"
                updated = self._inserted(edit, edit.name)
            elif isinstance(edit, Recompose):
                parts = [self._kept[self._locator.find(part)] for part in edit.parts]
                template = self._inserted(edit, with_holes(edit.template, len(parts)))
                updated = fill_all(template, [part for part in parts if part is not None])
        for edit in sorted(edits, key=lambda edit: isinstance(edit, WrapExpr) and edit.outer):
            if isinstance(edit, WrapExpr):
                updated = fill(self._inserted(edit, with_hole(edit.template)), updated)
        return updated if len(arguments) == len(edits) else fit(updated, original, self.parents)

    def _broken(self, original: cst.CSTNode, updated: cst.Call, anchor: ast.AST) -> cst.Call:
        """A call that has grown beyond the end of a line, with an argument on each."""
        before, after = code_of(original), code_of(updated)
        assert isinstance(anchor, ast.expr)
        line = self._source.line(anchor.lineno)
        statement = self._source.statement(anchor)
        own = line[: len(line) - len(line.lstrip())]
        if "\n" in after or len(updated.args) < 2 or len(line) + len(after) - len(before) <= max(LINE, len(line)):
            return updated
        if len(own) < statement.col_offset or any(isinstance(node, cst.FormattedString) for node in self.parents):
            return updated
        return one_per_line(updated, own[statement.col_offset :], self._module.default_indent)

    def _inserted(self, edit: Edit, code: str) -> cst.BaseExpression:
        """New code, as it may be written where the rewriter is."""
        quotes = [node.end for node in self.parents if isinstance(node, cst.FormattedString)]
        try:
            return quotable(self._layout.expression(code), quotes)
        except CannotQuote:
            raise EditConflict(edit, edit, "this code cannot stand in its f-string before Python 3.12") from None


def _printed_as_before(
    original: cst.FormattedStringExpression, updated: cst.FormattedStringExpression
) -> cst.CSTNode | Sequence[cst.CSTNode]:
    """Keep what ``f"{x=}"`` prints: the text of the expression that the user wrote."""
    if original.equal is None or original.expression is updated.expression:
        return updated
    space = original.whitespace_before_expression
    text = "".join(code_of(node) for node in (space, original.expression, original.equal))
    conversion = updated.conversion or ("r" if updated.format_spec is None else None)
    printed = cst.FormattedStringText(text.replace("{", "{{").replace("}", "}}"))
    return [printed, changed(updated, equal=None, conversion=conversion)]
