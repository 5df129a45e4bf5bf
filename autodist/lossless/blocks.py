"""Lays out the statements of a block: inserted, guarded, replaced and removed ones among those that stay."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import libcst as cst

from autodist.lossless.expressions import both, parse
from autodist.lossless.trees import Rebuilder, changed

Block = cst.Module | cst.IndentedBlock | cst.SimpleStatementSuite
Lines = Sequence[cst.EmptyLine]
_BLANK = cst.EmptyLine(indent=False)
_CONTINUED = re.compile(r"\\\r?\n|\\\r")
_APART = (_BLANK,)
_DEFINITIONS = (cst.FunctionDef, cst.ClassDef)


@dataclass
class StatementEdits:
    """What happens to one statement; code is not parsed yet."""

    before: list[str] = field(default_factory=list)
    prepared: list[str] = field(default_factory=list)
    """Code that computes what the statement needs."""
    opening: list[str] = field(default_factory=list)
    """Code that opens the block which starts with this statement, a docstring or the like."""
    after: list[str] = field(default_factory=list)
    guard: str | None = None
    around: str | None = None
    """The compound statement to put it in, where ``...`` is."""
    forgets: bool = False
    """Whether the comment above a removed statement goes with it."""
    unwrap: bool = False
    """Whether its body stands in its place."""
    replacement: str | None = None
    """The code to write instead, where there is any; empty to remove the statement."""

    @property
    def below(self) -> list[str]:
        """All that follows the statement."""
        return [*self.opening, *self.after]


@dataclass
class BlockEdits:
    """What is added to a block as a whole."""

    imports: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)


@dataclass
class ImportEdits:
    """Imports that are added next to one line of the module."""

    above: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    apart: bool = False
    gap: bool = False


@dataclass
class _Piece:
    """Statements that stay together, what is added around them, and the comments and blank lines above."""

    statements: list[cst.BaseStatement]
    lead: Lines = ()
    before: list[cst.BaseStatement] = field(default_factory=list)
    prepared: Sequence[str] = ()
    """What the statements need, below the comments; not parsed yet."""
    after: list[cst.BaseStatement] = field(default_factory=list)
    guard: str | None = None
    around: str | None = None
    apart: bool = False
    """Whether a blank line follows."""
    forgets: bool = False
    """Whether it was removed, and the comment above it may go."""


class Layout:
    """Lays out the blocks of one file."""

    def __init__(self, module: cst.Module) -> None:
        self._config = module.config_for_parsing
        self._indent = module.default_indent
        self._newline = module.default_newline
        self.statements: dict[cst.CSTNode, StatementEdits] = {}
        self.blocks: dict[cst.CSTNode, BlockEdits] = {}
        self.imports: dict[cst.CSTNode, ImportEdits] = {}
        self._guards: dict[cst.BaseStatement, cst.BaseSuite] = {}
        """The guards that were made, with what they guard as it would stand without them."""

    def expression(self, code: str) -> cst.BaseExpression:
        """Parse an expression in the file's own style."""
        return parse(code.replace("\n", self._newline), self._config)

    def lay_out(self, original: Block, updated: Block) -> Block:
        """``updated``, the block with the edits inside its statements made, with those around them made."""
        if original not in self.blocks and not any(map(self._is_edited, original.body)):
            return updated
        if isinstance(original, cst.SimpleStatementSuite) and isinstance(updated, cst.SimpleStatementSuite):
            return self._lay_out_suite(original, updated)
        assert isinstance(updated, cst.Module | cst.IndentedBlock)
        header: Lines = ()
        pieces: list[_Piece] = []
        for before, after in zip(original.body, updated.body, strict=True):
            pieces += self._pieces(before, after)
        if isinstance(updated, cst.Module) and pieces:
            header, attached = _split(updated.header)
            header, attached = (header, attached) if header else (attached, ())
            pieces[0].lead = (*attached, *pieces[0].lead)
            updated = changed(updated, header=header)
        pieces = self._with_block_edits(original, pieces)
        indent = updated.indent if isinstance(updated, cst.IndentedBlock) else None
        body, rest = self._emit(pieces, indent)
        if not body and not isinstance(updated, cst.Module):
            body, rest = [cst.SimpleStatementLine([cst.Pass()], leading_lines=rest)], ()
        updated = changed(updated, body=body, footer=(*rest, *updated.footer))
        return updated if original.body else changed(updated, has_trailing_newline=True)

    def lay_out_elif(self, original: cst.If, updated: cst.If) -> cst.If | cst.Else | None:
        """The ``orelse`` of an ``if`` whose ``elif`` has edits of its own."""
        pieces = self._pieces(original, changed(updated, leading_lines=()))
        body, _ = self._emit(pieces, None)
        if not body:
            return None
        if len(body) == 1 and isinstance(body[0], cst.If):
            return changed(body[0], leading_lines=updated.leading_lines)
        return cst.Else(self._nested(body, None), leading_lines=updated.leading_lines)

    def fold(self, updated: cst.If) -> cst.If:
        """Take a guard that covers the whole body of ``updated`` into its condition."""
        body = updated.body
        if updated.orelse is not None or not isinstance(body, cst.IndentedBlock) or len(body.body) != 1:
            return updated
        guard = body.body[0]
        if not isinstance(guard, cst.If) or guard not in self._guards:
            return updated
        suite = self._guards[guard]
        if isinstance(suite, cst.IndentedBlock):
            suite = changed(body, body=_lead(guard.leading_lines, suite.body))
        return changed(_with_test(updated, both(updated.test, guard.test)), body=suite)

    def _default(self, indent: str | None) -> str:
        return self._indent if indent is None else indent

    def _nested(self, body: Sequence[cst.BaseStatement], indent: str | None) -> cst.IndentedBlock:
        """``body`` one level deeper, with the lines that a backslash continues."""
        shifting = _Shifting(self._default(indent))
        return cst.IndentedBlock([shifting.rebuild(statement) for statement in body], indent=indent)

    def _is_edited(self, statement: cst.CSTNode) -> bool:
        if statement in self.statements or statement in self.imports:
            return True
        return isinstance(statement, cst.SimpleStatementLine) and any(map(self._is_edited, statement.body))

    def _parse(self, codes: Iterable[str]) -> list[cst.BaseStatement]:
        """Parse statements in the file's own style."""
        statements: list[cst.BaseStatement] = []
        for code in codes:
            text = code.strip("\n").replace("\n", self._newline) + self._newline
            module = cst.parse_module(text, self._config)
            assert not module.footer, f"the comment at the end would be lost: {code!r}"
            statements += _lead(module.header, module.body)
        return statements

    def _inline(self, statement: cst.BaseSmallStatement, edits: StatementEdits) -> list[cst.BaseSmallStatement] | None:
        """The statement as it stays on its line, or none if it cannot."""
        if edits.replacement is None:
            return [statement]
        parsed = self._parse([edits.replacement])
        if not parsed:
            return []
        line = parsed[0]
        if len(parsed) > 1 or not isinstance(line, cst.SimpleStatementLine) or line.leading_lines:
            return None
        return None if line.trailing_whitespace.comment else list(line.body)

    def _pieces(self, original: cst.CSTNode, updated: cst.BaseStatement) -> list[_Piece]:
        """What becomes of one line or compound statement."""
        if isinstance(original, cst.SimpleStatementLine) and isinstance(updated, cst.SimpleStatementLine):
            pieces = self._line_pieces(original.body, updated.body, updated.trailing_whitespace)
            pieces[0].lead = updated.leading_lines
        else:
            pieces = [self._compound_piece(original, updated)]
        imports = self.imports.get(original)
        if imports is not None:
            pieces[-1].after[:0] = _lead([_BLANK] * imports.gap, self._parse(imports.below))
            pieces[-1].apart = imports.apart and not imports.above
        if imports is not None and imports.above:
            pieces.insert(0, _Piece(self._parse(imports.above), pieces[0].lead, apart=imports.apart))
            pieces[1].lead = ()
        return pieces

    def _compound_piece(self, original: cst.CSTNode, updated: cst.BaseStatement) -> _Piece:
        lead: Lines = updated.leading_lines  # type: ignore[attr-defined]
        edits = self.statements.get(original, StatementEdits())
        body: list[cst.BaseStatement] = [changed(updated, leading_lines=())]
        if edits.replacement is not None:
            body = self._parse([edits.replacement])
        if edits.unwrap:
            body = _unwrapped(updated)
        before, after = self._parse(edits.before), self._parse(edits.below)
        return _Piece(body, lead, before, edits.prepared, after, edits.guard, edits.around)

    def _line_pieces(
        self,
        originals: Sequence[cst.BaseSmallStatement],
        updated: Sequence[cst.BaseSmallStatement],
        trailing: cst.TrailingWhitespace,
    ) -> list[_Piece]:
        """What becomes of the statements of one line, which is split only where it must be."""
        pieces = [_Piece([])]
        for original, statement in zip(originals, updated, strict=True):
            edits = self.statements.get(original, StatementEdits())
            inline = self._inline(statement, edits)
            wrapped = edits.guard or edits.around
            alone = wrapped or inline is None
            apart = alone or edits.before or edits.prepared
            if apart or pieces[-1].guard or pieces[-1].around or pieces[-1].after:
                before = self._parse(edits.before)
                pieces.append(_Piece([], (), before, edits.prepared, guard=edits.guard, around=edits.around))
            piece = pieces[-1]
            if inline is None:
                piece.statements = self._parse([edits.replacement or ""])
                pieces.append(_Piece([]))
            else:
                piece.statements = _joined(piece.statements, inline)
            piece.after = self._parse(edits.below)
            piece.forgets = edits.forgets and len(originals) == 1
        pieces = [each for each in pieces if each.statements or each.before or each.prepared or each.after] or [
            _Piece([], forgets=pieces[-1].forgets)
        ]
        _end_line(pieces, trailing, updated[-1])
        return pieces

    def _lay_out_suite(
        self, original: cst.SimpleStatementSuite, updated: cst.SimpleStatementSuite
    ) -> cst.SimpleStatementSuite | cst.IndentedBlock:
        """Lay out ``if a: b(); c()``, as a block of lines only if need be."""
        edits = [self.statements.get(statement, StatementEdits()) for statement in original.body]
        inlines = [self._inline(statement, edit) for statement, edit in zip(updated.body, edits, strict=True)]
        small = [statement for inline in inlines for statement in inline or ()] or [cst.Pass()]
        suite = changed(updated, body=_ended(small, updated.body[-1]))
        plain = original not in self.blocks and not any(edit.before or edit.prepared or edit.below for edit in edits)
        plain = plain and None not in inlines and not any(edit.around for edit in edits)
        guards = {edit.guard for edit in edits}
        if plain and guards == {None}:
            return suite
        pieces = self._line_pieces(original.body, updated.body, updated.trailing_whitespace)
        body, _ = self._emit(self._with_block_edits(original, pieces), None)
        if plain and len(guards) == 1:
            self._guards[body[0]] = suite
        return cst.IndentedBlock(body or [cst.SimpleStatementLine([cst.Pass()])])

    def _with_block_edits(self, original: Block, pieces: list[_Piece]) -> list[_Piece]:
        edits = self.blocks.get(original, BlockEdits())
        imports, first, last = (self._parse(codes) for codes in (edits.imports, edits.first, edits.last))
        added = [_Piece(imports, apart=True), _Piece(first)] if imports else [_Piece(first)]
        return [*(piece for piece in added if piece.statements), *pieces, *([_Piece(last)] if last else [])]

    def _emit(self, pieces: Iterable[_Piece], indent: str | None) -> tuple[list[cst.BaseStatement], Lines]:
        """The statements of a block, and the comments that no statement follows any more."""
        body: list[cst.BaseStatement] = []
        pending: Lines = ()
        runs = list(_runs(pieces))
        for index, run in enumerate(runs):
            lead = _merged(pending, run[0].lead)
            if run[0].forgets and not run[0].before and not run[-1].after:
                following = runs[index + 1][0] if index + 1 < len(runs) else None
                if following is None or following.forgets or (following.lead and following.lead[0].comment is None):
                    lead, _ = _split(lead)
            if run[0].before:
                above, lead = _split(lead)
                inserted = _definitions_first(run[0].before)
                if body and isinstance(inserted[0], _DEFINITIONS):
                    above = _two_blank(above)
                elif body and _is_import(body[-1]) and isinstance(inserted[0], cst.BaseCompoundStatement):
                    above = above or (_BLANK,)
                body += _lead(above, inserted)
                between = isinstance(inserted[0], _DEFINITIONS) and isinstance(
                    next(iter(run[0].statements), None), _DEFINITIONS
                )
                if between or isinstance(inserted[-1], _DEFINITIONS):
                    lead = _two_blank(lead)
            prepared = self._prepared(run) if run[0].around is None else []
            if prepared:
                body += _lead(lead, prepared)
                lead = ()
            run[0].lead = lead
            statements = [*self._run(run, indent), *run[-1].after]
            pending = () if statements else lead
            body += statements if run[0].statements else _lead(lead, statements)
            if run[-1].apart:
                pending = _APART
        return body, () if pending is _APART else pending

    def _prepared(self, run: Sequence[_Piece]) -> list[cst.BaseStatement]:
        return self._parse(dict.fromkeys(code for piece in run for code in piece.prepared))

    def _enclosed(self, run: Sequence[_Piece], template: str, indent: str | None) -> list[cst.BaseStatement]:
        """The statements of pieces, with what they need, where a compound statement has ``...``."""
        lead, run[0].lead = run[0].lead, ()
        body = [each for piece in run for each in (*self._prepared([piece]), *_lead(piece.lead, piece.statements))]
        filling = _Filling(body, indent, self._default(indent))
        return _lead(lead, [filling.rebuild(each) for each in self._parse([template])]) if body else []

    def _run(self, run: Sequence[_Piece], indent: str | None) -> list[cst.BaseStatement]:
        """The statements of pieces that share one guard, or of one piece without a guard."""
        first = run[0]
        if first.around is not None:
            return self._enclosed(run, first.around, indent)
        if first.guard is None:
            return _lead(first.lead, first.statements) if first.statements else []
        test = self.expression(first.guard)
        only = first.statements[0] if len(run) == len(first.statements) == 1 else None
        if isinstance(only, cst.If) and only.orelse is None:
            return _lead(first.lead, [_with_test(only, both(test, only.test))])
        lead, first.lead = first.lead, ()
        body = [statement for piece in run for statement in _lead(piece.lead, piece.statements)]
        guard = cst.If(test, self._nested(body, indent), leading_lines=lead)
        self._guards[guard] = cst.IndentedBlock(body)
        return [guard]


def _unwrapped(statement: cst.BaseStatement) -> list[cst.BaseStatement]:
    """The body of a compound statement, with the comments that its header and its end carry."""
    body: cst.BaseSuite = statement.body  # type: ignore[attr-defined]
    if isinstance(body, cst.IndentedBlock):
        comment = body.header.comment
        lead = [cst.EmptyLine(comment=comment)] if comment is not None else []
        return _lead(lead, body.body)
    assert isinstance(body, cst.SimpleStatementSuite)
    return [cst.SimpleStatementLine(body.body, trailing_whitespace=body.trailing_whitespace)]


class _Shifting(Rebuilder):
    """Moves lines that a backslash continues, which LibCST takes for mere space, along with their statement."""

    into_space = True

    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def enters(self, node: cst.CSTNode) -> bool:
        """Look everywhere."""
        return True

    def leave(self, old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode:
        """Shift what follows the backslashes of one space; leave empty lines empty."""
        if isinstance(old, cst.EmptyLine) and old.comment is None and not old.whitespace.value:
            return changed(old, indent=False)
        if not isinstance(old, cst.SimpleWhitespace) or "\\" not in old.value:
            return new
        return changed(old, value=_CONTINUED.sub(rf"\g<0>{self._unit}", old.value))


class _Filling(Rebuilder):
    """Puts statements where a compound statement has ``...``, moved to the depth that they have there."""

    def __init__(self, body: Sequence[cst.BaseStatement], indent: str | None, unit: str) -> None:
        super().__init__()
        self._body, self._indent, self._unit = body, indent, unit

    def enters(self, node: cst.CSTNode) -> bool:
        """Look at statements alone."""
        return isinstance(node, cst.BaseStatement | cst.BaseSuite)

    def leave(self, old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode | Sequence[cst.CSTNode] | None:
        """The statements for ``...``, and the file's own indentation around them."""
        match old:
            case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Ellipsis())]):
                depth = sum(isinstance(each, cst.IndentedBlock) for each in self.parents)
                shifting = _Shifting(self._unit * depth)
                return [shifting.rebuild(each) for each in self._body]
        return changed(new, indent=self._indent) if isinstance(new, cst.IndentedBlock) else new


def _runs(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Neighbours with the same guard, together, unless something is inserted between them."""
    run: list[_Piece] = []
    for piece in pieces:
        alike = run and (piece.guard or piece.around) and (piece.guard, piece.around) == (run[0].guard, run[0].around)
        if run and (not alike or piece.before or run[-1].after):
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


def _definitions_first(statements: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
    """Inserted functions and classes above inserted statements, which may use them, with blank lines between."""
    defined = [each for each in statements if isinstance(each, _DEFINITIONS)]
    if not defined:
        return list(statements)
    others = [each for each in statements if not isinstance(each, _DEFINITIONS)]
    ordered: list[cst.BaseStatement] = [defined[0], *(_lead((_BLANK, _BLANK), [each])[0] for each in defined[1:])]
    return [*ordered, *_lead((_BLANK, _BLANK), others)]


def _is_import(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[-1], cst.Import | cst.ImportFrom
    )


def _two_blank(lines: Lines) -> Lines:
    """``lines`` with at least two blank ones at their start."""
    blank = next((index for index, line in enumerate(lines) if line.comment is not None), len(lines))
    return (*[_BLANK] * max(0, 2 - blank), *lines)


def _split(lines: Lines) -> tuple[Lines, Lines]:
    """Blank lines and comments apart from a statement, and the comments right above it."""
    end = max((index for index, line in enumerate(lines, 1) if line.comment is None), default=0)
    return lines[:end], lines[end:]


def _merged(pending: Lines, lead: Lines) -> Lines:
    """The lines above a statement that has gone, and those above the next one, with no more blank lines than before."""
    if lead and lead[0].comment is None and all(line.comment is None for line in pending):
        return lead
    return (*pending, *lead)


def _lead(lines: Lines, statements: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
    """``statements`` with ``lines`` above the first."""
    if not lines or not statements:
        return list(statements)
    first = statements[0]
    own: Lines = first.leading_lines  # type: ignore[attr-defined]
    return [changed(first, leading_lines=(*lines, *own)), *statements[1:]]


def _joined(line: Sequence[cst.BaseStatement], statements: Sequence[cst.BaseSmallStatement]) -> list[cst.BaseStatement]:
    """``statements`` at the end of ``line``, which is one line of simple statements or nothing yet."""
    before = line[0].body if line and isinstance(line[0], cst.SimpleStatementLine) else ()
    body = [*before, *statements]
    return [cst.SimpleStatementLine(body)] if body else []


def _ended(line: Sequence[cst.BaseSmallStatement], last: cst.BaseSmallStatement) -> list[cst.BaseSmallStatement]:
    """``line`` without a semicolon at its end, unless it ended with ``last`` and its semicolon before."""
    if line[-1] is last:
        return list(line)
    return [*line[:-1], changed(line[-1], semicolon=cst.MaybeSentinel.DEFAULT)]


def _end_line(pieces: Sequence[_Piece], trailing: cst.TrailingWhitespace, last: cst.BaseSmallStatement) -> None:
    """End each piece of a split line as a line, and the last one with the line's comment."""
    for piece in pieces:
        line = piece.statements[-1] if piece.statements else None
        if isinstance(line, cst.SimpleStatementLine):
            piece.statements[-1] = changed(line, body=_ended(line.body, last))
    if not pieces[-1].statements:
        return
    line = pieces[-1].statements[-1]
    if isinstance(line, cst.SimpleStatementLine) and line.trailing_whitespace.comment is None:
        pieces[-1].statements[-1] = changed(line, trailing_whitespace=trailing)
    elif trailing.comment is not None:
        comment = cst.EmptyLine(comment=trailing.comment)
        pieces[-1].statements = _lead([comment], pieces[-1].statements)


def _with_test(statement: cst.If, test: cst.BaseExpression) -> cst.If:
    return changed(
        statement,
        test=test,
        whitespace_before_test=cst.SimpleWhitespace(" "),
        whitespace_after_test=cst.SimpleWhitespace(""),
    )
