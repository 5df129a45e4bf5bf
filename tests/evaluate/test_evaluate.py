"""``autodist evaluate``: which scripts, how they are sorted, and that an interrupted evaluation goes on."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from conftest import SCRIPT, Autodist

from autodist.errors import AutodistError
from autodist.evaluate import page, sequence
from autodist.evaluate.attempt import Setting, _put, attempt, judged
from autodist.evaluate.entries import Entry, load
from autodist.evaluate.idioms import idioms
from autodist.evaluate.record import Comparison, Record, Remark, Status
from autodist.evaluate.sequence import Results, evaluate
from autodist.evaluate.tables import general, score, tables
from benchmarks import mutations

CORPUS = Path(__file__).parents[2] / "benchmarks" / "corpus"
REFUSED = """\
import torch

x = torch.randn(100, 4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    (x @ x.t() @ model(x)).pow(2).mean().backward()
    optimizer.step()
"""


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    """Three projects: one to convert, one to refuse, one in Python 2; and a module that is no entry."""
    files = {
        "good/train.py": SCRIPT.replace("import torch\n", "import torch\nfrom layers import Net\n", 1),
        "good/layers.py": "import torch.nn as nn\n\n\nclass Net(nn.Module):\n    optimizer = None\n",
        "refused/full.py": REFUSED,
        "old/train.py": "import torch.optim\nprint 'loss.backward()'\n",
    }
    for name, text in files.items():
        path = tmp_path / "projects" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "projects"


def setting(root: Path, run: bool = False) -> Setting:
    """Two ranks of this Python."""
    return Setting(str(root), "ddp", (2,), sys.executable, None, run)


def record(name: str, status: Status, **more: object) -> Record:
    """A record that needs no run."""
    return Record(**{"name": name, "status": status, "reason": "", **more})  # type: ignore[arg-type]


def test_entries_of_a_folder_are_the_scripts_that_no_other_imports(projects: Path) -> None:
    names = [entry.name for entry in load(projects, None).scripts]
    assert names == ["good/train.py", "old/train.py", "refused/full.py"]


def test_a_manifest_names_scripts_and_how_to_run_them(projects: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.toml"
    manifest.write_text(
        '[[script]]\nrepository = "someone/good"\nscript = "train.py"\nargs = ["--epochs", "1"]\nsteps = 5\n'
    )
    entries = load(manifest, projects)
    assert entries.scripts[0].args == ("--epochs", "1") and entries.scripts[0].steps == 5
    assert entries.scripts[0].folder(entries.root) == projects / "good"
    assert Entry.from_json(json.loads(json.dumps(entries.scripts[0].to_json()))) == entries.scripts[0]


def test_the_tags_of_the_corpus_are_those_that_its_readme_describes(tmp_path: Path) -> None:
    """Each with as many scripts and repositories as its table says, and no script without one."""
    scripts = load(CORPUS / "manifest.toml", tmp_path).scripts
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\d+) \| (\d+) \|", (CORPUS / "README.md").read_text(), re.MULTILINE)
    tagged: dict[str, list[Entry]] = {}
    for entry in scripts:
        for tag in entry.tags:
            tagged.setdefault(tag, []).append(entry)
    counts = {tag: (len(found), len({entry.repository for entry in found})) for tag, found in tagged.items()}
    assert counts == {tag: (int(scripts), int(repositories)) for tag, scripts, repositories in rows}
    assert all(entry.tags for entry in scripts)


TAGGED = """\
[[script]]
repository = "good"
script = "train.py"
tags = ["pictures", "short"]

[[script]]
repository = "refused"
script = "full.py"
tags = ["texts"]

[[script]]
repository = "old"
script = "train.py"
"""


@pytest.fixture
def tagged(tmp_path: Path) -> Path:
    """A manifest of the three projects, of which one has two tags, one has one and one none."""
    path = tmp_path / "tagged.toml"
    path.write_text(TAGGED)
    return path


@pytest.mark.parametrize(
    ("tags", "names"),
    [
        ((), ["good", "refused", "old"]),
        (("pictures",), ["good"]),
        (("pictures", "short"), ["good"]),
        (("texts", "short"), ["good", "refused"]),
    ],
)
def test_tags_pick_scripts_of_a_manifest(projects: Path, tagged: Path, tags: tuple[str, ...], names: list[str]) -> None:
    entries = load(tagged, projects, tags)
    assert [entry.repository for entry in entries.scripts] == names
    assert [Entry.from_json(json.loads(json.dumps(each.to_json()))) for each in entries.scripts] == [*entries.scripts]


def test_the_command_evaluates_what_a_tag_picks(autodist: Autodist, projects: Path, tagged: Path) -> None:
    options = ["--root", projects, "--no-run", "--tag", "pictures", "--tag", "texts"]
    result = autodist("evaluate", tagged, *options)
    assert "1 refused" in result.output and len(Path("evaluation.jsonl").read_text().splitlines()) == 2
    assert autodist("evaluate", tagged, *options, "--only", "nobody").exit_code == 2


@pytest.mark.parametrize("tag", ["nobody", "", "Texts"])
def test_an_unknown_tag_is_one_line_with_those_there_are(
    autodist: Autodist, projects: Path, tagged: Path, tag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"error: {tagged}: no tag {tag!r}, there are pictures, short, texts\n"
    result = autodist("evaluate", tagged, "--root", projects, "--tag", "texts", "--tag", tag)
    assert result.exit_code == 2 and result.stderr == line
    assert mutations.main([str(tagged), "--root", str(projects), "--tag", tag]) == 2
    assert capsys.readouterr().err == line


def test_a_folder_and_a_manifest_without_tags_say_so(autodist: Autodist, projects: Path, tmp_path: Path) -> None:
    (tmp_path / "plain.toml").write_text('[[script]]\nscript = "good/train.py"\n')
    for source, reason in ((projects, "whose scripts have no tags"), (tmp_path / "plain.toml", "no script has any")):
        result = autodist("evaluate", source, "--tag", "texts")
        assert result.exit_code == 2 and reason in result.stderr and result.stderr.count("\n") == 1


def test_a_tag_runs_no_script_again(projects: Path) -> None:
    found = [attempt(Entry("good", "train.py", tags=tags), setting(projects)) for tags in ((), ("pictures",))]
    assert found[0].digest == found[1].digest


def test_mutations_are_of_the_scripts_that_a_tag_picks(projects: Path, tagged: Path) -> None:
    found = mutations.corpus(load(tagged, projects, ["texts"]))
    assert [(name, script.name) for name, script, _ in found] == [("refused/full.py", "full.py")]
    with pytest.raises(SystemExit, match="2"):
        mutations.main(["--tag", "texts"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = [", "not valid TOML"),
        ("x = 1", "holds no"),
        ('script = ["a.py"]', "holds no"),
        ('[[script]]\nscript = "a.py"\nargz = []', "no option 'argz'"),
        ("[[script]]\nargs = []", "must be texts"),
        ('[[script]]\nscript = "a.py"\nargs = "--epochs 1"', "list of texts"),
        ('[[script]]\nscript = "a.py"\ntags = "pictures"', "`tags` must be a list of texts"),
        ('[[script]]\nscript = "a.py"\nexpect = "wonder"', "must be one of"),
        ('[[script]]\nscript = "a.py"\nenv = {A = 1}', "table of texts"),
        ('[[script]]\nscript = "a.py"\nmend = ["a"]', "table of texts"),
    ],
)
def test_a_bad_manifest_is_one_clear_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "manifest.toml"
    path.write_text(text)
    with pytest.raises(AutodistError, match=message):
        load(path, None)


def test_a_script_is_mended_in_a_copy(projects: Path) -> None:
    """What is gone from torch is put right before the script is read; the repository stays as it is."""
    script = projects / "good" / "train.py"
    before = script.read_text()
    entry = Entry("good", "train.py", mend={"import torch\n": "import torch, gone\n", "layers": "no_layers"})
    assert attempt(entry, setting(projects)).status is Status.STATIC
    assert script.read_text() == before
    missing = attempt(Entry("good", "train.py", mend={"never said": ""}), setting(projects))
    assert missing.status is Status.WRONG and missing.reason == "`mend`: no file of good holds 'never said'"


def test_scripts_are_sorted_without_running_them(projects: Path) -> None:
    found = {entry.name: attempt(entry, setting(projects)) for entry in load(projects, None).scripts}
    assert {name: each.status for name, each in found.items()} == {
        "good/train.py": Status.STATIC,
        "refused/full.py": Status.REFUSED,
        "old/train.py": Status.REFUSED,
    }
    assert "AD902" in found["refused/full.py"].reason and "Python 2" in found["old/train.py"].reason
    assert found["good/train.py"].added and not found["refused/full.py"].expected


@pytest.mark.parametrize(
    ("outcome", "warned", "status"),
    [
        ("equal", True, Status.EQUAL),
        ("differs", True, Status.WARNED),
        ("differs", False, Status.WRONG),
        ("equal until a step", False, Status.WRONG),
        ("not comparable", False, Status.STATIC),
    ],
)
def test_a_difference_is_wrong_unless_it_was_announced(outcome: str, warned: bool, status: Status) -> None:
    assert judged(Comparison(outcome, "why"), warned)[0] is status


def test_records_survive_json() -> None:
    comparison = Comparison("differs", "why", ("loss: …",), ("a note",), 3, 0.1)
    remark = Remark("AD301", "save", "warning", "text", "train.py", 3)
    full = record("a", Status.WARNED, comparison=comparison, remarks=(remark,), idioms=("tqdm",), seconds=1.5)
    assert Record.from_json(json.loads(json.dumps(full.to_json()))) == full


def test_results_keep_the_last_word_and_survive_a_line_cut_short(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add(record("a", Status.WRONG))
    results.add(record("a", Status.EQUAL))
    with results.path.open("a") as file:
        file.write('{"name": "b", "sta')
    results.add(record("c", Status.STATIC))
    assert {name: each.status for name, each in results.read().items()} == {"a": Status.EQUAL, "c": Status.STATIC}


def test_tables_count_by_rule_idiom_and_general_reason() -> None:
    remarks = (Remark("AD301", "save", "note", "text", "train.py", 3),)
    records = [
        record("a", Status.EQUAL, remarks=remarks, idioms=("tqdm",)),
        record("b", Status.REFUSED, reason="AD902 no batch in `x` (train.py:3)", idioms=("tqdm",)),
        record("c", Status.REFUSED, reason="AD902 no batch in `y` (main.py:14)"),
    ]
    assert dict(score(records))["refused with a reason"] == 2
    rows = {table.title: dict(table.rows) for table in tables(records)}
    assert rows["Rules"]["AD301 save"][Status.EQUAL] == 1
    assert rows["Idioms"]["tqdm"].total() == 2
    assert rows["Reasons"]["AD902 no batch in …"][Status.REFUSED] == 2
    assert general("step 12 differs by 3.5e-02") == "step # differs by #"
    html, document = page.as_html(records, "ddp"), json.loads(page.as_json(records, "ddp"))
    assert "train.py:3" in html and document["score"]["verified equal"] == 1
    lines = page.as_markdown(records, "ddp").splitlines()
    assert "| verified equal | 1 |" in lines and "| b | refused: AD902 no batch in `x` (train.py:3) |  |" in lines


def test_idioms_are_told_apart() -> None:
    found = idioms([SCRIPT, "opt_g = optim.Adam(g)\nopt_d = optim.Adam(d)\nfor x in tqdm(loader): x.cuda()\n"])
    assert {"DataLoader", "no main guard", "several optimizers", "tqdm", "constant cuda device"} <= set(found)


def test_the_command_converts_runs_compares_and_goes_on(
    autodist: Autodist, projects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    first = autodist("evaluate", projects, "--report", "report.html", "--only", "good")
    assert first.exit_code == 0, first.output
    assert "1 verified equal" in first.output and "train.py" in Path("report.html").read_text()
    monkeypatch.setattr(sequence, "RUNS", 0.0)
    monkeypatch.setattr(sequence, "CONVERTING", 5.0)
    again = autodist("evaluate", projects)
    assert "1 verified equal" in again.output and "2 refused" in again.output
    lines = Path("evaluation.jsonl").read_text().splitlines()
    assert len(lines) == 4 and Record.from_json(json.loads(lines[0])).digest == json.loads(lines[1])["digest"]


def test_a_script_that_hangs_is_ended_with_all_its_processes(
    projects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    script = projects / "good" / "train.py"
    script.write_text(script.read_text().replace("optimizer.step()", "optimizer.step(); import time; time.sleep(99)"))
    monkeypatch.setattr(sequence, "CONVERTING", 6.0)
    monkeypatch.setattr(sequence, "RUNS", 0.0)
    entry = next(iter(load(projects, None).scripts))
    found = list(evaluate([entry], setting(projects, run=True), Results(tmp_path / "results.jsonl"), True, 1))
    assert found[0].status is Status.WRONG and "hangs" in found[0].reason
    assert not [name for name in processes() if "autodist.evaluate.worker" in name]


def processes() -> list[str]:
    """The command lines of this process's children, where the system tells."""
    lines = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"PPid:\t{os.getpid()}\n" in (folder / "status").read_text():
                lines.append((folder / "cmdline").read_text())
        except OSError:
            continue
    return lines


def test_bad_usage_is_one_line(autodist: Autodist, projects: Path) -> None:
    for arguments in (["--only", "nothing"], ["--python", "nowhere"]):
        result = autodist("evaluate", projects, *arguments)
        assert result.exit_code == 2 and result.stderr.startswith("error: ") and result.stderr.count("\n") == 1


def test_repositories_that_are_not_there_are_named_and_left_out(
    autodist: Autodist, projects: Path, tmp_path: Path
) -> None:
    entries = [("someone/good", "train.py"), ("nobody/here", "train.py"), ("nobody/here", "main.py")]
    manifest = tmp_path / "manifest.toml"
    table = '[[script]]\nrepository = "{}"\nscript = "{}"\nmend = {{ "a" = "b" }}\n'
    manifest.write_text("".join(table.format(*entry) for entry in entries))
    options = ["--root", projects, "--no-run", "--results", tmp_path / "results.jsonl"]
    result = autodist("evaluate", manifest, *options)
    assert "left out: 2 scripts" in result.stderr and "nobody/here" in result.stderr
    assert "nobody" not in result.stdout
    result = autodist("evaluate", manifest, *options, "--only", "nobody")
    assert result.exit_code == 2 and "nobody/here" in result.stderr


def test_data_lie_beside_what_a_repository_has_there(tmp_path: Path) -> None:
    data, stage = tmp_path / "data", tmp_path / "stage"
    for folder in (data / "rows", stage / "rows"):
        folder.mkdir(parents=True)
    (data / "rows" / "train.csv").write_text("1")
    (stage / "rows" / "make.py").write_text("")
    (stage / "settings.json").write_text("{}")
    (data / "small.json").write_text('{"small": 1}')
    _put(data / "rows", stage / "rows")
    _put(data / "small.json", stage / "settings.json")
    assert sorted(path.name for path in (stage / "rows").iterdir()) == ["make.py", "train.csv"]
    assert "small" in (stage / "settings.json").read_text()


def test_rounding_that_grew_is_no_difference() -> None:
    """The verdict names the step up to which the two agree; a difference beside it is one."""
    assert judged(Comparison("equal until a step", "until step 21", rounded=True), False)[0] is Status.EQUAL
    assert judged(Comparison("equal until a step", "until step 21"), False)[0] is Status.WRONG
