"""Run a script in the mind: every statement once or twice, with what variables may hold instead of what they hold.

Functions of the project are entered at each call with the values of that call, so that a helper which makes two
loaders makes two, and roles flow through parameters, attributes, containers, returns and modules. Nothing of the
user's code is ever executed.

`Interpreter(project, catalog, plan).run()` (`run.py`) leaves `values`, what each expression may evaluate to, and
`events`, what the script does. It is made of layers, a class in a module each, from `Machine` up, which holds the state
of the run. A layer calls what is in its bases, and the few methods that `Machine` declares for those above:
`tests/test_architecture.py` has the order. How a kind of code is run is found by the name of its method:

- `do_If`, `do_For` run statements, each kind in the module that is named after it, or in `statements.py`;
- `of_Call`, `of_Name` evaluate expressions, which `eval` asks them to (`evaluation.py`), and keeps what came of it;
- `call_loader`, `call_seed` call what has that role in the catalogue: `roles.py`, `draws.py`, `losses.py`.

A call goes from `calls.py` to `functions.py` and `classes.py`, if the project defines what is called, or to
`torch_modules.py`, `libraries.py`, `builtin_calls.py` and `methods.py`; `Scale.apply(x)`, of a function with a backward
pass of its own, to `autograd_functions.py`. Methods that begin with an underscore are the package's own.
"""

from __future__ import annotations

from autodist.interpreter.events import Call_, Event, Loop
from autodist.interpreter.methods import TESTING_FILES
from autodist.interpreter.plan import Plan
from autodist.interpreter.questions import children_of, is_setting, leaves_ties, returned
from autodist.interpreter.roles import LBFGS
from autodist.interpreter.run import Interpreter, Runs, Unfinished, once_a_run, shared_out
from autodist.interpreter.torch_modules import SAFE_ON_WRAPPER
from autodist.interpreter.words import COUNTING, CUTTING, DRAWING, FILLING, GROWS, MOVES, SIZES

__all__ = [
    "COUNTING",
    "CUTTING",
    "DRAWING",
    "FILLING",
    "GROWS",
    "LBFGS",
    "MOVES",
    "SAFE_ON_WRAPPER",
    "SIZES",
    "TESTING_FILES",
    "Call_",
    "Event",
    "Interpreter",
    "Loop",
    "Plan",
    "Runs",
    "Unfinished",
    "children_of",
    "is_setting",
    "leaves_ties",
    "once_a_run",
    "returned",
    "shared_out",
]
