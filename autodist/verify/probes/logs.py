"""What the script's own logging sends to the terminal: it goes to standard error, among warnings and progress bars."""

from __future__ import annotations

import functools
import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext


class LogProbe:
    """Records the messages that stream handlers write to the terminal, without their time stamps."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context

    def install(self) -> None:
        """Patch the handler that writes to streams; the one for files is a kind of it and left alone."""
        plain = logging.StreamHandler.emit
        context = self._context

        @functools.wraps(plain)
        def emit(this: logging.StreamHandler, record: logging.LogRecord) -> None:  # type: ignore[type-arg]
            plain(this, record)
            terminal = this.stream in (sys.stdout, sys.stderr) and not isinstance(this, logging.FileHandler)
            if terminal and record.pathname.startswith(context.plan.root):
                context.trace.emit("log", message=record.getMessage(), site=context.trace.site())

        setattr(logging.StreamHandler, "emit", emit)  # noqa: B010
