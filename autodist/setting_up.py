"""What `autodist init` adds to a repository: options in pyproject.toml, and hooks. It changes nothing that is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from autodist.config import Strategy
from autodist.errors import AutodistError

OPTIONS = """\
[tool.autodist]
strategy = "{strategy}"
# ignore = ["AD602"]                  # rules to leave out
# [tool.autodist.catalog]             # your own libraries: functions that download, data sets, blocks of models
# download = ["mylib.data.fetch"]
"""
HOOKS = """\
- repo: local
  hooks:
    - id: autodist-check
      name: autodist check
      entry: autodist check
      language: system
      types: [python]
      require_serial: true
"""
REPOS, ENTRY, TOP = re.compile(r"repos:\s*(#.*)?$"), re.compile(r"( *)- +\w+:"), re.compile(r"[^\s#-]")


def set_up(folder: Path, strategy: Strategy) -> list[str]:
    """Add what is missing, both files or none, and return what was done. Raises AutodistError."""
    texts: dict[Path, str] = {}
    done = []
    for name, add in (("pyproject.toml", with_options), (".pre-commit-config.yaml", with_hooks)):
        path = folder / name
        try:
            before = path.read_text(encoding="utf-8") if path.exists() else ""
        except (OSError, ValueError) as error:
            raise AutodistError(f"cannot be read: {error}", path) from None
        after = add(before, path, strategy)
        if after == before:
            done.append(f"{name}: has it, and is left as it is")
        else:
            texts[path] = after
            done.append(f"{name}: {'added to' if before else 'written'}")
    for path, text in texts.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise AutodistError(f"cannot be written: {error.strerror}", path) from None
    return done


def with_options(text: str, path: Path, strategy: Strategy) -> str:
    """A pyproject.toml with a table for autodist."""
    if "autodist" in _tools(text, path):
        return text
    added = f"{text.rstrip()}\n\n" if text.strip() else ""
    added += OPTIONS.format(strategy=strategy.value)
    try:
        _tools(added, path)
    except AutodistError:  # after `tool = {...}` no table of it can be added
        raise AutodistError("[tool.autodist] cannot be added at its end: write it yourself", path) from None
    return added


def _tools(text: str, path: Path) -> dict[str, object]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        tools = tomllib.loads(text).get("tool", {})
    except ValueError as error:
        raise AutodistError(f"is not valid TOML: {error}", path) from None
    return tools if isinstance(tools, dict) else {}


def with_hooks(text: str, path: Path, strategy: Strategy) -> str:
    """A configuration of pre-commit with a hook that checks: the last of its repositories."""
    if re.search(r"(?m)^[^#\n]*\bautodist", text):
        return text
    lines = text.splitlines(keepends=True)
    begin = next((number for number, line in enumerate(lines) if REPOS.match(line)), None)
    if begin is None and text.strip():
        advice = "add it yourself, with `entry: autodist check` and `language: system`"
        raise AutodistError(f"has no list under `repos:` that a hook could be added to: {advice}", path)
    if begin is None:
        return "repos:\n" + _indented("  ")
    end = next((number for number, line in enumerate(lines[begin + 1 :], begin + 1) if TOP.match(line)), len(lines))
    while end > begin + 1 and not lines[end - 1].strip():
        end -= 1
    entry = next((found for line in lines[begin + 1 : end] if (found := ENTRY.match(line))), None)
    lines[end - 1] = lines[end - 1].rstrip("\n") + "\n"
    lines.insert(end, _indented(entry[1] if entry else "  "))
    return "".join(lines)


def _indented(indent: str) -> str:
    return "".join(f"{indent}{line}" for line in HOOKS.splitlines(keepends=True))
