from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, rule
from autodist.script import TrainingScript

from ._examples import PLAIN

EXAMPLES = [Example(before=PLAIN, after=None)]


@rule("AD612")
def rely_on_measurements(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Say which values were measured, and not read, where the conversion depends on them.

    `convert --observe` runs a few steps on whole batches and on shares of them, and sees what joins the results of
    functions that reading does not know. What they do on other samples, in later steps or under other arguments is not
    known: labels that are left out, and do not occur in those steps, make a loss another mean. `convert --verify`
    proves the result on a whole run, and says this no more.
    """
    for concern in script.concerns:
        if concern.code == "AD612":
            yield Finding(concern.source, concern.node, concern.message, severity=concern.severity)
