"""Devices that a script names by number, which would be the same one for all ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autodist.interpreter import Interpreter
from autodist.script import STAY, Numbered
from autodist.source import Source, argument, last_name, walk
from autodist.values import NOTHING, External

CURRENT = '"cuda"'
OF_CURRENT = frozenset(
    f"torch.cuda.{name}"
    for name in (
        "synchronize get_device_name get_device_capability memory_allocated max_memory_allocated memory_reserved "
        "max_memory_reserved memory_cached max_memory_cached memory_summary memory_stats mem_get_info utilization "
        "reset_peak_memory_stats reset_max_memory_allocated current_stream default_stream"
    ).split()
)
"""What speaks of the current device where it is told of none."""
SPELLED = re.compile(r"cuda:(\{[^}]*\}|%d|%s|%i)?")
"""What stands before a number that is put into a text, or around it."""


def device_numbers(run: Interpreter) -> Iterator[Numbered]:
    """Spelled-out device numbers: `"cuda:0"`, `.cuda(0)`, `.to(gpu_ids[0])`, `torch.device("cuda", 0)`."""
    for source in run.project.sources:
        if "cuda" not in source.text and "gpu" not in source.text:
            continue
        for node in walk(source.tree):
            plain = isinstance(node, ast.Constant) and _is_numbered(node.value) and not _is_key(node, source)
            above = source.parents.get(node)
            above = source.parents.get(above) if isinstance(above, ast.keyword) else above
            if isinstance(above, ast.Call) and _made(above, run) & {"torch.cuda.device", *OF_CURRENT}:
                continue
            if isinstance(node, ast.expr) and (plain or spells_device(node)):
                yield Numbered(source, node, CURRENT)
            elif isinstance(node, ast.IfExp):
                yield from (Numbered(source, each, CURRENT) for each in _beside_cpu(node, run))
            elif isinstance(node, ast.Call):
                yield from _in_call(node, source, run)


def _in_call(call: ast.Call, source: Source, run: Interpreter) -> Iterator[Numbered]:
    name = last_name(call.func)
    method = isinstance(call.func, ast.Attribute)
    made = _made(call, run)
    if "torch.device" in made:
        kind, number = argument(call, "type", 0), argument(call, "index", 1)
        if number is not None and isinstance(kind, ast.Constant) and kind.value == "cuda":
            yield Numbered(source, call, f"{source.code(call.func)}({CURRENT})")
        elif number is None and kind is not None and _is_number(kind, run):
            yield Numbered(source, kind, CURRENT)
    elif "torch.cuda.device" in made:
        asked = argument(call, "device", 0)
        if asked is not None and _is_numbered_or_number(asked, run):
            yield Numbered(source, asked, STAY)
    elif made & OF_CURRENT:
        asked = argument(call, "device", 0)
        if asked is not None and len(call.args) + len(call.keywords) == 1 and _is_numbered_or_number(asked, run):
            yield Numbered(source, call, f"{source.code(call.func)}()")
    elif method and not made and name == "cuda":
        asked = argument(call, "device", 0)
        if asked is not None and _is_number(asked, run):
            yield Numbered(source, call, None)
    else:
        asked = argument(call, "device", 0) if method and not made and name == "to" else argument(call, "device")
        makes = name is not None and name.startswith("new_") or any(each.startswith("torch.") for each in made)
        if (makes or name == "to") and asked is not None and _is_number(asked, run):
            yield Numbered(source, asked, CURRENT)


def _made(call: ast.Call, run: Interpreter) -> set[str]:
    """The names, in their libraries, of what is called."""
    return {each.name for each in run.values.get(call.func, NOTHING).things if isinstance(each, External)}


def _is_numbered_or_number(node: ast.expr, run: Interpreter) -> bool:
    spelled = isinstance(node, ast.Constant) and _is_numbered(node.value) or spells_device(node)
    return spelled or _is_number(node, run)


def _is_numbered(text: object) -> bool:
    return isinstance(text, str) and text.startswith("cuda:") and text[5:].isdigit()


def _is_number(node: ast.expr, run: Interpreter) -> bool:
    """`0`, `args.gpu`, `int(args.device)`, `gpu_ids[0]`, where that is no device already."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int) and not isinstance(node.value, bool)
    known = run.values.get(node, NOTHING)
    if isinstance(known.const, int) and not isinstance(known.const, bool):
        return True
    if any(known.objects("device")) or isinstance(known.const, str):
        return False
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "int"
    if isinstance(node, ast.Subscript):
        plain = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, int)
        return plain and "gpu" in (last_name(node.value) or "").lower()
    return isinstance(node, (ast.Attribute, ast.Name)) and "gpu" in ast.unparse(node).lower()


def _beside_cpu(chosen: ast.IfExp, run: Interpreter) -> Iterator[ast.expr]:
    """`args.gpu` in `args.gpu if torch.cuda.is_available() else "cpu"`"""
    for one, other in ((chosen.body, chosen.orelse), (chosen.orelse, chosen.body)):
        if isinstance(other, ast.Constant) and other.value == "cpu" and _is_number(one, run):
            yield one


def _is_key(node: ast.expr, source: Source) -> bool:
    """`map_location={"cuda:1": "cuda:0"}` says where tensors were saved, and where they go."""
    above = source.parents.get(node)
    return isinstance(above, ast.Dict) and node in above.keys


def spells_device(node: ast.expr) -> bool:
    """`f"cuda:{gpu}"`, `"cuda:{}".format(gpu)`, `"cuda:%d" % gpu`, `"cuda:" + gpu`"""
    text: ast.expr | None = None
    if isinstance(node, ast.JoinedStr) and len(node.values) == 2:
        text = node.values[0]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Mod, ast.Add)):
        text = node.left
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        text = node.func.value
    spelled = text.value if isinstance(text, ast.Constant) else None
    return isinstance(spelled, str) and SPELLED.fullmatch(spelled) is not None
