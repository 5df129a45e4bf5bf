"""Sets and removes the arguments of a call, following its layout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import libcst as cst

from autodist.edits import EditConflict, RemoveArgument, SetArgument
from autodist.lossless.expressions import bare, fit, parenthesized
from autodist.lossless.trees import changed

_NOTHING = cst.SimpleWhitespace("")
_EQUAL = cst.AssignEqual(whitespace_before=_NOTHING, whitespace_after=_NOTHING)
_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))

ArgumentEdit = SetArgument | RemoveArgument
Parse = Callable[[SetArgument], cst.BaseExpression]


def find(args: Sequence[cst.Arg], name: str, position: int | None) -> int | None:
    """The index of the argument that is passed as ``name``, or at ``position`` by position."""
    for index, arg in enumerate(args):
        if arg.keyword is not None and arg.keyword.value == name:
            return index
    if position is None or position >= len(args):
        return None
    positional = all(arg.keyword is None and not arg.star for arg in args[: position + 1])
    return position if positional else None


def change_arguments(call: cst.Call, edits: Sequence[ArgumentEdit], parse: Parse) -> cst.Call:
    """``call`` with its argument edits made; positions count the arguments it had before."""
    original = list(call.args)
    removed: dict[int, ArgumentEdit] = {}
    added: list[SetArgument] = []
    for edit in _by_name(edits):
        index = find(call.args, edit.name, edit.position)
        if isinstance(edit, SetArgument) and index is None:
            added.append(edit)
        elif isinstance(edit, SetArgument) and index is not None:
            arg = original[index]
            original[index] = changed(arg, value=fit(bare(parse(edit)), arg.value, [call, arg]))
        elif index is not None:
            removed[index] = edit
    for index in sorted(removed):
        arg = original[index]
        if added and arg.keyword is not None:  # a new keyword takes the place of one that goes
            edit = added.pop(0)
            value = fit(bare(parse(edit)), arg.value, [call, arg])
            original[index] = changed(arg, keyword=cst.Name(edit.name), value=value)
            del removed[index]
    call = _remove(changed(call, args=original), removed)
    for edit in added:
        call = _add(call, edit.name, parse(edit))
    return call


def one_per_line(call: cst.Call, indent: str, unit: str) -> cst.Call:
    """``call`` with each argument on a line of its own, a ``unit`` deeper; its line has ``indent`` beyond its block."""

    def line_break(deeper: bool) -> cst.ParenthesizedWhitespace:
        inner = indent + unit if deeper else indent
        return cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(inner))

    args = [
        changed(
            arg,
            comma=cst.Comma(whitespace_after=line_break(deeper=arg is not call.args[-1])),
            whitespace_after_arg=_NOTHING,
        )
        for arg in call.args
    ]
    return changed(call, args=args, whitespace_before_args=line_break(deeper=True))


def _by_name(edits: Sequence[ArgumentEdit]) -> Iterable[ArgumentEdit]:
    """One edit for each name: the one that knows a position, if several say the same."""
    merged: dict[str, ArgumentEdit] = {}
    for edit in edits:
        if edit.name not in merged or merged[edit.name].position is None:
            merged[edit.name] = edit
    return merged.values()


def _remove(call: cst.Call, removed: dict[int, ArgumentEdit]) -> cst.Call:
    for index, edit in removed.items():
        for later, arg in enumerate(call.args[index + 1 :], index + 1):
            if call.args[index].keyword is None and arg.keyword is None and arg.star != "**" and later not in removed:
                raise EditConflict(edit, edit, "removing this argument would move the ones after it")
    args = list(call.args)
    for index in sorted(removed, reverse=True):
        last = args.pop(index)
        if args and index == len(args):
            args[-1] = _closing(args[-1], last)
    if removed and not args:
        call = changed(call, whitespace_before_args=_NOTHING)
    return changed(call, args=args)


def _closing(arg: cst.Arg, last: cst.Arg) -> cst.Arg:
    """``arg`` as the last one, where ``last`` was: with its comma if it had one, and the way to the parenthesis."""
    own, end = _gap(arg), _gap(last)
    if isinstance(own, cst.ParenthesizedWhitespace) and own.first_line.comment is not None:
        line = end.last_line if isinstance(end, cst.ParenthesizedWhitespace) else own.last_line
        end = changed(own, last_line=line)
    elif isinstance(end, cst.ParenthesizedWhitespace):
        end = _without_comment(end)
    if isinstance(last.comma, cst.Comma):
        return changed(arg, comma=changed(last.comma, whitespace_after=end), whitespace_after_arg=_NOTHING)
    return changed(arg, comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=end)


def _gap(arg: cst.Arg) -> cst.BaseParenthesizableWhitespace:
    """What stands between ``arg`` (and its comma) and the next token."""
    return arg.comma.whitespace_after if isinstance(arg.comma, cst.Comma) else arg.whitespace_after_arg


def _without_comment(gap: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    if not isinstance(gap, cst.ParenthesizedWhitespace):
        return gap
    return changed(gap, first_line=cst.TrailingWhitespace(newline=gap.first_line.newline), empty_lines=[])


def _add(call: cst.Call, name: str, value: cst.BaseExpression) -> cst.Call:
    """Add a keyword argument, last but for ``**``."""
    arg = cst.Arg(value, cst.Name(name), equal=_EQUAL)
    arg = changed(arg, value=fit(bare(value), value, [call, arg]))
    args = [_unambiguous(other) for other in call.args]
    index = next((index for index, other in enumerate(args) if other.star == "**"), len(args))
    between = _separator(call)
    if not args:
        args = [arg]
    elif index < len(args):
        args.insert(index, changed(arg, comma=cst.Comma(whitespace_after=between)))
    else:
        last = args[-1]
        end = _gap(last)
        closed = changed(arg, comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
        if isinstance(end, cst.ParenthesizedWhitespace):
            if isinstance(between, cst.ParenthesizedWhitespace):
                between = changed(end, last_line=between.last_line, indent=between.indent)
                end = _without_comment(end)
            closed = _with_gap(closed, end)
        args[-1:] = [
            changed(last, comma=_comma(last, between), whitespace_after_arg=_NOTHING),
            closed,
        ]
    return changed(call, args=args)


def _comma(arg: cst.Arg, after: cst.BaseParenthesizableWhitespace) -> cst.Comma:
    comma = arg.comma if isinstance(arg.comma, cst.Comma) else _COMMA
    return changed(comma, whitespace_after=after)


def _with_gap(arg: cst.Arg, gap: cst.BaseParenthesizableWhitespace) -> cst.Arg:
    if isinstance(arg.comma, cst.Comma):
        return changed(arg, comma=changed(arg.comma, whitespace_after=gap))
    return changed(arg, whitespace_after_arg=gap)


def _separator(call: cst.Call) -> cst.BaseParenthesizableWhitespace:
    """What stands between two arguments of ``call``, as its author writes it."""
    if len(call.args) > 1:
        return _without_comment(_gap(call.args[-2]))
    if call.args and isinstance(call.whitespace_before_args, cst.ParenthesizedWhitespace):
        return _without_comment(call.whitespace_before_args)
    return _COMMA.whitespace_after


def _unambiguous(arg: cst.Arg) -> cst.Arg:
    """A generator needs parentheses of its own once it is not the only argument."""
    if isinstance(arg.value, cst.GeneratorExp) and not arg.value.lpar:
        return changed(arg, value=parenthesized(arg.value))
    return arg
