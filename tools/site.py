"""What `make site` does to pages: takes in those that are kept beside the code, with links that hold in the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TAKEN_IN = re.compile(r'^--8<-- "(\w+\.md)"$', re.MULTILINE)
OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:benchmarks|autodist|examples|fixtures)/[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The text of a page, as mkdocs asks for it."""
    return TAKEN_IN.sub(lambda found: _here((ROOT / found[1]).read_text(encoding="utf-8")), markdown)


def _here(text: str) -> str:
    """Links into docs/ start there; what is not in the site is a name."""
    return OUTSIDE.sub(r"\1", text).replace("](docs/", "](")
