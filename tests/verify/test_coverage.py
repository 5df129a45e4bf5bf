"""verify says which changed lines and which decisions of the conversion never ran."""

from __future__ import annotations

import builtins
import json
import os
import signal
from pathlib import Path

import pytest
from conftest import Autodist

from autodist.verify import Verdict, verify, verify_command
from autodist.verify.changes import Changed, changed_files, changed_lines
from autodist.verify.command import as_markdown, as_text
from autodist.verify.coverage import Coverage, joined
from autodist.verify.launch import Zygote
from autodist.verify.marks import MAP, marked
from autodist.verify.page import page
from autodist.verify.verdict import Outcome, WorldVerdict
from verify.conftest import edit


def gone_through(after: str, before: str = "", **given: object) -> Coverage:
    """What one run of ``after``, given some names, comes to of what it has and ``before`` has not."""
    lines = changed_lines(before, after)
    tree, sites = marked(after, lines)
    ran = bytearray(len(sites))
    exec(compile(tree, "train.py", "exec"), {**given, "__builtins__": {**vars(builtins), MAP: ran}})
    return Coverage((("train.py", Changed(Path("train.py"), after, lines, tuple(sites), 0)),), bytes(ran))


NEVER_RAN = {
    "a branch": ("x = 1\nif x > 1:\n    x = 2\n    x = 3\n", [3, 4], ["2 never true"]),
    "an else that is needed": ("x = 1\nif x == 1:\n    x = 2\n", [], ["2 never false"]),
    "a written else": ("x = 1\nif x == 1:\n    x = 2\nelse:\n    x = 3\n", [5], ["2 never false"]),
    "an elif": (
        "x = 1\nif x == 1:\n    x = 2\nelif x == 2:\n    x = 3\nelse:\n    x = 4\n",
        [4, 5, 7],
        ["2 never false"],
    ),
    "a function": ("def f(x):\n    '''Text.'''\n    # comment\n    y = x\n    return y\n", [4, 5], []),
    "a decorated one": ("@staticmethod\ndef f(\n    x,\n):\n    return (\n        x\n    )\n", [5, 6, 7], []),
    "a loop": ("for x in []:\n    y = x\n", [2], ["1 never entered"]),
    "the end of a loop": ("for x in [1]:\n    y = x\n    break\nelse:\n    z = 1\n", [5], ["1 never came to its end"]),
    "a while": ("x = 0\nwhile x < 0:\n    x += 1\n", [3], ["2 never true"]),
    "the end of a while": (
        "x = 0\nwhile x < 5:\n    x += 1\n    if x == 3:\n        break\n",
        [],
        ["2 never came to its end"],
    ),
    "a conditional expression": ("a = [1]\nx = 1 if a else 2\n", [], ["2 never false"]),
    "one in another": ("a = [1]\nx = (1 if a[0] else 2) if a else 3\n", [], ["2 never false", "2 never false"]),
    "one that comes to nothing": ("a = []\nx = [] if a else [0, 1]\nassert x == [0, 1]\n", [], ["2 never true"]),
    "a handler": ("try:\n    x = 1\nexcept ValueError:\n    x = 2\nfinally:\n    y = 3\n", [3, 4], []),
    "a case": ("x = 1\nmatch x:\n    case 1:\n        y = 1\n    case 2:\n        y = 2\n", [5, 6], []),
    "a method": ("class A:\n    n: int = 1\n\n    def f(self):\n        return self.n\n", [5], []),
    "what follows in a line": ("x = 1\nif x == 2: x = 3\n", [2], ["2 never true"]),
    "all that counts": ("import os\nx = os.name\nwith open(os.devnull) as file:\n    y = file.read()\n", [], []),
    "what only refuses": ("x = 1\nif x > 1:\n    raise ValueError(x)\nassert x\n", [], []),
    "what has no question": ("if __name__ == 'train':\n    pass\nx = 1\nwhile True:\n    break\n", [], []),
    "the type of a value": ("x = 1\ny = x.item() if hasattr(x, 'item') else x\n", [], []),
}


@pytest.mark.parametrize("name", NEVER_RAN)
def test_what_never_ran(name: str) -> None:
    script, lines, ways = NEVER_RAN[name]
    coverage = gone_through(script)
    assert [line.number for line in coverage.missing] == lines
    assert [f"{each.number} {each.never}" for each in coverage.one_way] == ways
    assert coverage.complete is not bool(lines or ways)


def test_both_ways_and_all_lines() -> None:
    branches = "    if x == 1:\n        y = x\n    else:\n        y = 1 if x else 2\n"
    script = f"for x in values:\n{branches}    z = 1 if x > 1 else 0\n"
    one, other = gone_through(script, values=[1, 2]), gone_through(script, values=[0, 0])
    assert [f"{each.number} {each.never}" for each in one.one_way] == ["5 never false"]
    whole = joined(one, other, None)
    assert whole is not None and whole.complete and joined(None) is None
    assert whole.sentences() == ["covered: 5 changed lines ran, and 4 changed decisions went both ways"]


def test_only_what_has_changed_counts() -> None:
    before = "x = 1\nif x == 2:\n    y = 1\n    z = 2\nif x == 3:\n    y = 4\n"
    after = "x = 1\nif x == 2:\n    y = 1\n    z = 3\nif x > 0:\n    if x == 3:\n        y = 4\n"
    coverage = gone_through(after, before)
    assert changed_lines(before, after) == (4, 5), "where a line is indented does not matter"
    assert coverage.sentences() == [
        "not proven: 1 of 2 changed lines never ran: train.py:4; "
        "1 of 1 changed decision went one way only: train.py:5 (never false)"
    ]


SETTLED = {
    "another launcher": ("launch", "if 'RANK' not in os.environ:\n    x = 1\n    y = 2\n", [2, 3]),
    "a helper without a group": (
        "launch",
        "def f():\n    if is_initialized():\n        return 1\n    return 2\nf()\n",
        [4],
    ),
    "one that leaves it early": (
        "launch",
        "def f():\n    if not is_initialized():\n        return 1\n    return 2\nf()\n",
        [3],
    ),
    "one rank": ("launch", "world_size = 2\nx = 1 if world_size > 1 else 2\nif world_size == 1:\n    x = 3\n", [4]),
    "branches inside": ("launch", "if 'RANK' not in os.environ:\n    if x == 1:\n        y = 2\n", [2, 3]),
    "a GPU": ("device", "if cuda.is_available():\n    x = 1\ny = 'nccl' if cuda.is_available() else 'gloo'\n", [2]),
}


@pytest.mark.parametrize("name", SETTLED)
def test_what_was_settled_before_is_said_once_and_gently(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, script, lines = SETTLED[name]
    monkeypatch.setenv("RANK", "0")
    coverage = gone_through(
        script, os=os, is_initialized=lambda: True, cuda=type("cuda", (), {"is_available": staticmethod(lambda: False)})
    )
    assert [line.number for line in coverage.lines if line.settled == kind] == lines
    assert coverage.complete
    first, second = coverage.sentences()
    assert first.startswith("covered: ") and second.startswith("not tried here: train.py:")


def test_a_guard_that_asks_for_more_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    script = "step = 1\nif world_size > 1 and step == 5:\n    x = 1\nif os.environ['RANK'] == '0':\n    y = 1\n"
    coverage = gone_through(script, os=os, world_size=2)
    assert [line.number for line in coverage.missing] == [3]
    assert [(each.number, each.never) for each in coverage.one_way] == [(2, "never true"), (4, "never false")]


def test_what_a_killed_rank_and_its_workers_ran(tmp_path: Path) -> None:
    from autodist.verify.plan import ProcessPlan
    from autodist.verify.probes.ran import RanProbe

    (tmp_path / "net.py").write_text("worker = 1\n\ndef f():\n    return 1\n")
    script = (
        "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\npid = os.fork()\nif not pid:\n"
        "    import net\n    os._exit(0)\nos.waitpid(pid, 0)\nos.kill(os.getpid(), 9)\nx = 1\n"
    )
    (tmp_path / "train.py").write_text(script)
    texts = {name: (tmp_path / name).read_text() for name in ("train.py", "net.py")}
    files, first = [], 0
    for name, text in texts.items():
        lines = changed_lines("", text)
        files.append((name, Changed(tmp_path / name, text, lines, tuple(marked(text, lines)[1]), first)))
        first += len(files[-1][1].sites)
    (tmp_path / "ran").write_bytes(bytes(first))
    folder = str(tmp_path)
    changed = {str(each.path): [each.first, *each.lines] for _, each in files}
    plan = ProcessPlan(
        "conversion",
        0,
        1,
        f"{folder}/train.py",
        (),
        folder,
        folder,
        folder,
        folder,
        changed=changed,
        map=f"{folder}/ran",
    )
    if not (pid := os.fork()):
        try:
            probe = RanProbe(plan)
            probe.install()
            exec(probe.compiled(script.encode(), plan.script), {"__file__": plan.script})
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    coverage = Coverage(tuple(files), (tmp_path / "ran").read_bytes())
    assert [f"{line.file}:{line.number}" for line in coverage.missing] == ["train.py:9", "net.py:4"]
    assert not coverage.one_way


PRUNED = """
        if epoch > 100:
            model.module[0].weight.data.clamp_(-1, 1)
"""


def test_in_a_verdict(pair: Path, zygote: Zygote | None, tmp_path: Path) -> None:
    edit(pair / "after.py", "        start = time.time()\n", f"        start = time.time(){PRUNED}")
    verdict = verify(pair / "before.py", pair / "after.py", [2], workdir=pair, timeout=100, zygote=zygote)
    assert verdict.equal, verdict.findings
    line = (pair / "after.py").read_text().splitlines().index("        if epoch > 100:") + 1
    said = (
        f"1 of 27 changed lines never ran: after.py:{line + 1}; "
        f"1 of 6 changed decisions went one way only: after.py:{line}"
    )
    assert f"  not proven: {said} (never true)\n" in as_text(verdict)
    assert as_text(verdict).count("for plain python") == 1
    assert f"- not proven: {said}" in as_markdown(verdict)
    shown = page(verdict)
    assert f'<tr class="missing"><td class="number">{line + 1}</td>' in shown
    assert '<tr class=""><td class="number">' in shown


def test_what_is_required(pair: Path, warm: None, capsys: pytest.CaptureFixture[str]) -> None:
    edit(
        pair / "after.py",
        "    best, history = 0.0, []",
        "    best, history = 0.0, []\n    if args.lr > 1:\n        best = 1",
    )

    def verified(required: bool) -> int:
        before, after = pair / "before.py", pair / "after.py"
        return verify_command(before, after, workdir=pair, steps=3, output_format="json", require_coverage=required)

    assert verified(False) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["outcome"] == "equal" and content["coverage"]["complete"] is False
    never = content["coverage"]["never_ran"]
    assert content["worlds"][0]["coverage"]["never_ran"] == never and len(never) > 3, "--steps ends a run early"
    assert verified(True) == 1
    capsys.readouterr()


def test_local_modules(pair: Path, zygote: Zygote | None) -> None:
    for name in ("before", "after"):
        folder = pair / name
        folder.mkdir()
        edit(pair / f"{name}.py", "import argparse\n", "import argparse\nfrom settings import rate\n")
        (pair / f"{name}.py").rename(folder / "train.py")
        (folder / "settings.py").write_text("def rate():\n    return 1\n")
    edit(pair / "after" / "train.py", "import argparse\n", "import argparse\nimport ranks\n")
    (pair / "after" / "settings.py").write_text("def rate():\n    return 2\n")
    (pair / "after" / "ranks.py").write_text("WORLD = 2\n\n\ndef other():\n    return WORLD\n")
    (pair / "after" / "unrelated.py").write_text("never = 1\n")
    verdict = verify(pair / "before" / "train.py", pair / "after" / "train.py", [2], timeout=100, zygote=zygote)
    assert verdict.equal and verdict.coverage is not None, verdict.findings
    assert [f"{each.file}:{each.number}" for each in verdict.coverage.missing] == ["ranks.py:5", "settings.py:2"]


def test_a_module_that_both_scripts_import_has_not_changed(tmp_path: Path) -> None:
    for name, text in {
        "before.py": "import net\n",
        "after.py": "import net\nimport own\n",
        "net.py": "",
        "own.py": "x = 1\n",
    }.items():
        (tmp_path / name).write_text(text)
    found = changed_files(tmp_path / "before.py", tmp_path / "after.py", tmp_path, tmp_path, {})
    assert [(each.path.name, each.lines) for each in found] == [("after.py", (2,)), ("own.py", (1,))]


def test_one_number_of_ranks_may_run_what_another_does_not() -> None:
    script = "if world == 2:\n    x = 1\nelse:\n    x = 2\n"
    worlds = tuple(
        WorldVerdict(world, "float64", outcome, "", coverage=gone_through(script, world=world))
        for world, outcome in ((2, Outcome.EQUAL), (4, Outcome.EQUAL))
    )
    both = Verdict("a.py", "b.py", worlds).coverage
    assert both is not None and both.complete
    differs = (worlds[0], WorldVerdict(4, "float64", Outcome.DIFFERS, "", coverage=worlds[1].coverage))
    proven = Verdict("a.py", "b.py", differs).coverage
    assert proven is not None and [line.number for line in proven.lines if not line.ran] == [4]


def test_what_was_said_is_said_again(autodist: Autodist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []

    def proven(before: Path, after: Path, nproc: object, args: object, **options: object) -> Verdict:
        done.append(after)
        coverage = gone_through("x = 1\nif x > 1:\n    x = 2\n")
        return Verdict("a.py", "b.py", (WorldVerdict(2, "float64", Outcome.EQUAL, "4 steps agree", coverage=coverage),))

    monkeypatch.setattr("autodist.verify.command.verify", proven)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text("x = 1\n")
    for _ in range(2):
        result = autodist("verify", "--changed", "a.py", "b.py")
        assert result.exit_code == 0 and "not proven: 1 of 3 changed lines never ran: train.py:3" in result.stdout
    assert len(done) == 1
    assert autodist("verify", "--changed", "--require-coverage", "a.py", "b.py").exit_code == 1
    assert len(done) == 2


def test_a_conversion_that_is_not_covered_is_not_written(autodist: Autodist, warm: None, tmp_path: Path) -> None:
    script = (Path(__file__).parents[2] / "fixtures/faults/pairs/classifier/before.py").read_text()
    assert "    args = parser.parse_args()\n" in script
    lines = [
        'if os.path.exists("last.pt"):',
        '    torch.load("last.pt")',
        '    model.load_state_dict(torch.load("last.pt"))',
    ]
    resumed = "".join(f"    {line}\n" for line in lines)
    (tmp_path / "train.py").write_text(script.replace("    optimizer = ", resumed + "    optimizer = ", 1))
    command = ("convert", "train.py", "--strategy", "ddp", "--verify", "--steps", "4")
    result = autodist(*command, "--require-coverage")
    assert result.exit_code == 1 and "never ran: train.py:" in result.stderr, result.output
    assert "nothing was written" in result.stderr and not (tmp_path / "train_ddp.py").exists()
    assert autodist("convert", "train.py", "--require-coverage").exit_code == 2
