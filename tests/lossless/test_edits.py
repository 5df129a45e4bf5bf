"""Edits, one by one: what each writes, and how they combine."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from textwrap import dedent

import pytest

from autodist.edits import (
    AddImport,
    Append,
    BrokenResult,
    Edit,
    EditConflict,
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
    apply,
)
from autodist.errors import AutodistError
from autodist.source import Source

Make = Callable[[Source], Edit]
OF_EXPRESSIONS = (ReplaceExpr, Hoist, WrapExpr, SetArgument, RemoveArgument)


def at(code: str, kind: Callable[..., Edit], *arguments: object) -> Make:
    """An edit of the first statement or expression that has this code, or starts with it if it ends in a colon."""

    def make(source: Source) -> Edit:
        wanted = ast.expr if kind in OF_EXPRESSIONS else ast.stmt
        for node in ast.walk(source.tree):
            if isinstance(node, ast.expr | ast.stmt) and isinstance(node, wanted):
                own = source.code(node)
                if own == code or (code.endswith(":") and own.startswith(code)):
                    return kind(node, *arguments)
        raise LookupError(code)

    return make


def in_module(kind: Callable[..., Edit], *arguments: object) -> Make:
    """An edit of the module itself."""
    return lambda source: kind(source.tree, *arguments)


def edited(text: str, *makes: Make) -> str:
    """The text after some edits."""
    source = Source.parse(text)
    return apply(source, [make(source) for make in makes])


def check(before: str, after: str, *makes: Make) -> None:
    """Compare the indented texts of this file."""
    assert edited(dedent(before).lstrip("\n"), *makes) == dedent(after).lstrip("\n")


def conflict(text: str, *makes: Make) -> EditConflict:
    """The conflict between some edits."""
    with pytest.raises(EditConflict) as caught:
        edited(text, *makes)
    return caught.value


# Statements


def test_insert_before_keeps_blank_lines_above_and_comments_below() -> None:
    """A comment belongs to the statement under it; a blank line separates both from what is above."""
    check(
        """
        a()

        # far

        # near
        b()  # beside
        """,
        """
        a()

        # far

        new()
        newer()
        # near
        b()  # beside
        """,
        at("b()", InsertBefore, "new()"),
        at("b()", InsertBefore, "newer()"),
        at("b()", InsertBefore, "new()"),
    )


def test_insert_into_a_line_of_several_statements() -> None:
    """A line is split where something comes between its statements, and only there."""
    check(
        "a(); b(); c(); d()  # all\n",
        "a()\nnew()\nb(); c()\nnewer()\nd()  # all\n",
        at("b()", InsertBefore, "new()"),
        at("c()", InsertAfter, "newer()"),
    )
    check("a(); b();\n", "new()\na(); b();\n", at("a()", InsertBefore, "new()"))


def test_insert_into_a_suite_on_one_line() -> None:
    """A one-line suite becomes a block when it gets a line of its own."""
    check(
        "if a: b(); c()  # both\nelse: d()\n",
        """
        if a:
            b()
            new()
            c()  # both
        else: d()
        """,
        at("b()", InsertAfter, "new()"),
    )
    check("while a: b()\n", "while a: new\n", at("b()", ReplaceStatement, "new"))
    check("while a: b()\n", "while a: pass\n", at("b()", RemoveStatement))


def test_inserted_code_takes_the_style_of_the_file() -> None:
    """Tabs, line ends, and no line end at the end of the file stay as they are."""
    text = "def f():\r\n\tif a:\r\n\t\tb()"
    code = 'if new:\n    x = """one\n  two"""'
    expected = 'def f():\r\n\tif a:\r\n\t\tif new:\r\n\t\t\tx = """one\r\n  two"""\r\n\t\tb()'
    assert edited(text, at("b()", InsertBefore, code)) == expected
    assert edited("a()", at("a()", InsertAfter, "new()")) == "a()\nnew()"


def test_form_feeds_and_odd_spaces_stay() -> None:
    """Everything that is not edited stays, byte for byte."""
    text = "\fa = 1 ;\n\n\x0c\ndef  f( x ,) :\n  return(x)   \n  \n   # odd\n"
    text += "try :\n    pass\nexcept (A , B) as e :\n  b\\\n()\n"
    assert edited(text, at("a = 1", InsertAfter, "new()")) == text.replace("a = 1 ;", "a = 1 ;\nnew()")


def test_spaces_that_a_tab_makes_up_for() -> None:
    """Python counts columns; LibCST asks for the same characters."""
    text = "def f():\n\tif a:\n  \t\tb()\n  \t\tc()\n\td()\n"
    assert edited(text, at("d()", InsertAfter, "new()")) == text + "\tnew()\n"


def test_blocks_whose_lines_are_spelt_in_several_ways() -> None:
    """Lines that stay are as they were; where that would put tabs among spaces, the tabs go."""
    text = (
        "def f():\n    for a in b:\n        for c in a:\n            if c:\n                d()\n               \te()\n"
        "                if d:\n            \t    g()\n\t# end\n    h()\n"
    )
    assert edited(text, at("h()", InsertAfter, "new()")) == text + "    new()\n"
    spaces = text.expandtabs(8).replace(" " * 20 + "g()\n", " " * 20 + "new()\n" + " " * 20 + "g()\n")
    assert edited(text, at("g()", InsertBefore, "new()")) == spaces


def test_prepend_and_append() -> None:
    """A docstring stays first; comments at the end of a block stay last."""
    check(
        """
        def f():
            \"\"\"Doc.\"\"\"
            # about a
            a()
            # the end


        for x in y: a()
        """,
        """
        def f():
            \"\"\"Doc.\"\"\"
            first()
            # about a
            a()
            last()
            # the end


        for x in y:
            first()
            a()
            last()
        """,
        at("def f():", Prepend, "first()"),
        at("def f():", Append, "last()"),
        at("for x in y:", Prepend, "first()"),
        at("for x in y:", Append, "last()"),
    )
    check(
        '"""Doc."""\nimport a\n',
        '"""Doc."""\nnew()\nimport a\nlast()\n',
        in_module(Prepend, "new()"),
        in_module(Append, "last()"),
    )


def test_nothing_comes_before_what_must_be_first() -> None:
    """Neither before a docstring nor before, or among, the imports from ``__future__``."""
    check(
        '"""Doc."""\nfrom __future__ import annotations\nimport a\n',
        '"""Doc."""\nfrom __future__ import annotations\nnew()\nnewer()\nimport a\n',
        at('"""Doc."""', InsertAfter, "new()"),
        at("from __future__ import annotations", InsertBefore, "newer()"),
    )


def test_replace_and_remove_statements() -> None:
    """Comments above stay; a comment beside goes with what it is beside, unless something else comes there."""
    check(
        """
        a = 1
        # about b
        b = 2  # beside
        c = 3  # three
        if d:
            e()  # gone
        """,
        """
        a = 1
        # about b
        c = 4  # three
        if d:
            pass
        """,
        at("b = 2", RemoveStatement),
        at("c = 3", ReplaceStatement, "c = 4"),
        at("e()", RemoveStatement),
    )
    check("a = 1; b = 2; c = 3\n", "a = 1; new; c = 3\n", at("b = 2", ReplaceStatement, "new"))
    check("a = 1  # why\n", "# why\nif b:\n    c\n", at("a = 1", ReplaceStatement, "if b:\n    c"))
    check("a\n\nb\n\nc\n", "a\n\nc\n", at("b", RemoveStatement))


# Guards


def test_neighbours_share_a_guard() -> None:
    """Statements with the same test stand under one ``if``, unless something else comes between them."""
    check(
        """
        x = 1
        # save
        a()  # a

        b()
        c()
        d()
        """,
        """
        x = 1
        # save
        if main:
            a()  # a

            b()
        new()
        if main:
            c()
        if other:
            d()
        """,
        at("a()", Guard, "main"),
        at("b()", Guard, "main"),
        at("c()", InsertBefore, "new()"),
        at("c()", Guard, "main"),
        at("d()", Guard, "other"),
    )


def test_a_guard_of_a_whole_body_goes_into_the_condition() -> None:
    """No nested ``if`` where ``and`` does."""
    check(
        """
        if epoch % 10 == 0 or last:  # sometimes
            # save
            a()
            b()
            # saved
        if (x
                or y): c(); d()
        """,
        """
        if (epoch % 10 == 0 or last) and main:  # sometimes
            # save
            a()
            b()
            # saved
        if (x
                or y) and (main or not spread): c(); d()
        """,
        at("a()", Guard, "main"),
        at("b()", Guard, "main"),
        at("c()", Guard, "main or not spread"),
        at("d()", Guard, "main or not spread"),
    )


def test_a_guard_is_not_folded_where_there_is_more() -> None:
    """An ``else``, or a statement without the guard, needs the body as it is."""
    check(
        """
        if x:
            a()
        else:
            b()
        if y:
            c()
            d()
        """,
        """
        if x:
            if main:
                a()
        else:
            b()
        if y:
            if main:
                c()
            d()
        """,
        at("a()", Guard, "main"),
        at("c()", Guard, "main"),
    )


def test_a_guard_of_an_if() -> None:
    """The test comes first, before a condition that may cost something."""
    check("if a or b:\n    c()\n", "if main and (a or b):\n    c()\n", at("if a or b:", Guard, "main"))
    check(
        "if(a): b()\nelse: c()\n",
        "if main:\n    if(a): b()\n    else: c()\n",
        at("if(a):", Guard, "main"),
    )


def test_a_guard_moves_its_lines_but_not_its_strings() -> None:
    """Continued lines move along; the text of a string is not a line."""
    check(
        '''
        def f():
            with a as b, \\
                 c as d:
                text = """one
            two"""
                call(x,
                     # why
                     y)
        ''',
        '''
        def f():
            if main:
                with a as b, \\
                     c as d:
                    text = """one
            two"""
                    call(x,
                         # why
                         y)
        ''',
        at("with a as b, \\\n         c as d:", Guard, "main"),
    )


def test_elif_can_be_edited() -> None:
    """An ``elif`` becomes an ``if`` below ``else`` where it must."""
    check(
        """
        if a:
            x()
        # about b
        elif b:
            y()
        else:
            z()
        """,
        """
        if a:
            x()
        # about b
        else:
            new()
            if b:
                y()
            else:
                z()
        """,
        lambda source: InsertBefore(elif_of(source), "new()"),
    )
    check("if a: x\nelif b: y\n", "if a: x\nelif main and b: y\n", lambda source: Guard(elif_of(source), "main"))
    check("if a: x\nelif b: y\n", "if a: x\n", lambda source: RemoveStatement(elif_of(source)))
    check("if a: x\nelif b: y\n", "if a: x\nelif b:\n    new\n    y\n", lambda source: Prepend(elif_of(source), "new"))


def elif_of(source: Source) -> ast.stmt:
    """The ``elif`` of the first statement."""
    first = source.tree.body[0]
    assert isinstance(first, ast.If)
    return first.orelse[0]


# Expressions


@pytest.mark.parametrize(
    ("before", "code", "new", "after"),
    [
        ("x = a ** 2", "a", "b // c", "x = (b // c) ** 2"),
        ("x = a + 2", "a", "b // c", "x = b // c + 2"),
        ("x = 2 - a", "a", "b - c", "x = 2 - (b - c)"),
        ("x = a.b", "a", "-c", "x = (-c).b"),
        ("x = a.b", "a", "1", "x = (1).b"),
        ("x = a[0](1)", "a[0]", "lambda: 1", "x = (lambda: 1)(1)"),
        ("x = a", "a", "b, c", "x = b, c"),
        ("f(a)", "a", "b, c", "f((b, c))"),
        ("f(k=a)", "a", "(b := c)", "f(k=(b := c))"),
        ("f(a)", "a", "b if c else d", "f(b if c else d)"),
        ("f(*a)", "a", "b or c", "f(*b or c)"),
        ("[*a]", "a", "b or c", "[*(b or c)]"),
        ("x = not a", "a", "b or c", "x = not (b or c)"),
        ("x = a < b", "a", "c < d", "x = (c < d) < b"),
        ("x = a if b else c", "b", "d if e else g", "x = a if (d if e else g) else c"),
        ("x = a if b else c", "c", "d if e else g", "x = a if b else d if e else g"),
        ("[a for a in b]", "b", "c if d else e", "[a for a in (c if d else e)]"),
        ("return(a + b)", "a + b", "c", "return(c)"),
        ("return (a + b)", "a + b", "c", "return c"),
        ("x = 1if b else 2", "1", "a", "x = (a)if b else 2"),
        ("x = [(a)for a in b]", "b", "c", "x = [(a)for a in c]"),
        ("with(a)as b: pass", "a", "c", "with(c)as b: pass"),
        ("x = a[b, 1:2]", "b", "c or d", "x = a[c or d, 1:2]"),
        ("x = {**a}", "a", "b or c", "x = {**(b or c)}"),
        ("@a\ndef f(): pass", "a", "b(1)", "@b(1)\ndef f(): pass"),
    ],
)
def test_replace_puts_parentheses_where_they_are_needed(before: str, code: str, new: str, after: str) -> None:
    """Nowhere else: the reader knows the precedence, too."""
    assert edited(before, at(code, ReplaceExpr, new)) == after


@pytest.mark.parametrize(
    ("before", "code", "template", "after"),
    [
        ("x = (a + b) * 2", "a + b", "mean({})", "x = mean(a + b) * 2"),
        ("x = a + b", "a + b", "{} // n", "x = (a + b) // n"),
        ("x = a * b", "a * b", "{} // n", "x = a * b // n"),
        ("x = 2 ** a", "a", "{} // n", "x = 2 ** (a // n)"),
        ("f(a)", "a", "{}", "f(a)"),
        ("f(i for i in a)", "a", "g({}, k={{}})".replace("{{}}", "{1: 2}"), "f(i for i in g(a, k={1: 2}))"),
        ("f(i for i in a)", "i for i in a", "list({})", "f(list((i for i in a)))"),
        ("x = (a +  # why\n     b)", "a +  # why\n     b", "{}.item()", "x = (a +  # why\n     b).item()"),
        ("x = [a,\n     b +\n     c]", "b +\n     c", "mean({})", "x = [a,\n     mean(b +\n     c)]"),
        ("await a", "await a", "f({})", "f(await a)"),
        ("x = not a", "not a", "{} and b", "x = not a and b"),
    ],
)
def test_wrap_puts_the_expression_into_its_template(before: str, code: str, template: str, after: str) -> None:
    """With its own parentheses only where they are needed or join lines."""
    if code == "i for i in a":  # the syntax tree counts the parentheses of the call
        code = "(i for i in a)"
    assert edited(before, at(code, WrapExpr, template)) == after


def test_edits_nest() -> None:
    """Each edit acts on what the edits inside it made."""
    check(
        "torch.save(model.state_dict(), path(a, b=1))\n",
        """
        if main:
            torch.save(unwrap(new).state_dict(), wrap(path(wrap(a), b=2)))
        """,
        at("torch.save(model.state_dict(), path(a, b=1))", Guard, "main"),
        at("model", ReplaceExpr, "new"),
        at("model", WrapExpr, "unwrap({})"),
        at("path(a, b=1)", SetArgument, "b", "2"),
        at("path(a, b=1)", WrapExpr, "wrap({})"),
        at("a", WrapExpr, "wrap({})"),
    )


def test_recompose_keeps_parts_with_their_own_edits() -> None:
    source = Source.parse("y = f(g(1), k=h(2) + 1)\n")
    call = source.tree.body[0].value  # type: ignore[attr-defined]
    first, second = call.args[0], call.keywords[0].value
    edits = [Recompose(call, "{0} * F({1})", (second, first)), ReplaceExpr(first.func, "G"), WrapExpr(first, "a or {}")]
    assert apply(source, edits) == "y = (h(2) + 1) * F(a or G(1))\n"
    with pytest.raises(EditConflict):
        apply(source, [Recompose(call, "F({0})", (first,)), ReplaceExpr(second, "3")])


def test_unwrap_drops_the_header_alone() -> None:
    source = Source.parse("if a:\n    # one\n    with c:  # two\n        x()\n\n        y()\n    z()\nwith d: u; v\n")
    outer, last = source.tree.body
    inner = outer.body[0]  # type: ignore[attr-defined]
    edits = [Unwrap(inner), ReplaceExpr(inner.body[0].value, "X()"), InsertAfter(inner, "w()\n"), Unwrap(last)]
    assert apply(source, edits) == "if a:\n    # one\n    # two\n    X()\n\n    y()\n    w()\n    z()\nu; v\n"
    with pytest.raises(EditConflict):
        apply(source, [Unwrap(inner), ReplaceExpr(inner.items[0].context_expr, "e")])


def test_a_removed_statement_takes_its_comment_along() -> None:
    text = "# about a\na()\nb()\n\n# about c\nc()\n\n# about d\nd()\ne()\n"
    source = Source.parse(text)
    _, second, third, fourth, _ = source.tree.body
    edits = [RemoveStatement(third, True), RemoveStatement(fourth, True)]
    assert apply(source, edits) == "# about a\na()\nb()\n\n# about d\ne()\n"
    assert apply(source, [RemoveStatement(second, True)]) == text.replace("b()\n", "")


def test_every_operand_of_a_chain_can_be_edited() -> None:
    """The two trees see ``a and b and c`` differently, and ``a < b < c``, and ``a, b`` in brackets."""
    makes = [at(name, WrapExpr, "f({})") for name in "abcdefghi"]
    text = "x = (a and b and c) or d < e < 1 + g[h, i:2] if 3 + 2 else {1: f, **y}\n"
    expected = "x = (f(a) and f(b) and f(c)) or f(d) < f(e) < 1 + f(g)[f(h), f(i):2] if 3 + 2 else {1: f(f), **y}\n"
    assert edited(text, *makes) == expected


# f-strings


@pytest.mark.parametrize(
    ("before", "code", "new", "after"),
    [
        ('f"{a} {a}"', "a", 'd["k"]', "f\"{d['k']} {a}\""),
        ("f'{a!r:>{w}}'", "w", "b or c", "f'{a!r:>{b or c}}'"),
        ('f"{a}"', "a", "{1}", 'f"{({1})}"'),
        ('f"{a:3}"', "a", "lambda: 1", 'f"{(lambda: 1):3}"'),
        ('"x" f"{1}" "y" f"{a=}"', "a", "b", '"x" f"{1}" "y" f"a={b!r}"'),
        ('f"{ a = :.3f}"', "a", "b", 'f" a = { b:.3f}"'),
        ('f"""{a}"""', "a", 'd["k"]', 'f"""{d["k"]}"""'),
        ("f\"{x[f'{a}']}\"", "a", "b", "f\"{x[f'{b}']}\""),
        ('rf"{a}\\d"', "a", 'f"{b}"', "rf\"{f'{b}'}\\d\""),
    ],
)
def test_expressions_in_f_strings(before: str, code: str, new: str, after: str) -> None:
    """The quotes of new code give way, as they must before Python 3.12; ``f"{x=}"`` prints the name it printed."""
    source = Source.parse(f"print({before})\n")
    anchor = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Name) and node.id == code)
    assert apply(source, [ReplaceExpr(anchor, new)]) == f"print({after})\n"


@pytest.mark.parametrize("new", ['d["it\'s"]', '"\\n"', '"#"', "x['a'] + y[\"'\"]"])
def test_code_that_no_f_string_can_hold(new: str) -> None:
    """Python 3.10 and 3.11 would not parse it, so it is not written on any version."""
    source = Source.parse('f"{a}"\n')
    anchor = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Name))
    with pytest.raises(EditConflict, match="f-string"):
        apply(source, [ReplaceExpr(anchor, new)])


# Arguments

LOADER = """
loader = DataLoader(
    data,
    batch_size=32,  # per step
    shuffle=True,  # on
)
"""


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        ("f()", (SetArgument, "k", "1"), "f(k=1)"),
        ("f(a)", (SetArgument, "k", "1"), "f(a, k=1)"),
        ("f(a, k=2)", (SetArgument, "k", "1"), "f(a, k=1)"),
        ("f(a, 2, 3)", (SetArgument, "k", "1", 1), "f(a, 1, 3)"),
        ("f(*a, 2)", (SetArgument, "k", "1", 1), "f(*a, 2, k=1)"),
        ("f(a, **b)", (SetArgument, "k", "1"), "f(a, k=1, **b)"),
        ("f(a, )", (SetArgument, "k", "1"), "f(a, k=1, )"),
        ("f(i for i in j)", (SetArgument, "k", "1"), "f((i for i in j), k=1)"),
        ("f(a,\n  b)", (SetArgument, "k", "1"), "f(a,\n  b,\n  k=1)"),
        ("f(\n    a, b\n)", (SetArgument, "k", "1"), "f(\n    a, b, k=1\n)"),
        ("f(\n    a  # a\n)", (SetArgument, "k", "1"), "f(\n    a,  # a\n    k=1\n)"),
        ("f(\n    a,\n    **b\n)", (SetArgument, "k", "1"), "f(\n    a,\n    k=1,\n    **b\n)"),
        ("f(\n    a,  # a\n    b,  # b\n)", (SetArgument, "k", "1"), "f(\n    a,  # a\n    b,  # b\n    k=1,\n)"),
        ("f(a, k=1)", (RemoveArgument, "k"), "f(a)"),
        ("f(k=1)", (RemoveArgument, "k"), "f()"),
        ("f(k=1, b=2)", (RemoveArgument, "k"), "f(b=2)"),
        ("f(a, 1)", (RemoveArgument, "k", 1), "f(a)"),
        ("f(a)", (RemoveArgument, "k", 1), "f(a)"),
        ("f(a,\n  k=1)", (RemoveArgument, "k"), "f(a)"),
        ("f(\n    a,  # a\n    k=1,  # k\n)", (RemoveArgument, "k"), "f(\n    a,  # a\n)"),
        ("f(\n    a,  # a\n    k=1  # k\n)", (RemoveArgument, "k"), "f(\n    a  # a\n)"),
        ("f(\n    k=1,  # k\n    a=2,  # a\n)", (RemoveArgument, "k"), "f(\n    a=2,  # a\n)"),
    ],
)
def test_arguments_follow_the_layout_of_their_call(before: str, edit: tuple[type[Edit], ...], after: str) -> None:
    """One line stays one line, one argument a line stays so, and comments stay beside their arguments."""
    source = Source.parse(before)
    call = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    kind, *values = edit
    assert apply(source, [kind(call, *values)]) == after


def test_several_arguments_of_one_call() -> None:
    """Positions count the arguments that the call had before."""
    source = Source.parse("f(a, 32, True)\n")
    call = next(node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    edits = [
        RemoveArgument(call, "shuffle", 2),
        SetArgument(call, "batch_size", "n"),
        SetArgument(call, "batch_size", "n", 1),
        SetArgument(call, "sampler", "s"),
        SetArgument(call, "drop_last", "True"),
    ]
    assert apply(source, edits) == "f(a, n, sampler=s, drop_last=True)\n"
    with pytest.raises(EditConflict, match="move the ones after it"):
        apply(source, [RemoveArgument(call, "batch_size", 1)])


# Imports


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        ("x = 1\n", ("torch",), "import torch\n\nx = 1\n"),
        ("#!/bin/python\n# licence\nx = 1\n", ("torch",), "#!/bin/python\n# licence\nimport torch\n\nx = 1\n"),
        ('"""Doc."""\nx = 1\n', ("torch",), '"""Doc."""\n\nimport torch\n\nx = 1\n'),
        ('"""Doc."""\n\n\nx = 1\n', ("torch",), '"""Doc."""\n\nimport torch\n\n\nx = 1\n'),
        ('"""Doc."""\n', ("torch",), '"""Doc."""\n\nimport torch\n'),
        ("", ("torch",), "import torch\n"),
        ("# nothing\n", ("torch",), "# nothing\nimport torch\n"),
        ("import b\n\nx = 1\n", ("torch",), "import b\nimport torch\n\nx = 1\n"),
        (
            "import torch\nimport torch.nn as nn\nfrom torch import optim\n",
            ("torch.distributed", None, "dist"),
            "import torch\nimport torch.distributed as dist\nimport torch.nn as nn\nfrom torch import optim\n",
        ),
        (
            "# torch\nfrom torch import optim\n",
            ("torch.distributed", None, "dist"),
            "# torch\nimport torch.distributed as dist\nfrom torch import optim\n",
        ),
        ("import torch; f()\n", ("torch.cuda",), "import torch.cuda\nimport torch; f()\n"),
        ("import sys\nimport numpy\n", ("os",), "import os\nimport sys\nimport numpy\n"),
        ("import numpy\n", ("os",), "import os\n\nimport numpy\n"),
        (
            "import os\nos.environ['A'] = '1'\n\nf()\n",
            ("torch",),
            "import os\nos.environ['A'] = '1'\nimport torch\n\nf()\n",
        ),
        (
            "import os\nos.environ['A'] = '1'\nimport torch\nf()\n",
            ("torch.cuda",),
            "import os\nos.environ['A'] = '1'\nimport torch\nimport torch.cuda\nf()\n",
        ),
        ("import torch\n", ("torch",), "import torch\n"),
        ("from torch import nn\n", ("torch", "nn"), "from torch import nn\n"),
        ("x = f()\nimport torch\n", ("torch.cuda",), "import torch.cuda\n\nx = f()\nimport torch\n"),
        ("try:\n    import a\nexcept ImportError:\n    a = None\nimport b\n", ("torch",), None),
    ],
)
def test_imports_go_where_an_expert_puts_them(before: str, edit: tuple[str, ...], after: str | None) -> None:
    """Among their relatives, in order, and never above a setting that must come first."""
    expected = before + "import torch\n" if after is None else after
    assert edited(before, in_module(AddImport, *edit)) == expected


def test_several_imports_are_sorted() -> None:
    """Whatever the order in which the rules ask."""
    edits = [
        in_module(AddImport, "torch.utils.data", "DataLoader"),
        in_module(AddImport, "torch.distributed", None, "dist"),
        in_module(AddImport, "torch.cuda"),
        in_module(AddImport, "torch.distributed", None, "dist"),
    ]
    expected = (
        "import torch\nimport torch.cuda\nimport torch.distributed as dist\nfrom torch.utils.data import DataLoader\n"
    )
    assert edited("import torch\n", *edits) == expected
    assert edited("import torch\n", *reversed(edits)) == expected


# Conflicts


@pytest.mark.parametrize(
    "makes",
    [
        (at("g(a, k=1)", ReplaceExpr, "x"), at("g(a, k=1)", ReplaceExpr, "y")),
        (at("g(a, k=1)", WrapExpr, "x({})"), at("g(a, k=1)", WrapExpr, "y({})")),
        (at("g(a, k=1)", SetArgument, "k", "2"), at("g(a, k=1)", SetArgument, "k", "3")),
        (at("g(a, k=1)", SetArgument, "k", "2"), at("g(a, k=1)", RemoveArgument, "k")),
        (at("g(a, k=1)", ReplaceExpr, "x"), at("a", WrapExpr, "y({})")),
        (at("g(a, k=1)", ReplaceExpr, "x"), at("g(a, k=1)", SetArgument, "k", "3")),
        (at("g(a, k=1)", SetArgument, "k", "2"), at("1", WrapExpr, "y({})")),
        (at("g(a, k=1)", RemoveArgument, "p", 0), at("a", WrapExpr, "y({})")),
        (at("f(g(a, k=1))", Guard, "x"), at("f(g(a, k=1))", Guard, "y")),
        (at("f(g(a, k=1))", Guard, "x"), at("f(g(a, k=1))", RemoveStatement)),
        (at("f(g(a, k=1))", ReplaceStatement, "x"), at("f(g(a, k=1))", RemoveStatement)),
        (at("f(g(a, k=1))", RemoveStatement), at("a", WrapExpr, "y({})")),
    ],
)
def test_edits_that_exclude_each_other(makes: tuple[Make, Make]) -> None:
    """Both are named, for the rules behind them."""
    source = Source.parse("f(g(a, k=1))\n")
    edits = [make(source) for make in makes]
    with pytest.raises(EditConflict) as caught:
        apply(source, edits)
    assert [caught.value.first, caught.value.second] == edits


@pytest.mark.parametrize(
    "makes",
    [
        (at("g(a)", WrapExpr, "x({})"), at("g(a)", WrapExpr, "x({})")),
        (at("g(a)", WrapExpr, "x({})"), at("g(a)", ReplaceExpr, "y")),
        (at("f(g(a))", RemoveStatement), at("f(g(a))", InsertBefore, "x")),
        (at("f(g(a))", ReplaceStatement, "x"), at("f(g(a))", Guard, "y")),
        (at("g(a)", SetArgument, "k", "1"), at("a", ReplaceExpr, "y")),
    ],
)
def test_edits_that_go_together(makes: tuple[Make, ...]) -> None:
    """Equal edits merge, and those around a node leave the node alone."""
    edited("f(g(a))\n", *makes)


def test_edits_that_cannot_be_made_at_all() -> None:
    """The reason says why, and nothing is written."""
    other = Source.parse("a\n")
    assert conflict("a\n", lambda source: Guard(other.tree.body[0], "x")).reason == "the node belongs to another file"
    assert "Name" in conflict("a\n", lambda source: SetArgument(first(source, ast.Name), "k", "1")).reason
    assert "Tuple" in conflict("a[b, c]\n", lambda source: ReplaceExpr(first(source, ast.Tuple), "x")).reason
    assert "Starred" in conflict("f(*a)\n", lambda source: ReplaceExpr(first(source, ast.Starred), "x")).reason


def first(source: Source, kind: type[ast.AST]) -> ast.AST:
    """The first node of a kind."""
    return next(node for node in ast.walk(source.tree) if isinstance(node, kind))


def test_broken_code_is_never_returned() -> None:
    """Whatever an edit's code is."""
    with pytest.raises(BrokenResult):
        edited("f(a)\n", at("a", ReplaceExpr, "b +"))
    with pytest.raises(BrokenResult):
        edited("f(a)\n", at("f(a)", InsertBefore, "if"))
    with pytest.raises(BrokenResult):
        edited("(a := 1)\n", lambda source: ReplaceExpr(first(source, ast.Name), "1"))


def test_code_that_is_nested_too_deeply() -> None:
    """A message, not a traceback."""
    with pytest.raises(AutodistError, match="too deeply"):
        edited("f(a)\nx = " + "-" * 700 + "1\n", at("a", ReplaceExpr, "b"))


def test_syntax_that_only_python_knows() -> None:
    """The file and the line are named."""
    with pytest.raises(AutodistError, match="2"):
        edited("f(a)\n(x): int\n", at("a", ReplaceExpr, "b"))


def test_nothing_is_imported_where_nothing_changes() -> None:
    """A run without changes must not pay for the lossless parser."""
    code = (
        "import sys; from autodist.edits import apply; from autodist.imports import Importer; "
        "from autodist.source import Source; source = Source.parse('a'); apply(source, []); "
        "Importer(source).module('a', 'b'); assert 'libcst' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_call_that_outgrows_its_line_is_broken() -> None:
    call = "DataLoader(data, batch_size=size, pin_memory=True)"
    text = f"def f():\n\tloader = {call}  # all of it\n"
    long = "DistributedSampler(data, shuffle=True, drop_last=True, seed=settings.seed_of_the_experiment)"
    assert edited(text, at(call, SetArgument, "sampler", long)) == (
        "def f():\n\tloader = DataLoader(\n\t\tdata,\n\t\tbatch_size=size,\n\t\tpin_memory=True,\n"
        f"\t\tsampler={long},\n\t)  # all of it\n"
    )
    assert edited(text, at(call, SetArgument, "sampler", "None")) == text.replace("True)", "True, sampler=None)")


# Expressions that move


def test_a_hoisted_expression_takes_its_own_edits_along() -> None:
    hoist = at("Data(64, model.steps)", Hoist, "data", "data = Data(64, model.steps)\n")
    before = "loader = Loader(Data(64, model.steps), 8)\n"
    check(before, "data = Data(64, model.steps)\nloader = Loader(data, 8)\n", hoist)
    edits = [hoist, at("model", ReplaceExpr, "model.module")]
    check(before, "data = Data(64, model.module.steps)\nloader = Loader(data, 8)\n", *edits)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(g(x), 2)\n", "y = g(h(x))\nf(y, 2)\n"),
        ("if t:\n    f(g(x))\n", "if t:\n    y = g(h(x))\n    f(y)\n"),
        ("f(\n    g(\n        x,\n    ),\n)\n", "y = g(\n        h(x),\n    )\nf(\n    y,\n)\n"),
        ("# why\na = f(g(x))[0]\n", "# why\ny = g(h(x))\na = f(y)[0]\n"),
    ],
)
def test_what_is_hoisted_is_bound_ahead_of_its_statement(before: str, after: str) -> None:
    source = Source.parse(before)
    (inner,) = [each for each in ast.walk(source.tree) if isinstance(each, ast.Name) and each.id == "x"]
    call = source.parents[inner]
    assert isinstance(call, ast.expr)
    hoist = Hoist(call, "y", f"y = {source.code(call)}\n")
    assert apply(source, [hoist, WrapExpr(inner, "h({})")]) == after


def test_what_is_hoisted_and_replaced_is_a_conflict() -> None:
    hoist = at("g(x)", Hoist, "y", "y = g(x)\n")
    assert "both change the same code" in str(conflict("f(g(x))\n", hoist, at("g(x)", ReplaceExpr, "1")))
