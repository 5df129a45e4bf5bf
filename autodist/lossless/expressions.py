"""Expressions on their way into a tree: parsed, put in parentheses where needed, and fit for an f-string."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from autodist.lossless.trees import Rebuilder, changed, code_of

_TUPLE, _WALRUS, _LAMBDA, _TERNARY, _OR, _AND, _NOT, _COMPARE = range(8)
_BIT_OR, _BIT_XOR, _BIT_AND, _SHIFT, _SUM, _PRODUCT, _SIGN, _POWER, _AWAIT, _ATOM = range(8, 18)

_BINARY: dict[type[cst.CSTNode], int] = {
    cst.BitOr: _BIT_OR,
    cst.BitXor: _BIT_XOR,
    cst.BitAnd: _BIT_AND,
    cst.LeftShift: _SHIFT,
    cst.RightShift: _SHIFT,
    cst.Add: _SUM,
    cst.Subtract: _SUM,
    cst.Power: _POWER,
}

_STRENGTH: dict[type[cst.CSTNode], int] = {
    cst.Tuple: _TUPLE,
    cst.Yield: _TUPLE,
    cst.GeneratorExp: _TUPLE,
    cst.NamedExpr: _WALRUS,
    cst.Lambda: _LAMBDA,
    cst.IfExp: _TERNARY,
    cst.Comparison: _COMPARE,
    cst.Await: _AWAIT,
}

_TUPLE_WELCOME = (cst.Assign, cst.AnnAssign, cst.AugAssign, cst.Expr, cst.Return)
_WALRUS_WELCOME = (cst.If, cst.While, cst.Element, cst.Index, cst.Decorator)

_CODE = (cst.BaseExpression, cst.BaseStatement, cst.BaseSmallStatement)
_HOLE = "__autodist_hole__"


class CannotQuote(Exception):
    """The code cannot stand in its f-string on every supported version of Python."""


def parse(code: str, config: cst.PartialParserConfig) -> cst.BaseExpression:
    """One expression."""
    return cst.parse_expression(code.strip(), config)


def with_hole(template: str) -> str:
    """``template`` as code, with a name where its ``{}`` is."""
    before, hole, after = template.partition("{}")
    assert hole, f"no place for the expression in {template!r}"
    return before + _HOLE + after


def with_holes(template: str, count: int) -> str:
    """``template`` as code, with names where its ``{0}``, ``{1}`` … are."""
    for index in range(count):
        assert f"{{{index}}}" in template, f"no place for expression {index} in {template!r}"
        template = template.replace(f"{{{index}}}", f"{_HOLE}{index}_")
    return template


def fill_all(tree: cst.BaseExpression, expressions: Sequence[cst.BaseExpression]) -> cst.BaseExpression:
    """``tree`` with ``expressions`` in place of its numbered holes."""
    for index, expression in enumerate(expressions):
        filled = _Filling(expression, f"{_HOLE}{index}_").rebuild(tree)
        assert isinstance(filled, cst.BaseExpression)
        tree = filled
    return tree


def fill(tree: cst.BaseExpression, expression: cst.BaseExpression) -> cst.BaseExpression:
    """``tree`` with ``expression`` in place of its hole, in parentheses only where it needs them."""
    filled = _Filling(expression).rebuild(tree)
    assert isinstance(filled, cst.BaseExpression)
    return filled


class _Filling(Rebuilder):
    def __init__(self, expression: cst.BaseExpression, hole: str = _HOLE) -> None:
        super().__init__()
        self._expression = expression
        self._hole = hole

    def enters(self, node: cst.CSTNode) -> bool:
        """Look everywhere."""
        return True

    def leave(self, old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode:
        """Fill the hole."""
        if not isinstance(old, cst.Name) or old.value != self._hole:
            return new
        return fit(bare(self._expression), old, self.parents) if self.parents else self._expression


def parenthesized(node: cst.BaseExpression) -> cst.BaseExpression:
    """``node`` in one more pair of parentheses."""
    return changed(node, lpar=[cst.LeftParen(), *node.lpar], rpar=[*node.rpar, cst.RightParen()])


def bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """``node`` without the parentheses around it, unless they hold a comment or join lines."""
    own = 1 if isinstance(node, cst.Tuple | cst.GeneratorExp) else 0
    if len(node.lpar) <= own or "\n" in code_of(node) or "\r" in code_of(node):
        return node
    return changed(node, lpar=node.lpar[len(node.lpar) - own :], rpar=node.rpar[:own])


def fit(node: cst.BaseExpression, place: cst.CSTNode, parents: Sequence[cst.CSTNode]) -> cst.BaseExpression:
    """``node``, in parentheses if it needs them where ``place`` stands, below ``parents``."""
    if node.lpar:
        return node
    parent = parents[-1]
    required = _required(parent, place)
    needed = strength(node) < required or isinstance(node, cst.GeneratorExp)
    if isinstance(node, cst.NamedExpr):
        needed = required != _WALRUS
    elif isinstance(node, cst.Integer):
        needed = isinstance(parent, cst.Attribute)
    elif isinstance(parent, cst.WithItem) and isinstance(node, cst.Tuple):
        node = parenthesized(node)  # or it would be several items
    elif isinstance(parent, cst.FormattedStringExpression):
        needed = needed or code_of(node).startswith("{")
    return parenthesized(node) if needed or _is_crowded(node, place, parents) else node


def both(left: cst.BaseExpression, right: cst.BaseExpression) -> cst.BooleanOperation:
    """``left and right``."""
    operands = (parenthesized(node) if strength(node) < _AND else node for node in (left, right))
    return cst.BooleanOperation(next(operands), cst.And(), next(operands))


def strength(node: cst.BaseExpression) -> int:
    """How strongly the parts of ``node`` hold together, from the grammar's table of precedence."""
    if node.lpar:
        return _ATOM
    if isinstance(node, cst.BinaryOperation):
        return _BINARY.get(type(node.operator), _PRODUCT)
    if isinstance(node, cst.UnaryOperation):
        return _NOT if isinstance(node.operator, cst.Not) else _SIGN
    if isinstance(node, cst.BooleanOperation):
        return _AND if isinstance(node.operator, cst.And) else _OR
    return _STRENGTH.get(type(node), _ATOM)


def _required(parent: cst.CSTNode, place: cst.CSTNode) -> int:
    """The weakest expression that may stand at ``place`` without parentheses."""
    if isinstance(parent, cst.ComparisonTarget | cst.StarredElement | cst.StarredDictElement):
        return _BIT_OR
    if isinstance(parent, cst.BaseExpression):
        return _required_by_expression(parent, place)
    if isinstance(parent, _TUPLE_WELCOME):
        return _TUPLE
    if isinstance(parent, cst.Arg):
        return _LAMBDA if parent.keyword or parent.star else _WALRUS
    if isinstance(parent, cst.CompFor):
        return _OR if place is parent.iter else _ATOM
    if isinstance(parent, cst.CompIf):
        return _OR
    if isinstance(parent, cst.FormattedStringExpression):
        return _TERNARY
    return _WALRUS if isinstance(parent, _WALRUS_WELCOME) else _LAMBDA


def _required_by_expression(parent: cst.BaseExpression, place: cst.CSTNode) -> int:
    match parent:
        case cst.BinaryOperation(operator=cst.Power()):
            return _AWAIT if place is parent.left else _SIGN
        case cst.BinaryOperation():
            return strength(changed(parent, lpar=(), rpar=())) + (place is parent.right)
        case cst.BooleanOperation() | cst.UnaryOperation():
            return strength(changed(parent, lpar=(), rpar=()))
        case cst.Comparison():
            return _BIT_OR
        case cst.IfExp():
            return _LAMBDA if place is parent.orelse else _OR
        case cst.Attribute() | cst.Call() | cst.Subscript() | cst.Await():
            return _ATOM
        case cst.ListComp() | cst.SetComp():
            return _WALRUS
    return _LAMBDA


def _is_crowded(node: cst.BaseExpression, place: cst.CSTNode, parents: Sequence[cst.CSTNode]) -> bool:
    """Whether ``node`` would run into a keyword, as ``x`` would in ``return(y)``."""
    old, new = code_of(place), code_of(node)
    starts = _is_word(new[0]) and not _is_word(old[0])
    ends = _is_word(new[-1]) and (not _is_word(old[-1]) or old[-1].isdigit())
    if not (starts or ends):
        return False
    around = next(parent for parent in reversed(parents) if isinstance(parent, _CODE))
    before, _, after = code_of(_Cutting(place).rebuild(around)).partition(_HOLE)
    return (starts and _is_word(before[-1:])) or (ends and _is_word(after[:1]))


def _is_word(character: str) -> bool:
    return character == "_" or character.isalnum()


class _Cutting(Rebuilder):
    """Cuts a hole into the code around a place; blocks of statements only take time."""

    def __init__(self, place: cst.CSTNode) -> None:
        super().__init__()
        self._place = place

    def enters(self, node: cst.CSTNode) -> bool:
        """Look at the code around the place, but not inside other code."""
        return node is self._place or not self.parents or not isinstance(node, _CODE)

    def leave(self, old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode:
        """Cut the hole, and drop blocks."""
        if isinstance(old, cst.BaseSuite):
            return cst.SimpleStatementSuite([cst.Pass()])
        return cst.Name(_HOLE) if old is self._place else new


def quotable(node: cst.BaseExpression, quotes: Sequence[str]) -> cst.BaseExpression:
    """``node`` with string literals that may stand in f-strings of these ``quotes`` before Python 3.12.

    Raises CannotQuote where there is no way to write it.
    """
    if not quotes:
        return node
    if _stands(node, quotes):
        return node
    result = _Requoting(quotes).rebuild(node)
    assert isinstance(result, cst.BaseExpression)
    if not _stands(result, quotes):
        raise CannotQuote
    return result


def quoted_as(original: cst.CSTNode, node: cst.BaseExpression) -> cst.BaseExpression:
    """A string literal in the quotes of the one in whose place it stands, where its text allows it."""
    if not isinstance(original, cst.SimpleString) or not isinstance(node, cst.SimpleString):
        return node
    quote = original.quote
    if len(quote) > 1 or len(node.quote) > 1 or any(each in node.raw_value for each in (quote, "\\")):
        return node
    return changed(node, value=node.prefix + quote + node.raw_value + quote)


def _stands(node: cst.BaseExpression, quotes: Sequence[str]) -> bool:
    code = code_of(node)
    bad = ["\\", "#", *quotes, *("\r\n" if any(len(quote) == 1 for quote in quotes) else "")]
    return not any(piece in code for piece in bad)


class _Requoting(Rebuilder):
    """Writes plain string literals with the quote that the f-strings around them do not use."""

    def __init__(self, quotes: Sequence[str]) -> None:
        super().__init__()
        used = {quote[0] for quote in quotes}
        self._free = next((quote for quote in "'\"" if quote not in used), None)

    def enters(self, node: cst.CSTNode) -> bool:
        """Look everywhere."""
        return True

    def leave(self, old: cst.CSTNode, new: cst.CSTNode) -> cst.CSTNode:
        """Change the quotes of one string, where its text allows it."""
        if self._free is None or not isinstance(new, cst.SimpleString | cst.FormattedString):
            return new
        quote = self._free * len(new.quote if isinstance(new, cst.SimpleString) else new.end)
        if isinstance(new, cst.FormattedString):
            return new if self._free in code_of(new) else changed(new, start=new.prefix + quote, end=quote)
        return new if self._free in new.value else changed(new, value=new.prefix + quote + new.raw_value + quote)
