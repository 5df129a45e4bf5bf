"""Write what the documentation says about conversions from the converter itself: ``make docs``."""

from __future__ import annotations

from pathlib import Path

from autodist import registry
from autodist.config import Config
from autodist.convert import convert
from autodist.project import Project
from autodist.report.diff import diff
from autodist.report.rules import reference

ROOT = Path(__file__).parent.parent
RULES, GUIDE = ROOT / "docs" / "rules.md", ROOT / "docs" / "guides" / "ddp.md"
BEGIN, END = "<!-- diff of examples/train.py, written by `make docs` -->\n", "<!-- end -->\n"


def rules() -> str:
    """What docs/rules.md must say."""
    found = registry.load()
    return reference(found, {code: registry.examples(code) for code in found})


def guide(text: str) -> str:
    """The guide to DDP with the diff of the example as it is now."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    result = convert(Project.load((ROOT / "examples" / "train.py").relative_to(Path.cwd())), Config())
    return f"{before}{BEGIN}\n```diff\n{diff(result)}```\n\n{END}{after}"


if __name__ == "__main__":
    RULES.write_text(rules(), encoding="utf-8")
    GUIDE.write_text(guide(GUIDE.read_text(encoding="utf-8")), encoding="utf-8")
