"""Moments that scripts ask for by ``datetime``."""

from __future__ import annotations

import copy
import datetime
import pickle
from pathlib import Path

import pytest

from autodist.verify import verify
from autodist.verify.launch import Zygote
from autodist.verify.probes.clock import dated
from verify.conftest import edit

PLAIN = datetime.datetime
STEPS = 'print("took", time.time() - start, "s")'


def test_moments_are_what_the_clock_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([1_700_000_000.25, 1_700_000_010.25, 1_700_000_010.25])
    monkeypatch.setattr(datetime, "datetime", dated(lambda: next(told)))
    begun = datetime.datetime.now()
    late = datetime.datetime.now(datetime.timezone.utc)
    assert (late - begun.astimezone(datetime.timezone.utc)).total_seconds() == 10
    assert (
        datetime.datetime.utcnow() == late.replace(tzinfo=None)
        and late.isoformat() == "2023-11-14T22:13:30.250000+00:00"
    )
    assert datetime.datetime(2024, 2, 29) + datetime.timedelta(days=1) == PLAIN(2024, 3, 1)
    assert datetime.datetime.strptime("2024-02-29", "%Y-%m-%d") == PLAIN(2024, 2, 29)


def test_they_are_moments_to_everyone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datetime, "datetime", dated(lambda: 1_700_000_000.0))
    moment = datetime.datetime.now()
    assert isinstance(moment, PLAIN) and isinstance(PLAIN(2024, 1, 1), datetime.datetime)
    assert not isinstance(datetime.date(2024, 1, 1), datetime.datetime)
    assert pickle.loads(pickle.dumps(moment)) == copy.deepcopy(moment) == moment

    class Own(datetime.datetime):
        pass

    assert isinstance(Own.now(), Own) and not isinstance(moment, Own)


@pytest.mark.parametrize(("name", "equal"), [("{:%Y-%m-%d %H}", True), ("{:%Y-%m-%d %H:%M:%S.%f}", False)])
def test_ranks_do_not_ask_at_the_same_moment(pair: Path, zygote: Zygote | None, name: str, equal: bool) -> None:
    """Each rank would make a folder of its own by a moment with its microseconds, and none with the hour."""
    made = f"import datetime\nos.makedirs({name!r}.format(datetime.datetime.now()), exist_ok=True)\n"
    for script in ("before.py", "after.py"):
        edit(pair / script, "import time\n", f"import time\n{made}")
    (world,) = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote).worlds
    assert world.equal is equal, (world.reason, world.findings)
