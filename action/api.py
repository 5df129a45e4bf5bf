"""What is asked of GitHub: pages of a list, and a comment that is updated instead of repeated."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PAGE, ATTEMPTS, SECONDS, LONGEST = 100, 3, 30, 65_000
PASSING = (429, 500, 502, 503, 504)
NO_RIGHT = (401, 403, 404)


class NoRight(Exception):
    """The token may not write here, as in a pull request from a fork."""


@dataclass(frozen=True)
class PullRequest:
    """A pull request, and the token that may write to it. ``pause`` are seconds before another attempt."""

    api: str
    repository: str
    number: int
    head: str
    token: str
    pause: float = 2.0

    def comment(self, key: str, body: str) -> str:
        """Write the comment that ``key`` names, over the one of an earlier run. Returns what was done."""
        marker = f"<!-- autodist:{key} -->"
        body = f"{marker}\n{shortened(body)}"
        for found in self.pages(f"issues/{self.number}/comments"):
            if not str(found["body"]).startswith(marker):
                continue
            if found["body"].replace("\r\n", "\n") == body:
                return "unchanged"
            self.send("PATCH", f"issues/comments/{found['id']}", {"body": body})
            return "updated"
        self.send("POST", f"issues/{self.number}/comments", {"body": body})
        return "written"

    def pages(self, path: str) -> Iterator[dict[str, Any]]:
        """Each item of a list."""
        page = 1
        while items := self.send("GET", f"{path}?per_page={PAGE}&page={page}"):
            yield from items
            if len(items) < PAGE:
                return
            page += 1

    def send(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> Any:
        """Ask, and once more where GitHub is busy. Raises NoRight."""
        request = urllib.request.Request(
            f"{self.api}/repos/{self.repository}/{path}",
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={
                "Authorization": f"Bearer {self.token}",
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": "2022-11-28",
                "Content-Type": "application/json",
                "User-Agent": "autodist",
            },
        )
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with urllib.request.urlopen(request, timeout=SECONDS) as answer:
                    text = answer.read()
                    return json.loads(text) if text else None
            except urllib.error.HTTPError as error:
                if error.code in NO_RIGHT:
                    raise NoRight(f"{method} {path}: {error.code}") from None
                if error.code not in PASSING or attempt == ATTEMPTS:
                    said = error.read().decode(errors="replace")[:300]
                    raise SystemExit(f"error: GitHub refuses {method} {path}: {error.code} {said}") from None
            except OSError as error:
                if attempt == ATTEMPTS:
                    raise SystemExit(f"error: GitHub cannot be reached: {error}") from None
            time.sleep(self.pause * attempt)
        raise AssertionError


def shortened(text: str) -> str:
    """A text that fits a comment. Where a diff is too long for it, the whole of it is in the summary of the job."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n~~~~\n\n</details>\n\nToo long for a comment: the summary of the job has all of it."
