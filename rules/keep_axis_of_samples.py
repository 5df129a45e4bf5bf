from __future__ import annotations

import textwrap
from collections.abc import Iterator

from autodist.edits import SetArgument
from autodist.rule import Context, Example, Finding, Fix, raised, rule
from autodist.script import TrainingScript

from ._preamble import planned

SCRIPT = textwrap.dedent("""\
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    train_set = TensorDataset(torch.randn(64, 4), torch.rand(64))
    loader = DataLoader(train_set, batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(x).squeeze(), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """)

EXAMPLES = [
    Example(before=SCRIPT, after=SCRIPT.replace("squeeze()", "squeeze(dim=1)")),
    Example(before=SCRIPT.replace("squeeze()", "squeeze(-1)"), after=None),
    Example(before=SCRIPT.replace("Linear(8, 1)", "Linear(8, 3)").replace(".squeeze()", ".sum(1)"), after=None),
]


@rule("AD208")
def keep_axis_of_samples(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Name the axis that `squeeze()` drops, where it would also drop that of a rank's single sample.

    One process meets a batch of one sample seldom, at the end of an epoch; a rank has one where the batch has as many
    samples as there are ranks, and more often at the end. Losses then meet tensors of other shapes, or there is no axis
    left to work along.
    """
    if not script.trains or script.distributed:
        return
    yield from raised(script, "AD208")
    for site in script.squeezed:
        message = "a rank may have one sample, whose axis this would drop as well"
        fix = Fix(planned(site.source, SetArgument(site.node, "dim", "1")))
        yield Finding(site.source, site.node, message, fix)
