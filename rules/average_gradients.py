from __future__ import annotations

import ast
from collections.abc import Iterator

from autodist.edits import InsertAfter, InsertBefore, ReplaceStatement, WrapExpr
from autodist.rule import REPLICATED, Context, Example, Finding, Fix, Severity, rule
from autodist.script import Model, TrainingScript

from ._departed import only_drops
from ._examples import PLAIN
from ._names import names_at
from ._preamble import (
    defined,
    dist,
    imported,
    normalised_alone,
    planned,
    started_alike,
    started_alike_there,
    synchronised,
    synchronised_there,
)

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        class Autoencoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.down = nn.Linear(4, 2)
                self.up = nn.Linear(2, 4)

            def encode(self, x):
                return torch.relu(self.down(x))

            def decode(self, code):
                return self.up(code)


        loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
        model = Autoencoder()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for (x,) in loader:
                loss = nn.functional.mse_loss(model.decode(model.encode(x)), x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """,
        after='''\
        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def average_gradients(optimizer):
            """Average the gradients over all ranks."""
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        dist.all_reduce(parameter.grad)
                        parameter.grad /= dist.get_world_size()


        class Autoencoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.down = nn.Linear(4, 2)
                self.up = nn.Linear(2, 4)

            def encode(self, x):
                return torch.relu(self.down(x))

            def decode(self, code):
                return self.up(code)


        loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8, shuffle=True)
        model = Autoencoder()
        for tensor in model.state_dict().values():  # same initial weights on all ranks
            dist.broadcast(tensor, 0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for (x,) in loader:
                loss = nn.functional.mse_loss(model.decode(model.encode(x)), x)
                optimizer.zero_grad()
                loss.backward()
                average_gradients(optimizer)
                optimizer.step()
        ''',
    ),
    Example(
        before=PLAIN,
        after=None,
    ),
]


AVERAGE = '''\
def average_gradients(optimizer):
    """Average the gradients over all ranks."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                {d}.all_reduce(parameter.grad)
                parameter.grad /= {d}.get_world_size()


'''


AVERAGE_SOME = '''\
def average_gradients(optimizer):
    """Average the gradients over all ranks, of which some may have none of a parameter."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    has_any = {torch}.tensor([float(parameter.grad is not None) for parameter in parameters])
    has_any = has_any.to(parameters[0].device)
    {d}.all_reduce(has_any)
    for parameter, count in zip(parameters, has_any.tolist()):
        if count:
            parameter.grad = {torch}.zeros_like(parameter) if parameter.grad is None else parameter.grad
            {d}.all_reduce(parameter.grad)
            parameter.grad /= {d}.get_world_size()


'''


AVERAGE_SOME_LOOSE = '''\
def average_gradients_of(tensors):
    """Average the gradients of tensors over all ranks, of which some may have none of a tensor."""
    has_any = {torch}.tensor([float(tensor.grad is not None) for tensor in tensors]).to(tensors[0].device)
    {d}.all_reduce(has_any)
    for tensor, count in zip(tensors, has_any.tolist()):
        if count:
            tensor.grad = {torch}.zeros_like(tensor) if tensor.grad is None else tensor.grad
            {d}.all_reduce(tensor.grad)
            tensor.grad /= {d}.get_world_size()


'''


AVERAGE_LOOSE = '''\
def average_gradients_of(tensors):
    """Average the gradients of tensors over all ranks."""
    for tensor in tensors:
        if tensor.grad is not None:
            {d}.all_reduce(tensor.grad)
            tensor.grad /= {d}.get_world_size()


'''


@rule("AD404", *REPLICATED)
def average_gradients(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Average gradients explicitly where DistributedDataParallel would not.

    It averages in backward passes that follow a call of the wrapper itself. Where a training step calls other methods
    of the model, or runs backward twice after one forward, gradients would silently stay each rank's own. Such models
    are not wrapped: all ranks start from the weights of rank 0, and gradients are averaged before they are used.
    So are those of tensors in no module that a script changes by hand.
    """
    if not script.trains:
        return
    said: set[tuple[ast.stmt, str]] = set()
    for model in script.models:
        if not model.bypassed or model.wrapped:
            continue
        wrapping = model.wrapping
        if wrapping is None:
            yield Finding(
                model.object.source,
                model.object.node,
                "cannot see a place between where this model is made and its first step, for all ranks to take the "
                "weights of rank 0 at: give it a name of its own where it is made",
                severity=Severity.REFUSAL,
            )
            continue
        target = wrapping.source.code(wrapping.target)
        if (wrapping.statement, target) in said:
            continue  # for another model that may stand in this one's place
        said.add((wrapping.statement, target))
        d, imports = dist(context, wrapping.source)
        if wrapping.unnamed:
            name, definition = started_alike_there(script, d, wrapping.source)
            code, imports = f"{name}({{}})", (*imports, *definition)
            if model.batch_norm and not script.distributed:
                name, definition = synchronised_there(script, context, wrapping.source)
                code, imports = f"{name}({code})", (*imports, *definition)
                yield from normalised_alone(script, wrapping.source, wrapping.statement)
            fix = Fix((*imports, *planned(wrapping.source, WrapExpr(wrapping.target, code))))
            yield Finding(wrapping.source, wrapping.target, _unsynchronised(model), fix)
            continue
        code = started_alike(script, d, target, names_at(wrapping.source, wrapping.statement), wrapping.each)
        if model.batch_norm and not script.distributed:
            lines, needed = synchronised(script, context, wrapping.source, target, wrapping.each, not wrapping.move)
            imports, code = (*imports, *needed), lines + code
            yield from normalised_alone(script, wrapping.source, wrapping.statement)
        replaced = only_drops(model, wrapping.statement)
        edit = (ReplaceStatement if replaced else InsertAfter)(wrapping.statement, code)
        fix = Fix((*imports, *planned(wrapping.source, edit)))
        yield Finding(
            wrapping.source,
            wrapping.statement,
            _unsynchronised(model),
            fix,
        )
    for site, optimizer in script.averaged:
        d, imports = dist(context, site.source)
        code = AVERAGE.replace("{d}", d)
        if script.lacks_gradients:
            torch, needed = imported(context, site.source, "torch")
            imports, code = (*imports, *needed), AVERAGE_SOME.replace("{d}", d).replace("{torch}", torch)
        call = InsertBefore(site.statement, f"average_gradients({optimizer})\n")
        fix = Fix((*imports, *defined(script, site.source, code), *planned(site.source, call)))
        yield Finding(site.source, site.node, "gradients are averaged before they are used", fix)
    for site, tensors in script.stepped_by_hand:
        d, imports = dist(context, site.source)
        call = InsertBefore(site.statement, f"average_gradients_of({tensors})\n")
        code = AVERAGE_LOOSE.replace("{d}", d)
        if script.lacks_gradients:
            torch, needed = imported(context, site.source, "torch")
            imports, code = (*imports, *needed), AVERAGE_SOME_LOOSE.replace("{d}", d).replace("{torch}", torch)
        helper = defined(script, site.source, code)
        fix = Fix((*imports, *helper, *planned(site.source, call)))
        yield Finding(
            site.source, site.node, "gradients of tensors in no module are averaged before they are used", fix
        )


def _unsynchronised(model: Model) -> str:
    return f"DistributedDataParallel would not synchronise this model: {model.bypassed}"
