"""The rules as a table, as one rule's page, and as the reference in docs/rules.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import unified_diff
from textwrap import dedent

from autodist.rule import Example, Rule

GROUPS = {
    "1": "Process group and device",
    "2": "Data",
    "3": "Files, downloads, output",
    "4": "Wrapping the model (DDP)",
    "5": "Sharding the model (FSDP)",
    "6": "Loss, metrics, accumulation, stopping",
    "7": "Seeding",
    "8": "Ranks that wait for each other",
    "9": "What cannot be converted",
}

LONGEST = 120


def table(rules: Iterable[Rule]) -> str:
    """Every rule on a line: code, name, summary."""
    rules = tuple(rules)
    width = max((len(rule.name) for rule in rules), default=0)
    return "\n".join(f"{rule.code}  {rule.name:{width}}  {rule.summary}" for rule in rules)


def page(rule: Rule, examples: Sequence[Example]) -> str:
    """The documentation of one rule, as Markdown, with the change it makes to its first examples."""
    strategies = ", ".join(sorted(strategy.value for strategy in rule.strategies))
    heading = f"{rule.code} {rule.name}"
    shown = [_example(example) for example in examples if example.after is not None][:2]
    return "\n\n".join([f"### {heading}", f"For: {strategies}", rule.docs, *shown]) + "\n"


def reference(rules: Mapping[str, Rule], examples: Mapping[str, Sequence[Example]]) -> str:
    """The whole of docs/rules.md."""
    sections = ["# Rules", "Generated from the rules by `make docs`. Each rule's examples are run by `make test`."]
    for digit, title in GROUPS.items():
        group = [rule for code, rule in rules.items() if code.startswith(f"AD{digit}")]
        if group:
            rows = "\n".join(f"| [{rule.code}](#{_anchor(rule)}) | {rule.name} | {rule.summary} |" for rule in group)
            sections.append(f"## {title}\n\n| code | name | |\n|---|---|---|\n{rows}")
            sections += [page(rule, examples[rule.code]).rstrip() for rule in group]
    return "\n\n".join(sections) + "\n"


def _anchor(rule: Rule) -> str:
    return f"{rule.code} {rule.name}".lower().replace(" ", "-")


def _example(example: Example) -> str:
    assert example.after is not None
    before, after = dedent(example.before), dedent(example.after)
    if before == after:
        shown = "\n".join(_shortened(line) for line in before.rstrip().splitlines())
        return f"```python\n{shown}\n```"
    lines = list(unified_diff(before.splitlines(), after.splitlines(), n=100, lineterm=""))[3:]
    return "```diff\n" + "\n".join(line.rstrip() for line in lines) + "\n```"


def _shortened(line: str) -> str:
    """A line that fits a page."""
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 4]} ..."
