"""Whether ranks stay together when each has its own clock and its own dice.

The probes give all ranks one clock, and let them draw alike what a step draws once and what they evaluate all of them,
so that the numbers of the two programs can be compared. Without the probes a rank that decides by any of it may decide
otherwise than the others, and leaves a loop, or a step, in which these wait for it. So a conversion that is equal, and
may do so, runs once more with what each rank has for itself. What ranks average or send is the same on all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from autodist.verify.replay import replicated
from autodist.verify.trace import PassKey, RunTrace

CLOCKS = frozenset(
    {"time", "perf_counter", "monotonic", "process_time", "time_ns", "perf_counter_ns", "monotonic_ns", "now", "utcnow"}
)
ROUNDS = 4
"""How often names are looked for that stand for what other names have told."""


def single_draws(ranks: Sequence[RunTrace]) -> dict[str, tuple[str, str]]:
    """What the original draws once for a batch, and ranks that are seeded apart each for itself: by function and line,
    with the place of the loader."""
    found: dict[str, tuple[str, str]] = {}
    for key, first in ranks[0].passes.items():
        passes = [rank.passes[key] for rank in ranks if key in rank.passes]
        if not first.trains or len(passes) < len(ranks):
            continue
        for library, sites in sorted(first.singles.items()):
            states = [(each.noise or {}).get(library) for each in passes]
            if None not in states and len(set(states)) > 1:
                for site, function in sites.items():
                    found.setdefault(f"{function} {site}", (f"{function} ({site})", first.site))
    return found


def drawn_in_evaluation(ranks: Sequence[RunTrace]) -> frozenset[PassKey]:
    """Evaluations of the same samples for which ranks whose generators are apart draw, each for itself: what one of
    them finds may not be what another one does."""
    found = set()
    for key in ranks[0].passes:
        passes = [rank.passes[key] for rank in ranks if key in rank.passes]
        if len(passes) < len(ranks) or any(each.trains for each in passes) or not replicated(passes):
            continue
        states = [[(each.noise or {}).get(library) for each in passes] for library in passes[0].drawn_from]
        if any(len(set(of_ranks)) > 1 for of_ranks in states):
            found.add(key)
    return frozenset(found)


def goes_by_time(texts: Iterable[str]) -> bool:
    """Whether something in these modules is compared with what a clock tells."""
    return any(any(name in text for name in CLOCKS) and compares_clock(text) for text in texts)


def compares_clock(text: str) -> bool:
    """Whether a module compares what a clock tells, under any name."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):
        return False
    told: set[str] = set()
    for _ in range(ROUNDS):
        before = len(told)
        for node in nodes:
            if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value and tells(node.value, told):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                told |= {name for target in targets if (name := name_of(target))}
            elif isinstance(node, ast.FunctionDef):
                given = (each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value)
                told |= {node.name} if any(tells(value, told) for value in given) else set()
        if len(told) == before:
            break
    return any(isinstance(node, ast.Compare) and tells(node, told) for node in nodes)


def name_of(node: ast.expr) -> str | None:
    """What a variable or an attribute is called."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else None


def tells(node: ast.AST, told: set[str]) -> bool:
    """Whether an expression asks a clock, or one of the names that hold what it told."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and name_of(each.func) in CLOCKS:
            return True
        if isinstance(each, (ast.Name, ast.Attribute)) and name_of(each) in told:
            return True
    return False
