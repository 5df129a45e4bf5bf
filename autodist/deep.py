"""Work on code of any depth, and what is told of it while it takes long: a thread with a large stack, and progress."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")

STACKS = (1 << 30, 1 << 28, 1 << 26)
"""Bytes of stack to ask for: memory is taken as it is used, but where addresses are limited, less has to do."""
FRAME = 1 << 13
"""Bytes of stack that a level of recursion takes at most, with what the standard library puts between two of ours."""
MOMENT = 0.5
"""Seconds between two looks whether the user has interrupted the work."""


@dataclass
class Reading:
    """What is being read or done, for those who wait."""

    stage: str = "reading"
    files: int = 0
    functions: int = 0
    path: Path = Path()
    """Of the file that was come to last."""

    def __str__(self) -> str:
        followed = f", {self.functions:,} calls followed" if self.functions else ""
        return f"{self.stage} {self.path}: {self.files} files{followed}"


READING = Reading()
_thread = threading.local()


def deep(work: Callable[Given, Result]) -> Callable[Given, Result]:
    """Let a function recurse as deep as the code that it works on is nested: an `elif` of 1,000 branches is."""

    @wraps(work)
    def run(*args: Given.args, **keywords: Given.kwargs) -> Result:
        if getattr(_thread, "is_deep", False):
            return work(*args, **keywords)
        results: list[Result] = []
        errors: list[BaseException] = []

        def inside() -> None:
            _thread.is_deep = True
            try:
                results.append(work(*args, **keywords))
            except BaseException as error:
                errors.append(error)

        _wait(inside)
        if errors:
            raise errors[0]
        return results[0]

    return run


def _wait(work: Callable[[], None]) -> None:
    """Run it in a thread with as large a stack as there is, until it ends or the user interrupts it."""
    limit, size = sys.getrecursionlimit(), threading.stack_size()
    try:
        for stack in STACKS:
            thread = threading.Thread(target=work, name="autodist", daemon=True)
            try:
                threading.stack_size(stack)
                sys.setrecursionlimit(max(limit, stack // FRAME))
                thread.start()
            except (RuntimeError, ValueError, MemoryError):
                continue  # no room for it
            finally:
                threading.stack_size(size)
            while thread.is_alive():
                thread.join(MOMENT)  # an interrupt is noticed in between
            return
        work()
    finally:
        sys.setrecursionlimit(limit)
