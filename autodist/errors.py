"""Errors a user can act on: one line each, never a traceback."""

from __future__ import annotations

from pathlib import Path


class AutodistError(Exception):
    """Bad input: what is wrong, where, and what to do. The command line prints it and exits with 2."""

    def __init__(self, message: str, path: Path | None = None, line: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.line = line

    def __str__(self) -> str:
        where = "" if self.path is None else f"{self.path}:" + ("" if self.line is None else f"{self.line}:")
        return f"{where} {self.message}".strip()
