from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import Recompose
from autodist.rule import Context, Example, Finding, Fix, Severity, rule
from autodist.script import TrainingScript
from autodist.source import argument

from ._examples import PLAIN
from ._preamble import planned

NET = """\
class Net(nn.Module):
    def __init__(self, n_gpu):
        super().__init__()
        self.n_gpu = n_gpu
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x):
        if x.is_cuda and self.n_gpu > 1:
            return {call}
        return self.layers(x)


"""
SPLIT = NET.format(call="nn.parallel.data_parallel(self.layers, x, range(self.n_gpu))")
WHOLE = NET.format(call="self.layers(x)")

EXAMPLES = [
    Example(
        before=PLAIN.replace("train_set =", SPLIT + "train_set =").replace("model = nn.Linear(4, 1)", "model = Net(1)"),
        after=PLAIN.replace("train_set =", WHOLE + "train_set =").replace("model = nn.Linear(4, 1)", "model = Net(1)"),
    ),
    Example(before=PLAIN, after=None),
]


@rule("AD409")
def call_module_itself(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Call a module itself, where `nn.parallel.data_parallel` would spread the batch over the devices of one process.

    Each rank has one device and its share of the batch.
    """
    if not script.trains or script.distributed:
        return
    for site in script.data_parallel_calls:
        call = site.node
        assert isinstance(call, ast.Call)
        module, inputs = argument(call, "module", 0), argument(call, "inputs", 1)
        options = argument(call, "module_kwargs", 5)
        if module is None or inputs is None or any(isinstance(arg, ast.Starred) for arg in call.args):
            message = "spreads the batch over the devices of one process: call the module itself"
            yield Finding(site.source, call, message, severity=Severity.REFUSAL)
            continue
        given = inputs.elts if isinstance(inputs, ast.Tuple) else [inputs]
        places = [f"{{{at}}}" for at in range(1, len(given) + 1)]
        if options is not None and not (isinstance(options, ast.Constant) and options.value is None):
            places.append(f"**{{{len(given) + 1}}}")
            given = [*given, options]
        edit = Recompose(call, f"{{0}}({', '.join(places)})", (module, *given))
        yield Finding(
            site.source,
            call,
            "data_parallel uses the devices of one process",
            Fix(planned(site.source, edit)),
        )
