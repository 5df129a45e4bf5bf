"""Find the rules."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from autodist.config import Config
from autodist.errors import AutodistError
from autodist.rule import Example, Rule


@cache
def load() -> Mapping[str, Rule]:
    """Every rule by code, in code order."""
    return {code: rule for code, (rule, _) in _load().items()}


def examples(code: str) -> tuple[Example, ...]:
    """The examples of one rule."""
    return _load()[code][1]


def selected(config: Config) -> tuple[Rule, ...]:
    """The rules of a run, in code order. Raises AutodistError for a code that names no rule."""
    for option, codes in (("select", config.select), ("ignore", config.ignore)):
        for code in codes:
            if not any(known.startswith(code) for known in load()):
                raise AutodistError(f"{option} {code}: there is no such rule (`autodist rule` lists them)")
    rules = (rule for rule in load().values() if config.strategy in rule.strategies and config.wants(rule.code))
    return tuple(rule for rule in rules if config.select or not rule.on_request)


@cache
def _load() -> Mapping[str, tuple[Rule, tuple[Example, ...]]]:
    """The rule and the examples in every file of ``autodist.rules``; names with an underscore hold none."""
    package = importlib.import_module("autodist.rules")
    found: dict[str, tuple[Rule, tuple[Example, ...]]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.ispkg or info.name.startswith("_"):
            continue
        module = vars(importlib.import_module(f"{package.__name__}.{info.name}"))
        rules = [value for value in module.values() if isinstance(value, Rule)]
        if len(rules) != 1 or rules[0].code in found:
            raise TypeError(f"{module['__file__']}: a rule file holds one rule, and its code is its own")
        found[rules[0].code] = rules[0], tuple(module.get("EXAMPLES", ()))
    return dict(sorted(found.items()))
