"""A codemod that changes nothing: what libcst costs at the least."""

from __future__ import annotations

from libcst.codemod import VisitorBasedCodemodCommand


class NoOp(VisitorBasedCodemodCommand):
    """Visit every node and leave it as it is."""

    DESCRIPTION = "changes nothing"
