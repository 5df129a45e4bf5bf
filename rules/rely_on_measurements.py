from __future__ import annotations

from collections.abc import Iterator

from autodist.observations import Measured
from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

from ._examples import PLAIN

LIBRARY = (
    PLAIN.replace("import torch\n", "import errors\nimport torch\n", 1)
    .replace(
        "model = nn.Linear(4, 1)\n",
        """

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(4, 1)

    def forward(self, x, y):
        return errors.squared(self.out(x), y)


model = Net()
""",
    )
    .replace("nn.functional.mse_loss(model(x), y)", "model(x, y)")
)
MEAN = Measured(
    file="train.py",
    line=LIBRARY.splitlines().index("        return errors.squared(self.out(x), y)") + 1,
    expression="errors.squared(self.out(x), y)",
    digest="0a95a7cf40e4d15e",
    place=(1, 15),
    operation="errors.squared",
    lies="mean",
    axes=0,
    given=("sharded along axis 0; sharded along axis 0",),
    occurrences=8,
    steps=3,
)

EXAMPLES = [
    Example(before=LIBRARY, after=LIBRARY, options={"measured": (MEAN,)}),
    Example(before=LIBRARY, after=None),  # AD602: it is not known what `squared` gives
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
