"""Names of other distribution libraries in a script: Horovod, FairScale, FSDP1. Plain PyTorch takes their place.

What goes with such a name is read off the source alone, so that code that is never reached changes, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from autodist.project import Project
from autodist.script import Borrowed
from autodist.source import Source, all_of, argument, last_name, walk

FSDP2 = frozenset(
    "fully_shard FSDPModule MixedPrecisionPolicy CPUOffloadPolicy OffloadPolicy UnshardHandle "
    "register_fsdp_forward_method".split()
)
SETTINGS = frozenset(
    "Average Sum Adasum Compression MixedPrecision CPUOffload ShardingStrategy BackwardPrefetch StateDictType "
    "FullStateDictConfig FullOptimStateDictConfig StateDictConfig LocalStateDictConfig default_auto_wrap_policy "
    "size_based_auto_wrap_policy transformer_auto_wrap_policy always_wrap_policy lambda_auto_wrap_policy "
    "ModuleWrapPolicy CustomPolicy config_auto_wrap_policy".split()
)
"""What only says how a wrapper is to work: it goes with the wrapper."""
FIRST = {
    "horovod.DistributedOptimizer": "optimizer",
    "fairscale.ShardedDataParallel": "module",
    "fairscale.FullyShardedDataParallel": "module",
    "fsdp.FullyShardedDataParallel": "module",
    "fairscale.wrap": "module",
    "fairscale.auto_wrap": "module",
    "fsdp.wrap": "module",
    "horovod.allreduce": "tensor",
    "horovod.allgather": "tensor",
    "horovod.broadcast": "tensor",
    "horovod.broadcast_object": "obj",
    "horovod.allgather_object": "obj",
}
"""Calls of which one argument stays, by its name; it comes first."""


def borrowed(project: Project, equivalents: Mapping[str, str]) -> tuple[Borrowed, ...]:
    """Every use of a name of another library, in the order of files and lines."""
    return tuple(use for source in project.sources for use in _in(source, equivalents))


def imported_names(project: Project) -> dict[Source, frozenset[str]]:
    """By file, the names that imports of other libraries bind."""
    return {
        source: frozenset(alias for alias, name in _aliases(source.tree).items() if _canonical(name) is not None)
        for source in project.sources
    }


def _in(source: Source, equivalents: Mapping[str, str]) -> Iterator[Borrowed]:
    aliases = _aliases(source.tree)
    if not any(_canonical(name) for name in aliases.values()):
        return
    uses = []
    for node in walk(source.tree):
        if not isinstance(node, (ast.Name, ast.Attribute)) or not isinstance(node.ctx, ast.Load):
            continue
        if isinstance(source.parents.get(node), ast.Attribute):
            continue
        canonical = _canonical(_qualified(node, aliases))
        if canonical is not None:
            uses.append(_use(canonical, node, source, equivalents))
    yield from sorted(uses, key=lambda use: (use.node.lineno, use.node.col_offset))


def _aliases(tree: ast.Module) -> dict[str, str]:
    """What each imported name stands for."""
    found: dict[str, str] = {}
    for node in walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                found[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found


def _qualified(node: ast.expr, aliases: Mapping[str, str]) -> str:
    path = []
    while isinstance(node, ast.Attribute):
        path.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return ""
    return ".".join([aliases[node.id], *reversed(path)])


def _canonical(name: str) -> str | None:
    """The library, and what is meant in it wherever it is exported: `fairscale.OSS`, `horovod.rank`."""
    library = name.partition(".")[0]
    parts = name.split(".")
    if name in ("horovod", "fairscale"):
        return name
    if name.startswith("torch.distributed.fsdp."):
        library, parts = "fsdp", parts[3:]
        if parts[0] in FSDP2 or parts[0].startswith("_"):
            return None
    elif library not in ("horovod", "fairscale"):
        return None
    if "elastic" in parts:
        return f"{library}.elastic"
    start = next((index for index, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    return ".".join([library, *parts[start:]])


def _use(name: str, node: ast.expr, source: Source, equivalents: Mapping[str, str]) -> Borrowed:
    parent = source.parents.get(node)
    call = parent if isinstance(parent, ast.Call) and parent.func is node else None
    template = equivalents.get(name)
    short = name.partition(".")[2]
    whole: ast.AST = call or node
    kept: tuple[ast.expr, ...] = ()
    if template is not None and not template.endswith(")"):
        whole = node
    elif name == "fairscale.OSS" and call is not None:
        kept = (*call.args, *(k.value for k in call.keywords if k.arg not in OSS_ONLY))
    elif name in FIRST and call is not None:
        wanted = [argument(call, FIRST[name], 0), argument(call, "device_id")]
        kept = tuple(each for each in wanted if each is not None)
    elif short.partition(".")[0] in SETTINGS:
        statement = source.statement(node)
        alone = isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
        whole = statement if alone and _serves_others(statement, source) else node
    return Borrowed(source, node, name, call, template, whole, kept)


OSS_ONLY = ("group", "broadcast_fp16", "force_broadcast_object")


def _serves_others(statement: ast.stmt, source: Source) -> bool:
    """`policy = partial(size_based_auto_wrap_policy, min_num_params=100)`: not a call that does anything else."""
    assert isinstance(statement, ast.Assign)
    calls = list(all_of(statement.value, ast.Call))
    plain = ("partial", "dict")
    return all(
        isinstance(c.func, (ast.Name, ast.Attribute)) and (last_name(c.func) in plain or last_name(c.func) in SETTINGS)
        for c in calls
    )


def departed(uses: Sequence[Borrowed]) -> frozenset[ast.AST]:
    """All nodes that go with the names."""
    found: set[ast.AST] = set()
    for use in uses:
        pending = [use.whole]
        while pending:
            node = pending.pop()
            if not any(node is part for part in use.kept):
                found.add(node)
                pending += ast.iter_child_nodes(node)
    return frozenset(found)
