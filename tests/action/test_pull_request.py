"""The action in a pull request: its steps are run against a stand-in of GitHub's API."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, SCRIPT

yaml = pytest.importorskip("yaml")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


class GitHub(ThreadingHTTPServer):
    """Keeps the comments of pull request 7 of ``o/r``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.head, self.writable, self.busy = "", True, 0
        self.files: list[dict[str, Any]] = []
        self.issue_comments: list[dict[str, Any]] = []
        self.review_comments: list[dict[str, Any]] = []
        self.writes: list[str] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, method: str, path: str, content: Any) -> tuple[int, Any]:
        """What GitHub does, in short."""
        where, _, query = path.removeprefix("/repos/o/r/").partition("?")
        lists = {
            "issues/7/comments": self.issue_comments,
            "pulls/7/comments": self.review_comments,
            "pulls/7/files": self.files,
        }
        if self.busy:
            self.busy -= 1
            return 502, {"message": "busy"}
        if method == "GET":
            page = int(re.findall(r"[&?]page=(\d+)", f"?{query}")[0])
            return 200, lists[where][(page - 1) * 100 : page * 100]
        if not self.writable:
            return 403, {"message": "Resource not accessible by integration"}
        self.writes.append(f"{method} {where}")
        number = int(where.rpartition("/")[2]) if where[-1].isdecimal() else 0
        if method == "PATCH":
            next(each for each in self.issue_comments if each["id"] == number).update(content)
        elif method == "DELETE":
            self.review_comments[:] = [each for each in self.review_comments if each["id"] != number]
        elif where == "pulls/7/reviews":
            assert content["commit_id"] == self.head
            if not all(self.takes(each) for each in content["comments"]):
                return 422, {"message": "line must be part of the diff"}
            self.review_comments += [{"id": len(self.writes) * 100 + i, **e} for i, e in enumerate(content["comments"])]
        else:
            lists[where].append({"id": len(self.writes), **content})
        return 200, {}

    def takes(self, comment: dict[str, Any]) -> bool:
        """A comment on lines that one hunk of the pull request shows."""
        patch = next((each["patch"] for each in self.files if each["filename"] == comment["path"]), "")
        hunks = [range(int(a), int(a) + int(b)) for a, b in re.findall(r"(?m)^@@ -\S+ \+(\d+),(\d+) @@", patch)]
        return any(comment["line"] in each and comment.get("start_line", comment["line"]) in each for each in hunks)


class Handler(BaseHTTPRequestHandler):
    """Hands requests to the server's ``answer``."""

    def respond(self) -> None:
        """One request."""
        assert isinstance(self.server, GitHub) and self.headers["Authorization"] == "Bearer secret"
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        code, answer = self.server.answer(self.command, self.path, json.loads(content or "null"))
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    do_GET = do_POST = do_PATCH = do_DELETE = respond

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def github() -> Iterator[GitHub]:
    """The stand-in."""
    server = GitHub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def repository(tmp_path: Path, github: GitHub) -> Path:
    """A repository whose last commit, that of the pull request, adds a training script."""
    folder = tmp_path / "repository"
    folder.mkdir()
    commit(folder, github, "train.py", SCRIPT)
    return folder


def git(folder: Path, *arguments: str) -> str:
    """What git prints."""
    name = ["-c", "user.name=me", "-c", "user.email=me@localhost", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path, github: GitHub, name: str, text: str, shown: int | None = None) -> None:
    """Commit a file; the pull request shows it whole, or its first lines alone."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet")
    (folder / name).write_text(text, encoding="utf-8")
    git(folder, "add", name)
    git(folder, "commit", "--quiet", "--message", name)
    github.head = git(folder, "rev-parse", "HEAD")
    lines = len(text.splitlines()) if shown is None else shown
    github.files[:] = [{"filename": name, "status": "added", "patch": f"@@ -0,0 +1,{lines} @@\n+..."}]


Act = Callable[..., tuple[int, str]]


@pytest.fixture
def act(repository: Path, github: GitHub, tmp_path: Path) -> Act:
    """Run the steps of the action that are ours, with inputs, as the runner does. Returns status and log."""

    def run(event: bool = True, **inputs: str) -> tuple[int, str]:
        (tmp_path / "event.json").write_text(
            json.dumps({"pull_request": {"number": 7, "head": {"sha": github.head}}} if event else {})
        )
        known = {f"inputs.{name}": str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
        known |= {f"inputs.{name}": value for name, value in inputs.items()} | {"inputs.token": "secret"}
        known["steps.report.outputs.artifact-url"] = "https://example.org/report"
        log = ""
        for step in ACTION["runs"]["steps"]:
            if "run" not in step or step["name"] == "Install autodist":
                continue
            if step.get("if") == "inputs.mode != 'check'" and known["inputs.mode"] == "check":
                continue
            (tmp_path / "output").write_text("")
            asked = {name: filled(text, known) for name, text in step["env"].items()}
            env = {
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
                "GITHUB_ACTION_PATH": str(ROOT),
                "GITHUB_API_URL": github.url,
                "GITHUB_REPOSITORY": "o/r",
                "GITHUB_EVENT_PATH": str(tmp_path / "event.json"),
                "GITHUB_OUTPUT": str(tmp_path / "output"),
                "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
                "RUNNER_TEMP": str(tmp_path),
                "AUTODIST_PAUSE": "0",
                "OMP_NUM_THREADS": "1",
                **asked,
            }
            done = subprocess.run(
                ["bash", "-e", "-c", step["run"]], cwd=repository, env=env, capture_output=True, text=True
            )
            log += done.stdout + done.stderr
            if done.returncode:
                return done.returncode, log
            told = [line.partition("=") for line in (tmp_path / "output").read_text().splitlines()]
            known |= {f"steps.{step.get('id')}.outputs.{name}": value for name, _, value in told}
        return 0, log

    return run


def filled(text: str, known: dict[str, str]) -> str:
    """An expression of the runner's, with what it stands for."""
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: known.get(found[1], ""), text)


def applied(text: str, comments: list[dict[str, Any]]) -> str:
    """A file with the suggestions of comments taken, as GitHub takes them."""
    lines = text.splitlines()
    for comment in sorted(comments, key=lambda each: -each["line"]):
        block = re.search(r"(?s)(`{3,})suggestion\n(.*?\n)?\1\n", comment["body"])
        assert block is not None
        lines[comment.get("start_line", comment["line"]) - 1 : comment["line"]] = (block[2] or "").splitlines()
    return "\n".join(lines) + "\n"


def test_actions_are_pinned_and_inputs_stay_out_of_the_shell() -> None:
    for step in ACTION["runs"]["steps"]:
        assert re.search(r"@[0-9a-f]{40}$", step["uses"]) if "uses" in step else "${{" not in step["run"]


def test_check_annotates_and_writes_sarif(act: Act, github: GitHub, tmp_path: Path) -> None:
    status, log = act(mode="check")
    assert status == 1 and "::notice file=train.py,line=6," in log
    assert json.loads((tmp_path / "autodist-check" / "autodist.sarif").read_text())["version"] == "2.1.0"
    assert "| `train.py:6` |" in (tmp_path / "summary.md").read_text() and not github.writes


def test_suggestions_make_the_conversion(act: Act, github: GitHub, repository: Path) -> None:
    status, _ = act(mode="convert", files="train.py")
    assert status == 0
    subprocess.run([sys.executable, "-m", "autodist", "convert", "-i", "-q", "train.py"], cwd=repository, check=True)
    assert applied(SCRIPT, github.review_comments) == (repository / "train.py").read_text()
    assert any("**AD301** every rank would write this" in each["body"] for each in github.review_comments)
    assert (
        "take all of them" in github.issue_comments[0]["body"]
        and "| `train.py:6` |" in github.issue_comments[0]["body"]
    )


def test_nothing_is_written_twice(act: Act, github: GitHub, repository: Path) -> None:
    act(mode="convert", files="train.py")
    writes, before = [*github.writes], [*github.review_comments]
    assert "comment unchanged" in act(mode="convert", files="train.py")[1] and github.writes == writes
    commit(repository, github, "train.py", SCRIPT.replace("# keep me", "# keep it"))
    github.review_comments.append(
        {"id": 1, "in_reply_to_id": before[0]["id"], "body": "Why?", "line": before[0]["line"]}
    )
    github.busy = 2
    assert "comment updated" in act(mode="convert", files="train.py")[1]
    assert len(github.issue_comments) == 1 and len(github.review_comments) == len(before) + 1
    assert sum("keep it" in each["body"] for each in github.review_comments) == 1
    assert not any("keep me" in each["body"] for each in github.review_comments)


def test_comments_of_other_jobs_stay(act: Act, github: GitHub) -> None:
    for inputs in ({"label": "a --> b"}, {"strategy": "zero"}, {}):
        act(mode="convert", files="train.py", **inputs)
    assert len({each["body"].partition("-->")[0] for each in github.issue_comments}) == len(github.issue_comments) == 3
    assert all(each["body"].split("\n")[0].count(">") == 1 for each in github.issue_comments)


def test_suggestions_that_no_longer_hold_go_unless_they_were_answered(
    act: Act, github: GitHub, repository: Path
) -> None:
    act(mode="convert", files="train.py")
    first = github.review_comments[0]
    github.review_comments.append({"id": 1, "in_reply_to_id": first["id"], "body": "Why?", "line": first["line"]})
    subprocess.run([sys.executable, "-m", "autodist", "convert", "-i", "-q", "train.py"], cwd=repository, check=True)
    commit(repository, github, "train.py", (repository / "train.py").read_text())
    assert act(mode="convert", files="train.py")[0] == 0
    assert [each["id"] for each in github.review_comments] == [first["id"], 1]
    assert "Nothing to change" in github.issue_comments[0]["body"]


def test_lines_that_the_pull_request_does_not_show_stay_in_the_diff(act: Act, github: GitHub, repository: Path) -> None:
    commit(repository, github, "train.py", f"{SCRIPT}\n", shown=6)
    act(mode="convert", files="train.py")
    assert github.review_comments and all(each["line"] <= 6 for each in github.review_comments)
    assert re.search(r"\d of \d+ changes are suggested", github.issue_comments[0]["body"])


def test_the_merge_commit_has_other_lines(act: Act, github: GitHub) -> None:
    github.head = "0" * 40
    act(mode="convert", files="train.py")
    assert not github.review_comments and "pull_request.head.sha" in github.issue_comments[0]["body"]


@pytest.mark.parametrize("mode", ["convert", "check"])
def test_a_fork_gets_annotations_alone(act: Act, github: GitHub, mode: str) -> None:
    github.writable = False
    status, log = act(mode=mode, files="train.py")
    assert status == (mode == "check") and "::notice file=train.py,line=6," in log and "Traceback" not in log
    assert mode == "check" or "may not write to this pull request" in log


def test_a_push_has_no_pull_request(act: Act, github: GitHub) -> None:
    assert (
        "comments on pull requests only" in act(event=False, mode="convert", files="train.py")[1] and not github.writes
    )


def test_the_verdict_is_commented_with_its_table_and_report(act: Act, github: GitHub, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert act(mode="verify", files="train.py", strategy="ddp", steps="3", args="--lr '1 2'")[0] == 0
    body = github.issue_comments[0]["body"]
    assert "autodist verify: EQUAL" in body and "| 2 (CPU, float64) | equal | 3 |" in body
    assert (
        "(https://example.org/report)" in body and "<svg" in (tmp_path / "autodist-verify" / "report.html").read_text()
    )


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"mode": "lint"}, "check, convert or verify is wanted"),
        ({"mode": "verify"}, "needs `files`"),
        ({"mode": "convert", "files": "nowhere.py"}, "no file of the repository is called nowhere.py"),
    ],
)
def test_wrong_inputs_are_one_line(act: Act, inputs: dict[str, str], message: str) -> None:
    status, log = act(**inputs)
    assert status == 1 and message in log and "Traceback" not in log


def test_an_unreadable_script_fails_and_is_said(act: Act, github: GitHub, repository: Path) -> None:
    commit(repository, github, "train.py", "import torch\nloss.backward(\n")
    assert act(mode="convert", files="train.py")[0] == 2
