"""A clock that both programs read alike, so that printed durations and time stamps do not count as differences.

Only calls from the user's own code see it. It advances with optimizer steps; a script that waits in a loop for time to
pass gets real time again after a while.
"""

from __future__ import annotations

import datetime
import functools
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


class ClockProbe:
    """Patches the functions of ``time`` for callers in the scratch folder."""

    def __init__(self, context: ProbeContext) -> None:
        self._context = context
        self._calls = 0
        self._at_step = 0
        alone = context.plan.alone is not None
        self._pace = 1.0 + FASTER * context.plan.rank if alone else 1.0

    def install(self) -> None:
        """Replace the clocks."""
        for name, base in BASE.items():
            plain = getattr(time, name)
            patched = self._clock(plain, base)
            setattr(time, name, patched)
            if timeit.default_timer is plain:
                timeit.default_timer = patched
        for name in ("localtime", "gmtime", "ctime"):
            setattr(time, name, self._of_now(getattr(time, name)))
        plain_format = time.strftime

        @functools.wraps(plain_format)
        def strftime(format: str, *moment: Any) -> str:
            if not moment and self._from_script():
                moment = (time.gmtime(BASE["time"]),)
            return plain_format(format, *moment)

        time.strftime = strftime
        apart = APART_SECONDS * self._context.plan.rank
        datetime.__dict__["datetime"] = dated(self._clock(lambda: time.time() + apart, BASE["time"] + apart, depth=3))

    def _from_script(self, depth: int = 2) -> bool:
        return sys._getframe(depth).f_code.co_filename.startswith(self._context.plan.root)

    def _clock(self, plain: Callable[[], float], base: float, depth: int = 2) -> Callable[[], float]:
        start = plain()

        @functools.wraps(plain)
        def clock() -> float:
            if not self._from_script(depth):
                return plain()
            steps = self._context.steps
            self._calls = self._calls + 1 if steps == self._at_step else 0
            self._at_step = steps
            waited = plain() - start if self._calls > PATIENCE else 0.0
            return base + steps * STEP_SECONDS * self._pace + waited

        return clock

    def _of_now(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def moment(seconds: float | None = None) -> Any:
            if seconds is None and self._from_script():
                seconds = BASE["time"]
            return plain(seconds)

        return moment


class OfAnyDate(type):
    """Takes for its instances those of the plain class, which libraries make that were imported before."""

    def __instancecheck__(cls, instance: object) -> bool:
        plain = cls.__module__ == datetime.__name__ and isinstance(instance, cls.__bases__)
        return plain or super().__instancecheck__(instance)


def dated(clock: Callable[[], float]) -> type[datetime.datetime]:
    """The class of moments, whose present one is what the clock tells; it is pickled by the name that it takes."""

    class Moment(datetime.datetime, metaclass=OfAnyDate):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Moment:
            return cls.fromtimestamp(clock(), tz)

        @classmethod
        def today(cls) -> Moment:
            return cls.fromtimestamp(clock())

        @classmethod
        def utcnow(cls) -> Moment:
            return cls.fromtimestamp(clock(), datetime.timezone.utc).replace(tzinfo=None)

    Moment.__name__ = Moment.__qualname__ = "datetime"
    Moment.__module__ = "datetime"
    return Moment
