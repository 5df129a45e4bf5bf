"""Moments that scripts ask for by ``datetime``."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from conftest import launched

from autodist.verify import verify
from autodist.verify.launch import Zygote
from verify.conftest import edit


def told(folder: Path, code: str) -> str:
    """What code prints, in a process of its own, whose clock stands still."""
    begin = (
        "import datetime, sys, time\n"
        "from autodist.verify.probes.clock import Function, tell_by\n"
        "tell_by(lambda: 1_700_000_000.25, lambda depth: sys._getframe(depth).f_code.co_filename == '<string>')\n"
        "time.time = Function(time.time, lambda: 5.0)\n"
    )
    text = begin + textwrap.dedent(code)
    (folder / "told.py").write_text(f"exec(compile({text!r}, '<string>', 'exec'))\n")
    return launched(folder, "told.py")


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        ("print(datetime.datetime.now(datetime.timezone.utc))", "2023-11-14 22:13:20.250000+00:00"),
        ("print(datetime.datetime.utcnow())", "2023-11-14 22:13:20.250000"),
        ("print(datetime.datetime.now() == datetime.datetime.today(), datetime.date.today().year)", "True 2023"),
        ("print(datetime.datetime.now().__class__ is datetime.datetime)", "True"),
        ("print(type(datetime.datetime.now()) is type(datetime.datetime(2024, 1, 1)))", "True"),
        ("import pickle; print(pickle.loads(pickle.dumps(datetime.datetime.now())).year)", "2023"),
        ("class Own(datetime.datetime):\n    pass\nprint(Own.now().__class__.__name__, Own.now().year)", "Own 2023"),
        ("print(datetime.datetime.strptime('2024-02-29', '%Y-%m-%d').day)", "29"),
        ("exec(compile('print(datetime.datetime.now().year > 2023)', 'library', 'exec'))", "True"),
        ("class Timer:\n    clock = time.time\nprint(Timer().clock())", "5.0"),
        ("import pickle; print(pickle.loads(pickle.dumps(time.time)) is time.time, time.time.__name__)", "True time"),
    ],
)
def test_moments_are_what_the_clock_tells_and_classes_stay_what_they_are(
    tmp_path: Path, code: str, printed: str
) -> None:
    assert told(tmp_path, code).strip() == printed


USED = {
    "pandas": "pd = pandas\nprint(pd.DataFrame({'at': [now]})['at'].dt.floor('D')[0].year, pd.Timestamp(now).hour)",
    "pyarrow": "print(pyarrow.array([now]).type)",
    "pydantic": "class Entry(pydantic.BaseModel):\n    at: datetime.datetime\nprint(Entry(at=now))",
    "sqlalchemy": "print(sqlalchemy.literal(now).type)",
    "matplotlib.dates": "print(matplotlib.dates.date2num(now))",
    "orjson": "print(orjson.dumps(now))",
    "numpy": "print(numpy.datetime64(now))",
    "sqlite3": "print(sqlite3.connect(':memory:').execute('select ?', (now,)).fetchone())",
}


@pytest.mark.parametrize("library", USED)
def test_libraries_in_c_take_moments_from_a_local_package(pair: Path, zygote: Zygote | None, library: str) -> None:
    """The module that imports the library is the user's, so that it sees the clock of the probes."""
    pytest.importorskip(library)
    (pair / "times.py").write_text(
        f"import datetime\n\nimport {library}\n\nnow = datetime.datetime.now()\n{USED[library]}\n"
    )
    for script in ("before.py", "after.py"):
        edit(pair / script, "import time\n", "import time\nfrom datetime import datetime\n")
        edit(
            pair / script,
            "    torch.manual_seed",
            "    if os.environ.get('RANK', '0') == '0':\n        import times\n    torch.manual_seed",
        )
    (world,) = verify(
        pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote, steps=2
    ).worlds
    assert world.equal, (world.reason, world.findings)


@pytest.mark.parametrize(("name", "equal"), [("{:%Y-%m-%d %H}", True), ("{:%Y-%m-%d %H:%M:%S.%f}", False)])
def test_ranks_do_not_ask_at_the_same_moment(pair: Path, zygote: Zygote | None, name: str, equal: bool) -> None:
    """Each rank would make a folder of its own by a moment with its microseconds, and none with the hour."""
    made = f"import datetime\nos.makedirs({name!r}.format(datetime.datetime.now()), exist_ok=True)\n"
    for script in ("before.py", "after.py"):
        edit(pair / script, "import time\n", f"import time\n{made}")
    (world,) = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote).worlds
    assert world.equal is equal, (world.reason, world.findings)
