"""What reading a script tells of its training: the parameters of its models, and what an optimizer keeps for them."""

from __future__ import annotations

from autodist import catalog
from autodist.config import Config
from autodist.deep import deep
from autodist.errors import AutodistError
from autodist.footprint import Uncounted, footprint
from autodist.interpreter import Interpreter, Plan
from autodist.models import trained_models
from autodist.plan.measured import Measured
from autodist.project import Project

MEASURE = "--measure runs it in a copy of its folder and measures it"


@deep
def read(project: Project, config: Config) -> Measured:
    """Parameters, gradients and optimizer state. Raises AutodistError where they cannot be counted."""
    run = Interpreter(project, catalog.load(config.catalog, config.operations), Plan()).run()
    models = [model.object for model in trained_models(run)]
    if not models:
        raise AutodistError(f"no model is seen to be trained; {MEASURE}", project.entry.path)
    names = " and ".join(dict.fromkeys(model.name.rpartition(".")[2] for model in models))
    try:
        found = footprint(run, models)
    except Uncounted as unknown:
        what = f"the parameters of {names} cannot be counted without making it ({unknown})"
        raise AutodistError(f"{what}; {MEASURE}", project.entry.path) from None
    weights = found.weights
    return Measured(count=found.parameters, parameters=weights, gradients=weights, state=found.held - 2 * weights)
