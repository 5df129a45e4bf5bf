"""Start a rule: ``make rule CODE=AD310 NAME=close_writers`` makes rules/close_writers.py to fill in."""

from __future__ import annotations

import re
import sys
from pathlib import Path

RULES = Path(__file__).parent.parent / "rules"

TEMPLATE = '''\
from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, rule
from autodist.script import TrainingScript

EXAMPLES = [
    Example(
        before="""\\
        import torch
        """,
        after="""\\
        import torch
        """,
    ),
    Example(before="import torch\\n", after=None),
]


@rule("{code}")
def {name}(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Say in one sentence what the rule does.

    Say why: what goes wrong on several ranks without it.
    """
    yield from ()
'''


def main(code: str, name: str) -> str | None:
    """Write the file. Returns what is wrong, if anything is."""
    if not re.fullmatch(r"AD\d{3}", code):
        return f"CODE={code}: a code is AD and three digits, the first of which is its group (docs/rules.md)"
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", name):
        return f"NAME={name}: a name says what the rule does in words_like_this"
    if taken := [path.name for path in sorted(RULES.glob("*.py")) if f'@rule("{code}"' in path.read_text()]:
        return f"{code} is taken by rules/{taken[0]}"
    path = RULES / f"{name}.py"
    if path.exists():
        return f"rules/{path.name} exists"
    path.write_text(TEMPLATE.format(code=code, name=name))
    print(f"rules/{path.name}: write EXAMPLES first, then the rule, then `make docs test`")
    return None


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
