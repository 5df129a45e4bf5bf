"""What reading a script tells of its training: the parameters of its models, and what an optimizer keeps for them."""

from __future__ import annotations

from autodist.choice import counted
from autodist.config import Config
from autodist.deep import deep
from autodist.errors import AutodistError
from autodist.footprint import Uncounted
from autodist.plan.measured import Measured
from autodist.project import Project

MEASURE = "--measure runs it in a copy of its folder and measures it"


@deep
def read(project: Project, config: Config) -> Measured:
    """Parameters, gradients and optimizer state. Raises AutodistError where they cannot be counted."""
    found = counted(project, config)
    if found is None:
        raise AutodistError(f"no model is seen to be trained; {MEASURE}", project.entry.path)
    names, held = found
    if isinstance(held, Uncounted):
        what = f"the parameters of {names} cannot be counted without making it ({held})"
        raise AutodistError(f"{what}; {MEASURE}", project.entry.path)
    weights = held.weights
    return Measured(count=held.parameters, parameters=weights, gradients=weights, state=held.held - 2 * weights)
