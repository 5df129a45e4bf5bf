"""A clock that both programs read alike, so that printed durations and time stamps do not count as differences.

Only calls from the user's own code see it. It advances with optimizer steps; a script that waits in a loop for time to
pass gets real time again after a while. `datetime.datetime` and `date` stay the classes they are, since compiled
libraries know them by identity: only what their `now`, `today` and `utcnow` answer to the user's code is replaced.
"""

from __future__ import annotations

import ctypes
import datetime
import functools
import gc
import sys
import time
import timeit
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autodist.verify.probes import ProbeContext

BASE = {"time": 1_700_000_000.0, "perf_counter": 1_000.0, "monotonic": 1_000.0, "process_time": 10.0}
STEP_SECONDS = 0.25
FASTER = 10_000.0
"""So many times as fast do the clocks of other ranks than the first go where each has its own: a limit of hours is
reached within a few steps."""
APART_SECONDS = 0.001234
"""No two ranks ask for the moment at the same one: a name with its microseconds is another on each."""
PATIENCE = 2_000
"""Calls without a step in between after which the clock follows real time."""


class Function:
    """Stands for a function that is written in C: as an attribute of a class it is not bound to an instance."""

    def __init__(self, plain: Callable[..., Any], answer: Callable[..., Any]) -> None:
        functools.update_wrapper(self, plain)
        self._answer = answer

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._answer(*args, **kwargs)

    def __reduce__(self) -> str:
        return str(vars(self)["__name__"])


class ClockProbe:
    """Patches the functions of ``time``, and what the classes of ``datetime`` say of now, for callers in the scratch
    folder."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._calls = 0
        self._at_step = 0
        alone = context.plan.alone is not None
        self._pace = 1.0 + FASTER * context.plan.rank if alone else 1.0

    def install(self) -> None:
        """Replace the clocks."""
        apart = APART_SECONDS * self._context.plan.rank
        tell_by(self._clock(time.time, BASE["time"] + apart), self._from_script)
        for name, base in BASE.items():
            plain = getattr(time, name)
            patched = Function(plain, self._clock(plain, base))
            setattr(time, name, patched)
            if timeit.default_timer is plain:
                timeit.default_timer = patched
        for name in ("localtime", "gmtime", "ctime"):
            setattr(time, name, self._of_now(getattr(time, name)))
        plain_format = time.strftime

        def strftime(format: str, *moment: Any) -> str:
            if not moment and self._from_script():
                moment = (time.gmtime(BASE["time"]),)
            return plain_format(format, *moment)

        setattr(time, "strftime", Function(plain_format, strftime))  # noqa: B010

    def _from_script(self, depth: int = 3) -> bool:
        return sys._getframe(depth).f_code.co_filename.startswith(self._context.plan.root)

    def _clock(self, plain: Callable[[], float], base: float) -> Callable[[], float]:
        start = plain()

        def clock() -> float:
            if not self._from_script():
                return plain()
            steps = self._context.steps
            self._calls = self._calls + 1 if steps == self._at_step else 0
            self._at_step = steps
            waited = plain() - start if self._calls > PATIENCE else 0.0
            return base + steps * STEP_SECONDS * self._pace + waited

        return clock

    def _of_now(self, plain: Callable[..., Any]) -> Function:
        def moment(seconds: float | None = None) -> Any:
            if seconds is None and self._from_script():
                seconds = BASE["time"]
            return plain(seconds)

        return Function(plain, moment)


def tell_by(clock: Callable[[], float], asked: Callable[[int], bool]) -> None:
    """Let `now`, `today` and `utcnow` tell what ``clock`` does, where the code that calls them is ``asked`` about."""
    plain_now, plain_utcnow = vars(datetime.datetime)["now"], vars(datetime.datetime)["utcnow"]
    plain_today = vars(datetime.date)["today"]

    def now(cls: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> Any:
        return cls.fromtimestamp(clock(), tz) if asked(2) else plain_now.__get__(None, cls)(tz)

    def utcnow(cls: type[datetime.datetime]) -> Any:
        if not asked(2):
            return plain_utcnow.__get__(None, cls)()
        return cls.fromtimestamp(clock(), datetime.timezone.utc).replace(tzinfo=None)

    def today(cls: type[datetime.date]) -> Any:
        return cls.fromtimestamp(clock()) if asked(2) else plain_today.__get__(None, cls)()

    put_into(datetime.datetime, now=now, utcnow=utcnow)
    put_into(datetime.date, today=today)


def put_into(cls: type, **functions: Callable[..., Any]) -> None:
    """Give class methods to a class of C, whose attributes cannot be set: its dictionary is changed where it lies."""
    for namespace in gc.get_referents(cls.__dict__):
        if isinstance(namespace, dict):
            namespace.update({name: classmethod(function) for name, function in functions.items()})
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))
