from __future__ import annotations

from collections.abc import Iterator

from autodist.observations import Measured
from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import PLAIN

LIBRARY = PLAIN.replace("import torch\n", "import errors\nimport torch\n", 1).replace(
    "nn.functional.mse_loss(model(x), y)", "errors.squared(model(x), y).mean()"
)
SQUARED = Measured(
    file="train.py",
    line=LIBRARY.splitlines().index("        loss = errors.squared(model(x), y).mean()") + 1,
    expression="errors.squared(model(x), y)",
    digest="b133944f7f496a35",
    place=(0, 15),
    operation="errors.squared",
    lies="rows",
    axis=0,
    axes=2,
    given=("sharded along axis 0; sharded along axis 0",),
    occurrences=8,
    steps=3,
)

EXAMPLES = [
    Example(before=LIBRARY, after=LIBRARY, options={"measured": (SQUARED,)}),
    Example(before=LIBRARY, after=None),  # AD602: it is not known whether `squared` leaves samples apart
]


@rule("AD612")
def rely_on_measurements(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Say which values were measured, and not read, where the conversion depends on them.

    `convert --observe` runs a few steps on whole batches and on shares of them, and sees what joins the results of
    functions that reading does not know. What they do on other samples, in later steps or under other arguments is not
    known: labels that are left out, and do not occur in those steps, make a loss another mean. `convert --verify`
    proves the result on a whole run, and says this no more.
    """
    yield from raised(script, "AD612")
