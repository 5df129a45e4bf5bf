"""Comments that silence rules: ``# autodist: ignore[AD301]`` for a statement, ``# autodist: skip-file`` for a file."""

from __future__ import annotations

import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator

from autodist.rule import Diagnostic
from autodist.source import Source

COMMENT = re.compile(r"#\s*autodist:\s*(?:(?P<file>skip-file)|ignore(?:\[(?P<codes>[\w\s,]+)\])?(?![\w\[-]))")
BETWEEN_STATEMENTS = (tokenize.COMMENT, tokenize.NL, tokenize.INDENT, tokenize.DEDENT)


def kept(diagnostics: Iterable[Diagnostic], sources: Iterable[Source]) -> tuple[Diagnostic, ...]:
    """The diagnostics that no comment silences."""
    silenced = {source: tuple(_silenced(source)) for source in sources if "autodist:" in source.text}
    return tuple(
        diagnostic
        for diagnostic in diagnostics
        if not any(
            diagnostic.line in lines and diagnostic.code.startswith(codes)
            for lines, codes in silenced.get(diagnostic.source, ())
        )
    )


def _silenced(source: Source) -> Iterator[tuple[range, tuple[str, ...]]]:
    """Line ranges with the beginnings of the codes that are silent there. A comment speaks for its whole statement
    (for a block, its header), or, on a line of its own, for the statement below."""
    pending: list[tuple[str, ...]] = []
    first: int | None = None
    for token in _tokens(source.text):
        if token.type == tokenize.COMMENT and (match := COMMENT.search(token.string)):
            if match["file"]:
                yield range(sys.maxsize), ("",)
            else:
                pending.append(tuple((match["codes"] or "").replace(",", " ").split()) or ("",))
        elif token.type == tokenize.NEWLINE:
            assert first is not None
            yield from ((range(first, token.end[0] + 1), codes) for codes in pending)
            pending, first = [], None
        elif token.type not in BETWEEN_STATEMENTS:
            first = first or token.start[0]


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    try:
        yield from tokenize.generate_tokens(io.StringIO(text, newline=None).readline)
    except (tokenize.TokenError, SyntaxError):
        return  # the pure-Python tokenizer gives up on some files that parse
