from __future__ import annotations

from collections.abc import Iterator

from autodist.edits import WrapExpr
from autodist.rule import Context, Example, Finding, Fix, raised, rule
from autodist.script import TrainingScript
from autodist.source import shortened

from ._collectives import AS_ON_RANK_ZERO, ON_ANY_RANK
from ._examples import PLAIN
from ._preamble import defined, dist, imported, planned

EXAMPLES = [
    Example(
        before="""\
        import signal
        import time

        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset

        stop = False


        def handler(signum, frame):
            global stop
            stop = True


        signal.signal(signal.SIGTERM, handler)
        start = time.time()
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if stop:
                    break
            if stop or time.time() - start > 3600:
                break
        """,
        after='''\
        import signal
        import time

        import torch
        import torch.distributed as dist
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset


        def on_any_rank(flag):
            """Whether a flag is set on any rank."""
            found = torch.tensor(float(bool(flag)))
            dist.all_reduce(found, dist.ReduceOp.MAX)
            return bool(found)


        def as_on_rank_zero(value):
            """The value that rank 0 has."""
            box = [value]
            dist.broadcast_object_list(box)
            return box[0]


        stop = False


        def handler(signum, frame):
            global stop
            stop = True


        signal.signal(signal.SIGTERM, handler)
        start = time.time()
        train_set = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        loader = DataLoader(train_set, batch_size=8, shuffle=True)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for epoch in range(2):
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if on_any_rank(stop):
                    break
            if on_any_rank(stop) or as_on_rank_zero(time.time() - start > 3600):
                break
        ''',
    ),
    Example(before=PLAIN, after=None),
]


@rule("AD608")
def agree_on_stopping(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Decide together what each rank finds for itself: the clock, a signal, a file that somebody puts there, a writer.

    A limit of time passes on one rank a step earlier than on another, and a signal reaches each in another step. A rank
    that leaves a loop earlier than the others has them wait for it, and so has rank 0, which alone has a writer, where
    `if writer and step % 100 == 0:` leads to what all compute together. A model that draws noise where it is
    evaluated, as a VAE does, gives each rank another loss to stop by.
    """
    yield from raised(script, "AD608")
    if not script.trains or script.distributed:
        return
    for decision in script.decisions:
        source, node = decision.source, decision.node
        d, imports = dist(context, source)
        torch, torch_import = imported(context, source, "torch")
        if decision.on_any:
            helper = (*torch_import, *defined(script, source, ON_ANY_RANK.replace("{d}", d).replace("{torch}", torch)))
            shared = WrapExpr(node, "on_any_rank({})")
        else:
            helper = defined(script, source, AS_ON_RANK_ZERO.replace("{d}", d))
            shared = WrapExpr(node, "as_on_rank_zero({})")
        fix = Fix((*imports, *helper, *planned(source, shared)))
        yield Finding(source, node, f"ranks would find another answer to {shortened(source.code(node))}", fix)
