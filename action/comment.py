"""Write what autodist found to the pull request: a comment, and for a conversion a review with suggestions."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from api import NoRight, PullRequest
from suggestions import Suggestion, ranges, suggestions

TOGETHER = (
    "The suggestions belong together: take all of them (*Add suggestion to batch*), "
    "or run `autodist convert --in-place` on your machine."
)
MARKER = re.compile(r"<!-- autodist:suggestion ([0-9a-f]+) -->")


def pull_request(env: Mapping[str, str]) -> PullRequest | None:
    """The pull request that started the workflow, if one did."""
    event = json.loads(Path(env["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    pull = event.get("pull_request")
    if pull is None:
        return None
    api = env.get("GITHUB_API_URL", "https://api.github.com")
    pause = float(env.get("AUTODIST_PAUSE", "2"))
    return PullRequest(api, env["GITHUB_REPOSITORY"], pull["number"], pull["head"]["sha"], env["GITHUB_TOKEN"], pause)


def review(pull: PullRequest, folder: Path) -> str:
    """Suggest a conversion, line by line where the pull request shows the lines. Returns what is to be said of it."""
    path = folder / "convert.json"
    scripts = json.loads(path.read_text(encoding="utf-8"))["scripts"] if path.exists() else []
    wanted = [*dict.fromkeys(each for script in scripts for each in suggestions(script["diff"]))]
    if wanted and _checked_out() != pull.head:
        return (
            "Nothing is suggested line by line, because the merge commit is checked out: "
            "give actions/checkout `ref: ${{ github.event.pull_request.head.sha }}`."
        )
    shown = {each["filename"]: ranges(each.get("patch", "")) for each in pull.pages(f"pulls/{pull.number}/files")}
    fitting = [each for each in wanted if each.fits(shown)]
    _replace(pull, {_key(each): _comment(each, scripts) for each in fitting})
    if not wanted:
        return ""
    if len(fitting) == len(wanted):
        return TOGETHER
    return (
        f"{len(fitting)} of {len(wanted)} changes are suggested line by line. The others stand in lines that this pull "
        "request does not change, where GitHub takes no suggestions: put the diff above into a file and run "
        "`git apply FILE`, or run `autodist convert --in-place` on your machine. The changes belong together."
    )


def _replace(pull: PullRequest, comments: Mapping[str, Mapping[str, Any]]) -> None:
    """Post what is new, leave what is there, and take away what no longer holds, unless somebody has answered."""
    found = list(pull.pages(f"pulls/{pull.number}/comments"))
    answered = {each.get("in_reply_to_id") for each in found}
    present = set()
    for each in found:
        marked = MARKER.search(each["body"])
        if marked is None or each.get("in_reply_to_id"):
            continue
        wanted = comments.get(marked[1])
        if wanted is not None and each.get("line") == wanted["line"]:
            present.add(marked[1])
        elif each["id"] not in answered:
            pull.send("DELETE", f"pulls/comments/{each['id']}")
    new = [comment for key, comment in comments.items() if key not in present]
    if new:
        content = {"commit_id": pull.head, "event": "COMMENT", "body": TOGETHER, "comments": new}
        pull.send("POST", f"pulls/{pull.number}/reviews", content)


def _comment(suggestion: Suggestion, scripts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A comment with the reasons that stand at its lines."""
    reasons = dict.fromkeys(_reasons(suggestion, scripts))
    body = "\n".join([*reasons, suggestion.block, f"<!-- autodist:suggestion {_key(suggestion)} -->"])
    place: dict[str, Any] = {"path": suggestion.path, "line": suggestion.last, "side": "RIGHT", "body": body}
    if suggestion.first < suggestion.last:
        place |= {"start_line": suggestion.first, "start_side": "RIGHT"}
    return place


def _reasons(suggestion: Suggestion, scripts: Sequence[Mapping[str, Any]]) -> Iterable[str]:
    for each in (each for script in scripts for each in script["diagnostics"]):
        if each["path"] == suggestion.path and suggestion.first <= each["line"] <= suggestion.last and each["fix"]:
            yield f"**{each['code']}** {each['message']}\n"


def _key(suggestion: Suggestion) -> str:
    parts = (suggestion.path, str(suggestion.first), str(suggestion.last), *suggestion.lines)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _checked_out() -> str:
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    """Comment, if this is a pull request that the token may write to; annotations are there in any case."""
    env = os.environ
    folder, mode = Path(env["AUTODIST_FOLDER"]), env["AUTODIST_MODE"]
    pull, summary = pull_request(env), folder / "summary.md"
    if pull is None:
        print("::notice::autodist comments on pull requests only: see the summary of the job")
        return
    text = (
        summary.read_text(encoding="utf-8")
        if summary.exists()
        else "autodist ended with an error: see the job's log.\n"
    )
    try:
        if mode == "convert":
            text += f"\n{review(pull, folder)}\n"
        if env.get("AUTODIST_REPORT_URL"):
            text += f"\n[The whole report]({env['AUTODIST_REPORT_URL']}): curves, samples and files of each rank.\n"
        print(
            "comment", pull.comment(re.sub(r"[^\w./*]+", " ", f"{mode} {env.get('AUTODIST_LABEL', '')}").strip(), text)
        )
    except NoRight as error:
        print(f"::notice::autodist may not write to this pull request ({error}): see annotations and the job's summary")


if __name__ == "__main__":
    main()
