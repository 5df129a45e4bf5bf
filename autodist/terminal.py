"""Speaking to the user: diagnostics to standard error, content to standard output."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from autodist.deep import READING
from autodist.errors import AutodistError

PATIENCE, REFRESH = 2.0, 0.25
"""Seconds until progress is told, and between two lines of it."""


@dataclass(frozen=True)
class Terminal:
    """How much to say, and in which colours."""

    quiet: bool = False
    verbose: bool = False
    no_color: bool = False

    @property
    def color(self) -> bool | None:
        """False for no colours, True for colours in any case, None for colours where a terminal shows them."""
        if self.no_color or os.environ.get("NO_COLOR"):
            return False
        return True if os.environ.get("FORCE_COLOR", "0") not in ("", "0") else None

    def say(self, text: str) -> None:
        """Print to standard error, unless there is nothing to say."""
        if text:
            click.echo(text, err=True, color=self.color)

    @contextmanager
    def progress(self) -> Iterator[None]:
        """Tell what is done meanwhile, and for how long, once that takes long: on a person's terminal alone."""
        if self.quiet or not sys.stderr.isatty() or os.environ.get("CI"):
            yield
            return
        done = threading.Event()
        teller = threading.Thread(target=_tell, args=(done,), daemon=True)
        teller.start()
        try:
            yield
        finally:
            done.set()
            teller.join()

    def show(self, content: str | bytes) -> None:
        """Print content to standard output, as it is."""
        if content:
            click.echo(content, nl=False, color=self.color)

    def error(self, error: Exception, path: Path | None = None) -> None:
        """One line for an error; before it its traceback, if that is wanted."""
        if self.verbose:
            import traceback

            self.say("".join(traceback.format_exception(error)).rstrip())
        if not isinstance(error, AutodistError):
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            error = AutodistError(f"internal error ({what}): please report it with the output of --verbose", path)
        self.say(f"error: {error}")


def _tell(done: threading.Event) -> None:
    """Write what is done over the last line of the terminal, and nothing in the end."""
    waited, begun = PATIENCE, time.monotonic()
    while not done.wait(waited):
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r{f'{time.monotonic() - begun:.0f} s, {READING}'[: width - 1]}\x1b[K")
        sys.stderr.flush()
        waited = REFRESH
    if waited is not PATIENCE:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
