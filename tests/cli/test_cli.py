"""The command line: where results go, exit codes, what is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SCRIPT, Autodist

MODULES = {
    "train.py": "import data\n"
    + SCRIPT.replace("DataLoader(data, batch_size=8, shuffle=True)", "data.loader()").replace(
        "data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))\n", ""
    ),
    "data.py": """\
import torch
from torch.utils.data import DataLoader, TensorDataset


def loader():
    return DataLoader(TensorDataset(torch.randn(64, 4), torch.randn(64, 1)), batch_size=8, shuffle=True)
""",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A script whose loader is made in a local module."""
    for name, text in MODULES.items():
        (tmp_path / name).write_text(text)
    return tmp_path / "train.py"


def test_default_writes_beside(autodist: Autodist, script: Path) -> None:
    result = autodist("convert", "train.py")
    converted = script.with_name("train_ddp.py")
    assert (result.exit_code, result.stdout) == (0, "")
    assert script.read_text() == SCRIPT
    assert "DistributedDataParallel" in converted.read_text() or "DDP" in converted.read_text()
    assert "train.py:6:" in result.stderr and "-> train_ddp.py" in result.stderr
    assert "torchrun --standalone --nproc-per-node 2 train_ddp.py" in result.stderr
    assert "python train_ddp.py" in result.stderr and "--rdzv-endpoint" in result.stderr


def test_existing_output_is_kept_unless_forced(autodist: Autodist, script: Path) -> None:
    script.with_name("train_ddp.py").write_text("mine")
    result = autodist("convert", "train.py")
    assert result.exit_code == 2 and "train_ddp.py: already exists" in result.stderr
    assert script.with_name("train_ddp.py").read_text() == "mine"
    assert autodist("convert", "train.py", "--force").exit_code == 0
    assert script.with_name("train_ddp.py").read_text() != "mine"


def test_output_file(autodist: Autodist, script: Path) -> None:
    assert autodist("convert", "train.py", "--output", "new/out.py").exit_code == 0
    assert (script.parent / "new" / "out.py").exists()


@pytest.mark.parametrize("target", ["made/", "there"])
def test_output_folder_for_one_script(autodist: Autodist, script: Path, target: str) -> None:
    (script.parent / "there").mkdir()
    assert autodist("convert", "train.py", "--output", target).exit_code == 0
    assert (script.parent / target / "train.py").exists()


def test_in_place_keeps_mode_and_links(autodist: Autodist, script: Path) -> None:
    script.chmod(0o755)
    link = script.with_name("link.py")
    link.symlink_to("train.py")
    assert autodist("convert", "link.py", "--in-place").exit_code == 0
    assert link.is_symlink() and script.read_text() != SCRIPT and script.stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in script.parent.iterdir()) == ["link.py", "train.py"]


def test_in_place_twice_changes_nothing(autodist: Autodist, script: Path) -> None:
    assert autodist("convert", "train.py", "--in-place").exit_code == 0
    once = script.read_text()
    result = autodist("convert", "train.py", "--in-place")
    assert result.exit_code == 0 and "nothing to change" in result.stderr
    assert script.read_text() == once
    assert autodist("convert", "train.py", "--check").exit_code == 0


def test_diff_applies(autodist: Autodist, script: Path) -> None:
    result = autodist("convert", "train.py", "--diff")
    assert result.exit_code == 0 and not script.with_name("train_ddp.py").exists()
    assert result.stdout.startswith("--- a/train.py\n+++ b/train.py\n@@ ")
    subprocess.run(["git", "apply", "-"], input=result.stdout, text=True, check=True, cwd=script.parent)
    patched = script.read_text()
    script.write_text(SCRIPT)
    autodist("convert", "train.py", "--in-place")
    assert script.read_text() == patched


def test_check(autodist: Autodist, script: Path) -> None:
    assert autodist("convert", "train.py", "--check").exit_code == 1
    assert script.read_text() == SCRIPT and len(list(script.parent.iterdir())) == 1


def test_stdin(autodist: Autodist, script: Path) -> None:
    result = autodist("convert", "-", stdin=SCRIPT)
    assert result.exit_code == 0 and "torchrun" not in result.stderr
    assert autodist("convert", "train.py").exit_code == 0
    assert result.stdout == script.with_name("train_ddp.py").read_text()
    assert autodist("convert", "-", "--diff", stdin=SCRIPT).stdout.startswith("--- <stdin>\n+++ <stdin>\n")
    assert autodist("convert", "-", "--check", stdin=SCRIPT).exit_code == 1


def test_project_is_written_as_a_folder(autodist: Autodist, project: Path) -> None:
    (project.parent / "data.py").chmod(0o600)
    result = autodist("convert", "train.py")
    folder = project.parent / "train_ddp"
    assert result.exit_code == 0 and "python train_ddp/train.py" in result.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["data.py", "train.py"]
    assert (project.parent / "data.py").read_text() == MODULES["data.py"]
    assert (folder / "data.py").read_text() != MODULES["data.py"]
    assert (folder / "data.py").stat().st_mode & 0o777 == 0o600


def test_project_output_and_in_place(autodist: Autodist, project: Path) -> None:
    assert autodist("convert", "train.py", "--output", "out").exit_code == 0
    refused = autodist("convert", "train.py", "--output", "out.py")
    assert refused.exit_code == 2 and "data.py" in refused.stderr
    assert autodist("convert", "train.py", "--in-place").exit_code == 0
    for name, text in MODULES.items():
        assert (project.parent / "out" / name).read_text() == (project.parent / name).read_text() != text


def test_project_from_stdin_needs_a_folder(autodist: Autodist, project: Path) -> None:
    result = autodist("convert", "-", stdin=MODULES["train.py"])
    assert result.exit_code == 2 and result.stdout == "" and "--output" in result.stderr


@pytest.mark.parametrize("name", ["json", "sarif", "github", "gitlab", "markdown"])
def test_formats(autodist: Autodist, script: Path, name: str) -> None:
    result = autodist("convert", "train.py", "--diff", "--output-format", name)
    assert (result.exit_code, result.stderr) == (0, "")
    match name:
        case "json":
            (run,) = json.loads(result.stdout)["scripts"]
            assert run["entry"] == "train.py" and run["diff"].startswith("--- a/train.py")
            assert {each["path"] for each in run["diagnostics"]} == {"train.py"}
        case "sarif":
            (run,) = json.loads(result.stdout)["runs"]
            described = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
            assert all(described[each["ruleIndex"]] == each["ruleId"] for each in run["results"])
        case "github":
            assert all(line.startswith("::notice file=train.py,line=") for line in result.stdout.splitlines())
        case "markdown":
            assert "| `train.py:6` |" in result.stdout and "~~~~diff\n--- a/train.py" in result.stdout


def test_formats_to_files(autodist: Autodist, script: Path) -> None:
    wanted = [f"--output-format={name}=out/{name}" for name in ("json", "sarif", "gitlab", "markdown", "text")]
    result = autodist("check", "train.py", *wanted, "--output-format", "github")
    assert result.stdout.startswith("::notice file=train.py")
    assert {path.name for path in (script.parent / "out").iterdir()} == {"json", "sarif", "gitlab", "markdown", "text"}
    assert "train.py:6:" in autodist("check", "train.py", *wanted).stdout, "lines are printed as ever"
    script.write_text("import os\n")
    assert autodist("check", "train.py", *wanted).exit_code == 0, "what earlier files say holds no more"
    assert json.loads((script.parent / "out" / "gitlab").read_text()) == []


@pytest.mark.parametrize(
    ("formats", "message"),
    [
        (["yaml"], "yaml is none of text, json"),
        (["json", "sarif"], "only one of"),
        (["json=train.py/x"], "cannot be written"),
    ],
)
def test_formats_that_cannot_be(autodist: Autodist, script: Path, formats: list[str], message: str) -> None:
    result = autodist("check", "train.py", *(f"--output-format={each}" for each in formats))
    assert result.exit_code == 2 and message in result.stderr


def test_quiet_says_nothing(autodist: Autodist, script: Path) -> None:
    result = autodist("convert", "train.py", "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_select_and_ignore(autodist: Autodist, script: Path) -> None:
    everything = autodist("convert", "train.py", "--diff").stdout
    without = autodist("convert", "train.py", "--diff", "--ignore", "ad2,AD3").stdout
    assert "+" in without and without != everything
    assert autodist("convert", "train.py", "--check", "--select", "AD9").exit_code == 0
    unknown = autodist("convert", "train.py", "--select", "AD999")
    assert unknown.exit_code == 2 and "AD999" in unknown.stderr


def test_comments_silence_rules(autodist: Autodist, script: Path) -> None:
    whole = autodist("convert", "train.py", "--diff", "--output-format", "json").stdout
    saved = {each["code"] for each in json.loads(whole)["scripts"][0]["diagnostics"] if each["line"] == 14}
    assert saved
    script.write_text(SCRIPT.replace("# keep me", "# autodist: ignore"))
    silenced = autodist("convert", "train.py", "--diff", "--output-format", "json").stdout
    assert all(each["line"] != 14 for each in json.loads(silenced)["scripts"][0]["diagnostics"])
    script.write_text("# autodist: skip-file\n" + SCRIPT)
    assert autodist("convert", "train.py", "--check").exit_code == 0


def test_pyproject_sets_defaults(autodist: Autodist, script: Path) -> None:
    settings = script.with_name("pyproject.toml")
    plain = autodist("convert", "train.py", "--diff").stdout
    settings.write_text('[tool.autodist]\nbatch-size = "per-rank"\n')
    assert autodist("convert", "train.py", "--diff").stdout != plain
    assert autodist("convert", "train.py", "--diff", "--batch-size", "global").stdout == plain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.autodist\n", "is not valid TOML"),
        ("[tool.autodist]\nstrateggy = 1\n", ":2: [tool.autodist] has no option 'strateggy'"),
        ("[tool.autodist]\n\nselect = 'AD3'\n", ":3: [tool.autodist] select must be a list"),
        ("[tool.autodist]\nstrategy = 'horovod'\n", 'strategy must be "ddp"'),
        ("[tool]\nautodist = 3\n# tool.autodist", "must be a table"),
        ("[tool.autodist.catalog]\nsave = 'x'\n", "catalog must be a table of roles"),
    ],
)
def test_pyproject_mistakes(autodist: Autodist, script: Path, text: str, message: str) -> None:
    script.with_name("pyproject.toml").write_text(text)
    result = autodist("convert", "train.py")
    assert result.exit_code == 2 and message in result.stderr and len(result.stderr.splitlines()) == 1
    assert len(list(script.parent.iterdir())) == 2


def test_several_files(autodist: Autodist, script: Path) -> None:
    script.with_name("other.py").write_text("import torch\nprint(torch.__version__)\n")
    script.with_name("broken.py").write_text("import torch\nloss.backward(\n")
    assert autodist("convert", "train.py", "other.py").exit_code == 2
    result = autodist("convert", "broken.py", "other.py", "train.py", "--in-place")
    assert result.exit_code == 2 and "broken.py:2: does not parse" in result.stderr
    assert script.read_text() != SCRIPT


def test_hook_skips_what_trains_nothing(autodist: Autodist, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print 'Python 2'\n")
    (tmp_path / "model.py").write_text("import torch\n\nmodel = torch.nn.Linear(1, 1)\n")
    (tmp_path / "tool.py").write_text("import torch\n\n\ndef total(loss):\n    loss.backward()\n")
    for command in (["check"], ["convert", "--in-place", "--if-training"]):
        assert autodist(*command, "a.py", "model.py", "tool.py").exit_code == 0
        assert autodist(*command, "tool.py").exit_code == 0


def test_check_command(autodist: Autodist, script: Path) -> None:
    result = autodist("check", "train.py")
    assert result.exit_code == 1 and result.stdout.startswith("train.py:")
    assert all(line.split(":")[0] == "train.py" for line in result.stdout.splitlines())
    assert autodist("convert", "train.py", "--in-place").exit_code == 0
    assert autodist("check", "train.py").exit_code == 0


def test_rule_documentation(autodist: Autodist) -> None:
    table = autodist("rule").stdout.splitlines()
    code, name = table[0].split()[:2]
    page = autodist("rule", code.lower()).stdout
    assert page.startswith(f"### {code} {name}\n") and autodist("rule", name).stdout == page
    assert autodist("rule", "AD999").exit_code == 2


def test_colors(script: Path) -> None:
    """Colours on a terminal alone, and never with NO_COLOR."""
    from autodist.terminal import Terminal

    assert Terminal().color is None and Terminal(no_color=True).color is False
    command = [sys.executable, "-m", "autodist", "convert", str(script), "--diff"]
    output = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "NO_COLOR": "1"})
    assert "\x1b" not in output.stdout + output.stderr


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [
        (["check", "other.py"], {"torch", "libcst", "rich", "tomllib", "autodist.source", "autodist.session"}),
        (["convert", "train.py", "--diff"], {"torch", "rich", "autodist.verify"}),
        (["rule"], {"torch", "libcst", "rich"}),
    ],
)
def test_imports(script: Path, arguments: list[str], absent: set[str]) -> None:
    """torch is never imported, and nothing that takes time before a file is found that may train."""
    script.with_name("other.py").write_text("import os\n")
    code = "import sys, atexit; atexit.register(lambda: print(*sys.modules)); from autodist.cli import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    output = subprocess.run(command, capture_output=True, text=True, cwd=script.parent, check=True)
    assert not absent & set(output.stdout.splitlines()[-1].split())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What verification is asked for; a script called ``bad.py`` fails it."""
    asked: list[dict[str, Any]] = []

    def verify(before: Path, after: Path, **options: Any) -> int:
        asked.append({"before": before.name, "after": after.name, "text": after.read_text(), **options})
        return int(before.name == "bad.py")

    monkeypatch.setattr("autodist.verify.command.verify_command", verify)
    return asked


def test_verify(autodist: Autodist, script: Path, runs: list[dict[str, Any]]) -> None:
    assert autodist("convert", "train.py", "--quiet").exit_code == 0
    assert autodist("verify", "train.py", "train_ddp.py", "--nproc", "2,4", "--", "--epochs", "1").exit_code == 0
    assert autodist("verify", "train.py", "--strategy", "ddp", "--steps", "3").exit_code == 0
    given, made = runs
    assert (given["before"], given["after"], given["nproc"]) == ("train.py", "train_ddp.py", (2, 4))
    assert given["args"] == ("--epochs", "1") and made["args"] == () and made["steps"] == 3
    assert given["text"] == made["text"] != SCRIPT
    assert autodist("verify", "train.py", "a.py", "b.py").exit_code == 2
    for bad in (["--nproc", "two"], ["--nproc", "0"], ["--nproc", "2,"], ["--timeout", "0"], ["--device", "tpu"]):
        assert autodist("verify", "train.py", *bad).exit_code == 2


def test_convert_and_verify(autodist: Autodist, script: Path, runs: list[dict[str, Any]]) -> None:
    script.with_name("bad.py").write_text(SCRIPT)
    assert autodist("convert", "train.py", "--verify", "--", "--epochs", "1").exit_code == 0
    assert script.with_name("train_ddp.py").read_text() == runs[0]["text"] and runs[0]["args"] == ("--epochs", "1")
    autodist("convert", "train.py", "--force", "--verify", "--nproc", "2,4", "--device", "cpu", "--report", "r.html")
    assert (runs[1]["nproc"], runs[1]["device"], runs[1]["report"]) == ((2, 4), "cpu", Path("r.html"))
    result = autodist("convert", "train.py", "--nproc", "4")
    assert result.exit_code == 2 and "--nproc is for the runs of --verify" in result.stderr
    result = autodist("convert", "bad.py", "--verify")
    assert result.exit_code == 1 and "nothing was written" in result.stderr
    assert not script.with_name("bad_ddp.py").exists()
    assert autodist("convert", "bad.py", "--", "--epochs", "1").exit_code == 2


def test_root_has_hooks_without_torch() -> None:
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert "autodist-check" in hooks and "autodist-convert" in hooks and "torch>=" not in hooks


@pytest.mark.parametrize(
    ("installer", "text", "folder"),
    [
        ("setup.py", "from setuptools import setup\n\nsetup()\n", ""),
        ("pyproject.toml", '[tool.setuptools.packages.find]\nwhere = ["pkg"]\n', "pkg/"),
        ("pyproject.toml", '[tool.setuptools]\npackage-dir = {"" = "lib"}\n', "lib/"),
        ("pyproject.toml", '[[tool.poetry.packages]]\ninclude = "engine"\nfrom = "code"\n', "code/"),
    ],
)
def test_packages_of_the_repository_above_the_script_are_converted_with_it(
    autodist: Autodist, tmp_path: Path, installer: str, text: str, folder: str
) -> None:
    imports, _, training = SCRIPT.partition("data = ")
    body = "".join(f"    {line}\n" for line in f"data = {training}".splitlines())
    files = {
        installer: text,
        f"{folder}engine/__init__.py": "",
        f"{folder}engine/loop.py": f"{imports}\ndef run():\n{body}",
        "scripts/train.py": 'from engine.loop import run\n\nif __name__ == "__main__":\n    run()\n',
    }
    for name, content in files.items():
        path = tmp_path / "repository" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    result = autodist("convert", Path("repository/scripts/train.py"), "--output", "out/")
    assert result.exit_code == 0, result.output
    assert "DistributedSampler" in (tmp_path / f"out/{folder}engine/loop.py").read_text()
    assert "setup_distributed()" in (tmp_path / "out/scripts/train.py").read_text()
    assert " torchrun --standalone --nproc-per-node 2 out/scripts/train.py\n" in result.output
    assert "PYTHONPATH=" not in result.output
