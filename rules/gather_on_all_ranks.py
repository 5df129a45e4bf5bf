from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from autodist.edits import InsertBefore, ReplaceExpr
from autodist.rule import Context, Example, Finding, Fix, rule
from autodist.script import TrainingScript
from autodist.source import Source, walk

from ._examples import PLAIN
from ._preamble import Planned, free_name, planned
from ._previews import shared_rows
from ._shards import gathering

NUMPY = "import numpy as np\n" + PLAIN
SAVED = NUMPY + 'np.save("predictions.npy", model(torch.randn(5, 4)).detach().numpy())\n'
TAKEN = NUMPY.replace("mse_loss(model(x), y)", "mse_loss(output := model(x), y)")

EXAMPLES = [
    Example(
        before=SAVED,
        after=NUMPY + "output = model(torch.randn(5, 4))\n" + 'np.save("predictions.npy", output.detach().numpy())\n',
    ),
    Example(
        before=TAKEN + 'np.save("predictions.npy", model(torch.randn(5, 4)).detach().numpy())\n',
        after=TAKEN
        + "output_2 = model(torch.randn(5, 4))\n"
        + 'np.save("predictions.npy", output_2.detach().numpy())\n',
    ),
    Example(
        before=NUMPY + 'np.save("all.npy", np.stack([model(x).detach().numpy() for x in torch.randn(3, 5, 4)]))\n',
        after=NUMPY
        + "output = [model(x).detach().numpy() for x in torch.randn(3, 5, 4)]\n"
        + 'np.save("all.npy", np.stack(output))\n',
    ),
    Example(
        before=NUMPY + 'np.save("mean.npy", sum(model(x).mean().item() for x in torch.randn(3, 5, 4)))\n',
        after=NUMPY
        + "output = sum(model(x).mean().item() for x in torch.randn(3, 5, 4))\n"
        + 'np.save("mean.npy", output)\n',
    ),
    Example(  # `map` calls when `list` asks it to
        before=NUMPY + 'np.save("all.npy", list(map(lambda x: model(x).sum().item(), torch.randn(3, 5, 4))))\n',
        after=NUMPY
        + "output = list(map(lambda x: model(x).sum().item(), torch.randn(3, 5, 4)))\n"
        + 'np.save("all.npy", output)\n',
    ),
    Example(  # a callback: refused
        before=NUMPY
        + 'np.save("all.npy", np.apply_along_axis(lambda x: model(torch.tensor(x)).item(), 0, np.ones((4, 3))))\n',
        after=None,
    ),
    Example(before=PLAIN, after=None),
]


@rule("AD506")
def gather_on_all_ranks(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Run a model, or gather its shards, on all ranks before rank 0 alone writes the result.

    Both need every rank: parameters are gathered, buffers and the statistics of batch normalisation synchronised.
    Behind a rank check rank 0 would wait for the others for ever.
    """
    if not script.trains:
        return
    wrappers = {site.node for site in script.shards.wrappers}
    taken: dict[Source, dict[str, str]] = {}
    for site, guarded in script.shards.hoists:
        assert isinstance(site.node, ast.expr)
        code = _unwrapped(site.source, site.node, site.source.code(site.node), wrappers)
        given = taken.setdefault(site.source, {})
        edits: Planned = ()
        if isinstance(site.node, (ast.Name, ast.Attribute)) or site in script.shards.reads:
            words = [word for word in re.findall(r"[A-Za-z_]\w*", code) if word not in ("self", "data", "grad")]
            name = _free(site.source, "whole_{}", words or ["parameter"], code, given)
            code = f"{code}.full_tensor()"
        elif code.endswith("state_dict()"):
            words = [word for word in code.split(".")[:-1] if word != "self" and word.isidentifier()]
            name = _free(site.source, "{}_state", words or ["whole"], code, given)
            code = f"gather_shards({code})"
            edits = gathering(script, context, site.source)
        else:
            inside = set(walk(site.node))
            reads = (each.node for each in script.shards.reads if each.node in inside)
            endings = {each: ".full_tensor()" for each in reads if isinstance(each, ast.expr)}
            reached = [] if context.config.strategy.shards else (each.node for each in script.unwraps)
            endings |= {each: ".module" for each in reached if isinstance(each, ast.expr) and each in inside}
            code = _unwrapped(site.source, site.node, site.source.extended(site.node, endings), wrappers)
            previews = (each.node for each in script.previews if each.node in inside)
            code = _sharing_rows(site.source, code, (each for each in previews if isinstance(each, ast.Call)))
            name = free_name(site.source, "output", taken=set(given))
            given[name] = code
        before = InsertBefore(guarded, f"{name} = {code}\n", prepares=True)
        fix = Fix((*edits, *planned(site.source, before, ReplaceExpr(site.node, name))))
        yield Finding(site.source, site.node, "every rank must take part in this", fix)


def _unwrapped(source: Source, node: ast.expr, code: str, wrappers: set[ast.AST]) -> str:
    """The text of an expression without the wrapper that goes."""
    for inner in walk(node):
        if isinstance(inner, ast.Attribute) and inner in wrappers:
            code = code.replace(source.code(inner), source.code(inner.value))
    return code


def _sharing_rows(source: Source, code: str, calls: Iterable[ast.Call]) -> str:
    """The text of an expression whose model runs each rank's share of the rows that all have."""
    for call in calls:
        template, parts = shared_rows(call)
        code = code.replace(source.code(call), template.format(*map(source.code, parts)))
    return code


def _free(source: Source, form: str, words: list[str], code: str, given: dict[str, str]) -> str:
    """A name for what is gathered, `whole_weight` or `whole_head_weight`, that no other expression has."""
    names = [form.format("_".join(words[-count:])) for count in range(1, len(words) + 1)]
    name = next((each for each in names if given.get(each, code) == code), names[-1])
    if given.get(name) != code:
        name = free_name(source, name, taken=set(given))
    given[name] = code
    return name
